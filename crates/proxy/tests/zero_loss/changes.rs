//! Z1: no change closes a client connection or fails a request. Z2: which endpoints are eligible. Z3: every worker
//! applies a change at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate_model::{Change, Conditions, Endpoint, Upstream};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::{Gateway, add_route, key, ready, terminating};

use super::{GET, TestResult, at_once, backends};

#[tokio::test]
async fn client_connection_survives_a_hundred_configuration_changes() -> TestResult {
    let backends = backends(2, Behaviour::ok()).await?;
    let gateway = Gateway::of(&backends).await?;
    let mut client = gateway.connect().await?;
    for change in 0..50 {
        gateway.set_addresses(backends.iter().skip(change % 2).map(Backend::addr)).await;
        assert_eq!(client.request(GET).await?.status, 200);
        gateway.configure(|config| add_route(config, "b", &format!("/{change}"), "backend")).await;
        assert_eq!(client.request(GET).await?.status, 200);
    }
    assert_eq!(gateway.proxy().registry().counters().workers().sum(|worker| &worker.accepted), 1);
    Ok(())
}

#[tokio::test]
async fn moving_routes_to_another_service_under_load_loses_no_request() -> TestResult {
    let (here, there) = (Backend::start(Behaviour::ok()).await?, Backend::start(Behaviour::ok()).await?);
    let gateway = Gateway::of([&here]).await?;
    let other = Arc::new(Upstream { endpoints: [ready(there.addr())].into(), ..Upstream::default() });
    let load = gateway.load().connections(8).posts(0.3, 100).expect_own_id().start()?;
    for change in 0..40 {
        let name = ["other", "backend"][change % 2];
        gateway
            .configure(|config| {
                // The configuration holds no upstream without a route: upstreams are added and removed with their
                // routes.
                config.hosts.clear();
                config.upstreams.retain(|known, _| *known == key("backend"));
                config.upstreams.insert(key("other"), other.clone());
                add_route(config, "*", "/", name);
                if name == "backend" {
                    config.upstreams.remove(&key("other"));
                }
            })
            .await;
        load.wait_for_ok(load.snapshot().ok + 20, Duration::from_secs(10)).await?;
    }
    let report = load.stop().await?;
    assert_eq!((report.failures(), report.reconnects), (0, 0), "{report}");
    assert!(here.requests() > 100 && there.requests() > 100, "both were served from");
    Ok(())
}

#[tokio::test]
async fn configuration_that_is_applied_again_restores_the_endpoints_that_it_contains() -> TestResult {
    let backends = backends(2, Behaviour::ok()).await?;
    let config = Arc::new(Gateway::builder().backends([&backends[0]]).into_config());
    let gateway = Gateway::of([&backends[0]]).await?;
    let mut client = gateway.connect().await?;
    for _ in 0..2 {
        gateway.proxy().apply(Change::Config(config.clone())).await;
        gateway.set_addresses([backends[1].addr()]).await;
        assert_eq!(client.request(GET).await?.status, 200);
    }
    assert_eq!((backends[0].requests(), backends[1].requests()), (0, 2));
    gateway.proxy().apply(Change::Config(config)).await;
    assert_eq!(client.request(GET).await?.status, 200);
    assert_eq!(backends[0].requests(), 1, "its upstream is the same Arc, and not what is served");
    Ok(())
}

#[tokio::test]
async fn routes_to_the_same_service_share_an_upstream_and_its_connections() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut builder = Gateway::builder().backends([&backend]).workers(1);
    for route in 0..10 {
        builder = builder.route("*", &format!("/{route}"), "backend");
    }
    let gateway = builder.start().await?;
    let mut client = gateway.connect().await?;
    for route in 0..10 {
        let request = format!("GET /{route} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.request(request).await?.status, 200);
    }
    assert_eq!(backend.accepted(), 1);
    assert_eq!(gateway.proxy().registry().upstreams().len(), 1);
    Ok(())
}

