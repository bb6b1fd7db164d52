//! The latency that a gateway adds to a single request: the request directly to a pod and through each gateway, in
//! turn, each on its own connection, as curl opens it.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::process::setpriority_process;
use sluicegate_netns::process::cpu_time_of_tree;

use super::super::Entrant;
use super::super::machine::PRIORITY;
use super::super::running::Place;
use super::bench::{Backends, Bench, Standing};
use super::task::Task;
use crate::gateway::api::{Header, Limit};
use crate::gateway::{Api, HOST};
use crate::report::median;
use crate::results::{Added, Point};
use crate::socket::read_some;

/// The number of rounds before the counted rounds.
const WARM_UP: usize = 20;

/// The timeout of a request.
const PATIENCE: Duration = Duration::from_secs(5);

/// The largest response, with its head.
const MOST: usize = 1 << 21;

/// The times of single requests: directly to a pod, and through each gateway.
struct Rounds {
    straight: Vec<Duration>,
    through: Vec<Vec<Duration>>,
    /// The errors of each gateway.
    errors: Vec<u64>,
}

/// The results of a turn: for each gateway its index, its point, and the running gateway.
pub(super) async fn measure(
    bench: &Bench<'_>,
    kinds: &[(usize, &Entrant)],
    task: Task,
    turn: usize,
    requests: usize,
) -> anyhow::Result<Vec<(usize, Point, Standing)>> {
    bench.divide(1)?;
    let backends = Backends::start().await?;
    let mut standing = Vec::new();
    for (_, Entrant { kind, .. }) in kinds {
        let one = bench.start(kind, task, 1, Limit::HIGH, &backends).await;
        standing.push(one.with_context(|| kind.name.to_owned())?);
    }
    let targets: Vec<Target> = standing.iter().map(|one| Target::of(one, task)).collect();
    let cpu = || -> io::Result<Vec<Duration>> {
        standing.iter().map(|one| cpu_time_of_tree(one.gateway.process.pid())).collect()
    };
    let straight = task.path(&Api::Nothing);
    let run = |rounds| Place::Loopback.enter(|| run(&backends.addresses, &straight, &targets, rounds))?;
    run(WARM_UP)?;
    let before = cpu()?;
    let rounds = run(requests)?;
    let after = cpu()?;
    let straight = median_ms(&rounds.straight)?;
    let mut points = Vec::new();
    for (at, ((index, _), mut one)) in kinds.iter().zip(standing).enumerate() {
        one.gateway.ensure_running()?;
        let through = &rounds.through[at];
        // Signed: noise can make a gateway faster than a direct request.
        let added: Vec<f64> = through
            .iter()
            .zip(&rounds.straight)
            .map(|(through, straight)| (through.as_secs_f64() - straight.as_secs_f64()) * 1e3)
            .collect();
        let (cpu, took) = (after[at].saturating_sub(before[at]), through.iter().sum::<Duration>());
        let mut sorted = through.clone();
        sorted.sort_unstable();
        let p99 = sorted.get(sorted.len() * 99 / 100).or(sorted.last()).copied().unwrap_or_default();
        points.push((
            *index,
            Point {
                work: task.name(),
                workers: 1,
                turn,
                requests: requests as u64,
                requests_per_s: requests as f64 / took.as_secs_f64().max(1e-9),
                errors: rounds.errors[at],
                cpu_us_per_request: cpu.as_secs_f64() * 1e6 / requests as f64,
                cpus: cpu.as_secs_f64() / took.as_secs_f64().max(1e-9),
                p50_ms: median_ms(through)?,
                p99_ms: p99.as_secs_f64() * 1e3,
                added: Some(Added {
                    straight_ms: straight,
                    added_ms: median(&added).context("no request was made")?,
                }),
                functions: task.with_functions(),
                ..Point::default()
            },
            one,
        ));
    }
    Ok(points)
}

fn median_ms(times: &[Duration]) -> anyhow::Result<f64> {
    let millis: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    median(&millis).context("no request was made")
}

/// The destination of a request, and its credentials.
struct Target {
    address: SocketAddr,
    path: String,
    header: Option<Header>,
}

