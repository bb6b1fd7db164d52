//! The Services of Gateways ([`GatewayServices`]): the holder of the Lease creates, updates and deletes them.
//!
//! The source passes on the intended Services and the existing Services. The writer compares both and writes only what
//! differs, by server-side apply. Each write names the version of the Service that it is based on, so that a writer with
//! an old view changes nothing. Until the watch reports a write, the writer uses the response of the API server.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use tokio::sync::watch as state;
use tokio::time::sleep;

use super::lease::is_conflict;
use super::until;
use super::watch::in_words;
use crate::frontend::gateway::service::{self, GatewayAddresses, Wish};
use crate::object::service::{IpProtocol, OfGateway, Service};
use crate::object::{Kind, ObjectRef, annotation};
use crate::problem::{Problem, Severity};
use crate::status;
use crate::store::{ServiceRef, Store};
use crate::translate::{DataPlanes, GatewayServices, ServiceType, TranslateOptions};

mod fields;
#[cfg(test)]
mod tests;

use fields::is_as_intended;

/// The name of the gateway among the writers of the fields of an object.
pub(super) const FIELD_MANAGER: &str = "sluicegate";

/// The time between two writes.
const PACE: Duration = Duration::from_millis(20);

/// The first pause after a failed write.
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// The longest wait for the watch to report a write.
const REPORT_MAX: Duration = Duration::from_secs(10);

/// The longest pause after failed writes.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Existing Services; `None` for Services without a Gateway.
type Services = BTreeMap<ServiceRef, Option<Arc<OfGateway>>>;

/// The intended and the existing Services.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Wanted {
    /// The oldest Gateway comes first.
    pub(super) wishes: Vec<Wish>,
    /// All Services of Gateways, and all other Services at the places of Services of Gateways.
    services: Services,
    /// The intended Services whose data planes serve.
    serving: BTreeSet<ServiceRef>,
    /// Whether all Gateways and ListenerSets are known, so that a Service without a Gateway is not needed any more, nor a
    /// port without a listener.
    pub(super) is_complete: bool,
}

impl Wanted {
    pub(super) fn new(
        store: &Store,
        options: &TranslateOptions,
        services: &GatewayServices,
        is_complete: bool,
    ) -> Self {
        let wishes = service::wishes(store, options, services);
        let moving = wishes.iter().filter(|wish| wish.placement.former.is_some());
        let serving = moving.map(|wish| &wish.placement.service);
        let serving = serving.filter(|place| service::has_ready_endpoint(store, place)).cloned().collect();
        let places: HashSet<&ServiceRef> = wishes.iter().map(|wish| &wish.placement.service).collect();
        let known = store.all::<Service>().filter_map(|(object, service, _)| {
            let place = (object.namespace.clone(), object.name.clone());
            let is_relevant = service.of_gateway.is_some() || places.contains(&place);
            is_relevant.then(|| (place, service.of_gateway.clone()))
        });
        let services = known.collect();
        Self { services, wishes, serving, is_complete }
    }

    /// Whether clients can use the intended Service of a Gateway: it has an address, and the data planes behind it serve.
    fn serves(&self, wish: &Wish, services: &Services) -> bool {
        let place = &wish.placement.service;
        let Some(service) = services.get(place).and_then(Option::as_ref) else { return false };
        GatewayAddresses::of(&service.raw).are_known() && self.serving.contains(place)
    }
}

/// A difference between the intended and the existing Services.
#[derive(Clone, Debug, PartialEq)]
enum Write {
    Apply {
        gateway: ObjectRef,
        service: Box<v1::Service>,
        /// The version of the existing Service; `None` for a new Service.
        version: Option<String>,
    },
    /// Deletes a Service whose address cannot change, so that the next plan creates the Service with its new address.
    Replace {
        gateway: ObjectRef,
        /// The new Service.
        service: Box<v1::Service>,
        uid: Option<String>,
        version: Option<String>,
    },
    Delete {
        service: ServiceRef,
        uid: Option<String>,
        version: Option<String>,
    },
}

impl Write {
    fn place(&self) -> ServiceRef {
        match self {
            Self::Apply { service, .. } | Self::Replace { service, .. } => {
                let ObjectMeta { namespace, name, .. } = &service.metadata;
                let part = |part: &Option<String>| part.as_deref().unwrap_or_default().into();
                (part(namespace), part(name))
            }
            Self::Delete { service, .. } => service.clone(),
        }
    }

