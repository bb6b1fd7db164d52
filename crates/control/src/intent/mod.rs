//! The intents: the routes, certificates and listeners that objects request, in terms that all dialects share. Each
//! part has its origin: the object, the place where the object was written, and the field.
//!
//! [`listener`] has the listeners of Gateways and the intents below HTTP, and [`http_route`] the intents of HTTPRoutes and GRPCRoutes. [`merge`](crate::merge) resolves conflicts between intents, and
//! [`emit`](crate::emit) makes the model of the result.

use std::borrow::Cow;
use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::feature::Features;
use sluicegate_model::policy::{RateLimits, Security, Subscriptions};
use sluicegate_model::rule::{ApiOperation, HttpsRedirect, RuleMatch};
use sluicegate_model::value::CipherSuites;
use sluicegate_model::{Certificate, ClientAuth, Codings, HostPattern, Layer4Route, ObjectId, UpstreamKey};

use crate::backend_tls::BackendTls;
use crate::backend_traffic::BackendTraffic;
use crate::merge::policy::standing::Standing;
use crate::object::api::requirement::Requirement;
use crate::object::external_auth::listener_filter_field;
use crate::object::gateway::listener_field;
use crate::object::http_route::{backend_field as http_backend_field, filter_field};
use crate::object::ingress::{path_field, secret_field};
use crate::object::policy::authentication::EXT_AUTH_FIELD;
use crate::object::policy::traffic::{ERROR_PAGES_FIELD, MIRROR_FIELD, split_backend_field};
use crate::object::route::{backend_field, parent_field};
use crate::object::{ObjectRef, annotation};
use crate::problem::{Origin, Problem, Severity};
use crate::upstream::ANSWERED;
use crate::x_backend::XBackends;
use http_route::HttpRoute;
use listener::{GatewayIntent, Layer4, Listener, ListenerSetIntent, Parent};

pub(crate) mod http_route;
pub(crate) mod listener;

/// The intents of all objects.
#[derive(Default)]
pub(crate) struct Intents<'a> {
    /// For HTTP and TLS, the oldest object first.
    pub(crate) http: Vec<Intent<'a>>,
    /// Further names of hosts of these objects, in the same order.
    pub(crate) aliases: Vec<Alias<'a>>,
    /// The Gateways, the oldest first.
    pub(crate) gateways: Vec<GatewayIntent<'a>>,
    /// The ListenerSets of these Gateways, the oldest first.
    pub(crate) listener_sets: Vec<ListenerSetIntent<'a>>,
    /// The listeners of Gateways, those of the oldest Gateway first; then the listeners of ListenerSets, those of the
    /// oldest set first; then the ports of `tcp_services` and `udp_services`.
    pub(crate) listeners: Vec<Listener<'a>>,
    /// The routes below HTTP, the oldest route first.
    pub(crate) layer4: Vec<Layer4<'a>>,
    /// The HTTPRoutes and GRPCRoutes, the oldest route first.
    pub(crate) http_routes: Vec<HttpRoute<'a>>,
    pub(crate) backend_tls: BackendTls<'a>,
    pub(crate) backend_traffic: BackendTraffic<'a>,
    pub(crate) x_backends: XBackends<'a>,
    /// The Apis that serve none or only a part of their operations, each with the reason.
    pub(crate) partial_apis: HashMap<&'a ObjectRef, &'static str>,
    /// The states of Apis, Plans and Subscriptions.
    pub(crate) standings: Vec<Standing>,
    pub(crate) problems: Vec<Problem>,
    /// The objects of other classes, each with a note of the option that would serve it.
    pub(crate) foreign: Vec<Problem>,
}

