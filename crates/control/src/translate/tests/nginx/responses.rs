//! Error pages, sessions, canaries, CORS, rewrites of responses, and connections to endpoints.

use sluicegate_model::Features;
use sluicegate_model::feature::LoadBalancingAlgorithm;
use sluicegate_model::value::CipherSuites;
use sluicegate_testkit::tls::Authority;

use super::{features, ingress, problems, rule, translated};
use crate::translate::Translation;

const OTHER: &str = "---\napiVersion: v1\nkind: Service\nmetadata: {name: other, namespace: default}\nspec: {clusterIP: 10.0.0.7, ports: [{name: web, port: 8080}]}\n";

/// The value of a field of the dump of features, by its path.
fn dumped(features: &Features, path: &str) -> serde_json::Value {
    let dump = serde_json::to_value(features).unwrap();
    path.split('.').fold(dump, |value, name| value[name].clone())
}

fn paths_of(translation: &Translation) -> usize {
    translation.config.hosts.iter().map(|host| host.rules.len()).sum()
}

#[test]
fn codes_with_a_default_backend_have_error_pages_of_its_first_port() {
    let annotations = "custom-http-errors: \"404, 503\"\ndefault-backend: other";
    let translation = translated(&(ingress("a", annotations, &["a.test Prefix / echo:http"]) + OTHER));
    assert!(
        problems(&translation).iter().all(|problem| problem.contains("EndpointSlice")),
        "{:?}",
        problems(&translation)
    );
    let pages = rule(&translation).traffic.as_ref().unwrap().features.error_pages.clone().unwrap();
    assert_eq!(pages.upstream.to_string(), "default/other:web");
    assert_eq!(pages.codes.iter().map(|code| code.get()).collect::<Vec<_>>(), [404, 503]);
    assert!(pages.replaces_endpoints && pages.serves_empty);
    let own = format!("{annotations}\ndisable-proxy-intercept-errors: \"true\"");
    let own = translated(&(ingress("a", &own, &["a.test Prefix / echo:http"]) + OTHER));
    assert!(!rule(&own).traffic.as_ref().unwrap().features.error_pages.as_ref().unwrap().replaces_endpoints);
    assert!(translation.config.upstreams.contains_key(&pages.upstream), "the data plane knows the upstream");
}

#[test]
fn codes_without_a_default_backend_and_a_missing_default_backend_are_errors() {
    for (annotations, fault) in [
        ("custom-http-errors: \"404\"", "custom-http-errors]: has no effect without a default backend"),
        ("default-backend: none", "default-backend]: Service default/none does not exist"),
        ("custom-http-errors: \"200\"", "custom-http-errors]: \"200\" is not a status from 300 to 599"),
    ] {
        let translation = translated(&ingress("a", annotations, &["a.test Prefix / echo:http"]));
        let found = problems(&translation);
        assert!(found.len() == 1 && found[0].contains(fault), "{found:?}");
        assert_eq!(rule(&translation).traffic.as_ref().unwrap().features.error_pages, None);
    }
}

#[test]
fn session_cookie_has_the_name_and_path_of_ingress_nginx_by_default() {
    let of = |annotations: &str| features(annotations).load_balancing.affinity.unwrap();
    let default = of("affinity: cookie");
    assert_eq!((default.cookie.as_deref(), default.path.as_deref()), (Some("INGRESSCOOKIE"), Some("/")));
    let own = of(
        "affinity: cookie\naffinity-mode: persistent\nsession-cookie-name: route\nsession-cookie-path: /app\nsession-cookie-max-age: \"172800\"\nsession-cookie-samesite: None\nsession-cookie-change-on-failure: \"true\"\nsession-cookie-domain: a.test\nsession-cookie-expires: \"-1\"\nsession-cookie-conditional-samesite-none: \"true\"\nsession-cookie-secure: \"false\"",
    );
    assert_eq!((own.cookie.as_deref(), own.path.as_deref()), (Some("route"), Some("/app")));
    let nginx = serde_json::to_value(own.nginx.unwrap()).unwrap();
    for (field, value) in [
        ("mode", serde_json::json!("Persistent")),
        ("maxAge", 172_800.into()),
        ("sameSite", "None".into()),
        ("changesOnFailure", true.into()),
        ("domain", "a.test".into()),
        ("expires", (-1).into()),
        ("isNoneConditional", true.into()),
        ("secure", false.into()),
    ] {
        assert_eq!(nginx[field], value, "{field}");
    }
}

