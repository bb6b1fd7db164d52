//! Routes: which requests go where.

use std::fmt;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use serde::Serialize;

use crate::encoding::bound::PatternPath;
use crate::encoding::{Adapt as _, Interned, Text, Within};

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
    /// Its place among patterns of the same length: 0 is the most specific.
    #[must_use]
    pub fn rank(&self) -> u8 {
        match self {
            Self::Exact(_) => 0,
            Self::Prefix(_) => 1,
            Self::Starts(_) => 2,
        }
    }

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
