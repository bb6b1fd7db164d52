//! The control plane of Sluicegate: from the objects that users write to the model that the proxy serves.
//!
//! In come Kubernetes objects, from the Kubernetes API ([`ClusterSource`]) or a directory of manifests
//! ([`DirectorySource`]). Out go
//! [`Change`](sluicegate_model::Change)s: first a complete configuration, then, for each change of an object, the
//! least that leads to what should be served; and [`Problem`]s: what is wrong, in which line, and what to do.
//!
//! On the way, each object is checked once, when it is read ([`object`]); the [`Store`] holds the last good form
//! of each; and [`translate()`] relates them to one another, as a pure function. Nothing that is invalid takes a
//! working route away.
//!
//! | module | what |
//! |---|---|
//! | [`object`] | Ingress, Gateway, TCPRoute, Service, EndpointSlice and the like: from Kubernetes' types to checked ones |
//! | [`manifest`] | the text of a file into objects |
//! | [`store`] | all objects by name, in the form that is served |
//! | [`mod@translate`] | classes, routes, listeners, upstreams: from the store to the model |
//! | [`source`] | following a cluster or a directory, and publishing what changes |
//! | [`problem`], [`locate`] | what is wrong and on which line |

mod locate;
mod manifest;
pub mod object;
pub mod problem;
pub mod source;
pub mod store;
pub mod translate;

pub use object::policy::crd::{Definition, definitions};
pub use object::{Kind, ObjectRef};
pub use problem::{Origin, Problem, Severity};
pub use source::cluster::StatusOptions;
pub use source::cluster::addresses::Addresses;
pub use source::cluster::client::{ClientError, Credentials};
pub use source::cluster::planes::{PlaneCertificates, PlaneFiles, PlanesError};
pub use source::{ClusterSource, DirectorySource, Loaded, Publish, foreign_in_words, load_once};
pub use store::Store;
pub use translate::policy::standing::{Reason, Standing, TargetName};
pub use translate::{Globals, ObjectName, ReadGlobals, TranslateOptions, Translation, translate};
