//! Invented results with plausible values and with edge cases.

use std::collections::BTreeMap;

use crate::results::{
    ConfigFile, CpuSample, Deliveries, Errors, Event, Followed, Interval, Latency, Load, Machine, OfGateway,
    Point, Requests, Results, Run, Skipped,
};

/// The behaviour of a made-up gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// The median, in milliseconds.
    pub(super) median: f64,
    /// The factor by which each additional nine is slower.
    pub(super) growth: f64,
    /// From this quantile on requests wait for `tail_ms`.
    pub(super) tail_from: f64,
    pub(super) tail_ms: f64,
    pub(super) connect: u64,
    pub(super) timeout: u64,
    pub(super) read: u64,
    pub(super) status_503: u64,
    pub(super) unsent: u64,
}

pub(super) const FLAT: Shape = Shape {
    median: 1.1,
    growth: 1.7,
    tail_from: 1.0,
    tail_ms: 0.0,
    connect: 0,
    timeout: 0,
    read: 0,
    status_503: 0,
    unsent: 0,
};

pub(super) const TIMEOUTS: Shape = Shape {
    median: 1.4,
    growth: 1.8,
    tail_from: 0.98,
    tail_ms: 1900.0,
    timeout: 8809,
    status_503: 12,
    ..FLAT
};

pub(super) const TAILS: Shape = Shape {
    median: 1.3,
    growth: 2.0,
    tail_from: 0.9,
    tail_ms: 32_000.0,
    connect: 33_365,
    timeout: 309,
    read: 4650,
    unsent: 20_117,
    ..FLAT
};

const NOTHING: Shape = Shape { connect: 4_000, unsent: 1_800_000, ..FLAT };

impl Shape {
    /// Milliseconds at a quantile.
    fn at(&self, quantile: f64) -> f64 {
        let nines = -(1.0 - quantile).max(1e-9).log10();
        let base = self.median * self.growth.powf(nines - 0.3);
        if quantile <= self.tail_from {
            return base;
        }
        let within = (quantile - self.tail_from) / (1.0 - self.tail_from);
        base.max(self.tail_ms * (0.2 + 0.8 * within.sqrt()))
    }

    pub(super) fn latency(&self, count: u64) -> Latency {
        if count == 0 {
            return Latency {
                count: 0,
                min_us: 0,
                mean_us: 0.0,
                stdev_us: 0.0,
                max_us: 0,
                percentiles_us: [("50", 0), ("99.9", 0)].map(|(name, value)| (name.to_owned(), value)).into(),
                spectrum: vec![(0, 1.0, 0)],
            };
        }
        let us = |quantile: f64| (self.at(quantile) * 1e3) as u64;
        let max = us(1.0 - 1.0 / count as f64);
        let names = ["50", "75", "90", "95", "99", "99.9", "99.99", "99.999", "99.9999"];
        let percentiles =
            names.map(|name| (name.to_owned(), us(name.parse::<f64>().unwrap_or_default() / 100.0).min(max)));
        let mut spectrum = Vec::new();
        let (mut quantile, mut step) = (0.0, 0.1);
        while step * (count as f64) > 0.2 {
            for _ in 0..5 {
                spectrum.push((us(quantile).min(max), quantile, (quantile * count as f64) as u64));
                quantile += step;
            }
            step /= 2.0;
        }
        spectrum.push((max, 1.0, count));
        Latency {
            count,
            min_us: us(0.0) / 3,
            mean_us: self.median * 1.1e3,
            stdev_us: 100.0,
            max_us: max,
            percentiles_us: percentiles.into(),
            spectrum,
        }
    }

