//! Rate limits that data planes share, through a real server that the tests kill, pause and mislead.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sluicegate_model::feature::{Limit, LimitKey, Window};
use sluicegate_model::policy::{Redis, RedisTls, Shared};
use sluicegate_model::value::{HeaderName, KeyPrefix, Number, ServerAddress, ServerUser, Span};
use sluicegate_proxy::registry::SharedState;
use sluicegate_testkit::redis::RedisServer;
use sluicegate_testkit::terminator::Terminator;
use sluicegate_testkit::tls::Authority;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::limits::{let_in, limit, paced};
use super::*;

const WINDOWS: [Window; 2] = [Window::TokenBucket { burst: 100 }, Window::Sliding];

pub(super) fn redis(address: SocketAddr) -> Redis {
    Redis {
        address: ServerAddress::new(&address.to_string()).unwrap(),
        username: None,
        password: None,
        tls: None,
        database: Number::of(0),
        prefix: KeyPrefix::default(),
        interval: Span::of_millis(10),
        timeout: Span::of_millis(500),
    }
}

/// A limit of 100 an hour for each value of a header.
fn hundred(window: Window) -> Limit {
    let key = vec![LimitKey::Header(HeaderName::new("x-tenant").unwrap())];
    paced(window, limit("tenant", 100, key))
}

async fn sharing(redis: Redis, limits: Vec<Limit>) -> anyhow::Result<(Backend, Gateway)> {
    let policy = shared(redis, limits);
    with(|config| set_limits(config, policy)).await
}

fn shared(redis: Redis, limits: Vec<Limit>) -> RateLimits {
    let shared = Some(Shared::Redis(Arc::new(redis)));
    RateLimits {
        id: id("RateLimitPolicy", "calm"),
        limits,
        concurrency: Vec::new(),
        headers: true,
        shared,
        exempt: Entries::default(),
    }
}

fn state(gateway: &Gateway) -> SharedState {
    gateway.proxy().registry().policies()[0].shared.expect("the policy is shared")
}

async fn is_up(gateway: &Gateway, up: bool) -> TestResult {
    gateway.wait_until(|gateway| state(gateway).is_up == up).await
}

/// Waits until the other gateways know this gateway's counts, and this gateway knows theirs.
async fn in_step(gateway: &Gateway) -> TestResult {
    // One exchange may have been in flight already.
    let before = state(gateway).exchanged;
    gateway.wait_until(|gateway| state(gateway).exchanged >= before + 2).await
}

/// Checks that two gateways share a limit now: one gateway finds the rest that the other has left.
async fn assert_shares(one: &Gateway, other: &Gateway, tenant: &str) -> TestResult {
    let line = &[&*format!("X-Tenant: {tenant}")];
    anyhow::ensure!(let_in(one, 60, line).await? == 60);
    in_step(one).await?;
    // The other gateway may admit the first request of a key in excess, before it knows the shared count.
    anyhow::ensure!(let_in(other, 1, line).await? == 1);
    in_step(other).await?;
    let left = let_in(other, 60, line).await?;
    anyhow::ensure!(left == 39, "{left} of 39 are left");
    in_step(other).await?;
    // One request in excess, since this gateway learns the other's count only at its next exchange.
    let over = let_in(one, 1, line).await?;
    in_step(one).await?;
    anyhow::ensure!(let_in(one, 10, line).await? == 0, "{over} over the limit");
    Ok(())
}

#[tokio::test]
async fn two_gateways_share_one_rate_limit_through_redis() -> TestResult {
    let server = RedisServer::start(&[]).await?;
    for (window, database) in WINDOWS.into_iter().zip([0, 7]) {
        let redis = || Redis { database: Number::of(database), ..redis(server.address()) };
        let (_first, one) = sharing(redis(), vec![hundred(window)]).await?;
        let (_second, other) = sharing(redis(), vec![hundred(window)]).await?;
        is_up(&one, true).await?;
        is_up(&other, true).await?;
        assert_shares(&one, &other, "a").await?;
        assert_shares(&other, &one, "b").await?;
        // A gateway that starts later knows the earlier counts after one interval.
        let (_third, late) = sharing(redis(), vec![hundred(window)]).await?;
        is_up(&late, true).await?;
        let_in(&late, 1, &["X-Tenant: a"]).await?;
        in_step(&late).await?;
        assert_eq!(let_in(&late, 10, &["X-Tenant: a"]).await?, 0, "{window:?}");
    }
    Ok(())
}

