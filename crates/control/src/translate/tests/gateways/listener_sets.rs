//! Tests of ListenerSets.

use super::http::{TO_ECHO, http, http_route, served_hosts};
use super::status::statuses;
use super::*;

/// The Gateway `edge` with these listeners, which allows ListenerSets of these namespaces.
fn edge_with(from: &str, listeners: &str) -> String {
    object(
        "Gateway",
        "name: edge",
        &format!(
            "gatewayClassName: sluicegate, listeners: [{listeners}], allowedListeners: {{namespaces: {{{from}}}}}"
        ),
    )
}

/// A ListenerSet of the Gateway `edge` of the namespace `default`.
fn set(metadata: &str, listeners: &str) -> String {
    object(
        "ListenerSet",
        metadata,
        &format!("parentRef: {{name: edge, namespace: default}}, listeners: [{listeners}]"),
    )
}

/// A listener for this host at port 80, whose certificate is in this Secret.
fn https(name: &str, port: u16, secret: &str) -> String {
    format!("{{name: {name}, protocol: HTTPS, port: {port}, tls: {{certificateRefs: [{secret}]}}}}")
}

#[test]
fn route_attaches_to_the_listeners_of_the_parent_that_it_names() {
    let to_set = |name: &str| format!("{{kind: ListenerSet, name: {name}}}");
    let route = |name: &str, parents: &str| http_route(&format!("name: {name}"), parents, "", TO_ECHO);
    served_hosts(
        &TranslateOptions::default(),
        &[
            edge_with("from: Same", &http("web", 80, "edge.test")),
            set("name: one", &[http("web", 80, "one.test"), http("other", 80, "two.test")].join(", ")),
            set("name: two", &http("web", 80, "three.test")),
            route("all", &format!("{{name: edge}}, {}, {}", to_set("one"), to_set("two"))),
            route("of-edge", "{name: edge}"),
            route("of-one", &to_set("one")),
            route("of-web", "{kind: ListenerSet, name: one, sectionName: web}"),
            route("of-none", "{name: edge, sectionName: other}"),
        ],
        &[
            "0.0.0.0:80 edge.test [all/ of-edge/]",
            "0.0.0.0:80 one.test [all/ of-one/ of-web/]",
            "0.0.0.0:80 three.test [all/]",
            "0.0.0.0:80 two.test [all/ of-one/]",
        ],
        &[
            "HTTPRoute default/of-none: spec.parentRefs[0]: Gateway default/edge has no listener named \"other\"",
        ],
    );
}

