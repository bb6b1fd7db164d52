//! Gateways and their routes below HTTP.

use std::path::Path;

use super::{Served, assert_lines, assert_problems, serve, serve_with, served};
use crate::{Severity, Store, TranslateOptions, translate};

/// A Service `db` with port 5432, and its slice with the endpoint 10.0.0.1:5432; `dns` with port 53 for TCP and UDP,
/// at 10.0.0.2.
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

/// A Gateway of our class.
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

#[test]
fn a_tcp_route_leads_from_a_port_to_a_service() {
    let manifests = [edge(&tcp("pg", 5432)), route("TCPRoute", "name: db", &[], "db:5432")];
    check(&manifests, &[&format!("TCP 0.0.0.0:5432 * -> {DB}")], &[]);
    let config = translate(&stored(&manifests.concat()), &TranslateOptions::default()).config;
    assert_eq!(config.listeners[0].id.to_string(), "Gateway default/edge, listener pg");
    assert_eq!(config.layer4_routes().next().unwrap().1.id.to_string(), "TCPRoute default/db");
}

fn stored(yaml: &str) -> Store {
    let mut store = Store::default();
    store.set_file(Path::new("m.yaml"), yaml);
    store
}

#[test]
fn one_port_of_a_service_may_be_two_by_its_protocol() {
    let listeners = "{name: udp, protocol: UDP, port: 53}, {name: tcp, protocol: TCP, port: 53}".to_owned();
    check(
        &[
            edge(&listeners),
            route("UDPRoute", "name: dns", &[], "dns:53"),
            route("TCPRoute", "name: dns", &[], "dns:53"),
        ],
        &[
            "TCP 0.0.0.0:53 * -> 1 default/dns:dns-tcp (tcp) [10.0.0.2:5301]",
            &format!("UDP 0.0.0.0:53 * -> {DNS}"),
        ],
        &[],
    );
}

#[test]
fn a_port_of_the_other_protocol_is_told_to_be_that() {
    let listeners = format!("{}, {{name: u, protocol: UDP, port: 5432}}", tcp("t", 9));
    let place = "spec.rules[0].backendRefs[0].port: Service default/";
    check(
        &[
            edge(&listeners),
            route("UDPRoute", "name: a", &[], "db:5432"),
            route("TCPRoute", "name: a", &[], "dns:9"),
        ],
        &["TCP 0.0.0.0:9 * -> 1 default/dns:9 (tcp) []", "UDP 0.0.0.0:5432 * -> 1 default/db:5432 (udp) []"],
        &[
            // In the order of ports; SCTP is none of ours.
            &format!("{place}dns has no port \"9\", it has 53 (dns-tcp): connections are refused"),
            &format!(
                "{place}db has no port \"5432\", it has no UDP port (5432 is for TCP, and UDP is needed here): \
                 datagrams are dropped"
            ),
        ],
    );
    let ingress = super::ingress("name: a", &super::rules(&["* Prefix / dns:dns"]));
    assert_problems(
        &serve(&format!("{ingress}{SERVICES}")).problems,
        &["it has 53 (dns-tcp) (dns is for UDP, and TCP is needed here): requests are answered 503"],
    );
}

#[test]
fn a_listener_without_a_route_is_served_and_refuses() {
    check(
        &[edge(&format!("{}, {}", tcp("a", 1), tls("b", 2, "")))],
        &["TCP 0.0.0.0:1 without a route", "TLS 0.0.0.0:2 without a route"],
        &[],
    );
}

#[test]
fn a_gateway_is_served_by_its_class() {
    let class = |name: &str, controller: &str| {
        object("GatewayClass", &format!("name: {name}"), &format!("controllerName: {controller}"))
    };
    let ours = "sluicegate.dev/gateway-controller";
    let of = |class: &str| {
        object(
            "Gateway",
            "name: edge",
            &format!("gatewayClassName: {class}, listeners: [{}]", tcp("pg", 5432)),
        )
    };
    for (classes, name, note) in [
        (String::new(), "sluicegate", None),
        (String::new(), "gold", Some("\"gold\" is not served here; --gateway-class gold serves it")),
        (class("gold", ours), "gold", None),
        (
            class("sluicegate", "example.com/other"),
            "sluicegate",
            Some(
                "\"sluicegate\" is not served here: GatewayClass sluicegate is that of the controller \
                 \"example.com/other\"; name a class of sluicegate.dev/gateway-controller",
            ),
        ),
    ] {
        let text =
            format!("{classes}{}{}{SERVICES}", of(name), route("TCPRoute", "name: db", &[], "db:5432"));
        let translation = translate(&stored(&text), &TranslateOptions::default());
        assert_eq!(translation.config.listeners.len(), usize::from(note.is_none()), "{name}");
        // Its routes are nobody's mistake either.
        assert_eq!(translation.problems, []);
        let notes: Vec<String> = translation.foreign.iter().map(ToString::to_string).collect();
        assert_problems(&notes, note.as_slice());
        assert!(translation.foreign.iter().all(|note| note.severity == Severity::Note));
    }
    let options = TranslateOptions { gateway_class: "gold".into(), ..TranslateOptions::default() };
    assert_eq!(translate(&stored(&of("gold")), &options).config.listeners.len(), 1);
}