    fn version(&self) -> Option<&str> {
        match self {
            Self::Apply { version, .. } | Self::Replace { version, .. } | Self::Delete { version, .. } => {
                version.as_deref()
            }
        }
    }
}

/// A completed write.
#[derive(Debug)]
struct Done {
    write: Write,
    /// The Service after the write; `None` if it is deleted.
    after: Option<Arc<OfGateway>>,
    since: Instant,
    /// Whether the watch has reported the write.
    is_reported: bool,
}

/// The writes for a state of the cluster, and the problems that no write solves.
#[derive(Debug, Default)]
struct Plan {
    writes: Vec<Write>,
    problems: Vec<Problem>,
}

/// Finds the differences between intended and existing Services.
struct Planner {
    options: GatewayServices,
    /// The ports that the data plane uses otherwise.
    reserved: Vec<u16>,
    /// The time for which the former Service of a Gateway stays beside its new Service.
    overlap: Duration,
    /// The former Services whose successors serve, since this time.
    succeeded: BTreeMap<ServiceRef, Instant>,
    /// The completed writes that the watch may not have reported yet.
    done: BTreeMap<ServiceRef, Done>,
}

impl Planner {
    fn plan(&mut self, wanted: &Wanted) -> Plan {
        let services = self.known(wanted);
        let formers: HashSet<&ServiceRef> =
            wanted.wishes.iter().filter_map(|wish| wish.placement.former.as_ref()).collect();
        self.succeeded.retain(|former, _| formers.contains(former));
        let mut plan = Plan::default();
        let targets = self.targets(wanted, &services, &mut plan.problems);
        let mut needed = HashSet::new();
        for (wish, targets) in wanted.wishes.iter().zip(targets) {
            let place = &wish.placement.service;
            needed.insert(place.clone());
            needed.extend(self.former(wanted, wish, &services));
            let current = match services.get(place) {
                None => None,
                Some(Some(current)) if service::is_ours(&self.options, place, current, &wish.gateway) => {
                    Some(current)
                }
                // The translation reports the foreign Service.
                Some(_) => continue,
            };
            let intended = self.service(wish, &targets);
            let stays = wish.ports.is_empty() || targets.is_empty();
            if stays || current.is_some_and(|current| is_as_intended(&current.raw, &intended)) {
                continue;
            }
            let version = current.and_then(|current| current.raw.metadata.resource_version.clone());
            let (gateway, service) = (wish.gateway.clone(), Box::new(intended));
            match current.filter(|current| has_other_cluster_ip(&current.raw, &service)) {
                // The deletion is in progress.
                Some(current) if current.raw.metadata.deletion_timestamp.is_some() => {}
                Some(current) => {
                    let uid = current.raw.metadata.uid.clone();
                    plan.writes.push(Write::Replace { gateway, service, uid, version });
                }
                None => plan.writes.push(Write::Apply { gateway, service, version }),
            }
        }
        for (place, service) in services.iter().filter(|(place, _)| !needed.contains(*place)) {
            let Some(service) = service.as_ref().filter(|of| service::is_of_lease(&self.options, place, of))
            else {
                continue;
            };
            let metadata = &service.raw.metadata;
            if wanted.is_complete && metadata.deletion_timestamp.is_none() {
                let (uid, version) = (metadata.uid.clone(), metadata.resource_version.clone());
                plan.writes.push(Write::Delete { service: place.clone(), uid, version });
            }
        }
        // The API server may complete a field in its own way: the same write would change nothing again.
        plan.writes.retain(|write| !self.is_repeated(write));
        plan
    }

    /// The former Service of a Gateway, while it is still needed.
    fn former(&mut self, wanted: &Wanted, wish: &Wish, services: &Services) -> Option<ServiceRef> {
        let former = wish.placement.former.clone()?;
        // A Gateway without valid parameters stays as it is.
        if wish.ports.is_empty() || !wanted.serves(wish, services) {
            return Some(former);
        }
        let since = *self.succeeded.entry(former.clone()).or_insert_with(Instant::now);
        (since.elapsed() < self.overlap).then_some(former)
    }

