//! The stored results of an experiment: `results.json`. The report has no other source.
//!
//! The end of a field name gives the unit of a time. Names never change, and later versions may add names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All results of an experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    /// The version of this layout.
    pub(crate) schema: u32,
    /// The experiment's name: `dynamic`.
    pub(crate) experiment: String,
    pub(crate) title: String,
    /// The question of the experiment, in one or two sentences.
    pub(crate) about: String,
    /// The experiment's file, as run.
    pub(crate) declared: String,
    /// The published study that it repeats: a name in [`crate::published`].
    pub(crate) published: Option<String>,
    /// The command as the user typed it.
    pub(crate) command: String,
    pub(crate) started_unix_ms: u128,
    pub(crate) took_s: f64,
    pub(crate) machine: Machine,
    /// The load of all gateways, in words: one line each.
    pub(crate) setting: Vec<String>,
    /// The highest rate of each gateway in the search for the rate; empty if the rate was given.
    pub(crate) saturation: Vec<Saturation>,
    /// The gateways in the order of their turns.
    pub(crate) gateways: Vec<OfGateway>,
    /// The gateways that could not take part.
    pub(crate) skipped: Vec<Skipped>,
    /// The reasons to doubt the figures, such as a busy machine or a late load.
    pub(crate) warnings: Vec<String>,
    /// The price of hardware with this many CPUs in US dollars, from a given file; empty: the published prices.
    #[serde(default)]
    pub(crate) prices: BTreeMap<usize, f64>,
}

/// The machine of the experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) cpus: usize,
    pub(crate) memory_mib: u64,
    /// The load average of the last minute before the experiment began: the load of other programs.
    pub(crate) load_before: f64,
    /// The CPUs that the gateway alone used, and the CPUs of the load and the pods.
    pub(crate) gateway_cpus: Vec<usize>,
    pub(crate) other_cpus: Vec<usize>,
}

/// The rate of a gateway in a closed loop, before the rate was chosen.
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

/// The results of one gateway.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OfGateway {
    /// The name on the command line: `nginx-lua`.
    pub(crate) name: String,
    /// The usual name: "nginx, balancer_by_lua".
    pub(crate) title: String,
    pub(crate) version: String,
    /// The way in which the gateway receives endpoints, certificates and routes, in a sentence.
    pub(crate) learns: String,
    /// The command that started it.
    pub(crate) command: String,
    /// The configuration files of the gateway at its start.
    pub(crate) files: Vec<ConfigFile>,
    /// Timed runs under a load, of experiments with changes; the baseline first.
    pub(crate) runs: Vec<Run>,
    /// Single figures, of experiments that compare costs.
    pub(crate) points: Vec<Point>,
    /// The memory of idle connections, if it was measured.
    #[serde(default)]
    pub(crate) idle: Option<Idle>,
    /// Whether the gateway has the functions of an API gateway, checked before any measurement.
    #[serde(default)]
    pub(crate) checks: Vec<Checks>,
}

/// The results of calls that a gateway with these functions must accept or deny.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Checks {
    /// "JWT HS256", "API key", ...
    pub(crate) functions: String,
    pub(crate) calls: Vec<Checked>,
    /// The reason why no call could be made.
    pub(crate) failure: Option<String>,
}

/// A call that checks a function of a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Checked {
    /// "good", "no token", "expired", ...
    pub(crate) call: String,
    pub(crate) expected: u16,
    /// [`None`] without a response.
    pub(crate) status: Option<u16>,
}

/// The gateway's memory for an idle connection.
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

/// A load of some duration, and the changes during it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    /// "static" for the baseline, otherwise the experiment's name.
    pub(crate) label: String,
    pub(crate) is_baseline: bool,
    /// The results of the load, from its own JSON.
    pub(crate) load: Load,
    /// The changes, by time.
    pub(crate) events: Vec<Event>,
    /// The gateway's CPU time over the run, each since the previous sample.
    pub(crate) cpu: Vec<CpuSample>,
    /// The greatest resident memory of all its processes together.
    pub(crate) peak_rss_mib: f64,
    /// Requests that must not be repeated, and how often the pods received them: [`None`] if the load sent none.
    pub(crate) deliveries: Option<Deliveries>,
    /// The time until changes took effect, from the notification of the gateway.
    pub(crate) followed: Vec<Followed>,
}

/// A change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    /// The time since the first request was due.
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
    /// CPUs that the gateway kept busy: 1.0 is one CPU.
    pub(crate) cpus: f64,
}

/// The deliveries of requests that must not be repeated.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Deliveries {
    pub(crate) sent: u64,
    /// Different requests that reached a pod.
    pub(crate) delivered: u64,
    /// Requests that reached pods more than once.
    pub(crate) duplicated: u64,
}

