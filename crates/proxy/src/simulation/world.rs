//! Runs a schedule: the network, the pods, the clients, the control plane, and the gateway itself.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use sluicegate_model::feature::{Ejection, Retries, RetryConstraint};
use sluicegate_model::policy::Traffic;
use sluicegate_model::value::{Entries, Number, Span, Timeout};
use sluicegate_model::{
    Change, Conditions, Config, Endpoint, Health, HostPattern, ObjectId, PathPattern, Rule, Upstream,
    UpstreamKey, VirtualHost,
};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};

use super::check;
use super::client;
use super::history::{Attempted, Delivery, Departure, History, Move, Outcome, Publication};
use super::pod::Process;
use super::schedule::{Action, Body, End, IMPATIENT, Method, RETRYING, ROUTES, Request, Schedule, UPSTREAMS};
use crate::Drain;
use crate::Options;
use crate::Proxy;
use crate::listener::{Listener, Place, Protocol};
use crate::net::ListeningSocket;
use crate::net::simulated::{self, Reach, SeenEvent};
use crate::rule::Entrance;
use crate::runtime::{Start, serve};

/// The address of the gateway.
pub(super) const GATEWAY: ([u8; 4], u16) = ([10, 0, 0, 100], 80);
/// The buffer for the replay of a body.
pub(super) const REPLAY: usize = 1024;
/// How long the gateway waits for the head of a response.
pub(super) const RESPONSE: Duration = Duration::from_secs(2);
/// How long requests may continue at a removed endpoint.
pub(super) const DRAIN: Duration = Duration::from_secs(1);
/// The time limit of an attempt on the route [`IMPATIENT`].
pub(super) const PATIENCE: u64 = 300;
/// The grace, and the wait for idle connections, of a shutdown.
const GRACE: Duration = Duration::from_millis(300);
/// The longest delay of a worker that notices a change late.
pub(super) const LATE: u64 = 60;
/// The time in which the gateway finds out that every pod is healthy: the longest interval of probes, and a margin.
const RECOVERY: Duration = Duration::from_secs(9);

/// Everything around the gateway in one run.
pub(super) struct World {
    pub(super) schedule: Schedule,
    epoch: Instant,
    pub(super) pods: Vec<Rc<Process>>,
    history: RefCell<History>,
    /// What the API server says about each pod.
    conditions: RefCell<Vec<Option<Conditions>>>,
    /// The control plane learns the endpoints of an upstream at a time.
    watches: Vec<mpsc::UnboundedSender<(Instant, Vec<Endpoint>)>>,
    /// The endpoints that the control plane knows, and the upstreams of routes.
    known: RefCell<Vec<Vec<Endpoint>>>,
    routes: RefCell<[usize; ROUTES]>,
    gateways: RefCell<Vec<Rc<Gateway>>>,
    /// The listening sockets, one for each worker, until the last process has closed them.
    listeners: RefCell<Vec<simulated::Listener>>,
}

/// A process of the gateway.
struct Gateway {
    proxy: Proxy,
    /// The workers that have not ended.
    working: Cell<usize>,
    is_leaving: Cell<bool>,
}

impl Gateway {
    /// Returns once every worker has ended.
    async fn ended(&self) {
        while self.working.get() > 0 {
            sleep(Duration::from_millis(LATE)).await;
        }
    }
}

/// What a run found.
pub(super) struct Outcomes {
    pub(super) violations: Vec<String>,
    pub(super) log: Vec<String>,
    /// A hash of everything that happened.
    pub(super) fingerprint: u64,
    pub(super) attempts: usize,
    /// The longest time of a request, in milliseconds.
    pub(super) longest: u64,
}

/// Runs a schedule, with a trace if that is wanted.
pub(super) fn run(schedule: &Schedule, with_log: bool) -> Outcomes {
    fastrand::seed(schedule.seed);
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build_local(LocalOptions::default());
    let runtime = runtime.expect("a runtime");
    let outcomes = runtime.block_on(async {
        simulated::start(schedule.seed);
        let world = World::new(schedule.clone(), with_log);
        world.clone().run().await;
        world.conclude()
    });
    simulated::stop();
    drop(runtime);
    outcomes
}

