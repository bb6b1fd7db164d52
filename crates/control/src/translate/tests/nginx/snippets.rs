//! Snippets.

use serde_json::json;

use super::{features, ingress, problems, translated};

/// An annotation with a snippet of these lines.
fn annotation(name: &str, lines: &[&str]) -> String {
    format!("{name}: {}", json!(lines.join("\n")))
}

#[test]
fn configuration_snippet_sets_responses_headers_rewrites_and_sizes() {
    let snippet = annotation(
        "configuration-snippet",
        &[
            "if ($http_x_blocked) { return 403; }",
            "more_set_headers \"X-Frame-Options: DENY\";",
            "proxy_set_header X-User $remote_user;",
            "rewrite ^/a/(.*) /b/$1 break;",
            "client_max_body_size 8m;",
        ],
    );
    let features = serde_json::to_value(features(&snippet)).unwrap();
    let condition = json!({"subject": "$http_x_blocked", "test": "isSet"});
    assert_eq!(features["returns"], json!([{"conditions": [condition], "statusCode": 403}]));
    assert_eq!(features["urlRewrite"]["targets"], json!([{"pattern": "~ ^/a/(.*)", "target": "/b/$1"}]));
    let headers = json!({
        "request": [{"name": "X-User", "value": "$remote_user"}],
        "response": [{"header": {"name": "X-Frame-Options", "value": "DENY"}, "mode": "Set"}],
    });
    assert_eq!(features["templateHeaders"], headers);
    assert_eq!(features["limits"]["requestBody"], "8Mi");
}

#[test]
fn unknown_directive_closes_all_routes_of_the_ingress_and_is_an_error_with_its_line() {
    let snippet = annotation("configuration-snippet", &["add_header A b;", "access_by_lua_file /x.lua;"]);
    let translation = translated(&ingress("a", &snippet, &["a.test Prefix / echo:http"]));
    let [problem] = &problems(&translation)[..] else { panic!() };
    let expected = "line 2: access_by_lua_file is not supported: the gateway runs no code of an Ingress; use an \
                    authorization service; all routes of this Ingress respond with 503";
    assert!(problem.ends_with(expected), "{problem}");
    let security = translation.config.hosts[0].rules[0].security.as_ref().unwrap();
    assert!(security.refuses.is_some());
}

#[test]
fn unsupported_header_directive_leaves_the_routes_open_and_is_an_error() {
    let snippet = annotation("configuration-snippet", &["add_header A $nosuch;", "add_header B b;"]);
    let translation = translated(&ingress("a", &snippet, &["a.test Prefix / echo:http"]));
    let [problem] = &problems(&translation)[..] else { panic!() };
    assert!(problem.contains("line 1: add_header \"$nosuch\" has the variable $nosuch"), "{problem}");
    let rule = &translation.config.hosts[0].rules[0];
    assert!(rule.security.is_none());
    let headers = rule.traffic.as_ref().unwrap().features.template_headers.as_ref().unwrap();
    assert_eq!(headers.response.len(), 1);
}

#[test]
fn server_snippet_applies_to_the_paths_of_all_ingresses_of_the_host() {
    let snippet = annotation("server-snippet", &["location /metrics { deny all; }", "deny 192.0.2.1;"]);
    let yaml = ingress("a", &snippet, &["a.test Prefix /a echo:http"])
        + &ingress("b", "", &["a.test Prefix /b echo:http", "b.test Prefix / echo:http"]);
    let translation = translated(&yaml);
    assert_eq!(problems(&translation), [""; 0]);
    for host in &translation.config.hosts {
        let is_first = host.host.to_string() == "a.test";
        for rule in &host.rules {
            assert_eq!(rule.traffic.as_ref().unwrap().features.returns.len(), usize::from(is_first));
            let denied = rule.security.as_ref().map_or(0, |security| security.ip_access.deny.len());
            assert_eq!(denied, usize::from(is_first), "{}", rule.path());
        }
    }
}

#[test]
fn faulty_server_snippet_closes_the_host_for_all_ingresses() {
    let snippet = annotation("server-snippet", &["auth_basic on;"]);
    let yaml = ingress("a", &snippet, &["a.test Prefix /a echo:http"])
        + &ingress("b", "", &["a.test Prefix /b echo:http", "b.test Prefix / echo:http"]);
    let translation = translated(&yaml);
    assert_eq!(problems(&translation).len(), 1);
    for host in &translation.config.hosts {
        let is_first = host.host.to_string() == "a.test";
        for rule in &host.rules {
            let is_closed = rule.security.as_ref().is_some_and(|security| security.refuses.is_some());
            assert_eq!(is_closed, is_first, "{} {}", host.host, rule.path());
        }
    }
}
