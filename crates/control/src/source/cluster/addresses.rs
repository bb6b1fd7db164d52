//! The addresses at which clients reach the gateway, for the status of Ingresses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch as state;
use tokio::time::sleep;

use super::status::StatusBoard;
use super::watch::in_words;
use crate::object::{Kind, service};
use crate::problem::{Problem, Severity};
use crate::translate::ObjectName;

/// The time before a retry.
const RETRY: Duration = Duration::from_secs(2);

/// The time between two look-ups of nodes: their addresses hardly change.
const NODES_AGAIN: Duration = Duration::from_secs(300);

/// Labels that differ between pods of the same gateway.
const OWN_LABELS: [&str; 4] = [
    "pod-template-hash",
    "controller-revision-hash",
    "pod-template-generation",
    "apps.kubernetes.io/pod-index",
];

/// The source of the addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Fixed IP addresses and host names.
    Fixed(Vec<Box<str>>),
    /// A Service: the addresses of its load balancer, its external addresses, or else its cluster address
    /// (ingress-nginx `publish-service`). While the Service is missing or has no address, the last addresses stay. DNS
    /// names that depend on them must survive a Service that is deleted by mistake, or that is created anew and waits
    /// for its load balancer.
    Service(ObjectName),
    /// The nodes on which pods like this one are ready: their external addresses, or else their internal ones.
    Nodes {
        /// This pod.
        pod: ObjectName,
    },
    /// A Service as in [`Service`](Self::Service), and [`Nodes`](Self::Nodes) until the Service has an address: a load
    /// balancer may never have an address if pods use the network of nodes.
    ServiceElseNodes {
        /// The Service.
        service: ObjectName,
        /// This pod.
        pod: ObjectName,
    },
}

/// Updates the board's addresses until the future is dropped. `lack` receives the reason for missing addresses.
pub(super) async fn follow(
    client: Client,
    from: &Addresses,
    board: &StatusBoard,
    lack: &state::Sender<Option<Problem>>,
) {
    match from {
        Addresses::Fixed(addresses) => board.set_addresses(addresses.clone()),
        Addresses::Service(name) => {
            let tell = |problem: Option<Problem>| {
                lack.send_if_modified(|lack| std::mem::replace(lack, problem.clone()) != problem);
            };
            of_balancer(client, name, |found| match found {
                Ok(addresses) => {
                    tell(None);
                    board.set_addresses(addresses);
                }
                Err(fault) => tell(Some(lacks(name, &fault, AddressFallback::Kept))),
            })
            .await;
        }
        Addresses::Nodes { pod } => of_nodes(client, pod, |addresses| board.set_addresses(addresses)).await,
        Addresses::ServiceElseNodes { service, pod } => {
            let choice = Mutex::new(Choice::default());
            let choose = |change: &dyn Fn(&mut Choice)| {
                let mut choice = choice.lock().unwrap_or_else(PoisonError::into_inner);
                change(&mut choice);
                let problem = choice.fault.as_ref().map(|fault| lacks(service, fault, choice.consequence()));
                lack.send_if_modified(|lack| std::mem::replace(lack, problem.clone()) != problem);
                if let Some(addresses) = choice.addresses() {
                    board.set_addresses(addresses.to_vec());
                }
            };
            let of_service = of_balancer(client.clone(), service, |found| {
                choose(&|choice| choice.set_service(found.clone()));
            });
            let of_nodes =
                of_nodes(client, pod, |addresses| choose(&|choice| choice.set_nodes(addresses.clone())));
            tokio::join!(of_service, of_nodes);
        }
    }
}

/// The addresses of a Service, or else of nodes.
#[derive(Debug, Default)]
struct Choice {
    /// `false` until the Service is known.
    is_known: bool,
    service: Vec<Box<str>>,
    nodes: Vec<Box<str>>,
    /// The reason why the Service has no address now.
    fault: Option<String>,
}

impl Choice {
    /// A Service that loses its addresses keeps the last addresses, so that DNS names stay.
    fn set_service(&mut self, found: Result<Vec<Box<str>>, String>) {
        self.is_known = true;
        match found {
            Ok(addresses) => (self.service, self.fault) = (addresses, None),
            Err(fault) => self.fault = Some(fault),
        }
    }

    fn set_nodes(&mut self, addresses: Vec<Box<str>>) {
        self.nodes = addresses;
    }

    /// `None` while Ingresses should keep their addresses.
    fn addresses(&self) -> Option<&[Box<str>]> {
        let addresses = if self.service.is_empty() { &self.nodes } else { &self.service };
        (self.is_known && !addresses.is_empty()).then_some(addresses)
    }

