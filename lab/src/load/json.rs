//! The results of a load, for programs: in the form of [`results::Load`], which experiments store unchanged.

use std::time::UNIX_EPOCH;

use hdrhistogram::Histogram;

use super::counts::{Class, Counts, Failure, Interval, Wrong};
use super::nanos::Nanos;
use super::outcome::Outcome;
use super::schedule::Pace;
use super::spectrum::{self, PERCENTILES, Point};
use crate::results;

pub(crate) fn of(outcome: &Outcome) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&document(outcome))
}

fn document(outcome: &Outcome) -> results::Load {
    let Outcome { plan, counts, .. } = outcome;
    let schedule = &plan.schedule;
    let intervals = counts.intervals.iter().enumerate();
    results::Load {
        program: "sluicegate-lab load".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command(std::env::args_os().map(|word| word.to_string_lossy().into_owned())),
        url: plan.target.url.clone(),
        address: plan.address.to_string(),
        threads: plan.threads,
        connections: schedule.connections,
        rate: match schedule.pace {
            Pace::Rate(rate) => Some(rate),
            Pace::Closed => None,
        },
        duration_s: (schedule.end - schedule.first).seconds(),
        timeout_s: plan.timeout.seconds(),
        ramp_s: schedule.first.seconds(),
        started_unix_ms: outcome.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis(),
        elapsed_s: outcome.elapsed.seconds(),
        requests: results::Requests {
            due: outcome.unsent.map(|unsent| unsent + counts.sent),
            sent: counts.sent,
            posts: counts.posts,
            answered: counts.answered,
            unsent: outcome.unsent,
        },
        requests_per_s: outcome.requests_per_second(),
        bytes_read: counts.bytes,
        bytes_per_s: outcome.bytes_per_second(),
        connected: counts.connected,
        closed_between_requests: counts.closed_idle,
        statuses: counts.statuses().collect(),
        errors: errors(counts),
        latency: latency(&counts.latency),
        uncorrected_latency: latency(&counts.uncorrected),
        lateness: latency(&counts.lateness),
        interval_s: plan.interval.seconds(),
        intervals: intervals.map(|(index, each)| interval(index, each, plan.interval)).collect(),
        cpu_s: outcome.cpu.seconds(),
        cpu_us_per_request: outcome.cpu_per_request(),
        warnings: outcome.warnings(),
    }
}

/// These words, quoted for a shell.
fn command(words: impl Iterator<Item = String>) -> String {
    let is_plain = |word: &str| {
        !word.is_empty()
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte))
    };
    let quoted = words.map(|word| match is_plain(&word) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn errors(counts: &Counts) -> results::Errors {
    let kinds = Failure::ALL.iter().map(|failure| (failure.name().to_owned(), counts.failures(*failure)));
    let wrong = Wrong::ALL.iter().map(|wrong| (wrong.name().to_owned(), counts.wrongs(*wrong)));
    results::Errors {
        total: counts.errors(),
        connect: counts.class(Class::Connect),
        read: counts.class(Class::Read),
        write: counts.class(Class::Write),
        timeout: counts.class(Class::Timeout),
        not_2xx: counts.not_2xx(),
        kinds: kinds.collect(),
        wrong: wrong.collect(),
    }
}

fn latency(histogram: &Histogram<u64>) -> results::Latency {
    let percentile =
        |(name, quantile): &(&str, f64)| (String::from(*name), spectrum::percentile(histogram, *quantile));
    let point = |Point { value, quantile, count }| (value, quantile, count);
    results::Latency {
        count: histogram.len(),
        min_us: histogram.min(),
        mean_us: histogram.mean(),
        stdev_us: histogram.stdev(),
        max_us: histogram.max(),
        percentiles_us: PERCENTILES.iter().map(percentile).collect(),
        spectrum: spectrum::points(histogram).map(point).collect(),
    }
}

fn interval(index: usize, interval: &Interval, length: Nanos) -> results::Interval {
    let latency = &interval.latency;
    let at = |quantile| latency.value_at_quantile(quantile).min(latency.max());
    results::Interval {
        at_s: index as f64 * length.seconds(),
        answered: interval.answered,
        errors: interval.errors,
        p50_us: at(0.5),
        p99_us: at(0.99),
        max_us: latency.max(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use clap::Parser as _;

    use super::*;
    use crate::load::LoadArgs;

    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        args: LoadArgs,
    }

    #[test]
    fn json_report_of_a_load_is_readable_as_the_result_of_an_experiment() {
        let words = "load -R100 -d2s -c3 --posts 50 http://127.0.0.1:9/a";
        let plan = Words::try_parse_from(words.split(' ')).unwrap().args.plan().unwrap();
        let first = plan.schedule.first;
        let mut counts = Counts::new(first, plan.interval);
        (counts.sent, counts.posts, counts.connected) = (3, 1, 3);
        counts.answer(200, first, first, first + Nanos::from_millis(7));
        counts.answer(503, first, first, first + Nanos::from_millis(8));
        counts.fail(Failure::Closed, first);
        let outcome = Outcome::new(plan, &[counts], SystemTime::now(), first, Nanos::from_millis(1), None);
        let read: results::Load = serde_json::from_str(&of(&outcome).unwrap()).unwrap();
        assert_eq!(
            (read.url.as_str(), read.connections, read.rate),
            ("http://127.0.0.1:9/a", 3, Some(100.0))
        );
        let requests = read.requests;
        assert_eq!((requests.due, requests.sent, requests.posts), (Some(200), 3, 1));
        assert_eq!((requests.answered, requests.unsent), (2, Some(197)));
        assert_eq!(read.statuses.into_iter().collect::<Vec<_>>(), [(200, 1), (503, 1)]);
        assert_eq!((read.errors.total, read.errors.kinds["read_closed"]), (2, 1));
        assert_eq!((read.latency.max_us, read.latency.percentiles_us["50"]), (8003, 7003));
        assert_eq!((read.intervals.len(), read.intervals[0].errors), (1, 2));
    }

    #[test]
    fn reported_command_is_quoted_for_the_shell() {
        let words = ["lab", "load", "-H", "A: it's", "", "http://a/?b=c&d"].map(str::to_owned);
        assert_eq!(command(words.into_iter()), r"lab load -H 'A: it'\''s' '' 'http://a/?b=c&d'");
    }
}
