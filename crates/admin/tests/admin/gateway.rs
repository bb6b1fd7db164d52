//! A data plane with its admin interface, in the process of the test.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluicegate_admin::{Admin, Hosts, LastChange, Lease, Measure, Planes, Problems, Readiness};
use sluicegate_model::{
    Build, Change, Conditions, Config, Endpoint, HostPattern, ObjectId, PathPattern, Rule, Upstream,
    UpstreamKey, VirtualHost,
};
use sluicegate_proxy::{Options, Proxy};
use sluicegate_testkit::client::{self, Client, LIMIT, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::exposition::Exposition;

/// The number of workers of each gateway.
pub(crate) const WORKERS: usize = 2;

pub(crate) struct Gateway {
    pub(crate) proxy: Proxy,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) readiness: Readiness,
    last_change: LastChange,
    problems: Arc<Mutex<Problems>>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Gateway {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let proxy = Proxy::start(Options { http: vec![any], workers: WORKERS, ..Options::default() })?;
        let listener = TcpListener::bind(any).await?;
        let (readiness, problems) = (Readiness::new(), Arc::new(Mutex::new(Problems::default())));
        let last_change = LastChange::new();
        let current = problems.clone();
        let admin = Admin {
            build: Build { commit: Some("3f141bea"), ..Build::PLAIN },
            registry: proxy.registry().clone(),
            readiness: readiness.clone(),
            pod: Some("gateway-1".into()),
            namespace: Some("gateways".into()),
            planes: Arc::new(|| Planes {
                lease: Some(Lease { name: "gateway".into(), is_held: true }),
                measures: vec![Measure::gauge("sluicegate_planes_connected", "Data planes", 3)],
                document: serde_json::json!({"version": 7}),
            }),
            analytics: None,
            audit: None,
            hosts: Hosts::of(any, vec!["a".to_owned(), "admin".to_owned()]),
            last_change: last_change.clone(),
            problems: Arc::new(move || current.lock().unwrap_or_else(PoisonError::into_inner).clone()),
        };
        Ok(Self {
            http: proxy.addresses()[0],
            admin: listener.local_addr()?,
            proxy,
            readiness,
            last_change,
            problems,
            serving: tokio::spawn(admin.serve(listener)),
        })
    }

    /// Starts a gateway with this configuration.
    pub(crate) async fn serving(config: Config) -> anyhow::Result<Self> {
        let gateway = Self::start().await?;
        gateway.apply(config).await;
        Ok(gateway)
    }

    pub(crate) async fn apply(&self, config: Config) {
        self.proxy.apply(Change::Config(config.into())).await;
        self.last_change.set_now();
    }

    pub(crate) fn set_problems(&self, errors: &[&str], warnings: &[&str]) {
        let owned = |problems: &[&str]| problems.iter().map(|problem| (*problem).to_owned()).collect();
        let problems = Problems { errors: owned(errors), warnings: owned(warnings) };
        *self.problems.lock().unwrap_or_else(PoisonError::into_inner) = problems;
    }

    /// The response of the admin interface.
    pub(crate) async fn ask(&self, path: &str) -> anyhow::Result<Response> {
        Ok(client::get(self.admin, "admin", path).await?)
    }

    /// Scrapes the metrics.
    pub(crate) async fn scrape(&self) -> anyhow::Result<Exposition> {
        let accept = "Accept: application/openmetrics-text";
        let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{accept}\r\n\r\n");
        let response = Client::connect(self.admin).await?.request(request).await?;
        assert_eq!(response.status, 200);
        Ok(Exposition::parse(&response.text()))
    }

    /// Scrapes the metrics until they meet the condition. The gateway counts a request shortly after the client has
    /// received the last byte.
    pub(crate) async fn scrape_until(
        &self,
        what: &str,
        condition: impl Fn(&Exposition) -> bool,
    ) -> anyhow::Result<Exposition> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let exposition = self.scrape().await?;
            if condition(&exposition) {
                return Ok(exposition);
            }
            assert!(Instant::now() < deadline, "waited in vain until {what}");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The upstream `shop/SERVICE:http`.
pub(crate) fn key(service: &str) -> UpstreamKey {
    UpstreamKey::new("shop", service, "http")
}

/// A route to a Service, of the Ingress with the name of the Service.
pub(crate) fn route(path: &str, service: &str) -> Rule {
    let id = ObjectId { kind: "Ingress", namespace: "shop".into(), name: service.into() };
    Rule::new(id, PathPattern::Prefix(path.into()), key(service))
}

pub(crate) fn ready(address: SocketAddr) -> Endpoint {
    Endpoint { address, conditions: Conditions::READY }
}

pub(crate) fn upstream(endpoints: &[Endpoint]) -> Upstream {
    Upstream { endpoints: endpoints.into(), ..Upstream::default() }
}

/// The host `shop.example.com` with a prefix for each Service.
pub(crate) fn config(services: &[(&str, &str, &[Endpoint])]) -> Config {
    let routes = services.iter().map(|(path, service, _)| route(path, service)).collect();
    let host = HostPattern::Exact("shop.example.com".into());
    let upstreams =
        services.iter().map(|(_, service, endpoints)| (key(service), upstream(endpoints).into())).collect();
    let host = VirtualHost::new(host, routes);
    Config { hosts: vec![host.into()], upstreams, ..Config::default() }
}
