//! Tests of Gateways with a Service each.

use super::http::{TO_ECHO, http, http_route, served_hosts};
use super::*;
use crate::frontend::gateway::service::{GatewayAddresses, Placement, addresses, wishes};
use crate::status::Content;
use crate::translate::{DataPlanes, GatewayServices, ServiceType};
use crate::{Kind, ObjectRef};

/// The options of Services of this type in the namespace `own`. The process serves HTTP at port 80.
pub(super) fn options(service_type: ServiceType) -> TranslateOptions {
    let services = GatewayServices {
        namespace: "own".into(),
        lease: "sluicegate".into(),
        service_type,
        selector: [("app".to_owned(), "sluicegate".to_owned())].into(),
        ports: 20000..=29999,
        annotations: [].into(),
        load_balancer_class: None,
        external_traffic_policy: None,
    };
    TranslateOptions {
        gateway_services: Some(services),
        http_ports: vec![80],
        https_ports: vec![443],
        ..TranslateOptions::default()
    }
}

/// The Service of a Gateway of the namespace `default`, with these ports in flow style.
pub(super) fn service(gateway: &str, ports: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{namespace: own, name: default-{gateway}, \
         annotations: {{sluicegate.dev/gateway: default/{gateway}}}, labels: {{sluicegate.dev/lease: sluicegate}}}}\n\
         spec: {{clusterIP: 10.1.1.1, ports: [{ports}]}}\n"
    )
}

pub(super) fn port(port: u16, target: u16) -> String {
    format!("{{name: tcp-{port}, port: {port}, targetPort: {target}}}")
}

#[test]
fn gateways_with_services_serve_the_same_port_and_host_at_ports_of_their_own() {
    let of = |name: &str| {
        [
            gateway(&format!("name: {name}"), &http("web", 80, "")),
            http_route(&format!("name: of-{name}"), &format!("{{name: {name}}}"), "", TO_ECHO),
        ]
        .concat()
    };
    let manifests =
        [of("one"), of("two"), service("one", &port(80, 20001)), service("two", &port(80, 20002))];
    let config = served_hosts(
        &options(ServiceType::ClusterIp),
        &manifests,
        &["default/one:80 * [of-one/]", "default/two:80 * [of-two/]"],
        &[],
    );
    let addresses: Vec<String> =
        config.listeners.iter().map(|listener| listener.address.to_string()).collect();
    assert_eq!(addresses, ["0.0.0.0:20001", "0.0.0.0:20002"]);
}

#[test]
fn listener_and_its_routes_wait_without_a_warning_for_the_port_of_the_service() {
    let manifests = [
        edge(&[http("web", 80, ""), http("next", 81, "")].join(", ")),
        http_route("name: r", "{name: edge, sectionName: next}", "", TO_ECHO),
        service("edge", &port(80, 20001)),
    ];
    let store = stored(&manifests.concat());
    let translation = translate(&store, &options(ServiceType::ClusterIp));
    let told: Vec<String> = translation.problems.iter().map(ToString::to_string).collect();
    assert_problems(
        &told,
        &[
            "Gateway default/edge: spec.listeners[1].port: Service own/default-edge does not have the port yet",
            "HTTPRoute default/r: spec.parentRefs[0]: listener next of Gateway default/edge is not served",
        ],
    );
    assert!(translation.problems.iter().all(|problem| problem.severity == Severity::Note));
    assert_eq!(translation.config.listeners.len(), 1);
    // Without the Service, no listener is served.
    let store = stored(&manifests[..2].concat());
    assert_eq!(translate(&store, &options(ServiceType::ClusterIp)).config.listeners, []);
}

#[test]
fn https_ports_of_a_service_serve_http3_if_it_is_on_and_no_listener_has_the_udp_port() {
    let https = |name: &str, port: u16| {
        format!("{{name: {name}, protocol: HTTPS, port: {port}, tls: {{certificateRefs: [{{name: cert}}]}}}}")
    };
    let udp = "{name: udp, protocol: UDP, port: 444}".to_owned();
    let listeners = [http("web", 80, ""), https("one", 443), https("two", 444), udp].join(", ");
    let allowed =
        edge(&listeners).replace("listeners:", "allowedListeners: {namespaces: {from: Same}}, listeners:");
    let set = format!("parentRef: {{name: edge}}, listeners: [{}]", https("three", 445));
    let manifests = [
        allowed,
        object("ListenerSet", "name: set", &set),
        service("edge", &[port(80, 20001), port(443, 20002)].join(", ")),
    ];
    let store = stored(&manifests.concat());
    let mut options = options(ServiceType::ClusterIp);
    let http3 = |options: &TranslateOptions| {
        let services = options.gateway_services.as_ref().unwrap();
        wishes(&store, options, services)[0].http3.iter().copied().collect::<Vec<_>>()
    };
    assert_eq!(http3(&options), [0; 0]);
    options.settings.tls.http3 = Some(sluicegate_model::tls::Http3::default());
    assert_eq!(http3(&options), [443, 445]);
    // Clients reach the listener at the port of the Service.
    let config = translate(&store, &options).config;
    let ports: Vec<_> =
        config.listeners.iter().map(|listener| (listener.address.port(), listener.client_port)).collect();
    assert_eq!(ports, [(20001, None), (20002, Some(443))]);
}

