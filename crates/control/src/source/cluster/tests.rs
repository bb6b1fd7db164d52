//! Tests of the source. Some have an API server of their own, whose watches resume in the order of the test.

use std::future::ready;
use std::io;
use std::sync::{Mutex, PoisonError};

use futures_util::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use serde_json::{Value, json};
use sluicegate_model::Change;
use sluicegate_testkit::tls::Authority;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use super::*;

/// An API server.
#[derive(Clone)]
struct ApiServer {
    /// The resources that it does not return; `None` while it is unreachable for all.
    withheld: state::Sender<Option<BTreeSet<&'static str>>>,
    objects: Arc<Mutex<Vec<(&'static str, Value)>>>,
    /// The resources that it has listed since the last outage.
    listed: state::Sender<BTreeSet<String>>,
    /// The resource of each watch in progress.
    watches: state::Sender<Vec<String>>,
    /// The changes of objects, for the watches in progress.
    changes: broadcast::Sender<(&'static str, Value)>,
}

impl Default for ApiServer {
    fn default() -> Self {
        let (withheld, objects, listed, watches) = Default::default();
        Self { withheld, objects, listed, watches, changes: broadcast::Sender::new(16) }
    }
}

impl ApiServer {
    fn returns_all_but(&self, resources: &[&'static str]) {
        self.withheld.send_replace(Some(resources.iter().copied().collect()));
    }

    /// Ends when no watch is in progress.
    async fn goes_away(&self) {
        self.withheld.send_replace(None);
        self.listed.send_modify(BTreeSet::clear);
        self.watches.subscribe().wait_for(Vec::is_empty).await.expect("the sender lives");
    }

    fn set_objects(&self, objects: Vec<(&'static str, Value)>) {
        *self.objects.lock().unwrap_or_else(PoisonError::into_inner) = objects;
    }

    /// Sends a changed object to the watches in progress.
    fn change(&self, resource: &'static str, mut object: Value) {
        object["metadata"]["resourceVersion"] = json!("2");
        self.changes.send((resource, object)).expect("a watch is in progress");
    }

    async fn is_watched(&self, resource: &str) {
        let mut watches = self.watches.subscribe();
        let is_of = |watches: &Vec<String>| watches.iter().any(|of| of == resource);
        watches.wait_for(is_of).await.expect("the sender lives");
    }

    async fn has_listed(&self, resource: &str) {
        let mut listed = self.listed.subscribe();
        listed.wait_for(|listed| listed.contains(resource)).await.expect("the sender lives");
    }

    fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let api = api.clone();
            async move {
                let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
                let resource = path.rsplit('/').next().unwrap_or_default();
                let is_away = |withheld: &Option<BTreeSet<&str>>| {
                    withheld.as_ref().is_none_or(|of| of.contains(resource))
                };
                if is_away(&api.withheld.borrow()) {
                    return Err(io::Error::other("connection refused"));
                }
                if query.contains("watch=true") {
                    let resource = resource.to_owned();
                    let changes = stream::unfold(api.changes.subscribe(), |mut changes| async {
                        Some((changes.recv().await.ok()?, changes))
                    });
                    api.watches.send_modify(|watches| watches.push(resource.clone()));
                    let of_watch = resource.clone();
                    let events = changes.filter(move |(of, _)| ready(*of == of_watch)).map(|(_, object)| {
                        let event = json!({"type": "MODIFIED", "object": object});
                        Ok(Frame::data(format!("{event}\n").into()))
                    });
                    let mut withheld = api.withheld.subscribe();
                    let until = async move { drop(withheld.wait_for(Option::is_none).await) };
                    let end = async move {
                        api.watches.send_modify(|watches| {
                            let place = watches.iter().position(|of| *of == resource);
                            watches.swap_remove(place.expect("the watch is in progress"));
                        });
                        Err(io::Error::other("connection reset"))
                    };
                    let body = events.take_until(Box::pin(until)).chain(stream::once(end));
                    return Ok(http::Response::new(StreamBody::new(body).boxed_unsync()));
                }
                let objects = api.objects.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // All Secrets of the tests are of the other type.
                let is_selected = |of| of == resource && !query.contains("credentials");
                let items: Vec<Value> = objects
                    .into_iter()
                    .filter(|(of, _)| is_selected(*of))
                    .map(|(_, object)| object)
                    .collect();
                api.listed.send_modify(|listed| {
                    listed.insert(resource.to_owned());
                });
                let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items});
                let body = Full::new(list.to_string().into()).map_err(|never| match never {});
                Ok(http::Response::new(body.boxed_unsync()))
            }
        });
        Client::new(service, "default")
    }
}

