//! The compared runs: each gateway's run, with the same gateway's baseline.

use crate::results::{Latency, OfGateway, Requests, Results, Run};

/// A gateway's run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contestant<'r> {
    /// The number of its gateway, which determines its colour and its mark: the same in all plots of a report.
    pub(super) slot: usize,
    pub(super) gateway: &'r OfGateway,
    pub(super) run: &'r Run,
    /// The run of the same gateway while nothing changed.
    pub(super) baseline: Option<&'r Run>,
    /// Whether the gateway has several runs, which differ by their labels.
    is_one_of_several: bool,
}

/// Sluicegate's name in results.
pub(super) const OURS: &str = "sluicegate";

/// All runs under a load, in the order of the results.
pub(super) fn contestants(results: &Results) -> Vec<Contestant<'_>> {
    let mut all = Vec::new();
    for (index, gateway) in results.gateways.iter().enumerate() {
        let slot = slot(results, index);
        let baseline = gateway.runs.iter().find(|run| run.is_baseline);
        let changed: Vec<&Run> = gateway.runs.iter().filter(|run| !run.is_baseline).collect();
        let is_one_of_several = changed.len() > 1;
        match (changed.is_empty(), baseline) {
            // The experiment has no changes, so the baseline is the subject.
            (true, Some(run)) => {
                all.push(Contestant { slot, gateway, run, baseline: None, is_one_of_several });
            }
            _ => all.extend(changed.into_iter().map(|run| Contestant {
                slot,
                gateway,
                run,
                baseline,
                is_one_of_several,
            })),
        }
    }
    all
}

/// The number of a gateway: Sluicegate always has the first number, even if it does not take part, so that its colour
/// and mark stay the same.
pub(super) fn slot(results: &Results, index: usize) -> usize {
    if results.gateways.get(index).is_some_and(|gateway| gateway.name == OURS) {
        return 0;
    }
    // Eight additional colours and marks exist; a ninth gateway has the colour and the mark of the first.
    1 + results.gateways.iter().take(index).filter(|gateway| gateway.name != OURS).count() % 8
}

impl Contestant<'_> {
    pub(super) fn title(&self) -> String {
        if self.is_one_of_several {
            format!("{}, {}", self.gateway.title, self.run.label)
        } else {
            self.gateway.title.clone()
        }
    }

    /// The name for files and ids.
    pub(super) fn name(&self) -> String {
        let label = if self.is_one_of_several { self.run.label.as_str() } else { "" };
        super::words::slug(&format!("{} {label}", self.gateway.name))
    }

    pub(super) fn due(&self) -> u64 {
        due(&self.run.load.requests)
    }

    /// Requests that were due and have no response, and so are in no percentile: they failed, or were never sent.
    pub(super) fn unanswered(&self) -> u64 {
        let (requests, errors) = (&self.run.load.requests, &self.run.load.errors);
        match requests.due {
            Some(due) => due.saturating_sub(requests.answered),
            // In a closed loop the end of the load cuts requests off. The gateway did not cause this.
            None => errors.timeout + errors.read + errors.write,
        }
    }

    /// Whether p99.9 of the requests is known. If more than one request in a thousand has no response, p99.9 is
    /// unknown.
    pub(super) fn is_told_by_answers(&self) -> bool {
        self.unanswered() * 1000 <= self.due()
    }

    pub(super) fn duplicated(&self) -> u64 {
        self.run.deliveries.map_or(0, |deliveries| deliveries.duplicated)
    }

    /// The number of changes without an effect within the limit.
    pub(super) fn never_followed(&self) -> usize {
        self.run
            .followed
            .iter()
            .filter(|followed| followed.took_ms.is_none() && !followed.is_overtaken)
            .count()
    }

    /// Whether every request that was due had the correct response, and was delivered once.
    pub(super) fn is_clean(&self) -> bool {
        self.run.load.errors.total == 0
            && self.unanswered() == 0
            && self.duplicated() == 0
            && self.run.load.requests.answered > 0
    }
}

/// In a closed loop a request is due when it is sent.
fn due(requests: &Requests) -> u64 {
    requests.due.unwrap_or(requests.sent).max(requests.answered)
}

/// The value of a percentile in milliseconds: [`None`] if there are too few responses for this percentile. N responses
/// determine percentiles up to the share 1 - 1/N.
pub(super) fn percentile(latency: &Latency, name: &str) -> Option<f64> {
    let quantile = name.parse::<f64>().ok()? / 100.0;
    if !is_known(latency, quantile) {
        return None;
    }
    latency.percentiles_us.get(name).map(|value| *value as f64 / 1e3)
}

pub(super) fn is_known(latency: &Latency, quantile: f64) -> bool {
    // The tolerance covers the rounding of 1 - 1/N.
    latency.count > 0 && (1.0 - quantile) * latency.count as f64 >= 1.0 - 1e-6
}

/// The median of several turns.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => sorted.get(middle).copied(),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}
