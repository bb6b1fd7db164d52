//! Policies and consumers (`sluicegate.dev/v1alpha1`): from written objects to checked types.
//!
//! An error in a policy never makes the policy weaker. A `SecurityPolicy` with an error refuses every request, and a
//! list without a valid entry is never treated as an absent list.
//!
//! | module | content |
//! |---|---|
//! | [`written`] | the kinds as users write them |
//! | [`crd`] | their CustomResourceDefinitions |
//! | [`target`] | the targets of a policy |
//! | [`security`] | `SecurityPolicy` |
//! | [`authentication`], [`authorization`] | the parts of it that need other objects |
//! | [`consumer`] | `Consumer` |
//! | [`traffic`] | `TrafficPolicy` |
//! | [`rate_limit`], [`shared`] | `RateLimitPolicy`, and the server that shares its counts |
//! | [`secret`], [`htpasswd`] | values of Secrets, and users and passwords in one |
//! | [`list`] | lists of fields |

pub(crate) mod authentication;
mod authorization;
pub(crate) mod consumer;
pub(crate) mod crd;
pub(crate) mod htpasswd;
pub(super) mod list;
pub(crate) mod rate_limit;
pub(crate) mod secret;
pub(crate) mod security;
pub(crate) mod shared;
pub(crate) mod target;
pub(crate) mod traffic;
pub(crate) mod written;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// The API group of our kinds.
pub(crate) const GROUP: &str = "sluicegate.dev";

/// Its version.
pub(crate) const VERSION: &str = "v1alpha1";

/// The creation time of an object, in seconds since 1970, if it is readable.
pub(crate) fn created(raw: &Value) -> Option<i64> {
    let text = raw.pointer("/metadata/creationTimestamp")?.as_str()?;
    Some(text.parse::<Timestamp>().ok()?.as_second())
}
