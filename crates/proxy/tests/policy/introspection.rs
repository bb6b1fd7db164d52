//! Tokens that an authorization server checks.

use sluicegate_jwt::Fault;
use sluicegate_model::feature::Introspection;
use sluicegate_proxy::counters::Check;
use sluicegate_testkit::provider::{self, CLIENT, Provider};

use super::*;

fn introspection(provider: &Provider, fields: Value) -> Authentication {
    let mut introspection = json!({
        "url": format!("{}/introspect", provider.state().issuer),
        "clientId": CLIENT,
        "clientSecretRef": {"name": "unused"},
        "timeout": "500ms",
        "claimToHeaders": [{"claim": "sub", "header": "x-user"}],
    });
    introspection.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let secret = KeyBytes::new(provider::SECRET.as_bytes()).unwrap();
    let client_secret_ref = FromSecret::Value(secret);
    let introspection = Introspection { client_secret_ref, ..written(introspection) };
    Authentication { introspection: Some(Arc::new(introspection)), ..Authentication::default() }
}

async fn gateway_with(fields: Value) -> anyhow::Result<(Provider, Backend, Gateway)> {
    let provider = Provider::start().await?;
    let backend = Backend::start(Behaviour::ok()).await?;
    // Each worker has its own cache.
    let mut builder = Gateway::builder().backends([&backend]).workers(1);
    set_security(builder.config_mut(), Some(asking(introspection(&provider, fields))));
    Ok((provider, backend, builder.start().await?))
}

async fn status(gateway: &Gateway, token: &str) -> anyhow::Result<u16> {
    Ok(ask(gateway, "/", &[&format!("Authorization: Bearer {token}")]).await?.status)
}

fn checks(gateway: &Gateway, check: Check) -> u64 {
    let policies = gateway.proxy().registry().policies();
    policies.iter().map(|policy| policy.stats.sum(|shard| &shard.checks[check as usize])).sum()
}

