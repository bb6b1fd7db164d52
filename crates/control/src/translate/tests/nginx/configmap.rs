//! Keys of the ConfigMap for all Ingresses.

use std::path::Path;

use serde_json::json;

use super::{ECHO, ingress, options, problems, rule};
use crate::problem::Severity;
use crate::store::Store;
use crate::translate::{ObjectName, TranslateOptions, Translation, translate};

const PATHS: &[&str] = &["a.test Prefix / echo:http"];

/// The translation of a text with the Service `echo`, and with a ConfigMap of these entries.
fn translated(yaml: &str, data: &str) -> Translation {
    let configmap =
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: nginx}}\ndata: {{{data}}}\n");
    let mut store = Store::default();
    store.set_file(Path::new("m.yaml"), &format!("{yaml}{ECHO}{configmap}"));
    let name = ObjectName { namespace: "default".into(), name: "nginx".into() };
    translate(&store, &TranslateOptions { configmap: Some(name), ..options() })
}

/// The reason why the only rule of an Ingress with these annotations responds with 503.
fn refusal(annotations: &str, data: &str) -> Option<String> {
    let translation = translated(&ingress("a", annotations, PATHS), data);
    let refuses = rule(&translation).security.as_ref()?.refuses.as_deref()?.to_owned();
    let is_error = |problem: &&crate::problem::Problem| problem.severity == Severity::Error;
    assert!(translation.problems.iter().any(|problem| is_error(&problem)), "{refuses}");
    Some(refuses)
}

#[test]
fn blocked_clients_are_denied_by_every_ingress_also_beside_its_own_lists() {
    let data = "block-cidrs: \"192.0.2.0/24, 198.51.100.7\", block-user-agents: \"~*bot,Evil\", block-referers: spam.test";
    for annotations in [
        "",
        "denylist-source-range: 203.0.113.0/24",
        "server-snippet: \"allow 10.0.0.0/8; deny all;\"",
        "configuration-snippet: \"deny 203.0.113.0/24;\"",
    ] {
        let translation = translated(&ingress("a", annotations, PATHS), data);
        assert_eq!(problems(&translation), [""; 0], "{annotations}");
        let rule = rule(&translation);
        let access = &rule.security.as_ref().unwrap().ip_access;
        let denied: Vec<String> = access.deny.iter().map(ToString::to_string).collect();
        assert!(denied.ends_with(&["192.0.2.0/24".to_owned(), "198.51.100.7/32".to_owned()]), "{denied:?}");
        assert_eq!(denied.iter().any(|of| of == "203.0.113.0/24"), annotations.contains("203.0"));
        assert_eq!(access.allow.is_empty(), !annotations.contains("allow "), "{annotations}");
        let returns = &rule.traffic.as_ref().unwrap().features.returns;
        let shown = serde_json::to_value(returns).unwrap();
        let condition = |subject: &str, pattern: &str| {
            let condition = json!({"subject": subject, "test": {"matches": pattern}});
            json!({"conditions": [condition], "statusCode": 403})
        };
        let agents = condition("$http_user_agent", "~ (?i:bot)|(?i:^Evil$)");
        assert_eq!(shown, json!([agents, condition("$http_referer", "~ (?i:^spam\\.test$)")]));
        let unmatched = translation.config.hosts[0].fallback.as_ref().unwrap();
        assert_eq!(unmatched.traffic.as_ref().unwrap().features.returns.len(), 2);
    }
}

#[test]
fn fault_in_a_key_about_access_closes_the_routes_of_all_ingresses_and_is_an_error() {
    for data in [
        "block-cidrs: 10.0.0.0/33",
        "block-user-agents: \"~(\"",
        "block-referers: \"~*(?=x)\"",
        "denylist-source-range: nowhere",
        "whitelist-source-range: nowhere",
        "global-auth-url: nowhere",
        "global-auth-snippet: deny all;",
        "server-snippet: access_by_lua_file x;",
        "location-snippet: auth_basic on;",
        "limit-req-status-code: \"200\"",
        "limit-rate: fast",
        "limit-conn-zone-variable: $http_x_user",
        "annotations-risk-level: Huge",
        "allow-snippet-annotations: perhaps",
        "use-proxy-protocol: perhaps",
    ] {
        assert!(refusal("", data).is_some_and(|reason| reason.starts_with("ConfigMap data[")), "{data}");
    }
    assert_eq!(refusal("", "proxy-body-size: huge, hide-headers: \"a b\""), None);
}

