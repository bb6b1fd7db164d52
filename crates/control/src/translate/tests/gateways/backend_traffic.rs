//! Tests of XBackendTrafficPolicies: retries and session persistence of Services, and the state of the policies.

use serde_json::{Value, json};

use super::backend_tls::{problems, verdicts};
use super::grpc::grpc_route;
use super::http::{TO_ECHO, http, http_route};
use super::*;
use crate::translate::Translation;
use crate::translate::tests::ECHO;

/// An XBackendTrafficPolicy for these Services with these parts.
fn policy(metadata: &str, services: &[&str], parts: &str) -> String {
    let targets: Vec<String> =
        services.iter().map(|name| format!("{{group: \"\", kind: Service, name: {name}}}")).collect();
    format!(
        "---\napiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackendTrafficPolicy\nmetadata: {{{metadata}}}\nspec: \
         {{targetRefs: [{}], {parts}}}\n",
        targets.join(", ")
    )
}

/// The Gateway `edge` with an HTTPRoute to `echo:80`, the Service `echo`, and these manifests.
fn store(manifests: &[String]) -> Store {
    let route = http_route("name: r", "{name: edge}", "", TO_ECHO);
    stored(&[edge(&http("http", 80, "")), route, ECHO.to_owned(), manifests.concat()].concat())
}

fn translated(store: &Store) -> Translation {
    translate(store, &TranslateOptions::default())
}

/// The retry constraint of each upstream.
fn retry_constraints(translation: &Translation) -> Vec<(String, Value)> {
    let upstreams = translation.config.upstreams.iter();
    upstreams.map(|(key, of)| (key.to_string(), json!(of.retry_constraint))).collect()
}

/// The features of each backend of the first rule.
fn features(translation: &Translation) -> Vec<Value> {
    translation.config.hosts[0].rules[0].backends.iter().map(|backend| json!(backend.features)).collect()
}

#[test]
fn retry_constraint_of_a_service_has_the_defaults_of_gateway_api() {
    let constraint = |percent: u8, interval: &str, min_retries: u32, min_interval: &str| json!({"percent": percent, "interval": interval, "minRetries": min_retries, "minInterval": min_interval});
    for (parts, expected) in [
        ("retryConstraint: {}", constraint(20, "10s", 10, "1s")),
        ("retryConstraint: {budget: {}, minRetryRate: {}}", constraint(20, "10s", 10, "1s")),
        ("retryConstraint: {budget: {percent: 0}}", constraint(0, "10s", 10, "1s")),
        ("retryConstraint: {budget: {interval: 1h}}", constraint(20, "1h", 10, "1s")),
        ("retryConstraint: {minRetryRate: {count: 1000000}}", constraint(20, "10s", 1_000_000, "1s")),
        (
            "retryConstraint: {budget: {percent: 100, interval: 1s}, minRetryRate: {count: 1, interval: 1ms}}",
            constraint(100, "1s", 1, "1ms"),
        ),
        ("sessionPersistence: {cookie: {name: s}}", Value::Null),
    ] {
        let store = store(&[policy("name: p", &["echo"], parts)]);
        let translation = translated(&store);
        assert_problems(&problems(&store, &translation), &[]);
        assert_eq!(retry_constraints(&translation), [("default/echo:http".to_owned(), expected)], "{parts}");
        assert_lines(&verdicts(&translation), &["p edge: Accepted"]);
    }
}

#[test]
fn invalid_part_of_a_backend_traffic_policy_has_no_effect_and_the_other_part_applies() {
    let sticky = "sessionPersistence: {cookie: {name: s}}";
    for (constraint, problem) in [
        ("budget: {percent: 101}", "budget.percent: 101 is not between 0 and 100; retries are not limited"),
        ("budget: {interval: 999ms}", "budget.interval: \"999ms\" is not between 1s and 1h"),
        ("budget: {interval: 61m}", "budget.interval: \"61m\" is not between 1s and 1h"),
        ("minRetryRate: {count: 0}", "minRetryRate.count: 0 is not between 1 and 1000000"),
        ("minRetryRate: {interval: 0s}", "minRetryRate.interval: \"0s\" is not between 1ms and 1h"),
        ("minRetryRate: {interval: 1d}", "minRetryRate.interval: \"1d\" is not a duration"),
    ] {
        let store =
            store(&[policy("name: p", &["echo"], &format!("retryConstraint: {{{constraint}}}, {sticky}"))]);
        let translation = translated(&store);
        let problem = format!("XBackendTrafficPolicy default/p: spec.retryConstraint.{problem}");
        assert_problems(&problems(&store, &translation), &[&problem]);
        assert_eq!(retry_constraints(&translation)[0].1, Value::Null, "{constraint}");
        assert_eq!(features(&translation), [json!({"affinity": {"cookie": "s"}})]);
        assert_lines(&verdicts(&translation), &["p edge: Invalid"]);
    }
    let parts = "retryConstraint: {}, sessionPersistence: {type: Ip}";
    let store = store(&[policy("name: p", &["echo"], parts)]);
    let translation = translated(&store);
    assert_problems(&problems(&store, &translation), &["spec.sessionPersistence.type: \"Ip\" is unknown"]);
    assert_eq!(features(&translation), [Value::Null]);
    assert_ne!(retry_constraints(&translation)[0].1, Value::Null);
}

