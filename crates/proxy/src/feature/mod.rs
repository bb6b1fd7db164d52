//! Features: what happens to a request of a rule. A feature's type stands in the model, under the same file name.
//!
//! | module | purpose |
//! |---|---|
//! | `policy` | policies, which attach features to routes |
//! | `security`, `traffic` | the features of a `SecurityPolicy` and of a `TrafficPolicy` |
//! | `ip_access` | client IPs |
//! | `cors` | cross-origin requests |
//! | `authentication` | credentials and consumers |
//! | `authorization` | authorization rules |
//! | `ext_auth` | external authorization services |
//! | `rate_limit` | rate limits and concurrency limits |
//! | `retry` | the retry budget |
//! | `split` | the choice between several upstreams |
//! | `cache` | cached responses |
//! | `compression` | the choice of responses to compress, and their encoding |
//! | `service` | servers that features call, by URL |
//! | `state` | the state of policies, for readers |

pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod cache;
pub(crate) mod compression;
pub(crate) mod cors;
pub(crate) mod ext_auth;
mod ip_access;
mod policy;
pub(crate) mod rate_limit;
mod retry;
pub(crate) mod security;
mod service;
mod split;
mod state;
pub(crate) mod traffic;

pub(crate) use policy::{Guard, LimitPolicy, Policies, Policy, Resources, SecurityPolicy};
pub use state::{CacheState, PolicyState, SharedState, TrafficState};
