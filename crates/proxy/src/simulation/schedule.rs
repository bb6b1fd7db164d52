//! A schedule: what clients, endpoints and the control plane do, and when.

use std::fmt;

use fastrand::Rng;

/// Upstreams, and routes: the path of route 1 begins with `/1/`.
pub(super) const UPSTREAMS: usize = 2;
pub(super) const ROUTES: usize = 3;
/// The route with [`POLICY_CODE`] among the retried status codes.
pub(super) const RETRYING: usize = 1;
/// The route with a timeout for each attempt.
pub(super) const IMPATIENT: usize = 2;
/// Steps happen within this many milliseconds.
const LENGTH: u64 = 2500;

/// A schedule, which a seed determines.
#[derive(Clone)]
pub(super) struct Schedule {
    pub(super) seed: u64,
    pub(super) workers: usize,
    /// When the control plane publishes the first configuration, in milliseconds.
    pub(super) configured: u64,
    /// The percentage of changes that a worker notices late.
    pub(super) late_percent: u8,
    /// The retries that the retry constraint of the upstreams allows in total.
    pub(super) retries: Option<u32>,
    /// The limit of requests in flight at each endpoint.
    pub(super) limit: Option<u32>,
    /// Whether consecutive errors eject an endpoint.
    pub(super) ejects: bool,
    /// The time limit of a connect, in milliseconds: shorter or longer than the wait for a response.
    pub(super) connect: u64,
    pub(super) pods: Vec<Pod>,
    /// In order of time.
    pub(super) steps: Vec<Step>,
}

/// An endpoint with its process.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) upstream: usize,
    /// The number of its address: two pods may have the same address, one after the other.
    pub(super) host: usize,
    pub(super) latency: u64,
    /// Whether it is ready from the start.
    pub(super) starts: bool,
    /// The percentage of requests that it treats badly.
    pub(super) bad_percent: u8,
    /// The `Keep-Alive: timeout` that it announces and obeys, in seconds.
    pub(super) keep_alive: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    /// In milliseconds.
    pub(super) at: u64,
    pub(super) action: Action,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    Request(Request),
    /// The pod is created and ready. The control plane publishes this after `lag` milliseconds, here and below.
    Start {
        pod: usize,
        lag: u64,
    },
    /// The readiness of the pod changes. It serves on.
    Ready {
        pod: usize,
        ready: bool,
        lag: u64,
    },
    /// The pod terminates. Its process serves for `notice` milliseconds more.
    Terminate {
        pod: usize,
        lag: u64,
        notice: u64,
        end: End,
    },
    /// The process closes its socket, or accepts connections again, and the control plane does not know.
    Refuse {
        pod: usize,
        refuses: bool,
    },
    /// The network delivers nothing to the host, or delivers again.
    Silence {
        pod: usize,
        silent: bool,
    },
    /// The process closes its idle connections.
    CloseIdle {
        pod: usize,
        resets: bool,
    },
    /// The control plane moves a route to an upstream.
    Move {
        route: usize,
        upstream: usize,
    },
    /// A new process takes over the listening sockets.
    TakeOver,
    /// The gateway shuts down.
    ShutDown,
}

/// How a pod's process ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The process finishes its requests, and its address refuses connects.
    Finish,
    /// The process dies with its requests, and its address refuses connects.
    Die,
    /// The process dies with its requests, and the network delivers nothing to its address.
    Vanish,
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) id: usize,
    pub(super) client: usize,
    pub(super) method: Method,
    pub(super) body: Body,
    pub(super) route: usize,
    /// Whether the client uses a new connection.
    pub(super) fresh: bool,
    /// After how many milliseconds the client closes the connection.
    pub(super) abort: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Put,
    Post,
}

impl Method {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Post => "POST",
        }
    }

    pub(super) fn is_idempotent(self) -> bool {
        self != Self::Post
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    None,
    Length(usize),
    Chunked(usize),
}

impl Body {
    pub(super) fn length(self) -> usize {
        match self {
            Self::None => 0,
            Self::Length(length) | Self::Chunked(length) => length,
        }
    }

    /// Whether the gateway may have to forget the first bytes of the body.
    pub(super) fn may_exceed_replay(self) -> bool {
        self.length() > super::world::REPLAY
    }
}

fn choose<T: Copy>(random: &mut Rng, choices: &[T]) -> T {
    choices[random.usize(..choices.len())]
}

fn chance(random: &mut Rng, percent: u8) -> bool {
    random.u8(..100) < percent
}

impl Schedule {
    pub(super) fn new(seed: u64) -> Self {
        let random = &mut Rng::with_seed(seed);
        let mut pods = Vec::new();
        let is_calm = chance(random, 20);
        for upstream in 0..UPSTREAMS {
            for host in 0..random.usize(1..=4) {
                let bad_percent = match is_calm {
                    true => 0,
                    false => choose(random, &[0, 0, 10, 40]),
                };
                pods.push(Pod {
                    upstream,
                    host,
                    latency: choose(random, &[0, 0, 1, 1, 3, 15]),
                    starts: host == 0 || chance(random, 60),
                    bad_percent,
                    keep_alive: chance(random, 15).then_some(2),
                });
            }
        }
        let mut schedule = Self {
            seed,
            workers: random.usize(1..=3),
            configured: choose(random, &[0, 0, 0, 40]),
            late_percent: choose(random, &[0, 10, 50]),
            retries: chance(random, 10).then(|| random.u32(..3)),
            limit: chance(random, 10).then(|| random.u32(1..4)),
            ejects: chance(random, 20),
            connect: choose(random, &[1000, 3000]),
            pods,
            steps: Vec::new(),
        };
        schedule.add_changes(random);
        schedule.add_requests(random);
        schedule.steps.sort_by_key(|step| step.at);
        schedule
    }