impl World {
    fn new(schedule: Schedule, with_log: bool) -> Rc<Self> {
        spawn_local(simulated::run());
        let pods: Vec<_> =
            (0..).zip(&schedule.pods).map(|(n, pod)| Process::new(n, pod.clone()).into()).collect();
        let requests = schedule.requests().map(|request| request.id + 1).max().unwrap_or(0) + ROUTES;
        let history = History {
            results: vec![Vec::new(); requests],
            reach: vec![Vec::new(); pods.len()],
            silences: vec![Vec::new(); pods.len()],
            log: with_log.then(Vec::new),
            ..History::default()
        };
        simulated::set_host(GATEWAY.into(), Reach::Open, Duration::from_millis(1));
        let (watches, events): (Vec<_>, Vec<_>) = (0..UPSTREAMS).map(|_| mpsc::unbounded_channel()).unzip();
        let world = Rc::new(Self {
            epoch: Instant::now(),
            conditions: vec![None; pods.len()].into(),
            pods,
            history: history.into(),
            watches,
            known: vec![Vec::new(); UPSTREAMS].into(),
            routes: std::array::from_fn(|route| route % UPSTREAMS).into(),
            gateways: RefCell::default(),
            listeners: (0..schedule.workers)
                .map(|_| simulated::listen(GATEWAY.into()))
                .collect::<Vec<_>>()
                .into(),
            schedule,
        });
        for (upstream, events) in events.into_iter().enumerate() {
            spawn_local(world.clone().watch(upstream, events));
        }
        world
    }

    async fn run(self: Rc<Self>) {
        for pod in self.pods.iter().filter(|pod| pod.plan.starts) {
            pod.start(&self);
            self.conditions.borrow_mut()[pod.number] = Some(Conditions::READY);
        }
        for upstream in 0..UPSTREAMS {
            self.known.borrow_mut()[upstream] = self.endpoints(upstream);
        }
        let world = self.clone();
        let configured = Duration::from_millis(self.schedule.configured);
        spawn_local(async move {
            let gateway = world.start_gateway();
            sleep(configured).await;
            world.configure(vec![gateway]).await;
        });
        let mut clients = Vec::new();
        for _ in 0..self.schedule.clients().max(1) {
            let (sender, requests) = mpsc::unbounded_channel();
            clients.push((sender, spawn_local(client::run(self.clone(), requests))));
        }
        for step in self.schedule.steps.clone() {
            sleep_until(self.epoch + Duration::from_millis(step.at)).await;
            match step.action {
                // The receiver lives as long as the sender.
                Action::Request(request) => drop(clients[request.client].0.send(request)),
                action => self.act(action),
            }
        }
        for (sender, client) in clients {
            drop(sender);
            if let Err(error) = client.await {
                self.violate(&format!("the simulation itself failed: {error}"));
            }
        }
        self.settle_down().await;
        self.finish().await;
    }

    fn act(self: &Rc<Self>, action: Action) {
        self.log(|| format!("{action:?}"));
        match action {
            Action::Request(_) => {}
            Action::Start { pod, lag } => {
                // An address belongs to one pod.
                let address = self.pods[pod].address;
                for other in
                    self.pods.iter().filter(|other| other.address == address && other.is_running.get())
                {
                    other.end(self, End::Die);
                }
                self.pods[pod].start(self);
                self.state(pod, Some(Conditions::READY), lag);
            }
            Action::Ready { pod, ready, lag } => {
                let conditions = Conditions { ready, serving: ready, terminating: false };
                self.state(pod, Some(conditions), lag);
            }
            Action::Terminate { pod, lag, notice, end } => {
                self.state(pod, Some(Conditions::TERMINATING), lag);
                let world = self.clone();
                spawn_local(async move {
                    sleep(Duration::from_millis(notice)).await;
                    world.log(|| format!("pod {pod} ends: {end:?}"));
                    world.pods[pod].end(&world, end);
                    world.state(pod, None, lag);
                });
            }
            Action::Refuse { pod, refuses: true } => self.pods[pod].refuse(self),
            Action::Refuse { pod, refuses: false } => self.pods[pod].accept(self),
            Action::Silence { pod, silent } => {
                if self.pods[pod].is_running.get() {
                    self.pods[pod].silence(self, silent);
                }
            }
            Action::CloseIdle { pod, resets } => self.pods[pod].close_idle(resets),
            Action::Move { route, upstream } => {
                self.routes.borrow_mut()[route] = upstream;
                spawn_local(self.clone().configure(self.serving()));
            }
            Action::TakeOver => {
                let old = self.gateways.borrow().clone();
                let new = self.start_gateway();
                let world = self.clone();
                spawn_local(async move {
                    world.clone().configure(vec![new]).await;
                    for old in old {
                        old.proxy.end_grace();
                        spawn_local(world.clone().leave(old, true));
                    }
                });
            }
            Action::ShutDown => {
                for gateway in self.gateways.borrow().iter() {
                    spawn_local(self.clone().leave(gateway.clone(), false));
                }
            }
        }
    }

