//! Quotas of plans that data planes share through a real server.

use sluicegate_model::policy::{Plan, Redis, Shared, Subscription, SubscriptionState, Subscriptions};
use sluicegate_testkit::redis::RedisServer;

use super::keys::set_consumers;
use super::shared::redis;
use super::*;

/// A gateway whose only consumer has a plan with a quota, in front of an endpoint.
async fn selling(redis: Option<Redis>, quota: Value) -> anyhow::Result<(Backend, Gateway)> {
    with(|config| {
        set_security(config, Some(asking(api_key("x-api-key"))));
        set_consumers(config, vec![consumer("alice", "alice-key")]);
        let mut plan = Plan::empty(id("Plan", "gold"));
        plan.limits.headers = true;
        plan.limits.shared = redis.map(|redis| Shared::Redis(Arc::new(redis)));
        plan.quotas = vec![written(quota)];
        let subscription = Subscription {
            id: id("Subscription", "alice"),
            consumer: id("Consumer", "alice"),
            plan: 0,
            state: SubscriptionState::Active,
        };
        let subscriptions = Arc::new(Subscriptions {
            id: id("Api", "pets"),
            required: true,
            plans: vec![plan],
            subscriptions: vec![subscription],
        });
        routes(config, |route| route.subscriptions = Some(subscriptions.clone()));
    })
    .await
}

/// The number of requests that the gateway admits.
async fn admitted(gateway: &Gateway, requests: usize) -> anyhow::Result<usize> {
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += usize::from(ask(gateway, "/", &["X-API-Key: alice-key"]).await?.status == 200);
    }
    Ok(admitted)
}

/// The number of exchanges with the server.
fn exchanged(gateway: &Gateway) -> u64 {
    let policies = gateway.proxy().registry().policies();
    policies.iter().filter_map(|policy| policy.shared).map(|shared| shared.exchanged).sum()
}

/// Waits until the server knows the uses of this gateway, and this gateway knows those of the others.
async fn in_step(gateway: &Gateway) -> TestResult {
    let before = exchanged(gateway);
    gateway.wait_until(|gateway| exchanged(gateway) >= before + 2).await
}

#[tokio::test]
async fn gateways_share_a_quota_through_redis_and_learn_the_count_at_their_first_request() -> TestResult {
    for window in [json!({"calendar": "Year"}), json!({"period": "720h"})] {
        let server = RedisServer::start(&[]).await?;
        let mut quota = json!({"name": "month", "requests": 10});
        quota.as_object_mut().unwrap().extend(window.as_object().unwrap().clone());
        let (_first, one) = selling(Some(redis(server.address())), quota.clone()).await?;
        let (_second, other) = selling(Some(redis(server.address())), quota.clone()).await?;
        in_step(&one).await?;
        in_step(&other).await?;
        assert_eq!(admitted(&one, 6).await?, 6);
        in_step(&one).await?;
        // This gateway does not know the shared count before its first request.
        assert_eq!(admitted(&other, 1).await?, 1);
        in_step(&other).await?;
        assert_eq!(admitted(&other, 9).await?, 3, "{window}");
        in_step(&other).await?;
        // A gateway that starts later learns the count with its first request.
        let (_third, late) = selling(Some(redis(server.address())), quota.clone()).await?;
        in_step(&late).await?;
        admitted(&late, 1).await?;
        in_step(&late).await?;
        assert_eq!(admitted(&late, 5).await?, 0, "{window}");
    }
    Ok(())
}
