//! The places of connections, and the choice of the connection to close when no place is free.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::Bounds;
use crate::counters::{Closed, Counters};

/// The purpose of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// For all requests.
    Ordinary,
    /// For probes.
    Reserve,
}

/// Every place of one listener.
pub(crate) struct Places {
    bounds: Bounds,
    counters: Arc<Counters>,
    taken: Mutex<Taken>,
    /// Notified when a place becomes free, or a connection becomes silent.
    freed: Notify,
}

#[derive(Default)]
struct Taken {
    /// Counts events, to find the oldest silent connection.
    clock: u64,
    connections: Vec<Connection>,
}

struct Connection {
    id: u64,
    kind: Kind,
    state: State,
    task: Option<AbortHandle>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Accepted, before the first read.
    Fresh,
    /// The client has sent no complete head since this event.
    Silent(u64),
    /// A request arrived, and its response is not complete.
    Busy,
}

impl Places {
    pub(crate) fn new(bounds: Bounds, counters: Arc<Counters>) -> Arc<Self> {
        Arc::new(Self { bounds, counters, taken: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a place for a new connection. If no place is free, closes the oldest silent connection.
    pub(crate) async fn take(self: &Arc<Self>) -> Place {
        loop {
            if let Some(place) = self.try_take() {
                return place;
            }
            self.freed.notified().await;
        }
    }

    /// The server fills the places for probes last, so that other clients do not occupy these places.
    fn try_take(self: &Arc<Self>) -> Option<Place> {
        let mut taken = self.taken();
        let Bounds { connections, reserve, .. } = self.bounds;
        for (kind, most) in [(Kind::Ordinary, connections), (Kind::Reserve, reserve)] {
            let is_full =
                taken.connections.iter().filter(|connection| connection.kind == kind).count() >= most;
            if is_full && !taken.close_oldest_silent(kind) {
                continue;
            }
            if is_full {
                self.counters.count_closed(Closed::OldestSilent);
            }
            let id = taken.tick();
            taken.connections.push(Connection { id, kind, state: State::Fresh, task: None });
            return Some(Place { places: self.clone(), id, kind });
        }
        None
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut Connection, u64)) {
        let mut taken = self.taken();
        let now = taken.tick();
        if let Some(connection) = taken.connections.iter_mut().find(|connection| connection.id == id) {
            change(connection, now);
        }
    }
}

impl Taken {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn close_oldest_silent(&mut self, kind: Kind) -> bool {
        let silent =
            self.connections.iter().enumerate().filter_map(|(at, connection)| match connection.state {
                State::Silent(since) if connection.kind == kind => Some((since, at)),
                _ => None,
            });
        let Some((_, at)) = silent.min() else { return false };
        if let Some(task) = self.connections.swap_remove(at).task {
            task.abort();
        }
        true
    }
}

/// The place of one connection, until the value is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    id: u64,
    pub(crate) kind: Kind,
}

impl Place {
    /// Sets the task that serves the connection.
    pub(crate) fn served_by(&self, task: AbortHandle) {
        self.places.change(self.id, |connection, _| connection.task = Some(task));
    }

    /// A read found no data.
    pub(crate) fn is_quiet(&self) {
        self.places.change(self.id, |connection, now| {
            if connection.state == State::Fresh {
                connection.state = State::Silent(now);
            }
        });
        self.places.freed.notify_one();
    }

    /// A request arrived.
    pub(crate) fn is_busy(&self) {
        self.places.change(self.id, |connection, _| connection.state = State::Busy);
    }

    /// The response is complete.
    pub(crate) fn is_answered(&self) {
        self.places.change(self.id, |connection, now| connection.state = State::Silent(now));
        self.places.freed.notify_one();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().connections.retain(|connection| connection.id != self.id);
        self.places.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BOUNDS: Bounds =
        Bounds { connections: 1, reserve: 0, head: Duration::from_secs(2), age: Duration::from_secs(60) };

    fn places(connections: usize, reserve: usize) -> Arc<Places> {
        Places::new(Bounds { connections, reserve, ..BOUNDS }, Arc::default())
    }

    #[test]
    fn new_connection_replaces_the_oldest_silent_connection() {
        let places = places(3, 0);
        let held: Vec<_> = (0..3).filter_map(|_| places.try_take()).collect();
        assert!(places.try_take().is_none(), "no connection is silent yet");
        held.iter().for_each(Place::is_quiet);
        held[0].is_busy();
        held[0].is_answered();
        let _fourth = places.try_take().expect("the second connection is replaced");
        let left: Vec<_> = places.taken().connections.iter().map(|connection| connection.id).collect();
        assert!(left.contains(&held[0].id) && !left.contains(&held[1].id) && left.contains(&held[2].id));
        assert_eq!(places.counters.closed(Closed::OldestSilent), 1);
    }

    #[test]
    fn reserved_connection_is_used_only_if_every_ordinary_connection_is_busy() {
        let places = places(2, 1);
        let held: Vec<_> = (0..2).filter_map(|_| places.try_take()).collect();
        held.iter().for_each(Place::is_busy);
        let probe = places.try_take().expect("a place of the reserve");
        assert_eq!(probe.kind, Kind::Reserve);
        assert!(places.try_take().is_none());
        held[1].is_answered();
        assert_eq!(places.try_take().map(|place| place.kind), Some(Kind::Ordinary));
    }
}
