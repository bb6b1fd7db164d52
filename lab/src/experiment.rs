//! Experiments as their files declare them: `lab/experiments/*.yaml`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use crate::gateway::catalogue::APIS;
use crate::published;

/// The experiments that come with the program, by name.
const INCLUDED: [(&str, &str); 13] = [
    ("static", include_str!("../experiments/static.yaml")),
    ("dynamic", include_str!("../experiments/dynamic.yaml")),
    ("restart", include_str!("../experiments/restart.yaml")),
    ("blackhole", include_str!("../experiments/blackhole.yaml")),
    ("flap", include_str!("../experiments/flap.yaml")),
    ("certs", include_str!("../experiments/certs.yaml")),
    ("routes", include_str!("../experiments/routes.yaml")),
    ("delivery", include_str!("../experiments/delivery.yaml")),
    ("rates", include_str!("../experiments/rates.yaml")),
    ("sizing", include_str!("../experiments/sizing.yaml")),
    ("floor", include_str!("../experiments/floor.yaml")),
    ("gateway", include_str!("../experiments/gateway.yaml")),
    ("bench", include_str!("../experiments/bench.yaml")),
];

/// The maximum number of callers with a key or a token of their own.
const MOST_CALLERS: usize = 100_000;

/// An experiment.
#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    pub(crate) name: String,
    /// Its file.
    pub(crate) text: String,
    pub(crate) declared: Declared,
}

/// The content of a file. Times have the form `12s`, `500ms`, `2m`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Declared {
    /// The title of the report.
    pub(crate) title: String,
    /// The question of the experiment, in one or two sentences.
    pub(crate) about: String,
    /// The published study whose figures stand beside the measurements.
    pub(crate) published: Option<String>,
    #[serde(default)]
    pub(crate) load: Load,
    #[serde(default)]
    pub(crate) pods: Pods,
    /// The gateways that take part by default: `all`, or names.
    #[serde(default)]
    pub(crate) gateways: Vec<String>,
    /// Whether each gateway first receives the same load without changes.
    #[serde(default)]
    pub(crate) baseline: bool,
    /// The changes during the load. The timeline begins when the first request is due, and ends with the load.
    #[serde(default)]
    pub(crate) timeline: Vec<Step>,
    /// Instead of a load with a timeline: comparisons of the cost of kinds of work between gateways, one comparison
    /// after the other.
    #[serde(default)]
    pub(crate) compare: Vec<Compare>,
}

/// A comparison of costs, on loopback. Each combination of work, size, functions, callers, workers and rate has a load
/// of its own, and the gateways take turns: A B C A B C.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Compare {
    pub(crate) works: Vec<Work>,
    /// The sizes of response bodies; by default the metadata of a pod, about 1 KB.
    pub(crate) sizes: Vec<Size>,
    /// The functions that gateways apply to each call beside forwarding it.
    pub(crate) functions: Vec<Functions>,
    /// The numbers of callers, which call in turn, each with its own key or token; without effect if the functions
    /// need neither.
    pub(crate) callers: Vec<usize>,
    /// The number of requests in a turn of [`Work::Single`].
    pub(crate) requests: usize,
    /// Worker threads or processes; numbers beyond the CPUs of the machine are left out, with a warning.
    pub(crate) workers: Vec<usize>,
    /// Requests per second; empty for a closed loop at the highest possible rate.
    pub(crate) rates: Vec<f64>,
    pub(crate) turns: usize,
    /// The duration of each turn.
    #[serde(deserialize_with = "time")]
    pub(crate) duration: Duration,
    /// Keep-alive connections of HTTP/1.1.
    pub(crate) connections: u64,
    /// The number of idle connections for the measurement of the memory of a connection; 0: no measurement.
    pub(crate) idle: u64,
    /// Whether the unavoidable cost of every proxy is also measured: a byte forwarder, and the signature of a
    /// handshake.
    pub(crate) limits: bool,
    /// The price of a machine with this many CPUs, for a column of prices.
    pub(crate) prices: BTreeMap<usize, f64>,
}

impl Default for Compare {
    fn default() -> Self {
        Self {
            works: vec![Work::Http, Work::Https],
            sizes: Vec::new(),
            functions: vec![Functions::None],
            callers: vec![1],
            requests: 400,
            workers: vec![1],
            rates: Vec::new(),
            turns: 5,
            duration: Duration::from_secs(5),
            connections: 100,
            idle: 0,
            limits: false,
            prices: BTreeMap::new(),
        }
    }
}

