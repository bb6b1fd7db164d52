//! The data plane as a process, from the takeover to the drain: the common part of `serve` and `data-plane`.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use rustix::net::sockopt::socket_type;
use rustix::net::{SocketType, getsockname};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::disable_transparent_huge_pages;
use sluicegate_admin::{Admin, Hosts, LastChange, Phase, Planes, Problems, Readiness};
use sluicegate_analytics::{Audit, Outbox, Store};
use sluicegate_model::Change;
use sluicegate_proxy::record::access_log::{AccessLog, LogFormat};
use sluicegate_proxy::{Drain, Options, Proxy};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::address::{listen_address, local_address};
use crate::analytics::{CollectArgs, finish, measures};
use crate::audit;
use crate::build::BUILD;
use crate::dashboard::{OpenSites, SiteParts};
use crate::quotas::{Pending, QuotasOfWorkers};
use crate::settings::time;
use crate::signals::{Signals, Wish};
use crate::systemd;
use crate::takeover::{Inheritance, Offer};

/// The interval of retries for failed listeners.
const RETRY_LISTENERS: Duration = Duration::from_secs(5);

/// The notation of times, for the help.
pub(crate) const TIME: &str = "\
TIME is written as 250ms, 60s, 5m or 1h: at least 1ms, or 0s where an option gives 0s a meaning, and at most 365d.";

/// The notation of sizes, for the help.
pub(crate) const SIZE: &str = "SIZE is a number of bytes, or written as 64k, 64Ki, 1m or 1Mi.";

/// The effect of signals and of a second process, for `--help`.
pub(crate) const LIFE: &str = "\
SIGTERM, SIGINT and SIGQUIT begin a graceful shutdown: /readyz fails at once, and responses have Connection: close. The \
gateway accepts connections for --shutdown-grace, then closes idle connections after --shutdown-idle. Requests in flight may \
continue for --shutdown-timeout. Further signals have no effect, except a SIGINT at least half a second after the first signal. \
That SIGINT ends the gateway at once; if requests are dropped, the gateway logs their number and exits with 1.\n\n\
SIGHUP, SIGUSR1 and SIGUSR2 (reload, reopen and upgrade of nginx) have no effect and are logged. The gateway follows changes \
of the configuration, and opens a renamed access log again, without a signal.\n\n\
A gateway that starts beside a running gateway of the same user, with the same first --listen address, takes over its \
listening sockets. The running gateway drains once the new gateway serves. A running gateway that already drains then accepts \
no further connections.";

#[derive(Debug, Args)]
#[command(next_help_heading = "Gateway")]
pub(crate) struct GatewayArgs {
    /// The address for HTTP, such as 127.0.0.1:8080, localhost:8080, or :8080 for all IPv4 addresses; may be given
    /// several times.
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address, default_value = "0.0.0.0:8080")]
    pub(crate) listen: Vec<SocketAddr>,
    /// The address of the admin interface: /healthz, /readyz, /metrics, /config, /routes and /upstreams. Keep it
    /// private. The interface accepts 64 connections at once. At the limit, a new connection replaces the oldest
    /// connection without a complete request. 16 further connections serve only /healthz and /readyz. A request head
    /// must arrive within 2 s.
    #[arg(long, value_name = "ADDRESS", value_parser = local_address, default_value = "127.0.0.1:9901")]
    pub(crate) admin: SocketAddr,
    /// A host name that the admin interface accepts, beside localhost and IP addresses; may be given several times.
    /// [default: none, and any name if --admin is not a loopback address]
    #[arg(long, value_name = "NAME")]
    admin_host: Vec<String>,
    /// The number of workers. [default: one for each CPU, range: 1 to 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// The number of the last refused requests that sluicegate explain --request-id finds. 0: none. [range: 0 to 65535]
    #[arg(long, value_name = "N", default_value_t = 1000)]
    refused_requests: u16,
    /// Log requests to this file or FIFO, or to standard output (-). The gateway continues to serve if the log accepts
    /// no data, for example because the disk is full. sluicegate_access_log_dropped_total counts the lost lines.
    /// [default: no access log]
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// The format of the access log: json, or combined as in nginx.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "json")]
    access_log_format: AccessLogFormat,
    /// Do not take over the sockets of a running gateway, and do not offer them to a new one.
    #[arg(long)]
    no_takeover: bool,
    /// The time after SIGTERM in which the gateway accepts connections, so that load balancers can notice. 0s: none.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5s")]
    shutdown_grace: Duration,
    /// The time after --shutdown-grace in which idle connections stay open. 0s: none.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5s")]
    shutdown_idle: Duration,
    /// The time after --shutdown-grace in which requests in flight may continue. 0s: none.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30s")]
    shutdown_timeout: Duration,
    #[command(flatten)]
    pub(crate) analytics: CollectArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AccessLogFormat {
    Json,
    Combined,
}

