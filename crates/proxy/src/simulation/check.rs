//! The invariants. Each violation names its rule of the zero-loss contract (ARCHITECTURE.md).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, SocketAddr};

use sluicegate_model::Conditions;

use super::history::{Attempted, Delivery, Departure, History, Outcome, Publication, Received};
use super::schedule::{IMPATIENT, Request, UPSTREAMS};
use super::world::{DRAIN, LATE, PATIENCE, World, key};
use crate::Proxy;
use crate::net::simulated::SeenEvent;

/// The largest number of attempts of a request.
const ATTEMPTS: usize = 3;
/// A connect to a pod with this latency, in milliseconds, ends before a hedged connect starts.
const NEAR: u64 = 1;
/// The longest time until a request is sent to an endpoint, if one accepts connections: hedged connects to three silent
/// endpoints, and a margin for distant endpoints.
const CONNECTING: u64 = 3 * 50 + 100;
/// A gateway that closes its listeners may lose connects of this many milliseconds before.
const LAST_CONNECTS: u64 = 50;
/// The margin of the gateway before an endpoint's own keep-alive timeout, and the longest latency.
const KEEP_ALIVE_MARGIN: u64 = 1000;
const LATENCY: u64 = 20;

/// A request that was written to a connection.
struct Attempt {
    at: u64,
    to: SocketAddr,
    connection: u64,
    /// Whether another request was written to the connection before.
    is_reused: bool,
    is_dead: bool,
    /// What the endpoint did, and when. `None` if no endpoint received it.
    outcome: Option<(Outcome, u64)>,
}

/// Checks the whole history of a run.
pub(super) fn history(world: &World, history: &mut History) {
    let attempts = attempts(history);
    let mut checker = Checker { world, history, attempts, found: Vec::new() };
    for request in world.schedule.requests() {
        checker.request(request);
    }
    checker.publications();
    checker.unhealthy_endpoints();
    checker.retry_budget();
    let found = checker.found;
    for violation in found {
        history.violations.push(violation);
    }
}

/// The attempts by the ID of the request.
fn attempts(history: &History) -> BTreeMap<usize, Vec<Attempt>> {
    let outcomes: BTreeMap<(u64, usize), &Delivery> =
        history.deliveries.iter().map(|delivery| ((delivery.connection, delivery.id), delivery)).collect();
    let (mut attempts, mut used) = (BTreeMap::<_, Vec<_>>::new(), BTreeSet::new());
    for seen in &history.seen {
        let SeenEvent::Request { connection, target, is_dead } = &seen.event else { continue };
        if upstream_of(seen.to).is_none() {
            continue;
        }
        let Some(id) = super::wire::id_of(target) else { continue };
        attempts.entry(id).or_default().push(Attempt {
            at: seen.at.as_millis() as u64,
            to: seen.to,
            connection: *connection,
            is_reused: !used.insert(*connection),
            is_dead: *is_dead,
            outcome: outcomes.get(&(*connection, id)).map(|delivery| (delivery.outcome, delivery.settled)),
        });
    }
    attempts
}

/// The upstream of an endpoint's address.
fn upstream_of(address: SocketAddr) -> Option<usize> {
    match address.ip() {
        IpAddr::V4(ip) if ip.octets()[..2] == [10, 1] => Some(ip.octets()[2].into()),
        _ => None,
    }
}

fn is_ready(conditions: &Conditions) -> bool {
    conditions.ready && !conditions.terminating
}

impl Publication {
    fn conditions(&self, address: SocketAddr) -> Option<&Conditions> {
        let endpoints = self.endpoints.as_ref()?;
        endpoints.iter().find(|(known, _)| *known == address).map(|(_, conditions)| conditions)
    }
}

struct Checker<'r> {
    world: &'r World,
    history: &'r History,
    attempts: BTreeMap<usize, Vec<Attempt>>,
    found: Vec<String>,
}