#[test]
fn a_gateway_listens_at_its_own_addresses_or_at_those_of_the_option() {
    let addresses = |addresses: &str| {
        object(
            "Gateway",
            "name: edge",
            &format!(
                "gatewayClassName: sluicegate, addresses: [{addresses}], listeners: [{}]",
                tcp("pg", 5432)
            ),
        )
    };
    let options = TranslateOptions {
        gateway_addresses: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
        ..TranslateOptions::default()
    };
    let without_route = |addresses: &[&str]| -> Vec<String> {
        addresses.iter().map(|address| format!("TCP {address}:5432 without a route")).collect()
    };
    for (written, listened, problems) in [
        ("", &["127.0.0.1", "[::1]"][..], &[][..]),
        ("{value: 10.0.0.9}, {type: IPAddress, value: 10.0.0.8}", &["10.0.0.8", "10.0.0.9"], &[]),
        // Beside all addresses, one of them is nothing of its own.
        ("{value: 10.0.0.9}, {value: 0.0.0.0}, {value: \"::1\"}", &["0.0.0.0", "[::1]"], &[]),
        (
            "{value: 10.0.0.9}, {value: 10.0.0.9}",
            &["10.0.0.9"],
            &["spec.addresses[1].value: 10.0.0.9 is written twice"],
        ),
        // Never everywhere by mistake.
        ("{value: 10.0.0.300}", &[], &["spec.addresses[0].value: \"10.0.0.300\" is not an IP address"]),
        (
            "{type: Hostname, value: lb.example}, {value: 10.0.0.9}",
            &["10.0.0.9"],
            &["spec.addresses[0].type: \"Hostname\" is not served: write IPAddress"],
        ),
    ] {
        let expected = without_route(listened);
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_with(&options, &[addresses(written)], &expected, problems);
    }
}

#[test]
fn listeners_of_protocols_that_are_not_served_yet_are_a_note() {
    let listeners = "{name: a, protocol: HTTP, port: 80}, {name: b, protocol: HTTPS, port: 443, tls: {certificateRefs: \
                     [{name: c}]}}, {name: c, protocol: TLS, port: 8443, tls: {mode: Terminate}}";
    let manifests = [
        edge(listeners),
        attached("TLSRoute", "name: a", "{name: edge, sectionName: c}", &["a.test"], &["db:5432"]),
    ];
    let store = stored(&manifests.concat());
    let translation = translate(&store, &TranslateOptions::default());
    assert_eq!(store.problems().count(), 0);
    assert!(translation.problems.iter().all(|problem| problem.severity == Severity::Note));
    check(
        &manifests,
        &[],
        &[
            "spec.listeners[0].protocol: HTTP is not served yet",
            "spec.listeners[1].protocol: HTTPS is not served yet",
            "spec.listeners[2].protocol: TLS in mode Terminate is not served yet",
            "TLSRoute default/a: spec.parentRefs[0]: listener c of Gateway default/edge is for TLS in mode Terminate, \
             not served yet",
        ],
    );
}

#[test]
fn a_port_is_served_for_the_oldest_gateway_and_the_other_is_told() {
    let created = |name: &str, year: u16, listener: &str| {
        gateway(&format!("name: {name}, creationTimestamp: \"{year}-01-01T00:00:00Z\""), listener)
    };
    let to = |name: &str| {
        attached("TCPRoute", &format!("name: {name}"), &format!("{{name: {name}}}"), &[], &["db:5432"])
    };
    check(
        &[created("a", 2025, &tcp("x", 1)), created("b", 2024, &tcp("z", 1)), to("a"), to("b")],
        &[&format!("TCP 0.0.0.0:1 * -> {DB}")],
        &[
            "Gateway default/a: spec.listeners[0].port: port 1 is already taken by listener z of Gateway default/b: no \
             TCPRoute is served at 0.0.0.0:1 for this",
            "TCPRoute default/a: spec.parentRefs[0]: listener x of Gateway default/a is not served",
        ],
    );
    // Within a Gateway, the first.
    check(
        &[edge(&format!("{}, {}, {{name: u, protocol: UDP, port: 1}}", tcp("x", 1), tls("z", 1, "")))],
        &["TCP 0.0.0.0:1 without a route", "UDP 0.0.0.0:1 without a route"],
        &[
            "spec.listeners[1].port: port 1 is already taken by listener x of Gateway default/edge: no TLSRoute",
        ],
    );
    check(
        &[edge(&format!("{}, {}", tls("x", 1, ""), tcp("z", 1)))],
        &["TLS 0.0.0.0:1 without a route"],
        &[
            "spec.listeners[1].port: port 1 is already taken by listener x of Gateway default/edge: no TCPRoute",
        ],
    );
    // One address is part of all.
    let at = |name: &str, address: &str| {
        object(
            "Gateway",
            &format!("name: {name}"),
            &format!(
                "gatewayClassName: sluicegate, addresses: [{{value: \"{address}\"}}], listeners: [{}]",
                tcp("x", 1)
            ),
        )
    };
    check(
        &[at("a", "10.0.0.1"), at("b", "10.0.0.2"), at("c", "0.0.0.0"), at("d", "::")],
        &["TCP 10.0.0.1:1 without a route", "TCP 10.0.0.2:1 without a route", "TCP [::]:1 without a route"],
        &[
            "Gateway default/c: spec.listeners[0].port: port 1 is already taken by listener x of Gateway default/a",
        ],
    );
}

