//! The rates of the last hour: samples of the counters of the data plane, and marks for the changes of the configuration.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use sluicegate_admin::LastChange;
use sluicegate_model::{Config, ObjectId, Rule};
use sluicegate_proxy::counters::{BOUNDS_MICROS, RouteTotals};
use sluicegate_proxy::registry::Registry;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// The time between two samples.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// The time between two looks for the first configuration.
const FIRST: Duration = Duration::from_millis(50);

/// The number of samples of one hour.
const POINTS: usize = 720;

/// The largest number of marks.
const MARKS: usize = 500;

/// At most this many objects are named at a mark.
const NAMED_MAX: usize = 12;

/// The rates of the last hour.
#[derive(Debug, Default)]
pub struct History(Mutex<Samples>);

#[derive(Debug, Default)]
struct Samples {
    /// The totals at the last sample.
    last: Option<Totals>,
    points: VecDeque<Point>,
    marks: VecDeque<Mark>,
    /// The number of changes, and the configuration, at the last sample.
    changes: u64,
    config: Option<Arc<Config>>,
}

/// The requests between two samples.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The end of the period, in seconds since 1970.
    pub time: u64,
    /// The length of the period, in seconds.
    pub seconds: f64,
    /// Requests that ended.
    pub requests: u64,
    /// Responses by the first digit of their status, 1 to 5.
    pub responses: [u64; 5],
    /// Requests that ended without a complete response.
    pub aborted: u64,
    /// The requests without a route.
    pub unrouted: u64,
    /// Requests in flight at the end.
    pub in_flight: u64,
    /// Percentiles of the duration, in milliseconds; `None` without a request.
    pub p50: Option<f64>,
    /// See [`p50`](Self::p50).
    pub p95: Option<f64>,
    /// See [`p50`](Self::p50).
    pub p99: Option<f64>,
}

/// A change of the configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    /// The time, in seconds since 1970.
    pub time: u64,
    /// The number of changes since the sample before.
    pub changes: u64,
    /// The objects whose routes changed, at most 12.
    pub objects: Vec<String>,
    /// The number of other objects whose routes changed.
    pub others: usize,
}

#[derive(Clone, Debug, Default)]
struct Totals {
    responses: [u64; 5],
    aborted: u64,
    unrouted: u64,
    buckets: [u64; BOUNDS_MICROS.len() + 1],
}

impl History {
    /// The points and marks after a time in seconds since 1970.
    #[must_use]
    pub fn since(&self, time: u64) -> (Vec<Point>, Vec<Mark>) {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let points = samples.points.iter().filter(|point| point.time > time).cloned().collect();
        let marks = samples.marks.iter().filter(|mark| mark.time > time).cloned().collect();
        (points, marks)
    }

    /// Samples the counters from the first configuration on, until the future is dropped. The sum over all routes runs on a
    /// thread that may block.
    pub async fn follow(self: Arc<Self>, registry: Arc<Registry>, last_change: LastChange) {
        while registry.settings().is_none() {
            sleep(FIRST).await;
        }
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (history, registry, last_change) = (self.clone(), registry.clone(), last_change.clone());
            // A sample that panics leaves a gap, and its panic is in the log.
            let _ = tokio::task::spawn_blocking(move || history.sample(&registry, &last_change)).await;
        }
    }

    fn sample(&self, registry: &Registry, last_change: &LastChange) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let workers = registry.counters().workers();
        let mut totals = Totals { unrouted: workers.sum(|worker| &worker.unrouted), ..Totals::default() };
        for (_, stats) in registry.routes() {
            totals.add(&stats.totals());
        }
        let in_flight = workers.sum(|worker| &worker.in_flight);
        let (config, changes) = (registry.published(), last_change.count());
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        samples.add(now, totals, in_flight);
        let new = changes.saturating_sub(samples.changes);
        // The first configuration is no change.
        if let Some(before) = &samples.config
            && new > 0
        {
            let changed = config.as_ref().map(|after| changed(before, after)).unwrap_or_default();
            samples.mark(last_change.seconds().unwrap_or(now), new, &changed);
        }
        samples.changes = changes;
        samples.config = config;
    }
}

impl Samples {
    fn add(&mut self, now: u64, totals: Totals, in_flight: u64) {
        let Some(last) = self.last.replace(totals.clone()) else { return };
        let before = self.points.back().map_or(now.saturating_sub(INTERVAL.as_secs()), |point| point.time);
        // Removed routes take their counts with them.
        let difference = |one: u64, other: u64| one.saturating_sub(other);
        let mut responses = totals.responses;
        responses.iter_mut().zip(last.responses).for_each(|(one, other)| *one = difference(*one, other));
        let mut buckets = totals.buckets;
        buckets.iter_mut().zip(last.buckets).for_each(|(one, other)| *one = difference(*one, other));
        let (aborted, unrouted) =
            (difference(totals.aborted, last.aborted), difference(totals.unrouted, last.unrouted));
        let point = Point {
            time: now,
            seconds: now.saturating_sub(before).max(1) as f64,
            requests: responses.iter().sum::<u64>() + aborted + unrouted,
            responses,
            aborted,
            unrouted,
            in_flight,
            p50: percentile(&buckets, 0.5),
            p95: percentile(&buckets, 0.95),
            p99: percentile(&buckets, 0.99),
        };
        self.points.push_back(point);
        if self.points.len() > POINTS {
            self.points.pop_front();
        }
    }

