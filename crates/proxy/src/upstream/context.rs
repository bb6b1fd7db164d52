//! The part of a worker that its upstreams use.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use sluicegate_model::Settings;

use super::pool::{IdleEvent, IdleEvents, Socket};
use crate::stream::Stream;

/// The part of a worker that all its upstreams share.
pub(crate) struct UpstreamContext {
    /// The number of the worker.
    pub(crate) worker: usize,
    /// The current settings.
    settings: RefCell<Rc<Settings>>,
    pub(crate) idle_events: Arc<IdleEvents>,
    next_socket: Cell<u64>,
}

impl UpstreamContext {
    pub(crate) fn new(worker: usize, settings: Rc<Settings>) -> Self {
        Self {
            worker,
            settings: RefCell::new(settings),
            idle_events: Arc::default(),
            next_socket: Cell::new(0),
        }
    }

    /// The current settings.
    pub(crate) fn settings(&self) -> Rc<Settings> {
        self.settings.borrow().clone()
    }

    pub(crate) fn set_settings(&self, settings: Rc<Settings>) {
        self.settings.replace(settings);
    }

    /// A connection to an endpoint of the upstream in this slot.
    pub(super) fn new_socket(&self, stream: Stream, upstream: usize, endpoint: u64) -> Socket {
        let socket = self.next_socket.get();
        self.next_socket.set(socket + 1);
        Socket::new(stream, IdleEvent { upstream, endpoint, socket }, &self.idle_events)
    }
}
