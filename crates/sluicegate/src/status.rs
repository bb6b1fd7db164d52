//! `sluicegate status`: the state of running gateways, and the problems of their configuration.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use sluicegate_admin::Problems;
use sluicegate_admin::table::{Column, table};

use crate::cli::ShowArgs;
use crate::gateways::{Gateway, Gateways};
use crate::top::samples::{Samples, whole};

/// The state of all asked gateways.
#[derive(Serialize)]
struct Status {
    gateways: Vec<GatewayStatus>,
    /// The problems of the configuration, which all gateways share.
    problems: Problems,
}

/// The state of one gateway. A number that the gateway does not have is missing.
#[derive(Debug, Default, Serialize)]
struct GatewayStatus {
    /// The address of the admin interface, or the name of the pod.
    gateway: String,
    version: String,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    up_seconds: Option<f64>,
    /// The time since the last change of the configuration, without changes of endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_seconds_ago: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_in_flight: Option<u64>,
    ready_endpoints: u64,
    endpoints: u64,
    upstreams_without_ready_endpoint: usize,
    /// The time until the first certificate expires. Negative: the certificate expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_expires_in_seconds: Option<f64>,
    listeners_down: usize,
    errors: u64,
    warnings: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_files: Option<u64>,
    /// Whether a data plane is connected to its control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    control_plane_connected: Option<bool>,
    /// The data planes that are connected to a control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    data_planes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_planes_behind: Option<u64>,
    /// Why the gateway did not answer. The other fields then say nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreachable: Option<String>,
}

pub(crate) fn run(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let gateways = args.gateway.open()?;
    let status = asked(&gateways)?;
    args.output.print(&status, |is_wide| text(&status, is_wide))?;
    let is_well = status.gateways.iter().all(|gateway| gateway.ready) && status.problems.errors.is_empty();
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn asked(gateways: &Gateways) -> anyhow::Result<Status> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let (mut problems, mut states) = (Problems::default(), Vec::new());
    for gateway in gateways.all() {
        let asked = of_gateway(gateways, gateway, now, &mut problems);
        match asked {
            Ok(state) => states.push(state),
            // Of several pods, one may be about to end.
            Err(error) if gateways.all().len() > 1 => states.push(GatewayStatus {
                gateway: gateway.name(),
                unreachable: Some(format!("{error:#}")),
                ..GatewayStatus::default()
            }),
            Err(error) => return Err(error),
        }
    }
    Ok(Status { gateways: states, problems })
}

fn of_gateway(
    gateways: &Gateways,
    gateway: &Gateway,
    now: f64,
    problems: &mut Problems,
) -> anyhow::Result<GatewayStatus> {
    let samples = Samples::read(&gateways.text_of(gateway, "/metrics")?);
    let Problems { errors, warnings } = gateways.ask_one(gateway, "/problems")?;
    for (known, new) in [(&mut problems.errors, errors), (&mut problems.warnings, warnings)] {
        let new = new.into_iter().filter(|problem| !known.contains(problem));
        let new: Vec<String> = new.collect();
        known.extend(new);
    }
    Ok(GatewayStatus { gateway: gateway.name(), ..of_samples(&samples, now) })
}