#[test]
fn service_of_a_gateway_has_the_ports_of_its_listener_sets() {
    let allowed = edge(&http("web", 80, ""))
        .replace("listeners:", "allowedListeners: {namespaces: {from: Same}}, listeners:");
    let set = |name: &str, namespace: &str, port: u16| {
        let spec =
            format!("parentRef: {{name: edge, namespace: default}}, listeners: [{}]", http("web", port, ""));
        object("ListenerSet", &format!("name: {name}, namespace: {namespace}"), &spec)
    };
    let manifests = [
        allowed,
        set("one", "default", 81),
        set("far", "other", 82),
        http_route("name: r", "{kind: ListenerSet, name: one}", "", TO_ECHO),
        service("edge", &[port(80, 20001), port(81, 20002)].join(", ")),
    ];
    let options = options(ServiceType::ClusterIp);
    let services = options.gateway_services.as_ref().unwrap();
    let wishes = wishes(&stored(&manifests.concat()), &options, services);
    let ports: Vec<u16> = wishes[0].ports.iter().map(|(_, port)| *port).collect();
    assert_eq!(ports, [80, 81]);
    let refused = "ListenerSet other/far: spec.parentRef: Gateway default/edge does not allow";
    served_hosts(&options, &manifests, &["default/edge:81 * [r/]"], &[refused]);
}

#[test]
fn service_of_another_origin_serves_no_listener() {
    let ours = service("edge", &port(80, 20001));
    for service in [
        ours.replace("gateway: default/edge", "gateway: default/other"),
        ours.replace("labels: {sluicegate.dev/lease: sluicegate}", "labels: {sluicegate.dev/lease: other}"),
        ours.replace("annotations: {sluicegate.dev/gateway: default/edge}, ", ""),
    ] {
        served_hosts(
            &options(ServiceType::ClusterIp),
            &[edge(&http("web", 80, "")), service],
            &[],
            &["spec.listeners[0].port: Service own/default-edge exists already and is not of this Gateway"],
        );
    }
    // A port that the gateway would not have given.
    for target in ["80", "web"] {
        served_hosts(
            &options(ServiceType::ClusterIp),
            &[edge(&http("web", 80, "")), ours.replace("20001", target)],
            &[],
            &["does not have the port yet"],
        );
    }
}

#[test]
fn listeners_of_a_gateway_with_one_port_share_the_port_of_the_service_by_protocol() {
    let listeners = [
        http("any", 80, ""),
        http("some", 80, "a.test"),
        tcp("conflict", 80),
        "{name: dns, protocol: UDP, port: 80}".to_owned(),
    ];
    let udp = "{name: udp-80, protocol: UDP, port: 80, targetPort: 20002}";
    let manifests = [
        edge(&listeners.join(", ")),
        http_route("name: r", "{name: edge}", "", TO_ECHO),
        service("edge", &[&port(80, 20001), udp].join(", ")),
    ];
    let dual_stack = TranslateOptions {
        gateway_addresses: vec!["0.0.0.0".parse().unwrap(), "::".parse().unwrap()],
        ..options(ServiceType::ClusterIp)
    };
    let config = served_hosts(
        &dual_stack,
        &manifests,
        // Both addresses have the same hosts.
        &["default/edge:80 a.test [r/]", "default/edge:80 * [r/]"],
        &[
            "spec.listeners[2].port: port 80 is already taken by listener any of Gateway default/edge; no route of this listener is served at 0.0.0.0:20001",
            "no route of this listener is served at [::]:20001",
        ],
    );
    let shown = |listener: &sluicegate_model::Listener| {
        format!("{} {} {}", listener.id.name, listener.serves.protocol(), listener.address)
    };
    let listeners: Vec<String> = config.listeners.iter().map(shown).collect();
    let expected =
        ["any HTTP 0.0.0.0:20001", "dns UDP 0.0.0.0:20002", "any HTTP [::]:20001", "dns UDP [::]:20002"];
    assert_eq!(listeners, expected);
}

