//! Combines single figures: the results of each gateway for a kind of work, over several turns.

use super::contest::{median, slot};
use crate::results::{Added, OfGateway, Point, Results, WithFunctions};

/// The figures of a gateway for one kind of work, with one number of workers, at one rate.
#[derive(Clone, Debug)]
pub(super) struct Measured<'r> {
    pub(super) slot: usize,
    pub(super) gateway: &'r OfGateway,
    pub(super) workers: usize,
    pub(super) rate: Option<f64>,
    /// The figures of each turn.
    points: Vec<&'r Point>,
}

/// The median of all turns, with their minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

/// A kind of work.
#[derive(Clone, Debug)]
pub(super) struct Work<'r> {
    pub(super) name: &'r str,
    pub(super) shape: Shape,
    /// The gateways in their order; for each gateway its workers and rates, ascending.
    pub(super) measured: Vec<Measured<'r>>,
    /// The limits of the work: a byte forwarder, or signatures alone.
    pub(super) limits: Vec<Measured<'r>>,
}

/// The varied quantity, which determines the presentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Nothing: the report compares the gateways.
    Bench,
    /// The rate.
    Rates,
    /// The number of workers.
    Sizing,
}

/// The byte forwarder's name in results.
const FLOOR: &str = "floor";
/// The beginning of the names of works that consist of signatures alone; the key follows: `signature, RSA`.
const SIGNATURE: &str = "signature";
/// The beginning of the names of works in which each request has its own connection; the key follows.
const NEW_TLS: &str = "new TLS";

/// All kinds of work, in the order of their first appearance. Signatures stand beside the new TLS connections that they
/// limit, or separate without such connections.
pub(super) fn works(results: &Results) -> Vec<Work<'_>> {
    let mut names: Vec<&str> = Vec::new();
    for point in results.gateways.iter().flat_map(|gateway| &gateway.points) {
        if !names.contains(&point.work.as_str()) {
            names.push(&point.work);
        }
    }
    let is_limit = |name: &str| {
        let key = name.strip_prefix(SIGNATURE);
        key.is_some_and(|key| {
            names.iter().any(|other| {
                other.strip_prefix(NEW_TLS).is_some_and(|theirs| key.is_empty() || theirs == key)
            })
        })
    };
    names.iter().filter(|name| !is_limit(name)).map(|name| work(results, name)).collect()
}

fn work<'r>(results: &'r Results, name: &'r str) -> Work<'r> {
    let is_floor = |measured: &Measured<'_>| measured.gateway.name == FLOOR;
    let (mut limits, mut measured): (Vec<_>, Vec<_>) = of_work(results, name).into_iter().partition(is_floor);
    if let Some(key) = name.strip_prefix(NEW_TLS) {
        let with_key = format!("{SIGNATURE}{key}");
        limits.extend(of_work(results, &with_key));
        if with_key != SIGNATURE {
            // Signatures with any key.
            limits.extend(of_work(results, SIGNATURE));
        }
    }
    if measured.is_empty() {
        // Without a measured work, the report shows the limits instead.
        std::mem::swap(&mut measured, &mut limits);
    }
    let distinct = |value: &dyn Fn(&Measured<'_>) -> u64| {
        let mut values: Vec<u64> = measured.iter().map(value).collect();
        values.sort_unstable();
        values.dedup();
        values.len()
    };
    let shape = if distinct(&|each| each.rate.unwrap_or(0.0).to_bits()) > 1 {
        Shape::Rates
    } else if distinct(&|each| each.workers as u64) > 1 {
        Shape::Sizing
    } else {
        Shape::Bench
    };
    Work { name, shape, measured, limits }
}

