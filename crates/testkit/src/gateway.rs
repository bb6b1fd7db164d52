//! A gateway's data plane in this process, on a free port. The test changes the configuration as a control plane does.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use sluicegate_model::tls::Http3;
use sluicegate_model::{
    Change, Conditions, Config, Endpoint, HostPattern, Layer4Route, Listener, ListenerId, ObjectId,
    PathPattern, Planes, Protocol, ProxyHeader, Rule, Serves, Settings, Tls, Upstream, UpstreamKey,
    VirtualHost, WeightedUpstream,
};
use sluicegate_proxy::counters::{Tally, UpstreamShard};
use sluicegate_proxy::upstream::{SharedEndpoint, SharedUpstream};
use sluicegate_proxy::{Drain, Options, Proxy};
use tokio::time::{Instant, sleep};

use crate::backend::Backend;
use crate::client::{Client, Error, LIMIT};
use crate::load::Load;
use crate::stream::Transport;
use crate::tls::{Authority, ClientOptions};

/// The upstream of [`Builder::backends`].
const DEFAULT: &str = "backend";
/// The upstream of [`Builder::layer4`].
pub const LAYER4: &str = "stream";

/// A running gateway.
pub struct Gateway {
    proxy: Proxy,
    /// The index of the HTTPS address among the proxy's addresses.
    https: usize,
    config: Mutex<Config>,
}

/// The builder of a gateway.
pub struct Builder {
    options: Options,
    config: Config,
}

impl Builder {
    /// Routes all requests to these backends, for any host and path.
    #[must_use]
    pub fn backends<'b>(self, backends: impl IntoIterator<Item = &'b Backend>) -> Self {
        self.endpoints(backends.into_iter().map(Backend::addr))
    }

    /// Routes all requests to these addresses.
    #[must_use]
    pub fn endpoints(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        let endpoints = addresses.into_iter().map(ready).collect();
        self.config.upstreams.insert(key(DEFAULT), Arc::new(Upstream { endpoints, ..Upstream::default() }));
        self.route("*", "/", DEFAULT)
    }

    /// Routes all requests to these addresses, with HTTP/2 by prior knowledge.
    #[must_use]
    pub fn http2_endpoints(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        let endpoints = addresses.into_iter().map(ready).collect();
        let mut spoken = key(DEFAULT);
        spoken.transport.protocol = Protocol::Http2;
        self.config.upstreams.insert(spoken.clone(), Arc::new(Upstream { endpoints, ..Upstream::default() }));
        let id = ObjectId { kind: "Ingress", namespace: "default".into(), name: DEFAULT.into() };
        let rules = vec![Rule::new(id, PathPattern::Prefix("/".into()), spoken)];
        self.config.hosts.push(Arc::new(VirtualHost::new(HostPattern::Any, rules)));
        self
    }

    /// Routes `host` (`*` for any) and the element-wise prefix `path` to the upstream `name`. A new upstream has no
    /// endpoints yet.
    #[must_use]
    pub fn route(mut self, host: &str, path: &str, name: &str) -> Self {
        add_route(&mut self.config, host, path, name);
        self
    }

    /// Routes connections or datagrams at a free port of 127.0.0.1 to these addresses.
    #[must_use]
    pub fn layer4(
        mut self,
        protocol: Protocol,
        serves: impl FnOnce(Layer4Route) -> Serves,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Self {
        let object = ObjectId { kind: "Gateway", namespace: "default".into(), name: "edge".into() };
        let listener = Listener {
            id: ListenerId { object, name: "test".into() },
            address: ([127, 0, 0, 1], 0).into(),
            serves: serves(layer4_route(LAYER4, protocol)),
            planes: Planes::Shared,
            proxy_header: ProxyHeader::ByPeer,
            client_port: None,
        };
        let endpoints = addresses.into_iter().map(ready).collect();
        let upstream = Arc::new(Upstream { endpoints, ..Upstream::default() });
        self.config.upstreams.insert(layer4_key(LAYER4, protocol), upstream);
        self.config.listeners.push(listener);
        self
    }

    /// The future configuration.
    pub fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    /// The future configuration.
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

    /// Changes the upstream below HTTP, except its endpoints.
    #[must_use]
    pub fn layer4_upstream(mut self, change: impl FnOnce(&mut Upstream)) -> Self {
        change(Arc::make_mut(self.config.upstreams.entry(layer4_key(LAYER4, Protocol::Tcp)).or_default()));
        self
    }

    /// Changes the default upstream, except its endpoints.
    #[must_use]
    pub fn upstream(mut self, change: impl FnOnce(&mut Upstream)) -> Self {
        change(Arc::make_mut(self.config.upstreams.entry(key(DEFAULT)).or_default()));
        self
    }

    /// The number of workers. Default: 2.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.options.workers = workers;
        self
    }

    /// The certificates and the TLS settings.
    #[must_use]
    pub fn tls(mut self, change: impl FnOnce(&mut Tls)) -> Self {
        change(Arc::make_mut(&mut self.config.tls));
        self
    }

    /// Changes the options of the proxy.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Starts the gateway, which serves when the function returns.
    ///
    /// # Errors
    /// If the gateway cannot listen.
    pub async fn start(self) -> anyhow::Result<Gateway> {
        let https = self.options.http.len();
        let proxy = Proxy::start(self.options)?;
        proxy.apply(Change::Config(Arc::new(self.config.clone()))).await;
        Ok(Gateway { proxy, https, config: Mutex::new(self.config) })
    }
}

