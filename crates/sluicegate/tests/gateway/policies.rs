//! A gateway process applies the policies of Gateways, listeners, HTTPRoutes and their rules.

use std::net::SocketAddr;

use sluicegate_netns::Process;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{self, Client};

use crate::http_routes::{LOOPBACK, gateway, route};
use crate::support::{Site, free_address};

type TestResult = anyhow::Result<()>;

/// The Gateway, its listener `one`, the HTTPRoute `web` and its rule `admin` as targets, the least specific first.
const TARGETS: [&str; 4] = [
    "kind: Gateway, name: edge",
    "kind: Gateway, name: edge, sectionName: one",
    "kind: HTTPRoute, name: web",
    "kind: HTTPRoute, name: web, sectionName: admin",
];

fn policy(kind: &str, name: &str, target: &str, spec: &str) -> String {
    format!(
        "---
apiVersion: sluicegate.dev/v1alpha1
kind: {kind}
metadata: {{name: {name}}}
spec: {{targetRefs: [{{group: gateway.networking.k8s.io, {target}}}], {spec}}}
"
    )
}

/// A gateway with the listeners `one` and `two`, and their addresses. Both have the HTTPRoute `web` with the rule `admin` for
/// `/admin` and a rule for `/`, and the HTTPRoute `other` for `other.test`.
async fn serving(site: &Site, policies: &str) -> anyhow::Result<(Process, [SocketAddr; 2])> {
    let listeners = [free_address()?, free_address()?];
    let of = |name: &str, port: u16| format!("{{name: {name}, protocol: HTTP, port: {port}}}");
    site.save(
        "gateway.yaml",
        &gateway(&[of("one", listeners[0].port()), of("two", listeners[1].port())].join(", ")),
    )?;
    let backend = "backendRefs: [{name: web, port: 80}]";
    let rules = format!("{{name: admin, matches: [{{path: {{value: /admin}}}}], {backend}}}, {{{backend}}}");
    let routes =
        [route("web", "", "web.test", &rules), route("other", "", "other.test", &format!("{{{backend}}}"))];
    site.save("routes.yaml", &routes.join("---"))?;
    site.save("policies.yaml", policies)?;
    let gateway = site.serve(&LOOPBACK).await?;
    // The listeners open with the first configuration.
    client::get(listeners[1], "web.test", "/").await?;
    Ok((gateway, listeners))
}

/// The statuses of the rule `admin`, of the other rule and of the other route at both listeners.
async fn statuses(listeners: [SocketAddr; 2]) -> anyhow::Result<[u16; 6]> {
    let mut statuses = [0; 6];
    let paths = [("web.test", "/admin"), ("web.test", "/"), ("other.test", "/")];
    let requests = listeners.iter().flat_map(|listener| paths.map(|(host, path)| (*listener, host, path)));
    for (status, (listener, host, path)) in statuses.iter_mut().zip(requests) {
        *status = client::get(listener, host, path).await?.status;
    }
    Ok(statuses)
}

#[tokio::test]
async fn most_specific_policy_of_gateway_listener_route_and_rule_has_precedence() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    for (levels, expected) in [
        (0, [200, 200, 200, 200, 200, 200]),
        (1, [410, 410, 410, 410, 410, 410]),
        (2, [411, 411, 411, 410, 410, 410]),
        (3, [412, 412, 411, 412, 412, 410]),
        (4, [413, 412, 411, 413, 412, 410]),
    ] {
        let site = Site::of([&backend])?;
        let of_level = |(level, target): (usize, &&str)| {
            let spec = format!("directResponse: {{statusCode: {}}}", 410 + level);
            policy("TrafficPolicy", &format!("level-{level}"), target, &spec)
        };
        let policies: String = TARGETS.iter().take(levels).enumerate().map(of_level).collect();
        let (_gateway, listeners) = serving(&site, &policies).await?;
        assert_eq!(statuses(listeners).await?, expected, "{levels} levels");
    }
    Ok(())
}

#[tokio::test]
async fn security_policy_of_a_route_keeps_the_authentication_of_the_gateway() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let consumer = "---
apiVersion: sluicegate.dev/v1alpha1
kind: Consumer
metadata: {name: alice}
spec: {apiKeys: [{secretRef: {name: alice}}]}
---
apiVersion: v1
kind: Secret
metadata: {name: alice}
stringData: {key: a-long-and-random-key}
";
    let policies = [
        policy("SecurityPolicy", "edge", TARGETS[0], "authentication: {apiKey: {}}"),
        policy("SecurityPolicy", "web", TARGETS[2], "cors: {allowOrigins: [\"https://a.test\"]}"),
        policy("SecurityPolicy", "admin", TARGETS[3], "ipAccess: {deny: [127.0.0.0/8]}"),
        consumer.to_owned(),
    ];
    let (_gateway, listeners) = serving(&site, &policies.concat()).await?;
    assert_eq!(statuses(listeners).await?, [403, 401, 401, 403, 401, 401]);
    let mut client = Client::connect(listeners[0]).await?;
    for (path, key, expected, has_cors) in [
        ("/", "X-API-Key: a-long-and-random-key\r\n", 200, true),
        ("/", "", 401, true),
        // The gateway checks addresses before origins.
        ("/admin", "X-API-Key: a-long-and-random-key\r\n", 403, false),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: web.test\r\nOrigin: https://a.test\r\n{key}\r\n");
        let response = client.request(request).await?;
        let cors = response.header("access-control-allow-origin").is_some();
        assert_eq!((response.status, cors), (expected, has_cors), "{path} {key}");
    }
    Ok(())
}

#[tokio::test]
async fn invalid_security_policy_of_each_level_closes_only_its_target() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    for (target, expected) in TARGETS.iter().zip([
        [503, 503, 503, 503, 503, 503],
        [503, 503, 503, 200, 200, 200],
        [503, 503, 200, 503, 503, 200],
        [503, 200, 200, 503, 200, 200],
    ]) {
        let site = Site::of([&backend])?;
        let policies = [
            policy("SecurityPolicy", "broken", target, "ipAccess: {allow: [nobody]}"),
            // A valid policy opens nothing.
            policy(
                "SecurityPolicy",
                "valid",
                "kind: HTTPRoute, name: other",
                "ipAccess: {allow: [127.0.0.0/8]}",
            ),
        ];
        let (_gateway, listeners) = serving(&site, &policies.concat()).await?;
        assert_eq!(statuses(listeners).await?, expected, "{target}");
    }
    Ok(())
}

#[tokio::test]
async fn security_policy_for_an_unknown_listener_or_rule_closes_the_gateway_or_route() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    for (target, name, expected) in
        [(TARGETS[1], "one", [503; 6]), (TARGETS[3], "admin", [503, 503, 200, 503, 503, 200])]
    {
        let site = Site::of([&backend])?;
        let target = target.replace(&format!("sectionName: {name}"), "sectionName: none");
        let policies = policy("SecurityPolicy", "misspelt", &target, "ipAccess: {allow: [127.0.0.0/8]}");
        let (_gateway, listeners) = serving(&site, &policies).await?;
        assert_eq!(statuses(listeners).await?, expected, "{target}");
    }
    Ok(())
}
