use std::fs::write;
use std::sync::Mutex;

use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use sluicegate_admin::{Admin, LastChange, Planes, Problems, Readiness};
use sluicegate_model::{Build, Visibility};
use sluicegate_proxy::registry::Registry;

pub(crate) use super::site::PortalSite;
use super::*;
use crate::access::SiteKind;
use crate::catalogue::{Api, Consumer, Environment, Key, Plan, Problem, Subscribed, Subscription};
use crate::changes::{Change, ChangeError, Changing, NewKey};
use crate::site::answer;

/// The visitors of each Api and Plan, whose name tells who sees it.
fn visible_to(name: &str) -> Visibility {
    match name.split('-').next() {
        Some("public") => Visibility::Public,
        Some("gold") => Visibility::Groups(vec!["gold".into()]),
        Some("staff") => Visibility::Groups(vec!["staff".into()]),
        _ => Visibility::Hidden,
    }
}

struct Shop;

impl Catalogue for Shop {
    fn apis(&self) -> Vec<Api> {
        let api = |name: &str, state| Api {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            title: format!("Title of {name}"),
            version: "1".to_owned(),
            owner: None,
            state,
            deprecation: None,
            sunset: None,
            versioning: None,
            operations: 1,
            environments: vec![Environment {
                name: "production".to_owned(),
                hosts: vec![format!("{name}.test")],
                base_path: String::new(),
                upstream: "secret-upstream".to_owned(),
                https: true,
                has_own_document: false,
                operations: 1,
            }],
            origin: Some("secret-file.yaml:1".to_owned()),
            visible_to: visible_to(name),
        };
        ["public-pets", "gold-orders", "staff-admin", "hidden-internal"]
            .map(|name| api(name, "Published"))
            .into_iter()
            .chain([api("gold-old", "Deprecated")])
            .collect()
    }

    fn document(&self, _: &str, name: &str, _: &str) -> Option<Value> {
        Some(json!({"info": {"title": format!("Document of {name}")}}))
    }

    fn plans(&self) -> Vec<Plan> {
        let plan = |namespace: &str, name: &str| Plan {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            title: format!("Plan {name}"),
            description: None,
            limits: Vec::new(),
            concurrency: Vec::new(),
            quotas: vec![
                serde_json::from_value(json!({"name": "month", "requests": 10, "calendar": "Month"}))
                    .expect("a quota"),
            ],
            needs_approval: true,
            origin: Some("secret-file.yaml:2".to_owned()),
            visible_to: visible_to(name),
        };
        vec![
            plan("shop", "gold-plan"),
            plan("shop", "staff-plan"),
            plan("shop", "hidden-plan"),
            plan("other", "gold-other"),
        ]
    }

    fn subscriptions(&self) -> Vec<Subscription> {
        let of = |name: &str, consumer: &str, api: &str| Subscription {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            consumer_namespace: "apps".to_owned(),
            consumer: consumer.to_owned(),
            plan: "gold-plan".to_owned(),
            apis: vec![Subscribed { name: api.to_owned(), operation_sets: None }],
            state: "Active",
            message: "secret-message".to_owned(),
            created: None,
            manager: None,
            origin: Some("secret-file.yaml:3".to_owned()),
        };
        let decided = |state| Subscription { state, ..of(&state.to_lowercase(), "new", "gold-orders") };
        vec![
            of("bob-pets", "bob", "public-pets"),
            of("eve-orders", "eve", "gold-orders"),
            decided("Rejected"),
            decided("Suspended"),
            decided("Pending"),
            Subscription { manager: Some("Flux".to_owned()), ..of("managed", "new", "gold-orders") },
        ]
    }

    fn consumers(&self) -> Vec<Consumer> {
        let key = |name: &str, secret: Option<&str>| Key {
            name: Some(name.to_owned()),
            expires: None,
            is_revoked: false,
            secret: secret.map(str::to_owned),
        };
        let consumer = |name: &str, keys| Consumer {
            namespace: "apps".to_owned(),
            name: name.to_owned(),
            username: name.to_owned(),
            keys,
            origin: Some("secret-file.yaml:4".to_owned()),
        };
        vec![
            consumer("bob", vec![key("key-of-bob", None), key("in-secret", Some("secret-of-bob"))]),
            consumer("eve", vec![key("key-of-eve", None)]),
        ]
    }

    fn problems(&self) -> Vec<Problem> {
        Vec::new()
    }
}

/// Records changes.
#[derive(Default)]
struct Recorder {
    made: Mutex<Vec<Change>>,
    fails: bool,
}

impl Changes for Recorder {
    fn needs_token(&self) -> bool {
        false
    }

