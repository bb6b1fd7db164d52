//! From Ingresses to objects of Gateway API that serve the same requests.
//!
//! The input is manifests, as of `kubectl get ingresses,services --output yaml`. The output is a Gateway with the
//! listeners for all hosts, the routes of each Ingress, and the policies of the input with the routes as further targets.
//! A note names each thing without a form in Gateway API.
//!
//! | module | content |
//! |---|---|
//! | [`listeners`] | the Gateways, their listeners, and the grants for their certificates |
//! | [`routes`] | the HTTPRoutes and TLSRoutes of an Ingress |

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::frontend::ingress::class::{self, Classes};
use crate::intent::At;
use crate::manifest::{self, Syntax};
use crate::object::gateway_api::GROUP;
use crate::object::ingress::Ingress;
use crate::object::{ObjectRef, annotation, policy};
use crate::problem::{Origin, Problem, Severity};
use crate::store::Store;
use crate::translate::{ObjectName, TranslateOptions};
use listeners::Gateways;

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
    /// The objects, as YAML.
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
    for (object, ingress, origin) in ingresses {
        let at = At { object, origin };
        // The IngressClass of the input may name the controller that served the Ingresses before.
        let is_named = class::named(ingress).is_some_and(|(_, name)| name == options.ingress_class);
        match is_named || classes.serves(ingress) {
            true => conversion.convert(at, ingress),
            false => {
                let (field, message) = classes.refusal(ingress);
                conversion.problems.push(at.note(&field, format!("{message}. The Ingress is not converted")));
            }
        }
    }
    for (path, text) in texts {
        conversion.retarget_policies(path, text);
    }
    let mut problems: Vec<Problem> = store.problems().collect();
    let Conversion { gateways, objects, problems: of_conversion, .. } = conversion;
    problems.extend(of_conversion);
    let objects = gateways.objects(&options.gateway_class).into_iter().chain(objects);
    let documents = objects.filter_map(|object| serde_saphyr::to_string(&object).ok());
    let yaml = documents.collect::<Vec<_>>().join("---\n");
    Converted { yaml, problems }
}

/// The state of a conversion.
struct Conversion<'a> {
    store: &'a Store,
    options: &'a TranslateOptions,
    gateways: Gateways,
    /// The routes and policies.
    objects: Vec<Value>,
    /// The HTTPRoutes of each Ingress.
    routes: BTreeMap<&'a ObjectRef, Vec<String>>,
    problems: Vec<Problem>,
}

impl<'a> Conversion<'a> {
    fn new(store: &'a Store, options: &'a TranslateOptions, gateway: &ObjectName) -> Self {
        let (objects, routes, problems) = <(Vec<_>, BTreeMap<_, _>, Vec<_>)>::default();
        Self { store, options, gateways: Gateways::new(gateway.clone()), objects, routes, problems }
    }

    fn convert(&mut self, at: At<'a>, ingress: &'a Ingress) {
        if !self.is_convertible(at, ingress) {
            return;
        }
        self.note_settings(at, ingress);
        let names = match ingress.ssl_passthrough {
            true => self.tls_routes(at, ingress),
            false => self.http_routes(at, ingress),
        };
        self.routes.insert(at.object, names);
    }

    /// Whether the routes admit no more callers than the Ingress.
    fn is_convertible(&mut self, at: At<'_>, ingress: &Ingress) -> bool {
        if let Some(auth) = &ingress.client_auth
            && auth.authorities.is_none()
        {
            let message =
                "names no CA certificates, so every client is rejected. The Ingress is not converted";
            self.problems.push(at.problem(
                Severity::Error,
                &annotation::field(auth.annotation),
                message.to_owned(),
            ));
            return false;
        }
        if self.options.ignore_nginx_access_annotations {
            return true;
        }
        for name in &ingress.unread_restrictions {
            let replacement = annotation::replacement(name);
            let replacement = replacement.as_deref().unwrap_or("a SecurityPolicy or a RateLimitPolicy");
            let message = format!(
                "restricts access in ingress-nginx, but is not supported. The Ingress is not converted. Replace the \
                 annotation by {replacement}, or use --ignore-nginx-access-annotations"
            );
            self.problems.push(at.problem(Severity::Error, &annotation::field(name), message));
        }
        ingress.unread_restrictions.is_empty()
    }

    /// Notes of the annotations without a form in Gateway API.
    fn note_settings(&mut self, at: At<'_>, ingress: &Ingress) {
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
            let Some(targets) = policy["spec"]["targetRefs"].as_array_mut() else { continue };
            let added: Vec<Value> = self
                .routes
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
                });
            }
            self.objects.push(policy);
        }
    }
}

/// The name of a printed object: a name that Kubernetes allows, with at most 253 characters.
fn numbered(name: &str, number: usize) -> String {
    let suffix = if number == 1 { String::new() } else { format!("-{number}") };
    let end = name.len().min(253 - suffix.len());
    format!("{}{suffix}", name[..end].trim_end_matches(['-', '.']))
}
