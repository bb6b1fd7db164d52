//! Tests of the plans of writes.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::*;
use crate::frontend::gateway::service::Placement;
use crate::translate::ServiceType;

fn planner(last: u16) -> Planner {
    let options = GatewayServices {
        namespace: "edge".into(),
        lease: "sluicegate".into(),
        service_type: ServiceType::LoadBalancer,
        selector: [("app".to_owned(), "sluicegate".to_owned())].into(),
        ports: 20000..=last,
        annotations: [("a".to_owned(), "chart".to_owned()), ("b".to_owned(), "chart".to_owned())].into(),
        load_balancer_class: None,
        external_traffic_policy: Some("Local".to_owned()),
    };
    Planner {
        options,
        reserved: Vec::new(),
        overlap: Duration::ZERO,
        succeeded: BTreeMap::new(),
        done: BTreeMap::new(),
    }
}

fn gateway(name: &str) -> ObjectRef {
    ObjectRef { kind: Kind::Gateway, namespace: "shop".into(), name: name.into() }
}

fn wish(name: &str, ports: &[u16]) -> Wish {
    let service = ("edge".into(), service::name(&gateway(name)).into());
    Wish {
        gateway: gateway(name),
        uid: Some("1".into()),
        placement: Placement { planes: DataPlanes::Shared, service, former: None },
        labels: [("team".to_owned(), "shop".to_owned())].into(),
        annotations: [("b".to_owned(), "gateway".to_owned())].into(),
        service_type: ServiceType::LoadBalancer,
        load_balancer_class: None,
        external_traffic_policy: Some("Local".to_owned()),
        address: None,
        cluster_ip: None,
        ports: ports.iter().map(|port| (IpProtocol::Tcp, *port)).collect(),
        http3: BTreeSet::new(),
    }
}

fn wanted<'a>(
    wishes: impl IntoIterator<Item = &'a Wish>,
    services: impl IntoIterator<Item = &'a v1::Service>,
) -> Wanted {
    let known = services.into_iter().map(|service| {
        let ObjectMeta { namespace, name, .. } = &service.metadata;
        let place =
            (namespace.as_deref().expect("a namespace").into(), name.as_deref().expect("a name").into());
        (place, OfGateway::of(service).map(Arc::new))
    });
    Wanted {
        wishes: wishes.into_iter().cloned().collect(),
        services: known.collect(),
        serving: BTreeSet::new(),
        is_complete: true,
    }
}