impl GatewayArgs {
    /// A port that the system chooses belongs to no other gateway.
    fn takes_over(&self) -> bool {
        !self.no_takeover && self.listen[0].port() != 0
    }

    fn options(
        &self,
        https: &[SocketAddr],
        inherited: Vec<OwnedFd>,
        outbox: Option<&Arc<Outbox>>,
    ) -> anyhow::Result<Options> {
        let format = match self.access_log_format {
            AccessLogFormat::Json => LogFormat::Json,
            AccessLogFormat::Combined => LogFormat::Combined,
        };
        let access_log = self.access_log.as_deref().map(|path| {
            let file = (path.as_os_str() != "-").then_some(path);
            AccessLog::open(format, file)
                .with_context(|| format!("cannot open the access log {} (--access-log)", path.display()))
        });
        let default = Options::default();
        Ok(Options {
            http: self.listen.clone(),
            https: https.to_vec(),
            workers: self.workers.map_or(default.workers, usize::from),
            access_log: access_log.transpose()?,
            analytics: outbox.map(|outbox| self.analytics.to(outbox)),
            refused_requests: self.refused_requests.into(),
            inherited,
        })
    }

    fn drain(&self) -> Drain {
        Drain { grace: self.shutdown_grace, idle: self.shutdown_idle, timeout: self.shutdown_timeout }
    }
}

/// The contents of the admin interface beside the data plane.
pub(crate) struct Told {
    /// The problems of the configuration.
    pub(crate) problems: Arc<dyn Fn() -> Problems + Send + Sync>,
    /// The state of the other plane.
    pub(crate) planes: Arc<dyn Fn() -> Planes + Send + Sync>,
    /// The sums that are not stored yet, if analytics are enabled.
    pub(crate) outbox: Option<Arc<Outbox>>,
    /// The uses of quotas that are not counted yet, if there is a place that counts for all data planes.
    pub(crate) quotas: Option<Arc<Pending>>,
    /// The store of analytics, if this process has it.
    pub(crate) store: Option<Arc<Store>>,
    /// The audit trail, if this process has it.
    pub(crate) audit: Option<Arc<Audit>>,
    /// The dashboard and the portal; `None` without a control plane.
    pub(crate) sites: Option<SiteParts>,
}

/// The receiver of changes from the source.
pub(crate) struct Publish {
    proxy: Arc<Proxy>,
    last_change: LastChange,
    /// Notified when the first configuration is served.
    configured: Option<oneshot::Sender<()>>,
}

impl Publish {
    /// Passes a change to the proxy, which the process received at `heard`. The future is ready when the change is served.
    /// The caller must await the future.
    pub(crate) fn change(
        &mut self,
        change: Change,
        heard: Instant,
    ) -> impl Future<Output = ()> + Send + use<> {
        if matches!(change, Change::Config(_)) {
            self.last_change.set_now();
        }
        let applied = self.proxy.apply_since(change, heard);
        let configured = self.configured.take();
        async move {
            applied.await;
            if let Some(configured) = configured {
                // The receiver is dropped when the process ends.
                let _ = configured.send(());
            }
        }
    }
}

/// The source of the configuration has a runtime of its own, so that a translation of thousands of routes never delays a
/// request. The runtime has one thread beside workers, and more threads in a process without workers.
pub(crate) fn block_on(threads: usize, life: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    raise_file_limit();
    decline_huge_pages();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("control")
        .enable_all()
        .build()
        .context("cannot start the runtime of the control plane")?;
    runtime.block_on(life)
}

/// Each connection needs a file descriptor. The soft limit of most systems, 1,024, is for programs with `select`.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "cannot raise the limit of open files; the current limit stays, and bounds the connections");
    }
}

/// The allocator asks for huge pages (`madvise(2)`). For the many small objects of a configuration, huge pages take a quarter
/// more memory: 96 MiB instead of 78 with 5,000 Ingresses, without faster requests.
fn decline_huge_pages() {
    if let Err(error) = disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "cannot turn off huge pages");
    }
}

