//! Responses in HTTP/1: one at a time.

use super::super::counts::{Failure, Wrong};
use super::super::request::Id;
use super::super::tls::Progress;
use super::slot::Protocol;
use super::{Stays, Worker};

impl Worker<'_> {
    /// Reads input.
    pub(super) fn take_bytes(&mut self, at: usize) -> Stays {
        let Protocol::Http1(http1) = &mut self.slots[at].protocol else { return Stays::Open };
        let plain = &self.scratch.plain;
        let Some(pending) = http1.pending else {
            self.counts.wrong(Wrong::Surplus, self.clock.now());
            return self.close(at);
        };
        let id = Id::new(self.plan.run, pending.id);
        let verify = self.plan.verify.then_some(&id);
        match http1.reader.read(plain, &mut self.head, verify) {
            Err(_) => self.lose(at, Failure::Malformed, Failure::Malformed),
            Ok((_, None)) => Stays::Open,
            Ok((used, Some(answer))) => {
                let surplus = used < plain.len();
                if surplus {
                    self.counts.wrong(Wrong::Surplus, pending.due);
                }
                http1.pending = None;
                self.finish(at, pending, answer, self.clock.now());
                if surplus || !answer.keep_alive || self.plan.is_new_each {
                    self.counts.closed_idle += u64::from(!surplus && !self.plan.is_new_each);
                    return self.close(at);
                }
                self.proceed(at)
            }
        }
    }

    /// The connection was closed. A proper close completes a response that has no other end.
    pub(super) fn end_body(&mut self, at: usize, progress: Option<Progress>) {
        let slot = &mut self.slots[at];
        let is_proper = match &slot.stream {
            Some(stream) if stream.is_tls() => progress == Some(Progress::Ended),
            _ => true,
        };
        let Protocol::Http1(http1) = &mut slot.protocol else { return };
        if is_proper
            && let Some(pending) = http1.pending
            && let Some(answer) = http1.reader.close()
        {
            http1.pending = None;
            self.finish(at, pending, answer, self.clock.now());
        }
    }
}
