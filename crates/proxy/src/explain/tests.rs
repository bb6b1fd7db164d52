//! Tests of explanations.

use std::sync::Arc;

use sluicegate_model::policy::Security;
use sluicegate_model::rule::HeaderMatch;
use sluicegate_model::rule::{PathMatch, RuleMatch, ValueMatch};
use sluicegate_model::{
    AcmeHost, Change, Conditions, Config, Endpoint, EntryPoint, HostPattern, Listener, ListenerId, ObjectId,
    PathPattern, Planes, ProxyHeader, Serves, Upstream, UpstreamKey, VirtualHost,
};

use super::*;

fn id(kind: &'static str, name: &str) -> ObjectId {
    ObjectId { kind, namespace: "shop".into(), name: name.into() }
}

fn key(name: &str) -> UpstreamKey {
    UpstreamKey::new("shop", name, "80")
}

fn rule(name: &str, path: &str) -> Rule {
    Rule::new(id("Ingress", name), PathPattern::Prefix(path.into()), key(name))
}

fn registry(hosts: Vec<VirtualHost>) -> Registry {
    let endpoint = Endpoint { address: ([192, 0, 2, 1], 80).into(), conditions: Conditions::READY };
    let upstream = Arc::new(Upstream { endpoints: [endpoint].into(), ..Upstream::default() });
    let config = Config {
        hosts: hosts.into_iter().map(Arc::new).collect(),
        upstreams: [(key("web"), upstream)].into(),
        ..Config::default()
    };
    let registry = Registry::of_no_worker();
    registry.show(&Change::Config(config.into()));
    registry
}

fn host(name: &str, rules: Vec<Rule>) -> VirtualHost {
    VirtualHost::new(HostPattern::Exact(name.into()), rules)
}

fn explained(registry: &Registry, method: &str, url: &str, headers: &[&str]) -> Explanation {
    let described = Described::new(method, url, headers.iter().copied()).expect("a request");
    registry.explain(&described).expect("a configuration")
}

#[test]
fn forwarded_request_names_route_and_upstream() {
    let registry = registry(vec![host("shop.test", vec![rule("web", "/"), rule("cart", "/cart")])]);
    let found = explained(&registry, "GET", "http://SHOP.test:8080/a/../b?c=d", &[]);
    assert_eq!((found.outcome, found.status, &*found.path), (Outcome::Forwards, None, "/b"));
    let route = found.route.expect("a route");
    assert_eq!((&*route.from, &*route.path, route.upstreams[0].ready), ("Ingress shop/web", "/", 1));
    let cart = explained(&registry, "GET", "http://shop.test/cart/1", &[]);
    assert_eq!((cart.outcome, cart.status), (Outcome::Responds, Some(503)));
    assert_eq!(cart.reason.as_deref(), Some("no_endpoint"));
    assert!(cart.because.contains("no ready endpoint"), "{}", cart.because);
    let before = cart.precedence.expect("another match");
    assert_eq!((&*before.over, &*before.path), ("Ingress shop/web", "/"));
    assert!(before.because.starts_with("A longer path comes before a shorter path"), "{}", before.because);
    let near: Vec<_> = cart.hosts[0].near.iter().map(|near| (&*near.path, near.selected)).collect();
    assert_eq!(near, [("/cart", true), ("/", false)]);
}

#[test]
fn challenge_of_an_acme_server_is_answered_by_the_gateway_over_plain_http() {
    let registry = registry(vec![host("shop.test", vec![rule("web", "/")])]);
    let mut config = Config::clone(&registry.config().expect("a configuration"));
    let managed = AcmeHost { host: "shop.test".into(), thumbprint: "thumb".into(), challenge: None };
    Arc::make_mut(&mut config.tls).acme.push(Arc::new(managed));
    registry.show(&Change::Config(config.into()));
    let url = |scheme: &str| format!("{scheme}://shop.test/.well-known/acme-challenge/{}", "x".repeat(43));
    let found = explained(&registry, "GET", &url("http"), &[]);
    assert_eq!((found.outcome, found.status), (Outcome::Responds, Some(200)));
    assert!(found.because.contains("ACME"), "{}", found.because);
    for (method, scheme) in [("POST", "http"), ("GET", "https")] {
        assert_eq!(
            explained(&registry, method, &url(scheme), &[]).outcome,
            Outcome::Forwards,
            "{method} {scheme}"
        );
    }
}

#[test]
fn missing_route_is_explained_by_host_path_or_condition() {
    let mut versioned = rule("web", "/v");
    versioned.matches[0].method = Some("POST".into());
    let value = ValueMatch::Exact("2".into());
    versioned.matches[0].headers.push(HeaderMatch { name: "x-version".into(), value });
    let registry = registry(vec![host("shop.test", vec![versioned])]);
    for (method, url, because) in [
        ("GET", "http://other.test/", "No route has the host \"other.test\""),
        ("GET", "http://shop.test/a", "The host shop.test has 1 match, and none matches the path /a."),
        (
            "GET",
            "http://shop.test/v",
            "does not meet a condition: method is POST, header x-version is \"2\".",
        ),
    ] {
        let found = explained(&registry, method, url, &[]);
        assert_eq!((found.outcome, found.status), (Outcome::NoRoute, Some(404)), "{url}");
        assert!(found.because.contains(because), "{}", found.because);
    }
    let found = explained(&registry, "POST", "http://shop.test/v", &["X-Version: 2"]);
    assert_eq!(found.outcome, Outcome::Forwards);
    assert_eq!(found.route.expect("a route").conditions.len(), 2);
}

