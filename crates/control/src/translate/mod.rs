//! From the objects of a [`Store`] to a [`Config`], by pure functions.
//!
//! Translation only relates objects to each other; each object was checked by itself when it was read.
//!
//! | module | content |
//! |---|---|
//! | [`policy`] | the policies of each route, and the Consumers |
//! | [`named`] | the relevant objects, before the translation |

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use sluicegate_model::{Config, Protocol, Settings, UpstreamKey};

use crate::frontend::gateway;
use crate::frontend::ingress::{class, restriction};
use crate::intent as reference;
use crate::merge::{passthrough, rule as routes, tls};
use crate::object::ingress::Ingress;
use crate::object::policy::traffic::ServiceTrafficSettings;
use crate::object::{Kind, ObjectRef, annotation};
use crate::problem::{Origin, Problem};
use crate::store::Store;
use crate::upstream;
use policy::standing::Standing;
use reference::{At, Reference};

pub(crate) mod named;
pub mod policy;
#[cfg(test)]
mod tests;

/// The `spec.controller` of our IngressClasses.
pub const CONTROLLER: &str = "sluicegate.dev/ingress-controller";

/// The `spec.controllerName` of our GatewayClasses.
pub const GATEWAY_CONTROLLER: &str = "sluicegate.dev/gateway-controller";

/// Options of the translation.
///
/// # Which Ingresses are served
///
/// An Ingress names its class by `spec.ingressClassName` or, if that is absent, by the annotation
/// `kubernetes.io/ingress.class`.
///
/// | the Ingress | is served if |
/// |---|---|
/// | names an IngressClass that exists | its `spec.controller` is [`CONTROLLER`] |
/// | names a class of which there is no IngressClass | it is [`ingress_class`](Self::ingress_class) |
/// | names none, and there is a default IngressClass | the default one's `spec.controller` is [`CONTROLLER`] |
/// | names none, and there is no IngressClass at all | always |
/// | names none, in all other cases | [`watch_ingress_without_class`](Self::watch_ingress_without_class) |
///
/// The default IngressClass is the one with the annotation `ingressclass.kubernetes.io/is-default-class: "true"`;
/// of several, the youngest, then the first by name, as in Kubernetes.
///
/// # Which Gateways are served
///
/// Two groups of Gateways are served: Gateways whose `spec.gatewayClassName` names a GatewayClass with
/// [`GATEWAY_CONTROLLER`] as its `spec.controllerName`, and Gateways that name [`gateway_class`](Self::gateway_class)
/// if there is no GatewayClass of that name.
#[derive(Clone, Debug)]
pub struct TranslateOptions {
    /// Limits and policies, which the translation passes on unchanged.
    pub settings: Settings,
    /// The class that is ours even without an IngressClass. Default `sluicegate`.
    pub ingress_class: String,
    /// Whether Ingresses that name no class are ours, independent of the IngressClasses. Default no.
    pub watch_ingress_without_class: bool,
    /// The class of Gateways that is ours even without a GatewayClass. Default `sluicegate`.
    pub gateway_class: String,
    /// The addresses of Gateways without `spec.addresses`. Default all IPv4 addresses.
    pub gateway_addresses: Vec<IpAddr>,
    /// The ports at which the process serves HTTP: no Gateway can have them for TCP. Default: none.
    pub http_ports: Vec<u16>,
    /// The ports at which the process serves HTTPS. For Gateways at these ports, the HTTPS listeners provide TLS
    /// passthrough, and Gateways can use these ports for nothing else. Default: none.
    pub https_ports: Vec<u16>,
    /// The port of the admin interface, which no Gateway can have for TCP. Default: none.
    pub admin_port: Option<u16>,
    /// Whether plain HTTP is redirected to HTTPS where a host has TLS, unless its Ingress says otherwise. Default yes
    /// (ingress-nginx `ssl-redirect`).
    pub ssl_redirect: bool,
    /// The Secret with the certificate for clients that name no host or an unknown host, and for hosts without a
    /// certificate: namespace and name. Default: none, and data planes create a self-signed certificate.
    pub default_certificate: Option<ObjectName>,
    /// The Secret with the secrets that encrypt session tickets. Default: none.
    pub ticket_secret: Option<ObjectName>,
    /// The ConfigMap with settings that override [`settings`](Self::settings) and [`ssl_redirect`](Self::ssl_redirect).
    /// Default: none.
    pub configmap: Option<ObjectName>,
    /// The function that reads the ConfigMap.
    pub read_globals: ReadGlobals,
    /// Whether Ingresses are served although they have annotations of ingress-nginx that restrict access and are not
    /// read. Default no: their routes respond with 503.
    pub ignore_nginx_access_annotations: bool,
}

