//! Routes: which requests go where.

use std::fmt;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use serde::Serialize;

use crate::encoding::bound::PatternPath;
use crate::encoding::{Adapt as _, Context, Interned, Maybe, Shared, Text, Within};
use crate::policy::{RateLimits, Security, Traffic};
use crate::{ClientAuth, Codings, HostPattern, UpstreamKey};

/// A host and its routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map, context_bound = "Context")]
pub struct VirtualHost {
    /// The hosts that it answers for.
    #[n(0)]
    pub host: HostPattern,
    /// Its routes, at most one for each [`PathPattern`], in no particular order.
    #[n(1)]
    pub routes: Vec<Route>,
    /// Where a request for this host goes that no path takes (`spec.defaultBackend` of the Ingress that owns
    /// the host). Without it, [`Config::default_route`](crate::Config::default_route) takes it.
    #[n(2)]
    pub fallback: Option<Route>,
}

/// One path of one host, and the upstream that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map, context_bound = "Context")]
pub struct Route {
    /// Which object it comes from.
    #[n(0)]
    pub id: RouteId,
    /// Which paths it takes.
    #[n(1)]
    pub path: PathPattern,
    /// Who serves it.
    #[n(2)]
    pub upstream: UpstreamKey,
    /// Whether clients that come over plain HTTP are sent to HTTPS, by 308 (ingress-nginx `ssl-redirect`).
    #[n(3)]
    pub https_only: bool,
    /// The policy for certificates of clients that a connection must have been opened under.
    #[cbor(n(4), with = "Maybe::<Shared>")]
    pub client_auth: Option<Arc<ClientAuth>>,
    /// How responses are compressed, if not as [`Compression::codings`](crate::Compression::codings) says.
    #[n(5)]
    pub compression: Option<Codings>,
    /// Who may call it; everybody, if nothing says otherwise.
    #[cbor(n(6), with = "Maybe::<Shared>")]
    pub security: Option<Arc<Security>>,
    /// How often it may be called.
    #[cbor(n(7), with = "Maybe::<Shared>")]
    pub rate_limits: Option<Arc<RateLimits>>,
    /// How its requests go on, beside what holds for all routes.
    #[cbor(n(8), with = "Maybe::<Shared>")]
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

/// An alias, since the derive takes a reference for a borrow of what is decoded.
type KindName = &'static str;

/// The object that a route was written in; routes of one object share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct RouteId {
    /// The object's kind, such as `Ingress`.
    #[cbor(n(0), with = "Interned")]
    pub kind: KindName,
    /// The object's namespace.
    #[cbor(n(1), with = "Text")]
    pub namespace: Arc<str>,
    /// The object's name.
    #[cbor(n(2), with = "Text")]
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum PathPattern {
    /// The whole path, case sensitive (`pathType: Exact`).
    #[n(0)]
    Exact(#[cbor(n(0), with = "Within::<PatternPath>")] Box<str>),
    /// Element by element (`pathType: Prefix`): `/foo` takes `/foo` and `/foo/bar`, not `/foobar`. Written
    /// without a trailing slash, except for `/` itself, which takes everything.
    #[n(1)]
    Prefix(#[cbor(n(0), with = "Within::<PatternPath>")] Box<str>),
    /// Character by character, as nginx' plain `location` (`pathType: ImplementationSpecific`): `/foo` takes
    /// `/foobar` too.
    #[n(2)]
    Starts(#[cbor(n(0), with = "Within::<PatternPath>")] Box<str>),
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
