//! The orders in progress.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::account::{Registered, register};
use crate::client::{Exchange, Failure, FailureKind};
use crate::order::{Orders, Outcome};
use crate::schedule::{Failures, RATE_LIMITED, due, pause};
use crate::{Faults, Issued, Link, Options, SecretName, Secrets, State, Wish};

/// The longest sleep: the clock of the machine may jump.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// The longest pause after failures of the ACME server itself.
const SERVER_PAUSE_MAX: Duration = Duration::from_secs(900);

/// The longest wait for a stored certificate to appear in the configuration. Later, the configuration is right.
const APPEARS_MAX: Duration = Duration::from_secs(60);

/// The time between two questions for renewal information, if the server names none (RFC 9773, 4.3.2), and its limits.
const WINDOW_INTERVAL: Duration = Duration::from_secs(6 * 3600);
const WINDOW_INTERVALS: Range<Duration> = Duration::from_secs(600)..Duration::from_secs(24 * 3600);

/// Orders the certificates that a [`Link`] asks for, and stores them.
pub struct Worker<S> {
    orders: Arc<Orders<S>>,
    exchange: Arc<Exchange>,
}

impl<S: Secrets> Worker<S> {
    /// A worker with this store. `exchange` sends requests to the ACME server.
    #[must_use]
    pub fn new(options: Options, secrets: Arc<S>, exchange: Arc<Exchange>, link: Link) -> Self {
        Self { orders: Arc::new(Orders::new(options, secrets, link)), exchange }
    }

    /// Works while `leads` is true, until the future is dropped.
    pub async fn run(self, mut leads: watch::Receiver<bool>) {
        loop {
            until(&mut leads, true).await;
            tokio::select! {
                () = self.lead() => {}
                () = until(&mut leads, false) => {}
            }
            // The process that leads now has its own faults.
            self.orders.link.set_faults(Faults::default());
        }
    }

    /// Orders without an end. A dropped future cancels all orders.
    async fn lead(&self) {
        let mut wanted = self.orders.link.wanted();
        let mut term = Term::new(self);
        loop {
            let state = wanted.borrow_and_update().clone();
            let next = term.step(&state, SystemTime::now());
            self.orders.link.set_faults(term.faults(&state));
            let rest = next.duration_since(SystemTime::now()).unwrap_or_default().min(SLEEP_MAX);
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() { pending::<()>().await },
                Some(done) = term.tasks.join_next() => match done {
                    Ok(done) => term.take(done, SystemTime::now()),
                    Err(_) => term.recover(SystemTime::now()),
                },
                () = sleep(rest) => {}
            }
        }
    }
}

/// Waits until the state is `wanted`; for ever, if the sender is gone.
async fn until(state: &mut watch::Receiver<bool>, wanted: bool) {
    if state.wait_for(|state| *state == wanted).await.is_err() {
        pending::<()>().await;
    }
}

/// The time in which a process leads.
struct Term<'w, S> {
    worker: &'w Worker<S>,
    account: AccountState,
    /// The failures of the ACME server since its last success.
    server_failures: u32,
    server_fault: Option<Box<str>>,
    failures: Failures,
    faults: BTreeMap<SecretName, Box<str>>,
    /// The hosts of orders in progress.
    running: BTreeMap<SecretName, Vec<Box<str>>>,
    /// The certificates that are stored, but may not be in the configuration yet.
    stored: BTreeMap<SecretName, (Issued, SystemTime)>,
    windows: BTreeMap<SecretName, Window>,
    tasks: JoinSet<Done>,
}

enum AccountState {
    /// The time of the next attempt.
    Missing(SystemTime),
    Asked,
    Ready(Registered),
}

/// The suggested time of a renewal.
struct Window {
    of: Issued,
    range: Option<Range<SystemTime>>,
    /// The time of the next question; `None` while a question is in progress.
    ask: Option<SystemTime>,
}

/// The end of a task.
enum Done {
    Account(Result<Registered, Failure>),
    Order(Wish, Result<Outcome, Failure>),
    Window(SecretName, Option<(Range<SystemTime>, Duration)>),
}