#[test]
fn canary_is_a_part_of_the_rule_of_the_main_ingress() {
    let main = ingress(
        "a",
        "affinity: cookie\nproxy-body-size: 8m",
        &["a.test Prefix / echo:http", "a.test Prefix /other echo:http"],
    );
    let canary = ingress(
        "b",
        "canary: \"true\"\ncanary-by-header: X-Canary\ncanary-by-cookie: canary\ncanary-weight: \"20\"\ncanary-weight-total: \"200\"",
        &["a.test Prefix / other:8080"],
    );
    let translation = translated(&(canary.clone() + &main + OTHER));
    assert_eq!(paths_of(&translation), 2, "a canary has no rules");
    let rules = &translation.config.hosts[0].rules;
    let of_root = rules.iter().find(|rule| rule.path() == "/").unwrap();
    assert_eq!(of_root.id.name.as_ref(), "a");
    let features = &of_root.traffic.as_ref().unwrap().features;
    let split = features.split.as_ref().unwrap();
    assert_eq!((split.weight.get(), split.backends[0].weight.get()), (180, 20));
    assert_eq!(split.backends[0].upstream.to_string(), "default/other:web");
    let matches = split.backends[0].matches.iter();
    let matches: Vec<_> = matches
        .map(|of| (of.header.as_deref(), of.cookie.as_deref(), of.value.as_deref().unwrap(), of.refuses))
        .collect();
    assert_eq!(
        matches,
        [
            (Some("x-canary"), None, "always", false),
            (Some("x-canary"), None, "never", true),
            (None, Some("canary"), "always", false),
            (None, Some("canary"), "never", true),
        ]
    );
    assert!(features.load_balancing.affinity.as_ref().unwrap().over_weights, "sticky by default");
    let other = rules.iter().find(|rule| rule.path() == "/other").unwrap();
    assert_eq!(other.traffic.as_ref().unwrap().features.split, None);
    // Without a main Ingress, the canary serves nothing.
    let alone = translated(&(canary + OTHER));
    assert_eq!(paths_of(&alone), 0);
    assert!(
        problems(&alone).iter().any(|problem| problem.contains("receives no requests")),
        "{:?}",
        problems(&alone)
    );
}

#[test]
fn canary_by_header_value_or_pattern_and_legacy_sessions() {
    let of = |annotations: &str| {
        let yaml = ingress("a", "affinity: cookie", &["a.test Prefix / echo:http"])
            + &ingress("b", &format!("canary: \"true\"\n{annotations}"), &["a.test Prefix / other:8080"])
            + OTHER;
        rule(&translated(&yaml)).traffic.as_ref().unwrap().features.clone()
    };
    let value = of("canary-by-header: X-V\ncanary-by-header-value: two\ncanary-by-header-pattern: t.*");
    let entry = &value.split.as_ref().unwrap().backends[0].matches[0];
    assert_eq!((entry.value.as_deref(), entry.pattern.is_some()), (Some("two"), false));
    let pattern =
        of("canary-by-header: X-V\ncanary-by-header-pattern: t.*\naffinity-canary-behavior: legacy");
    let entry = &pattern.split.as_ref().unwrap().backends[0].matches[0];
    assert_eq!((entry.value.as_deref(), entry.pattern.as_ref().map(|of| of.as_str())), (None, Some("t.*")));
    assert!(!pattern.load_balancing.affinity.unwrap().over_weights);
}

