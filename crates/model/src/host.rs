//! The hosts of a virtual host.

use std::fmt;

use minicbor::{Decode, Encode};
use serde::{Serialize, Serializer};

use crate::encoding::bound::Name;
use crate::encoding::{Adapt as _, Within};

/// A pattern for the hosts of a virtual host. Names are in lower case, without a port.
///
/// The most specific pattern has precedence: exact, then one label, then several labels, then any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(map)]
pub enum HostPattern {
    /// Exactly this name.
    #[n(0)]
    Exact(#[cbor(n(0), with = "Within::<Name>")] Box<str>),
    /// Exactly one label before this suffix (`networking.k8s.io/v1` `IngressRule.host`). The suffix is without `*.`:
    /// `Wildcard("example.com")` matches `a.example.com`, but neither `example.com` nor `a.b.example.com`.
    #[n(1)]
    Wildcard(#[cbor(n(0), with = "Within::<Name>")] Box<str>),
    /// One or more labels before this suffix (Gateway API `Hostname`): `Suffix("example.com")` also matches
    /// `a.b.example.com`. Of several matching suffixes the longest has precedence.
    #[n(2)]
    Suffix(#[cbor(n(0), with = "Within::<Name>")] Box<str>),
    /// Every host that matches no other pattern.
    #[n(3)]
    Any,
}

impl HostPattern {
    /// Whether the pattern matches a name in lower case without a port.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *name,
            Self::Wildcard(suffix) => {
                name.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && *rest == **suffix)
            }
            Self::Suffix(suffix) => name
                .strip_suffix(&**suffix)
                .and_then(|labels| labels.strip_suffix('.'))
                .is_some_and(|labels| !labels.is_empty()),
            Self::Any => true,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Wildcard(suffix) | Self::Suffix(suffix) => write!(f, "*.{suffix}"),
            Self::Any => f.write_str("*"),
        }
    }
}

impl Serialize for HostPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