/// Runs until a signal ends the process or another process takes over. The process is ready when a configuration from
/// `follow` is served. At the start of the shutdown, `resignation` releases the roles of this process, such as the Lease.
pub(crate) async fn run<F: Future<Output = ()> + Send + 'static>(
    args: &GatewayArgs,
    https: &[SocketAddr],
    told: Told,
    resignation: impl Future<Output = ()> + Send + 'static,
    follow: impl FnOnce(Publish) -> F,
) -> anyhow::Result<()> {
    let mut signals = Signals::listen().context("cannot register signal handlers")?;
    let (mut inheritance, offer) = match args.takes_over() {
        true => {
            (Inheritance::ask(args.listen[0])?, Offer::new(args.listen[0]).inspect_err(warn_of_offer).ok())
        }
        false => (None, None),
    };
    let inherited = inheritance.as_mut().map(|from| std::mem::take(&mut from.sockets)).unwrap_or_default();
    let taking_over = inheritance.is_some();
    let admin_socket = own_socket(args.admin, &inherited)
        .with_context(|| format!("cannot serve the admin interface at {} (--admin)", args.admin))?;
    let handed_admin = admin_socket.try_clone()?;
    // The proxy takes the other sockets.
    let own = clones(&inherited)?;
    let proxy = Arc::new(Proxy::start(args.options(https, inherited, told.outbox.as_ref())?)?);

    let quotas = told.quotas.clone();
    if let Some(quotas) = &quotas {
        quotas.attach(proxy.registry().quotas());
        tokio::spawn(quotas.clone().gather());
    }
    let (readiness, last_change) = (Readiness::new(), LastChange::new());
    let admin = Admin {
        build: BUILD,
        registry: proxy.registry().clone(),
        readiness: readiness.clone(),
        pod: pod_name(),
        namespace: pod_namespace(),
        hosts: Hosts::of(args.admin, args.admin_host.clone()),
        last_change: last_change.clone(),
        problems: told.problems,
        planes: {
            let (planes, outbox, store) = (told.planes, told.outbox.clone(), told.store.clone());
            let audit = told.audit.clone();
            Arc::new(move || {
                let mut planes = planes();
                planes.measures.extend(measures(outbox.as_deref(), store.as_deref()));
                planes.measures.extend(audit::measures(audit.as_deref()));
                planes
            })
        },
        analytics: told.store.clone(),
        audit: told.audit.clone(),
    };
    let of_quotas = QuotasOfWorkers(proxy.registry().quotas());
    let sites = told.sites.map(|parts| parts.open(&admin, (false, Arc::new(of_quotas)), &own)).transpose()?;
    drop(own);
    let handed_sites = sites.as_ref().map(OpenSites::sockets).transpose()?.unwrap_or_default();
    let sites = sites.map(OpenSites::start).transpose()?.unwrap_or_default();
    admin_socket.set_nonblocking(true)?;
    let admin = tokio::spawn(admin.serve(tokio::net::TcpListener::from_std(admin_socket)?));
    let (configured, first) = oneshot::channel();
    tokio::spawn(follow(Publish { proxy: proxy.clone(), last_change, configured: Some(configured) }));
    tokio::spawn(retry_listeners(proxy.clone()));

    tokio::select! {
        first = first => first.context("the task that follows the configuration ended unexpectedly")?,
        _ = signals.recv() => return Ok(()),
    }
    if let Some(quotas) = &quotas {
        quotas.ask().await;
    }
    readiness.set(Phase::Ready);
    for (nth, address) in proxy.addresses().iter().enumerate() {
        let protocol = if nth < args.listen.len() { "http" } else { "https" };
        tracing::info!(%address, protocol, admin = %args.admin, taking_over, "serving");
    }
    // Before the old process drains: if the main process of a unit ends, systemd ends the other processes of the unit.
    systemd::report_ready();
    if let Some(inheritance) = inheritance
        && let Err(error) = inheritance.complete()
    {
        tracing::info!(%error, "the old gateway ended before the takeover was complete; its sockets are in use here");
    }

    let mut over = tokio::spawn({
        let handed = std::iter::once(handed_admin).chain(handed_sites).collect();
        let (proxy, taken_over) = (proxy.clone(), taken_over(offer, proxy.clone(), handed));
        async move {
            taken_over.await;
            // The other process already accepts connections and responds at the admin address. The routes of this process are
            // outdated, even if it was draining before.
            admin.abort();
            sites.iter().for_each(JoinHandle::abort);
            proxy.end_grace();
            tracing::info!(
                "another process has taken over the sockets: this process accepts no further connection"
            );
        }
    });
    let (wish, is_told) = tokio::select! {
        wish = signals.recv() => (wish, true),
        _ = &mut over => (Wish::Drain, false),
    };
    readiness.set(Phase::Draining);
    let resignation = tokio::spawn(resignation);
    let ended = end(wish, &proxy, args.drain(), &mut signals).await;
    if let Some(quotas) = &quotas {
        quotas.finish().await;
    }
    if let Some(outbox) = &told.outbox {
        finish(outbox).await;
    }
    if let Some(audit) = told.audit {
        audit::finish(audit).await;
    }
    ended?;
    // The resignation takes a moment, at most two seconds. Without it the next holder would wait many seconds.
    let _ = resignation.await;
    if !is_told && pod_name().is_some() {
        // If the process ended now, kubelet would restart it, and it would take the sockets back.
        tracing::info!(
            "drained; another pod serves at the same addresses, so this pod waits for a signal to end"
        );
        signals.recv().await;
    }
    Ok(())
}

