//! The control plane of Sluicegate: from the objects that users write to the model that the proxy serves.
//!
//! The input is Kubernetes objects, from the Kubernetes API ([`ClusterSource`]) or a directory of manifests
//! ([`DirectorySource`]). The output is [`Change`](sluicegate_model::Change)s: first a complete configuration, then the
//! smallest change for each changed object. [`Problem`]s say what is wrong, in which line, and what to do.
//!
//! [`object`] checks each object once, when a source reads it. The [`Store`] holds the last valid version of each
//! object. [`translate()`] relates the objects to each other, as a pure function in three steps: frontends, merge,
//! emit. An invalid object never removes a working route.
//!
//! | module | content |
//! |---|---|
//! | [`object`] | Ingress, Gateway, Service, EndpointSlice and others: from Kubernetes' types to checked types |
//! | [`manifest`] | the text of a file into objects |
//! | [`store`] | all objects by name, each in the version in service |
//! | [`mod@translate`] | from the store to the model: the steps below, and their options |
//! | [`frontend`] | Ingresses and Gateways, and their intents |
//! | [`intent`] | intents: the requests of objects in terms of all dialects, with the origin of each part |
//! | [`merge`] | conflicts between objects: the owner of each host, match and certificate, and the policies of rules |
//! | [`emit`] | from merged intents to the model |
//! | [`upstream`] | Services joined with their EndpointSlices |
//! | [`backend_tls`] | BackendTLSPolicies: TLS to the endpoints of Services |
//! | [`backend_traffic`] | XBackendTrafficPolicies: retries and sessions of Services |
//! | [`external`] | hosts outside of the cluster that annotations name |
//! | [`x_backend`] | XBackends: hosts outside of the cluster |
//! | [`mod@acme`] | certificates of an ACME server |
//! | [`address`] | the addresses that Gateways request, and the addresses that satisfy the requests |
//! | [`source`] | following a cluster or a directory, and publishing the changes |
//! | [`documents`] | documents of APIs that servers publish at URLs |
//! | [`catalogue`] | the APIs in service with their documents, plans, subscriptions and keys, for people |
//! | [`audit`] | the versions of objects that a source applied, without secrets |
//! | [`review`] | the review of objects before the cluster stores them |
//! | [`migrate`] | the report for users of ingress-nginx |
//! | [`keys`] | issuing, rotating and revoking API keys |
//! | [`edit`] | changes of objects where they are written |
//! | [`convert`] | from Ingresses to objects of Gateway API, as text |
//! | [`status`] | the intended status of objects of Gateway API |
//! | [`problem`], [`locate`] | problems and their lines |

mod acme;
mod address;
mod audit;
mod backend_tls;
mod backend_traffic;
mod catalogue;
mod convert;
mod documents;
mod edit;
mod emit;
mod external;
mod frontend;
mod intent;
mod keys;
mod locate;
mod manifest;
mod merge;
mod migrate;
pub mod object;
pub mod problem;
mod review;
pub mod source;
mod status;
pub mod store;
pub mod translate;
mod upstream;
mod x_backend;

pub use acme::{Acme, AcmeManifests, AcmeOptions};
pub use audit::Recorder;
pub use audit::admission::{Admission, requested};
pub use catalogue::{
    Place, Published, PublishedApi, PublishedConsumer, PublishedEnvironment, PublishedKey, PublishedPlan,
    PublishedSubscription,
};
pub use convert::kong::{KongConverted, KongOptions, convert_kong, is_kong, located};
pub use convert::{Converted, convert_ingresses};
pub use documents::{DOCUMENT_LENGTH_MAX, DocumentOptions, Documents, Fetch, Fetched};
pub use edit::{Creation, EditError, EditFault, Edited, new_subscription, reference};
pub use keys::{ConsumerKeys, IssuedKey, KeyError, ListedKey};
pub use manifest::{read_yaml, write_yaml};
pub use merge::policy::standing::{Reason, Standing, TargetName};
pub use migrate::cluster::{ReadError, read_ingresses};
pub use migrate::{
    AnnotationReport, AnnotationTotal, IngressReport, IngressTargets, MigrationReport, Verdict,
    ingress_targets, migration_report,
};
pub use object::annotation::page::annotations;
pub use object::api::contract::{ApiDocument, api_object};
pub use object::host;
pub use object::nginx::configmap::{IngressNginxKey, ingress_nginx_keys, is_ingress_nginx_key};
pub use object::policy::crd::{Definition, definitions};
pub use object::{Kind, ObjectRef};
pub use problem::{Origin, Problem, Severity};
pub use review::{ReviewError, Reviewed, Reviews};
pub use source::cluster::acme::ClusterSecrets;
pub use source::cluster::addresses::Addresses;
pub use source::cluster::client::{ClientError, Credentials};
pub use source::cluster::gateway_planes::Authorities;
pub use source::cluster::once::{LoadError, load_cluster_once};
pub use source::cluster::planes::{PlaneCertificates, PlaneFiles, PlanesError};
pub use source::cluster::pods::{GatewayPod, PodError, gateway_pods};
pub use source::cluster::token::review as review_token;
pub use source::cluster::{OwnPlanesLink, StatusOptions};
pub use source::{
    ClusterSource, Contact, DirectorySource, Loaded, Publish, Served, foreign_in_words, load_once,
    read_manifests,
};
pub use status::ObjectStatus;
pub use store::Store;
pub use translate::{
    DataPlanes, GatewayServices, Globals, IngressNginx, ObjectName, OwnDataPlanes, ReadGlobals, ServiceType,
    TemplateError, TranslateOptions, Translation, WorkloadTemplate, translate,
};
