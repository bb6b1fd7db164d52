//! A thread of a load, with a separate event loop. No other thread writes its connections, times and counts.
//!
//! | module | content |
//! |---|---|
//! | [`slot`] | a connection's place |
//! | [`opening`] | opening and closing of connections |
//! | [`receiving`] | the input of connections |
//! | [`http1`], [`http2`] | the input as part of responses |

mod http1;
mod http2;
mod opening;
mod receiving;
mod slot;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use sluicegate_http1::ResponseHead;

use self::slot::{Protocol, Slot};
use super::connection::{Connection, Pending, Phase};
use super::counts::{Counts, Failure};
use super::http2::Finished;
use super::nanos::{Clock, Nanos};
use super::plan::Plan;
use super::progress::Sample;
use super::request::{Id, Request};
use super::schedule::{Pace, Schedule};
use super::stop::Stop;
use super::stream::Scratch;

/// The longest time between two checks of timeouts, and between two samples of the rate.
const TICK: Nanos = Nanos::from_millis(100);

/// The number of sockets to serve before the next check for due requests. They take about half a millisecond.
const EVENTS: usize = 64;

/// The kernel reports each change once, so a request needs no system calls but send and receive.
const EVENTS_OF_STREAMS: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// The time between two samples for [`Worker::watch`].
const SECOND: Nanos = Nanos::from_millis(1000);

/// The bits of an id that count the requests of a thread. The higher bits are the thread's number.
const IDS: u64 = (1 << 48) - 1;

pub(crate) struct Worker<'p> {
    plan: &'p Plan,
    /// The plan's schedule, until a signal shortens it.
    schedule: Schedule,
    clock: Clock,
    stop: &'p Stop,
    epoll: OwnedFd,
    /// The connections that requests are assigned to; behind them, connections that only finish their requests in
    /// flight.
    slots: Vec<Slot>,
    /// The number of connections that requests are assigned to.
    dealt: usize,
    /// Free places behind them.
    spare: Vec<usize>,
    counts: Counts,
    get: Request,
    post: Request,
    /// The id of the next request of this run.
    next_id: u64,
    scratch: Scratch,
    /// The output of HTTP/2 for the current connection.
    outgoing: Vec<u8>,
    /// The results of requests on the current connection.
    finished: Vec<Finished>,
    head: ResponseHead,
    /// The times of scheduled openings.
    openings: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// The number of this thread's next request to become due, in the order of their times. Requests whose connection
    /// was busy are sent as soon as the connection is free.
    cursor: u64,
    /// The number of requests of this thread that are due in all; unknown in a closed loop.
    to_send: Option<u64>,
    /// Requests in flight.
    waiting: usize,
    next_tick: Nanos,
    /// The number of responses at the last tick, and the time of that tick.
    ticked: (u64, Nanos),
    /// The receiver of the counts, once a second.
    watch: Option<SyncSender<Sample>>,
    next_watch: Nanos,
    index: usize,
}

/// Whether the current stream is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    Open,
    Closed,
}

impl<'p> Worker<'p> {
    /// The worker with this index below `plan.threads`.
    pub(crate) fn new(
        plan: &'p Plan,
        clock: Clock,
        stop: &'p Stop,
        index: usize,
        watch: Option<SyncSender<Sample>>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Connections are assigned to threads in turn, so that the requests of a thread are due at even distances.
        let numbers = (index as u64..plan.schedule.connections).step_by(plan.threads);
        let slots: Vec<Slot> = numbers
            .map(|number| Slot {
                connection: Connection::new(number),
                stream: None,
                protocol: Protocol::new(plan),
                is_to_open: !plan.is_new_each,
                generation: 0,
            })
            .collect();
        let opening =
            |(at, slot): (usize, &Slot)| Reverse((plan.schedule.opens(slot.connection.number()), at));
        Ok(Self {
            plan,
            schedule: plan.schedule,
            clock,
            stop,
            epoll,
            counts: Counts::new(plan.schedule.first, plan.interval),
            get: plan.get.clone(),
            post: plan.post.clone(),
            next_id: (index as u64) << IDS.count_ones(),
            scratch: Scratch::new(),
            outgoing: Vec::new(),
            finished: Vec::new(),
            head: ResponseHead::default(),
            openings: slots.iter().enumerate().filter(|(_, slot)| slot.is_to_open).map(opening).collect(),
            cursor: 0,
            to_send: slots.iter().map(|slot| plan.schedule.requests_of(slot.connection.number())).sum(),
            dealt: slots.len(),
            spare: Vec::new(),
            slots,
            waiting: 0,
            next_tick: Nanos::ZERO,
            ticked: (0, plan.schedule.first),
            watch,
            next_watch: plan.schedule.first + SECOND,
            index,
        })
    }