impl<'w, S: Secrets> Term<'w, S> {
    fn new(worker: &'w Worker<S>) -> Self {
        Self {
            worker,
            account: AccountState::Missing(SystemTime::UNIX_EPOCH),
            server_failures: 0,
            server_fault: None,
            failures: Failures::default(),
            faults: BTreeMap::new(),
            running: BTreeMap::new(),
            stored: BTreeMap::new(),
            windows: BTreeMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Starts what is due. Returns the time of the next step.
    fn step(&mut self, state: &State, now: SystemTime) -> SystemTime {
        self.failures.forget(now);
        let names: BTreeSet<&SecretName> = state.wishes.iter().map(|wish| &wish.secret).collect();
        self.faults.retain(|name, _| names.contains(name));
        self.windows.retain(|name, _| names.contains(name));
        self.stored.retain(|_, (_, until)| *until > now);
        let mut next = now + SLEEP_MAX;
        if state.wishes.is_empty() {
            self.server_fault = None;
            return next;
        }
        match &self.account {
            AccountState::Missing(at) if *at <= now => {
                self.account = AccountState::Asked;
                let (orders, exchange) = (self.worker.orders.clone(), self.worker.exchange.clone());
                self.tasks.spawn(async move {
                    let registered = async {
                        orders.reset_challenges().await?;
                        register(&orders.options, &*orders.secrets, &exchange).await
                    };
                    Done::Account(registered.await)
                });
                next
            }
            AccountState::Missing(at) => *at,
            AccountState::Asked => next,
            AccountState::Ready(registered) => {
                let registered = registered.clone();
                for wish in &state.wishes {
                    let wish = self.with_stored(wish);
                    let at = self.start(&registered, &wish, now);
                    next = next.min(at);
                }
                next
            }
        }
    }

    /// The wish with the certificate that is stored but not in the configuration yet.
    fn with_stored(&self, wish: &Wish) -> Wish {
        let stored = self.stored.get(&wish.secret).map(|(issued, _)| issued);
        let known = wish.current.as_ref().map(|issued| issued.not_before);
        match stored.filter(|stored| known.is_none_or(|known| known < stored.not_before)) {
            Some(stored) => Wish { current: Some(stored.clone()), ..wish.clone() },
            None => wish.clone(),
        }
    }

    /// Starts an order or a question for a window, if one is due. Returns the time of the next step.
    fn start(&mut self, registered: &Registered, wish: &Wish, now: SystemTime) -> SystemTime {
        // The end of a task leads to the next step.
        let later = now + SLEEP_MAX;
        let has_room = self.tasks.len() < self.worker.orders.options.orders.get();
        let mut next = later;
        if let Some(current) = &wish.current {
            let is_other = self.windows.get(&wish.secret).is_none_or(|window| window.of != *current);
            if is_other {
                let window = Window { of: current.clone(), range: None, ask: Some(now) };
                self.windows.insert(wish.secret.clone(), window);
            }
            if let Some(window) = self.windows.get_mut(&wish.secret)
                && let Some(ask) = window.ask
            {
                if ask <= now && has_room {
                    window.ask = None;
                    self.tasks.spawn(ask_window(registered.clone(), wish.secret.clone(), current.clone()));
                } else if ask > now {
                    next = next.min(ask);
                }
            }
        }
        let window = self.windows.get(&wish.secret).and_then(|window| window.range.as_ref());
        let at = due(wish, window).max(self.failures.until(&wish.hosts));
        if at > now {
            return next.min(at);
        }
        let is_busy = |hosts: &Vec<Box<str>>| hosts.iter().any(|host| wish.hosts.contains(host));
        let has_room = self.tasks.len() < self.worker.orders.options.orders.get();
        if !has_room || self.running.contains_key(&wish.secret) || self.running.values().any(is_busy) {
            return next;
        }
        self.running.insert(wish.secret.clone(), wish.hosts.clone());
        let (orders, registered, wish) = (self.worker.orders.clone(), registered.clone(), wish.clone());
        let replaces = window.is_some();
        self.tasks.spawn(async move {
            let result = orders.order(&registered, &wish, replaces).await;
            Done::Order(wish, result)
        });
        next
    }

    /// Continues after a panic of a task, which is in the log.
    fn recover(&mut self, now: SystemTime) {
        self.running.clear();
        self.fail_server("a task of the gateway ended unexpectedly: see the log".to_owned(), now);
    }

    /// Takes the end of a task.
    fn take(&mut self, done: Done, now: SystemTime) {
        match done {
            Done::Account(Ok(registered)) => {
                self.server_fault = None;
                self.account = AccountState::Ready(registered);
            }
            Done::Account(Err(failure)) => self.fail_server(failure.message, now),
            Done::Window(secret, answer) => {
                if let Some(window) = self.windows.get_mut(&secret) {
                    let interval = answer.as_ref().map_or(WINDOW_INTERVAL, |(_, interval)| *interval);
                    window.ask = Some(now + interval.clamp(WINDOW_INTERVALS.start, WINDOW_INTERVALS.end));
                    window.range = answer.map(|(range, _)| range).or(window.range.take());
                }
            }
            Done::Order(wish, result) => {
                self.running.remove(&wish.secret);
                match result {
                    Ok(outcome) => self.succeed(&wish, outcome, now),
                    Err(failure) => self.fail(&wish, failure, now),
                }
            }
        }
    }

    fn succeed(&mut self, wish: &Wish, outcome: Outcome, now: SystemTime) {
        self.failures.succeed(&wish.hosts);
        self.faults.remove(&wish.secret);
        self.server_failures = 0;
        let issued = match outcome {
            Outcome::Fresh(issued) => issued,
            Outcome::New(issued) => {
                self.worker.orders.link.count(true);
                tracing::info!(secret = %wish.secret, hosts = wish.hosts.join(", "), "stored a certificate of the ACME server");
                issued
            }
        };
        self.stored.insert(wish.secret.clone(), (issued, now + APPEARS_MAX));
    }

    fn fail(&mut self, wish: &Wish, failure: Failure, now: SystemTime) {
        self.worker.orders.link.count(false);
        let first = self.worker.orders.options.retry;
        let Failure { kind, message } = failure;
        let next = match kind {
            FailureKind::RateLimit => {
                self.failures.fail(&wish.hosts, first, RATE_LIMITED..Duration::MAX, now)
            }
            FailureKind::Order => self.failures.fail(&wish.hosts, first, Duration::ZERO..Duration::MAX, now),
            FailureKind::Server | FailureKind::NoAccount => {
                let next = self.failures.fail(&wish.hosts, first, Duration::ZERO..SERVER_PAUSE_MAX, now);
                // Other orders in progress may have noticed the same.
                if matches!(self.account, AccountState::Ready(_)) {
                    self.fail_server(message.clone(), now);
                }
                next
            }
        };
        let seconds = next.duration_since(now).unwrap_or_default().as_secs();
        let hosts = wish.hosts.join(", ");
        tracing::warn!(secret = %wish.secret, hosts, "the ACME order failed; the next attempt is in {seconds} s: {message}");
        self.faults.insert(wish.secret.clone(), message.into());
    }

    /// Pauses all orders.
    fn fail_server(&mut self, message: String, now: SystemTime) {
        let pause = pause(self.server_failures, self.worker.orders.options.retry).min(SERVER_PAUSE_MAX);
        self.server_failures = self.server_failures.saturating_add(1);
        tracing::warn!(
            "no certificate can be ordered; the next attempt is in {} s: {message}",
            pause.as_secs()
        );
        self.server_fault = Some(message.into());
        self.account = AccountState::Missing(now + pause);
    }

    fn faults(&self, state: &State) -> Faults {
        let is_wanted = |name: &SecretName| state.wishes.iter().any(|wish| wish.secret == *name);
        let orders = self.faults.iter().filter(|(name, _)| is_wanted(name));
        Faults {
            account: self.server_fault.clone(),
            orders: orders.map(|(name, fault)| (name.clone(), fault.clone())).collect(),
        }
    }
}

/// Asks the ACME server for the best time of a renewal (RFC 9773).
async fn ask_window(registered: Registered, secret: SecretName, current: Issued) -> Done {
    let asked = async {
        let (info, interval) = registered.account.renewal_info(&current.identifier()?).await.ok()?;
        let window = info.suggested_window;
        Some((SystemTime::from(window.start)..SystemTime::from(window.end), interval))
    };
    Done::Window(secret, asked.await)
}
