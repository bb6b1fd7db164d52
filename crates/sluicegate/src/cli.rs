//! The command line.

use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sluicegate_control::{IngressNginx, ObjectName, TranslateOptions};
use sluicegate_model::Settings;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::address::{listen_address, local_address, object_name};
use crate::api::Api;
use crate::audit::AuditCommand;
use crate::build;
use crate::check::{Ports, translate_options};
use crate::configmap;
use crate::control_plane::ControlPlaneArgs;
use crate::convert::Convert;
use crate::data_plane::DataPlaneArgs;
use crate::diff::DiffArgs;
use crate::gateways::{AdminArgs, ClusterArgs, GatewayArgs};
use crate::key::Key;
use crate::log::Lines;
use crate::manual::{CompletionsArgs, ManPagesArgs};
use crate::migrate::Migrate;
use crate::output::OutputArgs;
use crate::serve::ServeArgs;
use crate::source::ConfigMapArgs;
use crate::top::{ApisArgs, TopArgs};

/// A Kubernetes ingress controller and API gateway that applies every change of routes and endpoints without losing a
/// request.
#[derive(Debug, Parser)]
#[command(
    version = build::version(),
    max_term_width = 100,
    after_help = "To start: sluicegate check DIR, then sluicegate serve --manifests DIR."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway with the objects of a Kubernetes cluster or a directory of manifests, and follow their changes.
    Serve(Box<ServeArgs>),
    /// Run only the control plane, which sends the configuration to data planes on other machines.
    ControlPlane(Box<ControlPlaneArgs>),
    /// Run only the data plane, which serves the configuration of a control plane.
    DataPlane(Box<DataPlaneArgs>),
    /// Check manifests, and print the routes that the gateway would serve. Exit with 1 if there are errors.
    Check(CheckArgs),
    /// Print what the objects of a directory or of a cluster would change on a running gateway.
    Diff(DiffArgs),
    /// Print objects of Gateway API that serve the same requests as a declarative file of Kong, or as Ingresses.
    Convert(Convert),
    /// Move from ingress-nginx.
    #[command(subcommand)]
    Migrate(Migrate),
    /// Check OpenAPI documents, and make Apis of them.
    #[command(subcommand)]
    Api(Api),
    /// Issue, rotate and revoke the API keys of a Consumer.
    #[command(subcommand)]
    Key(Key),
    /// Print the CustomResourceDefinitions of SecurityPolicy, Consumer, RateLimitPolicy, TrafficPolicy, Api, Plan and
    /// Subscription, for kubectl apply -f -.
    Crds,
    /// Print the reference page of the annotations of Ingresses and Services, as Markdown.
    Annotations,
    /// Print the completions of a shell. For bash: sluicegate completions bash > /etc/bash_completion.d/sluicegate
    Completions(CompletionsArgs),
    /// Write the manual pages to a directory.
    #[command(hide = true)]
    ManPages(ManPagesArgs),
    /// Ask a running gateway whether it is ready for traffic. Exit with 1 if the gateway is not ready. For probes of
    /// pods on the network of a node, where two gateways share an address during an update.
    Ready(ReadyArgs),
    /// Print the routes of a running gateway.
    Routes(ShowArgs),
    /// Explain what a running gateway, or a gateway with a directory of manifests, does with a request, and why: route, policies,
    /// upstream and endpoints. Sends no request.
    Explain(Box<ExplainArgs>),
    /// Print the upstreams of a running gateway: the conditions, health and load of each endpoint.
    Upstreams(ShowArgs),
    /// Print the state of running gateways: version, readiness, load, endpoints, certificates, and the problems of the configuration.
    /// Exit with 1 if a gateway is not ready, or the configuration has errors.
    Status(ShowArgs),
    /// Print the requests, errors and latencies of each API. Needs a gateway with --analytics, or the control plane of such gateways.
    Apis(ApisArgs),
    /// Show the rates of routes, hosts, upstreams, endpoints, Consumers or errors, and follow them until you press q. With --analytics,
    /// also of APIs, operations, plans and statuses.
    Top(TopArgs),
    /// Print who changed which object when. Needs a gateway or a control plane with --audit.
    Audit(AuditCommand),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) objects: ObjectsArgs,
    /// Exit with 1 on warnings too.
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The objects that a command reads once.
#[derive(Debug, Args)]
pub(crate) struct ObjectsArgs {
    /// The directory of manifests with its sub-folders, or one manifest.
    #[arg(required_unless_present = "kubernetes", conflicts_with = "kubernetes")]
    pub(crate) dir: Option<PathBuf>,
    /// Read the objects of a cluster, with a kubeconfig. The command needs the rights to list the objects, and writes
    /// nothing.
    #[arg(long)]
    pub(crate) kubernetes: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Read only the objects in this namespace; may be given several times. [default: all namespaces]
    #[arg(long, value_name = "NAMESPACE", requires = "kubernetes")]
    pub(crate) watch_namespace: Vec<Arc<str>>,
    #[command(flatten)]
    pub(crate) manifest: ManifestArgs,
    /// The address of the gateway for the admin interface. A Gateway cannot use its port.
    #[arg(long, value_name = "ADDRESS", value_parser = local_address, default_value = "127.0.0.1:9901")]
    pub(crate) admin: SocketAddr,
}

