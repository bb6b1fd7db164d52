//! Rewrites, redirects and hashes.

use serde_json::{Value, json};

use super::{features, ingress, paths, problems, translated};

/// The features of each rule of a host, by its path.
fn rules(yaml: &str, host: &str) -> Vec<(String, Value)> {
    let translation = translated(yaml);
    assert_eq!(problems(&translation), [""; 0]);
    let host = translation.config.hosts.iter().find(|known| known.host.to_string() == host).unwrap();
    let shown = host.rules.iter().map(|rule| {
        let features = &rule.traffic.as_ref().unwrap().features;
        (rule.path().to_owned(), serde_json::to_value(features).unwrap())
    });
    shown.collect()
}

/// The only problem of an Ingress with these annotations.
fn problem(annotations: &str) -> String {
    let found = problems(&translated(&ingress("a", annotations, &["a.test Prefix / echo:http"])));
    let [problem] = &found[..] else { panic!("{found:?}") };
    problem.clone()
}

#[test]
fn rewrite_target_replaces_the_path_by_captures_of_each_path() {
    let paths = [
        "a.test ImplementationSpecific /a(/|$)(.*) echo:http",
        "a.test ImplementationSpecific /$2 echo:http",
    ];
    let yaml = ingress("a", "rewrite-target: /$2\nx-forwarded-prefix: /a$1", &paths);
    let rules = rules(&yaml, "a.test");
    let target = json!([{"pattern": "~* /a(/|$)(.*)", "target": "/$2"}]);
    assert_eq!(rules[0].1["urlRewrite"]["targets"], target);
    let prefix = json!([{"name": "X-Forwarded-Prefix", "value": "/a$1"}]);
    assert_eq!(rules[0].1["templateHeaders"]["request"], prefix);
    // A path that is equal to the target is not rewritten.
    assert_eq!((&rules[1].1["urlRewrite"], &rules[1].1["templateHeaders"]), (&Value::Null, &Value::Null));
}

#[test]
fn rewrite_target_with_an_unknown_variable_is_an_error_that_names_the_variable() {
    let found = problem("rewrite-target: /$nosuch");
    assert!(
        found.contains("\"/$nosuch\" has the variable $nosuch, which the gateway does not know"),
        "{found}"
    );
}

#[test]
fn upstream_vhost_sets_the_host_for_endpoints() {
    let features = features("upstream-vhost: $service_name.internal");
    assert_eq!(features.url_rewrite.host.unwrap().to_string(), "$service_name.internal");
}

#[test]
fn permanent_and_temporal_redirects_have_the_codes_of_ingress_nginx() {
    let permanent = "permanent-redirect: https://$host/new$request_uri";
    let temporal = "temporal-redirect: https://other.example";
    for (annotations, status, location) in [
        (permanent.to_owned(), 301, "https://$host/new$request_uri"),
        (format!("{permanent}\npermanent-redirect-code: \"308\""), 308, "https://$host/new$request_uri"),
        (format!("{permanent}\npermanent-redirect-code: \"200\""), 301, "https://$host/new$request_uri"),
        (format!("{permanent}\n{temporal}"), 302, "https://other.example"),
        (format!("{temporal}\ntemporal-redirect-code: \"307\""), 307, "https://other.example"),
        (format!("{temporal}\ntemporal-redirect-code: \"308\""), 302, "https://other.example"),
    ] {
        let features = serde_json::to_value(features(&annotations)).unwrap();
        let expected = json!([{"statusCode": status, "content": {"location": {"url": location}}}]);
        assert_eq!(features["returns"], expected, "{annotations}");
    }
    let with_body = features(&format!("{permanent}\npermanent-redirect-code: \"300\""));
    let with_body = serde_json::to_value(with_body).unwrap();
    assert_eq!(with_body["returns"][0]["content"]["body"]["mediaType"], "text/html");
    let flags =
        features(&format!("{permanent}\nrelative-redirects: \"true\"\nuse-port-in-redirects: \"true\""));
    let location = &serde_json::to_value(flags).unwrap()["returns"][0]["content"]["location"];
    assert_eq!((&location["isRelative"], &location["hasPort"]), (&json!(true), &json!(true)));
    assert!(problem("permanent-redirect: javascript:alert(1)").contains("is not a URL"));
    assert!(problem("permanent-redirect: /path").contains("is not a URL"));
}

#[test]
fn redirect_is_data_and_cannot_add_directives() {
    // CVE-2023-5044: the annotation was copied into a configuration file.
    let url = "https://a.test/;}%20location%20/x{content_by_lua_block{os.execute(1)}}";
    let shown = serde_json::to_value(features(&format!("permanent-redirect: {url}"))).unwrap();
    assert_eq!(shown["returns"], json!([{"statusCode": 301, "content": {"location": {"url": url}}}]));
}

#[test]
fn app_root_redirects_only_the_root_of_the_host_before_every_other_rule() {
    let yaml = ingress("a", "app-root: /app", &["a.test Prefix / echo:http", "a.test Exact / echo:http"]);
    assert_eq!(paths(&translated(&yaml), "a.test"), ["Exact /", "Exact /", "Prefix /"]);
    let rules = rules(&yaml, "a.test");
    let url = json!({"location": {"url": "$scheme://$http_host/app"}});
    assert_eq!(rules[0].1["returns"], json!([{"statusCode": 302, "content": url}]));
    assert_eq!(rules[1].1["returns"], Value::Null);
    assert!(problem("app-root: https://elsewhere").contains("is not a path"));
}

#[test]
fn www_redirect_adds_the_other_host_unless_an_ingress_has_it() {
    let with = |host: &str| {
        ingress(
            "a",
            "from-to-www-redirect: \"true\"",
            &[&format!("{host} Prefix / echo:http"), &format!("{host} Prefix /b echo:http")],
        )
    };
    for (host, from) in [("a.test", "www.a.test"), ("www.a.test", "a.test")] {
        let rules = rules(&with(host), from);
        let [(path, features)] = &rules[..] else { panic!("{rules:?}") };
        let expected = json!({"location": {"url": format!("$pass_access_scheme://{host}$1")}});
        assert_eq!((&**path, &features["returns"][0]["content"]), ("/", &expected));
        assert_eq!(features["returns"][0]["statusCode"], 308);
    }
    let other = ingress("b", "", &["www.a.test Prefix / echo:http"]);
    let own = rules(&format!("{}{other}", with("a.test")), "www.a.test");
    assert_eq!(own[0].1["returns"], Value::Null);
}

#[test]
fn upstream_hash_by_selects_endpoints_by_a_text() {
    let balancing =
        |annotations: &str| serde_json::to_value(features(annotations)).unwrap()["loadBalancing"].clone();
    let by = "upstream-hash-by: $request_uri$http_x_user\n";
    let hash = json!({"algorithm": "ConsistentHash", "hashText": "$request_uri$http_x_user"});
    assert_eq!(balancing(by), hash);
    for (further, size) in [("", 3), ("\nupstream-hash-by-subset-size: \"5\"", 5)] {
        let balancing = balancing(&format!("{by}upstream-hash-by-subset: \"true\"{further}"));
        assert_eq!(balancing["hashSubset"], size);
    }
    assert_eq!(balancing("upstream-hash-by-subset: \"true\""), json!({"algorithm": "RoundRobin"}));
}
