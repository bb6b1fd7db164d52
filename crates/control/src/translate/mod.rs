//! From the objects of a [`Store`] to a [`Config`], by pure functions.
//!
//! Translation only relates objects to each other; each object was checked by itself when it was read. It has three
//! steps: [`frontend`] collects the requests of the objects, [`merge`] resolves conflicts, and [`emit`] makes the
//! model.
//!
//! | module | content |
//! |---|---|
//! | [`named`] | the relevant objects, before the translation |
//! | [`data_planes`] | the options for data planes of single Gateways |
//! | [`gateway_services`] | the options for the Services of Gateways |
//! | [`scope`] | the translation of only the hosts that a change affects |

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use sluicegate_model::{Config, Settings, UpstreamKey};

use crate::acme::{self, Acme};
use crate::documents::Documents;
use crate::intent::At;
use crate::merge::policy::standing::Standing;
use crate::object::secret::ConfigMap;
use crate::object::{Kind, ObjectRef, nginx};
use crate::problem::{Problem, Severity};
use crate::status::ObjectStatus;
use crate::store::{ServiceRef, Store};
use crate::{emit, frontend, merge};

mod data_planes;
mod gateway_services;
pub(crate) mod named;
pub(crate) mod scope;
#[cfg(test)]
mod tests;

pub use data_planes::{DataPlanes, OwnDataPlanes, TemplateError, WorkloadTemplate};
pub use gateway_services::{GatewayServices, ServiceType};

/// The `spec.controller` of our IngressClasses.
pub const CONTROLLER: &str = "sluicegate.dev/ingress-controller";

/// The `spec.controller` of IngressClasses that only this gateway serves, in the dialect of ingress-nginx.
pub const NGINX_CONTROLLER: &str = "sluicegate.dev/ingress-nginx";

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
/// | names an IngressClass that exists | its `spec.controller` is [`CONTROLLER`], or a controller of the dialect |
/// | names a class of which there is no IngressClass | it is [`ingress_class`](Self::ingress_class), or the class of the dialect |
/// | names none, and there is a default IngressClass | the default one's `spec.controller` is such a controller |
/// | names none, and there is no IngressClass at all | always |
/// | names none, in all other cases | [`watch_ingress_without_class`](Self::watch_ingress_without_class) |
///
/// The controllers and the class of the dialect are those of [`IngressNginx`], and count if
/// [`ingress_nginx`](Self::ingress_nginx) is set. The Ingresses of these classes are read as ingress-nginx reads them.
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
    /// The class of Ingresses that the gateway serves even without an IngressClass of that name. Default `sluicegate`.
    pub ingress_class: String,
    /// Whether the gateway serves Ingresses without a class, independent of the IngressClasses. Default no.
    pub watch_ingress_without_class: bool,
    /// The class of Gateways that the gateway serves even without a GatewayClass of that name. Default `sluicegate`.
    pub gateway_class: String,
    /// The addresses of Gateways without `spec.addresses`. Default all IPv4 addresses.
    pub gateway_addresses: Vec<IpAddr>,
    /// The Services of Gateways. Default none: clients reach Gateways at the ports of the data plane.
    pub gateway_services: Option<GatewayServices>,
    /// Data planes of single Gateways, which need [`gateway_services`](Self::gateway_services). Default none: the shared data
    /// planes serve all Gateways.
    pub own_data_planes: Option<OwnDataPlanes>,
    /// The ports at which clients reach the process by HTTP: the ports of its sockets, and the ports of a load balancer that lead
    /// there. HTTP listeners of Gateways at these ports share the sockets. Gateways can use these TCP ports for nothing else.
    /// Default: none.
    pub http_ports: Vec<u16>,
    /// The ports at which clients reach the process by HTTPS, like [`http_ports`](Self::http_ports). HTTPS listeners of Gateways,
    /// and TLS listeners with mode `Passthrough`, share the sockets. Default: none.
    pub https_ports: Vec<u16>,
    /// The port of the admin interface, which no Gateway can have for TCP. Default: none.
    pub admin_port: Option<u16>,
    /// Whether plain HTTP is redirected to HTTPS where a host has TLS, unless its Ingress overrides this. Default yes
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
    /// The ConfigMap whose keys are TCP ports that lead to Services, as in ingress-nginx. Default: none.
    pub tcp_services: Option<ObjectName>,
    /// The ConfigMap whose keys are UDP ports that lead to Services, as in ingress-nginx. Default: none.
    pub udp_services: Option<ObjectName>,
    /// The function that reads the ConfigMap.
    pub read_globals: ReadGlobals,
    /// Whether Ingresses are served although they have annotations of ingress-nginx that restrict access and are not
    /// read. Default no: their routes respond with 503.
    pub ignore_nginx_access_annotations: bool,
    /// The dialect of ingress-nginx. Default none: the gateway does not serve its classes.
    pub ingress_nginx: Option<IngressNginx>,
    /// Certificates of an ACME server. Default: unknown, such as for a check of manifests.
    pub acme: Acme,
    /// The documents of Apis at URLs. Default: documents are not fetched.
    pub documents: Documents,
}