fn of_work<'r>(results: &'r Results, work: &str) -> Vec<Measured<'r>> {
    let mut all: Vec<Measured<'_>> = Vec::new();
    for (index, gateway) in results.gateways.iter().enumerate() {
        let first = all.len();
        for point in gateway.points.iter().filter(|point| point.work == work) {
            let same = |each: &&mut Measured<'_>| each.workers == point.workers && each.rate == point.rate;
            if let Some(measured) = all[first..].iter_mut().find(same) {
                measured.points.push(point);
            } else {
                let slot = slot(results, index);
                let (workers, rate) = (point.workers, point.rate);
                all.push(Measured { slot, gateway, workers, rate, points: vec![point] });
            }
        }
        all[first..].sort_by(|one, other| {
            let rates = one.rate.unwrap_or(0.0).total_cmp(&other.rate.unwrap_or(0.0));
            one.workers.cmp(&other.workers).then(rates)
        });
    }
    all
}

impl Measured<'_> {
    pub(super) fn spread(&self, value: impl Fn(&Point) -> f64) -> Spread {
        let values: Vec<f64> =
            self.points.iter().map(|point| value(point)).filter(|value| value.is_finite()).collect();
        Spread {
            median: median(&values).unwrap_or(0.0),
            least: values.iter().copied().reduce(f64::min).unwrap_or(0.0),
            most: values.iter().copied().reduce(f64::max).unwrap_or(0.0),
        }
    }

    pub(super) fn cost(&self) -> Spread {
        self.spread(|point| point.cpu_us_per_request)
    }

    pub(super) fn requests_per_s(&self) -> Spread {
        self.spread(|point| point.requests_per_s)
    }

    pub(super) fn cpus(&self) -> Spread {
        self.spread(|point| point.cpus)
    }

    /// The latency of single requests directly to a pod, and their additional latency, in milliseconds.
    pub(super) fn added(&self) -> Option<[Spread; 2]> {
        self.points.first()?.added?;
        let of = |value: fn(&Added) -> f64| self.spread(|point| point.added.as_ref().map_or(f64::NAN, value));
        Some([of(|added| added.straight_ms), of(|added| added.added_ms)])
    }

    pub(super) fn errors(&self) -> u64 {
        self.points.iter().map(|point| point.errors).sum()
    }

    /// Whether the gateway missed the requested rate. Fast error responses do not count.
    pub(super) fn is_saturated(&self) -> bool {
        let requests: u64 = self.points.iter().map(|point| point.requests).sum();
        let fails = self.errors() as f64 > 0.001 * requests as f64;
        self.rate.is_some_and(|rate| fails || self.requests_per_s().median < 0.99 * rate)
    }

    /// The name of the limit, for tables.
    pub(super) fn limit_name(&self) -> String {
        match self.points.first() {
            Some(point) if point.work.starts_with(SIGNATURE) => "limit: signing alone".to_owned(),
            _ => "limit: a byte forwarder".to_owned(),
        }
    }
}

impl<'r> Work<'r> {
    /// The functions that the gateways applied to each request.
    pub(super) fn functions(&self) -> Option<&'r WithFunctions> {
        self.measured.first()?.points.first()?.functions.as_ref()
    }

    /// The figures of this gateway.
    pub(super) fn of(&self, gateway: &OfGateway) -> Option<&Measured<'r>> {
        self.measured.iter().find(|each| std::ptr::eq(each.gateway, gateway))
    }

    /// The counted unit per second.
    pub(super) fn unit(&self) -> &'static str {
        if self.is_new_tls() {
            "new TLS connections/s"
        } else if self.name.starts_with(SIGNATURE) {
            "signatures/s"
        } else {
            "requests/s"
        }
    }

    pub(super) fn is_new_tls(&self) -> bool {
        self.name.starts_with(NEW_TLS)
    }

    /// The figures of each gateway, one after the other.
    pub(super) fn by_gateway(&self) -> Vec<Vec<&Measured<'r>>> {
        by_gateway(&self.measured)
    }

    /// The figures of the limits, one after the other.
    pub(super) fn limits_by_kind(&self) -> Vec<Vec<&Measured<'r>>> {
        let mut all: Vec<Vec<&Measured<'_>>> = Vec::new();
        for measured in &self.limits {
            match all.iter_mut().find(|group| group[0].limit_name() == measured.limit_name()) {
                Some(group) => group.push(measured),
                None => all.push(vec![measured]),
            }
        }
        all
    }
}

