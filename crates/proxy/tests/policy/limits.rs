//! Rate limits.

use sluicegate_model::feature::{Limit, LimitAlgorithm, LimitKey, Window};
use sluicegate_model::value::{Entries, HeaderName, Number, Span};

use super::*;

pub(super) fn limit(name: &str, requests: u32, key: Vec<LimitKey>) -> Limit {
    let limit = json!({"name": name, "requests": requests, "per": "1h"});
    Limit { key: Entries::new(key).unwrap(), ..written(limit) }
}

pub(super) fn paced(window: Window, limit: Limit) -> Limit {
    let (algorithm, burst) = match window {
        Window::TokenBucket { burst } => (LimitAlgorithm::TokenBucket, Some(Number::of(burst.into()))),
        Window::Sliding => (LimitAlgorithm::SlidingWindow, None),
    };
    Limit { algorithm, burst, ..limit }
}

fn limits(limits: Vec<Limit>) -> RateLimits {
    RateLimits {
        id: id("RateLimitPolicy", "calm"),
        limits,
        concurrency: Vec::new(),
        headers: true,
        shared: None,
        exempt: Entries::default(),
    }
}

/// The number of admitted requests among `requests` requests.
pub(super) async fn let_in(gateway: &Gateway, requests: u32, lines: &[&str]) -> anyhow::Result<u32> {
    let mut count = 0;
    for _ in 0..requests {
        let response = ask(gateway, "/", lines).await?;
        anyhow::ensure!(matches!(response.status, 200 | 429), "{}", response.status);
        count += u32::from(response.status == 200);
    }
    Ok(count)
}

#[tokio::test]
async fn request_over_the_rate_limit_receives_429_with_retry_after() -> TestResult {
    for window in [Window::TokenBucket { burst: 5 }, Window::Sliding] {
        let (backend, gateway) = with(|config| {
            set_limits(config, limits(vec![paced(window, limit("all", 5, Vec::new()))]));
        })
        .await?;
        let first = ask(&gateway, "/", &[]).await?;
        assert_eq!(first.header("ratelimit-policy"), Some("\"all\";q=5;w=3600"));
        assert!(first.header("ratelimit").unwrap().starts_with("\"all\";r=4;t="), "{first:?}");
        assert_eq!(let_in(&gateway, 10, &[]).await?, 4, "{window:?}: exact over workers");
        for transport in [Transport::Http, Transport::Http2] {
            let refused = ask_by(&gateway, "GET", "/", &[], transport).await?;
            assert_eq!(refused.status, 429);
            let wait: u64 = refused.header("retry-after").unwrap().parse()?;
            assert!((1..=3600).contains(&wait), "{wait}");
            assert!(refused.header("ratelimit").unwrap().starts_with("\"all\";r=0;t="));
        }
        assert_eq!(backend.requests(), 5);
        assert_eq!(denied(&gateway, Denial::RateLimit), 8);
    }
    Ok(())
}

#[tokio::test]
async fn request_over_a_limit_receives_the_status_code_of_the_limit() -> TestResult {
    for (status, limited) in [
        (503, json!({"name": "rate", "requests": 1, "per": "1h", "statusCode": 503})),
        (400, json!({"name": "rate", "requests": 1, "per": "1h", "statusCode": 400})),
    ] {
        let (_backend, gateway) = with(|config| set_limits(config, limits(vec![written(limited)]))).await?;
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
        for transport in [Transport::Http, Transport::Http2] {
            let refused = ask_by(&gateway, "GET", "/", &[], transport).await?;
            assert_eq!(refused.status, status, "{transport:?}");
            assert!(refused.header("retry-after").is_some());
        }
        assert_eq!(denied(&gateway, Denial::RateLimit), 2);
    }
    Ok(())
}

#[tokio::test]
async fn limits_do_not_apply_to_exempt_client_ips() -> TestResult {
    let exempt =
        |networks| RateLimits { exempt: written(networks), ..limits(vec![limit("all", 1, Vec::new())]) };
    let (_backend, gateway) =
        with(|config| set_limits(config, exempt(json!(["192.0.2.0/24", "127.0.0.1"])))).await?;
    for _ in 0..3 {
        let response = ask(&gateway, "/", &[]).await?;
        assert_eq!((response.status, response.header("ratelimit-policy")), (200, None));
    }
    gateway.configure(|config| set_limits(config, exempt(json!(["192.0.2.0/24"])))).await;
    assert_eq!(
        let_in(&gateway, 3, &["X-Forwarded-For: 192.0.2.1"]).await?,
        1,
        "the gateway does not trust the client"
    );
    // A trusted proxy that sends no valid client IP is not itself an exempt client.
    gateway
        .configure(|config| {
            config.settings.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
            set_limits(config, exempt(json!(["127.0.0.1", "192.0.2.0/24"])));
        })
        .await;
    assert_eq!(let_in(&gateway, 3, &["X-Forwarded-For: 192.0.2.1"]).await?, 3);
    assert_eq!(let_in(&gateway, 3, &["X-Forwarded-For: unknown"]).await?, 0);
    Ok(())
}

