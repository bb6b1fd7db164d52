//! Where routes come from, as options: a directory of manifests, or a cluster.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use sluicegate_control::{ClusterSource, Credentials, DirectorySource, Problem, Publish, TranslateOptions};
use tokio::sync::watch;

#[derive(Clone, Debug, Args)]
#[group(id = "source", required = true, multiple = false, args = ["manifests", "kubernetes"])]
pub(crate) struct SourceArgs {
    /// The directory of manifests, with its sub-folders: YAML and JSON of Ingress, IngressClass, Gateway, GatewayClass,
    /// TLSRoute, TCPRoute, UDPRoute, ReferenceGrant, Service, EndpointSlice, Secret and ConfigMap. It is watched.
    #[arg(long, value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// Follow the same objects in a Kubernetes cluster: with the service account of the pod, or else with a kubeconfig.
    #[arg(long)]
    kubernetes: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Kubernetes")]
struct ClusterArgs {
    /// The kubeconfig to use. [default: the pod's service account, then $KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE", requires = "kubernetes")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. [default: its current one]
    #[arg(long, value_name = "NAME", requires = "kubernetes")]
    context: Option<String>,
    /// Follow this namespace alone; may be given several times. IngressClasses and GatewayClasses have none, and are
    /// followed anyway. [default: all namespaces]
    #[arg(long, value_name = "NAMESPACE", requires = "kubernetes")]
    watch_namespace: Vec<Arc<str>>,
}

/// A source of changes.
pub(crate) enum Source {
    Directory(DirectorySource),
    Cluster(ClusterSource),
}

impl SourceArgs {
    /// The source that was asked for.
    pub(crate) async fn source(&self, options: TranslateOptions) -> anyhow::Result<Source> {
        if let Some(dir) = &self.manifests {
            return Ok(Source::Directory(DirectorySource::new(dir, options)));
        }
        let ClusterArgs { kubeconfig, context, watch_namespace } = self.cluster.clone();
        let client = Credentials { kubeconfig, context }.client().await?;
        Ok(Source::Cluster(ClusterSource::new(client, watch_namespace, options)))
    }
}

impl Source {
    /// What is wrong at present, and every change of it.
    pub(crate) fn problems(&self) -> watch::Receiver<Arc<[Problem]>> {
        match self {
            Self::Directory(source) => source.problems(),
            Self::Cluster(source) => source.problems(),
        }
    }

    /// Follows it until the future is dropped.
    pub(crate) async fn run(self, publish: impl Publish) {
        match self {
            Self::Directory(source) => match source.run(publish).await {},
            Self::Cluster(source) => match source.run(publish).await {},
        }
    }
}