#[tokio::test]
async fn two_gateways_at_a_steady_rate_exceed_a_shared_limit_by_less_than_half() -> TestResult {
    let server = RedisServer::start(&[]).await?;
    let all = || vec![paced(Window::Sliding, limit("all", 300, Vec::new()))];
    let (first, one) = sharing(redis(server.address()), all()).await?;
    let (second, other) = sharing(redis(server.address()), all()).await?;
    is_up(&one, true).await?;
    is_up(&other, true).await?;
    let (mut asked, mut admitted) = (0, 0);
    while asked < 800 {
        for gateway in [&one, &other] {
            admitted += let_in(gateway, 1, &[]).await?;
            asked += 1;
        }
    }
    assert_eq!(u64::from(admitted), first.requests() + second.requests());
    // Without sharing, the gateways would admit 600.
    assert!((300..450).contains(&admitted), "{admitted}");
    Ok(())
}

#[tokio::test]
async fn gateways_share_limits_keyed_by_route_and_consumer() -> TestResult {
    let server = RedisServer::start(&[]).await?;
    let start = || async {
        let key =
            vec![LimitKey::Route, LimitKey::Consumer, LimitKey::Address { ipv6_prefix: Number::of(64) }];
        let policy = shared(redis(server.address()), vec![limit("each", 5, key)]);
        with(|config| {
            set_security(config, Some(asking(api_key("x-api-key"))));
            set_limits(config, policy);
            config.consumers =
                vec![Arc::new(consumer("alice", "alice-key")), Arc::new(consumer("bob", "bob-key"))];
        })
        .await
    };
    let ((_first, one), (_second, other)) = (start().await?, start().await?);
    is_up(&one, true).await?;
    is_up(&other, true).await?;
    let alice = &["X-API-Key: alice-key"];
    assert_eq!(let_in(&one, 9, alice).await?, 5);
    in_step(&one).await?;
    let_in(&other, 1, alice).await?;
    in_step(&other).await?;
    assert_eq!(let_in(&other, 5, alice).await?, 0);
    assert_eq!(let_in(&other, 9, &["X-API-Key: bob-key"]).await?, 5);
    Ok(())
}

#[tokio::test]
async fn killed_redis_causes_no_failed_request_and_shared_limits_recover() -> TestResult {
    interrupted(|server| server.kill().map_err(Into::into), async |server| server.restart().await).await
}

#[tokio::test]
async fn paused_redis_causes_no_failed_request_and_shared_limits_recover() -> TestResult {
    interrupted(|server| server.pause(), async |server| server.resume()).await
}

async fn interrupted(
    interrupt: impl FnOnce(&mut RedisServer) -> anyhow::Result<()>,
    resume: impl AsyncFnOnce(&mut RedisServer) -> anyhow::Result<()>,
) -> TestResult {
    let mut server = RedisServer::start(&[]).await?;
    // The limits admit the whole load, so every other status than 200 is a loss.
    let limits = || {
        vec![hundred(WINDOWS[0]), Limit { per: Span::of_millis(100), ..limit("all", 1_000_000, Vec::new()) }]
    };
    let redis = || Redis { timeout: Span::of_millis(100), ..redis(server.address()) };
    let quiet = || {
        let mut limits = limits();
        limits[0].groups = written(json!(["nobody"]));
        limits
    };
    let (_backend, loaded) = sharing(redis(), quiet()).await?;
    let (_first, one) = sharing(redis(), limits()).await?;
    let (_second, other) = sharing(redis(), limits()).await?;
    for gateway in [&loaded, &one, &other] {
        is_up(gateway, true).await?;
    }
    let load = loaded.load().rate(400.0).start()?;
    load.wait_for_ok(100, Duration::from_secs(30)).await?;
    assert_shares(&one, &other, "before").await?;

    interrupt(&mut server)?;
    for gateway in [&loaded, &one, &other] {
        is_up(gateway, false).await?;
    }
    let so_far = load.snapshot().ok;
    load.wait_for_ok(so_far + 200, Duration::from_secs(30)).await?;
    // Each gateway applies the whole limit.
    for gateway in [&one, &other] {
        assert_eq!(let_in(gateway, 120, &["X-Tenant: alone"]).await?, 100);
        assert_eq!(let_in(gateway, 10, &["X-Tenant: before"]).await?, 0, "what is known stays known");
    }

    resume(&mut server).await?;
    for gateway in [&loaded, &one, &other] {
        is_up(gateway, true).await?;
    }
    assert_shares(&one, &other, "after").await?;
    let so_far = load.snapshot().ok;
    load.wait_for_ok(so_far + 200, Duration::from_secs(30)).await?;
    let report = load.stop().await?;
    anyhow::ensure!(report.failures() == 0, "{report:?}");
    Ok(())
}