#[test]
fn gateway_serves_the_sets_of_the_namespaces_that_it_allows() {
    let namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n";
    let selector = "from: Selector, selector: {matchLabels: {team: a}}";
    for (from, namespaces) in [
        ("", &[][..]),
        ("from: None", &[]),
        ("from: Same", &["default"]),
        (selector, &["shop"]),
        ("from: All", &["default", "other", "shop"]),
    ] {
        println!("{from}");
        let all = ["default", "other", "shop"];
        let sets = all.map(|namespace| {
            set(&format!("name: set, namespace: {namespace}"), &http("web", 80, &format!("{namespace}.test")))
        });
        let manifests = [&[edge_with(from, &tcp("x", 1)), namespace.to_owned()][..], &sets].concat();
        let hosts: Vec<String> = namespaces.iter().map(|name| format!("0.0.0.0:80 {name}.test []")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let refused = all.into_iter().filter(|name| !namespaces.contains(name));
        let refused: Vec<String> = refused
            .map(|name| {
                format!(
                    "ListenerSet {name}/set: spec.parentRef: Gateway default/edge does not allow ListenerSets of namespace {name}; \
                     the listeners are not served"
                )
            })
            .collect();
        let refused: Vec<&str> = refused.iter().map(String::as_str).collect();
        served_hosts(&TranslateOptions::default(), &manifests, &hosts, &refused);
    }
    check(
        &[edge_with("from: Odd", &tcp("x", 1))],
        &["TCP 0.0.0.0:1 without a route"],
        &[
            "spec.allowedListeners.namespaces.from: \"Odd\" is unknown: write Same, Selector, All or None; no ListenerSet is attached",
        ],
    );
}

#[test]
fn listener_that_loses_a_conflict_is_served_once_the_winner_is_gone() {
    let created = |year: u16| format!("creationTimestamp: \"{year}-01-01T00:00:00Z\"");
    let route = |name: &str| {
        attached(
            "TCPRoute",
            &format!("name: {name}"),
            &format!("{{kind: ListenerSet, name: {name}}}"),
            &[],
            &["db:5432"],
        )
    };
    let (young, old) =
        (set(&format!("name: a, {}", created(2025)), &tcp("x", 2)), format!("name: b, {}", created(2024)));
    let old = set(&old, &[tcp("x", 2), tcp("z", 1)].join(", "));
    let gateway = edge_with("from: Same", &tcp("x", 1));
    let served = format!("TCP 0.0.0.0:2 * -> {DB}");
    check(
        &[gateway.clone(), young.clone(), old, route("a"), route("b")],
        &["TCP 0.0.0.0:1 without a route", &served],
        &[
            "ListenerSet default/b: spec.listeners[1].port: port 1 is already taken by listener x of Gateway default/edge",
            "ListenerSet default/a: spec.listeners[0].port: port 2 is already taken by listener x of ListenerSet default/b; no \
             route of this listener is served",
            "TCPRoute default/a: spec.parentRefs[0]: listener x of ListenerSet default/a is not served",
        ],
    );
    check(&[gateway, young, route("a")], &["TCP 0.0.0.0:1 without a route", &served], &[]);
}

#[test]
fn listeners_of_gateways_have_precedence_over_listeners_of_sets() {
    // The Gateway `next` is younger than the Gateway of the set.
    check(
        &[
            edge_with("from: Same", &tcp("x", 1)),
            set("name: a", &tcp("x", 2)),
            gateway("name: next", &tcp("x", 2)),
        ],
        &["TCP 0.0.0.0:1 without a route", "TCP 0.0.0.0:2 without a route"],
        &[
            "ListenerSet default/a: spec.listeners[0].port: port 2 is already taken by listener x of Gateway default/next",
        ],
    );
}

#[test]
fn owner_of_a_set_does_not_learn_the_names_of_other_namespaces() {
    check(
        &[
            edge_with("from: All", &tcp("x", 1)),
            set("name: a, namespace: one", &tcp("secret", 2)),
            set("name: b, namespace: two", &tcp("x", 2)),
        ],
        &["TCP 0.0.0.0:1 without a route", "TCP 0.0.0.0:2 without a route"],
        &[
            "ListenerSet two/b: spec.listeners[0].port: port 2 is already taken by a listener of another namespace; no",
        ],
    );
}

#[test]
fn gateway_counts_its_accepted_sets_and_each_set_reports_its_listeners() {
    let by_namespace = |name: &str, parents: &str| {
        http_route(&format!("name: {name}, namespace: shop"), parents, "", TO_ECHO)
    };
    let to_set = "{kind: ListenerSet, name: mixed}";
    assert_lines(
        &statuses(&[
            edge_with("from: All", &http("web", 80, "a.test")),
            gateway("name: closed", &http("web", 81, "")),
            set(
                "name: mixed, namespace: shop",
                &[http("web", 80, "b.test"), http("again", 80, "a.test"), tcp("other", 80)].join(", "),
            ),
            set("name: none, namespace: shop", &http("again", 80, "a.test")),
            set("name: plain", &http("web", 80, "c.test")),
            set("name: refs", &https("tls", 443, "{name: missing, namespace: x}")),
            set("name: refused", &http("web", 81, "")).replace("name: edge", "name: closed"),
            set("name: foreign", &http("web", 82, "")).replace("name: edge", "name: nowhere"),
            by_namespace("r", to_set),
            http_route("name: far", "{kind: ListenerSet, name: mixed, namespace: shop}", "", TO_ECHO),
        ]),
        &[
            "Gateway closed: Accepted",
            "- web HTTPRoute+GRPCRoute 0: Accepted ResolvedRefs Programmed",
            "Gateway edge: Accepted, 2 sets",
            "- web HTTPRoute+GRPCRoute 0: Accepted ResolvedRefs Programmed",
            "ListenerSet plain: Accepted",
            "- web HTTPRoute+GRPCRoute 0: Accepted ResolvedRefs Programmed",
            "ListenerSet refs: Accepted=false(ListenersNotValid) ListenersNotValid",
            "- tls HTTPRoute+GRPCRoute 0: Accepted ResolvedRefs=false(RefNotPermitted) Programmed=false(Invalid)",
            "ListenerSet refused: Accepted=false(NotAllowed) NotAllowed",
            "ListenerSet mixed: Accepted=true(ListenersNotValid)",
            "- web HTTPRoute+GRPCRoute 1: Accepted ResolvedRefs Programmed",
            "- again HTTPRoute+GRPCRoute 1: Accepted=false(HostnameConflict) Conflicted=true(HostnameConflict) ResolvedRefs \
             Programmed=false(HostnameConflict)",
            "- other TCPRoute 0: Accepted=false(ProtocolConflict) Conflicted=true(ProtocolConflict) ResolvedRefs \
             Programmed=false(ProtocolConflict)",
            "ListenerSet none: Accepted=false(ListenersNotValid) ListenersNotValid",
            "- again HTTPRoute+GRPCRoute 0: Accepted=false(HostnameConflict) Conflicted=true(HostnameConflict) ResolvedRefs \
             Programmed=false(HostnameConflict)",
            "HTTPRoute far at ListenerSet mixed *: Accepted=false(NotAllowedByListeners) ResolvedRefs",
            "HTTPRoute r at ListenerSet mixed *: Accepted ResolvedRefs=false(BackendNotFound)",
        ],
    );
}

#[test]
fn set_of_a_gateway_that_is_not_accepted_is_not_accepted() {
    let unsupported = edge_with("from: Same", &tcp("x", 1))
        .replace("listeners:", "addresses: [{type: Hostname, value: a.test}, {value: 10.0.0.1}], listeners:");
    let lines = statuses(&[unsupported, set("name: a", &tcp("x", 2))]);
    let expected = "ListenerSet a: Accepted=false(ParentNotAccepted) ParentNotProgrammed";
    assert!(lines.contains(&expected.to_owned()), "{lines:?}");
}

#[test]
fn grants_of_certificates_for_gateways_are_not_for_sets() {
    let grant = |kind: &str| {
        object(
            "ReferenceGrant",
            &format!("name: {kind}, namespace: certs", kind = kind.to_lowercase()),
            &format!(
                "from: [{{group: gateway.networking.k8s.io, kind: {kind}, namespace: default}}], to: [{{group: \"\", kind: Secret}}]"
            ),
        )
    };
    let secret = "{name: cert, namespace: certs}";
    let refused = "no ReferenceGrant of namespace certs allows a";
    for (kind, problems) in [
        ("Gateway", &["does not exist", &format!("{refused} ListenerSet of namespace default")][..]),
        ("ListenerSet", &[&format!("{refused} Gateway of namespace default"), "does not exist"]),
    ] {
        println!("{kind}");
        let manifests = [
            edge_with("from: Same", &https("a", 443, secret)),
            set("name: a", &https("b", 444, secret)),
            grant(kind),
        ];
        served_hosts(&TranslateOptions::default(), &manifests, &[], problems);
    }
}

#[test]
fn listeners_of_sets_have_identifiers_of_their_own() {
    let listeners = |first: u16| [tcp("x", first), tcp("z", first + 1)].join(", ");
    let manifests = [
        edge_with("from: Same", &listeners(1)),
        set("name: a", &listeners(3)),
        set("name: b", &listeners(5)),
    ];
    let config = translate(&stored(&manifests.concat()), &TranslateOptions::default()).config;
    let mut ids: Vec<String> = config.listeners.iter().map(|listener| listener.id.to_string()).collect();
    assert_eq!(ids.len(), 6);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 6, "{ids:?}");
}

