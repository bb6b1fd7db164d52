//! Tests of the listeners that routes attach to, and of the backends of the routes.

use super::*;

#[test]
fn tcp_route_forwards_a_port_to_a_service() {
    let manifests = [edge(&tcp("pg", 5432)), route("TCPRoute", "name: db", &[], "db:5432")];
    check(&manifests, &[&format!("TCP 0.0.0.0:5432 * -> {DB}")], &[]);
    let config = translate(&stored(&manifests.concat()), &TranslateOptions::default()).config;
    assert_eq!(config.listeners[0].id.to_string(), "Gateway default/edge, listener pg");
    assert_eq!(config.layer4_routes().next().unwrap().1.id.to_string(), "TCPRoute default/db");
}

#[test]
fn tcp_and_udp_listeners_may_use_the_same_service_port_number() {
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
fn route_to_a_service_port_of_another_protocol_is_reported() {
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
            // The message lists the ports in order. SCTP ports are ignored.
            &format!("{place}dns has no port \"9\", it has 53 (dns-tcp); connections are refused"),
            &format!(
                "{place}db has no port \"5432\", it has no UDP port (5432 is for TCP, and UDP is needed here); datagrams are dropped"
            ),
        ],
    );
    let ingress = ingress("name: a", &rules(&["* Prefix / dns:dns"]));
    assert_problems(
        &serve(&format!("{ingress}{SERVICES}")).problems,
        &["it has 53 (dns-tcp) (dns is for UDP, and TCP is needed here); requests receive 503"],
    );
}

#[test]
fn tls_route_serves_hostnames_that_its_listener_matches() {
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
                "spec.parentRefs[0]: listener x of Gateway default/edge is for {listener}, which no entry of spec.hostnames matches"
            )],
        );
    }
    check(
        &[edge(&tls("x", 8443, "*.test")), route("TLSRoute", "name: db", &["a.test", "b.net"], "db:5432")],
        &[&format!("TLS 0.0.0.0:8443 a.test -> {DB}")],
        &["spec.hostnames[1]: b.net matches no listener of the route, and is ignored"],
    );
}

#[test]
fn wildcard_host_of_a_gateway_matches_several_labels() {
    let manifests = [edge(&tls("x", 8443, "")), route("TLSRoute", "name: db", &["*.test"], "db:5432")];
    let config = translate(&stored(&manifests.concat()), &TranslateOptions::default()).config;
    let (host, _) = config.layer4_routes().next().unwrap();
    assert!(host.matches("a.b.test") && host.matches("a.test") && !host.matches("test"));
}

#[test]
fn oldest_route_of_a_listener_takes_precedence_and_conflicts_are_reported() {
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
                    "{kind} default/b: spec.parentRefs[0]: is ignored at listener x of Gateway default/edge: {kind} default/c is attached there (older, or first by name)"
                ),
                // A route without a creation time counts as the youngest.
                &format!("{kind} default/a: spec.parentRefs[0]: is ignored"),
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
            "TLSRoute default/b: spec.parentRefs[0]: a.test is ignored at listener x of Gateway default/edge: TLSRoute default/c has it \
             already (older, or first by name)",
        ],
    );
}

#[test]
fn tls_route_with_the_more_specific_hostname_has_precedence() {
    let created = |name: &str, year: u16, host: &str, backend: &str| {
        let metadata = format!("name: {name}, creationTimestamp: \"{year}-01-01T00:00:00Z\"");
        route("TLSRoute", &metadata, &[host], backend)
    };
    for (listener, wide, narrow) in [("a.b.test", "*.b.test", "a.b.test"), ("*.b.test", "*.test", "*.b.test")]
    {
        check(
            &[
                edge(&tls("x", 8443, listener)),
                created("old", 2024, wide, "dns:53"),
                created("young", 2025, narrow, "db:5432"),
            ],
            &[&format!("TLS 0.0.0.0:8443 {listener} -> {DB}")],
            &[&format!(
                "TLSRoute default/old: spec.parentRefs[0]: {listener} is ignored at listener x of Gateway default/edge: TLSRoute \
                 default/young has a more specific hostname"
            )],
        );
    }
}

#[test]
fn upstreams_of_an_ignored_route_are_not_published() {
    let text = [
        edge(&tcp("x", 1)),
        route("TCPRoute", "name: a", &[], "db:5432"),
        route("TCPRoute", "name: b", &[], "nothing:1"),
    ];
    let store = stored(&format!("{}{SERVICES}", text.concat()));
    let config = translate(&store, &TranslateOptions::default()).config;
    let keys: Vec<String> = config.upstreams.keys().map(ToString::to_string).collect();
    assert_eq!(keys, ["default/db:pg (tcp)"]);
    // An ignored route reports no missing Service.
    assert_problems(&served(&store, &TranslateOptions::default()).problems, &["is ignored at listener x"]);
}

