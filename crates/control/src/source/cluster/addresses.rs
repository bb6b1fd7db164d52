//! Where clients reach the gateway, for the status of Ingresses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch as state;
use tokio::time::sleep;

use super::status::Board;
use super::watch::in_words;
use crate::problem::Problem;
use crate::translate::ObjectName;

/// The time before what failed is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// Nodes are asked for again after this long: their addresses hardly change.
const NODES_AGAIN: Duration = Duration::from_secs(300);

/// Labels that differ between pods of one gateway.
const OWN_LABELS: [&str; 4] = [
    "pod-template-hash",
    "controller-revision-hash",
    "pod-template-generation",
    "apps.kubernetes.io/pod-index",
];

/// Where the addresses are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// These: IP addresses and host names.
    Fixed(Vec<Box<str>>),
    /// A Service: what its load balancer says, its external addresses, or else its cluster address (ingress-nginx
    /// `publish-service`). While it is missing, or has none of them, the last ones stay: names in DNS that are made of
    /// them must not go because it is deleted by mistake, or made anew and waits for its load balancer.
    Service(ObjectName),
    /// The nodes on which pods like this one are ready: their external addresses, or else their internal ones.
    Nodes {
        /// This pod.
        pod: ObjectName,
    },
}

/// Keeps the board's addresses as they are, until the future is dropped. `lack` is told why there are none.
pub(super) async fn follow(
    client: Client,
    from: &Addresses,
    board: &Board,
    lack: &state::Sender<Option<Problem>>,
) {
    match from {
        Addresses::Fixed(addresses) => board.set_addresses(addresses.clone()),
        Addresses::Service(name) => {
            let api: Api<Service> = Api::namespaced(client, &name.namespace);
            let config = watcher::Config::default().fields(&format!("metadata.name={}", name.name));
            watch(api, config, |services: &BTreeMap<String, Service>| {
                let found = addresses_of(name, services.values().next());
                let fault = found.as_ref().err();
                let problem = fault.map(|fault| Problem::of_option("--publish-service", fault.clone()));
                lack.send_if_modified(|lack| std::mem::replace(lack, problem.clone()) != problem);
                if let Ok(addresses) = found {
                    board.set_addresses(addresses);
                }
            })
            .await;
        }
        Addresses::Nodes { pod } => of_nodes(client, pod, board).await,
    }
}

/// Follows a few objects, and gives all of them away whenever one changes.
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
                tracing::debug!(%error, "the addresses of the gateway cannot be asked for");
                sleep(RETRY).await;
            }
        }
    }
}

/// The addresses of the Service of this name, or why there are none.
fn addresses_of(name: &ObjectName, service: Option<&Service>) -> Result<Vec<Box<str>>, String> {
    let lacks = |what| {
        let ObjectName { namespace, name } = name;
        format!(
            "Service {namespace}/{name} {what}: Ingresses keep the addresses that they have in their status"
        )
    };
    let service = service.ok_or_else(|| lacks("does not exist"))?;
    let addresses = of_service(service);
    if addresses.is_empty() { Err(lacks("has no address yet")) } else { Ok(addresses) }
}

fn of_service(service: &Service) -> Vec<Box<str>> {
    let spec = service.spec.clone().unwrap_or_default();
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    let of_balancer = ingress.filter_map(|ingress| ingress.ip.clone().or(ingress.hostname.clone()));
    let mut addresses: Vec<String> = of_balancer.chain(spec.external_ips.unwrap_or_default()).collect();
    match spec.type_.as_deref() {
        Some("ExternalName") => addresses.extend(spec.external_name),
        // Until its load balancer has an address, nobody can come.
        Some("LoadBalancer") => {}
        _ if addresses.is_empty() => {
            addresses.extend(spec.cluster_ip.filter(|address| address != "None" && !address.is_empty()));
        }
        _ => {}
    }
    addresses.into_iter().map(Into::into).collect()
}

async fn of_nodes(client: Client, pod: &ObjectName, board: &Board) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let mut has_failed = false;
    let own = loop {
        match pods.get(&pod.name).await {
            Ok(own) => break own,
            Err(error) if !has_failed => {
                has_failed = true;
                tracing::warn!(pod = %pod.name, namespace = %pod.namespace, error = in_words(&error),
                    "this pod cannot be asked for, so there are no addresses for the status of Ingresses; it is tried again");
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
                        tracing::debug!(node = name, %error, "a node cannot be asked for its addresses");
                    }
                }
            }
            // None is none that is ready yet, as at the start.
            if !has_failed && !addresses.is_empty() {
                board.set_addresses(addresses);
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

    fn service(value: Value) -> Vec<Box<str>> {
        of_service(&serde_json::from_value(value).expect("a Service"))
    }

    #[test]
    fn a_service_is_reached_by_its_load_balancer_else_by_itself() {
        let balancer =
            json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "lb.example"}]}});
        let balanced = json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}, "status": balancer});
        assert_eq!(service(balanced), ["192.0.2.1".into(), "lb.example".into()]);
        let pending = json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}});
        assert!(service(pending).is_empty());
        let external =
            json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "externalIPs": ["192.0.2.7"]}});
        assert_eq!(service(external), ["192.0.2.7".into()]);
        assert_eq!(
            service(json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1"}})),
            ["10.0.0.1".into()]
        );
        assert!(service(json!({"spec": {"clusterIP": "None"}})).is_empty());
    }

    #[test]
    fn a_service_that_is_missing_or_waits_for_its_load_balancer_is_a_problem() {
        let name = ObjectName { namespace: "edge".into(), name: "gate".into() };
        let told = |service: Option<&Service>| addresses_of(&name, service);
        let says = |what| {
            format!("Service edge/gate {what}: Ingresses keep the addresses that they have in their status")
        };
        assert_eq!(told(None), Err(says("does not exist")));
        let mut service: Service =
            serde_json::from_value(json!({"spec": {"type": "LoadBalancer"}})).expect("a Service");
        assert_eq!(told(Some(&service)), Err(says("has no address yet")));
        service.spec.get_or_insert_default().external_ips = Some(vec!["192.0.2.7".to_owned()]);
        assert_eq!(told(Some(&service)), Ok(vec!["192.0.2.7".into()]));
    }

    #[test]
    fn a_node_is_reached_from_outside_where_it_can_be() {
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
