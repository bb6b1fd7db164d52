//! Sluicegate: a Kubernetes ingress controller and API gateway that applies every change without losing a request. This crate
//! is the command line and the wiring, and the only crate that depends on both planes.
//!
//! | module | what |
//! |---|---|
//! | [`address`] | addresses and networks in the notation of the command line |
//! | [`analytics`] | analytics as options, and their way to the store |
//! | [`audit`] | the audit trail as options, and `sluicegate audit` |
//! | [`build`] | the version and the commit |
//! | [`cli`] | the command line |
//! | [`log`] | one line of the log for each event |
//! | [`configmap`] | global settings of a ConfigMap |
//! | [`flags`] | flags of ingress-nginx that Sluicegate does not have |
//! | [`settings`] | limits and timeouts as options |
//! | [`tls`] | TLS as options |
//! | [`gateway`] | the data plane as a process |
//! | [`serve`] | `sluicegate serve` |
//! | [`control_plane`] | `sluicegate control-plane` |
//! | [`dashboard`] | the dashboard and the developer portal, and what they show of the control plane |
//! | [`changes`] | the changes of the dashboard and of the portal |
//! | [`documents`] | documents of APIs at URLs, as options |
//! | [`data_plane`] | `sluicegate data-plane` |
//! | [`webhook`] | the admission webhook, as options |
//! | [`source`] | the source of routes, as options |
//! | [`signals`] | the effect of signals on a gateway |
//! | [`takeover`] | the takeover of sockets from another process |
//! | [`systemd`] | the report to systemd that the process serves |
//! | [`capability`] | the capability for ports below 1024 |
//! | [`check`] | `sluicegate check` |
//! | [`convert`] | `sluicegate convert` |
//! | [`migrate`] | `sluicegate migrate` |
//! | [`values`] | `sluicegate migrate values` |
//! | [`gateways`] | the running gateways that a command asks |
//! | [`output`] | the formats of answers: text, wide, JSON, YAML |
//! | [`status`] | `sluicegate status` |
//! | [`top`] | `sluicegate apis` and `sluicegate top` |
//! | [`show`] | `sluicegate routes`, `sluicegate upstreams`, `sluicegate ready` and `sluicegate crds` |
//! | [`manual`] | `sluicegate completions` and `sluicegate man-pages` |

mod acme;
mod address;
mod analytics;
mod api;
mod audit;
mod build;
mod capability;
mod changes;
mod check;
mod cli;
mod configmap;
mod control_plane;
mod convert;
mod dashboard;
mod data_plane;
mod diff;
mod documents;
mod flags;
mod gateway;
mod gateways;
mod help;
mod key;
mod log;
mod manual;
mod migrate;
mod output;
mod quotas;
mod serve;
mod settings;
mod show;
mod signals;
mod source;
mod status;
mod systemd;
mod takeover;
mod tls;
mod top;
mod values;
mod webhook;

use std::io::{self, Write as _};
use std::process::ExitCode;

use sluicegate_model::text::one_line;

use cli::Command;
use migrate::Migrate;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(refusal) = flags::refusal(std::env::args_os()) {
        complain(&format!("error: {refusal}"));
        return ExitCode::from(2);
    }
    let cli = help::parse();
    cli.log.init();
    capability::raise_bind();
    let done = match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::ControlPlane(args) => control_plane::run(*args),
        Command::DataPlane(args) => data_plane::run(*args),
        Command::Check(args) => match check::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Diff(args) => return diff::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Api(command) => match api::run(&command) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Key(command) => match key::run(&command) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Migrate(Migrate::Report(args)) => migrate::report(&args),
        Command::Migrate(Migrate::Diff(args)) => match migrate::diff(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Migrate(Migrate::Values(args)) => match values::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Crds => {
            show::definitions();
            Ok(())
        }
        Command::Annotations => {
            say(sluicegate_control::annotations().trim_end());
            Ok(())
        }
        Command::Completions(args) => manual::completions(&args),
        Command::ManPages(args) => manual::man_pages(&args),
        Command::Ready(args) => show::ready(&args),
        Command::Routes(args) => show::routes(&args),
        Command::Explain(args) => show::explain(&args),
        Command::Upstreams(args) => show::upstreams(&args),
        Command::Status(args) => match status::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Apis(args) => top::apis(&args),
        Command::Top(args) => top::top(&args),
        Command::Audit(args) => audit::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints an error as one line: external names may hold line breaks.
#[expect(clippy::print_stderr, reason = "this is the command line's own voice")]
fn complain(message: &str) {
    eprintln!("sluicegate: {}", one_line(message));
}

/// Prints the requested output. The reader may stop before the end, as `head` does.
fn say(text: &str) {
    if let Err(error) = writeln!(io::stdout(), "{text}")
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        complain(&format!("cannot write to standard output: {error}"));
    }
}