#[test]
fn cors_has_the_defaults_of_ingress_nginx_and_no_origin_if_no_origin_is_valid() {
    let cors = |annotations: &str| {
        let translation = translated(&ingress("a", annotations, &["a.test Prefix / echo:http"]));
        (
            rule(&translation).security.as_ref().and_then(|security| security.cors.clone()),
            problems(&translation),
        )
    };
    assert_eq!(cors("cors-allow-origin: https://a.test").0, None, "enable-cors is off");
    let (default, found) = cors("enable-cors: \"true\"");
    assert_eq!(found, [""; 0]);
    let default = default.unwrap();
    assert_eq!(default.allow_origins.iter().map(ToString::to_string).collect::<Vec<_>>(), ["*"]);
    assert!(default.allow_credentials);
    let nginx = default.nginx.unwrap();
    assert_eq!(&*nginx.methods, "GET, PUT, POST, DELETE, PATCH, OPTIONS");
    assert!(nginx.headers.starts_with("DNT,Keep-Alive,") && nginx.headers.ends_with(",Range,Authorization"));
    assert_eq!((nginx.exposed, nginx.max_age), (None, 1_728_000));
    let (wrong, found) = cors("enable-cors: \"true\"\ncors-allow-origin: \"shop, https://*.a.test\"");
    assert_eq!(
        wrong.unwrap().allow_origins.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["https://*.a.test"]
    );
    assert!(found.len() == 1 && found[0].contains("has no scheme"), "{found:?}");
    let (none, _) = cors("enable-cors: \"true\"\ncors-allow-origin: shop");
    assert!(none.unwrap().allow_origins.is_empty());
    let (own, found) = cors(
        "enable-cors: \"true\"\ncors-allow-methods: GET, PUT\ncors-allow-headers: X-A,X-B\ncors-expose-headers: \"*\"\ncors-allow-credentials: \"false\"\ncors-max-age: \"600\"",
    );
    assert_eq!(found, [""; 0]);
    let own = own.unwrap();
    assert!(!own.allow_credentials);
    let nginx = own.nginx.unwrap();
    assert_eq!((&*nginx.methods, &*nginx.headers, nginx.max_age), ("GET, PUT", "X-A,X-B", 600));
    assert_eq!(nginx.exposed.as_deref(), Some("*"));
    let (split, found) = cors("enable-cors: \"true\"\ncors-allow-headers: \"X-A; X-B\"");
    assert!(split.unwrap().nginx.unwrap().headers.starts_with("DNT"));
    assert!(found.len() == 1 && found[0].contains("is not a name of letters"), "{found:?}");
}

#[test]
fn rewrites_of_responses_need_both_texts() {
    let rewrite = |annotations: &str| features(annotations).response_rewrite;
    let both = rewrite(
        "proxy-cookie-domain: inner.test a.test\nproxy-cookie-path: /app/ /\nproxy-redirect-from: http://inner/\nproxy-redirect-to: https://a.test/",
    );
    let both = both.unwrap();
    assert_eq!((both.cookie_domains.len(), both.cookie_paths.len(), both.locations.len()), (1, 1, 1));
    for annotations in [
        "proxy-cookie-domain: \"off\"",
        "proxy-redirect-from: default\nproxy-redirect-to: /",
        "proxy-redirect-from: http://inner/",
        "proxy-redirect-from: http://inner/\nproxy-redirect-to: \"off\"",
    ] {
        assert_eq!(rewrite(annotations), None, "{annotations}");
    }
}

#[test]
fn retries_and_load_balancing_have_the_defaults_of_ingress_nginx() {
    let default = features("");
    assert_eq!(default.load_balancing.algorithm, Some(LoadBalancingAlgorithm::RoundRobin));
    assert_eq!(dumped(&default, "retries.attempts"), 2);
    assert_eq!(dumped(&default, "retries.conditions.timeout"), true);
    let own = features(
        "load-balance: ewma\nproxy-next-upstream: error http_502\nproxy-next-upstream-tries: \"0\"\nproxy-next-upstream-timeout: \"5\"\nproxy-http-version: \"1.0\"\nproxy-buffer-size: 8k",
    );
    assert_eq!(own.load_balancing.algorithm, Some(LoadBalancingAlgorithm::ResponseTime));
    assert_eq!(dumped(&own, "retries.attempts"), 100);
    assert_eq!(dumped(&own, "retries.codes"), serde_json::json!([502]));
    assert_eq!(dumped(&own, "retries.conditions.timeout"), false);
    assert_eq!(dumped(&own, "endpointForm.isHttp10"), true);
    assert_eq!(own.limits.response_head.unwrap().get(), 8192);
    assert_eq!(
        dumped(&features("connection-proxy-header: keep-alive"), "endpointForm.connection"),
        "keep-alive"
    );
}