    fn change(&self, change: Change, token: Option<String>) -> Changing {
        assert_eq!(token, None);
        let is_key = matches!(change, Change::Key { .. });
        self.made.lock().expect("a lock").push(change);
        let error = ChangeError {
            status: StatusCode::FORBIDDEN,
            message: "secret-file.yaml is not writable".to_owned(),
            is_private: true,
        };
        let key = is_key.then(|| NewKey { name: "key-1".to_owned(), key: "sgk_new".to_owned() });
        Box::pin(std::future::ready(if self.fails { Err(error) } else { Ok(key) }))
    }
}

struct NoQuotas;

impl Quotas for NoQuotas {
    fn of(&self, subscription: &Name, _: &[Quota]) -> Option<Vec<QuotaUsage>> {
        Some(vec![QuotaUsage { quota: "month".to_owned(), used: subscription.name.len() as u64, end: 100 }])
    }
}

const USERS: &str = "users:
- {name: bob, groups: [gold], consumers: [apps/bob], token: token-of-bob-0123456}
- {name: eve, groups: [staff], consumers: [apps/eve], token: token-of-eve-0123456}
- {name: new, groups: [gold], token: token-of-new-0123456}
- {name: pat, consumers: [apps/new], token: token-of-pat-0123456}
";

struct Fixture {
    site: PortalSite,
    recorder: Arc<Recorder>,
    _folder: tempfile::TempDir,
}

fn fixture(fails: bool) -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users.yaml");
    write(&path, USERS).expect("a file");
    let recorder = Arc::new(Recorder { fails, ..Recorder::default() });
    let users = TokenFile::open(&path, SiteKind::Portal).expect("users");
    Fixture { site: portal_site(users, recorder.clone()), recorder, _folder: folder }
}

/// A portal with these users.
pub(crate) fn site(users: TokenFile) -> PortalSite {
    portal_site(users, Arc::default())
}

fn portal_site(users: TokenFile, changes: Arc<Recorder>) -> PortalSite {
    let admin = Admin {
        build: Build::PLAIN,
        analytics: None,
        audit: None,
        registry: Registry::of_no_worker().into(),
        readiness: Readiness::new(),
        pod: None,
        namespace: None,
        hosts: Hosts::Local(Vec::new()),
        last_change: LastChange::new(),
        problems: Arc::new(Problems::default),
        planes: Arc::new(Planes::default),
    };
    PortalSite::new(Portal {
        admin,
        catalogue: Arc::new(Shop),
        hosts: Hosts::Local(vec!["portal.test".to_owned()]),
        users: Some(Arc::new(users)),
        changes,
        quotas: Arc::new(NoQuotas),
    })
}

struct Answer {
    status: u16,
    policy: String,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).expect("JSON")
    }

    /// The names of the items.
    fn names(&self) -> Vec<String> {
        let document = self.json();
        let items = document["items"].as_array().expect("items").iter();
        items.map(|item| item["name"].as_str().expect("a name").to_owned()).collect()
    }
}

impl Fixture {
    async fn ask(&self, method: &str, target: &str, user: Option<&str>, body: &str) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header("host", "localhost:9904")
            .header("origin", "http://localhost:9904")
            .header("content-type", "application/json")
            .header("x-sluicegate-change", "1");
        if let Some(user) = user {
            request = request.header("authorization", format!("Bearer token-of-{user}-0123456"));
        }
        let request = request.body(Bytes::copy_from_slice(body.as_bytes())).expect("a request");
        let (parts, body) = answer(&self.site, &request).await.into_parts();
        let policy = parts.headers["content-security-policy"].to_str().expect("a policy").to_owned();
        let body = body.collect().await.expect("a body").to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        Answer { status: parts.status.as_u16(), policy, text }
    }

    async fn get(&self, target: &str, user: Option<&str>) -> Answer {
        self.ask("GET", target, user, "").await
    }

    async fn change(&self, user: Option<&str>, change: Value) -> Answer {
        self.ask("POST", "/api/change", user, &change.to_string()).await
    }

    fn made(&self) -> usize {
        self.recorder.made.lock().expect("a lock").len()
    }
}

#[tokio::test]
async fn visitor_sees_only_the_apis_of_the_own_groups() {
    let portal = fixture(false);
    for (user, apis) in [
        (None, &["public-pets"][..]),
        (Some("bob"), &["public-pets", "gold-orders", "gold-old"]),
        (Some("eve"), &["public-pets", "staff-admin"]),
    ] {
        let answer = portal.get("/api/apis", user).await;
        assert_eq!(answer.names(), apis, "{user:?}");
        assert_eq!(answer.json()["total"], apis.len(), "the number counts no hidden API");
        for name in ["public-pets", "gold-orders", "staff-admin", "hidden-internal", "gold-old"] {
            let is_visible = apis.contains(&name);
            let api = portal.get(&format!("/api/api?namespace=shop&name={name}"), user).await;
            assert_eq!(api.status, if is_visible { 200 } else { 404 }, "{user:?} {name}");
            assert_eq!(api.text.contains("Document of"), is_visible, "{user:?} {name}");
            let page = portal.get(&format!("/apis/shop/{name}"), user).await;
            assert_eq!(page.policy.contains(&format!("{name}.test")), is_visible, "{user:?} {name}");
            let search = portal.get(&format!("/api/apis?search={name}"), user).await;
            assert_eq!(search.json()["total"] == 1, is_visible, "{user:?} {name}");
        }
    }
}