#[test]
fn problem_in_a_listener_set_names_the_field() {
    let of = |spec: &str| object("ListenerSet", "name: a", spec);
    let listeners = format!("listeners: [{}]", tcp("x", 2));
    for (text, problem) in [
        (of(&listeners), "ListenerSet default/a: spec.parentRef: is missing: name a Gateway"),
        (of(&format!("parentRef: {{}}, {listeners}")), "spec.parentRef.name: is missing: name a Gateway"),
        (
            of(&format!("parentRef: {{name: edge, kind: Mesh}}, {listeners}")),
            "spec.parentRef.kind: \"Mesh\" is not supported; the listeners are not served",
        ),
        (
            of(&format!("parentRef: {{name: none}}, {listeners}")),
            "spec.parentRef: Gateway default/none does not exist; the listeners are not served",
        ),
        (set("name: a", ""), "spec.listeners: is missing"),
        (set("name: a", "{name: x, protocol: TCP, port: 0}"), "spec.listeners[0].port: 0 is not between"),
        (
            set("name: a", &[tcp("x", 2), tcp("x", 3)].join(", ")),
            "spec.listeners[1].name: \"x\" is the name of two listeners",
        ),
    ] {
        println!("{text}");
        let store = stored(&[edge_with("from: Same", &tcp("x", 1)), text].concat());
        assert_problems(&served(&store, &TranslateOptions::default()).problems, &[problem]);
    }
}
