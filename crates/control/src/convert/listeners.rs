//! The Gateways of a conversion: their listeners, and the grants for certificates of other namespaces.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sluicegate_model::{ClientAuthMode, HostPattern};

use super::{VERSION, numbered};
use crate::object::ObjectRef;
use crate::object::gateway_api::GROUP;
use crate::object::ingress::ClientAuth;
use crate::translate::ObjectName;

/// The longest list of listeners of a Gateway or a ListenerSet.
const LISTENERS_MAX: usize = 64;

/// The longest list of objects of a ReferenceGrant.
const GRANTED_MAX: usize = 16;

/// The name of the listener for plain HTTP.
const HTTP: &str = "http";

/// The clients that the HTTPS listeners of a Gateway admit: the CA certificates and the mode. A Gateway verifies clients by
/// port, so Ingresses with other requirements need a Gateway of their own.
pub(super) type Clients = Option<(ObjectRef, &'static str)>;

/// The Gateways, by the clients that they admit.
pub(super) struct Gateways {
    name: ObjectName,
    gateways: BTreeMap<Clients, Gateway>,
}

#[derive(Default)]
struct Gateway {
    /// The place in the order of their names: 1 for the first Gateway.
    number: usize,
    /// The listeners, each with its name.
    listeners: Vec<(String, Value)>,
    /// The Secrets and ConfigMaps of other namespaces.
    references: BTreeSet<ObjectRef>,
}

/// A TLS listener: its certificate, or passthrough.
#[derive(Clone, Copy)]
pub(super) enum Tls<'a> {
    Secret(&'a ObjectRef),
    Passthrough,
}

/// The requirement on clients of an Ingress, and whether Gateway API has the same.
pub(super) fn clients(auth: &ClientAuth) -> (Clients, bool) {
    let (mode, is_same) = match auth.mode {
        ClientAuthMode::Required => ("AllowValidOnly", true),
        ClientAuthMode::Optional => ("AllowValidOnly", false),
        ClientAuthMode::OptionalNoCa => ("AllowInsecureFallback", true),
    };
    (auth.authorities.clone().map(|object| (object, mode)), is_same)
}

impl Gateways {
    pub(super) fn new(name: ObjectName) -> Self {
        Self { name, gateways: BTreeMap::new() }
    }

    /// The reference to the listener for plain HTTP, from a route of this namespace. It belongs to the first Gateway, also
    /// for Ingresses with client certificates: plain HTTP has no certificates.
    pub(super) fn http(&mut self, namespace: &str) -> Value {
        let listener = || json!({"name": HTTP, "protocol": "HTTP", "port": 80, "allowedRoutes": all()});
        self.listener(None, HTTP.to_owned(), namespace, listener)
    }

    /// The reference to the listener of a host with TLS, from a route of this namespace.
    pub(super) fn tls(
        &mut self,
        clients: &Clients,
        host: &HostPattern,
        tls: Tls<'_>,
        namespace: &str,
    ) -> Value {
        let (protocol, name) = match tls {
            Tls::Secret(_) => ("HTTPS", section("https", host)),
            Tls::Passthrough => ("TLS", section("tls", host)),
        };
        let gateway_namespace = self.name.namespace.clone();
        let settings = match tls {
            Tls::Passthrough => json!({"mode": "Passthrough"}),
            Tls::Secret(secret) => {
                let reference = match secret.namespace == gateway_namespace {
                    true => json!({"name": &*secret.name}),
                    false => json!({"name": &*secret.name, "namespace": &*secret.namespace}),
                };
                json!({"certificateRefs": [reference]})
            }
        };
        let parent = self.listener(clients.clone(), name.clone(), namespace, || {
            let mut listener = json!({
                "name": &*name, "protocol": protocol, "port": 443, "tls": settings, "allowedRoutes": all(),
            });
            if let Some(hostname) = hostname(host) {
                listener["hostname"] = hostname.into();
            }
            listener
        });
        if let Tls::Secret(secret) = tls
            && secret.namespace != gateway_namespace
            && let Some(gateway) = self.gateways.get_mut(clients)
        {
            gateway.references.insert(secret.clone());
        }
        parent
    }

    fn listener(
        &mut self,
        clients: Clients,
        name: String,
        namespace: &str,
        create: impl FnOnce() -> Value,
    ) -> Value {
        let next = self.gateways.len() + 1;
        let own = self.name.namespace.clone();
        let gateway = self.gateways.entry(clients.clone()).or_insert_with(|| Gateway {
            number: if clients.is_none() { 1 } else { next.max(2) },
            references: clients
                .iter()
                .map(|(object, _)| object.clone())
                .filter(|object| object.namespace != own)
                .collect(),
            ..Gateway::default()
        });
        let known = gateway.listeners.iter().position(|(known, _)| *known == name);
        let index = known.unwrap_or_else(|| {
            gateway.listeners.push((name.clone(), create()));
            gateway.listeners.len() - 1
        });
        let (kind, parent) = match index / LISTENERS_MAX {
            0 => ("Gateway", numbered(&self.name.name, gateway.number)),
            set => ("ListenerSet", set_name(&self.name.name, gateway.number, set)),
        };
        let mut reference = json!({"name": parent, "sectionName": name});
        if kind == "ListenerSet" {
            reference["group"] = GROUP.into();
            reference["kind"] = kind.into();
        }
        if *namespace != *own {
            reference["namespace"] = (*own).into();
        }
        reference
    }

    /// The Gateways, the ListenerSets with the listeners beyond the limit of a Gateway, and the ReferenceGrants.
    pub(super) fn objects(self, class: &str) -> Vec<Value> {
        let mut objects = Vec::new();
        let namespace = &*self.name.namespace;
        for (clients, gateway) in &self.gateways {
            let name = numbered(&self.name.name, gateway.number);
            let mut parts = gateway.listeners.chunks(LISTENERS_MAX);
            let listeners = |part: &[(String, Value)]| -> Value {
                part.iter().map(|(_, listener)| listener.clone()).collect()
            };
            let mut spec = json!({
                "gatewayClassName": class, "listeners": listeners(parts.next().unwrap_or_default()),
            });
            if gateway.listeners.len() > LISTENERS_MAX {
                spec["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
            }
            if let Some((object, mode)) = clients {
                let mut reference = json!({"group": "", "kind": object.kind.as_str(), "name": &*object.name});
                if *object.namespace != *namespace {
                    reference["namespace"] = (*object.namespace).into();
                }
                let validation = json!({"caCertificateRefs": [reference], "mode": mode});
                spec["tls"] = json!({"frontend": {"default": {"validation": validation}}});
            }
            let metadata = json!({"name": &*name, "namespace": namespace});
            objects
                .push(json!({"apiVersion": VERSION, "kind": "Gateway", "metadata": metadata, "spec": spec}));
            for (index, part) in parts.enumerate() {
                let set = set_name(&self.name.name, gateway.number, index + 1);
                objects.push(json!({
                    "apiVersion": VERSION,
                    "kind": "ListenerSet",
                    "metadata": {"name": set, "namespace": namespace},
                    "spec": {"parentRef": {"name": &*name}, "listeners": listeners(part)},
                }));
            }
        }
        objects.extend(self.grants());
        objects
    }

    /// The ReferenceGrants for Secrets and ConfigMaps of other namespaces.
    fn grants(&self) -> Vec<Value> {
        let mut of_namespaces: BTreeMap<&str, BTreeSet<&ObjectRef>> = BTreeMap::new();
        for object in self.gateways.values().flat_map(|gateway| &gateway.references) {
            of_namespaces.entry(&object.namespace).or_default().insert(object);
        }
        let gateways = ["Gateway", "ListenerSet"];
        let has_sets = self.gateways.values().any(|gateway| gateway.listeners.len() > LISTENERS_MAX);
        let kinds = &gateways[..if has_sets { 2 } else { 1 }];
        let from: Vec<Value> = kinds
            .iter()
            .map(|kind| json!({"group": GROUP, "kind": kind, "namespace": &*self.name.namespace}))
            .collect();
        let mut grants = Vec::new();
        for (namespace, objects) in of_namespaces {
            let to: Vec<Value> = objects
                .into_iter()
                .map(|object| json!({"group": "", "kind": object.kind.as_str(), "name": &*object.name}))
                .collect();
            for (index, to) in to.chunks(GRANTED_MAX).enumerate() {
                grants.push(json!({
                    // The version that all releases of Gateway API have.
                    "apiVersion": "gateway.networking.k8s.io/v1beta1",
                    "kind": "ReferenceGrant",
                    "metadata": {
                        "name": numbered(&format!("{}-certificates", self.name.name), index + 1),
                        "namespace": namespace,
                    },
                    "spec": {"from": from, "to": to},
                }));
            }
        }
        grants
    }
}

/// Routes of all namespaces may attach, as Ingresses of all namespaces share the ports.
fn all() -> Value {
    json!({"namespaces": {"from": "All"}})
}

fn set_name(gateway: &str, number: usize, set: usize) -> String {
    format!("{}-listeners-{set}", numbered(gateway, number))
}

/// The name of the listener of a host.
fn section(protocol: &str, host: &HostPattern) -> String {
    match host {
        HostPattern::Any => protocol.to_owned(),
        HostPattern::Exact(name) => numbered(&format!("{protocol}-{name}"), 1),
        // No host begins with a hyphen.
        HostPattern::Wildcard(suffix) | HostPattern::Suffix(suffix) => {
            numbered(&format!("{protocol}--{suffix}"), 1)
        }
    }
}

/// The hostname in Gateway API; `None` for all hosts.
pub(super) fn hostname(host: &HostPattern) -> Option<String> {
    match host {
        HostPattern::Any => None,
        HostPattern::Exact(name) => Some(name.to_string()),
        HostPattern::Wildcard(suffix) | HostPattern::Suffix(suffix) => Some(format!("*.{suffix}")),
    }
}
