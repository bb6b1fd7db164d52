//! Tests of the routes that each policy applies to.

use std::sync::Arc;

use super::{
    A, ECHO, PORT, SERVICE, assert_lines, assert_problems, ingress, object, rules, shop, translated,
};
use crate::Translation;

/// Each route with the names of the policies that apply to the route.
fn governed(translation: &Translation) -> Vec<String> {
    let name = |id: Option<&Arc<str>>| id.map_or("-".to_owned(), ToString::to_string);
    let routes = translation.config.rules().map(|route| {
        let security = name(route.security.as_ref().map(|security| &security.id.name));
        let limits = name(route.rate_limits.as_ref().map(|limits| &limits.id.name));
        format!("{} {} {security} {limits}", route.id.name, route.path())
    });
    routes.collect()
}

pub(super) fn policy_statuses(translation: &Translation) -> Vec<String> {
    let shown = translation.policy_statuses.iter().map(|standing| {
        let target = standing.target.as_ref().map(|target| {
            let section = target.section.as_ref().map(|section| format!(":{section}")).unwrap_or_default();
            format!(" {} {}{section}", target.kind, target.name)
        });
        format!("{}{}: {}", standing.object.name, target.unwrap_or_default(), standing.reason.as_str())
    });
    let mut shown: Vec<String> = shown.collect();
    shown.sort();
    shown
}

fn security(name: &str, targets: &[&str]) -> String {
    object("SecurityPolicy", name, &format!("targetRefs: [{}]", targets.join(", ")))
}

fn limits(name: &str, targets: &[&str]) -> String {
    let limits = "limits: [{name: all, requests: 1, per: 1s}]";
    object("RateLimitPolicy", name, &format!("targetRefs: [{}], {limits}", targets.join(", ")))
}

/// Two Services, the second with two ports, and an Ingress with a path to each and a default backend.
fn two_services() -> String {
    let paths =
        rules(&["a.test Prefix /1 echo:http", "a.test Prefix /2 two:80", "a.test Prefix /3 two:admin"]);
    let default = "defaultBackend: {service: {name: echo, port: {number: 80}}}";
    format!(
        "{}{ECHO}---\napiVersion: v1\nkind: Service\nmetadata: {{name: two}}\n\
         spec: {{ports: [{{name: http, port: 80}}, {{name: admin, port: 81}}]}}\n",
        ingress("name: a", &format!("{paths}, {default}"))
    )
}

#[test]
fn only_the_most_specific_policy_of_each_kind_applies_to_a_route() {
    let two = "{group: \"\", kind: Service, name: two}";
    let admin = "{group: \"\", kind: Service, name: two, sectionName: admin}";
    let text = [
        two_services(),
        security("ingress", &[A]),
        security("service", &[two]),
        security("port", &[admin]),
        limits("limits", &[A]),
    ]
    .concat();
    let (translation, problems) = translated(&[&text]);
    assert_lines(
        &governed(&translation),
        &["a /1 ingress limits", "a /2 service limits", "a /3 port limits", "a / ingress limits"],
    );
    assert_problems(
        &problems,
        &[
            "SecurityPolicy default/ingress: spec.targetRefs[0]: more specific policies apply to some of its routes: SecurityPolicy default/port, SecurityPolicy default/service",
            "SecurityPolicy default/service: spec.targetRefs[0]: more specific policies apply to some of its routes: SecurityPolicy default/port",
        ],
    );
    assert_lines(
        &policy_statuses(&translation),
        &[
            "ingress Ingress a: Overridden",
            "limits Ingress a: Accepted",
            "port Service two:admin: Accepted",
            "service Service two: Overridden",
        ],
    );
}

#[test]
fn routes_with_the_same_policy_share_the_arc_of_the_policy() {
    let text = [two_services(), security("p", &[A]), limits("l", &[A])].concat();
    let (translation, _) = translated(&[&text]);
    let routes: Vec<_> = translation.config.rules().collect();
    assert_eq!(routes.len(), 4);
    for pair in routes.windows(2) {
        assert!(Arc::ptr_eq(pair[0].security.as_ref().unwrap(), pair[1].security.as_ref().unwrap()));
        assert!(Arc::ptr_eq(pair[0].rate_limits.as_ref().unwrap(), pair[1].rate_limits.as_ref().unwrap()));
    }
}

