use std::path::Path;

use sluicegate_kong::File;
use sluicegate_kong::router::{Request, choose, order};
use sluicegate_model::rule::{PathMatch, RuleMatch, ValueMatch};
use sluicegate_model::{Config, HostPattern, PathPattern, Rule, VirtualHost};

use super::{KongConverted, KongOptions, convert_kong, is_kong, located};
use crate::store::Store;
use crate::translate::{TranslateOptions, translate};

/// The configuration of a file that a directory holds, and all problems.
fn served(text: &str) -> (Config, Vec<String>) {
    let mut store = Store::default();
    store.set_file(Path::new("kong.yaml"), text);
    let translation = translate(&store, &TranslateOptions::default());
    let problems = store.problems().chain(translation.problems).map(|problem| problem.to_string()).collect();
    (translation.config, problems)
}

/// The rule that the data plane chooses, as its documentation says (`VirtualHost`, `RuleMatch::precedence`).
fn chosen<'c>(config: &'c Config, request: &Request<'_>) -> Option<&'c Rule> {
    let name = request.host.split(':').next().unwrap().to_ascii_lowercase();
    let mut hosts: Vec<&VirtualHost> =
        config.hosts.iter().map(|host| &**host).filter(|host| host.host.matches(&name)).collect();
    hosts.sort_by_key(|host| match &host.host {
        HostPattern::Exact(_) => (0, 0),
        HostPattern::Wildcard(suffix) | HostPattern::Suffix(suffix) => (1, usize::MAX - suffix.len()),
        HostPattern::Any => (2, 0),
    });
    for host in hosts {
        let matches = host.rules.iter().enumerate().flat_map(|(place, rule)| {
            rule.matches.iter().filter(|of| meets(of, request)).map(move |of| (of.precedence, place, rule))
        });
        if let Some((_, _, rule)) = matches.min_by_key(|(precedence, place, _)| (*precedence, *place)) {
            return Some(rule);
        }
        if !host.continues {
            return None;
        }
    }
    None
}