/// The name of the process' pod, if set.
pub(crate) fn pod_name() -> Option<Arc<str>> {
    variable("POD_NAME")
}

/// The namespace of the process' pod, if set.
pub(crate) fn pod_namespace() -> Option<Arc<str>> {
    variable("POD_NAMESPACE")
}

fn variable(name: &str) -> Option<Arc<str>> {
    std::env::var(name).ok().filter(|value| !value.is_empty()).map(Into::into)
}

/// Drains unless a signal asks for the end at once. Requests that a signal cuts off are a failure; requests that exceed the
/// drain time, such as tunnels, are not.
async fn end(wish: Wish, proxy: &Proxy, drain: Drain, signals: &mut Signals) -> anyhow::Result<()> {
    if wish == Wish::Drain {
        tracing::info!("draining");
        tokio::select! {
            () = proxy.shutdown(drain) => {
                tracing::info!("drained");
                return Ok(());
            }
            () = signals.end_now() => {}
        }
    }
    tracing::warn!("SIGINT during the shutdown: ending at once");
    let dropped = proxy.registry().counters().workers().sum(|worker| &worker.in_flight);
    proxy.shutdown(Drain::AT_ONCE).await;
    anyhow::ensure!(
        dropped == 0,
        "a signal ended the gateway at once and dropped requests in flight: {dropped}; send a single SIGTERM to let them finish"
    );
    Ok(())
}

/// The listening socket of an interface of the process: the predecessor's socket, if there is a predecessor.
pub(crate) fn own_socket(address: SocketAddr, inherited: &[OwnedFd]) -> anyhow::Result<TcpListener> {
    for socket in inherited {
        if socket_type(socket)? == SocketType::STREAM && getsockname(socket)?.try_into() == Ok(address) {
            return Ok(socket.try_clone()?.into());
        }
    }
    Ok(TcpListener::bind(address)?)
}

fn clones(sockets: &[OwnedFd]) -> std::io::Result<Vec<OwnedFd>> {
    sockets.iter().map(OwnedFd::try_clone).collect()
}

/// Retries the failed listeners of the configuration.
async fn retry_listeners(proxy: Arc<Proxy>) {
    let mut ticks = tokio::time::interval(RETRY_LISTENERS);
    loop {
        ticks.tick().await;
        proxy.retry_listeners();
    }
}

/// Returns when another process serves with these sockets.
async fn taken_over(offer: Option<Offer>, proxy: Arc<Proxy>, handed: Vec<TcpListener>) {
    if let Some(offer) = offer {
        let (done, over) = oneshot::channel();
        // A thread instead of a blocking task, which would delay the end of the runtime.
        let thread = std::thread::Builder::new().name("takeover".into());
        let spawned = thread.spawn(move || {
            let sockets = || {
                let mut sockets = proxy.sockets()?;
                for socket in &handed {
                    sockets.push(socket.try_clone()?.into());
                }
                Ok(sockets)
            };
            if offer.hand_over(sockets).inspect_err(warn_of_offer).is_ok() {
                // The receiver is dropped when the process ends.
                let _ = done.send(());
            }
        });
        if spawned.is_ok() && over.await.is_ok() {
            return;
        }
    }
    std::future::pending::<()>().await;
}

fn warn_of_offer(error: &anyhow::Error) {
    tracing::warn!("{error:#}; a new process cannot take over, and has to wait until this process ends");
}