#[tokio::test]
async fn rate_limit_headers_never_overstate_the_remaining_quota() -> TestResult {
    for (window, per, policy, left) in [
        (Window::TokenBucket { burst: 50 }, 1500, "\"all\";q=50;w=8", "\"all\";r=49;"),
        (Window::TokenBucket { burst: 1 }, 1500, "\"all\";q=1;w=1", "\"all\";r=0;"),
        (Window::Sliding, 1500, "\"all\";q=10;w=2", "\"all\";r=9;"),
    ] {
        let limit = paced(window, Limit { per: Span::of_millis(per), ..limit("all", 10, Vec::new()) });
        let (_backend, gateway) = with(|config| set_limits(config, limits(vec![limit]))).await?;
        let response = ask(&gateway, "/", &[]).await?;
        assert_eq!(response.header("ratelimit-policy"), Some(policy));
        let said = response.header("ratelimit").unwrap();
        assert!(said.starts_with(left), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn callers_with_different_keys_have_separate_rate_limits_and_cannot_forge_keys() -> TestResult {
    let by_address = limit("address", 3, vec![LimitKey::Address { ipv6_prefix: Number::of(64) }]);
    let (_backend, gateway) = with(|config| set_limits(config, limits(vec![by_address]))).await?;
    for n in 0..3 {
        assert_eq!(let_in(&gateway, 1, &[&format!("X-Forwarded-For: 192.0.2.{n}")]).await?, 1);
    }
    let forged = [
        "X-Forwarded-For: 192.0.2.9",
        "X-Real-IP: 192.0.2.9",
        "Forwarded: for=192.0.2.9",
        "X-Client-IP: 192.0.2.9",
    ];
    assert_eq!(let_in(&gateway, 5, &forged).await?, 0);
    gateway.configure(|config| config.settings.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()]).await;
    assert_eq!(let_in(&gateway, 5, &["X-Forwarded-For: 192.0.2.1"]).await?, 3);
    // The gateway ignores addresses that the client wrote before the address from the trusted proxy.
    assert_eq!(let_in(&gateway, 5, &["X-Forwarded-For: 198.51.100.7, 192.0.2.1"]).await?, 0);
    assert_eq!(let_in(&gateway, 5, &["X-Forwarded-For: 192.0.2.2"]).await?, 3);

    let by_header = limit("tenant", 2, vec![LimitKey::Header(HeaderName::new("x-tenant").unwrap())]);
    gateway.configure(|config| set_limits(config, limits(vec![by_header]))).await;
    for tenant in ["X-Tenant: a", "X-Tenant: b", "X-Other: c"] {
        assert_eq!(let_in(&gateway, 4, &[tenant]).await?, 2, "{tenant}");
    }
    assert_eq!(let_in(&gateway, 1, &[]).await?, 0, "those without one are one");
    for n in 0..3 {
        let lines = [&*format!("X-Tenant: new-{n}"), "X-Tenant: a"];
        assert_eq!(let_in(&gateway, 1, &lines).await?, 0, "and those with two");
    }
    let by_host = limit("host", 2, vec![LimitKey::Header(HeaderName::new("host").unwrap())]);
    gateway.configure(|config| set_limits(config, limits(vec![by_host]))).await;
    let mut let_in = 0;
    for host in ["LOCALHOST", "localHost:81", "localhost.", "Localhost"] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let_in += usize::from(gateway.connect().await?.request(request).await?.status == 200);
    }
    assert_eq!(let_in, 2, "hosts are what routes are found by");
    Ok(())
}

#[tokio::test]
async fn consumers_and_groups_have_separate_rate_limits() -> TestResult {
    let mut alice = consumer("alice", "alice-key");
    alice.groups = vec!["gold".into()];
    let mut bob = consumer("bob", "bob-key");
    bob.groups = vec!["bronze".into()];
    let of = |group: &str, requests| Limit {
        groups: written(json!([group])),
        ..limit(group, requests, vec![LimitKey::Consumer])
    };
    let (_backend, gateway) = with(|config| {
        set_security(config, Some(asking(api_key("x-api-key"))));
        set_limits(config, limits(vec![of("gold", 6), of("bronze", 2)]));
        config.consumers = vec![Arc::new(alice), Arc::new(bob)];
    })
    .await?;
    assert_eq!(let_in(&gateway, 10, &["X-API-Key: alice-key"]).await?, 6);
    assert_eq!(let_in(&gateway, 10, &["X-API-Key: bob-key"]).await?, 2);
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 401);
    Ok(())
}