#[tokio::test]
async fn requests_admitted_during_a_redis_outage_count_in_the_shared_limit_afterwards() -> TestResult {
    let mut server = RedisServer::start(&[]).await?;
    let (_first, one) = sharing(redis(server.address()), vec![hundred(WINDOWS[0])]).await?;
    is_up(&one, true).await?;
    server.kill()?;
    is_up(&one, false).await?;
    assert_eq!(let_in(&one, 70, &["X-Tenant: a"]).await?, 70);
    server.restart().await?;
    is_up(&one, true).await?;
    in_step(&one).await?;
    let (_second, other) = sharing(redis(server.address()), vec![hundred(WINDOWS[0])]).await?;
    is_up(&other, true).await?;
    assert_eq!(let_in(&other, 1, &["X-Tenant: a"]).await?, 1);
    in_step(&other).await?;
    assert_eq!(let_in(&other, 50, &["X-Tenant: a"]).await?, 29);
    Ok(())
}

#[tokio::test]
async fn log_lines_about_repeated_redis_outages_are_limited() -> TestResult {
    let mut server = RedisServer::start(&[]).await?;
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let (_backend, gateway) = sharing(redis(server.address()), vec![hundred(WINDOWS[0])]).await?;
    for _ in 0..3 {
        is_up(&gateway, true).await?;
        server.kill()?;
        is_up(&gateway, false).await?;
        gateway.wait_until(|gateway| state(gateway).failed >= 3).await?;
        server.restart().await?;
    }
    is_up(&gateway, true).await?;
    // The log shows that the connection ends, that there is none, and that it is back.
    let lines = log.lines("cannot share limits");
    assert!((1..=4).contains(&lines.len()), "{lines:?}");
    let back = log.lines("limits are shared").len();
    assert!((2..=1 + lines.len()).contains(&back), "{back} of {lines:?}");
    Ok(())
}

#[tokio::test]
async fn wrong_redis_password_is_logged_once_and_limits_apply_locally() -> TestResult {
    let server = RedisServer::start(&["--requirepass", "the-right-one"]).await?;
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let by = |password: Option<&str>| {
        let password = password.map(|password| password.as_bytes().into());
        Redis { password, ..redis(server.address()) }
    };
    let (_backend, gateway) = sharing(by(Some("a-wrong-one")), vec![hundred(WINDOWS[0])]).await?;
    gateway.wait_until(|gateway| state(gateway).failed >= 3).await?;
    assert!(!state(&gateway).is_up);
    assert_eq!(let_in(&gateway, 120, &["X-Tenant: a"]).await?, 100);
    let told = log.lines("cannot share limits");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("WRONGPASS") && !told[0].contains("a-wrong-one"), "{told:?}");

    gateway.configure(|config| set_limits(config, shared(by(None), vec![hundred(WINDOWS[0])]))).await;
    gateway.wait_until(|gateway| state(gateway).failed >= 2).await?;
    assert!(log.lines("cannot share limits")[1].contains("NOAUTH"));

    let right = shared(by(Some("the-right-one")), vec![hundred(WINDOWS[0])]);
    gateway.configure(|config| set_limits(config, right)).await;
    is_up(&gateway, true).await?;
    assert_eq!(log.lines("limits are shared").len(), 1);
    Ok(())
}