/// The options of the gateway that decide how manifests are read.
#[derive(Debug, Args)]
pub(crate) struct ManifestArgs {
    /// The address of the gateway for HTTP. A Gateway cannot use its port; may be given several times.
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address, default_value = "0.0.0.0:8080")]
    pub(crate) listen: Vec<SocketAddr>,
    /// The address of the gateway for HTTPS. Gateways may have listeners for TLS passthrough at its port; may be given
    /// several times. [default: none]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub(crate) listen_https: Vec<SocketAddr>,
    #[command(flatten)]
    pub(crate) configmaps: ConfigMapArgs,
    #[command(flatten)]
    pub(crate) class: ClassArgs,
}

impl ManifestArgs {
    /// The options by which the objects of a directory are read.
    pub(crate) fn options(&self, admin: SocketAddr) -> TranslateOptions {
        let ports = Ports { http: &self.listen, https: &self.listen_https, admin };
        let mut options = translate_options(&self.class, Settings::default(), ports);
        self.configmaps.apply(&mut options);
        options.read_globals = configmap::reader_of_defaults();
        options
    }
}

/// The Ingresses and Gateways to serve.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Classes")]
pub(crate) struct ClassArgs {
    /// The class of the Ingresses to serve. The gateway also serves every IngressClass with the controller
    /// sluicegate.dev/ingress-controller.
    #[arg(long, value_name = "NAME", default_value = "sluicegate")]
    pub(crate) ingress_class: String,
    /// Serve Ingresses without a class, even if IngressClasses exist and none is the default.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true")]
    pub(crate) watch_ingress_without_class: bool,
    /// The class of the Gateways to serve if no GatewayClass has this name. The gateway also serves every GatewayClass
    /// with the controller sluicegate.dev/gateway-controller.
    #[arg(long, value_name = "NAME", default_value = "sluicegate")]
    pub(crate) gateway_class: String,
    /// The IP address for listeners of Gateways without spec.addresses. Each listener sets its own port; may be given
    /// several times.
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(crate) gateway_address: Vec<IpAddr>,
    /// The ports of a load balancer that lead to the ports of --listen, such as 80. An HTTP listener of a Gateway at such a
    /// port shares the addresses of --listen with the Ingresses. Comma separated [default: none]
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    pub(crate) published_http_ports: Vec<u16>,
    /// The ports of a load balancer that lead to the ports of --listen-https, such as 443. An HTTPS listener of a Gateway, or a
    /// TLS listener with mode Passthrough, at such a port shares the addresses of --listen-https with the Ingresses. Comma
    /// separated [default: none]
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    pub(crate) published_https_ports: Vec<u16>,
    /// Serve Ingresses without the annotations of ingress-nginx that restrict access, which the gateway does not read:
    /// auth-*, limit-*, satisfy, whitelist-source-range, allowlist-source-range and denylist-source-range. By default
    /// the routes of such Ingresses respond with 503.
    #[arg(long)]
    pub(crate) ignore_nginx_access_annotations: bool,
    /// Serve the Ingresses of ingress-nginx as ingress-nginx does, with its annotations: the Ingresses of IngressClasses
    /// with the controller of --controller-class or the controller sluicegate.dev/ingress-nginx, and the Ingresses of
    /// class nginx if no IngressClass has this name. With --ingress-class, the class of this option replaces nginx.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true")]
    pub(crate) ingress_nginx_compatibility: bool,
    /// The prefix of the annotations of ingress-nginx. Only with --ingress-nginx-compatibility.
    #[arg(long, value_name = "PREFIX", default_value = "nginx.ingress.kubernetes.io")]
    pub(crate) annotations_prefix: String,
    /// The controller of the IngressClasses to serve as ingress-nginx does. Only with --ingress-nginx-compatibility.
    #[arg(long, value_name = "NAME", default_value = "k8s.io/ingress-nginx")]
    pub(crate) controller_class: String,
    /// The Service for requests that no rule of ingress-nginx matches, and for error pages of its Ingresses: its first
    /// TCP port. Only with --ingress-nginx-compatibility. [default: such requests receive 404]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object_name)]
    pub(crate) default_backend_service: Option<ObjectName>,
}

impl ClassArgs {
    /// The dialect of ingress-nginx, if it is enabled.
    pub(crate) fn ingress_nginx(&self) -> Option<IngressNginx> {
        self.ingress_nginx_compatibility.then(|| self.dialect())
    }

    /// The class of --ingress-class in place of the class nginx.
    pub(crate) fn named_class(&self) -> Option<&str> {
        Some(&*self.ingress_class).filter(|class| *class != "sluicegate")
    }

    /// The dialect of ingress-nginx.
    pub(crate) fn dialect(&self) -> IngressNginx {
        let class = self.named_class().map_or(IngressNginx::default().ingress_class, str::to_owned);
        let prefix = self.annotations_prefix.trim_end_matches('/').to_owned();
        let mut dialect = IngressNginx::new(prefix, self.controller_class.clone(), class);
        dialect.default_backend.clone_from(&self.default_backend_service);
        dialect
    }
}