#[test]
fn oldest_policy_of_a_target_takes_precedence_and_conflicts_are_reported() {
    let aged = |name: &str, created: &str| {
        security(name, &[SERVICE])
            .replace("metadata: {", &format!("metadata: {{creationTimestamp: \"{created}\", "))
    };
    let text = [
        shop(),
        security("a", &[SERVICE]),
        aged("b", "2026-01-02T00:00:00Z"),
        aged("c", "2026-01-01T00:00:00Z"),
    ]
    .concat();
    let (translation, problems) = translated(&[&text]);
    assert_lines(&governed(&translation), &["a / c -"]);
    let conflict = "spec.targetRefs[0]: SecurityPolicy default/c (older, or first by name) applies there already; this policy has no effect";
    assert_problems(
        &problems,
        &[&format!("SecurityPolicy default/b: {conflict}"), &format!("SecurityPolicy default/a: {conflict}")],
    );
    assert_lines(
        &policy_statuses(&translation),
        &["a Service echo: Conflicted", "b Service echo: Conflicted", "c Service echo: Accepted"],
    );
    // Without creation times, the first policy by name takes precedence.
    let text = [shop(), limits("b", &[PORT]), limits("a", &[PORT])].concat();
    assert_lines(&governed(&translated(&[&text]).0), &["a / - a"]);
}

#[test]
fn valid_policy_replaces_an_invalid_policy_unless_it_is_a_security_policy() {
    let of = |kind: &str, name: &str, target: &str, spec: &str| {
        object(kind, name, &format!("targetRefs: [{target}], {spec}"))
    };
    let limit = "limits: [{name: all, requests: 1, per: 1s}]";
    for broken in
        ["limits: [{name: all, requests: 0, per: 1s}]", "limits: often", "limitss: []", "limits: []"]
    {
        for target in [SERVICE, A] {
            let text = [
                shop(),
                of("RateLimitPolicy", "a-broken", target, broken),
                of("RateLimitPolicy", "good", A, limit),
            ];
            let (translation, _) = translated(&[&text.concat()]);
            assert_lines(&governed(&translation), &["a / - good"]);
            let stands =
                translation.policy_statuses.iter().find(|standing| &*standing.object.name == "a-broken");
            assert!(stands.is_some_and(|standing| standing.reason.as_str() == "Invalid"), "{stands:?}");
        }
    }
    let traffic = |spec: &str| {
        let text = [
            shop(),
            of("TrafficPolicy", "a-special", SERVICE, spec),
            of("TrafficPolicy", "good", A, "retries: {}"),
        ];
        let (translation, _) = translated(&[&text.concat()]);
        let traffic = translation.config.rules().next().and_then(|route| route.traffic.clone());
        traffic.unwrap().id.name.to_string()
    };
    for broken in ["timeouts: {request: never}", "timeouts: never", "timeoutss: {}"] {
        assert_eq!(traffic(broken), "good", "{broken}");
    }
    for kept in ["timeouts: {request: never}, limits: {requestBody: 1k}", "timeouts: {}"] {
        assert_eq!(traffic(kept), "a-special", "{kept}");
    }
    let text = [
        shop(),
        of("SecurityPolicy", "broken", SERVICE, "ipAccess: {allow: [nobody]}"),
        of("SecurityPolicy", "good", A, "ipAccess: {}"),
    ];
    assert_lines(&governed(&translated(&[&text.concat()]).0), &["a / broken -"]);
}

#[test]
fn policy_for_a_named_service_port_applies_to_backends_that_use_the_number() {
    let by_number = format!("{}{ECHO}", ingress("name: a", &rules(&["a.test Prefix / echo:80"])));
    let (translation, problems) = translated(&[&[by_number, security("p", &[PORT])].concat()]);
    assert_lines(&governed(&translation), &["a / p -"]);
    assert_problems(&problems, &[]);
}