/// The load of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    /// One request at a time in clear text, each on its own connection, directly to a pod and through each gateway in
    /// turn: the latency that a gateway adds.
    Single,
    /// Requests on keep-alive connections in clear text.
    Http,
    /// POST requests with a JSON body of 1 KB on keep-alive connections in clear text.
    Json,
    /// Requests on keep-alive connections over TLS.
    Https,
    /// HTTP/2 over TLS: 20 connections, each with 10 requests in flight.
    Http2,
    /// Unary gRPC calls with the same connections, to backends with HTTP/2.
    Grpc,
    /// Each request on its own TLS connection, with an RSA certificate.
    TlsRsa,
    /// Each request on its own TLS connection, with an ECDSA certificate.
    TlsP256,
}

impl Work {
    pub(crate) const ALL: [Self; 8] = [
        Self::Single,
        Self::Http,
        Self::Json,
        Self::Https,
        Self::Http2,
        Self::Grpc,
        Self::TlsRsa,
        Self::TlsP256,
    ];

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "One request",
            Self::Http => "HTTP",
            Self::Json => "POST of JSON",
            Self::Https => "HTTPS",
            Self::Http2 => "HTTP/2",
            Self::Grpc => "gRPC unary",
            Self::TlsRsa => "new TLS, RSA",
            Self::TlsP256 => "new TLS, P-256",
        }
    }
}

/// The size of a response body: `0`, `500`, `1k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Size {
    pub(crate) bytes: u64,
}

impl Size {
    /// Its name in reports: `0 KB`, `1 KB`, `500 bytes`.
    pub(crate) fn name(self) -> String {
        let Self { bytes } = self;
        if bytes % 1024 == 0 { format!("{} KB", bytes / 1024) } else { format!("{bytes} bytes") }
    }
}

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (digits, unit) = text.strip_suffix('k').map_or((&*text, 1), |digits| (digits, 1024));
        // At most the size that a pod can send.
        let bytes = digits
            .parse::<u64>()
            .ok()
            .map(|number| number.saturating_mul(unit))
            .filter(|bytes| *bytes <= 1 << 30);
        bytes.map(|bytes| Self { bytes }).ok_or_else(|| format!("{text:?} is no size: write 0, 500 or 1k"))
    }
}

/// The functions that a gateway applies to a call beside forwarding it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Functions {
    /// Nothing.
    #[default]
    None,
    /// Verification of a token that is signed with a shared secret.
    JwtHs256,
    /// Verification of a token that is signed with an RSA key of 2048 bits.
    JwtRs256,
    /// Look-up of the consumer of an API key.
    ApiKey,
    /// Look-up of the consumer of an API key, and a rate limit for each consumer.
    ApiKeyAndLimit,
    /// API management with API keys: many APIs with operations, subscriptions under a plan, analytics.
    ManagedApiKey,
    /// API management with tokens that are signed with a shared secret.
    ManagedJwt,
    /// Validation of a JSON body by its schema.
    Validation,
}

impl Functions {
    /// All functions.
    pub(crate) const ALL: &[Self] = &[
        Self::JwtHs256,
        Self::JwtRs256,
        Self::ApiKey,
        Self::ApiKeyAndLimit,
        Self::ManagedApiKey,
        Self::ManagedJwt,
        Self::Validation,
    ];

    /// The functions that other gateways have here too: all but validation.
    pub(crate) const OF_PEERS: &[Self] = match Self::ALL {
        [of_peers @ .., Self::Validation] => of_peers,
        all => all,
    };

    /// Whether these are the functions of API management.
    pub(crate) fn is_managed(self) -> bool {
        matches!(self, Self::ManagedApiKey | Self::ManagedJwt)
    }

    /// Whether each request needs a key or a token.
    pub(crate) fn have_callers(self) -> bool {
        !matches!(self, Self::None | Self::Validation)
    }

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "no API functions",
            Self::JwtHs256 => "JWT HS256",
            Self::JwtRs256 => "JWT RS256",
            Self::ApiKey => "API key",
            Self::ApiKeyAndLimit => "API key and rate limit",
            Self::ManagedApiKey => "API key, plan and analytics",
            Self::ManagedJwt => "JWT HS256, plan and analytics",
            Self::Validation => "validation",
        }
    }
}

