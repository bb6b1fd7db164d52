//! The Services of Gateways ([`GatewayServices`]): their names, and the ports of the data plane that they lead to.
//!
//! A Service is also the memory of its ports: a listener opens the `targetPort` of its port in the Service, so that
//! translation stays a pure function. [`gateway_services`](crate::source::cluster) writes the Services.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::class::Classes;
use super::listener_set::{self, Allowed};
use super::parameters;
use crate::address::Routability;
use crate::intent::At;
use crate::object::gateway::{Gateway, Listener, ListenerProtocol};
use crate::object::parameters::Parameters;
use crate::object::service::{IpProtocol, OfGateway};
use crate::object::{Kind, ObjectRef, service};
use crate::store::{ServiceRef, Store};
use crate::translate::{DataPlanes, GatewayServices, ServiceType, TranslateOptions};

/// The label with the name of the Gateway (GEP-1762).
pub(crate) const NAME_LABEL: &str = "gateway.networking.k8s.io/gateway-name";

/// The label with the namespace of the Gateway.
pub(crate) const NAMESPACE_LABEL: &str = "sluicegate.dev/gateway-namespace";

/// The label with the Lease of the gateway that writes the object. In the namespace of the gateway, the value is the name of the
/// Lease. In other namespaces, it also has the namespace of the Lease: other installations may have a Lease of the same name.
pub(crate) const LEASE_LABEL: &str = "sluicegate.dev/lease";

/// The longest name of a Service and the longest value of a label.
const LABEL_MAX: usize = 63;

/// The hexadecimal digits of a hash in a name. A second name with the same hash cannot be found.
const HASH_DIGITS: usize = 16;

/// The end of the names of all objects of a Gateway in its namespace.
const OWN_SUFFIX: &str = "-sluicegate";

/// The data planes of a Gateway, and its Service in front of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) planes: DataPlanes,
    /// The intended Service.
    pub(crate) service: ServiceRef,
    /// The Service in front of the other data planes, if the Gateway moves: it has other data planes than before.
    pub(crate) former: Option<ServiceRef>,
}

impl Placement {
    /// The placement of a Gateway by its parameters and its existing Services.
    pub(crate) fn of(
        store: &Store,
        options: &TranslateOptions,
        services: &GatewayServices,
        object: &ObjectRef,
        gateway: &Gateway,
    ) -> Self {
        let shared = (services.namespace.clone(), name(object).into());
        let Some(planes) = &options.own_data_planes else {
            return Self { planes: DataPlanes::Shared, service: shared, former: None };
        };
        let own = own_service(object);
        let exists =
            |service: &ServiceRef| find(store, services, service, object).is_ok_and(|of| of.is_some());
        let wanted = match parameters::of_gateway(store, options, gateway) {
            Ok(parameters) => parameters.data_planes.unwrap_or(planes.default),
            // Without valid parameters, the Gateway stays where it is.
            Err(_) if exists(&own) => DataPlanes::Own,
            Err(_) if exists(&shared) => DataPlanes::Shared,
            Err(_) => planes.default,
        };
        let (service, former) = match wanted {
            DataPlanes::Own => (own, shared),
            DataPlanes::Shared => (shared, own),
        };
        let former = Some(former).filter(exists);
        Self { planes: wanted, service, former }
    }

    /// Whether the shared data planes serve the Gateway, or still serve it.
    pub(crate) fn has_shared(&self) -> bool {
        self.planes == DataPlanes::Shared || self.former.is_some()
    }

    /// Whether the Gateway has data planes of its own, or still has them.
    pub(crate) fn has_own(&self) -> bool {
        self.planes == DataPlanes::Own || self.former.is_some()
    }

    /// The Services, the Service in front of the shared data planes first: the author of a Gateway can change the other Service.
    pub(crate) fn services(&self) -> impl Iterator<Item = &ServiceRef> {
        let (first, second) = match self.planes {
            DataPlanes::Shared => (Some(&self.service), self.former.as_ref()),
            DataPlanes::Own => (self.former.as_ref(), Some(&self.service)),
        };
        first.into_iter().chain(second)
    }
}

