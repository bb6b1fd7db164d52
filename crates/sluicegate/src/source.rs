//! The source of routes, as options: a directory of manifests, or a cluster.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use sluicegate_admin::{Lease, Measure, Planes};
use sluicegate_control::{
    Addresses, ClusterSource, DirectorySource, GatewayServices, ObjectName, Problem, Publish, Recorder,
    ServiceType, StatusOptions, TranslateOptions,
};
use tokio::sync::watch;

use crate::address::{key_value, object_name, port_range};
use crate::changes::Objects;
use crate::configmap;
use crate::dashboard::Knowledge;
use crate::documents::DocumentArgs;
use crate::gateways::ClusterArgs;
use crate::settings::SettingsArgs;
use crate::tls::TlsArgs;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Source")]
#[group(id = "source", required = true, multiple = false, args = ["manifests", "kubernetes"])]
pub(crate) struct SourceArgs {
    /// The directory of manifests, with its sub-folders, as YAML or JSON. The kinds are Ingress, IngressClass, Gateway,
    /// GatewayClass, HTTPRoute, GRPCRoute, TLSRoute, TCPRoute, UDPRoute, ReferenceGrant, Namespace, Service,
    /// EndpointSlice, Secret, ConfigMap, SecurityPolicy, Consumer, RateLimitPolicy and TrafficPolicy. Declarative files
    /// of Kong are served too. The gateway follows changes.
    #[arg(long, value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// Follow the objects of a Kubernetes cluster, with the service account of the pod, or otherwise with a kubeconfig.
    #[arg(long)]
    kubernetes: bool,
    #[command(flatten)]
    configmaps: ConfigMapArgs,
    #[command(flatten)]
    documents: DocumentArgs,
    #[command(flatten)]
    cluster: FollowArgs,
}

/// The ConfigMaps that the gateway follows.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Source")]
pub(crate) struct ConfigMapArgs {
    /// The ConfigMap with global settings. Its keys are the names of options for clients, endpoints, failures,
    /// compression, traces and TLS. Its values take precedence over the command line. Many keys of ingress-nginx are
    /// accepted too. The gateway follows changes. [default: none]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object_name)]
    configmap: Option<ObjectName>,
    /// The ConfigMap with TCP ports that lead to Services, as in ingress-nginx. A key is a port, and its value is
    /// NAMESPACE/SERVICE:PORT. With :PROXY behind the value, clients must send the PROXY protocol. With a second
    /// :PROXY, endpoints receive the PROXY protocol. The gateway listens at --gateway-address, and follows changes.
    /// [default: none]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object_name)]
    tcp_services_configmap: Option<ObjectName>,
    /// The ConfigMap with UDP ports that lead to Services: a key is a port, and its value is NAMESPACE/SERVICE:PORT. The
    /// gateway listens at --gateway-address, and follows changes. [default: none]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object_name)]
    udp_services_configmap: Option<ObjectName>,
}

impl ConfigMapArgs {
    /// Applies the options to the options of the translation.
    pub(crate) fn apply(&self, options: &mut TranslateOptions) {
        options.configmap.clone_from(&self.configmap);
        options.tcp_services.clone_from(&self.tcp_services_configmap);
        options.udp_services.clone_from(&self.udp_services_configmap);
    }
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Kubernetes")]
struct FollowArgs {
    #[command(flatten)]
    way: ClusterArgs,
    /// Follow only this namespace; may be given several times. IngressClasses, GatewayClasses and
    /// Namespaces have no namespace and are always followed. [default: all namespaces]
    #[arg(long, value_name = "NAMESPACE", requires = "kubernetes")]
    watch_namespace: Vec<Arc<str>>,
    /// Write the addresses of this Service into the status of Ingresses: the addresses of its load balancer, its
    /// external IPs, or its cluster IP. While the Service is missing or has no address yet, the last addresses stay.
    /// With --publish-node-addresses, Ingresses have the addresses of the nodes until the Service has an address.
    /// [default: none]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object_name, requires = "kubernetes")]
    publish_service: Option<ObjectName>,
    /// Write these IP addresses or host names into the status of Ingresses, comma separated. [default: none]
    #[arg(
        long,
        value_name = "ADDRESS,...",
        value_delimiter = ',',
        requires = "kubernetes",
        conflicts_with_all = ["publish_service", "publish_node_addresses"]
    )]
    publish_status_address: Vec<Box<str>>,
    /// Write the addresses of nodes into the status of Ingresses: the nodes on which pods like this pod are ready.
    /// External addresses take precedence over internal addresses.
    #[arg(long, requires_all = ["kubernetes", "pod_name"])]
    publish_node_addresses: bool,
    /// The name of the Lease in the namespace of the pod. Of all gateways with this Lease, its holder writes status and
    /// Events.
    #[arg(long, value_name = "NAME", alias = "election-id", default_value = "sluicegate")]
    lease_name: Arc<str>,
    /// The name of this pod. [default: a random name, unless --publish-node-addresses needs the name]
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pod_name: Option<Arc<str>>,
    /// The namespace of this pod and of the Lease. Without a namespace, the gateway writes nothing into the cluster.
    /// [default: none]
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE")]
    pod_namespace: Option<Arc<str>>,
    /// Write nothing into the cluster: no status, no annotation, no Event, no Lease.
    #[arg(long, requires = "kubernetes")]
    no_status: bool,
    #[command(flatten)]
    services: GatewayServiceArgs,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Services of Gateways")]