    /// The API server says this about a pod from now on.
    fn state(&self, pod: usize, conditions: Option<Conditions>, lag: u64) {
        self.conditions.borrow_mut()[pod] = conditions;
        let upstream = self.pods[pod].plan.upstream;
        let due = Instant::now() + Duration::from_millis(lag);
        // The receiver lives as long as the run.
        let _ = self.watches[upstream].send((due, self.endpoints(upstream)));
    }

    /// The endpoints of an upstream: the last pod of an address counts.
    fn endpoints(&self, upstream: usize) -> Vec<Endpoint> {
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for (pod, conditions) in self.pods.iter().zip(&*self.conditions.borrow()) {
            if let Some(conditions) = *conditions
                && pod.plan.upstream == upstream
            {
                endpoints.retain(|endpoint| endpoint.address != pod.address);
                endpoints.push(Endpoint { address: pod.address, conditions });
            }
        }
        endpoints
    }

    /// Publishes the endpoints of an upstream as the watch reports them, in order.
    async fn watch(
        self: Rc<Self>,
        upstream: usize,
        mut events: mpsc::UnboundedReceiver<(Instant, Vec<Endpoint>)>,
    ) {
        while let Some((due, endpoints)) = events.recv().await {
            sleep_until(due).await;
            self.known.borrow_mut()[upstream].clone_from(&endpoints);
            if !self.routes.borrow().contains(&upstream) || self.gateways.borrow().is_empty() {
                continue;
            }
            let publication = self.note_publication(upstream, Some(&endpoints));
            let gateways = self.serving();
            let world = self.clone();
            let change = Change::Endpoints { upstream: key(upstream), endpoints: endpoints.into() };
            let applied: Vec<_> =
                gateways.iter().map(|gateway| gateway.proxy.apply(change.clone())).collect();
            spawn_local(async move {
                world.all_applied(gateways, applied).await;
                let now = world.now();
                world.history.borrow_mut().publications[upstream][publication].applied = Some(now);
            });
        }
    }

    /// Publishes the configuration.
    async fn configure(self: Rc<Self>, gateways: Vec<Rc<Gateway>>) {
        let (known, routes) = (self.known.borrow().clone(), *self.routes.borrow());
        let now = self.now();
        let publications: Vec<_> = (0..UPSTREAMS)
            .map(|upstream| {
                let endpoints = routes.contains(&upstream).then_some(&known[upstream]);
                self.note_publication(upstream, endpoints)
            })
            .collect();
        let moves: Vec<_> = (0..ROUTES)
            .map(|route| {
                let moves = &mut self.history.borrow_mut().moves[route];
                moves.push(Move { at: now, applied: None, upstream: routes[route] });
                moves.len() - 1
            })
            .collect();
        let config = Arc::new(self.config(&known, &routes));
        self.log(|| format!("configuration: routes to {routes:?}"));
        let applied: Vec<_> =
            gateways.iter().map(|gateway| gateway.proxy.apply(Change::Config(config.clone()))).collect();
        for gateway in &gateways {
            let mut all = self.gateways.borrow_mut();
            if !all.iter().any(|known| Rc::ptr_eq(known, gateway)) {
                all.push(gateway.clone());
            }
        }
        self.all_applied(gateways, applied).await;
        let now = self.now();
        let mut history = self.history.borrow_mut();
        for (upstream, publication) in publications.into_iter().enumerate() {
            history.publications[upstream][publication].applied = Some(now);
        }
        for (route, number) in moves.into_iter().enumerate() {
            history.moves[route][number].applied = Some(now);
        }
    }

