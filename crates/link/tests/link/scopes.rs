//! Data planes of single Gateways receive only the configuration of their Gateway.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_link::{DistributorOptions, PlaneIdentity, PlaneToken, Reviewer};
use sluicegate_model::{Change, Config, Planes, UpstreamKey};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::support::{
    Certificates, Control, Data, LIMIT, Served, add_gateway, config, endpoints_change, key,
};

type TestResult = anyhow::Result<()>;

/// A control plane that accepts the token `TOKEN of NAMESPACE/NAME` of each ServiceAccount.
async fn control(certificates: &Certificates) -> anyhow::Result<Control> {
    let review = |token: String| -> sluicegate_link::Reviewed {
        Box::pin(std::future::ready(match token.strip_prefix("token:") {
            Some(account) => Ok(account.to_owned()),
            None => Err("the token is invalid".to_owned()),
        }))
    };
    let options =
        DistributorOptions { reviewer: Some(Reviewer::new(review)), ..DistributorOptions::default() };
    Control::start_at("127.0.0.1:0".parse()?, certificates.control.path(), options).await
}

/// A data plane with this token, and the directory of the token.
fn with_token(
    control: &Control,
    certificates: &Certificates,
    token: &str,
) -> anyhow::Result<(Data, TempDir)> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("token"), token)?;
    Ok((Data::start_as(control.address, identity(dir.path(), certificates), None, token), dir))
}

fn identity(dir: &Path, certificates: &Certificates) -> PlaneIdentity {
    let authorities = certificates.proxy.path().join("ca.crt");
    PlaneIdentity::Token(PlaneToken { token: dir.join("token"), authorities })
}

/// Four hosts: two at the listeners of flags, and one at each of the Gateways `one` and `two`.
fn two_gateways(one: Planes, two: Planes) -> Config {
    let mut config = config(4, 80);
    add_gateway(&mut config, "one", one, 2);
    add_gateway(&mut config, "two", two, 3);
    config.hosts.drain(2..4);
    config
}

fn own(name: &str) -> Planes {
    Planes::Own(format!("shop/{name}").into())
}

fn change(config: Config) -> Change {
    Change::Config(Arc::new(config))
}

