//! A request on an HTTP/2 stream, and the state of its response.

use super::super::answer::{Answer, Echo};
use super::super::connection::Pending;
use super::super::counts::Failure;
use super::super::request::{ID_HEADER, Id, LENGTH_HEADER};
use super::frame::Violation;
use super::hpack::Decoder;

/// The checks of responses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checks {
    /// The number of the run, which is part of each id.
    pub(crate) run: u32,
    /// Whether the echo of ids is checked.
    pub(crate) verify: bool,
    /// Whether trailers must report the success of a gRPC call.
    pub(crate) is_grpc: bool,
}

/// A request on a stream.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) stream: u32,
    pub(super) pending: Pending,
    /// The unsent rest of the request's body.
    pub(super) body: &'static [u8],
    /// The window of the server for this stream.
    pub(super) window: i64,
    /// Received bytes that no WINDOW_UPDATE has acknowledged yet.
    pub(super) unread: u32,
    answer: Option<Answer>,
    /// The length of the body that the response declares.
    declared: Option<u64>,
}

impl Exchange {
    pub(super) fn new(stream: u32, pending: Pending, body: &'static [u8], window: i64) -> Self {
        Self { stream, pending, body, window, unread: 0, answer: None, declared: None }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.answer.is_some()
    }

    /// A header list: of an interim response, of the response, or of its trailers.
    pub(super) fn headers(
        &mut self,
        list: &[u8],
        is_end: bool,
        checks: &Checks,
        decoder: &mut Decoder,
    ) -> Result<(), Violation> {
        let own = checks.verify.then(|| Id::new(checks.run, self.pending.id));
        let mut status: Option<Result<u16, Violation>> = None;
        let (mut echo, mut said_length, mut declared) = (Echo::Missing, None, None);
        let mut call: Option<bool> = None;
        let number = |value: &[u8]| std::str::from_utf8(value).ok()?.parse().ok();
        decoder.decode(list, |name, value| match name {
            b":status" => {
                let code = number(value).filter(|code| (100..1000).contains(code) && value.len() == 3);
                let good = code.filter(|_| status.is_none()).map(|code| code as u16);
                status = Some(good.ok_or(Violation::Answer));
            }
            b"content-length" => declared = number(value),
            b"grpc-status" => call = Some(value == b"0"),
            _ => {
                let Some(own) = &own else { return };
                if name == ID_HEADER.as_bytes() {
                    echo = if value == own.as_bytes() { Echo::Same } else { Echo::Other };
                } else if name == LENGTH_HEADER.as_bytes() {
                    said_length = number(value);
                }
            }
        })?;
        match (&mut self.answer, status.transpose()?) {
            (None, Some(100..200)) if !is_end => {}
            (None, Some(status @ 200..)) => {
                let echo = if checks.verify { echo } else { Echo::Unknown };
                // A response without trailers has a single header list, which contains the gRPC status.
                let call_failed = checks.is_grpc && call != Some(true);
                self.answer =
                    Some(Answer { status, keep_alive: true, echo, length: 0, said_length, call_failed });
                self.declared = declared;
            }
            (Some(answer), None) if is_end => answer.call_failed = checks.is_grpc && call != Some(true),
            _ => return Err(Violation::Answer),
        }
        Ok(())
    }

    pub(super) fn data(&mut self, length: usize) -> Result<(), Violation> {
        self.answer.as_mut().ok_or(Violation::Answer)?.length += length as u64;
        Ok(())
    }

    /// The stream has ended: a body with another length than declared is incomplete (RFC 9113, 8.1.1).
    pub(super) fn finish(&self) -> Result<Answer, Failure> {
        let answer = self.answer.ok_or(Failure::Malformed)?;
        // A 304 declares the length that the body would have had.
        let is_complete = answer.status == 304 || self.declared.is_none_or(|length| length == answer.length);
        if is_complete { Ok(answer) } else { Err(Failure::Truncated) }
    }
}
