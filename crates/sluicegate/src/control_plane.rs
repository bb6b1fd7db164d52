//! `sluicegate control-plane`: the control plane alone, which distributes the configuration to data planes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::json;
use sluicegate_admin::{Admin, Hosts, LastChange, Measure, Phase, Planes, Readiness};
use sluicegate_control::{
    DataPlanes, OwnDataPlanes, OwnPlanesLink, PlaneCertificates, PlaneFiles, Served, WorkloadTemplate,
    review_token,
};
use sluicegate_link::{Distributor, DistributorOptions, LinkTelemetry, PlaneTls, Reviewer, TlsFiles};
use sluicegate_model::Change;
use sluicegate_proxy::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::acme::AcmeArgs;
use crate::address::{listen_address, local_address};
use crate::analytics::{StoreArgs, measures, report_store};
use crate::audit::{self, AuditArgs};
use crate::build::BUILD;
use crate::check::{Ports, translate_options};
use crate::cli::ClassArgs;
use crate::dashboard::{DashboardArgs, PortalArgs, SiteParts};
use crate::gateway::{self, pod_name, pod_namespace};
use crate::quotas::{QuotasOfStore, ledger};
use crate::serve::problems;
use crate::settings::{SettingsArgs, time};
use crate::signals::Signals;
use crate::source::{Source, SourceArgs};
use crate::systemd;
use crate::tls::TlsArgs;
use crate::webhook::WebhookArgs;

/// The data planes that serve a Gateway.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum GatewayDataPlanes {
    #[value(name = "Shared")]
    Shared,
    #[value(name = "Own")]
    Own,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Control plane", after_help = format!("\
{} {}\n\n\
Data planes (sluicegate data-plane) connect to --listen, and receive the configuration and every change. Without a control plane, \
data planes continue to serve. A new control plane sends them only the differences.\n\n\
The control plane itself listens only at --listen and --admin. It is ready once it has a configuration. SIGTERM, SIGINT and \
SIGQUIT end it at once.", gateway::TIME, gateway::SIZE))]
pub(crate) struct ControlPlaneArgs {
    /// The address where data planes connect (gRPC with mutual TLS).
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address, default_value = "0.0.0.0:9902")]
    listen: SocketAddr,
    /// The directory with the control plane's certificate and key (tls.crt and tls.key), and the CA certificates of
    /// data planes (ca.crt), in PEM. Certificates of data planes must be client certificates. The process reads the
    /// files again when they change.
    #[arg(long, value_name = "DIR", required_unless_present = "plane_certificates")]
    tls_dir: Option<PathBuf>,
    /// Create and renew the certificates of both planes, as Secrets in the namespace of this pod. Control planes use
    /// sluicegate-control-plane-tls, and data planes mount sluicegate-data-plane-tls.
    #[arg(long, requires_all = ["kubernetes", "pod_namespace"], conflicts_with = "tls_dir")]
    plane_certificates: bool,
    /// The data planes of a Gateway without the key `dataPlanes` in its parameters (parametersRef). Shared: the data planes of
    /// the chart serve the Gateway. Own: Sluicegate creates data planes that serve only this Gateway, in the namespace of the
    /// Gateway.
    #[arg(
        long,
        value_enum,
        value_name = "PLANES",
        default_value = "Shared",
        requires = "data_plane_template"
    )]
    gateway_data_planes: GatewayDataPlanes,
    /// The YAML file with a template of a Deployment or DaemonSet. For each Gateway with own data planes, Sluicegate creates a
    /// workload from the template, and adds the name, the labels, the selector and the ServiceAccount. Without the file, the
    /// shared data planes serve all Gateways.
    /// [default: none]
    #[arg(long, value_name = "FILE", requires = "gateway_services")]
    data_plane_template: Option<PathBuf>,
    /// After a change of `dataPlanes`, the time before Sluicegate deletes the old Service. The time starts when the new Service
    /// has an address and the new data planes serve. [range: 0s to 365d]
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5m", requires = "data_plane_template")]
    gateway_move_overlap: Duration,
    /// The largest number of connected data planes. The control plane refuses further data planes, which retry. [range:
    /// at least 1]
    #[arg(long, value_name = "N", default_value = "2000", value_parser = clap::value_parser!(u32).range(1..))]
    max_data_planes: u32,
    /// The address of the admin interface: /healthz, /readyz, /metrics, /planes and /config. Keep it private.
    #[arg(long, value_name = "ADDRESS", value_parser = local_address, default_value = "127.0.0.1:9901")]
    admin: SocketAddr,
    /// A host name that the admin interface accepts, beside localhost and IP addresses; may be given several times.
    /// [default: none, and any name if --admin is not a loopback address]
    #[arg(long, value_name = "NAME")]
    admin_host: Vec<String>,
    /// The address of the data planes for HTTP. A Gateway cannot use its port; may be given several times.
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address, default_value = "0.0.0.0:8080")]
    listen_http: Vec<SocketAddr>,
    /// The address of the data planes' admin interfaces. A Gateway cannot use its port.
    #[arg(long, value_name = "ADDRESS", value_parser = local_address, default_value = "127.0.0.1:9901")]
    data_plane_admin: SocketAddr,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    class: ClassArgs,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    acme: AcmeArgs,
    #[command(flatten)]
    webhook: WebhookArgs,
    /// Store the sums of requests of data planes with --analytics, for sluicegate apis, sluicegate top and the page /analytics of the
    /// admin interface.
    #[arg(long, help_heading = "Analytics")]
    analytics: bool,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    audit: AuditArgs,
    #[command(flatten)]
    dashboard: DashboardArgs,
    #[command(flatten)]
    portal: PortalArgs,
}