/// The Service as the API server would store it after this write.
fn stored(write: &Write, version: &str) -> v1::Service {
    let Write::Apply { service, .. } = write else { panic!("not applied: {write:?}") };
    let mut stored = (**service).clone();
    let fields = fields(&serde_json::to_value(&stored).expect("JSON"));
    stored.metadata.resource_version = Some(version.to_owned());
    stored.metadata.uid = Some("1".to_owned());
    stored.metadata.managed_fields = Some(vec![
        serde_json::from_value(json!({
            "manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        }))
        .expect("an entry"),
    ]);
    let spec = stored.spec.as_mut().expect("a specification");
    spec.cluster_ip = Some("10.0.0.1".to_owned());
    for port in spec.ports.iter_mut().flatten() {
        port.node_port = Some(30000);
    }
    stored
}

/// `fieldsV1` of a Service, as an API server writes it.
fn fields(service: &Value) -> Value {
    fn names<'v>(value: &'v Value, field: &'v str) -> Map<String, Value> {
        let names = value[field].as_object().into_iter().flatten();
        names.map(|(name, _)| (format!("f:{name}"), json!({}))).chain([(".".to_owned(), json!({}))]).collect()
    }
    let ports = service["spec"]["ports"].as_array().expect("ports").iter().map(|port| {
        let key = format!("k:{{\"port\":{},\"protocol\":{}}}", port["port"], port["protocol"]);
        let port = json!({".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}});
        (key, port)
    });
    let mut spec = json!({"f:type": {}, "f:selector": {}, "f:externalTrafficPolicy": {}});
    if service["spec"]["loadBalancerIP"].is_string() {
        spec["f:loadBalancerIP"] = json!({});
    }
    spec["f:ports"] = Value::Object(ports.collect());
    let metadata = &service["metadata"];
    json!({
        "f:metadata": {"f:labels": names(metadata, "labels"), "f:annotations": names(metadata, "annotations")},
        "f:spec": spec,
    })
}

fn applied(plan: &Plan) -> Vec<v1::Service> {
    let services = plan.writes.iter().map(|write| stored(write, "1"));
    services.collect()
}

fn targets(service: &v1::Service) -> BTreeMap<(IpProtocol, u16), u16> {
    OfGateway::of(service).expect("of a Gateway").targets
}

#[test]
fn service_of_a_gateway_has_its_ports_labels_and_annotations_and_selects_the_data_plane() {
    let plan = planner(29999).plan(&wanted(&[wish("web", &[80, 443])], &[]));
    let [Write::Apply { service, version: None, .. }] = &plan.writes[..] else { panic!("{plan:?}") };
    let service = serde_json::to_value(service).expect("JSON");
    let own = json!({
        "team": "shop", "gateway.networking.k8s.io/gateway-name": "web",
        "sluicegate.dev/gateway-namespace": "shop", "sluicegate.dev/lease": "sluicegate",
    });
    assert_eq!((&service["metadata"]["name"], &service["metadata"]["labels"]), (&json!("shop-web"), &own));
    let annotations = json!({"a": "chart", "b": "gateway", "sluicegate.dev/gateway": "shop/web"});
    assert_eq!(service["metadata"]["annotations"], annotations);
    assert_eq!(service["spec"]["selector"], json!({"app": "sluicegate"}));
    assert_eq!(service["spec"]["type"], "LoadBalancer");
    let names: Vec<&Value> =
        service["spec"]["ports"].as_array().expect("ports").iter().map(|port| &port["name"]).collect();
    assert_eq!(names, ["tcp-80", "tcp-443"]);
}

#[test]
fn target_ports_stay_when_gateways_and_listeners_come_and_go() {
    let (mut one, mut two) = (wish("one", &[80, 443]), wish("two", &[80]));
    // So few ports that the choices of a new port collide.
    let mut planner = planner(20005);
    let first = applied(&planner.plan(&wanted([&one, &two], &[])));
    let given = |services: &[v1::Service]| services.iter().flat_map(targets).collect::<Vec<_>>();
    let distinct: HashSet<u16> = given(&first).into_iter().map(|(_, target)| target).collect();
    assert_eq!(distinct.len(), 3);
    // Another order and a new Gateway in front.
    let zero = wish("zero", &[80, 81]);
    let plan = planner.plan(&wanted([&zero, &two, &one], &first));
    let [new] = &applied(&plan)[..] else { panic!("{plan:?}") };
    assert!(targets(new).values().all(|target| !distinct.contains(target)));
    // A new listener, and one listener less.
    one.ports = [(IpProtocol::Tcp, 443), (IpProtocol::Udp, 443)].into();
    two.ports.insert((IpProtocol::Tcp, 8080));
    let known = [first.clone(), vec![new.clone()]].concat();
    let plan = planner.plan(&wanted(&[zero, two, one], &known));
    let changed = applied(&plan);
    let (two, one) = (targets(&changed[0]), targets(&changed[1]));
    assert_eq!(two[&(IpProtocol::Tcp, 80)], targets(&first[1])[&(IpProtocol::Tcp, 80)]);
    assert_eq!(one[&(IpProtocol::Tcp, 443)], targets(&first[0])[&(IpProtocol::Tcp, 443)]);
    assert_eq!((two.len(), one.len()), (2, 2));
    assert_ne!(one[&(IpProtocol::Tcp, 443)], one[&(IpProtocol::Udp, 443)]);
}

#[test]
fn service_leads_udp_to_the_https_port_for_http3_until_a_listener_takes_the_udp_port() {
    let mut planner = planner(29999);
    let mut web = wish("web", &[80, 443]);
    web.http3 = [443].into();
    let plan = planner.plan(&wanted([&web], &[]));
    let [service] = &applied(&plan)[..] else { panic!("{plan:?}") };
    let ports = |service: &v1::Service| -> Vec<(String, String, i32)> {
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let target = |port: &v1::ServicePort| match port.target_port {
            Some(IntOrString::Int(target)) => target,
            _ => 0,
        };
        ports
            .map(|of| {
                (of.name.clone().unwrap_or_default(), of.protocol.clone().unwrap_or_default(), target(of))
            })
            .collect()
    };
    let [(_, _, _), (tcp, _, target), (http3, protocol, same)] = &ports(service)[..] else {
        panic!("{service:?}")
    };
    assert_eq!((&**tcp, &**http3, &**protocol), ("tcp-443", "http3-443", "UDP"));
    assert_eq!(target, same);
    assert_eq!(targets(service).len(), 2, "listeners for UDP do not find the port for HTTP/3");
    assert_eq!(planner.plan(&wanted([&web], [service])).writes, []);
    // A listener for UDP takes the port.
    web.ports.insert((IpProtocol::Udp, 443));
    web.http3.clear();
    let plan = planner.plan(&wanted([&web], [service]));
    let [changed] = &applied(&plan)[..] else { panic!("{plan:?}") };
    let [_, (_, _, tcp), (name, _, udp)] = &ports(changed)[..] else { panic!("{changed:?}") };
    assert_eq!((&**name, tcp), ("udp-443", target), "the TCP port stays");
    assert_ne!(udp, target);
}

#[test]
fn service_as_intended_is_not_written_again_and_every_difference_is() {
    let mut planner = planner(29999);
    let web = wish("web", &[80]);
    let plan = planner.plan(&wanted([&web], &[]));
    let [service] = &applied(&plan)[..] else { panic!("{plan:?}") };
    assert_eq!(planner.plan(&wanted([&web], [service])).writes, []);
    let is_written = |planner: &mut Planner, wish: &Wish, change: &dyn Fn(&mut v1::Service)| {
        let mut service = service.clone();
        change(&mut service);
        let plan = planner.plan(&wanted([wish], &[service]));
        matches!(&plan.writes[..], [Write::Apply { version: Some(_), .. }])
    };
    let spec = |service: &mut v1::Service| service.spec.clone().expect("a specification");
    // Of another writer.
    assert!(!is_written(&mut planner, &web, &|service| {
        service.metadata.labels.get_or_insert_default().insert("theirs".into(), "x".into());
    }));
    assert!(is_written(&mut planner, &web, &|service| {
        service.metadata.labels.get_or_insert_default().insert("team".into(), "x".into());
    }));
    assert!(is_written(&mut planner, &web, &|service| {
        let selector = [("app".to_owned(), "other".to_owned())].into();
        service.spec = Some(v1::ServiceSpec { selector: Some(selector), ..spec(service) });
    }));
    assert!(is_written(&mut planner, &web, &|service| {
        service.spec = Some(v1::ServiceSpec { ports: None, ..spec(service) });
    }));
    // A label that the Gateway no longer has.
    let bare = Wish { labels: BTreeMap::new(), ..web.clone() };
    assert!(is_written(&mut planner, &bare, &|_| {}));
    let address = Some("192.0.2.1".parse().expect("an address"));
    assert!(is_written(&mut planner, &Wish { address, ..web }, &|_| {}));
}

#[test]
fn service_of_another_origin_is_neither_adopted_nor_deleted() {
    let mut planner = planner(29999);
    let web = wish("web", &[80]);
    let plan = planner.plan(&wanted([&web], &[]));
    let [ours] = &applied(&plan)[..] else { panic!("{plan:?}") };
    let without_annotation = {
        let mut service = ours.clone();
        service.metadata.annotations = None;
        service
    };
    let of_another_gateway = {
        let mut service = ours.clone();
        let annotations = service.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::GATEWAY.into(), "shop/other".into());
        service
    };
    let of_another_lease = {
        let mut service = ours.clone();
        service.metadata.labels.get_or_insert_default().insert(service::LEASE_LABEL.into(), "b".into());
        service
    };
    for service in [&without_annotation, &of_another_gateway, &of_another_lease] {
        assert_eq!(planner.plan(&wanted([&web], [service])).writes, []);
    }
    for service in [&without_annotation, &of_another_lease] {
        assert_eq!(planner.plan(&wanted(&[], [service])).writes, []);
    }
}

#[test]
fn port_without_a_listener_stays_while_not_all_gateways_and_listener_sets_are_known() {
    let mut planner = planner(29999);
    let services = applied(&planner.plan(&wanted(&[wish("web", &[80, 443])], &[])));
    let less = wanted(&[wish("web", &[80])], &services);
    let [service] = &applied(&planner.plan(&less))[..] else { panic!("no write") };
    assert_eq!(targets(service).keys().map(|(_, port)| *port).collect::<Vec<_>>(), [80]);
    assert_eq!(planner.plan(&Wanted { is_complete: false, ..less }).writes, []);
}

#[test]
fn service_is_deleted_only_if_all_gateways_are_known_and_its_gateway_is_gone() {
    let mut planner = planner(29999);
    let web = wish("web", &[80]);
    let services = applied(&planner.plan(&wanted([&web], &[])));
    let deleted = planner.plan(&wanted(&[], &services)).writes;
    let [Write::Delete { service: (_, name), version: Some(_), uid: Some(_) }] = &deleted[..] else {
        panic!("{deleted:?}")
    };
    assert_eq!(&**name, "shop-web");
    let unknown = Wanted { is_complete: false, ..wanted(&[], &services) };
    assert_eq!(planner.plan(&unknown).writes, []);
    // A Gateway whose listeners all have errors keeps its Service, and the ports of its Service.
    let faulty = Wish { ports: BTreeSet::new(), ..web };
    assert_eq!(planner.plan(&wanted([&faulty], &services)).writes, []);
    let taken = targets(&services[0])[&(IpProtocol::Tcp, 80)];
    planner.options.ports = taken..=taken;
    let plan = planner.plan(&wanted(&[faulty, wish("new", &[80])], &services));
    assert!(plan.writes.is_empty() && plan.problems.len() == 1, "{plan:?}");
}

#[test]
fn ports_of_the_data_plane_that_run_out_or_serve_otherwise_are_not_given() {
    let mut planner = planner(20002);
    planner.reserved = vec![20001];
    let plan = planner.plan(&wanted(&[wish("web", &[80, 81, 82])], &[]));
    let given: Vec<u16> = applied(&plan).iter().flat_map(targets).map(|(_, target)| target).collect();
    assert!(given.len() == 2 && given.contains(&20000) && given.contains(&20002), "{given:?}");
    let [problem] = &plan.problems[..] else { panic!("{:?}", plan.problems) };
    assert!(problem.to_string().contains("no port of the data plane is left for TCP port 82"), "{problem}");
}

#[test]
fn completed_write_counts_until_the_watch_reports_the_service() {
    let mut planner = planner(20001);
    let (one, two) = (wish("one", &[80]), wish("two", &[80]));
    let plan = planner.plan(&wanted([&one], &[]));
    let written = stored(&plan.writes[0], "5");
    let complete = |planner: &mut Planner, write: Write, after: Option<&v1::Service>| {
        let after = after.and_then(OfGateway::of).map(Arc::new);
        let done = Done { after, since: Instant::now(), is_reported: false, write: write.clone() };
        planner.done.insert(write.place(), done);
    };
    complete(&mut planner, plan.writes[0].clone(), Some(&written));
    // The watch lags behind, and a Gateway with precedence arrives.
    let plan = planner.plan(&wanted([&two, &one], &[]));
    let [write] = &plan.writes[..] else { panic!("{plan:?}") };
    assert_eq!(&*write.place().1, "shop-two");
    let taken = targets(&written)[&(IpProtocol::Tcp, 80)];
    assert_ne!(targets(&stored(write, "6"))[&(IpProtocol::Tcp, 80)], taken);
    // The watch reports the Service, and later its deletion by another client.
    assert_eq!(planner.plan(&wanted([&one], [&written])).writes, []);
    let plan = planner.plan(&wanted([&one], &[]));
    assert_eq!(
        plan.writes.iter().map(Write::place).collect::<Vec<_>>(),
        [("edge".into(), "shop-one".into())]
    );
    // A field that the API server completes in its own way causes one write, not one write after another.
    let mut odd = written;
    odd.metadata.resource_version = Some("7".to_owned());
    odd.metadata.managed_fields = None;
    let plan = planner.plan(&wanted([&one], [&odd]));
    complete(&mut planner, plan.writes[0].clone(), Some(&odd));
    assert_eq!(planner.plan(&wanted(&[one], &[odd])).writes, []);
}

#[test]
fn service_with_another_cluster_ip_than_requested_is_replaced() {
    let mut planner = planner(29999);
    let web = Wish { service_type: ServiceType::ClusterIp, ..wish("web", &[80]) };
    let fixed = |address: &str| Wish { address: address.parse().ok(), ..web.clone() };
    let plan = planner.plan(&wanted([&fixed("10.0.0.1")], &[]));
    let [Write::Apply { service, version: None, .. }] = &plan.writes[..] else { panic!("{plan:?}") };
    let cluster_ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.clone());
    assert_eq!(cluster_ip.as_deref(), Some("10.0.0.1"));
    // `stored` gives this address.
    let current = &applied(&planner.plan(&wanted([&web], &[])))[..];
    let plan = planner.plan(&wanted([&fixed("10.0.0.1")], current));
    assert!(matches!(&plan.writes[..], [Write::Apply { version: Some(_), .. }]), "{plan:?}");
    let plan = planner.plan(&wanted([&fixed("10.0.0.2")], current));
    let [Write::Replace { uid: Some(_), version: Some(_), .. }] = &plan.writes[..] else {
        panic!("{plan:?}")
    };
    let mut deleted = current[0].clone();
    deleted.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(planner.plan(&wanted([&fixed("10.0.0.2")], [&deleted])).writes, []);
    // Without a requested address, the Service keeps its address.
    assert_eq!(planner.plan(&wanted([&web], current)).writes, []);
}

/// A wish for data planes of its own. `former`: the Gateway had shared data planes before.
fn own_wish(name: &str, former: bool) -> Wish {
    let shared = wish(name, &[80]);
    let former = former.then(|| shared.placement.service.clone());
    let service = service::own_service(&shared.gateway);
    Wish { placement: Placement { planes: DataPlanes::Own, service, former }, ..shared }
}

#[test]
fn service_in_front_of_own_data_planes_is_in_the_namespace_of_its_gateway_which_owns_it() {
    let plan = planner(29999).plan(&wanted(&[own_wish("web", false)], &[]));
    let [Write::Apply { service, version: None, .. }] = &plan.writes[..] else { panic!("{plan:?}") };
    let service = serde_json::to_value(service).expect("JSON");
    let metadata = &service["metadata"];
    assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!("web-sluicegate"), &json!("shop")));
    let owner = &metadata["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["uid"]),
        (&json!("Gateway"), &json!("web"), &json!("1"))
    );
    let selector =
        json!({"gateway.networking.k8s.io/gateway-name": "web", "sluicegate.dev/lease": "edge.sluicegate"});
    assert_eq!(service["spec"]["selector"], selector);
}

