//! The export of spans to a collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_model::feature::{Spans, Unrecorded};
use sluicegate_model::policy::Traffic;
use sluicegate_model::value::Template;
use sluicegate_model::{PathPattern, RuleMatch};
use sluicegate_proxy::counters::SpanLoss;
use sluicegate_proxy::record::access_log::{AccessLog, LogFormat};
use sluicegate_testkit::terminator::Terminator;
use sluicegate_testkit::tls::Authority;

use super::*;

#[tokio::test]
async fn gateway_exports_spans_as_otlp_over_http() -> TestResult {
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let gateway = traced(&backend, to(collector.addr())).start().await?;
    ask(&gateway, "/", &[]).await?;
    gateway.wait_until(|_| collector.spans().len() == 1).await?;
    gateway.wait_until(|gateway| gateway.proxy().registry().counters().spans().exported() == 1).await?;
    let requests = collector.requests();
    assert!(requests[0].starts_with("POST /v1/traces HTTP/1.1\r\n"), "{}", requests[0]);
    assert!(requests[0].contains("content-type: application/x-protobuf\r\n"), "{}", requests[0]);
    assert!(requests[0].contains(&format!("host: {}\r\n", collector.addr())), "{}", requests[0]);
    Ok(())
}

/// The number of spans lost for this reason.
fn lost(gateway: &Gateway, loss: SpanLoss) -> u64 {
    gateway.proxy().registry().counters().spans().lost(loss)
}

/// The number of exported and lost spans: the gateway counts every span.
fn accounted(gateway: &Gateway) -> u64 {
    let counters = gateway.proxy().registry().counters();
    let not_passed_on = counters.workers().sum(|worker| &worker.spans_queue_full);
    let lost: u64 = SpanLoss::ALL.into_iter().map(|loss| lost(gateway, loss)).sum();
    counters.spans().exported() + lost + not_passed_on
}

/// Requests under load with a collector that behaves like this: no request fails, and the gateway accounts for every
/// span.
async fn under_load(behaviour: Behaviour, loss: Option<SpanLoss>) -> TestResult {
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Backend::start(behaviour).await?);
    let gateway = traced(&backend, to(collector.addr())).start().await?;
    let report = gateway.load().connections(4).rate(400.0).run(Duration::from_millis(500)).await?;
    assert_eq!(report.failures(), 0, "{report:?}");
    assert!(report.requests() > 0);
    match loss {
        Some(loss) => gateway.wait_until(|gateway| lost(gateway, loss) > 0).await?,
        None => {
            gateway
                .wait_until(|gateway| gateway.proxy().registry().counters().spans().exported() > 0)
                .await?;
        }
    }
    gateway.stop().await;
    let exported = gateway.proxy().registry().counters().spans().exported();
    assert_eq!(exported > 0, loss.is_none());
    assert_eq!(accounted(&gateway), report.requests());
    Ok(())
}

#[tokio::test]
async fn spans_that_the_collector_rejects_are_lost_but_no_request_fails() -> TestResult {
    tokio::try_join!(
        under_load(Behaviour::status(400), Some(SpanLoss::Refused)),
        under_load(Behaviour::status(404), Some(SpanLoss::Refused)),
        under_load(
            Behaviour::raw("HTTP/1.1 307 x\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"),
            Some(SpanLoss::Refused)
        ),
    )?;
    Ok(())
}

#[tokio::test]
async fn spans_for_an_unreachable_or_malformed_collector_are_lost_but_no_request_fails() -> TestResult {
    tokio::try_join!(
        under_load(Behaviour::close_on_accept(), Some(SpanLoss::Unreachable)),
        under_load(Behaviour::garbage(), Some(SpanLoss::Unreachable)),
        under_load(Behaviour::status(503), Some(SpanLoss::Unreachable)),
    )?;
    Ok(())
}

#[tokio::test]
async fn oversized_or_endless_responses_of_the_collector_cause_no_failed_request() -> TestResult {
    let endless = Behaviour::chunked(vec![vec![b'x'; 16 * 1024]; 64], Duration::from_millis(1), &[]);
    under_load(Behaviour::sized(8 << 20), None).await?;
    under_load(endless, None).await
}

#[tokio::test]
async fn unresponsive_collector_causes_no_failed_request_and_lost_spans_are_counted_at_shutdown() -> TestResult
{
    for behaviour in [Behaviour::silent(), Behaviour::hold_on_accept()] {
        let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Backend::start(behaviour).await?);
        let gateway = traced(&backend, to(collector.addr())).start().await?;
        let report = gateway.load().connections(4).rate(400.0).run(Duration::from_millis(500)).await?;
        assert_eq!(report.failures(), 0, "{report:?}");
        gateway.stop().await;
        assert_eq!(
            (lost(&gateway, SpanLoss::Ended), accounted(&gateway)),
            (report.requests(), report.requests())
        );
    }
    Ok(())
}

