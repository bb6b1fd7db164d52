//! The admin HTTP interface of Sluicegate: health, metrics and live state.
//!
//! Inputs: the data plane's [`Registry`], the [`Readiness`] that the owner of the process sets, and the problems of the
//! configuration. Output: read-only HTTP on an address of its own (loopback by default). The interface never takes a
//! lock that a worker takes. A separate thread generates and streams documents: a scrape of thousands of routes delays
//! no request and needs little memory.
//!
//! The crate also serves the command line: [`fetch()`] queries a running gateway, and [`table`] prints the documents.
//!
//! | module | contents |
//! |---|---|
//! | [`readiness`] | starting, ready, draining |
//! | [`hosts`] | protection from pages of other sites in a browser |
//! | [`planes`] | the state of the other plane |
//! | [`last_change`] | the time of the last change of the configuration |
//! | `server` | the limits of connections |
//! | [`pages`] | the page at each path |
//! | [`content`] | bodies that are generated during the transfer |
//! | `metrics` | the Prometheus exposition |
//! | [`explain`] | the parameters and the text of `/explain` |
//! | [`state`] | the JSON of `/config`, `/routes` and `/upstreams` |
//! | [`table`] | the same documents as text tables |
//! | [`fetch`](mod@fetch) | a client for them |

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluicegate_analytics::{Audit, Store};
use sluicegate_model::Build;
use sluicegate_proxy::registry::Registry;

pub mod content;
pub mod explain;
pub mod fetch;
pub mod hosts;
pub mod last_change;
mod metrics;
pub mod pages;
pub mod planes;
pub mod readiness;
mod server;
pub mod state;
pub mod table;

pub use fetch::{FetchError, fetch, fetch_text};
pub use hosts::{HostFault, Hosts};
pub use last_change::LastChange;
pub use pages::Pages;
pub use planes::{Lease, Measure, Planes};
pub use readiness::{Phase, Readiness};

/// The admin interface of one gateway process.
#[derive(Clone)]
pub struct Admin {
    /// The version of the program.
    pub build: Build,
    /// The counters and the configuration of the data plane.
    pub registry: Arc<Registry>,
    /// Whether the process is ready for traffic.
    pub readiness: Readiness,
    /// The name of the pod, if the process runs in a pod. With the network of the node, another gateway may respond at
    /// the same address.
    pub pod: Option<Arc<str>>,
    /// The namespace of the pod, if the process runs in a pod.
    pub namespace: Option<Arc<str>>,
    /// The hosts that the interface accepts.
    pub hosts: Hosts,
    /// When the configuration last changed.
    pub last_change: LastChange,
    /// Returns the current problems of the configuration. Every scrape calls the function on a thread that may block,
    /// so the function should be cheap.
    pub problems: Arc<dyn Fn() -> Problems + Send + Sync>,
    /// Returns the state of the other plane, if the planes are split. Every scrape calls the function, as with
    /// `problems`.
    pub planes: Arc<dyn Fn() -> Planes + Send + Sync>,
    /// The store for `/analytics`. `None` in a process without a store.
    pub analytics: Option<Arc<Store>>,
    /// The audit trail for `/audit`. `None` in a process without an audit trail.
    pub audit: Option<Arc<Audit>>,
}

/// The problems of the configuration, one message each.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Problems {
    /// Errors: parts of the configuration that are not served as written.
    pub errors: Vec<String>,
    /// Warnings: parts that are served, but may be unintended.
    pub warnings: Vec<String>,
}
