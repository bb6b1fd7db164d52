//! Hosts and routes.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use sluicegate_model::{Codings, ContentCoding, HostPattern, PathPattern, Route, RouteId, VirtualHost};

use super::policy::Policies;
use super::{Refusal, Share, Shared, known, reference, required, resolve};
use crate::proto;
use crate::resource::Kind;

impl From<&HostPattern> for proto::HostPattern {
    fn from(pattern: &HostPattern) -> Self {
        let (kind, name) = match pattern {
            HostPattern::Exact(name) => (proto::HostPatternKind::Exact, &**name),
            HostPattern::Wildcard(suffix) => (proto::HostPatternKind::Wildcard, &**suffix),
            HostPattern::Suffix(suffix) => (proto::HostPatternKind::Suffix, &**suffix),
            HostPattern::Any => (proto::HostPatternKind::Any, ""),
        };
        Self { kind: kind.into(), name: name.to_owned() }
    }
}

impl TryFrom<proto::HostPattern> for HostPattern {
    type Error = Refusal;

    fn try_from(pattern: proto::HostPattern) -> Result<Self, Refusal> {
        let name = pattern.name.into_boxed_str();
        match known(pattern.kind, "the kind of a host")? {
            proto::HostPatternKind::None => Err(Refusal::Missing("the kind of a host")),
            proto::HostPatternKind::Any => Ok(Self::Any),
            _ if name.is_empty() => Err(Refusal::Missing("the name of a host")),
            proto::HostPatternKind::Exact => Ok(Self::Exact(name)),
            proto::HostPatternKind::Wildcard => Ok(Self::Wildcard(name)),
            proto::HostPatternKind::Suffix => Ok(Self::Suffix(name)),
        }
    }
}

impl From<&PathPattern> for proto::PathPattern {
    fn from(pattern: &PathPattern) -> Self {
        let kind = match pattern {
            PathPattern::Exact(_) => proto::PathPatternKind::Exact,
            PathPattern::Prefix(_) => proto::PathPatternKind::Prefix,
            PathPattern::Starts(_) => proto::PathPatternKind::Starts,
        };
        Self { kind: kind.into(), path: pattern.as_str().to_owned() }
    }
}

impl TryFrom<proto::PathPattern> for PathPattern {
    type Error = Refusal;

    fn try_from(pattern: proto::PathPattern) -> Result<Self, Refusal> {
        if !pattern.path.starts_with('/') {
            return Err(Refusal::Invalid("a path"));
        }
        let path = pattern.path.into_boxed_str();
        match known(pattern.kind, "the kind of a path")? {
            proto::PathPatternKind::None => Err(Refusal::Missing("the kind of a path")),
            proto::PathPatternKind::Exact => Ok(Self::Exact(path)),
            proto::PathPatternKind::Prefix => Ok(Self::Prefix(path)),
            proto::PathPatternKind::Starts => Ok(Self::Starts(path)),
        }
    }
}

impl From<&RouteId> for proto::ObjectId {
    fn from(id: &RouteId) -> Self {
        Self { kind: id.kind.to_owned(), namespace: id.namespace.to_string(), name: id.name.to_string() }
    }
}

impl From<proto::ObjectId> for RouteId {
    fn from(id: proto::ObjectId) -> Self {
        Self { kind: kind(&id.kind), namespace: id.namespace.into(), name: id.name.into() }
    }
}

/// The name of a kind of objects, which lives as long as the process. There are only so many in one version of a control
/// plane, and whoever sends others without end gets no more memory for them.
fn kind(name: &str) -> &'static str {
    const KINDS_MAX: usize = 64;
    const LENGTH_MAX: usize = 64;
    static KINDS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kinds.get(name) {
        return known;
    }
    if kinds.len() >= KINDS_MAX || name.len() > LENGTH_MAX {
        return "object";
    }
    let kind: &'static str = Box::leak(name.into());
    kinds.insert(kind);
    kind
}

