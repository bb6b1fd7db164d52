//! Tests of Gateways with data planes of their own.

use std::time::Duration;

use sluicegate_model::Planes;

use super::http::{TO_ECHO, http, http_route};
use super::services::{options, port, service};
use super::*;
use crate::frontend::gateway::service::wishes;
use crate::status::Content;
use crate::translate::{DataPlanes, OwnDataPlanes, ServiceType, WorkloadTemplate};

const TEMPLATE: &str =
    "{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {containers: [{name: sluicegate}]}}}}";

fn own_options(default: DataPlanes) -> TranslateOptions {
    let template = WorkloadTemplate::read(TEMPLATE).unwrap();
    let own_data_planes = Some(OwnDataPlanes { default, overlap: Duration::ZERO, template });
    TranslateOptions { own_data_planes, ..options(ServiceType::ClusterIp) }
}

/// A Gateway with this ConfigMap as its parameters, and its route.
fn with_parameters(name: &str, data: &str) -> String {
    let spec = format!(
        "gatewayClassName: sluicegate, infrastructure: {{parametersRef: {{group: '', kind: ConfigMap, name: {name}}}}}, \
         listeners: [{}]",
        http("web", 80, "")
    );
    let map = format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{{data}}}\n");
    let route = http_route(&format!("name: of-{name}"), &format!("{{name: {name}}}"), "", TO_ECHO);
    [object("Gateway", &format!("name: {name}"), &spec), map, route].concat()
}

/// The Service of a Gateway in the namespace of the Gateway, with this port.
fn own_service(gateway: &str, ports: &str) -> String {
    service(gateway, ports)
        .replace("lease: sluicegate", "lease: own.sluicegate")
        .replace(&format!("namespace: own, name: default-{gateway}"), &format!("name: {gateway}-sluicegate"))
}

/// The data planes, the address and the name of each listener.
fn listeners(options: &TranslateOptions, manifests: &[String]) -> Vec<String> {
    let config = translate(&stored(&manifests.concat()), options).config;
    let listeners = config.listeners.iter();
    listeners
        .map(|listener| format!("{:?} {} {:?}", listener.planes, listener.address, listener.serves))
        .collect()
}

#[test]
fn own_data_planes_serve_the_listeners_of_their_gateway_at_the_ports_of_its_service() {
    let own = with_parameters("one", "dataPlanes: Own");
    // The author of a Gateway can change the Service. The port of another Gateway is no port of its own data planes.
    let manifests = [
        own,
        with_parameters("two", "dataPlanes: Own"),
        with_parameters("three", "dataPlanes: Shared"),
        own_service("one", &port(80, 20001)),
        own_service("two", &port(80, 20001)),
        service("three", &port(80, 20001)),
    ];
    let options = own_options(DataPlanes::Shared);
    let problems = translate(&stored(&manifests.concat()), &options).problems;
    assert!(problems.iter().all(|problem| problem.message.contains("Service default/echo does not exist")));
    let own = |name: &str| Planes::Own(format!("default/{name}-sluicegate").into());
    assert_eq!(
        listeners(&options, &manifests),
        [(own("one"), "one"), (own("two"), "two"), (Planes::Shared, "three")]
            .map(|(planes, name)| format!("{planes:?} 0.0.0.0:20001 Http(\"default/{name}:80\")"))
    );
}

#[test]
fn both_data_planes_serve_a_gateway_that_moves() {
    let both = [service("edge", &port(80, 20001)), own_service("edge", &port(80, 20001))].concat();
    let planes = |data: &str, services: &str| {
        let manifests = [with_parameters("edge", data), services.to_owned()];
        listeners(&own_options(DataPlanes::Shared), &manifests).join(", ")
    };
    for data in ["dataPlanes: Own", "dataPlanes: Shared", ""] {
        let found = planes(data, &both);
        assert!(found.starts_with("Both(\"default/edge-sluicegate\") 0.0.0.0:20001 "), "{data}: {found}");
    }
    // The new Service does not exist yet.
    let (shared, own) = (service("edge", &port(80, 20001)), own_service("edge", &port(80, 20001)));
    assert!(planes("dataPlanes: Own", &shared).starts_with("Both("));
    assert!(planes("dataPlanes: Shared", &own).starts_with("Both("));
    // Invalid parameters do not move a Gateway.
    assert!(planes("dataPlanes: own", &own).starts_with("Own("));
    assert!(planes("dataPlanes: own", &shared).starts_with("Shared "));
}

