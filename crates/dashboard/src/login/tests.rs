use std::collections::BTreeMap;
use std::fs::write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use hyper::HeaderMap;
use hyper::header::SET_COOKIE;
use serde_json::{Value, json};
use sluicegate_admin::Hosts;
use sluicegate_testkit::backend::Behaviour;
use sluicegate_testkit::provider::{CLIENT, Provider, SECRET};

use super::*;
use crate::access::Access;
use crate::openid::{OpenId, Rights, Section};
use crate::portal::tests as portal;
use crate::server::tests as dashboard;
use crate::site::answer;

const OPERATORS: &str = "roles: [{group: staff, role: viewer}, {group: admin, role: operator}]";

const BEARER: &str = "Bearer token-of-bob-012345";

/// A file with the login at a provider, for a site.
fn file(provider: &Provider, site: SiteKind, rules: &str) -> String {
    let issuer = provider.state().issuer.clone();
    format!(
        "openIdConnect:
  issuer: {issuer}
  clientId: {CLIENT:?}
  clientSecret: {SECRET:?}
  publicUrl: https://{}.test
  name: Example login
  {rules}
users:
- {{name: bob, token: token-of-bob-012345}}
",
        site.name()
    )
}

/// A browser at a site.
struct Browser<S> {
    site: S,
    path: PathBuf,
    cookies: BTreeMap<String, String>,
    _folder: tempfile::TempDir,
}

struct Page {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Page {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text).expect("JSON")
    }
}

fn open(text: &str, site: SiteKind) -> (tempfile::TempDir, PathBuf, TokenFile) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users.yaml");
    write(&path, text).expect("a file");
    let file = TokenFile::open(&path, site).expect("users");
    (folder, path, file)
}

fn at_dashboard(text: &str) -> Browser<dashboard::DashboardSite> {
    let (folder, path, file) = open(text, SiteKind::Dashboard);
    let site = dashboard::site(Access::Token(Arc::new(file)), Hosts::Any);
    Browser { site, path, cookies: BTreeMap::new(), _folder: folder }
}

fn at_portal(text: &str) -> Browser<portal::PortalSite> {
    let (folder, path, file) = open(text, SiteKind::Portal);
    Browser { site: portal::site(file), path, cookies: BTreeMap::new(), _folder: folder }
}

impl<S: Site> Browser<S> {
    async fn get(&mut self, target: &str) -> Page {
        let cookies = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
        let cookies = cookies.collect::<Vec<_>>().join("; ");
        let page = self.send(target, &[("cookie", &cookies)]).await;
        for cookie in page.headers.get_all(SET_COOKIE) {
            let cookie = cookie.to_str().expect("a cookie");
            let (name, rest) = cookie.split_once('=').expect("a cookie");
            let value = rest.split(';').next().expect("a value");
            assert!(cookie.contains("; Path=/; ") && cookie.contains("; HttpOnly; "), "{cookie}");
            assert_eq!(name.starts_with("__Host-"), cookie.ends_with("; Secure"), "{cookie}");
            let same_site = if name.ends_with("login") { "SameSite=Lax" } else { "SameSite=Strict" };
            assert!(cookie.contains(same_site) && cookie.len() <= 4096, "{cookie}");
            match cookie.contains("Max-Age=0;") {
                true => drop(self.cookies.remove(name)),
                false => drop(self.cookies.insert(name.to_owned(), value.to_owned())),
            }
        }
        page
    }

    async fn send(&self, target: &str, lines: &[(&str, &str)]) -> Page {
        let host = format!("{}.test", S::KIND.name());
        let mut request = Request::builder().uri(target).header("x-forwarded-proto", "https");
        if lines.iter().all(|(name, _)| *name != "host") {
            request = request.header("host", host);
        }
        for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        let response = answer(&self.site, &request.body(Bytes::new()).expect("a request")).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        Page { status: parts.status.as_u16(), headers: parts.headers, text }
    }

    /// Begins a login, and lets the provider log the user in: the path and the query of the way back.
    async fn begin(&mut self, provider: &Provider) -> String {
        let page = self.get("/oauth2/login?to=/routes%3Fsearch%3Da%26b").await;
        assert_eq!(page.status, 302, "{}", page.text);
        let back = provider.log_in(page.header("location")).expect("a login");
        let origin = format!("https://{}.test", S::KIND.name());
        back.strip_prefix(&origin).expect("the exact redirect URI").to_owned()
    }

    async fn log_in(&mut self, provider: &Provider) -> Page {
        let back = self.begin(provider).await;
        self.get(&back).await
    }

