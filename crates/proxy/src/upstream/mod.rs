//! Upstreams on the data plane: the state that all workers share, the state of each worker, and connections for requests.
//!
//! | module | purpose |
//! |---|---|
//! | [`shared`] | identity, health and counters, seen by all workers |
//! | `local` | a worker's load estimates and connections |
//! | `admission` | concurrency limits |
//! | `balance` | load balancing |
//! | `check` | health checks, if a policy requires them |
//! | `connect` | a connection for a request: from the pool, or new connects that race |
//! | `context` | the part of a worker that its upstreams use |
//! | `pool` | idle connections |
//! | `probe` | unhealthy endpoints, and their recovery |
//! | `retry_budget` | the limit on retries of a policy or an upstream |
//! | `slot` | the numbers by which routes name upstreams |

mod admission;
mod balance;
mod check;
mod connect;
mod context;
mod local;
mod pool;
mod probe;
mod retry_budget;
pub mod shared;
pub(crate) mod slot;
mod stalled;

pub(crate) use admission::Admission;
pub(crate) use balance::{AvoidedEndpoints, EndpointPreference};
pub(crate) use connect::{Connection, InFlightGuard};
pub(crate) use context::UpstreamContext;
pub(crate) use local::{LocalEndpoint, LocalUpstream};
pub(crate) use retry_budget::RetryBudget;
pub(crate) use shared::Security;
pub use shared::{EndpointSet, SharedEndpoint, SharedUpstream};
pub(crate) use stalled::Stalled;
