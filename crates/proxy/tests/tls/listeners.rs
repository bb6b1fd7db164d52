use std::net::SocketAddr;
use std::sync::Arc;

use sluicegate_model::tls::Http3;
use sluicegate_model::{
    EntryPoint, HostPattern, Listener, ListenerId, ObjectId, Planes, ProxyHeader, Serves, TlsHost,
    VirtualHost,
};
use sluicegate_proxy::failure::TlsFault;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::Gateway;

use crate::{TestResult, certificate, failed, get, trusting, with_names};

/// The entry point of the listener of a Gateway.
fn edge() -> EntryPoint {
    EntryPoint::Gateway("edge".into())
}

/// A gateway with the name `flags.test` at the listeners that flags set, and an HTTPS listener of a Gateway with the name
/// `edge.test`. Each has a route for its own name.
async fn serving() -> anyhow::Result<(Backend, Gateway, SocketAddr)> {
    let backend = Backend::start(Behaviour::echo()).await?;
    let mut builder = with_names(&["flags.test"]).backends([&backend]);
    let config = builder.config_mut();
    let rules = config.hosts[0].rules.clone();
    config.hosts = vec![
        Arc::new(VirtualHost::new(HostPattern::Exact("flags.test".into()), rules.clone())),
        Arc::new(VirtualHost {
            entry_point: edge(),
            ..VirtualHost::new(HostPattern::Exact("edge.test".into()), rules)
        }),
    ];
    let name = HostPattern::Exact("edge.test".into());
    let host = TlsHost { entry_point: edge(), ..TlsHost::new(name, vec![certificate(&["edge.test"])]) };
    Arc::make_mut(&mut config.tls).hosts.push(Arc::new(host));
    let object = ObjectId { kind: "Gateway", namespace: "default".into(), name: "edge".into() };
    config.listeners.push(Listener {
        id: ListenerId { object, name: "https".into() },
        address: ([127, 0, 0, 1], 0).into(),
        serves: Serves::Https("edge".into()),
        planes: Planes::Shared,
        proxy_header: ProxyHeader::ByPeer,
        client_port: None,
    });
    let gateway = builder.start().await?;
    let listener = gateway.layer4_addr();
    Ok((backend, gateway, listener))
}

#[tokio::test]
async fn gateway_listener_has_its_own_names_certificates_and_routes() -> TestResult {
    let (_backend, gateway, listener) = serving().await?;
    let mut client = Client::connect_tls(listener, &trusting(), "edge.test").await?;
    assert_eq!(client.request(get("edge.test")).await?.status, 200);
    assert_eq!(client.request(get("flags.test")).await?.status, 404);
    let mut client = gateway.connect_tls(&trusting(), "flags.test").await?;
    assert_eq!(client.request(get("flags.test")).await?.status, 200);
    let error =
        Client::connect_tls(listener, &trusting(), "flags.test").await.expect_err("another listener's name");
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    failed(&gateway, TlsFault::UnknownName, 1).await
}

#[tokio::test]
async fn gateway_listener_announces_http3_at_the_port_of_its_clients() -> TestResult {
    let (_backend, gateway, listener) = serving().await?;
    let announced = async |listener| {
        let mut client = Client::connect_tls(listener, &trusting(), "edge.test").await?;
        anyhow::Ok(client.request(get("edge.test")).await?.header("alt-svc").map(str::to_owned))
    };
    assert_eq!(announced(listener).await?, None);
    // The port of the flag is the port of the listeners that flags set.
    let http3 = Http3 { port: Some(8443), ..Http3::default() };
    gateway
        .configure(|config| {
            config.settings.tls.http3 = Some(http3);
            config.listeners[0].client_port = Some(444);
        })
        .await;
    assert_eq!(announced(gateway.layer4_addr()).await?.as_deref(), Some("h3=\":444\"; ma=86400"));
    let mut client = gateway.connect_tls(&trusting(), "flags.test").await?;
    let response = client.request(get("flags.test")).await?;
    assert_eq!(response.header("alt-svc"), Some("h3=\":8443\"; ma=86400"));
    Ok(())
}

#[tokio::test]
async fn connection_of_a_removed_listener_stays_open_and_receives_404() -> TestResult {
    let (_backend, gateway, listener) = serving().await?;
    let mut client = Client::connect_tls(listener, &trusting(), "edge.test").await?;
    assert_eq!(client.request(get("edge.test")).await?.status, 200);
    gateway.configure(|config| config.listeners.clear()).await;
    assert!(Client::connect(listener).await.is_err(), "the listener is closed");
    assert_eq!(client.request(get("edge.test")).await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn listener_that_changes_its_protocol_serves_the_new_protocol() -> TestResult {
    let (_backend, gateway, listener) = serving().await?;
    gateway.configure(|config| config.listeners[0].serves = Serves::Http("edge".into())).await;
    let listener = SocketAddr::new(listener.ip(), gateway.layer4_addr().port());
    let mut client = Client::connect(listener).await?;
    assert_eq!(client.request(get("edge.test")).await?.status, 200);
    Ok(())
}