#[test]
fn ingress_with_an_annotation_that_the_owner_forbids_is_closed() {
    let snippet = "configuration-snippet: more_set_headers 'A:b';";
    for (annotations, data, is_refused) in [
        (snippet, "proxy-body-size: 1m", false),
        (snippet, "allow-snippet-annotations: \"true\"", false),
        (snippet, "allow-snippet-annotations: \"false\"", true),
        (snippet, "annotations-risk-level: High", true),
        ("upstream-hash-by: $remote_addr", "annotations-risk-level: Medium", true),
        ("upstream-hash-by: $remote_addr", "annotations-risk-level: High", false),
        ("proxy-body-size: 8m", "annotations-risk-level: Low", true),
        ("proxy-read-timeout: \"8\"", "annotations-risk-level: Low", false),
        ("rewrite-target: /root/$1", "annotation-value-word-blocklist: \"load_module, root,\"", true),
        ("rewrite-target: /$1", "annotation-value-word-blocklist: \"load_module, root,\"", false),
    ] {
        assert_eq!(refusal(annotations, data).is_some(), is_refused, "{annotations}; {data}");
    }
}

#[test]
fn annotations_name_objects_of_other_namespaces_only_if_the_owner_allows_them() {
    let secret = "---\n{kind: Secret, apiVersion: v1, metadata: {name: users, namespace: other}, stringData: {auth: \"alice:{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=\"}}\n";
    let yaml = ingress("a", "auth-type: basic\nauth-secret: other/users", PATHS) + secret;
    for (value, is_allowed) in [("true", true), ("false", false)] {
        let translation = translated(&yaml, &format!("allow-cross-namespace-resources: \"{value}\""));
        let security = rule(&translation).security.as_ref().unwrap();
        assert_eq!(security.refuses.is_none(), is_allowed, "{:?}", security.refuses);
    }
}

#[test]
fn headers_of_the_owner_are_sent_unless_the_ingress_has_headers_of_the_same_name() {
    let map = |name: &str, data: &str| {
        format!(
            "---\n{{kind: ConfigMap, apiVersion: v1, metadata: {{name: {name}, namespace: edge}}, data: {{{data}}}}}\n"
        )
    };
    let snippet = "configuration-snippet: \"more_set_headers 'X-A: own'; proxy_set_header X-B own;\"";
    let yaml = ingress("a", snippet, PATHS)
        + &map("request", "X-B: owner, X-C: $remote_addr, \"X D\": d")
        + &map("response", "x-a: owner, X-E: e");
    let data = "proxy-set-headers: edge/request, add-headers: edge/response, hide-headers: \"X-Powered-By\"";
    let translation = translated(&yaml, data);
    let found = problems(&translation);
    assert!(found.len() == 1 && found[0].starts_with("data[X D]: "), "{found:?}");
    let features = &rule(&translation).traffic.as_ref().unwrap().features;
    let headers = features.template_headers.as_ref().unwrap();
    let request: Vec<_> = headers.request.iter().map(|of| format!("{}: {}", &*of.name, of.value)).collect();
    assert_eq!(request, ["X-C: $remote_addr", "X-B: own"]);
    let of_response = headers.response.iter().map(|of| &of.header);
    let response: Vec<_> = of_response.map(|of| format!("{}: {}", &*of.name, of.value)).collect();
    assert_eq!(response, ["X-E: e", "X-A: own"]);
    let is_hidden = |name: &str| features.response_headers.remove.iter().any(|hidden| **hidden == *name);
    assert!(is_hidden("X-Powered-By") && is_hidden("Server"));

    let lacking = translated(&ingress("a", "", PATHS), "add-headers: edge/nowhere");
    let found = problems(&lacking);
    assert!(found.len() == 1 && found[0].contains("ConfigMap edge/nowhere does not exist"), "{found:?}");
}

#[test]
fn server_of_endpoints_is_sent_with_both_of_its_keys() {
    let hides = |data: &str| {
        let translation = translated(&ingress("a", "", PATHS), data);
        let features = &rule(&translation).traffic.as_ref().unwrap().features;
        features.response_headers.remove.iter().any(|hidden| **hidden == *"Server")
    };
    assert!(hides("server-tokens: \"true\"") && hides("allow-backend-server-header: \"true\""));
    assert!(!hides("server-tokens: \"true\", allow-backend-server-header: \"true\""));
}

#[test]
fn strict_path_types_report_special_characters_and_serve_the_path() {
    let paths = ["a.test Prefix /a.b echo:http", "a.test ImplementationSpecific /c.d echo:http"];
    for (value, count) in [("true", 1), ("false", 0)] {
        let data = format!("strict-validate-path-type: \"{value}\"");
        let translation = translated(&ingress("a", "", &paths), &data);
        assert_eq!(translation.config.hosts[0].rules.len(), 2);
        let found = problems(&translation);
        assert_eq!(found.len(), count, "{found:?}");
        let field = "spec.rules[0].http.paths[0].path: \"/a.b\" has characters";
        assert!(found.iter().all(|problem| problem.starts_with(field)), "{found:?}");
    }
}