#[test]
fn listeners_for_tls_share_a_port_by_their_hostnames() {
    let old = gateway(
        "name: old, creationTimestamp: \"2024-01-01T00:00:00Z\"",
        &format!("{}, {}", tls("a", 8443, "a.test"), tls("b", 8443, "*.b.test")),
    );
    let route = |name: &str, parent: &str, host: &str| {
        attached("TLSRoute", &format!("name: {name}"), &format!("{{name: {parent}}}"), &[host], &["db:5432"])
    };
    check(
        &[
            old,
            edge(&format!("{}, {}", tls("a", 8443, "a.test"), tls("c", 8443, ""))),
            route("a", "old", "a.test"),
            route("b", "old", "x.y.b.test"),
            route("c", "edge", "c.test"),
            route("d", "edge", "d.b.test"),
        ],
        &[
            &format!("TLS 0.0.0.0:8443 a.test -> {DB}"),
            &format!("TLS 0.0.0.0:8443 c.test -> {DB}"),
            &format!("TLS 0.0.0.0:8443 x.y.b.test -> {DB}"),
        ],
        &[
            "Gateway default/edge: spec.listeners[0].hostname: a.test at port 8443 is already taken by listener a of \
             Gateway default/old: no TLSRoute is served at 0.0.0.0:8443 for this",
            // The listener that names it most closely has it.
            "TLSRoute default/d: spec.parentRefs[0]: d.b.test belongs to listener b of Gateway default/old, to which \
             the route is not attached by this: it is not used",
        ],
    );
}

#[test]
fn a_tls_route_gets_the_names_that_are_its_listeners_too() {
    let no_hostnames: &[&str] = &[];
    for (listener, hostnames, expected) in [
        ("", &["a.test", "*.b.test"][..], &["*.b.test", "a.test"][..]),
        ("", no_hostnames, &["*"]),
        ("*.test", no_hostnames, &["*.test"]),
        ("a.test", &["a.test"], &["a.test"]),
        ("a.test", &["*.test"], &["a.test"]),
        ("*.test", &["a.b.test"], &["a.b.test"]),
        ("*.test", &["*.a.b.test"], &["*.a.b.test"]),
        ("*.a.b.test", &["*.test"], &["*.a.b.test"]),
        ("*.test", &["*.test", "a.test", "a.test"], &["*.test", "a.test"]),
    ] {
        let manifests =
            [edge(&tls("x", 8443, listener)), route("TLSRoute", "name: db", hostnames, "db:5432")];
        let mut expected: Vec<String> =
            expected.iter().map(|host| format!("TLS 0.0.0.0:8443 {host} -> {DB}")).collect();
        let mut actual = serve(&format!("{}{SERVICES}", manifests.concat()));
        expected.sort();
        actual.layer4.sort();
        assert_eq!(actual.layer4, expected, "{listener} {hostnames:?}");
        assert_problems(&actual.problems, &[]);
    }
    for (listener, hostnames) in
        [("test", &["a.test", "*.test"][..]), ("*.test", &["test", "a.tests", "a.xtest"])]
    {
        check(
            &[edge(&tls("x", 8443, listener)), route("TLSRoute", "name: db", hostnames, "db:5432")],
            &["TLS 0.0.0.0:8443 without a route"],
            &[&format!(
                "spec.parentRefs[0]: listener x of Gateway default/edge is for {listener}, and spec.hostnames has \
                 nothing of it"
            )],
        );
    }
    check(
        &[edge(&tls("x", 8443, "*.test")), route("TLSRoute", "name: db", &["a.test", "b.net"], "db:5432")],
        &[&format!("TLS 0.0.0.0:8443 a.test -> {DB}")],
        &["spec.hostnames[1]: b.net is of no listener that the route belongs to"],
    );
}

#[test]
fn wildcards_of_gateways_stand_for_several_labels() {
    let manifests = [edge(&tls("x", 8443, "")), route("TLSRoute", "name: db", &["*.test"], "db:5432")];
    let config = translate(&stored(&manifests.concat()), &TranslateOptions::default()).config;
    let (host, _) = config.layer4_routes().next().unwrap();
    assert!(host.matches("a.b.test") && host.matches("a.test") && !host.matches("test"));
}

#[test]
fn of_two_routes_the_oldest_wins_and_the_other_is_told() {
    let created = |kind: &str, name: &str, year: u16, hosts: &[&str], backend: &str| {
        route(kind, &format!("name: {name}, creationTimestamp: \"{year}-01-01T00:00:00Z\""), hosts, backend)
    };
    for kind in ["TCPRoute", "UDPRoute"] {
        let protocol = &kind[..3];
        let upstream = if kind == "TCPRoute" { DB } else { DNS };
        let (winner, loser) = if kind == "TCPRoute" { ("db:5432", "dns:53") } else { ("dns:53", "db:1") };
        check(
            &[
                edge(&format!("{{name: x, protocol: {protocol}, port: 1}}")),
                created(kind, "b", 2025, &[], loser),
                created(kind, "c", 2024, &[], winner),
                route(kind, "name: a", &[], loser),
            ],
            &[&format!("{protocol} 0.0.0.0:1 * -> {upstream}")],
            &[
                &format!(
                    "{kind} default/b: spec.parentRefs[0]: is not used at listener x of Gateway default/edge, which \
                     leads to the older {kind} default/c"
                ),
                // Without a creation time it is youngest.
                &format!("{kind} default/a: spec.parentRefs[0]: is not used"),
            ],
        );
    }
    check(
        &[
            edge(&tls("x", 8443, "")),
            created("TLSRoute", "b", 2025, &["a.test", "b.test"], "dns:53"),
            created("TLSRoute", "c", 2024, &["a.test"], "db:5432"),
        ],
        &[
            &format!("TLS 0.0.0.0:8443 a.test -> {DB}"),
            "TLS 0.0.0.0:8443 b.test -> 1 default/dns:dns-tcp (tcp) [10.0.0.2:5301]",
        ],
        &[
            "TLSRoute default/b: spec.parentRefs[0]: a.test is not used at listener x of Gateway default/edge: it is \
             already taken by the older TLSRoute default/c",
        ],
    );
}

