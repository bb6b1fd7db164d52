//! Limits and timeouts as options of the command line.

use std::time::Duration;

use clap::Args;
use ipnet::IpNet;
use sluicegate_model::Settings;
use sluicegate_model::settings::{Limits, Resilience, Timeouts};

/// Every limit of the data plane. What is not given keeps its default, which is written down once, in the
/// model.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SettingsArgs {
    /// Peers whose forwarding headers (X-Forwarded-*, X-Real-IP, X-Request-ID) are believed: networks such as
    /// 10.0.0.0/8, comma separated. [default: none]
    #[arg(long, value_name = "CIDR", value_delimiter = ',', help_heading = "Clients")]
    trusted_peers: Vec<IpNet>,
    /// From the first byte of a request's head to its last: 408 after it. [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Clients")]
    request_head_timeout: Option<Duration>,
    /// Between two reads of a request's body: 408 after it. [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Clients")]
    request_body_timeout: Option<Duration>,
    /// How long a kept-alive connection may wait for its next request. [default: 75s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Clients")]
    client_idle_timeout: Option<Duration>,
    /// Between two writes to a client that does not read. [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Clients")]
    client_write_timeout: Option<Duration>,
    /// The head of a request: 431 above it, 414 if its first line alone is over it. [default: 32Ki]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Clients")]
    max_request_head: Option<u64>,
    /// Header lines in one head. [default: 100, at most 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "Clients")]
    max_headers: Option<u16>,
    /// The body of a request: 413 above it. [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Clients")]
    max_request_body: Option<u64>,
    /// Requests on one connection, which is closed after them. [default: no limit]
    #[arg(long, value_name = "N", help_heading = "Clients")]
    max_requests_per_connection: Option<u64>,
    /// Connections of one worker; further ones wait. [default: 65536]
    #[arg(long, value_name = "N", help_heading = "Clients")]
    max_connections_per_worker: Option<usize>,

    /// For one connect to one endpoint. [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Endpoints")]
    connect_timeout: Option<Duration>,
    /// From the end of a request to the head of its response: 504 after it. [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Endpoints")]
    response_timeout: Option<Duration>,
    /// Between two reads of a response's body, or two writes of a request's body. [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Endpoints")]
    upstream_idle_timeout: Option<Duration>,
    /// How long a tunnel (WebSocket or another upgrade) may be silent. [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Endpoints")]
    tunnel_idle_timeout: Option<Duration>,
    /// How long requests and tunnels may go on at an endpoint that was removed. [default: 4m]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Endpoints")]
    endpoint_drain_timeout: Option<Duration>,
    /// The head of a response: 502 above it. [default: 64Ki]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Endpoints")]
    max_response_head: Option<u64>,
    /// Unused connections kept for each endpoint, by each worker. [default: 128]
    #[arg(long, value_name = "N", help_heading = "Endpoints")]
    pool_size: Option<usize>,
    /// How long an unused connection is kept. [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Endpoints")]
    pool_idle_timeout: Option<Duration>,

    /// How many endpoints a request may be sent to in all. [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Failures")]
    attempts: Option<u32>,
    /// What is kept of a request's body so that it can be sent again. [default: 64Ki]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Failures")]
    replay_buffer: Option<u64>,
    /// The longest that a connect goes unanswered before another endpoint is tried beside it; 0s: never.
    /// [default: 50ms]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Failures")]
    connect_hedge: Option<Duration>,
    /// How long a request waits when no endpoint can be connected to. [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Failures")]
    endpoint_wait: Option<Duration>,
    /// How long an endpoint's kernel may leave an idempotent request unacknowledged before it is given to
    /// another; 0s: for ever. [default: 60ms]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Failures")]
    unacknowledged_timeout: Option<Duration>,
    /// Over how long a new or recovered endpoint comes to its full share; 0s: at once. [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Failures")]
    slow_start: Option<Duration>,
    /// Ignore suspicion when less than this share of the endpoints is free of it. [default: 0]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100), help_heading = "Failures")]
    panic_threshold: Option<u8>,
    /// The first time between two probes of a suspect endpoint; it doubles. [default: 250ms]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Failures")]
    probe_interval: Option<Duration>,
    /// The longest time between two probes of a suspect endpoint. [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Failures")]
    probe_interval_max: Option<Duration>,
}

