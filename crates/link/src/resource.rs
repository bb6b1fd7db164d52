//! Resources: the configuration in pieces that change on their own.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use prost::Message as _;
use sluicegate_model::{HostPattern, RouteId, UpstreamKey};

use crate::digest::Digest;
use crate::proto;

/// What a resource is. The numbers are those of `link.proto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Settings = 1,
    DefaultRoute = 2,
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
}

impl Kind {
    const ALL: [Self; 17] = [
        Self::Settings,
        Self::DefaultRoute,
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
    ];

    /// What the number stands for, if that is known here.
    pub(crate) fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Whether it is named by what is in it, and has no meaning but for those that name it.
    pub(crate) fn is_shared(self) -> bool {
        matches!(
            self,
            Self::Certificate
                | Self::ClientAuth
                | Self::UpstreamTls
                | Self::Security
                | Self::RateLimits
                | Self::Traffic
        )
    }

    /// Whether it is a part of what is served over TLS.
    pub(crate) fn is_tls(self) -> bool {
        matches!(self, Self::TlsHost | Self::DefaultCertificates | Self::Passthrough | Self::TicketSecrets)
    }

    pub(crate) fn named(self, name: Bytes) -> Name {
        Name { kind: self as u32, name }
    }

    /// The one resource of a kind of which there is one.
    pub(crate) fn alone(self) -> Name {
        self.named(Bytes::new())
    }

    pub(crate) fn of_host(self, host: &HostPattern) -> Name {
        self.named(proto::HostPattern::from(host).encode_to_vec().into())
    }

    pub(crate) fn of_upstream(self, upstream: &UpstreamKey) -> Name {
        self.named(proto::UpstreamKey::from(upstream).encode_to_vec().into())
    }

    pub(crate) fn of_object(self, id: &RouteId) -> Name {
        self.named(proto::ObjectId::from(id).encode_to_vec().into())
    }
}

/// What a resource is named by. The order is that of kinds, then of the bytes of names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    /// A number, since a newer version may have others than [`Kind`].
    pub(crate) kind: u32,
    pub(crate) name: Bytes,
}

impl Name {
    /// What it is, if that is known here.
    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::of(self.kind)
    }
}

/// For people, as far as it can be read.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(kind) = self.kind() else { return write!(f, "resource of kind {}", self.kind) };
        write!(f, "{kind:?}")?;
        let name = self.name.clone();
        match kind {
            Kind::Host | Kind::TlsHost | Kind::Passthrough => {
                let host = proto::HostPattern::decode(name).ok().and_then(|host| host.try_into().ok());
                host.map_or(Ok(()), |host: HostPattern| write!(f, " {host}"))
            }
            Kind::Upstream | Kind::Endpoints => {
                let key = proto::UpstreamKey::decode(name).ok().and_then(|key| key.try_into().ok());
                key.map_or(Ok(()), |key: UpstreamKey| write!(f, " {key}"))
            }
            Kind::Consumer => {
                proto::ObjectId::decode(name).map_or(Ok(()), |id| write!(f, " {}/{}", id.namespace, id.name))
            }
            _ => self.name.iter().take(6).try_for_each(|byte| write!(f, " {byte:02x}")),
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A digest of many resources, which come in the order of their names; `link.proto` says how.
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

/// The field of a batch that says that a resource changed.
pub(crate) fn changed_field(name: &Name, body: Bytes) -> Bytes {
    let resource = proto::Resource { kind: name.kind, name: name.name.clone(), body };
    proto::Batch { changed: vec![resource], ..proto::Batch::default() }.encode_to_vec().into()
}

/// The field of a batch that says that a resource is gone.
pub(crate) fn gone_field(name: &Name) -> Bytes {
    let name = proto::Name { kind: name.kind, name: name.name.clone() };
    proto::Batch { gone: vec![name], ..proto::Batch::default() }.encode_to_vec().into()
}
