//! The configuration that Sluicegate serves, as plain immutable data.
//!
//! The control plane translates Kubernetes objects into this model. The proxy compiles the model into the structures of its
//! workers. The crate does no I/O, never waits, and does not depend on the Kubernetes types.
//!
//! There are two kinds of [`Change`]: a whole [`Config`] (hosts, routes, settings, upstreams), and the endpoints of a single
//! upstream. Endpoints change a hundred times more often, so they have a change of their own.
//!
//! | module | what |
//! |---|---|
//! | [`build`] | the version of the running program |
//! | [`config`] | [`Config`], [`Change`] |
//! | [`contract`] | contracts of APIs, for validation and mocks |
//! | [`host`] | host patterns: exact, one-label wildcard, any |
//! | [`rule`] | virtual hosts, rules with their matches |
//! | [`route`] | the identity of an object, path patterns |
//! | [`upstream`] | upstreams with their stable identity, and their endpoints |
//! | [`listener`] | the listeners of Gateways |
//! | [`tls`] | certificates by name, client certificates |
//! | [`feature`] | the features of rules and Services, each defined once |
//! | [`value`] | bounded values |
//! | [`policy`] | authentication, authorization, rate limits, traffic |
//! | [`access_log`] | the requests in the access log, and the format of their lines |
//! | [`analytics`] | the sums of requests that data planes hand over |
//! | [`audit`] | the versions of objects for the audit trail |
//! | [`settings`] | every timeout and size limit, with its default |
//! | [`tracing`] | the traced requests, and the collector of their spans |
//! | [`decision`] | the decisions of operators about Subscriptions |
//! | [`visibility`] | the visitors of the developer portal that see an object |
//! | [`text`] | external text, escaped for logs and tables |
//! | [`encoding`] | the encoding of the model for data planes and snapshots |

pub mod access_log;
pub mod analytics;
pub mod audit;
pub mod build;
pub mod config;
pub mod contract;
pub mod decision;
pub mod encoding;
pub mod feature;
pub mod host;
pub mod listener;
pub mod policy;
pub mod route;
pub mod rule;
pub mod settings;
pub mod template;
pub mod text;
pub mod tls;
pub mod tracing;
pub mod upstream;
pub mod usage;
pub mod value;
pub mod visibility;

pub use build::Build;
pub use config::{Change, Config, Upstreams, without_common_ends};
pub use contract::ApiContract;
pub use decision::Decision;
pub use feature::compression::{Codings, Compression, ContentCoding};
pub use feature::{Ejection, Features, HealthCheck, HealthCheckType, ServiceFeatures};
pub use host::HostPattern;
pub use listener::{
    EntryPoint, Layer4Route, Listener, ListenerId, Planes, ProxyHeader, ProxyProtocol, Serves, TlsRoute,
    WeightedUpstream,
};
pub use route::{ObjectId, PathPattern};
pub use rule::{Rule, RuleMatch, VirtualHost};
pub use settings::Settings;
pub use template::PathTemplate;
pub use tls::{AcmeHost, Certificate, ClientAuth, ClientAuthMode, ClientCheck, KeyKind, Tls, TlsHost};
pub use tracing::{Collector, Tracing};
pub use upstream::{
    AlternativeName, Balance, Conditions, Endpoint, Health, Protocol, Transport, TransportTls, Upstream,
    UpstreamKey, UpstreamLimits, UpstreamTls, Verification,
};
pub use visibility::Visibility;