#[test]
fn retry_constraint_limits_all_routes_to_the_ports_of_the_service() {
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: two}\nspec: {ports: [{name: a, port: 1}, {name: b, port: 2}]}\n";
    let backends = "{backendRefs: [{name: two, port: 1}, {name: two, port: 2}, {name: echo, port: 80}]}";
    let to_ingress = ingress("name: i", &rules(&["i.test Prefix / two:1"]));
    let manifests = [
        edge(&http("http", 80, "")),
        ECHO.to_owned(),
        http_route("name: s", "{name: edge}", "s.test", backends),
        grpc_route("name: g", "g.test", "{backendRefs: [{name: two, port: 1}]}"),
        to_ingress,
        service.to_owned(),
        policy("name: p", &["two", "other"], "retryConstraint: {}"),
    ];
    let translation = translated(&stored(&manifests.concat()));
    let limited: Vec<String> = retry_constraints(&translation)
        .into_iter()
        .map(|(key, constraint)| format!("{key} {}", if constraint.is_null() { "free" } else { "limited" }))
        .collect();
    assert_lines(
        &limited,
        &[
            "default/echo:http free",
            "default/two:a limited",
            "default/two:a (h2c) limited",
            "default/two:b limited",
        ],
    );
}

#[test]
fn session_persistence_of_a_service_applies_to_its_backends_in_both_releases() {
    let rule = "{backendRefs: [{name: echo, port: 80, filters: [{type: RequestHeaderModifier, requestHeaderModifier: \
                {remove: [x-a]}}]}, {name: plain, port: 80}]}";
    let plain = ECHO.replace("echo", "plain");
    for (session, affinity) in [
        ("sessionName: s", json!({"cookie": "s"})),
        (
            "type: Header, sessionName: x-s, absoluteTimeout: 1h",
            json!({"header": "x-s", "absoluteTimeout": "1h"}),
        ),
        ("cookie: {name: s, path: /shop}", json!({"cookie": "s", "path": "/shop"})),
        ("type: Header, header: {name: X-S}", json!({"header": "X-S"})),
    ] {
        for route in [http_route("name: r", "{name: edge}", "", rule), grpc_route("name: r", "", rule)] {
            let policy = policy("name: p", &["echo"], &format!("sessionPersistence: {{{session}}}"));
            let store = stored(
                &[edge(&http("http", 80, "")), route, ECHO.to_owned(), plain.clone(), policy].concat(),
            );
            let translation = translated(&store);
            assert_problems(&problems(&store, &translation), &[]);
            let with_filter = json!({"requestHeaders": {"remove": ["x-a"]}, "affinity": affinity});
            assert_eq!(features(&translation), [with_filter, Value::Null], "{session}");
        }
    }
}

#[test]
fn session_persistence_without_a_name_has_a_name_of_its_policy() {
    let name = |policy_name: &str| {
        let parts = "sessionPersistence: {cookie: {}}";
        let store = store(&[policy(&format!("name: {policy_name}"), &["echo"], parts)]);
        features(&translated(&store))[0]["affinity"]["cookie"].as_str().unwrap().to_owned()
    };
    assert!(name("a").starts_with("sluicegate-session-"), "{}", name("a"));
    assert_ne!(name("a"), name("b"));
    assert_eq!(name("a"), name("a"));
}

#[test]
fn session_persistence_of_a_rule_has_precedence_over_the_session_persistence_of_a_service() {
    let rule = "{backendRefs: [{name: echo, port: 80}], sessionPersistence: {cookie: {name: rule}}}";
    let policy = policy("name: p", &["echo"], "sessionPersistence: {cookie: {name: service}}");
    let route = http_route("name: r", "{name: edge}", "", rule);
    let translation =
        translated(&stored(&[edge(&http("http", 80, "")), route, ECHO.to_owned(), policy].concat()));
    assert_eq!(features(&translation), [Value::Null]);
    let traffic = translation.config.hosts[0].rules[0].traffic.as_ref().unwrap();
    assert_eq!(json!(traffic.features.load_balancing), json!({"affinity": {"cookie": "rule"}}));
}