#[tokio::test]
async fn redis_user_needs_only_the_documented_permissions() -> TestResult {
    let server = RedisServer::start(&[]).await?;
    let user = "ACL SETUSER gate on >of-gate ~sluicegate:* +eval +get +set +time +select";
    assert_eq!(server.ask(user).await?, "+OK");
    let by = |prefix: &str| Redis {
        username: Some(ServerUser::new("gate").unwrap()),
        password: Some(b"of-gate"[..].into()),
        database: Number::of(1),
        prefix: KeyPrefix::new(prefix).unwrap(),
        ..redis(server.address())
    };
    for window in WINDOWS {
        let (_first, one) = sharing(by("sluicegate"), vec![hundred(window)]).await?;
        let (_second, other) = sharing(by("sluicegate"), vec![hundred(window)]).await?;
        is_up(&one, true).await?;
        is_up(&other, true).await?;
        assert_shares(&one, &other, "a").await?;
    }
    let (_backend, elsewhere) = sharing(by("others"), vec![hundred(WINDOWS[0])]).await?;
    elsewhere.wait_until(|gateway| state(gateway).failed >= 2).await?;
    assert!(!state(&elsewhere).is_up);
    Ok(())
}

#[tokio::test]
async fn read_only_redis_replica_is_rejected_and_limits_apply_locally() -> TestResult {
    // A replica of a server that does not exist: no process listens at that port.
    let server = RedisServer::start(&["--replicaof", "127.0.0.1 1"]).await?;
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let (_backend, gateway) = sharing(redis(server.address()), vec![hundred(WINDOWS[0])]).await?;
    gateway.wait_until(|gateway| state(gateway).failed >= 2).await?;
    assert!(!state(&gateway).is_up);
    assert!(log.lines("cannot share limits")[0].contains("READONLY"));
    assert_eq!(let_in(&gateway, 120, &["X-Tenant: a"]).await?, 100);
    Ok(())
}

#[tokio::test]
async fn invalid_redis_responses_leave_local_limits_in_effect() -> TestResult {
    let numbers = |count: usize| format!("*{count}\r\n{}", ":1\r\n".repeat(count));
    let now = now() * 1_000_000;
    for (answer, told) in [
        ("HTTP/1.1 400 Bad Request\r\n\r\n".to_owned(), "not valid in the Redis protocol"),
        ("+OK\r\n".to_owned(), "does not fit the command"),
        ("$100000000\r\n".to_owned(), "not valid in the Redis protocol"),
        ("*100000000\r\n".to_owned(), "not valid in the Redis protocol"),
        ("x".repeat(1 << 20), "not valid in the Redis protocol"),
        (format!("*1024\r\n{}", ":00000000000000000000000000000001\r\n".repeat(1024)), "longer than"),
        (numbers(2), "by more than 60s"),
        (format!("*2\r\n:{now}\r\n:{now}\r\n").repeat(100), "does not fit the command"),
        ("-ERR \u{1b}[31mred\r\n".to_owned(), "ERR \\\\\\\\u{1b}[31mred"),
    ] {
        let log = Log::default();
        let _guard = tracing::subscriber::set_default(log.clone());
        let address = answering(answer.into_bytes()).await?;
        let (_backend, gateway) = sharing(redis(address), vec![hundred(WINDOWS[0])]).await?;
        gateway.wait_until(|gateway| state(gateway).failed >= 2).await?;
        assert!(!state(&gateway).is_up, "{told}");
        let lines = log.lines("cannot share limits");
        assert!(lines[0].contains(told), "{told}: {lines:?}");
        assert!(lines[0].len() < 600, "{lines:?}");
        assert_eq!(let_in(&gateway, 120, &["X-Tenant: a"]).await?, 100);
    }
    Ok(())
}

#[tokio::test]
async fn redis_clock_that_moves_backwards_causes_no_denied_request() -> TestResult {
    for window in [Window::TokenBucket { burst: 1000 }, Window::Sliding] {
        let back = Arc::new(AtomicU64::new(0));
        let limit = Limit { per: Span::of_millis(1000), ..limit("all", 1_000, Vec::new()) };
        let address = showing(back.clone()).await?;
        let (_backend, gateway) = sharing(redis(address), vec![paced(window, limit)]).await?;
        is_up(&gateway, true).await?;
        assert_eq!(let_in(&gateway, 5, &[]).await?, 5);
        in_step(&gateway).await?;
        back.store(5_000_000, Ordering::Relaxed);
        for _ in 0..3 {
            assert_eq!(let_in(&gateway, 5, &[]).await?, 5, "{window:?}");
            in_step(&gateway).await?;
        }
        assert_eq!(state(&gateway).failed, 0);
    }
    Ok(())
}

