//! The objects of a cluster, read once.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::{Change, Config};
use tokio::sync::mpsc;

use super::client::{ClientError, Credentials};
use crate::TranslateOptions;
use crate::source::{ClusterSource, Loaded};

/// The longest time for the lists of all kinds.
const LISTS_MAX: Duration = Duration::from_secs(60);

/// The reason why the objects of a cluster cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is no client for the cluster.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The API server does not respond.
    #[error("the API server does not respond: {0}; check the address in the kubeconfig and your credentials")]
    Unreachable(Box<kube::Error>),
    /// The lists take too long.
    #[error("the lists of objects did not end within {} s; try again, or name namespaces with --watch-namespace", LISTS_MAX.as_secs())]
    Slow,
}

/// Reads the objects of a cluster once, in these namespaces or in all, and writes nothing. The problems name all errors of objects.
///
/// # Errors
///
/// If there are no credentials, or the API server does not list the objects.
pub async fn load_cluster_once(
    credentials: &Credentials,
    namespaces: Vec<Arc<str>>,
    options: TranslateOptions,
) -> Result<Loaded, LoadError> {
    let client = credentials.client().await?;
    client.apiserver_version().await.map_err(|error| LoadError::Unreachable(Box::new(error)))?;
    let source = ClusterSource::new(client, namespaces, options, None);
    let problems = source.problems();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let run = source.run(move |change, _| {
        if let Change::Config(config) = change {
            // The receiver lives as long as the source.
            let _ = sender.send(config);
        }
        Box::pin(std::future::ready(()))
    });
    // The source reports the problems of a configuration in the turn in which it publishes the configuration.
    let config: Arc<Config> = tokio::select! {
        biased;
        never = run => match never {},
        config = receiver.recv() => config.ok_or(LoadError::Slow)?,
        () = tokio::time::sleep(LISTS_MAX) => return Err(LoadError::Slow),
    };
    let problems = problems.borrow().to_vec();
    Ok(Loaded { config: Arc::unwrap_or_clone(config), problems, foreign: Vec::new() })
}