    /// The existing Services, after the completed writes.
    fn known(&mut self, wanted: &Wanted) -> Services {
        let mut services = wanted.services.clone();
        self.done.retain(|place, done| {
            let reported = services.get(place);
            let is_foreign = matches!(reported, Some(None));
            let reported = reported.and_then(|service| version(service.as_ref()?));
            if reported.is_some() && reported == done.after.as_deref().and_then(version) {
                done.is_reported = true;
                return true;
            }
            let is_pending = reported == done.write.version()
                && !done.is_reported
                && !is_foreign
                && done.since.elapsed() < REPORT_MAX;
            if is_pending {
                match &done.after {
                    Some(after) => services.insert(place.clone(), Some(after.clone())),
                    None => services.remove(place),
                };
            }
            is_pending
        });
        services
    }

    /// Whether the watch has not reported a write yet, or a former Service is due later.
    fn is_waiting(&self) -> bool {
        !self.succeeded.is_empty() || self.done.values().any(|done| !done.is_reported)
    }

    /// Whether a write repeats the last write of a Service, which has not changed since.
    fn is_repeated(&self, write: &Write) -> bool {
        let Some(Done { write: Write::Apply { service: last, .. }, after: Some(after), .. }) =
            self.done.get(&write.place())
        else {
            return false;
        };
        let Write::Apply { service, version: now, .. } = write else { return false };
        service == last && now.as_deref() == version(after)
    }

    /// The port of the data plane for each port of each Gateway. A port stays once it is given.
    fn targets(
        &self,
        Wanted { wishes, is_complete, .. }: &Wanted,
        services: &Services,
        problems: &mut Vec<Problem>,
    ) -> Vec<BTreeMap<(IpProtocol, u16), u16>> {
        let reserved: HashSet<u16> = self.reserved.iter().copied().collect();
        // The ports of the shared data planes. Own data planes open the ports of one Gateway only.
        let mut shared = reserved.clone();
        let mut given: Vec<BTreeMap<(IpProtocol, u16), u16>> = vec![BTreeMap::new(); wishes.len()];
        let keep = |wish: &Wish, place: &ServiceRef, kept: &mut BTreeMap<_, _>, taken: &mut HashSet<u16>| {
            let current = services.get(place).and_then(Option::as_ref);
            let current =
                current.filter(|current| service::is_ours(&self.options, place, current, &wish.gateway));
            for (key, target) in current.iter().flat_map(|current| &current.targets) {
                // Without any port, the Service stays as it is.
                let stays = wish.ports.is_empty() || !is_complete;
                let is_needed = stays || wish.ports.contains(key);
                let is_valid = is_needed && self.options.ports.contains(target);
                if is_valid && !kept.contains_key(key) && taken.insert(*target) {
                    kept.insert(*key, *target);
                }
            }
        };
        // The author of a Gateway can change the Service in the namespace of the Gateway. So the ports of the shared data
        // planes come first. The new Service of a Gateway that moves leads to the same ports as its former Service.
        for turn in [0, 1] {
            for (wish, given) in wishes.iter().zip(&mut given).filter(|(wish, _)| wish.placement.has_shared())
            {
                if let Some(place) = wish.placement.services().nth(turn) {
                    keep(wish, place, given, &mut shared);
                }
            }
        }
        for (wish, given) in wishes.iter().zip(&mut given) {
            let mut own = reserved.clone();
            let taken = match wish.placement.has_shared() {
                true => &mut shared,
                false => {
                    keep(wish, &wish.placement.service, given, &mut own);
                    &mut own
                }
            };
            for &(protocol, port) in &wish.ports {
                if given.contains_key(&(protocol, port)) {
                    continue;
                }
                match self.free(&wish.gateway, protocol, port, taken) {
                    Some(target) => {
                        taken.insert(target);
                        given.insert((protocol, port), target);
                    }
                    None => problems.push(self.exhausted(&wish.gateway, protocol, port)),
                }
            }
        }
        given
    }

    /// A free port of the data plane. The hash of the Gateway and the port decides where the search starts: a new Gateway
    /// does not receive the port of a deleted Gateway, and a Gateway that is created again likely receives its old port.
    fn free(
        &self,
        gateway: &ObjectRef,
        protocol: IpProtocol,
        port: u16,
        taken: &HashSet<u16>,
    ) -> Option<u16> {
        let (first, last) = (u64::from(*self.options.ports.start()), u64::from(*self.options.ports.end()));
        let count = (last + 1).checked_sub(first).filter(|count| *count > 0)?;
        let start = service::hash(&format!("{}/{protocol}/{port}", service::annotation(gateway))) % count;
        let candidates = (0..count).map(|step| first + (start + step) % count);
        candidates.filter_map(|port| u16::try_from(port).ok()).find(|port| !taken.contains(port))
    }