    fn consequence(&self) -> AddressFallback {
        if self.service.is_empty() { AddressFallback::NodeAddresses } else { AddressFallback::Kept }
    }
}

/// The consequence of a Service without an address for the status of Ingresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressFallback {
    /// Ingresses keep their addresses.
    Kept,
    /// Ingresses receive the addresses of the nodes.
    NodeAddresses,
}

/// The reason why a Service has no address, for the log and for an Event about the Service.
fn lacks(name: &ObjectName, fault: &str, consequence: AddressFallback) -> Problem {
    let (severity, then) = match consequence {
        AddressFallback::Kept => (Severity::Warning, "the status of Ingresses keeps its addresses"),
        AddressFallback::NodeAddresses => (
            Severity::Note,
            "the status of Ingresses has the addresses of the nodes until the Service has an address",
        ),
    };
    let problem = Problem::of_option("--publish-service", format!("{fault}; {then}"));
    Problem { severity, object: Some(name.of(Kind::Service)), ..problem }
}

/// Follows the addresses of a Service, or the reason why there are none.
async fn of_balancer(
    client: Client,
    name: &ObjectName,
    mut changed: impl FnMut(Result<Vec<Box<str>>, String>),
) {
    let api: Api<Service> = Api::namespaced(client, &name.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", name.name));
    watch(api, config, |services: &BTreeMap<String, Service>| {
        changed(addresses_of(services.values().next()));
    })
    .await;
}

/// Follows a few objects, and passes all of them on whenever one changes.
async fn watch<K>(api: Api<K>, config: watcher::Config, mut changed: impl FnMut(&BTreeMap<String, K>))
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut known = BTreeMap::new();
    let mut listed = BTreeMap::new();
    let mut events = std::pin::pin!(watcher::watcher(api, config));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.insert(object.meta().name.clone().unwrap_or_default(), object);
            }
            Ok(Event::InitDone) => {
                known = std::mem::take(&mut listed);
                changed(&known);
            }
            Ok(Event::Apply(object)) => {
                known.insert(object.meta().name.clone().unwrap_or_default(), object);
                changed(&known);
            }
            Ok(Event::Delete(object)) => {
                known.remove(object.meta().name.as_deref().unwrap_or_default());
                changed(&known);
            }
            Err(error) => {
                tracing::debug!(%error, "cannot read the addresses of the gateway; trying again");
                sleep(RETRY).await;
            }
        }
    }
}

/// The addresses of a Service, or the reason why there are none.
fn addresses_of(service: Option<&Service>) -> Result<Vec<Box<str>>, String> {
    let service = service.ok_or("does not exist")?;
    let addresses = service::addresses(service);
    if addresses.is_empty() { Err("has no address yet".to_owned()) } else { Ok(addresses) }
}

async fn of_nodes(client: Client, pod: &ObjectName, changed: impl Fn(Vec<Box<str>>)) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let mut has_failed = false;
    let own = loop {
        match pods.get(&pod.name).await {
            Ok(own) => break own,
            Err(error) if !has_failed => {
                has_failed = true;
                tracing::warn!(pod = %pod.name, namespace = %pod.namespace, error = in_words(&error),
                    "cannot read this pod, so the status of Ingresses gets no addresses; trying again");
            }
            Err(_) => {}
        }
        sleep(RETRY).await;
    };
    let labels = own.metadata.labels.unwrap_or_default().into_iter();
    let labels = labels.filter(|(name, _)| !OWN_LABELS.contains(&&**name));
    let selector: Vec<String> = labels.map(|(name, value)| format!("{name}={value}")).collect();
    let (nodes, mut wanted) = state::channel(BTreeSet::new());
    let following = watch(pods, watcher::Config::default().labels(&selector.join(",")), |pods| {
        nodes.send_replace(pods.values().filter(|pod| is_ready(pod)).filter_map(node).collect());
    });
    let asking = async {
        let api: Api<Node> = Api::all(client);
        loop {
            let names = wanted.borrow_and_update().clone();
            let mut addresses = Vec::new();
            let mut has_failed = false;
            for name in &names {
                match api.get(name).await {
                    Ok(node) => addresses.extend(of_node(&node)),
                    Err(error) => {
                        has_failed = true;
                        tracing::debug!(node = name, %error, "cannot read the addresses of a node; trying again");
                    }
                }
            }
            // No addresses means that no node is ready yet, such as at the start.
            if !has_failed && !addresses.is_empty() {
                changed(addresses);
            }
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() { return },
                () = sleep(if has_failed { RETRY } else { NODES_AGAIN }) => {}
            }
        }
    };
    tokio::join!(following, asking);
}

