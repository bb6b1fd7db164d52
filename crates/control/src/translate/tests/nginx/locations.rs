//! The order of paths, the defaults, and the classes.

use sluicegate_model::access_log::{AccessLogSettings, LogEscape, LogFormat};
use sluicegate_model::value::{Size, Timeout};
use sluicegate_model::{Config, HostPattern, Protocol};

use super::{ECHO, features, ingress, options, paths, problems, rule, translated};
use crate::store::Store;
use crate::translate::{ObjectName, TranslateOptions, translate};

#[test]
fn without_the_dialect_an_ingress_of_class_nginx_is_not_served() {
    let mut store = Store::default();
    store.set_file(std::path::Path::new("m.yaml"), &ingress("a", "", &["a.test Prefix / echo:http"]));
    assert!(translate(&store, &TranslateOptions::default()).config.hosts.is_empty());
    assert_eq!(translate(&store, &options()).config.hosts.len(), 1);
}

#[test]
fn regular_expression_of_one_ingress_applies_to_all_paths_of_the_host_without_regard_to_case() {
    let yaml =
        ingress("a", "use-regex: \"true\"", &["a.test ImplementationSpecific /items/[0-9]+ echo:http"])
            + &ingress(
                "b",
                "",
                &[
                    "a.test Prefix /shop echo:http",
                    "a.test Exact /Shop/cart echo:http",
                    "b.test Prefix /shop echo:http",
                ],
            );
    let translation = translated(&yaml);
    assert_eq!(problems(&translation), [""; 0]);
    let expected = ["^/items/[0-9]+", "^/Shop/cart", "^/shop/", "^/shop"];
    assert_eq!(paths(&translation, "a.test"), expected.map(|path| format!("RegularExpression {path}")));
    assert_eq!(paths(&translation, "b.test"), ["Prefix /shop"]);
}

#[test]
fn request_that_lacks_the_final_slash_of_a_path_is_redirected_with_301() {
    let translation = translated(&ingress("a", "", &["a.test Prefix /shop/ echo:http"]));
    assert_eq!(paths(&translation, "a.test"), ["Exact /shop", "ImplementationSpecific /shop/"]);
    let both = ["a.test Prefix /shop/ echo:http", "a.test Exact /shop echo:http"];
    assert_eq!(
        paths(&translated(&ingress("a", "", &both)), "a.test"),
        ["Exact /shop", "ImplementationSpecific /shop/"]
    );
}

#[test]
fn path_with_an_unsupported_regular_expression_responds_with_503_and_is_an_error() {
    let translation = translated(&ingress(
        "a",
        "use-regex: \"true\"",
        &["a.test ImplementationSpecific /shop/(?!admin) echo:http"],
    ));
    let found = problems(&translation);
    assert!(found.len() == 1 && found[0].contains("look-around"), "{found:?}");
    assert!(rule(&translation).security.as_ref().unwrap().refuses.is_some());
}

#[test]
fn request_body_is_limited_to_1_mebibyte_by_default() {
    assert_eq!(features("").limits.request_body, Some(Size::of(1 << 20)));
    assert_eq!(features("proxy-body-size: 8m").limits.request_body, Some(Size::of(8 << 20)));
    assert_eq!(features("proxy-body-size: \"0\"").limits.request_body, Some(Size::of(0)));
}

#[test]
fn request_for_a_path_without_a_rule_receives_404_under_the_settings_of_the_ingress() {
    let translation = translated(&ingress("a", "", &["a.test Prefix /shop echo:http"]));
    let fallback = translation.config.hosts[0].fallback.as_ref().unwrap();
    let response = fallback.traffic.as_ref().unwrap().features.direct_response.as_ref().unwrap();
    assert_eq!(response.status_code.get(), 404);
}

#[test]
fn alias_has_the_rules_of_all_ingresses_of_the_host_unless_an_ingress_has_the_name() {
    let yaml = ingress("a", "server-alias: \"b.test, c.test\"", &["a.test Prefix /a echo:http"])
        + &ingress("b", "", &["a.test Prefix /b echo:http", "c.test Prefix /c echo:http"]);
    let translation = translated(&yaml);
    assert_eq!(paths(&translation, "b.test"), paths(&translation, "a.test"));
    assert_eq!(paths(&translation, "c.test"), ["Prefix /c"]);
    let found = problems(&translation);
    assert!(found.len() == 1 && found[0].contains("has no effect for host c.test"), "{found:?}");
}

