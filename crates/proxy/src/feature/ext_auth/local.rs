//! A worker's side of an external authorization service.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use foldhash::HashMap;
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};

use super::connection::{AskError, Connections};
use super::{Answer, External, Question, Verdict};
use crate::counters::{Check, PolicyStats};
use crate::failure::{Denial, Failure};
use crate::feature::memory::Memory;
use crate::upstream::LocalUpstream;

/// The limit of questions of one policy in flight on a worker.
const IN_FLIGHT_MAX: usize = 1024;

/// The time between two log lines about the same service.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(10);

/// The outcome of a question.
type Outcome = Result<Rc<Answer>, Denial>;

/// The services that a worker asks.
#[derive(Default)]
pub(crate) struct Externals {
    all: RefCell<HashMap<u64, Entry>>,
    memory: Rc<RefCell<Memory<Rc<Answer>>>>,
}

struct Entry {
    /// Dangling once no policy uses the service.
    external: Weak<External>,
    local: Rc<LocalExternal>,
}

/// A service that a worker asks.
pub(crate) struct LocalExternal {
    stats: Arc<PolicyStats>,
    worker: usize,
    connections: Rc<Connections>,
    in_flight: Rc<Cell<usize>>,
    /// The questions in flight whose answer other requests also wait for.
    flights: RefCell<HashMap<[u8; 32], watch::Receiver<Option<Outcome>>>>,
    memory: Rc<RefCell<Memory<Rc<Answer>>>>,
    warned: Cell<Option<Instant>>,
}

/// A question's place among the questions in flight.
pub(super) struct Place(Rc<Cell<usize>>);

impl Externals {
    /// This worker's side of a service.
    pub(crate) fn of(
        &self,
        external: &Arc<External>,
        stats: &Arc<PolicyStats>,
        worker: usize,
    ) -> Rc<LocalExternal> {
        let mut all = self.all.borrow_mut();
        let entry = all.entry(external.number).or_insert_with(|| Entry {
            external: Arc::downgrade(external),
            local: Rc::new(LocalExternal {
                stats: stats.clone(),
                worker,
                connections: Rc::default(),
                in_flight: Rc::default(),
                flights: RefCell::default(),
                memory: self.memory.clone(),
                warned: Cell::new(None),
            }),
        });
        entry.local.clone()
    }

    /// Closes unused connections, and forgets the answers of services that no policy uses any more.
    pub(crate) fn run_housekeeping(&self, now: Instant) {
        self.all.borrow_mut().retain(|number, entry| {
            let stays = entry.external.strong_count() > 0;
            match stays {
                true => entry.local.connections.expire(now),
                false => self.memory.borrow_mut().forget(*number),
            }
            stays
        });
    }
}

impl LocalExternal {
    /// The answer of the service, or the remembered answer to the same question.
    /// `upstream` is the Service that the URL names, if the URL names a Service of the cluster.
    pub(crate) async fn ask(
        self: Rc<Self>,
        external: Arc<External>,
        upstream: Option<Rc<LocalUpstream>>,
        question: Question,
    ) -> Outcome {
        let upstream = upstream.as_ref();
        if !question.is_whole || !external.remembers() {
            return self.ask_service(&external, upstream, &question).await;
        }
        let mark = external.mark(&question);
        let remembered = self.memory.borrow_mut().find(&mark, Instant::now());
        if let Some(answer) = remembered {
            self.count(Check::Remembered);
            return Ok(answer);
        }
        let flight = self.flights.borrow().get(&mark).cloned();
        let Some(flight) = flight else {
            let flight = self.clone().start_flight(external, upstream.cloned(), mark, question);
            return flight_outcome(flight).await;
        };
        self.count(Check::Shared);
        match flight_outcome(flight).await {
            Ok(answer) if answer.is_personal() => self.ask_service(&external, upstream, &question).await,
            outcome => outcome,
        }
    }

