//! The link between the planes of Sluicegate: the model over the network.
//!
//! In the control plane the [`Distributor`] takes [`Change`](sluicegate_model::Change)s, and serves any number of data
//! planes. In a data plane a [`Subscriber`] follows a control plane forever, and returns the same changes. Both planes
//! authenticate by certificates ([`PlaneTls`]). The model defines the encoding of its types
//! ([`sluicegate_model::encoding`]).
//!
//! The configuration is split into resources that change separately. The control plane sends the changed resources and
//! the names of removed resources as one batch. A data plane serves a whole batch or nothing. The endpoints of an
//! upstream are a resource too: a change of endpoints is one small message to each data plane, for any size of the
//! configuration.
//!
//! A data plane that reconnects sends its version and control plane, or a digest of all its resources. The data plane
//! then receives only the difference, from another control plane too. A data plane writes its resources to a snapshot,
//! and starts from the snapshot while no control plane is reachable.
//!
//! | module | contents |
//! |---|---|
//! | [`distributor`] | the control plane's side |
//! | [`subscriber`] | the data plane's side |
//! | `messages` | the messages of both planes |
//! | [`quotas`] | the uses of quotas, which a control plane counts for all data planes |
//! | [`reports`] | the reports of data planes that a control plane stores |
//! | `resource`, `cut`, `store` | the split of the configuration into resources, and its reassembly |
//! | `scope` | the part of the configuration for the data planes of one Gateway |
//! | `guard` | whether a last valid version would allow requests that are denied now |
//! | `grpc` | messages over HTTP/2 streams |
//! | [`tls`] | the certificates of the planes |

mod cut;
mod digest;
pub mod distributor;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod grpc;
mod guard;
mod messages;
pub mod quotas;
pub mod reports;
mod resource;
mod scope;
mod store;
pub mod subscriber;
#[cfg(test)]
mod tests;
pub mod tls;

pub use distributor::telemetry::{LAG_BOUNDS, LinkCounts, LinkTelemetry, SubscriberStatus};
pub use distributor::token::{Reviewed, Reviewer};
pub use distributor::{Distributor, DistributorOptions};
pub use quotas::{Counted, QuotaLedger, QuotaUses, ReceivedUses};
pub use reports::{Report, ReportStore, ReportStored, Reports};
pub use subscriber::{Subscriber, SubscriberOptions, SubscriberTelemetry};
pub use tls::{Files as TlsFiles, PlaneIdentity, PlaneTls, PlaneToken, TlsError};
