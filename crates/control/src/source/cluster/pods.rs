//! The pods of a gateway, and their admin interfaces through the API server.

use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, Client};

use super::client::{ClientError, Credentials};

/// The pods that the chart makes.
const SELECTOR: &str = "app.kubernetes.io/name=sluicegate";

/// The label that tells control planes from data planes.
const COMPONENT: &str = "app.kubernetes.io/component";

/// The port of an admin interface without `--admin`.
const PORT: u16 = 9901;

/// The longest time of an exchange.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest document of an admin interface, in bytes. The document of a large cluster is long.
const DOCUMENT_MAX: usize = 256 * 1024 * 1024;

/// The longest excerpt of an error in messages, in characters.
const FIRST_MAX: usize = 300;

/// The reason why a pod does not answer.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// There is no client for the cluster.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The API server does not list the pods.
    #[error("cannot list the pods of namespace {0}: {1}; you need the right to list pods")]
    List(String, String),
    /// There is no such pod.
    #[error(
        "namespace {0} has no running pod {1}; name the namespace of the gateway with --gateway-namespace"
    )]
    Missing(String, String),
    /// The admin interface is for the pod alone.
    #[error(
        "the admin interface of pod {0} listens at {1}, which only the pod itself reaches; use kubectl port-forward, and --admin"
    )]
    Loopback(String, String),
    /// The API server, or the admin interface behind it, does not respond as it should.
    #[error("pod {pod}, {path}: {problem}")]
    Exchange {
        /// The name of the pod.
        pod: String,
        /// The requested path.
        path: String,
        /// The fault and its cure.
        problem: String,
    },
}

/// A pod of a gateway, with the way to its admin interface.
#[derive(Clone)]
pub struct GatewayPod {
    client: Client,
    namespace: String,
    /// The name of the pod.
    pub name: String,
    /// Whether the pod serves no requests, but distributes the configuration to data planes.
    pub is_control_plane: bool,
    port: u16,
}

/// The running pods of the gateway in a namespace, by name. With a name, only this pod.
///
/// # Errors
///
/// If there are no credentials, the API server does not list the pods, there is none, or the admin interface of a pod listens only
/// at a loopback address.
pub async fn gateway_pods(
    credentials: &Credentials,
    namespace: &str,
    name: Option<&str>,
) -> Result<Vec<GatewayPod>, PodError> {
    let client = credentials.client().await?;
    let list = Api::<Pod>::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(SELECTOR);
    let listed = list.list(&params).await;
    let listed = listed.map_err(|error| PodError::List(namespace.to_owned(), in_words(&error)))?;
    let mut pods = Vec::new();
    for pod in listed.items {
        let Some(pod_name) = pod.metadata.name.clone() else { continue };
        let is_running = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        if !is_running || name.is_some_and(|name| name != pod_name) {
            continue;
        }
        let Some(address) = admin_address(&pod) else { continue };
        let (host, port) = address.rsplit_once(':').unwrap_or((&address, ""));
        if host.starts_with("127.") || host == "[::1]" {
            return Err(PodError::Loopback(pod_name, address));
        }
        pods.push(GatewayPod {
            client: client.clone(),
            namespace: namespace.to_owned(),
            name: pod_name,
            is_control_plane: component(&pod) == Some("control-plane"),
            port: port.parse().unwrap_or(PORT),
        });
    }
    if pods.is_empty() {
        let wanted = name.map_or_else(|| format!("with the label {SELECTOR}"), str::to_owned);
        return Err(PodError::Missing(namespace.to_owned(), wanted));
    }
    pods.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(pods)
}

/// The error without the whole response of the API server.
fn in_words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

/// The address of the pod's admin interface, from the options of its container. `None`: the pod is no gateway, such as the pod of a
/// test of the chart.
fn admin_address(pod: &Pod) -> Option<String> {
    let containers = &pod.spec.as_ref()?.containers;
    let options = containers.iter().flat_map(|container| container.args.iter().flatten());
    options.filter_map(|option| option.strip_prefix("--admin=")).next().map(str::to_owned)
}

fn component(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(COMPONENT).map(String::as_str)
}

impl GatewayPod {
    /// Gets a document of the admin interface, such as `/routes`.
    ///
    /// # Errors
    ///
    /// If the API server does not pass the request on, nothing arrives within 10 s, the status is an error, or the document is
    /// too long.
    pub async fn get(&self, path: &str) -> Result<Vec<u8>, PodError> {
        let failed =
            |problem: String| PodError::Exchange { pod: self.name.clone(), path: path.to_owned(), problem };
        let exchange = tokio::time::timeout(TIMEOUT, self.exchange(path)).await;
        let (status, body) = exchange
            .map_err(|_| failed(format!("no response within {} s; try again", TIMEOUT.as_secs())))?
            .map_err(failed)?;
        if status.is_success() {
            return Ok(body);
        }
        let first: String = String::from_utf8_lossy(&body).chars().take(FIRST_MAX).collect();
        let first = first.lines().next().unwrap_or_default().escape_debug().to_string();
        let cure = match status.as_u16() {
            401 | 403 => "; you need the right to get pods/proxy in this namespace",
            _ => "",
        };
        Err(failed(format!("the response is {status}: {first}{cure}")))
    }

    async fn exchange(&self, path: &str) -> Result<(http::StatusCode, Vec<u8>), String> {
        let Self { namespace, name, port, .. } = self;
        let uri = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy{path}");
        let request = Request::get(uri).body(Body::empty()).map_err(|error| error.to_string())?;
        let response =
            self.client.send(request).await.map_err(|error| format!("{error}; check the kubeconfig"))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), DOCUMENT_MAX).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok((status, body.into()))
    }
}
