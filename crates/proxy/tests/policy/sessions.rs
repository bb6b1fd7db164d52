//! Session affinity: headers, timeouts, several cookies, and rules with several backends.

use sluicegate_model::feature::BackendFeatures;
use sluicegate_model::rule;
use sluicegate_model::value::Weight;
use sluicegate_testkit::gateway::key;

use super::traffic::{add_upstream, traffic};
use super::*;

/// The longest wait for a change of a session.
const LIMIT: Duration = Duration::from_secs(10);

/// A gateway with session affinity on its only rule, and three endpoints in turn.
async fn sticky(affinity: Value) -> anyhow::Result<(Vec<Backend>, Gateway)> {
    let backends = Backend::group(3, Behaviour::ok()).await?;
    let mut builder = Gateway::builder().backends(&backends);
    let policy = traffic(json!({"loadBalancing": {"algorithm": "RoundRobin", "affinity": affinity}}));
    routes(builder.config_mut(), |rule| rule.traffic = Some(policy.clone()));
    Ok((backends, builder.start().await?))
}

/// Two Services with three endpoints each, and a rule with both as backends.
async fn split(affinity: Value) -> anyhow::Result<(Vec<Backend>, Gateway)> {
    let backends = Backend::group(6, Behaviour::ok()).await?;
    let mut builder = Gateway::builder().backends(&backends[..3]);
    let second: Vec<_> = backends[3..].iter().map(Backend::addr).collect();
    add_upstream(builder.config_mut(), "second", &second);
    let policy = traffic(json!({"loadBalancing": {"algorithm": "RoundRobin", "affinity": affinity}}));
    routes(builder.config_mut(), |rule| rule.traffic = Some(policy.clone()));
    set_weights(builder.config_mut(), [1, 1]);
    Ok((backends, builder.start().await?))
}

fn set_weights(config: &mut Config, weights: [i64; 2]) {
    let backends = ["backend", "second"]
        .into_iter()
        .zip(weights)
        .map(|(name, weight)| rule::Backend { weight: Weight::of(weight), ..rule::Backend::new(key(name)) });
    let backends: Vec<_> = backends.collect();
    routes(config, |rule| rule.backends.clone_from(&backends));
}

/// The cookie that a response sets, as the client returns it.
fn cookie(response: &Response) -> String {
    let cookie = response.header("set-cookie").expect("the response sets a cookie");
    format!("Cookie: {}", cookie.split(';').next().unwrap())
}

/// The places of the endpoints that received requests since `before`.
fn receivers(backends: &[Backend], before: &[u64]) -> Vec<usize> {
    let received = backends.iter().zip(before).enumerate();
    received.filter(|(_, (backend, before))| backend.requests() > **before).map(|(place, _)| place).collect()
}

fn counts(backends: &[Backend]) -> Vec<u64> {
    backends.iter().map(Backend::requests).collect()
}

#[tokio::test]
async fn session_header_is_in_each_response_and_selects_its_endpoint() -> TestResult {
    let (mut backends, gateway) = sticky(json!({"header": "X-Session"})).await?;
    // The endpoint does not decide about the session.
    backends.iter().for_each(|backend| {
        backend.set(Behaviour::raw("HTTP/1.1 200 OK\r\nX-Session: theirs\r\nContent-Length: 0\r\n\r\n"));
    });
    let first = ask(&gateway, "/", &[]).await?;
    let mine = receivers(&backends, &[0; 3])[0];
    assert_eq!(first.headers_named("x-session").len(), 1, "{first:?}");
    let mut value = first.header("x-session").unwrap().to_owned();
    let before = counts(&backends);
    for transport in [Transport::Http, Transport::Http2].repeat(5) {
        let again = ask_by(&gateway, "GET", "/", &[&format!("X-Session: {value}")], transport).await?;
        assert_eq!(again.header("set-cookie"), None);
        value = again.header("x-session").unwrap().to_owned();
    }
    assert_eq!(receivers(&backends, &before), [mine]);
    assert_eq!(backends[mine].last_request().unwrap().header("x-session"), Some(&*value));
    backends[mine].kill().await;
    let moved = ask(&gateway, "/", &[&format!("X-Session: {value}")]).await?;
    assert_eq!(moved.status, 200);
    assert_ne!(moved.header("x-session"), Some(&*value), "the session has another endpoint now");
    Ok(())
}

#[tokio::test]
async fn first_valid_cookie_of_several_with_one_name_selects_the_endpoint() -> TestResult {
    let (backends, gateway) = sticky(json!({"cookie": "s", "path": "/shop"})).await?;
    let first = ask(&gateway, "/", &[]).await?;
    assert!(first.header("set-cookie").unwrap().contains("; Path=/shop; "), "{first:?}");
    let pair = cookie(&first);
    let before = counts(&backends);
    for _ in 0..6 {
        let lines = ["Cookie: s=theirs; a=1", &pair];
        assert_eq!(ask(&gateway, "/", &lines).await?.header("set-cookie"), None);
    }
    assert_eq!(receivers(&backends, &before).len(), 1);
    Ok(())
}