impl Target {
    fn of(standing: &Standing, task: Task) -> Self {
        let gateway = &standing.gateway;
        Self {
            address: gateway.site.http,
            path: task.path(&gateway.config.api),
            header: gateway.config.api.good().into_iter().next(),
        }
    }

    /// The time of a request, from the connect to the last byte, and whether the status was 200.
    fn ask(&self) -> io::Result<(Duration, bool)> {
        let header = Header::line(self.header.as_ref());
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {HOST}\r\nUser-Agent: sluicegate-lab\r\nAccept: */*\r\n{header}\r\n",
            self.path
        );
        let mut answer = Vec::with_capacity(4096);
        let mut buffer = [0; 16 * 1024];
        let start = Instant::now();
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        while !is_whole(&answer) {
            let read = read_some(&mut stream, &mut buffer)?;
            if read == 0 || answer.len() > MOST {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            answer.extend_from_slice(&buffer[..read]);
        }
        Ok((start.elapsed(), answer.starts_with(b"HTTP/1.1 200 ")))
    }
}

/// Makes the requests, each round in a different order, so that no gateway always follows the same gateway: otherwise
/// the work of a gateway after its response would count for the next gateway.
fn run(pods: &[SocketAddr], path: &str, gateways: &[Target], rounds: usize) -> anyhow::Result<Rounds> {
    // Without root the thread keeps its priority.
    let _ = setpriority_process(None, PRIORITY);
    let pods: Vec<Target> =
        pods.iter().map(|pod| Target { address: *pod, path: path.to_owned(), header: None }).collect();
    ensure!(!pods.is_empty(), "there are no pods");
    let mut found = Rounds {
        straight: Vec::with_capacity(rounds),
        through: vec![Vec::with_capacity(rounds); gateways.len()],
        errors: vec![0; gateways.len()],
    };
    let all = gateways.len() + 1;
    let mut orders = Orders::new(all);
    for round in 0..rounds {
        for at in orders.next() {
            match *at {
                0 => {
                    let (took, is_ok) = pods[round % pods.len()].ask().context("a pod, asked straight")?;
                    ensure!(is_ok, "a pod, asked straight, does not answer 200");
                    found.straight.push(took);
                }
                at => {
                    // A failed request counts as the whole timeout, so that frequent failures raise the median.
                    let (took, is_ok) = gateways[at - 1].ask().unwrap_or((PATIENCE, false));
                    found.through[at - 1].push(took);
                    found.errors[at - 1] += u64::from(!is_ok);
                }
            }
        }
    }
    Ok(found)
}

/// A sequence of orders, the same in every run.
struct Orders {
    order: Vec<usize>,
    state: u64,
}

impl Orders {
    fn new(length: usize) -> Self {
        Self { order: (0..length).collect(), state: 0 }
    }

    /// A shuffled order (Fisher and Yates).
    fn next(&mut self) -> &[usize] {
        for last in (1..self.order.len()).rev() {
            let other = (self.random() % (last as u64 + 1)) as usize;
            self.order.swap(last, other);
        }
        &self.order
    }

    /// `SplitMix64`.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Whether the response is complete, by its Content-Length or its last chunk.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]);
    let length = head.lines().filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    let body = &answer[end + 4..];
    length.map_or_else(|| body.ends_with(b"0\r\n\r\n"), |length| body.len() >= length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gateway_is_measured_after_each_other_gateway_equally_often() {
        let mut orders = Orders::new(4);
        let mut follows = [[0; 4]; 4];
        for _ in 0..1200 {
            let order = orders.next().to_vec();
            assert!((0..4).all(|one| order.contains(&one)), "{order:?}");
            for pair in order.windows(2) {
                follows[pair[0]][pair[1]] += 1;
            }
        }
        // The average is 300.
        let pairs = (0..4).flat_map(|one| (0..4).map(move |other| (one, other)));
        let mut counts = pairs.filter(|(one, other)| one != other).map(|(one, other)| follows[one][other]);
        assert!(counts.all(|count| (220..380).contains(&count)), "{follows:?}");
    }

    #[test]
    fn response_is_complete_at_its_content_length_or_last_chunk() {
        for (text, whole) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na", false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", false),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", false),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", true),
        ] {
            assert_eq!(is_whole(text.as_bytes()), whole, "{text:?}");
        }
    }
}