    fn intervals(&self, seconds: u64, due: u64, events: &[Event]) -> Vec<Interval> {
        let mut random = fastrand::Rng::with_seed(7);
        let changes = events.len().max(1) as u64;
        let failed = self.timeout + self.connect + self.read + self.status_503;
        (0..seconds)
            .map(|second| {
                let is_hit =
                    events.iter().any(|event| (event.at_s..event.at_s + 3.0).contains(&(second as f64)));
                let wobble = 0.85 + 0.3 * random.f64();
                let at = |quantile: f64, hit: f64| {
                    let millis = if is_hit {
                        self.at(quantile).max(hit)
                    } else {
                        self.at(quantile.min(self.tail_from))
                    };
                    (millis * 1e3 * wobble) as u64
                };
                let answered = due / seconds;
                let errors = if is_hit { failed / changes / 3 } else { 0 };
                Interval {
                    at_s: second as f64,
                    answered: if errors > answered || self.unsent >= due { 0 } else { answered },
                    errors,
                    p50_us: at(0.5, 0.0),
                    p99_us: at(0.99, self.tail_ms * 0.6),
                    max_us: at(0.999_9, self.tail_ms),
                }
            })
            .collect()
    }

    pub(super) fn run(&self, label: &str, seconds: u64, rate: u64, events: &[Event]) -> Run {
        let due = seconds * rate;
        let answered = due.saturating_sub(self.timeout + self.read + self.unsent);
        let errors = self.timeout + self.connect + self.read + self.status_503;
        let kinds =
            [("connect_refused", self.connect), ("answer_timeout", self.timeout), ("read_closed", self.read)];
        let followed = |event: &Event| Followed {
            at_s: event.at_s,
            kind: event.kind.clone(),
            took_ms: (self.connect == 0).then_some(40.0 * self.median + event.at_s),
            is_overtaken: false,
        };
        Run {
            label: label.to_owned(),
            is_baseline: events.is_empty(),
            load: Load {
                command: "sluicegate-lab load -t1 -c1000 -d60s -L -R30000 https://app.example.com/"
                    .to_owned(),
                url: "https://app.example.com/".to_owned(),
                threads: 1,
                connections: 1000,
                rate: Some(rate as f64),
                duration_s: seconds as f64,
                timeout_s: 2.0,
                started_unix_ms: 1_795_000_000_000,
                elapsed_s: seconds as f64,
                requests: Requests {
                    due: Some(due),
                    sent: due - self.unsent,
                    answered,
                    unsent: Some(self.unsent),
                    posts: 0,
                },
                requests_per_s: answered as f64 / seconds as f64,
                connected: 1000,
                closed_between_requests: 0,
                statuses: statuses(answered, self.status_503),
                errors: Errors {
                    total: errors,
                    connect: self.connect,
                    read: self.read,
                    write: 0,
                    timeout: self.timeout,
                    not_2xx: self.status_503,
                    kinds: kinds.map(|(name, count)| (name.to_owned(), count)).into(),
                    wrong: [("other_id".to_owned(), 0)].into(),
                },
                latency: self.latency(answered),
                uncorrected_latency: self.latency(answered),
                lateness: FLAT.latency(answered),
                interval_s: 1.0,
                intervals: self.intervals(seconds, due, events),
                cpu_s: 20.0,
                cpu_us_per_request: Some(23.0),
                warnings: Vec::new(),
                ..Load::default()
            },
            events: events.to_vec(),
            cpu: cpu(seconds, self.median, events),
            peak_rss_mib: 20.0 * self.median,
            deliveries: None,
            followed: events.iter().map(followed).collect(),
        }
    }
}

fn statuses(answered: u64, status_503: u64) -> BTreeMap<u16, u64> {
    let mut statuses = BTreeMap::from([(200, answered.saturating_sub(status_503))]);
    if status_503 > 0 {
        statuses.insert(503, status_503);
    }
    statuses
}

fn cpu(seconds: u64, scale: f64, events: &[Event]) -> Vec<CpuSample> {
    let mut random = fastrand::Rng::with_seed(9);
    (1..=seconds)
        .map(|second| {
            let at_s = second as f64;
            let is_hit = events.iter().any(|event| (event.at_s..event.at_s + 2.0).contains(&at_s));
            CpuSample { at_s, cpus: 0.4 * scale + 0.05 * random.f64() + if is_hit { 0.3 } else { 0.0 } }
        })
        .collect()
}

