//! A gateway's data plane in this process, on a free port, changed by the test as a control plane would.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use sluicegate_model::{
    Change, Conditions, Config, Endpoint, HostPattern, Layer4, Layer4Route, Listener, ListenerId,
    PathPattern, Protocol, RouteId, Rule, Settings, Tls, Upstream, UpstreamKey, VirtualHost,
    WeightedUpstream,
};
use sluicegate_proxy::telemetry::{Tally, UpstreamShard};
use sluicegate_proxy::upstream::{SharedEndpoint, SharedUpstream};
use sluicegate_proxy::{Drain, Options, Proxy};
use tokio::time::{Instant, sleep};

use crate::backend::Backend;
use crate::client::{Client, Error, LIMIT};
use crate::load::Load;
use crate::stream::Transport;
use crate::tls::{Authority, ClientOptions};

/// The upstream that [`Builder::backends`] fills.
const DEFAULT: &str = "backend";
/// The upstream that [`Builder::layer4`] fills.
pub const LAYER4: &str = "stream";

/// A running gateway.
pub struct Gateway {
    proxy: Proxy,
    /// Which of the proxy's addresses is for HTTPS.
    https: usize,
    config: Mutex<Config>,
}

/// A gateway to be.
pub struct Builder {
    options: Options,
    config: Config,
}

impl Builder {
    /// Everything goes to these back ends, whatever the host and the path.
    #[must_use]
    pub fn backends<'b>(self, backends: impl IntoIterator<Item = &'b Backend>) -> Self {
        self.endpoints(backends.into_iter().map(Backend::addr))
    }

    /// Everything goes to these addresses.
    #[must_use]
    pub fn endpoints(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        let endpoints = addresses.into_iter().map(ready).collect();
        self.config.upstreams.insert(key(DEFAULT), Arc::new(Upstream { endpoints, ..Upstream::default() }));
        self.route("*", "/", DEFAULT)
    }

    /// Everything goes to these addresses, which speak HTTP/2 by prior knowledge.
    #[must_use]
    pub fn http2_endpoints(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        let endpoints = addresses.into_iter().map(ready).collect();
        let mut spoken = key(DEFAULT);
        spoken.transport.protocol = Protocol::Http2;
        self.config.upstreams.insert(spoken.clone(), Arc::new(Upstream { endpoints, ..Upstream::default() }));
        let id = RouteId { kind: "Ingress", namespace: "default".into(), name: DEFAULT.into() };
        let rules = vec![Rule::new(id, PathPattern::Prefix("/".into()), spoken)];
        self.config.hosts.push(Arc::new(VirtualHost { host: HostPattern::Any, rules, fallback: None }));
        self
    }

    /// `host` (`*` for any) and the element-wise prefix `path` go to the upstream `name`, which has no
    /// endpoints yet unless it was named before.
    #[must_use]
    pub fn route(mut self, host: &str, path: &str, name: &str) -> Self {
        add_route(&mut self.config, host, path, name);
        self
    }

    /// Connections or datagrams at a free port of 127.0.0.1 go to these addresses.
    #[must_use]
    pub fn layer4(
        mut self,
        protocol: Protocol,
        serves: impl FnOnce(Layer4Route) -> Layer4,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Self {
        let object = RouteId { kind: "Gateway", namespace: "default".into(), name: "edge".into() };
        let listener = Listener {
            id: ListenerId { object, name: "test".into() },
            address: ([127, 0, 0, 1], 0).into(),
            serves: serves(layer4_route(LAYER4, protocol)),
        };
        let endpoints = addresses.into_iter().map(ready).collect();
        let upstream = Arc::new(Upstream { endpoints, ..Upstream::default() });
        self.config.upstreams.insert(layer4_key(LAYER4, protocol), upstream);
        self.config.listeners.push(listener);
        self
    }

    /// What it will serve.
    pub fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    /// What it would serve.
    #[must_use]
    pub fn into_config(self) -> Config {
        self.config
    }

    /// Changes the limits.
    #[must_use]
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.config.settings);
        self
    }

    /// Changes what the upstream below HTTP is besides its endpoints.
    #[must_use]
    pub fn layer4_upstream(mut self, change: impl FnOnce(&mut Upstream)) -> Self {
        change(Arc::make_mut(self.config.upstreams.entry(layer4_key(LAYER4, Protocol::Tcp)).or_default()));
        self
    }

    /// Changes what the default upstream is besides its endpoints.
    #[must_use]
    pub fn upstream(mut self, change: impl FnOnce(&mut Upstream)) -> Self {
        change(Arc::make_mut(self.config.upstreams.entry(key(DEFAULT)).or_default()));
        self
    }

    /// How many workers; 2 unless told.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.options.workers = workers;
        self
    }

    /// What is served over TLS.
    #[must_use]
    pub fn tls(mut self, change: impl FnOnce(&mut Tls)) -> Self {
        change(Arc::make_mut(&mut self.config.tls));
        self
    }

    /// Changes what the proxy is started with.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Starts it. It serves when this returns.
    ///
    /// # Errors
    /// If it cannot listen.
    pub async fn start(self) -> anyhow::Result<Gateway> {
        let https = self.options.http.len();
        let proxy = Proxy::start(self.options)?;
        proxy.apply(Change::Config(Arc::new(self.config.clone()))).await;
        Ok(Gateway { proxy, https, config: Mutex::new(self.config) })
    }
}