#[test]
fn an_upstream_that_lost_every_place_is_not_among_the_upstreams() {
    let text = [
        edge(&tcp("x", 1)),
        route("TCPRoute", "name: a", &[], "db:5432"),
        route("TCPRoute", "name: b", &[], "nothing:1"),
    ];
    let store = stored(&format!("{}{SERVICES}", text.concat()));
    let config = translate(&store, &TranslateOptions::default()).config;
    let keys: Vec<String> = config.upstreams.keys().map(ToString::to_string).collect();
    assert_eq!(keys, ["default/db:pg (tcp)"]);
    // Its Service that does not exist is no matter then.
    assert_problems(&served(&store, &TranslateOptions::default()).problems, &["is not used at listener x"]);
}

#[test]
fn a_route_is_attached_by_section_and_port_and_else_to_all() {
    let listeners = format!("{}, {}, {}", tcp("a", 1), tcp("b", 2), tls("c", 3, ""));
    let place = "TCPRoute default/db: spec.parentRefs[0]: ";
    for (parent, ports, problem) in [
        ("{name: edge}", &[1, 2][..], None),
        ("{name: edge, namespace: default, group: gateway.networking.k8s.io, kind: Gateway}", &[1, 2], None),
        ("{name: edge, sectionName: b}", &[2], None),
        ("{name: edge, port: 1}", &[1], None),
        ("{name: edge, port: 2, sectionName: b}", &[2], None),
        ("{name: edge, port: 2}, {name: edge, sectionName: b}, {name: edge, port: 1}", &[1, 2], None),
        (
            "{name: edge, port: 1, sectionName: b}",
            &[],
            Some("Gateway default/edge has no listener named \"b\" at port 1"),
        ),
        ("{name: edge, port: 9}", &[], Some("Gateway default/edge has no listener at port 9")),
        ("{name: edge, sectionName: z}", &[], Some("Gateway default/edge has no listener named \"z\"")),
        (
            "{name: edge, sectionName: c}",
            &[],
            Some("listener c of Gateway default/edge is for TLS, and takes no TCPRoute"),
        ),
        ("{name: none}", &[], Some("there is no Gateway default/none")),
        ("{name: edge, namespace: other}", &[], Some("there is no Gateway other/edge")),
        ("{name: db, kind: Service, group: \"\"}", &[], Some("routes of a Service are not served")),
        ("{name: set, kind: ListenerSet}", &[], Some("routes of a ListenerSet are not served")),
    ] {
        let expected: Vec<String> = [1, 2]
            .iter()
            .map(|port| match ports.contains(port) {
                true => format!("TCP 0.0.0.0:{port} * -> {DB}"),
                false => format!("TCP 0.0.0.0:{port} without a route"),
            })
            .chain(["TLS 0.0.0.0:3 without a route".to_owned()])
            .collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        let problem = problem.map(|problem| format!("{place}{problem}"));
        let problem: Vec<&str> = problem.as_deref().into_iter().collect();
        check(
            &[edge(&listeners), attached("TCPRoute", "name: db", parent, &[], &["db:5432"])],
            &expected,
            &problem,
        );
    }
}

#[test]
fn a_listener_takes_the_routes_that_it_allows() {
    let listener =
        |allowed: &str| edge(&format!("{{name: x, protocol: TCP, port: 1, allowedRoutes: {{{allowed}}}}}"));
    let own = attached("TCPRoute", "name: db", "{name: edge}", &[], &["db:5432"]);
    let other = attached(
        "TCPRoute",
        "name: db, namespace: other",
        "{name: edge, namespace: default}",
        &[],
        &["db:5432"],
    );
    let db_of_other = "1 other/db:5432 (tcp) []";
    let (taken, nothing) = (format!("TCP 0.0.0.0:1 * -> {DB}"), "TCP 0.0.0.0:1 without a route".to_owned());
    let taken_of_other = format!("TCP 0.0.0.0:1 * -> {db_of_other}");
    let missing = "there is no Service other/db";
    let no_namespace = "takes no route of namespace other (allowedRoutes.namespaces)";
    let selector = "spec.listeners[0].allowedRoutes.namespaces.from: Selector needs the labels of namespaces";
    let by_labels = "namespaces: {from: Selector, selector: {matchLabels: {a: b}, matchExpressions: []}}";
    for (allowed, route, expected, problems) in [
        ("", &own, &taken, &[][..]),
        ("", &other, &nothing, &[no_namespace]),
        ("namespaces: {from: Same}", &own, &taken, &[]),
        ("namespaces: {from: Same}", &other, &nothing, &[no_namespace]),
        ("namespaces: {from: All}", &own, &taken, &[]),
        ("namespaces: {from: All}", &other, &taken_of_other, &[missing]),
        ("namespaces: {from: None}", &own, &nothing, &["takes no route of namespace default"]),
        (by_labels, &own, &taken, &[selector]),
        (by_labels, &other, &nothing, &[selector, no_namespace]),
        (
            "namespaces: {from: Sane}",
            &own,
            &nothing,
            &["from: \"Sane\" is unknown: write Same, All or None", "takes no route of namespace default"],
        ),
        ("kinds: [{kind: TCPRoute}]", &own, &taken, &[]),
        ("kinds: []", &own, &taken, &[]),
        (
            "kinds: [{kind: TLSRoute}]",
            &own,
            &nothing,
            &[
                "spec.listeners[0].allowedRoutes.kinds[0].kind: \"TLSRoute\" does nothing: a listener for TCP takes \
                 TCPRoute alone",
                "takes no TCPRoute (allowedRoutes.kinds)",
            ],
        ),
        (
            "kinds: [{kind: TCPRoute, group: example.com}]",
            &own,
            &nothing,
            &["\"TCPRoute\" does nothing", "takes no TCPRoute (allowedRoutes.kinds)"],
        ),
    ] {
        println!("{allowed}");
        check(&[listener(allowed), route.clone()], &[expected], problems);
    }
}

