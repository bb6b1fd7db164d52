//! Tests of the status of GatewayClasses, Gateways, ListenerSets and routes.

use sluicegate_testkit::tls::Authority;

use super::backend_tls::{authorities, pem};
use super::http::{TO_ECHO, http, http_route};
use super::*;
use crate::object::Kind;
use crate::status::{Condition, Content, ListenerStatus};
use crate::translate::tests::ECHO;

/// The backends of a rule.
const BACKENDS: &str = "backendRefs: [{name: echo, port: 80}]";

/// A condition that is as wanted: its type. Any other condition: `Type=False(Reason)`.
fn words(conditions: &[Condition]) -> String {
    let word = |condition: &Condition| match (condition.name, condition.is_true, condition.reason) {
        ("Conflicted", false, _) => String::new(),
        (name, true, reason) if name == reason || reason == "Accepted" => format!(" {name}"),
        (name, is_true, reason) => format!(" {name}={is_true}({reason})"),
    };
    conditions.iter().map(word).collect()
}

/// The status of each object, a line for each listener and for each parent.
pub(super) fn statuses(manifests: &[String]) -> Vec<String> {
    statuses_of(&stored(&format!("{}{ECHO}{SERVICES}", manifests.concat())))
}

fn listener(listener: &ListenerStatus) -> String {
    let kinds: Vec<&str> = listener.kinds.iter().map(|kind| kind.as_str()).collect();
    let (routes, kinds) = (listener.attached_routes, kinds.join("+"));
    format!("- {} {kinds} {routes}:{}", listener.name, words(&listener.conditions))
}

pub(super) fn statuses_of(store: &Store) -> Vec<String> {
    let mut lines = Vec::new();
    for status in translate(store, &TranslateOptions::default()).statuses {
        let name = format!("{} {}", status.object.kind, status.object.name);
        match status.content {
            Content::GatewayClass { conditions, .. } => lines.push(format!("{name}:{}", words(&conditions))),
            Content::Gateway(gateway) => {
                let conditions: Vec<Condition> =
                    [gateway.accepted].into_iter().chain(gateway.resolved).collect();
                let sets = match gateway.attached_sets {
                    0 => String::new(),
                    count => format!(", {count} sets"),
                };
                let insecure = if gateway.is_insecure { " insecure" } else { "" };
                lines.push(format!("{name}:{}{sets}{insecure}", words(&conditions)));
                lines.extend(gateway.listeners.iter().map(listener));
            }
            Content::ListenerSet(set) => {
                let unprogrammed = set.unprogrammed.map(|fault| format!(" {}", fault.reason));
                lines.push(format!("{name}:{}{}", words(&[set.accepted]), unprogrammed.unwrap_or_default()));
                lines.extend(set.listeners.iter().map(listener));
            }
            Content::Route(parents) => lines.extend(parents.iter().map(|parent| {
                let section = parent.section.as_deref().unwrap_or("*");
                let place = match parent.parent.kind {
                    Kind::Gateway => parent.parent.name.to_string(),
                    kind => format!("{kind} {}", parent.parent.name),
                };
                format!("{name} at {place} {section}:{}", words(&parent.conditions))
            })),
            Content::Policy(ancestors) => lines.extend(
                ancestors
                    .iter()
                    .map(|(gateway, conditions)| format!("{name} at {}:{}", gateway.name, words(conditions))),
            ),
            Content::BackendParents(gateways) => {
                lines.extend(gateways.iter().map(|(gateway, conditions)| {
                    format!("{name} of parent {}:{}", gateway.name, words(conditions))
                }));
            }
            Content::BackendAncestors(gateways) => {
                lines.extend(gateways.iter().map(|(gateway, conditions)| {
                    format!("{name} of ancestor {}:{}", gateway.name, words(conditions))
                }));
            }
        }
    }
    lines
}

#[test]
fn gateway_counts_the_routes_that_each_listener_accepts() {
    let listeners = [http("a", 80, ""), http("b", 81, "b.test")].join(", ");
    let class =
        object("GatewayClass", "name: sluicegate", "controllerName: sluicegate.dev/gateway-controller");
    assert_lines(
        &statuses(&[
            class,
            edge(&listeners),
            http_route("name: r", "{name: edge}, {name: edge, sectionName: a}", "", TO_ECHO),
            http_route("name: s", "{name: edge, sectionName: b}, {name: other}", "a.test", TO_ECHO),
        ]),
        &[
            "GatewayClass sluicegate: Accepted",
            "Gateway edge: Accepted",
            "- a HTTPRoute+GRPCRoute 1: Accepted ResolvedRefs Programmed",
            "- b HTTPRoute+GRPCRoute 1: Accepted ResolvedRefs Programmed",
            "HTTPRoute r at edge *: Accepted ResolvedRefs",
            "HTTPRoute r at edge a: Accepted ResolvedRefs",
            "HTTPRoute s at edge b: Accepted=false(NoMatchingListenerHostname) ResolvedRefs",
        ],
    );
}