/// The dynamic run's changes.
pub(super) fn scaling(seconds: u64) -> Vec<Event> {
    let mut events = Vec::new();
    let mut at = 12;
    while at < seconds {
        let is_up = events.len() % 2 == 0;
        let text = if is_up { "7 pods" } else { "5 pods" };
        events.push(Event { at_s: at as f64, kind: "scale".to_owned(), text: text.to_owned() });
        at += if is_up { 10 } else { 12 };
    }
    events
}

pub(super) fn gateway(name: &str, title: &str, runs: Vec<Run>) -> OfGateway {
    OfGateway {
        name: name.to_owned(),
        title: title.to_owned(),
        version: format!("{name} 1.2.3"),
        learns: "It is told of endpoints through a file that it watches.".to_owned(),
        command: format!("{name} --config {name}.conf"),
        files: vec![ConfigFile {
            name: format!("{name}.conf"),
            text: "server {\n  listen 127.0.0.1:8443 ssl; # <secure> & quick\n}\n".to_owned(),
        }],
        runs,
        idle: None,
        checks: Vec::new(),
        points: Vec::new(),
    }
}

/// An experiment without gateways.
pub(super) fn experiment(name: &str, title: &str) -> Results {
    Results {
        schema: 1,
        experiment: name.to_owned(),
        title: title.to_owned(),
        about: "Every 10 to 12 seconds pods are added or killed, as in the dynamic run of the study of ingress \
                controllers of 2020. A killed pod ends at once, and its address swallows packets from then on."
            .to_owned(),
        declared: "title: The number of pods changes\npods: {count: 5}\ntimeline:\n  - repeat:\n      - scale: 5\n".to_owned(),
        published: None,
        command: format!("sluicegate-lab run {name} --gateways all"),
        started_unix_ms: 1_795_000_000_000,
        took_s: 431.5,
        machine: Machine {
            kernel: "Linux 6.1.0-28-amd64".to_owned(),
            processor: "Some Processor @ 2.60GHz".to_owned(),
            cpus: 2,
            memory_mib: 7950,
            load_before: 0.26,
            gateway_cpus: vec![0],
            other_cpus: vec![1],
        },
        setting: vec![
            "1000 connections over HTTPS (TLS 1.3, RSA 2048), 30,000 requests/s for 60 s".to_owned(),
            "5 pods that answer 1 KB".to_owned(),
        ],
        saturation: Vec::new(),
        gateways: Vec::new(),
        skipped: Vec::new(),
        warnings: Vec::new(),
        prices: BTreeMap::new(),
    }
}

fn dynamic() -> Results {
    let events = scaling(60);
    let both = |shape: Shape| {
        let quiet = Shape { median: shape.median, growth: shape.growth, ..FLAT };
        vec![quiet.run("static", 60, 30_000, &[]), shape.run("dynamic", 60, 30_000, &events)]
    };
    let mut results = experiment("dynamic", "The number of pods changes");
    results.published = Some("ingress-2020".to_owned());
    let mut ours = gateway("sluicegate", "Sluicegate", both(FLAT));
    for run in &mut ours.runs {
        run.deliveries = Some(Deliveries { sent: 1000, delivered: 1000, duplicated: 0 });
    }
    results.gateways = vec![
        ours,
        gateway("nginx", "nginx, reload", both(TAILS)),
        gateway("nginx-lua", "nginx, balancer_by_lua", both(TIMEOUTS)),
        gateway(
            "haproxy",
            "HAProxy, runtime API",
            both(Shape { median: 0.9, timeout: 3, growth: 2.1, ..FLAT }),
        ),
        gateway("envoy", "Envoy, EDS", both(Shape { median: 1.9, growth: 1.9, read: 17, ..FLAT })),
    ];
    results.skipped = vec![Skipped {
        gateway: "traefik".to_owned(),
        why: "traefik cannot be run: no such file".to_owned(),
    }];
    results
}