/// The load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Load {
    /// HTTPS rather than plain HTTP.
    pub(crate) tls: bool,
    pub(crate) connections: u64,
    /// Requests per second; by default 80 % of the rate of the slowest gateway in a closed loop.
    pub(crate) rate: Option<f64>,
    #[serde(deserialize_with = "time")]
    pub(crate) duration: Duration,
    /// The timeout of a request and of a connect.
    #[serde(deserialize_with = "time")]
    pub(crate) timeout: Duration,
    /// Path and query, which determine the pods' response: `/?s=1k&t=5`.
    pub(crate) path: String,
    /// The percentage of POST requests, which must not be delivered twice.
    pub(crate) posts: u8,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            tls: true,
            connections: 1000,
            rate: None,
            duration: Duration::from_secs(60),
            timeout: Duration::from_secs(2),
            path: "/".to_owned(),
            posts: 0,
        }
    }
}

/// The pods.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Pods {
    /// The number of pods at the beginning.
    pub(crate) count: usize,
    /// The time that a new pod needs before it listens.
    #[serde(deserialize_with = "time")]
    pub(crate) start_up: Duration,
    /// The delay before the gateway learns that a pod is gone or ready. In a cluster the delay is about 100 ms.
    #[serde(deserialize_with = "time")]
    pub(crate) notice: Duration,
}

impl Default for Pods {
    fn default() -> Self {
        Self { count: 5, start_up: Duration::ZERO, notice: Duration::from_millis(100) }
    }
}

/// One step of a timeline.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    /// Waits for this time without a change.
    #[serde(deserialize_with = "time")]
    Sleep(Duration),
    /// Changes the number of pods; the oldest are killed (SIGKILL), and their addresses swallow packets.
    Scale(usize),
    /// Replaces all pods, `surge` at a time: new pods start, then as many old pods are killed.
    Roll { surge: usize },
    /// The addresses of this many pods drop all packets; the gateway receives no notice.
    Blackhole(usize),
    /// All addresses respond again.
    Restore,
    /// This many pods refuse connects and reset their connections; the gateway receives no notice.
    Refuse(usize),
    /// The pods accept connections again.
    Accept,
    /// Replaces the certificate and its key.
    Rotate,
    /// Adds routes for this many new hosts, and removes the hosts of the previous step of this kind.
    Routes(usize),
    /// Repeats these steps.
    Repeat(Vec<Self>),
}

impl Experiment {
    /// The experiments that come with the program.
    pub(crate) fn included() -> anyhow::Result<Vec<Self>> {
        INCLUDED.iter().map(|(name, text)| Self::parse(name, text)).collect()
    }

    /// A built-in experiment by its name, or a file by its path.
    pub(crate) fn find(name: &str) -> anyhow::Result<Self> {
        if let Some((_, text)) = INCLUDED.iter().find(|(included, _)| *included == name) {
            return Self::parse(name, text);
        }
        let path = Path::new(name);
        let is_file = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        if !is_file {
            let names: Vec<&str> = INCLUDED.iter().map(|(name, _)| *name).collect();
            bail!(
                "{name}: no such experiment; there are {}, or give the path of a .yaml file",
                names.join(", ")
            );
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&stem, &text).with_context(|| name.to_owned())
    }

    fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let declared: Declared = serde_saphyr::from_str(text)?;
        if let Some(study) = &declared.published {
            ensure!(
                published::find(study).is_some(),
                "published: {study} is unknown; there are {}",
                published::names()
            );
        }
        ensure!(declared.pods.count > 0, "pods.count: there has to be at least one");
        ensure!(
            declared.compare.is_empty() || declared.timeline.is_empty(),
            "compare: there is a timeline too; write one of them"
        );
        declared.compare.iter().try_for_each(Compare::ensure_sensible)?;
        ensure!(declared.load.posts <= 100, "load.posts: at most 100 of 100 requests");
        Ok(Self { name: name.to_owned(), text: text.to_owned(), declared })
    }
}

