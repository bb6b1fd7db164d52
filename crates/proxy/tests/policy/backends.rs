//! Rules with several backends, and the features of a backend.

use sluicegate_model::PathPattern;
use sluicegate_model::feature::BackendFeatures;
use sluicegate_model::rule::{self, RuleMatch};
use sluicegate_model::value::Weight;
use sluicegate_testkit::gateway::key;

use super::traffic::{add_upstream, to_canary, traffic};
use super::*;

const NAMES: [&str; 3] = ["backend", "second", "third"];

/// A backend of a rule. `edits` holds header edits, with the field names of a TrafficPolicy.
fn weighted(name: &str, weight: i64, edits: &Value) -> rule::Backend {
    let edits_of = |field: &str| serde_json::from_value(edits[field].clone()).unwrap_or_default();
    let features = BackendFeatures {
        request_headers: edits_of("requestHeaders"),
        response_headers: edits_of("responseHeaders"),
        url_rewrite: serde_json::from_value(edits["urlRewrite"].clone()).unwrap_or_default(),
        affinity: serde_json::from_value(edits["affinity"].clone()).unwrap_or_default(),
    };
    let features = (!edits.is_null()).then(|| Box::new(features));
    rule::Backend { weight: Weight::of(weight), features, ..rule::Backend::new(key(name)) }
}

fn set_weights(config: &mut Config, weights: [i64; 3]) {
    let backends = NAMES.iter().zip(weights).map(|(name, weight)| weighted(name, weight, &Value::Null));
    let backends: Vec<_> = backends.collect();
    routes(config, |rule| rule.backends.clone_from(&backends));
}

/// A gateway with three upstreams, and a rule for the first.
async fn three() -> anyhow::Result<(Vec<Backend>, Gateway)> {
    let backends = Backend::group(3, Behaviour::echo()).await?;
    let mut builder = Gateway::builder().backends(&backends[..1]);
    for (name, backend) in NAMES.iter().zip(&backends).skip(1) {
        add_upstream(builder.config_mut(), name, &[backend.addr()]);
    }
    Ok((backends, builder.start().await?))
}

#[tokio::test]
async fn backends_receive_requests_by_weight() -> TestResult {
    let (backends, gateway) = three().await?;
    gateway.configure(|config| set_weights(config, [100, 0, 300])).await;
    let mut client = gateway.connect().await?;
    for _ in 0..400 {
        assert_eq!(client.request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?.status, 200);
    }
    let received: Vec<_> = backends.iter().map(Backend::requests).collect();
    assert!((50..160).contains(&received[0]), "{received:?}");
    assert_eq!((received[1], received[0] + received[2]), (0, 400), "{received:?}");
    Ok(())
}

#[tokio::test]
async fn change_of_weights_under_load_causes_no_failed_request() -> TestResult {
    let (backends, gateway) = three().await?;
    let load = gateway.load().connections(5).start()?;
    for weights in [[1, 0, 0], [0, 1, 1], [5, 5, 0], [0, 0, 1]] {
        gateway.configure(|config| set_weights(config, weights)).await;
        for (backend, _) in backends.iter().zip(weights).filter(|(_, weight)| *weight > 0) {
            let before = backend.requests();
            backend.wait_until(|backend| backend.requests() > before + 50).await?;
        }
    }
    let report = load.stop().await?;
    assert_eq!(report.failures(), 0, "{report}");
    Ok(())
}