#[test]
fn redirect_behind_a_service_names_the_port_of_the_listener() {
    let redirect = "{filters: [{type: RequestRedirect, requestRedirect: {hostname: b.test}}]}";
    let manifests = [
        edge(&http("web", 8080, "")),
        http_route("name: r", "{name: edge, port: 8080}", "", redirect),
        service("edge", &port(8080, 20001)),
    ];
    let config =
        served_hosts(&options(ServiceType::ClusterIp), &manifests, &["default/edge:8080 * [r/]"], &[]);
    let traffic = config.hosts[0].rules[0].traffic.as_ref().unwrap();
    let port = traffic.features.redirect.as_ref().unwrap().port;
    assert_eq!(port.map(|port| port.to_string()), Some("8080".to_owned()));
}

#[test]
fn addresses_of_a_gateway_are_those_of_its_service_or_of_the_nodes() {
    let gateway = ObjectRef { kind: Kind::Gateway, namespace: "default".into(), name: "edge".into() };
    let balanced = service("edge", &port(80, 20001)).replace("clusterIP:", "type: LoadBalancer, clusterIP:");
    let with_address = format!("{balanced}status: {{loadBalancer: {{ingress: [{{hostname: lb.test}}]}}}}\n");
    for (service_type, text, expected) in [
        (
            ServiceType::ClusterIp,
            &service("edge", ""),
            Some(GatewayAddresses::Service(vec!["10.1.1.1".into()])),
        ),
        (
            ServiceType::NodePort,
            &service("edge", "").replace("clusterIP:", "type: NodePort, clusterIP:"),
            Some(GatewayAddresses::Nodes),
        ),
        (ServiceType::LoadBalancer, &balanced, Some(GatewayAddresses::Service(Vec::new()))),
        (ServiceType::LoadBalancer, &with_address, Some(GatewayAddresses::Service(vec!["lb.test".into()]))),
        (ServiceType::ClusterIp, &service("other", ""), None),
    ] {
        let services = options(service_type).gateway_services.unwrap();
        let place = ("own".into(), "default-edge".into());
        let placement = Placement { planes: DataPlanes::Shared, service: place, former: None };
        assert_eq!(addresses(&stored(text), &services, &placement, &gateway), expected, "{text}");
    }
    served_hosts(
        &options(ServiceType::LoadBalancer),
        &[edge(&http("web", 80, "a.test")), balanced],
        &["default/edge:80 a.test []"],
        &["Gateway default/edge: Service own/default-edge has no address yet"],
    );
}

#[test]
fn gateway_without_its_requested_address_is_served_and_not_programmed() {
    let with = |addresses: &str| {
        edge(&http("web", 80, "a.test"))
            .replace("listeners:", &format!("addresses: [{addresses}], listeners:"))
    };
    let (one, two) = ("{value: 10.1.1.1}", "{value: 10.1.1.1}, {value: 192.0.2.2}");
    let hosts = &["default/edge:80 a.test []"][..];
    let (cluster_ip, balancer) = (ServiceType::ClusterIp, ServiceType::LoadBalancer);
    for (service_type, addresses, address, hosts, problem) in [
        (cluster_ip, one, "", hosts, ""),
        (cluster_ip, two, "", hosts, "spec.addresses: 192.0.2.2 is not usable: a Service has one address"),
        (
            cluster_ip,
            "{value: 10.1.1.2}",
            "",
            hosts,
            "spec.addresses: Service own/default-edge has the address 10.1.1.1 and not 10.1.1.2",
        ),
        (
            ServiceType::NodePort,
            one,
            "",
            hosts,
            "spec.addresses: 10.1.1.1 is not usable: a Service of type NodePort",
        ),
        (balancer, one, "ip: 10.1.1.1", hosts, ""),
        // The host name may lead to the address.
        (balancer, one, "hostname: lb.test", hosts, ""),
        (balancer, one, "ip: 10.1.1.9", hosts, "has the address 10.1.1.9 and not 10.1.1.1"),
        (balancer, one, "", hosts, "has no address yet"),
        (
            cluster_ip,
            "{type: Hostname, value: lb.test}",
            "",
            &[],
            "spec.addresses[0].type: \"Hostname\" is not supported",
        ),
    ] {
        let mut service = service("edge", &port(80, 20001));
        if service_type == balancer {
            service = service.replace("clusterIP:", "type: LoadBalancer, clusterIP:");
        }
        if !address.is_empty() {
            service = format!("{service}status: {{loadBalancer: {{ingress: [{{{address}}}]}}}}\n");
        }
        let problems = Some(problem).filter(|problem| !problem.is_empty());
        let problems: Vec<&str> = problems.into_iter().collect();
        let manifests = [with(addresses), service];
        served_hosts(&options(service_type), &manifests, hosts, &problems);
        let translation = translate(&stored(&manifests.concat()), &options(service_type));
        let Content::Gateway(status) = &translation.statuses[0].content else { panic!("a Gateway") };
        let reason = status.unprogrammed.as_ref().map(|fault| fault.reason);
        let expected = match problem {
            "" | "has no address yet" => None,
            _ if hosts.is_empty() => Some("Invalid"),
            _ => Some("AddressNotUsable"),
        };
        assert_eq!(reason, expected, "{addresses} {address}");
    }
}