#[tokio::test]
async fn gateway_retries_spans_after_a_429_and_exports_each_span_once() -> TestResult {
    let tries = Arc::new(AtomicU64::new(0));
    let behaviour = Behaviour::choose({
        let tries = tries.clone();
        move |_| match tries.fetch_add(1, Ordering::Relaxed) {
            0 => Behaviour::raw("HTTP/1.1 429 x\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"),
            _ => Behaviour::status(200),
        }
    });
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Backend::start(behaviour).await?);
    let gateway = traced(&backend, to(collector.addr())).start().await?;
    ask(&gateway, "/", &[]).await?;
    gateway.wait_until(|gateway| gateway.proxy().registry().counters().spans().exported() == 1).await?;
    assert_eq!((tries.load(Ordering::Relaxed), accounted(&gateway)), (2, 1));
    Ok(())
}

#[tokio::test]
async fn gateway_counts_spans_that_the_collector_rejects_by_partial_success() -> TestResult {
    // partial_success { rejected_spans: 1, error_message: "old" }
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n\x0a\x07\x08\x01\x12\x03old".to_vec();
    let (backend, collector) =
        (Backend::start(Behaviour::ok()).await?, Backend::start(Behaviour::raw(answer)).await?);
    let gateway = traced(&backend, to(collector.addr())).workers(1).start().await?;
    ask(&gateway, "/", &[]).await?;
    gateway.wait_until(|gateway| lost(gateway, SpanLoss::Rejected) == 1).await?;
    assert_eq!(gateway.proxy().registry().counters().spans().exported(), 0);
    Ok(())
}

#[tokio::test]
async fn collector_over_tls_receives_spans_only_with_a_trusted_certificate() -> TestResult {
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let (ours, strange) = (Authority::new(), Authority::new());
    let terminator = Terminator::start(collector.addr(), &ours.issue(&["localhost"]), None).await?;
    let by = |authority: &Authority| Tracing {
        authorities: vec![authority.certificate()],
        collector: format!("https://localhost:{}/otlp/", terminator.addr().port()).parse().unwrap(),
        ..to(collector.addr())
    };
    let gateway = traced(&backend, by(&strange)).start().await?;
    ask(&gateway, "/", &[]).await?;
    gateway.wait_until(|gateway| lost(gateway, SpanLoss::Unreachable) == 1).await?;
    assert_eq!(collector.requests().len(), 0);
    // The collector changes while the gateway runs.
    gateway.configure(|config| config.settings.tracing = Some(by(&ours))).await;
    ask(&gateway, "/", &[]).await?;
    assert_eq!(all(&gateway, &collector).await.len(), 1);
    assert!(collector.requests()[0].starts_with("POST /otlp/v1/traces "), "{:?}", collector.requests());
    Ok(())
}

#[tokio::test]
async fn changed_settings_start_and_stop_tracing() -> TestResult {
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let gateway = Gateway::of([&backend]).await?;
    let mut client = gateway.connect().await?;
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.request(request).await?;
    gateway.configure(|config| config.settings.tracing = Some(to(collector.addr()))).await;
    client.request(request).await?;
    assert!(got(&seen(&backend), "traceparent").is_some());
    gateway.wait_until(|_| collector.spans().len() == 1).await?;
    gateway.configure(|config| config.settings.tracing = None).await;
    client.request(request).await?;
    assert_eq!(got(&seen(&backend), "traceparent"), None);
    assert_eq!(all(&gateway, &collector).await.len(), 1);
    Ok(())
}

#[tokio::test]
async fn access_log_contains_trace_id_and_span_id() -> TestResult {
    let file = tempfile::NamedTempFile::new()?;
    let log = AccessLog::open(LogFormat::Json, Some(file.path()))?;
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let builder = traced(&backend, Tracing { sample_percent: 0.0, ..to(collector.addr()) });
    let gateway = builder.options(|options| options.access_log = Some(log)).start().await?;
    ask(&gateway, "/traced", &[&format!("traceparent: 00-{TRACE}-{PARENT}-01")]).await?;
    ask(&gateway, "/untraced", &[]).await?;
    let spans = all(&gateway, &collector).await;
    let read = || std::fs::read_to_string(file.path()).unwrap();
    gateway.wait_until(|_| read().lines().count() == 2).await?;
    let text = read();
    let (traced, untraced) = match text.lines().collect::<Vec<_>>()[..] {
        [one, two] if one.contains("/traced") => (one, two),
        [one, two] => (two, one),
        _ => panic!("{text}"),
    };
    let wanted = format!("\"trace_id\":\"{TRACE}\",\"span_id\":\"{}\"", spans[0].span);
    assert!(traced.contains(&wanted), "{traced}");
    assert!(!untraced.contains("_id\":\"\"") && !untraced.contains("trace_id"), "{untraced}");
    Ok(())
}

