//! Which hosts a virtual host answers for.

use std::fmt;

use minicbor::{Decode, Encode};
use serde::{Serialize, Serializer};

use crate::encoding::bound::Name;
use crate::encoding::{Adapt as _, Within};

/// Which `Host` a virtual host answers for. Names are lower case, without a port.
///
/// The most specific wins: exact, then one label, then several, then any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(map)]
pub enum HostPattern {
    /// This name and no other.
    #[n(0)]
    Exact(#[cbor(n(0), with = "Within::<Name>")] Box<str>),
    /// Exactly one label before this suffix (`networking.k8s.io/v1` `IngressRule.host`). The suffix comes
    /// without `*.`: `Wildcard("example.com")` takes `a.example.com`, not `example.com` nor
    /// `a.b.example.com`.
    #[n(1)]
    Wildcard(#[cbor(n(0), with = "Within::<Name>")] Box<str>),
    /// One or more labels before this suffix (Gateway API `Hostname`): `Suffix("example.com")` takes
    /// `a.b.example.com` too. Of several that match, the longest wins.
    #[n(2)]
    Suffix(#[cbor(n(0), with = "Within::<Name>")] Box<str>),
    /// Every host that no other pattern takes.
    #[n(3)]
    Any,
}

impl HostPattern {
    /// Whether it takes this name, which is in lower case and has no port.
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
