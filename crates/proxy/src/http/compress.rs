//! Compression of responses.

use sluicegate_http1::{Known, ResponseFraming, Version};

use super::exchange::Exchange;
use crate::feature::compression::{Compressor, Eligible, choose};

/// The changes to a response on a route with compression.
#[derive(Default)]
pub(super) struct Compressed {
    /// Header lines to add to the head.
    pub(super) lines: Vec<u8>,
    /// The compressor of the body.
    pub(super) compressor: Option<Box<Compressor>>,
}

impl Exchange<'_> {
    /// Decides whether the response is compressed. If so, removes header lines that become wrong.
    pub(super) fn compress(&mut self) -> Compressed {
        let target = self.record.route.map(|route| self.snapshot.table.target(route));
        let Some(codings) = target.and_then(|target| target.compression.as_ref()) else {
            return Compressed::default();
        };
        let settings = &self.snapshot.settings;
        let (asked, head) = (self.scratch.input.filled(), &self.scratch.head);
        let (buf, reply_head) = (self.scratch.reply.filled(), &mut self.scratch.reply_head);
        let Some(eligible) = Eligible::of(reply_head, buf, &settings.compression) else {
            return Compressed::default();
        };
        let mut coding = None;
        let mut compressor = None;
        // HTTP/1.0 has no chunks, and barely knows content codings.
        if head.version == Version::Http11 {
            let accepted = head.lines.iter().filter(|line| line.known == Known::AcceptEncoding);
            coding = choose(accepted.map(|line| line.value.of(asked)), codings);
        }
        if let Some(chosen) = coding
            && reply_head.framing != ResponseFraming::None
        {
            let chunked = !self.client.has_streams();
            compressor = Compressor::begin(self.worker.local_stats(), chosen, settings, chunked);
            coding = coding.filter(|_| compressor.is_some());
        }
        let validators =
            head.lines.iter().filter(|line| line.name.of(asked).eq_ignore_ascii_case(b"if-none-match"));
        let lines = eligible.edit(reply_head, buf, coding, validators.map(|line| line.value.of(asked)));
        Compressed { lines, compressor }
    }
}
