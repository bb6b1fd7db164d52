//! Logins of browsers at an OpenID provider, and attempts to forge them.

use sluicegate_model::feature::Oidc;
use sluicegate_model::value::secret::CookieKeys;
use sluicegate_proxy::counters::SessionEvent;
use sluicegate_testkit::browser::Browser;
use sluicegate_testkit::provider::{self, CLIENT, Provider};

use super::*;

const OLD: &str = "old key, which has more than 32 characters";
const NEW: &str = "new key, which has more than 32 characters";

fn fresh() -> Browser {
    Browser::at("localhost", Transport::Http)
}

fn login_of(provider: &Provider, keys: &str, fields: Value) -> Authentication {
    let mut oidc = json!({
        "issuer": provider.state().issuer,
        "clientId": CLIENT,
        "cookieSecretRef": {"name": "unused"},
        "timeout": "2s",
        "claimToHeaders": [{"claim": "sub", "header": "x-user"}, {"claim": "groups", "header": "x-roles"}],
    });
    oidc.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let oidc: Oidc = written(oidc);
    let secret = KeyBytes::new(provider::SECRET.as_bytes()).unwrap();
    let oidc = Oidc {
        client_secret_ref: Some(FromSecret::Value(secret)),
        cookie_secret_ref: FromSecret::Value(CookieKeys::parse(keys.as_bytes()).unwrap()),
        ..oidc
    };
    Authentication { oidc: Some(Arc::new(oidc)), ..Authentication::default() }
}

async fn gateway_with(fields: Value) -> anyhow::Result<(Provider, Backend, Gateway)> {
    let provider = Provider::start().await?;
    let (backend, gateway) = guarded(asking(login_of(&provider, OLD, fields))).await?;
    // Until then, the gateway responds with 503.
    let is_known = |gateway: &Gateway| {
        let providers = gateway.proxy().registry().published_providers();
        !providers.is_empty() && providers.iter().all(|provider| provider.is_known)
    };
    gateway.wait_until(is_known).await?;
    Ok((provider, backend, gateway))
}

fn events(gateway: &Gateway, event: SessionEvent) -> u64 {
    let policies = gateway.proxy().registry().policies();
    policies.iter().map(|policy| policy.stats.sum(|shard| &shard.sessions[event as usize])).sum()
}