    /// Runs until the schedule is over and every response has arrived or is too late.
    pub(crate) fn run(mut self) -> Result<Counts, Errno> {
        // A thread sleeps 50 us longer than requested unless it sets its timer slack.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        loop {
            let now = self.clock.now();
            if let Some(end) = self.stop.end(now) {
                self.schedule = self.schedule.until(end);
            }
            self.release(now);
            self.open_connections(now);
            if now >= self.next_tick {
                self.tick(now);
            }
            if self.waiting == 0 && self.is_over(now) {
                return Ok(self.counts);
            }
            let timeout = self.next_moment() - self.clock.now();
            let timeout = Timespec::try_from(Duration::from_nanos(timeout.0)).unwrap_or_default();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            for event in events.drain(..) {
                self.serve(event.data.u64(), event.flags);
            }
        }
    }

    /// Whether all requests have been sent.
    fn is_over(&self, now: Nanos) -> bool {
        let schedule = &self.schedule;
        let all_sent = self.to_send.is_some_and(|to_send| self.counts.sent >= to_send);
        now >= schedule.last_send() || now >= schedule.end && all_sent
    }

    /// The time of the next work without any input.
    fn next_moment(&self) -> Nanos {
        let opening = self.openings.peek().map_or(Nanos::MAX, |Reverse((at, _))| *at);
        let due = self.cursor_due().unwrap_or(Nanos::MAX);
        let now = self.clock.now();
        let schedule = &self.schedule;
        let end = [schedule.end, schedule.last_send()].into_iter().find(|end| *end > now);
        opening.min(due).min(end.unwrap_or(Nanos::MAX)).min(self.next_tick)
    }

    /// The time at which the request at the cursor is due; in a closed loop only the first requests, of all
    /// connections.
    fn cursor_due(&self) -> Option<Nanos> {
        if self.schedule.pace == Pace::Closed {
            return (self.cursor == 0).then_some(self.schedule.first);
        }
        let number = self.slots[self.cursor_slot()].connection.number();
        self.schedule.due(number, self.cursor / self.dealt as u64)
    }

    fn cursor_slot(&self) -> usize {
        (self.cursor % self.dealt as u64) as usize
    }

    /// Sends due requests.
    fn release(&mut self, now: Nanos) {
        if self.schedule.pace == Pace::Closed {
            // The first requests; each response is followed by the next request.
            if self.cursor == 0 && now >= self.schedule.first {
                self.cursor = 1;
                for at in 0..self.dealt {
                    if self.plan.is_new_each {
                        self.open_at(at, now);
                    } else {
                        self.proceed(at);
                    }
                }
            }
            return;
        }
        while self.cursor_due().is_some_and(|due| due <= now) {
            let at = self.cursor_slot();
            self.cursor += 1;
            match self.slots[at].connection.phase() {
                Phase::Open => {
                    if let Some(due) = self.slots[at].connection.take_due(now, &self.schedule) {
                        let sent = self.clock.now();
                        self.counts.lateness.saturating_record((sent - due).micros());
                        if self.send(at, due, sent) == Stays::Open {
                            self.transmit(at);
                        }
                    }
                }
                Phase::Down if self.plan.is_new_each => self.open_at(at, now),
                Phase::Down | Phase::Connecting | Phase::Handshaking => {}
            }
        }
    }

    /// Sends the next due requests of a connection, as many as it accepts.
    fn proceed(&mut self, at: usize) -> Stays {
        let now = self.clock.now();
        while let Some(due) = self.slots[at].connection.take_due(now, &self.schedule) {
            // In a closed loop no request waits for a connection, so the opening is part of the request.
            let due = if self.plan.is_new_each { due.min(self.slots[at].connection.opened()) } else { due };
            if self.send(at, due, now) == Stays::Closed {
                return Stays::Closed;
            }
        }
        self.transmit(at)
    }

    /// Sends a request; in HTTP/2 its bytes still need [`transmit`](Self::transmit).
    fn send(&mut self, at: usize, due: Nanos, now: Nanos) -> Stays {
        let id = self.next_id;
        self.next_id += 1;
        let is_post = self.plan.posts.contain(id & IDS);
        self.counts.sent += 1;
        self.counts.posts += u64::from(is_post);
        self.waiting += 1;
        let request = if is_post { &mut self.post } else { &mut self.get };
        let pending = Pending { id, due, sent: now };
        let slot = &mut self.slots[at];
        match &mut slot.protocol {
            Protocol::Http2(session) => session.send(pending, request, &mut self.outgoing),
            Protocol::Http1(http1) => {
                http1.pending = Some(pending);
                request.vary(id & IDS);
                let data = request.with_id(Id::new(self.plan.run, id));
                let Some(stream) = &mut slot.stream else { return Stays::Closed };
                if stream.send(data, &mut self.scratch).is_err() {
                    return self.lose(at, Failure::Write, Failure::Write);
                }
            }
        }
        Stays::Open
    }

    /// Sends the output of HTTP/2 on a connection, all of it at once.
    fn transmit(&mut self, at: usize) -> Stays {
        if self.outgoing.is_empty() {
            return Stays::Open;
        }
        let Some(stream) = &mut self.slots[at].stream else { return Stays::Closed };
        let sent = stream.send(&self.outgoing, &mut self.scratch);
        self.outgoing.clear();
        match sent {
            Ok(()) => Stays::Open,
            Err(_) => self.lose(at, Failure::Write, Failure::Truncated),
        }
    }

    /// Checks timeouts, and samples the rate.
    fn tick(&mut self, now: Nanos) {
        // Timeouts are exact to a twentieth.
        self.next_tick = now + TICK.min(Nanos((self.plan.timeout.0 / 20).max(1_000_000)));
        for at in 0..self.slots.len() {
            let connection = &self.slots[at].connection;
            let failure = match connection.phase() {
                Phase::Connecting => Failure::ConnectTimeout,
                Phase::Handshaking => Failure::HandshakeTimeout,
                Phase::Open => {
                    self.expire(at, now);
                    continue;
                }
                Phase::Down => continue,
            };
            if connection.is_expired(now) {
                self.fail(at, failure);
            }
        }
        let (answered, since) = self.ticked;
        if now >= since + TICK && now <= self.schedule.end + TICK {
            self.counts.rates.push((self.counts.answered - answered) as f64 / (now - since).seconds());
            self.ticked = (self.counts.answered, now);
        }
        if now >= self.next_watch
            && let Some(watch) = &self.watch
        {
            self.next_watch = now + SECOND;
            // The worker drops the sample if the receiver is slow.
            let latency = self.counts.latency.clone();
            let (answered, errors) = (self.counts.answered, self.counts.errors());
            let _ = watch.try_send(Sample {
                thread: self.index,
                at: now - self.schedule.first,
                answered,
                errors,
                latency,
            });
        }
    }
}