/// An Ingress, its certificate, its Service, and the EndpointSlice with this address.
fn app(name: &str, address: &str) -> Vec<(&'static str, Value)> {
    let metadata =
        json!({"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": name}});
    let backend = json!({"service": {"name": name, "port": {"number": 80}}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    let host = format!("{name}.test");
    let secret = Authority::of_process().issue(&[&host]).secret(name);
    let mut secret: Value = serde_saphyr::from_str(&secret).expect("YAML");
    secret["metadata"] = metadata.clone();
    vec![
        ("secrets", secret),
        (
            "ingresses",
            json!({"metadata": metadata, "spec": {"ingressClassName": "sluicegate",
            "tls": [{"hosts": [host], "secretName": name}],
            "rules": [{"host": host, "http": {"paths": [path]}}]}}),
        ),
        (
            "services",
            json!({"metadata": metadata, "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}),
        ),
        (
            "endpointslices",
            json!({"metadata": metadata, "addressType": "IPv4", "ports": [{"name": "", "port": 80}],
            "endpoints": [{"addresses": [address]}]}),
        ),
    ]
}

fn class() -> (&'static str, Value) {
    let spec = json!({"controller": "sluicegate.dev/ingress-controller"});
    ("ingressclasses", json!({"metadata": {"name": "sluicegate"}, "spec": spec}))
}

/// An API server with the apps `shop` and `web`, and a source of its objects.
fn two_apps() -> (ApiServer, ClusterSource) {
    let api = ApiServer::default();
    api.set_objects([vec![class()], app("shop", "10.1.0.1"), app("web", "10.1.0.2")].concat());
    api.returns_all_but(&[]);
    let source = ClusterSource::new(api.client(), Vec::new(), TranslateOptions::default(), None);
    (api, source)
}

/// Runs a source of two apps. Returns its task, and its changes after the first configuration.
async fn started(source: ClusterSource) -> (JoinHandle<Infallible>, mpsc::UnboundedReceiver<Change>) {
    let (sender, mut changes) = mpsc::unbounded_channel();
    let source = tokio::spawn(source.run(move |change, _| {
        let _ = sender.send(change);
        Box::pin(ready(()))
    }));
    let first = changes.recv().await.expect("the source runs");
    assert!(matches!(&first, Change::Config(config) if config.hosts.len() == 2), "{first:?}");
    (source, changes)
}

#[tokio::test]
async fn changes_of_routes_wait_until_all_watches_have_resumed() {
    let (api, source) = two_apps();
    let problems = source.problems();
    let (source, mut changes) = started(source).await;

    // Meanwhile, the shop is deleted, and the endpoint of the other Service is replaced.
    api.goes_away().await;
    api.set_objects([vec![class()], app("web", "10.1.0.3")].concat());
    api.returns_all_but(&["ingresses", "endpointslices"]);
    api.has_listed("secrets").await;
    api.returns_all_but(&["ingresses"]);
    let second = changes.recv().await.expect("the source runs");
    assert!(
        matches!(second, Change::Endpoints { .. }),
        "changes of endpoints do not wait, changes of routes do"
    );
    api.returns_all_but(&[]);
    loop {
        match changes.recv().await.expect("the source runs") {
            Change::Endpoints { .. } => {}
            Change::Config(config) => {
                assert_eq!(config.hosts.len(), 1, "no configuration has the Ingress without its Secret");
                break;
            }
        }
    }
    let shown: Vec<String> = problems.borrow().iter().map(ToString::to_string).collect();
    assert!(!shown.iter().any(|problem| problem.contains("shop")), "{shown:?}");
    source.abort();
}

#[tokio::test]
async fn changes_of_endpoints_translate_nothing() {
    let (api, source) = two_apps();
    // Each translation of everything updates the catalogue.
    let mut catalogue = source.catalogue();
    let (source, mut changes) = started(source).await;
    api.is_watched("endpointslices").await;
    catalogue.mark_unchanged();
    for n in 2..20 {
        let (_, slice) = app("shop", &format!("10.1.0.{n}")).pop().expect("the last object is the slice");
        api.change("endpointslices", slice);
        let change = changes.recv().await.expect("the source runs");
        assert!(matches!(change, Change::Endpoints { .. }), "{change:?}");
        assert!(
            !catalogue.has_changed().expect("the source runs"),
            "a change of endpoints translates nothing"
        );
    }
    source.abort();
}

#[test]
fn namespaces_share_the_limit_of_watched_objects_fairly() {
    let object = |namespace: &str, name: String| ObjectRef {
        kind: Kind::Secret,
        namespace: namespace.into(),
        name: name.into(),
    };
    let greedy: Vec<_> = (0..500).map(|n| object("a", n.to_string())).collect();
    let one = object("b", "users".into());
    let (followed, others) = share(greedy.iter().cloned().chain([one.clone()]), 500);
    assert!(followed.len() == 500 && followed.contains(&one), "{others:?}");
    assert_eq!(others, [greedy[499].clone()], "the last of those that have most");
    let (followed, others) = share(greedy.into_iter().take(499).chain([one]), 500);
    assert_eq!((followed.len(), others.len()), (500, 0));
}

/// A queue that receives the numbers below `count` through two tasks, piece by piece like the events of a connection.
fn relayed(count: usize) -> mpsc::Receiver<usize> {
    let (connection, mut body) = mpsc::channel(1);
    let (sender, queue) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        for number in 0..count {
            connection.send(number).await.expect("the queue is open");
        }
        // A watch stays open.
        connection.closed().await;
    });
    tokio::spawn(async move {
        while let Some(number) = body.recv().await {
            sender.send(number).await.expect("the queue is open");
            yield_now().await;
        }
    });
    queue
}

#[tokio::test]
async fn waiting_news_is_one_change() {
    let mut queue = relayed(1000);
    let first = queue.recv().await.expect("there is news");
    assert_eq!(with_backlog(first, &mut queue).await.len(), 1000);
}

#[tokio::test]
async fn endless_news_is_published_in_batches() {
    let mut queue = relayed(2 * BATCH);
    let first = queue.recv().await.expect("there is news");
    assert_eq!(with_backlog(first, &mut queue).await.len(), BATCH);
}