pub(crate) fn run(args: ControlPlaneArgs) -> anyhow::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    gateway::block_on(threads, control_plane(args))
}

async fn control_plane(args: ControlPlaneArgs) -> anyhow::Result<()> {
    let mut signals = Signals::listen().context("cannot register signal handlers")?;
    let ports =
        Ports { http: &args.listen_http, https: &args.tls.listen_https, admin: args.data_plane_admin };
    let mut translation = translate_options(&args.class, args.settings.settings(), ports);
    translation.own_data_planes = args.own_data_planes()?;
    let makes_own = translation.own_data_planes.is_some();
    let (orders, acme) = args.acme.orders(&args.source)?;
    translation.acme = acme;
    let mut source = args.source.source(translation, &args.settings, &args.tls).await?;
    let (readiness, last_change) = (Readiness::new(), LastChange::new());
    let max_subscribers = usize::try_from(args.max_data_planes)?;
    let reviewer = match &source {
        Source::Cluster(cluster) if makes_own => {
            let client = cluster.client().clone();
            Some(Reviewer::new(move |token| Box::pin(review_token(client.clone(), token))))
        }
        _ => None,
    };
    // The store counts the quotas of all data planes, also without analytics.
    let of_quotas = args.store.start()?;
    let store = args.analytics.then(|| of_quotas.clone());
    let reports = store.clone().map(report_store);
    let counted = of_quotas.clone();
    let quotas = Some(ledger(of_quotas));
    let default = DistributorOptions::default();
    let options = DistributorOptions { build: BUILD, max_subscribers, reviewer, reports, quotas, ..default };
    let distributor = Distributor::new(options);
    let (distributed, of_source) = (distributor.clone(), source.planes(args.source.lease_name().clone()));
    let audit = args.audit.start(&args.store, &args.source, &mut source)?;
    let of_webhook = args.webhook.start(&mut source, audit.as_ref()).await?;
    let connected = distributor.clone();
    let serves = move || !connected.telemetry().subscribers.is_empty();
    let of_orders = orders.map(|orders| orders.start(&source, serves));
    let (of_store, of_audit) = (store.clone(), audit.clone());
    let registry = Arc::new(Registry::of_no_worker());
    let admin = Admin {
        build: BUILD,
        analytics: store,
        audit: audit.clone(),
        registry: registry.clone(),
        readiness: readiness.clone(),
        pod: pod_name(),
        namespace: pod_namespace(),
        hosts: Hosts::of(args.admin, args.admin_host.clone()),
        last_change: last_change.clone(),
        problems: problems(source.problems()),
        planes: Arc::new(move || {
            let (mut planes, of_source) = (planes(&distributed.telemetry()), of_source());
            planes.measures.extend(of_source.measures.into_iter().chain(of_webhook()));
            planes.measures.extend(of_orders.iter().flat_map(|measures| measures()));
            planes.measures.extend(measures(None, of_store.as_deref()));
            planes.measures.extend(audit::measures(of_audit.as_deref()));
            Planes { lease: of_source.lease, ..planes }
        }),
    };
    let listener = TcpListener::bind(args.admin).await;
    let listener =
        listener.with_context(|| format!("cannot serve the admin interface at {} (--admin)", args.admin))?;
    let sites = SiteParts {
        dashboard: args.dashboard.clone(),
        portal: args.portal.clone(),
        knowledge: source.knowledge(),
        objects: args.source.objects(),
    };
    let sites = sites.open(&admin, (true, Arc::new(QuotasOfStore(counted))), &[])?;
    // Without a dashboard, the control plane compiles no routes.
    let shown = sites.has_dashboard().then_some(registry);
    sites.start()?;
    tokio::spawn(admin.serve(listener));
    let tls = match &args.tls_dir {
        Some(dir) => {
            let tls = PlaneTls::read(dir)
                .context("cannot read the certificates of the control plane (--tls-dir)")?;
            tokio::spawn(tls.clone().follow());
            tls
        }
        None => tokio::select! {
            tls = made_tls(&source, &args.source) => tls?,
            _ = signals.recv() => return Ok(()),
        },
    };
    let listener = TcpListener::bind(args.listen).await;
    let listener =
        listener.with_context(|| format!("cannot listen for data planes at {} (--listen)", args.listen))?;
    let address = listener.local_addr()?;
    if let Source::Cluster(cluster) = &mut source
        && makes_own
    {
        let (sender, serving) = watch::channel(BTreeMap::new());
        tokio::spawn(distributor.clone().follow_own(sender));
        let of = tls.clone();
        cluster.make_own_planes(OwnPlanesLink { authorities: Arc::new(move || of.authorities()), serving });
    }
    // The holder of the Lease reports what the data planes serve, so the data planes gather there.
    if let Source::Cluster(cluster) = &source {
        let (distributor, mut other_leads) = (distributor.clone(), cluster.other_leads());
        tokio::spawn(async move {
            loop {
                distributor.set_yields(*other_leads.borrow_and_update());
                if other_leads.changed().await.is_err() {
                    return;
                }
            }
        });
    }
    tokio::spawn(distributor.clone().serve(listener, tls));
    let publish = move |change: Change, _| -> Served {
        let version = distributor.publish(&change);
        if let Some(registry) = &shown {
            registry.show(&change);
        }
        if matches!(change, Change::Config(_)) {
            last_change.set_now();
            if readiness.phase() == Phase::Starting {
                readiness.set(Phase::Ready);
                systemd::report_ready();
                tracing::info!(%address, admin = %args.admin, "distributing");
            }
        }
        let distributor = distributor.clone();
        Box::pin(async move { distributor.served_by_all(version).await })
    };
    let resignation = source.resignation();
    let following = tokio::spawn(async move { source.run(publish).await });
    tokio::select! {
        _ = following => anyhow::bail!("the task that follows the configuration ended unexpectedly"),
        _ = signals.recv() => {}
    }
    if let Some(audit) = audit {
        audit::finish(audit).await;
    }
    resignation.await;
    Ok(())
}

