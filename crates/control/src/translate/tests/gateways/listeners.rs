//! Tests of the Gateways that are served, and of the addresses of their listeners.

use sluicegate_testkit::tls::Authority;

use super::http::{TO_ECHO, http_route};
use super::*;
use crate::translate::tests::ECHO;

#[test]
fn gateway_listener_without_a_route_is_published() {
    check(
        &[edge(&format!("{}, {}", tcp("a", 1), tls("b", 2, "")))],
        &["TCP 0.0.0.0:1 without a route", "TLS 0.0.0.0:2 without a route"],
        &[],
    );
}

#[test]
fn gateway_is_served_according_to_its_class() {
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
        (
            String::new(),
            "gold",
            Some("\"gold\" is not served here; start with --gateway-class gold to serve it"),
        ),
        (class("gold", ours), "gold", None),
        (
            class("sluicegate", "example.com/other"),
            "sluicegate",
            Some(
                "\"sluicegate\" is not served here: GatewayClass sluicegate belongs to the controller \
                 \"example.com/other\"; name a class of sluicegate.dev/gateway-controller",
            ),
        ),
    ] {
        let text =
            format!("{classes}{}{}{SERVICES}", of(name), route("TCPRoute", "name: db", &[], "db:5432"));
        let translation = translate(&stored(&text), &TranslateOptions::default());
        assert_eq!(translation.config.listeners.len(), usize::from(note.is_none()), "{name}");
        // The routes of a Gateway of another class are not reported either.
        assert_eq!(translation.problems, []);
        let notes: Vec<String> = translation.foreign.iter().map(ToString::to_string).collect();
        assert_problems(&notes, note.as_slice());
        assert!(translation.foreign.iter().all(|note| note.severity == Severity::Note));
    }
    let options = TranslateOptions { gateway_class: "gold".into(), ..TranslateOptions::default() };
    assert_eq!(translate(&stored(&of("gold")), &options).config.listeners.len(), 1);
}

#[test]
fn gateway_listens_on_its_addresses_or_by_default_on_the_addresses_of_the_options() {
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
        // A wildcard address includes the specific address, which therefore needs no listener.
        ("{value: 10.0.0.9}, {value: 0.0.0.0}, {value: \"::1\"}", &["0.0.0.0", "[::1]"], &[]),
        (
            "{value: 10.0.0.9}, {value: 10.0.0.9}",
            &["10.0.0.9"],
            &["spec.addresses[1].value: 10.0.0.9 is written twice"],
        ),
        // An invalid address does not make the Gateway listen on all addresses.
        ("{value: 10.0.0.300}", &[], &["spec.addresses[0].value: \"10.0.0.300\" is not an IP address"]),
        (
            "{type: Hostname, value: lb.example}, {value: 10.0.0.9}",
            &["10.0.0.9"],
            &["spec.addresses[0].type: \"Hostname\" is not supported"],
        ),
    ] {
        let expected = without_route(listened);
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_with(&options, &[addresses(written)], &expected, problems);
    }
}

/// A listener that terminates TLS with the Secret `cert`.
fn terminated(name: &str, protocol: &str, port: u16, hostname: &str) -> String {
    tls(name, port, hostname)
        .replace("protocol: TLS", &format!("protocol: {protocol}"))
        .replace("mode: Passthrough", "mode: Terminate, certificateRefs: [{name: cert}]")
}

fn certificate() -> String {
    Authority::of_process().issue(&["a.test", "b.test"]).secret("cert")
}

fn tls_route(name: &str, section: &str, host: &str) -> String {
    let parent = format!("{{name: edge, sectionName: {section}}}");
    attached("TLSRoute", &format!("name: {name}"), &parent, &[host], &["db:5432"])
}

#[test]
fn names_of_a_terminating_tls_listener_are_relayed_with_its_certificate() {
    let manifests = [
        edge(&terminated("t", "TLS", 8443, "*.test")),
        tls_route("r", "t", "a.test"),
        certificate(),
        SERVICES.to_owned(),
    ];
    let config = translate(&stored(&manifests.concat()), &TranslateOptions::default()).config;
    let names = config.tls.hosts.iter().map(|host| (host.host.to_string(), host.certificates.len()));
    assert_eq!(names.collect::<Vec<_>>(), [("a.test".to_owned(), 1)]);
    check(
        &manifests[..3],
        &[
            "HTTPS 0.0.0.0:8443 without a route",
            // No route has the other names of the listener.
            "HTTPS 0.0.0.0:8443 *.test -> ",
            &format!("relay 0.0.0.0:8443 a.test -> {DB}"),
        ],
        &[],
    );
}

