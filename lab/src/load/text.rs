//! The results of a load, in wrk2's layout.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

use super::args::Parts;
use super::counts::{Class, Failure, Wrong};
use super::nanos::Nanos;
use super::outcome::Outcome;
use super::plan::{Plan, Protocol};
use super::schedule::Pace;
use super::spectrum::{self, PERCENTILES, percentile};

/// The text before the load.
pub(crate) fn heading(plan: &Plan) -> String {
    let schedule = &plan.schedule;
    let pace = match schedule.pace {
        Pace::Rate(rate) => format!("{rate} requests/s"),
        Pace::Closed => "closed loop".to_owned(),
    };
    let streams = match plan.protocol {
        Protocol::Http1 => String::new(),
        Protocol::Http2 { streams, .. } => format!(" of HTTP/2 with {streams} streams"),
    };
    format!(
        "Running {} test @ {}\n  {} threads and {} connections{streams}, {pace}, to {}\n",
        seconds(schedule.end - schedule.first),
        plan.target.url,
        plan.threads,
        schedule.connections,
        plan.address
    )
}

/// The text after the load.
pub(crate) fn of(outcome: &Outcome, parts: Parts) -> String {
    let counts = &outcome.counts;
    let mut out = "  Thread Stats   Avg      Stdev     Max   +/- Stdev\n".to_owned();
    // Writing to a String cannot fail.
    let _ = write!(out, "{}{}", latency_line(&counts.latency), rate_line(&counts.rates));
    if parts.latency {
        out += &distribution("Recorded Latency", &counts.latency);
    }
    if parts.uncorrected {
        let title = "Uncorrected Latency (measured without taking delayed starts into account)";
        out += &distribution(title, &counts.uncorrected);
    }
    let (answered, bytes) = (counts.answered, scaled(counts.bytes as f64, &BINARY));
    let _ = writeln!(out, "  {answered} requests in {}, {bytes}B read", seconds(outcome.elapsed));
    if counts.posts > 0 {
        let _ = writeln!(out, "  {} of {} requests sent were POSTs", counts.posts, counts.sent);
    }
    out += &errors(outcome);
    let _ = writeln!(out, "Requests/sec: {:9.2}", outcome.requests_per_second());
    let _ = writeln!(out, "Transfer/sec: {:>10}B", scaled(outcome.bytes_per_second(), &BINARY));
    if let Some(cpu) = outcome.cpu_per_request() {
        let _ = writeln!(out, "CPU/request:  {cpu:9.2}us of this program");
    }
    for warning in outcome.warnings() {
        let _ = writeln!(out, "Warning: {warning}");
    }
    out
}

fn errors(outcome: &Outcome) -> String {
    let counts = &outcome.counts;
    let mut out = String::new();
    let of = |class| counts.class(class);
    let classes = [Class::Connect, Class::Read, Class::Write, Class::Timeout];
    if classes.iter().any(|class| of(*class) > 0) {
        let [connect, read, write, timeout] = classes.map(of);
        let _ = writeln!(
            out,
            "  Socket errors: connect {connect}, read {read}, write {write}, timeout {timeout}"
        );
        let kinds = Failure::ALL.iter().map(|failure| (failure.name(), counts.failures(*failure)));
        let _ = writeln!(out, "    of which: {}", listed(kinds));
    }
    // The line has the wording of wrk. wrk counts statuses from 400 on as errors.
    let bad: u64 = counts.statuses().filter(|(status, _)| *status >= 400).map(|(_, count)| count).sum();
    if bad > 0 {
        let _ = writeln!(out, "  Non-2xx or 3xx responses: {bad}");
    }
    if counts.not_2xx() > 0 {
        let statuses = counts.statuses().map(|(status, count)| format!("{status}: {count}"));
        let _ = writeln!(out, "    by status: {}", statuses.collect::<Vec<_>>().join(", "));
    }
    let wrong = Wrong::ALL.iter().map(|wrong| (wrong.name(), counts.wrongs(*wrong)));
    if Wrong::ALL.iter().any(|wrong| counts.wrongs(*wrong) > 0) {
        let _ = writeln!(out, "  Wrong answers: {}", listed(wrong));
    }
    if counts.closed_idle > 0 {
        let _ = writeln!(out, "  Connections closed by the server between requests: {}", counts.closed_idle);
    }
    out
}

