//! API keys, passwords, and the identity headers that endpoints receive.

use sluicegate_model::policy::consumer::{SubjectClaim, TokenSubject};

use super::*;

pub(super) fn set_consumers(config: &mut Config, consumers: Vec<Consumer>) {
    config.consumers = consumers.into_iter().map(Arc::new).collect();
}

#[tokio::test]
async fn api_key_in_header_or_query_authenticates_and_is_not_forwarded() -> TestResult {
    let (backend, gateway) = with(|config| {
        set_security(config, Some(asking(api_key("x-api-key"))));
        set_consumers(config, vec![consumer("alice", "alice-key"), consumer("bob", "bob-key")]);
    })
    .await?;
    let forged = "X-Consumer-Username: root";
    for (target, lines, name) in [
        ("/?a=1", vec!["X-API-Key: alice-key", forged], "alice"),
        ("/?a=1&key=bob-key", vec![forged, "X-Consumer-Groups: root"], "bob"),
    ] {
        assert_eq!(ask(&gateway, target, &lines).await?.status, 200);
        let seen = backend.last_request().unwrap();
        assert_eq!(seen.target, "/?a=1");
        assert_eq!(seen.header("x-api-key"), None);
        assert_eq!(seen.header("x-consumer-username"), Some(name));
        assert_eq!(seen.header("x-consumer-groups"), Some("gold,eu"));
        assert_eq!(String::from_utf8_lossy(&seen.head).matches("onsumer-").count(), 2);
    }
    for (target, lines, status) in [
        ("/", vec![], 401),
        ("/", vec!["X-API-Key: alice-kez"], 401),
        ("/", vec!["X-API-Key: "], 401),
        ("/?key=", vec![], 401),
        ("/", vec!["X-API-Key: alice-key", "X-API-Key: bob-key"], 400),
        ("/?key=alice-key&key=bob-key", vec![], 400),
    ] {
        let response = ask(&gateway, target, &lines).await?;
        assert_eq!(response.status, status, "{target} {lines:?}");
        assert_eq!(response.header("www-authenticate").is_some(), status == 401);
    }
    assert_eq!(backend.requests(), 2);
    let consumers = gateway.proxy().registry().consumers();
    let served: Vec<u64> =
        consumers.iter().map(|(_, stats)| stats.sum(|shard| &shard.responses[1])).collect();
    assert_eq!(served, [1, 1]);
    Ok(())
}

#[tokio::test]
async fn request_with_the_key_of_an_invalid_consumer_returns_503() -> TestResult {
    let (backend, gateway) = with(|config| {
        set_security(config, Some(asking(api_key("x-api-key"))));
        let broken = Consumer { refused: true, ..consumer("broken", "broken-key") };
        set_consumers(config, vec![consumer("alice", "alice-key"), broken]);
    })
    .await?;
    assert_eq!(ask(&gateway, "/", &["X-API-Key: alice-key"]).await?.status, 200);
    assert_eq!(ask(&gateway, "/", &["X-API-Key: broken-key"]).await?.status, 503);
    assert_eq!((backend.requests(), denied(&gateway, Denial::Consumer)), (1, 1));
    Ok(())
}

/// Returns the given header lines as the endpoint received them.
async fn seen(backend: &Backend, gateway: &Gateway, lines: &[&str]) -> anyhow::Result<String> {
    assert_eq!(ask(gateway, "/", lines).await?.status, 200, "{lines:?}");
    Ok(String::from_utf8_lossy(&backend.last_request().unwrap().head).into_owned())
}

#[tokio::test]
async fn endpoint_receives_no_credential_that_the_gateway_did_not_verify() -> TestResult {
    let from = written(json!([{"query": "token"}, {"cookie": "session"}]));
    let from = [vec![bearer()], from].concat();
    let jwt = jwt_of(vec![provider(shared(SECRET))], from, true);
    let (backend, gateway) = with(|config| {
        set_security(config, Some(asking(either(jwt, api_key("x-api-key")))));
        set_consumers(config, vec![consumer("alice", "alice-key")]);
    })
    .await?;
    let (good, forged) = (good_token(), token(&json!({"alg": "none"}), &claims(), SECRET));
    let (header, other) = (format!("Authorization: Bearer {good}"), format!("Cookie: a=b; session={forged}"));
    let head = seen(&backend, &gateway, &[&header, &other]).await?;
    assert!(head.contains(&header) && head.contains("Cookie: a=b\r\n") && !head.contains(&forged), "{head}");
    let by_cookie = format!("Cookie: session={good}");
    assert!(seen(&backend, &gateway, &[&by_cookie]).await?.contains(&by_cookie));
    // One method is enough. The gateway also removes the credentials that another method did not accept.
    let head =
        seen(&backend, &gateway, &["X-API-Key: alice-key", &format!("Authorization: Bearer {forged}")])
            .await?;
    assert!(!head.contains(&forged) && head.contains("onsumer-Username: alice"), "{head}");
    Ok(())
}