#[test]
fn listeners_with_and_without_termination_of_tls_share_a_port_by_their_hostnames() {
    let listeners = [
        terminated("t", "TLS", 8443, "a.test"),
        tls("p", 8443, "p.test"),
        terminated("h", "HTTPS", 8443, "*.test"),
        tls("none", 8443, "none.test"),
    ];
    let store = stored(
        &[
            edge(&listeners.join(", ")),
            tls_route("r", "t", "a.test"),
            tls_route("s", "p", "p.test"),
            http_route("name: w", "{name: edge, sectionName: h}", "a.test, b.test", TO_ECHO),
            certificate(),
            SERVICES.to_owned(),
            ECHO.to_owned(),
        ]
        .concat(),
    );
    let translation = translate(&store, &TranslateOptions::default());
    let hosts: Vec<String> = translation.config.hosts.iter().map(|host| host.host.to_string()).collect();
    assert_eq!(hosts, ["b.test", "*.test"], "a.test belongs to another listener");
    let terminated = translation.config.tls.hosts.iter();
    let terminated: Vec<_> = terminated.map(|host| (host.host.to_string(), host.relay.is_some())).collect();
    assert_eq!(terminated, [("a.test".to_owned(), true), ("*.test".to_owned(), false)]);
    let passed = translation.config.tls.passthrough.iter();
    let passed: Vec<_> = passed.map(|route| (route.host.to_string(), route.route.backends.len())).collect();
    assert_eq!(passed, [("none.test".to_owned(), 0), ("p.test".to_owned(), 1)]);
    assert!(
        translation.config.listeners.len() == 1
            && translation.config.tls.hosts.is_sorted_by_key(|host| (&host.entry_point, &host.host))
    );
    let problems: Vec<String> = translation.problems.iter().map(ToString::to_string).collect();
    assert_problems(
        &problems,
        &["HTTPRoute default/w: spec.parentRefs[0]: a.test is ignored: it belongs to listener t"],
    );
}

#[test]
fn terminating_tls_listener_without_a_certificate_passes_no_connection_on() {
    check(
        &[edge(&terminated("t", "TLS", 8443, "a.test")), tls_route("r", "t", "a.test")],
        &["HTTPS 0.0.0.0:8443 without a route", "HTTPS 0.0.0.0:8443 a.test -> "],
        &[
            "spec.listeners[0].tls.certificateRefs[0]: Secret default/cert does not exist as a Secret of type kubernetes.io/tls; the listener rejects every client",
        ],
    );
}

#[test]
fn names_of_an_https_listener_without_a_certificate_never_reach_a_listener_with_a_wildcard() {
    check(
        &[
            edge(&[terminated("h", "HTTPS", 8443, "a.test"), tls("p", 8443, "*.test")].join(", ")),
            tls_route("r", "p", "*.test"),
        ],
        &[
            "HTTPS 0.0.0.0:8443 without a route",
            "HTTPS 0.0.0.0:8443 a.test -> ",
            &format!("HTTPS 0.0.0.0:8443 *.test -> {DB}"),
        ],
        &["spec.listeners[0].tls.certificateRefs[0]: Secret default/cert does not exist"],
    );
}

#[test]
fn https_and_tls_listeners_with_one_hostname_conflict_by_their_hostname() {
    check(
        &[
            edge(&[tls("p", 8443, "a.test"), terminated("h", "HTTPS", 8443, "a.test")].join(", ")),
            certificate(),
        ],
        &["TLS 0.0.0.0:8443 without a route"],
        &["spec.listeners[1].hostname: a.test at port 8443 is already taken by listener p"],
    );
}

#[test]
fn oldest_gateway_owns_a_port_and_conflicts_are_reported() {
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
            "Gateway default/a: spec.listeners[0].port: port 1 is already taken by listener z of Gateway default/b; no route of this listener is served at 0.0.0.0:1",
            "TCPRoute default/a: spec.parentRefs[0]: listener x of Gateway default/a is not served",
        ],
    );
    // Within a Gateway, the first listener takes precedence.
    check(
        &[edge(&format!("{}, {}, {{name: u, protocol: UDP, port: 1}}", tcp("x", 1), tls("z", 1, "")))],
        &["TCP 0.0.0.0:1 without a route", "UDP 0.0.0.0:1 without a route"],
        &["spec.listeners[1].port: port 1 is already taken by listener x of Gateway default/edge; no route"],
    );
    check(
        &[edge(&format!("{}, {}", tls("x", 1, ""), tcp("z", 1)))],
        &["TLS 0.0.0.0:1 without a route"],
        &["spec.listeners[1].port: port 1 is already taken by listener x of Gateway default/edge; no route"],
    );
    // A wildcard address conflicts with a specific address.
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
fn tls_listeners_with_different_hostnames_share_a_port() {
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
            "Gateway default/edge: spec.listeners[0].hostname: a.test at port 8443 is already taken by listener a of Gateway default/old; no route of this listener is served at 0.0.0.0:8443",
            // The listener with the most specific hostname owns the host.
            "TLSRoute default/d: spec.parentRefs[0]: d.b.test is ignored: it belongs to listener b of Gateway default/old, to which this entry does not attach the route",
        ],
    );
}

#[test]
fn gateway_listeners_on_ports_that_the_process_already_uses_are_rejected() {
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
        // A TLS listener at an HTTPS port adds TLS passthrough to that port.
        &["UDP 0.0.0.0:443 without a route", &format!("HTTPS a.test -> {DB}")],
        &[
            "spec.listeners[0].port: 8080 is a port of HTTP (--listen, --published-http-ports); the listener is not served. Choose another port",
            "spec.listeners[1].port: 80 is a port of HTTP (--listen, --published-http-ports)",
            "spec.listeners[2].port: 9901 is a port of the admin interface (--admin)",
            "spec.listeners[3].port: 443 is a port of HTTPS (--listen-https, --published-https-ports)",
        ],
    );
}