impl SettingsArgs {
    pub(crate) fn settings(&self) -> Settings {
        let (timeouts, limits, resilience) = (Timeouts::default(), Limits::default(), Resilience::default());
        Settings {
            trusted_peers: self.trusted_peers.clone(),
            timeouts: Timeouts {
                request_head: self.request_head_timeout.unwrap_or(timeouts.request_head),
                request_body: self.request_body_timeout.unwrap_or(timeouts.request_body),
                client_idle: self.client_idle_timeout.unwrap_or(timeouts.client_idle),
                client_write: self.client_write_timeout.unwrap_or(timeouts.client_write),
                connect: self.connect_timeout.unwrap_or(timeouts.connect),
                response_head: self.response_timeout.unwrap_or(timeouts.response_head),
                upstream_idle: self.upstream_idle_timeout.unwrap_or(timeouts.upstream_idle),
                pool_idle: self.pool_idle_timeout.unwrap_or(timeouts.pool_idle),
                tunnel_idle: self.tunnel_idle_timeout.unwrap_or(timeouts.tunnel_idle),
                drain: self.endpoint_drain_timeout.unwrap_or(timeouts.drain),
            },
            limits: Limits {
                request_head: self.max_request_head.map_or(limits.request_head, bytes),
                response_head: self.max_response_head.map_or(limits.response_head, bytes),
                headers: self.max_headers.map_or(limits.headers, usize::from),
                request_body: self.max_request_body.or(limits.request_body),
                requests_per_connection: self.max_requests_per_connection.or(limits.requests_per_connection),
                connections_per_worker: self
                    .max_connections_per_worker
                    .unwrap_or(limits.connections_per_worker),
                pool_per_endpoint: self.pool_size.unwrap_or(limits.pool_per_endpoint),
                replay: self.replay_buffer.map_or(limits.replay, bytes),
            },
            resilience: Resilience {
                attempts: self.attempts.unwrap_or(resilience.attempts),
                connect_hedge: self.connect_hedge.unwrap_or(resilience.connect_hedge),
                endpoint_wait: self.endpoint_wait.unwrap_or(resilience.endpoint_wait),
                unacknowledged: self.unacknowledged_timeout.unwrap_or(resilience.unacknowledged),
                slow_start: self.slow_start.unwrap_or(resilience.slow_start),
                panic_threshold_percent: self.panic_threshold.unwrap_or(resilience.panic_threshold_percent),
                probe_interval: self.probe_interval.unwrap_or(resilience.probe_interval),
                probe_interval_max: self.probe_interval_max.unwrap_or(resilience.probe_interval_max),
            },
        }
    }
}

fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// A duration such as `250ms`, `60s`, `5m` or `1h30m`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it as 250ms, 60s, 5m or 1h"))
}

/// A size in bytes: a number, with `k`, `m` or `g` (as nginx) or `Ki`, `Mi`, `Gi` (as Kubernetes) for powers
/// of 1024.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|end: char| !end.is_ascii_digit());
    let power = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" | "Ki" => 1,
        "m" | "M" | "Mi" => 2,
        "g" | "G" | "Gi" => 3,
        unit => return Err(format!("{unit:?} is no unit; write a number of bytes, or 64k, 1m, 64Ki, 1Mi")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{digits:?} is not a number of bytes"))?;
    number.checked_mul(1 << (10 * power)).ok_or_else(|| "the size is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_options_the_defaults_of_the_model_hold() {
        assert_eq!(SettingsArgs::default().settings(), Settings::default());
    }

    #[test]
    fn sizes_are_written_as_in_nginx_and_kubernetes() {
        assert_eq!(size("512"), Ok(512));
        assert_eq!(size("64k"), Ok(65_536));
        assert_eq!(size("1Mi"), Ok(1_048_576));
        for wrong in ["", "k", "-1", "1.5m", "1x", "99999999999999999999", "18446744073709551615Ki"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
