//! Starts a control plane and data planes, and issues their certificates.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_link::{
    Distributor, DistributorOptions, PlaneIdentity, PlaneTls, Reports, Subscriber, SubscriberOptions,
};
use sluicegate_model::{
    Build, Change, Conditions, Config, Endpoint, EntryPoint, HostPattern, Listener, ListenerId, ObjectId,
    PathPattern, Planes, ProxyHeader, Rule, Serves, Upstream, UpstreamKey, VirtualHost,
};
use sluicegate_testkit::tls::{Authority, ExtendedKeyUsagePurpose, Issued};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The timeout of each wait of a test.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Certificates of one CA for both planes, each in a directory.
pub(crate) struct Certificates {
    pub(crate) authority: Authority,
    pub(crate) control: TempDir,
    pub(crate) proxy: TempDir,
}

impl Certificates {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let this =
            Self { authority: Authority::new(), control: tempfile::tempdir()?, proxy: tempfile::tempdir()? };
        this.issue()?;
        Ok(this)
    }

    /// Replaces the certificates by new certificates of the same CA.
    pub(crate) fn issue(&self) -> anyhow::Result<()> {
        let control =
            self.authority.issue_for(&["sluicegate-control-plane"], ExtendedKeyUsagePurpose::ServerAuth);
        let proxy = self.authority.issue_for(&["sluicegate-data-plane"], ExtendedKeyUsagePurpose::ClientAuth);
        save(self.control.path(), &control, &self.authority)?;
        save(self.proxy.path(), &proxy, &self.authority)
    }
}

pub(crate) fn save(dir: &Path, issued: &Issued, trusted: &Authority) -> anyhow::Result<()> {
    for (name, text) in
        [("tls.crt", &issued.chain_pem), ("tls.key", &issued.key_pem), ("ca.crt", &trusted.pem())]
    {
        let new = dir.join(format!(".{name}"));
        std::fs::write(&new, text)?;
        std::fs::rename(new, dir.join(name))?;
    }
    Ok(())
}

/// A listening control plane.
pub(crate) struct Control {
    pub(crate) distributor: Distributor,
    pub(crate) address: SocketAddr,
    pub(crate) tls: PlaneTls,
    task: JoinHandle<()>,
}

impl Control {
    pub(crate) async fn start(tls: &Path) -> anyhow::Result<Self> {
        Self::start_at("127.0.0.1:0".parse()?, tls, DistributorOptions::default()).await
    }

    pub(crate) async fn start_at(
        address: SocketAddr,
        tls: &Path,
        options: DistributorOptions,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (distributor, tls) = (Distributor::new(options), PlaneTls::read(tls)?);
        let serving = distributor.clone().serve(listener, tls.clone());
        let task = tokio::spawn(async move { match serving.await {} });
        Ok(Self { distributor, address, tls, task })
    }

    /// Stops the control plane. Returns its address after the address is free.
    pub(crate) async fn stop(self) -> SocketAddr {
        self.task.abort();
        // The result is the error of the aborted task.
        let _ = self.task.await;
        self.address
    }
}

/// A data plane that records the configuration instead of serving requests. Dropping the value ends the data plane.
pub(crate) struct Data {
    pub(crate) serves: watch::Receiver<Served>,
    pub(crate) telemetry: watch::Receiver<sluicegate_link::SubscriberTelemetry>,
    task: JoinHandle<()>,
}

#[derive(Clone, Default)]
pub(crate) struct Served {
    pub(crate) config: Option<Arc<Config>>,
    /// The number of received configurations.
    pub(crate) configs: usize,
    /// The number of received endpoint changes.
    pub(crate) endpoints: usize,
}

impl Drop for Data {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Data {
    pub(crate) fn start(
        control: SocketAddr,
        tls: &Path,
        snapshot: Option<&Path>,
        node: &str,
    ) -> anyhow::Result<Self> {
        Ok(Self::start_with(control, PlaneTls::read(tls)?, snapshot, node))
    }

    pub(crate) fn start_with(
        control: SocketAddr,
        tls: PlaneTls,
        snapshot: Option<&Path>,
        node: &str,
    ) -> Self {
        Self::start_as(control, PlaneIdentity::Certificate(tls), snapshot, node)
    }

    pub(crate) fn start_as(
        control: SocketAddr,
        identity: PlaneIdentity,
        snapshot: Option<&Path>,
        node: &str,
    ) -> Self {
        Self::start_reporting(control, identity, snapshot, node, None)
    }

