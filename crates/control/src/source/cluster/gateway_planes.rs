//! The data planes of single Gateways ([`OwnDataPlanes`]): the holder of the Lease creates, updates and deletes their
//! ServiceAccounts and workloads.
//!
//! Both objects of a Gateway are in its namespace and have one name ([`service::own_service`]). The Gateway owns them, so that
//! Kubernetes deletes them with the Gateway. The writer applies an object when it changes, and all objects again after
//! [`RESYNC`], so that changes by others do not last. Server-side apply leaves the fields of others alone, such as the number
//! of replicas. The writer never touches an object of one of these names that is not ours.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::{apps::v1 as apps, core::v1 as core};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch as state;
use tokio::time::sleep;

use super::gateway_services::{FIELD_MANAGER, ServiceFault, Wanted};
use super::until;
use super::watch::in_words;
use crate::frontend::gateway::service::{self, Wish};
use crate::object::{ObjectRef, annotation};
use crate::problem::{Problem, Severity};
use crate::status::{Fault, PENDING};
use crate::store::ServiceRef;
use crate::translate::{DataPlanes, GatewayServices, OwnDataPlanes, TranslateOptions};

/// The annotation of the pods with the CA certificates of the control plane, in PEM. The pods read it as a file.
const AUTHORITIES: &str = "sluicegate.dev/control-plane-ca";

/// The name of the gateway as the writer of the first number of replicas.
const SCALER: &str = "sluicegate-scaler";

/// The time after which all objects are applied again.
const RESYNC: Duration = Duration::from_secs(60);

/// The time between two writes.
const PACE: Duration = Duration::from_millis(20);

/// The first pause after a failed write, and the longest. The pause doubles.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The objects of one list request.
const PAGE: u32 = 500;

/// The CA certificates of the control plane at this time, in PEM.
pub type Authorities = Arc<dyn Fn() -> Vec<u8> + Send + Sync>;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    ServiceAccount,
    Deployment,
    DaemonSet,
}

impl Part {
    const ALL: [Self; 3] = [Self::ServiceAccount, Self::Deployment, Self::DaemonSet];

    fn is_workload(self) -> bool {
        self != Self::ServiceAccount
    }

    fn resource(self) -> ApiResource {
        match self {
            Self::ServiceAccount => ApiResource::erase::<core::ServiceAccount>(&()),
            Self::Deployment => ApiResource::erase::<apps::Deployment>(&()),
            Self::DaemonSet => ApiResource::erase::<apps::DaemonSet>(&()),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::Deployment => "Deployment",
            Self::DaemonSet => "DaemonSet",
        })
    }
}

/// An intended object.
#[derive(Clone, Debug, PartialEq)]
struct Intended {
    part: Part,
    place: ServiceRef,
    gateway: ObjectRef,
    object: Value,
    /// The number of replicas, which only a new object receives.
    replicas: Option<u32>,
    /// Whether the object is created if it does not exist: not for a Gateway that may not change.
    may_create: bool,
}

/// The intended objects of a Gateway, in the order of their writes.
fn intended(
    services: &GatewayServices,
    planes: &OwnDataPlanes,
    authorities: &str,
    wish: &Wish,
) -> [Intended; 2] {
    let place = service::own_service(&wish.gateway);
    let own = service::labels(services, &wish.gateway, DataPlanes::Own);
    let mut labels = wish.labels.clone();
    labels.extend(own.clone());
    let mut annotations = wish.annotations.clone();
    annotations.insert(annotation::GATEWAY.to_owned(), service::annotation(&wish.gateway));
    let metadata = json!({
        "name": place.1, "namespace": place.0, "labels": labels, "annotations": annotations,
        "ownerReferences": wish.owner().into_iter().collect::<Vec<_>>(),
    });
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": false,
    });
    let mut spec = planes.template.spec.clone();
    spec["selector"] = json!({"matchLabels": service::selector(services, &wish.gateway)});
    let pod = &mut spec["template"];
    // The labels of the template select the pods in NetworkPolicies, so labels of the Gateway do not replace them.
    pod["metadata"]["labels"] = merged(json!(wish.labels), &[pod["metadata"]["labels"].take(), json!(own)]);
    let ca = json!({AUTHORITIES: authorities});
    pod["metadata"]["annotations"] =
        merged(pod["metadata"]["annotations"].take(), &[json!(wish.annotations), ca]);
    pod["spec"]["serviceAccountName"] = json!(place.1);
    let (part, replicas) = match planes.template.kind {
        "DaemonSet" => (Part::DaemonSet, None),
        _ => (Part::Deployment, planes.template.replicas),
    };
    let workload =
        json!({"apiVersion": "apps/v1", "kind": planes.template.kind, "metadata": metadata, "spec": spec});
    let object = |part, object, replicas| Intended {
        part,
        place: place.clone(),
        gateway: wish.gateway.clone(),
        object,
        replicas,
        may_create: !wish.ports.is_empty(),
    };
    [object(Part::ServiceAccount, account, None), object(part, workload, replicas)]
}

