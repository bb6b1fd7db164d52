//! Policies and consumers as users write them (`sluicegate.dev/v1alpha1`).
//!
//! The CustomResourceDefinitions are generated from these types. `kubectl explain` shows the doc comment of a field,
//! and the API server rejects values outside the attributes of a field. The control plane checks all values again,
//! because no API server has checked the manifests of a directory.
//!
//! Optional lists are [`Option`]s, because an empty list differs from an absent list: an empty `allow` is an error, and
//! an absent `allow` restricts nothing.
//!
//! | module | what |
//! |---|---|
//! | [`target`] | the targets of a policy |
//! | [`security`] | `SecurityPolicy` |
//! | [`consumer`] | `Consumer` |
//! | [`rate_limit`] | `RateLimitPolicy` |
//! | [`traffic`] | `TrafficPolicy` |
//! | [`status`] | the status that the gateway writes |

pub(crate) mod consumer;
pub(crate) mod rate_limit;
pub(crate) mod security;
pub(crate) mod status;
pub(crate) mod target;
pub(crate) mod traffic;