/// The intended Service of a Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) gateway: ObjectRef,
    /// The identity of the Gateway among all objects of its name.
    pub(crate) uid: Option<Box<str>>,
    pub(crate) placement: Placement,
    /// `spec.infrastructure.labels`.
    pub(crate) labels: BTreeMap<String, String>,
    /// `spec.infrastructure.annotations`.
    pub(crate) annotations: BTreeMap<String, String>,
    /// The type of the Service.
    pub(crate) service_type: ServiceType,
    /// The class of its load balancer.
    pub(crate) load_balancer_class: Option<String>,
    /// Its traffic policy for external clients.
    pub(crate) external_traffic_policy: Option<String>,
    /// The requested address.
    pub(crate) address: Option<IpAddr>,
    /// The requested cluster IP, beside the address.
    pub(crate) cluster_ip: Option<IpAddr>,
    /// The ports of the served listeners, also of the listeners of ListenerSets. Without a port, the Service stays as it is.
    pub(crate) ports: BTreeSet<(IpProtocol, u16)>,
    /// The ports for HTTPS that also serve HTTP/3. The Service has them for UDP too, with the same target.
    pub(crate) http3: BTreeSet<u16>,
}

impl Wish {
    /// The reference that lets Kubernetes delete an object in the namespace of the Gateway with the Gateway.
    pub(crate) fn owner(&self) -> Option<OwnerReference> {
        Some(OwnerReference {
            api_version: "gateway.networking.k8s.io/v1".to_owned(),
            kind: "Gateway".to_owned(),
            name: self.gateway.name.to_string(),
            uid: self.uid.as_ref()?.to_string(),
            controller: Some(true),
            block_owner_deletion: None,
        })
    }
}

/// The reason why a listener has no port of the data plane.
pub(super) enum Lack {
    /// The Service or its port does not exist yet.
    Waits(String),
    /// Another Service has the name.
    Foreign(String),
}

/// The addresses at which clients reach a Gateway.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GatewayAddresses {
    /// The addresses of the Service: none until the load balancer has an address.
    Service(Vec<Box<str>>),
    /// The addresses of the nodes.
    Nodes,
}

impl GatewayAddresses {
    /// The addresses at which clients reach a Service of a Gateway.
    pub(crate) fn of(service: &v1::Service) -> Self {
        let service_type = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
        match service_type {
            Some("NodePort") => Self::Nodes,
            _ => Self::Service(service::addresses(service)),
        }
    }

    /// Whether there are addresses already.
    pub(crate) fn are_known(&self) -> bool {
        *self != Self::Service(Vec::new())
    }
}

/// The intended Services of all served Gateways; the oldest Gateway comes first.
pub(crate) fn wishes(store: &Store, options: &TranslateOptions, services: &GatewayServices) -> Vec<Wish> {
    let classes = Classes::new(store, options);
    let served = store.all::<Gateway>().filter(|(_, gateway, _)| classes.refusal(gateway).is_none());
    let mut gateways: Vec<_> = served.collect();
    gateways.sort_by_cached_key(|(object, gateway, origin)| At { object, origin }.age(gateway.created));
    let has_http3 = options.settings.tls.http3.is_some();
    let is_https = |listener: &&Listener| listener.protocol == ListenerProtocol::Https;
    let http3 = |listeners: &[Listener]| -> BTreeSet<u16> {
        let served = listeners.iter().filter(|_| has_http3).filter(is_https);
        served.map(|listener| listener.port).collect()
    };
    // Another type of Service would lose the address of the Gateway, so the Service waits for valid parameters.
    let may_change =
        |gateway: &Gateway| has_address(gateway) && parameters::of_gateway(store, options, gateway).is_ok();
    let wish = |&(object, gateway, _): &(&ObjectRef, &Gateway, _)| {
        let parameters = parameters::of_gateway(store, options, gateway).unwrap_or_default();
        let service_type = service_type(services, &parameters, gateway);
        let class = parameters.load_balancer_class.or_else(|| services.load_balancer_class.clone());
        let policy = parameters.external_traffic_policy.or_else(|| services.external_traffic_policy.clone());
        Wish {
            gateway: object.clone(),
            uid: gateway.uid.clone(),
            placement: Placement::of(store, options, services, object, gateway),
            labels: gateway.labels.clone(),
            annotations: gateway.annotations.clone(),
            service_type,
            load_balancer_class: class.filter(|_| service_type == ServiceType::LoadBalancer),
            external_traffic_policy: policy.filter(|_| service_type != ServiceType::ClusterIp),
            address: requested(gateway, service_type),
            cluster_ip: requested_cluster_ip(gateway),
            ports: gateway.listeners.iter().filter(|_| may_change(gateway)).map(key).collect(),
            http3: http3(&gateway.listeners),
        }
    };
    let mut wishes: Vec<Wish> = gateways.iter().map(wish).collect();
    let objects = gateways.iter().map(|(object, gateway, _)| (*object, *gateway));
    // The translation reports the problems.
    for Allowed { set, gateway, refusal, .. } in listener_set::sets(store, objects, &mut Vec::new()) {
        if refusal.is_none() && may_change(gateways[gateway].1) {
            wishes[gateway].ports.extend(set.listeners.iter().map(key));
            wishes[gateway].http3.extend(http3(&set.listeners));
        }
    }
    for wish in &mut wishes {
        // A listener for UDP has the port alone.
        wish.http3.retain(|port| !wish.ports.contains(&(IpProtocol::Udp, *port)));
    }
    wishes
}