/// The fields of all objects; the last object has precedence.
fn merged(first: Value, others: &[Value]) -> Value {
    let mut fields = match first {
        Value::Object(fields) => fields,
        _ => serde_json::Map::new(),
    };
    for other in others.iter().filter_map(Value::as_object) {
        fields.extend(other.clone());
    }
    Value::Object(fields)
}

/// The Gateway that an existing object of this place belongs to; `None` for an object that is not ours.
fn owner(services: &GatewayServices, place: &ServiceRef, found: &DynamicObject) -> Option<ObjectRef> {
    let labels = found.metadata.labels.as_ref()?;
    let gateway = service::of_annotation(found.metadata.annotations.as_ref()?.get(annotation::GATEWAY)?)?;
    let is_ours = labels.get(service::LEASE_LABEL) == Some(&service::own_lease(services))
        && service::own_service(&gateway) == *place;
    is_ours.then_some(gateway)
}

/// Writes the objects, while this process holds the Lease. `faults` receives the problems with them. `namespaces` are the
/// namespaces of the Gateways; all, if it is empty.
pub(super) async fn write(
    client: Client,
    options: &TranslateOptions,
    namespaces: &[Arc<str>],
    authorities: Option<Authorities>,
    mut wanted: state::Receiver<Arc<Wanted>>,
    faults: state::Sender<Vec<ServiceFault>>,
    mut holds: state::Receiver<bool>,
) -> std::convert::Infallible {
    let (Some(services), Some(planes), Some(authorities)) =
        (&options.gateway_services, &options.own_data_planes, authorities)
    else {
        return std::future::pending().await;
    };
    loop {
        until(&mut holds, true).await;
        let mut writer = Writer { client: &client, namespaces, services, applied: BTreeMap::new() };
        let writing = async {
            let (mut known, mut delay) = (Vec::new(), RETRY_FIRST);
            let (mut due, mut resync) = (Instant::now(), Instant::now());
            loop {
                let now = wanted.borrow_and_update().clone();
                let authorities = authorities();
                let authorities = String::from_utf8_lossy(&authorities);
                let own = now.wishes.iter().filter(|wish| wish.placement.has_own());
                let intended: Vec<Intended> =
                    own.flat_map(|wish| intended(services, planes, &authorities, wish)).collect();
                if known != intended || due <= Instant::now() {
                    let is_resync = resync <= Instant::now();
                    if is_resync {
                        writer.applied.clear();
                        resync = Instant::now() + RESYNC;
                    }
                    let Pass { problems, is_unfinished } =
                        writer.carry_out(&intended, now.is_complete, &wanted).await;
                    known = intended;
                    let has_failed = !problems.is_empty() || is_unfinished;
                    due = Instant::now() + if has_failed { delay } else { RESYNC };
                    delay = if has_failed { (delay * 2).min(RETRY_MAX) } else { RETRY_FIRST };
                    faults.send_if_modified(|faults| {
                        let is_new = *faults != problems;
                        *faults = problems;
                        is_new
                    });
                }
                tokio::select! {
                    changed = wanted.changed() => if changed.is_err() { return },
                    () = sleep(due.saturating_duration_since(Instant::now())) => {}
                }
            }
        };
        tokio::select! {
            () = writing => {}
            () = until(&mut holds, false) => {}
        }
        faults.send_if_modified(|faults| !std::mem::take(faults).is_empty());
    }
}

