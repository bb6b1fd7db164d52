//! Metrics of each worker.

use std::fmt;

use sluicegate_http1::Rejection;
use sluicegate_model::ContentCoding;
use sluicegate_proxy::counters::{CompressedStats, SpanLoss, Tally, WorkerStats, handshake_index};
use sluicegate_proxy::failure::{ClientFault, TlsFault};
use sluicegate_proxy::registry::Registry;

use super::families::Families;

pub(super) fn encode(families: &mut Families<'_>, registry: &Registry) -> fmt::Result {
    let workers = registry.counters().workers();
    let each = |tally: fn(&WorkerStats) -> &Tally| {
        workers.iter().enumerate().map(move |(id, stats)| ([("worker", id)], tally(stats).get()))
    };
    families.counters(
        "sluicegate_connections_accepted",
        "Accepted client connections, by the worker that accepted them",
        each(|worker| &worker.accepted),
    )?;
    families.counters(
        "sluicegate_connections_handed_over",
        "Accepted connections that the worker handed to a less loaded worker",
        each(|worker| &worker.handed_over),
    )?;
    families.gauges(
        "sluicegate_connections_open",
        "Open client connections, by the worker that serves them",
        each(|worker| &worker.open),
    )?;
    families.gauges(
        "sluicegate_requests_in_flight",
        "Requests and tunnels in flight, by worker",
        each(|worker| &worker.in_flight),
    )?;
    families.counters(
        "sluicegate_analytics_over_limit",
        "Requests that analytics counted without their consumer and endpoint, because --analytics-max-series was reached",
        each(|worker| &worker.analytics_over_limit),
    )?;
    families.counters(
        "sluicegate_requests_rejected",
        "Requests rejected because they violate the protocol, by reason",
        Rejection::ALL.iter().map(|rejection| {
            let count = workers.sum(|worker| &worker.rejections[rejection.index()]);
            ([("reason", rejection.reason())], count)
        }),
    )?;
    families.counters(
        "sluicegate_client_faults",
        "Requests that ended early because of the client or of a limit for clients, by reason",
        ClientFault::ALL.iter().map(|fault| {
            let count = workers.sum(|worker| &worker.client_faults[fault.index()]);
            ([("reason", fault.reason())], count)
        }),
    )?;
    let handshakes = [(false, false), (false, true), (true, false), (true, true)];
    families.counters(
        "sluicegate_tls_handshakes",
        "Completed TLS handshakes with clients",
        handshakes.into_iter().map(|(is_tls13, is_resumed)| {
            let index = handshake_index(is_tls13, is_resumed);
            let version = if is_tls13 { "1.3" } else { "1.2" };
            let labels = [("version", version), ("resumed", if is_resumed { "true" } else { "false" })];
            (labels, workers.sum(|worker| &worker.handshakes[index]))
        }),
    )?;
    families.counters(
        "sluicegate_tls_handshake_failures",
        "Client connections that ended before the end of their TLS handshake, by reason",
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
        "Responses that the gateway compressed, or began to compress, by coding",
        by_coding(|compressed| &compressed.responses),
    )?;
    families.counters(
        "sluicegate_compression_in_bytes",
        "Bytes of compressed response bodies before compression, by coding",
        by_coding(|compressed| &compressed.bytes_in),
    )?;
    families.counters(
        "sluicegate_compression_out_bytes",
        "Bytes of compressed response bodies after compression, by coding",
        by_coding(|compressed| &compressed.bytes_out),
    )?;
    families.gauges(
        "sluicegate_compressions_in_flight",
        "Responses in compression, by worker",
        each(|worker| &worker.compressing),
    )?;
    families.counter(
        "sluicegate_compressions_passed_over",
        "Responses sent uncompressed because their worker was at --max-compressions-per-worker",
        workers.sum(|worker| &worker.compressions_passed_over),
    )?;
    families.counter(
        "sluicegate_compressions_failed",
        "Responses cut off because compression failed",
        workers.sum(|worker| &worker.compressions_failed),
    )?;
    families.counter(
        "sluicegate_http2_floods",
        "HTTP/2 connections closed because the client sent a flood of frames that request nothing",
        workers.sum(|worker| &worker.http2_floods),
    )?;
    families.counter(
        "sluicegate_http3_connections",
        "HTTP/3 connections after their handshake",
        workers.sum(|worker| &worker.http3.connections),
    )?;
    families.gauge(
        "sluicegate_http3_handshakes_in_progress",
        "HTTP/3 handshakes in progress",
        workers.sum(|worker| &worker.http3.handshaking),
    )?;
    families.counter(
        "sluicegate_http3_retries",
        "HTTP/3 clients that had to prove their address, because their worker was at --http3-max-handshakes",
        workers.sum(|worker| &worker.http3.retries),
    )?;
    families.counter(
        "sluicegate_http3_refused",
        "HTTP/3 connections refused because of a limit or a shutdown",
        workers.sum(|worker| &worker.http3.refused),
    )?;
    families.counter(
        "sluicegate_http3_errors",
        "HTTP/3 connections closed because the client violated the protocol",
        workers.sum(|worker| &worker.http3.errors),
    )?;
    families.counter(
        "sluicegate_http3_floods",
        "HTTP/3 connections closed because the client sent a flood of frames that request nothing",
        workers.sum(|worker| &worker.http3.floods),
    )?;
    families.counter(
        "sluicegate_http3_malformed_requests",
        "HTTP/3 requests reset because they were malformed",
        workers.sum(|worker| &worker.http3.malformed),
    )?;
    families.counter(
        "sluicegate_http3_early_requests",
        "HTTP/3 requests that arrived before the end of the handshake (0-RTT)",
        workers.sum(|worker| &worker.http3.early_requests),
    )?;
    families.counter(
        "sluicegate_quic_datagrams_passed",
        "QUIC datagrams passed to the worker or process of their connection",
        workers.sum(|worker| &worker.http3.datagrams_passed),
    )?;
    families.counter(
        "sluicegate_quic_datagrams_dropped",
        "QUIC datagrams dropped because the worker or process of their connection was too slow",
        workers.sum(|worker| &worker.http3.datagrams_dropped),
    )?;
    families.counter(
        "sluicegate_request_headers_dropped",
        "Request headers dropped by name: with an underscore, Proxy, or forwarding headers of untrusted peers",
        workers.sum(|worker| &worker.headers_dropped),
    )?;
    families.counter(
        "sluicegate_requests_unrouted",
        "Requests without a matching route, which received 404",
        workers.sum(|worker| &worker.unrouted),
    )?;
    families.counter(
        "sluicegate_accept_errors",
        "Failed accepts of client connections",
        workers.sum(|worker| &worker.accept_errors),
    )?;
    families.counter(
        "sluicegate_access_log_dropped",
        "Access log lines lost because the log could not be written, or was too slow",
        registry.counters().lost_lines(),
    )?;
    let spans = registry.counters().spans();
    families.counter("sluicegate_spans_exported", "Spans that the collector accepted", spans.exported())?;
    let lost = SpanLoss::ALL.map(|loss| ([("reason", loss.reason())], spans.lost(loss)));
    let of_workers = [
        ([("reason", "over_limit")], workers.sum(|worker| &worker.spans_over_limit)),
        ([("reason", "queue_full")], workers.sum(|worker| &worker.spans_queue_full)),
    ];
    families.counters(
        "sluicegate_spans_dropped",
        "Spans that did not reach the collector, and requests over --trace-followed-per-second (over_limit), by reason",
        of_workers.into_iter().chain(lost),
    )
}