/// The options of the dialect of ingress-nginx.
#[derive(Clone, Debug)]
pub struct IngressNginx {
    /// The prefix of the annotations, without a slash. Default `nginx.ingress.kubernetes.io`.
    pub prefix: String,
    /// The `spec.controller` of the IngressClasses, beside [`NGINX_CONTROLLER`]. Default `k8s.io/ingress-nginx`.
    pub controller: String,
    /// The class without an IngressClass of that name. Default `nginx`.
    pub ingress_class: String,
    /// The Service of error pages for Ingresses without an own default backend, and of requests that no rule matches. Default:
    /// none.
    pub default_backend: Option<ObjectName>,
    /// The settings of Ingresses without annotations.
    pub(crate) globals: Arc<nginx::Settings>,
    /// The ConfigMap with these settings.
    pub(crate) configmap: Option<ObjectRef>,
}

impl IngressNginx {
    /// The options without a default backend and without a ConfigMap.
    #[must_use]
    pub fn new(prefix: String, controller: String, ingress_class: String) -> Self {
        Self {
            prefix,
            controller,
            ingress_class,
            default_backend: None,
            globals: Arc::default(),
            configmap: None,
        }
    }
}

impl Default for IngressNginx {
    fn default() -> Self {
        Self::new(nginx::PREFIX.to_owned(), "k8s.io/ingress-nginx".to_owned(), "nginx".to_owned())
    }
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

impl Default for TranslateOptions {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            ingress_class: "sluicegate".to_owned(),
            watch_ingress_without_class: false,
            gateway_class: "sluicegate".to_owned(),
            gateway_addresses: vec![Ipv4Addr::UNSPECIFIED.into()],
            gateway_services: None,
            own_data_planes: None,
            http_ports: Vec::new(),
            https_ports: Vec::new(),
            admin_port: None,
            ssl_redirect: true,
            default_certificate: None,
            ticket_secret: None,
            configmap: None,
            tcp_services: None,
            udp_services: None,
            read_globals: ReadGlobals::default(),
            ignore_nginx_access_annotations: false,
            ingress_nginx: None,
            acme: Acme::default(),
            documents: Documents::default(),
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
    /// The status of objects of Gateway API.
    pub statuses: Vec<ObjectStatus>,
    /// The certificates that objects ask an ACME server for, with their origins.
    pub(crate) acme: acme::Translated,
    /// The Services that HTTPRoutes and filters of listeners name and that do not exist, or lack a port.
    pub(crate) missing: HashSet<ServiceRef>,
}

/// Translates the objects of a store.
#[must_use]
pub fn translate(store: &Store, options: &TranslateOptions) -> Translation {
    let (mut options, mut problems) = with_globals(store, options);
    let controller = options.ingress_nginx.as_ref().map(|nginx| nginx.controller.as_str().into());
    if controller.is_some() {
        options.to_mut().settings.nginx_controller = controller;
    }
    if let Some(globals) = options.ingress_nginx.as_ref().map(|nginx| nginx.globals.clone()) {
        let settings = &mut options.to_mut().settings;
        settings.allow_non_ascii_targets = true;
        settings.access_log = globals.observability.access_log();
        if let Some(trusted) = globals.https.forwarded.trusted_proxies() {
            settings.trusted_proxies = trusted;
        }
        if let Some(peers) = globals.https.forwarded.proxy_protocol_peers() {
            settings.proxy_protocol_peers = peers;
        }
    }
    let mut intents = frontend::intents(store, &options);
    let (of_intents, foreign) = (std::mem::take(&mut intents.problems), std::mem::take(&mut intents.foreign));
    let merged = merge::merge(store, &intents, &options);
    let mut statuses = merge::gateway_status::statuses(store, &options, &intents, &merged.listeners);
    statuses.extend(intents.backend_tls.statuses(store, &intents, &mut problems));
    statuses.extend(intents.backend_traffic.statuses(store, &intents, &mut problems));
    statuses.extend(intents.x_backends.statuses(store, &intents, &mut problems));
    Translation {
        foreign,
        statuses,
        missing: {
            let of_listeners = intents.listeners.iter().flat_map(|listener| &listener.filters.missing);
            let of_routes = intents.http_routes.iter().flat_map(|route| &route.missing);
            of_routes.chain(of_listeners).cloned().collect()
        },
        ..emit::emit(store, &options, merged, &intents, problems, of_intents)
    }
}

/// The options with the settings of the ConfigMap.
fn with_globals<'a>(
    store: &Store,
    options: &'a TranslateOptions,
) -> (Cow<'a, TranslateOptions>, Vec<Problem>) {
    let Some(object) = options.configmap.as_ref().map(ObjectName::configmap) else {
        return (Cow::Borrowed(options), Vec::new());
    };
    let Some((configmap, origin)) = store.configmap(&object) else {
        let fault = format!("{object} does not exist; the settings of the command line apply");
        return (Cow::Borrowed(options), vec![Problem::of_option("--configmap", fault)]);
    };
    let at = At { object: &object, origin };
    let ingress_nginx = configmap_of_nginx(options, &object, configmap);
    let of_nginx = ingress_nginx.as_ref().map(|(_, globals)| *globals);
    let values: Vec<(&str, &str)> = configmap.data.texts().collect();
    let is_of_gateway = |(key, _): &&(&str, &str)| of_nginx.is_none_or(|globals| !globals.knows(key));
    let of_gateway: Vec<_> = values.iter().filter(is_of_gateway).copied().collect();
    let Globals { settings, ssl_redirect, faults } = (options.read_globals.0)(&of_gateway);
    let mut problems: Vec<Problem> =
        faults.into_iter().map(|(field, fault)| at.warning(&field, fault)).collect();
    for nginx::configmap::KeyFault { key, message, closes } in
        of_nginx.iter().flat_map(|globals| &globals.faults)
    {
        let severity = if *closes { Severity::Error } else { Severity::Warning };
        problems.push(at.problem(severity, &format!("data[{key}]"), message.clone()));
    }
    let ingress_nginx = ingress_nginx.map(|(nginx, _)| nginx);
    (Cow::Owned(TranslateOptions { settings, ssl_redirect, ingress_nginx, ..options.clone() }), problems)
}

/// The dialect of ingress-nginx with the settings of the ConfigMap.
fn configmap_of_nginx<'s>(
    options: &TranslateOptions,
    object: &ObjectRef,
    configmap: &'s ConfigMap,
) -> Option<(IngressNginx, &'s nginx::configmap::Globals)> {
    let nginx = options.ingress_nginx.clone()?;
    let globals = configmap.nginx.get(configmap.data.texts(), &object.namespace);
    let (settings, configmap) = (globals.settings.clone(), Some(object.clone()));
    Some((IngressNginx { globals: settings, configmap, ..nginx }, globals))
}

/// The dialect of ingress-nginx with the settings of the ConfigMap, if it is enabled.
pub(crate) fn ingress_nginx(store: &Store, options: &TranslateOptions) -> Option<IngressNginx> {
    let object = options.configmap.as_ref().map(ObjectName::configmap);
    let of_configmap = object.and_then(|object| {
        let (configmap, _) = store.configmap(&object)?;
        configmap_of_nginx(options, &object, configmap).map(|(nginx, _)| nginx)
    });
    of_configmap.or_else(|| options.ingress_nginx.clone())
}