#[test]
fn service_in_front_of_own_data_planes_is_not_written_again() {
    let wish = own_wish("web", false);
    let mut planner = planner(29999);
    let mut stored = applied(&planner.plan(&wanted([&wish], [])));
    let mut entries = stored[0].metadata.managed_fields.take().expect("entries");
    let fields = &mut entries[0].fields_v1.as_mut().expect("fields").0;
    fields["f:metadata"]["f:ownerReferences"] = json!({".": {}, "k:{\"uid\":\"1\"}": {}});
    stored[0].metadata.managed_fields = Some(entries);
    let plan = planner.plan(&wanted([&wish], &stored));
    assert!(plan.writes.is_empty(), "{plan:?}");
}

#[test]
fn former_service_stays_until_the_own_data_planes_serve_at_an_address() {
    let mut planner = planner(29999);
    let former = applied(&planner.plan(&wanted(&[wish("web", &[80])], &[])));
    let moving = own_wish("web", true);
    let plan = planner.plan(&wanted([&moving], &former));
    let mut new = applied(&plan).remove(0);
    assert_eq!(plan.writes.len(), 1, "only the new Service is written: {plan:?}");
    assert_eq!(targets(&new), targets(&former[0]), "both lead to the same port");
    let deletions_after = |overlap: Duration, services: &[v1::Service], serves: bool| {
        let mut wanted = wanted([&moving], services);
        wanted.serving = serves.then(|| moving.placement.service.clone()).into_iter().collect();
        let plan = Planner { overlap, ..self::planner(29999) }.plan(&wanted);
        plan.writes
            .iter()
            .filter(|write| matches!(write, Write::Delete { .. }))
            .map(Write::place)
            .collect::<Vec<_>>()
    };
    let deletions = |services: &[v1::Service], serves| deletions_after(Duration::ZERO, services, serves);
    let with = |new: &v1::Service| vec![former[0].clone(), new.clone()];
    assert_eq!(deletions(&with(&new), true), [], "the new Service has no address");
    new.status = serde_json::from_value(json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}))
        .expect("a status");
    assert_eq!(deletions(&with(&new), false), [], "no data plane serves");
    assert_eq!(deletions(&with(&new), true), [("edge".into(), "shop-web".into())]);
    assert_eq!(
        deletions_after(Duration::from_secs(60), &with(&new), true),
        [],
        "clients know the old address"
    );
}

