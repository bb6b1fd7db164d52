//! Tests of the directory source on a real directory.

use std::collections::BTreeMap;
use std::fs;
use std::future::ready;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::{Change, Config, Endpoint, UpstreamKey};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{ChangeDetection, DirectorySource};
use crate::{Problem, Served, TranslateOptions};

mod changes;
mod disasters;
mod log;
mod replacing;
mod unopened;

/// The longest time that a test waits for a condition.
const PATIENCE: Duration = Duration::from_secs(20);

/// Walks the directory only when a notice requires a walk, so that tests show whether notices suffice.
const NOTICES_ALONE: ChangeDetection = ChangeDetection {
    notices: true,
    walk_interval: Duration::from_secs(3600),
    walk_interval_short: Duration::from_millis(50),
};

/// Detects changes only by walking the directory, without notices.
const WALKS_ALONE: ChangeDetection = ChangeDetection {
    notices: false,
    walk_interval: Duration::from_millis(50),
    walk_interval_short: Duration::from_millis(50),
};

/// The published configuration and endpoints.
#[derive(Default)]
struct Published {
    config: Option<Arc<Config>>,
    endpoints: BTreeMap<UpstreamKey, Arc<[Endpoint]>>,
    /// The served routes after each change, as [`served`](Self::served) shows them.
    history: Vec<String>,
    configs: usize,
}

impl Published {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Config(config) => {
                self.endpoints = config
                    .upstreams
                    .iter()
                    .map(|(key, upstream)| (key.clone(), upstream.endpoints.clone()))
                    .collect();
                self.config = Some(config);
                self.configs += 1;
            }
            Change::Endpoints { upstream, endpoints } => {
                self.endpoints.insert(upstream, endpoints).expect("an upstream that is configured");
            }
        }
        self.history.push(self.served());
    }

    /// The routes in order, each as `path[last octet of each endpoint]`. A route below HTTP has `protocol:port` instead
    /// of the path. A TLS passthrough route of an HTTPS listener has its host name instead.
    fn served(&self) -> String {
        let Some(config) = &self.config else { return String::new() };
        let show = |what: String, upstream: &UpstreamKey| {
            let octets: Vec<String> = self.endpoints[upstream]
                .iter()
                .map(|endpoint| endpoint.address.ip().to_string().rsplit('.').next().unwrap().to_owned())
                .collect();
            format!("{what}[{}]", octets.join(","))
        };
        let mut routes: Vec<String> =
            config.rules().map(|route| show(route.path().to_string(), &route.backends[0].upstream)).collect();
        for listener in &config.listeners {
            let what = format!("{}:{}", listener.serves.protocol(), listener.address.port());
            let backends = listener.serves.routes().flat_map(|(_, route)| &route.backends);
            routes.extend(backends.map(|backend| show(what.clone(), &backend.upstream)));
        }
        for passed in &config.tls.passthrough {
            let backends = passed.route.backends.iter();
            routes.extend(backends.map(|backend| show(passed.host.to_string(), &backend.upstream)));
        }
        routes.sort();
        routes.join(" ")
    }
}

