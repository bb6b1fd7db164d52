//! From Ingresses to objects of Gateway API that serve the same requests.
//!
//! The input is manifests, as of `kubectl get ingresses,services --output yaml`. The output is a Gateway with the
//! listeners for all hosts, the routes of each Ingress, and the policies of the input with the routes as further targets.
//! A note names each thing without a form in Gateway API.
//!
//! | module | content |
//! |---|---|
//! | [`kong`] | from a declarative file of Kong to objects that serve the same requests |
//! | [`hosts`] | the certificates of hosts and their requirements on clients |
//! | [`listeners`] | the Gateways, their listeners, and the grants for their certificates |
//! | [`routes`] | the HTTPRoutes and TLSRoutes of an Ingress |

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use sluicegate_model::{HostPattern, PathPattern};

use crate::frontend::ingress::class::{self, Classes};
use crate::frontend::ingress::restriction::ignored;
use crate::intent::At;
use crate::manifest::{self, Syntax};
use crate::object::gateway_api::GROUP;
use crate::object::ingress::Ingress;
use crate::object::nginx::{self, Annotation};
use crate::object::{ObjectRef, annotation, policy};
use crate::problem::{Origin, Problem, Severity};
use crate::store::Store;
use crate::translate::{ObjectName, TranslateOptions};
use hosts::Hosts;
use listeners::Gateways;

mod hosts;
pub(crate) mod kong;
mod listeners;
mod routes;
#[cfg(test)]
mod tests;

/// The version of Gateway API of all printed objects.
const VERSION: &str = "gateway.networking.k8s.io/v1";

/// The longest list of targets of a policy.
const TARGETS_MAX: usize = 16;

/// The result of a conversion.
#[derive(Debug, Default)]
pub struct Converted {
    /// The objects, as YAML; empty if a problem is an error, because a part of the objects may admit more callers than the
    /// Ingresses do together.
    pub yaml: String,
    /// The errors of the input, and the things that have no form in Gateway API.
    pub problems: Vec<Problem>,
}

/// Converts the Ingresses that the options select, in these texts of manifests. `gateway` is the name of the printed
/// Gateway. A text is YAML, or JSON, which is YAML too.
#[must_use]
pub fn convert_ingresses(
    texts: &[(PathBuf, String)],
    options: &TranslateOptions,
    gateway: &ObjectName,
) -> Converted {
    let mut store = Store::default();
    for (path, text) in texts {
        store.set_file(path, text);
    }
    let mut conversion = Conversion::new(&store, options, gateway);
    let classes = Classes::new(&store, options);
    let mut ingresses: Vec<_> = store.all::<Ingress>().collect();
    ingresses.sort_by_cached_key(|(object, ingress, origin)| At { object, origin }.age(ingress.created));
    let mut selected = Vec::new();
    for (object, ingress, origin) in ingresses {
        let at = At { object, origin };
        // The IngressClass of the input may name the controller that served the Ingresses before.
        let is_named = class::named(ingress).is_some_and(|(_, name)| name == options.ingress_class);
        match is_named || classes.serves(ingress) {
            true => selected.push((at, ingress)),
            false => {
                let (field, message) = classes.refusal(ingress);
                conversion.problems.push(at.note(&field, format!("{message}. The Ingress is not converted")));
            }
        }
    }
    for (at, ingress) in &selected {
        conversion.check(*at, ingress);
        conversion.hosts.add(*at, ingress, &mut conversion.problems);
        conversion.reserved.insert((at.object.namespace.clone(), at.object.name.clone()));
    }
    for (at, ingress) in selected {
        conversion.convert(at, ingress);
    }
    for (path, text) in texts {
        conversion.retarget_policies(path, text);
    }
    let mut problems: Vec<Problem> = store.problems().collect();
    let Conversion { gateways, routes, policies, problems: of_conversion, .. } = conversion;
    problems.extend(of_conversion);
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        return Converted { yaml: String::new(), problems };
    }
    // kubectl applies the objects in this order, so no route is served before its policies exist.
    let objects = gateways.objects(&options.gateway_class).into_iter().chain(policies).chain(routes);
    let documents = objects.filter_map(|object| serde_saphyr::to_string(&object).ok());
    let yaml = documents.collect::<Vec<_>>().join("---\n");
    Converted { yaml, problems }
}