#[test]
fn invalid_listeners_are_not_accepted_and_leave_the_others_in_service() {
    let unknown = "{name: odd, protocol: INVALID, port: 1111}";
    let of_kind = |name: &str, port: u16, kinds: &str| {
        format!("{{name: {name}, protocol: HTTP, port: {port}, allowedRoutes: {{kinds: [{kinds}]}}}}")
    };
    let https = "{name: tls, protocol: HTTPS, port: 443, tls: {certificateRefs: [{name: none}]}}";
    let foreign =
        "{name: far, protocol: HTTPS, port: 444, tls: {certificateRefs: [{name: none, namespace: x}]}}";
    let listeners = [
        http("a", 80, ""),
        unknown.to_owned(),
        http("again", 80, ""),
        of_kind("kinds", 82, "{kind: Odd}, {kind: HTTPRoute}"),
        of_kind("none", 83, "{kind: Odd}"),
        https.to_owned(),
        foreign.to_owned(),
    ];
    assert_lines(
        &statuses(&[edge(&listeners.join(", ")), gateway("name: unusable", unknown)]),
        &[
            "Gateway edge: Accepted=true(ListenersNotValid)",
            "- a HTTPRoute+GRPCRoute 0: Accepted ResolvedRefs Programmed",
            "- odd  0: Accepted=false(UnsupportedProtocol) ResolvedRefs Programmed=false(Invalid)",
            "- again HTTPRoute+GRPCRoute 0: Accepted=false(HostnameConflict) Conflicted=true(HostnameConflict) ResolvedRefs \
             Programmed=false(HostnameConflict)",
            "- kinds HTTPRoute 0: Accepted ResolvedRefs=false(InvalidRouteKinds) Programmed=false(Invalid)",
            "- none  0: Accepted ResolvedRefs=false(InvalidRouteKinds) Programmed=false(Invalid)",
            "- tls HTTPRoute+GRPCRoute 0: Accepted ResolvedRefs=false(InvalidCertificateRef) Programmed=false(Invalid)",
            "- far HTTPRoute+GRPCRoute 0: Accepted ResolvedRefs=false(RefNotPermitted) Programmed=false(Invalid)",
            "Gateway unusable: Accepted=false(ListenersNotValid)",
            "- odd  0: Accepted=false(UnsupportedProtocol) ResolvedRefs Programmed=false(Invalid)",
        ],
    );
}

#[test]
fn route_status_says_which_backends_and_rules_are_not_served() {
    let rule = |within: &str| format!("{{backendRefs: [{{{within}}}]}}");
    let of = |name: &str, rules: &str| http_route(&format!("name: {name}"), "{name: edge}", "", rules);
    let odd = "{matches: [{path: {type: Odd, value: /}}]}";
    assert_lines(
        &statuses(&[
            edge(&[http("a", 80, ""), tcp("t", 90)].join(", ")),
            of("kind", &rule("name: echo, port: 80, kind: Odd")),
            of("missing", &rule("name: nowhere, port: 80")),
            of("far", &rule("name: echo, port: 80, namespace: x")),
            of("odd", odd),
            of("partly", &format!("{odd}, {TO_ECHO}")),
            http_route("name: port", "{name: edge, port: 9}", "", TO_ECHO),
            http_route("name: tcp", "{name: edge, sectionName: t}", "", TO_ECHO),
            attached("TCPRoute", "name: db", "{name: edge, sectionName: t}", &[], &["nowhere:1"]),
        ]),
        &[
            "Gateway edge: Accepted",
            "- a HTTPRoute+GRPCRoute 5: Accepted ResolvedRefs Programmed",
            "- t TCPRoute 1: Accepted ResolvedRefs Programmed",
            "TCPRoute db at edge t: Accepted ResolvedRefs=false(BackendNotFound)",
            "HTTPRoute far at edge *: Accepted ResolvedRefs=false(RefNotPermitted)",
            "HTTPRoute kind at edge *: Accepted ResolvedRefs=false(InvalidKind)",
            "HTTPRoute missing at edge *: Accepted ResolvedRefs=false(BackendNotFound)",
            "HTTPRoute odd at edge *: Accepted=false(UnsupportedValue) ResolvedRefs",
            "HTTPRoute partly at edge *: Accepted ResolvedRefs PartiallyInvalid=true(UnsupportedValue)",
            "HTTPRoute port at edge *: Accepted=false(NoMatchingParent) ResolvedRefs",
            "HTTPRoute tcp at edge t: Accepted=false(NotAllowedByListeners) ResolvedRefs",
        ],
    );
}

