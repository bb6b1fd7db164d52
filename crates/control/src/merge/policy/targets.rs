//! The objects that policies may be attached to.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::HashMap;

use super::attach::Place;
use super::standing::{Ancestor, Reason};
use crate::intent::http_route::HttpRoute;
use crate::intent::listener::{GatewayIntent, Listener};
use crate::intent::{At, Intent, Intents};
use crate::object::api::Api;
use crate::object::policy::target::Target;
use crate::object::policy::written::target::TargetKind;
use crate::object::route::ParentRef;
use crate::object::service::IpProtocol;
use crate::object::{Kind, ObjectRef};
use crate::store::Store;

/// The objects that the gateway serves.
pub(super) struct Targets<'i> {
    store: &'i Store,
    served: HashMap<&'i ObjectRef, Served<'i>>,
    /// The Gateways of ListenerSets.
    gateway_of_set: HashMap<&'i ObjectRef, &'i ObjectRef>,
    listeners: &'i [Listener<'i>],
}

/// An object that the gateway serves.
enum Served<'i> {
    Ingress,
    /// An Api, the names of its operations and sets, and the reason why there may be further operations.
    Api(BTreeSet<&'i Arc<str>>, Option<&'static str>),
    Gateway(&'i GatewayIntent<'i>),
    Route(&'i HttpRoute<'i>),
}

/// A target of a policy.
pub(super) struct Found {
    pub(super) place: Place,
    /// The reason why nothing can be attached there, or why it is not known whether something can be attached (`Accepted`).
    pub(super) absence: Option<(Reason, String)>,
    /// The Gateways of the target; none for a target without a Gateway.
    pub(super) ancestors: Vec<Ancestor>,
}

impl<'i> Targets<'i> {
    pub(super) fn new(store: &'i Store, intents: &'i Intents<'i>) -> Self {
        let of_http = |intent: &'i Intent<'i>| match intent.at.object.kind {
            Kind::Api => {
                let rules = intent.hosts.iter().flat_map(|host| &host.rules);
                let apis = rules.filter_map(|rule| rule.api.as_ref());
                let names = apis.flat_map(|of| of.sections.iter()).collect();
                Served::Api(names, intents.partial_apis.get(intent.at.object).copied())
            }
            _ => Served::Ingress,
        };
        let ingresses = intents.http.iter().map(|intent| (intent.at.object, of_http(intent)));
        let gateways = intents.gateways.iter().map(|gateway| (gateway.at.object, Served::Gateway(gateway)));
        let routes = intents.http_routes.iter();
        let routes = routes.filter(|route| route.parents.iter().any(|parent| parent.is_ours));
        let routes = routes.map(|route| (route.at.object, Served::Route(route)));
        let served = ingresses.chain(gateways).chain(routes).collect();
        let sets = intents.listener_sets.iter();
        let gateway_of_set =
            sets.map(|set| (set.at.object, intents.gateways[set.gateway].at.object)).collect();
        Self { store, served, gateway_of_set, listeners: &intents.listeners }
    }

    /// Nothing, for stores without policies.
    pub(super) fn none(store: &'i Store) -> Self {
        Self { store, served: HashMap::default(), gateway_of_set: HashMap::default(), listeners: &[] }
    }

    /// The place of a target, and the reason why nothing can be attached there.
    pub(super) fn find(&self, at: At<'_>, target: &Target) -> Found {
        let Target { kind, name, section, .. } = target;
        let object =
            ObjectRef { kind: kind.kind(), namespace: at.object.namespace.clone(), name: name.clone() };
        let (mut section, mut ancestors) = (section.clone(), Vec::new());
        let absence = match (kind, self.served.get(&object)) {
            (TargetKind::Service, _) => self.port(&object, &mut section),
            (_, None) if self.store.knows(&object) => {
                let message = match kind {
                    TargetKind::HttpRoute | TargetKind::GrpcRoute => {
                        format!(
                            "{object} has no Gateway of this class, or cannot be read; the policy has no effect there"
                        )
                    }
                    _ => format!(
                        "{object} is of another class, or cannot be read; the policy has no effect there"
                    ),
                };
                Some((Reason::Foreign, message))
            }
            (_, None) => Some(missing(&object)),
            (_, Some(Served::Ingress)) => None,
            (_, Some(Served::Api(names, partial))) => {
                let unknown = section.as_ref().filter(|name| !names.contains(name));
                unknown.and_then(|name| match partial {
                    Some(_) if self.declares(&object, name) => None,
                    Some(reason) => {
                        let message = format!(
                            "{object} may have the operation or set {name:?}, which is not checked: {reason}"
                        );
                        Some((Reason::Accepted, message))
                    }
                    None => {
                        let names = names.iter().map(|name| &***name);
                        Some(no_section(&object, "operation or set", name, names))
                    }
                })
            }
            (_, Some(Served::Gateway(gateway))) => {
                ancestors.push(Ancestor { gateway: object.clone(), section: section.clone() });
                self.listener(gateway, section.as_ref())
            }
            (_, Some(Served::Route(route))) => {
                ancestors = self.gateways(route);
                let names = route.rule_names;
                let unknown = section.as_ref().filter(|name| !names.contains(name));
                unknown.map(|name| no_section(&object, "rule", name, names.iter().map(|name| &**name)))
            }
        };
        Found { place: Place { object, section }, absence, ancestors }
    }