/// The names with counts above 0.
fn listed<'n>(counts: impl Iterator<Item = (&'n str, u64)>) -> String {
    let present = counts.filter(|(_, count)| *count > 0);
    present.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

fn latency_line(histogram: &Histogram<u64>) -> String {
    let (mean, stdev) = (histogram.mean(), histogram.stdev());
    let within = share_within(histogram, mean, stdev);
    stats_line("Latency", [micros(mean), micros(stdev), micros(histogram.max() as f64)], within)
}

fn rate_line(rates: &[f64]) -> String {
    let count = (rates.len() as f64).max(1.0);
    let mean = rates.iter().sum::<f64>() / count;
    let stdev = (rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / count).sqrt();
    let max = rates.iter().copied().fold(0.0, f64::max);
    let within = rates.iter().filter(|rate| (*rate - mean).abs() <= stdev).count() as f64 / count;
    stats_line("Req/Sec", [mean, stdev, max].map(|rate| scaled(rate, &METRIC)), within)
}

fn share_within(histogram: &Histogram<u64>, mean: f64, stdev: f64) -> f64 {
    if histogram.is_empty() {
        return 0.0;
    }
    let low = (mean - stdev).max(0.0) as u64;
    histogram.count_between(low, (mean + stdev) as u64) as f64 / histogram.len() as f64
}

fn stats_line(name: &str, [mean, stdev, max]: [String; 3], within: f64) -> String {
    let columns = [padded(&mean, 8), padded(&stdev, 10), padded(&max, 9)].concat();
    format!("    {name:<10}{columns}{:8.2}%\n", within * 100.0)
}

/// The text right-aligned as in wrk, except for the room of a unit with two letters.
fn padded(text: &str, width: usize) -> String {
    let letters = text.bytes().rev().take(2).take_while(u8::is_ascii_alphabetic).count();
    let pad = 2 - letters;
    format!("{text:>width$}{}", " ".repeat(pad), width = width - pad)
}

fn distribution(title: &str, histogram: &Histogram<u64>) -> String {
    let mut out = format!("  Latency Distribution (HdrHistogram - {title})\n");
    for (name, quantile) in PERCENTILES {
        // wrk2 prints three decimals; the last percentile needs another.
        let decimals = name.split_once('.').map_or(0, |(_, decimals)| decimals.len()).max(3);
        let value = micros(percentile(histogram, quantile) as f64);
        let _ = writeln!(out, "{:>7}%{}", format!("{:.decimals$}", quantile * 100.0), padded(&value, 10));
    }
    let _ = writeln!(out, "{:>7}%{}", "100.000", padded(&micros(histogram.max() as f64), 10));
    out + "\n  Detailed Percentile spectrum:\n"
        + &spectrum::detailed(histogram)
        + "----------------------------------------------------------\n"
}

/// A unit and the next larger units, each with this factor to the previous unit.
struct Units {
    factor: f64,
    names: &'static [&'static str],
}

const METRIC: Units = Units { factor: 1000.0, names: &["", "k", "M", "G", "T"] };
const BINARY: Units = Units { factor: 1024.0, names: &["", "K", "M", "G", "T", "P"] };
const MICROS: Units = Units { factor: 1000.0, names: &["us", "ms"] };
const SECONDS: Units = Units { factor: 60.0, names: &["s", "m", "h"] };

/// A number with two decimals, in the unit that wrk would print: the next unit from 85 % of it on.
fn scaled(number: f64, units: &Units) -> String {
    let (mut number, mut unit) = (number, 0);
    while unit + 1 < units.names.len() && number >= units.factor * 0.85 {
        number /= units.factor;
        unit += 1;
    }
    format!("{number:.2}{}", units.names[unit])
}

/// A time in microseconds, in a suitable unit.
pub(crate) fn micros(micros: f64) -> String {
    if micros >= 1e6 { scaled(micros / 1e6, &SECONDS) } else { scaled(micros, &MICROS) }
}

fn seconds(time: Nanos) -> String {
    micros(time.seconds() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_in_the_units_of_wrk() {
        let times = [(0.0, "0.00us"), (849.0, "849.00us"), (850.0, "0.85ms"), (12_340.0, "12.34ms")];
        for (time, text) in
            times.into_iter().chain([(999_999.0, "1000.00ms"), (1.5e6, "1.50s"), (9e7, "1.50m")])
        {
            assert_eq!(micros(time), text);
        }
        assert_eq!(scaled(2000.0, &METRIC), "2.00k");
        assert_eq!(scaled(20.0 * 1024.0 * 1024.0, &BINARY), "20.00M");
    }

    #[test]
    fn lines_of_statistics_have_the_columns_of_wrk() {
        let line = stats_line("Latency", ["6.60ms".into(), "1.92ms".into(), "12.50ms".into()], 0.6846);
        assert_eq!(line, "    Latency     6.60ms    1.92ms  12.50ms   68.46%\n");
        let line = stats_line("Req/Sec", ["1.04k".into(), "80.00".into(), "2.50k".into()], 0.7279);
        assert_eq!(line, "    Req/Sec     1.04k    80.00     2.50k    72.79%\n");
    }
}
