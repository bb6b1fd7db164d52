//! The command line.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::echo::EchoArgs;
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
    /// Run the gateway on a directory of manifests, and follow their changes.
    Serve(Box<ServeArgs>),
    /// Check manifests: exit with 1 if something is wrong, and print the routes that would be served.
    Check(CheckArgs),
    /// Print the routes that a running gateway serves.
    Routes(AdminArgs),
    /// Print the upstreams of a running gateway: each endpoint's conditions, health and load.
    Upstreams(AdminArgs),
    /// Run a back end that answers about 1 KB of metadata, or what the URL asks for.
    Echo(EchoArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A directory of manifests with its sub-folders, or one file.
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) class: ClassArgs,
    /// Fail on warnings too.
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Which Ingresses are ours.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClassArgs {
    /// Serve Ingresses of this class, beside those whose IngressClass names the controller
    /// sluicegate.dev/ingress-controller.
    #[arg(long, value_name = "NAME", default_value = "sluicegate")]
    pub(crate) ingress_class: String,
    /// Serve Ingresses without a class although there are IngressClasses and none is the default.
    #[arg(long)]
    pub(crate) watch_ingress_without_class: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// The admin address of the running gateway.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901")]
    pub(crate) admin: SocketAddr,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// What is logged to standard error: error, warn, info, debug, trace, or a filter such as
    /// info,sluicegate_control=debug.
    #[arg(long, global = true, value_name = "FILTER", default_value = "info", env = "SLUICEGATE_LOG")]
    log: String,
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
        let filter = EnvFilter::try_new(&self.log).unwrap_or_else(|error| {
            crate::complain(&format!("--log {:?} is not a filter ({error}); logging at info", self.log));
            EnvFilter::new("info")
        });
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Json => subscriber.json().init(),
            LogFormat::Text => {
                subscriber.with_target(false).with_ansi(std::io::stderr().is_terminal()).init();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
