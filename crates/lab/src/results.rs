//! What an experiment found, as it is stored: `results.json`. The report is made of it and of nothing else.
//!
//! Times are in the unit that a name ends in. Names stay; more may come.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Everything that an experiment found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    /// Of this layout.
    pub(crate) schema: u32,
    /// The experiment's name: `dynamic`.
    pub(crate) experiment: String,
    pub(crate) title: String,
    /// What it asks, in a sentence or two.
    pub(crate) about: String,
    /// The experiment's file, as it was run.
    pub(crate) declared: String,
    /// Which published study it repeats: a name in [`crate::published`].
    pub(crate) published: Option<String>,
    /// What was typed.
    pub(crate) command: String,
    pub(crate) started_unix_ms: u128,
    pub(crate) took_s: f64,
    pub(crate) machine: Machine,
    /// What all gateways were loaded with, in words: one line each.
    pub(crate) setting: Vec<String>,
    /// How fast each gateway was when the rate was looked for; empty if it was given.
    pub(crate) saturation: Vec<Saturation>,
    /// In the order in which they took their turns.
    pub(crate) gateways: Vec<OfGateway>,
    /// Those that could not take part.
    pub(crate) skipped: Vec<Skipped>,
    /// What the reader has to know before believing a figure: a busy machine, a generator that was late.
    pub(crate) warnings: Vec<String>,
    /// What hardware with so many CPUs costs in US dollars, from a file that was given; empty: the published prices.
    #[serde(default)]
    pub(crate) prices: BTreeMap<usize, f64>,
}

/// Where it was run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) cpus: usize,
    pub(crate) memory_mib: u64,
    /// The load average of the last minute before it began: what else the machine was doing.
    pub(crate) load_before: f64,
    /// The CPUs that the gateway had to itself, and those of the load and the pods.
    pub(crate) gateway_cpus: Vec<usize>,
    pub(crate) other_cpus: Vec<usize>,
}

/// What a gateway did in a closed loop, before the rate was chosen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Saturation {
    pub(crate) gateway: String,
    pub(crate) requests_per_s: f64,
}

/// A gateway that could not take part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Skipped {
    pub(crate) gateway: String,
    pub(crate) why: String,
}

/// What one gateway did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OfGateway {
    /// As on the command line: `nginx-lua`.
    pub(crate) name: String,
    /// As people know it: "nginx, balancer_by_lua".
    pub(crate) title: String,
    pub(crate) version: String,
    /// How it learns of endpoints, certificates and routes, in a sentence.
    pub(crate) learns: String,
    /// What it was started with.
    pub(crate) command: String,
    /// Its configuration as it was written for the start.
    pub(crate) files: Vec<ConfigFile>,
    /// Timed runs under a load, of experiments in which something changes; the baseline first.
    pub(crate) runs: Vec<Run>,
    /// Single figures, of experiments that compare costs.
    pub(crate) points: Vec<Point>,
    /// What waiting connections take, where that was looked at.
    #[serde(default)]
    pub(crate) idle: Option<Idle>,
    /// Whether it does what an API gateway is there for, looked at before anything is measured.
    #[serde(default)]
    pub(crate) checks: Vec<Checks>,
}

/// What became of calls that a gateway with these functions has to let in or to refuse.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Checks {
    /// "JWT HS256", "API key", ...
    pub(crate) functions: String,
    pub(crate) calls: Vec<Checked>,
    /// Why none could be made.
    pub(crate) failure: Option<String>,
}

/// A call that shows whether a gateway does what it is there for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Checked {
    /// "good", "no token", "expired", ...
    pub(crate) call: String,
    pub(crate) expected: u16,
    /// [`None`]: there was no answer.
    pub(crate) status: Option<u16>,
}

/// What a connection that waits for its next request takes of the gateway's memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Idle {
    pub(crate) connections: u64,
    pub(crate) http_kib: f64,
    pub(crate) https_kib: f64,
}

/// A file of a gateway's configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ConfigFile {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A load of some time, and what changed meanwhile.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    /// "static" for the baseline, otherwise the experiment's name.
    pub(crate) label: String,
    pub(crate) is_baseline: bool,
    /// What the load says, from its own JSON.
    pub(crate) load: Load,
    /// What changed, by when.
    pub(crate) events: Vec<Event>,
    /// The gateway's CPU time over the run, each since the sample before.
    pub(crate) cpu: Vec<CpuSample>,
    /// The most resident memory of all its processes together.
    pub(crate) peak_rss_mib: f64,
    /// Requests that may not be repeated, and how often the pods saw them: [`None`] if the load sent none.
    pub(crate) deliveries: Option<Deliveries>,
    /// How long the gateway took to follow changes, from when it was told.
    pub(crate) followed: Vec<Followed>,
}

/// A change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    /// Since the first request was due.
    pub(crate) at_s: f64,
    /// One word for plots: `scale`, `roll`, `blackhole`, `restore`, `refuse`, `accept`, `rotate`, `routes`.
    pub(crate) kind: String,
    /// A few words: "7 pods".
    pub(crate) text: String,
}

/// CPU time within an interval.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct CpuSample {
    /// The end of the interval, since the first request was due.
    pub(crate) at_s: f64,
    /// CPUs that were busy with the gateway: 1.0 is one CPU.
    pub(crate) cpus: f64,
}

/// What became of requests that may not be repeated.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Deliveries {
    pub(crate) sent: u64,
    /// Different ones that reached a pod.
    pub(crate) delivered: u64,
    /// Those that reached pods more than once.
    pub(crate) duplicated: u64,
}