/// The type of the Service of a Gateway. A Gateway that requests only cluster IPs must have no other address (GEP-5093).
fn service_type(services: &GatewayServices, parameters: &Parameters, gateway: &Gateway) -> ServiceType {
    match gateway.is_confined {
        true => ServiceType::ClusterIp,
        false => parameters.service_type.unwrap_or(services.service_type),
    }
}

/// The first certain cluster IP that a Gateway requests.
fn requested_cluster_ip(gateway: &Gateway) -> Option<IpAddr> {
    let mut requests = gateway.requests.iter();
    requests.find_map(|of| of.value.filter(|_| of.routability == Ok(Routability::Cluster)))
}

/// The address that a Gateway requests for its Service.
fn requested(gateway: &Gateway, service_type: ServiceType) -> Option<IpAddr> {
    let requested = gateway.addresses.iter().flatten().next().copied();
    requested.filter(|_| service_type != ServiceType::NodePort)
}

/// The reason why a Gateway cannot have the addresses that it requests, or does not have them yet.
pub(crate) fn unusable_address(
    store: &Store,
    options: &TranslateOptions,
    services: &GatewayServices,
    placement: &Placement,
    object: &ObjectRef,
    gateway: &Gateway,
) -> Option<String> {
    let written = gateway.addresses.as_deref()?;
    let first = written.first()?;
    let parameters = parameters::of_gateway(store, options, gateway).unwrap_or_default();
    if service_type(services, &parameters, gateway) == ServiceType::NodePort {
        return Some(format!(
            "{first} is not usable: a Service of type NodePort has the addresses of the nodes"
        ));
    }
    if let Some(second) = written.get(1) {
        return Some(format!(
            "{second} is not usable: a Service has one address, and {first} is written before"
        ));
    }
    let current = addresses(store, services, placement, object);
    let Some(GatewayAddresses::Service(current)) = current else { return None };
    // The IP address behind a host name is unknown.
    let current: Vec<IpAddr> =
        current.iter().map(|address| address.parse()).collect::<Result<_, _>>().unwrap_or_default();
    let other = current.first().filter(|_| !current.contains(first))?;
    let (namespace, name) = &placement.service;
    Some(format!("Service {namespace}/{name} has the address {other} and not {first}"))
}

/// Whether a Gateway may have an address: not if it names addresses, but none is an IP address.
pub(super) fn has_address(gateway: &Gateway) -> bool {
    let own = gateway.addresses.as_ref();
    own.is_none_or(|addresses| !addresses.is_empty()) || gateway.requests_cluster_ip()
}

/// The port of a listener in a Service. Listeners with the same port share it.
pub(super) fn key(listener: &Listener) -> (IpProtocol, u16) {
    let protocol = match listener.protocol {
        ListenerProtocol::Udp => IpProtocol::Udp,
        _ => IpProtocol::Tcp,
    };
    (protocol, listener.port)
}