    fn session(&self) -> Option<&String> {
        self.cookies.iter().find(|(name, _)| name.ends_with("_session")).map(|(_, value)| value)
    }

    /// Writes the file anew, and waits until a document has this status.
    async fn rewrite(&mut self, text: &str, document: &str, status: u16) {
        write(&self.path, text).expect("a file");
        let end = Instant::now() + Duration::from_secs(20);
        while self.get(document).await.status != status {
            assert!(Instant::now() < end, "{document} has not the status {status}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn user_of_the_provider_has_the_role_of_the_own_groups_until_the_logout() {
    let provider = Provider::start().await.expect("a provider");
    let mut browser = at_dashboard(&file(&provider, SiteKind::Dashboard, OPERATORS));
    let session = browser.get("/api/session").await.json();
    let expected = json!({"name": "Example login", "url": "https://dashboard.test/oauth2/login"});
    assert_eq!((&session["openid"], &session["tokens"]), (&expected, &true.into()));

    let page = browser.log_in(&provider).await;
    assert_eq!(page.status, 200, "{}", page.text);
    let refresh = "content=\"0; url=https://dashboard.test/routes?search=a&amp;b\"";
    assert!(page.text.contains(refresh), "{}", page.text);
    assert_eq!(page.header("cache-control"), "no-store");
    let names: Vec<&str> = browser.cookies.keys().map(String::as_str).collect();
    assert_eq!(names, ["__Host-sluicegate_session"], "the cookie of the login is gone");
    let session = browser.get("/api/session").await.json();
    assert_eq!((&session["user"], &session["role"]), (&"alice".into(), &"operator".into()));
    assert_eq!(browser.get("/api/routes").await.status, 200);

    let cookies = browser.cookies.clone();
    let logout = browser.get("/api/logout").await;
    let url = logout.json()["url"].as_str().expect("a URL").to_owned();
    let expected = "/logout?client_id=shop%3Aweb&post_logout_redirect_uri=https%3A%2F%2Fdashboard.test%2F";
    assert_eq!(url, provider.state().issuer.clone() + expected, "a URL has no token");
    assert!(browser.cookies.is_empty());
    assert_eq!(browser.get("/api/routes").await.status, 401);
    // A second logout ends no session at the provider.
    assert_eq!(browser.get("/api/logout").await.status, 204);
    browser.cookies = cookies;
    let line = ("sec-fetch-site", "cross-site");
    assert_eq!(browser.send("/api/logout", &[line]).await.status, 403, "another site logs no user out");
}

#[tokio::test]
async fn changed_rules_apply_to_sessions_at_once_and_a_new_secret_ends_them() {
    let provider = Provider::start().await.expect("a provider");
    let text = file(&provider, SiteKind::Dashboard, OPERATORS);
    let mut browser = at_dashboard(&text);
    browser.log_in(&provider).await;
    assert_eq!(browser.get("/api/session").await.json()["role"], "operator");
    browser.rewrite(&text.replace("group: admin", "group: others"), "/api/routes", 200).await;
    let end = Instant::now() + Duration::from_secs(20);
    while browser.get("/api/session").await.json()["role"] != "viewer" {
        assert!(Instant::now() < end, "the role stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let none = text.replace("group: admin", "group: others").replace("group: staff", "user: carol");
    browser.rewrite(&none, "/api/routes", 403).await;
    let session = browser.get("/api/session").await.json();
    assert!(session["refused"].as_str().is_some_and(|message| message.contains("alice")), "{session}");
    assert_eq!(session["login"], true);
    let by_name = none.replace("user: carol", "user: alice");
    browser.rewrite(&by_name, "/api/routes", 200).await;
    browser.rewrite(&by_name.replace(SECRET, "another client secret"), "/api/routes", 401).await;
    browser.rewrite("openIdConnect: {}", "/api/routes", 503).await;
}

#[tokio::test]
async fn user_without_a_role_gets_no_session() {
    let provider = Provider::start().await.expect("a provider");
    let mut browser =
        at_dashboard(&file(&provider, SiteKind::Dashboard, "roles: [{group: others, role: viewer}]"));
    let page = browser.log_in(&provider).await;
    assert_eq!(page.status, 403);
    assert!(page.text.contains("The user alice has no role in the dashboard."), "{}", page.text);
    assert!(browser.cookies.is_empty(), "{:?}", browser.cookies);
    provider.state().claims = json!({"groups": null});
    assert_eq!(browser.log_in(&provider).await.status, 403, "no groups, no role");
    provider.state().claims = json!({"groups": "others"});
    assert_eq!(browser.log_in(&provider).await.status, 200, "one group as a text");
}

#[tokio::test]
async fn answer_of_another_login_is_rejected() {
    let provider = Provider::start().await.expect("a provider");
    let text = file(&provider, SiteKind::Dashboard, OPERATORS);
    let mut browser = at_dashboard(&text);
    let back = browser.begin(&provider).await;
    let (before, state) = back.rsplit_once("state=").expect("a state");
    let attempt = browser.cookies.clone();
    let forged = format!("{before}state={}", state.chars().rev().collect::<String>());
    assert_eq!(browser.get(&forged).await.status, 400, "a forged state");
    assert!(browser.cookies.is_empty(), "a failed login ends");
    assert_eq!(browser.get(&back).await.status, 400, "no cookie of the login");
    assert_eq!(provider.state().exchanges, 0);

    browser.cookies = attempt.clone();
    assert_eq!(browser.get(&back).await.status, 200);
    browser.cookies = attempt.clone();
    let replayed = browser.get(&back).await;
    assert_eq!(replayed.status, 403, "a replayed code");
    assert!(replayed.text.contains("rejected the code") && browser.session().is_none());
    for value in [&*attempt["__Host-sluicegate_login"].to_lowercase(), "", "x"] {
        browser.cookies.insert("__Host-sluicegate_login".to_owned(), value.to_owned());
        assert_eq!(browser.get(&back).await.status, 400, "a changed cookie of the login");
    }
    let denied = browser.begin(&provider).await.replace("code=", "error=access_denied&x=");
    let denied = browser.get(&denied).await;
    assert!(denied.status == 403 && denied.text.contains("access_denied"), "{}", denied.text);

    // A login at the portal with the same client is no login at the dashboard.
    let mut portal = at_portal(&file(&provider, SiteKind::Portal, ""));
    let back = portal.begin(&provider).await;
    let attempt = portal.cookies["__Host-sluicegate_portal_login"].clone();
    browser.cookies = [("__Host-sluicegate_login".to_owned(), attempt)].into();
    assert_eq!(browser.get(&back).await.status, 400);
}

#[tokio::test]
async fn invalid_id_token_gives_no_session_and_failed_logins_are_bounded() {
    let provider = Provider::start().await.expect("a provider");
    let mut browser = at_dashboard(&file(&provider, SiteKind::Dashboard, OPERATORS));
    for claims in [
        json!({"nonce": "another"}),
        json!({"nonce": null}),
        json!({"aud": "another"}),
        json!({"aud": [CLIENT, "another"]}),
        json!({"iss": "https://evil.test"}),
        json!({"exp": 1000}),
        json!({"iat": 99_999_999_999_u64}),
        json!({"sub": null}),
        json!({"sub": ""}),
        json!({"sub": "a\nb"}),
    ] {
        provider.state().claims = claims.clone();
        let page = browser.log_in(&provider).await;
        assert_eq!((page.status, browser.session()), (403, None), "{claims} {}", page.text);
    }
    provider.state().claims = json!({});
    provider.state().header = json!({"alg": "none"});
    assert_eq!(browser.log_in(&provider).await.status, 403);
    provider.state().header = json!({"alg": "ES256"});
    // The names do not count: the provider accepted the user.
    for _ in 0..2 {
        let back = browser.begin(&provider).await;
        assert_eq!(browser.get(&back.replace("code=", "code=x")).await.status, 403);
    }
    let page = browser.get("/oauth2/login").await;
    assert_eq!(page.status, 429, "{}", page.text);
    assert!(!page.header("retry-after").is_empty());
    assert_eq!(
        browser.send("/api/routes", &[("authorization", BEARER)]).await.status,
        200,
        "tokens continue"
    );
}

#[tokio::test]
async fn provider_that_is_away_fails_logins_alone() {
    let mut provider = Provider::start().await.expect("a provider");
    let mut browser = at_dashboard(&file(&provider, SiteKind::Dashboard, OPERATORS));
    browser.log_in(&provider).await;
    let session = browser.cookies.clone();
    browser.cookies.clear();
    provider.state().token_response = Some(Behaviour::raw("HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n"));
    let page = browser.log_in(&provider).await;
    assert_eq!((page.status, browser.session()), (503, None), "{}", page.text);
    assert!(page.text.contains("The provider Example login is unavailable"), "{}", page.text);

    // A gateway that starts without its provider.
    let text = file(&provider, SiteKind::Dashboard, OPERATORS);
    provider.backend().kill().await;
    let mut other = at_dashboard(&text);
    let page = other.get("/oauth2/login").await;
    assert_eq!((page.status, other.cookies.len()), (503, 0), "{}", page.text);
    assert_eq!(other.send("/api/routes", &[("authorization", BEARER)]).await.status, 200, "tokens continue");
    // A replica with the same file accepts the session, and ends it without the provider.
    other.cookies = session;
    assert_eq!(other.get("/api/routes").await.status, 200);
    assert_eq!(other.get("/api/logout").await.status, 204);
    assert!(other.cookies.is_empty());
}

#[tokio::test]
async fn session_of_one_site_is_invalid_at_the_other_and_after_any_change() {
    let provider = Provider::start().await.expect("a provider");
    let mut dashboard = at_dashboard(&file(&provider, SiteKind::Dashboard, OPERATORS));
    let mut portal = at_portal(&file(&provider, SiteKind::Portal, ""));
    dashboard.log_in(&provider).await;
    portal.log_in(&provider).await;
    let (of_dashboard, of_portal) =
        (dashboard.session().expect("a session").clone(), portal.session().expect("a session").clone());
    assert_eq!(portal.get("/api/keys").await.status, 200);
    portal.cookies = [("__Host-sluicegate_portal_session".to_owned(), of_dashboard.clone())].into();
    assert_eq!(portal.get("/api/keys").await.status, 401);
    dashboard.cookies = [("__Host-sluicegate_session".to_owned(), of_portal)].into();
    assert_eq!(dashboard.get("/api/routes").await.status, 401);
    for at in (0..of_dashboard.len()).step_by(7) {
        let mut changed = of_dashboard.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).expect("a text");
        dashboard.cookies = [("__Host-sluicegate_session".to_owned(), changed)].into();
        assert_eq!(dashboard.get("/api/routes").await.status, 401, "at {at}");
    }
    // Over HTTPS, a cookie that another host may have set does not count.
    dashboard.cookies = [("sluicegate_session".to_owned(), of_dashboard.clone())].into();
    assert_eq!(dashboard.get("/api/routes").await.status, 401);
    dashboard.cookies = [("__Host-sluicegate_session".to_owned(), of_dashboard)].into();
    assert_eq!(dashboard.get("/api/routes").await.status, 200);
}

#[tokio::test]
async fn login_begins_only_at_the_public_url() {
    let provider = Provider::start().await.expect("a provider");
    let mut browser = at_dashboard(&file(&provider, SiteKind::Dashboard, OPERATORS));
    let page = browser.send("/oauth2/login", &[("host", "localhost:9903")]).await;
    assert!(page.status == 400 && page.headers.get(SET_COOKIE).is_none(), "{}", page.status);
    assert!(page.text.contains("https://dashboard.test/oauth2/login"), "{}", page.text);
    // Without the section, the paths are pages of the application.
    let mut without = at_dashboard("users: [{name: bob, token: token-of-bob-012345}]");
    assert_eq!(without.get("/oauth2/login").await.text, without.get("/").await.text);
    assert_eq!(browser.get("/oauth2/other").await.text, browser.get("/").await.text);
}

#[tokio::test]
async fn user_of_the_provider_sees_the_portal_by_groups_and_consumers() {
    let provider = Provider::start().await.expect("a provider");
    let rules = "consumers: [{group: gold, consumers: [apps/bob]}, {user: carol, consumers: [apps/eve]}]";
    let mut browser = at_portal(&file(&provider, SiteKind::Portal, rules));
    let names = |page: Page| {
        let document = page.json();
        let items = document["items"].as_array().expect("items").clone();
        items.iter().map(|item| item["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    for (claims, apis, keys) in [
        (json!({"groups": ["gold"]}), &["public-pets", "gold-orders", "gold-old"][..], &["key-of-bob"][..]),
        (json!({"groups": ["staff"]}), &["public-pets", "staff-admin"], &[]),
        (json!({"groups": [], "sub": "carol"}), &["public-pets"], &["key-of-eve"]),
    ] {
        provider.state().claims = claims.clone();
        assert_eq!(browser.log_in(&provider).await.status, 200, "{claims}");
        assert_eq!(names(browser.get("/api/apis").await), apis, "{claims}");
        assert_eq!(names(browser.get("/api/keys").await), keys, "{claims}");
        let session = browser.get("/api/session").await.json();
        assert_eq!(session["consumers"].as_array().map(Vec::len), Some(keys.len()), "{session}");
        browser.cookies.clear();
        assert_eq!(names(browser.get("/api/apis").await), ["public-pets"]);
    }
}

fn openid(text: &str, site: SiteKind) -> Result<OpenId, String> {
    let section: Section = serde_json::from_str(text).map_err(|error| error.to_string())?;
    OpenId::new(section, site, &Default::default()).map_err(|fault| fault.to_string())
}

const SECTION: &str = r#"{"issuer": "https://login.test", "clientId": "dashboard", "clientSecret": "secret-0123456789",
  "publicUrl": "https://dashboard.test", "roles": [{"group": "named", "role": "viewer"}]}"#;

#[test]
fn faulty_section_is_rejected_with_the_field_and_without_the_secret() {
    assert!(openid(SECTION, SiteKind::Dashboard).is_ok());
    for (from, to, said) in [
        ("https://login.test", "login.test", "openIdConnect.issuer"),
        ("\"dashboard\"", "\"\"", "openIdConnect.clientId"),
        ("secret-0123456789", "secret-0123", "openIdConnect.clientSecret has 11 bytes"),
        ("\"clientSecret\": \"secret-0123456789\",", "", "needs clientSecret, or sessionSecret"),
        (
            "\"clientId\"",
            "\"sessionSecret\": \"secret-0123456789\", \"clientId\"",
            "openIdConnect.sessionSecret",
        ),
        ("https://dashboard.test", "http://dashboard.test", "openIdConnect.publicUrl uses http"),
        ("https://dashboard.test", "https://dashboard.test/a", "openIdConnect.publicUrl has a path"),
        ("https://dashboard.test", "https://a@dashboard.test", "openIdConnect.publicUrl has a path"),
        ("https://dashboard.test", "dashboard.test", "openIdConnect.publicUrl is no URL"),
        ("{\"group\": \"named\", \"role\": \"viewer\"}", "", "openIdConnect.roles is empty"),
        ("\"group\": \"named\"", "\"group\": \"named\", \"user\": \"a\"", "openIdConnect.roles[0]"),
        ("\"group\": \"named\", ", "", "openIdConnect.roles[0]"),
        ("\"issuer\"", "\"caCertificates\": \"x\", \"issuer\"", "openIdConnect.caCertificates"),
        ("\"issuer\"", "\"scopes\": [\"a b\"], \"issuer\"", "openIdConnect.scopes"),
        ("\"issuer\"", "\"userClaim\": \"\", \"issuer\"", "openIdConnect.userClaim"),
        ("\"issuer\"", "\"other\": 1, \"issuer\"", "unknown field"),
        ("viewer", "admin", "unknown variant"),
    ] {
        let text = SECTION.replacen(from, to, 1);
        assert_ne!(text, SECTION, "{from}");
        let fault = openid(&text, SiteKind::Dashboard).map(drop).expect_err(&text);
        assert!(fault.contains(said) && !fault.contains("secret-0"), "{text}: {fault}");
    }
    let local = SECTION.replace("https://dashboard.test", "http://localhost:9903/");
    assert!(
        openid(&local, SiteKind::Dashboard)
            .is_ok_and(|of| of.login_url() == "http://localhost:9903/oauth2/login")
    );
}

#[test]
fn session_ends_and_keeps_named_groups_if_not_all_fit_into_a_cookie() {
    let openid = openid(SECTION, SiteKind::Dashboard).expect("a section");
    let mut groups: Vec<String> = (0..900).map(|nth| format!("group-{nth:060}")).collect();
    groups.extend(["of-an-api".to_owned(), "named".to_owned()]);
    let (sealed, dropped) =
        openid.sealed("alice".to_owned(), groups, 1000, |group| group == "of-an-api").expect("a session");
    assert!((3000..=3800).contains(&sealed.len()), "{}", sealed.len());
    let Some(Rights::Of(user)) = openid.rights(&sealed, 999) else { panic!("no user") };
    assert_eq!(user.groups.len() + dropped, 902);
    assert!(user.groups.contains(&"named".to_owned()) && user.groups.contains(&"of-an-api".to_owned()));
    assert_eq!(openid.rights(&sealed, 1000), None);
}

#[test]
fn login_returns_only_to_a_page_of_the_site() {
    for target in ["/", "/routes?search=a&b=c%20d", "/apis/shop/orders"] {
        assert_eq!(path_of(target), target);
    }
    for target in
        ["", "routes", "https://evil.test/", "/a b", "/a\r\nb", "/oauth2/login?to=/", "/api/logout", "/login"]
    {
        assert_eq!(path_of(target), "/", "{target}");
    }
}