fn of_samples(samples: &Samples, now: f64) -> GatewayStatus {
    let sum = |name: &str| samples.sum(name);
    let ago = |name: &str| sum(name).map(|then| (now - then).max(0.0));
    let count = |name: &str| sum(name).map(whole);
    let of_severity = |severity: &str| -> u64 {
        let all = samples.of("sluicegate_config_problems").iter();
        all.filter(|sample| sample.label("severity") == severity).map(|sample| whole(sample.value)).sum()
    };
    let endpoints = samples.of("sluicegate_upstream_endpoints");
    let ready = || endpoints.iter().filter(|sample| sample.label("state") == "ready");
    let expiry = samples.of("sluicegate_certificate_not_after_seconds").iter().map(|sample| sample.value);
    let version =
        samples.of("sluicegate_build_info").first().map(|sample| sample.label("version").to_owned());
    GatewayStatus {
        gateway: String::new(),
        version: version.unwrap_or_default(),
        ready: sum("sluicegate_ready") == Some(1.0),
        up_seconds: ago("process_start_time_seconds"),
        changed_seconds_ago: ago("sluicegate_config_last_change_timestamp_seconds"),
        connections: count("sluicegate_connections_open"),
        requests_in_flight: count("sluicegate_requests_in_flight"),
        ready_endpoints: ready().map(|sample| whole(sample.value)).sum(),
        endpoints: endpoints.iter().map(|sample| whole(sample.value)).sum(),
        upstreams_without_ready_endpoint: ready().filter(|sample| sample.value == 0.0).count(),
        certificate_expires_in_seconds: expiry.reduce(f64::min).map(|expiry| expiry - now),
        listeners_down: samples
            .of("sluicegate_listener_up")
            .iter()
            .filter(|sample| sample.value == 0.0)
            .count(),
        errors: of_severity("error"),
        warnings: of_severity("warning"),
        cpu_seconds: sum("process_cpu_seconds_total"),
        memory_bytes: count("process_resident_memory_bytes"),
        open_files: count("process_open_fds"),
        control_plane_connected: sum("sluicegate_control_connected").map(|connected| connected == 1.0),
        data_planes: count("sluicegate_planes_connected"),
        data_planes_behind: count("sluicegate_planes_behind"),
        unreachable: None,
    }
}

fn text(status: &Status, is_wide: bool) -> String {
    let number = |count: Option<u64>| count.map(|count| count.to_string()).unwrap_or_default();
    let columns = [
        Column::new("GATEWAY", |gateway: &&GatewayStatus| gateway.gateway.clone()),
        Column::new("VERSION", |gateway: &&GatewayStatus| gateway.version.clone()),
        Column::new("READY", |gateway: &&GatewayStatus| match (&gateway.unreachable, gateway.ready) {
            (Some(_), _) => "no answer".to_owned(),
            (None, true) => "yes".to_owned(),
            (None, false) => "no".to_owned(),
        }),
        Column::new("UP", |gateway: &&GatewayStatus| gateway.up_seconds.map(age).unwrap_or_default()),
        Column::new("CHANGED", |gateway: &&GatewayStatus| {
            gateway.changed_seconds_ago.map(|ago| format!("{} ago", age(ago))).unwrap_or_default()
        }),
        Column::new("CONNECTIONS", move |gateway: &&GatewayStatus| number(gateway.connections)),
        Column::new("IN-FLIGHT", move |gateway: &&GatewayStatus| number(gateway.requests_in_flight)),
        Column::new("ENDPOINTS", |gateway: &&GatewayStatus| {
            format!("{}/{}", gateway.ready_endpoints, gateway.endpoints)
        }),
        Column::new("CERTIFICATES", |gateway: &&GatewayStatus| {
            match gateway.certificate_expires_in_seconds {
                Some(left) if left < 0.0 => format!("expired {} ago", age(-left)),
                Some(left) => format!("expire in {}", age(left)),
                None => String::new(),
            }
        }),
        Column::new("PROBLEMS", |gateway: &&GatewayStatus| problems_in_words(gateway)),
        Column::wide("CPU", |gateway: &&GatewayStatus| gateway.cpu_seconds.map(age).unwrap_or_default()),
        Column::wide("MEMORY", |gateway: &&GatewayStatus| {
            gateway.memory_bytes.map(|bytes| format!("{} MiB", bytes >> 20)).unwrap_or_default()
        }),
        Column::wide("FILES", move |gateway: &&GatewayStatus| number(gateway.open_files)),
        Column::wide("LISTENERS DOWN", |gateway: &&GatewayStatus| gateway.listeners_down.to_string()),
        Column::wide("UPSTREAMS WITHOUT ENDPOINT", |gateway: &&GatewayStatus| {
            gateway.upstreams_without_ready_endpoint.to_string()
        }),
        Column::wide("CONTROL PLANE", |gateway: &&GatewayStatus| match gateway.control_plane_connected {
            Some(true) => "connected".to_owned(),
            Some(false) => "not connected".to_owned(),
            None => String::new(),
        }),
        Column::wide("DATA PLANES", move |gateway: &&GatewayStatus| number(gateway.data_planes)),
        Column::wide("BEHIND", move |gateway: &&GatewayStatus| number(gateway.data_planes_behind)),
    ];
    let mut text = table(&columns, &status.gateways, is_wide);
    let Problems { errors, warnings } = &status.problems;
    let unreachable = status.gateways.iter().filter_map(|gateway| gateway.unreachable.as_ref());
    let lines = unreachable
        .map(|error| format!("no answer: {error}"))
        .chain(errors.iter().map(|problem| format!("error: {problem}")))
        .chain(warnings.iter().map(|problem| format!("warning: {problem}")));
    for (number, line) in lines.enumerate() {
        if number == 0 {
            text.push('\n');
        }
        text.push_str(&sluicegate_model::text::one_line(&line));
        text.push('\n');
    }
    text
}