    /// Returns once every process serves a change, or has ended.
    async fn all_applied(
        &self,
        gateways: Vec<Rc<Gateway>>,
        applied: impl IntoIterator<Item = impl Future<Output = ()>>,
    ) {
        for (gateway, applied) in gateways.into_iter().zip(applied) {
            tokio::select! {
                biased;
                () = applied => {}
                () = gateway.ended() => {}
            }
        }
    }

    fn config(&self, known: &[Vec<Endpoint>], routes: &[usize; ROUTES]) -> Config {
        let mut config = Config::default();
        let timeouts = &mut config.settings.timeouts;
        (timeouts.response_head, timeouts.upstream_idle) = (RESPONSE, RESPONSE);
        timeouts.drain = DRAIN;
        timeouts.connect = Duration::from_millis(self.schedule.connect);
        config.settings.limits.replay = REPLAY;
        let rules = (0..ROUTES).map(|route| {
            let id = ObjectId { kind: "Ingress", namespace: "n".into(), name: format!("r{route}").into() };
            let path = PathPattern::Prefix(format!("/{route}").into());
            let mut rule = Rule::new(id.clone(), path, key(routes[route]));
            let mut policy = Traffic::new(id);
            match route {
                RETRYING => {
                    let codes = Entries::new(vec![Number::of(503)]).unwrap_or_default();
                    policy.features.retries = Some(Retries { codes, ..Retries::default() });
                    rule.traffic = Some(policy.into());
                }
                IMPATIENT => {
                    policy.features.timeouts.backend_request = Some(Timeout::of_millis(PATIENCE));
                    rule.traffic = Some(policy.into());
                }
                _ => {}
            }
            rule
        });
        config.hosts.push(Arc::new(VirtualHost::new(HostPattern::Any, rules.collect())));
        for upstream in (0..UPSTREAMS).filter(|upstream| routes.contains(upstream)) {
            let mut settings = Upstream { endpoints: known[upstream].clone().into(), ..Upstream::default() };
            settings.retry_constraint = self.schedule.retries.map(|retries| RetryConstraint {
                percent: Number::of(0),
                interval: Span::of_millis(3_600_000),
                min_retries: Number::of(retries.into()),
                min_interval: Span::of_millis(3_600_000),
            });
            settings.limits.max_requests_per_endpoint = self.schedule.limit;
            if self.schedule.ejects {
                let ejection = Ejection { time: Timeout::of_millis(300), ..Ejection::default() };
                settings.health = Some(Arc::new(Health { ejection: Some(ejection), check: None }));
            }
            config.upstreams.insert(key(upstream), Arc::new(settings));
        }
        config
    }

    /// Starts a process of the gateway, which waits for its configuration.
    fn start_gateway(self: &Rc<Self>) -> Rc<Gateway> {
        let options = Options { workers: self.schedule.workers, refused_requests: 0, ..Options::default() };
        let mut starts = Vec::new();
        let proxy = Proxy::start_with(options, |start| {
            starts.push(start);
            Ok(None)
        });
        let proxy = proxy.expect("a proxy without sockets");
        let gateway =
            Rc::new(Gateway { proxy, working: Cell::new(starts.len()), is_leaving: Cell::new(false) });
        for mut start in starts {
            let place = Place { address: GATEWAY.into(), is_udp: false };
            start.listeners.push(Listener {
                socket: ListeningSocket::Simulated(self.listeners.borrow()[start.id].clone()),
                place,
                protocol: Protocol::Http(Entrance::FlagHttp),
            });
            let (world, gateway) = (self.clone(), gateway.clone());
            spawn_local(async move {
                if let Err(error) = world.late(start).await {
                    world.violate(&format!("a worker failed: {error}"));
                }
                gateway.working.set(gateway.working.get() - 1);
            });
        }
        gateway
    }

    fn late(&self, start: Start) -> Late<impl Future<Output = io::Result<()>> + use<>> {
        let random = fastrand::Rng::with_seed(self.schedule.seed ^ start.id as u64);
        let worker = Box::pin(serve(start));
        Late { worker, percent: self.schedule.late_percent, random, pause: None }
    }

    fn serving(&self) -> Vec<Rc<Gateway>> {
        self.gateways.borrow().iter().filter(|gateway| gateway.working.get() > 0).cloned().collect()
    }