#[tokio::test]
async fn active_token_is_admitted_with_its_claims_and_cached() -> TestResult {
    let (provider, backend, gateway) = gateway_with(json!({})).await?;
    provider.state().introspected.insert("good".into(), json!({"active": true, "sub": "42", "scope": "a b"}));
    for _ in 0..5 {
        let lines = ["Authorization: Bearer good", "X-User: admin"];
        assert_eq!(ask(&gateway, "/", &lines).await?.status, 200);
    }
    assert_eq!(provider.state().introspections, 1);
    let seen = backend.last_request().unwrap();
    let users: Vec<_> = seen.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-user")).collect();
    assert_eq!(users.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["42"]);
    assert_eq!(seen.header("authorization"), Some("Bearer good"));
    let response = ask(&gateway, "/", &["Authorization: Bearer bad"]).await?;
    assert_eq!(response.status, 401);
    assert_eq!(response.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
    assert_eq!(status(&gateway, "bad").await?, 401);
    assert_eq!((provider.state().introspections, denied(&gateway, Denial::TokenInactive)), (2, 2));
    assert_eq!((checks(&gateway, Check::Admitted), checks(&gateway, Check::Refused)), (1, 1));
    assert_eq!(ask(&gateway, "/", &[]).await?.header("www-authenticate"), Some("Bearer"));
    assert_eq!(status(&gateway, &"x".repeat(20_000)).await?, 401);
    assert_eq!(denied(&gateway, Denial::Token(Fault::TooLong)), 1);
    assert_eq!(provider.state().introspections, 2);
    Ok(())
}

#[tokio::test]
async fn cached_answer_ends_with_the_token_or_with_the_time_of_the_policy() -> TestResult {
    let (provider, _backend, gateway) = gateway_with(json!({})).await?;
    let soon = now() + 2;
    provider.state().introspected.insert("short".into(), json!({"active": true, "exp": soon}));
    assert_eq!(status(&gateway, "short").await?, 200);
    provider.state().introspected.clear();
    gateway.wait_until(|_| now() >= soon).await?;
    assert_eq!(status(&gateway, "short").await?, 401);
    let policy = introspection(&provider, json!({"cache": {"active": "0s", "inactive": "0s"}}));
    gateway.configure(|config| set_security(config, Some(asking(policy)))).await;
    provider.state().introspected.insert("token".into(), json!({"active": true}));
    assert_eq!(status(&gateway, "token").await?, 200);
    provider.state().introspected.clear();
    assert_eq!(status(&gateway, "token").await?, 401);
    provider.state().introspected.insert("token".into(), json!({"active": true}));
    assert_eq!(status(&gateway, "token").await?, 200);
    Ok(())
}

#[tokio::test]
async fn claims_of_the_answer_must_match_the_policy() -> TestResult {
    let fields = json!({
        "issuer": "https://acme.example", "audiences": ["shop"],
        "requiredClaims": [{"name": "scope", "values": ["write"]}],
    });
    let (provider, _backend, gateway) = gateway_with(fields).await?;
    let good = json!({"active": true, "iss": "https://acme.example", "aud": ["shop"], "scope": "read write"});
    for (name, change, fault) in [
        ("good", json!({}), None),
        ("issuer", json!({"iss": "https://evil.example"}), Some(Fault::Issuer)),
        ("audience", json!({"aud": "other"}), Some(Fault::Audience)),
        ("scope", json!({"scope": "read"}), Some(Fault::Claim)),
        ("expired", json!({"exp": now() - 1}), Some(Fault::Expired)),
        ("early", json!({"nbf": now() + 600}), Some(Fault::NotYetValid)),
    ] {
        let mut answer = good.clone();
        answer.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        provider.state().introspected.insert(name.into(), answer);
        assert_eq!(status(&gateway, name).await?, if fault.is_some() { 401 } else { 200 }, "{name}");
        if let Some(fault) = fault {
            assert_eq!(denied(&gateway, Denial::Token(fault)), 1, "{name}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn server_that_gives_no_valid_answer_closes_the_route() -> TestResult {
    let (mut provider, backend, gateway) = gateway_with(json!({})).await?;
    provider.state().introspected.insert("good".into(), json!({"active": true}));
    let ok = |body: Value| provider::response(200, &body);
    for (index, answer) in [
        Behaviour::silent(),
        Behaviour::garbage(),
        Behaviour::sized(1_000_000),
        Behaviour::status(500),
        provider::response(401, &json!({"error": "invalid_client"})),
        ok(json!([])),
        ok(json!({})),
        ok(json!({"active": "true"})),
        ok(json!({"active": true, "filler": "x".repeat(20_000)})),
    ]
    .into_iter()
    .enumerate()
    {
        provider.state().introspection_response = Some(answer);
        assert_eq!(status(&gateway, "good").await?, 503, "{index}");
    }
    assert_eq!((denied(&gateway, Denial::IntrospectionUnavailable), backend.requests()), (9, 0));
    assert_eq!(checks(&gateway, Check::Failed), 9);
    provider.state().introspection_response = None;
    assert_eq!(status(&gateway, "good").await?, 200);
    provider.backend().kill().await;
    assert_eq!(status(&gateway, "good").await?, 200, "the answer is cached");
    assert_eq!(status(&gateway, "other").await?, 503);
    Ok(())
}

#[tokio::test]
async fn requests_with_one_token_share_a_question_and_a_closed_connection_is_replaced() -> TestResult {
    let (provider, _backend, gateway) = gateway_with(json!({"timeout": "5s"})).await?;
    let slow = provider::response(200, &json!({"active": true})).delay(Duration::from_millis(200));
    provider.state().introspection_response = Some(slow.then_close());
    let mut all = tokio::task::JoinSet::new();
    let addr = gateway.addr();
    for _ in 0..10 {
        all.spawn(async move {
            let mut client = sluicegate_testkit::client::Client::connect(addr).await?;
            let head = "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer one\r\n\r\n";
            anyhow::Ok(client.request(head).await?.status)
        });
    }
    while let Some(status) = all.join_next().await {
        assert_eq!(status??, 200);
    }
    assert_eq!(checks(&gateway, Check::Admitted) + checks(&gateway, Check::Shared), 10);
    assert!(checks(&gateway, Check::Shared) > 0);
    assert_eq!(status(&gateway, "two").await?, 200);
    Ok(())
}