/// A directory that the source follows.
struct Followed {
    dir: TempDir,
    root: PathBuf,
    published: watch::Receiver<Published>,
    problems: watch::Receiver<Arc<[Problem]>>,
    task: JoinHandle<()>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Followed {
    /// Follows a directory that `prepare` fills.
    fn new(change_detection: ChangeDetection, prepare: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("manifests");
        prepare(&root);
        let mut source = DirectorySource::new(&root, TranslateOptions::default());
        source.change_detection = change_detection;
        let problems = source.problems();
        let (sender, published) = watch::channel(Published::default());
        let task = tokio::spawn(async move {
            let publish = move |change, _| -> Served {
                sender.send_modify(|published| published.apply(change));
                Box::pin(ready(()))
            };
            source.run(publish).await;
        });
        Self { dir, root, published, problems, task }
    }

    /// Follows a directory with these files, and waits until they are served.
    async fn with_files(files: &[(&str, String)]) -> Self {
        let mut followed = Self::new(NOTICES_ALONE, |root| {
            fs::create_dir(root).unwrap();
            for (name, text) in files {
                fs::write(root.join(name), text).unwrap();
            }
        });
        followed.wait(|published| published.config.is_some()).await;
        followed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    async fn wait(&mut self, condition: impl FnMut(&Published) -> bool) {
        let waiting = tokio::time::timeout(PATIENCE, self.published.wait_for(condition)).await;
        let is_met = waiting.map(|met| met.is_ok());
        assert!(is_met == Ok(true), "in vain, history: {:#?}", self.published.borrow().history);
    }

    /// Waits until the served routes are exactly the expected routes.
    #[track_caller]
    fn served(&mut self, expected: &str) -> impl Future<Output = ()> {
        let expected = expected.to_owned();
        self.wait(move |published| published.served() == expected)
    }

    /// Waits until the problems are the expected problems. Each expected text is a part of a problem.
    async fn problems(&mut self, expected: &[&str]) {
        let fits = |problems: &Arc<[Problem]>| {
            let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
            shown.len() == expected.len() && shown.iter().zip(expected).all(|(a, e)| a.contains(e))
        };
        let is_met =
            tokio::time::timeout(PATIENCE, self.problems.wait_for(fits)).await.map(|met| met.is_ok());
        let shown: Vec<String> = self.problems.borrow().iter().map(ToString::to_string).collect();
        assert!(is_met == Ok(true), "got {shown:#?}\nexpected {expected:#?}");
    }

    /// Waits until the source has seen all earlier changes: writes another change, and waits for that change.
    async fn catch_up(&mut self) {
        let nth = self.published.borrow().history.len();
        let path = format!("/mark-{nth}");
        self.write("mark.yaml", &ingress("mark", &path));
        self.wait(|published| published.served().contains(&path)).await;
    }

    fn history(&self) -> Vec<String> {
        self.published.borrow().history.clone()
    }
}

/// An Ingress with a route from `path` to the Service of the same name, and that Service.
fn ingress(name: &str, path: &str) -> String {
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}}}\n\
         spec: {{rules: [{{http: {{paths: [{{path: \"{path}\", pathType: Exact, \
         backend: {{service: {{name: {name}, port: {{number: 80}}}}}}}}]}}}}]}}\n\
         ---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: 80}}]}}\n"
    )
}

/// An EndpointSlice of the Service `name`, with an endpoint 10.0.0.N for each N of `octets`.
fn slice(name: &str, octets: &[usize]) -> String {
    let endpoints: String = octets.iter().map(|octet| format!("- addresses: [10.0.0.{octet}]\n")).collect();
    let endpoints = if octets.is_empty() { "[]".to_owned() } else { format!("\n{endpoints}") };
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}\n\
         addressType: IPv4\nports: [{{port: 80}}]\nendpoints: {endpoints}\n"
    )
}

/// An Ingress, its Service and the EndpointSlice of the Service.
fn app(name: &str, octets: &[usize]) -> String {
    format!("{}{}", ingress(name, &format!("/{name}")), slice(name, octets))
}

/// The Service `a` with port 53 for TCP and for UDP, and a Gateway with a TCPRoute and a UDPRoute to the two ports.
fn dns() -> String {
    let route = |protocol: &str| {
        format!(
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: {protocol}Route\nmetadata: {{name: a}}\n\
             spec: {{parentRefs: [{{name: edge}}], rules: [{{backendRefs: [{{name: a, port: 53}}]}}]}}\n"
        )
    };
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge}}\n\
         spec: {{gatewayClassName: sluicegate, listeners: [{{name: t, protocol: TCP, port: 53}}, \
         {{name: u, protocol: UDP, port: 53}}]}}\n{}{}\
         ---\napiVersion: v1\nkind: Service\nmetadata: {{name: a}}\n\
         spec: {{ports: [{{name: t, port: 53}}, {{name: u, port: 53, protocol: UDP}}]}}\n",
        route("TCP"),
        route("UDP")
    )
}