    /// A process of the gateway shuts down.
    async fn leave(self: Rc<Self>, gateway: Rc<Gateway>, has_successor: bool) {
        if gateway.is_leaving.replace(true) {
            return;
        }
        let grace = if has_successor { 0 } else { GRACE.as_millis() as u64 };
        let at = self.now() + grace;
        let departure = Departure { announced: self.now(), at, has_successor };
        self.history.borrow_mut().departures.push(departure);
        if !has_successor {
            let world = self.clone();
            spawn_local(async move {
                sleep(GRACE).await;
                world.listeners.borrow_mut().clear();
            });
        }
        let drain = Drain { grace: GRACE, idle: GRACE, timeout: Duration::from_secs(30) };
        gateway.proxy.drain(drain).await;
        self.log(|| "a gateway has drained".to_owned());
        if timeout(Duration::from_secs(1), gateway.ended()).await.is_err() {
            self.violate("Z10: a worker does not end after its shutdown");
        }
    }

    /// Every pod that runs serves well again, and the gateway has time to notice.
    async fn settle_down(self: &Rc<Self>) {
        self.log(|| "the network and the pods recover".to_owned());
        for pod in self.pods.iter().filter(|pod| pod.is_running.get()) {
            pod.is_healed.set(true);
            if pod.is_silent.get() {
                pod.silence(self, false);
            }
            if !pod.is_accepting() {
                pod.accept(self);
            }
        }
        sleep(RECOVERY).await;
        if self.history.borrow().departures.iter().any(|departure| !departure.has_successor) {
            return;
        }
        let serving: Vec<_> =
            self.serving().into_iter().filter(|gateway| !gateway.is_leaving.get()).collect();
        for gateway in &serving {
            check::recovered(self, &gateway.proxy);
        }
        let first = self.history.borrow().results.len() - ROUTES;
        for route in 0..ROUTES {
            let (sender, requests) = mpsc::unbounded_channel();
            let id = first + route;
            let request = Request {
                id,
                client: route,
                method: Method::Post,
                body: Body::Length(10),
                route,
                fresh: true,
                abort: None,
            };
            let _ = sender.send(request);
            drop(sender);
            client::run(self.clone(), requests).await;
            check::last_request(self, route, self.routes.borrow()[route], id);
        }
    }

    /// Ends everything, and looks at what remains.
    async fn finish(self: &Rc<Self>) {
        // The last connections of the clients and to ended pods close.
        sleep(Duration::from_millis(LATE)).await;
        let gateways = self.gateways.borrow().clone();
        if self.history.borrow().departures.is_empty() {
            // The connections of a process that has ended stay open here, because its tasks do not end.
            check::idle_connections(self, self.serving().iter().map(|gateway| &gateway.proxy));
        }
        for gateway in gateways {
            check::at_rest(self, &gateway.proxy);
            if !gateway.is_leaving.replace(true) {
                gateway.proxy.drain(Drain::AT_ONCE).await;
            }
            sleep(Duration::from_millis(10 * LATE)).await;
            if gateway.working.get() > 0 {
                self.violate("Z10: a worker does not end after its shutdown");
            }
            check::ended(self, &gateway.proxy);
        }
    }

    fn conclude(&self) -> Outcomes {
        let mut history = self.history.borrow_mut();
        history.seen = simulated::take_seen();
        let seen = history.seen.iter().map(|seen| {
            let millis = seen.at.as_millis();
            match &seen.event {
                SeenEvent::Connect => (millis, format!("{millis:>6} ms connect to {}", seen.to)),
                SeenEvent::Request { connection, target, is_dead } => {
                    let dead = if *is_dead { ", which the peer has closed" } else { "" };
                    let line =
                        format!("{millis:>6} ms {target} to {} on connection {connection}{dead}", seen.to);
                    (millis, line)
                }
            }
        });
        let mut applied = Vec::new();
        for (upstream, publications) in history.publications.iter().enumerate() {
            for (nth, publication) in publications.iter().enumerate() {
                if let Some(millis) = publication.applied {
                    let line = format!(
                        "{millis:>6} ms every worker serves publication {nth} of upstream {upstream}"
                    );
                    applied.push((millis.into(), line));
                }
            }
        }
        let mut log: Vec<_> = history.log.iter().flatten().cloned().chain(applied).chain(seen).collect();
        log.sort_by_key(|(millis, _)| *millis);
        check::history(self, &mut history);
        Outcomes {
            violations: std::mem::take(&mut history.violations),
            log: log.into_iter().map(|(_, line)| line).collect(),
            fingerprint: check::fingerprint(&history),
            attempts: history.deliveries.len(),
            longest: history
                .results
                .iter()
                .flatten()
                .map(|result| result.end - result.start)
                .max()
                .unwrap_or(0),
        }
    }