impl Gateway {
    /// A gateway with two workers on free ports of 127.0.0.1, for HTTP and for HTTPS as localhost, the default settings and
    /// no routes.
    #[must_use]
    pub fn builder() -> Builder {
        let free = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        let options = Options { http: free.clone(), https: free, workers: 2, ..Options::default() };
        let default = vec![Authority::of_process().issue(&["localhost"]).certificate];
        let tls = Arc::new(Tls { default, ..Tls::default() });
        Builder { options, config: Config { tls, ..Config::default() } }
    }

    /// A gateway in front of these back ends.
    ///
    /// # Errors
    /// If it cannot listen.
    pub async fn of<'b>(backends: impl IntoIterator<Item = &'b Backend>) -> anyhow::Result<Self> {
        Self::builder().backends(backends).start().await
    }

    /// Where it listens for HTTP.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.proxy.addresses()[0]
    }

    /// Where it listens for HTTPS.
    #[must_use]
    pub fn https_addr(&self) -> SocketAddr {
        self.proxy.addresses()[self.https]
    }

    /// Where it listens for what [`connect`](Self::connect) speaks.
    #[must_use]
    pub fn addr_of(&self, transport: Transport) -> SocketAddr {
        match transport {
            Transport::Http => self.addr(),
            Transport::Https | Transport::Http2 => self.https_addr(),
        }
    }

    /// Where its listener below HTTP listens.
    #[must_use]
    pub fn layer4_addr(&self) -> SocketAddr {
        let listeners = self.proxy.telemetry().listeners();
        listeners[0].bound.clone().expect("it listens")
    }

    /// An upstream's endpoints from now on, every address ready; all workers know when this returns.
    pub async fn set_addresses_of(
        &self,
        upstream: UpstreamKey,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) {
        self.change_endpoints(upstream, addresses.into_iter().map(ready)).await;
    }

    /// The data plane itself.
    #[must_use]
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Where it listens for the transport that the environment says.
    #[must_use]
    pub fn target(&self) -> SocketAddr {
        self.addr_of(Transport::of_environment())
    }

    /// A connection to it, by the transport that the environment says.
    ///
    /// # Errors
    /// If it does not accept.
    pub async fn connect(&self) -> Result<Client, Error> {
        let transport = Transport::of_environment();
        Client::connect_by(self.addr_of(transport), transport).await
    }

    /// A connection over TLS, asking for the server `name`.
    ///
    /// # Errors
    /// If it does not accept, or the handshake fails.
    pub async fn connect_tls(&self, options: &ClientOptions, name: &str) -> Result<Client, Error> {
        Client::connect_tls(self.https_addr(), options, name).await
    }

    /// A load for it, by the transport that the environment says.
    #[must_use]
    pub fn load(&self) -> Load {
        let transport = Transport::of_environment();
        Load::new(self.addr_of(transport)).transport(transport)
    }

    /// The default upstream's counters and health.
    ///
    /// # Panics
    /// If the builder was given no back ends.
    #[must_use]
    pub fn upstream(&self) -> Arc<SharedUpstream> {
        let all = self.proxy.telemetry().upstreams();
        // However it is spoken with.
        all.into_iter()
            .find(|upstream| upstream.key().service == key(DEFAULT).service)
            .expect("the builder was given back ends")
    }

    /// One of the default upstream's counters, over all workers.
    #[must_use]
    pub fn count(&self, tally: impl Fn(&UpstreamShard) -> &Tally) -> u64 {
        self.upstream().shards().sum(tally)
    }

    /// The default upstream's endpoint at this address.
    ///
    /// # Panics
    /// If it has none there.
    #[must_use]
    pub fn endpoint(&self, address: SocketAddr) -> Arc<SharedEndpoint> {
        let set = self.upstream().endpoints();
        let mut endpoints = set.endpoints.iter().map(|(endpoint, _)| endpoint);
        endpoints.find(|endpoint| endpoint.address() == address).expect("an endpoint of the upstream").clone()
    }

    /// Waits until `condition` holds; fails after 10 s.
    ///
    /// # Errors
    /// If it did not hold in time.
    pub async fn wait_until(&self, condition: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + LIMIT;
        while !condition(self) {
            ensure!(Instant::now() < deadline, "waited in vain: {:#?}", self.upstream());
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Waits until nothing is left of any client, as after every test that nothing may leak from: no connection
    /// of a client is open and no request in flight, as the workers, the upstreams and the endpoints count them.
    ///
    /// # Errors
    /// If something is left after 10 s.
    pub async fn wait_until_idle(&self) -> anyhow::Result<()> {
        self.wait_until(Self::is_idle).await
    }

    fn is_idle(&self) -> bool {
        let telemetry = self.proxy.telemetry();
        let of_workers = telemetry.workers().iter().map(|worker| worker.open.get() + worker.in_flight.get());
        let of_upstream = |upstream: &Arc<SharedUpstream>| {
            let set = upstream.endpoints();
            let of_endpoint = |endpoint: &SharedEndpoint| endpoint.shards().sum(|shard| &shard.in_flight);
            let of_endpoints: u64 = set.endpoints.iter().map(|(endpoint, _)| of_endpoint(endpoint)).sum();
            upstream.shards().sum(|shard| &shard.in_flight) + of_endpoints
        };
        of_workers.sum::<u64>() + telemetry.upstreams().iter().map(of_upstream).sum::<u64>() == 0
    }

    /// The default upstream has these endpoints from now on; all workers know when this returns.
    pub async fn set_endpoints(&self, endpoints: impl IntoIterator<Item = Endpoint>) {
        self.change_endpoints(key(DEFAULT), endpoints).await;
    }

    /// As [`set_endpoints`](Self::set_endpoints), with every address ready.
    pub async fn set_addresses(&self, addresses: impl IntoIterator<Item = SocketAddr>) {
        self.change_endpoints(key(DEFAULT), addresses.into_iter().map(ready)).await;
    }

    /// Changes the configuration as a whole; all workers serve it when this returns.
    pub async fn configure(&self, change: impl FnOnce(&mut Config)) {
        let applied = {
            let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut config);
            self.proxy.apply(Change::Config(Arc::new(config.clone())))
        };
        applied.await;
    }

    /// Ends it at once.
    pub async fn stop(&self) {
        let drain = Drain { grace: Duration::ZERO, idle: Duration::ZERO, timeout: Duration::ZERO };
        self.proxy.shutdown(drain).await;
    }

    async fn change_endpoints(&self, key: UpstreamKey, endpoints: impl IntoIterator<Item = Endpoint>) {
        let endpoints: Arc<[Endpoint]> = endpoints.into_iter().collect();
        let applied = {
            let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(upstream) = config.upstreams.get_mut(&key) {
                Arc::make_mut(upstream).endpoints = endpoints.clone();
            }
            self.proxy.apply(Change::Endpoints { upstream: key, endpoints })
        };
        applied.await;
    }
}