    fn exhausted(&self, gateway: &ObjectRef, protocol: IpProtocol, port: u16) -> Problem {
        let (first, last) = (self.options.ports.start(), self.options.ports.end());
        let message = format!(
            "no port of the data plane is left for {protocol} port {port}; its listeners are not served. Widen \
             --gateway-service-ports (now {first}-{last})"
        );
        problem(gateway, message)
    }

    /// The intended Service of a Gateway.
    fn service(&self, wish: &Wish, targets: &BTreeMap<(IpProtocol, u16), u16>) -> v1::Service {
        let options = &self.options;
        let (namespace, name) = &wish.placement.service;
        let is_own = wish.placement.planes == DataPlanes::Own;
        let mut labels = wish.labels.clone();
        labels.extend(service::labels(options, &wish.gateway, wish.placement.planes));
        let mut annotations = options.annotations.clone();
        annotations.extend(wish.annotations.clone());
        annotations.insert(annotation::GATEWAY.to_owned(), service::annotation(&wish.gateway));
        let port = |(&(protocol, port), target): (&(IpProtocol, u16), &u16)| v1::ServicePort {
            name: Some(format!("{}-{port}", protocol.to_string().to_ascii_lowercase())),
            protocol: Some(protocol.to_string()),
            port: port.into(),
            target_port: Some(IntOrString::Int((*target).into())),
            ..v1::ServicePort::default()
        };
        // The data plane serves HTTP/3 at the UDP port with the number of the TCP port.
        let http3 = wish.http3.iter().filter_map(|&client| {
            let target = targets.get(&(IpProtocol::Tcp, client))?;
            let name = Some(format!("http3-{client}"));
            Some(v1::ServicePort { name, ..port((&(IpProtocol::Udp, client), target)) })
        });
        let ports = targets.iter().map(port).chain(http3).collect();
        let address_of = |service_type| {
            let address = wish.address.filter(|_| wish.service_type == service_type)?;
            Some(address.to_string())
        };
        v1::Service {
            metadata: ObjectMeta {
                name: Some(name.to_string()),
                namespace: Some(namespace.to_string()),
                labels: Some(labels),
                annotations: Some(annotations),
                owner_references: wish.owner().filter(|_| is_own).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(v1::ServiceSpec {
                type_: Some(wish.service_type.as_str().to_owned()),
                selector: Some(match is_own {
                    true => service::selector(options, &wish.gateway),
                    false => options.selector.clone(),
                }),
                ports: Some(ports),
                cluster_ip: wish
                    .cluster_ip
                    .map(|address| address.to_string())
                    .or_else(|| address_of(ServiceType::ClusterIp)),
                load_balancer_ip: address_of(ServiceType::LoadBalancer),
                load_balancer_class: wish.load_balancer_class.clone(),
                external_traffic_policy: wish.external_traffic_policy.clone(),
                ..v1::ServiceSpec::default()
            }),
            status: None,
        }
    }
}

fn version(service: &OfGateway) -> Option<&str> {
    service.raw.metadata.resource_version.as_deref()
}

/// Whether a Service has another cluster IP than the intended Service requests. A cluster IP never changes.
fn has_other_cluster_ip(current: &v1::Service, intended: &v1::Service) -> bool {
    let cluster_ip = |service: &v1::Service| service.spec.as_ref().and_then(|spec| spec.cluster_ip.clone());
    let wanted = cluster_ip(intended);
    wanted.is_some() && wanted != cluster_ip(current)
}

/// A problem with a Service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ServiceFault {
    pub(super) problem: Problem,
    /// The reason why the Gateway is not programmed.
    pub(super) unprogrammed: Option<status::Fault>,
}

impl From<Problem> for ServiceFault {
    fn from(problem: Problem) -> Self {
        Self { problem, unprogrammed: None }
    }
}

fn problem(object: &ObjectRef, message: String) -> Problem {
    Problem::of_cluster(Severity::Warning, Some(object), message)
}