#[test]
fn objects_of_another_installation_with_a_lease_of_the_same_name_are_not_ours() {
    let ours = applied(&planner(29999).plan(&wanted(&[wish("web", &[80])], &[]))).remove(0);
    let own = applied(&planner(29999).plan(&wanted(&[own_wish("web", false)], &[]))).remove(0);
    let is_ours = |service: &v1::Service| {
        let ObjectMeta { namespace, name, .. } = &service.metadata;
        let place =
            (namespace.as_deref().expect("a namespace").into(), name.as_deref().expect("a name").into());
        service::is_of_lease(&planner(29999).options, &place, &OfGateway::of(service).expect("of a Gateway"))
    };
    assert!(is_ours(&ours) && is_ours(&own));
    // Another installation in the namespace `other`.
    let mut theirs = ours;
    theirs.metadata.namespace = Some("other".to_owned());
    assert!(!is_ours(&theirs));
    let mut theirs = own.clone();
    let labels = theirs.metadata.labels.as_mut().expect("labels");
    labels.insert(service::LEASE_LABEL.to_owned(), "other.sluicegate".to_owned());
    assert!(!is_ours(&theirs));
    // A Service of a tenant with our labels and any name.
    let mut theirs = own;
    theirs.metadata.name = Some("database".to_owned());
    assert!(!is_ours(&theirs));
    let plan = planner(29999).plan(&wanted(&[], &[theirs]));
    assert!(plan.writes.is_empty(), "{plan:?}");
}

