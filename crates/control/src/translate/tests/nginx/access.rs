//! Access rules, limits, authentication and client certificates, each of which closes the routes in case of a fault.

use sluicegate_model::feature::authentication::ext_auth::{ExtAuth, ExtAuthMethod};
use sluicegate_model::feature::{AuthRequest, Require};
use sluicegate_model::policy::{RateLimits, Security};
use sluicegate_model::{ClientAuthMode, Rule, UpstreamKey};
use sluicegate_testkit::tls::Authority;

use super::{ingress, options, problems, rule, translated};
use crate::store::Store;
use crate::translate::{ObjectName, TranslateOptions, Translation, translate};

const PATHS: &[&str] = &["a.test Prefix / echo:http"];

/// Secrets and ConfigMaps that annotations name.
fn objects() -> String {
    let users = "alice:{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=\\n";
    let digest =
        "alice:shop:0123456789abcdef0123456789abcdef\\nbob:other:0123456789abcdef0123456789abcdef\\n";
    let secret = |name: &str, namespace: &str, data: &str| {
        format!(
            "---\n{{kind: Secret, apiVersion: v1, metadata: {{name: {name}, namespace: {namespace}}}, stringData: {{{data}}}}}\n"
        )
    };
    [
        secret("users", "default", &format!("auth: \"{users}\"")),
        secret("map", "default", "alice: \"{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=\""),
        secret("digests", "default", &format!("auth: \"{digest}\"")),
        secret("empty", "default", "other: x"),
        secret("users", "other", &format!("auth: \"{users}\"")),
        "---\n{kind: ConfigMap, apiVersion: v1, metadata: {name: headers, namespace: default}, data: {X-Tenant: \"$http_x_tenant\"}}\n".to_owned(),
        "---\n{kind: ConfigMap, apiVersion: v1, metadata: {name: forged, namespace: default}, data: {\"X-A 'b'; proxy_pass\": \"x\"}}\n".to_owned(),
        "---\n{kind: Service, apiVersion: v1, metadata: {name: auth, namespace: login}, spec: {ports: [{name: http, port: 8080}]}}\n".to_owned(),
    ]
    .concat()
}

fn of(annotations: &str) -> Translation {
    translated(&(ingress("a", annotations, PATHS) + &objects()))
}

fn security(annotations: &str) -> Security {
    let translation = of(annotations);
    assert_eq!(problems(&translation), [""; 0], "{annotations}");
    Security::clone(rule(&translation).security.as_deref().unwrap())
}

fn limits(annotations: &str) -> RateLimits {
    let translation = of(annotations);
    assert_eq!(problems(&translation), [""; 0], "{annotations}");
    RateLimits::clone(rule(&translation).rate_limits.as_deref().unwrap())
}

fn ext_auth(annotations: &str) -> (ExtAuth, AuthRequest) {
    let authentication = security(annotations).authentication.unwrap();
    let ext_auth = ExtAuth::clone(authentication.ext_auth.as_deref().unwrap());
    let request = ext_auth.auth_request.clone().unwrap();
    (ext_auth, request)
}

/// Why the rule responds with 503.
fn refusal(rule: &Rule) -> Option<&str> {
    rule.security.as_ref()?.refuses.as_deref()
}