impl Compare {
    fn ensure_sensible(&self) -> anyhow::Result<()> {
        let Self { works, functions, callers, workers, turns, rates, requests, .. } = self;
        ensure!(
            ![works.is_empty(), functions.is_empty(), callers.is_empty(), workers.is_empty()].contains(&true)
                && *turns > 0
                && *requests > 0,
            "compare: there is nothing to be compared"
        );
        ensure!(workers.iter().all(|workers| *workers > 0), "compare.workers: there has to be one");
        ensure!(
            callers.iter().all(|callers| (1..=MOST_CALLERS).contains(callers)),
            "compare.callers: from 1 to {MOST_CALLERS}"
        );
        ensure!(rates.iter().all(|rate| *rate > 0.0), "compare.rates: they have to be over 0");
        // So that each call is for an API to which its caller is subscribed.
        let is_managed = functions.iter().any(|functions| functions.is_managed());
        ensure!(
            !is_managed
                || callers
                    .iter()
                    .all(|callers| APIS.is_multiple_of(*callers) || callers.is_multiple_of(APIS)),
            "compare.callers: with API management, a divisor or a multiple of {APIS}"
        );
        ensure!(
            !is_managed || works.iter().all(|work| [Work::Single, Work::Http, Work::Https].contains(work)),
            "compare.works: with API management, only single, http and https"
        );
        ensure!(
            !functions.contains(&Functions::Validation) || works.iter().all(|work| *work == Work::Json),
            "compare.works: with validation, only json"
        );
        Ok(())
    }
}

/// `sluicegate-lab experiments`.
pub(crate) fn list() -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    for Experiment { name, declared, .. } in Experiment::included()? {
        writeln!(out, "{name:<10} {}", declared.title)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn time<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    humantime::parse_duration(&text)
        .map_err(|error| serde::de::Error::custom(format!("{text:?}: {error}; write 12s or 500ms")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_experiments_are_valid() {
        for experiment in Experiment::included().unwrap() {
            let Declared { title, about, timeline, load, compare, .. } = experiment.declared;
            assert!(!title.is_empty() && about.ends_with('.'), "{}", experiment.name);
            assert_eq!(timeline.is_empty(), experiment.name == "static" || !compare.is_empty());
            assert_eq!((load.connections, load.tls), (1000, true), "{}", experiment.name);
        }
    }

    #[test]
    fn experiment_of_the_2020_study_matches_its_published_setup() {
        let dynamic = Experiment::find("dynamic").unwrap().declared;
        let seconds = Duration::from_secs;
        let cycle = vec![Step::Scale(5), Step::Sleep(seconds(12)), Step::Scale(7), Step::Sleep(seconds(10))];
        assert_eq!(dynamic.timeline, [Step::Repeat(cycle)]);
    }

    #[test]
    fn experiment_of_the_2019_study_matches_its_published_setup() {
        let compare = Experiment::find("gateway").unwrap().declared.compare;
        let bytes = |compare: &Compare| compare.sizes.iter().map(|size| size.bytes).collect::<Vec<_>>();
        let [single, calls, rates, functions, many, managed @ ..] = &compare[..] else {
            panic!("{} parts", compare.len())
        };
        assert_eq!((&*single.works, bytes(single)), (&[Work::Single][..], vec![0, 1024]));
        assert_eq!((calls.connections, bytes(calls), bytes(functions)), (300, vec![0], vec![1024]));
        assert!(rates.rates.contains(&5000.0), "{:?}", rates.rates);
        let first = [Functions::None, Functions::JwtHs256];
        assert!(functions.functions.starts_with(&first), "{:?}", functions.functions);
        assert_eq!((&functions.callers[..], &many.callers[..]), (&[1, 10_000][..], &[100_000][..]));
        // The same three measurements with API management.
        let works: Vec<&[Work]> = managed.iter().map(|compare| &compare.works[..]).collect();
        assert_eq!(works, [&[Work::Single][..], &[Work::Http], &[Work::Http]]);
        assert!(managed.iter().all(|compare| compare.functions.contains(&Functions::ManagedJwt)));
    }

    #[test]
    fn error_for_an_invalid_experiment_names_the_field() {
        let error = |text: &str| format!("{:#}", Experiment::parse("x", text).unwrap_err());
        let with = |more: &str| error(&format!("title: a\nabout: b.\n{more}"));
        assert!(with("lod: {}").contains("lod"), "{}", with("lod: {}"));
        let time = with("load: {duration: 5 apples}");
        assert!(time.contains("5 apples") && time.contains("write 12s"), "{time}");
        let step = with("timeline: [{explode: 1}]");
        assert!(step.contains("explode"), "{step}");
        assert!(with("pods: {count: 0}").contains("pods.count"));
        let size = with("compare: [{sizes: [1x]}]");
        assert!(size.contains("1x") && size.contains("500 or 1k"), "{size}");
        assert!(with("compare: [{callers: [0]}]").contains("compare.callers"));
        assert!(with("compare: [{functions: []}]").contains("nothing to be compared"));
        let unknown = format!("{:#}", Experiment::find("dynamics").unwrap_err());
        assert!(unknown.contains("dynamic, restart"), "{unknown}");
    }
}