impl ControlPlaneArgs {
    /// The options for data planes of single Gateways.
    fn own_data_planes(&self) -> anyhow::Result<Option<OwnDataPlanes>> {
        let Some(file) = &self.data_plane_template else { return Ok(None) };
        let about =
            || format!("cannot use the template of data planes {} (--data-plane-template)", file.display());
        let text = std::fs::read_to_string(file).with_context(about)?;
        let template = WorkloadTemplate::read(&text).with_context(about)?;
        let default = match self.gateway_data_planes {
            GatewayDataPlanes::Shared => DataPlanes::Shared,
            GatewayDataPlanes::Own => DataPlanes::Own,
        };
        Ok(Some(OwnDataPlanes { default, overlap: self.gateway_move_overlap, template }))
    }
}

/// The state of the data planes.
fn planes(telemetry: &LinkTelemetry) -> Planes {
    let counts = &telemetry.counts;
    let behind = telemetry.subscribers.iter().filter(|plane| !plane.is_current).count();
    let planes = telemetry.subscribers.iter().map(|plane| {
        json!({
            "node": plane.node,
            "certificate": plane.identity,
            "build": plane.build,
            "address": plane.address.to_string(),
            "connected_since":
                plane.connected.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            "version": plane.version,
            "behind_seconds": plane.lag.as_secs_f64(),
            "resources_refused": plane.refused,
        })
    });
    let planes: Vec<_> = planes.collect();
    Planes {
        lease: None,
        document: json!({"version": telemetry.version, "resources": telemetry.resources, "planes": planes}),
        measures: vec![
            Measure::gauge("sluicegate_planes_connected", "Connected data planes", planes.len() as u64),
            Measure::gauge(
                "sluicegate_planes_behind",
                "Connected data planes that do not serve the newest version of the configuration yet",
                behind as u64,
            ),
            Measure::gauge(
                "sluicegate_planes_version",
                "Newest version of the configuration",
                telemetry.version,
            ),
            Measure::gauge(
                "sluicegate_planes_resources",
                "Resources in the newest version of the configuration",
                telemetry.resources as u64,
            ),
            Measure::counter(
                "sluicegate_planes_accepted",
                "Connections of data planes that were accepted",
                counts.accepted,
            ),
            Measure::counter(
                "sluicegate_planes_refused",
                "Connections of data planes that were refused, because --max-data-planes was reached",
                counts.refused,
            ),
            Measure::counter(
                "sluicegate_planes_handshakes_failed",
                "Connections of data planes whose TLS handshake failed, as without a trusted certificate",
                counts.handshakes_failed,
            ),
            Measure::counter(
                "sluicegate_planes_tokens_refused",
                "Connections of data planes whose token was not accepted, or could not be reviewed",
                counts.reviews_failed,
            ),
            Measure::counter(
                "sluicegate_planes_dropped",
                "Data planes that were disconnected because they did not read updates in time",
                counts.dropped,
            ),
            Measure::counter(
                "sluicegate_planes_batches",
                "Batches of changes sent to data planes",
                counts.batches,
            ),
            Measure::counter(
                "sluicegate_planes_bytes",
                "Bytes of batches sent to data planes, before encryption",
                counts.bytes,
            ),
        ],
    }
}