    /// Milliseconds since the start.
    pub(super) fn now(&self) -> u64 {
        self.epoch.elapsed().as_millis() as u64
    }

    pub(super) fn request(&self, id: usize) -> Option<&Request> {
        self.schedule.requests().find(|request| request.id == id)
    }

    /// Whether a fact of the schedule holds, by a percentage.
    pub(super) fn chance(&self, of: u64, percent: u8) -> bool {
        fastrand::Rng::with_seed(self.schedule.seed ^ of << 32).u8(..100) < percent
    }

    pub(super) fn log(&self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.history.borrow_mut().log {
            let millis = self.epoch.elapsed().as_millis();
            log.push((millis, format!("{millis:>6} ms {}", line())));
        }
    }

    pub(super) fn violate(&self, violation: &str) {
        self.log(|| format!("VIOLATION {violation}"));
        self.history.borrow_mut().violations.push(violation.to_owned());
    }

    pub(super) fn note_reach(&self, pod: &Process, is_open: bool) {
        let now = self.now();
        self.history.borrow_mut().reach[pod.number].push((now, is_open));
    }

    pub(super) fn note_silence(&self, pod: &Process, is_silent: bool) {
        let now = self.now();
        self.history.borrow_mut().silences[pod.number].push((now, is_silent));
    }

    pub(super) fn deliver(&self, delivery: Delivery) -> usize {
        let deliveries = &mut self.history.borrow_mut().deliveries;
        deliveries.push(delivery);
        deliveries.len() - 1
    }

    pub(super) fn settle(&self, delivery: usize, outcome: Outcome) {
        let settled = self.now();
        let delivery = &mut self.history.borrow_mut().deliveries[delivery];
        (delivery.outcome, delivery.settled) = (outcome, settled);
    }

    pub(super) fn receive(&self, id: usize, attempted: Attempted) {
        self.history.borrow_mut().results[id].push(attempted);
    }

    /// Whether a process of the gateway closes idle connections at this time.
    pub(super) fn closes_idle(&self, at: u64) -> bool {
        self.history.borrow().departures.iter().any(|departure| departure.has_successor && at >= departure.at)
    }

    pub(super) fn last_result(&self, id: usize) -> Option<Attempted> {
        self.history.borrow().results[id].last().cloned()
    }

    pub(super) fn known(&self, upstream: usize) -> Vec<SocketAddr> {
        let known = &self.known.borrow()[upstream];
        known.iter().map(|endpoint| endpoint.address).collect()
    }

    /// Whether an endpoint of the upstream can serve, as the control plane knows.
    pub(super) fn has_eligible(&self, upstream: usize) -> bool {
        self.known.borrow()[upstream]
            .iter()
            .any(|endpoint| endpoint.conditions.ready || endpoint.conditions.serving)
    }

    fn note_publication(&self, upstream: usize, endpoints: Option<&Vec<Endpoint>>) -> usize {
        let endpoints = endpoints.map(|endpoints| {
            endpoints.iter().map(|endpoint| (endpoint.address, endpoint.conditions)).collect::<Vec<_>>()
        });
        self.log(|| format!("publication for upstream {upstream}: {endpoints:?}"));
        let now = self.now();
        let publications = &mut self.history.borrow_mut().publications[upstream];
        publications.push(Publication { at: now, applied: None, endpoints });
        publications.len() - 1
    }
}

pub(super) fn key(upstream: usize) -> UpstreamKey {
    UpstreamKey::new("n", format!("s{upstream}"), "80")
}

/// The mailbox of a worker that sometimes notices a change late, as a busy worker does.
struct Late<F> {
    worker: Pin<Box<F>>,
    percent: u8,
    random: fastrand::Rng,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Future for Late<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if self.pause.is_none() && self.random.u8(..100) < self.percent {
            let pause = Duration::from_millis(self.random.u64(1..=LATE));
            self.pause = Some(Box::pin(sleep(pause)));
        }
        if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.pause = None;
        }
        self.worker.as_mut().poll(cx)
    }
}