/// The Service of this name; `None` if there is none, and an error if it is not our Service of this Gateway.
fn find<'s>(
    store: &'s Store,
    services: &GatewayServices,
    place: &ServiceRef,
    gateway: &ObjectRef,
) -> Result<Option<&'s OfGateway>, Foreign> {
    let (namespace, name) = place;
    match store.service(namespace, name).map(|(service, _)| service.of_gateway.as_ref()) {
        None => Ok(None),
        Some(Some(service)) if is_ours(services, place, service, gateway) => Ok(Some(service)),
        Some(_) => Err(Foreign),
    }
}

/// A Service that is not ours.
struct Foreign;

/// Whether a Service at this place is our Service of this Gateway.
pub(crate) fn is_ours(
    services: &GatewayServices,
    place: &ServiceRef,
    service: &OfGateway,
    gateway: &ObjectRef,
) -> bool {
    is_of_lease(services, place, service) && *service.gateway == *annotation(gateway)
}

/// Whether a Service of any Gateway is ours, not of another installation.
pub(crate) fn is_of_lease(services: &GatewayServices, place: &ServiceRef, service: &OfGateway) -> bool {
    let labels = service.raw.metadata.labels.as_ref();
    let Some(lease) = labels.and_then(|labels| labels.get(LEASE_LABEL)) else { return false };
    let is_shared = **lease == *services.lease && place.0 == services.namespace;
    let is_own = || {
        *lease == own_lease(services)
            && of_annotation(&service.gateway).is_some_and(|gateway| own_service(&gateway) == *place)
    };
    is_shared || is_own()
}

/// The Gateway of the annotation [`annotation`](annotation()).
pub(crate) fn of_annotation(value: &str) -> Option<ObjectRef> {
    let (namespace, name) = value.split_once('/')?;
    Some(ObjectRef { kind: Kind::Gateway, namespace: namespace.into(), name: name.into() })
}

/// The value of [`LEASE_LABEL`] of objects in the namespaces of Gateways.
pub(crate) fn own_lease(services: &GatewayServices) -> String {
    let GatewayServices { namespace, lease, .. } = services;
    let plain = format!("{namespace}.{lease}");
    if plain.len() <= LABEL_MAX {
        return plain;
    }
    with_hash(&plain, &plain, LABEL_MAX)
}

/// The port of the data plane for a port of a Gateway; or the reason why there is none.
pub(super) fn target(
    store: &Store,
    services: &GatewayServices,
    placement: &Placement,
    gateway: &ObjectRef,
    key: (IpProtocol, u16),
) -> Result<u16, Lack> {
    let (namespace, name) = &placement.service;
    let mut is_foreign = false;
    let mut target = None;
    for place in placement.services() {
        match find(store, services, place, gateway) {
            // While a Gateway moves, both Services lead to the same port.
            Ok(Some(service)) => target = target.or_else(|| service.targets.get(&key).copied()),
            Ok(None) => {}
            Err(Foreign) => is_foreign = true,
        }
    }
    let target = target.filter(|target| services.ports.contains(target));
    if target.is_none() && is_foreign {
        let message = format!(
            "Service {namespace}/{name} exists already and is not of this Gateway; the listener is not served. Delete the Service"
        );
        return Err(Lack::Foreign(message));
    }
    target.ok_or_else(|| {
        let message = format!(
            "Service {namespace}/{name} does not have the port yet; the listener is served once the holder of the Lease has added \
             it"
        );
        Lack::Waits(message)
    })
}

/// The addresses of a Gateway; `None` without a Service.
pub(crate) fn addresses(
    store: &Store,
    services: &GatewayServices,
    placement: &Placement,
    gateway: &ObjectRef,
) -> Option<GatewayAddresses> {
    let of = |place: &ServiceRef| {
        let service = find(store, services, place, gateway).ok().flatten()?;
        Some(GatewayAddresses::of(&service.raw))
    };
    let new = of(&placement.service);
    let Some(former) = &placement.former else { return new };
    let has_address = new.as_ref().is_some_and(GatewayAddresses::are_known);
    if has_address && has_ready_endpoint(store, &placement.service) { new } else { of(former) }
}