#[test]
fn keys_of_the_configmap_are_the_settings_of_ingresses_without_the_annotation() {
    let configmap = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: nginx}\ndata: \
                     {proxy-body-size: 4m, proxy-read-timeout: \"7\", http-redirect-code: \"301\", proxy-connect-timeout: soon}\n";
    let yaml = ingress("a", "", &["a.test Prefix / echo:http"])
        + &ingress("b", "proxy-body-size: 8m", &["b.test Prefix / echo:http"])
        + configmap
        + ECHO;
    let mut store = Store::default();
    store.set_file(std::path::Path::new("m.yaml"), &yaml);
    let name = ObjectName { namespace: "default".into(), name: "nginx".into() };
    let translation = translate(&store, &TranslateOptions { configmap: Some(name), ..options() });
    let policies = translation.config.rules().filter_map(|rule| rule.traffic.as_ref());
    let sizes: Vec<_> =
        policies.map(|traffic| traffic.features.limits.request_body.unwrap().get() >> 20).collect();
    assert_eq!(sizes, [4, 4, 8, 8]);
    assert!(translation.config.rules().all(|rule| rule.https_redirect.status.get() == 301));
    let found = problems(&translation);
    assert!(found.len() == 1 && found[0].starts_with("data[proxy-connect-timeout]: "), "{found:?}");
}

#[test]
fn redirect_to_https_follows_ssl_redirect_and_force_ssl_redirect_and_spares_acme_challenges() {
    let acme = ["a.test Prefix / echo:http", "a.test Exact /.well-known/acme-challenge/t echo:http"];
    for (annotations, expected) in [
        ("", [false, false]),
        ("ssl-redirect: \"true\"", [false, false]),
        ("force-ssl-redirect: \"true\"", [true, false]),
    ] {
        let translation = translated(&ingress("a", annotations, &acme));
        let mut rules: Vec<_> = translation.config.hosts[0].rules.iter().collect();
        rules.sort_by_key(|rule| rule.path().len());
        assert_eq!([rules[0].https_only, rules[1].https_only], expected, "{annotations}");
    }
    let tls = ingress("a", "ssl-redirect: \"false\"", &["a.test Prefix / echo:http"]);
    let with_tls = |text: &str| translated(&text.replace("nginx, ", "nginx, tls: [{hosts: [a.test]}], "));
    assert!(!rule(&with_tls(&tls)).https_only);
    let redirected = with_tls(&tls.replace("\"false\"", "\"true\""));
    assert!(rule(&redirected).https_only && rule(&redirected).https_redirect.strips_slash);
    let kept = with_tls(&ingress("a", "preserve-trailing-slash: \"true\"", &["a.test Prefix / echo:http"]));
    assert!(!rule(&kept).https_redirect.strips_slash);
}

#[test]
fn passthrough_takes_the_connections_of_a_host() {
    let translation = translated(&ingress("a", "ssl-passthrough: \"true\"", &["a.test Prefix / echo:http"]));
    assert_eq!(translation.config.tls.passthrough.len(), 1);
}

#[test]
fn protocol_to_endpoints_is_that_of_the_annotation_and_tls_is_verified_only_on_request() {
    let transport = |annotations: &str| {
        let translation = translated(&ingress("a", annotations, &["a.test Prefix / echo:http"]));
        rule(&translation).backends[0].upstream.transport.clone()
    };
    assert!(transport("").tls.is_none() && transport("backend-protocol: AUTO_HTTP").tls.is_none());
    assert_eq!(transport("backend-protocol: GRPC").protocol, Protocol::Http2);
    let tls = transport("backend-protocol: HTTPS").tls.unwrap();
    assert!(!tls.verifies && !tls.sends_name);
    let secured = "backend-protocol: GRPCS\nproxy-ssl-secret: default/tls\nproxy-ssl-verify: \"on\"\n\
                   proxy-ssl-name: echo.internal\nproxy-ssl-server-name: \"on\"";
    let tls = transport(secured).tls.unwrap();
    assert!(tls.verifies && tls.sends_name && &*tls.server_name == "echo.internal");
    assert_eq!(tls.secret.as_deref(), Some("default/tls"));
    let refused = translated(&ingress("a", "backend-protocol: FCGI", &["a.test Prefix / echo:http"]));
    assert!(problems(&refused)[0].contains("FCGI is not supported"));
}

