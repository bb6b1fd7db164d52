//! The ports of `--tcp-services-configmap` and `--udp-services-configmap`.

use std::path::Path;

use sluicegate_model::{ProxyHeader, ProxyProtocol};

use super::problems;
use crate::problem::Severity;
use crate::store::Store;
use crate::translate::{ObjectName, TranslateOptions, Translation, translate};

const SERVICES: &str = "---
{kind: Service, apiVersion: v1, metadata: {name: db, namespace: shop}, spec: {ports: [{name: pg, port: 5432}, {name: dns, port: 53, protocol: UDP}]}}
---
{kind: EndpointSlice, apiVersion: discovery.k8s.io/v1, addressType: IPv4, metadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}, ports: [{name: pg, port: 5432}, {name: dns, port: 53, protocol: UDP}], endpoints: [{addresses: [10.0.0.1]}]}
";

/// The translation with these entries of the ConfigMaps for TCP and UDP, and with other objects.
fn translated(tcp: &str, udp: &str, others: &str) -> Translation {
    let map = |name: &str, data: &str| {
        format!(
            "---\n{{kind: ConfigMap, apiVersion: v1, metadata: {{name: {name}, namespace: edge}}, data: {{{data}}}}}\n"
        )
    };
    let mut store = Store::default();
    let yaml = [SERVICES, &map("tcp", tcp), &map("udp", udp), others].concat();
    store.set_file(Path::new("m.yaml"), &yaml);
    let name = |name: &str| Some(ObjectName { namespace: "edge".into(), name: name.into() });
    let options = TranslateOptions {
        tcp_services: name("tcp"),
        udp_services: name("udp"),
        http_ports: vec![80],
        https_ports: vec![443],
        admin_port: Some(9901),
        ..TranslateOptions::default()
    };
    translate(&store, &options)
}

/// The listeners, each as `identity address protocol upstream`.
fn listeners(translation: &Translation) -> Vec<String> {
    let listeners = translation.config.listeners.iter().map(|listener| {
        let (_, route) = listener.serves.routes().next().unwrap();
        let upstream = &route.backends[0].upstream;
        format!("{}, {} {} {upstream}", listener.id, listener.address, listener.serves.protocol())
    });
    listeners.collect()
}

#[test]
fn ports_of_the_configmaps_lead_to_services() {
    let translation = translated("\"9000\": shop/db:5432, \"9001\": shop/db:pg", "\"53\": shop/db:dns", "");
    assert_eq!(problems(&translation), [""; 0]);
    assert_eq!(
        listeners(&translation),
        [
            "ConfigMap edge/udp, listener 53, 0.0.0.0:53 UDP shop/db:dns (udp)",
            "ConfigMap edge/tcp, listener 9000, 0.0.0.0:9000 TCP shop/db:pg (tcp)",
            "ConfigMap edge/tcp, listener 9001, 0.0.0.0:9001 TCP shop/db:pg (tcp)",
        ]
    );
    assert_eq!(translation.config.upstreams.len(), 2);
    assert!(translation.config.upstreams.values().all(|upstream| upstream.endpoints.len() == 1));
    assert!(translation.statuses.is_empty());
}

#[test]
fn proxy_protocol_of_an_entry_applies_to_its_own_clients_and_endpoints() {
    let tcp = "\"1\": shop/db:pg, \"2\": shop/db:pg:PROXY, \"3\": shop/db:pg:PROXY:PROXY";
    let translation = translated(tcp, "", "");
    let expected = [
        (ProxyHeader::Never, None),
        (ProxyHeader::Always, None),
        (ProxyHeader::Always, Some(ProxyProtocol::V1)),
    ];
    let config = &translation.config;
    let found = config.listeners.iter().map(|listener| {
        let (_, route) = listener.serves.routes().next().unwrap();
        (listener.proxy_header, config.upstreams[&route.backends[0].upstream].proxy_protocol)
    });
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn faulty_entries_and_ports_in_use_are_problems_with_their_key_and_the_other_entries_apply() {
    let gateway = "---
{kind: Gateway, apiVersion: gateway.networking.k8s.io/v1, metadata: {name: edge}, spec: {gatewayClassName: sluicegate, listeners: [{name: a, protocol: TCP, port: 7000}]}}
---
{kind: TCPRoute, apiVersion: gateway.networking.k8s.io/v1, metadata: {name: a}, spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: b, port: 1}]}]}}
";
    let tcp = "\"80\": shop/db:pg, \"443\": shop/db:pg, \"9901\": shop/db:pg, \"7000\": shop/db:pg, \"70000\": shop/db:pg, \
               \"1\": shop/db:mysql, \"2\": shop/other:pg, \"3\": \"db:pg\", \"9000\": shop/db:pg";
    let udp = "\"80\": shop/db:dns, \"81\": \"shop/db:dns:PROXY\"";
    let translation = translated(tcp, udp, gateway);
    let ports: Vec<u16> = translation
        .config
        .listeners
        .iter()
        .filter(|listener| listener.id.object.kind == "ConfigMap")
        .map(|listener| listener.address.port())
        .collect();
    assert_eq!(ports, [1, 2, 80, 81, 9000]);
    let of_maps = translation.problems.iter().filter(|problem| problem.field.starts_with("data["));
    let mut found: Vec<_> = of_maps.map(|problem| (&*problem.field, problem.severity)).collect();
    found.sort_unstable_by_key(|(field, _)| *field);
    let expected = [
        ("data[1]", Severity::Warning),
        ("data[2]", Severity::Warning),
        ("data[3]", Severity::Error),
        ("data[443]", Severity::Warning),
        ("data[70000]", Severity::Error),
        ("data[7000]", Severity::Warning),
        ("data[80]", Severity::Warning),
        ("data[81]", Severity::Warning),
        ("data[9901]", Severity::Warning),
    ];
    assert_eq!(found, expected, "{:#?}", translation.problems);
}

#[test]
fn configmap_that_does_not_exist_is_a_problem_of_its_option() {
    let named = ObjectName { namespace: "edge".into(), name: "none".into() };
    let options = TranslateOptions { udp_services: Some(named), ..TranslateOptions::default() };
    let found = problems(&translate(&Store::default(), &options));
    assert!(found.len() == 1 && found[0].contains("ConfigMap edge/none does not exist"), "{found:?}");
}