    /// The reason why there is no such listener of a Gateway, or why no policy has an effect at the listener.
    fn listener(&self, gateway: &GatewayIntent<'_>, section: Option<&Arc<str>>) -> Option<(Reason, String)> {
        let object = gateway.at.object;
        let listeners = || self.listeners[gateway.listeners.clone()].iter();
        let rejected = || gateway.gateway.rejected.iter();
        let below_http = |what: &str| {
            (
                Reason::BelowHttp,
                format!("{what}; policies have an effect only at listeners for HTTP and HTTPS"),
            )
        };
        match section {
            None => {
                // The policy also applies to the listeners of the Gateway's ListenerSets.
                let mut with_sets =
                    self.listeners.iter().filter(|listener| listener.gateway == object).peekable();
                let is_below = with_sets.peek().is_some()
                    && with_sets.all(|listener| !listener.protocol.is_http())
                    && rejected().next().is_none();
                is_below.then(|| below_http(&format!("{object} has no listener for HTTP")))
            }
            Some(name) => match listeners().find(|listener| listener.name == name) {
                Some(listener) if listener.protocol.is_http() => None,
                Some(listener) => {
                    Some(below_http(&format!("{} is for {}", listener.in_words(), listener.protocol)))
                }
                None if rejected().any(|listener| listener.name == *name) => None,
                None => {
                    let names = listeners().map(|listener| &**listener.name);
                    Some(no_section(object, "listener", name, names))
                }
            },
        }
    }

    /// Whether an Api has an environment or a set of operations with this name, whatever its document has.
    fn declares(&self, api: &ObjectRef, name: &Arc<str>) -> bool {
        self.store.get::<Api>(api).is_some_and(|api| {
            let sets = api.sets.iter().map(|set| &set.name);
            sets.chain(api.environments.iter().map(|environment| &environment.name)).any(|of| of == name)
        })
    }

    /// The Gateways of a route that are served here.
    fn gateways(&self, route: &HttpRoute<'_>) -> Vec<Ancestor> {
        let parents = route.parents.iter().filter(|parent| parent.is_ours).map(|parent| parent.reference);
        let gateway = |parent: &ParentRef| {
            let kind = parent.kind.as_ref().copied().unwrap_or(Kind::Gateway);
            let parent = ObjectRef { kind, namespace: parent.namespace.clone(), name: parent.name.clone() };
            self.gateway_of_set.get(&parent).map_or(parent, |gateway| (*gateway).clone())
        };
        let gateways: BTreeSet<ObjectRef> = parents.map(gateway).collect();
        gateways.into_iter().map(|gateway| Ancestor { gateway, section: None }).collect()
    }

    /// The reason why there is no such Service or port. Changes a port to the key of the port.
    fn port(&self, object: &ObjectRef, section: &mut Option<Arc<str>>) -> Option<(Reason, String)> {
        let Some(port) = section else { return (!self.store.knows(object)).then(|| missing(object)) };
        let service = self.store.service(&object.namespace, &object.name).map(|(service, _)| service);
        match (service.and_then(|service| service.port(port, IpProtocol::Tcp)), service) {
            (Some(known), _) => {
                *port = known.key.clone();
                None
            }
            (None, Some(service)) => {
                let ports = service.ports_in_words(IpProtocol::Tcp);
                Some((Reason::NoSuchSection, format!("{object} has no port {port:?}, it has {ports}")))
            }
            (None, None) => Some(missing(object)),
        }
    }
}

fn missing(object: &ObjectRef) -> (Reason, String) {
    (Reason::TargetNotFound, format!("{object} does not exist; the policy has no effect there"))
}

/// The reason why an object does not have the part that a policy names.
fn no_section<'n>(
    object: &ObjectRef,
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'n str>,
) -> (Reason, String) {
    /// The largest number of names in a message.
    const NAMES_MAX: usize = 8;
    let known: Vec<String> = known.take(NAMES_MAX).map(|name| format!("{name:?}")).collect();
    let known = if known.is_empty() { "none with a name".to_owned() } else { known.join(", ") };
    (Reason::NoSuchSection, format!("{object} has no {what} {name:?}, it has {known}"))
}
