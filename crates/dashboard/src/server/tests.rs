use std::fs::write;
use std::sync::Mutex;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, LOCATION, SET_COOKIE};
use serde_json::Value;
use sluicegate_admin::{Admin, Hosts, LastChange, Planes, Problems, Readiness};
use sluicegate_model::policy::{Consumer, KeyHash, Security};
use sluicegate_model::{
    Build, Config, HostPattern, ObjectId, PathPattern, Rule, UpstreamKey, VirtualHost, Visibility,
};
use sluicegate_proxy::registry::Registry;

use http_body_util::BodyExt as _;

pub(crate) use super::DashboardSite;
use super::*;
use crate::assets;
use crate::site::answer;
use crate::{
    Access, Api, Catalogue, Changes, Changing, Environment, History, Key, KeyChange, NewKey, Plan, Problem,
    Subscribed, Subscription, TokenFile,
};

struct Shop;

impl Catalogue for Shop {
    fn apis(&self) -> Vec<Api> {
        vec![Api {
            namespace: "shop".to_owned(),
            name: "orders".to_owned(),
            title: "Orders".to_owned(),
            version: "2".to_owned(),
            owner: Some("Team Checkout".to_owned()),
            state: "Published",
            deprecation: None,
            sunset: None,
            versioning: None,
            operations: 1,
            environments: [("production", "api.shop.test"), ("next", "*.next.test")]
                .map(|(name, host)| Environment {
                    name: name.to_owned(),
                    hosts: vec![host.to_owned()],
                    base_path: "/orders".to_owned(),
                    upstream: "shop/orders:http".to_owned(),
                    https: true,
                    has_own_document: name == "next",
                    operations: 1,
                })
                .into(),
            origin: None,
            visible_to: Visibility::Hidden,
        }]
    }

    fn plans(&self) -> Vec<Plan> {
        vec![Plan {
            namespace: "shop".to_owned(),
            name: "gold".to_owned(),
            title: "Gold".to_owned(),
            description: Some("For large shops".to_owned()),
            limits: Vec::new(),
            concurrency: Vec::new(),
            quotas: Vec::new(),
            needs_approval: true,
            origin: None,
            visible_to: Visibility::Hidden,
        }]
    }

    fn subscriptions(&self) -> Vec<Subscription> {
        vec![Subscription {
            namespace: "shop".to_owned(),
            name: "mobile-orders".to_owned(),
            consumer_namespace: "shop".to_owned(),
            consumer: "mobile".to_owned(),
            plan: "gold".to_owned(),
            apis: vec![Subscribed { name: "orders".to_owned(), operation_sets: None }],
            state: "Pending",
            message: "waits for approval".to_owned(),
            created: None,
            manager: None,
            origin: None,
        }]
    }

    fn consumers(&self) -> Vec<crate::Consumer> {
        let key = |name: &str, expires, is_revoked| Key {
            name: Some(name.to_owned()),
            expires,
            is_revoked,
            secret: None,
        };
        vec![crate::Consumer {
            namespace: "shop".to_owned(),
            name: "mobile".to_owned(),
            username: "mobile".to_owned(),
            keys: vec![key("first", None, true), key("old", Some(1), false), key("new", None, false)],
            origin: None,
        }]
    }

    fn document(&self, _: &str, name: &str, environment: &str) -> Option<Value> {
        (name == "orders").then(|| json!({"openapi": "3.1.0", "info": {"title": environment}}))
    }

    fn problems(&self) -> Vec<Problem> {
        let problem = |severity, message: &str| Problem {
            severity,
            place: Some("shop.yaml:7".to_owned()),
            object: Some("Ingress shop/web".to_owned()),
            field: "spec.rules".to_owned(),
            message: message.to_owned(),
        };
        vec![problem("error", "is wrong"), problem("warning", "is odd")]
    }
}

