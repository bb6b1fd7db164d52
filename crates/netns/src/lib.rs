//! The environment of gateway tests: a network namespace that resembles a Kubernetes node, pods whose addresses drop packets
//! after the pods end, and the processes in them with their CPU time.
//!
//! The crate depends on no other crate of the workspace. The tests of the testkit and the lab's experiments use it.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@namespace`] | the node and its pods (Linux, root) |
//! | [`process`] | child processes: their start, readiness, end and CPU time |

pub mod namespace;
pub mod process;

pub use namespace::{NODE, Namespace, Pod};
pub use process::Process;