/// The state of a conversion.
struct Conversion<'a> {
    store: &'a Store,
    options: &'a TranslateOptions,
    hosts: Hosts,
    gateways: Gateways,
    policies: Vec<Value>,
    routes: Vec<Value>,
    /// The names of the HTTPRoutes of each Ingress.
    route_names: BTreeMap<&'a ObjectRef, Vec<String>>,
    /// The namespaces and names of all Ingresses: the first route of an Ingress has its name.
    reserved: BTreeSet<(Arc<str>, Arc<str>)>,
    /// The kinds, namespaces and names of the routes.
    used: BTreeSet<(&'static str, Arc<str>, String)>,
    /// The hosts and paths of the HTTPRoutes: of equal matches, the match of the oldest Ingress applies.
    matches: BTreeSet<(HostPattern, PathPattern)>,
    problems: Vec<Problem>,
}

impl<'a> Conversion<'a> {
    fn new(store: &'a Store, options: &'a TranslateOptions, gateway: &ObjectName) -> Self {
        Self {
            store,
            options,
            hosts: Hosts::default(),
            gateways: Gateways::new(gateway.clone()),
            policies: Vec::new(),
            routes: Vec::new(),
            route_names: BTreeMap::new(),
            reserved: BTreeSet::new(),
            used: BTreeSet::new(),
            matches: BTreeSet::new(),
            problems: Vec::new(),
        }
    }

    fn convert(&mut self, at: At<'a>, ingress: &'a Ingress) {
        self.note_settings(at, ingress);
        let names = match ingress.ssl_passthrough {
            true => self.tls_routes(at, ingress),
            false => self.http_routes(at, ingress),
        };
        self.route_names.insert(at.object, names);
    }

    /// Reports requirements on callers that the routes could not have.
    fn check(&mut self, at: At<'_>, ingress: &Ingress) {
        if let Some(auth) = &ingress.client_auth
            && auth.authorities.is_none()
        {
            let message = "names no CA certificates, so every client is rejected";
            self.problems.push(at.problem(
                Severity::Error,
                &annotation::field(auth.annotation),
                message.to_owned(),
            ));
        }
        if self.options.ignore_nginx_access_annotations {
            return;
        }
        let annotations = ingress.nginx.with_prefix(nginx::PREFIX);
        for Annotation { name, short, .. } in annotations.filter(|one| nginx::restricts(one.short, one.value))
        {
            let replacement = annotation::replacement(short);
            let replacement = replacement.as_deref().unwrap_or("a SecurityPolicy or a RateLimitPolicy");
            let message = format!(
                "restricts access in ingress-nginx, but is not supported. Replace the annotation \
                 by {replacement}, or use --ignore-nginx-access-annotations"
            );
            self.problems.push(at.problem(Severity::Error, &annotation::field(name), message));
        }
    }

    /// Notes of the annotations without a form in Gateway API.
    fn note_settings(&mut self, at: At<'_>, ingress: &Ingress) {
        let annotations = ingress.nginx.with_prefix(nginx::PREFIX);
        for Annotation { name, short, .. } in
            annotations.filter(|one| !nginx::restricts(one.short, one.value))
        {
            let message = ignored(annotation::replacement(short).as_deref());
            self.problems.push(at.warning(&annotation::field(name), message));
        }
        if ingress.compression.is_some() {
            self.warn(
                at,
                "sluicegate.dev/compression",
                "has no form in Gateway API. To compress all responses, use --compression",
            );
        }
        if ingress.force_ssl_redirect {
            self.warn(
                at,
                "sluicegate.dev/force-ssl-redirect",
                "has no form in Gateway API. The routes redirect only the clients of HTTP listeners, and only hosts with TLS",
            );
        }
        if ingress.backend.is_some() {
            let services: BTreeSet<String> = ingress
                .rules
                .iter()
                .flat_map(|rule| rule.paths.iter().map(|path| &path.upstream))
                .chain(&ingress.default_backend)
                .map(|upstream| format!("{}/{}", upstream.namespace, upstream.service))
                .collect();
            let services: Vec<String> = services.into_iter().collect();
            self.warn(
                at,
                annotation::BACKEND_PROTOCOL,
                &format!(
                    "has no form in HTTPRoutes. Move this annotation and all annotations proxy-ssl-* to these Services: {}",
                    services.join(", ")
                ),
            );
        }
    }

