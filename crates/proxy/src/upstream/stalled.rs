//! Uploads that occupy a connection of an endpoint while their clients send nothing.
//!
//! Such an upload costs a client a few bytes, but an endpoint a connection and often a thread. So each worker allows few
//! of them at an endpoint: beyond the limit, the upload that has stalled for longest gives up its connection.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Waker;

use super::local::LocalEndpoint;

/// One more stalled upload is allowed for this many other requests in flight at the endpoint: among a thousand uploads of
/// mobile clients, some are always silent.
const OTHERS_FOR_ONE: usize = 4;

/// The stalled uploads of one worker at one endpoint.
#[derive(Default)]
pub(super) struct StalledUploads {
    /// In the order in which they stalled.
    waiting: RefCell<BTreeMap<u64, Rc<Slot>>>,
    next: Cell<u64>,
    /// The number of uploads that the gateway ends, but that have not ended yet.
    ending: Cell<usize>,
}

struct Slot {
    is_ended: Cell<bool>,
    waker: RefCell<Waker>,
}

/// One stalled upload, until it continues or ends.
pub(crate) struct Stalled {
    endpoint: Rc<LocalEndpoint>,
    number: u64,
    slot: Rc<Slot>,
}

impl Stalled {
    /// An upload to this endpoint has stalled. `waker` wakes its task.
    pub(crate) fn new(endpoint: &Rc<LocalEndpoint>, waker: &Waker) -> Self {
        let uploads = &endpoint.stalled;
        let number = uploads.next.replace(uploads.next.get() + 1);
        let slot = Rc::new(Slot { is_ended: Cell::new(false), waker: RefCell::new(waker.clone()) });
        uploads.waiting.borrow_mut().insert(number, slot.clone());
        Self { endpoint: endpoint.clone(), number, slot }
    }

    /// Whether the upload must end.
    pub(crate) fn is_ended(&self) -> bool {
        self.slot.is_ended.get()
    }

    /// From now on this waker wakes the upload's task.
    pub(crate) fn wake_by(&self, waker: &Waker) {
        self.slot.waker.borrow_mut().clone_from(waker);
    }

    /// Ends the uploads of the endpoint that have stalled for longest. It stops at `most` uploads, or at the number that
    /// the other requests in flight there allow.
    pub(crate) fn enforce(&self, most: usize) {
        let uploads = &self.endpoint.stalled;
        let in_flight = usize::try_from(self.endpoint.stats().in_flight.get()).unwrap_or(usize::MAX);
        loop {
            let held = uploads.waiting.borrow().len();
            let others = in_flight.saturating_sub(held + uploads.ending.get());
            if held <= most.max(others / OTHERS_FOR_ONE) {
                return;
            }
            let Some((_, slot)) = uploads.waiting.borrow_mut().pop_first() else { return };
            slot.is_ended.set(true);
            uploads.ending.set(uploads.ending.get() + 1);
            slot.waker.borrow().wake_by_ref();
        }
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        let uploads = &self.endpoint.stalled;
        if self.is_ended() {
            uploads.ending.set(uploads.ending.get() - 1);
        } else {
            uploads.waiting.borrow_mut().remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::upstream::SharedEndpoint;

    fn endpoint() -> Rc<LocalEndpoint> {
        let address = ([127, 0, 0, 1], 1).into();
        Rc::new(LocalEndpoint::new(Arc::new(SharedEndpoint::new(address, 1, false)), 0))
    }

    #[test]
    fn uploads_that_have_stalled_longest_are_ended_above_the_limit() {
        let endpoint = endpoint();
        endpoint.stats().in_flight.add(10);
        let mut uploads: Vec<_> = (0..10).map(|_| Stalled::new(&endpoint, Waker::noop())).collect();
        drop(uploads.remove(1));
        uploads[0].enforce(4);
        let ended: Vec<_> = uploads.iter().map(Stalled::is_ended).collect();
        assert_eq!(ended, [true, true, true, true, true, false, false, false, false]);
        uploads.drain(..5);
        assert_eq!((endpoint.stalled.ending.get(), endpoint.stalled.waiting.borrow().len()), (0, 4));
    }

    #[test]
    fn stalled_uploads_may_reach_a_quarter_of_the_other_requests_in_flight() {
        let endpoint = endpoint();
        endpoint.stats().in_flight.add(50);
        let uploads: Vec<_> = (0..10).map(|_| Stalled::new(&endpoint, Waker::noop())).collect();
        uploads[0].enforce(1);
        assert!(!uploads.iter().any(Stalled::is_ended), "10 of 40 others is a quarter");
        endpoint.stats().in_flight.sub(8);
        uploads[0].enforce(1);
        assert_eq!(uploads.iter().filter(|upload| upload.is_ended()).count(), 2);
    }
}
