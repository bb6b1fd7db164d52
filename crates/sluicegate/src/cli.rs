//! The command line.

use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::address::{listen_address, local_address};
use crate::control::ControlArgs;
use crate::log::Lines;
use crate::proxy::ProxyArgs;
use crate::serve::ServeArgs;

/// A Kubernetes ingress controller and API gateway that follows every change of its routes and back ends
/// without losing a request.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "Try it: sluicegate check DIR, then sluicegate serve --manifests DIR."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway on a Kubernetes cluster or a directory of manifests, and follow their changes.
    Serve(Box<ServeArgs>),
    /// Run the control plane alone: tell data planes on other machines what to serve.
    Control(Box<ControlArgs>),
    /// Run the data plane alone: serve what a control plane says.
    Proxy(Box<ProxyArgs>),
    /// Check manifests: exit with 1 if something is wrong, and print the routes that would be served.
    Check(CheckArgs),
    /// Print the CustomResourceDefinitions of SecurityPolicy, Consumer, RateLimitPolicy and TrafficPolicy, for kubectl apply -f -.
    Crds,
    /// Ask a running gateway whether it wants traffic: exit with 1 if not. For probes of pods on the network of a node, where
    /// two of them listen at one address during an update.
    Ready(ReadyArgs),
    /// Print the routes that a running gateway serves.
    Routes(AdminArgs),
    /// Print the upstreams of a running gateway: each endpoint's conditions, health and load.
    Upstreams(AdminArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A directory of manifests with its sub-folders, or one file.
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) class: ClassArgs,
    /// Where serve is to serve HTTP: no Gateway can have its ports.
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address, default_value = "0.0.0.0:8080")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Where serve is to serve HTTPS: what Gateways pass on at its ports is passed on there. [default: nowhere]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub(crate) listen_https: Vec<SocketAddr>,
    /// Where the admin interface of serve is to be: no Gateway can have its port.
    #[arg(long, value_name = "ADDRESS", value_parser = local_address, default_value = "127.0.0.1:9901")]
    pub(crate) admin: SocketAddr,
    /// Fail on warnings too.
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Which Ingresses and Gateways are ours.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClassArgs {
    /// Serve Ingresses of this class, beside those whose IngressClass names the controller
    /// sluicegate.dev/ingress-controller.
    #[arg(long, value_name = "NAME", default_value = "sluicegate")]
    pub(crate) ingress_class: String,
    /// Serve Ingresses without a class although there are IngressClasses and none is the default.
    #[arg(long)]
    pub(crate) watch_ingress_without_class: bool,
    /// Serve Gateways of this class where there is no GatewayClass of that name, beside those whose GatewayClass names
    /// the controller sluicegate.dev/gateway-controller.
    #[arg(long, value_name = "NAME", default_value = "sluicegate")]
    pub(crate) gateway_class: String,
    /// Where the listeners of Gateways without spec.addresses listen, at the ports that they name; may be given several
    /// times.
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(crate) gateway_address: Vec<IpAddr>,
    /// Serve Ingresses without the annotations of ingress-nginx that restrict access and are not read: auth-*, limit-*, satisfy,
    /// whitelist-source-range, allowlist-source-range and denylist-source-range. [default: their routes respond with 503]
    #[arg(long)]
    pub(crate) ignore_nginx_access_annotations: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// The admin address of the running gateway.
    #[arg(long, value_name = "ADDRESS", value_parser = local_address, default_value = "127.0.0.1:9901")]
    pub(crate) admin: SocketAddr,
}

#[derive(Debug, Args)]
pub(crate) struct ReadyArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// The pod that is meant: another one is not ready for it. [default: whoever answers]
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub(crate) pod_name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// What is logged to standard error: error, warn, info, debug, trace or off, and other levels for parts of
    /// the program, such as info,sluicegate_control=debug.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        value_parser = filter,
        default_value = "info",
        env = "SLUICEGATE_LOG"
    )]
    log: Targets,
    /// How log lines look.
    #[arg(long, global = true, value_enum, default_value = "text")]
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

/// A level for all, and `PART=LEVEL` for parts, separated by commas.
fn filter(text: &str) -> Result<Targets, String> {
    let level = |text: &str| {
        let example = "write it as info or info,sluicegate_control=debug";
        let refused = || format!("{text:?} is not a level (error, warn, info, debug, trace, off); {example}");
        // The library takes nothing for error.
        let level = text.trim().parse::<LevelFilter>().ok().filter(|_| !text.is_empty());
        level.ok_or_else(refused)
    };
    // What it has to say of the Kubernetes API we say ourselves, once and not for each try.
    let quiet = ["kube_client", "kube_runtime"].map(|target| (target, LevelFilter::OFF));
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
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_filter_names_levels_for_all_and_for_parts() {
        let parts = |text: &str| filter(text).map(|filter| filter.to_string());
        assert_eq!(parts("warn"), Ok("kube_runtime=off,kube_client=off,warn".into()));
        assert_eq!(parts("debug,hyper=off"), Ok("kube_runtime=off,kube_client=off,hyper=off,debug".into()));
        assert_eq!(parts("kube_client=debug"), Ok("kube_runtime=off,kube_client=debug,info".into()));
        assert_eq!(
            parts("sluicegate_proxy=trace"),
            Ok("sluicegate_proxy=trace,kube_runtime=off,kube_client=off,info".into()),
            "the rest stays"
        );
        for wrong in ["foo=bar", "inof", "", "info,", "debug=info=warn"] {
            let error = parts(wrong).expect_err(wrong);
            assert!(
                error.contains("is not a level (error, warn,") && error.contains("write it as"),
                "{error}"
            );
        }
        let line = ["sluicegate", "--log", "foo=bar", "check", "x"];
        assert_eq!(Cli::try_parse_from(line).expect_err("no level").exit_code(), 2);
    }
}
