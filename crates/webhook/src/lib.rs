//! The validating admission webhook: the API server asks about an object before it stores the object.
//!
//! Inputs: an `AdmissionReview` (`admission.k8s.io/v1`) over HTTPS, a certificate and its key as files, and a [`Judge`], which is
//! a function from an object to a [`Verdict`]. Output: the same `AdmissionReview` with a response. The server writes nothing and
//! starts no process.
//!
//! A connection serves one request. If the server closed idle connections, a request of the API server could meet the end of its
//! connection, and the API server does not repeat the request.
//!
//! Every resource has a limit: [`MAX_REVIEW`], [`MAX_VALUES`], [`MAX_AT_ONCE`], [`BODY_TIMEOUT`], [`MAX_CONNECTIONS`] and
//! [`HEAD_TIMEOUT`]. A request beyond a limit receives an error, and the `failurePolicy` of the webhook configuration decides.
//!
//! | module | contents |
//! |---|---|
//! | [`certificate`] | the certificate, which the server reads again for each connection |
//! | [`review`] | the messages of Kubernetes |
//! | `server` | requests and responses |

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

pub mod certificate;
pub mod review;
mod server;
#[cfg(test)]
mod tests;

pub use certificate::{Certificate, CertificateError};
pub use server::Webhook;

/// The largest body of a request, in bytes. A request with the largest object that etcd stores, as the new and the old object, has
/// less than half of this size.
pub const MAX_REVIEW: usize = 9 * 1000 * 1000;

/// The maximum number of JSON values in a request, as the number of commas and opening brackets. An object of `{"":1}` takes
/// hundreds of bytes of memory, so a body of 9 MB could take a hundred times as much. The server parses one body at a time.
pub const MAX_VALUES: usize = 200_000;

/// The maximum number of requests whose bodies the server holds at once. Further requests wait.
pub const MAX_AT_ONCE: usize = 8;

/// The timeout of the whole body of a request, with the wait for [`MAX_AT_ONCE`].
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of connections. At the limit, the oldest connection without a request is closed.
pub const MAX_CONNECTIONS: usize = 64;

/// The timeout of a TLS handshake, and of the head of a request.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time of a connection before its response. The response may take the same time again. The API server waits for at
/// most 30 s.
pub const MAX_AGE: Duration = Duration::from_secs(30);

/// The result of a review of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The reasons for the rejection of the object; empty if the object is accepted.
    pub errors: Vec<String>,
    /// Texts for the user, which reject nothing.
    pub warnings: Vec<String>,
}

/// The reason why there is no verdict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JudgeError {
    /// The object is none that the judge reviews.
    #[error("{0}")]
    NotReviewed(String),
    /// The judge cannot review any object now.
    #[error("{0}")]
    Unavailable(String),
}

/// The future verdict about an object.
pub type Judged = Pin<Box<dyn Future<Output = Result<Verdict, JudgeError>> + Send>>;

/// A write that a user requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Witnessed {
    /// The API group of the object; empty for the core.
    pub group: String,
    /// The kind of the object.
    pub kind: String,
    /// The namespace of the object; empty for kinds that have none.
    pub namespace: String,
    /// The name of the object; empty if the API server makes the name.
    pub name: String,
    /// The new version; `None` for a deletion.
    pub object: Option<Value>,
    /// The version before; `None` for a new object.
    pub old: Option<Value>,
    /// The user, as the API server authenticated the user.
    pub user: String,
    /// The groups of the user.
    pub groups: Vec<String>,
}

/// Takes the writes that users request at the path [`AUDIT`]. Runs on a thread that may block.
pub type Witness = Arc<dyn Fn(Witnessed) + Send + Sync>;

/// The path of requests for the audit trail, which allow each write.
pub const AUDIT: &str = "/audit";

/// Reviews an object as written.
pub type Judge = Arc<dyn Fn(Value) -> Judged + Send + Sync>;

/// The counters of reviews.
#[derive(Debug, Default)]
pub struct Reviews([AtomicU64; 3]);

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object is accepted.
    Allowed,
    /// The object is rejected.
    Denied,
    /// The request has no verdict, such as a request that is too large.
    Failed,
}

impl Outcome {
    const ALL: [Self; 3] = [Self::Allowed, Self::Denied, Self::Failed];

    /// The stable name for metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Failed => "failed",
        }
    }
}

impl Reviews {
    fn count(&self, outcome: Outcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of requests for each outcome.
    pub fn counts(&self) -> impl Iterator<Item = (Outcome, u64)> {
        Outcome::ALL.into_iter().map(|outcome| (outcome, self.0[outcome as usize].load(Ordering::Relaxed)))
    }
}