struct GatewayServiceArgs {
    /// Create a Service of this type for each Gateway, in the namespace of this pod. The Service leads to ports of the
    /// serving pods that belong to this Gateway alone, so that Gateways share no port with each other or with Ingresses.
    /// The holder of the Lease writes the Services. [default: no Services]
    #[arg(
        long,
        value_enum,
        value_name = "TYPE",
        requires_all = ["kubernetes", "pod_namespace", "gateway_service_selector"],
        conflicts_with = "no_status"
    )]
    gateway_services: Option<GatewayServiceType>,
    /// The labels of the serving pods, to which the Services lead. [default: none]
    #[arg(
        long,
        value_name = "KEY=VALUE,...",
        value_parser = key_value,
        value_delimiter = ',',
        requires = "gateway_services"
    )]
    gateway_service_selector: Vec<(String, String)>,
    /// The ports of the serving pods for the Services. If you change the range, Gateways receive new ports.
    #[arg(long, value_name = "FIRST-LAST", value_parser = port_range, default_value = "20000-29999")]
    gateway_service_ports: RangeInclusive<u16>,
    /// An annotation of the Services; may be given several times. spec.infrastructure.annotations of a Gateway has
    /// precedence. [default: none]
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value, requires = "gateway_services")]
    gateway_service_annotation: Vec<(String, String)>,
    /// The class of the load balancers of the Services. [default: the default of the cluster]
    #[arg(long, value_name = "CLASS", requires = "gateway_services")]
    gateway_service_class: Option<String>,
    /// The traffic policy of the Services for external clients. Local preserves client IPs and uses only nodes with a
    /// serving pod. [default: the default of the cluster]
    #[arg(long, value_enum, value_name = "POLICY", requires = "gateway_services")]
    gateway_service_traffic_policy: Option<TrafficPolicy>,
}

/// The type of the Services of Gateways.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum GatewayServiceType {
    #[value(name = "ClusterIP")]
    ClusterIp,
    #[value(name = "NodePort")]
    NodePort,
    #[value(name = "LoadBalancer")]
    LoadBalancer,
}

/// `externalTrafficPolicy` of a Service.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TrafficPolicy {
    #[value(name = "Cluster")]
    Cluster,
    #[value(name = "Local")]
    Local,
}

/// A source of changes.
pub(crate) enum Source {
    Directory(Box<DirectorySource>),
    Cluster(Box<ClusterSource>),
}

impl SourceArgs {
    /// The requested source, with the other options of its translation.
    pub(crate) async fn source(
        &self,
        mut options: TranslateOptions,
        settings: &SettingsArgs,
        tls: &TlsArgs,
    ) -> anyhow::Result<Source> {
        tls.apply(&mut options);
        self.configmaps.apply(&mut options);
        options.documents = self.documents.documents();
        options.read_globals = configmap::reader(settings.clone(), tls.clone());
        self.cluster.way.need("--kubernetes", self.kubernetes)?;
        if let Some(dir) = &self.manifests {
            // A link without a target is a volume that is about to be mounted. The gateway waits for the volume.
            anyhow::ensure!(
                dir.symlink_metadata().is_ok(),
                "{}: the directory of --manifests does not exist: create the directory, or fix the path",
                dir.display()
            );
            return Ok(Source::Directory(Box::new(DirectorySource::new(dir, options))));
        }
        let watch_namespace = self.cluster.watch_namespace.clone();
        let client = self.cluster.way.credentials().client().await?;
        let status = self.cluster.status();
        options.gateway_services =
            status.as_ref().and_then(|status| self.cluster.services.options(&status.lease));
        if status.is_none() && !self.cluster.no_status {
            tracing::info!(
                "the gateway writes no status and no Events, because the namespace of this pod is unknown; set --pod-namespace"
            );
        }
        Ok(Source::Cluster(Box::new(ClusterSource::new(client, watch_namespace, options, status))))
    }

