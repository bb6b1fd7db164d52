//! The entities.

use std::fmt;

use crate::id::Id;
use crate::node::Node;

/// The protocol of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// gRPC.
    Grpc,
    /// gRPC over TLS.
    Grpcs,
    /// A protocol without HTTP, or of the paid edition.
    Other,
}

impl Protocol {
    /// The protocol with a name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "http" => Self::Http,
            "https" => Self::Https,
            "grpc" => Self::Grpc,
            "grpcs" => Self::Grpcs,
            _ => Self::Other,
        }
    }

    /// Whether connections use TLS.
    #[must_use]
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Grpcs)
    }
}

/// A service: the destination of routes.
#[derive(Clone, Debug)]
pub struct Service {
    /// The line in the file.
    pub line: u32,
    /// `id`.
    pub id: Option<String>,
    /// `name`.
    pub name: Option<String>,
    /// `protocol`. Default: http.
    pub protocol: Protocol,
    /// The name of `protocol`.
    pub protocol_name: String,
    /// The host name or address, or the name of an upstream.
    pub host: String,
    /// `port`. Default: 80.
    pub port: u16,
    /// `path`. Default: none.
    pub path: Option<String>,
    /// The number of further attempts. Default: 5.
    pub retries: u16,
    /// The timeout of a connect, in milliseconds. Default: 60000.
    pub connect_timeout: u32,
    /// The timeout between two writes, in milliseconds. Default: 60000.
    pub write_timeout: u32,
    /// The timeout between two reads, in milliseconds. Default: 60000.
    pub read_timeout: u32,
    /// Whether the routes of the service are served. Default: true.
    pub enabled: bool,
    /// Whether the certificate of the service is verified. Default: the setting of the gateway, which is no.
    pub tls_verify: Option<bool>,
    /// The ids of the certificates of trusted CAs.
    pub ca_certificates: Vec<String>,
    /// The certificate that the service receives.
    pub client_certificate: Option<String>,
}

/// An address, or a port, of the source or destination of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// An address, or a network in CIDR notation.
    pub ip: Option<String>,
    /// A port.
    pub port: Option<u16>,
}

/// A route: conditions on requests.
#[derive(Clone, Debug)]
pub struct Route {
    /// The line in the file.
    pub line: u32,
    /// `id`.
    pub id: Option<Id>,
    /// `name`.
    pub name: Option<String>,
    /// The place of the service.
    pub service: Option<usize>,
    /// `protocols`. Default: http and https.
    pub protocols: Vec<String>,
    /// `methods`.
    pub methods: Vec<String>,
    /// `hosts`, in lower case. An empty list differs from no list in the priority.
    pub hosts: Option<Vec<String>>,
    /// `paths`. A `~` begins a regular expression.
    pub paths: Vec<String>,
    /// `headers`: the values of each name.
    pub headers: Vec<(String, Vec<String>)>,
    /// `snis`.
    pub snis: Vec<String>,
    /// `sources`.
    pub sources: Vec<Address>,
    /// `destinations`.
    pub destinations: Vec<Address>,
    /// The response to plain HTTP, if `protocols` has no http. Default: 426.
    pub https_redirect_status_code: u16,
    /// `regex_priority`. Default: 0.
    pub regex_priority: u64,
    /// Whether the service receives the path without the matched part. Default: true.
    pub strip_path: bool,
    /// Whether the service receives the host of the client. Default: false.
    pub preserve_host: bool,
}

/// The restriction of a plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The place of the service.
    pub service: Option<usize>,
    /// The place of the route.
    pub route: Option<usize>,
    /// The place of the consumer.
    pub consumer: Option<usize>,
    /// The place of the group of consumers.
    pub consumer_group: Option<usize>,
}

impl Scope {
    /// Whether the plugin applies to all routes and all callers.
    #[must_use]
    pub fn is_global(&self) -> bool {
        *self == Self::default()
    }
}

/// A plugin.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// The line in the file.
    pub line: u32,
    /// `name`.
    pub name: String,
    /// Whether the plugin runs. Default: true.
    pub enabled: bool,
    /// The protocols of requests for which the plugin runs; empty: all.
    pub protocols: Vec<String>,
    /// `config`, together with the shared configuration that `_config` names.
    pub config: Node,
    /// The requests for which the plugin runs.
    pub scope: Scope,
}

/// The kind of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// `keyauth_credentials`.
    Key,
    /// `basicauth_credentials`.
    Basic,
    /// `jwt_secrets`.
    Jwt,
    /// Any other kind.
    Other(&'static str),
}

/// A credential of a consumer.
#[derive(Clone)]
pub struct Credential {
    /// The line in the file.
    pub line: u32,
    /// The kind.
    pub kind: CredentialKind,
    /// The fields: `key`, or `username` and `password`, or `key`, `secret`, `algorithm` and `rsa_public_key`.
    pub fields: Node,
}

impl Credential {
    /// A text of the credential.
    #[must_use]
    pub fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).and_then(Node::text)
    }
}

/// Never shows the secret.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("line", &self.line)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// A consumer.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// The line in the file.
    pub line: u32,
    /// `id`.
    pub id: Option<String>,
    /// `username`.
    pub username: Option<String>,
    /// `custom_id`.
    pub custom_id: Option<String>,
    /// The credentials.
    pub credentials: Vec<Credential>,
    /// The groups of the plugin acl.
    pub acls: Vec<String>,
    /// The names of the groups of consumers.
    pub groups: Vec<String>,
}