#[test]
fn foreign_service_at_the_new_place_does_not_end_the_service_of_a_gateway_that_moves() {
    let foreign = own_service("edge", &port(80, 20002)).replace("default/edge", "default/other");
    let manifests = [with_parameters("edge", "dataPlanes: Own"), service("edge", &port(80, 20001)), foreign];
    let found = listeners(&own_options(DataPlanes::Shared), &manifests).join(", ");
    assert!(found.starts_with("Both(\"default/edge-sluicegate\") 0.0.0.0:20001 "), "{found}");
}

#[test]
fn gateway_that_moves_keeps_its_address_until_the_new_data_planes_serve() {
    let slice = |is_ready: bool| {
        format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: edge-sluicegate-1, \
             labels: {{kubernetes.io/service-name: edge-sluicegate}}}}\naddressType: IPv4\nports: [{{name: tcp-80, port: 20001}}]\n\
             endpoints: [{{addresses: [10.0.0.1], conditions: {{ready: {is_ready}}}}}]\n"
        )
    };
    let new = own_service("edge", &port(80, 20001)).replace("10.1.1.1", "10.1.1.2");
    for (services, address) in [
        (vec![], "10.1.1.1"),
        (vec![new.clone()], "10.1.1.1"),
        (vec![new.clone(), slice(false)], "10.1.1.1"),
        (vec![new, slice(true)], "10.1.1.2"),
    ] {
        let manifests =
            [vec![with_parameters("edge", "dataPlanes: Own"), service("edge", &port(80, 20001))], services]
                .concat();
        let statuses = translate(&stored(&manifests.concat()), &own_options(DataPlanes::Shared)).statuses;
        let status = statuses.into_iter().find(|status| &*status.object.name == "edge").unwrap();
        let Content::Gateway(status) = status.content else { panic!("a Gateway") };
        assert_eq!(status.addresses.own, Some(vec![address.into()]), "{manifests:?}");
    }
}

#[test]
fn own_data_planes_of_a_gateway_without_listeners_keep_their_scope() {
    let without = with_parameters("edge", "dataPlanes: Own").replace("protocol: HTTP,", "protocol: ODD,");
    let config = translate(&stored(&without), &own_options(DataPlanes::Shared)).config;
    assert!(config.listeners.is_empty());
    assert_eq!(config.own_scopes, ["default/edge-sluicegate".into()]);
}

#[test]
fn parameters_have_precedence_over_the_default_data_planes() {
    let wished = |default: DataPlanes, data: &str| {
        let (store, options) = (stored(&with_parameters("edge", data)), own_options(default));
        wishes(&store, &options, options.gateway_services.as_ref().unwrap()).remove(0).placement.planes
    };
    for default in [DataPlanes::Shared, DataPlanes::Own] {
        assert_eq!(wished(default, "dataPlanes: Own"), DataPlanes::Own);
        assert_eq!(wished(default, "dataPlanes: Shared"), DataPlanes::Shared);
        assert_eq!(wished(default, "serviceType: NodePort"), default);
    }
}

#[test]
fn gateway_that_wants_own_data_planes_is_not_accepted_without_a_template() {
    let options = options(ServiceType::ClusterIp);
    let statuses = translate(&stored(&with_parameters("edge", "dataPlanes: Own")), &options).statuses;
    let status = statuses.into_iter().find(|status| &*status.object.name == "edge").unwrap();
    let Content::Gateway(status) = status.content else { panic!("a Gateway") };
    assert_eq!(status.accepted.reason, "InvalidParameters");
    assert!(status.accepted.message.contains("(--data-plane-template)"), "{}", status.accepted.message);
}