/// The options of a command that prints what running gateways serve.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// The method of the request.
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    pub(crate) method: String,
    /// A header of the request; may be given several times.
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// The address from which the connection comes: of the client, or of a trusted proxy, whose X-Forwarded-For then counts.
    /// [default: unknown]
    #[arg(long, value_name = "IP")]
    pub(crate) from: Option<IpAddr>,
    /// A file with the client's certificate in PEM format. Only the first certificate is used. [default: none]
    #[arg(long, value_name = "FILE")]
    pub(crate) client_certificate: Option<PathBuf>,
    /// Explain with the objects of this directory, without a running gateway. The health of endpoints is then unknown.
    #[arg(long, value_name = "DIR")]
    pub(crate) manifests: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) manifest: ManifestArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Explain a request that the gateway refused, by its ID (request_id in the access log), in place of a URL.
    #[arg(long, value_name = "ID", conflicts_with_all = ["url", "manifests"])]
    pub(crate) request_id: Option<String>,
    /// The URL of the request, such as `https://shop.example/cart?id=1`.
    #[arg(required_unless_present = "request_id")]
    pub(crate) url: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ReadyArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// The name of the pod to ask. The command exits with 1 if another pod responds. [default: any pod]
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub(crate) pod_name: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Log")]
pub(crate) struct LogArgs {
    /// The log level: error, warn, info, debug or off. Parts of the program can have levels of their own, such
    /// as info,sluicegate_control=debug. The log goes to standard error.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        value_parser = filter,
        default_value = "info",
        env = "SLUICEGATE_LOG"
    )]
    log: Targets,
    /// The format of log lines.
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl LogArgs {
    pub(crate) fn init(&self) {
        let has_colours = matches!(self.log_format, LogFormat::Text) && io::stderr().is_terminal();
        let lines =
            tracing_subscriber::fmt::layer().with_writer(move || Lines::new(io::stderr(), has_colours));
        let subscriber = tracing_subscriber::registry().with(self.log.clone());
        match self.log_format {
            LogFormat::Json => subscriber.with(lines.json()).init(),
            LogFormat::Text => subscriber.with(lines.with_target(false).with_ansi(has_colours)).init(),
        }
    }
}

/// A level for all parts, and `PART=LEVEL` for single parts, separated by commas.
fn filter(text: &str) -> Result<Targets, String> {
    let level = |text: &str| {
        let example = "write info, or info,sluicegate_control=debug";
        let refused = || format!("{text:?} is not a level (error, warn, info, debug, off); {example}");
        // The library parses the empty text as `error`.
        let level = text.trim().parse::<LevelFilter>().ok().filter(|_| !text.is_empty());
        level.ok_or_else(refused)
    };
    // The gateway itself logs problems of the Kubernetes API, once instead of at each attempt, and counts the clients that flood it.
    let quiet =
        [("kube_client", LevelFilter::OFF), ("kube_runtime", LevelFilter::OFF), ("h2", LevelFilter::ERROR)];
    let mut filter = Targets::new().with_default(LevelFilter::INFO).with_targets(quiet);
    for part in text.split(',') {
        filter = match part.split_once('=') {
            Some((target, of_target)) => filter.with_target(target.trim(), level(of_target)?),
            None => filter.with_default(level(part)?),
        };
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn definition_of_the_command_line_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_lists_options_of_the_gateway_under_the_heading_gateway() {
        let command = Cli::command();
        for name in ["serve", "data-plane"] {
            let serve = command.find_subcommand(name).expect(name);
            let listen = serve.get_arguments().find(|option| option.get_long() == Some("listen"));
            assert_eq!(listen.and_then(clap::Arg::get_help_heading), Some("Gateway"), "{name}");
        }
    }

    #[test]
    fn log_filter_sets_the_log_level_of_all_or_of_single_crates() {
        let parts = |text: &str| filter(text).map(|filter| filter.to_string());
        assert_eq!(parts("warn"), Ok("kube_runtime=off,kube_client=off,h2=error,warn".into()));
        assert_eq!(
            parts("debug,hyper=off"),
            Ok("kube_runtime=off,kube_client=off,hyper=off,h2=error,debug".into())
        );
        assert_eq!(parts("kube_client=debug"), Ok("kube_runtime=off,kube_client=debug,h2=error,info".into()));
        assert_eq!(
            parts("sluicegate_proxy=trace"),
            Ok("sluicegate_proxy=trace,kube_runtime=off,kube_client=off,h2=error,info".into()),
            "the other levels keep their defaults"
        );
        for wrong in ["foo=bar", "inof", "", "info,", "debug=info=warn"] {
            let error = parts(wrong).expect_err(wrong);
            assert!(
                error.contains("is not a level (error, warn,") && error.contains("write info"),
                "{error}"
            );
        }
        let line = ["sluicegate", "--log", "foo=bar", "check", "x"];
        assert_eq!(Cli::try_parse_from(line).expect_err("no level").exit_code(), 2);
    }
}
