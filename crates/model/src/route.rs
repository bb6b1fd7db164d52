//! Routes: object identities and path patterns.

use std::fmt;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use serde::Serialize;

use crate::encoding::bound::PatternPath;
use crate::encoding::{Adapt as _, Interned, Text, Within};

/// An alias, because the derive treats a reference as a borrow from the decoded bytes.
type KindName = &'static str;

/// The object of a route. Routes of one object share the value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct ObjectId {
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

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// A pattern of paths. Patterns start with `/` and are in the normal form of `sluicegate_http1::path::normalise`, as are the
/// compared paths.
///
/// The longest matching pattern has precedence. Of the same length an exact pattern has precedence, then a prefix by element,
/// then a prefix by character.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum PathPattern {
    /// The whole path, case sensitive (`pathType: Exact`).
    #[n(0)]
    Exact(#[cbor(n(0), with = "Within::<PatternPath>")] Box<str>),
    /// A prefix by element (`pathType: Prefix`): `/foo` matches `/foo` and `/foo/bar`, not `/foobar`. Written without a
    /// trailing slash, except for `/` itself, which matches every path.
    #[n(1)]
    Prefix(#[cbor(n(0), with = "Within::<PatternPath>")] Box<str>),
    /// A prefix by character, as nginx' plain `location` (`pathType: ImplementationSpecific`): `/foo` also matches `/foobar`.
    #[n(2)]
    Starts(#[cbor(n(0), with = "Within::<PatternPath>")] Box<str>),
}

impl PathPattern {
    /// The rank among patterns of the same length: 0 is the most specific.
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

    /// The name of the pattern's kind, as Kubernetes writes it in `pathType`.
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
