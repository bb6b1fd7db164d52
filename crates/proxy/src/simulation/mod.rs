//! Deterministic simulation of the zero-loss contract (ARCHITECTURE.md): the gateway itself, without copies or models of
//! its code, runs against a simulated clock and a simulated network.
//!
//! A seed determines a [`schedule`]: requests of clients, endpoints that come, fail and end, changes of the control plane,
//! and processes of the gateway that leave. The seed also determines the random choices of the gateway. So a seed that fails
//! repeats its failure. `run` runs one schedule in one thread: the workers are tasks instead of threads.
//!
//! | module | purpose |
//! |---|---|
//! | [`schedule`] | what happens, and when |
//! | [`world`] | runs a schedule |
//! | [`pod`], [`client`] | endpoints and clients |
//! | [`wire`] | HTTP/1.1 of endpoints and clients |
//! | [`history`] | what happened |
//! | [`check`] | the invariants |

mod check;
mod client;
mod history;
mod pod;
mod schedule;
mod wire;
mod world;

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use schedule::{Action, Body, Method, Pod, Request, Schedule, Step};

/// The number of schedules that `cargo test` runs.
const FEW: u64 = 500;

fn variable(name: &str) -> Option<u64> {
    let text = env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

/// The trace of the smallest schedule with this seed that fails.
fn explain(schedule: Schedule) -> String {
    let seed = schedule.seed;
    let small = schedule.shrink(|smaller| !world::run(smaller, false).violations.is_empty());
    let run = world::run(&small, true);
    let mut text = format!("{small}\n");
    for line in &run.log {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{line}");
    }
    let _ = write!(text, "\nSLUICEGATE_SEED={seed} repeats this failure:\n{}", run.violations.join("\n"));
    text
}

/// The first of the seeds that fails, of each thread.
fn failures(seeds: &Range<u64>) -> (BTreeSet<u64>, usize) {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (next, failed, attempts) = (AtomicU64::new(seeds.start), AtomicBool::new(false), AtomicUsize::new(0));
    let run_some = || {
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) {
                break;
            }
            let run = world::run(&Schedule::new(seed), false);
            attempts.fetch_add(run.attempts, Ordering::Relaxed);
            if !run.violations.is_empty() {
                failed.store(true, Ordering::Relaxed);
                return Some(seed);
            }
        }
        None
    };
    let failures = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run_some)).collect();
        threads.into_iter().filter_map(|thread| thread.join().expect("a run")).collect()
    });
    (failures, attempts.into_inner())
}

/// `SLUICEGATE_SEED` and `SLUICEGATE_SCHEDULES` select the schedules: a seed alone is one schedule.
#[test]
fn schedules_keep_the_zero_loss_contract() {
    let (seed, count) = (variable("SLUICEGATE_SEED"), variable("SLUICEGATE_SCHEDULES"));
    let count = count.unwrap_or(if seed.is_some() { 1 } else { FEW });
    let seeds = seed.unwrap_or(1)..seed.unwrap_or(1) + count;
    let (failures, attempts) = failures(&seeds);
    if let Some(seed) = failures.first() {
        panic!("after {} schedules:\n{}", seed - seeds.start + 1, explain(Schedule::new(*seed)));
    }
    let least = 4 * count as usize;
    assert!(count < FEW || attempts > least, "{attempts} attempts at endpoints in {count} schedules");
}

#[test]
fn seed_determines_everything_that_happens() {
    for seed in 1..=30 {
        let schedule = Schedule::new(seed);
        let (one, other) = (world::run(&schedule, true), world::run(&schedule, true));
        let differs = one.log.iter().zip(&other.log).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.fingerprint, other.fingerprint, "seed {seed}");
    }
}

/// Runs these steps with many seeds, which select the treatment of the requests and the random choices of the gateway.
fn run_steps(limit: Option<u32>, pods: &[Pod], steps: Vec<(u64, Action)>) {
    let steps: Vec<_> = steps.into_iter().map(|(at, action)| Step { at, action }).collect();
    for seed in 1..=100 {
        let schedule = Schedule {
            seed,
            workers: 1,
            configured: 0,
            late_percent: 0,
            retries: None,
            limit,
            ejects: false,
            connect: 3000,
            pods: pods.to_vec(),
            steps: steps.clone(),
        };
        let run = world::run(&schedule, false);
        assert!(run.violations.is_empty(), "{}", explain(schedule));
        assert!(run.longest < 3000, "seed {seed}: a request waited for the end of a connect");
    }
}

fn pod(host: usize, latency: u64, bad_percent: u8) -> Pod {
    Pod { upstream: 0, host, latency, starts: true, bad_percent, keep_alive: None }
}

fn get(id: usize) -> Action {
    let (method, body) = (Method::Get, Body::None);
    Action::Request(Request { id, client: id, method, body, route: 0, fresh: true, abort: None })
}

#[test]
fn retry_goes_to_a_distant_endpoint_instead_of_the_near_endpoint_that_failed() {
    let of_other_route = Pod { upstream: 1, ..pod(0, 0, 0) };
    let pods = [pod(0, 1, 100), pod(1, 15, 0), pod(2, 15, 0), of_other_route];
    run_steps(None, &pods, (0..8).map(|id| (100 * id as u64, get(id))).collect());
}

#[test]
fn connect_that_hangs_is_raced_again_when_an_endpoint_has_room() {
    let of_other_route = Pod { upstream: 1, ..pod(0, 0, 0) };
    let pods = [pod(0, 1, 0), pod(1, 1, 0), of_other_route];
    let silence = Action::Silence { pod: 1, silent: true };
    run_steps(Some(1), &pods, vec![(10, silence), (20, get(0)), (24, get(1))]);
}