#[test]
fn backends_share_by_weight_and_what_may_not_be_named_is_refused() {
    let to = |backends: &str| {
        let spec = format!("parentRefs: [{{name: edge}}], rules: [{{backendRefs: [{backends}]}}]");
        [edge(&tcp("x", 1)), object("TCPRoute", "name: db", &spec)]
    };
    let place = "TCPRoute default/db: spec.rules[0].backendRefs[1].";
    let db = "{name: db, port: 5432}";
    for (other, expected, problem) in [
        ("{name: db, port: 5432, weight: 0}", "0 default/db:pg (tcp) [10.0.0.1:5432]", None),
        ("{name: dns, port: 53, weight: 1000000}", "1000000 default/dns:dns-tcp (tcp) [10.0.0.2:5301]", None),
        (
            "{name: dns, port: 53, weight: 1000001}",
            "0 default/dns:dns-tcp (tcp) [10.0.0.2:5301]",
            Some("weight: 1000001 is not between 0 and 1000000: the backend gets nothing"),
        ),
        (
            "{name: dns, port: 53, weight: -1}",
            "0 default/dns:dns-tcp (tcp) [10.0.0.2:5301]",
            Some("weight: -1 is not between"),
        ),
        (
            "{name: none, port: 1}",
            "1 default/none:1 (tcp) []",
            Some("name: there is no Service default/none: connections are refused"),
        ),
        (
            "{name: db, port: 1}",
            "1 default/db:1 (tcp) []",
            Some("port: Service default/db has no port \"1\", it has 5432 (pg): connections are refused"),
        ),
        (
            "{name: db}",
            "1 default/(refused):- (tcp) []",
            Some("port: is missing, name a port of the Service: its part"),
        ),
        (
            "{name: db, port: 70000, weight: 3}",
            "3 default/(refused):- (tcp) []",
            Some("port: is not between 1 and 65535: its part is refused"),
        ),
        ("{port: 1}", "1 default/(refused):- (tcp) []", Some("name: is missing: its part is refused")),
        (
            "{name: db, kind: Bucket, group: example.com, port: 1}",
            "1 default/(refused):- (tcp) []",
            Some(
                "kind: \"Bucket\" of group \"example.com\" is not served, name a Service: its part is refused",
            ),
        ),
        (
            "{name: db, namespace: other, port: 5432, weight: 4}",
            "4 default/(refused):5432 (tcp) []",
            Some(
                "namespace: \"other\": no ReferenceGrant there lets a TCPRoute of namespace default name Service db: \
                 its part is refused",
            ),
        ),
    ] {
        let problem = problem.map(|problem| format!("{place}{problem}"));
        let problems: Vec<&str> = problem.as_deref().into_iter().collect();
        check(&to(&format!("{db}, {other}")), &[&format!("TCP 0.0.0.0:1 * -> {DB} + {expected}")], &problems);
    }
}

#[test]
fn a_reference_grant_lets_routes_name_services_of_its_namespace() {
    let from = |group: &str, kind: &str, namespace: &str| {
        format!("from: [{{group: {group}, kind: {kind}, namespace: {namespace}}}]")
    };
    let (group, services) = ("gateway.networking.k8s.io", "to: [{group: \"\", kind: Service}]");
    let good = from(group, "TCPRoute", "default");
    for (namespace, spec, is_granted) in [
        ("other", format!("{good}, {services}"), true),
        ("other", format!("{good}, to: [{{kind: Service, name: db}}]"), true),
        ("other", format!("{good}, to: [{{kind: Service, name: dns}}]"), false),
        ("other", format!("{good}, to: [{{kind: Secret}}]"), false),
        ("other", format!("{good}, to: [{{group: example.com, kind: Service}}]"), false),
        ("other", format!("{}, {services}", from(group, "UDPRoute", "default")), false),
        ("other", format!("{}, {services}", from(group, "TCPRoute", "third")), false),
        ("other", format!("{}, {services}", from("example.com", "TCPRoute", "default")), false),
        ("default", format!("{good}, {services}"), false),
        ("othes", format!("{good}, {services}"), false),
    ] {
        let manifests = [
            edge(&tcp("x", 1)),
            object(
                "TCPRoute",
                "name: db",
                "parentRefs: [{name: edge}], \
                 rules: [{backendRefs: [{name: db, namespace: other, port: 5432}]}]",
            ),
            object("ReferenceGrant", &format!("name: a, namespace: {namespace}"), &spec),
            SERVICES.replace("{name: db", "{namespace: other, name: db"),
        ];
        let served = serve(&manifests.concat());
        let expected = match is_granted {
            true => "1 other/db:pg (tcp) [10.0.0.1:5432]",
            false => "1 default/(refused):5432 (tcp) []",
        };
        assert_lines(&served.layer4, &[&format!("TCP 0.0.0.0:1 * -> {expected}")]);
        assert_eq!(served.problems.len(), usize::from(!is_granted), "{spec}: {:?}", served.problems);
    }
    assert_problems(
        &serve(&object("ReferenceGrant", "name: a", "from: [{kind: TCPRoute}], to: [{}]")).problems,
        &[
            "spec.from[0].group: is missing",
            "spec.from[0].namespace: is missing",
            "spec.to[0].kind: is missing",
        ],
    );
}