#[test]
fn client_ips_are_allowed_and_denied() {
    let access = security("allowlist-source-range: \"10.0.0.0/8, 192.0.2.7,2001:db8::/32\"").ip_access;
    let shown: Vec<String> = access.allow.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"]);
    assert!(access.deny.is_empty());
    let access = security("whitelist-source-range: 10.1.2.3/8\ndenylist-source-range: 10.9.0.0/16").ip_access;
    assert_eq!(
        (access.allow[0].to_string(), access.deny[0].to_string()),
        ("10.0.0.0/8".into(), "10.9.0.0/16".into())
    );
    let both = security("allowlist-source-range: 10.0.0.0/8\nwhitelist-source-range: 192.0.2.0/24").ip_access;
    assert_eq!(both.allow.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.0/8"]);
}

#[test]
fn limits_by_client_ip_have_the_burst_and_the_status_of_ingress_nginx() {
    let found = limits(
        "limit-rps: \"10\"\nlimit-rpm: \"30\"\nlimit-connections: \"4\"\nlimit-whitelist: 10.0.0.0/8\nlimit-allowlist: 192.0.2.0/24",
    );
    let rates: Vec<_> = found
        .limits
        .iter()
        .map(|limit| {
            (&*limit.name, limit.requests.get(), limit.per.get().as_secs(), limit.burst.unwrap().get())
        })
        .collect();
    assert_eq!(rates, [("rps", 10, 1, 51), ("rpm", 30, 60, 151)]);
    assert!(found.limits.iter().all(|limit| limit.status() == 503 && limit.key.len() == 1));
    assert_eq!((found.concurrency[0].requests.get(), found.concurrency[0].status()), (4, 503));
    assert_eq!((found.exempt[0].to_string(), found.headers), ("192.0.2.0/24".to_owned(), false));
    let former = limits("limit-rps: \"1\"\nlimit-whitelist: 10.0.0.0/8");
    assert_eq!(former.exempt[0].to_string(), "10.0.0.0/8");
    let found = limits("limit-rps: \"10\"\nlimit-burst-multiplier: \"0\"");
    assert_eq!(found.limits[0].burst.unwrap().get(), 1);
    let none = of("limit-rps: \"0\"\nlimit-connections: \"-1\"");
    assert_eq!((problems(&none), rule(&none).rate_limits.is_none()), (vec![], true));
}

#[test]
fn bandwidth_of_responses_is_in_kibibytes() {
    let translation = of("limit-rate: \"100\"\nlimit-rate-after: \"5\"");
    let bandwidth = rule(&translation).traffic.as_ref().unwrap().features.bandwidth.unwrap();
    assert_eq!((bandwidth.per_second.get(), bandwidth.after.unwrap().get()), (100 << 10, 5 << 10));
    assert_eq!(rule(&of("limit-rate: \"0\"")).traffic.as_ref().unwrap().features.bandwidth, None);
}

#[test]
fn passwords_are_lines_or_keys_of_a_secret() {
    for annotations in [
        "auth-type: basic\nauth-secret: users\nauth-realm: My shop",
        "auth-type: basic\nauth-secret: default/map\nauth-secret-type: auth-map\nauth-realm: My shop",
    ] {
        let authentication = security(annotations).authentication.unwrap();
        let basic = authentication.basic.unwrap();
        let users = basic.secret_ref.value().unwrap();
        assert_eq!((users.len(), &*users[0].0, &*basic.realm, basic.forward), (1, "alice", "My shop", false));
    }
    let digest =
        security("auth-type: digest\nauth-secret: digests\nauth-realm: shop").authentication.unwrap();
    let digest = digest.digest.unwrap();
    let users = digest.users.value().unwrap();
    assert_eq!((users.len(), &*users[0].0, &*digest.realm), (1, "alice", "shop"), "only users of the realm");
}

#[test]
fn service_of_an_auth_url_is_asked_as_ingress_nginx_asks_it() {
    let (service, request) = ext_auth(
        "auth-url: http://auth.login.svc.cluster.local:8080/check?x=$arg_x\nauth-method: POST\n\
         auth-signin: https://login.test/start\nauth-response-headers: X-User, X-Forwarded-Email,Set-Cookie\n\
         auth-request-redirect: https://a.test/\nauth-proxy-set-headers: default/headers\n\
         auth-always-set-cookie: \"true\"\nauth-cache-key: $remote_user$http_authorization\n\
         auth-cache-duration: 200 202 1h, 401 30s",
    );
    assert_eq!(&*service.url, "http://auth.login.svc.cluster.local:8080/");
    assert_eq!(service.upstream, Some(UpstreamKey::new("login", "auth", "http")));
    assert_eq!(service.method, ExtAuthMethod::Post);
    assert_eq!(request.target.unwrap().to_string(), "/check?x=$arg_x");
    let sign_in = request.sign_in.unwrap().to_string();
    assert_eq!(sign_in, "https://login.test/start?rd=$pass_access_scheme://$http_host$escaped_request_uri");
    let headers: Vec<&str> = request.response_headers.iter().map(|name| name.as_str()).collect();
    assert_eq!(headers, ["X-User", "X-Forwarded-Email"]);
    assert_eq!(request.request_redirect.unwrap().to_string(), "https://a.test/");
    assert_eq!(request.headers[0].value.to_string(), "$http_x_tenant");
    assert!(request.always_sets_cookies && request.tells_uri);
    let cache = request.cache.unwrap();
    assert_eq!([200, 202, 401, 403].map(|status| cache.time(status).get().as_secs()), [3600, 3600, 30, 0]);
    let (service, request) = ext_auth("auth-url: https://auth.example/check");
    assert_eq!((&*service.url, service.upstream, request.target), ("https://auth.example/check", None, None));
    assert!(!request.tells_uri && request.cache.is_none());
}

#[test]
fn service_of_an_auth_url_has_the_endpoints_of_its_service() {
    let translation = of("auth-url: http://auth.login.svc.cluster.local:8080/check");
    assert!(translation.config.upstreams.contains_key(&UpstreamKey::new("login", "auth", "http")));
}

#[test]
fn parameter_of_the_sign_in_url_is_added_unless_the_url_has_it() {
    for (page, parameter, expected) in [
        (
            "https://login.test/?a=b",
            "",
            "https://login.test/?a=b&rd=$pass_access_scheme://$http_host$escaped_request_uri",
        ),
        ("https://login.test/?rd=$escaped_request_uri", "", "https://login.test/?rd=$escaped_request_uri"),
        (
            "https://login.test/?rd=x",
            "auth-signin-redirect-param: to",
            "https://login.test/?rd=x&to=$pass_access_scheme://$http_host$escaped_request_uri",
        ),
        ("/oauth2/start", "", "/oauth2/start?rd=$pass_access_scheme://$http_host$escaped_request_uri"),
    ] {
        let (_, request) = ext_auth(&format!("auth-url: http://auth/\nauth-signin: {page}\n{parameter}"));
        assert_eq!(request.sign_in.unwrap().to_string(), expected);
    }
}

#[test]
fn host_variable_of_an_auth_url_is_the_host_of_each_rule() {
    let paths = &["a.test Prefix / echo:http", "b.test Prefix / echo:http"];
    let translation = translated(&ingress("a", "auth-url: https://$host/oauth2/auth", paths));
    assert_eq!(problems(&translation), [""; 0]);
    for host in &translation.config.hosts {
        let authentication = host.rules[0].security.as_ref().unwrap().authentication.clone().unwrap();
        let expected = format!("https://{}/oauth2/auth", host.host);
        assert_eq!(&*authentication.ext_auth.as_ref().unwrap().url, expected);
    }
    let wildcard =
        translated(&ingress("a", "auth-url: https://$host/oauth2/auth", &["*.a.test Prefix / echo:http"]));
    assert!(
        refusal(rule(&wildcard))
            .is_some_and(|reason| reason.starts_with("auth-url: needs a rule with a host"))
    );
    assert_eq!(problems(&wildcard).len(), 1);
}

#[test]
fn one_access_rule_is_enough_with_satisfy_any() {
    let rules =
        "auth-type: basic\nauth-secret: users\nauth-url: http://auth/\nallowlist-source-range: 10.0.0.0/8\n";
    let any = security(&format!("{rules}satisfy: any"));
    assert_eq!((any.satisfies_any, any.authentication.unwrap().require), (true, Require::Any));
    let all = security(rules);
    assert_eq!((all.satisfies_any, all.authentication.unwrap().require), (false, Require::All));
}

#[test]
fn acme_challenges_need_no_authentication() {
    let paths = &["a.test Prefix / echo:http", "a.test Prefix /.well-known/acme-challenge/x echo:http"];
    let annotations = "auth-url: http://auth/\nallowlist-source-range: 10.0.0.0/8";
    let translation = translated(&ingress("a", annotations, paths));
    let [host] = &translation.config.hosts[..] else { panic!("one host") };
    let guarded = |rule: &&Rule| rule.security.as_ref().unwrap().authentication.is_some();
    let (guarded, open): (Vec<&Rule>, Vec<&Rule>) = host.rules.iter().partition(guarded);
    assert_eq!((guarded.len(), open.len()), (1, 1));
    assert!(!open[0].security.as_ref().unwrap().ip_access.is_open());
}

#[test]
fn service_of_the_configmap_applies_unless_an_ingress_has_its_own_or_none() {
    let configmap = |data: &str| {
        format!(
            "---\n{{kind: ConfigMap, apiVersion: v1, metadata: {{name: nginx, namespace: default}}, data: {{{data}}}}}\n"
        )
    };
    let translated = |annotations: &str, data: &str| {
        let mut store = Store::default();
        let yaml = ingress("a", annotations, PATHS) + super::ECHO + &configmap(data);
        store.set_file(std::path::Path::new("m.yaml"), &yaml);
        let name = ObjectName { namespace: "default".into(), name: "nginx".into() };
        let options = TranslateOptions { configmap: Some(name), ..options() };
        translate(&store, &options)
    };
    let url = |annotations: &str| {
        let data = "global-auth-url: \"http://global/\", global-auth-signin: \"https://login.test/\", limit-req-status-code: \"429\"";
        let translation = translated(annotations, data);
        let authentication = rule(&translation).security.as_ref()?.authentication.clone()?;
        Some(authentication.ext_auth?.url.to_string())
    };
    assert_eq!(url("").as_deref(), Some("http://global/"));
    assert_eq!(url("auth-url: http://own/").as_deref(), Some("http://own/"));
    assert_eq!(url("enable-global-auth: \"false\""), None);
    let invalid = translated("", "global-auth-url: \"ftp://global/\"");
    assert!(refusal(rule(&invalid)).is_some(), "{:?}", problems(&invalid));
    let allowed = |annotations: &str| {
        let translation =
            translated(annotations, "allowlist-source-range: 10.0.0.0/8, denylist-source-range: \"\"");
        let access = rule(&translation).security.as_ref().unwrap().ip_access.clone();
        access.allow.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(allowed(""), ["10.0.0.0/8"]);
    assert_eq!(allowed("whitelist-source-range: 192.0.2.0/24"), ["192.0.2.0/24"]);
    assert_eq!(allowed("allowlist-source-range: 192.0.2.0/24"), ["192.0.2.0/24"]);
    let limited = translated("limit-rps: \"1\"", "limit-req-status-code: \"429\"");
    assert_eq!(rule(&limited).rate_limits.as_ref().unwrap().limits[0].status(), 429);
}

#[test]
fn client_certificates_are_checked_at_requests() {
    let pem = serde_json::json!(Authority::of_process().pem());
    let authority = format!(
        "---\n{{kind: Secret, apiVersion: v1, metadata: {{name: clients, namespace: default}}, stringData: {{ca.crt: {pem}}}}}\n"
    );
    let with = |annotations: &str| {
        let yaml = ingress("a", &format!("auth-tls-secret: default/clients\n{annotations}"), PATHS);
        let translation = translated(&(yaml + &authority));
        assert_eq!(problems(&translation), [""; 0], "{annotations}");
        rule(&translation).client_auth.clone()
    };
    let auth = with("").unwrap();
    let check = auth.at_requests.as_ref().unwrap();
    assert_eq!(
        (auth.mode, auth.roots.len(), auth.forward, check.depth),
        (ClientAuthMode::Required, 1, false, 1)
    );
    let auth = with(
        "auth-tls-verify-client: optional_no_ca\nauth-tls-verify-depth: \"3\"\n\
         auth-tls-error-page: https://errors.test/\nauth-tls-pass-certificate-to-upstream: \"true\"\n\
         auth-tls-match-cn: CN=(alice|bob)",
    )
    .unwrap();
    let check = auth.at_requests.as_ref().unwrap();
    assert_eq!((auth.mode, auth.forward, check.depth), (ClientAuthMode::OptionalNoCa, true, 3));
    assert_eq!(check.subject.as_ref().unwrap().as_str(), "CN=(alice|bob)");
    assert_eq!(check.error_page.as_deref(), Some("https://errors.test/"));
    assert!(with("auth-tls-verify-client: \"off\"").is_none());
}

#[test]
fn annotation_without_a_value_is_ignored() {
    let annotations = "auth-url: \"\"\nauth-type: \" \"\nlimit-rps: \"\"\nauth-tls-secret: \"\"\nsatisfy: \"\"\nlimit-whitelist: \"\"";
    let translation = of(annotations);
    assert_eq!(problems(&translation), [""; 0]);
    let rule = rule(&translation);
    assert!(rule.security.is_none() && rule.rate_limits.is_none() && rule.client_auth.is_none());
}

/// Each annotation about access with values that are wrong, dangling or hostile.
#[test]
fn fault_in_an_access_annotation_closes_the_routes_and_is_an_error() {
    for annotations in [
        "allowlist-source-range: 10.0.0.0/33",
        "allowlist-source-range: \"\"",
        "whitelist-source-range: \"10.0.0.0/8, localhost\"",
        "denylist-source-range: \"10.0.0.0/8;\"",
        "satisfy: some",
        "limit-rps: many",
        "limit-rpm: \"1.5\"",
        "limit-connections: \"10; deny all\"",
        "limit-burst-multiplier: \"-1\"",
        "limit-whitelist: everyone",
        "limit-rate: 100k",
        "auth-type: kerberos\nauth-secret: users",
        "auth-type: basic",
        "auth-type: basic\nauth-secret: missing",
        "auth-type: basic\nauth-secret: empty",
        "auth-type: basic\nauth-secret: users\nauth-secret-type: auth-list",
        "auth-type: basic\nauth-secret: users\nauth-realm: 'a\"b'",
        "auth-type: digest\nauth-secret: digests\nauth-realm: unknown",
        // Secrets of other namespaces, and paths of files (CVE-2025-24513).
        "auth-type: basic\nauth-secret: other/users",
        "auth-type: basic\nauth-secret: ../../etc/passwd",
        // The configuration of nginx could be extended by these values (CVE-2025-24514).
        "auth-url: 'http://auth/#;load_module x;'",
        "auth-url: \"http://auth/\\n}\\nssl_engine x\"",
        "auth-url: ftp://auth/",
        "auth-url: http://$arg_host/",
        "auth-url: http://auth/$nosuch",
        // The expression for methods was not anchored (CVE-2026-1580).
        "auth-url: http://auth/\nauth-method: \"GET; return 200\"",
        "auth-url: http://auth/\nauth-method: CONNECT",
        "auth-url: http://auth/\nauth-signin: javascript:alert(1)",
        "auth-url: http://auth/\nauth-signin: //evil.test/",
        "auth-url: http://auth/\nauth-signin-redirect-param: \"a=b&c\"",
        "auth-url: http://auth/\nauth-response-headers: \"X-User; X\"",
        "auth-url: http://auth/\nauth-response-headers: X-Forwarded-For",
        "auth-url: http://auth/\nauth-cache-duration: forever",
        "auth-url: http://auth/\nauth-cache-key: $nosuch",
        "auth-url: http://auth/\nauth-always-set-cookie: sometimes",
        // The names of headers were put into the configuration (CVE-2025-15566).
        "auth-url: http://auth/\nauth-proxy-set-headers: forged",
        "auth-url: http://auth/\nauth-proxy-set-headers: missing",
        "auth-url: http://auth/\nauth-proxy-set-headers: other/headers",
        "auth-url: http://auth/\nauth-snippet: proxy_pass http://evil;",
        "enable-global-auth: perhaps",
        "auth-tls-secret: default/missing",
        "auth-tls-secret: default/users",
        "auth-tls-secret: other/users",
        "auth-tls-verify-client: maybe",
        "auth-tls-verify-depth: deep",
        "auth-tls-error-page: /error",
        "auth-tls-pass-certificate-to-upstream: perhaps",
        // The value was a part of the configuration (CVE-2025-1097).
        "auth-tls-match-cn: 'alice) { } } ssl_engine x; #'",
        "auth-tls-match-cn: 'CN=('",
        "auth-of-a-later-version: x",
    ] {
        let translation = of(annotations);
        let found = problems(&translation);
        assert!(refusal(rule(&translation)).is_some(), "{annotations}: {found:?}");
        assert!(found.iter().any(|problem| problem.contains("503")), "{annotations}: {found:?}");
        let fallback = translation.config.hosts[0].fallback.as_ref().unwrap();
        assert!(refusal(fallback).is_some(), "{annotations}");
    }
}