#[tokio::test]
async fn requests_with_invalid_credentials_count_toward_the_rate_limit_by_address() -> TestResult {
    let by_address = limit("address", 3, vec![LimitKey::Address { ipv6_prefix: Number::of(64) }]);
    let (_backend, gateway) = with(|config| {
        set_security(config, Some(asking(api_key("x-api-key"))));
        set_limits(config, limits(vec![by_address]));
        config.consumers = vec![Arc::new(consumer("alice", "alice-key"))];
    })
    .await?;
    for _ in 0..3 {
        assert_eq!(ask(&gateway, "/", &["X-API-Key: guessed"]).await?.status, 401);
    }
    assert_eq!(ask(&gateway, "/", &["X-API-Key: guessed"]).await?.status, 429);
    assert_eq!(denied(&gateway, Denial::Key), 3);
    Ok(())
}

#[tokio::test]
async fn requests_that_authentication_or_another_limit_rejects_do_not_consume_a_shared_limit() -> TestResult {
    for window in [Window::TokenBucket { burst: 6 }, Window::Sliding] {
        let everybody = paced(window, limit("everybody", 6, Vec::new()));
        let each = limit("each", 3, vec![LimitKey::Consumer]);
        let (_backend, gateway) = with(|config| {
            set_security(config, Some(asking(api_key("x-api-key"))));
            set_limits(config, limits(vec![everybody, each]));
            config.consumers =
                ["alice", "bob"].map(|name| Arc::new(consumer(name, &format!("{name}-key")))).into();
        })
        .await?;
        for _ in 0..10 {
            assert_eq!(ask(&gateway, "/", &["X-API-Key: guessed"]).await?.status, 401);
        }
        assert_eq!(let_in(&gateway, 20, &["X-API-Key: alice-key"]).await?, 3);
        let refused = ask(&gateway, "/", &["X-API-Key: alice-key"]).await?;
        let policies = gateway.proxy().registry().policies();
        let reached = policies.iter().flat_map(|policy| &policy.limits).cloned();
        assert_eq!(reached.collect::<Vec<_>>(), [("everybody".into(), 0), ("each".into(), 18)]);
        let left = refused.header("ratelimit").unwrap();
        assert!(left.starts_with("\"everybody\";r=3;") && left.contains(", \"each\";r=0;"), "{left}");
        assert_eq!(let_in(&gateway, 20, &["X-API-Key: bob-key"]).await?, 3, "{window:?}");
    }
    Ok(())
}

#[tokio::test]
async fn dry_run_rate_limit_counts_and_admits_requests() -> TestResult {
    let dry = Limit { dry_run: true, ..limit("dry", 2, Vec::new()) };
    let both = vec![dry, limit("wet", 100, Vec::new())];
    let (_backend, gateway) = with(|config| set_limits(config, limits(both))).await?;
    assert_eq!(let_in(&gateway, 4, &[]).await?, 4);
    // A client that obeys the announced limit may exceed the dry-run limit.
    let response = ask(&gateway, "/", &[]).await?;
    assert_eq!((response.status, response.header("RateLimit-Policy")), (200, Some("\"wet\";q=100;w=3600")));
    let left = response.header("RateLimit");
    assert!(left.is_some_and(|line| line.starts_with("\"wet\";r=95;")), "{left:?}");
    let policy = &gateway.proxy().registry().policies()[0];
    assert_eq!(policy.stats.sum(|shard| &shard.dry_runs), 3);
    Ok(())
}

#[tokio::test]
async fn unchanged_rate_limit_keeps_its_count_when_its_policy_changes() -> TestResult {
    let stays = || limit("stays", 3, Vec::new());
    let (_backend, gateway) = with(|config| set_limits(config, limits(vec![stays()]))).await?;
    assert_eq!(let_in(&gateway, 2, &[]).await?, 2);
    gateway
        .configure(|config| set_limits(config, limits(vec![limit("new", 100, Vec::new()), stays()])))
        .await;
    assert_eq!(let_in(&gateway, 5, &[]).await?, 1);
    gateway.configure(|config| set_limits(config, limits(vec![limit("stays", 4, Vec::new())]))).await;
    assert_eq!(let_in(&gateway, 5, &[]).await?, 4, "another limit begins anew");
    Ok(())
}