impl Checker<'_> {
    fn request(&mut self, request: &Request) {
        let attempts = self.attempts.remove(&request.id).unwrap_or_default();
        let results = &self.history.results[request.id];
        let (Some(first), Some(last)) = (results.first(), results.last()) else { return };
        let mut found = Vec::new();
        self.repetitions(request, &attempts, first, last, &mut found);
        for attempt in &attempts {
            self.target(request, attempt, first, &attempts, &mut found);
        }
        found.extend(self.result(request, &attempts, first, last));
        found.extend(self.delay(&attempts, first));
        found.extend(self.announcement(last));
        let told = |attempt: &Attempt| {
            let Attempt { at, to, connection, outcome, .. } = attempt;
            format!("{at} ms {to} connection {connection} {outcome:?}")
        };
        for fault in found {
            let attempts: Vec<_> = attempts.iter().map(told).collect();
            self.found.push(format!("{fault}\n  {request:?}\n  {results:?}\n  attempts: {attempts:?}"));
        }
        self.attempts.insert(request.id, attempts);
    }

    /// Z6 and Z7: which requests are sent again, and where.
    fn repetitions(
        &self,
        request: &Request,
        attempts: &[Attempt],
        first: &Attempted,
        last: &Attempted,
        found: &mut Vec<String>,
    ) {
        if attempts.len() > 1 && !request.method.is_idempotent() {
            found.push("Z7: a request that is not idempotent was sent twice".to_owned());
        }
        if attempts.len() > ATTEMPTS {
            found.push(format!("Z6: a request was sent {} times", attempts.len()));
        }
        for (nth, attempt) in attempts.iter().enumerate() {
            if attempt.is_dead && attempt.is_reused && !request.method.is_idempotent() {
                found.push(
                    "Z6: a request that is not idempotent used a connection that was closed".to_owned(),
                );
            }
            let has_begun = matches!(attempt.outcome, Some((Outcome::Responded(200) | Outcome::Cut, _)));
            if let Some(next) = attempts.get(nth + 1)
                && has_begun
                && request.route != IMPATIENT
                && !self.was_silent(attempt, next.at)
                && !self.was_drained(attempt.to, next.at)
            {
                found.push("Z6: a request was sent again although its response had begun".to_owned());
            }
            let next = attempts.get(nth + 1);
            if next.is_some_and(|next| next.to == attempt.to && !self.was_replaced(attempt, next.at))
                && !attempt.is_reused
                && self.world.schedule.limit.is_none()
                && self.has_other_pod(attempt.to, (first.start, last.end), &attempts[..=nth])
            {
                found.push("Z6: a request was sent again to the endpoint that had failed".to_owned());
            }
            if attempt.is_reused && self.is_expired(attempt) {
                found.push(
                    "Z9: a request used a connection after the keep-alive timeout of its endpoint".to_owned(),
                );
            }
        }
    }

    /// Z5: the time until a request is sent to an endpoint.
    fn delay(&self, attempts: &[Attempt], first: &Attempted) -> Option<String> {
        let attempt = attempts.first()?;
        let is_late = attempt.at > first.start + CONNECTING && self.world.schedule.limit.is_none();
        let is_needless = is_late && self.has_good_pod(attempt.to, (first.start, attempt.at), &[]);
        is_needless.then(|| format!("Z5: a request waited {} ms for a connection", attempt.at - first.start))
    }

    /// Z10: a process that shuts down announces the end of its connections.
    fn announcement(&self, last: &Attempted) -> Option<String> {
        let Received::Response { closes: false, .. } = last.result else { return None };
        let departures = &self.history.departures;
        let is_told =
            |departure: &Departure| !departure.has_successor && last.start > departure.announced + 2 * LATE;
        departures
            .iter()
            .any(is_told)
            .then(|| "Z10: a response does not announce the end of its connection".to_owned())
    }

    /// Whether another endpoint received the address of an attempt's endpoint.
    fn was_replaced(&self, attempt: &Attempt, until: u64) -> bool {
        let publications =
            upstream_of(attempt.to).and_then(|upstream| self.served(upstream, attempt.at, until));
        let mut publications = publications.unwrap_or_default().iter();
        publications.any(|publication| publication.conditions(attempt.to).is_none())
    }

    /// Whether the gateway should have closed the connection because of `Keep-Alive: timeout`.
    fn is_expired(&self, attempt: &Attempt) -> bool {
        let mut of_connection = self
            .history
            .deliveries
            .iter()
            .filter(|delivery| delivery.connection == attempt.connection && delivery.at < attempt.at);
        of_connection.next_back().is_some_and(|before| {
            self.world.pods[before.pod].plan.keep_alive.is_some_and(|seconds| {
                let most = seconds * 1000 - KEEP_ALIVE_MARGIN;
                matches!(before.outcome, Outcome::Responded(_))
                    && attempt.at > before.settled + most + LATENCY
            })
        })
    }

    /// Z1 to Z4: the upstream and the endpoint of an attempt.
    fn target(
        &self,
        request: &Request,
        attempt: &Attempt,
        first: &Attempted,
        attempts: &[Attempt],
        found: &mut Vec<String>,
    ) {
        let Some(upstream) = upstream_of(attempt.to) else { return };
        let moves = &self.history.moves[request.route];
        let served = moves.iter().rposition(|a| a.applied.is_some_and(|at| at < first.start)).unwrap_or(0);
        let mut possible = moves[served..].iter().take_while(|a| a.at <= attempts[0].at);
        if !possible.any(|a| a.upstream == upstream) {
            found.push("Z1: a request went to the upstream of another route".to_owned());
        }
        let publications = &self.history.publications[upstream];
        if let Some(since) = self.served(upstream, attempt.at, attempt.at)
            && since.iter().all(|publication| publication.conditions(attempt.to).is_none())
            && !self.was_absent(publications, first.start)
        {
            found.push(format!("Z4: a request went to {} after its removal", attempt.to));
        }
        if let Some(since) = self.served(upstream, first.start, attempt.at) {
            let is_bypassed = |publication: &Publication| {
                let endpoints = publication.endpoints.as_deref().unwrap_or_default();
                endpoints.iter().any(|(_, conditions)| is_ready(conditions))
                    && !publication.conditions(attempt.to).is_some_and(is_ready)
            };
            let is_known = since.iter().any(|publication| publication.conditions(attempt.to).is_some());
            if is_known && since.iter().all(is_bypassed) {
                found.push(format!(
                    "Z2: a request went to {}, which is not ready, although another endpoint is",
                    attempt.to
                ));
            }
        }
    }

    /// The publications of an upstream that a worker may have served: from the one that every worker served before `from`,
    /// up to the last one until `until`.
    fn served(&self, upstream: usize, from: u64, until: u64) -> Option<&[Publication]> {
        let all = &self.history.publications[upstream];
        let first =
            all.iter().rposition(|publication| publication.applied.is_some_and(|applied| applied < from))?;
        let until = all.iter().rposition(|publication| publication.at <= until)?;
        Some(&all[first..=until.max(first)])
    }

    /// Whether a request from this time may use an upstream that no route named for a while.
    fn was_absent(&self, publications: &[Publication], start: u64) -> bool {
        publications.iter().enumerate().any(|(nth, publication)| {
            let next = publications.get(nth + 1).and_then(|next| next.applied);
            publication.endpoints.is_none() && next.is_none_or(|applied| applied >= start)
        })
    }

    /// Z1, Z5, Z6, Z10: what the client received.
    fn result(
        &self,
        request: &Request,
        attempts: &[Attempt],
        first: &Attempted,
        last: &Attempted,
    ) -> Option<String> {
        let leaves = self
            .history
            .departures
            .iter()
            .any(|departure| !departure.has_successor && last.end + LAST_CONNECTS >= departure.at);
        match &last.result {
            Received::Stuck => Some("Z5: a request does not end".to_owned()),
            Received::Aborted => None,
            Received::Refused | Received::Nothing if leaves && attempts.is_empty() => None,
            Received::Refused => Some("Z10: the gateway refused a connection".to_owned()),
            Received::Nothing => Some("Z1: the gateway closed a connection instead of a response".to_owned()),
            Received::Cut => match attempts.last() {
                Some(attempt) if self.may_break(request, attempt, last.end) => None,
                Some(attempt) if request.route == IMPATIENT && last.end >= attempt.at + PATIENCE => None,
                _ => Some("Z1: the gateway cut a response".to_owned()),
            },
            Received::Response { id: Some(id), .. } if *id != request.id => {
                Some(format!("Z1: the response to request {id} went to another client"))
            }
            Received::Response { id: Some(_), is_intact: false, .. } => {
                Some("Z1: the body of the response is another".to_owned())
            }
            Received::Response { id: Some(_), pod: Some(pod), status, .. } => {
                let is_known = self
                    .history
                    .deliveries
                    .iter()
                    .any(|delivery| (delivery.id, delivery.pod) == (request.id, *pod));
                if !is_known {
                    return Some(format!("Z1: pod {pod} responded to a request that it never received"));
                }
                (*status == 503 && self.should_retry(request, attempts, (first.start, last.end), *status))
                    .then(|| "Z6: a request with a retried status was not sent again".to_owned())
            }
            Received::Response { status, .. } => {
                self.error(request, attempts, (first.start, last.end), *status)
            }
        }
    }

    /// The fault of an error response of the gateway itself.
    fn error(
        &self,
        request: &Request,
        attempts: &[Attempt],
        time: (u64, u64),
        status: u16,
    ) -> Option<String> {
        if !(502..=504).contains(&status) {
            return Some(format!("Z1: the gateway responded with {status}"));
        }
        if self.world.schedule.limit.is_some() && status == 503 {
            return None;
        }
        let Some(attempt) = attempts.last() else {
            let is_served = |upstream: usize| {
                let any = SocketAddr::from(([10, 1, upstream as u8, 0], 80));
                self.has_good_pod(any, time, &[])
            };
            let mut upstreams = (0..UPSTREAMS).filter(|upstream| self.may_route(request, *upstream, time));
            return upstreams.all(is_served).then(|| {
                format!("Z5: the gateway responded with {status} although an endpoint could serve")
            });
        };
        if self.may_break(request, attempt, time.1) {
            return None;
        }
        let is_late = request.route == IMPATIENT;
        let is_over_budget = status == 503 && self.world.schedule.retries.is_some();
        let has_responded =
            matches!(attempt.outcome, Some((Outcome::Responded(_), at)) if at + LATENCY < time.1);
        if has_responded && !is_late && !is_over_budget && !self.was_silent(attempt, time.1) {
            return Some(format!(
                "Z1: the gateway responded with {status} instead of the endpoint's response"
            ));
        }
        self.should_retry(request, attempts, time, status)
            .then(|| format!("Z6: the gateway responded with {status} instead of another attempt"))
    }

    fn may_route(&self, request: &Request, upstream: usize, (start, end): (u64, u64)) -> bool {
        let moves = &self.history.moves[request.route];
        let served = moves.iter().rposition(|a| a.applied.is_some_and(|at| at < start)).unwrap_or(0);
        moves[served..].iter().take_while(|a| a.at <= end).any(|a| a.upstream == upstream)
    }

    /// Whether the end of an attempt is the fault of its endpoint, and final.
    fn may_break(&self, request: &Request, attempt: &Attempt, end: u64) -> bool {
        let is_slow = match attempt.outcome {
            Some((Outcome::Cut, _)) => return true,
            Some((Outcome::Never, _)) => request.route != IMPATIENT,
            Some((Outcome::Responded(_), _)) => request.route == IMPATIENT && !request.method.is_idempotent(),
            _ => false,
        };
        is_slow || self.was_silenced(attempt, end) || self.was_drained(attempt.to, end)
    }

    /// Whether the network stopped to deliver to and from an endpoint during an attempt.
    fn was_silenced(&self, attempt: &Attempt, until: u64) -> bool {
        self.pods_at(attempt.to).any(|pod| {
            let during = |at: u64| (attempt.at..=until).contains(&at);
            self.history.silences[pod].iter().any(|(at, is_silent)| *is_silent && during(*at))
        })
    }

    /// Whether an endpoint was removed for longer than the drain time.
    fn was_drained(&self, address: SocketAddr, end: u64) -> bool {
        let publications = upstream_of(address).map(|upstream| &*self.history.publications[upstream]);
        publications.unwrap_or_default().iter().any(|publication| {
            publication.conditions(address).is_none() && publication.at + DRAIN.as_millis() as u64 <= end
        })
    }

    /// Whether the network did not deliver to and from an endpoint at some time of an attempt.
    fn was_silent(&self, attempt: &Attempt, until: u64) -> bool {
        self.was_silenced(attempt, until)
            || self.pods_at(attempt.to).any(|pod| {
                let before = self.history.silences[pod].iter().rfind(|(at, _)| *at <= attempt.at);
                before.is_some_and(|(_, is_silent)| *is_silent)
            })
    }

    fn pods_at(&self, address: SocketAddr) -> impl Iterator<Item = usize> {
        self.world.pods.iter().filter(move |pod| pod.address == address).map(|pod| pod.number)
    }

    /// Whether the gateway may send a request once more, and has an endpoint for it.
    fn should_retry(&self, request: &Request, attempts: &[Attempt], time: (u64, u64), status: u16) -> bool {
        let is_allowed = request.method.is_idempotent()
            && !request.body.may_exceed_replay()
            && attempts.len() < ATTEMPTS
            && self.world.schedule.retries.is_none()
            && !(status == 503 && self.world.schedule.limit.is_some());
        is_allowed && attempts.last().is_some_and(|last| self.has_good_pod(last.to, time, attempts))
    }

    /// Whether a pod of the same upstream could have served during the whole time, and was not tried.
    fn has_good_pod(&self, address: SocketAddr, time: (u64, u64), tried: &[Attempt]) -> bool {
        self.has_pod(address, time, |pod| tried.iter().all(|attempt| attempt.to != pod.address))
    }

    /// The same for a pod that the gateway had no reason to take for unhealthy.
    fn has_other_pod(&self, address: SocketAddr, time: (u64, u64), tried: &[Attempt]) -> bool {
        self.has_pod(address, time, |pod| {
            let reach = &self.history.reach[pod.number];
            pod.plan.bad_percent == 0
                && reach.iter().all(|(at, is_open)| *is_open || *at == 0)
                && tried.iter().all(|attempt| attempt.to != pod.address)
        })
    }

    fn has_pod(
        &self,
        address: SocketAddr,
        (start, end): (u64, u64),
        is_wanted: impl Fn(&super::pod::Process) -> bool,
    ) -> bool {
        let Some(upstream) = upstream_of(address) else { return false };
        let Some(served) = self.served(upstream, start, end) else { return false };
        let mut publications = served.iter();
        let is_good = |pod: &super::pod::Process| {
            pod.plan.upstream == upstream && is_wanted(pod) && self.is_open(pod.number, start, end)
        };
        let mut good: Vec<_> = self.world.pods.iter().filter(|pod| is_good(pod)).collect();
        publications.all(|publication| {
            good.retain(|pod| publication.conditions(pod.address).is_some_and(is_ready));
            !good.is_empty()
        }) && !good.is_empty()
    }

    /// Whether connects to a pod succeed during the whole time.
    fn is_open(&self, pod: usize, start: u64, end: u64) -> bool {
        let reach = &self.history.reach[pod];
        let before = reach.iter().rfind(|(at, _)| *at < start);
        before.is_some_and(|(_, is_open)| *is_open)
            && !reach.iter().any(|(at, is_open)| !is_open && (start..=end).contains(at))
    }

    /// Z3: each change reaches every worker.
    fn publications(&mut self) {
        if !self.history.departures.is_empty() {
            return;
        }
        for publication in self.history.publications.iter().flatten() {
            if publication.applied.is_none_or(|applied| applied > publication.at + 2 * LATE + 5) {
                self.found.push(format!("Z3: a change is not served in time: {publication:?}"));
            }
        }
    }

    /// Z8: the gateway only probes an endpoint that refuses connects, while another endpoint serves.
    fn unhealthy_endpoints(&mut self) {
        let schedule = &self.world.schedule;
        if schedule.limit.is_some() || !self.history.departures.is_empty() {
            return;
        }
        for pod in &self.world.pods {
            let reach = &self.history.reach[pod.number];
            for (nth, (closed, is_open)) in reach.iter().enumerate() {
                let end = reach.get(nth + 1).map_or(u64::MAX, |(at, _)| *at).min(closed + 3000);
                if *is_open || end <= *closed || pod.was_silent.get() {
                    continue;
                }
                self.found.extend(self.connects_while_refusing(pod, *closed, end));
            }
        }
    }

    fn connects_while_refusing(&self, pod: &super::pod::Process, closed: u64, end: u64) -> Option<String> {
        let is_sound = |other: &super::pod::Process| {
            other.plan.upstream == pod.plan.upstream
                && other.address != pod.address
                && other.plan.latency <= NEAR
                && other.plan.bad_percent == 0
                && !other.was_silent.get()
                && self.is_open(other.number, closed.saturating_sub(1), end)
                && self.history.reach[other.number].iter().all(|(at, is_open)| *is_open || *at == 0)
                && self.is_published(other.address, closed, end)
        };
        let responded = self.history.deliveries.iter().any(|delivery| {
            delivery.pod == pod.number && delivery.settled + LATENCY >= closed && delivery.at <= end
        });
        if responded
            || !self.is_published(pod.address, closed, end)
            || !self.world.pods.iter().any(|other| is_sound(other))
            || self.has_hedges(pod, closed, end)
        {
            return None;
        }
        let connects = self
            .history
            .seen
            .iter()
            .filter(|seen| seen.to == pod.address && matches!(seen.event, SeenEvent::Connect));
        let mut connects =
            connects.map(|seen| seen.at.as_millis() as u64).filter(|at| (closed..end).contains(at));
        let known = connects.next()? + 2 * pod.plan.latency + 1;
        let later = connects.filter(|at| *at > known).count();
        // Probes: 250 ms after the failure, with jitter, and then at twice the time each.
        let (mut most, mut next, mut interval) = (0, known + 187, 187);
        while next < end {
            (most, interval) = (most + 1, interval * 2);
            next += interval;
        }
        (later > most).then(|| {
            format!("Z8: {later} connects to {} while it refused them, from {known} to {end} ms", pod.address)
        })
    }

    /// Whether a request had a reason to connect to more endpoints than one: a slow connect, or a failed attempt.
    fn has_hedges(&self, pod: &super::pod::Process, start: u64, end: u64) -> bool {
        let is_slow = self.world.pods.iter().any(|other| {
            let reach = &self.history.reach[other.number];
            other.plan.upstream == pod.plan.upstream
                && other.address != pod.address
                && (other.plan.latency > NEAR
                    || other.was_silent.get()
                    || reach.iter().any(|(at, is_open)| !is_open && (1..=end).contains(at)))
        });
        let is_retried = self.attempts.values().any(|attempts| {
            attempts.len() > 1
                && attempts.iter().any(|attempt| {
                    upstream_of(attempt.to) == Some(pod.plan.upstream) && (start..=end).contains(&attempt.at)
                })
        });
        is_slow || is_retried
    }

    /// Whether an address was a ready endpoint of its upstream during the whole time, for all workers.
    fn is_published(&self, address: SocketAddr, start: u64, end: u64) -> bool {
        let Some(upstream) = upstream_of(address) else { return false };
        let Some(served) = self.served(upstream, start, end) else { return false };
        served.iter().all(|publication| publication.conditions(address).is_some_and(is_ready))
    }

    /// The retry constraint of a Service bounds the retries of processed requests.
    fn retry_budget(&mut self) {
        let Some(most) = self.world.schedule.retries else { return };
        let is_absent = |upstream: usize| {
            self.history.publications[upstream].iter().any(|publication| publication.endpoints.is_none())
        };
        if !self.history.departures.is_empty() {
            return;
        }
        for upstream in (0..UPSTREAMS).filter(|upstream| !is_absent(*upstream)) {
            let of_upstream = self.attempts.values().flat_map(|attempts| attempts.windows(2));
            let retries = of_upstream.filter(|pair| {
                let is_free =
                    pair[0].is_reused && !matches!(pair[0].outcome, Some((Outcome::Responded(_), _)));
                !is_free && upstream_of(pair[1].to) == Some(upstream)
            });
            let retries = retries.count();
            if retries > most as usize {
                self.found.push(format!(
                    "Z6: {retries} retries at upstream {upstream} exceed the retry budget of {most}"
                ));
            }
        }
    }
}