    fn mark(&mut self, time: u64, changes: u64, changed: &[String]) {
        let objects: Vec<_> = changed.iter().take(NAMED_MAX).cloned().collect();
        let others = changed.len() - objects.len();
        self.marks.push_back(Mark { time, changes, objects, others });
        if self.marks.len() > MARKS {
            self.marks.pop_front();
        }
    }
}

impl Totals {
    fn add(&mut self, route: &RouteTotals) {
        self.responses.iter_mut().zip(route.responses).for_each(|(sum, of)| *sum += of);
        self.buckets.iter_mut().zip(route.latency.buckets).for_each(|(sum, of)| *sum += of);
        self.aborted += route.aborted;
    }
}

/// A percentile in milliseconds, interpolated in its bucket.
fn percentile(buckets: &[u64; BOUNDS_MICROS.len() + 1], part: f64) -> Option<f64> {
    let total: u64 = buckets.iter().sum();
    if total == 0 {
        return None;
    }
    let rank = part * total as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for (count, upper) in buckets.iter().zip(BOUNDS_MICROS) {
        let (count, upper) = (*count as f64, upper as f64);
        if below + count >= rank {
            let within = if count > 0.0 { (rank - below) / count } else { 0.0 };
            return Some((lower + (upper - lower) * within) / 1e3);
        }
        below += count;
        lower = upper;
    }
    Some(lower / 1e3)
}

/// The objects whose routes differ, sorted.
fn changed(before: &Config, after: &Config) -> Vec<String> {
    let mut differing: HashMap<&ObjectId, (Vec<&Rule>, Vec<&Rule>)> = HashMap::new();
    let hosts = |config: &'_ Config| -> HashMap<_, _> {
        config
            .hosts
            .iter()
            .map(|host| ((host.entry_point.clone(), host.host.clone()), host.clone()))
            .collect()
    };
    let (of_before, of_after) = (hosts(before), hosts(after));
    let is_same = |host: &Arc<sluicegate_model::VirtualHost>| {
        let key = (host.entry_point.clone(), host.host.clone());
        match (of_before.get(&key), of_after.get(&key)) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    };
    for host in before.hosts.iter().filter(|host| !is_same(host)) {
        let rules = host.rules.iter().chain(&host.fallback);
        rules.for_each(|rule| differing.entry(&rule.id).or_default().0.push(rule));
    }
    for host in after.hosts.iter().filter(|host| !is_same(host)) {
        let rules = host.rules.iter().chain(&host.fallback);
        rules.for_each(|rule| differing.entry(&rule.id).or_default().1.push(rule));
    }
    let changed = differing.into_iter().filter(|(_, (before, after))| before != after);
    let mut changed: Vec<String> = changed.map(|(id, _)| id.to_string()).collect();
    changed.sort_unstable();
    changed
}

#[cfg(test)]
mod tests {
    use sluicegate_model::{Change, HostPattern, PathPattern, UpstreamKey, VirtualHost};

    use super::*;

    /// A host with a route to a Service.
    fn host(name: &str, service: &str) -> Arc<VirtualHost> {
        let id = ObjectId { kind: "Ingress", namespace: "shop".into(), name: name.into() };
        let rule = Rule::new(id, PathPattern::Prefix("/".into()), UpstreamKey::new("shop", service, "80"));
        Arc::new(VirtualHost::new(HostPattern::Exact(name.into()), vec![rule]))
    }

    #[test]
    fn percentile_is_interpolated_in_its_bucket() {
        let mut buckets = [0; BOUNDS_MICROS.len() + 1];
        assert_eq!(percentile(&buckets, 0.5), None);
        buckets[2] = 100;
        assert_eq!(percentile(&buckets, 0.5), Some(0.75), "between 0.5 and 1 ms");
        buckets[15] = 900;
        assert_eq!(percentile(&buckets, 0.99), Some(10_000.0), "above the last bound");
    }

    #[test]
    fn history_holds_one_hour() {
        let mut samples = Samples::default();
        for second in 0..2000 {
            samples.add(second * 5, Totals { aborted: second, ..Totals::default() }, 0);
        }
        assert_eq!(samples.points.len(), POINTS);
        assert!(samples.points.iter().all(|point| point.requests == 1));
        (0..600).for_each(|nth| samples.mark(nth, 1, &[]));
        assert_eq!(samples.marks.len(), MARKS);
    }

    #[test]
    fn each_configuration_after_the_first_leaves_a_mark() {
        let (history, registry, last_change) =
            (History::default(), Registry::of_no_worker(), LastChange::new());
        let mut marks = Vec::new();
        for hosts in [vec![], vec![host("a", "x")], vec![host("a", "y")]] {
            registry.show(&Change::Config(Config { hosts, ..Config::default() }.into()));
            last_change.set_now();
            history.sample(&registry, &last_change);
            history.sample(&registry, &last_change);
            marks.push(history.since(0).1.len());
        }
        assert_eq!(marks, [0, 1, 2]);
        assert_eq!(history.since(0).1[1].objects, ["Ingress shop/a"]);
    }

    #[test]
    fn changed_objects_are_those_with_other_rules() {
        let config = |hosts: &[Arc<VirtualHost>]| Config { hosts: hosts.to_vec(), ..Config::default() };
        let (a, b) = (host("a", "x"), host("b", "x"));
        let before = config(&[a.clone(), b]);
        let after = config(&[a, host("b", "y"), host("c", "x")]);
        assert_eq!(changed(&before, &after), ["Ingress shop/b", "Ingress shop/c"]);
        assert_eq!(changed(&after, &after), [""; 0]);
    }
}
