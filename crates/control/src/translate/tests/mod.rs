//! Manifests in, routes and problems out.

use std::path::Path;

use sluicegate_model::{Conditions, Endpoint, Route};

use super::{TranslateOptions, translate};
use crate::store::Store;

mod classes;
mod compression;
mod problems;
mod routes;
mod tls;
mod upstreams;

/// What a text of manifests is served as: `host pathType path -> upstream [endpoints]`, and what is wrong with it.
struct Served {
    routes: Vec<String>,
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
    let show = |what: String, route: &Route| {
        let upstream = &config.upstreams[&route.upstream];
        let endpoints: Vec<String> = upstream.endpoints.iter().map(show_endpoint).collect();
        format!("{what} -> {} [{}]", route.upstream, endpoints.join(" "))
    };
    let mut routes = Vec::new();
    for host in &config.hosts {
        routes.extend(
            host.routes
                .iter()
                .map(|route| show(format!("{} {} {}", host.host, route.path.path_type(), route.path), route)),
        );
        routes.extend(host.fallback.iter().map(|route| show(format!("{} fallback", host.host), route)));
    }
    routes.extend(config.default_route.iter().map(|route| show("default".to_owned(), route)));
    let problems = store
        .problems()
        .chain(translation.problems.iter().cloned())
        .chain(translation.upstream_problems.values().cloned());
    Served { routes, problems: problems.map(|problem| problem.to_string()).collect() }
}

/// The address, and where it is not simply ready: `-` not ready, `s` serving, `t` terminating.
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

/// What [`ECHO`] is served as.
const ECHO_80: &str = "default/echo:http [10.0.0.1:8080]";

/// An Ingress with these metadata and this spec, both in flow style.
fn ingress(metadata: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{{metadata}}}\nspec: {{{spec}}}\n"
    )
}

/// The rules of an Ingress, each from `host pathType path service:port`; the host `*` is none.
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

/// A backend from `service:port`.
fn backend_to(backend: &str) -> String {
    let (service, port) = backend.split_once(':').unwrap();
    let field = if port.parse::<u16>().is_ok() { "number" } else { "name" };
    format!("{{service: {{name: {service}, port: {{{field}: {port}}}}}}}")
}

#[track_caller]
fn assert_lines(actual: &[String], expected: &[&str]) {
    assert!(actual == expected, "got {actual:#?}\nexpected {expected:#?}");
}

/// Each expected text must be in the problem of the same place, and there may be no more problems.
#[track_caller]
fn assert_problems(actual: &[String], expected: &[&str]) {
    let fits = actual.len() == expected.len() && actual.iter().zip(expected).all(|(a, e)| a.contains(e));
    assert!(fits, "got {actual:#?}\nexpected {expected:#?}");
}

#[test]
fn the_quickstart_is_served() {
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
    assert_eq!(loaded.config.hosts[0].routes[0].path.as_str(), "/");
}