#[tokio::test]
async fn response_about_a_hidden_api_is_that_of_a_missing_api() {
    let portal = fixture(false);
    let hidden = portal.get("/api/api?namespace=shop&name=staff-admin", Some("bob")).await;
    let missing = portal.get("/api/api?namespace=shop&name=staff-other", Some("bob")).await;
    assert_eq!((hidden.status, missing.status), (404, 404));
    assert_eq!(hidden.text.replace("staff-admin", "staff-other"), missing.text);
}

#[tokio::test]
async fn no_document_has_facts_of_the_operator() {
    let portal = fixture(false);
    for target in [
        "/api/apis",
        "/api/api?namespace=shop&name=gold-orders",
        "/api/plans?namespace=shop",
        "/api/subscriptions",
        "/api/keys",
    ] {
        let answer = portal.get(target, Some("bob")).await;
        assert_eq!(answer.status, 200, "{target}");
        assert!(!answer.text.contains("secret-"), "{target} {}", answer.text);
    }
}

#[tokio::test]
async fn user_sees_only_the_objects_of_the_own_consumers() {
    let portal = fixture(false);
    for (user, key, subscription, used) in
        [("bob", "key-of-bob", "bob-pets", 8), ("eve", "key-of-eve", "eve-orders", 10)]
    {
        assert_eq!(portal.get("/api/keys", Some(user)).await.names(), [key]);
        let subscriptions = portal.get("/api/subscriptions", Some(user)).await;
        assert_eq!(subscriptions.names(), [subscription]);
        let quota = &subscriptions.json()["items"][0]["quotas"][0];
        assert_eq!((&quota["used"], &quota["most"]), (&json!(used), &json!(10)));
    }
    // A subscription shows the title of an Api only to users that see the Api.
    let of_eve = portal.get("/api/subscriptions", Some("eve")).await.json();
    assert_eq!(of_eve["items"][0]["apis"][0]["title"], Value::Null);
    assert_eq!(portal.get("/api/keys", Some("new")).await.json()["total"], 0);
    for target in ["/api/keys?search=eve", "/api/subscriptions?search=eve"] {
        assert_eq!(portal.get(target, Some("bob")).await.json()["total"], 0, "{target}");
    }
}

#[tokio::test]
async fn own_objects_need_a_login() {
    let portal = fixture(false);
    for target in ["keys", "subscriptions", "usage?consumer=apps/bob&since=24h", "other"] {
        assert_eq!(portal.get(&format!("/api/{target}"), None).await.status, 401, "{target}");
    }
    let change = json!({"change": "issue", "consumer": "apps/bob"});
    assert_eq!(portal.change(None, change).await.status, 401);
    assert_eq!(portal.get("/api/apis", Some("other")).await.status, 401, "a wrong token is no visitor");
    let session = portal.get("/api/session", None).await.json();
    let expected = json!({"user": null, "consumers": [], "can_log_in": true, "openid": null, "tokens": true});
    assert_eq!(session, expected);
}

