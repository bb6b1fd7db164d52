//! One turn of one gateway: wrk, h2load or this program loads it, the kernel counts its CPU time.

use std::fmt;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use serde::Serialize;
use sluicegate_netns::Process;
use tokio::task::JoinSet;

use crate::gateway::{ECDSA, Gateway, RSA, version_of};
use crate::{calls, handshakes};

/// What a gateway is loaded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Work {
    /// Requests on kept-alive connections in clear text.
    Http,
    /// The same over TLS.
    Https,
    /// HTTP/2 over TLS: 20 connections of 10 requests at a time.
    Http2,
    /// Unary calls of gRPC over TLS: 20 connections of 10 calls at a time.
    Grpc,
    /// Each request on a TLS connection of its own, with an RSA certificate.
    HandshakesRsa,
    /// The same with an ECDSA certificate.
    HandshakesEcdsa,
}

impl Work {
    pub(crate) const ALL: [Self; 6] =
        [Self::Http, Self::Https, Self::Http2, Self::Grpc, Self::HandshakesRsa, Self::HandshakesEcdsa];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
            Self::Http2 => "HTTP/2",
            Self::Grpc => "gRPC unary",
            Self::HandshakesRsa => "new TLS, RSA",
            Self::HandshakesEcdsa => "new TLS, P-256",
        }
    }

    /// Where a gateway does this work, if it does.
    pub(crate) fn target(self, gateway: &Gateway) -> Option<SocketAddr> {
        match self {
            Self::Http => Some(gateway.addr),
            _ => gateway.tls,
        }
    }
}

/// What one turn gave.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) requests: u64,
    pub(crate) cpu_micros_per_request: f64,
    pub(crate) requests_per_second: f64,
    pub(crate) p99_millis: f64,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, cpu_micros_per_request, requests_per_second, p99_millis } = self;
        write!(
            f,
            "{cpu_micros_per_request:6.2} us CPU/request, {requests_per_second:7.0} requests/s, p99 {p99_millis:.2} ms, \
             {requests} requests"
        )
    }
}

/// What this program asked a gateway itself.
pub(crate) struct Made {
    requests: u64,
    took: Duration,
    p99_millis: f64,
}

impl Made {
    /// From tasks that give how long each of their requests took.
    pub(crate) async fn of(
        mut tasks: JoinSet<anyhow::Result<Vec<Duration>>>,
        start: Instant,
    ) -> anyhow::Result<Self> {
        let mut times = Vec::new();
        while let Some(done) = tasks.join_next().await {
            times.extend(done??);
        }
        times.sort();
        let p99 = times.get(times.len() * 99 / 100).context("nothing was asked")?;
        Ok(Self { requests: times.len() as u64, took: start.elapsed(), p99_millis: p99.as_secs_f64() * 1e3 })
    }
}

/// What `wrk` says about itself.
pub(crate) fn load_generator_version() -> Option<String> {
    version_of("wrk".as_ref(), &["-v"])
}

