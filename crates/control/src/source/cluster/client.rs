//! The client of the Kubernetes API.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::config::{AuthInfo, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::ServiceBuilder;

/// The connect timeout. Kubernetes' own clients wait for 30 s; this client must notice a returning API server sooner.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The time of silence after which the client probes a peer.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// The time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// The client drops a peer after this long without a response, or without an acknowledgement of sent data.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// The address of the API server, and the identity of the gateway there.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// A kubeconfig. Default: the credentials of the service account inside a cluster, otherwise the kubeconfig that
    /// `kubectl` would take.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. Default: its current context.
    pub context: Option<String>,
}

/// The reason why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The named kubeconfig cannot be read.
    #[error("cannot use the kubeconfig {path}: {source}", path = path.display())]
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: KubeconfigError,
    },
    /// There is neither a service account nor a kubeconfig.
    #[error("no credentials for a cluster: {}; run in a pod with a service account, or set --kubeconfig", in_words(.0))]
    Infer(#[from] InferConfigError),
    /// The default kubeconfig cannot be read, although a context was named.
    #[error("cannot use the kubeconfig: {0}")]
    Context(#[from] KubeconfigError),
    /// The configuration makes no client.
    #[error("cannot use the credentials for the cluster: {0}")]
    Client(#[from] kube::Error),
}

/// The reason of kube in one sentence. Its own message repeats the reason for a pod and for a kubeconfig.
fn in_words(error: &InferConfigError) -> String {
    match error.source().and_then(|source| source.downcast_ref::<KubeconfigError>()) {
        Some(KubeconfigError::FindPath) => "there is no kubeconfig".to_owned(),
        Some(KubeconfigError::ReadConfig(error, path)) if error.kind() == io::ErrorKind::NotFound => {
            format!("{} does not exist", path.display())
        }
        Some(KubeconfigError::CurrentContextNotSet) => "the kubeconfig names no current context".to_owned(),
        Some(error) => error.to_string(),
        None => error.to_string(),
    }
}

impl Credentials {
    /// A client for the cluster, not yet connected.
    ///
    /// # Errors
    ///
    /// If there are no credentials, or none of them can be read.
    pub async fn client(&self) -> Result<Client, ClientError> {
        let config = self.config().await?;
        Ok(client(config)?)
    }

    /// A client with the identity of a bearer token in place of the identity of the gateway. So the API server decides what the
    /// token allows.
    ///
    /// # Errors
    ///
    /// If there is no address of a cluster.
    pub async fn client_of(&self, token: &str) -> Result<Client, ClientError> {
        let mut config = self.config().await?;
        config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        Ok(client(config)?)
    }

    async fn config(&self) -> Result<Config, ClientError> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        match &self.kubeconfig {
            Some(path) => {
                let refused = |source| ClientError::Kubeconfig { path: path.clone(), source };
                let kubeconfig = Kubeconfig::read_from(path).map_err(refused)?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(refused)
            }
            None if self.context.is_some() => Ok(Config::from_kubeconfig(&options).await?),
            None => Ok(Config::infer().await?),
        }
    }
}

/// kube's own client logs each failed request as an error, of which there are some each second while an API server is
/// unreachable. It also does not notice a peer that vanished. So this client consists of kube's parts.
fn client(config: Config) -> kube::Result<Client> {
    // kube asks for rustls' default provider, which other code in the process may have set.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_tcp_user_timeout(Some(PEER_TIMEOUT));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let client: hyper_util::client::legacy::Client<_, Body> =
        hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(tower::BoxError::from)
        .service(client);
    Ok(Client::new(service, config.default_namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn missing_kubeconfig_is_one_short_sentence() {
        // Without a service account and without KUBECONFIG, kube reads ~/.kube/config.
        let Err(error) = Config::infer().await else { return };
        let said = ClientError::from(error).to_string();
        assert!(said.starts_with("no credentials for a cluster: "), "{said}");
        assert!(said.len() < 160 && !said.contains("in-cluster"), "{said}");
    }
}
