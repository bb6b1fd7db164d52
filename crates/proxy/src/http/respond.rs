//! The response: its head for the client, then its body, or the tunnel after a 101.

use std::io;
use std::rc::Rc;

use sluicegate_http1::{ResponseFraming, Version};
use sluicegate_model::feature::EndpointForm;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout, timeout_at};

use super::download::{Body, Coding, Download};
use super::encode::{ResponsePlan, needs_chunks, stream_response, write_response};
use super::exchange::{Exchange, Persist};
use super::protocols::are_among;
use super::wire::Wire;
use crate::failure::{ClientFault, Failure, Fault};
use crate::feature::bandwidth::Throttle;
use crate::upstream::{Connection, LocalEndpoint, LocalUpstream};
use crate::worker::Scratch;

/// A response whose head was written.
pub(super) struct Begun {
    pub(super) download: Download,
    /// Whether the client's connection stays open after the response.
    pub(super) keep_alive: bool,
    /// The number of bytes of interim responses in the `response` buffer.
    interim: usize,
    /// Whether the client accepted the head.
    pub(super) sent: io::Result<()>,
}

impl Exchange<'_> {
    /// Counts a response of an endpoint.
    pub(super) fn note_response(&mut self, upstream: &Rc<LocalUpstream>, endpoint: &Rc<LocalEndpoint>) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.record.asked);
        self.record.endpoint_duration = Some(took);
        self.record.endpoint_status = Some(self.scratch.reply_head.status);
        upstream.stats().latency.record(took);
        endpoint.observe(took, now);
        upstream.note_success(endpoint);
        upstream.note_status(endpoint, self.scratch.reply_head.status);
    }

    /// Begins the response whose head is in the `reply` buffer, together with the received part of its body. `mark` is
    /// the mark of the responding endpoint.
    pub(super) fn begin_response(&mut self, mark: Option<u64>) -> Begun {
        self.apply_policies_to_response();
        self.add_success_lines(self.scratch.reply_head.status);
        if self.steered.is_some() {
            self.steer_response();
        }
        if let Some(edits) = &self.backend_edits {
            let scratch = &mut *self.scratch;
            edits.response.strip(&mut scratch.reply_head.lines, scratch.reply.filled());
        }
        if self.affinity().is_some() {
            self.state_session(mark);
        }
        if self.snapshot.settings.kong_compatibility {
            self.add_kong_upstream_headers();
        }
        let compressed = self.compress();
        let head = &self.scratch.head;
        let reply_head = &self.scratch.reply_head;
        let upgraded = reply_head.status == 101;
        let unframed = matches!(reply_head.framing, ResponseFraming::UntilClose);
        let version = head.version;
        let chunked = compressed.compressor.is_some() || needs_chunks(reply_head, version);
        let keep_alive = head.keep_alive
            && self.upload.is_complete()
            && (chunked || !unframed && (version == Version::Http11 || is_framed(reply_head)))
            && self.client.may_continue(self.worker, &self.snapshot.settings);
        let hsts = self.hsts();
        let status = reply_head.status;
        let coding = match chunked {
            _ if self.client.has_streams() => Coding::Stream,
            true => Coding::Chunked,
            false => Coding::Plain,
        };
        let mut download =
            Download::new(reply_head.framing, coding, compressed.compressor, self.interim_written);
        if let Some(bandwidth) = self.traffic().and_then(|policy| policy.source().features.bandwidth) {
            download.throttle(Throttle::new(&bandwidth, Instant::now()));
        }
        let Scratch { response, reply, reply_head, response_lines, .. } = &mut *self.scratch;
        let plan = ResponsePlan {
            version,
            close: !keep_alive && !upgraded,
            hsts,
            alt_svc: self.client.origin.alt_svc.as_deref(),
            chunked,
            lines: &compressed.lines,
            policy_lines: response_lines,
        };
        let interim = response.len();
        let date = || self.worker.date();
        let sent = match &mut self.client.wire {
            Wire::Http1(_) => {
                write_response(response, reply.filled(), reply_head, date, &plan);
                self.record.head_bytes = (response.len() - interim) as u64;
                Ok(())
            }
            wire @ (Wire::Http2(_) | Wire::Http3(_)) => {
                let head = stream_response(reply.filled(), reply_head, date, &plan);
                wire.respond(head, !upgraded && download.is_complete())
            }
        };
        reply.consume(reply_head.len);
        self.record.status = status;
        self.committed = true;
        Begun { download, keep_alive, interim, sent }
    }

    /// Passes the response on.
    pub(super) async fn respond(
        &mut self,
        upstream: &Rc<LocalUpstream>,
        mut connection: Connection,
    ) -> Persist {
        let endpoint = connection.endpoint().clone();
        self.note_response(upstream, &endpoint);
        let reply_head = &self.scratch.reply_head;
        let upgraded = reply_head.status == 101;
        if upgraded && let Err(failure) = self.check_protocols() {
            upstream.stats().failures[failure.index()].add(1);
            return self.refuse(failure.into()).await;
        }
        let (is_kept, peer_timeout) = (reply_head.keep_alive, reply_head.keep_alive_timeout);
        let form = self.traffic().map(|policy| &policy.source().features.endpoint_form);
        let reusable = is_kept && !form.is_some_and(EndpointForm::closes);
        let most = self.traffic().and_then(|policy| policy.source().features.limits.largest_response());
        if matches!(reply_head.framing, ResponseFraming::Length(length) if most.is_some_and(|most| length > most))
        {
            upstream.stats().failures[Failure::TooLong.index()].add(1);
            if let Some(copy) = self.collector() {
                copy.give_up();
            }
            return self.refuse(Failure::TooLong.into()).await;
        }
        let copy = self.collector();
        let framing = self.scratch.reply_head.framing;
        let Begun { mut download, keep_alive, interim, sent } =
            self.begin_response(Some(endpoint.shared.mark()));
        if let Some(copy) = copy {
            download.copy_to(copy);
        }
        let inspects = self.inspects.take();
        if let Some(inspects) = &inspects {
            download.inspect(framing, inspects.limit);
        }
        if let Some(most) = most {
            download.limit(most);
        }
        let mut after_tunnel = Persist::Close;
        let mut result = match (sent, upgraded) {
            (Err(_), _) => Err(ClientFault::Closed.into()),
            // Boxed, as below, so that most requests do not carry its room.
            (Ok(()), true) => Box::pin(self.upgrade(&mut connection, &mut after_tunnel)).await,
            (Ok(()), false) => {
                let due = self.response_deadline();
                let body = Body::of(&mut connection.socket.stream, &endpoint);
                let response = self.download(body, &mut download);
                match due {
                    None => response.await,
                    Some(due) => {
                        let limited = Box::pin(timeout_at(due, response));
                        limited.await.unwrap_or(Err(Failure::ResponseTimeout.into()))
                    }
                }
            }
        };
        self.record.bytes += download.bytes_out();
        self.record.endpoint_bytes = download.bytes_in();
        if let Err(fault) = result {
            if let Fault::Upstream(failure) = fault {
                upstream.stats().failures[failure.index()].add(1);
                endpoint.stats().failures.add(1);
                let is_unseen =
                    download.bytes_out() == self.interim_written as u64 && !self.client.wire.has_unsent();
                if !upgraded && is_unseen {
                    // The client has received no byte of the response, so an error response can replace it.
                    self.scratch.response.truncate(interim);
                    self.committed = false;
                    return self.refuse(failure.into()).await;
                }
                if download.is_unframed() {
                    // Only a reset tells this client that the response is incomplete.
                    self.client.wire.break_off();
                }
            }
            if self.client.has_streams() {
                self.client.wire.break_off();
            }
            self.count(fault);
            if upgraded {
                // A tunnel that the gateway ended is complete.
                result = Ok(());
            }
        }
        self.record.complete = result.is_ok();
        if let Some(inspects) = inspects.filter(|_| result.is_ok()) {
            self.check_copy(&inspects, download.into_inspected().as_deref());
        }
        if result.is_err() || upgraded {
            return after_tunnel;
        }
        let clean = self.scratch.reply.is_empty() && self.upload.is_sent();
        let now = Instant::now();
        self.record.ended = Some(now);
        if reusable && clean {
            connection.recycle(&self.snapshot.settings, now, peer_timeout);
        }
        self.persist(keep_alive)
    }

    /// Checks that the endpoint changed to a protocol that the client asked for. Otherwise the client cannot read the
    /// bytes after the 101, and a tunnel would carry them past all routes and policies.
    fn check_protocols(&self) -> Result<(), Failure> {
        let Scratch { input, head, reply, reply_head, .. } = &*self.scratch;
        let asked = head.upgrade.filter(|_| self.upload.is_complete()).ok_or(Failure::Unsolicited)?;
        let asked = asked.of(input.filled());
        match reply_head.protocols.map(|answered| answered.of(reply.filled())) {
            Some(answered) if are_among(answered, asked) => Ok(()),
            _ => Err(Failure::OtherProtocol),
        }
    }

    /// The state of the client's connection after a complete response.
    pub(super) fn persist(&self, keep_alive: bool) -> Persist {
        match (keep_alive, self.upload.is_complete()) {
            (true, _) => Persist::KeepAlive,
            // Unread bytes behind the request would turn a close into a reset (RFC 9112, 9.6).
            (false, true) if self.scratch.input.len() == self.scratch.head.len => Persist::Close,
            (false, _) => Persist::Linger,
        }
    }

    /// Writes the 101, and passes on the bytes after it, both ways. Sets `persist` to the state of the client's
    /// connection.
    async fn upgrade(&mut self, connection: &mut Connection, persist: &mut Persist) -> Result<(), Fault> {
        let head_len = self.scratch.head.len;
        let rest = match self.client.wire {
            Wire::Http1(_) => &self.scratch.response[self.interim_written..],
            Wire::Http2(_) | Wire::Http3(_) => &[],
        };
        let write = self.client.wire.write_all(rest);
        match timeout(self.snapshot.settings.timeouts.client_write, write).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(ClientFault::Closed.into()),
            Err(_) => return Err(ClientFault::WriteTimeout.into()),
        }
        self.record.bytes += self.scratch.response.len() as u64;
        // The log needs the head until the tunnel ends. The bytes behind the head belong to the tunnel.
        let sent = self.scratch.input.filled()[head_len..].to_vec();
        let (moved, after, result) = self.tunnel(connection, &sent).await;
        self.record.bytes += moved;
        *persist = after;
        result
    }
}

/// Whether the response marks its end without the end of the connection.
fn is_framed(head: &sluicegate_http1::ResponseHead) -> bool {
    matches!(head.framing, ResponseFraming::None | ResponseFraming::Length(_))
}