fn meets(of: &RuleMatch, request: &Request<'_>) -> bool {
    let path = match &of.path {
        PathMatch::Literal(PathPattern::Exact(path)) => **path == *request.path,
        PathMatch::Literal(PathPattern::Prefix(path)) => {
            &**path == "/"
                || request
                    .path
                    .strip_prefix(&**path)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        PathMatch::Literal(PathPattern::Starts(path)) => request.path.starts_with(&**path),
        PathMatch::Regex(pattern) => pattern.is_match(request.path.as_bytes()),
        PathMatch::Template(template) => {
            request.path.strip_prefix(template.prefix()).is_some_and(|rest| template.takes(rest.as_bytes()))
        }
    };
    let host = [("host", request.host)];
    path && of.method.as_deref().is_none_or(|method| method == request.method)
        && of.headers.iter().all(|header| {
            let mut lines = request
                .headers
                .iter()
                .chain(&host)
                .filter(|(name, _)| name.eq_ignore_ascii_case(&header.name));
            lines.any(|(_, value)| match &header.value {
                ValueMatch::Exact(exact) => **exact == **value,
                ValueMatch::Regex(pattern) => pattern.is_match(value.as_bytes()),
                ValueMatch::Present => true,
            })
        })
}

/// Checks that both gateways choose the same route for all combinations of these requests.
#[track_caller]
fn compare(
    routes: &str,
    hosts: &[&str],
    paths: &[&str],
    methods: &[&str],
    headers: &[&[(&str, &str)]],
) -> usize {
    let text = format!(
        "_format_version: \"3.0\"\nservices:\n- name: s\n  url: http://s.test\n  routes:\n{routes}\n"
    );
    let file = File::read(&text, &|_| None).unwrap();
    assert_eq!(file.notes, []);
    let parts = order(&file.routes);
    let (config, _) = served(&text);
    let mut rows = 0;
    for host in hosts {
        for path in paths {
            for method in methods {
                for headers in headers {
                    let request = Request { method, headers, ..Request::new(host, path) };
                    let expected = choose(&parts, &request).map(|(part, _)| part.route.name.clone().unwrap());
                    // The HTTPRoutes of one route have its name, and a number.
                    let found = chosen(&config, &request)
                        .map(|rule| rule.id.name.split('-').next().unwrap().to_owned());
                    assert_eq!(found, expected, "{method} {host}{path} {headers:?}");
                    rows += 1;
                }
            }
        }
    }
    rows
}

fn convert(text: &str, options: &KongOptions) -> KongConverted {
    convert_kong(&[("kong.yaml".into(), text.to_owned())], options, &|_| None)
}

#[test]
fn routes_are_chosen_as_kong_chooses_them_across_hosts_paths_methods_and_headers() {
    let rows = compare(
        "  - {name: a, hosts: [a.test]}
  - {name: b, paths: [/x]}
  - {name: c, hosts: [a.test, b.test], paths: [/x/y, /x, '~/x/[0-9]+$']}
  - {name: d, methods: [POST], paths: [/x]}
  - {name: e, hosts: ['*.test'], methods: [POST, PUT]}
  - {name: f, hosts: ['*.b.test'], paths: [/x/yes]}
  - {name: g, headers: {x-v: [One, two]}}
  - {name: h, headers: {x-v: [one], x-w: ['~*^[0-9]$']}, paths: [/]}
  - {name: i, hosts: ['a.*'], paths: [/x/y/z]}
  - {name: j, hosts: ['a.test:81'], paths: [/x]}
  - {name: k, paths: ['~/p/(?<id>[^/]+)/q', '~/r|/s'], regex_priority: 1}
  - {name: l, paths: ['~/p/.*'], regex_priority: 2}
  - {name: m, paths: [/p/1, /very/long/path/of/a/route]}
  - {name: n, hosts: [192.0.2.1]}",
        &[
            "a.test",
            "A.Test",
            "a.test:81",
            "b.test",
            "x.b.test",
            "y.x.b.test",
            "c.test",
            "a.org",
            "none.org",
            "192.0.2.1",
        ],
        &[
            "/",
            "/x",
            "/xyz",
            "/x/y",
            "/x/y/z",
            "/x/yes",
            "/x/12",
            "/x/12a",
            "/p/1/q",
            "/p/1",
            "/r",
            "/q/s",
            "/very/long/path/of/a/route/1",
        ],
        &["GET", "POST", "PUT"],
        &[&[], &[("X-V", "ONE")], &[("X-V", "one"), ("X-W", "7")], &[("X-V", "one"), ("X-W", "77")]],
    );
    assert_eq!(rows, 1560);
}

const FILE: &str = "\
_format_version: \"3.0\"
services:
- name: shop
  url: http://shop.internal:8080/api
  read_timeout: 5000
  retries: 3
  routes:
  - name: buy
    paths: [/buy]
  - name: keep
    paths: [/keep]
    strip_path: false
    preserve_host: true
  plugins:
  - name: key-auth
  - name: acl
    config: {allow: [buyers]}
  - name: rate-limiting
    config: {minute: 5, policy: local}
- name: pool
  host: pool.upstream
  routes: [{name: pool, hosts: [pool.test]}]
- name: closed
  url: http://closed.test
  routes:
  - name: closed
    paths: [/closed]
    plugins: [{name: ldap-auth, config: {ldap_host: x}}]
upstreams:
- name: pool.upstream
  algorithm: least-connections
  host_header: in.pool.test
  targets: [{target: '10.0.0.1:80'}, {target: '10.0.0.2:81'}]
  healthchecks: {active: {http_path: /ok, healthy: {interval: 5, successes: 2}, unhealthy: {interval: 1, http_failures: 3}}}
consumers:
- username: ann
  keyauth_credentials: [{key: a-long-secret-of-ann}]
  acls: [{group: buyers}]
";

/// The rule of an HTTPRoute for a request.
fn rule<'c>(config: &'c Config, host: &str, path: &str) -> &'c Rule {
    chosen(config, &Request::new(host, path)).unwrap()
}