#[test]
fn oldest_of_several_backend_traffic_policies_applies_to_the_service() {
    let created =
        |name: &str, day: u8| format!("name: {name}, creationTimestamp: \"2026-01-0{day}T00:00:00Z\"");
    let percent = |percent: u8| format!("retryConstraint: {{budget: {{percent: {percent}}}}}");
    let manifests = [
        policy(&created("a-young", 5), &["echo"], &percent(5)),
        policy(&created("old", 2), &["echo"], &percent(2)),
        policy(&created("young-of-two", 6), &["echo", "plain"], &percent(6)),
        http_route("name: s", "{name: edge}", "s.test", "{backendRefs: [{name: plain, port: 80}]}"),
        ECHO.replace("echo", "plain"),
    ];
    let store = store(&manifests);
    let translation = translated(&store);
    let percents: Vec<Value> =
        retry_constraints(&translation).into_iter().map(|(_, of)| of["percent"].clone()).collect();
    assert_eq!(percents, [json!(2), json!(6)]);
    assert_lines(
        &verdicts(&translation),
        &["old edge: Accepted", "a-young edge: Conflicted", "young-of-two edge: Accepted"],
    );
    let older =
        "XBackendTrafficPolicy default/old (older, or first by name) applies to Service default/echo already";
    assert_problems(
        &problems(&store, &translation),
        &[
            &format!("a-young: spec.targetRefs[0].name: {older}"),
            &format!("young-of-two: spec.targetRefs[0].name: {older}"),
        ],
    );
}

#[test]
fn backend_traffic_policy_has_each_gateway_whose_routes_use_its_services_as_ancestor() {
    let mirror = "{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: mirrored, port: 80}}}], backendRefs: [{name: \
                  echo, port: 80}]}";
    let manifests = [
        gateway("name: second", &http("http", 81, "")),
        gateway("name: unused", &http("http", 82, "")),
        gateway("name: below", &tcp("tcp", 83)),
        http_route("name: s", "{name: second}", "", mirror),
        attached("TCPRoute", "name: t", "{name: below}", &[], &["echo:80"]),
        http_route("name: u", "{name: second}", "u.test", "{backendRefs: [{name: missing, port: 80}]}"),
        ECHO.replace("echo", "mirrored"),
        policy("name: p", &["echo"], "retryConstraint: {}"),
        policy("name: q", &["mirrored"], "retryConstraint: {}"),
        policy("name: r", &["other"], "retryConstraint: {}"),
        policy("name: s", &["missing"], "retryConstraint: {}"),
        policy("name: t", &["missing", "echo"], ""),
    ];
    assert_lines(
        &verdicts(&translated(&store(&manifests))),
        &[
            "p edge: Accepted",
            "p second: Accepted",
            "s second: TargetNotFound",
            "t edge: Conflicted",
            "t second: TargetNotFound",
        ],
    );
}

#[test]
fn backend_traffic_policy_of_a_service_with_an_invalid_backend_tls_policy_has_an_ancestor() {
    let tls = "targetRefs: [{group: \"\", kind: Service, name: echo}], validation: {hostname: echo.test}";
    let manifests =
        [object("BackendTLSPolicy", "name: t", tls), policy("name: p", &["echo"], "retryConstraint: {}")];
    let translation = translated(&store(&manifests));
    assert!(translation.config.hosts[0].rules[0].backends[0].is_invalid);
    assert!(verdicts(&translation).contains(&"p edge: Accepted".to_owned()), "{:?}", verdicts(&translation));
}

#[test]
fn targets_of_other_kinds_are_ignored_and_reported() {
    let spec = "targetRefs: [{group: multicluster.x-k8s.io, kind: ServiceImport, name: echo}, {group: \"\", kind: Service, name: echo}]";
    let policy = object("XBackendTrafficPolicy", "name: p", &format!("{spec}, retryConstraint: {{}}"))
        .replace("gateway.networking.k8s.io/v1", "gateway.networking.x-k8s.io/v1alpha1");
    let store = store(&[policy]);
    let translation = translated(&store);
    assert_problems(
        &problems(&store, &translation),
        &["spec.targetRefs[0].kind: \"ServiceImport\" is ignored: name a Service, with group: \"\""],
    );
    assert_ne!(retry_constraints(&translation)[0].1, Value::Null);
    assert_lines(&verdicts(&translation), &["p edge: Accepted"]);
}

#[test]
fn last_valid_version_of_a_backend_traffic_policy_stays_in_service() {
    let mut store = store(&[]);
    let set = |store: &mut Store, parts: &str| {
        store.set_file(Path::new("p.yaml"), &policy("name: p, generation: 7", &["echo"], parts));
    };
    set(&mut store, "retryConstraint: {budget: {percent: 5}}");
    set(&mut store, "retryConstraint: {budget: {percent: 500}}");
    let translation = translated(&store);
    assert_eq!(retry_constraints(&translation)[0].1["percent"], 5);
    assert_lines(&verdicts(&translation), &["p edge: Invalid"]);
}