fn by_gateway<'m, 'r>(measured: &'m [Measured<'r>]) -> Vec<Vec<&'m Measured<'r>>> {
    measured
        .chunk_by(|one, other| std::ptr::eq(one.gateway, other.gateway))
        .map(|group| group.iter().collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample::{experiment, gateway, point};
    use super::*;

    fn results(gateways: Vec<(&str, Vec<Point>)>) -> Results {
        let mut results = experiment("bench", "costs");
        results.gateways = gateways
            .into_iter()
            .map(|(name, points)| OfGateway { points, ..gateway(name, name, Vec::new()) })
            .collect();
        results
    }

    #[test]
    fn table_shows_the_median_and_range_of_repeated_measurements() {
        let turns = [10.0, 30.0, 11.0].map(|cost| point("HTTP", 1, 1, 1000.0, cost));
        let results = results(vec![("a", turns.into()), ("b", vec![point("HTTP", 1, 1, 1000.0, 7.0)])]);
        let works = works(&results);
        assert_eq!((works.len(), works[0].shape, works[0].measured.len()), (1, Shape::Bench, 2));
        assert_eq!(works[0].measured[0].cost(), Spread { median: 11.0, least: 10.0, most: 30.0 });
    }

    #[test]
    fn varied_parameter_selects_the_kind_of_table() {
        let sizes = vec![point("HTTP", 2, 1, 1900.0, 1.0), point("HTTP", 1, 1, 1000.0, 1.0)];
        let sized = results(vec![("a", sizes)]);
        let work = &works(&sized)[0];
        assert_eq!((work.shape, work.measured[0].workers), (Shape::Sizing, 1));
        let rates = [500.0, 2000.0].map(|rate| Point { rate: Some(rate), ..point("HTTP", 1, 1, 500.0, 1.0) });
        let rated = results(vec![("a", rates.into())]);
        let work = &works(&rated)[0];
        let saturated: Vec<bool> = work.measured.iter().map(Measured::is_saturated).collect();
        assert_eq!((work.shape, saturated), (Shape::Rates, vec![false, true]));
        let failing = Point { rate: Some(500.0), errors: 9, ..point("HTTP", 1, 1, 500.0, 1.0) };
        let failing = results(vec![("a", vec![failing])]);
        assert!(works(&failing)[0].measured[0].is_saturated(), "errors are no requests");
    }

    #[test]
    fn machine_limits_are_shown_beside_the_measurements_that_they_bound() {
        let floor = vec![
            point("HTTP", 1, 1, 9000.0, 1.0),
            point("signature, RSA", 1, 1, 1500.0, 660.0),
            point("signature, P-256", 1, 1, 30_000.0, 33.0),
        ];
        let ours = vec![point("HTTP", 1, 1, 3000.0, 3.0), point("new TLS, RSA", 1, 1, 900.0, 1100.0)];
        let results = results(vec![("a", ours), ("floor", floor)]);
        let works = works(&results);
        let limits: Vec<(&str, Vec<f64>)> = works
            .iter()
            .map(|work| (work.name, work.limits.iter().map(|limit| limit.cost().median).collect()))
            .collect();
        // The third limit applies to no measured work, so it has its own row.
        let alone = ("signature, P-256", vec![]);
        assert_eq!(limits, [("HTTP", vec![1.0]), ("new TLS, RSA", vec![660.0]), alone]);
        assert!(works.iter().all(|work| work.measured.len() == 1));
    }

    #[test]
    fn machine_limits_have_their_own_table_if_no_gateway_was_measured() {
        let floor = vec![point("HTTP", 1, 1, 9000.0, 1.0), point("signature, RSA", 1, 1, 1500.0, 660.0)];
        let results = results(vec![("floor", floor)]);
        let works = works(&results);
        let shown: Vec<_> = works.iter().map(|work| (work.name, work.unit(), work.measured.len())).collect();
        assert_eq!(shown, [("HTTP", "requests/s", 1), ("signature, RSA", "signatures/s", 1)]);
    }
}