/// How a change was followed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Followed {
    pub(crate) at_s: f64,
    /// As in [`Event::kind`].
    pub(crate) kind: String,
    /// From telling the gateway to when it was seen to serve so; [`None`]: not within the limit.
    pub(crate) took_ms: Option<f64>,
    /// It was not followed before the next change of its kind came, and could not be seen from then on.
    #[serde(default)]
    pub(crate) is_overtaken: bool,
}

impl Checks {
    /// Whether every call was answered as it has to be.
    pub(crate) fn are_kept(&self) -> bool {
        self.failure.is_none() && self.calls.iter().all(Checked::is_kept)
    }
}

impl Checked {
    pub(crate) fn is_kept(&self) -> bool {
        self.status == Some(self.expected)
    }
}

/// One figure of an experiment that compares costs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Point {
    /// The kind of work: "HTTP", "HTTPS", "HTTP/2", "gRPC unary", "new TLS, RSA", "new TLS, P-256".
    pub(crate) work: String,
    /// Worker threads or processes of the gateway.
    pub(crate) workers: usize,
    /// 1, 2, 3, ...: gateways take turns, A B C A B C.
    pub(crate) turn: usize,
    /// Requests a second that were wanted; [`None`] in a closed loop.
    pub(crate) rate: Option<f64>,
    pub(crate) requests: u64,
    pub(crate) requests_per_s: f64,
    pub(crate) errors: u64,
    pub(crate) cpu_us_per_request: f64,
    /// CPUs that were busy with the gateway.
    pub(crate) cpus: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// The medians of what single requests took straight to a pod, and of what they took longer through the gateway, each
    /// beside the one straight of its round; where that was measured.
    #[serde(default)]
    pub(crate) added: Option<Added>,
    /// What the gateway did with each request beside passing it on, and for how many callers; nothing: none.
    #[serde(default)]
    pub(crate) functions: Option<WithFunctions>,
}

/// Latency of single requests.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Added {
    pub(crate) straight_ms: f64,
    pub(crate) added_ms: f64,
}

/// The functions of an API gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WithFunctions {
    /// As in [`Checks`].
    pub(crate) name: String,
    /// How many there are, each with a key or a token of its own.
    pub(crate) callers: usize,
    /// The kind of work that is the same without functions.
    pub(crate) without: String,
}

/// What `sluicegate-lab load --json` writes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Load {
    #[serde(default)]
    pub(crate) program: String,
    #[serde(default)]
    pub(crate) version: String,
    /// The command, to be repeated by hand.
    #[serde(default)]
    pub(crate) command: String,
    pub(crate) url: String,
    /// Where the connections went.
    #[serde(default)]
    pub(crate) address: String,
    pub(crate) threads: usize,
    pub(crate) connections: u64,
    /// Requests a second that were wanted; [`None`] in a closed loop.
    pub(crate) rate: Option<f64>,
    pub(crate) duration_s: f64,
    pub(crate) timeout_s: f64,
    /// How long the connections had to be opened before the first request was due.
    #[serde(default)]
    pub(crate) ramp_s: f64,
    /// When the first request was due, since 1970.
    pub(crate) started_unix_ms: u128,
    /// How long requests were due; until the last answer in a closed loop, and if some were never sent.
    pub(crate) elapsed_s: f64,
    pub(crate) requests: Requests,
    pub(crate) requests_per_s: f64,
    /// Of answers, without TLS.
    #[serde(default)]
    pub(crate) bytes_read: u64,
    #[serde(default)]
    pub(crate) bytes_per_s: f64,
    /// Connections that were made, with the handshake.
    pub(crate) connected: u64,
    pub(crate) closed_between_requests: u64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    pub(crate) errors: Errors,
    /// From when each request was due.
    pub(crate) latency: Latency,
    /// From when each request was sent.
    pub(crate) uncorrected_latency: Latency,
    /// How late requests were sent although their connection was free: the load's own delay.
    pub(crate) lateness: Latency,
    pub(crate) interval_s: f64,
    /// The run over time, by when requests were due.
    pub(crate) intervals: Vec<Interval>,
    /// The CPU time of the load itself.
    pub(crate) cpu_s: f64,
    pub(crate) cpu_us_per_request: Option<f64>,
    pub(crate) warnings: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Requests {
    /// [`None`] in a closed loop.
    pub(crate) due: Option<u64>,
    pub(crate) sent: u64,
    /// How many of those that were sent were POSTs.
    #[serde(default)]
    pub(crate) posts: u64,
    pub(crate) answered: u64,
    /// Due and never sent; [`None`] in a closed loop.
    pub(crate) unsent: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Errors {
    /// All of them.
    pub(crate) total: u64,
    pub(crate) connect: u64,
    pub(crate) read: u64,
    pub(crate) write: u64,
    pub(crate) timeout: u64,
    pub(crate) not_2xx: u64,
    /// The first four once more, by what happened.
    pub(crate) kinds: BTreeMap<String, u64>,
    /// Complete answers that are wrong.
    pub(crate) wrong: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) count: u64,
    pub(crate) min_us: u64,
    pub(crate) mean_us: f64,
    pub(crate) stdev_us: f64,
    pub(crate) max_us: u64,
    /// By name: "50", "99.9999".
    pub(crate) percentiles_us: BTreeMap<String, u64>,
    /// Value in microseconds, quantile (0 to 1), how many lie at it or below.
    pub(crate) spectrum: Vec<(u64, f64, u64)>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Interval {
    /// Its begin, since the first request was due.
    pub(crate) at_s: f64,
    pub(crate) answered: u64,
    pub(crate) errors: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
}