/// Loads a gateway for this long. Any answer but 2xx and any socket error is an error: a gateway that fails
/// is not measured.
pub(crate) async fn run(
    gateway: &Gateway,
    work: Work,
    duration: Duration,
    connections: usize,
) -> anyhow::Result<Run> {
    let name = gateway.kind.name();
    gateway.check().await?;
    let target = work.target(gateway).context("a gateway that cannot do the work")?;
    let before = gateway.process.cpu_time()?;
    let made = match work {
        Work::Http | Work::Https | Work::Http2 => None,
        Work::Grpc => Some(calls::make(target, duration).await),
        Work::HandshakesRsa => Some(handshakes::make(target, RSA, duration).await),
        Work::HandshakesEcdsa => Some(handshakes::make(target, ECDSA, duration).await),
    };
    if let Some(made) = made {
        let made = made.with_context(|| format!("{name} failed, so it is not measured"))?;
        let cpu = gateway.process.cpu_time()? - before;
        return Ok(Run {
            requests: made.requests,
            cpu_micros_per_request: cpu.as_secs_f64() * 1e6 / made.requests as f64,
            requests_per_second: made.requests as f64 / made.took.as_secs_f64(),
            p99_millis: made.p99_millis,
        });
    }
    let generator = if work == Work::Http2 { "h2load" } else { "wrk" };
    let mut command = Command::new(generator);
    let seconds = duration.as_secs();
    if work == Work::Http2 {
        command.args(["-t1", "-c20", "-m10", "--warm-up-time=0"]).arg(format!("-D{seconds}"));
    } else {
        command.args(["-t1", "--latency", "--timeout", "10s"]);
        command.args([format!("-c{connections}"), format!("-d{seconds}s")]);
    }
    let scheme = if work == Work::Http { "http" } else { "https" };
    command.arg(format!("{scheme}://{target}/"));
    let mut load = Process::start(command)?;
    let status = load.wait(duration + Duration::from_secs(30)).await?;
    let cpu = gateway.process.cpu_time()? - before;
    let output = load.output();
    ensure!(status.success(), "{generator} on {name} ended with {status}:\n{output}");
    let parsed = match work {
        Work::Http2 => parse_h2load(&output, cpu),
        _ if output.contains("Non-2xx") || output.contains("Socket errors") => {
            bail!("{name} failed requests, so it is not measured:\n{output}")
        }
        _ => parse(&output, cpu),
    };
    parsed.with_context(|| format!("{generator} on {name} printed:\n{output}"))
}

/// What h2load prints; nothing if a request failed.
fn parse_h2load(output: &str, cpu: Duration) -> Option<Run> {
    let line = |start: &str| output.lines().find_map(|line| line.trim_start().strip_prefix(start));
    let number = |text: &str, word: &str| -> Option<u64> {
        let before = text.split(',').find(|part| part.trim_end().ends_with(word))?;
        before.trim().strip_suffix(word)?.trim().parse().ok()
    };
    let requests = line("requests:")?;
    let failed = number(requests, "failed")? + number(requests, "errored")? + number(requests, "timeout")?;
    let served = number(line("status codes:")?, "2xx")?;
    if failed > 0 || served == 0 {
        return None;
    }
    let rate = line("finished in")?.split(',').nth(1)?.trim().strip_suffix("req/s")?.trim().parse().ok()?;
    Some(Run {
        requests: served,
        cpu_micros_per_request: cpu.as_secs_f64() * 1e6 / served as f64,
        requests_per_second: rate,
        // It prints no percentiles.
        p99_millis: f64::NAN,
    })
}

fn parse(output: &str, cpu: Duration) -> Option<Run> {
    let first_of = |line: &str| line.split_ascii_whitespace().next().map(str::to_owned);
    let requests: u64 =
        first_of(output.lines().find(|line| line.contains(" requests in "))?)?.parse().ok()?;
    let rate = output.lines().find_map(|line| line.strip_prefix("Requests/sec:"))?;
    let p99 = output.lines().find_map(|line| line.trim_start().strip_prefix("99%"))?.trim();
    Some(Run {
        requests,
        cpu_micros_per_request: cpu.as_secs_f64() * 1e6 / requests as f64,
        requests_per_second: rate.trim().parse().ok()?,
        p99_millis: millis(p99)?,
    })
}

/// A time as wrk prints it: `950.00us`, `3.21ms`, `1.02s`.
fn millis(text: &str) -> Option<f64> {
    let units = [("us", 1e-3), ("ms", 1.0), ("s", 1e3)];
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_wrk_is_understood() {
        let output = "Running 2s test @ http://127.0.0.1:1/\n  1 threads and 100 connections\n  Thread Stats   Avg\n  \
                      Latency Distribution\n     50%    1.10ms\n     99%  500.00us\n  40000 requests in 2.00s, 44MB read\n\
                      Requests/sec:  20000.50\nTransfer/sec:     22.1MB\n";
        let run = parse(output, Duration::from_millis(400)).unwrap();
        assert_eq!((run.requests, run.requests_per_second, run.p99_millis), (40_000, 20_000.5, 0.5));
        assert!((run.cpu_micros_per_request - 10.0).abs() < 1e-9);
    }
}