struct Writer<'a> {
    client: &'a Client,
    namespaces: &'a [Arc<str>],
    services: &'a GatewayServices,
    /// The last applied object of each kind and place.
    applied: BTreeMap<(Part, ServiceRef), Value>,
}

type Existing = BTreeMap<(Part, ServiceRef), DynamicObject>;

/// The result of the writes for a state of the cluster.
struct Pass {
    problems: Vec<ServiceFault>,
    /// Whether writes are left.
    is_unfinished: bool,
}

/// Whether a pod of a workload is ready.
fn has_ready_pod(workload: &DynamicObject) -> bool {
    let status = &workload.data["status"];
    ["readyReplicas", "numberReady"].iter().any(|field| status[field].as_u64() > Some(0))
}

impl Writer<'_> {
    /// Writes what differs from the last applied objects.
    async fn carry_out(
        &mut self,
        intended: &[Intended],
        is_complete: bool,
        wanted: &state::Receiver<Arc<Wanted>>,
    ) -> Pass {
        let (existing, mut problems) = self.existing().await;
        let mut is_unfinished = false;
        for object in intended {
            // Without its ServiceAccount, a workload has no pods.
            if problems.iter().any(|fault| fault.problem.object.as_ref() == Some(&object.gateway)) {
                continue;
            }
            let key = (object.part, object.place.clone());
            let found = existing.get(&key);
            if found.is_some_and(|found| !self.lacks_replicas(object, found))
                && self.applied.get(&key) == Some(&object.object)
            {
                continue;
            }
            // A newer state is more important than the rest.
            if wanted.has_changed().unwrap_or_default() && !problems.is_empty() {
                return Pass { problems, is_unfinished: true };
            }
            match self.apply(object, found).await {
                Ok(()) => {
                    self.applied.insert(key, object.object.clone());
                }
                Err(fault) => problems.push(fault),
            }
            sleep(PACE).await;
        }
        for ((part, place), found) in &existing {
            let mut at_place = intended.iter().filter(|object| object.place == *place);
            let is_needed = at_place.clone().any(|object| object.part == *part);
            // The pods of another kind of workload first serve in its place.
            let successor =
                at_place.find(|object| *part != Part::ServiceAccount && object.part.is_workload());
            let is_succeeded = successor
                .is_none_or(|object| existing.get(&(object.part, place.clone())).is_some_and(has_ready_pod));
            let is_ours = owner(self.services, place, found).is_some();
            if is_complete && is_ours && !is_needed && found.metadata.deletion_timestamp.is_none() {
                if !is_succeeded {
                    is_unfinished = true;
                    continue;
                }
                self.applied.remove(&(*part, place.clone()));
                problems.extend(self.delete(*part, place, found).await.err());
                sleep(PACE).await;
            }
        }
        Pass { problems, is_unfinished }
    }

    /// Whether a new Deployment has not received its number of replicas.
    fn lacks_replicas(&self, intended: &Intended, found: &DynamicObject) -> bool {
        let by = |manager: &str| {
            let entries = found.metadata.managed_fields.iter().flatten();
            entries.into_iter().any(|entry| entry.manager.as_deref() == Some(manager))
        };
        intended.replicas.is_some_and(|replicas| replicas != 1)
            && found.data["spec"]["replicas"] == 1
            && by(FIELD_MANAGER)
            && !by(SCALER)
    }

    fn api(&self, part: Part, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &part.resource()),
            None => Api::all_with(self.client.clone(), &part.resource()),
        }
    }

    /// All objects with the label of our Lease, and the problems with lists.
    async fn existing(&self) -> (Existing, Vec<ServiceFault>) {
        let namespaces: Vec<Option<&str>> = match self.namespaces {
            [] => vec![None],
            namespaces => namespaces.iter().map(|namespace| Some(&**namespace)).collect(),
        };
        let (mut existing, mut problems) = (BTreeMap::new(), Vec::new());
        for part in Part::ALL {
            for namespace in &namespaces {
                if let Err(error) = self.list(part, *namespace, &mut existing).await {
                    let within =
                        namespace.map(|name| format!(" in the namespace {name}")).unwrap_or_default();
                    let message = format!(
                        "cannot list objects of kind {part}{within}: {}; the data planes of Gateways stay as they are; trying again",
                        in_words(&error)
                    );
                    problems.push(problem(None, message).into());
                }
            }
        }
        (existing, problems)
    }

    async fn list(&self, part: Part, namespace: Option<&str>, existing: &mut Existing) -> kube::Result<()> {
        let label = format!("{}={}", service::LEASE_LABEL, service::own_lease(self.services));
        let mut params = ListParams::default().labels(&label).limit(PAGE);
        loop {
            let page = self.api(part, namespace).list(&params).await?;
            for object in page.items {
                let part_of = |part: &Option<String>| part.as_deref().unwrap_or_default().into();
                let place = (part_of(&object.metadata.namespace), part_of(&object.metadata.name));
                existing.insert((part, place), object);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    async fn apply(&self, intended: &Intended, found: Option<&DynamicObject>) -> Result<(), ServiceFault> {
        let Intended { part, place, gateway, object, replicas, may_create } = intended;
        let (namespace, name) = place;
        let api = self.api(*part, Some(namespace));
        let failed = |error: kube::Error| {
            let message = format!("cannot write {part} {namespace}/{name}: {}", in_words(&error));
            ServiceFault {
                problem: problem(Some(gateway), format!("{message}; trying again")),
                unprogrammed: found.is_none().then(|| Fault::new(PENDING, message)),
            }
        };
        let found = match found {
            // An object without our label is not in the list.
            None => api.get_opt(name).await.map_err(failed)?,
            Some(found) => Some(found.clone()),
        };
        let is_new = found.is_none();
        if is_new && !may_create {
            return Ok(());
        }
        let needs_replicas = found.as_ref().is_none_or(|found| self.lacks_replicas(intended, found));
        if found.is_some_and(|found| owner(self.services, place, &found).as_ref() != Some(gateway)) {
            let message = format!("{part} {namespace}/{name} exists already and is not of this Gateway");
            return Err(ServiceFault {
                problem: problem(
                    Some(gateway),
                    format!("{message}; the Gateway has no data planes. Delete the {part}"),
                ),
                unprogrammed: Some(Fault::new("Invalid", message)),
            });
        }
        let params = PatchParams::apply(FIELD_MANAGER).force();
        api.patch(name, &params, &Patch::Apply(object)).await.map_err(failed)?;
        if is_new {
            tracing::info!(kind = %part, namespace = %namespace, name = %name, %gateway, "created an object of the data planes of a Gateway");
        }
        if let Some(replicas) = replicas.filter(|_| needs_replicas) {
            // Users and autoscalers change the number later. So the applied object does not contain it.
            let scale = json!({"spec": {"replicas": replicas}});
            let params = PatchParams { field_manager: Some(SCALER.to_owned()), ..PatchParams::default() };
            api.patch(name, &params, &Patch::Merge(&scale)).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn delete(
        &self,
        part: Part,
        place: &ServiceRef,
        found: &DynamicObject,
    ) -> Result<(), ServiceFault> {
        let (namespace, name) = place;
        let preconditions = Preconditions { uid: found.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match self.api(part, Some(namespace)).delete(name, &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => {
                let message = format!(
                    "cannot delete {part} {namespace}/{name}, which no Gateway needs: {}; trying again",
                    in_words(&error)
                );
                Err(problem(None, message).into())
            }
            Ok(_) => {
                tracing::info!(kind = %part, namespace = %namespace, name = %name, "deleted an object of the data planes of a Gateway");
                Ok(())
            }
        }
    }
}

fn problem(object: Option<&ObjectRef>, message: String) -> Problem {
    Problem::of_cluster(Severity::Warning, object, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontend::gateway::service::Placement;
    use crate::object::Kind;
    use crate::translate::{ServiceType, WorkloadTemplate};

    const TEMPLATE: &str = r"
apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 3
  template:
    metadata:
      labels: {app: data-plane, team: chart}
      annotations: {note: chart}
    spec: {containers: [{name: sluicegate}]}
";

    fn services() -> GatewayServices {
        GatewayServices {
            namespace: "edge".into(),
            lease: "main".into(),
            service_type: ServiceType::ClusterIp,
            selector: BTreeMap::new(),
            ports: 20000..=29999,
            annotations: BTreeMap::new(),
            load_balancer_class: None,
            external_traffic_policy: None,
        }
    }

    fn objects(template: &str) -> [Intended; 2] {
        let gateway = ObjectRef { kind: Kind::Gateway, namespace: "shop".into(), name: "web".into() };
        let service = service::own_service(&gateway);
        let wish = Wish {
            gateway,
            uid: Some("1".into()),
            placement: Placement { planes: DataPlanes::Own, service, former: None },
            labels: [("team", "shop"), (service::LEASE_LABEL, "other"), ("app", "other")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            annotations: [("note".to_owned(), "shop".to_owned())].into(),
            service_type: ServiceType::ClusterIp,
            load_balancer_class: None,
            external_traffic_policy: None,
            address: None,
            cluster_ip: None,
            ports: std::collections::BTreeSet::new(),
            http3: std::collections::BTreeSet::new(),
        };
        let template = WorkloadTemplate::read(template).expect("a template");
        let planes = OwnDataPlanes { default: DataPlanes::Own, overlap: Duration::ZERO, template };
        intended(&services(), &planes, "-----BEGIN CERTIFICATE-----", &wish)
    }

    #[test]
    fn objects_of_data_planes_have_the_infrastructure_of_their_gateway_which_owns_them() {
        let [account, workload] = objects(TEMPLATE);
        assert_eq!((account.part, workload.part), (Part::ServiceAccount, Part::Deployment));
        for object in [&account.object, &workload.object] {
            let metadata = &object["metadata"];
            assert_eq!(
                (&metadata["name"], &metadata["namespace"]),
                (&json!("web-sluicegate"), &json!("shop"))
            );
            let labels = json!({
                "team": "shop", "app": "other", "gateway.networking.k8s.io/gateway-name": "web",
                "sluicegate.dev/gateway-namespace": "shop", "sluicegate.dev/lease": "edge.main",
            });
            assert_eq!(metadata["labels"], labels);
            assert_eq!(
                metadata["annotations"],
                json!({"note": "shop", "sluicegate.dev/gateway": "shop/web"})
            );
            assert_eq!(metadata["ownerReferences"][0]["uid"], "1");
        }
        assert_eq!(account.object["automountServiceAccountToken"], false);
    }

    #[test]
    fn pods_of_data_planes_are_selected_and_keep_the_labels_of_the_template() {
        let [_, workload] = objects(TEMPLATE);
        let spec = &workload.object["spec"];
        let pod = &spec["template"];
        let labels = pod["metadata"]["labels"].as_object().expect("labels");
        assert_eq!((&labels["app"], &labels["team"]), (&json!("data-plane"), &json!("chart")));
        let selector = spec["selector"]["matchLabels"].as_object().expect("a selector");
        assert!(selector.len() == 2 && selector.iter().all(|(key, value)| labels.get(key) == Some(value)));
        let annotations = json!({"note": "shop", AUTHORITIES: "-----BEGIN CERTIFICATE-----"});
        assert_eq!(pod["metadata"]["annotations"], annotations);
        assert_eq!(pod["spec"]["serviceAccountName"], "web-sluicegate");
    }

    #[test]
    fn number_of_replicas_is_not_among_the_applied_fields() {
        let [_, workload] = objects(TEMPLATE);
        assert_eq!((&workload.object["spec"]["replicas"], workload.replicas), (&Value::Null, Some(3)));
        let [_, each_node] = objects(&TEMPLATE.replace("Deployment", "DaemonSet"));
        assert_eq!((each_node.part, each_node.replicas), (Part::DaemonSet, None));
    }

    #[test]
    fn only_an_object_with_our_lease_and_the_name_of_its_gateway_is_ours() {
        let [account, _] = objects(TEMPLATE);
        let found: DynamicObject = serde_json::from_value(account.object.clone()).expect("an object");
        assert_eq!(owner(&services(), &account.place, &found).as_ref(), Some(&account.gateway));
        let elsewhere = ("shop".into(), "db".into());
        assert_eq!(owner(&services(), &elsewhere, &found), None, "the name of another object");
        for part in ["labels", "annotations"] {
            let mut foreign = account.object.clone();
            foreign["metadata"][part] = json!({});
            let foreign: DynamicObject = serde_json::from_value(foreign).expect("an object");
            assert_eq!(owner(&services(), &account.place, &foreign), None, "without {part}");
        }
    }
}