/// A configuration with many routes, a policy, and a consumer with a key.
fn config() -> Config {
    let id = |kind, name: &str| ObjectId { kind, namespace: "shop".into(), name: name.into() };
    let route = |index: usize| {
        let key = UpstreamKey::new("shop", "web", "http");
        let mut rule = Rule::new(id("Ingress", "web"), PathPattern::Prefix(format!("/{index}").into()), key);
        rule.security = (index == 7)
            .then(|| Arc::new(Security::closed(id("SecurityPolicy", "login"), "a Secret is missing".into())));
        rule
    };
    let host = HostPattern::Exact("shop.test".into());
    let consumer = Consumer {
        id: id("Consumer", "mobile"),
        username: "mobile".into(),
        groups: vec!["gold".into()],
        keys: vec![KeyHash([0xab; 32])],
        tokens: Vec::new(),
        users: vec!["ada".into()],
        refused: false,
        terms: Vec::new(),
    };
    Config {
        hosts: vec![Arc::new(VirtualHost::new(host, (0..1200).map(route).collect()))],
        consumers: vec![Arc::new(consumer)],
        upstreams: [(UpstreamKey::new("shop", "web", "http"), Arc::default())].into(),
        ..Config::default()
    }
}

/// Issues keys, and makes no other change.
struct Issuer {
    needs_token: bool,
    made: Mutex<Vec<(Change, Option<String>)>>,
}

impl Changes for Issuer {
    fn needs_token(&self) -> bool {
        self.needs_token
    }

    fn change(&self, change: Change, token: Option<String>) -> Changing {
        self.made.lock().expect("a lock").push((change.clone(), token));
        let result = match change {
            Change::Key { change: KeyChange::Issue { .. }, .. } => {
                Ok(Some(NewKey { name: "key-1".to_owned(), key: "sgk_secret".to_owned() }))
            }
            _ => Err(ChangeError {
                status: StatusCode::CONFLICT,
                message: "Not now.".to_owned(),
                is_private: false,
            }),
        };
        Box::pin(std::future::ready(result))
    }
}

/// A site with changes.
fn changing(access: Access, needs_token: bool) -> (DashboardSite, Arc<Issuer>) {
    let issuer = Arc::new(Issuer { needs_token, made: Mutex::default() });
    let mut site = site(access, Hosts::Any);
    site.dashboard.changes = Some(issuer.clone());
    (site, issuer)
}

pub(crate) fn site(access: Access, hosts: Hosts) -> DashboardSite {
    let registry = Registry::of_no_worker();
    registry.show(&sluicegate_model::Change::Config(Arc::new(config())));
    let admin = Admin {
        build: Build::PLAIN,
        analytics: None,
        audit: None,
        registry: registry.into(),
        readiness: Readiness::new(),
        pod: None,
        namespace: None,
        hosts: Hosts::Local(Vec::new()),
        last_change: LastChange::new(),
        problems: Arc::new(Problems::default),
        planes: Arc::new(Planes::default),
    };
    DashboardSite::new(Dashboard {
        admin,
        catalogue: Arc::new(Shop),
        is_control_plane: true,
        hosts,
        access,
        changes: None,
        history: Arc::new(History::default()),
    })
}