/// The global settings of a ConfigMap, merged with the settings without it.
#[derive(Clone, Debug)]
pub struct Globals {
    /// Limits and policies.
    pub settings: Settings,
    /// Whether plain HTTP is redirected to HTTPS for a host with TLS.
    pub ssl_redirect: bool,
    /// The fields that are not used, and why.
    pub faults: Vec<(String, String)>,
}

/// A function of the keys and values of a ConfigMap of global settings. The function belongs to the command line, whose
/// options are the keys.
#[derive(Clone)]
pub struct ReadGlobals(pub Arc<ReadGlobalsFn>);

/// From the keys and values of a ConfigMap, in the order of their keys.
type ReadGlobalsFn = dyn Fn(&[(&str, &str)]) -> Globals + Send + Sync;

impl fmt::Debug for ReadGlobals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadGlobals")
    }
}

/// Knows no key.
impl Default for ReadGlobals {
    fn default() -> Self {
        Self(Arc::new(|values| Globals {
            settings: Settings::default(),
            ssl_redirect: true,
            faults: values.iter().map(|(key, _)| (format!("data[{key}]"), "is unknown".to_owned())).collect(),
        }))
    }
}

/// An object by its namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ObjectName {
    pub(crate) fn secret(&self) -> ObjectRef {
        self.of(Kind::Secret)
    }

    pub(crate) fn configmap(&self) -> ObjectRef {
        self.of(Kind::ConfigMap)
    }

    pub(crate) fn of(&self, kind: Kind) -> ObjectRef {
        ObjectRef { kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// An Ingress that is ours, and the place where it was written.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) object: &'a ObjectRef,
    pub(crate) ingress: &'a Ingress,
    origin: &'a Origin,
}

impl<'a> Source<'a> {
    pub(crate) fn at(self) -> At<'a> {
        At { object: self.object, origin: self.origin }
    }

    pub(crate) fn problem(self, field: &str, message: String) -> Problem {
        self.at().warning(field, message)
    }
}

impl Default for TranslateOptions {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            ingress_class: "sluicegate".to_owned(),
            watch_ingress_without_class: false,
            gateway_class: "sluicegate".to_owned(),
            gateway_addresses: vec![Ipv4Addr::UNSPECIFIED.into()],
            http_ports: Vec::new(),
            https_ports: Vec::new(),
            admin_port: None,
            ssl_redirect: true,
            default_certificate: None,
            ticket_secret: None,
            configmap: None,
            read_globals: ReadGlobals::default(),
            ignore_nginx_access_annotations: false,
        }
    }
}

/// The translation of a [`Store`].
#[derive(Clone, Debug, Default)]
pub struct Translation {
    /// The configuration to serve. Upstreams with an external name have no endpoints in it.
    pub config: Config,
    /// The problems between objects; [`Store::problems`] has the problems within one object.
    pub problems: Vec<Problem>,
    /// The problems between a Service and its slices.
    pub(crate) upstream_problems: BTreeMap<UpstreamKey, Problem>,
    /// The port of upstreams with an external name.
    pub(crate) external_ports: BTreeMap<UpstreamKey, u16>,
    /// The Ingresses and Gateways of other classes, each with a note of the option that would serve it.
    pub foreign: Vec<Problem>,
    /// The state of each policy for each of its targets, and of each Consumer.
    pub policy_statuses: Vec<Standing>,
}

