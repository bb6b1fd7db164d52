//! Resources: the parts of the configuration that change separately.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use minicbor::{Decode, Encode};
use sluicegate_model::encoding::{Fault, NoParts, Part, Unknown, decode};
use sluicegate_model::{EntryPoint, HostPattern, ObjectId, UpstreamKey};

use crate::digest::Digest;
use crate::messages::{ResourceChange, encoded};

/// The reason why a resource is rejected. The text never contains the body, which may be a key.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The body is invalid.
    #[error(transparent)]
    Body(#[from] Fault),
    /// The body does not fit the name.
    #[error("the name does not match the body")]
    Misnamed,
    /// The kind is unknown.
    #[error("this version does not know the resource kind {0}")]
    Kind(u32),
}

/// The kind of a resource. The number of a removed kind is never reused. The model also has the numbers of shared
/// resources ([`Part::KIND`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Settings = 1,
    DefaultRule = 2,
    Host = 3,
    Listener = 4,
    TlsHost = 5,
    DefaultCertificates = 6,
    Passthrough = 7,
    TicketSecrets = 8,
    Upstream = 9,
    Endpoints = 10,
    Certificate = 11,
    ClientAuth = 12,
    UpstreamTls = 13,
    Security = 14,
    RateLimits = 15,
    Consumer = 16,
    Traffic = 17,
    Subscriptions = 18,
    ApiContract = 19,
    AcmeHost = 20,
}

impl Kind {
    const ALL: [Self; 20] = [
        Self::Settings,
        Self::DefaultRule,
        Self::Host,
        Self::Listener,
        Self::TlsHost,
        Self::DefaultCertificates,
        Self::Passthrough,
        Self::TicketSecrets,
        Self::Upstream,
        Self::Endpoints,
        Self::Certificate,
        Self::ClientAuth,
        Self::UpstreamTls,
        Self::Security,
        Self::RateLimits,
        Self::Consumer,
        Self::Traffic,
        Self::Subscriptions,
        Self::ApiContract,
        Self::AcmeHost,
    ];

    /// The kinds whose resources are parts of [`Tls`](sluicegate_model::Tls).
    pub(crate) const OF_TLS: &[Self] =
        &[Self::TlsHost, Self::DefaultCertificates, Self::Passthrough, Self::TicketSecrets, Self::AcmeHost];

    /// The kind with this number, if this version knows the number.
    pub(crate) fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Whether the digest of the body is the name. Only the resources that name such a resource use it.
    pub(crate) fn is_shared(self) -> bool {
        matches!(
            self,
            Self::Certificate
                | Self::ClientAuth
                | Self::UpstreamTls
                | Self::Security
                | Self::RateLimits
                | Self::Traffic
                | Self::Subscriptions
                | Self::ApiContract
        )
    }

    /// The handling of unknown fields in a resource of this kind. A policy with unknown fields is rejected: the unknown
    /// field may deny callers, or set a requirement on endpoints.
    pub(crate) fn unknown_fields(self) -> Unknown {
        match self {
            Self::Security
            | Self::RateLimits
            | Self::Traffic
            | Self::Subscriptions
            | Self::ApiContract
            | Self::Consumer
            | Self::ClientAuth
            | Self::UpstreamTls => Unknown::Refused,
            Self::Settings
            | Self::DefaultRule
            | Self::Host
            | Self::Listener
            | Self::TlsHost
            | Self::DefaultCertificates
            | Self::Passthrough
            | Self::TicketSecrets
            | Self::Upstream
            | Self::Endpoints
            | Self::Certificate
            | Self::AcmeHost => Unknown::Skipped,
        }
    }

    pub(crate) fn named(self, name: Bytes) -> Name {
        Name { kind: self as u32, name }
    }

    /// The name of the only resource of a kind.
    pub(crate) fn alone(self) -> Name {
        self.named(Bytes::new())
    }