impl<'a> Intents<'a> {
    /// The listeners that accept a route with these parents.
    pub(crate) fn accepting(&self, parents: &[Parent<'_>]) -> impl Iterator<Item = &Listener<'a>> {
        let accepted = parents.iter().filter_map(|parent| parent.accepted.as_ref().ok()).flatten();
        accepted.map(|(listener, _)| &self.listeners[*listener])
    }
}

/// The intent of an object for HTTP and TLS.
pub(crate) struct Intent<'a> {
    pub(crate) at: At<'a>,
    /// The creation time of the object.
    pub(crate) created: Option<i64>,
    /// Its hosts, in the order of the object, which may name a host several times.
    pub(crate) hosts: Vec<Host<'a>>,
    /// The upstream of requests to its hosts that match no rule.
    pub(crate) default: Option<UpstreamKey>,
    /// Whether the default is for all hosts.
    pub(crate) is_for_all_hosts: bool,
    pub(crate) tls: Vec<Tls<'a>>,
    pub(crate) client_auth: Option<ClientAuthIntent<'a>>,
    /// The cipher suites of TLS 1.2 for the hosts with a certificate.
    pub(crate) ciphers: CipherSuites,
    pub(crate) https: Https,
    pub(crate) compression: Option<&'a Codings>,
    /// The parts that the object sets for all its rules.
    pub(crate) own: Option<Arc<Own>>,
    /// The parts of requests to its hosts that match no rule, if the object has no default. `None`: they receive 404.
    pub(crate) unmatched: Option<Arc<Own>>,
    /// The policy that refuses all requests for the object.
    pub(crate) refuses: Option<Arc<Security>>,
    /// The upstreams that the features of its rules name.
    pub(crate) named: Vec<Reference<'a>>,
}

/// A host, and its rules.
pub(crate) struct Host<'a> {
    pub(crate) host: Cow<'a, HostPattern>,
    pub(crate) rules: Vec<Rule>,
    /// The TLS passthrough of its connections.
    pub(crate) passthrough: Passthrough,
}

/// A further name of a host.
pub(crate) struct Alias<'a> {
    pub(crate) at: At<'a>,
    pub(crate) place: Place,
    pub(crate) name: HostPattern,
    /// The host.
    pub(crate) of: &'a HostPattern,
}

/// The TLS passthrough of a host.
pub(crate) enum Passthrough {
    Off,
    /// This field of the object enables passthrough, and the backend is in this place.
    To {
        field: Place,
        place: Place,
        upstream: UpstreamKey,
    },
    /// This field of the object enables passthrough, but the object has no backend for the host.
    Nowhere {
        field: Place,
    },
}

/// A rule with one match and one upstream.
#[derive(Clone)]
pub(crate) struct Rule {
    pub(crate) place: Place,
    pub(crate) of: RuleMatch,
    /// The match of the common prefix of all paths that the path would match as a regular expression, if it looks like
    /// one.
    pub(crate) literal: Option<RuleMatch>,
    /// `None` if the gateway itself responds.
    pub(crate) upstream: Option<UpstreamKey>,
    /// The parts that the object sets for the rule.
    pub(crate) own: Option<Arc<Own>>,
    /// The parts of a rule of an Api.
    pub(crate) api: Option<Box<OfApi>>,
}

/// The parts of a rule of an Api.
#[derive(Clone)]
pub(crate) struct OfApi {
    /// The names by which policies select the rule, the most specific first.
    pub(crate) sections: Arc<[Arc<str>]>,
    pub(crate) operation: ApiOperation,
    /// The subscriptions to the operation.
    pub(crate) subscriptions: Option<Arc<Subscriptions>>,
    /// The credentials that the document requires for the operation; `None` unless the Api has `documentSecurity: Enforce`.
    pub(crate) requirement: Option<Arc<Requirement>>,
}

/// The parts that an object sets for its rules.
#[derive(Clone)]
pub(crate) struct Own {
    /// The class of the object. Objects of a class with equal features share one traffic policy, with the id of the class.
    pub(crate) class: ObjectId,
    pub(crate) features: Arc<Features>,
    pub(crate) security: Option<Arc<Security>>,
    pub(crate) rate_limits: Option<Arc<RateLimits>>,
    pub(crate) https: Https,
}

