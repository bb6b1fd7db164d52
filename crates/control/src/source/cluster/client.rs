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

/// The reason why there is no client. No message repeats its cause: the messages have the words of the causes.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The named kubeconfig cannot be read.
    #[error("cannot use the kubeconfig {path}: {fault}; correct the file, or name another with --kubeconfig", path = path.display())]
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// The fault.
        fault: String,
    },
    /// There is neither a service account nor a kubeconfig.
    #[error("no credentials for a cluster: {0}; run in a pod with a service account, or set --kubeconfig")]
    Infer(String),
    /// The default kubeconfig cannot be read, although a context was named.
    #[error("cannot use the kubeconfig: {0}; set --kubeconfig, or correct --context")]
    Context(String),
    /// The configuration makes no client.
    #[error("cannot use the credentials for the cluster: {0}")]
    Client(String),
}

impl From<kube::Error> for ClientError {
    fn from(error: kube::Error) -> Self {
        Self::Client(error.to_string())
    }
}

impl From<InferConfigError> for ClientError {
    /// The message of kube has the fault of the kubeconfig twice.
    fn from(error: InferConfigError) -> Self {
        let fault = error.source().and_then(|source| source.downcast_ref::<KubeconfigError>());
        Self::Infer(fault.map_or_else(|| error.to_string(), in_words))
    }
}

/// The fault of a kubeconfig in a few words.
fn in_words(fault: &KubeconfigError) -> String {
    match fault {
        KubeconfigError::FindPath => "there is no kubeconfig".to_owned(),
        KubeconfigError::ReadConfig(error, path) if error.kind() == io::ErrorKind::NotFound => {
            format!("{} does not exist", path.display())
        }
        KubeconfigError::ReadConfig(error, path) => format!("{}: {error}", path.display()),
        KubeconfigError::CurrentContextNotSet => "the kubeconfig names no current context".to_owned(),
        fault => fault.to_string(),
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
                let refused = |fault| {
                    let fault = match fault {
                        // The message has the path already.
                        KubeconfigError::ReadConfig(error, _) => error.to_string(),
                        fault => in_words(&fault),
                    };
                    ClientError::Kubeconfig { path: path.clone(), fault }
                };
                let kubeconfig = Kubeconfig::read_from(path).map_err(refused)?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(refused)
            }
            None if self.context.is_some() => {
                let config = Config::from_kubeconfig(&options).await;
                config.map_err(|fault| ClientError::Context(in_words(&fault)))
            }
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
        let path = PathBuf::from("missing/kubeconfig");
        let credentials = Credentials { kubeconfig: Some(path), context: None };
        let Err(error) = credentials.client().await else { panic!("a client without a kubeconfig") };
        let expected = "cannot use the kubeconfig missing/kubeconfig: No such file or directory (os error 2); correct the file, or name \
                        another with --kubeconfig";
        assert_eq!(error.to_string(), expected);
        assert!(error.source().is_none(), "a chain of causes would repeat the fault");
    }
}