/// The certificates that the control planes create themselves. Waits while the API server is unavailable.
async fn made_tls(source: &Source, args: &SourceArgs) -> anyhow::Result<PlaneTls> {
    let (Source::Cluster(cluster), Some(namespace)) = (source, args.pod_namespace()) else {
        anyhow::bail!("--plane-certificates needs --kubernetes and --pod-namespace");
    };
    let certificates = PlaneCertificates::new(cluster.client().clone(), namespace);
    let mut has_failed = false;
    let first = loop {
        match certificates.ensure().await {
            Ok(files) => break files,
            Err(error) => {
                if !has_failed {
                    tracing::warn!(
                        "{error}; data planes cannot connect until this succeeds; trying again every second"
                    );
                }
                has_failed = true;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    };
    let tls = PlaneTls::given("the Secret of the control plane", files(first.clone()))?;
    let kept = tls.clone();
    tokio::spawn(certificates.follow(first, move |new| match kept.set(files(new)) {
        Ok(()) => tracing::info!("the control plane uses its renewed certificate"),
        Err(error) => tracing::warn!("{error}; the current certificate stays in use"),
    }));
    Ok(tls)
}

fn files(PlaneFiles { certificate, key, authorities }: PlaneFiles) -> TlsFiles {
    TlsFiles { chain: certificate, key, authorities }
}