/// A certificate for hosts.
pub(crate) struct Tls<'a> {
    /// The field with the Secret.
    pub(crate) place: Place,
    /// The hosts that this TLS entry names.
    pub(crate) named: &'a [HostPattern],
    /// Whether it is for all hosts of the object.
    pub(crate) is_for_all_hosts: bool,
    /// The hosts of the certificate: the named hosts, or the hosts of the object.
    pub(crate) hosts: Cow<'a, [HostPattern]>,
    /// The certificate, or the reason why there is none; `None` if the object names no Secret.
    pub(crate) certificate: Option<Result<Arc<Certificate>, String>>,
    /// The Secret for a certificate of an ACME server, if the object asks for one.
    pub(crate) acme: Option<AcmeSecret>,
}

/// A Secret for a certificate of an ACME server.
pub(crate) struct AcmeSecret {
    pub(crate) secret: ObjectRef,
    /// Whether the Secret does not exist yet.
    pub(crate) is_missing: bool,
}

/// The clients that may connect to hosts.
pub(crate) struct ClientAuthIntent<'a> {
    /// The field with the CA certificates.
    pub(crate) place: Place,
    /// The hosts of rules and of the default, then the hosts of TLS.
    pub(crate) hosts: Vec<&'a HostPattern>,
    pub(crate) policy: Arc<ClientAuth>,
    /// The object without CA certificates, and the reason.
    pub(crate) fault: Option<(ObjectRef, String)>,
}

/// The redirect of plain HTTP to HTTPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Https {
    /// Whether plain HTTP is redirected in any case.
    pub(crate) is_forced: bool,
    /// Whether plain HTTP is redirected for hosts with TLS; `None` for the setting of the gateway.
    pub(crate) if_tls: Option<bool>,
    pub(crate) redirect: HttpsRedirect,
}

/// An object that claims the TLS connections for a host.
pub(crate) struct Claim<'a> {
    pub(crate) host: HostPattern,
    pub(crate) leads_to: Layer4Route,
    pub(crate) at: At<'a>,
    /// The creation time of the object.
    pub(crate) created: Option<i64>,
    /// The field with the claim.
    pub(crate) field: Place,
}

/// An object, and the place where it was written.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) object: &'a ObjectRef,
    pub(crate) origin: &'a Origin,
}

/// A backend as an object names it.
#[derive(Clone)]
pub(crate) struct Reference<'a> {
    pub(crate) at: At<'a>,
    pub(crate) place: Place,
    pub(crate) upstream: UpstreamKey,
}

/// The field of an object that an intent comes from.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// An annotation.
    Annotation(&'static str),
    /// `spec.defaultBackend` of an Ingress.
    DefaultBackend,
    /// The rule and the path of an Ingress.
    Path(usize, usize),
    /// The Secret of an entry of `spec.tls` of an Ingress.
    Secret(usize),
    /// The listener of a Gateway or a ListenerSet.
    Listener(usize),
    /// The parent of a route of Gateway API.
    ParentRef(usize),
    /// The backend of a route of Gateway API.
    BackendRef(usize),
    /// The rule and the backend of an HTTPRoute.
    HttpBackend(usize, usize),
    /// The rule of an HTTPRoute, and a filter that mirrors requests.
    HttpMirror(usize, usize),
    /// The rule of an HTTPRoute, and a filter that asks an authorization service.
    HttpFilter(usize, usize),
    /// The listener of a Gateway or a ListenerSet, and a filter that asks an authorization service.
    ListenerFilter(usize, usize),
    /// Another Service of a TrafficPolicy, with a share of the requests.
    Branch(usize),
    /// The mirror of a TrafficPolicy.
    Mirror,
    /// The error pages of a TrafficPolicy.
    ErrorPages,
    /// The URL of the external authorization service of a SecurityPolicy.
    ExtAuth,
    /// The entry of a ConfigMap whose key is this port.
    Data(u16),
    /// The environment of an Api.
    Environment(usize),
    /// The Secret of an environment of an Api.
    EnvironmentSecret(usize),
}

impl<'a> Intent<'a> {
    pub(crate) fn problem(&self, place: Place, message: String) -> Problem {
        self.at.warning(&place.field(), message)
    }

