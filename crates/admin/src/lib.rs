//! The admin HTTP interface of Sluicegate: health, metrics and live state.
//!
//! What comes in: the data plane's [`Telemetry`], the [`Readiness`] that the process' owner keeps, and what is
//! wrong with the configuration. What goes out: HTTP on an address of its own (loopback unless told
//! otherwise), read only. No lock is taken that a worker takes, and documents are made on a thread of their own
//! and streamed: a scrape of thousands of routes holds up nobody and needs little memory.
//!
//! The other half is for the command line: [`fetch()`] asks a running gateway, [`table`] prints what it said.
//!
//! | module | what |
//! |---|---|
//! | [`readiness`] | starting, ready, draining |
//! | [`hosts`] | against pages of other sites in a browser |
//! | [`planes`] | what a process knows of the other plane |
//! | [`last_change`] | when the configuration last changed |
//! | `server` | connections: how many, how long, which one makes room |
//! | `counters` | what is counted of these connections |
//! | `pages` | what is served at which path |
//! | `content` | bodies, written while they are sent |
//! | `metrics` | the Prometheus exposition |
//! | [`state`] | the JSON of `/config`, `/routes` and `/upstreams` |
//! | [`table`] | the same as text tables |
//! | [`fetch`](mod@fetch) | a client for them |

use std::sync::Arc;

use sluicegate_proxy::telemetry::Telemetry;

mod content;
mod counters;
pub mod fetch;
pub mod hosts;
pub mod last_change;
mod metrics;
mod pages;
pub mod planes;
pub mod readiness;
mod server;
pub mod state;
pub mod table;

pub use fetch::{FetchError, fetch, fetch_text};
pub use hosts::Hosts;
pub use last_change::LastChange;
pub use planes::{Measure, Planes};
pub use readiness::{Phase, Readiness};

/// The admin interface of one gateway process.
#[derive(Clone)]
pub struct Admin {
    /// What the data plane counts and serves.
    pub telemetry: Arc<Telemetry>,
    /// Whether the process wants traffic.
    pub readiness: Readiness,
    /// The name of the pod, where the process is in one: on the network of a node, another one may answer at the same
    /// address.
    pub pod: Option<Arc<str>>,
    /// The hosts that it answers for.
    pub hosts: Hosts,
    /// When the configuration last changed.
    pub last_change: LastChange,
    /// What is wrong with the configuration now. It is called by every scrape, on a thread
    /// that may block, and should be cheap.
    pub problems: Arc<dyn Fn() -> Problems + Send + Sync>,
    /// What is known of the other plane now, where the two are apart. It is called as `problems` is.
    pub planes: Arc<dyn Fn() -> Planes + Send + Sync>,
}

/// What is wrong with the configuration, one message each.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    /// What is not served as it was asked for.
    pub errors: Vec<String>,
    /// What is served, and may not be what was meant.
    pub warnings: Vec<String>,
}