/// Translates the objects of a store.
#[must_use]
pub fn translate(store: &Store, options: &TranslateOptions) -> Translation {
    let (options, global_problems) = with_globals(store, options);
    let options = &*options;
    let (ingresses, mut foreign) = ingresses(store, options);
    let mut gateways = gateway::build(store, options);
    foreign.append(&mut gateways.foreign);
    let mut restricted = restriction::Restricted::new(&ingresses, options);
    let of_restrictions = std::mem::take(&mut restricted.problems);
    let mut passthrough = passthrough::build(store, &ingresses, gateways.claims, &restricted);
    let mut tls = tls::build(store, &ingresses, &passthrough, options);
    let mut policies = policy::Policies::new(store, &ingresses, &restricted);
    let built = routes::build(store, &ingresses, &tls, &mut policies);
    let mut config = Config {
        settings: options.settings.clone(),
        hosts: built.hosts,
        default_rule: built.default_rule,
        listeners: gateways.listeners,
        consumers: Vec::new(),
        tls: Arc::new(std::mem::take(&mut tls.tls)),
        upstreams: BTreeMap::new(),
    };
    let of_policies = policies.finish(store, &config);
    config.consumers = of_policies.consumers;
    let mut problems = tls.problems;
    problems.extend(of_policies.problems);
    problems.extend(global_problems);
    problems.extend(built.problems);
    problems.extend(of_restrictions);
    problems.append(&mut gateways.problems);
    problems.append(&mut passthrough.problems);
    let mut references = built.references;
    references.extend(gateways.references);
    references.append(&mut passthrough.references);
    references.extend(of_policies.references);
    let policy_statuses = of_policies.policy_statuses;
    let mut translation = Translation { problems, foreign, policy_statuses, ..Translation::default() };
    translation.resolve(store, &references, &of_policies.upstreams, &mut config);
    translation.report_unusable_proxy_protocol(store, &config);
    Translation { config, ..translation }
}

/// The options with the settings of the ConfigMap.
fn with_globals<'a>(
    store: &Store,
    options: &'a TranslateOptions,
) -> (Cow<'a, TranslateOptions>, Vec<Problem>) {
    let Some(object) = options.configmap.as_ref().map(ObjectName::configmap) else {
        return (Cow::Borrowed(options), Vec::new());
    };
    let Some((data, origin)) = store.configmap(&object) else {
        let fault = format!("{object} does not exist; the settings of the command line apply");
        return (Cow::Borrowed(options), vec![Problem::of_option("--configmap", fault)]);
    };
    let values: Vec<(&str, &str)> =
        data.values().filter_map(|(key, value)| Some((key, std::str::from_utf8(value).ok()?))).collect();
    let Globals { settings, ssl_redirect, faults } = (options.read_globals.0)(&values);
    let at = At { object: &object, origin };
    let problems = faults.into_iter().map(|(field, fault)| at.warning(&field, fault)).collect();
    (Cow::Owned(TranslateOptions { settings, ssl_redirect, ..options.clone() }), problems)
}

/// The Ingresses that are ours, the oldest first, and notes of the others, by their names.
fn ingresses<'a>(store: &'a Store, options: &TranslateOptions) -> (Vec<Source<'a>>, Vec<Problem>) {
    let classes = class::Classes::new(store, options);
    let (mut ours, mut others): (Vec<_>, Vec<_>) =
        sources(store).partition(|source| classes.serves(source.ingress));
    ours.sort_by_cached_key(|source| source.at().age(source.ingress.created));
    others.sort_unstable_by_key(|source| source.object);
    let note = |source: &Source<'_>| {
        let (field, message) = classes.refusal(source.ingress);
        source.at().note(&field, message)
    };
    (ours, others.iter().map(note).collect())
}