#[test]
fn parameters_set_the_service_of_a_gateway_and_have_precedence_over_those_of_the_class() {
    let map = |name: &str, data: &str| {
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{{data}}}\n")
    };
    let reference = "group: \"\", kind: ConfigMap, name";
    let class = object(
        "GatewayClass",
        "name: sluicegate",
        &format!(
            "controllerName: sluicegate.dev/gateway-controller, parametersRef: {{{reference}: of-class, namespace: default}}"
        ),
    );
    let edge = edge(&http("web", 80, ""));
    let named = edge.replace(
        "listeners:",
        &format!("infrastructure: {{parametersRef: {{{reference}: own}}}}, listeners:"),
    );
    let of_class = map(
        "of-class",
        "serviceType: LoadBalancer, loadBalancerClass: a.test/b, externalTrafficPolicy: Local",
    );
    let options = options(ServiceType::ClusterIp);
    let wished = |manifests: &[&str]| {
        let services = options.gateway_services.as_ref().unwrap();
        let [wish] = &wishes(&stored(&manifests.concat()), &options, services)[..] else { panic!("a wish") };
        let policy = wish.external_traffic_policy.clone().unwrap_or_default();
        let class = wish.load_balancer_class.clone().unwrap_or_default();
        format!("{} {class} {policy} {}", wish.service_type.as_str(), wish.ports.len())
    };
    assert_eq!(wished(&[&edge]), "ClusterIP   1");
    assert_eq!(wished(&[&class, &of_class, &edge]), "LoadBalancer a.test/b Local 1");
    let own = map("own", "serviceType: NodePort");
    assert_eq!(wished(&[&class, &of_class, &own, &named]), "NodePort  Local 1");
    let accepted = |options: &TranslateOptions, manifests: &[&str]| {
        let statuses = translate(&stored(&manifests.concat()), options).statuses;
        let status = statuses.into_iter().find(|status| status.object.kind == Kind::Gateway).unwrap();
        let Content::Gateway(status) = status.content else { panic!("a Gateway") };
        format!("{} {}", status.accepted.reason, status.accepted.message)
    };
    for (manifests, message) in [
        (vec![&*named], "spec.infrastructure.parametersRef: ConfigMap default/own does not exist"),
        (
            vec![&*named, &*map("own", "serviceType: Odd")],
            "ConfigMap default/own: data[serviceType]: \"Odd\" is not supported: write ClusterIP",
        ),
        (vec![&*named, &*map("own", "odd: a")], "ConfigMap default/own: data[odd]: is unknown; the keys are"),
        (
            vec![&*class, &*edge],
            "GatewayClass sluicegate: spec.parametersRef: ConfigMap default/of-class does not exist",
        ),
        (
            vec![&*named.replace("kind: ConfigMap", "kind: Odd")],
            "spec.infrastructure.parametersRef.kind: \"Odd\" is not supported: name a ConfigMap",
        ),
        (
            vec![&*named.replace("group: \"\"", "group: odd.test")],
            "spec.infrastructure.parametersRef.group: \"odd.test\" is not supported",
        ),
    ] {
        let found = accepted(&options, &manifests);
        assert!(found.starts_with("InvalidParameters ") && found.contains(message), "{found}");
        // The Service stays as it is.
        assert_eq!(wished(&manifests), "ClusterIP   0");
    }
    assert_eq!(accepted(&options, &[&named, &own]), "Accepted ");
    let without = TranslateOptions { gateway_services: None, ..options.clone() };
    assert!(accepted(&without, &[&named, &own]).contains("has no effect, because Gateways have no Services"));
    assert_eq!(accepted(&without, &[&named, &map("own", "")]), "Accepted ");
}