#[test]
fn peers_of_the_proxy_protocol_are_the_trusted_networks_or_every_peer() {
    let peers = |data: &str| {
        let settings = translated("", data).config.settings;
        settings.proxy_protocol_peers.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(peers("use-proxy-protocol: \"true\""), ["0.0.0.0/0", "::/0"]);
    assert_eq!(peers("use-proxy-protocol: \"true\", proxy-real-ip-cidr: 10.0.0.0/8"), ["10.0.0.0/8"]);
    assert_eq!(peers("proxy-real-ip-cidr: 10.0.0.0/8"), [""; 0]);
}

#[test]
fn default_backend_serves_requests_that_no_rule_matches() {
    let others = "---\n{kind: Service, apiVersion: v1, metadata: {name: errors, namespace: edge}, spec: {ports: [{name: http, port: 80}]}}\n";
    let mut store = Store::default();
    let own = ingress("b", "", &["b.test Prefix /b echo:http"])
        .replace("spec: {", "spec: {defaultBackend: {service: {name: echo, port: {name: http}}}, ");
    store.set_file(
        Path::new("m.yaml"),
        &(ingress("a", "", &["a.test Prefix /a echo:http"]) + &own + ECHO + others),
    );
    let name = ObjectName { namespace: "edge".into(), name: "errors".into() };
    let mut options = options();
    options.ingress_nginx.as_mut().unwrap().default_backend = Some(name);
    let translation = translate(&store, &options);
    assert_eq!(problems(&translation), [""; 0]);
    let leads_to = |rule: &sluicegate_model::Rule| rule.upstreams().next().map(ToString::to_string);
    assert_eq!(
        leads_to(translation.config.default_rule.as_ref().unwrap()).as_deref(),
        Some("edge/errors:http")
    );
    let fallbacks =
        translation.config.hosts.iter().map(|host| leads_to(host.fallback.as_ref().unwrap()).unwrap());
    assert_eq!(fallbacks.collect::<Vec<_>>(), ["edge/errors:http", "default/echo:http"]);

    let lacking = translate(&Store::default(), &options);
    assert!(lacking.config.default_rule.is_none());
    let found = problems(&lacking);
    assert!(found.len() == 1 && found[0].contains("Service edge/errors does not exist"), "{found:?}");
}

#[test]
fn snippets_of_the_configmap_come_before_the_snippets_of_ingresses() {
    let data = "location-snippet: \"more_set_headers 'X-A: global' 'X-B: global'; client_max_body_size 2m;\", \
                server-snippet: \"if ($http_x_bad) { return 403; }\"";
    let own = "configuration-snippet: \"more_set_headers 'X-A: own';\"\nserver-snippet: \"return 418;\"";
    let yaml = ingress("a", "", &["a.test Prefix /a echo:http"])
        + &ingress("b", own, &["a.test Prefix /b echo:http"])
        + &ingress("c", "", &["c.test Prefix /c echo:http"]);
    let translation = translated(&yaml, data);
    assert_eq!(problems(&translation), [""; 0]);
    let of_rule = |rule: &sluicegate_model::Rule| {
        let features = &rule.traffic.as_ref().unwrap().features;
        let headers = &features.template_headers.as_ref().unwrap().response;
        let headers: Vec<_> =
            headers.iter().map(|of| format!("{}: {}", &*of.header.name, of.header.value)).collect();
        let statuses: Vec<u16> = features.returns.iter().map(|of| of.status_code.get()).collect();
        (rule.path().to_owned(), headers.join(", "), statuses)
    };
    let mut found: Vec<_> =
        translation.config.hosts.iter().flat_map(|host| host.rules.iter().map(of_rule)).collect();
    found.sort();
    let global = "X-A: global, X-B: global".to_owned();
    let expected = [
        ("/a".to_owned(), global.clone(), vec![403, 418]),
        ("/b".to_owned(), "X-B: global, X-A: own".to_owned(), vec![403, 418]),
        ("/c".to_owned(), global, vec![403]),
    ];
    assert_eq!(found, expected);
    let refused =
        refusal("configuration-snippet: deny 203.0.113.7;", "location-snippet: \"deny 192.0.2.1;\"");
    assert!(refused.is_some_and(|reason| reason.contains("beside those of the ConfigMap")));
}

#[test]
fn unknown_key_that_may_restrict_access_closes_all_ingresses() {
    for key in ["global-auth-foo", "limit-foo", "allowlist-source-rang"] {
        let refuses = refusal("", &format!("{key}: x"));
        assert!(refuses.is_some_and(|reason| reason.contains(key) && reason.contains("unknown")), "{key}");
    }
    assert_eq!(refusal("", "foo: x"), None);
}
