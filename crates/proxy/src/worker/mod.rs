//! The state of a worker: its configuration, its upstreams, its buffers and its counters. `runtime` runs the worker.

mod scratch;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluicegate_model::Settings;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

pub(crate) use scratch::Scratch;

use crate::counters::{Counters, LocalStats, WorkerStats};
use crate::date::{HttpDate, http_date};
use crate::feature::authentication::basic::PasswordMemory;
use crate::feature::authentication::introspection::Introspections;
use crate::feature::authentication::jwt::TokenMemory;
use crate::feature::ext_auth::Externals;
use crate::record::Sinks;
use crate::rule::Table;
use crate::tls::Turns;
use crate::upstream::slot::place;
use crate::upstream::{EndpointSet, LocalUpstream, SharedUpstream, UpstreamContext};
use scratch::Spares;

/// How long a client may take for its next request after the gateway starts to close idle connections. This applies to
/// clients that do not know that their connection ends.
pub(crate) const LAST_IDLE: Duration = Duration::from_secs(1);

/// The state of one worker. It never leaves its thread.
pub(crate) struct Worker {
    pub(crate) id: usize,
    stats: Rc<LocalStats>,
    snapshot: RefCell<Rc<Snapshot>>,
    upstreams: RefCell<Vec<Option<Rc<LocalUpstream>>>>,
    /// The removed upstreams, each until its requests must have ended: a request that waits, as for an authorization
    /// service, selects its upstream later.
    retired: RefCell<Vec<(Instant, Rc<LocalUpstream>)>>,
    upstream_context: Rc<UpstreamContext>,
    spares: Spares,
    pub(crate) handshakes: Turns,
    stop: Cell<Option<Stop>>,
    /// Notified when `stop` is set.
    stopped: Notify,
    date: Cell<(u64, HttpDate)>,
    /// The tokens that the worker has verified.
    pub(crate) tokens: RefCell<TokenMemory>,
    /// The passwords that the worker has checked.
    pub(crate) passwords: RefCell<PasswordMemory>,
    /// The external services that the worker asks about requests.
    pub(crate) externals: Externals,
    /// The authorization servers that the worker asks about tokens.
    pub(crate) introspections: Rc<Introspections>,
    /// The memory of buffered bodies, in bytes.
    pub(crate) gathered: Rc<Cell<usize>>,
    pub(crate) sinks: Sinks,
}

/// The current configuration, as one worker holds it: reference-counted without writing memory that other workers use.
pub(crate) struct Snapshot {
    pub(crate) table: Arc<Table>,
    pub(crate) settings: Rc<Settings>,
}

/// The steps of a worker's shutdown (Z10): each step includes the previous steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// Responses announce `Connection: close`.
    Announce,
    /// No connections are accepted any more.
    CloseListeners,
    /// Idle connections are closed.
    CloseIdle,
    /// All connections are closed.
    CloseAll,
}

/// The state of a client connection, which decides when it may be closed as idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The connection was accepted, and its first request may be on its way.
    Fresh,
    /// A request is being read or served.
    Busy,
    /// The connection waits for its next request.
    Idle,
}

impl Worker {
    pub(crate) fn new(id: usize, counters: Arc<Counters>, table: Arc<Table>, sinks: Sinks) -> Self {
        let snapshot = Rc::new(Snapshot::new(table));
        Self {
            id,
            stats: Rc::new(LocalStats::new(counters, id)),
            upstream_context: Rc::new(UpstreamContext::new(id, snapshot.settings.clone())),
            snapshot: RefCell::new(snapshot),
            upstreams: RefCell::default(),
            retired: RefCell::default(),
            spares: Spares::default(),
            handshakes: Turns::new(),
            stop: Cell::new(None),
            stopped: Notify::new(),
            date: Cell::new((0, http_date(0))),
            tokens: RefCell::default(),
            passwords: RefCell::default(),
            externals: Externals::default(),
            introspections: Rc::default(),
            gathered: Rc::default(),
            sinks,
        }
    }

    /// The current configuration.
    pub(crate) fn snapshot(&self) -> Rc<Snapshot> {
        self.snapshot.borrow().clone()
    }

    /// The current settings.
    pub(crate) fn settings(&self) -> Rc<Settings> {
        self.snapshot.borrow().settings.clone()
    }

    /// The upstream of a slot that the current routing table or a previous table names.
    pub(crate) fn upstream(&self, slot: usize) -> Option<Rc<LocalUpstream>> {
        match self.upstreams.borrow().get(place(slot)) {
            Some(Some(upstream)) if upstream.shared.slot == slot => Some(upstream.clone()),
            _ => self.retired_upstream(slot),
        }
    }

    #[cold]
    fn retired_upstream(&self, slot: usize) -> Option<Rc<LocalUpstream>> {
        let retired = self.retired.borrow();
        retired
            .iter()
            .find(|(_, upstream)| upstream.shared.slot == slot)
            .map(|(_, upstream)| upstream.clone())
    }

    pub(crate) fn stats(&self) -> &WorkerStats {
        &self.stats
    }

    /// The counters, for values that outlive a request.
    pub(crate) fn local_stats(&self) -> &Rc<LocalStats> {
        &self.stats
    }

