//! JSON Web Tokens.

use sluicegate_jwt::Fault;

use super::*;

#[tokio::test]
async fn valid_token_is_admitted_and_its_claims_reach_the_endpoint() -> TestResult {
    let (backend, gateway) = guarded(asking(shared_jwt())).await?;
    let line = format!("Authorization: Bearer {}", good_token());
    for transport in [Transport::Http, Transport::Https, Transport::Http2] {
        let lines = [&*line, "X-User: admin", "X-Consumer-Username: admin"];
        let response = ask_by(&gateway, "GET", "/", &lines, transport).await?;
        assert_eq!(response.status, 200, "{transport:?}");
        let seen = backend.last_request().unwrap();
        let users: Vec<_> =
            seen.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-user")).collect();
        assert_eq!(users.len(), 1, "{users:?}");
        assert_eq!(seen.header("x-user"), Some("42"));
        assert_eq!(seen.header("x-consumer-username"), None);
        assert_eq!(seen.header("authorization").map(|it| it.len()), Some(line.len() - 15));
    }
    Ok(())
}

#[tokio::test]
async fn missing_or_invalid_token_returns_401_with_a_challenge() -> TestResult {
    let (backend, gateway) = guarded(asking(shared_jwt())).await?;
    let with = |change: &dyn Fn(&mut Value)| {
        let mut claims = claims();
        change(&mut claims);
        token(&json!({"alg": "HS256"}), &claims, SECRET)
    };
    let unsigned = {
        let token = token(&json!({"alg": "none"}), &claims(), SECRET);
        format!("{}.", token.rsplit_once('.').unwrap().0)
    };
    let deep = format!("{}{}", "[".repeat(3000), "]".repeat(3000));
    let deep = URL_SAFE_NO_PAD.encode(format!("{{\"a\":{deep}}}"));
    for (token, fault) in [
        (unsigned, Fault::Algorithm),
        (token(&json!({"alg": "HS256"}), &claims(), b"another secret that is long"), Fault::Signature),
        (with(&|claims| claims["exp"] = json!(now() - 1)), Fault::Expired),
        (with(&|claims| claims["nbf"] = json!(now() + 60)), Fault::NotYetValid),
        (with(&|claims| claims["aud"] = json!("another")), Fault::Audience),
        (with(&|claims| claims["iss"] = json!("https://evil.example")), Fault::Issuer),
        (with(&|claims| claims["exp"] = json!(null)), Fault::Malformed),
        (format!("{}.x", good_token()), Fault::Malformed),
        (format!("e30.{deep}.x"), Fault::Malformed),
        ("x".repeat(20_000), Fault::TooLong),
    ] {
        let response = ask(&gateway, "/", &[&format!("Authorization: Bearer {token}")]).await?;
        assert_eq!(response.status, 401, "{fault}");
        assert_eq!(response.header("www-authenticate"), Some("Bearer error=\"invalid_token\""), "{fault}");
        assert_eq!(denied(&gateway, Denial::Token(fault)), 1, "{fault}");
        // A new policy starts with counters of 0, so each fault is counted alone.
        gateway.configure(|config| set_security(config, None)).await;
        gateway.configure(|config| set_security(config, Some(asking(shared_jwt())))).await;
    }
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 401);
    assert_eq!(ask(&gateway, "/", &["Authorization: Bearer"]).await?.status, 401);
    assert_eq!(ask(&gateway, "/", &["Authorization: Basic YTpi"]).await?.status, 401);
    assert_eq!(denied(&gateway, Denial::NoCredentials), 3);
    assert_eq!(backend.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn two_authorization_headers_are_rejected_in_either_order() -> TestResult {
    let (backend, gateway) = guarded(asking(shared_jwt())).await?;
    let (good, bad) =
        (format!("Authorization: Bearer {}", good_token()), "Authorization: Bearer x".to_owned());
    for lines in [[&*good, &*bad], [&*bad, &*good], [&*good, &*good]] {
        assert_eq!(ask(&gateway, "/", &lines).await?.status, 400);
    }
    assert_eq!(denied(&gateway, Denial::AmbiguousCredentials), 3);
    assert_eq!(backend.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn replaced_jwt_key_invalidates_cached_tokens_at_once() -> TestResult {
    let (_backend, gateway) = guarded(asking(shared_jwt())).await?;
    let line = format!("Authorization: Bearer {}", good_token());
    for _ in 0..5 {
        assert_eq!(ask(&gateway, "/", &[&line]).await?.status, 200);
    }
    let other = jwt(provider(shared(b"another secret, as long as it has to be")));
    gateway.configure(|config| set_security(config, Some(asking(other)))).await;
    for _ in 0..5 {
        assert_eq!(ask(&gateway, "/", &[&line]).await?.status, 401);
    }
    gateway.configure(|config| set_security(config, Some(asking(shared_jwt())))).await;
    assert_eq!(ask(&gateway, "/", &[&line]).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn cached_token_is_accepted_only_until_its_expiry_and_only_by_its_policy() -> TestResult {
    let (_backend, gateway) = guarded(asking(shared_jwt())).await?;
    let mut short = claims();
    short["exp"] = json!(now() + 1);
    let line = format!("Authorization: Bearer {}", token(&json!({"alg": "HS256"}), &short, SECRET));
    let mut last = ask(&gateway, "/", &[&line]).await?.status;
    let began = now();
    while last == 200 && now() < began + 10 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        last = ask(&gateway, "/", &[&line]).await?.status;
    }
    assert_eq!((last, denied(&gateway, Denial::Token(Fault::Expired))), (401, 1));

    // The same key and issuer, with a further required claim.
    let good = format!("Authorization: Bearer {}", good_token());
    assert_eq!(ask(&gateway, "/", &[&good]).await?.status, 200);
    let mut strict = provider(shared(SECRET));
    strict.required_claims = written(json!([{"name": "role", "values": ["admin"]}]));
    gateway.configure(|config| set_security(config, Some(asking(jwt(strict))))).await;
    assert_eq!(ask(&gateway, "/", &[&good]).await?.status, 401);
    Ok(())
}

#[tokio::test]
async fn token_is_verified_only_by_the_keys_of_its_issuer() -> TestResult {
    let other_secret = b"fedcba9876543210fedcba9876543210";
    let one = provider(shared(SECRET));
    let other = Provider {
        name: written(json!("other")),
        issuer: Some(written(json!("https://other.example"))),
        ..provider(shared(other_secret))
    };
    let from = vec![bearer(), written(json!({"cookie": "token"}))];
    let (backend, gateway) = guarded(asking(jwt_of(vec![one, other], from, false))).await?;
    let of = |issuer: &str, secret: &[u8]| {
        let mut claims = claims();
        claims["iss"] = json!(issuer);
        token(&json!({"alg": "HS256"}), &claims, secret)
    };
    for (token, status) in [
        (of("https://acme.example", SECRET), 200),
        (of("https://other.example", other_secret), 200),
        (of("https://acme.example", other_secret), 401),
        (of("https://other.example", SECRET), 401),
    ] {
        let lines = [&*format!("Cookie: a=b; token={token}")];
        assert_eq!(ask(&gateway, "/", &lines).await?.status, status);
    }
    assert_eq!(backend.last_request().unwrap().header("cookie"), Some("a=b"), "the token stays here");
    Ok(())
}

#[tokio::test]
async fn token_of_a_configured_issuer_is_not_verified_by_another_provider() -> TestResult {
    let other_secret = b"fedcba9876543210fedcba9876543210";
    let name = written(json!("any-issuer"));
    let any_issuer = Provider { name, issuer: None, ..provider(shared(other_secret)) };
    let providers = vec![provider(shared(SECRET)), any_issuer];
    let (_backend, gateway) = guarded(asking(jwt_of(providers, vec![bearer()], true))).await?;
    for (issuer, secret, status) in [
        (json!("https://acme.example"), SECRET, 200),
        (json!("https://acme.example"), other_secret, 401),
        (json!("https://third.example"), other_secret, 200),
        (json!(null), other_secret, 200),
        (json!(null), SECRET, 401),
    ] {
        let mut claims = claims();
        claims["iss"] = issuer.clone();
        let line = format!("Authorization: Bearer {}", token(&json!({"alg": "HS256"}), &claims, secret));
        assert_eq!(ask(&gateway, "/", &[&line]).await?.status, status, "{issuer}");
    }
    Ok(())
}

#[tokio::test]
async fn route_with_an_unusable_security_policy_returns_503() -> TestResult {
    let missing = FromSecret::Unusable("Secret default/keys does not exist".into());
    let unusable = jwt(provider(ProviderKeys::Shared(missing)));
    let (backend, gateway) = guarded(asking(unusable.clone())).await?;
    let line = format!("Authorization: Bearer {}", good_token());
    assert_eq!(ask(&gateway, "/", &[&line]).await?.status, 503);
    let broken = basic_of(FromSecret::Unusable("no Secret".into()));
    let nonsense = ProviderKeys::Secret(FromSecret::Value(KeyBytes::new(*b"nonsense").unwrap()));
    for (authentication, status) in [
        (all(shared_jwt(), broken.clone()), 503),
        (either(shared_jwt(), broken.clone()), 200),
        (either(unusable, broken), 503),
        (all(jwt(provider(nonsense)), Authentication::default()), 503),
    ] {
        gateway.configure(|config| set_security(config, Some(asking(authentication)))).await;
        assert_eq!(ask(&gateway, "/", &[&line]).await?.status, status);
    }
    let refusing = Security { refuses: Some("spec.access.allow[0] is no network".into()), ..open() };
    gateway.configure(|config| set_security(config, Some(refusing))).await;
    assert_eq!(ask(&gateway, "/", &[&line]).await?.status, 503);
    assert_eq!(backend.requests(), 1);
    assert!(denied(&gateway, Denial::Unusable) >= 1);
    Ok(())
}

#[tokio::test]
async fn token_policy_changes_under_load_lose_no_request() -> TestResult {
    let (_backend, gateway) = with(|_| {}).await?;
    let query: Credential = written(json!({"query": "access_token"}));
    let token = |from| jwt_of(vec![provider(shared(SECRET))], from, true);
    let load = gateway.load().path(&format!("/?access_token={}", good_token())).expect_own_id().start()?;
    for round in 1..=20 {
        let security = match round % 3 {
            0 => Some(asking(token(vec![query.clone()]))),
            1 => Some(asking(either(token(vec![bearer(), query.clone()]), api_key("x-api-key")))),
            _ => None,
        };
        gateway.configure(|config| set_security(config, security)).await;
        gateway.wait_until(|gateway| gateway.count(|shard| &shard.attempts) > round * 20).await?;
    }
    let report = load.stop().await?;
    assert_eq!(report.failures(), 0, "{report:?}");
    Ok(())
}
