//! Tests of the translation from manifests to routes and problems.

use std::path::Path;

use sluicegate_model::{
    Conditions, Config, Endpoint, EntryPoint, Layer4Route, ProxyProtocol, Rule, UpstreamKey,
};

use super::{TranslateOptions, translate};
use crate::store::Store;

mod acme;
mod classes;
mod compression;
mod gateways;
mod nginx;
mod passthrough;
mod policies;
mod problems;
mod restrictions;
mod routes;
mod scope;
mod slashes;
mod tls;
mod upstreams;

/// The routes and problems of a text of manifests. A route is `host pathType path -> upstream [endpoints]`. A route
/// below HTTP is `protocol address host -> weight upstream [endpoints] + ...`.
struct Served {
    routes: Vec<String>,
    layer4: Vec<String>,
    problems: Vec<String>,
}

fn serve(yaml: &str) -> Served {
    serve_with(yaml, &TranslateOptions::default())
}

fn serve_with(yaml: &str, options: &TranslateOptions) -> Served {
    let mut store = Store::default();
    store.set_file(Path::new("m.yaml"), yaml);
    served(&store, options)
}

fn served(store: &Store, options: &TranslateOptions) -> Served {
    let translation = translate(store, options);
    let config = &translation.config;
    let show = |what: String, route: &Rule| {
        format!("{what} -> {}", show_upstream(config, &route.backends[0].upstream))
    };
    let mut routes = Vec::new();
    for host in &config.hosts {
        routes.extend(host.rules.iter().map(|route| {
            show(format!("{} {} {}", host.host, route.matches[0].path.path_type(), route.path()), route)
        }));
        routes.extend(host.fallback.iter().map(|route| show(format!("{} fallback", host.host), route)));
    }
    routes.extend(config.default_rule.iter().map(|route| show("default".to_owned(), route)));
    let problems = store
        .problems()
        .chain(translation.problems.iter().cloned())
        .chain(translation.upstream_problems.values().cloned());
    let layer4 = show_layer4(config);
    Served { routes, layer4, problems: problems.map(|problem| problem.to_string()).collect() }
}

/// The upstream, its endpoints, and the version of the PROXY protocol that the endpoints receive.
fn show_upstream(config: &Config, key: &UpstreamKey) -> String {
    let upstream = &config.upstreams[key];
    let endpoints: Vec<String> = upstream.endpoints.iter().map(show_endpoint).collect();
    let proxy = match upstream.proxy_protocol {
        None => "",
        Some(ProxyProtocol::V1) => " v1",
        Some(ProxyProtocol::V2) => " v2",
    };
    format!("{key} [{}]{proxy}", endpoints.join(" "))
}

fn show_layer4(config: &Config) -> Vec<String> {
    let backends = |route: &Layer4Route| {
        let all = route.backends.iter();
        let all: Vec<String> = all
            .map(|backend| format!("{} {}", backend.weight, show_upstream(config, &backend.upstream)))
            .collect();
        all.join(" + ")
    };
    let mut shown = Vec::new();
    for listener in &config.listeners {
        let start = format!("{} {}", listener.serves.protocol(), listener.address);
        let routes: Vec<String> = listener
            .serves
            .routes()
            .map(|(host, route)| format!("{start} {host} -> {}", backends(route)))
            .collect();
        if routes.is_empty() {
            shown.push(format!("{start} without a route"));
        }
        shown.extend(routes);
    }
    let passed = config.tls.passthrough.iter();
    let name = |entry_point: &EntryPoint| match entry_point {
        EntryPoint::Gateway(name) => format!(" {name}"),
        _ => String::new(),
    };
    shown.extend(passed.map(|route| {
        let at = name(&route.entry_point);
        format!("HTTPS{at} {} -> {}", route.host, backends(&route.route))
    }));
    for host in &config.tls.hosts {
        if let Some(relay) = &host.relay {
            shown.push(format!("relay{} {} -> {}", name(&host.entry_point), host.host, backends(relay)));
        }
    }
    shown
}

/// The address, followed by marks: `-` not ready, `s` serving but not ready, `t` terminating.
fn show_endpoint(endpoint: &Endpoint) -> String {
    let Conditions { ready, serving, terminating } = endpoint.conditions;
    let marks = [(!ready, '-'), (serving && !ready, 's'), (terminating, 't')];
    let marks: String = marks.into_iter().filter_map(|(is_so, mark)| is_so.then_some(mark)).collect();
    format!("{}{marks}", endpoint.address)
}

