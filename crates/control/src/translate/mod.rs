//! From the objects of a [`Store`] to a [`Config`], by pure functions.
//!
//! Translation only relates objects to one another; each was checked by itself when it was read.
//!
//! | module | what |
//! |---|---|
//! | [`class`] | which Ingresses are ours |
//! | [`routes`] | hosts and routes; who wins when two Ingresses want the same |
//! | [`tls`] | `spec.tls` and its Secrets |
//! | [`upstream`] | Services and their EndpointSlices |

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sluicegate_model::{Certificate, Config, Settings, UpstreamKey};

use crate::object::ObjectRef;
use crate::object::ingress::Ingress;
use crate::problem::{Origin, Problem, Severity};
use crate::store::Store;

mod class;
mod routes;
#[cfg(test)]
mod tests;
mod tls;
pub(crate) mod upstream;

/// What the `spec.controller` of our IngressClasses says.
pub const CONTROLLER: &str = "sluicegate.dev/ingress-controller";

/// How objects are translated.
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
#[derive(Clone, Debug)]
pub struct TranslateOptions {
    /// Limits and policies, passed on as they are.
    pub settings: Settings,
    /// The class that is ours even without an IngressClass. Default `sluicegate`.
    pub ingress_class: String,
    /// Whether Ingresses that name no class are ours, whatever IngressClasses there are. Default no.
    pub watch_ingress_without_class: bool,
    /// Whether plain HTTP is redirected to HTTPS where a host has TLS, unless its Ingress says otherwise. Default yes
    /// (ingress-nginx `ssl-redirect`).
    pub ssl_redirect: bool,
    /// The Secret with the certificate for clients that name no host, or an unknown one, and for hosts without one of
    /// their own: namespace and name. Default: none.
    pub default_certificate: Option<ObjectName>,
    /// The certificate for the same as long as that Secret has none.
    pub fallback_certificate: Option<Arc<Certificate>>,
    /// The Secret with the secrets that session tickets are sealed with. Default: none.
    pub ticket_secret: Option<ObjectName>,
}

/// An object by its namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

/// An Ingress that is ours, and where it was written.
#[derive(Clone, Copy)]
struct Source<'a> {
    object: &'a ObjectRef,
    ingress: &'a Ingress,
    origin: &'a Origin,
}

impl Source<'_> {
    fn problem(self, field: &str, message: String) -> Problem {
        Problem {
            severity: Severity::Warning,
            origin: self.origin.clone(),
            object: Some(self.object.clone()),
            field: field.to_owned(),
            message,
        }
    }
}

impl Default for TranslateOptions {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            ingress_class: "sluicegate".to_owned(),
            watch_ingress_without_class: false,
            ssl_redirect: true,
            default_certificate: None,
            fallback_certificate: None,
            ticket_secret: None,
        }
    }
}

/// What a [`Store`] translates to.
#[derive(Clone, Debug, Default)]
pub struct Translation {
    /// What to serve. Upstreams with an external name have no endpoints in it.
    pub config: Config,
    /// What is wrong between objects; see [`Store::problems`] for what is wrong within one.
    pub problems: Vec<Problem>,
    /// What is wrong between a Service and its slices.
    pub(crate) upstream_problems: BTreeMap<UpstreamKey, Problem>,
    /// At which port the upstreams with an external name are asked.
    pub(crate) external_ports: BTreeMap<UpstreamKey, u16>,
    /// The Ingresses that are of other classes, each with a note of what would serve it.
    pub foreign_ingresses: Vec<Problem>,
}

/// Translates the objects of a store.
#[must_use]
pub fn translate(store: &Store, options: &TranslateOptions) -> Translation {
    let classes = class::Classes::new(store, options);
    let mut ingresses = Vec::new();
    let mut foreign_ingresses = Vec::new();
    for (object, ingress, origin) in store.ingresses() {
        if classes.serves(ingress) {
            ingresses.push(Source { object, ingress, origin });
        } else {
            let (field, message) = classes.refusal(ingress);
            foreign_ingresses.push(Problem {
                severity: Severity::Note,
                origin: origin.clone(),
                object: Some(object.clone()),
                field,
                message,
            });
        }
    }
    // The oldest wins. What has no creation time was never created in a cluster, so it counts as youngest.
    ingresses.sort_by_key(|source| {
        let created = source.ingress.created;
        (created.is_none(), created, &source.object.namespace, &source.object.name)
    });
    let mut tls = tls::build(store, &ingresses, options);
    let mut problems = std::mem::take(&mut tls.problems);
    let built = routes::build(store, &ingresses, &tls);
    problems.extend(built.problems);
    let mut upstreams = BTreeMap::new();
    let mut missing: HashMap<&UpstreamKey, (&'static str, String)> = HashMap::new();
    let mut upstream_problems = BTreeMap::new();
    let mut external_ports = BTreeMap::new();
    for reference in &built.references {
        let key = &reference.upstream;
        if !upstreams.contains_key(key) {
            let resolved = upstream::resolve(store, key);
            upstreams.insert(key.clone(), Arc::new(resolved.upstream));
            missing.extend(resolved.missing.map(|missing| (key, missing)));
            upstream_problems.extend(resolved.problem.map(|problem| (key.clone(), problem)));
            external_ports.extend(resolved.external_port.map(|port| (key.clone(), port)));
        }
        if let Some((within, message)) = missing.get(key) {
            problems.push(reference.problem(within, message.clone()));
        }
    }
    let config = Config {
        settings: options.settings.clone(),
        hosts: built.hosts,
        default_route: built.default_route,
        listeners: Vec::new(),
        tls: Arc::new(tls.tls),
        upstreams,
    };
    Translation { config, problems, upstream_problems, external_ports, foreign_ingresses }
}
