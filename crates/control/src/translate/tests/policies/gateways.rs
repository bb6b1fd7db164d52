//! Tests of policies for Gateways, listeners, HTTPRoutes, GRPCRoutes and their rules.

use std::sync::Arc;

use sluicegate_model::Rule;
use sluicegate_model::feature::Authentication;
use sluicegate_model::policy::{Security, Traffic};

use super::attachment::policy_statuses;
use super::{ECHO, SERVICE, assert_lines, assert_problems, object, translated};
use crate::Translation;

const GATEWAY: &str = "{group: gateway.networking.k8s.io, kind: Gateway, name: edge}";
const LISTENER: &str = "{group: gateway.networking.k8s.io, kind: Gateway, name: edge, sectionName: one}";
const ROUTE: &str = "{group: gateway.networking.k8s.io, kind: HTTPRoute, name: web}";
const RULE: &str = "{group: gateway.networking.k8s.io, kind: HTTPRoute, name: web, sectionName: admin}";

fn of_gateway_api(kind: &str, name: &str, spec: &str) -> String {
    object(kind, name, spec).replace("sluicegate.dev/v1alpha1", "gateway.networking.k8s.io/v1")
}

/// The Gateway `edge` with the listeners `one` and `two`, the HTTPRoute `web` at both with the rule `admin` and a rule
/// without a name, and the HTTPRoute `other` at `one`.
fn site() -> String {
    let listener = |name: &str, port: u16, protocol: &str| {
        format!(
            "{{name: {name}, protocol: {protocol}, port: {port}, allowedRoutes: {{namespaces: {{from: All}}}}}}"
        )
    };
    let listeners =
        [listener("one", 8081, "HTTP"), listener("two", 8082, "HTTP"), listener("db", 8083, "TCP")];
    let to = |path: &str| {
        format!("matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: echo, port: 80}}]")
    };
    let rules = format!("{{name: admin, {}}}, {{{}}}", to("/admin"), to("/"));
    let of_web = format!("parentRefs: [{{name: edge}}], rules: [{rules}]");
    let of_other = format!("parentRefs: [{{name: edge, sectionName: one}}], rules: [{{{}}}]", to("/other"));
    [
        ECHO.to_owned(),
        of_gateway_api(
            "Gateway",
            "edge",
            &format!("gatewayClassName: sluicegate, listeners: [{}]", listeners.join(", ")),
        ),
        of_gateway_api("HTTPRoute", "web", &of_web),
        of_gateway_api("HTTPRoute", "other", &of_other),
    ]
    .concat()
}

fn policy(kind: &str, name: &str, target: &str, spec: &str) -> String {
    object(kind, name, &format!("targetRefs: [{target}]{spec}"))
}

/// A SecurityPolicy that allows one address.
fn security(name: &str, target: &str) -> String {
    policy("SecurityPolicy", name, target, ", ipAccess: {allow: [192.0.2.1]}")
}

fn limits(name: &str, target: &str) -> String {
    policy("RateLimitPolicy", name, target, ", limits: [{name: all, requests: 1, per: 1s}]")
}

/// Each rule at each listener with the names of the policies that apply there.
fn governed(translation: &Translation) -> Vec<String> {
    let names = |ids: Vec<String>| if ids.is_empty() { "-".to_owned() } else { ids.join("+") };
    let mut shown = Vec::new();
    for host in &translation.config.hosts {
        for rule in &host.rules {
            let security = rule.security.iter().flat_map(|security| security.ids());
            let limits = rule.rate_limits.iter().map(|limits| limits.id.name.to_string());
            let traffic = rule.traffic.iter().flat_map(|traffic| traffic.ids());
            shown.push(format!(
                "{} {}{} {} {} {}",
                host.entry_point,
                rule.id.name,
                rule.path(),
                names(security.map(|id| id.name.to_string()).collect()),
                names(limits.collect()),
                names(traffic.map(|id| id.name.to_string()).collect()),
            ));
        }
    }
    shown
}