    /// The hosts of the rules, and the hosts of the TLS entries.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &HostPattern> {
        self.hosts.iter().map(|host| &*host.host).chain(self.tls_hosts())
    }

    /// The hosts of the TLS entries.
    pub(crate) fn tls_hosts(&self) -> impl Iterator<Item = &'a HostPattern> {
        self.tls.iter().flat_map(|tls| tls.named)
    }
}

impl At<'_> {
    pub(crate) fn warning(self, field: &str, message: String) -> Problem {
        self.problem(Severity::Warning, field, message)
    }

    pub(crate) fn note(self, field: &str, message: String) -> Problem {
        self.problem(Severity::Note, field, message)
    }

    pub(crate) fn problem(self, severity: Severity, field: &str, message: String) -> Problem {
        Problem {
            severity,
            origin: self.origin.clone(),
            object: Some(self.object.clone()),
            field: field.to_owned(),
            message,
            cause: None,
        }
    }

    pub(crate) fn id(self) -> ObjectId {
        self.object.id()
    }

    /// A sort key by age and then by name, so that the object with precedence comes first. An object without a creation
    /// time was never created in a cluster, so it counts as youngest.
    pub(crate) fn age(self, created: Option<i64>) -> impl Ord + use<> {
        (created.is_none(), created, self.object.namespace.clone(), self.object.name.clone())
    }
}

impl Place {
    /// The field with the path of a rule.
    pub(crate) fn path_field(self) -> String {
        let field = self.field();
        match self {
            Self::Environment(_) => format!("{field}.basePath"),
            _ => format!("{field}.path"),
        }
    }

    /// The field, as problems name it.
    pub(crate) fn field(self) -> String {
        match self {
            Self::Annotation(name) => annotation::field(name),
            Self::DefaultBackend => "spec.defaultBackend".to_owned(),
            Self::Path(rule, path) => path_field(rule, path),
            Self::Data(port) => format!("data[{port}]"),
            Self::Environment(index) => format!("spec.environments[{index}]"),
            Self::EnvironmentSecret(index) => format!("spec.environments[{index}].tls.secretName"),
            Self::Secret(index) => secret_field(index),
            Self::Listener(index) => listener_field(index),
            Self::ParentRef(index) => parent_field(index),
            Self::BackendRef(index) => backend_field(index),
            Self::HttpBackend(rule, backend) => http_backend_field(rule, backend),
            Self::HttpMirror(rule, filter) => {
                format!("{}.requestMirror.backendRef", filter_field(rule, filter))
            }
            Self::HttpFilter(rule, filter) => {
                format!("{}.externalAuth.backendRef", filter_field(rule, filter))
            }
            Self::ListenerFilter(listener, filter) => {
                format!("{}.externalAuth.backendRef", listener_filter_field(listener, filter))
            }
            Self::Branch(index) => split_backend_field(index),
            Self::Mirror => MIRROR_FIELD.to_owned(),
            Self::ErrorPages => ERROR_PAGES_FIELD.to_owned(),
            Self::ExtAuth => EXT_AUTH_FIELD.to_owned(),
        }
    }
}

impl Reference<'_> {
    /// A problem with the object that is named here: `within` is the field inside the backend of an Ingress.
    pub(crate) fn problem(&self, within: &str, message: String) -> Problem {
        let field = self.place.field();
        let field = match self.place {
            Place::DefaultBackend => format!("{field}.{within}"),
            Place::Path(..) => format!("{field}.backend.{within}"),
            Place::Data(_) => field,
            Place::Environment(_) => {
                format!("{field}.backend.{}", if within == "service.name" { "service" } else { "port" })
            }
            _ => format!("{field}.{}", within.trim_start_matches("service.")),
        };
        let message = match self.place {
            // No client waits for mirrored requests.
            Place::Mirror | Place::HttpMirror(..) => {
                message.replace(ANSWERED, "mirrored requests are dropped")
            }
            Place::ErrorPages => message.replace(ANSWERED, "clients receive the original responses"),
            Place::HttpFilter(..) | Place::ListenerFilter(..) => {
                message.replace(ANSWERED, "requests receive 403")
            }
            _ => message,
        };
        self.at.warning(&field, message)
    }
}
