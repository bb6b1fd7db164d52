//! `sluicegate data-plane`: the data plane alone. The process has no credentials of a cluster; its only source is a control plane.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use anyhow::Context as _;
use clap::Args;
use rustls_pki_types::ServerName;
use serde_json::json;
use sluicegate_admin::{Measure, Planes, Problems};
use sluicegate_link::{
    PlaneIdentity, PlaneTls, PlaneToken, Reports, Subscriber, SubscriberOptions, SubscriberTelemetry,
};

use crate::address::listen_address;
use crate::analytics::OverLink;
use crate::build::BUILD;
use crate::gateway::{self, GatewayArgs, Told};
use crate::quotas::Pending;

#[derive(Debug, Args)]
#[command(next_help_heading = "Data plane", after_help = format!("\
The data plane is ready once it serves a configuration: from the control plane, or from --snapshot if the control plane is \
unreachable or silent for 2s. Without a connection it continues to serve, and connects again: at once, then after up to \
200ms, doubling to 1s.\n\n{}\n\n{}", gateway::LIFE, gateway::TIME))]
pub(crate) struct DataPlaneArgs {
    /// The host and port of the control plane. The data plane looks the host up for each connection.
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    control_plane: Box<str>,
    /// The name that the control plane's certificate must have.
    #[arg(long, value_name = "NAME", value_parser = server_name, default_value = "sluicegate-control-plane")]
    control_plane_name: ServerName<'static>,
    /// The directory with the data plane's certificate and key (tls.crt and tls.key), and the CA certificates of the
    /// control plane (ca.crt), in PEM. The process reads the files again when they change.
    #[arg(long, value_name = "DIR", required_unless_present = "token_dir")]
    tls_dir: Option<PathBuf>,
    /// The directory with the token of the data plane's ServiceAccount (token), and the CA certificates of the control plane
    /// (ca.crt), in PEM. The data plane then serves one Gateway: the Gateway that its ServiceAccount belongs to. The process
    /// reads the files again before each connection to the control plane.
    #[arg(long, value_name = "DIR", conflicts_with = "tls_dir")]
    token_dir: Option<PathBuf>,
    /// The file for a snapshot of the configuration, with private keys (mode 0600). The data plane starts from the
    /// snapshot if the control plane is unavailable. [default: no snapshot]
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// The name of this data plane at the control plane. [default: the host name]
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pod_name: Option<Box<str>>,
    #[command(flatten)]
    gateway: GatewayArgs,
    /// The address where the gateway accepts HTTPS; may be given several times. [default: none]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address, help_heading = "Gateway")]
    listen_https: Vec<SocketAddr>,
}

pub(crate) fn run(args: DataPlaneArgs) -> anyhow::Result<()> {
    gateway::block_on(1, data_plane(args))
}

async fn data_plane(args: DataPlaneArgs) -> anyhow::Result<()> {
    let identity = match (&args.tls_dir, &args.token_dir) {
        (Some(dir), _) => {
            let tls = PlaneTls::read(dir);
            let tls = tls.context("cannot read the certificates of the data plane (--tls-dir)")?;
            PlaneIdentity::Certificate(tls)
        }
        (None, Some(dir)) => {
            PlaneIdentity::Token(PlaneToken { token: dir.join("token"), authorities: dir.join("ca.crt") })
        }
        (None, None) => anyhow::bail!("--tls-dir or --token-dir is needed"),
    };
    let host = || rustix::system::uname().nodename().to_string_lossy().into();
    let outbox = args.gateway.analytics.outbox();
    let quotas = Pending::new();
    let subscriber = Subscriber::new(SubscriberOptions {
        build: BUILD,
        control: args.control_plane,
        control_name: args.control_plane_name,
        identity,
        node: args.pod_name.unwrap_or_else(host),
        snapshot: args.snapshot,
        quotas: Some(quotas.clone()),
        reports: outbox.clone().map(|outbox| Arc::new(OverLink(outbox)) as Arc<dyn Reports>),
    });
    let telemetry = subscriber.telemetry();
    let state = telemetry.clone();
    let planes = Arc::new(move || planes(&state.borrow()));
    let problems = Arc::new(move || {
        let telemetry = telemetry.borrow();
        let refused = (telemetry.refused > 0).then(|| {
            format!(
                "this version cannot read {} resources of the control plane; update the data plane",
                telemetry.refused
            )
        });
        let away = telemetry.last_error.iter().filter(|_| !telemetry.is_connected);
        let away = away.map(|error| {
            format!("no connection to the control plane: {error}; the last configuration stays in service")
        });
        Problems { errors: refused.into_iter().collect(), warnings: away.collect() }
    });
    let resignation = std::future::ready(());
    let told = Told { problems, planes, outbox, quotas: Some(quotas), store: None, audit: None, sites: None };
    gateway::run(&args.gateway, &args.listen_https, told, resignation, |mut publish| async move {
        match subscriber.run(move |change| publish.change(change, Instant::now())).await {}
    })
    .await
}

/// The state of the control plane.
fn planes(telemetry: &SubscriberTelemetry) -> Planes {
    let seconds = |time: Option<SystemTime>| {
        time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok()).map(|time| time.as_secs())
    };
    Planes {
        lease: None,
        measures: vec![
            Measure::gauge(
                "sluicegate_control_connected",
                "1 while the data plane is connected to the control plane, otherwise 0",
                telemetry.is_connected.into(),
            ),
            Measure::gauge(
                "sluicegate_control_version",
                "Version of the configuration that the data plane serves",
                telemetry.version,
            ),
            Measure::counter(
                "sluicegate_control_connections",
                "Connections made to the control plane",
                telemetry.connections,
            ),
            Measure::gauge(
                "sluicegate_control_resources_refused",
                "Resources of the control plane that this version of the data plane cannot read",
                telemetry.refused as u64,
            ),
            Measure::counter(
                "sluicegate_snapshot_failures",
                "Failed writes of the snapshot",
                telemetry.snapshot_failures,
            ),
        ],
        document: json!({
            "connected": telemetry.is_connected,
            "since": seconds(telemetry.since),
            "version": telemetry.version,
            "last_error": telemetry.last_error,
            "snapshot_written": seconds(telemetry.snapshot_written),
        }),
    }
}

fn host_and_port(text: &str) -> Result<Box<str>, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    match port.map(str::parse::<u16>) {
        Some(Ok(port)) if port > 0 => Ok(text.into()),
        _ => Err(
            "not a host with a port; write HOST:PORT, such as sluicegate-control-plane:9902 or [2001:db8::1]:9902"
                .to_owned(),
        ),
    }
}

fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned())
        .map_err(|_| format!("{text:?} is neither a DNS name nor an IP address"))
}