#[test]
fn route_attaches_by_section_name_and_port_or_to_all_listeners() {
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
            Some("listener c of Gateway default/edge is for TLS, and does not accept a TCPRoute"),
        ),
        ("{name: none}", &[], Some("Gateway default/none does not exist")),
        ("{name: edge, namespace: other}", &[], Some("Gateway other/edge does not exist")),
        ("{name: db, kind: Service, group: \"\"}", &[], Some("routes of a Service are not supported")),
        ("{name: set, kind: ListenerSet}", &[], Some("ListenerSet default/set does not exist")),
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
fn listener_accepts_only_routes_that_it_allows() {
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
    let missing = "Service other/db does not exist";
    let no_namespace = "does not accept routes of namespace other (allowedRoutes.namespaces)";
    for (allowed, route, expected, problems) in [
        ("", &own, &taken, &[][..]),
        ("", &other, &nothing, &[no_namespace]),
        ("namespaces: {from: Same}", &own, &taken, &[]),
        ("namespaces: {from: Same}", &other, &nothing, &[no_namespace]),
        ("namespaces: {from: All}", &own, &taken, &[]),
        ("namespaces: {from: All}", &other, &taken_of_other, &[missing]),
        ("namespaces: {from: None}", &own, &nothing, &["does not accept routes of namespace default"]),
        (
            "namespaces: {from: Sane}",
            &own,
            &nothing,
            &[
                "from: \"Sane\" is unknown: write Same, Selector, All or None; no route is attached",
                "does not accept routes of namespace default",
            ],
        ),
        ("kinds: [{kind: TCPRoute}]", &own, &taken, &[]),
        ("kinds: []", &own, &taken, &[]),
        (
            "kinds: [{kind: TLSRoute}]",
            &own,
            &nothing,
            &[
                "spec.listeners[0].allowedRoutes.kinds[0].kind: \"TLSRoute\" is ignored: a listener for TCP accepts only TCPRoute",
                "does not accept a TCPRoute (allowedRoutes.kinds)",
            ],
        ),
        (
            "kinds: [{kind: TCPRoute, group: example.com}]",
            &own,
            &nothing,
            &["\"TCPRoute\" is ignored", "does not accept a TCPRoute (allowedRoutes.kinds)"],
        ),
    ] {
        println!("{allowed}");
        check(&[listener(allowed), route.clone()], &[expected], problems);
    }
}

#[test]
fn backends_of_a_tcp_route_have_their_weights_and_invalid_backends_are_reported() {
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
            Some("weight: 1000001 is not between 0 and 1000000; the backend receives no traffic"),
        ),
        (
            "{name: dns, port: 53, weight: -1}",
            "0 default/dns:dns-tcp (tcp) [10.0.0.2:5301]",
            Some("weight: -1 is not between"),
        ),
        (
            "{name: none, port: 1}",
            "1 default/none:1 (tcp) []",
            Some("name: Service default/none does not exist; connections are refused"),
        ),
        (
            "{name: db, port: 1}",
            "1 default/db:1 (tcp) []",
            Some("port: Service default/db has no port \"1\", it has 5432 (pg); connections are refused"),
        ),
        (
            "{name: db}",
            "1 default/(refused):- (tcp) []",
            Some("port: is missing: name a port of the Service; the share"),
        ),
        (
            "{name: db, port: 70000, weight: 3}",
            "3 default/(refused):- (tcp) []",
            Some("port: is not between 1 and 65535; the share of this backend is rejected"),
        ),
        (
            "{port: 1}",
            "1 default/(refused):- (tcp) []",
            Some("name: is missing; the share of this backend is rejected"),
        ),
        (
            "{name: db, kind: Bucket, group: example.com, port: 1}",
            "1 default/(refused):- (tcp) []",
            Some(
                "kind: \"Bucket\" of group \"example.com\" is not supported: name a Service; the share of this backend is rejected",
            ),
        ),
        (
            "{name: db, namespace: other, port: 5432, weight: 4}",
            "4 default/(refused):5432 (tcp) []",
            Some(
                "namespace: \"other\": no ReferenceGrant of this namespace allows a TCPRoute of namespace default to name Service db; the share of this backend is rejected",
            ),
        ),
    ] {
        let problem = problem.map(|problem| format!("{place}{problem}"));
        let problems: Vec<&str> = problem.as_deref().into_iter().collect();
        check(&to(&format!("{db}, {other}")), &[&format!("TCP 0.0.0.0:1 * -> {DB} + {expected}")], &problems);
    }
}

