//! The way between the planes of Sluicegate: the model over the network.
//!
//! On the side of the control plane, [`Change`](sluicegate_model::Change)s come in, and the [`Distributor`] serves any number
//! of data planes. On theirs, a [`Subscriber`] follows a control plane for ever, and the same changes come out. Both sides
//! show each other certificates ([`PlaneTls`]). The model says how its types are encoded ([`sluicegate_model::encoding`]).
//!
//! The configuration is cut into resources that change on their own. A change sends those that changed and the names of
//! those that are gone, as one batch, and a data plane serves all of a batch or nothing. The endpoints of an upstream are a
//! resource too: when they change, one small message goes to each data plane, whatever else there is.
//!
//! A data plane that comes back says which version of which control plane it has, or a digest of all that it has, and gets
//! the difference; from another control plane too. It writes down what it serves, and starts from that while no control
//! plane is there.
//!
//! | module | what |
//! |---|---|
//! | [`distributor`] | the control plane's side |
//! | [`subscriber`] | the data plane's side |
//! | `messages` | what the planes say to each other |
//! | `resource`, `cut`, `store` | the configuration in pieces, and put together again |
//! | `guard` | whether a last valid version would open what is closed now |
//! | `grpc` | messages on streams of HTTP/2 |
//! | [`tls`] | the certificates of the planes |

mod cut;
mod digest;
pub mod distributor;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod grpc;
mod guard;
mod messages;
mod resource;
mod store;
pub mod subscriber;
#[cfg(test)]
mod tests;
pub mod tls;

pub use distributor::telemetry::{LAG_BOUNDS, LinkCounts, LinkTelemetry, SubscriberStatus};
pub use distributor::{Distributor, DistributorOptions};
pub use subscriber::{Subscriber, SubscriberOptions, SubscriberTelemetry};
pub use tls::{Files as TlsFiles, PlaneTls, TlsError};
