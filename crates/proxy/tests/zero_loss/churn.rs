//! Backends die, start and are replaced under load, and no client notices. `SLUICEGATE_SOAK_SECONDS` sets the duration
//! of the longest of these tests (default 5).

use std::time::Duration;

use sluicegate_model::Config;
use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::{Gateway, add_route};
use sluicegate_testkit::load::{Load, Running};
use tokio::time::{Instant, interval, sleep};

use super::{TestResult, backends};

const SOON: Duration = Duration::from_secs(20);

fn soak() -> Duration {
    let seconds = std::env::var("SLUICEGATE_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(5.0))
}

/// A load of GETs, each of which must receive its own response.
fn gets(gateway: &Gateway) -> Load {
    gateway.load().connections(20).expect_own_id()
}

async fn more(load: &Running, answers: u64) -> TestResult {
    load.wait_for_ok(load.snapshot().ok + answers, SOON).await
}

/// The gateway's reasons for failed and retried requests.
fn reasons(gateway: &Gateway) -> String {
    let mut text = String::new();
    for (nth, reason) in Failure::REASONS.iter().enumerate() {
        let failed = gateway.count(|upstream| &upstream.failures[nth]);
        let repeated = gateway.count(|upstream| &upstream.retries[nth]);
        if failed + repeated > 0 {
            text += &format!("{reason}: {failed} failed, {repeated} repeated; ");
        }
    }
    text
}

async fn nothing_failed(name: &str, gateway: &Gateway, load: Running) -> TestResult {
    let report = load.stop().await?;
    println!("{name}: {report}");
    assert_eq!(report.failures(), 0, "{report}{}", reasons(gateway));
    assert_eq!(report.reconnects, 0, "no client connection was closed: {report}");
    gateway.stop().await;
    Ok(())
}

#[tokio::test]
async fn get_requests_survive_endpoints_killed_without_notice() -> TestResult {
    let mut backends = backends(5, Behaviour::ok()).await?;
    let gateway = Gateway::of(&backends).await?;
    let load = gets(&gateway).start()?;
    for round in 0..10 {
        more(&load, 100).await?;
        let victims = [round % 5, (round + 2) % 5];
        for victim in victims {
            match round % 2 {
                0 => backends[victim].kill().await,
                _ => backends[victim].kill_with_reset().await,
            }
        }
        more(&load, 100).await?;
        for victim in victims {
            backends[victim].restart().await?;
        }
    }
    nothing_failed("killed unannounced", &gateway, load).await
}

#[tokio::test]
async fn get_requests_survive_the_death_of_the_last_endpoint_before_its_replacement() -> TestResult {
    let mut current = Backend::start(Behaviour::ok()).await?;
    let builder = Gateway::builder().backends([&current]);
    // Far longer than the gap that this test makes, on any machine.
    let gateway = builder.settings(|settings| settings.resilience.endpoint_wait = SOON).start().await?;
    let load = gets(&gateway).timeout(SOON).start()?;
    for round in 0..6 {
        more(&load, 100).await?;
        let next = Backend::start(Behaviour::ok()).await?;
        current.kill().await;
        sleep(Duration::from_millis(50)).await;
        if round % 2 == 0 {
            gateway.set_addresses([]).await;
            sleep(Duration::from_millis(50)).await;
        }
        gateway.set_addresses([next.addr()]).await;
        current = next;
    }
    nothing_failed("last one replaced", &gateway, load).await
}

#[tokio::test]
async fn hundred_endpoint_changes_per_second_lose_no_request() -> TestResult {
    let backends = backends(10, Behaviour::ok()).await?;
    let gateway = Gateway::of(&backends).await?;
    let load = gets(&gateway).posts(0.2, 500).start()?;
    let (mut ticks, mut changes) = (interval(Duration::from_millis(10)), 0);
    let end = Instant::now() + soak();
    while Instant::now() < end {
        ticks.tick().await;
        // One to ten of the backends, at random.
        let any = fastrand::choose_multiple(&backends, fastrand::usize(1..=10));
        gateway.set_addresses(any.into_iter().map(Backend::addr)).await;
        changes += 1;
    }
    println!("{changes} changes");
    nothing_failed("100 changes a second", &gateway, load).await
}

#[tokio::test]
async fn rewriting_a_thousand_routes_under_load_loses_no_request() -> TestResult {
    let backends = backends(3, Behaviour::ok()).await?;
    let gateway = Gateway::of(&backends).await?;
    let rewrite = |config: &mut Config, generation: usize| {
        config.hosts.clear();
        for route in 0..1000 {
            let service = if route == 500 { "backend".to_owned() } else { format!("s{generation}-{route}") };
            add_route(config, &format!("h{}", route % 50), &format!("/{route}/{generation}"), &service);
            add_route(config, &format!("h{}", route % 50), &format!("/{route}"), &service);
        }
        let named = |key: &_| {
            config.hosts.iter().any(|host| host.rules.iter().any(|r| r.upstreams().any(|of| of == key)))
        };
        let unnamed: Vec<_> = config.upstreams.keys().filter(|key| !named(key)).cloned().collect();
        unnamed.iter().for_each(|key| drop(config.upstreams.remove(key)));
    };
    gateway.configure(|config| rewrite(config, 0)).await;
    let load = gets(&gateway).host("h0").path("/500/x").start()?;
    for generation in 1..=10 {
        gateway.configure(|config| rewrite(config, generation)).await;
        more(&load, 50).await?;
    }
    nothing_failed("1,000 routes rewritten", &gateway, load).await
}

/// As in the published experiments: pods exit at once, and the gateway receives the change later.
#[tokio::test]
async fn scaling_with_abrupt_pod_exits_loses_no_request() -> TestResult {
    let mut pods = backends(5, Behaviour::ok()).await?;
    let gateway = Gateway::of(&pods).await?;
    let load = gets(&gateway).rate(500.0).start()?;
    for _ in 0..3 {
        pods.extend(backends(2, Behaviour::ok()).await?);
        gateway.set_addresses(pods.iter().map(Backend::addr)).await;
        more(&load, 150).await?;
        for mut pod in pods.drain(..2).collect::<Vec<_>>() {
            pod.kill().await;
        }
        sleep(Duration::from_millis(30)).await;
        gateway.set_addresses(pods.iter().map(Backend::addr)).await;
        more(&load, 150).await?;
    }
    nothing_failed("scale 5-7-5", &gateway, load).await
}

#[tokio::test]
async fn rolling_restart_with_abrupt_pod_exits_loses_no_request() -> TestResult {
    let mut pods = backends(5, Behaviour::ok()).await?;
    let gateway = Gateway::of(&pods).await?;
    let load = gets(&gateway).rate(500.0).start()?;
    for _ in 0..10 {
        pods.push(Backend::start(Behaviour::ok()).await?);
        gateway.set_addresses(pods.iter().map(Backend::addr)).await;
        more(&load, 50).await?;
        pods.remove(0).kill().await;
        sleep(Duration::from_millis(20)).await;
        gateway.set_addresses(pods.iter().map(Backend::addr)).await;
        more(&load, 50).await?;
    }
    nothing_failed("rolling restart", &gateway, load).await
}
