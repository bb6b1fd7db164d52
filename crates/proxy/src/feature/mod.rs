//! Features: the configurable treatment of the requests of a rule. A feature's type is in the model, in the file with
//! the same name.
//!
//! | module | purpose |
//! |---|---|
//! | `edit` | edits of a request and of its response |
//! | `policy` | policies, which attach features to routes |
//! | `security`, `traffic` | the features of a `SecurityPolicy` and of a `TrafficPolicy` |
//! | `ip_access` | allowed client IPs |
//! | `cors` | cross-origin requests |
//! | `authentication` | credentials and consumers |
//! | `authorization` | authorization rules |
//! | `ext_auth` | external authorization services |
//! | `memory` | remembered answers of servers |
//! | `rate_limit` | rate limits and concurrency limits |
//! | `quota`, `subscriptions` | quotas of plans; subscriptions to APIs |
//! | `bandwidth` | the bandwidth of responses |
//! | `redirect`, `url_rewrite`, `headers` | redirects; changes of paths and headers |
//! | `response_rewrite` | changes of cookies and locations in responses |
//! | `template_headers`, `returns` | headers with variables of nginx; responses that depend on the request |
//! | `timeouts`, `retries` | timeouts; retries and their budget |
//! | `split`, `mirror` | the choice between several upstreams; mirrored requests |
//! | `load_balancing`, `session_affinity` | consistent hashing; cookies and headers that select an endpoint |
//! | `fault`, `direct_response` | injected faults; fixed responses |
//! | `cache` | cached responses |
//! | `compression` | the choice of responses to compress, and their encoding |
//! | `validation` | validation and mocks by the contracts of APIs |
//! | `sample` | random samples of requests |
//! | `state` | the state of policies, for readers |

pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod bandwidth;
pub(crate) mod cache;
pub(crate) mod compression;
pub(crate) mod cors;
mod direct_response;
pub(crate) mod edit;
pub(crate) mod ext_auth;
pub(crate) mod fault;
pub(crate) mod headers;
mod ip_access;
mod load_balancing;
mod memory;
pub(crate) mod mirror;
mod policy;
pub(crate) mod quota;
pub(crate) mod rate_limit;
mod redirect;
pub(crate) mod response_rewrite;
pub(crate) mod retries;
pub(crate) mod returns;
mod sample;
pub(crate) mod security;
pub(crate) mod session_affinity;
mod split;
mod state;
pub(crate) mod subscriptions;
pub(crate) mod template_headers;
pub(crate) mod timeouts;
pub(crate) mod traffic;
pub(crate) mod url_rewrite;
pub(crate) mod validation;

pub(crate) use policy::{
    Guard, LimitPolicy, Policies, Policy, Resources, SecurityPolicy, SubscriptionPolicy,
};
pub use state::{CacheState, PolicyState, SharedState, TrafficState};
pub use validation::ApiState;