/// Writes the Services, while this process holds the Lease. `faults` receives the problems with them.
pub(super) async fn write(
    client: Client,
    options: &TranslateOptions,
    wanted: state::Receiver<Arc<Wanted>>,
    faults: state::Sender<Vec<ServiceFault>>,
    mut holds: state::Receiver<bool>,
) -> Infallible {
    let Some(services) = &options.gateway_services else { return pending().await };
    let ports = [&options.http_ports, &options.https_ports].into_iter().flatten();
    let reserved: Vec<u16> = ports.copied().chain(options.admin_port).collect();
    loop {
        until(&mut holds, true).await;
        // An earlier holder has written into the cluster.
        let planner = Planner {
            options: services.clone(),
            reserved: reserved.clone(),
            overlap: options.own_data_planes.as_ref().map(|planes| planes.overlap).unwrap_or_default(),
            succeeded: BTreeMap::new(),
            done: BTreeMap::new(),
        };
        let writer = Writer { client: client.clone(), planner, wanted: wanted.clone(), faults: &faults };
        tokio::select! {
            () = writer.run() => {}
            () = until(&mut holds, false) => {}
        }
        faults.send_if_modified(|faults| !std::mem::take(faults).is_empty());
    }
}

/// The result of a write.
enum Sent {
    /// The Service after the write; `None` if it is deleted.
    Done(Option<Arc<OfGateway>>),
    /// The Service has another version in the cluster.
    Conflict,
}

struct Writer<'a> {
    client: Client,
    planner: Planner,
    wanted: state::Receiver<Arc<Wanted>>,
    faults: &'a state::Sender<Vec<ServiceFault>>,
}

/// The result of the writes of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Written,
    /// A newer state of the cluster arrived in the meantime.
    Outdated,
    Failed,
}

impl Writer<'_> {
    /// Runs until the sender of wishes is gone.
    async fn run(mut self) {
        let mut delay = RETRY_FIRST;
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            match self.carry_out(&wanted).await {
                Outcome::Outdated => continue,
                Outcome::Written => {
                    delay = RETRY_FIRST;
                    let is_waiting = self.planner.is_waiting();
                    tokio::select! {
                        changed = self.wanted.changed() => if changed.is_err() { return },
                        () = sleep(REPORT_MAX), if is_waiting => {}
                    }
                }
                Outcome::Failed => {
                    tokio::select! {
                        changed = self.wanted.changed() => if changed.is_err() { return },
                        () = sleep(delay) => {}
                    }
                    delay = (delay * 2).min(RETRY_MAX);
                }
            }
        }
    }

    async fn carry_out(&mut self, wanted: &Wanted) -> Outcome {
        let Plan { writes, problems } = self.planner.plan(wanted);
        let mut problems: Vec<ServiceFault> = problems.into_iter().map(ServiceFault::from).collect();
        let mut outcome = Outcome::Written;
        for write in writes {
            if self.wanted.has_changed().unwrap_or_default() {
                return Outcome::Outdated;
            }
            match self.send(&write).await {
                Ok(Sent::Done(after)) => {
                    let place = write.place();
                    let done = Done { write, after, since: Instant::now(), is_reported: false };
                    self.planner.done.insert(place, done);
                }
                // The watch reports the newer Service.
                Ok(Sent::Conflict) => outcome = Outcome::Failed,
                Err(error) => {
                    outcome = Outcome::Failed;
                    problems.push(self.failure(&write, &error));
                }
            }
            sleep(PACE).await;
        }
        self.faults.send_if_modified(|faults| {
            let is_new = *faults != problems;
            *faults = problems;
            is_new
        });
        outcome
    }

    async fn send(&self, write: &Write) -> kube::Result<Sent> {
        let (namespace, name) = &write.place();
        let services: Api<v1::Service> = Api::namespaced(self.client.clone(), namespace);
        let written = match write {
            Write::Apply { gateway, service, version } => {
                // Server-side apply would change a Service that another client created in the meantime.
                if version.is_none() && services.get_opt(name).await?.is_some() {
                    return Ok(Sent::Conflict);
                }
                if version.is_none() && service.spec.as_ref().is_some_and(|spec| spec.cluster_ip.is_some()) {
                    delete(&services, &placeholder_name(name), &None, &None).await?;
                }
                let mut service = service.clone();
                service.metadata.resource_version.clone_from(version);
                let params = PatchParams::apply(FIELD_MANAGER).force();
                let written = services.patch(name, &params, &Patch::Apply(&service)).await;
                if written.is_ok() {
                    let what = if version.is_none() { "created" } else { "updated" };
                    tracing::info!(service = %name, %gateway, "{what} the Service of a Gateway");
                }
                written.map(|written| OfGateway::of(&written))
            }
            Write::Replace { service, uid, version, .. } => {
                // The placeholder proves that the address is free, and keeps it until the new Service can have it.
                match services.create(&PostParams::default(), &placeholder(service)).await {
                    Ok(_) => delete(&services, name, uid, version).await,
                    // An attempt that ended early has left the placeholder, perhaps with another address.
                    Err(kube::Error::Api(status)) if status.code == 409 => {
                        delete(&services, &placeholder_name(name), &None, &None).await?;
                        return Ok(Sent::Conflict);
                    }
                    Err(error) => Err(error),
                }
            }
            Write::Delete { uid, version, .. } => delete(&services, name, uid, version).await,
        };
        match written {
            Ok(after) => Ok(Sent::Done(after.map(Arc::new))),
            Err(error) if is_conflict(&error) => Ok(Sent::Conflict),
            Err(error) => Err(error),
        }
    }

    /// Whether a Gateway requests the cluster IP as its address, and not by the routability `Cluster`.
    fn is_address_of(&self, gateway: &ObjectRef, cluster_ip: Option<&String>) -> bool {
        let wanted = self.wanted.borrow();
        let wish = wanted.wishes.iter().find(|wish| wish.gateway == *gateway);
        let of_cluster = wish.and_then(|wish| wish.cluster_ip).map(|address| address.to_string());
        of_cluster.as_ref() != cluster_ip
    }

    fn failure(&self, write: &Write, error: &kube::Error) -> ServiceFault {
        let (namespace, name) = &write.place();
        let is_invalid = matches!(error, kube::Error::Api(status) if status.code == 422);
        let error = in_words(error);
        match write {
            Write::Apply { gateway, service, .. } | Write::Replace { gateway, service, .. } => {
                let requested = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_ref());
                if let Some(address) = requested.filter(|_| is_invalid) {
                    let message =
                        format!("Service {namespace}/{name} cannot have the address {address}: {error}");
                    let fault = format!("spec.addresses: {message}");
                    let is_address = self.is_address_of(gateway, requested);
                    return ServiceFault {
                        problem: Problem {
                            field: "spec.addresses".to_owned(),
                            ..problem(gateway, format!("{message}; trying again"))
                        },
                        // For a cluster IP, the condition AddressesAssigned tells the reason.
                        unprogrammed: is_address
                            .then(|| status::Fault::new(status::ADDRESS_NOT_USABLE, fault)),
                    };
                }
                let message = format!(
                    "cannot write Service {namespace}/{name}: {error}; new ports are not served; trying again"
                );
                problem(gateway, message).into()
            }
            Write::Delete { .. } => {
                let service =
                    ObjectRef { kind: Kind::Service, namespace: namespace.clone(), name: name.clone() };
                let message =
                    format!("cannot delete the Service, which no Gateway needs: {error}; trying again");
                problem(&service, message).into()
            }
        }
    }
}

