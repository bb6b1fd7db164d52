//! The live line and the summary.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use sluicegate_testkit::client;
use sluicegate_testkit::load::{Report, Running};
use tokio::time::{Instant, sleep_until, timeout};

use crate::certificate::Counts;

/// Shows the counts of the loads and of the certificate checks, and the gateway's own metrics.
#[derive(Debug)]
pub(crate) struct Screen {
    http: Running,
    https: Running,
    certificate: Rc<RefCell<Counts>>,
    admin: SocketAddr,
    live: bool,
    retries: u64,
    hedges: u64,
}

impl Screen {
    pub(crate) fn new(
        http: Running,
        https: Running,
        certificate: Rc<RefCell<Counts>>,
        admin: SocketAddr,
    ) -> Self {
        let live = io::stdout().is_terminal();
        Self { http, https, certificate, admin, live, retries: 0, hedges: 0 }
    }

    /// Shows the line repeatedly until `until`: on a terminal twice a second in place, and elsewhere once a second on a
    /// new line.
    pub(crate) async fn show_until(&mut self, until: Instant, backends: usize) {
        let pause = Duration::from_millis(if self.live { 500 } else { 1000 });
        let mut next = Instant::now();
        while next < until {
            next += pause;
            sleep_until(next.min(until)).await;
            self.scrape().await;
            let line = self.line(&together(&self.http.snapshot(), &self.https.snapshot()), backends);
            let (start, end) = if self.live { ("\r\x1b[K", "") } else { ("", "\n") };
            print!("{start}{line}{end}");
            // The demo continues without a terminal.
            let _ = io::stdout().flush();
        }
    }

    /// Stops the loads and prints the summary. Returns whether all requests and handshakes succeeded.
    pub(crate) async fn finish(mut self, changes: u64) -> anyhow::Result<bool> {
        self.scrape().await;
        let (http, https) = tokio::try_join!(self.http.stop(), self.https.stop())?;
        let (all, certificate) = (together(&http, &https), self.certificate.borrow());
        if self.live {
            println!();
        }
        println!(
            "\n{} requests in {:.1?}, {} of them over HTTPS, {} failed.",
            all.requests(),
            all.elapsed,
            https.requests(),
            all.failures()
        );
        println!(
            "The endpoints changed {changes} times; {} requests were retried, {} connects were hedged.",
            self.retries, self.hedges
        );
        println!(
            "The certificate was rotated {} times; {} handshakes beside the load received {} different certificates, {} failed.",
            certificate.rotations, certificate.handshakes, certificate.met, certificate.failed
        );
        let [p50, p99, p9999, max] =
            [all.quantile(0.5), all.quantile(0.99), all.quantile(0.9999), all.max()].map(millis);
        println!("Latency p50 {p50}, p99 {p99}, p99.99 {p9999}, max {max}.");
        for (scheme, report) in [("HTTP", &http), ("HTTPS", &https)] {
            for ((kind, failure), count) in &report.failed {
                println!("{count} x {scheme} {kind:?}: {failure}");
            }
            for example in &report.examples {
                println!("e.g. {scheme} {example}");
            }
        }
        for example in &certificate.examples {
            println!("e.g. handshake: {example}");
        }
        let failures = all.failures() + certificate.failed;
        Ok(failures == 0 && http.ok > 0 && https.ok > 0 && certificate.met > 0)
    }

    fn line(&self, report: &Report, backends: usize) -> String {
        let [p50, p99, p9999] = [0.5, 0.99, 0.9999].map(|quantile| millis(report.quantile(quantile)));
        let certificate = self.certificate.borrow();
        format!(
            "{:>4.0?} requests {:>8}  failures {}  retries {}  p50 {p50}  p99 {p99}  p99.99 {p9999}  endpoints \
             {backends}  certificate {}",
            Duration::from_secs(report.elapsed.as_secs()),
            report.requests(),
            report.failures() + certificate.failed,
            self.retries,
            certificate.rotations + 1
        )
    }

    /// Reads the gateway's counters. The old values stay if the gateway does not respond.
    async fn scrape(&mut self) {
        let get = timeout(Duration::from_millis(500), client::get(self.admin, "localhost", "/metrics"));
        if let Ok(Ok(response)) = get.await {
            let text = response.text();
            self.retries = sum(&text, "sluicegate_upstream_retries_total");
            self.hedges = sum(&text, "sluicegate_upstream_hedges_total");
        }
    }
}

fn together(http: &Report, https: &Report) -> Report {
    let mut all = http.clone();
    all.merge(https);
    all
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
    fn counter_is_summed_over_all_label_values() {
        let text = "# TYPE a_total counter\na_total{route=\"x y\"} 3\na_total{route=\"z\"} 4\na_totals 9\nb_total 5\n";
        assert_eq!((sum(text, "a_total"), sum(text, "b_total"), sum(text, "c_total")), (7, 5, 0));
    }
}
