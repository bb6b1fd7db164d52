use std::sync::Arc;
use std::time::Duration;

use rustls::HandshakeKind;
use sluicegate_model::tls::TicketSecret;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::load::Load;
use sluicegate_testkit::stream::Transport;
use sluicegate_testkit::tls::ClientOptions;

use crate::{TestResult, certificate, get, serving, set_host, shown, trusting, with_names};

#[tokio::test]
async fn changed_certificate_applies_to_new_handshakes_and_leaves_connections_open() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let mut before = gateway.connect_tls(&trusting(), "a.test").await?;
    before.request(get("a.test")).await?;
    let renewed = certificate(&["a.test"]);
    gateway
        .configure(|config| {
            set_host(Arc::make_mut(&mut config.tls), "a.test", std::slice::from_ref(&renewed));
        })
        .await;
    let mut after = gateway.connect_tls(&trusting(), "a.test").await?;
    assert_eq!(shown(&after), renewed.chain[0].as_ref());
    assert_ne!(shown(&before), renewed.chain[0].as_ref());
    for client in [&mut before, &mut after] {
        assert_eq!(client.request(get("a.test")).await?.status, 200);
    }
    Ok(())
}

/// The host itself is unchanged, so the gateway could keep its settings for TLS.
#[tokio::test]
async fn changed_default_certificate_applies_to_hosts_without_a_certificate() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    for _ in 0..2 {
        let default = certificate(&["b.test"]);
        gateway
            .configure(|config| {
                let tls = Arc::make_mut(&mut config.tls);
                if tls.hosts.iter().all(|host| host.host.to_string() != "b.test") {
                    set_host(tls, "b.test", &[]);
                }
                tls.default = vec![default.clone()];
            })
            .await;
        let client = gateway.connect_tls(&trusting(), "b.test").await?;
        assert_eq!(shown(&client), default.chain[0].as_ref());
    }
    Ok(())
}

#[tokio::test]
async fn certificate_changes_under_load_lose_no_request() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::of([&backend]).await?;
    let load = Load::new(gateway.https_addr()).transport(Transport::Https).connections(4).expect_own_id();
    let load = load.start()?;
    for _ in 0..20 {
        load.wait_for_ok(load.snapshot().ok + 20, Duration::from_secs(10)).await?;
        let renewed = certificate(&["localhost"]);
        gateway.configure(|config| Arc::make_mut(&mut config.tls).default = vec![renewed.clone()]).await;
        let mut client = gateway.connect_tls(&trusting(), "localhost").await?;
        assert_eq!(shown(&client), renewed.chain[0].as_ref());
        assert_eq!(client.request(get("localhost")).await?.status, 200);
    }
    let report = load.stop().await?;
    assert_eq!((report.failures(), report.reconnects), (0, 0), "{report}");
    Ok(())
}

/// Resumes the session of an earlier client, at any of the workers.
async fn returns(gateway: &Gateway, options: &ClientOptions) -> anyhow::Result<Option<HandshakeKind>> {
    let mut client = gateway.connect_tls(options, "a.test").await?;
    // Tickets arrive with the first response.
    assert_eq!(client.request(get("a.test")).await?.status, 200);
    Ok(client.tls().and_then(|tls| tls.handshake_kind()))
}

#[tokio::test]
async fn tls_sessions_resume_on_every_worker_and_after_certificate_changes() -> TestResult {
    for options in [trusting(), trusting().tls12()] {
        let (_backend, gateway) = serving(&["a.test"]).await?;
        assert_ne!(returns(&gateway, &options).await?, Some(HandshakeKind::Resumed));
        for _ in 0..8 {
            assert_eq!(returns(&gateway, &options).await?, Some(HandshakeKind::Resumed));
        }
        let renewed = certificate(&["a.test"]);
        gateway.configure(|config| set_host(Arc::make_mut(&mut config.tls), "a.test", &[renewed])).await;
        assert_eq!(returns(&gateway, &options).await?, Some(HandshakeKind::Resumed));
    }
    Ok(())
}

#[tokio::test]
async fn gateways_with_the_same_secret_resume_tls_sessions_of_each_other() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let secrets =
        |bytes: &[u8]| bytes.iter().map(|byte| TicketSecret([*byte; 32].into())).collect::<Vec<_>>();
    let mut gateways = Vec::new();
    for bytes in [&[1][..], &[1], &[2, 1], &[3]] {
        let builder = with_names(&["a.test"]).tls(|tls| tls.ticket_secrets = secrets(bytes));
        gateways.push(builder.backends([&backend]).start().await?);
    }
    for (other, expected) in [(1, true), (2, true), (3, false)] {
        let options = trusting();
        returns(&gateways[0], &options).await?;
        let resumed = returns(&gateways[other], &options).await? == Some(HandshakeKind::Resumed);
        assert_eq!(resumed, expected, "gateway {other}");
    }
    Ok(())
}
