//! The limit on the retries at a Service, which all its routes share.

use sluicegate_model::feature::RetryConstraint;
use sluicegate_model::value::{Number, Span};
use sluicegate_model::{Upstream, UpstreamKey};
use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::gateway::{add_route, key};

use super::traffic::{add_upstream, traffic};
use super::*;

/// A share of the requests of the last hour, and retries that are always allowed in each hour.
fn constraint(percent: i64, min_retries: i64) -> RetryConstraint {
    let hour = 3_600_000;
    RetryConstraint {
        percent: Number::of(percent),
        interval: Span::of_millis(hour),
        min_retries: Number::of(min_retries),
        min_interval: Span::of_millis(hour),
    }
}

/// A gateway whose routes `/` and `/shop` retry the status 500 once, at two endpoints of an upstream with this constraint.
async fn limited(backends: &[Backend], constraint: RetryConstraint) -> anyhow::Result<Gateway> {
    let mut builder = Gateway::builder()
        .backends(backends)
        .upstream(|upstream: &mut Upstream| upstream.retry_constraint = Some(constraint));
    add_route(builder.config_mut(), "*", "/shop", "backend");
    let policy = traffic(json!({"retries": {"attempts": 1, "codes": [500]}}));
    routes(builder.config_mut(), |route| route.traffic = Some(policy.clone()));
    builder.start().await
}

/// The statuses of requests for a path, in order.
async fn statuses(gateway: &Gateway, path: &str, requests: usize) -> anyhow::Result<Vec<u16>> {
    let mut statuses = Vec::new();
    for _ in 0..requests {
        statuses.push(ask(gateway, path, &[]).await?.status);
    }
    Ok(statuses)
}

fn refused(gateway: &Gateway) -> u64 {
    gateway.count(|shard| &shard.failures[Failure::OverRetryBudget.index()])
}

fn received(backends: &[Backend]) -> u64 {
    backends.iter().map(Backend::requests).sum()
}

#[tokio::test]
async fn request_receives_503_instead_of_a_retry_beyond_the_retry_constraint() -> TestResult {
    let backends = Backend::group(2, Behaviour::status(500)).await?;
    let gateway = limited(&backends, constraint(20, 0)).await?;
    let statuses = statuses(&gateway, "/", 50).await?;
    let retries = received(&backends) - 50;
    assert_eq!(retries, 10, "20 of 100");
    // The last attempt of a request with a retry has the status of its endpoint.
    let of = |status: u16| statuses.iter().filter(|found| **found == status).count();
    assert_eq!((of(500), of(503)), (10, 40), "{statuses:?}");
    assert_eq!(refused(&gateway), 40);
    Ok(())
}

#[tokio::test]
async fn routes_to_one_service_share_its_retry_constraint_and_other_services_are_not_limited() -> TestResult {
    let backends = Backend::group(2, Behaviour::status(500)).await?;
    let gateway = limited(&backends, constraint(0, 4)).await?;
    gateway
        .configure(|config| {
            let addresses: Vec<_> = backends.iter().map(Backend::addr).collect();
            add_upstream(config, "free", &addresses);
            add_route(config, "*", "/free", "free");
            let policy = traffic(json!({"retries": {"attempts": 1, "codes": [500]}}));
            routes(config, |route| route.traffic = Some(policy.clone()));
        })
        .await;
    assert_eq!(statuses(&gateway, "/", 3).await?, [500; 3]);
    assert_eq!(statuses(&gateway, "/shop", 3).await?, [500, 503, 503]);
    assert_eq!(statuses(&gateway, "/", 1).await?, [503]);
    assert_eq!(statuses(&gateway, "/free", 5).await?, [500; 5]);
    assert_eq!(refused(&gateway), 3);
    Ok(())
}

#[tokio::test]
async fn ports_and_protocols_of_a_service_share_its_retry_constraint() -> TestResult {
    let backends = Backend::group(2, Behaviour::status(500)).await?;
    let gateway = limited(&backends, constraint(0, 4)).await?;
    gateway
        .configure(|config| {
            let upstream = config.upstreams[&key("backend")].clone();
            let metrics = UpstreamKey { port: "metrics".into(), ..key("backend") };
            config.upstreams.insert(metrics.clone(), upstream);
            routes(config, |route| {
                if route.path() == "/shop" {
                    route.backends[0].upstream = metrics.clone();
                }
            });
        })
        .await;
    assert_eq!(statuses(&gateway, "/", 3).await?, [500; 3]);
    assert_eq!(statuses(&gateway, "/shop", 2).await?, [500, 503]);
    assert_eq!(statuses(&gateway, "/", 1).await?, [503]);
    Ok(())
}