#[test]
fn service_upstream_leads_to_the_cluster_ip_of_the_service() {
    let yaml = ingress("a", "service-upstream: \"true\"", &["a.test Prefix / other:web"]) + OTHER;
    let translation = translated(&yaml);
    assert_eq!(problems(&translation), [""; 0]);
    let key = rule(&translation).upstreams().next().unwrap();
    assert_eq!(key.to_string(), "default/other:web (http, cluster IP)");
    let endpoints = &translation.config.upstreams[key].endpoints;
    assert_eq!(endpoints.iter().map(|of| of.address.to_string()).collect::<Vec<_>>(), ["10.0.0.7:8080"]);
}

#[test]
fn mirror_target_is_an_upstream_outside_the_cluster() {
    let of = "mirror-target: https://mirror.test$request_uri\nmirror-request-body: \"off\"";
    let translation = translated(&ingress("a", of, &["a.test Prefix / echo:http"]));
    assert_eq!(problems(&translation), [""; 0]);
    let mirrors = &rule(&translation).traffic.as_ref().unwrap().features.mirrors;
    let form = mirrors[0].form.as_ref().unwrap();
    assert_eq!(
        (form.target.to_string(), &*form.host, form.drops_body),
        ("$request_uri".into(), "mirror.test", true)
    );
    let upstream = &translation.config.upstreams[&mirrors[0].upstream];
    assert_eq!(upstream.external_name.as_deref(), Some("mirror.test"));
    assert_eq!(upstream.tls.as_ref().unwrap().server_name.as_ref(), "mirror.test");
    assert_eq!(translation.external_ports[&mirrors[0].upstream], 443);
    let own = features("mirror-target: http://mirror.test/\nmirror-host: other.test");
    assert_eq!(&*own.mirrors[0].form.as_ref().unwrap().host, "other.test");
}

#[test]
fn custom_headers_are_set_only_if_the_owner_of_the_gateway_allows_their_names() {
    let map = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: headers, namespace: default}\ndata: {X-A: \"$1\", X-B: b}\n";
    let yaml = ingress("a", "custom-headers: default/headers", &["a.test Prefix / echo:http"]) + map;
    let global = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: global, namespace: default}\ndata: {global-allowed-response-headers: \"x-a, x-c\", retry-non-idempotent: \"true\"}\n";
    let (namespace, name) = ("default".into(), "global".into());
    let configmap = Some(crate::translate::ObjectName { namespace, name });
    let options = crate::translate::TranslateOptions { configmap, ..super::options() };
    let mut store = crate::store::Store::default();
    store.set_file(std::path::Path::new("m.yaml"), &format!("{yaml}{global}{}", super::ECHO));
    let translation = crate::translate::translate(&store, &options);
    let found = problems(&translation);
    assert!(
        found.len() == 1 && found[0].contains("data[X-B] is not one of global-allowed-response-headers"),
        "{found:?}"
    );
    let headers = rule(&translation).traffic.as_ref().unwrap().features.template_headers.clone().unwrap();
    let headers: Vec<_> =
        headers.response.iter().map(|of| (of.header.name.to_string(), of.header.value.to_string())).collect();
    let features = &rule(&translation).traffic.as_ref().unwrap().features;
    assert_eq!(dumped(features, "retries.conditions.nonIdempotent"), true);
    assert_eq!(headers, [("X-A".to_owned(), "${literal_dollar}1".to_owned())]);
}