/// Whether a pod behind the Service of a Gateway is ready. The pods of data planes are ready once they serve.
pub(crate) fn has_ready_endpoint(store: &Store, service: &ServiceRef) -> bool {
    let mut slices = store.slices_of(service).peekable();
    // With `--watch-namespace`, the slices in the namespace of the shared data planes may be unknown.
    slices.peek().is_none() && !may_be_own(&service.1)
        || slices.flat_map(|slice| &slice.endpoints).any(|(_, conditions)| conditions.ready)
}

/// The cluster IP of a Gateway; `None` without a Service.
pub(crate) fn cluster_ip(
    store: &Store,
    services: &GatewayServices,
    placement: &Placement,
    gateway: &ObjectRef,
) -> Option<Box<str>> {
    let spec = find(store, services, &placement.service, gateway).ok().flatten()?.raw.spec.as_ref()?;
    let address = spec.cluster_ip.as_deref().filter(|address| address.parse::<IpAddr>().is_ok());
    address.map(Into::into)
}

/// The name of all objects of a Gateway with data planes of its own: the ServiceAccount, the Deployment and the Service in the
/// namespace of the Gateway. The name is `NAME-sluicegate`, or the same shortened, with a hash, if this is not a valid name.
pub(crate) fn own_service(gateway: &ObjectRef) -> ServiceRef {
    let ObjectRef { namespace, name, .. } = gateway;
    let plain = format!("{name}{OWN_SUFFIX}");
    let is_valid = plain.len() <= LABEL_MAX && !name.contains('.') && starts_with_letter(name);
    if is_valid && !ends_with_hash(name) {
        return (namespace.clone(), plain.into());
    }
    let name = if starts_with_letter(name) { name.to_string() } else { format!("gateway-{name}") };
    let short = with_hash(&name.replace('.', "-"), &annotation(gateway), LABEL_MAX - OWN_SUFFIX.len());
    (namespace.clone(), format!("{short}{OWN_SUFFIX}").into())
}

/// Whether [`own_service`] can have returned this name.
pub(crate) fn may_be_own(name: &str) -> bool {
    name.ends_with(OWN_SUFFIX)
}

/// The name of the scope of the data planes of a Gateway: their ServiceAccount, as `NAMESPACE/NAME`.
pub(crate) fn scope(gateway: &ObjectRef) -> Arc<str> {
    let (namespace, name) = own_service(gateway);
    format!("{namespace}/{name}").into()
}

/// The value of the annotation that names the Gateway of a Service.
pub(crate) fn annotation(gateway: &ObjectRef) -> String {
    format!("{}/{}", gateway.namespace, gateway.name)
}

/// The name of the Service of a Gateway: `NAMESPACE-NAME`, if this is a valid name of a Service and no other Gateway can
/// have it; otherwise the same shortened, with a hash.
pub(crate) fn name(gateway: &ObjectRef) -> String {
    let ObjectRef { namespace, name, .. } = gateway;
    let plain = format!("{namespace}-{name}");
    // `a-b/c` and `a/b-c` must differ, and no name may look like the shortened name of another Gateway.
    let is_unambiguous = !namespace.contains('-') && !ends_with_hash(name);
    // Names of Services start with a letter (RFC 1035), names of namespaces may start with a digit.
    let is_valid = plain.len() <= LABEL_MAX && !name.contains('.') && starts_with_letter(&plain);
    if is_unambiguous && is_valid {
        return plain;
    }
    let plain = if starts_with_letter(&plain) { plain } else { format!("gateway-{plain}") };
    with_hash(&plain.replace('.', "-"), &annotation(gateway), LABEL_MAX)
}

/// The labels of the objects of a Gateway with these data planes.
pub(crate) fn labels(
    services: &GatewayServices,
    gateway: &ObjectRef,
    planes: DataPlanes,
) -> BTreeMap<String, String> {
    let mut labels = selector(services, gateway);
    labels.insert(NAMESPACE_LABEL.to_owned(), gateway.namespace.to_string());
    if planes == DataPlanes::Shared {
        labels.insert(LEASE_LABEL.to_owned(), services.lease.to_string());
    }
    labels
}

