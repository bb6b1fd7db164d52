//! Session persistence (GEP-1619).

use serde_json::{Value, json};

use super::grpc::grpc_route;
use super::http::{http, http_route};
use super::status::statuses;
use super::{assert_lines, edge, stored};
use crate::translate::tests::ECHO;
use crate::{TranslateOptions, translate};

/// The load balancing of the only rule, as `/config` shows it.
fn load_balancing(manifests: &str) -> Value {
    let translation = translate(&stored(manifests), &TranslateOptions::default());
    let rule = &translation.config.hosts[0].rules[0];
    serde_json::to_value(&rule.traffic.as_ref().unwrap().features.load_balancing).unwrap()
}

fn rule(session: &str) -> String {
    format!("{{name: r, backendRefs: [{{name: echo, port: 80}}], sessionPersistence: {{{session}}}}}")
}

#[test]
fn session_persistence_of_both_releases_becomes_session_affinity() {
    for (session, affinity) in [
        ("sessionName: s", json!({"cookie": "s", "overWeights": true})),
        ("type: Cookie, cookie: {name: s}", json!({"cookie": "s"})),
        ("cookie: {name: s, path: /shop}", json!({"cookie": "s", "path": "/shop"})),
        ("type: Header, sessionName: x-s", json!({"header": "x-s", "overWeights": true})),
        ("type: Header, header: {name: X-S}, idleTimeout: 5m", json!({"header": "X-S", "idleTimeout": "5m"})),
        (
            "sessionName: s, absoluteTimeout: 1h, cookieConfig: {lifetimeType: Session}",
            json!({"cookie": "s", "absoluteTimeout": "1h", "overWeights": true}),
        ),
        (
            "absoluteTimeout: 1500ms, cookie: {name: s, lifetimeType: Permanent}",
            json!({"cookie": "s", "absoluteTimeout": "1s500ms", "maxAge": "2s"}),
        ),
    ] {
        for route in [
            http_route("name: r", "{name: edge}", "", &rule(session)),
            grpc_route("name: r", "", &rule(session)),
        ] {
            let manifests = format!("{}{route}{ECHO}", edge(&http("http", 80, "")));
            assert_eq!(load_balancing(&manifests), json!({"affinity": affinity}), "{session}");
        }
    }
}

#[test]
fn session_without_a_name_has_a_name_of_its_rule() {
    let name = |of_route: &str, of_rule: &str| {
        let rule = rule("cookie: {}").replace("name: r", &format!("name: {of_rule}"));
        let route = http_route(&format!("name: {of_route}"), "{name: edge}", "", &rule);
        let found = load_balancing(&format!("{}{route}{ECHO}", edge(&http("http", 80, ""))));
        found["affinity"]["cookie"].as_str().unwrap().to_owned()
    };
    let names = [name("a", "one"), name("a", "two"), name("b", "one")];
    assert!(
        names.iter().all(|name| name.starts_with("sluicegate-session-") && name.len() == 31),
        "{names:?}"
    );
    assert!(names[0] != names[1] && names[0] != names[2], "{names:?}");
    assert_eq!(name("a", "one"), names[0]);
}

#[test]
fn session_persistence_of_a_rule_replaces_the_affinity_of_a_traffic_policy_but_not_its_algorithm() {
    let policy = "---\napiVersion: sluicegate.dev/v1alpha1\nkind: TrafficPolicy\nmetadata: {name: p}\nspec: {targetRefs: [{group: \
                  gateway.networking.k8s.io, kind: HTTPRoute, name: r}], loadBalancing: {algorithm: RoundRobin, affinity: \
                  {cookie: theirs, maxAge: 1h}}}\n";
    let with = |rule: &str| {
        let route = http_route("name: r", "{name: edge}", "", rule);
        load_balancing(&format!("{}{route}{ECHO}{policy}", edge(&http("http", 80, ""))))
    };
    let theirs = json!({"algorithm": "RoundRobin", "affinity": {"cookie": "theirs", "maxAge": "1h"}});
    assert_eq!(with("{backendRefs: [{name: echo, port: 80}]}"), theirs);
    assert_eq!(with("{backendRefs: [{name: echo, port: 80}], timeouts: {request: 1s}}"), theirs);
    let ours = json!({"algorithm": "RoundRobin", "affinity": {"cookie": "s"}});
    assert_eq!(with(&rule("cookie: {name: s}")), ours);
}

#[test]
fn route_whose_session_persistence_cannot_be_honoured_is_not_accepted() {
    let route = http_route("name: r", "{name: edge}", "", &rule("absoluteTimeout: 9000h, cookie: {}"));
    assert_lines(
        &statuses(&[edge(&http("http", 80, "")), route]),
        &[
            "Gateway edge: Accepted",
            "- http HTTPRoute+GRPCRoute 1: Accepted ResolvedRefs Programmed",
            "HTTPRoute r at edge *: Accepted=false(UnsupportedValue) ResolvedRefs",
        ],
    );
}

#[test]
fn rule_with_an_invalid_session_persistence_has_no_session_persistence_of_a_policy() {
    let of_route = "---\napiVersion: sluicegate.dev/v1alpha1\nkind: TrafficPolicy\nmetadata: {name: p}\nspec: {targetRefs: [{group: \
                    gateway.networking.k8s.io, kind: HTTPRoute, name: r}], loadBalancing: {algorithm: RoundRobin, affinity: \
                    {cookie: theirs}}}\n";
    let of_service = "---\napiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackendTrafficPolicy\nmetadata: {name: p}\nspec: \
                      {targetRefs: [{group: \"\", kind: Service, name: echo}], sessionPersistence: {cookie: {name: theirs}}}\n";
    let applied = |session: &str, policies: &str| {
        let route = http_route("name: r", "{name: edge}", "", &rule(session));
        let manifests = format!("{}{route}{ECHO}{policies}", edge(&http("http", 80, "")));
        let translation = translate(&stored(&manifests), &TranslateOptions::default());
        let rule = &translation.config.hosts[0].rules[0];
        let of_rule = rule.traffic.as_ref().map(|traffic| json!(traffic.features.load_balancing));
        (of_rule.unwrap_or_default(), json!(rule.backends[0].features))
    };
    let both = format!("{of_route}{of_service}");
    assert_eq!(applied("absoluteTimeout: 9000h", &both), (json!({"algorithm": "RoundRobin"}), Value::Null));
    assert_eq!(applied("absoluteTimeout: 9000h", ""), (Value::Null, Value::Null));
}