#[test]
fn what_the_process_listens_at_is_no_gateways() {
    let options = TranslateOptions {
        http_ports: vec![80, 8080],
        https_ports: vec![443, 8443],
        admin_port: Some(9901),
        ..TranslateOptions::default()
    };
    let listeners = [
        tcp("a", 8080),
        tls("b", 80, ""),
        tcp("c", 9901),
        tcp("d", 443),
        "{name: e, protocol: UDP, port: 443}".to_owned(),
        tls("f", 8443, "*.test"),
    ];
    check_with(
        &options,
        &[edge(&listeners.join(", ")), route("TLSRoute", "name: db", &["a.test"], "db:5432")],
        // What a TLS listener passes on at a port for HTTPS is passed on there.
        &["UDP 0.0.0.0:443 without a route", &format!("HTTPS a.test -> {DB}")],
        &[
            "spec.listeners[0].port: 8080 is a port for HTTP (--listen): take another, the listener is not served",
            "spec.listeners[1].port: 80 is a port for HTTP (--listen)",
            "spec.listeners[2].port: 9901 is a port for the admin interface (--admin)",
            "spec.listeners[3].port: 443 is a port for HTTPS (--listen-https)",
        ],
    );
}

#[test]
fn older_versions_and_every_valid_field_are_read() {
    let class = "apiVersion: gateway.networking.k8s.io/v1beta1\nkind: GatewayClass\nmetadata: {name: gold}\n\
                 spec: {controllerName: sluicegate.dev/gateway-controller, description: d, parametersRef: {group: g, \
                 kind: k, name: p, namespace: s}}\nstatus: {conditions: [{type: Accepted}]}\n";
    let gateway = "---\napiVersion: gateway.networking.k8s.io/v1beta1\nkind: Gateway\nmetadata: {name: edge}\n\
        spec: {gatewayClassName: gold, infrastructure: {labels: {a: b}, annotations: {a: b}, parametersRef: {group: g, \
        kind: k, name: p}}, allowedListeners: {namespaces: {from: Same}}, defaultScope: All, tls: {frontend: {default: \
        {}}}, listeners: [{name: x, protocol: TLS, port: 8443, tls: {mode: Passthrough, options: {a: b}, \
        certificateRefs: []}, allowedRoutes: {kinds: [{group: gateway.networking.k8s.io, kind: TLSRoute}]}}]}\n\
        status: {listeners: []}\n";
    let backend = "useDefaultGateways: None, rules: [{name: r, backendRefs: [{group: \"\", kind: Service, name: db, \
                   namespace: default, port: 5432, weight: 1}]}]";
    for version in ["v1", "v1alpha3", "v1alpha2"] {
        let route = format!(
            "---\napiVersion: gateway.networking.k8s.io/{version}\nkind: TLSRoute\nmetadata: {{name: db}}\n\
             spec: {{parentRefs: [{{name: edge}}], {backend}}}\nstatus: {{parents: []}}\n"
        );
        println!("{version}");
        check(&[class.to_owned(), gateway.to_owned(), route], &[&format!("TLS 0.0.0.0:8443 * -> {DB}")], &[]);
    }
    for kind in ["TCPRoute", "UDPRoute"] {
        let route = format!(
            "apiVersion: gateway.networking.k8s.io/v1alpha2\nkind: {kind}\nmetadata: {{name: db}}\n\
             spec: {{parentRefs: [{{name: other, sectionName: a, port: 1}}], {backend}}}\n"
        );
        check(&[route], &[], &["spec.parentRefs[0]: there is no Gateway default/other"]);
    }
    let old = "{apiVersion: gateway.networking.k8s.io/v1alpha1, kind: Gateway, metadata: {name: a}}";
    let message = "Gateway default/a: apiVersion: Gateway is not read in \"gateway.networking.k8s.io/v1alpha1\": write \
                   gateway.networking.k8s.io/v1";
    assert_problems(&serve(old).problems, &[message]);
    let of_another_group = "{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: a}}";
    assert_problems(&serve(of_another_group).problems, &[]);
}