    /// Asks in a separate task: if the first request ends, the others still receive the answer.
    fn start_flight(
        self: Rc<Self>,
        external: Arc<External>,
        upstream: Option<Rc<LocalUpstream>>,
        mark: [u8; 32],
        question: Question,
    ) -> watch::Receiver<Option<Outcome>> {
        let (tell, flight) = watch::channel(None);
        self.flights.borrow_mut().insert(mark, flight.clone());
        spawn_local(async move {
            let landing = FlightGuard { local: &self, mark };
            let asked = Instant::now();
            let outcome = self.ask_service(&external, upstream.as_ref(), &question).await;
            if let Ok(answer) = &outcome
                && !answer.time_to_live.is_zero()
            {
                let until = asked + answer.time_to_live;
                self.memory.borrow_mut().remember(
                    mark,
                    external.number,
                    until,
                    answer.clone(),
                    answer.size(),
                );
            }
            drop(landing);
            tell.send_replace(Some(outcome));
        });
        flight
    }

    async fn ask_service(
        &self,
        external: &External,
        upstream: Option<&Rc<LocalUpstream>>,
        question: &Question,
    ) -> Outcome {
        let asking = async {
            let place = Place::take(&self.in_flight)?;
            match (upstream, &external.service) {
                (Some(upstream), _) => {
                    self.connections.ask_endpoint(external, upstream, question, place).await
                }
                (None, Some(server)) => self.connections.ask(external, server, question, place).await,
                (None, None) => Err(AskError::NoConnection(Failure::NoEndpoint)),
            }
        };
        let limit = external.timeout();
        match timeout(limit, asking).await.unwrap_or(Err(AskError::Timeout(limit))) {
            Ok(answer) => {
                self.count(match answer.verdict {
                    Verdict::Admitted => Check::Admitted,
                    Verdict::Unauthorized | Verdict::Forbidden | Verdict::Responded(_) => Check::Refused,
                });
                Ok(Rc::new(answer))
            }
            Err(error) => {
                self.count(Check::Failed);
                self.warn(external, &error);
                Err(error.denial())
            }
        }
    }

    fn count(&self, check: Check) {
        self.stats.of(self.worker).checks[check as usize].add(1);
    }

    fn warn(&self, external: &External, error: &AskError) {
        let now = Instant::now();
        if self.warned.get().is_none_or(|before| now - before >= BETWEEN_WARNINGS) {
            self.warned.set(Some(now));
            let url = &*external.name;
            tracing::warn!(url, %error, "an authorization service failed; the gateway denies requests that need the service's decision");
        }
    }
}

impl Place {
    fn take(in_flight: &Rc<Cell<usize>>) -> Result<Self, AskError> {
        if in_flight.get() >= IN_FLIGHT_MAX {
            return Err(AskError::Busy);
        }
        in_flight.set(in_flight.get() + 1);
        Ok(Self(in_flight.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Removes a question from the questions in flight, however the question ends.
struct FlightGuard<'l> {
    local: &'l LocalExternal,
    mark: [u8; 32],
}

impl Drop for FlightGuard<'_> {
    fn drop(&mut self) {
        self.local.flights.borrow_mut().remove(&self.mark);
    }
}

async fn flight_outcome(mut flight: watch::Receiver<Option<Outcome>>) -> Outcome {
    match flight.wait_for(Option::is_some).await.as_deref() {
        Ok(Some(outcome)) => outcome.clone(),
        // The task was aborted: the request is denied.
        Ok(None) | Err(_) => Err(Denial::CheckUnreachable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_limits_external_authorization_checks_in_flight() {
        let in_flight = Rc::default();
        let mut places: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| Place::take(&in_flight).ok().unwrap()).collect();
        assert!(matches!(Place::take(&in_flight), Err(AskError::Busy)));
        places.pop();
        let place = Place::take(&in_flight);
        assert!(place.is_ok() && Place::take(&in_flight).is_err());
        drop((places, place));
        assert_eq!(in_flight.get(), 0);
    }
}