fn problems_in_words(gateway: &GatewayStatus) -> String {
    let word = |count: u64, one: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {one}s")),
    };
    let words: Vec<String> =
        [word(gateway.errors, "error"), word(gateway.warnings, "warning")].into_iter().flatten().collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// A time as `kubectl` writes ages: of its two largest units.
fn age(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and less than the age of the world"
    )]
    let seconds = Duration::from_secs(seconds.max(0.0) as u64).as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, 1..10) => format!("{minutes}m{}s", seconds % 60),
        (0, 0, _) => format!("{minutes}m"),
        (0, _, _) => format!("{hours}h{minutes}m"),
        (1..10, _, _) => format!("{days}d{hours}h"),
        (_, _, _) => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_a_line_for_each_gateway_and_for_each_problem() {
        let page = "sluicegate_build_info{version=\"0.1.0\"} 1\nsluicegate_ready 1\nprocess_start_time_seconds 1000\n\
            sluicegate_config_problems{severity=\"error\"} 1\nsluicegate_config_problems{severity=\"warning\"} 2\n\
            sluicegate_upstream_endpoints{state=\"ready\",upstream=\"a\"} 3\nsluicegate_upstream_endpoints{state=\"unhealthy\",upstream=\"a\"} 1\n\
            sluicegate_upstream_endpoints{state=\"ready\",upstream=\"b\"} 0\n\
            sluicegate_certificate_not_after_seconds{key=\"x\"} 87400\nsluicegate_certificate_not_after_seconds{key=\"y\"} 99999\n";
        let state = GatewayStatus { gateway: "pod-1".to_owned(), ..of_samples(&Samples::read(page), 1200.0) };
        assert_eq!(state.upstreams_without_ready_endpoint, 1);
        let gone = GatewayStatus {
            gateway: "pod-2".to_owned(),
            unreachable: Some("no response".to_owned()),
            ..GatewayStatus::default()
        };
        let problems = Problems { errors: vec!["shop/web:\nbad".to_owned()], warnings: vec![] };
        let text = text(&Status { gateways: vec![state, gone], problems }, false);
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "GATEWAY VERSION READY UP CHANGED CONNECTIONS IN-FLIGHT ENDPOINTS CERTIFICATES PROBLEMS",
            "pod-1 0.1.0 yes 3m20s - - - 3/4 expire in 23h56m 1 error, 2 warnings",
            "pod-2 - no answer - - - - 0/0 - none",
            "",
            "no answer: no response",
            "error: shop/web:\\nbad",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn age_has_two_units() {
        let ages = [0.4, 59.0, 61.0, 700.0, 3_700.0, 90_000.0, 900_000.0].map(age);
        assert_eq!(ages, ["0s", "59s", "1m1s", "11m", "1h1m", "1d1h", "10d"]);
    }
}