#[test]
fn timeouts_are_in_seconds() {
    let timeouts =
        features("proxy-connect-timeout: \"3\"\nproxy-read-timeout: \"90\"\nproxy-send-timeout: \"30\"")
            .timeouts;
    let seconds = |timeout: Option<Timeout>| timeout.unwrap().get().as_secs();
    assert_eq!((seconds(timeouts.connect), seconds(timeouts.response), seconds(timeouts.idle)), (3, 90, 90));
}

#[test]
fn requests_are_left_out_of_the_access_log_and_of_traces_on_request() {
    let unrecorded = |annotations: &str| features(annotations).unrecorded;
    assert!(!unrecorded("").access_log && !unrecorded("enable-access-log: \"true\"").access_log);
    assert!(unrecorded("enable-access-log: \"false\"").access_log);
    assert!(unrecorded("enable-opentelemetry: \"false\"").traces);
}

#[test]
fn spans_have_a_name_and_ignore_callers_on_request() {
    let spans = |annotations: &str| features(annotations).spans;
    assert!(!spans("opentelemetry-trust-incoming-span: \"true\"").ignores_callers);
    assert!(spans("opentelemetry-trust-incoming-span: \"false\"").ignores_callers);
    let named = spans("opentelemetry-operation-name: checkout");
    assert_eq!(named.name.map(|name| name.to_string()).as_deref(), Some("checkout"));
    let with_query = "opentelemetry-operation-name: $request_method $request_uri";
    let translation = translated(&ingress("a", with_query, &["a.test Prefix / echo:http"]));
    let [problem] = &problems(&translation)[..] else { panic!("{:?}", problems(&translation)) };
    assert!(problem.contains("$request_uri, which contains the query"), "{problem}");
}

#[test]
fn keys_of_the_configmap_set_the_spans_of_all_ingresses() {
    let configmap = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: nginx}\ndata: \
                     {opentelemetry-trust-incoming-span: \"false\", opentelemetry-operation-name: $request_method $uri}\n";
    let own = "opentelemetry-trust-incoming-span: \"true\"";
    let yaml = ingress("a", "", &["a.test Exact / echo:http"])
        + &ingress("b", own, &["b.test Exact / echo:http"])
        + configmap
        + ECHO;
    let mut store = Store::default();
    store.set_file(std::path::Path::new("m.yaml"), &yaml);
    let name = ObjectName { namespace: "default".into(), name: "nginx".into() };
    let translation = translate(&store, &TranslateOptions { configmap: Some(name), ..options() });
    assert_eq!(problems(&translation), [""; 0]);
    let ignores = |host: &str| {
        let host = translation.config.hosts.iter().find(|known| known.host.to_string() == host).unwrap();
        let spans = &host.rules[0].traffic.as_ref().unwrap().features.spans;
        assert_eq!(spans.name.as_ref().unwrap().to_string(), "$request_method $uri");
        spans.ignores_callers
    };
    assert_eq!((ignores("a.test"), ignores("b.test")), (true, false));
}

/// The configuration of an Ingress with a ConfigMap of these entries.
fn with_configmap(data: &str) -> Config {
    let configmap =
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: nginx}}\ndata: {{{data}}}\n");
    let mut store = Store::default();
    let yaml = ingress("a", "", &["a.test Prefix / echo:http"]) + &configmap;
    store.set_file(std::path::Path::new("m.yaml"), &yaml);
    let name = ObjectName { namespace: "default".into(), name: "nginx".into() };
    translate(&store, &TranslateOptions { configmap: Some(name), ..options() }).config
}

