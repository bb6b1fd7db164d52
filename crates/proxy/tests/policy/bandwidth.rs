//! The bandwidth of responses.

use std::time::Instant;

use sluicegate_testkit::client::Client;

use super::traffic::traffic;
use super::*;

const BODY: usize = 200_000;

async fn throttled(features: Value) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(Behaviour::choose(|request| match &*request.target {
        "/chunked" => {
            Behaviour::chunked(std::iter::repeat_n(vec![b'x'; 1000], BODY / 1000), Duration::ZERO, &[])
        }
        "/close" => Behaviour::sized(BODY).then_close(),
        _ => Behaviour::sized(BODY),
    }))
    .await?;
    let mut builder = Gateway::builder().backends([&backend]);
    let traffic = traffic(features);
    routes(builder.config_mut(), |route| route.traffic = Some(traffic.clone()));
    Ok((backend, builder.start().await?))
}

/// The time of a whole response.
async fn time(gateway: &Gateway, target: &str, transport: Transport) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let response = ask_by(gateway, "GET", target, &[], transport).await?;
    assert_eq!((response.status, response.body.len()), (200, BODY), "{target} {transport:?}");
    Ok(begin.elapsed())
}

#[tokio::test]
async fn response_is_sent_at_the_bandwidth_of_its_route() -> TestResult {
    // The first second is free, so that 200 kB take half a second at 133 kB/s.
    let (_backend, gateway) = throttled(json!({"bandwidth": {"perSecond": "133k"}})).await?;
    for transport in [Transport::Http, Transport::Http2] {
        for target in ["/sized", "/chunked", "/close"] {
            let took = time(&gateway, target, transport).await?;
            assert!(took >= Duration::from_millis(400), "{target} {transport:?}: {took:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn first_bytes_of_a_response_are_sent_at_any_speed() -> TestResult {
    // At 1 kB/s, 200 kB would take 3 minutes.
    let (_backend, gateway) = throttled(json!({"bandwidth": {"perSecond": "1k", "after": "1Mi"}})).await?;
    for transport in [Transport::Http, Transport::Http2] {
        time(&gateway, "/sized", transport).await?;
    }
    Ok(())
}

#[tokio::test]
async fn wait_for_bandwidth_is_not_a_timeout_of_the_client_and_a_client_may_leave() -> TestResult {
    let (_backend, gateway) = throttled(json!({"bandwidth": {"perSecond": "150k"}})).await?;
    gateway.configure(|config| config.settings.timeouts.client_write = Duration::from_millis(20)).await;
    time(&gateway, "/sized", Transport::Http).await?;
    let slow = traffic(json!({"bandwidth": {"perSecond": "1k"}}));
    gateway.configure(|config| routes(config, |route| route.traffic = Some(slow.clone()))).await;
    let mut client = Client::connect(gateway.addr()).await?;
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    client.read_until("\r\n\r\n").await?;
    drop(client);
    gateway.wait_until_idle().await?;
    Ok(())
}
