//! `traceparent` and `tracestate`.

use super::*;

/// A `traceparent` of a caller.
fn line(flags: &str) -> String {
    format!("traceparent: 00-{TRACE}-{PARENT}-{flags}")
}

#[tokio::test]
async fn gateway_without_tracing_forwards_trace_headers_unchanged() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::of([&backend]).await?;
    ask(&gateway, "/", &[&line("01"), "tracestate: a=1,b=2"]).await?;
    assert_eq!(got(&seen(&backend), "traceparent"), line("01").strip_prefix("traceparent: "));
    assert_eq!(got(&seen(&backend), "tracestate"), Some("a=1,b=2"));
    ask(&gateway, "/", &["traceparent: nonsense", "tracestate: a=1"]).await?;
    assert_eq!(got(&seen(&backend), "traceparent"), Some("nonsense"));
    assert_eq!(got(&seen(&backend), "tracestate"), Some("a=1"));
    ask(&gateway, "/", &[]).await?;
    assert_eq!(got(&seen(&backend), "traceparent"), None);
    Ok(())
}

#[tokio::test]
async fn span_of_the_gateway_continues_the_trace_of_the_caller() -> TestResult {
    for transport in [Transport::Http, Transport::Http2] {
        let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
        let tracing = Tracing { sample_percent: 0.0, ..to(collector.addr()) };
        let gateway = traced(&backend, tracing).start().await?;
        ask_by(&gateway, "/", &[&line("03"), "tracestate: a=1,b=2"], transport).await?;
        let (trace, span, flags) = parent(&seen(&backend));
        assert_eq!((&*trace, &*flags), (TRACE, "03"));
        assert_ne!(span, PARENT);
        assert_eq!(got(&seen(&backend), "tracestate"), Some("a=1,b=2"));
        let spans = all(&gateway, &collector).await;
        assert_eq!(spans.len(), 1);
        assert_eq!((&*spans[0].trace, &*spans[0].span, &*spans[0].parent), (TRACE, &*span, PARENT));
        assert_eq!((&*spans[0].state, spans[0].flags), ("a=1,b=2", 0x303));
    }
    Ok(())
}

#[tokio::test]
async fn unsampled_trace_of_a_caller_is_not_recorded() -> TestResult {
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let gateway = traced(&backend, to(collector.addr())).start().await?;
    ask(&gateway, "/", &[&line("00"), "tracestate: a=1"]).await?;
    assert_eq!(got(&seen(&backend), "traceparent"), line("00").strip_prefix("traceparent: "));
    assert_eq!(got(&seen(&backend), "tracestate"), Some("a=1"));
    assert_eq!(all(&gateway, &collector).await.len(), 0);
    Ok(())
}

#[tokio::test]
async fn malformed_traceparent_starts_a_new_trace_without_tracestate() -> TestResult {
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let gateway = traced(&backend, to(collector.addr())).start().await?;
    let zero = format!("traceparent: 00-{}-{PARENT}-01", "0".repeat(32));
    let wrong: [&[&str]; 5] = [
        &["traceparent: nonsense", "tracestate: a=1"],
        &[&zero, "tracestate: a=1"],
        &[&line("01"), &line("01"), "tracestate: a=1"],
        &["traceparent:", "tracestate: a=1"],
        &["tracestate: a=1"],
    ];
    for lines in wrong {
        ask(&gateway, "/", lines).await?;
        let (trace, _, flags) = parent(&seen(&backend));
        assert_ne!(trace, TRACE, "{lines:?}");
        assert_eq!(flags, "03");
        assert_eq!(got(&seen(&backend), "tracestate"), None, "{lines:?}");
    }
    let spans = all(&gateway, &collector).await;
    assert_eq!(spans.len(), wrong.len());
    for span in spans {
        assert_eq!((&*span.parent, &*span.state, span.flags), ("", "", 0x103));
    }
    Ok(())
}

#[tokio::test]
async fn malformed_traceparent_is_dropped_even_if_the_request_has_no_span() -> TestResult {
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let tracing = Tracing { sample_percent: 0.0, ..to(collector.addr()) };
    let gateway = traced(&backend, tracing).start().await?;
    ask(&gateway, "/", &["traceparent: nonsense", "tracestate: a=1"]).await?;
    assert_eq!(got(&seen(&backend), "traceparent"), None);
    assert_eq!(got(&seen(&backend), "tracestate"), None);
    ask(&gateway, "/", &[]).await?;
    assert_eq!(got(&seen(&backend), "traceparent"), None);
    assert_eq!(all(&gateway, &collector).await.len(), 0);
    Ok(())
}

#[tokio::test]
async fn gateway_limits_exported_spans_of_caller_traces_per_second() -> TestResult {
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let tracing = Tracing { sample_percent: 0.0, followed_per_second: 1, ..to(collector.addr()) };
    let gateway = traced(&backend, tracing).start().await?;
    let mut whole = 0;
    for _ in 0..50 {
        ask(&gateway, "/", &[&line("01"), "tracestate: a=1"]).await?;
        let (trace, span, flags) = parent(&seen(&backend));
        assert_eq!((&*trace, &*flags), (TRACE, "01"), "the trace is whole");
        assert_eq!(got(&seen(&backend), "tracestate"), Some("a=1"));
        whole += u64::from(span == PARENT);
    }
    let over = gateway.proxy().registry().counters().workers().sum(|worker| &worker.spans_over_limit);
    assert_eq!(over, whole);
    assert!(over > 25, "{over}");
    assert_eq!(all(&gateway, &collector).await.len() as u64, 50 - over);
    Ok(())
}
