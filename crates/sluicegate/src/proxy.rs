//! `sluicegate proxy`: the data plane alone. It has no credentials of a cluster: all that it knows is what a control plane
//! tells it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use anyhow::Context as _;
use clap::Args;
use rustls_pki_types::ServerName;
use serde_json::json;
use sluicegate_admin::{Measure, Planes, Problems};
use sluicegate_link::{PlaneTls, Subscriber, SubscriberOptions, SubscriberTelemetry};

use crate::address::listen_address;
use crate::gateway::{self, GatewayArgs, Told};

#[derive(Debug, Args)]
#[command(after_help = format!("\
It is ready once it serves a configuration: that of the control plane, or that of --snapshot if the control plane cannot be \
reached, or says nothing for 2s. While there is no connection it serves on, and tries again: at once, then after up to \
200ms, doubling to 1s.\n\n{}", gateway::LIFE))]
pub(crate) struct ProxyArgs {
    /// The control plane. A name is looked up for each connection.
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    control: Box<str>,
    /// The name that the certificate of the control plane has to have.
    #[arg(long, value_name = "NAME", value_parser = server_name, default_value = "sluicegate-control")]
    control_name: ServerName<'static>,
    /// The directory with tls.crt and tls.key, which the control plane is shown, and ca.crt, which vouches for it: PEM. It is
    /// read again when it changes.
    #[arg(long, value_name = "DIR")]
    tls_dir: PathBuf,
    /// Write down what is served, with private keys, to this file (mode 0600), and start from it while the control plane is
    /// away. [default: not written]
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// What the control plane calls this process. [default: the name of the host]
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pod_name: Option<Box<str>>,
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Where HTTPS is served; may be given several times. [default: nowhere]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    listen_https: Vec<SocketAddr>,
}

pub(crate) fn run(args: ProxyArgs) -> anyhow::Result<()> {
    gateway::block_on(1, proxy(args))
}

async fn proxy(args: ProxyArgs) -> anyhow::Result<()> {
    let tls = PlaneTls::read(&args.tls_dir).context("the planes' certificates (--tls-dir)")?;
    let host = || rustix::system::uname().nodename().to_string_lossy().into();
    let subscriber = Subscriber::new(SubscriberOptions {
        control: args.control,
        control_name: args.control_name,
        tls,
        node: args.pod_name.unwrap_or_else(host),
        snapshot: args.snapshot,
    });
    let telemetry = subscriber.telemetry();
    let state = telemetry.clone();
    let planes = Arc::new(move || planes(&state.borrow()));
    let problems = Arc::new(move || {
        let telemetry = telemetry.borrow();
        let refused = (telemetry.refused > 0).then(|| {
            format!("{} resources of the control plane cannot be read by this version", telemetry.refused)
        });
        let away = telemetry.last_error.iter().filter(|_| !telemetry.is_connected);
        let away = away.map(|error| format!("there is no connection to the control plane: {error}"));
        Problems { errors: refused.into_iter().collect(), warnings: away.collect() }
    });
    let resignation = std::future::ready(());
    let told = Told { problems, planes };
    gateway::run(&args.gateway, &args.listen_https, told, resignation, |mut publish| async move {
        match subscriber.run(move |change| publish.change(change, Instant::now())).await {}
    })
    .await
}

/// What is known of the control plane.
fn planes(telemetry: &SubscriberTelemetry) -> Planes {
    let seconds = |time: Option<SystemTime>| {
        time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok()).map(|time| time.as_secs())
    };
    Planes {
        measures: vec![
            Measure::gauge(
                "sluicegate_control_connected",
                "1 while there is a connection to the control plane",
                telemetry.is_connected.into(),
            ),
            Measure::gauge(
                "sluicegate_control_version",
                "The version of the configuration",
                telemetry.version,
            ),
            Measure::counter(
                "sluicegate_control_connections",
                "Connections to the control plane that there were",
                telemetry.connections,
            ),
            Measure::gauge(
                "sluicegate_control_resources_refused",
                "Resources that this version cannot read",
                telemetry.refused as u64,
            ),
            Measure::counter(
                "sluicegate_snapshot_failures",
                "How often the snapshot could not be written",
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
        _ => Err("write it as HOST:PORT, such as sluicegate-control:9902 or [2001:db8::1]:9902".to_owned()),
    }
}

fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned())
        .map_err(|_| format!("{text:?} is neither a DNS name nor an IP address"))
}