/// The Gateway `edge` with these entries of `spec.addresses`.
fn requesting(addresses: &str) -> String {
    edge(&http("web", 80, "a.test")).replace("listeners:", &format!("addresses: [{addresses}], listeners:"))
}

#[test]
fn gateway_that_requests_only_cluster_ips_has_a_service_of_type_cluster_ip() {
    let (cluster, both) = ("{routability: Cluster}", "{}, {routability: Cluster}");
    let own = "{value: 192.0.2.1}, {value: 10.96.0.9, routability: Cluster}";
    let (balancer, cluster_ip) = (ServiceType::LoadBalancer, ServiceType::ClusterIp);
    for (addresses, service_type, requested, has_ports) in [
        ("{}", balancer, [None, None], true),
        ("{routability: \"\"}", balancer, [None, None], true),
        ("{routability: testing.x-k8s.io/sentinel}", balancer, [None, None], true),
        (cluster, cluster_ip, [None, None], true),
        ("{value: 10.96.0.9, routability: Cluster}", cluster_ip, [None, Some("10.96.0.9")], true),
        ("{routability: Cluster}, {routability: x.test/Wan}", cluster_ip, [None, None], true),
        (both, balancer, [None, None], true),
        (own, balancer, [Some("192.0.2.1"), Some("10.96.0.9")], true),
        // No address can satisfy the entry: an existing Service stays as it is.
        ("{routability: x.test/Wan}", cluster_ip, [None, None], false),
        ("{type: Hostname, value: a.test, routability: Cluster}", cluster_ip, [None, None], false),
    ] {
        let options = options(balancer);
        let store = stored(&requesting(addresses));
        let wish = wishes(&store, &options, options.gateway_services.as_ref().unwrap()).remove(0);
        assert_eq!(wish.service_type, service_type, "{addresses}");
        let found = [wish.address, wish.cluster_ip].map(|address| address.map(|address| address.to_string()));
        assert_eq!(found.each_ref().map(Option::as_deref), requested, "{addresses}");
        assert_eq!(!wish.ports.is_empty(), has_ports, "{addresses}");
    }
}

#[test]
fn gateway_that_requests_a_cluster_ip_is_served_behind_its_service_and_reports_the_cluster_ip() {
    let manifests = [requesting("{routability: Cluster}"), service("edge", &port(80, 20001))];
    let options = options(ServiceType::LoadBalancer);
    served_hosts(&options, &manifests, &["default/edge:80 a.test []"], &[]);
    let translation = translate(&stored(&manifests.concat()), &options);
    let Content::Gateway(status) = &translation.statuses[0].content else { panic!("a Gateway") };
    assert_eq!(status.addresses.cluster_ip.as_deref(), Some("10.1.1.1"));
    assert_eq!(status.addresses.requests.len(), 1);
}

#[test]
fn gateway_that_requests_only_a_cluster_ip_is_not_served_without_a_service() {
    let no_service = "requests a cluster IP, but the Gateway has no Service; the Gateway is not served";
    let unknown =
        "spec.addresses[0].routability: \"x.test/Wan\" is not supported; no address satisfies this entry";
    for (addresses, is_served, problem) in [
        ("{routability: Cluster}", false, no_service),
        ("{value: 10.96.0.9, routability: Cluster}", false, no_service),
        ("{routability: x.test/Wan}", false, unknown),
        ("{routability: testing.x-k8s.io/sentinel}", true, ""),
        ("{}, {routability: Cluster}", true, ""),
        ("{value: 0.0.0.0}, {routability: Cluster}", true, ""),
    ] {
        // Also a port that options set must not serve the Gateway.
        for http_ports in [Vec::new(), vec![80]] {
            let entry_point = if http_ports.is_empty() { "0.0.0.0:80 a.test []" } else { "http a.test []" };
            let hosts = [entry_point];
            let hosts = if is_served { &hosts[..] } else { &[] };
            let problems = Some(problem).filter(|problem| !problem.is_empty());
            let problems: Vec<&str> = problems.into_iter().collect();
            let options = TranslateOptions { http_ports, ..TranslateOptions::default() };
            served_hosts(&options, &[requesting(addresses)], hosts, &problems);
        }
    }
}