impl From<&Codings> for proto::Codings {
    fn from(codings: &Codings) -> Self {
        let coding = |coding| match coding {
            ContentCoding::Gzip => proto::ContentCoding::Gzip.into(),
            ContentCoding::Brotli => proto::ContentCoding::Brotli.into(),
            ContentCoding::Zstd => proto::ContentCoding::Zstd.into(),
        };
        Self { codings: codings.iter().map(coding).collect() }
    }
}

impl TryFrom<proto::Codings> for Codings {
    type Error = Refusal;

    fn try_from(codings: proto::Codings) -> Result<Self, Refusal> {
        let coding = |coding| match known(coding, "a content coding")? {
            proto::ContentCoding::None => Err(Refusal::Missing("a content coding")),
            proto::ContentCoding::Gzip => Ok(ContentCoding::Gzip),
            proto::ContentCoding::Brotli => Ok(ContentCoding::Brotli),
            proto::ContentCoding::Zstd => Ok(ContentCoding::Zstd),
        };
        codings.codings.into_iter().map(coding).collect()
    }
}

impl proto::Route {
    pub(crate) fn new(route: &Route, share: &mut impl Share) -> Self {
        // Named one by one, so that a new field is not forgotten here.
        let Route {
            id,
            path,
            upstream,
            https_only,
            client_auth,
            compression,
            security,
            rate_limits,
            traffic,
        } = route;
        let policies = [
            security.as_ref().map(|policy| (Kind::Security, share.security(policy))),
            rate_limits.as_ref().map(|policy| (Kind::RateLimits, share.rate_limits(policy))),
            traffic.as_ref().map(|policy| (Kind::Traffic, share.traffic(policy))),
        ];
        let guarded = proto::GuardedPath::new(path, policies.into_iter().flatten());
        Self {
            id: Some(id.into()),
            path: guarded.is_none().then(|| path.into()),
            upstream: Some(upstream.into()),
            https_only: *https_only,
            client_auth: reference(client_auth.as_ref().map(|policy| share.client_auth(policy))),
            compression: compression.as_ref().map(Into::into),
            guarded,
        }
    }

    pub(crate) fn read(self, shared: &impl Shared) -> Result<Route, Refusal> {
        let (path, Policies { security, rate_limits, traffic }) = match (self.path, self.guarded) {
            (Some(path), None) => (path.try_into()?, Policies::default()),
            (None, Some(guarded)) => guarded.read(shared)?,
            (None, None) => return Err(Refusal::Missing("the path of a route")),
            (Some(_), Some(_)) => return Err(Refusal::Invalid("the path of a route")),
        };
        Ok(Route {
            id: required(self.id, "the object of a route")?.into(),
            path,
            upstream: required(self.upstream, "the upstream of a route")?.try_into()?,
            https_only: self.https_only,
            client_auth: resolve(&self.client_auth, "policy for client certificates", |name| {
                shared.client_auth(name)
            })?,
            compression: self.compression.map(TryInto::try_into).transpose()?,
            security,
            rate_limits,
            traffic,
        })
    }
}

impl proto::VirtualHost {
    pub(crate) fn new(host: &VirtualHost, share: &mut impl Share) -> Self {
        Self {
            host: Some((&host.host).into()),
            routes: host.routes.iter().map(|route| proto::Route::new(route, share)).collect(),
            fallback: host.fallback.as_ref().map(|route| proto::Route::new(route, share)),
        }
    }

    pub(crate) fn read(self, shared: &impl Shared) -> Result<VirtualHost, Refusal> {
        Ok(VirtualHost {
            host: required(self.host, "the host")?.try_into()?,
            routes: self.routes.into_iter().map(|route| route.read(shared)).collect::<Result<_, _>>()?,
            fallback: self.fallback.map(|route| route.read(shared)).transpose()?,
        })
    }
}