#[tokio::test]
async fn identity_headers_cannot_be_forged_with_underscores() -> TestResult {
    let (backend, gateway) = with(|config| {
        config.settings.underscores_in_headers = true;
        config.settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        set_security(config, Some(asking(shared_jwt())));
    })
    .await?;
    let token = format!("Authorization: Bearer {}", good_token());
    let forged = [
        "X_User: root",
        "x-user: root",
        "X_Real_IP: root",
        "X_Forwarded_For: root",
        "Content_Length: root",
        "X_Consumer-Username: root",
        "X-Consumer-Groups: root",
        "a_b: c",
    ];
    let head = seen(&backend, &gateway, &[&[&*token][..], &forged].concat()).await?;
    assert!(!head.contains("root") && head.contains("x-user: 42") && head.contains("a_b: c"), "{head}");
    // A trusted proxy forwards headers of untrusted clients.
    gateway.configure(|config| set_security(config, None)).await;
    let head = seen(&backend, &gateway, &["X-Consumer-Username: root", "X_Consumer_Groups: root"]).await?;
    assert!(!head.contains("root"), "{head}");
    Ok(())
}

#[tokio::test]
async fn trailers_are_dropped_on_authenticated_routes() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let mut builder = Gateway::builder().backends([&backend]);
    set_security(builder.config_mut(), Some(asking(shared_jwt())));
    let gateway = builder.start().await?;
    for (lines, is_passed) in
        [(format!("Authorization: Bearer {}\r\n", good_token()), false), (String::new(), true)]
    {
        if is_passed {
            gateway.configure(|config| set_security(config, None)).await;
        }
        let request = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\n{lines}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-User: root\r\n\r\n"
        );
        let response = gateway.connect().await?.request(request).await?;
        let text = response.text();
        assert_eq!(text.contains("root"), is_passed, "{text}");
        assert!(text.ends_with("\r\n\r\n"), "{text}");
    }
    Ok(())
}

#[tokio::test]
async fn all_required_methods_must_identify_the_same_consumer() -> TestResult {
    let mut alice = consumer("alice", "alice-key");
    alice.tokens = vec![TokenSubject { issuer: None, claim: SubjectClaim::Subject, value: "42".into() }];
    let security = asking(all(shared_jwt(), api_key("x-api-key")));
    let (_backend, gateway) = with(|config| {
        set_security(config, Some(security));
        set_consumers(config, vec![alice.clone(), consumer("bob", "bob-key")]);
    })
    .await?;
    let token = format!("Authorization: Bearer {}", good_token());
    assert_eq!(ask(&gateway, "/", &["X-API-Key: alice-key", &token]).await?.status, 200);
    assert_eq!(ask(&gateway, "/", &["X-API-Key: bob-key", &token]).await?.status, 400, "a stolen token");
    assert_eq!(denied(&gateway, Denial::AmbiguousCredentials), 1);
    Ok(())
}

#[tokio::test]
async fn key_rotation_and_consumer_removal_take_effect_at_once() -> TestResult {
    let (_backend, gateway) = with(|config| {
        set_security(config, Some(asking(api_key("x-api-key"))));
        set_consumers(config, vec![consumer("alice", "one")]);
    })
    .await?;
    assert_eq!(ask(&gateway, "/", &["X-API-Key: one"]).await?.status, 200);
    gateway.configure(|config| set_consumers(config, vec![consumer("alice", "two")])).await;
    assert_eq!(ask(&gateway, "/", &["X-API-Key: one"]).await?.status, 401);
    assert_eq!(ask(&gateway, "/", &["X-API-Key: two"]).await?.status, 200);
    gateway.configure(|config| set_consumers(config, Vec::new())).await;
    assert_eq!(ask(&gateway, "/", &["X-API-Key: two"]).await?.status, 401);
    Ok(())
}

