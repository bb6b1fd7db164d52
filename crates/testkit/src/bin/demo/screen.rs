//! The live line and the summary.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::Duration;

use sluicegate_testkit::client;
use sluicegate_testkit::load::{Report, Running};
use tokio::time::{Instant, sleep_until, timeout};

/// Shows what a load counts and what the gateway's own metrics say.
#[derive(Debug)]
pub(crate) struct Screen {
    load: Running,
    admin: SocketAddr,
    live: bool,
    retries: u64,
    hedges: u64,
}

impl Screen {
    pub(crate) fn new(load: Running, admin: SocketAddr) -> Self {
        Self { load, admin, live: io::stdout().is_terminal(), retries: 0, hedges: 0 }
    }

    /// Shows the line again and again until then: twice a second over itself on a terminal, else once a
    /// second below the last.
    pub(crate) async fn show_until(&mut self, until: Instant, backends: usize) {
        let pause = Duration::from_millis(if self.live { 500 } else { 1000 });
        let mut next = Instant::now();
        while next < until {
            next += pause;
            sleep_until(next.min(until)).await;
            self.scrape().await;
            let line = self.line(&self.load.snapshot(), backends);
            let (start, end) = if self.live { ("\r\x1b[K", "") } else { ("", "\n") };
            print!("{start}{line}{end}");
            // A terminal that has gone away does not end the demo.
            let _ = io::stdout().flush();
        }
    }

    /// Stops the load and prints the summary.
    pub(crate) async fn finish(mut self, changes: u64) -> anyhow::Result<Report> {
        self.scrape().await;
        let (retries, hedges) = (self.retries, self.hedges);
        let report = self.load.stop().await?;
        if self.live {
            println!();
        }
        println!("\n{} requests in {:.1?}, {} failed.", report.requests(), report.elapsed, report.failures());
        println!(
            "The back ends changed {changes} times; {retries} requests were tried again elsewhere, {hedges} connects \
             were hedged."
        );
        let [p50, p99, p9999, max] =
            [report.quantile(0.5), report.quantile(0.99), report.quantile(0.9999), report.max()].map(millis);
        println!("Latency p50 {p50}, p99 {p99}, p99.99 {p9999}, max {max}.");
        for ((kind, failure), count) in &report.failed {
            println!("{count} x {kind:?}: {failure}");
        }
        for example in &report.examples {
            println!("e.g. {example}");
        }
        Ok(report)
    }

    fn line(&self, report: &Report, backends: usize) -> String {
        let [p50, p99, p9999] = [0.5, 0.99, 0.9999].map(|quantile| millis(report.quantile(quantile)));
        format!(
            "{:>4.0?} requests {:>8}  failures {}  retries {}  hedges {}  p50 {p50}  p99 {p99}  p99.99 {p9999}  \
             back ends {backends}",
            Duration::from_secs(report.elapsed.as_secs()),
            report.requests(),
            report.failures(),
            self.retries,
            self.hedges
        )
    }

    /// Reads the gateway's counters; they stay as they were when it does not answer.
    async fn scrape(&mut self) {
        let get = timeout(Duration::from_millis(500), client::get(self.admin, "localhost", "/metrics"));
        if let Ok(Ok(response)) = get.await {
            let text = response.text();
            self.retries = sum(&text, "sluicegate_upstream_retries_total");
            self.hedges = sum(&text, "sluicegate_upstream_hedges_total");
        }
    }
}

/// The sum over all labels of one counter in the Prometheus text format.
fn sum(metrics: &str, name: &str) -> u64 {
    let samples = metrics.lines().filter_map(|line| line.strip_prefix(name));
    let samples = samples.filter(|rest| rest.starts_with(['{', ' ']));
    let values = samples.filter_map(|rest| rest.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum::<f64>() as u64
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_summed_over_its_labels() {
        let text = "# TYPE a_total counter\na_total{route=\"x y\"} 3\na_total{route=\"z\"} 4\na_totals 9\nb_total 5\n";
        assert_eq!((sum(text, "a_total"), sum(text, "b_total"), sum(text, "c_total")), (7, 5, 0));
    }
}