impl Consumer {
    /// The name of the consumer: `username`, or `custom_id`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.username.as_deref().or(self.custom_id.as_deref()).or(self.id.as_deref()).unwrap_or_default()
    }
}

/// A group of consumers.
#[derive(Clone, Debug)]
pub struct ConsumerGroup {
    /// The line in the file.
    pub line: u32,
    /// `id`.
    pub id: Option<String>,
    /// `name`.
    pub name: String,
}

/// The part of a request that selects a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashSource {
    /// The consumer.
    Consumer,
    /// The client IP.
    Ip,
    /// The path.
    Path,
    /// A header.
    Header(String),
    /// A cookie.
    Cookie(String),
    /// A parameter of the query.
    Query(String),
    /// Another part.
    Other(String),
}

/// The parts of a request that select a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hash {
    /// `hash_on`; `None`: no part.
    pub on: Option<HashSource>,
    /// `hash_fallback`; `None`: no part.
    pub fallback: Option<HashSource>,
    /// The path of the cookie. Default: /.
    pub cookie_path: Option<String>,
}

/// An active health check.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthCheck {
    /// The line in the file.
    pub line: u32,
    /// `type`: http, https, tcp, grpc or grpcs. Default: http.
    pub kind: String,
    /// The path of the request. Default: /.
    pub path: String,
    /// The timeout in seconds. Default: 1.
    pub timeout: f64,
    /// The interval for healthy targets, in seconds; 0: no checks.
    pub healthy_interval: f64,
    /// The interval for unhealthy targets, in seconds; 0: no checks.
    pub unhealthy_interval: f64,
    /// The successes after which a target is healthy; 0: never.
    pub successes: u8,
    /// The failures after which a target is unhealthy; 0: never.
    pub failures: u8,
    /// The statuses of a healthy target. Default: 200 and 302.
    pub statuses: Vec<u16>,
    /// The host of the request.
    pub sni: Option<String>,
}

/// A passive health check.
#[derive(Clone, Debug, PartialEq)]
pub struct PassiveCheck {
    /// The line in the file.
    pub line: u32,
    /// The failing responses after which a target is unhealthy; 0: never.
    pub http_failures: u8,
    /// The failed connects after which a target is unhealthy; 0: never.
    pub tcp_failures: u8,
    /// The timeouts after which a target is unhealthy; 0: never.
    pub timeouts: u8,
}

/// An upstream: targets that share requests.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// The line in the file.
    pub line: u32,
    /// `id`.
    pub id: Option<String>,
    /// `name`.
    pub name: String,
    /// `algorithm`. Default: round-robin.
    pub algorithm: String,
    /// The parts of requests that select a target.
    pub hash: Hash,
    /// The host that targets receive.
    pub host_header: Option<String>,
    /// The active health check, if one runs.
    pub active: Option<HealthCheck>,
    /// The passive health check, if one runs.
    pub passive: Option<PassiveCheck>,
    /// The certificate that targets receive.
    pub client_certificate: Option<String>,
    /// The targets.
    pub targets: Vec<Target>,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The line in the file.
    pub line: u32,
    /// The name or address.
    pub host: String,
    /// The port. Default: 8000.
    pub port: u16,
    /// The part of the requests. Default: 100.
    pub weight: u16,
}

/// A certificate.
#[derive(Clone)]
pub struct Certificate {
    /// The line in the file.
    pub line: u32,
    /// `id`.
    pub id: Option<String>,
    /// The certificate chain, in PEM.
    pub cert: String,
    /// The private key, in PEM.
    pub key: String,
    /// The names of clients' ClientHello.
    pub snis: Vec<String>,
}

/// Never shows the key.
impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("line", &self.line)
            .field("snis", &self.snis)
            .finish_non_exhaustive()
    }
}

impl Service {
    /// The service in messages.
    #[must_use]
    pub fn label(&self) -> String {
        label("service", self.name.as_deref().or(self.id.as_deref()))
    }
}

impl Route {
    /// The route in messages.
    #[must_use]
    pub fn label(&self) -> String {
        let name = self.name.clone().or_else(|| self.id.map(|id| id.to_string()));
        label("route", name.as_deref().or(self.paths.first().map(String::as_str)))
    }
}

impl Upstream {
    /// The upstream in messages.
    #[must_use]
    pub fn label(&self) -> String {
        label("upstream", Some(&self.name))
    }
}

impl Consumer {
    /// The consumer in messages.
    #[must_use]
    pub fn label(&self) -> String {
        label("consumer", Some(self.name()))
    }
}

impl ConsumerGroup {
    /// The group in messages.
    #[must_use]
    pub fn label(&self) -> String {
        label("consumer_group", Some(&self.name))
    }
}

impl Plugin {
    /// The plugin in messages.
    #[must_use]
    pub fn label(&self) -> String {
        label("plugin", Some(&self.name))
    }
}

impl Certificate {
    /// The certificate in messages.
    #[must_use]
    pub fn label(&self) -> String {
        label("certificate", self.id.as_deref().or(self.snis.first().map(String::as_str)))
    }
}

/// An entity in messages: its kind and name.
pub(crate) fn label(kind: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{kind} {name:?}"),
        None => kind.to_owned(),
    }
}