#[tokio::test]
async fn changed_settings_apply_to_the_next_request_on_a_connection() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = Gateway::of([&backend]).await?;
    let mut client = gateway.connect().await?;
    let request = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n";
    assert!(!client.request(request).await?.text().contains("6.6.6.6"));
    let loopback = "127.0.0.0/8".parse()?;
    gateway.configure(|config| config.settings.trusted_proxies = vec![loopback]).await;
    assert!(client.request(request).await?.text().contains("6.6.6.6"));
    Ok(())
}

#[tokio::test]
async fn terminating_endpoints_serve_requests_only_if_no_endpoint_is_ready() -> TestResult {
    let backends = backends(3, Behaviour::ok()).await?;
    let [one, two, starting] = [0, 1, 2].map(|index| backends[index].addr());
    let gateway = Gateway::of(&backends).await?;
    let mut client = gateway.connect().await?;
    let unready = Conditions { ready: false, serving: false, terminating: false };
    let starting = Endpoint { address: starting, conditions: unready };

    gateway.set_endpoints([ready(one), terminating(two), starting.clone()]).await;
    let before = [0, 1, 2].map(|index| backends[index].requests());
    for _ in 0..30 {
        assert_eq!(client.request(GET).await?.status, 200);
    }
    let after = [0, 1, 2].map(|index| backends[index].requests());
    assert_eq!(after, [before[0] + 30, before[1], before[2]]);

    gateway.set_endpoints([terminating(one), terminating(two), starting]).await;
    for _ in 0..30 {
        assert_eq!(client.request(GET).await?.status, 200, "all endpoints terminate and still serve");
    }
    assert_eq!(backends[2].requests(), before[2], "what never was ready gets nothing");
    Ok(())
}

#[tokio::test]
async fn removed_endpoint_receives_no_request_from_any_worker_after_the_change_is_applied() -> TestResult {
    let backends = backends(2, Behaviour::ok()).await?;
    let gateway = Gateway::builder().backends(&backends).workers(4).start().await?;
    let mut clients = Vec::new();
    for _ in 0..16 {
        clients.push(gateway.connect().await?);
    }
    for round in 0..20 {
        let (removed, kept) = (&backends[round % 2], &backends[(round + 1) % 2]);
        gateway.set_addresses([kept.addr()]).await;
        let before = removed.requests();
        for _ in 0..3 {
            let answered = at_once(clients, GET).await?;
            assert!(answered.iter().all(|(_, response)| response.status == 200));
            clients = answered.into_iter().map(|(client, _)| client).collect();
        }
        assert_eq!(removed.requests(), before, "round {round}: a removed endpoint was asked");
        gateway.set_addresses(backends.iter().map(Backend::addr)).await;
    }
    Ok(())
}

#[tokio::test]
async fn endpoint_change_takes_effect_at_once_despite_five_thousand_routes() -> TestResult {
    let backends = backends(2, Behaviour::ok()).await?;
    let gateway = Gateway::builder().backends(&backends).start().await?;
    gateway
        .configure(|config| {
            for route in 0..5000 {
                let (host, service) = (format!("h{}", route / 10), format!("s{}", route / 5));
                add_route(config, &host, &format!("/{route}"), &service);
            }
        })
        .await;
    let mut client = gateway.connect().await?;
    let mut took = Vec::new();
    for change in 0..200 {
        let only = &backends[change % 2];
        let started = Instant::now();
        gateway.set_addresses([only.addr()]).await;
        took.push(started.elapsed());
        let before = only.requests();
        assert_eq!(client.request(GET).await?.status, 200);
        assert_eq!(only.requests(), before + 1, "change {change} was not in effect");
    }
    took.sort_unstable();
    println!("to the last of 2 workers, 5,000 routes: p50 {:?}, p99 {:?}", took[100], took[198]);
    assert!(gateway.proxy().registry().counters().propagation().count() >= 200);
    Ok(())
}