#[tokio::test]
async fn consumers_of_other_namespaces_are_rejected_unless_allowed() -> TestResult {
    let mut security = asking(api_key("x-api-key"));
    let mut stranger = consumer("alice", "stranger-key");
    stranger.id.namespace = "elsewhere".into();
    let (_backend, gateway) = with(|config| {
        set_security(config, Some(security.clone()));
        set_consumers(config, vec![consumer("alice", "own-key"), stranger]);
    })
    .await?;
    assert_eq!(ask(&gateway, "/", &["X-API-Key: own-key"]).await?.status, 200);
    assert_eq!(ask(&gateway, "/", &["X-API-Key: stranger-key"]).await?.status, 401);
    for (namespaces, status) in
        [(json!(["default"]), 401), (json!(["default", "elsewhere"]), 200), (json!(["*"]), 200)]
    {
        let scope = written(json!({"namespaces": namespaces}));
        security.authentication.as_mut().unwrap().consumers = Some(scope);
        gateway.configure(|config| set_security(config, Some(security.clone()))).await;
        assert_eq!(ask(&gateway, "/", &["X-API-Key: stranger-key"]).await?.status, status, "{namespaces}");
    }
    Ok(())
}

#[tokio::test]
async fn token_subject_identifies_its_consumer() -> TestResult {
    let mut alice = consumer("alice", "k");
    alice.tokens = vec![TokenSubject {
        issuer: Some("https://acme.example".into()),
        claim: SubjectClaim::Subject,
        value: "42".into(),
    }];
    let (backend, gateway) = with(|config| {
        set_security(config, Some(asking(shared_jwt())));
        set_consumers(config, vec![alice]);
    })
    .await?;
    let line = format!("Authorization: Bearer {}", good_token());
    for _ in 0..2 {
        assert_eq!(ask(&gateway, "/", &[&line]).await?.status, 200);
        assert_eq!(backend.last_request().unwrap().header("x-consumer-username"), Some("alice"));
    }
    gateway.configure(|config| set_consumers(config, vec![consumer("bob", "k")])).await;
    assert_eq!(ask(&gateway, "/", &[&line]).await?.status, 200);
    assert_eq!(backend.last_request().unwrap().header("x-consumer-username"), None);
    Ok(())
}

fn passwords() -> Authentication {
    let users = vec![
        ("alice".into(), "$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC".into()),
        ("bob".into(), "{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=".into()),
    ];
    basic_of(FromSecret::Value(users))
}

#[tokio::test]
async fn basic_authentication_admits_only_valid_passwords() -> TestResult {
    let (backend, gateway) = guarded(asking(passwords())).await?;
    for (name, password, status) in [
        ("alice", "myPassword", 200),
        ("alice", "myPassword", 200),
        ("bob", "myPassword", 200),
        ("alice", "wrong", 401),
        ("alice", "", 401),
        ("carol", "myPassword", 401),
    ] {
        let response = ask(&gateway, "/", &[&basic(name, password)]).await?;
        assert_eq!(response.status, status, "{name}:{password}");
        let challenge = response.header("www-authenticate");
        let expected = (status == 401).then_some("Basic realm=\"shop\", charset=\"UTF-8\"");
        assert_eq!(challenge, expected);
    }
    assert_eq!(backend.last_request().unwrap().header("authorization"), None);
    assert_eq!(ask(&gateway, "/", &["Authorization: Basic !!!"]).await?.status, 401);
    assert_eq!(denied(&gateway, Denial::Password), 4);
    Ok(())
}

#[tokio::test]
async fn authentication_requires_any_or_all_methods_as_configured() -> TestResult {
    let (backend, gateway) = with(|config| {
        set_security(config, Some(asking(either(either(shared_jwt(), api_key("x-api-key")), passwords()))));
        set_consumers(config, vec![consumer("alice", "alice-key")]);
    })
    .await?;
    let token = format!("Authorization: Bearer {}", good_token());
    let (key, password) = ("X-API-Key: alice-key", basic("bob", "myPassword"));
    for lines in [vec![&*token], vec![key], vec![&*password], vec!["Authorization: Bearer x", key]] {
        assert_eq!(ask(&gateway, "/", &lines).await?.status, 200, "{lines:?}");
    }
    let response = ask(&gateway, "/", &[]).await?;
    assert_eq!(response.headers_named("www-authenticate").len(), 3);
    let both = asking(all(shared_jwt(), api_key("x-api-key")));
    gateway.configure(|config| set_security(config, Some(both))).await;
    for (lines, status) in [(vec![&*token], 401), (vec![key], 401), (vec![&*token, key], 200)] {
        assert_eq!(ask(&gateway, "/", &lines).await?.status, status, "{lines:?}");
    }
    assert_eq!(backend.last_request().unwrap().header("x-user"), Some("42"));
    Ok(())
}