/// Adds a route to a configuration: `host` (`*` for any), an element-wise prefix, the upstream's name.
pub fn add_route(config: &mut Config, host: &str, path: &str, name: &str) {
    let pattern = match (host, host.strip_prefix("*.")) {
        ("*", _) => HostPattern::Any,
        (_, Some(suffix)) => HostPattern::Wildcard(suffix.into()),
        _ => HostPattern::Exact(host.into()),
    };
    config.upstreams.entry(key(name)).or_default();
    let id = RouteId { kind: "Ingress", namespace: "default".into(), name: name.into() };
    let rule = Rule::new(id, PathPattern::Prefix(path.into()), key(name));
    match config.hosts.iter_mut().find(|virtual_host| virtual_host.host == pattern) {
        Some(virtual_host) => Arc::make_mut(virtual_host).rules.push(rule),
        None => {
            let virtual_host = VirtualHost { host: pattern, rules: vec![rule], fallback: None };
            config.hosts.push(Arc::new(virtual_host));
        }
    }
}

/// A route below HTTP to the upstream with this name.
#[must_use]
pub fn layer4_route(name: &str, protocol: Protocol) -> Layer4Route {
    let id = RouteId { kind: "TCPRoute", namespace: "default".into(), name: name.into() };
    let backends = vec![WeightedUpstream { upstream: layer4_key(name, protocol), weight: 1 }];
    Layer4Route { id, backends }
}

/// The key of the upstream below HTTP with this name.
#[must_use]
pub fn layer4_key(name: &str, protocol: Protocol) -> UpstreamKey {
    let mut key = key(name);
    key.transport.protocol = protocol;
    key
}

/// An endpoint that wants requests.
#[must_use]
pub fn ready(address: SocketAddr) -> Endpoint {
    Endpoint { address, conditions: Conditions::READY }
}

/// An endpoint that goes away and still answers.
#[must_use]
pub fn terminating(address: SocketAddr) -> Endpoint {
    Endpoint { address, conditions: Conditions::TERMINATING }
}

/// The key of the upstream with this name.
#[must_use]
pub fn key(name: &str) -> UpstreamKey {
    UpstreamKey::new("default", name, "80")
}
