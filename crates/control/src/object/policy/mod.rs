//! Policies and consumers (`sluicegate.dev/v1alpha1`): from what users write to checked forms.
//!
//! What is wrong with a policy never makes it weaker: a `SecurityPolicy` with an error refuses every request, and a list
//! of which no entry is valid is never taken for one that was not written.
//!
//! | module | what |
//! |---|---|
//! | [`written`] | the kinds as users write them |
//! | [`crd`] | their CustomResourceDefinitions |
//! | [`target`] | what a policy is for |
//! | [`security`] | `SecurityPolicy`: addresses, cross-origin requests |
//! | [`authentication`], [`jwt`], [`external`], [`authorization`] | its other parts |
//! | [`consumer`] | `Consumer` |
//! | [`traffic`] | `TrafficPolicy` |
//! | [`rate_limit`], [`shared`] | `RateLimitPolicy`, and through what it is shared |
//! | [`secret`], [`htpasswd`] | values of Secrets, and users and passwords in one |
//! | [`address`], [`duration`], [`header`], [`list`], [`origin`], [`url`] | what fields hold |

mod address;
pub(crate) mod authentication;
mod authorization;
pub(crate) mod consumer;
pub(crate) mod crd;
mod duration;
mod external;
mod header;
pub(crate) mod htpasswd;
pub(crate) mod jwt;
mod list;
mod origin;
pub(crate) mod rate_limit;
pub(crate) mod secret;
pub(crate) mod security;
pub(crate) mod shared;
pub(crate) mod target;
pub(crate) mod traffic;
mod url;
pub(crate) mod written;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// The API group of our kinds.
pub(crate) const GROUP: &str = "sluicegate.dev";

/// Its version.
pub(crate) const VERSION: &str = "v1alpha1";

/// When an object was made, in seconds since 1970, if that can be read.
fn created(raw: &Value) -> Option<i64> {
    let text = raw.pointer("/metadata/creationTimestamp")?.as_str()?;
    Some(text.parse::<Timestamp>().ok()?.as_second())
}