#[test]
fn request_that_the_gateway_rejects_is_rejected_here_too() {
    let registry = registry(vec![host("shop.test", vec![rule("web", "/")])]);
    for (method, url) in [
        ("CONNECT", "http://shop.test/"),
        ("get", "http://shop.test/"),
        ("GET", "http://shop.test/%zz"),
        ("GET", "http://shop.test/a/%2e%2e%2f"),
        ("GET", "http://shop_test|/"),
    ] {
        let found = explained(&registry, method, url, &[]);
        assert_eq!(found.outcome, Outcome::Rejected, "{method} {url} {}", found.because);
        assert!(found.status.is_some_and(|status| status >= 400));
    }
}

#[test]
fn closed_route_and_redirect_are_explained() {
    let mut closed = rule("web", "/closed");
    closed.security = Some(Security::closed(id("SecurityPolicy", "login"), "no keys".into()).into());
    let mut secure = rule("web", "/secure");
    secure.https_only = true;
    let registry = registry(vec![host("shop.test", vec![closed, secure])]);
    let found = explained(&registry, "GET", "http://shop.test/closed", &[]);
    assert_eq!((found.outcome, found.status), (Outcome::Responds, Some(503)));
    assert!(found.because.contains("SecurityPolicy shop/login is invalid"), "{}", found.because);
    let found = explained(&registry, "GET", "http://shop.test/secure", &[]);
    assert_eq!((found.outcome, found.status), (Outcome::Responds, Some(308)));
    assert_eq!(explained(&registry, "GET", "https://shop.test/secure", &[]).outcome, Outcome::Forwards);
}

#[test]
fn listener_of_a_gateway_is_found_by_its_port_or_its_hosts() {
    let name: Arc<str> = "192.0.2.9:8443".into();
    let mut of_gateway = host("shop.test", vec![rule("web", "/")]);
    of_gateway.entry_point = EntryPoint::Gateway(name.clone());
    let listener = Listener {
        id: ListenerId { object: id("Gateway", "edge"), name: "https".into() },
        address: ([192, 0, 2, 9], 8443).into(),
        serves: Serves::Https(name),
        planes: Planes::default(),
        proxy_header: ProxyHeader::default(),
        client_port: None,
    };
    let config = Config {
        hosts: vec![of_gateway.into(), host("other.test", vec![rule("web", "/")]).into()],
        listeners: vec![listener],
        ..Config::default()
    };
    let registry = Registry::of_no_worker();
    registry.show(&Change::Config(config.into()));
    for (url, listener) in [
        ("https://shop.test:8443/", "192.0.2.9:8443"),
        ("https://shop.test/", "192.0.2.9:8443"),
        ("https://other.test/", "https"),
    ] {
        let found = explained(&registry, "GET", url, &[]);
        assert_eq!((found.status, &*found.listener), (Some(503), listener), "{url}");
    }
    for url in ["http://shop.test/", "https://other.test:8443/"] {
        assert_eq!(explained(&registry, "GET", url, &[]).outcome, Outcome::NoRoute, "{url}");
    }
}

#[test]
fn text_that_describes_no_request_is_an_error() {
    for (method, url, header) in [
        ("GET", "shop.test/a", "A: b"),
        ("GET", "ftp://shop.test/", "A: b"),
        ("GET", "http:///a", "A: b"),
        ("GET", "http://a@shop.test/", "A: b"),
        ("GET", "http://shop.test/a b", "A: b"),
        ("GET", "http://shop.test/\r\nA: b", "A: b"),
        ("G T", "http://shop.test/", "A: b"),
        ("GET", "http://shop.test/", "A"),
        ("GET", "http://shop.test/", "A: b\r\nC: d"),
    ] {
        assert!(Described::new(method, url, [header]).is_err(), "{method} {url} {header}");
    }
    let long = format!("http://shop.test/{}", "a".repeat(DESCRIPTION_MAX));
    assert_eq!(Described::new("GET", &long, []), Err(DescriptionError::TooLong));
}

#[test]
fn template_and_regular_expression_are_candidates() {
    let mut regex = rule("web", "/");
    let pattern = sluicegate_model::rule::Pattern::new("^/i/[0-9]+$", false).expect("a pattern");
    regex.matches = vec![RuleMatch::new(PathMatch::Regex(pattern), None, Vec::new(), Vec::new())];
    let registry = registry(vec![host("shop.test", vec![regex, rule("web", "/i")])]);
    let found = explained(&registry, "GET", "http://shop.test/i/42", &[]);
    let near: Vec<_> = found.hosts[0].near.iter().map(|near| (&*near.path_type, near.selected)).collect();
    assert_eq!(near, [("RegularExpression", true), ("Prefix", false)]);
}
