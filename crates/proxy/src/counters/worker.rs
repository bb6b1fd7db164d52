//! The counters of a worker.

use std::sync::Arc;

use sluicegate_http1::Rejection;
use sluicegate_model::ContentCoding;

use super::{Counters, DroppedDatagram, Tallies, Tally};
use crate::failure::{ClientFault, ProxyHeaderFault, TlsFault};

/// The counters of one worker.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Client connections accepted.
    pub accepted: Tally,
    /// Accepted connections that were passed to a less loaded worker.
    pub handed_over: Tally,
    /// Request headers that were dropped because of their names: names with an underscore, `Proxy`, and unknown
    /// forwarding headers of untrusted peers.
    pub headers_dropped: Tally,
    /// Completed TLS handshakes, by [`handshake_index`].
    pub handshakes: Tallies<4>,
    /// Connections that ended before their TLS handshake was complete, by [`TlsFault::index`].
    pub tls_faults: Tallies<{ TlsFault::ALL.len() }>,
    /// Connections that ended before their PROXY header was complete, by [`ProxyHeaderFault::index`].
    pub proxy_header_faults: Tallies<{ ProxyHeaderFault::ALL.len() }>,
    /// Clients that exchange datagrams with an endpoint now.
    pub udp_flows: Tally,
    /// Datagrams that were dropped, by [`DroppedDatagram`].
    pub datagrams_dropped: Tallies<{ DroppedDatagram::ALL.len() }>,
    /// Responses that were compressed, by [`ContentCoding::index`](sluicegate_model::ContentCoding::index).
    pub compressed: [CompressedStats; ContentCoding::ALL.len()],
    /// Responses that are being compressed now.
    pub compressing: Tally,
    /// Responses that were not compressed because the limit of concurrent compressions was reached.
    pub compressions_passed_over: Tally,
    /// Responses that broke off because their encoder failed.
    pub compressions_failed: Tally,
    /// HTTP/2 connections that ended because their clients caused work without making requests.
    pub http2_floods: Tally,
    /// HTTP/3.
    pub http3: Http3Stats,
    /// Client connections open now.
    pub open: Tally,
    /// Requests with a valid head, also those being served now. Unlike the sum over routes, the number never decreases.
    pub requests: Tally,
    /// Requests being served now.
    pub in_flight: Tally,
    /// Requests rejected because they violate the protocol, by [`Rejection::index`].
    pub rejections: Tallies<{ Rejection::ALL.len() }>,
    /// Requests that the client or its limits ended, by [`ClientFault::index`].
    pub client_faults: Tallies<{ ClientFault::ALL.len() }>,
    /// Requests that matched no route: 404.
    pub unrouted: Tally,
    /// `accept` failed, for lack of file descriptors for example.
    pub accept_errors: Tally,
    /// Requests without a span although their callers wanted one, because the limit was reached.
    pub spans_over_limit: Tally,
    /// Spans that were dropped because the export was too slow.
    pub spans_queue_full: Tally,
    /// Requests that analytics count without their consumer and endpoint, because the limit of series was reached.
    pub analytics_over_limit: Tally,
    /// Access log lines dropped because their writer was too slow; [`Counters::lost_lines`] counts all lost lines.
    pub log_dropped: Tally,
}

/// The counters of one worker for HTTP/3.
#[derive(Debug, Default)]
pub struct Http3Stats {
    /// Connections after their handshake.
    pub connections: Tally,
    /// Connections that ended because their clients violated the protocol.
    pub errors: Tally,
    /// Connections that ended because their clients caused work without making requests.
    pub floods: Tally,
    /// Requests that ended because they were malformed.
    pub malformed: Tally,
    /// Requests that arrived before the end of the handshake (0-RTT).
    pub early_requests: Tally,
    /// Handshakes of clients that had to prove their address first (Retry).
    pub retries: Tally,
    /// Connections that were refused because a limit was reached, or during a shutdown.
    pub refused: Tally,
    /// Handshakes in progress.
    pub handshaking: Tally,
    /// Datagrams that were passed to another worker or process, and datagrams that found no room there.
    pub datagrams_passed: Tally,
    /// See [`datagrams_passed`](Self::datagrams_passed).
    pub datagrams_dropped: Tally,
}

/// The counters of one worker for one coding.
#[derive(Debug, Default)]
pub struct CompressedStats {
    /// Responses.
    pub responses: Tally,
    /// Bytes of bodies before compression.
    pub bytes_in: Tally,
    /// Bytes of bodies after compression, without the chunked coding.
    pub bytes_out: Tally,
}

/// The index of a handshake in [`WorkerStats::handshakes`].
#[must_use]
pub fn handshake_index(is_tls13: bool, is_resumed: bool) -> usize {
    usize::from(is_tls13) * 2 + usize::from(is_resumed)
}

/// A worker's way to its own counters.
#[derive(Debug)]
pub(crate) struct LocalStats {
    counters: Arc<Counters>,
    worker: usize,
}

impl LocalStats {
    pub(crate) fn new(counters: Arc<Counters>, worker: usize) -> Self {
        Self { counters, worker }
    }
}

impl std::ops::Deref for LocalStats {
    type Target = WorkerStats;

    #[inline]
    fn deref(&self) -> &WorkerStats {
        self.counters.workers().of(self.worker)
    }
}