/// The effect of a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Followed {
    pub(crate) at_s: f64,
    /// As in [`Event::kind`].
    pub(crate) kind: String,
    /// The time from the notification of the gateway to the observed effect; [`None`]: not within the limit.
    pub(crate) took_ms: Option<f64>,
    /// Whether the next change of the same kind came before the effect of this change. The lab could then no longer
    /// observe the effect.
    #[serde(default)]
    pub(crate) is_overtaken: bool,
}

impl Checks {
    /// Whether every call had the required response.
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
    /// The number of the turn, from 1. The gateways take turns: A B C A B C.
    pub(crate) turn: usize,
    /// The requested requests per second; [`None`] in a closed loop.
    pub(crate) rate: Option<f64>,
    pub(crate) requests: u64,
    pub(crate) requests_per_s: f64,
    pub(crate) errors: u64,
    pub(crate) cpu_us_per_request: f64,
    /// CPUs that the gateway kept busy.
    pub(crate) cpus: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// The medians of the latency of single requests directly to a pod, and of the additional latency through the
    /// gateway, each against the direct request of its round; if it was measured.
    #[serde(default)]
    pub(crate) added: Option<Added>,
    /// The functions that the gateway applied to each request, and the number of callers; [`None`] without functions.
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
    /// The name, as in [`Checks`].
    pub(crate) name: String,
    /// The number of callers, each with its own key or token.
    pub(crate) callers: usize,
    /// The same kind of work without functions.
    pub(crate) without: String,
}

/// The output of `sluicegate-lab load --json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Load {
    #[serde(default)]
    pub(crate) program: String,
    #[serde(default)]
    pub(crate) version: String,
    /// The command, for a repetition by hand.
    #[serde(default)]
    pub(crate) command: String,
    pub(crate) url: String,
    /// The destination of the connections.
    #[serde(default)]
    pub(crate) address: String,
    pub(crate) threads: usize,
    pub(crate) connections: u64,
    /// The requested requests per second; [`None`] in a closed loop.
    pub(crate) rate: Option<f64>,
    pub(crate) duration_s: f64,
    pub(crate) timeout_s: f64,
    /// The time for opening the connections before the first request was due.
    #[serde(default)]
    pub(crate) ramp_s: f64,
    /// The time at which the first request was due, since 1970.
    pub(crate) started_unix_ms: u128,
    /// The time in which requests were due; until the last response in a closed loop, and if some were never sent.
    pub(crate) elapsed_s: f64,
    pub(crate) requests: Requests,
    pub(crate) requests_per_s: f64,
    /// Bytes of responses, without TLS.
    #[serde(default)]
    pub(crate) bytes_read: u64,
    #[serde(default)]
    pub(crate) bytes_per_s: f64,
    /// Opened connections, with the handshake.
    pub(crate) connected: u64,
    pub(crate) closed_between_requests: u64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    pub(crate) errors: Errors,
    /// The latency from the time at which each request was due.
    pub(crate) latency: Latency,
    /// The latency from the time at which each request was sent.
    pub(crate) uncorrected_latency: Latency,
    /// The lateness of requests whose connection was free: the load's own delay.
    pub(crate) lateness: Latency,
    pub(crate) interval_s: f64,
    /// The run over time, by the times at which requests were due.
    pub(crate) intervals: Vec<Interval>,
    /// The CPU time of the load itself.
    pub(crate) cpu_s: f64,
    pub(crate) cpu_us_per_request: Option<f64>,
    pub(crate) warnings: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Requests {
    /// The requests that were due; [`None`] in a closed loop.
    pub(crate) due: Option<u64>,
    pub(crate) sent: u64,
    /// The number of POSTs among the sent requests.
    #[serde(default)]
    pub(crate) posts: u64,
    pub(crate) answered: u64,
    /// Requests that were due and never sent; [`None`] in a closed loop.
    pub(crate) unsent: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Errors {
    /// All errors.
    pub(crate) total: u64,
    pub(crate) connect: u64,
    pub(crate) read: u64,
    pub(crate) write: u64,
    pub(crate) timeout: u64,
    pub(crate) not_2xx: u64,
    /// The first four classes, divided by kind.
    pub(crate) kinds: BTreeMap<String, u64>,
    /// Complete responses that are wrong.
    pub(crate) wrong: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) count: u64,
    pub(crate) min_us: u64,
    pub(crate) mean_us: f64,
    pub(crate) stdev_us: f64,
    pub(crate) max_us: u64,
    /// The percentiles by name: "50", "99.9999".
    pub(crate) percentiles_us: BTreeMap<String, u64>,
    /// Value in microseconds, quantile (0 to 1), number of requests at or below the value.
    pub(crate) spectrum: Vec<(u64, f64, u64)>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Interval {
    /// The beginning of the interval, since the first request was due.
    pub(crate) at_s: f64,
    pub(crate) answered: u64,
    pub(crate) errors: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
}