/// The Ingresses, in any order.
fn sources(store: &Store) -> impl Iterator<Item = Source<'_>> {
    store.all::<Ingress>().map(|(object, ingress, origin)| Source { object, ingress, origin })
}

impl Translation {
    /// Finds the endpoints of all named upstreams, and reports missing objects. Leaves out references without effect,
    /// because an older object had precedence.
    fn resolve(
        &mut self,
        store: &Store,
        references: &[Reference<'_>],
        governed: &HashMap<UpstreamKey, ServiceTrafficSettings>,
        config: &mut Config,
    ) {
        let layer4: HashSet<UpstreamKey> = config
            .layer4_routes()
            .flat_map(|(_, route)| route.backends.iter().map(|backend| backend.upstream.clone()))
            .collect();
        let is_used = |reference: &&Reference<'_>| match reference.upstream.transport.protocol {
            Protocol::Http | Protocol::Http2 => true,
            Protocol::Tcp | Protocol::Udp => layer4.contains(&reference.upstream),
        };
        let mut missing: HashMap<&UpstreamKey, (&'static str, String)> = HashMap::default();
        for reference in references.iter().filter(is_used) {
            let key = &reference.upstream;
            if let Entry::Vacant(place) = config.upstreams.entry(key.clone()) {
                let mut resolved = upstream::resolve(store, key);
                if let Some(of_policy) = governed.get(key) {
                    of_policy.apply(&mut resolved.upstream);
                }
                place.insert(Arc::new(resolved.upstream));
                missing.extend(resolved.missing.map(|missing| (key, missing)));
                self.upstream_problems.extend(resolved.problem.map(|problem| (key.clone(), problem)));
                self.external_ports.extend(resolved.external_port.map(|port| (key.clone(), port)));
            }
            if let Some((within, message)) = missing.get(key) {
                self.problems.push(reference.problem(within, message.clone()));
            }
        }
        // No object names upstreams that refuse connections.
        for key in layer4 {
            config.upstreams.entry(key).or_default();
        }
    }

    /// Reports Services that ask for the PROXY protocol where the gateway cannot send it.
    fn report_unusable_proxy_protocol(&mut self, store: &Store, config: &Config) {
        let mut told = HashSet::default();
        for key in config.upstreams.keys() {
            let Some((service, origin)) = store.service(&key.namespace, &key.service) else { continue };
            if service.proxy_protocol.is_none() {
                continue;
            }
            let what = match key.transport.protocol {
                Protocol::Tcp => continue,
                Protocol::Udp => "datagrams",
                Protocol::Http | Protocol::Http2 if is_redirected_alone(config, key) => continue,
                Protocol::Http | Protocol::Http2 => {
                    "HTTP, where a connection carries the requests of many clients"
                }
            };
            if told.insert((&key.namespace, &key.service)) {
                let object = ObjectRef {
                    kind: Kind::Service,
                    namespace: key.namespace.clone(),
                    name: key.service.clone(),
                };
                let field = annotation::field(annotation::PROXY_PROTOCOL);
                let at = At { object: &object, origin };
                self.problems.push(at.warning(&field, format!("has no effect for {what}")));
            }
        }
    }
}

/// Whether no request can reach an upstream: TLS passthrough takes all hosts of its routes, and plain HTTP is redirected to TLS.
fn is_redirected_alone(config: &Config, key: &UpstreamKey) -> bool {
    let is_default = config.default_rule.as_ref().is_some_and(|route| route.upstream == *key);
    let is_reached = config.hosts.iter().any(|host| {
        let is_passed = config.tls.passthrough.iter().any(|route| route.host == host.host);
        let mut routes = host.rules.iter().chain(&host.fallback).filter(|route| route.upstream == *key);
        routes.any(|route| !(is_passed && route.https_only))
    });
    !is_default && !is_reached
}
