//! Policies and consumers as users write them (`sluicegate.dev/v1alpha1`).
//!
//! The CustomResourceDefinitions are made of these types: what stands above a field is what `kubectl explain` shows, and
//! what an attribute says about a value is refused by the API server. All of it is checked here too, because manifests
//! of a directory pass no API server.
//!
//! Optional lists are [`Option`]s, so that an empty one can be told from none: no entry in `allow` is something else
//! than no `allow`.
//!
//! | module | what |
//! |---|---|
//! | [`target`] | what a policy is for |
//! | [`security`] | `SecurityPolicy` |
//! | [`authentication`], [`jwt`], [`external`], [`credential`], [`authorization`] | its parts |
//! | [`consumer`] | `Consumer` |
//! | [`rate_limit`] | `RateLimitPolicy` |
//! | [`traffic`] | `TrafficPolicy` |
//! | [`status`] | what is written back |

pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod consumer;
pub(crate) mod credential;
pub(crate) mod external;
pub(crate) mod jwt;
pub(crate) mod rate_limit;
pub(crate) mod security;
pub(crate) mod status;
pub(crate) mod target;
pub(crate) mod traffic;