#[tokio::test]
async fn usage_is_of_an_own_consumer() {
    let portal = fixture(false);
    let usage = async |user, query: &str| portal.get(&format!("/api/usage?{query}"), Some(user)).await;
    assert_eq!(usage("bob", "consumer=apps/bob&since=24h").await.text, r#"{"off":true}"#);
    for (query, status) in [
        ("consumer=apps/eve&since=24h", 404),
        ("consumer=apps/nobody&since=24h", 404),
        ("consumer=&since=24h", 404),
        ("since=24h", 404),
        ("consumer=apps/bob&since=10y", 400),
        ("consumer=apps/eve&consumer=apps/bob&since=24h", 404),
    ] {
        assert_eq!(usage("bob", query).await.status, status, "{query}");
    }
    let data = data::Data(portal.site.portal().clone());
    let bob = crate::User {
        consumers: vec![Name { namespace: "apps".to_owned(), name: "bob".to_owned() }],
        ..crate::User::default()
    };
    let query = data
        .usage_query(&bob, "consumer=apps/bob&since=7d&where=consumer:apps/eve&by=consumer")
        .expect("a query");
    assert_eq!(query, "since=7d&step=21600&by=api&limit=50&where=consumer%3Aapps%2Fbob");
}

#[tokio::test]
async fn user_changes_only_keys_of_the_own_consumers() {
    let portal = fixture(false);
    let own = portal.change(Some("bob"), json!({"change": "issue", "consumer": "apps/bob"})).await;
    assert_eq!((own.status, &own.json()["key"]["value"]), (200, &json!("sgk_new")));
    assert_eq!(portal.made(), 1);
    for change in ["issue", "rotate", "revoke", "remove"] {
        let mut written = json!({"change": change, "consumer": "apps/eve"});
        if change != "issue" {
            written["key"] = "key-of-eve".into();
        }
        let answer = portal.change(Some("bob"), written).await;
        assert_eq!(
            (answer.status, &*answer.text),
            (404, r#"{"error":"There is no Consumer apps/eve."}"#),
            "{change}"
        );
    }
    for decision in ["approve", "reject", "suspend", "resume"] {
        let written = json!({"change": decision, "subscription": "shop/bob-pets"});
        assert_eq!(portal.change(Some("bob"), written).await.status, 403, "{decision}");
    }
    assert_eq!(portal.made(), 1);
}

#[tokio::test]
async fn user_subscribes_only_to_visible_apis_by_visible_plans() {
    let portal = fixture(false);
    let subscribe = async |user, consumer: &str, api: &str, plan: &str| {
        let change =
            json!({"change": "subscribe", "consumer": consumer, "api": format!("shop/{api}"), "plan": plan});
        portal.change(Some(user), change).await.status
    };
    assert_eq!(portal.get("/api/plans?namespace=shop", Some("bob")).await.names(), ["gold-plan"]);
    assert!(portal.get("/api/plans?namespace=shop", None).await.names().is_empty());
    for (user, consumer, api, plan, status) in [
        ("bob", "apps/bob", "staff-admin", "gold-plan", 404),
        ("bob", "apps/bob", "hidden-internal", "gold-plan", 404),
        ("bob", "apps/bob", "none", "gold-plan", 404),
        ("bob", "apps/bob", "gold-orders", "staff-plan", 404),
        ("bob", "apps/bob", "gold-orders", "hidden-plan", 404),
        ("bob", "apps/bob", "gold-orders", "gold-other", 404),
        ("bob", "apps/eve", "gold-orders", "gold-plan", 404),
        ("new", "apps/bob", "gold-orders", "gold-plan", 404),
        ("bob", "apps/bob", "gold-old", "gold-plan", 409),
        ("bob", "apps/bob", "public-pets", "gold-plan", 409),
    ] {
        assert_eq!(subscribe(user, consumer, api, plan).await, status, "{user} {consumer} {api} {plan}");
    }
    assert_eq!(portal.made(), 0);
    assert_eq!(subscribe("bob", "apps/bob", "gold-orders", "gold-plan").await, 200);
    assert_eq!(portal.made(), 1);
}

#[tokio::test]
async fn user_cancels_an_own_subscription_that_no_operator_decided_against() {
    let portal = fixture(false);
    for (user, subscription, status) in [
        (None, "shop/bob-pets", 401),
        (Some("bob"), "shop/eve-orders", 404),
        (Some("bob"), "shop/none", 404),
        (Some("bob"), "other/bob-pets", 404),
        (Some("pat"), "shop/rejected", 409),
        (Some("pat"), "shop/suspended", 409),
        (Some("pat"), "shop/managed", 409),
    ] {
        let answer = portal.change(user, json!({"change": "cancel", "subscription": subscription})).await;
        assert_eq!(answer.status, status, "{user:?} {subscription}");
    }
    assert_eq!(portal.made(), 0);
    for (user, subscription) in [("bob", "shop/bob-pets"), ("pat", "shop/pending")] {
        let change = json!({"change": "cancel", "subscription": subscription});
        assert_eq!(portal.change(Some(user), change).await.status, 200, "{subscription}");
    }
    assert_eq!(portal.made(), 2);
}

#[tokio::test]
async fn user_makes_a_bounded_number_of_changes() {
    let portal = fixture(false);
    let mut statuses = Vec::new();
    for _ in 0..25 {
        statuses.push(
            portal.change(Some("bob"), json!({"change": "issue", "consumer": "apps/bob"})).await.status,
        );
    }
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 20, "{statuses:?}");
    assert_eq!(statuses.last(), Some(&429));
}

#[tokio::test]
async fn user_does_not_learn_why_the_gateway_cannot_make_a_change() {
    let portal = fixture(true);
    let answer = portal.change(Some("bob"), json!({"change": "issue", "consumer": "apps/bob"})).await;
    assert_eq!(answer.status, 503);
    assert!(!answer.text.contains("secret-"), "{}", answer.text);
}
