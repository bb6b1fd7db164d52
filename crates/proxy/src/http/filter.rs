//! The filters `ExternalAuth` of a rule, and of a listener before the gateway selects a rule.

use std::rc::Rc;
use std::sync::Arc;

use sluicegate_http1::{HeadLimits, HeadScan, Known, Line, RequestHead};

use super::encode::{is_forwarding, may_forward_header, write_line};
use super::exchange::Exchange;
use super::gather::GatherError;
use super::question::{Added, filter_question};
use super::refuse::Refusal;
use crate::failure::{Denial, Failure};
use crate::feature::ext_auth::{Answer, Applied, Detail, External, Verdict};
use crate::feature::security::Arrival;
use crate::feature::{Guard, SecurityPolicy};
use crate::rule::Entrance;

/// How many bytes the filters of a listener may add to a head.
const ADDED_BYTES: usize = 64 * 1024;

/// How many headers the filters of a listener may add to a head.
const ADDED_HEADERS: usize = 100;

impl Exchange<'_> {
    /// Applies the filters of the listener. The filters may change the headers by which the gateway selects a rule.
    pub(super) async fn filter_listener(&mut self, entrance: Entrance) -> Result<(), Refusal> {
        let snapshot = self.snapshot.clone();
        let Some(guard) = snapshot.table.filters(entrance, self.head().authority()) else { return Ok(()) };
        let Some(policy) = &guard.security else { return Ok(()) };
        self.is_filtered = true;
        let arrival = self.edit(|exchange, edits| policy.compiled.arrive(&exchange.view(), edits));
        if let Arrival::Denied(denial) = arrival {
            return Err(self.deny_by(policy, denial));
        }
        for (external, slot) in policy.compiled.filters.iter().zip(&*guard.filters) {
            let answer = self.ask_filter(policy, external, *slot).await?;
            if let Some(detail) = &answer.detail {
                self.rewrite_head(detail).map_err(|denial| self.fail_closed(policy, denial))?;
            }
        }
        self.count_admitted(policy);
        Ok(())
    }

    /// Applies the filters of the rule.
    pub(super) async fn filter_rule(
        &mut self,
        policy: &SecurityPolicy,
        guard: &Guard,
    ) -> Result<(), Refusal> {
        for (external, slot) in policy.compiled.filters.iter().zip(&*guard.filters) {
            let answer = self.ask_filter(policy, external, *slot).await?;
            let Some(detail) = &answer.detail else { continue };
            let mut earlier = self.scratch.request_lines.split_off(self.trace_lines);
            let applied = detail.apply(self.head(), &mut earlier);
            self.scratch.request_lines.append(&mut earlier);
            self.edit(|_, edits| {
                edits.removed_lines.extend(&applied.removed);
                edits.request_lines.extend_from_slice(&applied.added);
                edits.response_lines.extend_from_slice(&detail.response_lines);
                edits.discards_trailers = true;
            });
        }
        Ok(())
    }

    /// The answer of a filter's Service, if the Service allows the request.
    async fn ask_filter(
        &mut self,
        policy: &SecurityPolicy,
        external: &Arc<External>,
        slot: usize,
    ) -> Result<Rc<Answer>, Refusal> {
        let Some(filter) = &external.filter else { return Err(self.deny_by(policy, Denial::Unusable)) };
        self.gather(filter.body).await.map_err(|error| match error {
            GatherError::Client(fault) => fault.into(),
            GatherError::Late => Failure::ResponseTimeout.into(),
            GatherError::Denied(denial) => self.deny_by(policy, denial),
        })?;
        let added = Added {
            origin: &self.client.origin,
            underscores: self.snapshot.settings.underscores_in_headers,
            request_id: self.record.request_id,
            nginx: self.nginx_forwarding(),
        };
        let body = self.upload.gathered().filter(|_| filter.body > 0).unwrap_or_default();
        let question = filter_question(filter, &self.view(), &added, body);
        let upstream = self.worker.upstream(slot);
        let service = self.worker.externals.of(external, &policy.stats, self.worker.id);
        // Boxed, so that requests without a filter do not carry its memory.
        let asking = Box::pin(service.ask(external.clone(), upstream, question));
        let outcome = self.awaited(asking, self.head_deadline).await?.ok_or(Failure::ResponseTimeout)?;
        let answer = outcome.map_err(|denial| self.fail_closed(policy, denial))?;
        match answer.verdict {
            Verdict::Admitted => Ok(answer),
            Verdict::Responded(status) => {
                let denied = self.deny_by(policy, Denial::CheckDenied(status));
                if let Some(detail) = &answer.detail {
                    self.scratch.response_lines.extend_from_slice(&detail.response_lines);
                }
                Err(match denied {
                    Refusal::Denied(denial) => Refusal::Answered(denial, answer),
                    other => other,
                })
            }
            // A Service of a filter gives no such answer.
            Verdict::Unauthorized | Verdict::Forbidden => Err(self.fail_closed(policy, Denial::CheckAnswer)),
        }
    }

    /// Denies a request because its filter has no valid answer: with 403, or with 503 if the gateway has too many checks.
    fn fail_closed(&mut self, policy: &SecurityPolicy, denial: Denial) -> Refusal {
        match self.deny_by(policy, denial) {
            Refusal::Denied(denial) if denial != Denial::TooManyExternalChecks => {
                Refusal::FailedClosed(denial)
            }
            other => other,
        }
    }

    /// Changes the headers of the request before the gateway selects a rule. The host, the method, the path and the framing
    /// of the request stay.
    fn rewrite_head(&mut self, detail: &Detail) -> Result<(), Denial> {
        let mut earlier = self.scratch.request_lines.split_off(self.trace_lines);
        let Applied { removed, added } = detail.apply(self.head(), &mut earlier);
        let (trusted, settings) = (self.trusted, self.snapshot.settings.clone());
        let scratch = &mut *self.scratch;
        scratch.request_lines.append(&mut earlier);
        scratch.response_lines.extend_from_slice(&detail.response_lines);
        self.upload.discard_trailers();
        let (head, buf) = (&scratch.head, scratch.input.filled());
        let begin = head.lines.first().map_or(head.len - b"\r\n".len(), |line| line.name.start as usize);
        let mut text = buf[..begin].to_vec();
        // The gateway has removed other hop-by-hop lines, or the client has named them in Connection.
        let stays = |line: &Line| !(line.hop_by_hop && line.known == Known::Other);
        let mut are_hop_by_hop = Vec::new();
        for (index, line) in head.lines.iter().enumerate() {
            if stays(line) && !removed.contains(&index) {
                write_line(&mut text, line.name.of(buf), line.value.of(buf));
                are_hop_by_hop.push(line.hop_by_hop);
            }
        }
        text.extend_from_slice(&added);
        text.extend_from_slice(b"\r\n");
        // The gateway does not forward these headers for clients, so they are lines of the gateway.
        for line in added.split_inclusive(|byte| *byte == b'\n') {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            let is_forwarded = may_forward_header(name, trusted, settings.underscores_in_headers)
                && (trusted || !is_forwarding(Known::of(name)));
            if !is_forwarded {
                scratch.request_lines.extend_from_slice(line);
            }
        }
        let limits = HeadLimits {
            bytes: settings.limits.request_head + ADDED_BYTES,
            headers: settings.limits.headers + ADDED_HEADERS,
        };
        let (mut new, mut scan) = (RequestHead::default(), HeadScan::default());
        if !matches!(new.parse(&text, &mut scan, &limits), Ok(true)) {
            return Err(Denial::CheckAnswer);
        }
        // An HTTP/2 stream frames its body itself.
        new.framing = head.framing;
        // The client cannot remove the lines of this filter, or of an earlier filter, by Connection.
        are_hop_by_hop.resize(new.lines.len(), false);
        for (line, is_hop_by_hop) in new.lines.iter_mut().zip(are_hop_by_hop) {
            line.hop_by_hop = is_hop_by_hop;
        }
        scratch.input.replace(head.len, &text);
        (scratch.head, scratch.scan) = (new, scan);
        Ok(())
    }
}