/// Z8: after all endpoints have recovered, the gateway knows.
pub(super) fn recovered(world: &World, proxy: &Proxy) {
    for upstream in proxy.registry().upstreams() {
        for (endpoint, _) in &upstream.endpoints().endpoints {
            let runs = world.pods.iter().any(|pod| pod.address == endpoint.address() && pod.is_running.get());
            if runs && endpoint.is_unhealthy() {
                world.violate(&format!("Z8: {} recovered, and the gateway avoids it", endpoint.address()));
            }
        }
    }
}

/// Z1 to Z3: a request after the last change follows the last change.
pub(super) fn last_request(world: &World, route: usize, upstream: usize, id: usize) {
    let Some(Attempted { result, .. }) = world.last_result(id) else { return };
    let serves = |pod: usize| {
        let pod = &world.pods[pod];
        pod.plan.upstream == upstream && world.known(upstream).contains(&pod.address) && pod.is_running.get()
    };
    let is_right = match &result {
        Received::Response { status: 200, pod: Some(pod), .. } => serves(*pod),
        Received::Response { status: 503, id: None, .. } => !world.has_eligible(upstream),
        _ => false,
    };
    if !is_right {
        world.violate(&format!(
            "Z3: after the last change, a request on route {route} to upstream {upstream} received {result:?}"
        ));
    }
}