#[tokio::test]
async fn browser_logs_in_returns_to_its_page_and_stays_logged_in() -> TestResult {
    let (provider, backend, gateway) = gateway_with(json!({"scopes": ["email", "profile"]})).await?;
    for transport in [Transport::Http, Transport::Https, Transport::Http2] {
        let (mut browser, addr) = (Browser::at("localhost", transport), gateway.addr_of(transport));
        let response = browser.open(addr, "/orders?id=7&x=%26").await?;
        assert_eq!(response.status, 302, "{transport:?}");
        assert_eq!(response.header("cache-control"), Some("no-store"));
        let location = response.header("location").unwrap();
        let parameters = provider::parse(location.split_once('?').unwrap().1);
        assert_eq!(parameters["scope"], "openid email profile");
        assert_eq!(parameters["redirect_uri"], format!("{}://localhost/oauth2/callback", transport.scheme()));
        let before = backend.requests();
        let response = browser.open(addr, &provider.log_in(location)?).await?;
        assert_eq!((response.status, backend.requests()), (302, before), "{}", response.text());
        let url = format!("{}://localhost/orders?id=7&x=%26", transport.scheme());
        assert_eq!(response.header("location"), Some(&*url));
        assert_eq!(browser.cookies.len(), 1, "the cookie of the login is gone: {:?}", browser.cookies);
        for _ in 0..3 {
            let lines = ["Accept: text/html", "X-User: mallory", "X_Roles: root", "Cookie: theme=dark"];
            assert_eq!(browser.send(addr, "GET", &url, &lines).await?.status, 200);
        }
        let seen = backend.last_request().unwrap();
        assert_eq!(seen.target, "/orders?id=7&x=%26");
        assert_eq!(seen.header("x-user"), Some("alice"));
        let named = |name: &str| {
            let is_it = |(found, _): &&(String, String)| found.replace('_', "-").eq_ignore_ascii_case(name);
            seen.headers.iter().filter(is_it).map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        assert_eq!((named("x-user"), named("x-roles")), (vec!["alice"], vec!["staff,admin"]));
        assert_eq!(named("cookie"), ["theme=dark"], "the session stays at the gateway");
        assert_eq!(seen.header("authorization"), None);
    }
    assert_eq!(events(&gateway, SessionEvent::LoginStarted), 3);
    assert_eq!(events(&gateway, SessionEvent::LoginCompleted), 3);
    assert_eq!(provider.state().exchanges, 3);
    Ok(())
}

#[tokio::test]
async fn only_navigations_are_redirected_to_the_provider() -> TestResult {
    let (_provider, backend, gateway) = gateway_with(json!({})).await?;
    let html = "Accept: text/html";
    for (method, lines) in [
        ("GET", vec![]),
        ("GET", vec!["Accept: */*"]),
        ("GET", vec!["Accept: application/json"]),
        ("GET", vec![html, "Sec-Fetch-Mode: cors"]),
        ("GET", vec![html, "Sec-Fetch-Mode: no-cors"]),
        ("GET", vec![html, "X-Requested-With: XMLHttpRequest"]),
        ("POST", vec![html, "Sec-Fetch-Mode: navigate", "Content-Length: 0"]),
        ("DELETE", vec![html]),
    ] {
        let response = fresh().send(gateway.addr(), method, "/", &lines).await?;
        assert_eq!(response.status, 401, "{method} {lines:?}");
        assert_eq!(response.headers_named("set-cookie").len(), 0);
        assert_eq!(
            (response.header("location"), response.header("www-authenticate")),
            (None, Some("Cookie"))
        );
    }
    assert_eq!(denied(&gateway, Denial::NoSession), 8);
    for method in ["GET", "HEAD"] {
        assert_eq!(fresh().send(gateway.addr(), method, "/", &[html]).await?.status, 302);
    }
    assert_eq!((denied(&gateway, Denial::Login), backend.requests()), (2, 0));
    Ok(())
}

#[tokio::test]
async fn several_tabs_log_in_at_once_and_old_logins_end() -> TestResult {
    let (provider, _backend, gateway) = gateway_with(json!({})).await?;
    let mut browser = fresh();
    let mut logins = Vec::new();
    for tab in 0..3 {
        let response = browser.open(gateway.addr(), &format!("/tab/{tab}")).await?;
        logins.push(provider.log_in(response.header("location").unwrap())?);
    }
    assert_eq!(browser.cookies.len(), 3);
    for tab in [1, 0, 2] {
        let response = browser.open(gateway.addr(), &logins[tab]).await?;
        assert_eq!(response.header("location"), Some(&*format!("http://localhost/tab/{tab}")));
    }
    assert_eq!(browser.cookies.len(), 1);
    let mut browser = fresh();
    for tab in 0..20 {
        assert_eq!(browser.open(gateway.addr(), &format!("/tab/{tab}")).await?.status, 302);
        assert!(browser.cookies.len() <= 8, "cookies must not fill the head of requests");
    }
    Ok(())
}

#[tokio::test]
async fn forged_answer_of_the_provider_gives_no_session() -> TestResult {
    let (provider, _backend, gateway) = gateway_with(json!({})).await?;
    let (mut victim, mut attacker) = (fresh(), fresh());
    let location = |response: &Response| response.header("location").unwrap().to_owned();
    let of_attacker = location(&attacker.open(gateway.addr(), "/").await?);
    let of_victim = location(&victim.open(gateway.addr(), "/").await?);
    let of_attacker = provider.log_in(&of_attacker)?;
    let good = provider.log_in(&of_victim)?;
    let (code, state) = good.split_once('?').unwrap().1.split_once('&').unwrap();
    let id = state.split_once('=').unwrap().1.split_once('.').unwrap().0;
    let callback = "/oauth2/callback";
    for forged in [
        // The code of an attacker, in the browser of a victim.
        of_attacker.clone(),
        format!("{callback}?{code}"),
        format!("{callback}?{state}"),
        format!("{callback}?{code}&state={id}.{}", "A".repeat(43)),
        format!("{callback}?{code}&state=0000000000000000.x"),
        format!("{callback}?{code}&{state}&{state}"),
        callback.to_owned(),
    ] {
        let mut copy = victim.clone();
        let response = copy.open(gateway.addr(), &forged).await?;
        assert_eq!(response.status, 400, "{forged}");
        assert!(response.text().contains("open the page again"), "{}", response.text());
        assert!(copy.sessions().is_empty(), "{forged}");
    }
    assert_eq!(provider.state().exchanges, 0);
    let wrong_method = victim.send(gateway.addr(), "POST", &good, &["Content-Length: 0"]).await?;
    assert_eq!(wrong_method.status, 400);
    // A code is valid once, and its login too.
    let copied = victim.clone();
    assert_eq!(victim.open(gateway.addr(), &good).await?.status, 302);
    assert_eq!(victim.open(gateway.addr(), &good).await?.status, 400);
    let mut replay = copied;
    assert_eq!(replay.open(gateway.addr(), &good).await?.status, 400);
    assert!(replay.sessions().is_empty());
    assert_eq!(denied(&gateway, Denial::LoginCode), 1);
    // The cookie of a login on one host is not valid on another host.
    let mut moved = Browser::with_cookies_of(&attacker, "other.localhost");
    let moved_url = of_attacker.replace("http://localhost", "http://other.localhost");
    let response = moved.open(gateway.addr(), &moved_url).await?;
    assert!(response.status >= 400, "{}", response.status);
    Ok(())
}

#[tokio::test]
async fn browser_returns_only_to_its_own_host() -> TestResult {
    let (provider, _backend, gateway) = gateway_with(json!({})).await?;
    for (target, expected) in [
        ("//evil.example/x", "/evil.example/x"),
        ("/%2F%2Fevil.example", ""),
        ("/a/..//evil.example", "/evil.example"),
        ("/?rd=https://evil.example", "/?rd=https://evil.example"),
    ] {
        let mut browser = fresh();
        let response = browser.log_in(gateway.addr(), &provider, target).await?;
        let location = response.header("location").unwrap();
        assert!(location.starts_with("http://localhost/"), "{target}: {location}");
        assert!(location.ends_with(expected), "{target}: {location}");
    }
    let mut browser = fresh();
    let response = browser.log_in(gateway.addr(), &provider, &format!("/{}", "x".repeat(3000))).await?;
    assert_eq!(response.header("location"), Some("http://localhost/"));
    Ok(())
}

#[tokio::test]
async fn invalid_id_token_gives_no_session() -> TestResult {
    let (provider, backend, gateway) = gateway_with(json!({"clockSkew": "0s"})).await?;
    let unsigned = json!({"alg": "none"});
    for (claims, header) in [
        (json!({"nonce": "another"}), json!({})),
        (json!({"nonce": null}), json!({})),
        (json!({"iss": "https://evil.example"}), json!({})),
        (json!({"aud": "another"}), json!({})),
        (json!({"aud": [CLIENT, "another"]}), json!({})),
        (json!({"aud": [CLIENT, "another"], "azp": "another"}), json!({})),
        (json!({"azp": "another"}), json!({})),
        (json!({"exp": now() - 1}), json!({})),
        (json!({"exp": null}), json!({})),
        (json!({"iat": now() + 600}), json!({})),
        (json!({"iat": null}), json!({})),
        (json!({}), unsigned),
        (json!({}), json!({"alg": "HS256"})),
        (json!({}), json!({"alg": "RS256"})),
    ] {
        let what = format!("{claims} {header}");
        {
            let mut state = provider.state();
            (state.claims, state.header) = (claims, json!({"alg": "ES256"}));
            if let Some(header) = header.as_object().filter(|header| !header.is_empty()) {
                state.header = header.clone().into();
            }
        }
        let mut browser = fresh();
        let response = browser.log_in(gateway.addr(), &provider, "/").await?;
        assert_eq!(response.status, 502, "{what}");
        assert!(browser.sessions().is_empty(), "{what}");
    }
    assert_eq!((denied(&gateway, Denial::LoginToken), backend.requests()), (14, 0));
    assert_eq!(events(&gateway, SessionEvent::LoginFailed), 14);
    provider.state().claims = json!({"aud": [CLIENT, "another"], "azp": CLIENT});
    provider.state().header = json!({"alg": "ES256"});
    assert_eq!(fresh().log_in(gateway.addr(), &provider, "/").await?.status, 302);
    Ok(())
}

#[tokio::test]
async fn replaced_key_of_the_provider_is_fetched_during_the_login() -> TestResult {
    let (provider, _backend, gateway) = gateway_with(json!({"timeout": "20s"})).await?;
    assert_eq!(fresh().log_in(gateway.addr(), &provider, "/").await?.status, 302);
    provider.rotate_key()?;
    assert_eq!(fresh().log_in(gateway.addr(), &provider, "/").await?.status, 302);
    Ok(())
}

#[tokio::test]
async fn changed_cookie_of_a_session_is_no_session() -> TestResult {
    let (provider, backend) = (Provider::start().await?, Backend::start(Behaviour::ok()).await?);
    // One worker remembers the session for all requests.
    let mut builder = Gateway::builder().backends([&backend]).workers(1);
    set_security(builder.config_mut(), Some(asking(login_of(&provider, OLD, json!({})))));
    let gateway = builder.start().await?;
    let mut browser = fresh();
    browser.log_in(gateway.addr(), &provider, "/").await?;
    let name = browser.sessions()[0].clone();
    let good = browser.cookies[&name].clone();
    let middle = good.len() / 2;
    let flipped = if &good[middle..=middle] == "A" { "B" } else { "A" };
    for value in [
        format!("{}{flipped}{}", &good[..middle], &good[middle + 1..]),
        good[..good.len() - 1].to_owned(),
        format!("2{}", &good[1..]),
        format!("9{}", &good[1..]),
        good[2..].to_owned(),
        "1.".to_owned(),
        "x".repeat(10_000),
        String::new(),
    ] {
        let mut changed = browser.clone();
        changed.cookies.insert(name.clone(), value.clone());
        assert_eq!(changed.open(gateway.addr(), "/").await?.status, 302, "{value}");
        assert_eq!(changed.send(gateway.addr(), "GET", "/", &[]).await?.status, 401, "{value}");
    }
    assert_eq!(backend.requests(), 0);
    // The session of one host is not valid on another host, although the worker has seen the session.
    assert_eq!(browser.open(gateway.addr(), "/").await?.status, 200);
    let mut moved = Browser::with_cookies_of(&browser, "other.localhost");
    assert_ne!(moved.open(gateway.addr(), "/").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn new_key_encrypts_cookies_while_the_old_key_still_decrypts() -> TestResult {
    let (provider, _backend, gateway) = gateway_with(json!({})).await?;
    let mut old = fresh();
    old.log_in(gateway.addr(), &provider, "/").await?;
    let set = async |keys: String| {
        let policy = asking(login_of(&provider, &keys, json!({})));
        gateway.configure(|config| set_security(config, Some(policy))).await;
    };
    set(format!("{NEW}\n{OLD}")).await;
    assert_eq!(old.open(gateway.addr(), "/").await?.status, 200);
    let mut new = fresh();
    new.log_in(gateway.addr(), &provider, "/").await?;
    set(NEW.to_owned()).await;
    assert_eq!(new.open(gateway.addr(), "/").await?.status, 200);
    assert_eq!(old.open(gateway.addr(), "/").await?.status, 302);
    Ok(())
}

#[tokio::test]
async fn session_is_refreshed_once_for_requests_at_the_same_time() -> TestResult {
    let (provider, backend, gateway) = gateway_with(json!({"forwardAccessToken": true})).await?;
    // The session needs a refresh at once.
    provider.state().expires_in = json!(0);
    let mut browser = fresh();
    browser.log_in(gateway.addr(), &provider, "/").await?;
    provider.state().expires_in = json!("300");
    let copies = (0..8).map(|_| {
        let mut copy = browser.clone();
        let gateway = &gateway;
        async move { copy.open(gateway.addr(), "/").await.map(|response| (response.status, copy)) }
    });
    let mut last = None;
    for copy in copies.collect::<Vec<_>>() {
        let (status, copy) = copy.await?;
        assert_eq!(status, 200);
        assert_ne!(copy.cookies, browser.cookies);
        last = Some(copy);
    }
    assert_eq!(provider.state().refreshed, 1);
    assert_eq!(events(&gateway, SessionEvent::Refreshed), 8);
    let lines = ["Authorization: Bearer forged", "Accept: text/html"];
    let mut last = last.unwrap();
    assert_eq!(last.send(gateway.addr(), "GET", "/", &lines).await?.status, 200);
    let seen = backend.last_request().unwrap();
    let tokens: Vec<_> =
        seen.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("authorization")).collect();
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    assert!(tokens[0].1.starts_with("Bearer access-"), "{tokens:?}");
    assert_eq!(provider.state().refreshed, 1);
    Ok(())
}

#[tokio::test]
async fn old_cookie_of_a_refreshed_session_leads_to_the_newest_session() -> TestResult {
    let (provider, _backend, gateway) = gateway_with(json!({})).await?;
    provider.state().expires_in = json!(1);
    let mut browser = fresh();
    browser.log_in(gateway.addr(), &provider, "/").await?;
    let old = browser.clone();
    for refreshes in 1..=3 {
        let end = now() + 2;
        gateway.wait_until(|_| now() >= end).await?;
        let mut copy = old.clone();
        assert_eq!(copy.open(gateway.addr(), "/").await?.status, 200);
        assert_eq!(provider.state().refreshed, refreshes);
    }
    Ok(())
}

#[tokio::test]
async fn session_ends_if_the_provider_rejects_the_refresh_or_names_another_user() -> TestResult {
    let (provider, _backend, gateway) = gateway_with(json!({})).await?;
    provider.state().expires_in = json!(0);
    for (response, claims) in [
        (Some(provider::response(400, &json!({"error": "invalid_grant"}))), json!({})),
        (None, json!({"sub": "mallory"})),
    ] {
        let mut browser = fresh();
        browser.log_in(gateway.addr(), &provider, "/").await?;
        (provider.state().token_response, provider.state().claims) = (response.clone(), claims.clone());
        assert_eq!(browser.send(gateway.addr(), "GET", "/", &[]).await?.status, 401);
        assert_eq!(browser.open(gateway.addr(), "/").await?.status, 302);
        (provider.state().token_response, provider.state().claims) = (None, json!({}));
    }
    // A session without a refresh token ends with its access token.
    provider.state().refreshes = false;
    let mut browser = fresh();
    browser.log_in(gateway.addr(), &provider, "/").await?;
    assert_eq!(browser.open(gateway.addr(), "/").await?.status, 302);
    Ok(())
}

#[tokio::test]
async fn sessions_stay_valid_while_the_provider_is_unavailable_and_new_logins_receive_503() -> TestResult {
    let (mut provider, _backend, gateway) = gateway_with(json!({})).await?;
    let (mut valid, mut stale) = (fresh(), fresh());
    valid.log_in(gateway.addr(), &provider, "/").await?;
    provider.state().expires_in = json!(0);
    stale.log_in(gateway.addr(), &provider, "/").await?;
    let mut waiting = fresh();
    let response = waiting.open(gateway.addr(), "/").await?;
    let back = provider.log_in(response.header("location").unwrap())?;
    provider.backend().kill().await;
    assert_eq!(valid.open(gateway.addr(), "/").await?.status, 200);
    for response in [stale.open(gateway.addr(), "/").await?, waiting.open(gateway.addr(), &back).await?] {
        assert_eq!(response.status, 503);
        assert!(response.text().contains("identity provider is unavailable"), "{}", response.text());
    }
    assert_eq!(denied(&gateway, Denial::ProviderUnavailable), 2);
    // The configuration of the provider is known: only the browser notices.
    assert_eq!(fresh().open(gateway.addr(), "/").await?.status, 302);
    Ok(())
}

#[tokio::test]
async fn provider_that_is_slow_or_responds_with_garbage_gives_no_session() -> TestResult {
    let (provider, _backend, gateway) = gateway_with(json!({})).await?;
    let ok = |body: Value| provider::response(200, &body);
    for (response, status) in [
        (Behaviour::silent(), 503),
        (Behaviour::garbage(), 503),
        (Behaviour::sized(1_000_000), 503),
        (Behaviour::status(500), 503),
        (provider::response(401, &json!({"error": "invalid_client"})), 503),
        (Behaviour::raw("HTTP/1.1 302 x\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), 503),
        (ok(json!({})), 503),
        (ok(json!({"access_token": "a", "token_type": "Bearer"})), 502),
        (ok(json!({"access_token": "a", "token_type": "Bearer", "id_token": "x.y.z"})), 502),
    ] {
        let mut browser = fresh();
        let begun = browser.open(gateway.addr(), "/").await?;
        let back = provider.log_in(begun.header("location").unwrap())?;
        provider.state().token_response = Some(response);
        let response = browser.open(gateway.addr(), &back).await?;
        provider.state().token_response = None;
        assert_eq!(response.status, status, "{}", response.text());
        assert!(browser.sessions().is_empty());
    }
    for (tokens, status) in [
        (json!({"access_token": "a b"}), 502),
        (json!({"access_token": "a\r\nX-User: root"}), 502),
        (json!({"access_token": ""}), 502),
        (json!({"token_type": "mac"}), 502),
        (json!({"id_token": null}), 502),
        (json!({"refresh_token": null, "expires_in": null}), 302),
    ] {
        provider.state().tokens = tokens.clone();
        let response = fresh().log_in(gateway.addr(), &provider, "/").await?;
        assert_eq!(response.status, status, "{tokens}");
    }
    Ok(())
}

#[tokio::test]
async fn unusable_configuration_of_the_provider_gives_503_until_it_is_valid() -> TestResult {
    let provider = Provider::start().await?;
    provider.state().configuration = json!({"issuer": "https://evil.example"});
    let (_backend, gateway) = guarded(asking(login_of(&provider, OLD, json!({})))).await?;
    let response = fresh().open(gateway.addr(), "/").await?;
    assert_eq!(response.status, 503);
    assert!(response.text().contains("try again"), "{}", response.text());
    provider.state().configuration = json!({});
    let known = |gateway: &Gateway| gateway.proxy().registry().published_providers()[0].is_known;
    gateway.wait_until(known).await?;
    assert_eq!(fresh().log_in(gateway.addr(), &provider, "/").await?.status, 302);
    Ok(())
}

#[tokio::test]
async fn denied_login_tells_the_user_and_leaks_nothing() -> TestResult {
    let (provider, _backend, gateway) = gateway_with(json!({})).await?;
    let mut browser = fresh();
    let begun = browser.open(gateway.addr(), "/").await?;
    let parameters = provider::parse(begun.header("location").unwrap().split_once('?').unwrap().1);
    let url = format!(
        "/oauth2/callback?error=access_denied&error_description=%3Cscript%3E&state={}",
        parameters["state"]
    );
    let response = browser.open(gateway.addr(), &url).await?;
    assert_eq!(response.status, 403);
    assert!(response.text().contains("denied") && !response.text().contains("script"));
    assert!(browser.cookies.is_empty());
    let _ = provider;
    Ok(())
}

#[tokio::test]
async fn logout_removes_the_cookies_and_ends_the_session_at_the_provider() -> TestResult {
    let (provider, _backend, gateway) = gateway_with(json!({"postLogoutPath": "/bye"})).await?;
    let mut browser = fresh();
    browser.log_in(gateway.addr(), &provider, "/").await?;
    browser.cookies.insert("theme".into(), "dark".into());
    let response = browser.open(gateway.addr(), "/oauth2/logout").await?;
    assert_eq!(response.status, 302);
    let location = response.header("location").unwrap().to_owned();
    let (url, query) = location.split_once('?').unwrap();
    assert_eq!(url, format!("{}/logout", provider.state().issuer));
    let parameters = provider::parse(query);
    assert_eq!(parameters["post_logout_redirect_uri"], "http://localhost/bye");
    assert_eq!(parameters["id_token_hint"].split('.').count(), 3);
    assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), ["theme"]);
    assert_eq!(browser.open(gateway.addr(), "/").await?.status, 302);
    assert_eq!(events(&gateway, SessionEvent::LoggedOut), 1);
    // Without an end session endpoint, the browser returns at once.
    let endpoints = {
        let issuer = provider.state().issuer.clone();
        let url = |path: &str| format!("{issuer}/{path}");
        json!({"authorization": url("authorize"), "token": url("token"), "jwks": url("keys")})
    };
    let policy = asking(login_of(&provider, OLD, json!({"endpoints": endpoints, "logoutPath": "/out"})));
    gateway.configure(|config| set_security(config, Some(policy))).await;
    let mut browser = fresh();
    assert_eq!(browser.log_in(gateway.addr(), &provider, "/").await?.status, 302);
    assert_eq!(browser.open(gateway.addr(), "/").await?.status, 200);
    let response = browser.open(gateway.addr(), "/out").await?;
    assert_eq!(response.header("location"), Some("http://localhost/"));
    assert!(browser.cookies.is_empty());
    Ok(())
}

#[tokio::test]
async fn long_tokens_are_in_several_cookies_up_to_a_limit() -> TestResult {
    let fields = json!({"forwardAccessToken": true, "idTokenHeader": "X-ID-Token"});
    let (provider, backend, gateway) = gateway_with(fields).await?;
    provider.state().filler = 9000;
    let mut browser = fresh();
    assert_eq!(browser.log_in(gateway.addr(), &provider, "/").await?.status, 302);
    assert_eq!(browser.sessions().len(), 4);
    assert_eq!(browser.open(gateway.addr(), "/").await?.status, 200);
    let seen = backend.last_request().unwrap();
    assert_eq!(seen.header("authorization").map(str::len), Some("Bearer access-".len() + 9001));
    assert_eq!(seen.header("x-id-token").map(|token| token.split('.').count()), Some(3));
    assert_eq!(seen.header("cookie"), None);
    // A part is missing.
    let last = browser.sessions()[3].clone();
    let mut part = browser.clone();
    part.cookies.remove(&last);
    assert_eq!(part.open(gateway.addr(), "/").await?.status, 302);
    // A shorter session removes the further cookies.
    provider.state().filler = 0;
    let first = browser.cookies.iter_mut().find(|(name, _)| !name.contains('.'));
    first.unwrap().1.truncate(10);
    assert_eq!(browser.log_in(gateway.addr(), &provider, "/").await?.status, 302);
    assert_eq!(browser.sessions().len(), 1);
    provider.state().filler = 16_000;
    let mut browser = fresh();
    assert_eq!(browser.log_in(gateway.addr(), &provider, "/").await?.status, 502);
    assert_eq!(denied(&gateway, Denial::SessionTooLong), 1);
    Ok(())
}

#[tokio::test]
async fn claims_of_a_session_authorize_its_user() -> TestResult {
    let (provider, _backend, gateway) = gateway_with(json!({})).await?;
    let rules = json!({"rules": [{"action": "Allow", "claims": [{"name": "groups", "values": ["admin"]}]}]});
    let mut policy = asking(login_of(&provider, OLD, json!({})));
    policy.authorization = Some(written(rules));
    gateway.configure(|config| set_security(config, Some(policy))).await;
    let mut browser = fresh();
    browser.log_in(gateway.addr(), &provider, "/").await?;
    assert_eq!(browser.open(gateway.addr(), "/").await?.status, 200);
    provider.state().claims = json!({"groups": ["staff"]});
    let mut other = fresh();
    other.log_in(gateway.addr(), &provider, "/").await?;
    assert_eq!(other.open(gateway.addr(), "/").await?.status, 403);
    assert_eq!(denied(&gateway, Denial::Forbidden), 1);
    Ok(())
}

#[tokio::test]
async fn token_or_session_authenticates_if_one_method_is_enough() -> TestResult {
    let provider = Provider::start().await?;
    let policy = asking(either(shared_jwt(), login_of(&provider, OLD, json!({}))));
    let (_backend, gateway) = guarded(policy).await?;
    assert_eq!(fresh().open(gateway.addr(), "/").await?.status, 302);
    assert_eq!(fresh().log_in(gateway.addr(), &provider, "/").await?.status, 302);
    let line = format!("Authorization: Bearer {}", good_token());
    assert_eq!(ask(&gateway, "/", &[&line]).await?.status, 200);
    // A client with a bad token is no browser that could log in.
    let lines = ["Authorization: Bearer x", "Accept: text/html"];
    assert_eq!(ask(&gateway, "/", &lines).await?.status, 401);
    let all = asking(all(shared_jwt(), login_of(&provider, OLD, json!({}))));
    gateway.configure(|config| set_security(config, Some(all))).await;
    assert_eq!(ask(&gateway, "/", &[&line]).await?.status, 401);
    Ok(())
}

#[tokio::test]
async fn login_needs_no_route_for_its_paths_and_takes_none_from_another_namespace() -> TestResult {
    let provider = Provider::start().await?;
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut builder = Gateway::builder().backends([&backend]).route("shop.example", "/admin", "backend");
    let policy = Arc::new(asking(login_of(&provider, OLD, json!({}))));
    let add = |config: &mut Config, others: Option<&str>| {
        for host in &mut config.hosts {
            let VirtualHost { rules, .. } = Arc::make_mut(host);
            rules.retain(|rule| rule.path() == "/admin");
            rules.iter_mut().for_each(|rule| rule.security = Some(policy.clone()));
            let other = rules.first().zip(others).map(|(rule, namespace)| {
                let id = ObjectId { namespace: namespace.into(), ..id("Ingress", "other") };
                let path = sluicegate_model::PathPattern::Prefix("/".into());
                let upstream = rule.backends[0].upstream.clone();
                sluicegate_model::Rule::new(id, path, upstream)
            });
            rules.extend(other);
        }
    };
    add(builder.config_mut(), None);
    let namespace = builder.config_mut().hosts.iter().flat_map(|host| host.rules.first()).next();
    let own = namespace.unwrap().id.namespace.to_string();
    let gateway = builder.start().await?;
    let mut browser = Browser::at("shop.example", Transport::Http);
    assert_eq!(browser.log_in(gateway.addr(), &provider, "/admin").await?.status, 302);
    assert_eq!(browser.open(gateway.addr(), "/admin").await?.status, 200);
    assert_eq!(browser.open(gateway.addr(), "/elsewhere").await?.status, 404);
    // A route of the same namespace serves all other paths.
    gateway.configure(|config| add(config, Some(&own))).await;
    let mut browser = Browser::at("shop.example", Transport::Http);
    assert_eq!(browser.log_in(gateway.addr(), &provider, "/admin").await?.status, 302);
    assert_eq!(browser.open(gateway.addr(), "/elsewhere").await?.status, 200);
    assert_eq!(browser.open(gateway.addr(), "/oauth2/logout").await?.status, 302);
    // The routes of another namespace have all of their paths.
    gateway.configure(|config| add(config, Some("another"))).await;
    let requests = backend.requests();
    assert_eq!(browser.open(gateway.addr(), "/oauth2/callback?code=x&state=y").await?.status, 200);
    assert_eq!(backend.requests(), requests + 1);
    Ok(())
}