    /// The objects of the source, for the audit trail.
    pub(crate) fn scope(&self) -> String {
        match &self.manifests {
            Some(dir) => {
                let path = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.clone());
                format!("manifests: {}", path.display())
            }
            None if self.cluster.watch_namespace.is_empty() => "cluster".to_owned(),
            None => {
                let mut namespaces = self.cluster.watch_namespace.clone();
                namespaces.sort_unstable();
                format!("cluster: {}", namespaces.join(", "))
            }
        }
    }

    /// The place of the objects.
    pub(crate) fn objects(&self) -> Objects {
        match &self.manifests {
            Some(dir) => Objects::Directory(dir.clone()),
            None => Objects::Cluster(self.cluster.way.credentials()),
        }
    }

    /// The directory of manifests, if it is the source.
    pub(crate) fn manifests(&self) -> Option<&Path> {
        self.manifests.as_deref()
    }

    /// Whether the gateway may write into the cluster.
    pub(crate) fn writes_status(&self) -> bool {
        !self.cluster.no_status
    }

    /// The name of the Lease.
    pub(crate) fn lease_name(&self) -> &Arc<str> {
        &self.cluster.lease_name
    }

    /// The namespace of this pod, if set.
    pub(crate) fn pod_namespace(&self) -> Option<&str> {
        self.cluster.pod_namespace.as_deref()
    }
}

impl FollowArgs {
    /// The options for status and Events, if the gateway writes into the cluster.
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

impl GatewayServiceArgs {
    /// The options for the Services of Gateways, whose writer holds this Lease.
    fn options(&self, lease: &ObjectName) -> Option<GatewayServices> {
        let args = self.clone();
        let external_traffic_policy = args.gateway_service_traffic_policy.map(|policy| match policy {
            TrafficPolicy::Cluster => "Cluster".to_owned(),
            TrafficPolicy::Local => "Local".to_owned(),
        });
        Some(GatewayServices {
            namespace: lease.namespace.clone(),
            lease: lease.name.clone(),
            service_type: match args.gateway_services? {
                GatewayServiceType::ClusterIp => ServiceType::ClusterIp,
                GatewayServiceType::NodePort => ServiceType::NodePort,
                GatewayServiceType::LoadBalancer => ServiceType::LoadBalancer,
            },
            selector: args.gateway_service_selector.into_iter().collect(),
            ports: args.gateway_service_ports,
            annotations: args.gateway_service_annotation.into_iter().collect(),
            load_balancer_class: args.gateway_service_class,
            external_traffic_policy,
        })
    }
}

impl Source {
    /// The current problems, and every change of the problems.
    pub(crate) fn problems(&self) -> watch::Receiver<Arc<[Problem]>> {
        match self {
            Self::Directory(source) => source.problems(),
            Self::Cluster(source) => source.problems(),
        }
    }

    /// What the dashboard shows of the source.
    pub(crate) fn knowledge(&self) -> Knowledge {
        let published = match self {
            Self::Directory(source) => source.catalogue(),
            Self::Cluster(source) => source.catalogue(),
        };
        Knowledge { published, problems: self.problems() }
    }

    /// The contact with the API server, whether this process holds the Lease and writes into the cluster, and how much it has written,
    /// for `/metrics`.
    pub(crate) fn planes(&self, lease_name: Arc<str>) -> impl Fn() -> Planes + Send + Sync + 'static {
        let of_cluster = match self {
            Self::Directory(_) => None,
            Self::Cluster(source) => Some((source.leads(), source.status_writes(), source.contact())),
        };
        move || {
            let Some((leads, writes, contact)) = &of_cluster else { return Planes::default() };
            let contact = *contact.borrow();
            let confirmed = contact.endpoints_confirmed(SystemTime::now());
            let confirmed = confirmed.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
            let confirmed = confirmed.map(|since_1970| {
                Measure::gauge(
                    "sluicegate_endpoints_confirmed_timestamp_seconds",
                    "Time until which the Kubernetes API confirmed the endpoints, in seconds since 1970: now, while the watches work",
                    since_1970.as_secs(),
                )
            });
            let measures = [
                Measure::gauge(
                    "sluicegate_kubernetes_connected",
                    "1 while all watches of the Kubernetes API work, otherwise 0",
                    contact.is_connected().into(),
                ),
                Measure::counter(
                    "sluicegate_status_writes",
                    "Statuses and annotations that this process has written into the cluster",
                    writes.load(Ordering::Relaxed),
                ),
            ];
            Planes {
                lease: Some(Lease { name: lease_name.clone(), is_held: *leads.borrow() }),
                measures: measures.into_iter().chain(confirmed).collect(),
                ..Planes::default()
            }
        }
    }

    /// Releases the roles of this process, such as the Lease, when the process ends.
    pub(crate) fn resignation(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match self {
            Self::Directory(_) => Box::pin(std::future::ready(())),
            Self::Cluster(source) => Box::pin(source.resignation()),
        }
    }

    /// Hands over the versions of objects that the source applies.
    pub(crate) fn record(&mut self, recorder: Recorder) {
        match self {
            Self::Directory(source) => source.record(recorder),
            Self::Cluster(source) => source.record(recorder),
        }
    }

    /// Follows the source until the future is dropped.
    pub(crate) async fn run(self, publish: impl Publish) {
        match self {
            Self::Directory(source) => match source.run(publish).await {},
            Self::Cluster(source) => match source.run(publish).await {},
        }
    }
}