/// The names of the Gateways and the numbers of the upstreams of a configuration.
fn content(served: &Served) -> (Vec<String>, Vec<UpstreamKey>) {
    let Some(config) = &served.config else { return Default::default() };
    let gateways = config.listeners.iter().map(|listener| listener.id.object.name.to_string()).collect();
    (gateways, config.upstreams.keys().cloned().collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_plane_of_a_gateway_receives_only_what_its_gateway_serves() -> TestResult {
    let certificates = Certificates::new()?;
    let control = control(&certificates).await?;
    control.distributor.publish(&change(two_gateways(own("one"), Planes::Shared)));
    let (mut one, _dir) = with_token(&control, &certificates, "token:shop/one")?;
    let mut shared = Data::start(control.address, certificates.proxy.path(), None, "shared")?;
    let served = one.wait(|served| served.config.is_some()).await?;
    assert_eq!(content(&served), (vec!["one".to_owned()], vec![key(2)]));
    assert_eq!(served.hosts(), 1);
    let served = shared.wait(|served| served.config.is_some()).await?;
    assert_eq!(content(&served), (vec!["two".to_owned()], vec![key(0), key(1), key(3)]));
    // The Gateway `two` moves to data planes of its own.
    let version = control.distributor.publish(&change(two_gateways(own("one"), own("two"))));
    let served = shared.wait(|served| served.hosts() == 2).await?;
    assert_eq!(content(&served), (vec![], vec![key(0), key(1)]));
    timeout(LIMIT, control.distributor.served_by_all(version)).await?;
    assert_eq!(one.serves.borrow().configs, 1, "nothing changed for the Gateway");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoint_change_is_sent_only_to_the_scopes_that_use_the_upstream() -> TestResult {
    let certificates = Certificates::new()?;
    let control = control(&certificates).await?;
    control.distributor.publish(&change(two_gateways(own("one"), own("two"))));
    let (mut one, _one) = with_token(&control, &certificates, "token:shop/one")?;
    let (mut two, _two) = with_token(&control, &certificates, "token:shop/two")?;
    one.wait(|served| served.config.is_some()).await?;
    two.wait(|served| served.config.is_some()).await?;
    let batches = control.distributor.telemetry().counts.batches;
    let version = control.distributor.publish(&endpoints_change(2, 81));
    one.wait(|served| served.port(2) == Some(81)).await?;
    timeout(LIMIT, control.distributor.served_by(2, version)).await?;
    assert_eq!(control.distributor.telemetry().counts.batches, batches + 1);
    assert_eq!(two.serves.borrow().endpoints, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_plane_without_certificate_or_valid_token_receives_nothing() -> TestResult {
    let certificates = Certificates::new()?;
    let control = control(&certificates).await?;
    control.distributor.publish(&change(two_gateways(own("one"), Planes::Shared)));
    // An invalid token, no token, and a ServiceAccount of a Gateway that the shared data planes serve.
    for token in ["forged", "", "token:shop/two", "token:other/one"] {
        let failed = control.distributor.telemetry().counts.reviews_failed;
        let (mut data, _dir) = with_token(&control, &certificates, token)?;
        let is_refused = |telemetry: &sluicegate_link::SubscriberTelemetry| telemetry.last_error.is_some();
        let error = timeout(LIMIT, data.telemetry.wait_for(is_refused)).await??.last_error.clone();
        let error = error.unwrap_or_default();
        assert!(error.contains("token is not accepted"), "{token}: {error}");
        assert!(data.serves.borrow().config.is_none(), "{token}");
        assert!(control.distributor.telemetry().counts.reviews_failed > failed, "{token}");
    }
    assert_eq!(control.distributor.telemetry().counts.accepted, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_plane_without_a_reviewer_rejects_the_handshake_of_a_data_plane_with_a_token() -> TestResult {
    let certificates = Certificates::new()?;
    let control = Control::start(certificates.control.path()).await?;
    control.distributor.publish(&change(two_gateways(own("one"), Planes::Shared)));
    let (mut data, _dir) = with_token(&control, &certificates, "token:shop/one")?;
    timeout(LIMIT, data.telemetry.wait_for(|telemetry| telemetry.last_error.is_some())).await??;
    assert!(data.serves.borrow().config.is_none());
    // The control plane may notice the end of the handshake after the data plane.
    let is_counted = async || {
        while control.distributor.telemetry().counts.handshakes_failed == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, is_counted()).await?;
    assert_eq!(control.distributor.telemetry().counts.accepted, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_ends_when_the_gateway_has_no_data_planes_of_its_own_any_more() -> TestResult {
    let certificates = Certificates::new()?;
    let control = control(&certificates).await?;
    control.distributor.publish(&change(two_gateways(own("one"), Planes::Shared)));
    let (mut one, _dir) = with_token(&control, &certificates, "token:shop/one")?;
    one.wait(|served| served.config.is_some()).await?;
    // While the Gateway moves, both scopes serve the Gateway.
    let both = Planes::Both("shop/one".into());
    let mut shared = Data::start(control.address, certificates.proxy.path(), None, "shared")?;
    control.distributor.publish(&change(two_gateways(both, Planes::Shared)));
    let served = shared.wait(|served| content(served).0.len() == 2).await?;
    assert_eq!(content(&served).0, ["one", "two"]);
    assert!(one.telemetry.borrow().is_connected);
    control.distributor.publish(&change(two_gateways(Planes::Shared, Planes::Shared)));
    timeout(LIMIT, one.telemetry.wait_for(|telemetry| !telemetry.is_connected)).await??;
    // The data plane serves its last configuration until its pod ends.
    assert_eq!(content(&one.serves.borrow()).0, ["one"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_data_planes_are_reported_while_they_serve_their_gateway() -> TestResult {
    let certificates = Certificates::new()?;
    let control = control(&certificates).await?;
    control.distributor.publish(&change(two_gateways(own("one"), own("two"))));
    let (reports, mut reported) = watch::channel(BTreeMap::new());
    let following = tokio::spawn(control.distributor.clone().follow_own(reports));
    let (one, _dir) = with_token(&control, &certificates, "token:shop/one")?;
    let expected: BTreeMap<Arc<str>, bool> = [("shop/one".into(), true)].into();
    timeout(LIMIT, reported.wait_for(|reported| *reported == expected)).await??;
    drop(one);
    timeout(LIMIT, reported.wait_for(BTreeMap::is_empty)).await??;
    following.abort();
    Ok(())
}