impl Gateway {
    /// A gateway with two workers on free ports of 127.0.0.1, for HTTP and for HTTPS as localhost, the default settings
    /// and no routes.
    #[must_use]
    pub fn builder() -> Builder {
        let free = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        let options = Options { http: free.clone(), https: free, workers: 2, ..Options::default() };
        let default = vec![Authority::of_process().issue(&["localhost"]).certificate];
        let tls = Arc::new(Tls { default, ..Tls::default() });
        let mut config = Config { tls, ..Config::default() };
        if Transport::of_environment() == Transport::Http3 {
            config.settings.tls.http3 = Some(Http3::default());
        }
        Builder { options, config }
    }

    /// A gateway with these backends.
    ///
    /// # Errors
    /// If the gateway cannot listen.
    pub async fn of<'b>(backends: impl IntoIterator<Item = &'b Backend>) -> anyhow::Result<Self> {
        Self::builder().backends(backends).start().await
    }

    /// The address for HTTP.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.proxy.addresses()[0]
    }

    /// The address for HTTPS.
    #[must_use]
    pub fn https_addr(&self) -> SocketAddr {
        self.proxy.addresses()[self.https]
    }

    /// The address for the protocol of [`connect`](Self::connect).
    #[must_use]
    pub fn addr_of(&self, transport: Transport) -> SocketAddr {
        match transport {
            Transport::Http => self.addr(),
            Transport::Https | Transport::Http2 | Transport::Http3 => self.https_addr(),
        }
    }

    /// The address of the listener below HTTP.
    #[must_use]
    pub fn layer4_addr(&self) -> SocketAddr {
        let listeners = self.proxy.registry().listeners();
        listeners[0].bound.clone().expect("a bound listener")
    }

    /// Sets an upstream's endpoints, every address ready. All workers use the endpoints when the function returns.
    pub async fn set_addresses_of(
        &self,
        upstream: UpstreamKey,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) {
        self.change_endpoints(upstream, addresses.into_iter().map(ready)).await;
    }

    /// The data plane.
    #[must_use]
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// The address for the transport from the environment.
    #[must_use]
    pub fn target(&self) -> SocketAddr {
        self.addr_of(Transport::of_environment())
    }

    /// A connection to the gateway, with the transport from the environment.
    ///
    /// # Errors
    /// If the gateway does not accept.
    pub async fn connect(&self) -> Result<Client, Error> {
        let transport = Transport::of_environment();
        Client::connect_by(self.addr_of(transport), transport).await
    }

    /// A connection over TLS, with the server name `name`.
    ///
    /// # Errors
    /// If the gateway does not accept, or the handshake fails.
    pub async fn connect_tls(&self, options: &ClientOptions, name: &str) -> Result<Client, Error> {
        Client::connect_tls(self.https_addr(), options, name).await
    }

    /// A load for the gateway, with the transport from the environment.
    #[must_use]
    pub fn load(&self) -> Load {
        let transport = Transport::of_environment();
        Load::new(self.addr_of(transport)).transport(transport)
    }

    /// The default upstream's counters and health.
    ///
    /// # Panics
    /// If the builder has no backends.
    #[must_use]
    pub fn upstream(&self) -> Arc<SharedUpstream> {
        let all = self.proxy.registry().upstreams();
        // With any transport.
        all.into_iter()
            .find(|upstream| upstream.key().service == key(DEFAULT).service)
            .expect("backends from the builder")
    }

    /// A counter of the default upstream, over all workers.
    #[must_use]
    pub fn count(&self, tally: impl Fn(&UpstreamShard) -> &Tally) -> u64 {
        self.upstream().shards().sum(tally)
    }

    /// The default upstream's endpoint at this address.
    ///
    /// # Panics
    /// If the upstream has no endpoint at this address.
    #[must_use]
    pub fn endpoint(&self, address: SocketAddr) -> Arc<SharedEndpoint> {
        let set = self.upstream().endpoints();
        let mut endpoints = set.endpoints.iter().map(|(endpoint, _)| endpoint);
        endpoints.find(|endpoint| endpoint.address() == address).expect("an endpoint of the upstream").clone()
    }

    /// Waits until `condition` holds; fails after 10 s.
    ///
    /// # Errors
    /// If the condition does not hold in time.
    pub async fn wait_until(&self, condition: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + LIMIT;
        while !condition(self) {
            ensure!(Instant::now() < deadline, "waited in vain: {:#?}", self.upstream());
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Waits until all clients are gone: no client connection is open and no request is in flight, as counted by the
    /// workers, the upstreams and the endpoints. For tests that check for leaks.
    ///
    /// # Errors
    /// If a connection or a request remains after 10 s.
    pub async fn wait_until_idle(&self) -> anyhow::Result<()> {
        self.wait_until(Self::is_idle).await
    }

    fn is_idle(&self) -> bool {
        let registry = self.proxy.registry();
        let of_workers =
            registry.counters().workers().iter().map(|worker| worker.open.get() + worker.in_flight.get());
        let of_upstream = |upstream: &Arc<SharedUpstream>| {
            let set = upstream.endpoints();
            let of_endpoint = |endpoint: &SharedEndpoint| endpoint.shards().sum(|shard| &shard.in_flight);
            let of_endpoints: u64 = set.endpoints.iter().map(|(endpoint, _)| of_endpoint(endpoint)).sum();
            upstream.shards().sum(|shard| &shard.in_flight) + of_endpoints
        };
        of_workers.sum::<u64>() + registry.upstreams().iter().map(of_upstream).sum::<u64>() == 0
    }

    /// Sets the default upstream's endpoints. All workers use the endpoints when the function returns.
    pub async fn set_endpoints(&self, endpoints: impl IntoIterator<Item = Endpoint>) {
        self.change_endpoints(key(DEFAULT), endpoints).await;
    }

    /// Like [`set_endpoints`](Self::set_endpoints), with every address ready.
    pub async fn set_addresses(&self, addresses: impl IntoIterator<Item = SocketAddr>) {
        self.change_endpoints(key(DEFAULT), addresses.into_iter().map(ready)).await;
    }

    /// Changes the whole configuration. All workers serve the configuration when the function returns.
    pub async fn configure(&self, change: impl FnOnce(&mut Config)) {
        let applied = {
            let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut config);
            self.proxy.apply(Change::Config(Arc::new(config.clone())))
        };
        applied.await;
    }

    /// Ends the gateway at once.
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

/// Adds a route to a configuration: `host` (`*` for any), an element-wise prefix, and the upstream's name.
pub fn add_route(config: &mut Config, host: &str, path: &str, name: &str) {
    let pattern = match (host, host.strip_prefix("*.")) {
        ("*", _) => HostPattern::Any,
        (_, Some(suffix)) => HostPattern::Wildcard(suffix.into()),
        _ => HostPattern::Exact(host.into()),
    };
    config.upstreams.entry(key(name)).or_default();
    let id = ObjectId { kind: "Ingress", namespace: "default".into(), name: name.into() };
    let rule = Rule::new(id, PathPattern::Prefix(path.into()), key(name));
    match config.hosts.iter_mut().find(|virtual_host| virtual_host.host == pattern) {
        Some(virtual_host) => Arc::make_mut(virtual_host).rules.push(rule),
        None => {
            let virtual_host = VirtualHost::new(pattern, vec![rule]);
            config.hosts.push(Arc::new(virtual_host));
        }
    }
}

/// A route below HTTP to the upstream with this name.
#[must_use]
pub fn layer4_route(name: &str, protocol: Protocol) -> Layer4Route {
    let id = ObjectId { kind: "TCPRoute", namespace: "default".into(), name: name.into() };
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

/// A ready endpoint.
#[must_use]
pub fn ready(address: SocketAddr) -> Endpoint {
    Endpoint { address, conditions: Conditions::READY }
}

/// A terminating endpoint that still serves.
#[must_use]
pub fn terminating(address: SocketAddr) -> Endpoint {
    Endpoint { address, conditions: Conditions::TERMINATING }
}

/// The key of the upstream with this name.
#[must_use]
pub fn key(name: &str) -> UpstreamKey {
    UpstreamKey::new("default", name, "80")
}
