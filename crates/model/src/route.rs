//! Routes: which requests go where.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::policy::{RateLimits, Security, Traffic};
use crate::{ClientAuth, Codings, HostPattern, UpstreamKey};

/// A host and its routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VirtualHost {
    /// The hosts that it answers for.
    pub host: HostPattern,
    /// Its routes, at most one for each [`PathPattern`], in no particular order.
    pub routes: Vec<Route>,
    /// Where a request for this host goes that no path takes (`spec.defaultBackend` of the Ingress that owns
    /// the host). Without it, [`Config::default_route`](crate::Config::default_route) takes it.
    pub fallback: Option<Route>,
}

/// One path of one host, and the upstream that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// Which object it comes from.
    pub id: RouteId,
    /// Which paths it takes.
    pub path: PathPattern,
    /// Who serves it.
    pub upstream: UpstreamKey,
    /// Whether clients that come over plain HTTP are sent to HTTPS, by 308 (ingress-nginx `ssl-redirect`).
    pub https_only: bool,
    /// The policy for certificates of clients that a connection must have been opened under.
    pub client_auth: Option<Arc<ClientAuth>>,
    /// How responses are compressed, if not as [`Compression::codings`](crate::Compression::codings) says.
    pub compression: Option<Codings>,
    /// Who may call it; everybody, if nothing says otherwise.
    pub security: Option<Arc<Security>>,
    /// How often it may be called.
    pub rate_limits: Option<Arc<RateLimits>>,
    /// How its requests go on, beside what holds for all routes.
    pub traffic: Option<Arc<Traffic>>,
}

impl Route {
    /// A route without any policy.
    #[must_use]
    pub fn new(id: RouteId, path: PathPattern, upstream: UpstreamKey) -> Self {
        Self {
            id,
            path,
            upstream,
            https_only: false,
            client_auth: None,
            compression: None,
            security: None,
            rate_limits: None,
            traffic: None,
        }
    }
}

/// The object that a route was written in; routes of one object share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RouteId {
    /// The object's kind, such as `Ingress`.
    pub kind: &'static str,
    /// The object's namespace.
    pub namespace: Arc<str>,
    /// The object's name.
    pub name: Arc<str>,
}

impl fmt::Display for RouteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Which paths a route takes. Patterns start with `/` and are in the normal form of
/// `sluicegate_http1::path::normalise`, as is what they are compared with.
///
/// The longest pattern that matches wins; of the same length an exact one wins, then an element-wise prefix,
/// then a plain prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum PathPattern {
    /// The whole path, case sensitive (`pathType: Exact`).
    Exact(Box<str>),
    /// Element by element (`pathType: Prefix`): `/foo` takes `/foo` and `/foo/bar`, not `/foobar`. Written
    /// without a trailing slash, except for `/` itself, which takes everything.
    Prefix(Box<str>),
    /// Character by character, as nginx' plain `location` (`pathType: ImplementationSpecific`): `/foo` takes
    /// `/foobar` too.
    Starts(Box<str>),
}

impl PathPattern {
    /// The pattern's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Exact(path) | Self::Prefix(path) | Self::Starts(path) => path,
        }
    }

    /// The name of its kind, as Kubernetes writes it in `pathType`.
    #[must_use]
    pub fn path_type(&self) -> &'static str {
        match self {
            Self::Exact(_) => "Exact",
            Self::Prefix(_) => "Prefix",
            Self::Starts(_) => "ImplementationSpecific",
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