#[test]
fn reference_grant_allows_routes_to_backends_in_its_namespace() {
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
fn proxy_protocol_annotation_applies_to_tcp_upstreams_only() {
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
    let ingress = ingress("name: a", &rules(&["* Exact /a db:5432", "* Exact /b db:pg"]));
    let for_udp = "Service default/dns: metadata.annotations[sluicegate.dev/proxy-protocol]: has no effect for datagrams";
    for version in ["v1", "v2"] {
        let served = serve(&format!("{}{}{ingress}", manifests.concat(), services(version)));
        assert_lines(
            &served.layer4,
            &[&format!("TCP 0.0.0.0:1 * -> {DB} {version}"), &format!("UDP 0.0.0.0:53 * -> {DNS}")],
        );
        assert!(served.routes.iter().all(|route| route.ends_with("default/db:pg [10.0.0.1:5432]")));
        let for_http = "Service default/db: metadata.annotations[sluicegate.dev/proxy-protocol]: has no effect for HTTP, \
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
fn external_name_backend_uses_the_target_port_of_its_service() {
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
    // An ExternalName Service without ports accepts any TCP port.
    assert_eq!(ports, ["default/far:53 (udp) 5353", "default/far:5432 (tcp) 5432"]);
    assert_eq!(translation.problems, []);
}

#[test]
fn listener_selects_the_namespaces_of_its_routes_by_labels() {
    let of = |selector: &str| {
        edge(&format!(
            "{{name: x, protocol: TCP, port: 1, allowedRoutes: {{namespaces: {{from: Selector, selector: {{{selector}}}}}}}}}"
        ))
    };
    let own = attached("TCPRoute", "name: db", "{name: edge}", &[], &["db:5432"]);
    let named = |name: &str, labels: &str| {
        format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n")
    };
    let (taken, nothing) = (format!("TCP 0.0.0.0:1 * -> {DB}"), "TCP 0.0.0.0:1 without a route".to_owned());
    let refused = "does not accept routes of namespace default (allowedRoutes.namespaces)";
    for (selector, is_taken) in [
        ("", true),
        ("matchLabels: {team: web}", true),
        ("matchLabels: {team: web, stage: test}", false),
        ("matchLabels: {kubernetes.io/metadata.name: default}", true),
        ("matchLabels: {kubernetes.io/metadata.name: other}", false),
        ("matchExpressions: [{key: team, operator: In, values: [db, web]}]", true),
        ("matchExpressions: [{key: team, operator: NotIn, values: [db, web]}]", false),
        ("matchExpressions: [{key: stage, operator: NotIn, values: [test]}]", true),
        ("matchExpressions: [{key: team, operator: Exists}]", true),
        ("matchExpressions: [{key: stage, operator: Exists}]", false),
        ("matchExpressions: [{key: stage, operator: DoesNotExist}]", true),
        ("matchLabels: {team: web}, matchExpressions: [{key: team, operator: DoesNotExist}]", false),
    ] {
        let manifests =
            [of(selector), own.clone(), named("other", "stage: test"), named("default", "team: web")];
        let (expected, problems) = if is_taken { (&taken, &[][..]) } else { (&nothing, &[refused][..]) };
        check(&manifests, &[expected], problems);
    }
    let unknown = "spec.listeners[0].allowedRoutes.namespaces.selector: selects no namespace, because the gateway knows no Namespace";
    check(&[of(""), own.clone()], &[&nothing], &[unknown, refused]);
    check(&[of(""), own, named("other", "")], &[&nothing], &[refused]);
}

#[test]
fn listener_with_an_invalid_selector_accepts_no_route() {
    let own = attached("TCPRoute", "name: db", "{name: edge}", &[], &["db:5432"]);
    let namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n".to_owned();
    for (selector, problem) in [
        ("", "selector: is missing: select namespaces by their labels; no route is attached"),
        (
            ", selector: {matchExpressions: [{key: a, operator: Has}]}",
            "selector.matchExpressions[0].operator: \"Has\" is unknown: write In, NotIn, Exists or DoesNotExist; no route",
        ),
        (
            ", selector: {matchExpressions: [{key: a, operator: NotIn}]}",
            "selector.matchExpressions[0].values: is missing: NotIn needs values; no route is attached",
        ),
        (
            ", selector: {matchExpressions: [{key: a, operator: DoesNotExist, values: [b]}]}",
            "selector.matchExpressions[0].values: is not allowed with DoesNotExist: remove it; no route",
        ),
        (
            ", selector: {matchExpressions: [{operator: DoesNotExist}]}",
            "selector.matchExpressions[0].key: is missing: name a label; no route is attached",
        ),
    ] {
        let listener = format!(
            "{{name: x, protocol: TCP, port: 1, allowedRoutes: {{namespaces: {{from: Selector{selector}}}}}}}"
        );
        let refused = "does not accept routes of namespace default (allowedRoutes.namespaces)";
        check(
            &[edge(&listener), own.clone(), namespace.clone()],
            &["TCP 0.0.0.0:1 without a route"],
            &[&format!("spec.listeners[0].allowedRoutes.namespaces.{problem}"), refused],
        );
    }
}
