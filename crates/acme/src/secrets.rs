//! The store of Secrets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A Secret by its namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret {}/{}", self.namespace, self.name)
    }
}

/// The values of a Secret, by key.
pub type Values = BTreeMap<String, Vec<u8>>;

/// A stored Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    /// Whether this feature made the Secret: whether the Secret has the [`LABEL`](crate::LABEL).
    pub is_ours: bool,
    /// Its values.
    pub values: Values,
}

/// Never shows the values.
impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("is_ours", &self.is_ours).finish_non_exhaustive()
    }
}

/// A Secret to write.
pub struct NewSecret {
    /// Its name.
    pub name: SecretName,
    /// Its type, such as `kubernetes.io/tls`.
    pub kind: &'static str,
    /// Its values.
    pub values: Values,
}

/// Why a Secret cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    /// Something else made the Secret.
    #[error(
        "{0} exists and was not ordered from an ACME server, so it is not overwritten: delete the Secret, or name another Secret"
    )]
    Foreign(SecretName),
    /// The store fails.
    #[error("{0}")]
    Store(String),
}

/// A store of Secrets.
pub trait Secrets: Send + Sync + 'static {
    /// Reads a Secret.
    fn read(&self, name: &SecretName) -> impl Future<Output = Result<Option<Stored>, SecretsError>> + Send;

    /// Writes a Secret with the [`LABEL`](crate::LABEL). A Secret of this name without the label is an error, and stays.
    fn write(&self, secret: NewSecret) -> impl Future<Output = Result<(), SecretsError>> + Send;
}