#[tokio::test]
async fn requests_for_a_rule_without_a_usable_backend_receive_503() -> TestResult {
    let (backends, gateway) = three().await?;
    gateway.configure(|config| set_weights(config, [0, 0, 0])).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 503);
    gateway.configure(|config| routes(config, |rule| rule.backends.clear())).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 503);
    assert!(backends.iter().all(|backend| backend.requests() == 0));
    gateway.configure(|config| set_weights(config, [1, 0, 0])).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn filters_of_a_backend_apply_only_to_requests_to_the_backend() -> TestResult {
    let (backends, gateway) = three().await?;
    let edits = json!({
        "requestHeaders": {"set": [{"name": "X-Backend", "value": "third"}], "remove": ["x-secret"]},
        "responseHeaders": {"set": [{"name": "X-Served-By", "value": "third"}], "remove": ["server"]},
    });
    let answer = "HTTP/1.1 200 OK\r\nServer: theirs\r\nX-Served-By: nobody\r\nContent-Length: 0\r\n\r\n";
    for transport in [Transport::Http, Transport::Http2] {
        for (weights, is_edited) in [([1, 0], false), ([0, 1], true)] {
            backends.iter().for_each(|backend| backend.set(Behaviour::echo()));
            gateway
                .configure(|config| {
                    let plain = weighted("second", weights[0], &Value::Null);
                    let edited = weighted("third", weights[1], &edits);
                    routes(config, |rule| rule.backends = vec![plain.clone(), edited.clone()]);
                })
                .await;
            let echoed = ask_by(&gateway, "GET", "/", &["X-Backend: mine", "X-Secret: s"], transport).await?;
            let request = echoed.text().to_ascii_lowercase();
            assert_eq!(request.contains("x-backend: third"), is_edited, "{request}");
            assert_eq!(request.contains("x-backend: mine"), !is_edited, "{request}");
            assert_eq!(request.contains("x-secret"), !is_edited, "{request}");
            backends.iter().for_each(|backend| backend.set(Behaviour::raw(answer)));
            let response = ask_by(&gateway, "GET", "/", &[], transport).await?;
            let expected = if is_edited { (vec!["third"], vec![]) } else { (vec!["nobody"], vec!["theirs"]) };
            let headers = (response.headers_named("x-served-by"), response.headers_named("server"));
            assert_eq!(headers, expected);
        }
    }
    Ok(())
}

#[tokio::test]
async fn backend_rewrites_the_path_and_host_of_its_requests_in_place_of_the_rule() -> TestResult {
    let (_backends, gateway) = three().await?;
    let replace = |prefix: &str| json!({"type": "ReplacePrefixMatch", "value": prefix});
    let rewrite = |url: Value| json!({"urlRewrite": url});
    let of_rule = traffic(rewrite(json!({"path": replace("/rule"), "hostname": "rule.test"})));
    for (of_backend, expected) in [
        (Value::Null, ["GET /rule/x?q=1", "rule.test"]),
        (rewrite(json!({"path": replace("/backend")})), ["GET /backend/x?q=1", "rule.test"]),
        (rewrite(json!({"hostname": "backend.test"})), ["GET /rule/x?q=1", "backend.test"]),
        (
            rewrite(json!({"path": {"type": "ReplaceFullPath", "value": "/one"}})),
            ["GET /one?q=1", "rule.test"],
        ),
    ] {
        gateway
            .configure(|config| {
                routes(config, |rule| {
                    rule.backends = vec![weighted("third", 1, &of_backend)];
                    rule.traffic = Some(of_rule.clone());
                });
            })
            .await;
        for transport in [Transport::Http, Transport::Http2] {
            let echoed = ask_by(&gateway, "GET", "/a/../x?q=1", &[], transport).await?.text();
            assert!(echoed.starts_with(expected[0]), "{of_backend}: {echoed}");
            assert!(echoed.contains(&format!("Host: {}\r\n", expected[1])), "{of_backend}: {echoed}");
        }
    }
    gateway
        .configure(|config| {
            let dots = weighted("third", 1, &rewrite(json!({"path": replace("/static/")})));
            routes(config, |rule| {
                rule.matches = vec![RuleMatch::path(PathPattern::Starts("/img".into()))];
                rule.backends = vec![dots.clone()];
            });
        })
        .await;
    assert_eq!(ask(&gateway, "/img../x", &[]).await?.status, 400);
    Ok(())
}

#[tokio::test]
async fn split_of_a_policy_has_precedence_over_the_weights_of_the_rule() -> TestResult {
    let (backends, gateway) = three().await?;
    let canary = Backend::start(Behaviour::ok()).await?;
    let policy = to_canary(100, json!({"match": [{"header": "x-canary"}]}));
    gateway
        .configure(|config| {
            add_upstream(config, "canary", &[canary.addr()]);
            set_weights(config, [0, 1, 1]);
            routes(config, |rule| rule.traffic = Some(policy.clone()));
        })
        .await;
    for _ in 0..20 {
        assert_eq!(ask(&gateway, "/", &["X-Canary: 1"]).await?.status, 200);
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    }
    let received: Vec<_> = backends.iter().map(Backend::requests).collect();
    assert_eq!((canary.requests(), received[0], received[1] + received[2]), (20, 0, 20));
    Ok(())
}
