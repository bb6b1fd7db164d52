//! The versions of objects that a source applied, for the audit trail. No version has a secret.

use std::borrow::Cow;
use std::sync::Arc;

/// The field of a JSON object that takes the place of a secret. Its value is a short fingerprint: a change of the secret changes the
/// fingerprint, but the fingerprint proves no guess of the secret.
pub const SECRET: &str = "sluicegate.dev/secret";

/// A report of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// All objects at the start of the process.
    Start(Vec<Observed>),
    /// A version that the source applied since, or the end of an object.
    Change(Observed),
    /// A request to the API server to write an object. The cluster may still refuse the request.
    Request(Requested),
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// Its kind, such as `Plan`.
    pub kind: Cow<'static, str>,
    /// Its namespace; empty for kinds that have none.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

/// A version of an object, or its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The object.
    pub subject: Subject,
    /// The version; `None` if the object is gone.
    pub version: Option<Arc<Version>>,
    /// `metadata.uid` of the version, or of the object that is gone; empty for manifests.
    pub uid: Box<str>,
    /// The time at which the source applied it, in milliseconds since 1970.
    pub time: i64,
    /// The user who wrote the version, as far as the version itself tells.
    pub actor: Actor,
    /// The manifest.
    pub place: Option<Place>,
    /// The first field with an error, if an older version stays in service or nothing of the object is served.
    pub fault: Option<Box<str>>,
    /// Whether the object concerns the gateway.
    pub is_used: bool,
}

/// A version of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// `metadata.uid`; empty for manifests.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`.
    pub number: Option<i64>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// `metadata.creationTimestamp`, in milliseconds since 1970.
    pub created: Option<i64>,
    /// The newest manager of fields that users write.
    pub manager: Option<Box<str>>,
    /// The fields that users write, as a JSON object, with a fingerprint in place of each secret ([`SECRET`]). A text takes less
    /// memory than a value.
    pub content: Box<str>,
    /// The form of `content`, a colon, and the SHA-256 of `content` in hexadecimal digits.
    pub hash: Box<str>,
}

impl Version {
    /// The content of a version without any field.
    pub const EMPTY: &str = "{}";
}

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Actor {
    /// A user of the cluster, as the API server authenticated the user.
    User {
        /// The user name.
        name: Box<str>,
        /// The groups.
        groups: Vec<Box<str>>,
    },
    /// The program that wrote the newest fields, by its own statement.
    Manager(Box<str>),
    /// The owner of the file.
    Owner(Box<str>),
    /// No source tells the user.
    #[default]
    Unknown,
}

/// The place of an object in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path of the file.
    pub file: Box<str>,
    /// The first line of the object, from 1; 0 if the object is gone.
    pub line: u32,
}

/// A request to write an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// The object.
    pub subject: Subject,
    /// [`Version::hash`] of the new version; empty for a deletion.
    pub hash: Box<str>,
    /// The user name.
    pub user: Box<str>,
    /// The groups of the user.
    pub groups: Vec<Box<str>>,
    /// The time in milliseconds since 1970.
    pub time: i64,
}