    fn warn(&mut self, at: At<'_>, name: &str, message: &str) {
        self.problems.push(at.warning(&annotation::field(name), message.to_owned()));
    }

    /// Prints the policies that target converted Ingresses, with the routes as further targets. The Ingresses stay
    /// targets, so that the policies apply to both while both exist.
    fn retarget_policies(&mut self, path: &Path, text: &str) {
        for mut policy in manifest::objects(text, Syntax::of(path)) {
            let api_version = policy["apiVersion"].as_str().unwrap_or_default();
            if !api_version.starts_with(policy::GROUP) {
                continue;
            }
            let namespace = policy["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
            let Some(targets) = policy.pointer_mut("/spec/targetRefs").and_then(Value::as_array_mut) else {
                continue;
            };
            let added: Vec<Value> = self
                .route_names
                .iter()
                .filter(|(ingress, _)| *ingress.namespace == *namespace)
                .filter(|(ingress, _)| {
                    targets
                        .iter()
                        .any(|target| target["kind"] == "Ingress" && target["name"] == *ingress.name)
                })
                .flat_map(|(_, routes)| routes)
                .map(|name| json!({"group": GROUP, "kind": "HTTPRoute", "name": name}))
                .collect();
            if added.is_empty() {
                continue;
            }
            targets.extend(added);
            let is_too_long = targets.len() > TARGETS_MAX;
            if let Some(metadata) = policy["metadata"].as_object_mut() {
                metadata.retain(|key, _| matches!(&**key, "name" | "namespace" | "labels" | "annotations"));
            }
            if let Some(fields) = policy.as_object_mut() {
                fields.remove("status");
            }
            if is_too_long {
                let name = policy["metadata"]["name"].as_str().unwrap_or_default();
                self.problems.push(Problem {
                    severity: Severity::Error,
                    origin: Origin::file(&path.into()),
                    object: None,
                    field: "spec.targetRefs".to_owned(),
                    message: format!(
                        "{} {namespace}/{name} has more than {TARGETS_MAX} targets with the new routes. Split the policy",
                        policy["kind"].as_str().unwrap_or_default()
                    ),
                    cause: None,
                });
            }
            self.policies.push(policy);
        }
    }
}

impl Conversion<'_> {
    /// A free name for a route of an Ingress.
    fn route_name(&mut self, kind: &'static str, ingress: &ObjectRef, suffix: &str) -> String {
        let (namespace, base) = (ingress.namespace.clone(), format!("{}{suffix}", ingress.name));
        let mut number = 1;
        loop {
            let name = numbered(&base, number);
            let is_of_another =
                *name != *ingress.name && self.reserved.contains(&(namespace.clone(), Arc::from(&*name)));
            if !is_of_another && self.used.insert((kind, namespace.clone(), name.clone())) {
                return name;
            }
            number += 1;
        }
    }
}

/// The name of a printed object: a name that Kubernetes allows, with at most 253 characters.
fn numbered(name: &str, number: usize) -> String {
    let suffix = if number == 1 { String::new() } else { format!("-{number}") };
    let end = name.len().min(253 - suffix.len());
    format!("{}{suffix}", name[..end].trim_end_matches(['-', '.']))
}