    /// Buffers for a request.
    pub(crate) fn scratch(&self) -> Box<Scratch> {
        self.spares.take()
    }

    /// Takes back the buffers of a request.
    pub(crate) fn give_back(&self, scratch: Box<Scratch>) {
        self.spares.give(scratch);
    }

    /// Whether responses announce that the connection ends.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.get().is_some()
    }

    /// Returns once responses announce that the connection ends.
    pub(crate) async fn stopping(&self) {
        let stopped = self.stopped.notified();
        if !self.is_stopping() {
            stopped.await;
        }
    }

    /// Whether clients can send only on existing connections.
    pub(crate) fn has_closed_listeners(&self) -> bool {
        self.stop.get() >= Some(Stop::CloseListeners)
    }

    /// Whether everything must end now.
    pub(crate) fn is_closing_all(&self) -> bool {
        self.stop.get() >= Some(Stop::CloseAll)
    }

    /// Returns when the worker takes the next step of its shutdown.
    pub(crate) fn stop_changes(&self) -> Notified<'_> {
        self.stopped.notified()
    }

    /// Whether idle connections were closed.
    pub(crate) fn closes_idle(&self) -> bool {
        self.stop.get() >= Some(Stop::CloseIdle)
    }

    /// The current `Date` (RFC 9110, 6.6.1).
    pub(crate) fn date(&self) -> HttpDate {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.date.get().0 != now {
            self.date.set((now, http_date(now)));
        }
        self.date.get().1
    }

    /// Takes the next step of the shutdown.
    pub(crate) fn set_stop(&self, stop: Stop) {
        self.stop.set(Some(stop));
        self.stopped.notify_waiters();
    }

    /// Applies the changes of upstreams, by slot. `None` removes an upstream. `checks` says whether this worker checks the
    /// health of the endpoints of an upstream.
    pub(crate) fn apply_upstreams(
        &self,
        changes: impl IntoIterator<Item = (usize, Option<(Arc<SharedUpstream>, Arc<EndpointSet>)>)>,
        checks: impl Fn(usize) -> bool,
    ) {
        let drain = self.settings().timeouts.drain;
        let mut upstreams = self.upstreams.borrow_mut();
        for (slot, change) in changes {
            let place = place(slot);
            if upstreams.len() <= place {
                upstreams.resize_with(place + 1, || None);
            }
            // The next upstream of the place may have come first.
            if change.is_none() && upstreams[place].as_ref().is_none_or(|current| current.shared.slot != slot)
            {
                continue;
            }
            let current = upstreams[place].take();
            let stays =
                |shared: &Arc<_>| current.as_ref().is_some_and(|old| Arc::ptr_eq(&old.shared, shared));
            if let Some((shared, set)) = change {
                if stays(&shared) {
                    upstreams[place].clone_from(&current);
                } else {
                    let context = self.upstream_context.clone();
                    upstreams[place] = Some(Rc::new(LocalUpstream::new(shared, context)));
                }
                if let Some(upstream) = &upstreams[place] {
                    upstream.update(&set, drain);
                    if checks(slot) {
                        upstream.start_health_checks();
                    }
                }
            }
            if let Some(old) = current
                && upstreams[place].as_ref().is_none_or(|new| !Rc::ptr_eq(new, &old))
            {
                old.retire(drain);
                self.retired.borrow_mut().push((Instant::now() + drain, old));
            }
        }
    }

    /// Serves this table from the next request on.
    pub(crate) fn apply_table(&self, table: Arc<Table>) {
        let snapshot = Rc::new(Snapshot::new(table));
        self.upstream_context.set_settings(snapshot.settings.clone());
        self.snapshot.replace(snapshot);
    }

    /// Background work: closes idle connections, frees unused buffers, passes on access log lines and spans.
    pub(crate) fn run_housekeeping(&self) {
        let (now, idle) = (Instant::now(), self.settings().timeouts.pool_idle);
        let upstreams: Vec<_> = self.upstreams.borrow().iter().flatten().cloned().collect();
        for upstream in upstreams {
            upstream.expire_idle(now, idle);
        }
        self.retired.borrow_mut().retain(|(until, _)| *until > now);
        self.externals.run_housekeeping(now);
        self.introspections.run_housekeeping();
        self.spares.trim();
        self.flush_records();
    }

    /// Passes on all records, at the end of the worker.
    pub(crate) fn finish_records(&self) {
        self.sinks.finish(self.stats());
    }

    /// Passes on access log lines, spans and sums.
    pub(crate) fn flush_records(&self) {
        self.sinks.flush(self.stats());
    }

    /// Closes idle connections to endpoints as soon as their peer closes them.
    pub(crate) async fn watch_idle(&self) {
        let events = &self.upstream_context.idle_events;
        loop {
            events.notify.notified().await;
            for event in events.take() {
                if let Some(upstream) = self.upstream(event.upstream) {
                    upstream.close_idle(event.endpoint, event.socket);
                }
            }
        }
    }
}

impl Snapshot {
    fn new(table: Arc<Table>) -> Self {
        let settings = Rc::new((*table.settings).clone());
        Self { table, settings }
    }
}
