//! A data plane with its admin interface, in this process.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluicegate_admin::{Admin, Hosts, LastChange, Measure, Planes, Problems, Readiness};
use sluicegate_model::{
    Change, Conditions, Config, Endpoint, HostPattern, ObjectId, PathPattern, Rule, Upstream, UpstreamKey,
    VirtualHost,
};
use sluicegate_proxy::{Options, Proxy};
use sluicegate_testkit::client::{self, Client, LIMIT, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::exposition::Exposition;

/// The workers of every gateway here.
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
        let told = problems.clone();
        let admin = Admin {
            registry: proxy.registry().clone(),
            readiness: readiness.clone(),
            pod: Some("gateway-1".into()),
            planes: Arc::new(|| Planes {
                measures: vec![Measure::gauge("sluicegate_planes_connected", "Data planes", 3)],
                document: serde_json::json!({"version": 7}),
            }),
            hosts: Hosts::of(any, vec!["a".to_owned(), "admin".to_owned()]),
            last_change: last_change.clone(),
            problems: Arc::new(move || told.lock().unwrap_or_else(PoisonError::into_inner).clone()),
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

    /// A gateway that serves this.
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

    /// What the admin interface answers.
    pub(crate) async fn ask(&self, path: &str) -> anyhow::Result<Response> {
        Ok(client::get(self.admin, "admin", path).await?)
    }

    /// The metrics.
    pub(crate) async fn scrape(&self) -> anyhow::Result<Exposition> {
        let accept = "Accept: application/openmetrics-text";
        let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{accept}\r\n\r\n");
        let response = Client::connect(self.admin).await?.request(request).await?;
        assert_eq!(response.status, 200);
        Ok(Exposition::parse(&response.text()))
    }

    /// The metrics, once they say this. Requests are counted when they are over, which is a moment after
    /// their client has the last byte.
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

/// `namespace/service:http`, all in `shop`.
pub(crate) fn key(service: &str) -> UpstreamKey {
    UpstreamKey::new("shop", service, "http")
}

/// A route to a service, from an Ingress of the service's name.
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

/// Host `shop.example.com` with a prefix for each service.
pub(crate) fn config(services: &[(&str, &str, &[Endpoint])]) -> Config {
    let routes = services.iter().map(|(path, service, _)| route(path, service)).collect();
    let host = HostPattern::Exact("shop.example.com".into());
    let upstreams =
        services.iter().map(|(_, service, endpoints)| (key(service), upstream(endpoints).into())).collect();
    let host = VirtualHost { host, rules: routes, fallback: None };
    Config { hosts: vec![host.into()], upstreams, ..Config::default() }
}