#[test]
fn services_plugins_and_consumers_have_their_effect() {
    let (config, problems) = served(FILE);
    assert_eq!(
        problems,
        [
            "kong.yaml:28: plugin \"ldap-auth\" of route \"closed\": is not supported: write its function into the service or a policy, and remove the plugin (its routes respond with 503)"
        ]
    );
    let traffic =
        |host: &str, path: &str| rule(&config, host, path).traffic.as_ref().unwrap().features.clone();
    let buy = traffic("a.test", "/buy/1");
    assert_eq!(buy.timeouts.response.unwrap().to_string(), "5s");
    assert_eq!(buy.retries.as_ref().unwrap().attempts.get(), 3);
    let regex = buy.url_rewrite.regex.as_ref().unwrap();
    assert_eq!((regex.pattern.as_str(), &*regex.value), ("^/buy(.*)$", "/api/$1"));
    assert_eq!(buy.url_rewrite.hostname.as_deref(), Some("shop.internal"));
    let exact = traffic("a.test", "/buy");
    assert_eq!(&*exact.url_rewrite.path.as_ref().unwrap().value, "/api");
    assert_eq!(exact.url_rewrite.hostname.as_deref(), Some("shop.internal"));
    let keep = traffic("a.test", "/keep/1");
    assert_eq!(&*keep.url_rewrite.regex.as_ref().unwrap().value, "/api$1");
    assert_eq!(keep.url_rewrite.hostname, None);
    let secured = rule(&config, "a.test", "/buy/1");
    let security = secured.security.as_ref().unwrap();
    assert!(security.authentication.as_ref().unwrap().api_key.is_some());
    assert_eq!(&*security.authorization.as_ref().unwrap().rules[0].groups[0], "buyers");
    assert!(secured.rate_limits.is_some());
    assert_eq!(&*config.consumers[0].username, "ann");
    // The health check of the Service leaves the policy of the route in place.
    let pool = traffic("pool.test", "/");
    assert_eq!(pool.url_rewrite.hostname.as_deref(), Some("in.pool.test"));
    assert!(pool.load_balancing.algorithm.is_some());
    let upstream = rule(&config, "pool.test", "/").upstreams().next().unwrap();
    let upstream = &config.upstreams[upstream];
    assert_eq!(upstream.endpoints.len(), 2);
    assert_eq!(upstream.health.as_ref().unwrap().check.as_ref().unwrap().target(), "/ok");
    assert_eq!(traffic("a.test", "/closed").direct_response.unwrap().status_code.get(), 503);
}

#[test]
fn converted_objects_are_valid_and_serve_the_same_rules_as_the_file() {
    let yaml = convert(FILE, &KongOptions::default()).yaml;
    let mut store = Store::default();
    store.set_file(Path::new("m.yaml"), &yaml);
    let problems: Vec<String> = store.problems().map(|problem| problem.to_string()).collect();
    assert_eq!(problems, Vec::<String>::new());
    let of_objects = translate(&store, &TranslateOptions::default()).config;
    assert_eq!(of_objects.hosts, served(FILE).0.hosts);
}