    /// The name of a host at an entry point.
    pub(crate) fn of_host(self, entry_point: &EntryPoint, host: &HostPattern) -> Name {
        self.named(match entry_point {
            EntryPoint::Flags => encoded(host).into(),
            other => encoded(&HostName { host: host.clone(), entry_point: other.clone() }).into(),
        })
    }

    /// The name of a host with certificates from an ACME server.
    pub(crate) fn of_acme_host(host: &str) -> Name {
        Self::AcmeHost.named(encoded(&host).into())
    }

    pub(crate) fn of_upstream(self, upstream: &UpstreamKey) -> Name {
        self.named(encoded(upstream).into())
    }

    pub(crate) fn of_object(self, id: &ObjectId) -> Name {
        self.named(encoded(id).into())
    }
}

/// The name of a host that is not at all listeners that flags set. The name of other hosts is the pattern alone.
#[derive(Debug, Encode, Decode)]
#[cbor(map)]
struct HostName {
    #[n(0)]
    host: HostPattern,
    #[n(1)]
    entry_point: EntryPoint,
}

/// The name of a resource. Names sort by kind, then by their bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    /// A number, because a newer version may have more kinds than [`Kind`].
    pub(crate) kind: u32,
    pub(crate) name: Bytes,
}

impl Name {
    /// The name of a shared resource.
    pub(crate) fn of_part<T: Part>(digest: &[u8]) -> Self {
        Self { kind: T::KIND, name: Bytes::copy_from_slice(digest) }
    }

    /// The upstream in the name.
    pub(crate) fn upstream(&self) -> Result<UpstreamKey, Fault> {
        decode(&self.name, Unknown::Refused, &NoParts)
    }

    /// The kind, if this version knows the number.
    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::of(self.kind)
    }
}

/// The readable form for logs.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(kind) = self.kind() else { return write!(f, "resource of kind {}", self.kind) };
        write!(f, "{kind:?}")?;
        match kind {
            Kind::Host | Kind::TlsHost | Kind::Passthrough => {
                let at_flags = decode(&self.name, Unknown::Refused, &NoParts).ok();
                if let Some(host) = at_flags as Option<HostPattern> {
                    return write!(f, " {host}");
                }
                decode(&self.name, Unknown::Refused, &NoParts)
                    .map_or(Ok(()), |HostName { host, entry_point }| write!(f, " {host} at {entry_point}"))
            }
            Kind::Upstream | Kind::Endpoints => self.upstream().map_or(Ok(()), |key| write!(f, " {key}")),
            Kind::Consumer => decode(&self.name, Unknown::Refused, &NoParts)
                .map_or(Ok(()), |id: ObjectId| write!(f, " {}/{}", id.namespace, id.name)),
            _ => self.name.iter().take(6).try_for_each(|byte| write!(f, " {byte:02x}")),
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A digest of many resources in the order of their names. SHA-256 of, for each resource: its kind and the length of
/// its name (32 bits each, big endian), its name, and the SHA-256 of its body.
pub(crate) fn state_of<'a>(resources: impl Iterator<Item = (&'a Name, &'a Digest)>) -> Bytes {
    let mut context = Context::new(&SHA256);
    for (name, digest) in resources {
        context.update(&name.kind.to_be_bytes());
        context.update(&u32::try_from(name.name.len()).unwrap_or(u32::MAX).to_be_bytes());
        context.update(&name.name);
        context.update(digest.as_bytes());
    }
    Bytes::copy_from_slice(context.finish().as_ref())
}

/// The item of a batch for a changed resource. The item ends with the body.
pub(crate) fn changed_item(name: &Name, body: Bytes) -> Bytes {
    encoded(&ResourceChange { kind: name.kind, name: name.name.clone(), body: Some(body) }).into()
}

/// The item of a batch for a removed resource.
pub(crate) fn gone_item(name: &Name) -> Bytes {
    encoded(&ResourceChange { kind: name.kind, name: name.name.clone(), body: None }).into()
}
