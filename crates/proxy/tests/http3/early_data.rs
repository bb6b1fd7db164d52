//! Requests before the end of the handshake (0-RTT).

use std::time::Duration;

use http::Request;
use sluicegate_model::tls::Http3;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::http3::{self, Http3Client, Response};
use sluicegate_testkit::tls::Authority;
use tokio::time::timeout;

use crate::{TestResult, URI, count, with_http3};

const SOON: Duration = Duration::from_secs(20);

async fn with_early_data(backend: &Backend, early_data: bool) -> anyhow::Result<Gateway> {
    let http3 = Http3 { early_data, ..Http3::default() };
    let builder = with_http3().settings(|settings| settings.tls.http3 = Some(http3));
    builder.backends([backend]).start().await
}

/// Sends a request on a resumed connection, in the first packets. Returns whether the gateway accepted the early data.
async fn early(gateway: &Gateway, request: Request<()>) -> anyhow::Result<(Response, bool)> {
    let (endpoint, options) = (http3::endpoint()?, Authority::of_process().client());
    // The same configuration for both connections: it holds the session.
    let config = http3::config(&options)?;
    let first = endpoint.connect_with(config.clone(), gateway.https_addr(), "localhost")?.await?;
    let first = Http3Client::of(endpoint.clone(), first).await?;
    assert_eq!(first.get(URI).await?.status, 200);
    first.connection.close(0_u32.into(), b"");
    let connecting = endpoint.connect_with(config, gateway.https_addr(), "localhost")?;
    let Ok((connection, accepted)) = connecting.into_0rtt() else {
        // The server has never offered early data.
        let connection =
            endpoint.connect_with(http3::config(&options)?, gateway.https_addr(), "localhost")?.await?;
        let client = Http3Client::of(endpoint, connection).await?;
        return Ok((client.request(request, b"").await?, false));
    };
    let client = Http3Client::of(endpoint, connection).await?;
    let response = client.request(request, b"").await?;
    Ok((response, accepted.await))
}

#[tokio::test]
async fn early_data_is_not_offered_unless_it_is_configured() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = with_early_data(&backend, false).await?;
    let (response, accepted) = timeout(SOON, early(&gateway, Request::get(URI).body(())?)).await??;
    assert_eq!(response.status, 200);
    assert!(!accepted);
    assert_eq!(count(&gateway, |stats| &stats.early_requests), 0);
    Ok(())
}

#[tokio::test]
async fn safe_request_in_early_data_is_served_and_marked() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = with_early_data(&backend, true).await?;
    let (response, accepted) = timeout(SOON, early(&gateway, Request::get(URI).body(())?)).await??;
    assert_eq!(response.status, 200);
    assert!(accepted);
    assert_eq!(count(&gateway, |stats| &stats.early_requests), 1);
    Ok(())
}

#[tokio::test]
async fn unsafe_request_in_early_data_waits_for_the_end_of_the_handshake() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = with_early_data(&backend, true).await?;
    let (response, accepted) = timeout(SOON, early(&gateway, Request::post(URI).body(())?)).await??;
    assert_eq!(response.status, 200);
    assert!(accepted);
    let seen = String::from_utf8(response.body)?.to_lowercase();
    assert!(!seen.contains("early-data"), "{seen}");
    Ok(())
}