/// Deletes the Service of this name; no error if there is none.
async fn delete(
    services: &Api<v1::Service>,
    name: &str,
    uid: &Option<String>,
    version: &Option<String>,
) -> kube::Result<Option<OfGateway>> {
    let preconditions = Preconditions { uid: uid.clone(), resource_version: version.clone() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match services.delete(name, &params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        deleted => deleted.map(|_| {
            tracing::info!(service = name, "deleted the Service of a Gateway");
            None
        }),
    }
}

/// A Service that has the address of another Service until the other Service exists. It has no labels, so that no watch of
/// Services of Gateways sees it, and no selector.
fn placeholder(service: &v1::Service) -> v1::Service {
    let spec = service.spec.as_ref();
    let port = v1::ServicePort { port: 1, ..v1::ServicePort::default() };
    v1::Service {
        metadata: ObjectMeta {
            name: service.metadata.name.as_deref().map(placeholder_name),
            ..ObjectMeta::default()
        },
        spec: Some(v1::ServiceSpec {
            cluster_ip: spec.and_then(|spec| spec.cluster_ip.clone()),
            ports: Some(vec![port]),
            ..v1::ServiceSpec::default()
        }),
        status: None,
    }
}

/// The name of the placeholder of a Service. Names of Services have at most 63 characters, and the end of a long name is a
/// hash.
fn placeholder_name(service: &str) -> String {
    let end = &service[service.len().saturating_sub(50)..];
    format!("address-{}", end.trim_start_matches('-'))
}
