//! Tests of Gateways and their routes.
//!
//! | module | what |
//! |---|---|
//! | `listeners` | the Gateways that are served, and the addresses of their listeners |
//! | `listener_sets` | ListenerSets |
//! | `http` | HTTPRoutes |
//! | `backend_tls` | BackendTLSPolicies |
//! | `backend_traffic` | XBackendTrafficPolicies |
//! | `grpc` | GRPCRoutes |
//! | `session_persistence` | session persistence of routes |
//! | `routes` | the listeners and the backends of routes |
//! | `services` | Gateways with a Service each |
//! | `status` | the status of GatewayClasses, Gateways, ListenerSets and routes |
//! | `x_backends` | XBackends |
//! | `faults` | errors, and the parts that stay in service |
//! | `frontend_tls` | the validation of client certificates by HTTPS listeners |
//! | `external_auth` | the filter `ExternalAuth`, and the filters of listeners |

mod backend_tls;
mod backend_traffic;
mod external_auth;
mod faults;
mod frontend_tls;
mod grpc;
mod http;
mod listener_sets;
mod listeners;
mod planes;
mod routes;
mod services;
mod session_persistence;
mod status;
mod x_backends;

use std::path::Path;

use super::{assert_lines, assert_problems, ingress, rules, serve, serve_with, served};
use crate::{Severity, Store, TranslateOptions, translate};

/// The Service `db` with port 5432 and the endpoint 10.0.0.1:5432, and the Service `dns` with port 53 for TCP and UDP
/// and the endpoint 10.0.0.2.
const SERVICES: &str = "
---
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {ports: [{name: pg, port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: pg, port: 5432}]
endpoints: [{addresses: [10.0.0.1]}]
---
apiVersion: v1
kind: Service
metadata: {name: dns}
spec: {ports: [{name: dns-tcp, port: 53}, {name: dns, port: 53, protocol: UDP}, {name: x, port: 9, protocol: SCTP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: dns-1, labels: {kubernetes.io/service-name: dns}}
addressType: IPv4
ports: [{name: dns-tcp, port: 5301}, {name: dns, port: 5300, protocol: UDP}]
endpoints: [{addresses: [10.0.0.2]}]
";

const DB: &str = "1 default/db:pg (tcp) [10.0.0.1:5432]";
const DNS: &str = "1 default/dns:dns (udp) [10.0.0.2:5300]";

fn object(kind: &str, metadata: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{{metadata}}}\nspec: {{{spec}}}\n"
    )
}

/// A Gateway of the class `sluicegate`.
fn gateway(metadata: &str, listeners: &str) -> String {
    object("Gateway", metadata, &format!("gatewayClassName: sluicegate, listeners: [{listeners}]"))
}

fn tcp(name: &str, port: u16) -> String {
    format!("{{name: {name}, protocol: TCP, port: {port}}}")
}

fn tls(name: &str, port: u16, hostname: &str) -> String {
    let hostname = if hostname.is_empty() { String::new() } else { format!(", hostname: \"{hostname}\"") };
    format!("{{name: {name}, protocol: TLS, port: {port}, tls: {{mode: Passthrough}}{hostname}}}")
}

/// A route of the Gateway `edge` with these hostnames, if any, to `service:port`.
fn route(kind: &str, metadata: &str, hostnames: &[&str], backend: &str) -> String {
    attached(kind, metadata, "{name: edge}", hostnames, &[backend])
}

fn attached(kind: &str, metadata: &str, parents: &str, hostnames: &[&str], backends: &[&str]) -> String {
    let hostnames = match hostnames {
        [] => String::new(),
        names => format!("hostnames: [\"{}\"], ", names.join("\", \"")),
    };
    let backends: Vec<String> = backends
        .iter()
        .map(|backend| {
            let (service, port) = backend.split_once(':').unwrap();
            format!("{{name: {service}, port: {port}}}")
        })
        .collect();
    let spec =
        format!("parentRefs: [{parents}], {hostnames}rules: [{{backendRefs: [{}]}}]", backends.join(", "));
    object(kind, metadata, &spec)
}

#[track_caller]
fn check(manifests: &[String], layer4: &[&str], problems: &[&str]) {
    check_with(&TranslateOptions::default(), manifests, layer4, problems);
}

#[track_caller]
fn check_with(options: &TranslateOptions, manifests: &[String], layer4: &[&str], problems: &[&str]) {
    let served = serve_with(&format!("{}{SERVICES}", manifests.concat()), options);
    assert_lines(&served.layer4, layer4);
    assert_problems(&served.problems, problems);
}

fn edge(listeners: &str) -> String {
    gateway("name: edge", listeners)
}

fn stored(yaml: &str) -> Store {
    let mut store = Store::default();
    store.set_file(Path::new("m.yaml"), yaml);
    store
}
