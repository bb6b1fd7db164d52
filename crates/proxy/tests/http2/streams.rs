//! gRPC streams that are open both ways during all kinds of changes: no change affects a stream (Z1, Z4, Z10).

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request};
use sluicegate_model::{Protocol, Upstream};
use sluicegate_proxy::Drain;
use sluicegate_testkit::gateway::{LAYER4, add_route, key, layer4_key, ready};
use sluicegate_testkit::http2_backend::{Http2Backend, Manner};
use sluicegate_testkit::tls::Authority;
use tokio::time::timeout;

use crate::{TestResult, before, connect};

const SOON: Duration = Duration::from_secs(20);

/// A stream whose endpoint echoes each message.
struct Call {
    sink: SendStream<Bytes>,
    source: RecvStream,
}

impl Call {
    async fn open(requests: &SendRequest<Bytes>) -> anyhow::Result<Self> {
        let request = Request::post("http://a.test/pkg.Service/Chat")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let (response, sink) = requests.clone().ready().await?.send_request(request, false)?;
        Ok(Self { sink, source: response.await?.into_body() })
    }

    /// Sends a message and waits for its echo.
    async fn ping(&mut self, message: &'static [u8]) -> TestResult {
        self.sink.send_data(Bytes::from_static(message), false)?;
        let mut came = Vec::new();
        while came.len() < message.len() {
            let data =
                timeout(SOON, self.source.data()).await.context("no answer")?.context("it ended")??;
            self.source.flow_control().release_capacity(data.len())?;
            came.extend_from_slice(&data);
        }
        anyhow::ensure!(came == message, "{came:?}");
        Ok(())
    }

    /// Ends the stream. Returns the trailers of the response.
    async fn end(mut self) -> anyhow::Result<HeaderMap> {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        self.sink.send_trailers(trailers)?;
        while let Some(data) = timeout(SOON, self.source.data()).await.context("no end")? {
            anyhow::ensure!(data?.is_empty(), "nothing was left");
        }
        Ok(self.source.trailers().await?.unwrap_or_default())
    }
}

#[tokio::test]
async fn grpc_streams_survive_configuration_changes_and_shutdown() -> TestResult {
    let backends = [
        Http2Backend::start(Manner::Echo, 100).await?,
        Http2Backend::start(Manner::Echo, 100).await?,
        Http2Backend::start(Manner::Echo, 100).await?,
    ];
    let gateway = Arc::new(before([backends[0].addr(), backends[1].addr()]).await?);
    let mut spoken = key("backend");
    spoken.transport.protocol = Protocol::Http2;
    let mut calls = Vec::new();
    let mut connections = Vec::new();
    for _ in 0..4 {
        let (requests, connection) = connect(&gateway).await?;
        for _ in 0..10 {
            calls.push(Call::open(&requests).await?);
        }
        connections.push((requests, connection));
    }
    assert!(backends[..2].iter().all(|backend| backend.requests() > 0), "on both endpoints");
    for call in &mut calls {
        call.ping(b"hello").await.context("before any change")?;
    }
    for round in 0..20 {
        match round % 5 {
            // The set of endpoints changes, and removes endpoints with open streams too.
            0 => gateway.set_addresses_of(spoken.clone(), [backends[2].addr()]).await,
            1 => {
                let all = backends.iter().map(Http2Backend::addr);
                gateway.set_addresses_of(spoken.clone(), all).await;
            }
            2 => gateway.configure(|config| add_route(config, "b.test", &format!("/{round}"), "other")).await,
            3 => {
                let rotated = Authority::of_process().issue(&["localhost"]).certificate;
                gateway.configure(|config| Arc::make_mut(&mut config.tls).default = vec![rotated]).await;
            }
            // The configuration receives a TCP upstream beside the HTTP upstream.
            _ => {
                gateway
                    .configure(|config| {
                        let endpoints = [ready(backends[0].addr())].into();
                        let upstream = Upstream { endpoints, ..Upstream::default() };
                        config.upstreams.insert(layer4_key(LAYER4, Protocol::Tcp), upstream.into());
                    })
                    .await;
            }
        }
        for call in &mut calls {
            call.ping(b"hello, is anybody there?").await.with_context(|| format!("round {round}"))?;
        }
    }
    // The gateway drains, and the streams keep the time they need.
    let drain = Drain { grace: Duration::ZERO, idle: Duration::ZERO, timeout: SOON };
    let shutdown = tokio::spawn({
        let gateway = gateway.clone();
        async move { gateway.proxy().shutdown(drain).await }
    });
    while tokio::net::TcpStream::connect(gateway.addr()).await.is_ok() {
        tokio::task::yield_now().await;
    }
    for mut call in calls {
        call.ping(b"still there").await?;
        assert_eq!(call.end().await?.get("grpc-status"), Some(&HeaderValue::from_static("0")));
    }
    for (requests, connection) in connections {
        drop(requests);
        connection.await??;
    }
    shutdown.await?;
    Ok(())
}
