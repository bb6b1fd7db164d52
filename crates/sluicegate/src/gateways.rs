//! The running gateways that a command asks: the admin interface at an address, or the pods of a cluster through its API server.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde::de::DeserializeOwned;
use sluicegate_admin::{fetch, fetch_text};
use sluicegate_control::{Credentials, GatewayPod, PodError, gateway_pods};
use tokio::runtime::Runtime;

use crate::address::local_address;

/// The admin interface of one gateway.
#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// The address of the running gateway's admin interface.
    #[arg(long, value_name = "ADDRESS", value_parser = local_address, default_value = "127.0.0.1:9901")]
    pub(crate) admin: SocketAddr,
}

/// The way to a cluster.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Kubernetes")]
pub(crate) struct ClusterArgs {
    /// The kubeconfig file. [default: the pod's service account, then $KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. [default: the current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ClusterArgs {
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }

    /// Refuses the options in a command that uses no cluster. `switch` is the option that makes the command use one.
    pub(crate) fn need(&self, switch: &str, uses_cluster: bool) -> anyhow::Result<()> {
        let is_given = self.kubeconfig.is_some() || self.context.is_some();
        anyhow::ensure!(uses_cluster || !is_given, "--kubeconfig and --context need {switch}");
        Ok(())
    }
}

/// The pods to ask.
#[derive(Debug, Args)]
#[command(next_help_heading = "Kubernetes")]
pub(crate) struct PodArgs {
    /// Ask the gateway's pods in this namespace of a cluster, through its API server, in place of --admin. You need the rights to
    /// list pods and to get pods/proxy there. [default: none; of kubectl sluicegate: sluicegate]
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "admin")]
    gateway_namespace: Option<String>,
    /// Ask only this pod. [default: all pods for sums, otherwise the first pod by name]
    #[arg(long, value_name = "NAME")]
    gateway_pod: Option<String>,
}

/// The running gateways to ask.
#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    #[command(flatten)]
    pods: PodArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

impl GatewayArgs {
    pub(crate) fn open(&self) -> anyhow::Result<Gateways> {
        self.cluster.need("--gateway-namespace", self.pods.gateway_namespace.is_some())?;
        Gateways::open(self.admin.admin, &self.pods, &self.cluster)
    }
}

/// Running gateways.
pub(crate) struct Gateways {
    runtime: Runtime,
    /// At least one. Control planes are last.
    all: Vec<Gateway>,
}

/// The way to a running gateway.
pub(crate) enum Gateway {
    Address(SocketAddr),
    Pod(GatewayPod),
}

impl Gateways {
    /// Finds the gateways. An address may have no gateway: the first question tells.
    pub(crate) fn open(admin: SocketAddr, pods: &PodArgs, cluster: &ClusterArgs) -> anyhow::Result<Self> {
        let runtime = runtime()?;
        let Some(namespace) = &pods.gateway_namespace else {
            anyhow::ensure!(pods.gateway_pod.is_none(), "--gateway-pod needs --gateway-namespace");
            return Ok(Self { runtime, all: vec![Gateway::Address(admin)] });
        };
        let (credentials, name) = (cluster.credentials(), pods.gateway_pod.as_deref());
        let mut found = runtime.block_on(gateway_pods(&credentials, namespace, name))?;
        found.sort_by_key(|pod| pod.is_control_plane);
        Ok(Self { runtime, all: found.into_iter().map(Gateway::Pod).collect() })
    }

    pub(crate) fn all(&self) -> &[Gateway] {
        &self.all
    }

    /// The gateways that serve requests.
    pub(crate) fn serving(&self) -> impl Iterator<Item = &Gateway> {
        let are_all_control = self.all.iter().all(Gateway::is_control_plane);
        self.all.iter().filter(move |gateway| are_all_control || !gateway.is_control_plane())
    }

    /// Asks the first gateway that serves requests.
    pub(crate) fn ask<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask_one(self.serving().next().context("no gateway")?, path)
    }

    /// Asks each gateway that serves requests, until one knows. The last error, if none knows.
    pub(crate) fn ask_any<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let mut last = Err(anyhow::anyhow!("no gateway"));
        for gateway in self.serving() {
            last = self.ask_one(gateway, path);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    pub(crate) fn ask_one<T: DeserializeOwned>(&self, gateway: &Gateway, path: &str) -> anyhow::Result<T> {
        self.runtime.block_on(async {
            match gateway {
                Gateway::Address(address) => Ok(fetch(*address, path).await?),
                Gateway::Pod(pod) => {
                    let body = pod.get(path).await?;
                    serde_json::from_slice(&body).with_context(|| unreadable(pod, path))
                }
            }
        })
    }

    pub(crate) fn text_of(&self, gateway: &Gateway, path: &str) -> anyhow::Result<String> {
        self.runtime.block_on(async {
            Ok(match gateway {
                Gateway::Address(address) => fetch_text(*address, path).await?,
                Gateway::Pod(pod) => String::from_utf8_lossy(&pod.get(path).await?).into_owned(),
            })
        })
    }

    /// The gateway with the database of analytics and of the audit trail: a control plane, if there is one.
    pub(crate) fn store(&self) -> Store<'_> {
        Store { gateways: self, gateway: self.all.last() }
    }
}

/// The gateway with the database.
pub(crate) struct Store<'a> {
    gateways: &'a Gateways,
    gateway: Option<&'a Gateway>,
}

impl Store<'_> {
    pub(crate) fn ask<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.gateways.ask_one(self.gateway.context("no gateway")?, path)
    }

    pub(crate) fn text(&self, path: &str) -> anyhow::Result<String> {
        self.gateways.text_of(self.gateway.context("no gateway")?, path)
    }
}

impl Gateway {
    /// The address, or the name of the pod.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Address(address) => address.to_string(),
            Self::Pod(pod) => pod.name.clone(),
        }
    }

    fn is_control_plane(&self) -> bool {
        matches!(self, Self::Pod(pod) if pod.is_control_plane)
    }
}

fn unreadable(pod: &GatewayPod, path: &str) -> PodError {
    let problem =
        "the response is not the JSON of a gateway; compare the versions of this program and of the pod"
            .to_owned();
    PodError::Exchange { pod: pod.name.clone(), path: path.to_owned(), problem }
}

/// A runtime for the requests of a command.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
