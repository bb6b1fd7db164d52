//! A thread of a load: an event loop of its own, with connections, time and counts that nobody else writes to.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use sluicegate_http1::ResponseHead;

use super::answer::{Answer, Echo, Reader};
use super::connection::{Connection, Pending, Phase};
use super::counts::{Counts, Failure, Wrong};
use super::nanos::{Clock, Nanos};
use super::plan::Plan;
use super::progress::Sample;
use super::request::{Id, Request};
use super::schedule::{Pace, Schedule};
use super::stop::Stop;
use super::stream::{Broken, Received, Scratch, Stream};
use super::tls::Progress;

/// How often limits are looked at, at least, and rates are taken.
const TICK: Nanos = Nanos::from_millis(100);

/// How many sockets are served before requests are looked for that became due meanwhile: half a millisecond's work.
const EVENTS: usize = 64;

/// How many reads of a connection come before others have their turn: 1 MiB.
const READS: usize = 16;

/// Told once of each change, and never asked again: no system call but send and receive for each request.
const EVENTS_OF_STREAMS: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// How often [`Worker::watch`] is told.
const SECOND: Nanos = Nanos::from_millis(1000);

/// The bits of an id that count the requests of a thread. Those above are the thread's number.
const IDS: u64 = (1 << 48) - 1;

pub(crate) struct Worker<'p> {
    plan: &'p Plan,
    /// The plan's, until something stops it.
    schedule: Schedule,
    clock: Clock,
    stop: &'p Stop,
    epoll: OwnedFd,
    slots: Vec<Slot>,
    counts: Counts,
    get: Request,
    post: Request,
    /// The next request's, of this run.
    next_id: u64,
    scratch: Scratch,
    head: ResponseHead,
    /// When connections are to be opened.
    openings: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Requests of this thread that became due, in the order in which they do: the number of the next one. Those of
    /// connections that were busy then are sent as soon as they are not.
    cursor: u64,
    /// How many requests of this thread are due in all; unknown in a closed loop.
    to_send: Option<u64>,
    /// Connections that wait for an answer.
    waiting: usize,
    next_tick: Nanos,
    /// What had been answered at the last tick, and when it was.
    ticked: (u64, Nanos),
    /// Who is told what was counted so far, once a second.
    watch: Option<SyncSender<Sample>>,
    next_watch: Nanos,
    index: usize,
}

/// A connection's place, which stays when the connection is made again.
struct Slot {
    connection: Connection,
    stream: Option<Stream>,
    reader: Reader,
    /// Whether it is among the openings.
    is_to_open: bool,
    /// Tells events of this stream from those of earlier ones.
    generation: u32,
}

impl Slot {
    /// By which an event names it.
    fn event_data(&self, at: usize) -> EventData {
        EventData::new_u64(at as u64 | u64::from(self.generation) << 32)
    }
}

/// Whether the stream that was served is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    Open,
    Closed,
}

impl<'p> Worker<'p> {
    /// The worker of this index below `plan.threads`.
    pub(crate) fn new(
        plan: &'p Plan,
        clock: Clock,
        stop: &'p Stop,
        index: usize,
        watch: Option<SyncSender<Sample>>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Connections are dealt out to threads in turn, so that the requests of a thread are due at even distances.
        let numbers = (index as u64..plan.schedule.connections).step_by(plan.threads);
        let slots: Vec<Slot> = numbers
            .map(|number| Slot {
                connection: Connection::new(number),
                stream: None,
                reader: Reader::default(),
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
            head: ResponseHead::default(),
            openings: slots.iter().enumerate().filter(|(_, slot)| slot.is_to_open).map(opening).collect(),
            cursor: 0,
            to_send: slots.iter().map(|slot| plan.schedule.requests_of(slot.connection.number())).sum(),
            slots,
            waiting: 0,
            next_tick: Nanos::ZERO,
            ticked: (0, plan.schedule.first),
            watch,
            next_watch: plan.schedule.first + SECOND,
            index,
        })
    }