/// A Service `echo` with port 80 named `http`, and its slice with the endpoint 10.0.0.1:8080.
const ECHO: &str = "
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: echo-1, labels: {kubernetes.io/service-name: echo}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.0.0.1]}]
";

/// The upstream of [`ECHO`] with its endpoints.
const ECHO_80: &str = "default/echo:http [10.0.0.1:8080]";

/// An Ingress with these metadata and this spec, both in flow style.
fn ingress(metadata: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{{metadata}}}\nspec: {{{spec}}}\n"
    )
}

/// The rules of an Ingress, each from `host pathType path service:port`. The host `*` makes a rule without a host.
fn rules(rules: &[&str]) -> String {
    let rules: Vec<String> = rules
        .iter()
        .map(|rule| {
            let [host, path_type, path, backend] = rule.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{rule}")
            };
            let host = if host == "*" { String::new() } else { format!("host: \"{host}\", ") };
            format!(
                "{{{host}http: {{paths: [{{path: \"{path}\", pathType: {path_type}, backend: {}}}]}}}}",
                backend_to(backend)
            )
        })
        .collect();
    format!("rules: [{}]", rules.join(", "))
}

/// An Ingress backend from `service:port`.
fn backend_to(backend: &str) -> String {
    let (service, port) = backend.split_once(':').unwrap();
    let field = if port.parse::<u16>().is_ok() { "number" } else { "name" };
    format!("{{service: {{name: {service}, port: {{{field}: {port}}}}}}}")
}

#[track_caller]
fn assert_lines(actual: &[String], expected: &[&str]) {
    assert!(actual == expected, "got {actual:#?}\nexpected {expected:#?}");
}

/// Asserts that there are as many problems as expected texts, and that each problem contains the expected text at its
/// position.
#[track_caller]
fn assert_problems(actual: &[String], expected: &[&str]) {
    let fits = actual.len() == expected.len() && actual.iter().zip(expected).all(|(a, e)| a.contains(e));
    assert!(fits, "got {actual:#?}\nexpected {expected:#?}");
}

#[test]
fn quickstart_example_translates_without_problems() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quickstart");
    let loaded = crate::load_once(&dir, &TranslateOptions::default());
    assert_eq!(loaded.problems, []);
    let endpoints: Vec<String> = loaded
        .config
        .upstreams
        .values()
        .flat_map(|upstream| &*upstream.endpoints)
        .map(show_endpoint)
        .collect();
    let expected: Vec<String> = (1..=5).map(|nth| format!("127.0.1.{nth}:9000")).collect();
    assert_eq!(endpoints, expected);
    assert_eq!(loaded.config.hosts[0].rules[0].path(), "/");
}

#[test]
fn gateway_example_translates_without_problems() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateway");
    let loaded = crate::load_once(&dir, &TranslateOptions::default());
    assert_eq!(loaded.problems, []);
    let [host] = &loaded.config.hosts[..] else { panic!("{:?}", loaded.config.hosts) };
    assert_eq!((host.host.to_string(), host.rules.len()), ("shop.example.com".to_owned(), 3));
    assert_eq!(loaded.config.listeners[0].address.to_string(), "0.0.0.0:8081");
}

#[test]
fn layer_4_example_translates_without_problems() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/layer4");
    let db = "9 default/postgres:postgres (tcp) [127.0.2.1:15432 127.0.2.2:15432] + \
              1 default/postgres-next:postgres (tcp) [127.0.2.3:15432]";
    let vault = "vault.example.com -> 1 default/vault:https (tcp) [127.0.2.4:18200] v2";
    for (https_ports, tls) in
        [(vec![], format!("TLS 0.0.0.0:8443 {vault}")), (vec![8443], format!("HTTPS {vault}"))]
    {
        let options = TranslateOptions { https_ports, ..TranslateOptions::default() };
        let loaded = crate::load_once(&dir, &options);
        assert_eq!(loaded.problems, []);
        let mut actual = show_layer4(&loaded.config);
        actual.sort();
        let dns = "UDP 0.0.0.0:5353 * -> 1 default/dns:dns (udp) [127.0.2.5:15353]".to_owned();
        let mut expected = vec![format!("TCP 0.0.0.0:5432 * -> {db}"), tls, dns];
        expected.sort();
        assert_eq!(actual, expected);
    }
}