#[tokio::test]
async fn rule_can_leave_its_requests_out_of_the_access_log_and_of_traces() -> TestResult {
    let file = tempfile::NamedTempFile::new()?;
    let log = AccessLog::open(LogFormat::Json, Some(file.path()))?;
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let builder = traced(&backend, to(collector.addr()));
    let gateway = builder.options(|options| options.access_log = Some(log)).start().await?;
    gateway
        .configure(|config| {
            let host = Arc::make_mut(&mut config.hosts[0]);
            let mut quiet = host.rules[0].clone();
            quiet.matches = vec![RuleMatch::path(PathPattern::Prefix("/quiet".into()))];
            let mut traffic = Traffic::new(quiet.id.clone());
            traffic.features.unrecorded = Unrecorded { access_log: true, traces: true };
            quiet.traffic = Some(Arc::new(traffic));
            host.rules.push(quiet);
        })
        .await;
    ask(&gateway, "/quiet", &[]).await?;
    assert_eq!(got(&seen(&backend), "traceparent"), None);
    ask(&gateway, "/loud", &[]).await?;
    let read = || std::fs::read_to_string(file.path()).unwrap();
    gateway.wait_until(|_| read().contains("/loud")).await?;
    assert!(!read().contains("/quiet"), "{}", read());
    assert_eq!(all(&gateway, &collector).await.len(), 1);
    Ok(())
}

/// A gateway whose rule has these settings of spans.
async fn with_spans(backend: &Backend, tracing: Tracing, spans: Spans) -> anyhow::Result<Gateway> {
    let gateway = traced(backend, tracing).start().await?;
    gateway
        .configure(|config| {
            let rule = &mut Arc::make_mut(&mut config.hosts[0]).rules[0];
            let mut traffic = Traffic::new(rule.id.clone());
            traffic.features.spans = spans;
            rule.traffic = Some(Arc::new(traffic));
        })
        .await;
    Ok(gateway)
}

#[tokio::test]
async fn rule_that_ignores_callers_begins_a_trace_of_its_own_or_forwards_none() -> TestResult {
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let ignoring = || Spans { ignores_callers: true, name: None };
    let gateway = with_spans(&backend, to(collector.addr()), ignoring()).await?;
    let of_caller = format!("traceparent: 00-{TRACE}-b7ad6b7169203331-01");
    for flags in ["01", "00"] {
        let of_caller = format!("traceparent: 00-{TRACE}-b7ad6b7169203331-{flags}");
        ask(&gateway, "/", &[&of_caller, "tracestate: a=b"]).await?;
        let request = seen(&backend);
        assert_ne!(parent(&request).0, TRACE, "{flags}");
        assert_eq!(got(&request, "tracestate"), None, "{flags}");
    }
    let spans = all(&gateway, &collector).await;
    assert_eq!(spans.len(), 2);
    assert!(spans.iter().all(|span| span.trace != TRACE && span.parent.is_empty()), "{spans:?}");

    let unsampled = Tracing { sample_percent: 0.0, ..to(collector.addr()) };
    let gateway = with_spans(&backend, unsampled, ignoring()).await?;
    ask(&gateway, "/", &[&of_caller]).await?;
    assert_eq!(got(&seen(&backend), "traceparent"), None);
    assert_eq!(all(&gateway, &collector).await.len(), 2, "no further span");
    Ok(())
}

#[tokio::test]
async fn rule_can_name_its_spans_with_variables_of_the_request() -> TestResult {
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let name = Template::new("HTTP $request_method $uri")?;
    let spans = Spans { ignores_callers: false, name: Some(name) };
    let gateway = with_spans(&backend, to(collector.addr()), spans).await?;
    ask(&gateway, "/cart?x=1", &[]).await?;
    let spans = all(&gateway, &collector).await;
    assert_eq!(spans.iter().map(|span| span.name.as_str()).collect::<Vec<_>>(), ["HTTP GET /cart"]);
    Ok(())
}