#[test]
fn changed_service_of_an_author_takes_no_port_of_another_gateway() {
    let shared = applied(&planner(29999).plan(&wanted(&[wish("shared", &[80])], &[]))).remove(0);
    let port = targets(&shared)[&(IpProtocol::Tcp, 80)];
    let stolen = |wish: &Wish| {
        let mut own = applied(&planner(29999).plan(&wanted([wish], []))).remove(0);
        let spec = own.spec.as_mut().expect("a specification");
        spec.ports.as_mut().expect("ports")[0].target_port = Some(IntOrString::Int(port.into()));
        own
    };
    // The Gateway of the author is older. It has own data planes, or moves to them.
    for thief in [own_wish("thief", false), own_wish("thief", true)] {
        let services = [shared.clone(), stolen(&thief)];
        let plan = planner(29999).plan(&wanted([&thief, &wish("shared", &[80])], &services));
        let written: Vec<ServiceRef> = plan.writes.iter().map(Write::place).collect();
        assert!(!written.contains(&("edge".into(), "shop-shared".into())), "{plan:?}");
    }
}

#[test]
fn time_of_an_earlier_move_does_not_count_for_a_later_move() {
    let mut planner = Planner { overlap: Duration::from_secs(60), ..planner(29999) };
    let former = applied(&planner.plan(&wanted(&[wish("web", &[80])], &[])));
    let moving = own_wish("web", true);
    let mut new = applied(&planner.plan(&wanted([&moving], &former))).remove(0);
    new.status = serde_json::from_value(json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}))
        .expect("a status");
    let both = [former[0].clone(), new];
    let mut wanted = wanted([&moving], &both);
    wanted.serving = [moving.placement.service.clone()].into();
    planner.plan(&wanted);
    assert_eq!(planner.succeeded.len(), 1);
    // The Gateway moves back.
    let back = Placement {
        planes: DataPlanes::Shared,
        service: moving.placement.former.clone().expect("a former Service"),
        former: Some(moving.placement.service.clone()),
    };
    let wishes = vec![Wish { placement: back, ..moving }];
    planner.plan(&Wanted { wishes, serving: BTreeSet::new(), ..wanted });
    assert!(planner.succeeded.is_empty());
}