/// The labels by which a Service in the namespace of a Gateway selects the pods of the Gateway.
pub(crate) fn selector(services: &GatewayServices, gateway: &ObjectRef) -> BTreeMap<String, String> {
    [(NAME_LABEL.to_owned(), name_label(gateway)), (LEASE_LABEL.to_owned(), own_lease(services))].into()
}

/// The value of the label with the name of a Gateway.
pub(crate) fn name_label(gateway: &ObjectRef) -> String {
    if gateway.name.len() <= LABEL_MAX {
        gateway.name.to_string()
    } else {
        with_hash(&gateway.name, &annotation(gateway), LABEL_MAX)
    }
}

fn starts_with_letter(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
}

fn ends_with_hash(name: &str) -> bool {
    let end = name.rsplit('-').next().unwrap_or_default();
    end.len() == HASH_DIGITS && end.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A shortened name with the hash of the whole text that it stands for, of at most `max` characters.
fn with_hash(name: &str, whole: &str, max: usize) -> String {
    // Names of Kubernetes are ASCII.
    let start: String = name.chars().take(max - HASH_DIGITS - 1).collect();
    let mut short = format!("{}-", start.trim_end_matches(['-', '.']));
    let _ = write!(short, "{:0digits$x}", hash(whole), digits = HASH_DIGITS);
    short
}

/// A hash that is the same in all versions and processes.
pub(crate) fn hash(text: &str) -> u64 {
    let digest = digest(&SHA256, text.as_bytes());
    digest.as_ref().iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use sluicegate_model::value::syntax;

    use super::*;
    use crate::object::Kind;

    fn gateway(namespace: &str, name: &str) -> ObjectRef {
        ObjectRef { kind: Kind::Gateway, namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn service_of_a_gateway_has_a_valid_name_that_no_other_gateway_has() {
        let long = "a".repeat(253);
        let gateways = [
            ("a", "b-c"),
            ("a-b", "c"),
            ("a", "b.c"),
            ("a", "b-c-0123456789abcdef"),
            ("1a", "b"),
            ("gateway", "1a-b"),
            ("a", &long[..61]),
            ("a", &long[..62]),
            ("a", &long),
            ("aa", &long),
        ];
        let names: Vec<String> =
            gateways.iter().map(|(namespace, own)| name(&gateway(namespace, own))).collect();
        assert_eq!(names[0], "a-b-c");
        assert_eq!(names[6], format!("a-{}", &long[..61]));
        assert!(names[1].starts_with("a-b-c-") && names[2].starts_with("a-b-c-"), "{names:?}");
        for name in &names {
            assert!(name.len() <= 63 && !name.contains('.') && starts_with_letter(name), "{name}");
            assert_eq!(syntax::dns_name_fault(name), None, "{name}");
        }
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
        // The names are in the cluster: they may not change.
        assert_eq!(names[1], "a-b-c-4e84717d75bd540d");
    }

    #[test]
    fn own_objects_of_a_gateway_have_a_valid_name_that_no_other_gateway_has() {
        let long = "a".repeat(253);
        let gateways =
            ["b", "b.c", "b-c", "1b", "gateway-1b", "b-0123456789abcdef", &long, &long[..200], &long[..52]];
        let names: Vec<String> =
            gateways.iter().map(|own| own_service(&gateway("shop", own)).1.to_string()).collect();
        assert_eq!(names[0], "b-sluicegate");
        assert_eq!(names[8], format!("{}-sluicegate", &long[..52]));
        for name in &names {
            assert!(name.len() <= 63 && !name.contains('.') && starts_with_letter(name), "{name}");
            assert!(may_be_own(name), "{name}");
            assert_eq!(syntax::dns_name_fault(name), None, "{name}");
        }
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
    }

    #[test]
    fn label_with_the_name_of_a_gateway_is_at_most_63_characters_long() {
        assert_eq!(name_label(&gateway("a", "b.c")), "b.c");
        let long = name_label(&gateway("a", &"b.".repeat(126)));
        assert!(long.len() <= 63 && long.starts_with("b.b.") && !long.contains(".-"), "{long}");
    }
}
