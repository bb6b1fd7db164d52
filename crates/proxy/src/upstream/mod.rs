//! Upstreams on the data plane: what all workers share of them, what each worker has for itself, and how a
//! request gets a connection.
//!
//! | module | what |
//! |---|---|
//! | [`shared`] | identity, health and counters, seen by all workers |
//! | `local` | a worker's load estimates and connections |
//! | `admission` | how much it may be given at once |
//! | `balance` | choosing an endpoint |
//! | `check` | endpoints are asked how they are, where a policy wants it |
//! | `connect` | a connection for a request: from the pool, or new ones raced |
//! | `http2` | connections that many requests share |
//! | `pool` | connections that wait for their next request |
//! | `probe` | suspicion, and the way out of it |

mod admission;
mod balance;
mod check;
mod connect;
mod http2;
mod local;
mod pool;
mod probe;
pub mod shared;
mod stalled;

pub(crate) use admission::Admission;
pub(crate) use balance::{StableHash, Tried, Wish};
pub(crate) use connect::{Connection, Seat};
pub(crate) use http2::{Http2Call, NoWebSocket, Refused, fields};
pub(crate) use local::{LocalEndpoint, LocalUpstream};
pub(crate) use pool::{IdleEvent, IdleEvents, Socket};
pub(crate) use shared::Security;
pub use shared::{EndpointSet, SharedEndpoint, SharedUpstream};
pub(crate) use stalled::Stalled;