#[test]
fn what_is_wrong_with_a_gateway_is_told_by_its_field() {
    for (listener, problem) in [
        ("{protocol: TCP, port: 1}", "spec.listeners[0].name: is missing"),
        ("{name: A, protocol: TCP, port: 1}", "spec.listeners[0].name: \"A\" has upper-case letters"),
        ("{name: a, protocol: TCP}", "spec.listeners[0].port: is missing"),
        ("{name: a, protocol: TCP, port: 0}", "spec.listeners[0].port: 0 is not between 1 and 65535"),
        ("{name: a, protocol: TCP, port: \"1\"}", "spec.listeners[0].port: must be a number: write 1"),
        ("{name: a, port: 1}", "spec.listeners[0].protocol: is missing: write TCP, TLS or UDP"),
        (
            "{name: a, protocol: tcp, port: 1}",
            "protocol: \"tcp\" is not served: write TCP, TLS or UDP, in upper case",
        ),
        ("{name: a, protocol: SCTP, port: 1}", "protocol: \"SCTP\" is not served"),
        ("{name: a, protocol: TLS, port: 1}", "spec.listeners[0].tls.mode: is missing: write Passthrough"),
        (
            "{name: a, protocol: TLS, port: 1, tls: {}}",
            "spec.listeners[0].tls.mode: is missing: write Passthrough",
        ),
        (
            "{name: a, protocol: TLS, port: 1, tls: {mode: passthrough}}",
            "tls.mode: \"passthrough\" is unknown",
        ),
        (
            "{name: a, protocol: TCP, port: 1, tls: {mode: Passthrough}}",
            "spec.listeners[0].tls: cannot be on a listener for TCP: write protocol: TLS",
        ),
        (
            "{name: a, protocol: HTTPS, port: 1, tls: {mode: Passthrough}}",
            "spec.listeners[0].tls.mode: Passthrough needs protocol: TLS",
        ),
        (
            "{name: a, protocol: TLS, port: 1, tls: {mode: Passthrough}, hostname: A.test}",
            "spec.listeners[0].hostname: \"A.test\" has upper-case letters",
        ),
        (
            "{name: a, protocol: TLS, port: 1, tls: {mode: Passthrough}, hostname: 10.0.0.1}",
            "is an IP address",
        ),
    ] {
        check(&[edge(listener)], &[], &[problem]);
    }
    check(
        &[edge("{name: a, protocol: TCP, port: 1, hostname: a.test, prot: 2, allowedRoute: {}}")],
        &["TCP 0.0.0.0:1 without a route"],
        &[
            "spec.listeners[0].allowedRoute: is unknown and does nothing: did you mean allowedRoutes?",
            "spec.listeners[0].prot: is unknown and does nothing: did you mean port?",
            "spec.listeners[0].hostname: does nothing: TCP knows no names",
        ],
    );
    check(
        &[edge(&format!("{}, {}", tcp("a", 1), tcp("a", 2)))],
        &["TCP 0.0.0.0:1 without a route"],
        &["spec.listeners[1].name: \"a\" is the name of two listeners"],
    );
    check(
        &[object("Gateway", "name: a", "gatewayClassName: sluicegate")],
        &[],
        &["spec.listeners: is missing"],
    );
    let no_class = object("Gateway", "name: a", &format!("listeners: [{}]", tcp("a", 1)));
    check(&[no_class], &[], &["spec.gatewayClassName: is missing"]);
    check(&[object("GatewayClass", "name: a", "")], &[], &["spec.controllerName: is missing"]);
    check(
        &[gateway("name: a, annotations: {sluicegate.dev/proxy-protocol: v1}", &tcp("a", 1))],
        &["TCP 0.0.0.0:1 without a route"],
        &[
            "metadata.annotations[sluicegate.dev/proxy-protocol]: does nothing on an object of kind Gateway: write it on \
           the Service",
        ],
    );
}

#[test]
fn what_is_wrong_with_a_route_is_told_by_its_field() {
    let backends = "rules: [{backendRefs: [{name: db, port: 5432}]}]";
    for (kind, spec, problems) in [
        (
            "TCPRoute",
            "parentRefs: [{name: edge}]",
            &["spec.rules: is missing: write a rule with backendRefs"][..],
        ),
        ("TCPRoute", "parentRefs: [{name: edge}], rules: [{}]", &["spec.rules[0].backendRefs: is missing"]),
        ("TCPRoute", backends, &["spec.parentRefs: is missing: the route belongs to no Gateway"]),
        ("TCPRoute", &format!("parentRefs: [{{}}], {backends}"), &["spec.parentRefs[0].name: is missing"]),
        (
            "TCPRoute",
            &format!("parentRefs: [{{name: edge, port: 0}}], {backends}"),
            &["spec.parentRefs[0].port: is not between 1 and 65535"],
        ),
        (
            "TCPRoute",
            &format!("hostnames: [a.test], parentRefs: [{{name: none}}], {backends}"),
            &["spec.hostnames: is unknown and does nothing", "there is no Gateway"],
        ),
        (
            "TLSRoute",
            &format!("hostnames: [\"\", 10.0.0.1], parentRefs: [{{name: none}}], {backends}"),
            &[
                "spec.hostnames[0]: is empty",
                "spec.hostnames[1]: \"10.0.0.1\" is an IP address",
                "there is no Gateway",
            ],
        ),
        (
            "TLSRoute",
            &format!("hostname: [a.test], parentRefs: [{{name: none}}], {backends}"),
            &["spec.hostname: is unknown and does nothing: is it in the right place?", "there is no Gateway"],
        ),
    ] {
        println!("{kind} {spec}");
        let no_gateway = spec.contains("{name: edge}").then_some("there is no Gateway default/edge");
        let problems: Vec<&str> = problems.iter().copied().chain(no_gateway).collect();
        check(&[object(kind, "name: a", spec)], &[], &problems);
    }
    let two_rules =
        "parentRefs: [{name: edge}], rules: [{backendRefs: [{name: db, port: 5432}]}, {backendRefs: []}]";
    check(
        &[edge(&tcp("x", 1)), object("TCPRoute", "name: a", two_rules)],
        &[&format!("TCP 0.0.0.0:1 * -> {DB}")],
        &["spec.rules[1]: does nothing: a TCPRoute has one rule, and the first is taken"],
    );
}