    /// Loads until the schedule is over and every answer has come or is too late.
    pub(crate) fn run(mut self) -> Result<Counts, Errno> {
        // A thread sleeps 50 us longer than it is told unless it says that it minds.
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

    /// Whether nothing more is to be sent.
    fn is_over(&self, now: Nanos) -> bool {
        let schedule = &self.schedule;
        let all_sent = self.to_send.is_some_and(|to_send| self.counts.sent >= to_send);
        now >= schedule.last_send() || now >= schedule.end && all_sent
    }

    /// When something is to be done even if nothing comes.
    fn next_moment(&self) -> Nanos {
        let opening = self.openings.peek().map_or(Nanos::MAX, |Reverse((at, _))| *at);
        let due = self.cursor_due().unwrap_or(Nanos::MAX);
        let now = self.clock.now();
        let schedule = &self.schedule;
        let end = [schedule.end, schedule.last_send()].into_iter().find(|end| *end > now);
        opening.min(due).min(end.unwrap_or(Nanos::MAX)).min(self.next_tick)
    }

    /// When the request at the cursor is due; in a closed loop the first ones, of all connections.
    fn cursor_due(&self) -> Option<Nanos> {
        if self.schedule.pace == Pace::Closed {
            return (self.cursor == 0).then_some(self.schedule.first);
        }
        let number = self.slots[self.cursor_slot()].connection.number();
        self.schedule.due(number, self.cursor / self.slots.len() as u64)
    }

    fn cursor_slot(&self) -> usize {
        (self.cursor % self.slots.len() as u64) as usize
    }

    /// Sends what has become due.
    fn release(&mut self, now: Nanos) {
        if self.schedule.pace == Pace::Closed {
            // The first requests; each answer is followed by the next one.
            if self.cursor == 0 && now >= self.schedule.first {
                self.cursor = 1;
                for at in 0..self.slots.len() {
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
                Phase::Idle => {
                    if let Some(due) = self.slots[at].connection.take_due(now, &self.schedule) {
                        let sent = self.clock.now();
                        self.counts.lateness.saturating_record((sent - due).micros());
                        self.send(at, due, sent);
                    }
                }
                Phase::Down if self.plan.is_new_each => self.open_at(at, now),
                Phase::Down | Phase::Connecting | Phase::Handshaking | Phase::Waiting(_) => {}
            }
        }
    }

    /// Sends the next request of an idle connection if it is due.
    fn proceed(&mut self, at: usize) -> Stays {
        let now = self.clock.now();
        match self.slots[at].connection.take_due(now, &self.schedule) {
            // In a closed loop nothing waits for a connection, so opening one is part of the request.
            Some(due) if self.plan.is_new_each => {
                self.send(at, due.min(self.slots[at].connection.opened()), now)
            }
            Some(due) => self.send(at, due, now),
            None => Stays::Open,
        }
    }

    fn send(&mut self, at: usize, due: Nanos, now: Nanos) -> Stays {
        let id = self.next_id;
        self.next_id += 1;
        self.counts.sent += 1;
        let slot = &mut self.slots[at];
        let Some(stream) = &mut slot.stream else { return Stays::Closed };
        let is_post = self.plan.posts.contain(id & IDS);
        self.counts.posts += u64::from(is_post);
        let request = if is_post { &mut self.post } else { &mut self.get };
        let data = request.with_id(Id::new(self.plan.run, id));
        if stream.send(data, &mut self.scratch).is_err() {
            return self.fail(at, Failure::Write);
        }
        slot.connection.wait(Pending { id, due, sent: now }, now + self.plan.timeout);
        self.waiting += 1;
        Stays::Open
    }

    /// Puts a connection among those to be opened.
    fn open_at(&mut self, at: usize, when: Nanos) {
        let slot = &mut self.slots[at];
        if !slot.is_to_open {
            slot.is_to_open = true;
            self.openings.push(Reverse((when, at)));
        }
    }

    fn open_connections(&mut self, now: Nanos) {
        while let Some(Reverse((when, at))) = self.openings.peek().copied()
            && when <= now
        {
            self.openings.pop();
            self.slots[at].is_to_open = false;
            if now < self.schedule.last_send() {
                self.open(at, now);
            }
        }
    }

    fn open(&mut self, at: usize, now: Nanos) {
        let slot = &mut self.slots[at];
        slot.connection.open(now, now + self.plan.timeout);
        slot.reader.reset();
        slot.generation = slot.generation.wrapping_add(1);
        let (stream, connected) = match Stream::connect(&self.plan.address) {
            Ok(connecting) => connecting,
            Err(error) => {
                self.fail(at, of_connecting(error));
                return;
            }
        };
        if epoll::add(&self.epoll, &stream, slot.event_data(at), EVENTS_OF_STREAMS).is_err() {
            self.fail(at, Failure::Exhausted);
            return;
        }
        slot.stream = Some(stream);
        if connected {
            self.connected(at);
        }
    }

    fn connected(&mut self, at: usize) -> Stays {
        let slot = &mut self.slots[at];
        let Some(stream) = &mut slot.stream else { return Stays::Closed };
        let Some(options) = &self.plan.tls else {
            return self.ready(at);
        };
        slot.connection.begin_handshake();
        match stream.begin_tls(options, &mut self.scratch) {
            Ok(()) => Stays::Open,
            Err(broken) => self.fail(at, of_handshake(broken)),
        }
    }

    fn ready(&mut self, at: usize) -> Stays {
        self.counts.connected += 1;
        self.slots[at].connection.ready();
        self.proceed(at)
    }

    fn serve(&mut self, data: u64, flags: EventFlags) {
        let (at, generation) = ((data & u64::from(u32::MAX)) as usize, (data >> 32) as u32);
        let slot = &mut self.slots[at];
        let Some(stream) = slot.stream.as_mut().filter(|_| slot.generation == generation) else { return };
        if slot.connection.phase() == Phase::Connecting {
            if !flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
                return;
            }
            let stays = match stream.connected() {
                Ok(()) => self.connected(at),
                Err(error) => self.fail(at, of_connecting(error)),
            };
            if stays == Stays::Closed {
                return;
            }
        } else if flags.contains(EventFlags::OUT) && stream.flush().is_err() {
            self.broken(at, Broken::Socket);
            return;
        }
        let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.contains(EventFlags::IN) || flags.intersects(ends) {
            self.receive(at, flags.intersects(ends));
        }
    }

    /// Reads what has come. `to_the_end`: the kernel has said that the end is among it.
    fn receive(&mut self, at: usize, to_the_end: bool) {
        for _ in 0..READS {
            let slot = &mut self.slots[at];
            let Some(stream) = &mut slot.stream else { return };
            let outcome = stream.receive(&mut self.scratch, to_the_end);
            let was_handshaking = slot.connection.phase() == Phase::Handshaking;
            if was_handshaking
                && matches!(outcome, Ok((_, Some(Progress::Ready))))
                && self.ready(at) == Stays::Closed
            {
                return;
            }
            if !self.scratch.plain.is_empty() && self.take(at) == Stays::Closed {
                return;
            }
            match outcome {
                Ok((Received::More, _)) => {}
                Ok((Received::Drained, _)) => return,
                Ok((Received::Ended, progress)) => return self.ended(at, progress),
                Err(broken) => return self.broken(at, broken),
            }
        }
        // To be told once more, after the others had their turn.
        let slot = &self.slots[at];
        if let Some(stream) = &slot.stream
            && epoll::modify(&self.epoll, stream, slot.event_data(at), EVENTS_OF_STREAMS).is_err()
        {
            self.fail(at, Failure::Exhausted);
        }
    }

    /// Reads what came as part of an answer.
    fn take(&mut self, at: usize) -> Stays {
        let slot = &mut self.slots[at];
        let plain = &self.scratch.plain;
        self.counts.bytes += plain.len() as u64;
        let Phase::Waiting(pending) = slot.connection.phase() else {
            self.wrong(at, Wrong::Surplus);
            return self.close(at);
        };
        let id = Id::new(self.plan.run, pending.id);
        let verify = self.plan.verify.then_some(&id);
        match slot.reader.read(plain, &mut self.head, verify) {
            Err(_) => self.fail(at, Failure::Malformed),
            Ok((_, None)) => Stays::Open,
            Ok((used, Some(answer))) => {
                let surplus = used < plain.len();
                if surplus {
                    self.wrong(at, Wrong::Surplus);
                }
                self.finish(at, pending, answer);
                if surplus || !answer.keep_alive || self.plan.is_new_each {
                    self.counts.closed_idle += u64::from(!surplus && !self.plan.is_new_each);
                    return self.close(at);
                }
                self.proceed(at)
            }
        }
    }

    fn finish(&mut self, at: usize, pending: Pending, answer: Answer) {
        let now = self.clock.now();
        self.counts.answer(answer.status, pending.due, pending.sent, now);
        match answer.echo {
            Echo::Unknown | Echo::Same => {}
            // What a gateway says itself has nobody's id, and its status is counted.
            Echo::Missing if !(200..300).contains(&answer.status) => {}
            Echo::Missing => self.wrong(at, Wrong::MissingId),
            Echo::Other => self.wrong(at, Wrong::OtherId),
        }
        if answer.said_length.is_some_and(|said| said != answer.length) {
            self.wrong(at, Wrong::Length);
        }
        self.slots[at].connection.answered();
        self.waiting -= 1;
    }

    /// The server closed the connection.
    fn ended(&mut self, at: usize, progress: Option<Progress>) {
        let slot = &mut self.slots[at];
        let is_proper = match &slot.stream {
            Some(stream) if stream.is_tls() => progress == Some(Progress::Ended),
            _ => true,
        };
        match slot.connection.phase() {
            Phase::Down => {}
            Phase::Connecting | Phase::Handshaking => _ = self.fail(at, Failure::HandshakeClosed),
            Phase::Idle => {
                self.counts.closed_idle += 1;
                self.close(at);
            }
            Phase::Waiting(pending) => {
                if is_proper && let Some(answer) = slot.reader.close() {
                    self.finish(at, pending, answer);
                    self.counts.closed_idle += 1;
                    self.close(at);
                } else {
                    let begun = slot.reader.has_begun();
                    self.fail(at, if begun { Failure::Truncated } else { Failure::Closed });
                }
            }
        }
    }

    /// Reading, or writing what was left, failed.
    fn broken(&mut self, at: usize, broken: Broken) {
        let slot = &self.slots[at];
        match slot.connection.phase() {
            Phase::Down => {}
            Phase::Connecting | Phase::Handshaking => _ = self.fail(at, of_handshake(broken)),
            // A server that does not like what the client ended the handshake with says so only now (RFC 8446, 4.4.2.4).
            Phase::Idle if broken == Broken::Alert && !slot.connection.is_proven() => {
                self.fail(at, Failure::Handshake);
            }
            Phase::Idle => {
                // Nobody was waiting for anything.
                self.counts.closed_idle += 1;
                self.close(at);
            }
            Phase::Waiting(_) => {
                let failure = match broken {
                    Broken::Tls => Failure::Malformed,
                    Broken::Alert => Failure::Alert,
                    Broken::Socket if slot.reader.has_begun() => Failure::Truncated,
                    Broken::Socket => Failure::Reset,
                };
                self.fail(at, failure);
            }
        }
    }

    fn fail(&mut self, at: usize, failure: Failure) -> Stays {
        let now = self.clock.now();
        self.counts.fail(failure, self.moment(at, now));
        self.leave(at, now)
    }

    fn wrong(&mut self, at: usize, wrong: Wrong) {
        self.counts.wrong(wrong, self.moment(at, self.clock.now()));
    }

    /// To which moment something that happens now belongs: to when the request was due that it happens to.
    fn moment(&self, at: usize, now: Nanos) -> Nanos {
        match self.slots[at].connection.phase() {
            Phase::Waiting(pending) => pending.due,
            _ => now,
        }
    }

    fn close(&mut self, at: usize) -> Stays {
        self.leave(at, self.clock.now())
    }

    /// Drops the stream, which takes it out of the epoll set. Another one is opened in its place; or, if each request has one
    /// of its own, when the next request is due.
    fn leave(&mut self, at: usize, now: Nanos) -> Stays {
        let slot = &mut self.slots[at];
        slot.stream = None;
        if let Phase::Waiting(_) = slot.connection.phase() {
            self.waiting -= 1;
        }
        let again = slot.connection.close(now);
        if !self.plan.is_new_each || slot.connection.has_due(now, &self.schedule) {
            self.open_at(at, again);
        }
        Stays::Closed
    }

    /// Looks at limits, and takes the rate.
    fn tick(&mut self, now: Nanos) {
        // Limits are kept to within a twentieth.
        self.next_tick = now + TICK.min(Nanos((self.plan.timeout.0 / 20).max(1_000_000)));
        for at in 0..self.slots.len() {
            let connection = &self.slots[at].connection;
            if connection.is_expired(now) {
                let failure = match connection.phase() {
                    Phase::Connecting => Failure::ConnectTimeout,
                    Phase::Handshaking => Failure::HandshakeTimeout,
                    Phase::Down | Phase::Idle | Phase::Waiting(_) => Failure::AnswerTimeout,
                };
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
            // Whoever shows it and is slow misses one.
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

fn of_connecting(error: Errno) -> Failure {
    match error {
        Errno::CONNREFUSED => Failure::Refused,
        Errno::TIMEDOUT => Failure::ConnectTimeout,
        Errno::ADDRNOTAVAIL | Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => {
            Failure::Exhausted
        }
        _ => Failure::Unreachable,
    }
}

fn of_handshake(broken: Broken) -> Failure {
    match broken {
        Broken::Tls | Broken::Alert => Failure::Handshake,
        Broken::Socket => Failure::HandshakeClosed,
    }
}