#[tokio::test]
async fn session_ends_with_its_timeout_and_the_next_request_begins_another() -> TestResult {
    for timeout in ["absoluteTimeout", "idleTimeout"] {
        let (backends, gateway) = sticky(json!({"cookie": "s", timeout: "200ms"})).await?;
        let pair = cookie(&ask(&gateway, "/", &[]).await?);
        let mine = receivers(&backends, &[0; 3]);
        // The cookie never changes, so the session ends.
        let ended = async {
            loop {
                let before = counts(&backends);
                let response = ask(&gateway, "/", &[&pair]).await?;
                if receivers(&backends, &before) != mine {
                    break anyhow::Ok(response);
                }
            }
        };
        let response = tokio::time::timeout(LIMIT, ended).await??;
        assert_ne!(cookie(&response), pair, "{timeout}");
    }
    Ok(())
}

#[tokio::test]
async fn responses_renew_a_session_with_an_idle_timeout() -> TestResult {
    let (backends, gateway) = sticky(json!({"cookie": "s", "idleTimeout": "1h"})).await?;
    let pair = cookie(&ask(&gateway, "/", &[]).await?);
    let mine = receivers(&backends, &[0; 3]);
    let renewal = async {
        loop {
            let response = ask(&gateway, "/", &[&pair]).await?;
            // Within the same millisecond there is nothing to renew.
            if response.header("set-cookie").is_some() {
                break anyhow::Ok(cookie(&response));
            }
        }
    };
    let renewed = tokio::time::timeout(LIMIT, renewal).await??;
    assert!(renewed > pair, "{renewed} is not later than {pair}");
    assert_eq!(renewed.split('.').next(), pair.split('.').next());
    assert_eq!(receivers(&backends, &[0; 3]), mine);
    Ok(())
}

#[tokio::test]
async fn session_over_weights_stays_at_its_backend_even_with_weight_0() -> TestResult {
    let (mut backends, gateway) = split(json!({"cookie": "s", "overWeights": true})).await?;
    let pair = cookie(&ask(&gateway, "/", &[]).await?);
    let mine = receivers(&backends, &[0; 6])[0];
    let weights = if mine < 3 { [0, 1] } else { [1, 0] };
    gateway.configure(|config| set_weights(config, weights)).await;
    let before = counts(&backends);
    for _ in 0..20 {
        assert_eq!(ask(&gateway, "/", &[&pair]).await?.header("set-cookie"), None);
    }
    assert_eq!(receivers(&backends, &before), [mine]);
    // Another endpoint of the backend replaces the endpoint of the session.
    backends[mine].kill().await;
    let before = counts(&backends);
    let moved = ask(&gateway, "/", &[&pair]).await?;
    assert_ne!(cookie(&moved), pair);
    let next = receivers(&backends, &before)[0];
    assert_eq!(next / 3, mine / 3, "{mine} {next}");
    // Without endpoints, the session moves to another backend.
    let name = if mine < 3 { "backend" } else { "second" };
    gateway.set_addresses_of(key(name), []).await;
    let before = counts(&backends);
    assert_eq!(ask(&gateway, "/", &[&pair]).await?.status, 200);
    assert_ne!(receivers(&backends, &before)[0] / 3, mine / 3);
    Ok(())
}

#[tokio::test]
async fn session_without_over_weights_does_not_change_the_shares_of_backends() -> TestResult {
    let (backends, gateway) = split(json!({"cookie": "s"})).await?;
    let pair = cookie(&ask(&gateway, "/", &[]).await?);
    let mine = receivers(&backends, &[0; 6])[0];
    let before = counts(&backends);
    for _ in 0..100 {
        assert_eq!(ask(&gateway, "/", &[&pair]).await?.status, 200);
    }
    let received: Vec<_> = counts(&backends).iter().zip(&before).map(|(now, before)| now - before).collect();
    let of_second: u64 = received[3..].iter().sum();
    assert!((25..75).contains(&of_second), "{received:?}");
    let mine_of_backend: u64 = received[mine / 3 * 3..][..3].iter().sum();
    assert_eq!(received[mine], mine_of_backend, "the session has its endpoint in its backend: {received:?}");
    Ok(())
}

#[tokio::test]
async fn affinity_of_a_backend_replaces_the_affinity_of_the_rule() -> TestResult {
    let (backends, gateway) = split(json!({"cookie": "rule"})).await?;
    gateway
        .configure(|config| {
            routes(config, |rule| {
                let affinity = Some(written(json!({"header": "x-session"})));
                let features = BackendFeatures { affinity, ..BackendFeatures::default() };
                rule.backends.remove(0);
                rule.backends[0].features = Some(Box::new(features));
            });
        })
        .await;
    let first = ask(&gateway, "/", &[]).await?;
    assert_eq!(first.header("set-cookie"), None);
    let line = format!("X-Session: {}", first.header("x-session").unwrap());
    let mine = receivers(&backends, &[0; 6]);
    for _ in 0..6 {
        ask(&gateway, "/", &[&line]).await?;
    }
    assert_eq!(receivers(&backends, &[0; 6]), mine);
    Ok(())
}