#[tokio::test]
async fn forged_consumer_headers_are_dropped_without_authentication() -> TestResult {
    let (backend, gateway) = with(|_| {}).await?;
    let lines = ["X-Consumer-Username: root", "x-consumer-groups: admin", "X-Constant: 1"];
    assert_eq!(ask(&gateway, "/", &lines).await?.status, 200);
    let seen = backend.last_request().unwrap();
    assert_eq!((seen.header("x-consumer-username"), seen.header("x-consumer-groups")), (None, None));
    assert_eq!(seen.header("x-constant"), Some("1"));
    Ok(())
}

#[tokio::test]
async fn access_log_in_a_format_of_nginx_has_no_secrets_in_any_variable_of_the_query() -> TestResult {
    use sluicegate_model::access_log::{LogEscape, LogFormat};

    let file = tempfile::NamedTempFile::new()?;
    let log = sluicegate_proxy::record::access_log::AccessLog::open(
        sluicegate_proxy::record::access_log::LogFormat::Json,
        Some(file.path()),
    )?;
    let text = "$status|$request|$request_uri|$args|$arg_key|$arg_a|$http_referer|$escaped_request_uri";
    let format = LogFormat::new(text, LogEscape::Default).map_err(anyhow::Error::msg)?;
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut builder = Gateway::builder()
        .backends([&backend])
        .settings(|settings| settings.access_log.format = Some(format))
        .options(|options| options.access_log = Some(log));
    set_security(builder.config_mut(), Some(asking(api_key("x-api-key"))));
    set_consumers(builder.config_mut(), vec![consumer("alice", "alice-key")]);
    let gateway = builder.start().await?;
    ask(&gateway, "/?a=1&key=alice-key", &["Referer: http://localhost/?key=other-key"]).await?;
    ask(&gateway, "/?key=guessed-key&b", &[]).await?;
    let rejected = "GET /?key=alice-key HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: x\r\n\r\n";
    assert!(gateway.connect().await?.request(rejected).await?.status >= 400);
    gateway.stop().await;
    let read = || std::fs::read_to_string(file.path()).unwrap();
    gateway.wait_until(|_| read().lines().count() == 3).await?;
    let text = read();
    let denied = "|GET /?key=***&b HTTP/1.1|/?key=***&b|key=***&b|***|-|-|***";
    assert!(text.lines().any(|line| line.ends_with(denied)), "{text}");
    let served = text.lines().find(|line| line.starts_with("200|")).expect("a line");
    let expected = "200|GET /?a=1&key=*** HTTP/1.1|/?a=1&key=***|a=1|-|1|http://localhost/?key=***|***";
    assert_eq!(served, expected);
    assert!(text.contains("|GET /?key=*** HTTP/1.1|/?key=***|-|-|"), "{text}");
    assert!(!text.contains("-key"), "{text}");
    Ok(())
}

#[tokio::test]
async fn access_log_contains_consumer_and_policy_but_no_secrets() -> TestResult {
    let file = tempfile::NamedTempFile::new()?;
    let log = sluicegate_proxy::record::access_log::AccessLog::open(
        sluicegate_proxy::record::access_log::LogFormat::Json,
        Some(file.path()),
    )?;
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut builder =
        Gateway::builder().backends([&backend]).options(|options| options.access_log = Some(log));
    set_security(builder.config_mut(), Some(asking(api_key("x-api-key"))));
    set_consumers(builder.config_mut(), vec![consumer("alice", "alice-key")]);
    let gateway = builder.start().await?;
    ask(&gateway, "/?key=alice-key&a=1", &[]).await?;
    ask(&gateway, "/?key=guessed-key", &["Referer: http://localhost/?key=other-key"]).await?;
    // Requests that the gateway rejects before it finds a route.
    for head in ["Host: localhost\r\nTransfer-Encoding: x", "Host: localhost\r\nExpect: x"] {
        let request = format!("GET /?key=alice-key HTTP/1.1\r\n{head}\r\n\r\n");
        assert!(gateway.connect().await?.request(request).await?.status >= 400);
    }
    gateway.stop().await;
    let read = || std::fs::read_to_string(file.path()).unwrap();
    gateway.wait_until(|_| read().lines().count() == 4).await?;
    let mut lines: Vec<Value> = read().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Each worker writes its own lines.
    lines.sort_by_key(|line| line["status"].as_u64());
    lines.retain(|line| line["reason"] == "unknown_key" || line["status"] == 200);
    assert_eq!(lines[0]["consumer"], "default/alice");
    assert_eq!(lines[0]["target"], "/?key=***&a=1");
    assert_eq!(lines[1]["policy"], "SecurityPolicy default/shop");
    assert_eq!(lines[1]["reason"], "unknown_key");
    assert_eq!(lines[1]["referer"], "http://localhost/?key=***");
    assert!(!read().contains("-key"), "{}", read());
    Ok(())
}