#[tokio::test]
async fn retry_after_a_closed_connection_counts_for_the_retry_constraint() -> TestResult {
    let backends = Backend::group(2, Behaviour::close_on_request()).await?;
    let gateway = Gateway::builder()
        .backends(&backends)
        .upstream(|upstream: &mut Upstream| upstream.retry_constraint = Some(constraint(0, 3)))
        .start()
        .await?;
    // Three attempts each: the second request has one retry.
    assert_eq!(statuses(&gateway, "/", 3).await?, [502, 503, 503]);
    assert_eq!(received(&backends), 3 + 2 + 1);
    Ok(())
}

#[tokio::test]
async fn request_on_a_stale_connection_is_retried_beyond_both_retry_budgets() -> TestResult {
    // The endpoint closes each connection that it kept alive.
    let backend = Backend::start(Behaviour::choose(|request| match request.nth {
        1 => Behaviour::ok(),
        _ => Behaviour::close_on_request(),
    }))
    .await?;
    let none = json!({"percent": 0, "minPerSecond": 0});
    for (constraint, budget) in
        [(Some(constraint(0, 1)), None), (None, Some(&none)), (Some(constraint(0, 1)), Some(&none))]
    {
        let mut builder = Gateway::builder()
            .workers(1)
            .backends([&backend])
            .upstream(|upstream: &mut Upstream| upstream.retry_constraint = constraint);
        if let Some(budget) = budget {
            let policy = traffic(json!({"retries": {"budget": budget}}));
            routes(builder.config_mut(), |route| route.traffic = Some(policy.clone()));
        }
        let gateway = builder.start().await?;
        assert_eq!(statuses(&gateway, "/", 20).await?, [200; 20], "{constraint:?} {budget:?}");
        let retries = gateway.count(|shard| &shard.retries[Failure::Stale.index()]);
        assert_eq!((retries, refused(&gateway)), (19, 0), "{constraint:?} {budget:?}");
    }
    Ok(())
}

#[tokio::test]
async fn retry_on_a_stale_connection_counts_for_the_retry_constraint() -> TestResult {
    let backend = Backend::start(Behaviour::choose(|request| match (&*request.target, request.nth) {
        ("/shop", _) => Behaviour::status(500).then_close(),
        (_, 1) => Behaviour::ok(),
        _ => Behaviour::close_on_request(),
    }))
    .await?;
    for (before, expected) in [(1, 500), (3, 503)] {
        let mut builder = Gateway::builder()
            .workers(1)
            .backends([&backend])
            .upstream(|upstream: &mut Upstream| upstream.retry_constraint = Some(constraint(0, 2)));
        let policy = traffic(json!({"retries": {"attempts": 2, "codes": [500]}}));
        routes(builder.config_mut(), |route| route.traffic = Some(policy.clone()));
        let gateway = builder.start().await?;
        assert_eq!(statuses(&gateway, "/", before).await?, vec![200; before]);
        // With 1 request before, only this request has retries: 1 after the stale connection, and 1 of its status.
        assert_eq!(statuses(&gateway, "/shop", 1).await?, [expected]);
    }
    Ok(())
}

#[tokio::test]
async fn retry_constraint_keeps_its_counts_until_its_numbers_change() -> TestResult {
    let backends = Backend::group(2, Behaviour::status(500)).await?;
    let gateway = limited(&backends, constraint(0, 1)).await?;
    assert_eq!(statuses(&gateway, "/", 2).await?, [500, 503]);
    gateway.configure(|config| add_route(config, "*", "/new", "backend")).await;
    gateway.set_addresses(backends.iter().rev().map(Backend::addr)).await;
    assert_eq!(statuses(&gateway, "/", 1).await?, [503]);
    let set = |constraint| {
        move |config: &mut Config| {
            let upstream = config.upstreams.get_mut(&key("backend")).unwrap();
            Arc::make_mut(upstream).retry_constraint = constraint;
        }
    };
    gateway.configure(set(Some(constraint(0, 2)))).await;
    assert_eq!(statuses(&gateway, "/", 3).await?, [500, 500, 503]);
    gateway.configure(set(None)).await;
    assert_eq!(statuses(&gateway, "/", 2).await?, [500, 500]);
    Ok(())
}

#[tokio::test]
async fn retry_needs_the_budget_of_the_policy_and_the_constraint_of_the_upstream() -> TestResult {
    let backends = Backend::group(2, Behaviour::status(500)).await?;
    let gateway = limited(&backends, constraint(0, 2)).await?;
    gateway
        .configure(|config| {
            let budget = json!({"percent": 0, "minPerSecond": 0});
            let policy = traffic(json!({"retries": {"attempts": 1, "codes": [500], "budget": budget}}));
            routes(config, |route| {
                if route.path() == "/shop" {
                    route.traffic = Some(policy.clone());
                }
            });
        })
        .await;
    // The policy allows no retry, which then does not count for the upstream.
    assert_eq!(statuses(&gateway, "/shop", 3).await?, [500; 3]);
    assert_eq!(received(&backends), 3);
    assert_eq!(statuses(&gateway, "/", 3).await?, [500, 500, 503]);
    Ok(())
}