    fn push(&mut self, at: u64, action: Action) {
        self.steps.push(Step { at, action });
    }

    fn add_changes(&mut self, random: &mut Rng) {
        // In many schedules the first pod of an upstream stays undisturbed, so that every request can be served.
        let stable = chance(random, 60);
        for pod in 0..self.pods.len() {
            let Pod { host, starts, .. } = self.pods[pod];
            if stable && host == 0 {
                continue;
            }
            let mut at = 0;
            if !starts {
                at = random.u64(1..1500);
                self.push(at, Action::Start { pod, lag: lag(random) });
            }
            for _ in 0..random.usize(..3) {
                at += random.u64(1..700);
                let until = at + random.u64(1..700);
                match random.u8(..10) {
                    0..3 => self.terminate(random, pod, at),
                    3 => {
                        self.push(at, Action::Ready { pod, ready: false, lag: lag(random) });
                        self.push(until, Action::Ready { pod, ready: true, lag: lag(random) });
                    }
                    4..6 => {
                        self.push(at, Action::Refuse { pod, refuses: true });
                        self.push(until, Action::Refuse { pod, refuses: false });
                    }
                    6..8 => {
                        self.push(at, Action::Silence { pod, silent: true });
                        self.push(until, Action::Silence { pod, silent: false });
                    }
                    _ => self.push(at, Action::CloseIdle { pod, resets: random.bool() }),
                }
                if matches!(
                    self.steps.last(),
                    Some(Step { action: Action::Start { .. } | Action::Terminate { .. }, .. })
                ) {
                    break;
                }
                at = until;
            }
        }
        for _ in 0..choose(random, &[0, 0, 1, 3]) {
            let (route, upstream) = (random.usize(..ROUTES), random.usize(..UPSTREAMS));
            self.push(random.u64(..LENGTH), Action::Move { route, upstream });
        }
        match random.u8(..10) {
            0 => self.push(random.u64(200..LENGTH), Action::TakeOver),
            1 => self.push(random.u64(200..LENGTH), Action::ShutDown),
            _ => {}
        }
    }

    /// The pod terminates, and in some schedules another pod receives its address.
    fn terminate(&mut self, random: &mut Rng, pod: usize, at: u64) {
        let notice = choose(random, &[0, 0, 20, 400]);
        let end = choose(random, &[End::Finish, End::Finish, End::Die, End::Vanish]);
        self.push(at, Action::Terminate { pod, lag: lag(random), notice, end });
        if chance(random, 40) {
            let successor = Pod { starts: false, ..self.pods[pod].clone() };
            self.pods.push(successor);
            let at = at + notice + random.u64(30..800);
            self.push(at, Action::Start { pod: self.pods.len() - 1, lag: lag(random) });
        }
    }

    fn add_requests(&mut self, random: &mut Rng) {
        let clients = random.usize(1..=4);
        let mut id = 0;
        for client in 0..clients {
            let mut at = random.u64(..50);
            let pause = choose(random, &[20, 100, 400]);
            for _ in 0..random.usize(1..=10) {
                at += random.u64(..pause);
                let method = choose(random, &[Method::Get, Method::Get, Method::Put, Method::Post]);
                let body = match method {
                    Method::Get => Body::None,
                    _ => match random.u8(..12) {
                        0 => Body::Length(30_000),
                        1..4 => Body::Chunked(random.usize(1..300)),
                        _ => Body::Length(random.usize(..300)),
                    },
                };
                let route = random.usize(..ROUTES);
                let fresh = chance(random, 20);
                let abort = chance(random, 5).then(|| random.u64(..200));
                self.push(at, Action::Request(Request { id, client, method, body, route, fresh, abort }));
                id += 1;
            }
        }
    }

    /// The number of clients.
    pub(super) fn clients(&self) -> usize {
        self.requests().map(|request| request.client + 1).max().unwrap_or(0)
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.steps.iter().filter_map(|step| match &step.action {
            Action::Request(request) => Some(request),
            _ => None,
        })
    }

    /// The smallest schedule with the same failure that leaving out steps finds.
    pub(super) fn shrink(mut self, fails: impl Fn(&Self) -> bool) -> Self {
        let mut size = self.steps.len();
        while size > 0 {
            let mut start = 0;
            while start < self.steps.len() {
                let mut smaller = self.clone();
                smaller.steps.drain(start..(start + size).min(self.steps.len()));
                match fails(&smaller) {
                    true => self = smaller,
                    false => start += size,
                }
            }
            size /= 2;
        }
        self
    }
}

/// How long the control plane takes: a watch event, or an outage of the API server.
fn lag(random: &mut Rng) -> u64 {
    match random.u8(..10) {
        0 => 1200,
        1..4 => random.u64(..200),
        _ => random.u64(..10),
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, workers, configured, late_percent, retries, limit, ejects, connect, pods, steps } =
            self;
        writeln!(
            f,
            "seed {seed}: {workers} workers, configured at {configured} ms, {late_percent} % late, retries {retries:?}, limit {limit:?}, ejects {ejects}, connect {connect} ms"
        )?;
        for (number, pod) in pods.iter().enumerate() {
            writeln!(f, "pod {number}: {pod:?}")?;
        }
        steps.iter().try_for_each(|step| writeln!(f, "{:>6} ms {:?}", step.at, step.action))
    }
}