fn node(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is_ready = conditions.into_iter().flatten().any(|is| is.type_ == "Ready" && is.status == "True");
    is_ready && pod.metadata.deletion_timestamp.is_none()
}

fn of_node(node: &Node) -> Vec<Box<str>> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let of = |kind: &str| -> Vec<Box<str>> {
        let addresses = addresses.into_iter().flatten().filter(|address| address.type_ == kind);
        addresses.map(|address| address.address.as_str().into()).collect()
    };
    let external = of("ExternalIP");
    if external.is_empty() { of("InternalIP") } else { external }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of_service(value: Value) -> Vec<Box<str>> {
        service::addresses(&serde_json::from_value(value).expect("a Service"))
    }

    #[test]
    fn load_balancer_addresses_have_precedence_over_external_and_cluster_ips() {
        let balancer =
            json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "lb.example"}]}});
        let balanced = json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}, "status": balancer});
        assert_eq!(of_service(balanced), ["192.0.2.1".into(), "lb.example".into()]);
        let pending = json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}});
        assert!(of_service(pending).is_empty());
        let external =
            json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "externalIPs": ["192.0.2.7"]}});
        assert_eq!(of_service(external), ["192.0.2.7".into()]);
        assert_eq!(
            of_service(json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1"}})),
            ["10.0.0.1".into()]
        );
        assert!(of_service(json!({"spec": {"clusterIP": "None"}})).is_empty());
    }

    #[test]
    fn missing_service_or_load_balancer_without_an_address_is_reported() {
        let name = ObjectName { namespace: "edge".into(), name: "gate".into() };
        let told = |service: Option<&Service>| {
            addresses_of(service).map_err(|fault| lacks(&name, &fault, AddressFallback::Kept).to_string())
        };
        let says = |what| {
            format!(
                "--publish-service: Service edge/gate: {what}; the status of Ingresses keeps its addresses"
            )
        };
        assert_eq!(told(None), Err(says("does not exist")));
        let mut service: Service =
            serde_json::from_value(json!({"spec": {"type": "LoadBalancer"}})).expect("a Service");
        assert_eq!(told(Some(&service)), Err(says("has no address yet")));
        service.spec.get_or_insert_default().external_ips = Some(vec!["192.0.2.7".to_owned()]);
        assert_eq!(told(Some(&service)), Ok(vec!["192.0.2.7".into()]));
    }

    #[test]
    fn node_addresses_are_published_until_the_service_has_an_address() {
        let mut choice = Choice::default();
        choice.set_nodes(vec!["198.51.100.1".into()]);
        assert_eq!(choice.addresses(), None, "the Service may have one");
        choice.set_service(Err("has no address yet".to_owned()));
        assert_eq!(choice.addresses(), Some(&["198.51.100.1".into()][..]));
        let name = ObjectName { namespace: "edge".into(), name: "gate".into() };
        let problem = lacks(&name, "has no address yet", choice.consequence());
        assert_eq!(problem.severity, Severity::Note);
        assert!(problem.message.contains("has the addresses of the nodes until"), "{problem}");
        choice.set_service(Ok(vec!["192.0.2.7".into()]));
        assert_eq!(choice.addresses(), Some(&["192.0.2.7".into()][..]));
        choice.set_nodes(vec!["198.51.100.2".into()]);
        choice.set_service(Err("does not exist".to_owned()));
        assert_eq!(choice.addresses(), Some(&["192.0.2.7".into()][..]), "names in DNS stay");
        assert_eq!(choice.consequence(), AddressFallback::Kept);
    }

    #[test]
    fn external_ip_of_a_node_has_precedence_over_its_internal_ip() {
        let node = |kinds: &[&str]| {
            let addresses: Vec<Value> = kinds
                .iter()
                .enumerate()
                .map(|(nth, kind)| json!({"type": kind, "address": format!("192.0.2.{nth}")}))
                .collect();
            of_node(&serde_json::from_value(json!({"status": {"addresses": addresses}})).expect("a Node"))
        };
        assert_eq!(node(&["InternalIP", "ExternalIP", "Hostname"]), ["192.0.2.1".into()]);
        assert_eq!(node(&["InternalIP", "Hostname"]), ["192.0.2.0".into()]);
    }
}