#[test]
fn protocol_and_tls_of_endpoints_are_those_of_the_ingress() {
    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: ca, namespace: default}\ndata: {}\n";
    let of = "backend-protocol: HTTPS\nproxy-ssl-name: inner.test\nproxy-ssl-server-name: \"on\"\nproxy-ssl-secret: default/ca\nproxy-ssl-verify: \"on\"\nproxy-ssl-protocols: TLSv1.2 TLSv1.3\nproxy-ssl-verify-depth: \"2\"";
    let translation = translated(&(ingress("a", of, &["a.test Prefix / echo:http"]) + secret));
    let key = rule(&translation).upstreams().next().unwrap();
    assert_eq!(key.to_string(), "default/echo:http (https inner.test, verified, restricted, default/ca)");
    let both = translated(&ingress("a", "backend-protocol: AUTO_HTTP", &["a.test Prefix / echo:http"]));
    assert_eq!(rule(&both).upstreams().next().unwrap().to_string(), "default/echo:http");
    let secure = rule(&both).traffic.as_ref().unwrap().features.secure_upstream.clone().unwrap();
    assert_eq!(secure.to_string(), "default/echo:http (https echo.default.svc, no SNI)");
    assert!(both.config.upstreams.contains_key(&secure));
    for (annotations, fault) in [
        ("backend-protocol: FCGI", "FCGI is not supported"),
        ("proxy-ssl-protocols: SSLv3", "has neither TLSv1.2 nor TLSv1.3"),
        ("proxy-ssl-ciphers: AES128-SHA", "has no cipher suite of the gateway"),
        ("proxy-buffering: maybe", "is not one of"),
        ("ssl-ciphers: AES128-SHA", "has no cipher suite of the gateway"),
        ("proxy-ssl-verify-depth: \"300\"", "300 is not from 0 to 255"),
    ] {
        let translation = translated(&ingress("a", annotations, &["a.test Prefix / echo:http"]));
        let found = problems(&translation);
        assert!(found.len() == 1 && found[0].contains(fault), "{found:?}");
    }
}

#[test]
fn timeouts_are_seconds_and_buffers_need_no_setting() {
    let own = features(
        "proxy-connect-timeout: \"7\"\nproxy-read-timeout: \"3600\"\nproxy-send-timeout: \"9\"\nproxy-buffering: \"on\"\nproxy-request-buffering: \"off\"\nproxy-buffers-number: \"8\"\nclient-body-buffer-size: 8k\nproxy-max-temp-file-size: 1g",
    );
    let seconds = |timeout: Option<sluicegate_model::value::Timeout>| timeout.unwrap().get().as_secs();
    let timeouts = own.timeouts;
    assert_eq!(
        (seconds(timeouts.connect), seconds(timeouts.response), seconds(timeouts.idle)),
        (7, 3600, 3600)
    );
}

#[test]
fn lists_of_ciphers_and_the_depth_restrict_tls_with_clients_and_endpoints() {
    let annotations = "ssl-ciphers: CHACHA20\nproxy-ssl-ciphers: AESGCM\nproxy-ssl-verify-depth: \"2\"\nbackend-protocol: HTTPS";
    let yaml = ingress("a", annotations, &["a.test Prefix / echo:http"]);
    let tls = "ingressClassName: nginx, tls: [{hosts: [a.test], secretName: cert}]";
    let secret = Authority::of_process().issue(&["a.test"]).secret("cert");
    let translation = translated(&(yaml.replace("ingressClassName: nginx", tls) + &secret));
    let [host] = &translation.config.tls.hosts[..] else { panic!("{:?}", translation.config.tls.hosts) };
    assert_eq!(host.ciphers, CipherSuites::new("CHACHA20").unwrap());
    let key = &rule(&translation).backends[0].upstream;
    let transport = key.transport.tls.as_ref().unwrap();
    assert_eq!((transport.ciphers, transport.depth), (CipherSuites::new("AESGCM").unwrap(), Some(2)));
}

#[test]
fn client_body_buffer_size_is_the_size_of_bodies_that_the_gateway_can_send_again() {
    let replay = |annotations: &str| features(annotations).limits.replay.map(|size| size.get());
    assert_eq!(replay(""), None);
    assert_eq!(replay("client-body-buffer-size: 1m"), Some(1 << 20));
    assert_eq!(replay("client-body-buffer-size: 1g"), Some(16 << 20), "the largest buffer");
}
