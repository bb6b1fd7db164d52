//! The environment of gateway tests: network namespaces that resemble a Kubernetes node and its pods. The address of a
//! dead pod drops packets. The crate also starts processes, and measures their CPU time.
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