/// By name.
pub(super) fn all() -> Vec<(&'static str, Results)> {
    let mut all = vec![("dynamic", dynamic())];
    all.extend(super::sample_costs::all());
    all.extend(nasty());
    all
}

fn nasty() -> Vec<(&'static str, Results)> {
    let mut nothing = experiment("dynamic", "Nobody answers <b>&amp;</b>");
    nothing.warnings = vec!["the machine was busy: load average <3.2> & rising".to_owned()];
    nothing.gateways = vec![
        gateway(
            "sluicegate",
            "Sluice<gate> & \"friends\"",
            vec![NOTHING.run("dynamic", 60, 30_000, &scaling(60))],
        ),
        gateway(
            "x'y",
            "A gateway with a name that is far too long for any label <i>",
            vec![NOTHING.run("dynamic", 60, 30_000, &[])],
        ),
    ];
    let events = vec![Event { at_s: 3.0, kind: "<kind>".to_owned(), text: "<pods> & \"all\"".to_owned() }];
    let mut names = experiment("<dynamic>", "Names <b>&amp;</b> | *stars* ]]> <!-- -->");
    names.command = "sluicegate-lab run names.yaml".to_owned();
    names.published = Some("ingress-2020".to_owned());
    names.gateways = vec![
        gateway(
            "sluicegate",
            "Sluice<gate> & \"friends\"",
            vec![FLAT.run("a", 9, 100, &events), TAILS.run("<b>", 900, 100, &events)],
        ),
        gateway(
            "<x>",
            "A gateway with a name that is far too long for any label <i>",
            vec![FLAT.run("a", 9, 100, &events)],
        ),
    ];
    for gateway in &mut names.gateways {
        gateway.points = vec![point("<work> & co", 1, 1, 100.0, 9.0), point("new TLS <b>", 1, 1, 100.0, 9.0)];
    }
    let mut one = experiment("static", "One gateway, nothing changes");
    one.published = Some("ingress-2020".to_owned());
    one.gateways = vec![gateway("envoy", "Envoy, EDS", vec![FLAT.run("static", 5, 20, &[])])];
    let mut nine = experiment("flap", "Nine gateways, 600 intervals, 300 changes");
    nine.published = Some("ingress-2020".to_owned());
    let flaps: Vec<Event> = (0..300)
        .map(|index| Event {
            at_s: f64::from(index) * 2.0,
            kind: if index % 2 == 0 { "refuse" } else { "accept" }.to_owned(),
            text: "1 pod".to_owned(),
        })
        .collect();
    nine.gateways = (0_u32..9)
        .map(|index| {
            let shape = Shape { median: 1.0 + 0.1 * f64::from(index), timeout: u64::from(index), ..FLAT };
            let name = if index == 0 { "sluicegate".to_owned() } else { format!("gateway-{index}") };
            let title = if index == 0 { "Sluicegate".to_owned() } else { format!("Gateway number {index}") };
            gateway(&name, &title, vec![shape.run("flap", 600, 5_000, &flaps)])
        })
        .collect();
    let mut empty = experiment("none", "No gateway could take part");
    empty.skipped = vec![Skipped { gateway: "nginx".to_owned(), why: "not found".to_owned() }];
    vec![("nothing", nothing), ("names", names), ("one", one), ("nine", nine), ("empty", empty)]
}

pub(super) fn point(work: &str, workers: usize, turn: usize, requests_per_s: f64, cost: f64) -> Point {
    Point {
        work: work.to_owned(),
        workers,
        turn,
        rate: None,
        requests: (requests_per_s * 4.0) as u64,
        requests_per_s,
        errors: 0,
        cpu_us_per_request: cost,
        cpus: requests_per_s * cost / 1e6,
        p50_ms: 1.2,
        p99_ms: 3.4,
        ..Point::default()
    }
}
