//! Where routes come from, as options: a directory of manifests, or a cluster.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use clap::Args;
use sluicegate_admin::Measure;
use sluicegate_control::{
    Addresses, ClusterSource, Credentials, DirectorySource, ObjectName, Problem, Publish, StatusOptions,
    TranslateOptions,
};
use tokio::sync::watch;

use crate::address::object_name;
use crate::configmap;
use crate::settings::SettingsArgs;
use crate::tls::TlsArgs;

#[derive(Clone, Debug, Args)]
#[group(id = "source", required = true, multiple = false, args = ["manifests", "kubernetes"])]
pub(crate) struct SourceArgs {
    /// The directory of manifests, with its sub-folders: YAML and JSON of Ingress, IngressClass, Gateway, GatewayClass,
    /// TLSRoute, TCPRoute, UDPRoute, ReferenceGrant, Service, EndpointSlice, Secret, ConfigMap, SecurityPolicy, Consumer,
    /// RateLimitPolicy and TrafficPolicy. It is watched.
    #[arg(long, value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// Follow the same objects in a Kubernetes cluster: with the service account of the pod, or else with a kubeconfig.
    #[arg(long)]
    kubernetes: bool,
    /// The ConfigMap of global settings: its keys are the names of the options for limits, endpoints, failures,
    /// compression and TLS, and go before them; what ingress-nginx calls them is understood. Its changes are followed.
    /// [default: none]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object_name)]
    configmap: Option<ObjectName>,
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
    /// Give Ingresses the addresses of this Service in their status: those of its load balancer, its external ones, or
    /// else its cluster address. While it is missing, or waits for its load balancer, the last ones stay. With
    /// --publish-node-addresses Ingresses have those of the nodes until the Service has one. [default: none are written]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object_name, requires = "kubernetes")]
    publish_service: Option<ObjectName>,
    /// Give Ingresses this IP address or host name in their status; may be given several times.
    #[arg(
        long,
        value_name = "ADDRESS",
        requires = "kubernetes",
        conflicts_with_all = ["publish_service", "publish_node_addresses"]
    )]
    publish_status_address: Vec<Box<str>>,
    /// Give Ingresses the addresses of the nodes in their status on which pods like this one are ready: external ones, or
    /// else internal ones.
    #[arg(long, requires_all = ["kubernetes", "pod_name"])]
    publish_node_addresses: bool,
    /// The Lease in the namespace of the pod whose holder, one of all gateways with it, writes status and Events.
    #[arg(long, value_name = "NAME", default_value = "sluicegate")]
    lease_name: Arc<str>,
    /// The name of this pod. [default: made up, where it is not needed]
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pod_name: Option<Arc<str>>,
    /// The namespace of this pod, in which the Lease is. Without it nothing is written into the cluster.
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE")]
    pod_namespace: Option<Arc<str>>,
    /// Write nothing into the cluster: no status, no annotation, no Event, no Lease.
    #[arg(long, requires = "kubernetes")]
    no_status: bool,
}

/// A source of changes.
pub(crate) enum Source {
    Directory(DirectorySource),
    Cluster(ClusterSource),
}

impl SourceArgs {
    /// The source that was asked for, with what else the command line says of its translation.
    pub(crate) async fn source(
        &self,
        mut options: TranslateOptions,
        settings: &SettingsArgs,
        tls: &TlsArgs,
    ) -> anyhow::Result<Source> {
        tls.apply(&mut options);
        options.configmap.clone_from(&self.configmap);
        options.read_globals = configmap::reader(settings.clone(), tls.clone());
        if let Some(dir) = &self.manifests {
            return Ok(Source::Directory(DirectorySource::new(dir, options)));
        }
        let ClusterArgs { kubeconfig, context, watch_namespace, .. } = self.cluster.clone();
        let client = Credentials { kubeconfig, context }.client().await?;
        let status = self.cluster.status();
        if status.is_none() && !self.cluster.no_status {
            tracing::info!(
                "nothing is written into the cluster, since the namespace of this pod is unknown (--pod-namespace)"
            );
        }
        Ok(Source::Cluster(ClusterSource::new(client, watch_namespace, options, status)))
    }

    /// The namespace of this pod, if it is told.
    pub(crate) fn pod_namespace(&self) -> Option<&str> {
        self.cluster.pod_namespace.as_deref()
    }
}

impl ClusterArgs {
    /// What is written into the cluster, if anything is.
    fn status(&self) -> Option<StatusOptions> {
        let namespace =
            self.pod_namespace.clone().filter(|namespace| !self.no_status && !namespace.is_empty())?;
        let name = self.lease_name.clone();
        let identity = match &self.pod_name {
            Some(name) => name.to_string(),
            None => format!("sluicegate-{:08x}", fastrand::u32(..)),
        };
        let pod = self.pod_name.clone().map(|name| ObjectName { namespace: namespace.clone(), name });
        let pod = pod.filter(|_| self.publish_node_addresses);
        let addresses = match (&self.publish_service, &*self.publish_status_address, pod) {
            (Some(service), _, Some(pod)) => {
                Some(Addresses::ServiceElseNodes { service: service.clone(), pod })
            }
            (Some(service), _, None) => Some(Addresses::Service(service.clone())),
            (None, addresses @ [_, ..], _) => Some(Addresses::Fixed(addresses.to_vec())),
            (None, [], Some(pod)) => Some(Addresses::Nodes { pod }),
            (None, [], None) => None,
        };
        Some(StatusOptions { lease: ObjectName { namespace, name }, identity, addresses })
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

    /// Whether this process is the one that writes into the cluster, for `/metrics`.
    pub(crate) fn leads(&self) -> impl Fn() -> Option<Measure> + Send + Sync + 'static {
        let leads = match self {
            Self::Directory(_) => None,
            Self::Cluster(source) => Some(source.leads()),
        };
        move || {
            let leads = *leads.as_ref()?.borrow();
            let help = "1 if this process holds the Lease, and so writes status and Events";
            Some(Measure::gauge("sluicegate_leader", help, leads.into()))
        }
    }

    /// What gives up whatever this process alone may do, when it ends.
    pub(crate) fn resignation(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match self {
            Self::Directory(_) => Box::pin(std::future::ready(())),
            Self::Cluster(source) => Box::pin(source.resignation()),
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