fn open() -> DashboardSite {
    site(Access::Open, Hosts::Local(Vec::new()))
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

async fn ask_with(site: &DashboardSite, method: &str, target: &str, lines: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method(method).uri(target);
    if lines.iter().all(|(name, _)| *name != "host") {
        request = request.header(HOST, "localhost:9903");
    }
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    let response = answer(site, &request.body(Bytes::new()).expect("a request")).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes().to_vec();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

async fn post(site: &DashboardSite, body: &str, lines: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method("POST").uri("/api/change");
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    let body = Bytes::copy_from_slice(body.as_bytes());
    let response = answer(site, &request.body(body).expect("a request")).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes().to_vec();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

async fn ask(site: &DashboardSite, target: &str) -> Answer {
    ask_with(site, "GET", target, &[]).await
}

#[tokio::test]
async fn every_response_has_the_headers_that_protect_a_page() {
    let site = open();
    for (target, status) in [
        ("/", 200),
        ("/routes", 200),
        ("/app/main.js", 200),
        ("/app/no.js", 404),
        ("/api/routes", 200),
        ("/api/no", 404),
        ("/api/routes?limit=0", 400),
    ] {
        let answer = ask(&site, target).await;
        assert_eq!(answer.status, status, "{target}");
        let policy = answer.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"),
            "{target} {policy}"
        );
        assert!(
            policy.contains("connect-src 'self'; ") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{target}");
        assert_eq!(answer.header("x-frame-options"), "DENY", "{target}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer", "{target}");
        assert!(answer.headers.get(SET_COOKIE).is_none() && answer.headers.get(LOCATION).is_none());
    }
}

#[tokio::test]
async fn page_of_an_api_may_connect_to_its_hosts_alone() {
    let site = open();
    let connect = "connect-src 'self' http://api.shop.test:* https://api.shop.test:* http://*.next.test:* https://*.next.test:*;";
    assert!(ask(&site, "/apis/shop/orders").await.header("content-security-policy").contains(connect));
    let other = ask(&site, "/apis/shop/other").await;
    assert!(other.header("content-security-policy").contains("connect-src 'self';"));
    let (_folder, access) = protected();
    let locked = ask(&self::site(access, Hosts::Any), "/apis/shop/orders").await;
    assert!(locked.header("content-security-policy").contains("connect-src 'self';"), "names need a login");
}

#[tokio::test]
async fn page_has_no_inline_script_and_no_inline_style() {
    let page = String::from_utf8(assets::page(SITE).bytes.to_vec()).expect("a text");
    for tag in page.split('<').skip(1) {
        assert!(!tag.starts_with("style"), "{tag}");
        assert!(!tag.starts_with("script") || tag.contains("src=\"/app/") && tag.ends_with('>'), "{tag}");
        assert!(!tag.contains(" style=") && !tag.contains(" onclick=") && !tag.contains("http"), "{tag}");
    }
}

#[tokio::test]
async fn unchanged_file_is_not_sent_again() {
    let site = open();
    for coding in ["identity", "br, gzip"] {
        let first = ask_with(&site, "GET", "/app/main.js", &[("accept-encoding", coding)]).await;
        assert_eq!(first.header("content-encoding"), if coding == "identity" { "" } else { "gzip" });
        let tag = first.header("etag").to_owned();
        let lines = [("accept-encoding", coding), ("if-none-match", &*tag)];
        let second = ask_with(&site, "GET", "/app/main.js", &lines).await;
        assert_eq!((second.status, second.body.len()), (304, 0), "{coding}");
    }
    let refused = ask_with(&site, "GET", "/app/main.js", &[("accept-encoding", "gzip;q=0")]).await;
    assert_eq!(refused.header("content-encoding"), "");
}

#[tokio::test]
async fn dashboard_accepts_only_get() {
    let site = open();
    for method in ["POST", "HEAD", "PUT", "DELETE", "OPTIONS"] {
        let answer = ask_with(&site, method, "/api/routes", &[]).await;
        assert_eq!((answer.status, answer.header("allow")), (405, "GET"), "{method}");
    }
}

#[tokio::test]
async fn requests_of_other_sites_are_denied() {
    let site = open();
    for (lines, status) in [
        (("host", "evil.test"), 403),
        (("host", "a b"), 400),
        (("sec-fetch-site", "cross-site"), 403),
        (("sec-fetch-site", "same-site"), 403),
        (("sec-fetch-site", "same-origin"), 200),
        (("sec-fetch-site", "none"), 200),
    ] {
        assert_eq!(ask_with(&site, "GET", "/api/routes", &[lines]).await.status, status, "{lines:?}");
    }
}

const TOKEN: &str = "a-token-of-16-bytes";
const BEARER: &str = "Bearer a-token-of-16-bytes";
const DOCUMENTS: [&str; 15] = [
    "plans",
    "subscriptions",
    "keys",
    "overview",
    "routes",
    "upstreams",
    "certificates",
    "policies",
    "consumers",
    "apis",
    "problems",
    "api?namespace=shop&name=orders",
    "explain?url=http://shop.test/7",
    "analytics",
    "audit",
];

fn protected() -> (tempfile::TempDir, Access) {
    protected_by(TOKEN)
}

fn protected_by(tokens: &str) -> (tempfile::TempDir, Access) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("token");
    write(&path, tokens).expect("a file");
    let file = TokenFile::open(&path, SITE).expect("a token");
    (folder, Access::Token(Arc::new(file)))
}

#[tokio::test]
async fn documents_need_a_login_and_pages_have_no_data() {
    let (_folder, access) = protected();
    let site = site(access, Hosts::Any);
    for document in DOCUMENTS {
        let answer = ask(&site, &format!("/api/{document}")).await;
        assert_eq!(answer.status, 401, "{document}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("shop"), "{document}");
    }
    assert_eq!(ask(&site, "/").await.body, ask(&site, "/apis/shop/orders").await.body);
    let session = ask(&site, "/api/session").await.json();
    assert_eq!((&session["login"], &session["protected"]), (&json!(true), &json!(true)));
    assert_eq!((&session["user"], &session["role"]), (&Value::Null, &Value::Null));
    let wrong = ask_with(&site, "GET", "/api/login", &[(AUTHORIZATION.as_str(), "Bearer wrong")]).await;
    assert_eq!((wrong.status, wrong.headers.get(SET_COOKIE)), (401, None));

    let login = ask_with(&site, "GET", "/api/login", &[(AUTHORIZATION.as_str(), BEARER)]).await;
    assert_eq!(login.status, 204);
    let cookie = login.header("set-cookie").to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    let session = cookie.split(';').next().unwrap_or_default();
    for document in DOCUMENTS {
        let answer = ask_with(&site, "GET", &format!("/api/{document}"), &[("cookie", session)]).await;
        assert_eq!(answer.status, 200, "{document}");
    }
    let by_token = ask_with(&site, "GET", "/api/routes", &[(AUTHORIZATION.as_str(), BEARER)]).await;
    assert_eq!(by_token.status, 200);
    assert!(ask(&site, "/api/logout").await.header("set-cookie").starts_with("sluicegate_session=;"));
}

#[tokio::test]
async fn guessed_tokens_are_bounded() {
    let (_folder, access) = protected();
    let site = site(access, Hosts::Any);
    let wrong = [(AUTHORIZATION.as_str(), "Bearer wrong")];
    let mut statuses = Vec::new();
    for nth in 0..14 {
        // A document counts like a login.
        let target = if nth % 2 == 0 { "/api/login" } else { "/api/routes" };
        statuses.push(ask_with(&site, "GET", target, &wrong).await.status);
    }
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 10, "{statuses:?}");
    let answer = ask_with(&site, "GET", "/api/login", &[(AUTHORIZATION.as_str(), BEARER)]).await;
    assert_eq!(answer.status, 429, "also with the right token");
    assert!(!answer.header("retry-after").is_empty());
}

#[tokio::test]
async fn lists_are_bounded_and_searched() {
    let site = open();
    let all = ask(&site, "/api/routes?limit=500").await.json();
    assert_eq!((&all["total"], all["items"].as_array().map(Vec::len)), (&json!(1200), Some(500)));
    assert_eq!(all["next"], 500);
    let last = ask(&site, "/api/routes?limit=500&after=1000").await.json();
    assert_eq!((last["items"].as_array().map(Vec::len), &last["next"]), (Some(200), &Value::Null));
    let found = ask(&site, "/api/routes?search=LOGIN").await.json();
    assert_eq!((&found["total"], &found["items"][0]["path"]), (&json!(1), &json!("/7")));
    for query in ["limit=501", "limit=x", "after=-1", "sort=host"] {
        assert_eq!(ask(&site, &format!("/api/routes?{query}")).await.status, 400, "{query}");
    }
    assert_eq!(ask(&site, "/api/problems?search=odd").await.json()["total"], 1);
    assert_eq!(ask(&site, "/api/apis?search=checkout").await.json()["total"], 1);
    assert_eq!(ask(&site, "/api/apis?search=nothing").await.json()["total"], 0);
}

#[tokio::test]
async fn consumers_are_shown_without_keys_and_hashes() {
    let site = open();
    let answer = ask(&site, "/api/consumers").await;
    let consumer = &answer.json()["items"][0];
    assert_eq!((&consumer["api_keys"], &consumer["basic_users"]), (&json!(1), &json!(1)));
    let text = String::from_utf8_lossy(&answer.body).to_lowercase();
    assert!(!text.contains("abab") && !text.contains("171,171") && !text.contains("hash"), "{text}");
}

#[tokio::test]
async fn policy_is_shown_with_its_routes_and_its_fault() {
    let policies = ask(&open(), "/api/policies").await.json();
    let policy = &policies["items"][0];
    assert_eq!(policy["policy"], "SecurityPolicy shop/login");
    assert_eq!((&policy["routes"], &policy["closed"]), (&json!(1), &json!("a Secret is missing")));
    assert_eq!(policy["objects"], json!(["Ingress shop/web"]));
}

#[tokio::test]
async fn explanation_comes_from_the_routing_table() {
    let site = open();
    let closed = ask(&site, "/api/explain?url=http://shop.test/7/a").await.json();
    assert_eq!((&closed["outcome"], &closed["status"]), (&json!("responds"), &json!(503)));
    let missing = ask(&site, "/api/explain?url=http://other.test/7").await.json();
    assert_eq!((&missing["outcome"], &missing["status"]), (&json!("no_route"), &json!(404)));
    assert_eq!(ask(&site, "/api/explain?url=shop.test").await.status, 400);
}

#[tokio::test]
async fn api_is_shown_with_the_document_of_an_environment() {
    let site = open();
    for (query, environment) in [("", "production"), ("&environment=next", "next")] {
        let api = ask(&site, &format!("/api/api?namespace=shop&name=orders{query}")).await.json();
        assert_eq!(api["api"]["title"], "Orders");
        assert_eq!(
            (&api["environment"], &api["document"]["info"]["title"]),
            (&json!(environment), &json!(environment))
        );
    }
    assert_eq!(ask(&site, "/api/api?namespace=shop&name=orders&environment=none").await.status, 404);
    assert_eq!(ask(&site, "/api/api?namespace=shop&name=none").await.status, 404);
}

#[tokio::test]
async fn control_plane_shows_the_configuration_without_a_live_state() {
    let site = open();
    let upstreams = ask(&site, "/api/upstreams").await.json();
    assert_eq!(upstreams["items"][0]["state"]["upstream"], "shop/web:http");
    let overview = ask(&site, "/api/overview").await.json();
    assert_eq!((&overview["serves"], &overview["served"]["routes"]), (&json!(false), &json!(1200)));
}

#[tokio::test]
async fn long_documents_are_compressed() {
    let site = open();
    let plain = ask(&site, "/api/routes").await;
    let packed = ask_with(&site, "GET", "/api/routes", &[("accept-encoding", "gzip")]).await;
    assert_eq!((plain.header("content-encoding"), packed.header("content-encoding")), ("", "gzip"));
    assert!(packed.body.len() * 5 < plain.body.len());
}

const USERS: &str = "users:
- {name: ada, role: operator, token: a-token-of-16-bytes}
- {name: bob, token: b-token-of-16-bytes}
";

const ISSUE: &str = r#"{"change": "issue", "consumer": "shop/mobile"}"#;

/// The headers that a page of the dashboard sends with a change.
const OF_PAGE: [(&str, &str); 4] = [
    ("host", "dashboard.test:9903"),
    ("origin", "http://dashboard.test:9903"),
    ("content-type", "application/json"),
    ("x-sluicegate-change", "1"),
];

#[tokio::test]
async fn operator_issues_a_key_that_is_shown_once() {
    let (_folder, access) = protected_by(USERS);
    let (site, issuer) = changing(access, false);
    let login = ask_with(&site, "GET", "/api/login", &[(AUTHORIZATION.as_str(), BEARER)]).await;
    let cookie = login.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
    let answer = post(&site, ISSUE, &[&OF_PAGE[..], &[("cookie", &cookie)]].concat()).await;
    assert_eq!((answer.status, answer.header("cache-control")), (200, "no-store"));
    assert_eq!(answer.json(), json!({"key": {"name": "key-1", "value": "sgk_secret"}}));
    assert_eq!(issuer.made.lock().expect("a lock").len(), 1);
    let session = ask_with(&site, "GET", "/api/session", &[("cookie", &cookie)]).await.json();
    assert_eq!(
        (&session["user"], &session["role"], &session["changes"]),
        (&json!("ada"), &json!("operator"), &json!(true))
    );
    let suspend = r#"{"change": "suspend", "subscription": "shop/mobile-orders"}"#;
    let refused = post(&site, suspend, &[&OF_PAGE[..], &[("cookie", &cookie)]].concat()).await;
    assert_eq!((refused.status, &refused.json()["error"]), (409, &json!("Not now.")));
    let wrong = post(&site, "{}", &[&OF_PAGE[..], &[("cookie", &cookie)]].concat()).await;
    assert_eq!(wrong.status, 400);
}

#[tokio::test]
async fn only_operators_change_objects() {
    let (_folder, access) = protected_by(USERS);
    let (site, issuer) = changing(access, false);
    let viewer = [("authorization", "Bearer b-token-of-16-bytes")];
    assert_eq!(post(&site, ISSUE, &[&OF_PAGE[..], &viewer].concat()).await.status, 403);
    assert_eq!(post(&site, ISSUE, &OF_PAGE).await.status, 401);
    let session = ask_with(&site, "GET", "/api/session", &viewer).await.json();
    assert_eq!((&session["role"], &session["changes"]), (&json!("viewer"), &json!(false)));
    assert!(issuer.made.lock().expect("a lock").is_empty());
}

#[tokio::test]
async fn dashboard_without_changes_changes_nothing() {
    let (_folder, access) = protected_by(USERS);
    let site = site(access, Hosts::Any);
    let answer = post(&site, ISSUE, &[&OF_PAGE[..], &[("authorization", BEARER)]].concat()).await;
    assert_eq!(answer.status, 405);
    let session = ask_with(&site, "GET", "/api/session", &[("authorization", BEARER)]).await.json();
    assert_eq!(session["changes"], false);
}

#[tokio::test]
async fn page_of_another_site_cannot_change_objects() {
    let (_folder, access) = protected_by(USERS);
    let (site, issuer) = changing(access, false);
    let login = ask_with(&site, "GET", "/api/login", &[(AUTHORIZATION.as_str(), BEARER)]).await;
    let cookie = login.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
    let own = [&OF_PAGE[..], &[("cookie", &cookie)]].concat();
    let without = |name: &str| own.iter().copied().filter(|(of, _)| *of != name).collect::<Vec<_>>();
    let with = |name: &'static str, value: &'static str| [&without(name)[..], &[(name, value)]].concat();
    for (lines, status) in [
        (with("origin", "https://evil.test"), 403),
        (with("origin", "http://dashboard.test"), 403),
        (with("origin", "null"), 403),
        (with("sec-fetch-site", "cross-site"), 403),
        (with("sec-fetch-site", "same-site"), 403),
        (with("content-type", "text/plain"), 415),
        (without("origin"), 403),
        (without("content-type"), 415),
        (without("x-sluicegate-change"), 403),
    ] {
        assert_eq!(post(&site, ISSUE, &lines).await.status, status, "{lines:?}");
    }
    assert!(issuer.made.lock().expect("a lock").is_empty());
    assert_eq!(post(&site, ISSUE, &own).await.status, 200);
    assert_eq!(
        post(&site, ISSUE, &with("origin", "https://dashboard.test:9903")).await.status,
        200,
        "behind HTTPS"
    );
}

#[tokio::test]
async fn change_in_a_cluster_has_the_token_of_the_user() {
    let (_folder, access) = protected_by(USERS);
    let (site, issuer) = changing(access, true);
    let operator = [&OF_PAGE[..], &[("authorization", BEARER)]].concat();
    assert_eq!(post(&site, ISSUE, &operator).await.status, 400);
    assert!(issuer.made.lock().expect("a lock").is_empty());
    let answer = post(&site, ISSUE, &[&operator[..], &[("x-kubernetes-token", "of-ada")]].concat()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(issuer.made.lock().expect("a lock")[0].1.as_deref(), Some("of-ada"));
}

#[tokio::test]
async fn keys_plans_and_subscriptions_are_listed_and_searched() {
    let site = open();
    let keys = ask(&site, "/api/keys").await.json();
    let states: Vec<&Value> =
        keys["items"].as_array().expect("keys").iter().map(|key| &key["state"]).collect();
    assert_eq!(states, ["Revoked", "Expired", "Valid"]);
    assert_eq!(ask(&site, "/api/keys?search=old+mobile").await.json()["total"], 1);
    let plan = &ask(&site, "/api/plans?search=large").await.json()["items"][0];
    assert_eq!((&plan["title"], &plan["subscriptions"]), (&json!("Gold"), &json!(1)));
    let of = &ask(&site, "/api/subscriptions?search=pending").await.json()["items"][0];
    assert_eq!((&of["consumer"], &of["message"]), (&json!("mobile"), &json!("waits for approval")));
    assert_eq!(ask(&site, "/api/subscriptions?limit=501").await.status, 400);
}