#[test]
fn responses_over_tls_have_hsts_unless_the_configmap_turns_it_off() {
    let hsts = |data: &str| {
        let config = with_configmap(data);
        assert!(config.settings.tls.hsts.is_none(), "Ingresses of other classes lack the header");
        config.hosts[0].rules[0].traffic.as_ref()?.features.hsts.map(|hsts| hsts.to_string())
    };
    assert_eq!(hsts("proxy-body-size: 8m").as_deref(), Some("max-age=31536000; includeSubDomains"));
    let own = "hsts-max-age: \"60\", hsts-include-subdomains: \"false\", hsts-preload: \"true\"";
    assert_eq!(hsts(own).as_deref(), Some("max-age=60; preload"));
    assert_eq!(hsts("hsts: \"false\""), None);
}

#[test]
fn wildcard_of_an_alias_stands_for_any_number_of_labels() {
    let translation =
        translated(&ingress("a", "server-alias: \"*.alias.test\"", &["a.test Prefix / echo:http"]));
    let has_suffix = |host: &HostPattern| *host == HostPattern::Suffix("alias.test".into());
    assert!(translation.config.hosts.iter().any(|host| has_suffix(&host.host)));
}

#[test]
fn forwarding_headers_are_trusted_only_with_use_forwarded_headers_or_enable_real_ip() {
    let trusted = |data: &str| {
        with_configmap(data).settings.trusted_proxies.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(trusted("use-forwarded-headers: \"true\""), ["0.0.0.0/0"]);
    assert_eq!(trusted("proxy-real-ip-cidr: 10.0.0.0/8"), [""; 0]);
    let both = "enable-real-ip: \"true\", proxy-real-ip-cidr: \"10.0.0.0/8,192.0.2.1\"";
    assert_eq!(trusted(both), ["10.0.0.0/8", "192.0.2.1/32"]);
}

#[test]
fn keys_of_the_configmap_about_the_access_log_have_the_meaning_of_ingress_nginx() {
    let log = |data: &str| with_configmap(data).settings.access_log;
    assert_eq!(log(""), AccessLogSettings::default());
    let json = r#"log-format-upstream: '{"status": $status, \"to\": "$upstream_addr"}', log-format-escape-json: "true""#;
    let expected = LogFormat::new(r#"{"status": $status, "to": "$upstream_addr"}"#, LogEscape::Json).unwrap();
    assert_eq!(log(json).format, Some(expected), "the escapes of nginx' configuration are resolved");
    assert_eq!(log("log-format-upstream: $status").format.unwrap().escape(), LogEscape::Default);
    let off = log("disable-access-log: \"true\"");
    assert!(off.omits_requests && off.omits_connections);
    let off = log("disable-http-access-log: \"true\"");
    assert!(off.omits_requests && !off.omits_connections);
    let off = log("disable-stream-access-log: \"true\"");
    assert!(!off.omits_requests && off.omits_connections);
    assert!(log("enable-access-log-for-default-backend: \"false\"").omits_unrouted);
    let skips = log("skip-access-log-urls: \"/healthz, ~^/static/\"");
    let has =
        ["/healthz", "/healthz?x", "/static/a", "/"].map(|target| skips.has_request(target.as_bytes(), true));
    assert_eq!(has, [false, true, false, true]);
}

#[test]
fn log_format_with_an_unknown_variable_is_reported_and_the_own_format_stays() {
    let configmap = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: nginx}\ndata: \
                     {log-format-upstream: $status $geoip_city}\n";
    let mut store = Store::default();
    store.set_file(std::path::Path::new("m.yaml"), configmap);
    let name = ObjectName { namespace: "default".into(), name: "nginx".into() };
    let translation = translate(&store, &TranslateOptions { configmap: Some(name), ..options() });
    assert_eq!(translation.config.settings.access_log.format, None);
    let found = problems(&translation);
    let is_expected = |problem: &String| {
        problem.starts_with("data[log-format-upstream]: ") && problem.contains("$geoip_city")
    };
    assert!(found.len() == 1 && is_expected(&found[0]), "{found:?}");
}
