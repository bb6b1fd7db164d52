//! Where gateways are tried: a network namespace that looks like a Kubernetes node, pods whose addresses swallow
//! packets once they are gone, and the processes in them with their CPU time.
//!
//! In: nothing of ours. Out: what the tests of the testkit and the lab's experiments stand on.
//!
//! | module | what it is |
//! |---|---|
//! | [`mod@namespace`] | the node and its pods (Linux, root) |
//! | [`process`] | child processes: wait until they serve, stop them, their CPU time |

pub mod namespace;
pub mod process;

pub use namespace::{NODE, Namespace, Pod};
pub use process::Process;