#[test]
fn route_whose_newest_version_has_an_error_falls_back_and_says_so() {
    let rule = |path: &str| {
        format!("{{matches: [{{path: {{type: RegularExpression, value: \"{path}\"}}}}], {BACKENDS}}}")
    };
    let text = |path: &str, generation: u8| {
        let metadata = format!("name: r, generation: {generation}");
        let route = http_route(&metadata, "{name: edge}", "", &rule(path));
        format!("{}{route}{ECHO}", edge(&http("a", 80, "")))
    };
    let mut store = stored(&text("/a", 1));
    let listener = ["Gateway edge: Accepted", "- a HTTPRoute+GRPCRoute 1: Accepted ResolvedRefs Programmed"];
    let line = "HTTPRoute r at edge *: Accepted ResolvedRefs";
    assert_lines(&statuses_of(&store), &[listener[0], listener[1], line]);
    store.set_file(Path::new("m.yaml"), &text("/(", 2));
    let fallback = format!("{line} PartiallyInvalid=true(UnsupportedValue)");
    assert_lines(&statuses_of(&store), &[listener[0], listener[1], &fallback]);
    let translation = translate(&store, &TranslateOptions::default());
    let route = translation.statuses.last().expect("the route");
    assert_eq!(route.generation, Some(2));
    assert_eq!(translation.config.hosts[0].rules.len(), 1, "the older version is in service");
}

#[test]
fn gateway_reports_a_client_certificate_that_it_cannot_present() {
    let with = |reference: &str| {
        let spec = "gatewayClassName: sluicegate, listeners: [{name: a, protocol: HTTP, port: 80}], tls: {backend: {clientCertificateRef";
        object("Gateway", "name: edge", &format!("{spec}: {{{reference}}}}}}}"))
    };
    for (reference, reason) in [
        ("name: none", "InvalidClientCertificateRef"),
        ("name: none, kind: Bucket", "InvalidClientCertificateRef"),
        ("name: none, namespace: other", "RefNotPermitted"),
    ] {
        let expected = format!("Gateway edge: Accepted ResolvedRefs=false({reason})");
        assert_eq!(statuses(&[with(reference)])[0], expected, "{reference}");
    }
}

#[test]
fn https_listener_without_a_valid_ca_certificate_for_clients_is_not_accepted() {
    let with = |reference: &str, mode: &str| {
        let listeners = [
            http("plain", 80, ""),
            "{name: tls, protocol: HTTPS, port: 443, tls: {certificateRefs: [{name: cert}]}}".to_owned(),
        ];
        let validation = format!("validation: {{caCertificateRefs: [{reference}]{mode}}}");
        let frontend = format!("tls: {{frontend: {{default: {{{validation}}}}}}}");
        let spec = format!("gatewayClassName: sluicegate, listeners: [{}], {frontend}", listeners.join(", "));
        let ca = authorities("ConfigMap", "ca", &pem());
        let certificate = Authority::of_process().issue(&["a.test"]).secret("cert");
        statuses(&[object("Gateway", "name: edge", &spec), ca, certificate])
    };
    let lines = |gateway: &str, tls: &str| {
        let plain = "- plain HTTPRoute+GRPCRoute 0: Accepted ResolvedRefs Programmed";
        [gateway.to_owned(), plain.to_owned(), format!("- tls HTTPRoute+GRPCRoute 0: {tls}")]
    };
    for (reference, reason) in [
        ("{group: \"\", kind: ConfigMap, name: none}", "InvalidCACertificateRef"),
        ("{group: \"\", kind: Service, name: ca}", "InvalidCACertificateKind"),
        ("{group: \"\", kind: ConfigMap, name: ca, namespace: other}", "RefNotPermitted"),
    ] {
        let tls = format!(
            "Accepted=false(NoValidCACertificate) ResolvedRefs=false({reason}) Programmed=false(Invalid)"
        );
        let expected = lines("Gateway edge: Accepted=true(ListenersNotValid)", &tls);
        assert_eq!(with(reference, ""), expected, "{reference}");
    }
    let ca = "{group: \"\", kind: ConfigMap, name: ca}";
    let works = "Accepted ResolvedRefs Programmed";
    assert_eq!(with(ca, ""), lines("Gateway edge: Accepted", works));
    let fallback = with(ca, ", mode: AllowInsecureFallback");
    assert_eq!(fallback, lines("Gateway edge: Accepted insecure", works));
    let both = format!("{ca}, {{group: \"\", kind: ConfigMap, name: none}}");
    let partly = "Accepted ResolvedRefs=false(InvalidCACertificateRef) Programmed=false(Invalid)";
    assert_eq!(with(&both, ""), lines("Gateway edge: Accepted", partly));
}

#[test]
fn younger_route_of_the_other_kind_is_not_accepted_and_not_counted() {
    let of_grpc =
        object("GRPCRoute", "name: b", &format!("parentRefs: [{{name: edge}}], rules: [{{{BACKENDS}}}]"));
    assert_lines(
        &statuses(&[edge(&http("a", 80, "")), http_route("name: a", "{name: edge}", "", TO_ECHO), of_grpc]),
        &[
            "Gateway edge: Accepted",
            "- a HTTPRoute+GRPCRoute 1: Accepted ResolvedRefs Programmed",
            "HTTPRoute a at edge *: Accepted ResolvedRefs",
            "GRPCRoute b at edge *: Accepted=false(NotAllowedByListeners) ResolvedRefs",
        ],
    );
}