#[test]
fn missing_target_is_reported_and_the_policy_applies_to_other_targets() {
    let foreign =
        ingress("name: b", &format!("ingressClassName: nginx, {}", rules(&["b.test Prefix / echo:80"])));
    let targets = [
        A,
        "{group: networking.k8s.io, kind: Ingress, name: b}",
        "{group: networking.k8s.io, kind: Ingress, name: c}",
        "{group: \"\", kind: Service, name: none}",
        "{group: \"\", kind: Service, name: echo, sectionName: grpc}",
    ];
    let (translation, problems) = translated(&[&[shop(), foreign, security("p", &targets)].concat()]);
    assert_lines(&governed(&translation), &["a / p -"]);
    assert_problems(
        &problems,
        &[
            "targetRefs[1]: Ingress default/b is of another class",
            "targetRefs[2]: Ingress default/c does not exist",
            "targetRefs[3]: Service default/none does not exist",
            "targetRefs[4]: Service default/echo has no port \"grpc\", it has 80 (http)",
        ],
    );
    assert_lines(
        &policy_statuses(&translation),
        &[
            "p Ingress a: Accepted",
            "p Ingress b: Foreign",
            "p Ingress c: TargetNotFound",
            "p Service echo:grpc: TargetNotFound",
            "p Service none: TargetNotFound",
        ],
    );
}

#[test]
fn security_policy_for_a_missing_port_closes_routes_that_no_other_service_policy_protects() {
    let targets = ["{group: \"\", kind: Service, name: echo, sectionName: htp}"];
    let refuses = |objects: &[String]| {
        let (translation, problems) = translated(&[&objects.concat()]);
        let route = &translation.config.hosts[0].rules[0];
        (route.security.as_ref().map(|security| security.refuses.is_some()), problems)
    };
    let (closed, problems) = refuses(&[shop(), security("p", &targets)]);
    assert_eq!(closed, Some(true));
    assert_problems(
        &problems,
        &[
            "SecurityPolicy default/p: spec.targetRefs[0]: Service default/echo has no port \"htp\", it has 80 (http); its routes respond with 503, unless a policy for the Service or their port applies",
        ],
    );
    assert_eq!(
        refuses(&[shop(), security("p", &targets), security("q", &[A])]).0,
        Some(true),
        "an Ingress says less"
    );
    for good in [SERVICE, PORT] {
        let objects = [shop(), security("p", &targets), security("q", &[good])];
        assert_eq!(refuses(&objects).0, Some(false), "{good}");
    }
}

#[test]
fn policies_apply_only_within_their_namespace() {
    let elsewhere = security("p", &[A, SERVICE]).replace("{name: p}", "{name: p, namespace: other}");
    let (translation, problems) = translated(&[&[shop(), elsewhere].concat()]);
    assert_lines(&governed(&translation), &["a / - -"]);
    assert_problems(&problems, &["Ingress other/a does not exist", "Service other/echo does not exist"]);
}

#[test]
fn invalid_policy_targets_are_reported() {
    for (target, problem) in [
        (
            "{group: apps, kind: Ingress, name: a}",
            "spec.targetRefs[1].group: \"apps\" has no Ingress: write group: \"networking.k8s.io\"",
        ),
        ("{group: \"\", kind: Ingress, name: a}", "spec.targetRefs[1].group: \"\" has no Ingress"),
        ("{group: \"\", kind: Service, name: A}", "spec.targetRefs[1].name: \"A\" has upper-case letters"),
        (
            "{group: networking.k8s.io, kind: Ingress, name: a, sectionName: http}",
            "spec.targetRefs[1].sectionName: names no part of an Ingress",
        ),
    ] {
        // An error in one target neither detaches the policy from the other targets nor closes their routes.
        let (translation, problems) = translated(&[&[shop(), security("p", &[A, target])].concat()]);
        assert_problems(&problems, &[problem]);
        assert_lines(&governed(&translation), &["a / p -"]);
        assert_eq!(super::security_of(&translation.config).refuses, None);
        assert_lines(&policy_statuses(&translation), &["p Ingress a: Invalid"]);
    }
    let (translation, problems) = translated(&[&[shop(), security("p", &[])].concat()]);
    assert_problems(&problems, &["spec.targetRefs: is missing"]);
    assert_lines(&governed(&translation), &["a / - -"]);
}

#[test]
fn security_policy_for_tls_passthrough_is_reported_to_have_no_effect() {
    let passing = ingress(
        "name: a, annotations: {sluicegate.dev/ssl-passthrough: \"true\"}",
        &rules(&["a.test Prefix / echo:http"]),
    );
    for target in [A, SERVICE, PORT] {
        let text = [passing.clone(), ECHO.to_owned(), security("p", &[target])].concat();
        assert_problems(
            &translated(&[&text]).1,
            &[
                "SecurityPolicy default/p: spec.targetRefs[0]: has no effect on connections that Ingress default/a forwards below HTTP, for host a.test",
            ],
        );
    }
}