/// The rule of a path at the listener `one`.
#[track_caller]
fn rule_of(translation: &Translation, path: &str) -> Rule {
    let hosts = translation.config.hosts.iter().filter(|host| host.entry_point.to_string().contains("8081"));
    let rule = hosts.flat_map(|host| &host.rules).find(|rule| rule.path() == path);
    rule.expect("the rule is served").clone()
}

#[track_caller]
fn security_of(text: &[String], path: &str) -> Arc<Security> {
    rule_of(&translated(&[&text.concat()]).0, path).security.expect("a policy applies")
}

#[track_caller]
fn traffic_of(text: &[String], path: &str) -> Arc<Traffic> {
    rule_of(&translated(&[&text.concat()]).0, path).traffic.expect("a policy applies")
}

#[test]
fn policy_applies_to_a_gateway_a_listener_a_route_and_a_rule() {
    for (target, expected) in [
        (GATEWAY, ["p", "p", "p", "p", "p"]),
        (LISTENER, ["p", "p", "p", "-", "-"]),
        (ROUTE, ["-", "p", "p", "p", "p"]),
        (RULE, ["-", "p", "-", "p", "-"]),
    ] {
        let text = [
            site(),
            security("p", target),
            limits("p", target),
            policy("TrafficPolicy", "p", target, ", timeouts: {request: 5s}"),
        ];
        let (translation, problems) = translated(&[&text.concat()]);
        assert_problems(&problems, &[]);
        let rules = [
            "0.0.0.0:8081 other/other",
            "0.0.0.0:8081 web/admin",
            "0.0.0.0:8081 web/",
            "0.0.0.0:8082 web/admin",
            "0.0.0.0:8082 web/",
        ];
        let expected: Vec<String> =
            rules.iter().zip(expected).map(|(rule, p)| format!("{rule} {p} {p} {p}")).collect();
        assert_lines(&governed(&translation), &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn most_specific_rate_limit_policy_applies_as_a_whole() {
    let text = [
        site(),
        limits("gateway", GATEWAY),
        limits("listener", LISTENER),
        limits("route", ROUTE),
        limits("rule", RULE),
    ];
    let (translation, problems) = translated(&[&text.concat()]);
    assert_lines(
        &governed(&translation),
        &[
            "0.0.0.0:8081 other/other - listener -",
            "0.0.0.0:8081 web/admin - rule -",
            "0.0.0.0:8081 web/ - route -",
            "0.0.0.0:8082 web/admin - rule -",
            "0.0.0.0:8082 web/ - route -",
        ],
    );
    let replaced = "spec.targetRefs[0]: more specific policies replace this policy, or parts of it, on some of its routes";
    assert_problems(
        &problems,
        &[
            &format!(
                "RateLimitPolicy default/gateway: {replaced}: RateLimitPolicy default/listener, RateLimitPolicy default/route, RateLimitPolicy default/rule"
            ),
            &format!(
                "RateLimitPolicy default/listener: {replaced}: RateLimitPolicy default/route, RateLimitPolicy default/rule"
            ),
            &format!("RateLimitPolicy default/route: {replaced}: RateLimitPolicy default/rule"),
        ],
    );
    assert_lines(
        &policy_statuses(&translation),
        &[
            "gateway Gateway edge: Overridden",
            "listener Gateway edge:one: Overridden",
            "route HTTPRoute web: Overridden",
            "rule HTTPRoute web:admin: Accepted",
        ],
    );
}

#[test]
fn security_policy_inherits_the_parts_that_it_does_not_set() {
    let key = ", authentication: {apiKey: {}}, authorization: {rules: [{action: Allow, groups: [gold]}]}";
    let text = [
        site(),
        policy("SecurityPolicy", "gateway", GATEWAY, key),
        policy(
            "SecurityPolicy",
            "route",
            ROUTE,
            ", cors: {allowOrigins: [\"*\"]}, ipAccess: {allow: [192.0.2.1]}",
        ),
        policy("SecurityPolicy", "rule", RULE, ", ipAccess: {allow: [192.0.2.2]}"),
    ];
    let (translation, _) = translated(&[&text.concat()]);
    assert_lines(
        &governed(&translation),
        &[
            "0.0.0.0:8081 other/other gateway - -",
            "0.0.0.0:8081 web/admin rule+route+gateway - -",
            "0.0.0.0:8081 web/ route+gateway - -",
            "0.0.0.0:8082 web/admin rule+route+gateway - -",
            "0.0.0.0:8082 web/ route+gateway - -",
        ],
    );
    let security = security_of(&text, "/admin");
    assert!(security.authentication.is_some() && security.authorization.is_some() && security.cors.is_some());
    assert_eq!(security.ip_access.allow[0].to_string(), "192.0.2.2/32");
    // The listeners and rules share one policy.
    let rules: Vec<_> = translation.config.rules().filter(|rule| rule.path() == "/admin").collect();
    assert!(Arc::ptr_eq(rules[0].security.as_ref().unwrap(), rules[1].security.as_ref().unwrap()));
    assert_lines(
        &policy_statuses(&translation),
        &[
            "gateway Gateway edge: Accepted",
            "route HTTPRoute web: Overridden",
            "rule HTTPRoute web:admin: Accepted",
        ],
    );
}

#[test]
fn inherited_authentication_knows_the_consumers_of_its_own_namespace() {
    let gateway = of_gateway_api(
        "Gateway",
        "outer",
        "gatewayClassName: sluicegate, listeners: [{name: one, protocol: HTTP, port: 8081, allowedRoutes: {namespaces: {from: All}}}]",
    )
    .replace("metadata: {name: outer}", "metadata: {namespace: infra, name: outer}");
    let of_gateway = "{group: gateway.networking.k8s.io, kind: Gateway, name: outer}";
    let authentication = policy("SecurityPolicy", "gateway", of_gateway, ", authentication: {apiKey: {}}")
        .replace("metadata: {name: gateway}", "metadata: {namespace: infra, name: gateway}");
    let route = of_gateway_api(
        "HTTPRoute",
        "web",
        "parentRefs: [{name: outer, namespace: infra}], rules: [{backendRefs: [{name: echo, port: 80}]}]",
    );
    let cors = policy("SecurityPolicy", "route", ROUTE, ", cors: {allowOrigins: [\"*\"]}");
    let text = [ECHO.to_owned(), gateway, authentication, route, cors];
    let security = security_of(&text, "/");
    let names: Vec<String> = security.ids().map(ToString::to_string).collect();
    assert_eq!(names, ["SecurityPolicy default/route", "SecurityPolicy infra/gateway"]);
    let known = |authentication: &Authentication| authentication.namespaces(&security.id.namespace);
    assert_eq!(security.authentication.as_ref().and_then(known), Some(vec!["infra".into()]));
}

#[test]
fn invalid_security_policy_of_any_level_closes_its_routes() {
    for target in [GATEWAY, LISTENER, ROUTE, RULE] {
        let broken = policy("SecurityPolicy", "broken", target, ", ipAccess: {allow: [nobody]}");
        for other in [GATEWAY, ROUTE, RULE] {
            let text = [site(), broken.clone(), security("valid", other)];
            if target == other {
                continue;
            }
            assert!(security_of(&text, "/admin").refuses.is_some(), "{target} {other}");
        }
        let (translation, _) = translated(&[&[site(), broken].concat()]);
        let statuses = policy_statuses(&translation);
        assert!(statuses.iter().all(|status| status.ends_with(": Invalid")), "{statuses:?}");
    }
}

#[test]
fn security_policy_for_an_unknown_listener_or_rule_closes_the_object_without_another_policy() {
    for (target, name, other, message) in [
        (
            LISTENER,
            "one",
            GATEWAY,
            "Gateway default/edge has no listener \"none\", it has \"one\", \"two\", \"db\"; its routes respond with 503, unless a policy for the Gateway or their listener applies. Fix sectionName",
        ),
        (
            RULE,
            "admin",
            ROUTE,
            "HTTPRoute default/web has no rule \"none\", it has \"admin\"; its routes respond with 503, unless a policy for the HTTPRoute or their rule applies. Fix sectionName",
        ),
    ] {
        let unknown = target.replace(&format!("sectionName: {name}"), "sectionName: none");
        let misspelt = [site(), security("p", &unknown)];
        assert!(security_of(&misspelt, "/admin").refuses.is_some(), "{target}");
        let (translation, problems) = translated(&[&misspelt.concat()]);
        assert_problems(&problems, &[&format!("SecurityPolicy default/p: spec.targetRefs[0]: {message}")]);
        let statuses = policy_statuses(&translation);
        assert!(statuses[0].ends_with(":none: TargetNotFound"), "{statuses:?}");
        for good in [target, other] {
            let text = [site(), security("p", &unknown), security("q", good)];
            assert!(security_of(&text, "/admin").refuses.is_none(), "{good}");
        }
        // Another kind has no effect.
        let (translation, problems) = translated(&[&[site(), limits("p", &unknown)].concat()]);
        assert_problems(&problems, &["the policy has no effect there. Fix sectionName"]);
        assert!(translation.config.rules().all(|rule| rule.rate_limits.is_none()));
    }
}

#[test]
fn security_policy_for_a_service_applies_alone() {
    let text = [
        site(),
        security("gateway", GATEWAY),
        policy("SecurityPolicy", "service", SERVICE, ", cors: {allowOrigins: [\"*\"]}"),
    ];
    let (translation, problems) = translated(&[&text.concat()]);
    assert!(governed(&translation).iter().all(|line| line.contains(" service - -")), "{translation:?}");
    assert_problems(
        &problems,
        &[
            "SecurityPolicy default/gateway: spec.targetRefs[0]: more specific policies replace this policy, or parts of it, on some of its routes: SecurityPolicy default/service",
        ],
    );
}

#[test]
fn traffic_policy_inherits_features_and_filters_of_the_rule_have_precedence() {
    let traffic =
        |name: &str, target: &str, spec: &str| policy("TrafficPolicy", name, target, &format!(", {spec}"));
    let text = [
        site().replace(
            "{name: admin, ",
            "{name: admin, timeouts: {backendRequest: 1s}, filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-a, value: filter}]}}], ",
        ),
        traffic("gateway", GATEWAY, "timeouts: {request: 9s, connect: 9s, backendRequest: 9s}, retries: {attempts: 9, budget: {percent: 9}}, responseHeaders: {set: [{name: x-a, value: gateway}]}, limits: {requestBody: 9k}"),
        traffic("route", ROUTE, "timeouts: {request: 2s}, retries: {attempts: 2}, responseHeaders: {set: [{name: x-a, value: route}]}"),
    ];
    let (translation, problems) = translated(&[&text.concat()]);
    assert_problems(
        &problems,
        &[
            "TrafficPolicy default/gateway: spec.targetRefs[0]: more specific policies replace this policy, or parts of it, on some of its routes: TrafficPolicy default/route",
        ],
    );
    let shown = |path: &str| serde_json::to_value(&traffic_of(&text, path).features).unwrap();
    let header = |value: &str| serde_json::json!({"set": [{"name": "x-a", "value": value}]});
    let mut expected = serde_json::json!({
        "timeouts": {"request": "2s", "connect": "9s", "backendRequest": "9s"},
        "retries": {"attempts": 2, "budget": {"percent": 9, "minPerSecond": 10}},
        "responseHeaders": header("route"),
        "limits": {"requestBody": "9000"},
    });
    assert_eq!(shown("/"), expected);
    expected["timeouts"]["backendRequest"] = "1s".into();
    expected["responseHeaders"] = header("filter");
    assert_eq!(shown("/admin"), expected);
    assert_eq!(traffic_of(&text, "/other").inherits, []);
    let of_web: Vec<_> = translation.config.rules().filter(|rule| rule.path() == "/").collect();
    assert!(Arc::ptr_eq(of_web[0].traffic.as_ref().unwrap(), of_web[1].traffic.as_ref().unwrap()));
}

#[test]
fn services_of_an_inherited_split_are_served() {
    let other = ECHO.replace("name: echo", "name: canary").replace("echo-", "canary-");
    let text = [
        site(),
        other,
        policy(
            "TrafficPolicy",
            "gateway",
            GATEWAY,
            ", split: {backends: [{serviceRef: {name: canary, port: 80}, weight: 10}]}",
        ),
        policy("TrafficPolicy", "route", ROUTE, ", timeouts: {request: 2s}"),
    ];
    let (translation, _) = translated(&[&text.concat()]);
    let split = traffic_of(&text, "/").features.split.clone().expect("the split is inherited");
    assert!(translation.config.upstreams.contains_key(&split.backends[0].upstream));
}

#[test]
fn one_security_policy_for_a_route_and_a_service_protects_both_backends() {
    let two = ECHO.replace("name: echo", "name: two");
    let backends = site().replace(
        "backendRefs: [{name: echo, port: 80}]",
        "backendRefs: [{name: echo, port: 80}, {name: two, port: 80}]",
    );
    let service = SERVICE.replace("echo", "two");
    let text =
        |targets: &str| [backends.clone(), two.clone(), security("p", targets), security("gateway", GATEWAY)];
    let denied = |text: &[String]| {
        let rule = rule_of(&translated(&[&text.concat()]).0, "/");
        rule.backends.iter().map(|backend| backend.is_invalid).collect::<Vec<_>>()
    };
    assert_eq!(denied(&text(&format!("{ROUTE}, {service}"))), [false, false]);
    assert_eq!(denied(&text(&service)), [false, true]);
}

#[test]
fn oldest_policy_of_a_gateway_api_target_has_precedence() {
    for target in [GATEWAY, LISTENER, ROUTE, RULE] {
        let (translation, problems) =
            translated(&[&[site(), security("b", target), security("a", target)].concat()]);
        assert_problems(
            &problems,
            &[
                "SecurityPolicy default/b: spec.targetRefs[0]: SecurityPolicy default/a (older, or first by name) applies there already; this policy has no effect there",
            ],
        );
        let reasons: Vec<_> = translation.policy_statuses.iter().map(|of| of.reason.as_str()).collect();
        assert_eq!(reasons, ["Accepted", "Conflicted"], "{target}");
        assert_eq!(rule_of(&translation, "/admin").security.unwrap().id.name, "a".into());
    }
}

#[test]
fn missing_and_foreign_targets_of_gateway_api_are_reported() {
    let foreign = [
        of_gateway_api(
            "Gateway",
            "theirs",
            "gatewayClassName: other, listeners: [{name: a, protocol: HTTP, port: 80}]",
        ),
        of_gateway_api(
            "HTTPRoute",
            "theirs",
            "parentRefs: [{name: theirs}], rules: [{backendRefs: [{name: echo, port: 80}]}]",
        ),
    ];
    let target =
        |kind: &str, name: &str| format!("{{group: gateway.networking.k8s.io, kind: {kind}, name: {name}}}");
    let targets = [
        target("Gateway", "none"),
        target("HTTPRoute", "none"),
        target("GRPCRoute", "web"),
        target("Gateway", "theirs"),
        target("HTTPRoute", "theirs"),
        LISTENER.replace("one", "db"),
    ];
    let text = [site(), foreign.concat(), security("p", &targets.join(", "))];
    let (translation, problems) = translated(&[&text.concat()]);
    assert_problems(
        &problems,
        &[
            "targetRefs[0]: Gateway default/none does not exist",
            "targetRefs[1]: HTTPRoute default/none does not exist",
            "targetRefs[2]: GRPCRoute default/web does not exist",
            "targetRefs[3]: Gateway default/theirs is of another class",
            "targetRefs[4]: HTTPRoute default/theirs has no Gateway of this class",
            "targetRefs[5]: listener db of Gateway default/edge is for TCP; policies have an effect only at listeners for HTTP and HTTPS",
        ],
    );
    assert!(translation.config.rules().all(|rule| rule.security.is_none()));
    assert_lines(
        &policy_statuses(&translation),
        &[
            "p GRPCRoute web: TargetNotFound",
            "p Gateway edge:db: Invalid",
            "p Gateway none: TargetNotFound",
            "p Gateway theirs: Foreign",
            "p HTTPRoute none: TargetNotFound",
            "p HTTPRoute theirs: Foreign",
        ],
    );
}

#[test]
fn ancestors_of_a_policy_are_the_gateways_of_its_targets() {
    let inner = of_gateway_api(
        "Gateway",
        "inner",
        "gatewayClassName: sluicegate, listeners: [{name: a, protocol: HTTP, port: 8090}]",
    );
    let site = site()
        .replace("parentRefs: [{name: edge}]", "parentRefs: [{name: edge}, {name: inner}, {name: gone}]");
    for (target, expected) in [
        (GATEWAY, vec!["edge"]),
        (LISTENER, vec!["edge:one"]),
        (ROUTE, vec!["edge", "inner"]),
        (RULE, vec!["edge", "inner"]),
        (SERVICE, vec![]),
    ] {
        let (translation, _) = translated(&[&[site.clone(), inner.clone(), security("p", target)].concat()]);
        let ancestors = translation.policy_statuses[0].ancestors.iter().map(|ancestor| {
            let section = ancestor.section.as_ref().map(|section| format!(":{section}")).unwrap_or_default();
            format!("{}{section}", ancestor.gateway.name)
        });
        assert_eq!(ancestors.collect::<Vec<_>>(), expected, "{target}");
    }
}

#[test]
fn routes_of_other_kinds_are_no_targets_of_policies() {
    for kind in ["TLSRoute", "TCPRoute", "UDPRoute", "ListenerSet"] {
        let target = ROUTE.replace("HTTPRoute", kind);
        let (_, problems) = translated(&[&[site(), limits("p", &target)].concat()]);
        let unknown = format!(
            "spec.targetRefs[0].kind: \"{kind}\" is unknown: write Gateway, HTTPRoute, GRPCRoute, Ingress, Api or Service"
        );
        assert!(problems.iter().any(|problem| problem.contains(&unknown)), "{problems:?}");
    }
}

#[test]
fn policy_of_a_gateway_applies_to_its_listener_sets_but_not_the_policy_of_a_listener() {
    let set = "parentRef: {name: edge}, listeners: [{name: one, protocol: HTTP, port: 8090}]";
    let in_set =
        "parentRefs: [{kind: ListenerSet, name: more}], rules: [{backendRefs: [{name: echo, port: 80}]}]";
    let listeners = "allowedListeners: {namespaces: {from: All}}, gatewayClassName";
    let site = [
        site().replace("gatewayClassName", listeners),
        of_gateway_api("ListenerSet", "more", set),
        of_gateway_api("HTTPRoute", "inner", in_set),
    ];
    let none = LISTENER.replace("one", "none");
    let inner = "{group: gateway.networking.k8s.io, kind: HTTPRoute, name: inner}";
    for (target, expected) in [
        (GATEWAY, "0.0.0.0:8090 inner/ p - -"),
        (LISTENER, "0.0.0.0:8090 inner/ - - -"),
        (&*none, "0.0.0.0:8090 inner/ - - -"),
        (inner, "0.0.0.0:8090 inner/ p - -"),
    ] {
        let (translation, _) = translated(&[&[site.concat(), security("p", target)].concat()]);
        let found = governed(&translation);
        assert!(found.iter().any(|line| line == expected), "{target}: {found:?}");
        if target == inner {
            let ancestors = &translation.policy_statuses[0].ancestors;
            assert_eq!(
                ancestors.iter().map(|of| of.gateway.to_string()).collect::<Vec<_>>(),
                ["Gateway default/edge"]
            );
        }
    }
}