/// A server without counts of others, whose clock is this many microseconds behind.
async fn showing(back: Arc<AtomicU64>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = vec![0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut asked).await {
                let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros());
                let now = micros.saturating_sub(back.load(Ordering::Relaxed).into());
                // The bucket is full; a window has the two counts of a key.
                let is_window = memchr::memmem::find(&asked[..length], b"Sliding windows").is_some();
                let answer = match is_window {
                    true => format!("*3\r\n:{now}\r\n:0\r\n:0\r\n"),
                    false => format!("*2\r\n:{now}\r\n:{now}\r\n"),
                };
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
        }
    });
    Ok(address)
}

/// A server that sends these bytes in response to any command.
async fn answering(answer: Vec<u8>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 4096];
            while stream.read(&mut asked).await.is_ok_and(|length| length > 0) {
                if stream.write_all(&answer).await.is_err() {
                    break;
                }
            }
        }
    });
    Ok(address)
}

#[tokio::test]
async fn redis_over_tls_requires_a_trusted_certificate() -> TestResult {
    let server = RedisServer::start(&[]).await?;
    let authority = Authority::new();
    let terminator = Terminator::start(server.address(), &authority.issue(&["redis.test"]), None).await?;
    let by = |server_name: &str, authority: &Authority| {
        let authorities = vec![authority.certificate()];
        let tls = RedisTls { server_name: server_name.into(), authorities };
        Redis { tls: Some(tls), ..redis(terminator.addr()) }
    };
    let (_backend, gateway) = sharing(by("redis.test", &authority), vec![hundred(WINDOWS[0])]).await?;
    is_up(&gateway, true).await?;
    for wrong in [by("other.test", &authority), by("redis.test", &Authority::new())] {
        let (_backend, gateway) = sharing(wrong, vec![hundred(WINDOWS[0])]).await?;
        gateway.wait_until(|gateway| state(gateway).failed >= 2).await?;
        assert!(!state(&gateway).is_up);
    }
    Ok(())
}

#[tokio::test]
async fn gateways_share_a_flood_of_keys_in_batches_and_every_key_expires() -> TestResult {
    let server = RedisServer::start(&[]).await?;
    for window in [Window::TokenBucket { burst: 3 }, Window::Sliding] {
        let limit = Limit { requests: Number::of(3), ..hundred(window) };
        let (_backend, gateway) = sharing(redis(server.address()), vec![limit]).await?;
        is_up(&gateway, true).await?;
        server.ask("FLUSHALL").await?;
        let mut client = gateway.connect().await?;
        for n in 0..2000 {
            let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Tenant: {n}\r\n\r\n");
            assert_eq!(client.request(request).await?.status, 200);
        }
        in_step(&gateway).await?;
        let size: u64 = server.ask("DBSIZE").await?.trim_start_matches(':').parse()?;
        assert!((2000..=2001).contains(&size), "all are told, and a probe: {size}");
        let expiring = server.ask("INFO keyspace").await?;
        assert!(expiring.contains(&format!("keys={size},expires={size}")), "{expiring}");
        let keys = server.ask("SCAN 0 COUNT 1").await?;
        assert!(keys.contains("sluicegate:default/calm/tenant:"), "{keys}");
        assert!(state(&gateway).is_up);
    }
    Ok(())
}

#[tokio::test]
async fn unusable_shared_limit_is_reported_and_applies_locally() -> TestResult {
    let policy = RateLimits {
        id: id("RateLimitPolicy", "calm"),
        limits: vec![hundred(WINDOWS[0])],
        concurrency: Vec::new(),
        headers: true,
        shared: Some(Shared::Unusable("its Secret does not exist".into())),
        exempt: Entries::default(),
    };
    let (_backend, gateway) = with(|config| set_limits(config, policy)).await?;
    assert_eq!(state(&gateway), SharedState { is_up: false, exchanged: 0, failed: 0 });
    assert_eq!(let_in(&gateway, 120, &["X-Tenant: a"]).await?, 100);
    Ok(())
}

/// The log lines of this thread.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn lines(&self, with: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|line| line.contains(with)).cloned().collect()
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("sluicegate")
    }

    fn event(&self, event: &tracing::Event<'_>) {
        struct Line(String);
        impl tracing::field::Visit for Line {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{field}={value:?} "));
            }
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