    pub(crate) fn start_reporting(
        control: SocketAddr,
        identity: PlaneIdentity,
        snapshot: Option<&Path>,
        node: &str,
        reports: Option<Arc<dyn Reports>>,
    ) -> Self {
        let subscriber = Subscriber::new(SubscriberOptions {
            build: Build::PLAIN,
            control: control.to_string().into(),
            control_name: "sluicegate-control-plane".try_into().expect("a name"),
            identity,
            node: node.into(),
            snapshot: snapshot.map(Path::to_owned),
            reports,
            quotas: None,
        });
        let (serves, receiver) = watch::channel(Served::default());
        let telemetry = subscriber.telemetry();
        let publish = move |change| {
            serves.send_modify(|served| served.take(change));
            std::future::ready(())
        };
        let task = tokio::spawn(async move { match subscriber.run(publish).await {} });
        Self { serves: receiver, telemetry, task }
    }

    pub(crate) async fn wait(&mut self, is: impl FnMut(&Served) -> bool) -> anyhow::Result<Served> {
        Ok(tokio::time::timeout(LIMIT, self.serves.wait_for(is)).await??.clone())
    }
}

impl Served {
    fn take(&mut self, change: Change) {
        match change {
            Change::Config(config) => {
                self.config = Some(config);
                self.configs += 1;
            }
            Change::Endpoints { upstream, endpoints } => {
                self.endpoints += 1;
                let Some(config) = &mut self.config else { panic!("endpoints before a configuration") };
                let upstream = Arc::make_mut(config).upstreams.get_mut(&upstream);
                let Some(upstream) = upstream else { return };
                Arc::make_mut(upstream).endpoints = endpoints;
            }
        }
    }

    pub(crate) fn hosts(&self) -> usize {
        self.config.as_ref().map_or(0, |config| config.hosts.len())
    }

    pub(crate) fn port(&self, index: usize) -> Option<u16> {
        let config = self.config.as_ref()?;
        Some(config.upstreams.get(&key(index))?.endpoints.first()?.address.port())
    }
}

pub(crate) fn key(index: usize) -> UpstreamKey {
    UpstreamKey::new("shop", format!("service-{index}"), "http")
}

/// The listener of a Gateway, with a host whose requests go to the upstream of this number.
pub(crate) fn add_gateway(config: &mut Config, name: &str, planes: Planes, index: usize) {
    let object = ObjectId { kind: "Gateway", namespace: "shop".into(), name: name.into() };
    let entry_point: Arc<str> = format!("shop/{name}:80").into();
    let host = config.hosts[index].clone();
    let host = VirtualHost { entry_point: EntryPoint::Gateway(entry_point.clone()), ..(*host).clone() };
    config.hosts.push(Arc::new(host));
    let port = 20000 + u16::try_from(config.listeners.len()).expect("few listeners");
    config.listeners.push(Listener {
        id: ListenerId { object, name: "web".into() },
        address: ([0, 0, 0, 0], port).into(),
        serves: Serves::Http(entry_point),
        planes,
        proxy_header: ProxyHeader::ByPeer,
        client_port: None,
    });
}

/// A configuration with this many hosts, each with an upstream of three endpoints at this port.
pub(crate) fn config(hosts: usize, port: u16) -> Config {
    let host = |index| {
        let name = format!("ingress-{index}");
        let id = ObjectId { kind: "Ingress", namespace: "shop".into(), name: name.into() };
        let routes = vec![Rule::new(id, PathPattern::Prefix("/".into()), key(index))];
        let host = HostPattern::Exact(format!("{index}.example").into());
        Arc::new(VirtualHost::new(host, routes))
    };
    let upstream =
        |index| (key(index), Arc::new(Upstream { endpoints: endpoints(index, port), ..Upstream::default() }));
    Config {
        hosts: (0..hosts).map(host).collect(),
        upstreams: (0..hosts).map(upstream).collect(),
        ..Config::default()
    }
}

pub(crate) fn endpoints(index: usize, port: u16) -> Arc<[Endpoint]> {
    let [.., high, low] = index.to_be_bytes();
    let endpoint =
        |last| Endpoint { address: ([10, high, low, last], port).into(), conditions: Conditions::READY };
    (1..=3).map(endpoint).collect()
}

pub(crate) fn endpoints_change(index: usize, port: u16) -> Change {
    Change::Endpoints { upstream: key(index), endpoints: endpoints(index, port) }
}

pub(crate) fn config_change(hosts: usize, port: u16) -> Change {
    Change::Config(Arc::new(config(hosts, port)))
}
