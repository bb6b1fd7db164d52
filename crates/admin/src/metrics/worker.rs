//! What the workers count.

use std::fmt;

use sluicegate_http1::Rejection;
use sluicegate_model::ContentCoding;
use sluicegate_proxy::failure::{ClientFault, TlsFault};
use sluicegate_proxy::telemetry::{
    CompressedStats, SpanLoss, Tally, Telemetry, WorkerStats, handshake_index,
};

use super::families::Families;

pub(super) fn encode(families: &mut Families<'_>, telemetry: &Telemetry) -> fmt::Result {
    let workers = telemetry.workers();
    let each = |tally: fn(&WorkerStats) -> &Tally| {
        workers.iter().enumerate().map(move |(id, stats)| ([("worker", id)], tally(stats).get()))
    };
    families.counters(
        "sluicegate_connections_accepted",
        "Client connections accepted, by the worker that took them from the listen queue",
        each(|worker| &worker.accepted),
    )?;
    families.counters(
        "sluicegate_connections_handed_over",
        "Accepted connections that the worker gave to a less loaded one",
        each(|worker| &worker.handed_over),
    )?;
    families.gauges(
        "sluicegate_connections_open",
        "Client connections open now, by the worker that serves them",
        each(|worker| &worker.open),
    )?;
    families.gauges(
        "sluicegate_requests_in_flight",
        "Requests and tunnels being served now",
        each(|worker| &worker.in_flight),
    )?;
    families.counters(
        "sluicegate_requests_rejected",
        "Requests refused because they break the protocol",
        Rejection::ALL.iter().map(|rejection| {
            let count = workers.sum(|worker| &worker.rejections[rejection.index()]);
            ([("reason", rejection.reason())], count)
        }),
    )?;
    families.counters(
        "sluicegate_client_faults",
        "Requests that the client ended, or a limit on what clients may do",
        ClientFault::ALL.iter().map(|fault| {
            let count = workers.sum(|worker| &worker.client_faults[fault.index()]);
            ([("reason", fault.reason())], count)
        }),
    )?;
    let handshakes = [(false, false), (false, true), (true, false), (true, true)];
    families.counters(
        "sluicegate_tls_handshakes",
        "TLS handshakes with clients that came to their end",
        handshakes.into_iter().map(|(is_tls13, is_resumed)| {
            let index = handshake_index(is_tls13, is_resumed);
            let version = if is_tls13 { "1.3" } else { "1.2" };
            let labels = [("version", version), ("resumed", if is_resumed { "true" } else { "false" })];
            (labels, workers.sum(|worker| &worker.handshakes[index]))
        }),
    )?;
    families.counters(
        "sluicegate_tls_handshake_failures",
        "Connections of clients that ended before their TLS handshake did",
        TlsFault::ALL.iter().map(|fault| {
            let count = workers.sum(|worker| &worker.tls_faults[fault.index()]);
            ([("reason", fault.reason())], count)
        }),
    )?;
    let by_coding = |tally: fn(&CompressedStats) -> &Tally| {
        ContentCoding::ALL.iter().map(move |coding| {
            let count = workers.sum(|worker| tally(&worker.compressed[coding.index()]));
            ([("coding", coding.name())], count)
        })
    };
    families.counters(
        "sluicegate_compressed_responses",
        "Responses that were compressed, or are being",
        by_coding(|compressed| &compressed.responses),
    )?;
    families.counters(
        "sluicegate_compression_in_bytes",
        "Bytes of bodies that were compressed, as they came",
        by_coding(|compressed| &compressed.bytes_in),
    )?;
    families.counters(
        "sluicegate_compression_out_bytes",
        "Bytes that these bodies became",
        by_coding(|compressed| &compressed.bytes_out),
    )?;
    families.gauges(
        "sluicegate_compressions_in_flight",
        "Responses being compressed now",
        each(|worker| &worker.compressing),
    )?;
    families.counter(
        "sluicegate_compressions_passed_over",
        "Responses that went uncompressed because their worker was compressing as many as it may",
        workers.sum(|worker| &worker.compressions_passed_over),
    )?;
    families.counter(
        "sluicegate_compressions_failed",
        "Responses broken off because their encoder failed",
        workers.sum(|worker| &worker.compressions_failed),
    )?;
    families.counter(
        "sluicegate_http2_floods",
        "HTTP/2 connections ended because their clients made work without asking for anything",
        workers.sum(|worker| &worker.http2_floods),
    )?;
    families.counter(
        "sluicegate_request_headers_dropped",
        "Request headers dropped because of their names: with an underscore, Proxy, forged forwarding headers",
        workers.sum(|worker| &worker.headers_dropped),
    )?;
    families.counter(
        "sluicegate_requests_unrouted",
        "Requests that no route takes, answered 404",
        workers.sum(|worker| &worker.unrouted),
    )?;
    families.counter(
        "sluicegate_accept_errors",
        "Connections that could not be accepted",
        workers.sum(|worker| &worker.accept_errors),
    )?;
    families.counter(
        "sluicegate_access_log_dropped",
        "Access log lines lost because the log could not be written, or not as fast as they came",
        telemetry.lost_lines(),
    )?;
    let spans = telemetry.spans();
    families.counter("sluicegate_spans_exported", "Spans that a collector took", spans.exported())?;
    let lost = SpanLoss::ALL.map(|loss| ([("reason", loss.reason())], spans.lost(loss)));
    let of_workers = [
        ([("reason", "over_limit")], workers.sum(|worker| &worker.spans_over_limit)),
        ([("reason", "queue_full")], workers.sum(|worker| &worker.spans_queue_full)),
    ];
    families.counters(
        "sluicegate_spans_dropped",
        "Spans that no collector took, and requests that got none although their callers wanted one (over_limit)",
        of_workers.into_iter().chain(lost),
    )
}