/// Z4, Z9: without requests, nothing is in flight, and the only connections are idle ones to current endpoints.
pub(super) fn at_rest(world: &World, proxy: &Proxy) {
    let registry = proxy.registry();
    let in_flight = registry.counters().workers().sum(|worker| &worker.in_flight);
    if in_flight > 0 {
        world.violate(&format!("Z1: {in_flight} requests are still in flight for the counters"));
    }
    for upstream in registry.upstreams() {
        let in_flight = upstream.shards().sum(|shard| &shard.in_flight);
        let of_endpoints = upstream.endpoints();
        let mut endpoints = of_endpoints.endpoints.iter().map(|(endpoint, _)| endpoint);
        let is_busy = endpoints.any(|endpoint| {
            let limited = endpoint.in_flight.load(std::sync::atomic::Ordering::Relaxed);
            endpoint.shards().sum(|shard| &shard.in_flight) + limited > 0
        });
        if in_flight > 0 || is_busy {
            world
                .violate(&format!("Z1: requests to {} are still in flight for the counters", upstream.key()));
        }
    }
}

/// Z4, Z9: the open connections of each pod are the idle connections that the gateways count.
pub(super) fn idle_connections<'p>(world: &World, proxies: impl Iterator<Item = &'p Proxy>) {
    let mut idle = BTreeMap::new();
    for proxy in proxies {
        for upstream in proxy.registry().upstreams() {
            for (endpoint, _) in &upstream.endpoints().endpoints {
                *idle.entry(endpoint.address()).or_insert(0) += endpoint.shards().sum(|shard| &shard.idle);
            }
        }
    }
    for pod in &world.pods {
        let of_address = || world.pods.iter().filter(|other| other.address == pod.address);
        if of_address().any(|other| other.was_silent.get()) {
            continue;
        }
        let open: usize = of_address().map(|other| other.open.get()).sum();
        let (open, counted) = (open as u64, idle.get(&pod.address).copied().unwrap_or(0));
        if open > 0 && !world.known(pod.plan.upstream).contains(&pod.address) {
            world.violate(&format!("Z4: {open} connections to {} are open after its removal", pod.address));
        } else if open != counted {
            world.violate(&format!(
                "Z9: {} has {open} idle connections, and the gateway counts {counted} for {}",
                pod.address,
                key(pod.plan.upstream)
            ));
        }
    }
}

/// Z10: nothing is left of a process.
pub(super) fn ended(world: &World, proxy: &Proxy) {
    let open = proxy.registry().counters().workers().sum(|worker| &worker.open);
    if open > 0 {
        world.violate(&format!("Z10: {open} client connections are open after the end"));
    }
}

/// A hash of everything that happened.
pub(super) fn fingerprint(history: &History) -> u64 {
    let mut hash = DefaultHasher::new();
    for seen in &history.seen {
        format!("{seen:?}").hash(&mut hash);
    }
    format!("{:?} {:?} {:?}", history.results, history.deliveries, history.publications).hash(&mut hash);
    hash.finish()
}