#[test]
fn objects_of_large_values_are_valid() {
    let text = FILE.replace("read_timeout: 5000", "read_timeout: 1234567").replace(
        "minute: 5, policy: local",
        "minute: 5, hour: 10000000, year: 20000000, policy: redis, redis_host: redis, redis_password: of-redis",
    );
    let (config, problems) = served(&text);
    assert_eq!(
        problems.iter().filter(|problem| !problem.contains("plugin")).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
    let rule = rule(&config, "a.test", "/buy/1");
    let limits = &rule.rate_limits.as_ref().unwrap().limits;
    let shown: Vec<(u32, String)> =
        limits.iter().map(|limit| (limit.requests.get(), limit.per.to_string())).collect();
    assert_eq!(shown, [(5, "1m".to_owned()), (1_000_000, "6m".to_owned()), (1_000_000, "438h".to_owned())]);
    let timeouts = &rule.traffic.as_ref().unwrap().features.timeouts;
    assert_eq!(timeouts.response.unwrap().get().as_millis(), 1_234_567);
}

#[test]
fn file_with_an_error_converts_to_nothing_and_names_the_line() {
    let converted = convert("_format_version: \"3.0\"\nroutes:\n- {name: a}\n", &KongOptions::default());
    assert_eq!((converted.errors(), &*converted.yaml), (1, ""));
    let line = located(&converted.notes[0].0, &converted.notes[0].1);
    assert_eq!(
        line,
        "kong.yaml:3: route \"a\": has no condition: write hosts, paths, methods, headers or snis"
    );
}

#[test]
fn file_that_becomes_invalid_stays_in_service_as_it_was() {
    let mut store = Store::default();
    store.set_file(Path::new("kong.yaml"), FILE);
    let hosts = translate(&store, &TranslateOptions::default()).config.hosts;
    for invalid in [
        "_format_version: \"3.0\"\nservices: 3\n",
        "_format_version: \"9\"\n",
        "_format_version: \"3.0\"\na: [\n",
    ] {
        store.set_file(Path::new("kong.yaml"), invalid);
        let problems: Vec<String> = store.problems().map(|problem| problem.to_string()).collect();
        assert!(problems[0].contains("the previous content of this file stays in service"), "{problems:?}");
        assert_eq!(translate(&store, &TranslateOptions::default()).config.hosts, hosts);
    }
}

#[test]
fn file_of_kong_is_recognised_by_its_format() {
    for (text, expected) in [
        ("_format_version: \"3.0\"", true),
        ("# x\n---\n_format_version: 3.0\n", true),
        ("{\"_format_version\": \"3.0\"}", true),
        ("kind: Service\n# _format_version: 1\n", false),
        ("{\n  \"services\": [],\n  \"_format_version\": \"3.0\"}", true),
        ("kind: ConfigMap\ndata:\n  kong.yaml: |\n    _format_version: \"3.0\"\n", false),
    ] {
        assert_eq!(is_kong(text), expected, "{text}");
    }
}

#[test]
fn openid_connect_becomes_a_login_and_introspection() {
    let key = "0123456789abcdef0123456789abcdef";
    let login = format!(
        "{{name: openid-connect, config: {{issuer: 'https://login.test/.well-known/openid-configuration', client_id: [shop], \
         client_secret: [s3cret], auth_methods: [authorization_code, introspection, session], session_secret: {key}, \
         introspection_endpoint: 'https://login.test/i', scopes: [openid, email], redirect_uri: ['https://a.test/back'], \
         logout_uri_suffix: /out, session_absolute_timeout: 3600, upstream_headers_claims: [sub], upstream_headers_names: [X-User]}}}}"
    );
    let opaque = "{name: oauth2-introspection, config: {introspection_url: 'https://login.test/i', authorization_value: 'Basic c2hvcDpzM2NyZXQ=', ttl: 5}}";
    for (plugin, has_login) in [(&*login, true), (opaque, false)] {
        let text = format!(
            "_format_version: \"3.0\"\nservices:\n- {{name: s, url: 'http://s.test', routes: [{{name: a, paths: [/]}}], plugins: [{plugin}]}}\n"
        );
        let (config, problems) = served(&text);
        let security = rule(&config, "a.test", "/").security.clone().unwrap();
        assert_eq!(security.refuses, None, "{problems:?}");
        let authentication = security.authentication.as_ref().unwrap();
        let introspection = authentication.introspection.as_ref().unwrap();
        assert_eq!((&*introspection.url, &*introspection.client_id), ("https://login.test/i", "shop"));
        let secret = introspection.client_secret_ref.value().unwrap();
        assert_eq!(&**secret.get(), b"s3cret");
        let Some(oidc) = &authentication.oidc else {
            assert!(!has_login);
            assert_eq!(introspection.cache.active.get().as_secs(), 5);
            continue;
        };
        assert!(has_login && oidc.forward_access_token);
        assert_eq!(
            (&*oidc.issuer, &*oidc.redirect_path, &*oidc.logout_path),
            ("https://login.test", "/back", "/out")
        );
        assert_eq!(oidc.session_lifetime.get().as_secs(), 3600);
        assert_eq!(oidc.cookie_secret_ref.value().unwrap().get().len(), 1);
        assert_eq!(oidc.claim_to_headers.len(), 1);
    }
}

#[test]
fn each_restriction_that_is_not_converted_closes_its_routes() {
    for plugin in [
        "{name: hmac-auth}",
        "{name: my-own-plugin}",
        "{name: pre-function, config: {access: ['x']}}",
        "{name: rate-limiting, config: {minute: 5, limit_by: path, path: /x}}",
        "{name: rate-limiting}",
        "{name: ip-restriction, config: {allow: [x]}}",
        "{name: acl, config: {allow: [a]}}",
        "{name: jwt}",
        "{name: openid-connect, config: {issuer: 'https://login.test', client_id: [a], client_secret: [b]}}",
        "{name: openid-connect, config: {issuer: 'https://login.test', client_id: [a], client_secret: [b], auth_methods: [authorization_code]}}",
        "{name: openid-connect, config: {issuer: 'https://login.test', client_id: [a], client_secret: [b], auth_methods: [password]}}",
        "{name: openid-connect, config: {scopes_required: [admin], auth_methods: [introspection], introspection_endpoint: 'https://login.test/i', client_id: [a], client_secret: [b]}}",
        "{name: oauth2-introspection, config: {introspection_url: 'https://login.test/i'}}",
        "{name: bot-detection, config: {deny: ['(?=x)']}}",
        "{name: request-termination, config: {status_code: 101}}",
        "{name: rate-limiting, config: {minute: 5, limit_by: header, header_name: 'a b'}}",
    ] {
        let text = format!(
            "_format_version: \"3.0\"\nservices:\n- {{name: s, url: 'http://s.test', routes: [{{name: a, paths: [/]}}], plugins: [{plugin}]}}\n"
        );
        let (config, problems) = served(&text);
        let traffic = rule(&config, "a.test", "/").traffic.as_ref().unwrap();
        assert_eq!(
            traffic.features.direct_response.as_ref().map(|response| response.status_code.get()),
            Some(503),
            "{plugin}"
        );
        assert!(
            problems.iter().any(|problem| problem.contains("respond with 503")),
            "{plugin}: {problems:?}"
        );
    }
}

#[test]
fn passwords_of_consumers_are_valid_and_those_of_closed_consumers_are_not() {
    let text = "\
_format_version: \"3.0\"
services:
- {name: s, url: 'http://s.test', routes: [{name: a, paths: [/]}], plugins: [{name: basic-auth}]}
- {name: j, url: 'http://j.test', routes: [{name: j, paths: [/j]}], plugins: [{name: jwt, config: {claims_to_verify: [exp]}}]}
consumers:
- username: ann
  basicauth_credentials: [{username: ann, password: of-ann}]
  jwt_secrets: [{key: ann, secret: a-long-secret-of-ann}]
- username: bob
  basicauth_credentials: [{username: bob, password: of-bob}]
  jwt_secrets: [{key: bob, secret: a-long-secret-of-bob}]
  plugins: [{name: ip-restriction, config: {allow: [10.0.0.1]}}]
";
    let (config, problems) = served(text);
    let about_bob = "a plugin for consumer \"bob\" is not converted, so its credentials are not valid";
    assert!(problems.iter().any(|problem| problem.contains(about_bob)), "{problems:?}");
    assert!(problems.iter().all(|problem| !problem.contains("503")), "{problems:?}");
    let authentication = |path: &str| {
        let security = rule(&config, "a.test", path).security.as_ref().unwrap();
        security.authentication.clone().unwrap()
    };
    let users = format!("{:?}", authentication("/").basic.unwrap());
    assert!(!users.contains("of-ann"), "the password is hashed: {users}");
    use base64::Engine as _;
    let objects = super::objects(&File::read(text, &|_| None).unwrap(), &KongOptions::default()).objects;
    let secret = objects.iter().find_map(|(_, object)| object["data"]["auth"].as_str()).unwrap();
    let lines = base64::engine::general_purpose::STANDARD.decode(secret).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    assert!(lines.starts_with("ann:$2") && !lines.contains("bob"), "{lines}");
    let providers = authentication("/j").jwt.unwrap().providers;
    let issuers: Vec<&str> = providers.iter().filter_map(|of| of.issuer.as_deref()).collect();
    assert_eq!(issuers, ["ann"]);
}

#[test]
fn names_with_underscores_and_addresses_are_hosts_of_services() {
    let (config, problems) = served(
        "_format_version: \"3.0\"\nservices:\n- {name: a, url: 'http://my_app:80', routes: [{name: a, paths: [/a]}]}\n\
         - {name: b, url: 'http://10.0.0.1:80', routes: [{name: b, paths: [/b]}]}\n",
    );
    assert_eq!(problems, [""; 0]);
    for (path, host) in [("/a/1", "my_app"), ("/b/1", "10.0.0.1")] {
        let traffic = rule(&config, "x.test", path).traffic.as_ref().unwrap();
        assert_eq!(traffic.features.url_rewrite.hostname.as_deref(), Some(host));
    }
    let text = "_format_version: \"3.0\"\nservices: [{name: a, url: 'http://my_app', routes: [{name: a, paths: [/a]}]}]\n";
    let options = KongOptions { for_cluster: true, ..KongOptions::default() };
    let notes = convert(text, &options).notes;
    assert!(notes[0].1.message.contains("Kubernetes accepts in no Service"), "{notes:?}");
}

#[test]
fn routes_attach_to_an_existing_gateway() {
    let text = "_format_version: \"3.0\"\nservices: [{name: a, url: 'http://a.test', routes: [{name: a, paths: [/a], protocols: [https]}]}]\n";
    let options = KongOptions { has_gateway: true, ..KongOptions::default() };
    let converted = convert(text, &options);
    assert!(!converted.yaml.contains("kind: Gateway\nmetadata"), "{}", converted.yaml);
    assert!(converted.yaml.contains("port: 8443"), "{}", converted.yaml);
    assert_eq!(converted.notes, []);
}

#[test]
fn many_rules_of_a_route_become_several_objects() {
    let paths: Vec<String> = (0..40).map(|number| format!("/p{number}")).collect();
    let text = format!(
        "_format_version: \"3.0\"\nservices: [{{name: a, url: 'http://a.test/x', routes: [{{name: a, paths: [{}], methods: [GET, PUT, POST, PATCH]}}]}}]\n",
        paths.join(", ")
    );
    let yaml = convert(&text, &KongOptions::default()).yaml;
    for route in yaml.split("---\n").filter(|object| object.contains("kind: HTTPRoute")) {
        let (rules, matches) = (route.matches("matches:").count(), route.matches("method:").count());
        assert!(rules <= 16 && matches <= 128, "{rules} rules, {matches} matches");
    }
    let (config, problems) = served(&text);
    assert_eq!(problems, [""; 0]);
    assert!(paths.iter().all(|path| {
        let request = Request { method: "PATCH", ..Request::new("a.test", path) };
        chosen(&config, &request).is_some()
    }));
}

#[test]
fn redirect_has_the_location_of_the_plugin() {
    let text = "_format_version: \"3.0\"\nservices: [{name: a, url: 'http://a.test', routes: [{name: a, paths: [/a], \
        plugins: [{name: redirect, config: {status_code: 302, location: 'https://new.test:8443/b'}}]}]}]\n";
    let (config, problems) = served(text);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let redirect = rule(&config, "x.test", "/a").traffic.as_ref().unwrap().features.redirect.clone().unwrap();
    let shown = format!("{redirect:?}");
    for part in ["new.test", "8443", "302", "/b"] {
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn second_file_of_kong_is_an_error() {
    let text = |path: &str| {
        format!(
            "_format_version: \"3.0\"\nservices: [{{name: s{path}, url: 'http://a.test', routes: [{{name: r{path}, paths: [/{path}]}}]}}]\n"
        )
    };
    let mut store = Store::default();
    store.set_file(Path::new("a.yaml"), &text("a"));
    assert_eq!(store.problems().filter(|problem| problem.to_string().contains("second file")).count(), 0);
    store.set_file(Path::new("b.yaml"), &text("b"));
    let problems: Vec<String> = store.problems().map(|problem| problem.to_string()).collect();
    assert!(
        problems.iter().any(|problem| problem.contains("b.yaml:1: is a second file of Kong")),
        "{problems:?}"
    );
}

#[test]
fn limits_of_consumers_and_groups_apply_to_them_alone() {
    let file = |jwt: &str| {
        format!(
            "\
_format_version: \"3.0\"
services:
- {{name: s, url: 'http://s.test', routes: [{{name: a, paths: [/a]}}, {{name: b, paths: [/b]}}], plugins: [{{name: key-auth}}]}}
- {{name: open, url: 'http://o.test', routes: [{{name: o, paths: [/o]}}]}}
consumer_groups:
- {{name: gold, plugins: [{{name: rate-limiting, config: {{hour: 900}}}}]}}
consumers:
- username: ann
  keyauth_credentials: [{{key: a-long-secret-of-ann}}]
  plugins: [{{name: rate-limiting, config: {{minute: 5, hour: 50}}}}]
{jwt}- username: bob
  keyauth_credentials: [{{key: a-long-secret-of-bob}}]
  groups: [{{name: gold}}]
plugins:
- {{name: rate-limiting, consumer: ann, route: b, config: {{minute: 7}}}}
"
        )
    };
    let (config, problems) = served(&file(""));
    assert!(problems.iter().all(|problem| !problem.contains("not converted")), "{problems:?}");
    let limits = |path: &str| -> Vec<String> {
        let policy = rule(&config, "x.test", path).rate_limits.as_ref();
        let limits = policy.into_iter().flat_map(|policy| policy.limits.iter());
        limits.map(|of| format!("{} {:?}", of.requests.get(), &of.groups[..])).collect()
    };
    let gold = "900 [\"gold\"]";
    let ann = |requests: u32| format!("{requests} [\"rate-limiting.ann\"]");
    assert_eq!(limits("/a"), [gold.to_owned(), ann(5), ann(50)]);
    assert_eq!(limits("/b"), [gold.to_owned(), ann(7)]);
    assert_eq!(limits("/o"), [""; 0]);
    let groups = |name: &str| -> Vec<String> {
        let consumer = config.consumers.iter().find(|of| *of.id.name == *name).expect("a Consumer");
        consumer.groups.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        (groups("ann"), groups("bob")),
        (vec!["rate-limiting.ann".to_owned()], vec!["gold".to_owned()])
    );
    // A token names no consumer, so no limit could apply to it.
    let (config, problems) = served(&file("  jwt_secrets: [{key: ann, secret: a-long-secret-of-ann}]\n"));
    assert!(config.consumers.iter().all(|of| &*of.id.name != "ann"));
    assert!(problems.iter().any(|problem| problem.contains("its credentials are not valid")), "{problems:?}");
}
