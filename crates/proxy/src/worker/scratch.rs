//! The buffers of a request. An idle connection has no buffers: they return to the worker between requests.

use std::cell::RefCell;

use sluicegate_http1::{HeadScan, RequestHead, ResponseHead};

use crate::buffer::{BUFFER, Buffer};
use crate::feature::edit::Edits;

/// How many sets of buffers a worker holds for reuse even when unused: 6 MiB, or 24 MiB if all of them have grown.
const ALWAYS_SPARE: usize = 128;

/// The buffers for serving a request.
pub(crate) struct Scratch {
    /// Bytes from the client: a request's head, then the part of its body that was not forwarded yet, or the next
    /// requests.
    pub(crate) input: Buffer,
    pub(crate) scan: HeadScan,
    pub(crate) head: RequestHead,
    /// The request in the form for the endpoint.
    pub(crate) request: Vec<u8>,
    /// Bytes from the endpoint.
    pub(crate) reply: Buffer,
    pub(crate) reply_scan: HeadScan,
    pub(crate) reply_head: ResponseHead,
    /// The response in the form for the client.
    pub(crate) response: Vec<u8>,
    /// The normal form of a path that is not in normal form.
    pub(crate) path: Vec<u8>,
    /// Header lines that policies add to the request.
    pub(crate) request_lines: Vec<u8>,
    /// Header lines that policies add to the response, whether it comes from an endpoint or from the gateway.
    pub(crate) response_lines: Vec<u8>,
    /// Header lines that policies add to a response with one of the statuses of `add_header` of nginx.
    pub(crate) success_lines: Vec<u8>,
    /// The query, if a policy changes it.
    pub(crate) query: Option<Vec<u8>>,
    /// Memory for edits, which are empty between two uses.
    pub(crate) edits: Edits,
}

impl Scratch {
    fn new() -> Self {
        Self {
            input: Buffer::new(),
            scan: HeadScan::default(),
            head: RequestHead::default(),
            request: Vec::with_capacity(2048),
            reply: Buffer::new(),
            reply_scan: HeadScan::default(),
            reply_head: ResponseHead::default(),
            response: Vec::with_capacity(BUFFER),
            path: Vec::new(),
            request_lines: Vec::new(),
            response_lines: Vec::new(),
            success_lines: Vec::new(),
            query: None,
            edits: Edits::default(),
        }
    }

    /// Whether the buffers have not grown too much for reuse.
    fn is_lean(&self) -> bool {
        self.input.size() == BUFFER
            && self.reply.size() == BUFFER
            && self.request.capacity() + self.response.capacity() + self.path.capacity() <= 8 * BUFFER
            && self.request_lines.capacity() + self.response_lines.capacity() <= 2 * BUFFER
            && self.success_lines.capacity() <= BUFFER
            && self.edits.capacity() <= 2 * BUFFER
    }
}

/// The sets of buffers that a worker holds for reuse: as many as were recently in use at once. With fewer sets, each
/// further request in flight would allocate and free a set.
#[derive(Default)]
pub(crate) struct Spares(RefCell<SpareSets>);

#[derive(Default)]
struct SpareSets {
    #[expect(clippy::vec_box, reason = "they move between connections, which a box makes cheap")]
    sets: Vec<Box<Scratch>>,
    /// How many of the sets were unused since the last [`Spares::trim`].
    unused: usize,
}

impl Spares {
    pub(crate) fn take(&self) -> Box<Scratch> {
        let mut kept = self.0.borrow_mut();
        let set = kept.sets.pop();
        kept.unused = kept.unused.min(kept.sets.len());
        set.unwrap_or_else(|| Box::new(Scratch::new()))
    }

    pub(crate) fn give(&self, mut scratch: Box<Scratch>) {
        if scratch.is_lean() {
            scratch.input.clear();
            scratch.reply.clear();
            // An early rejection must not log the request of another client.
            scratch.request.clear();
            self.0.borrow_mut().sets.push(scratch);
        }
    }

    /// Frees the sets that were unused since the last call.
    pub(crate) fn trim(&self) {
        let mut kept = self.0.borrow_mut();
        let left = (kept.sets.len() - kept.unused).max(ALWAYS_SPARE);
        // The sets at the end were used last.
        let cold = kept.sets.len().saturating_sub(left);
        kept.sets.drain(..cold);
        kept.sets.shrink_to(2 * left);
        kept.unused = kept.sets.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_keeps_as_many_spare_buffer_sets_as_it_recently_needed_at_once() {
        let spares = Spares::default();
        let kept = || spares.0.borrow().sets.len();
        let need = |sets: usize| {
            let taken: Vec<_> = (0..sets).map(|_| spares.take()).collect();
            taken.into_iter().for_each(|set| spares.give(set));
        };
        need(1000);
        spares.trim();
        assert_eq!(kept(), 1000);
        need(300);
        spares.trim();
        assert_eq!(kept(), 300);
        need(10);
        spares.trim();
        assert_eq!(kept(), ALWAYS_SPARE);
    }
}