#[test]
fn kinds_that_are_not_served_yet_are_one_note() {
    let served: Served = serve(&format!(
        "{}{}{}",
        object("HTTPRoute", "name: a", ""),
        object("HTTPRoute", "name: b", ""),
        object("GRPCRoute", "name: c", "")
    ));
    assert_problems(&served.problems, &["m.yaml: is not served yet as far as it holds GRPCRoute, HTTPRoute"]);
}

#[test]
fn a_gateway_or_a_route_that_becomes_invalid_keeps_its_last_good_form() {
    let mut store = Store::default();
    let (edge_file, route_file) = (Path::new("edge.yaml"), Path::new("route.yaml"));
    store.set_file(Path::new("services.yaml"), SERVICES);
    store.set_file(edge_file, &edge(&tcp("x", 1)));
    let good = route("TCPRoute", "name: db", &[], "db:5432");
    store.set_file(route_file, &good);
    for (file, bad, problem) in [
        (
            edge_file,
            edge(&tcp("x", 0)),
            "port: 0 is not between 1 and 65535 (the last good form stays in service)",
        ),
        (edge_file, "kind: [".to_owned(), "(what this file held before stays in service)"),
        (route_file, good.replace("port: 5432", "port: 0"), "(the last good form stays in service)"),
        (
            route_file,
            good.replace("name: db, port", "kind: X, name: db, port"),
            "(the last good form stays in service)",
        ),
    ] {
        let restore = if file == edge_file { edge(&tcp("x", 1)) } else { good.clone() };
        store.set_file(file, &bad);
        let served = served(&store, &TranslateOptions::default());
        assert_lines(&served.layer4, &[&format!("TCP 0.0.0.0:1 * -> {DB}")]);
        assert_problems(&served.problems, &[problem]);
        store.set_file(file, &restore);
    }
}

#[test]
fn endpoints_are_told_whom_a_connection_is_from_if_their_service_says_so() {
    let services = |version: &str| {
        SERVICES
            .replace(
                "{name: db}",
                &format!("{{name: db, annotations: {{sluicegate.dev/proxy-protocol: {version}}}}}"),
            )
            .replace("{name: dns}", "{name: dns, annotations: {sluicegate.dev/proxy-protocol: v1}}")
    };
    let manifests = [
        edge(&format!("{}, {{name: u, protocol: UDP, port: 53}}", tcp("x", 1))),
        route("TCPRoute", "name: db", &[], "db:5432"),
        route("UDPRoute", "name: dns", &[], "dns:53"),
    ];
    let ingress = super::ingress("name: a", &super::rules(&["* Exact /a db:5432", "* Exact /b db:pg"]));
    let for_udp = "Service default/dns: metadata.annotations[sluicegate.dev/proxy-protocol]: does nothing for datagrams";
    for version in ["v1", "v2"] {
        let served = serve(&format!("{}{}{ingress}", manifests.concat(), services(version)));
        assert_lines(
            &served.layer4,
            &[&format!("TCP 0.0.0.0:1 * -> {DB} {version}"), &format!("UDP 0.0.0.0:53 * -> {DNS}")],
        );
        assert!(served.routes.iter().all(|route| route.ends_with("default/db:pg [10.0.0.1:5432]")));
        let for_http = "Service default/db: metadata.annotations[sluicegate.dev/proxy-protocol]: does nothing for HTTP, \
                        where a connection carries the requests of many clients";
        assert_problems(&served.problems, &[for_http, for_udp]);
    }
    let served = serve(&format!("{}{}", manifests.concat(), services("v3")));
    assert_problems(
        &served.problems,
        &["annotations[sluicegate.dev/proxy-protocol]: \"v3\" is unknown: write v1 or v2", for_udp],
    );
}

#[test]
fn a_service_of_an_external_name_is_asked_at_its_port() {
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: far}\nspec: {type: ExternalName, externalName: \
                   db.example, ports: [{port: 53, targetPort: 5353, protocol: UDP}]}\n";
    let manifests = [
        edge(&format!("{}, {{name: u, protocol: UDP, port: 53}}", tcp("x", 1))),
        route("TCPRoute", "name: a", &[], "far:5432"),
        route("UDPRoute", "name: a", &[], "far:53"),
    ];
    let store = stored(&format!("{}{service}", manifests.concat()));
    let translation = translate(&store, &TranslateOptions::default());
    let ports: Vec<String> =
        translation.external_ports.iter().map(|(key, port)| format!("{key} {port}")).collect();
    // A Service without any port for TCP may be asked at any.
    assert_eq!(ports, ["default/far:53 (udp) 5353", "default/far:5432 (tcp) 5432"]);
    assert_eq!(translation.problems, []);
}
