//! Sluicegate: a Kubernetes ingress controller and API gateway that follows every change without losing a
//! request. This crate is the command line and the wiring; it alone knows both planes.
//!
//! | module | what |
//! |---|---|
//! | [`address`] | addresses and networks as people write them |
//! | [`cli`] | the command line |
//! | [`log`] | one line of the log for each event |
//! | [`configmap`] | global settings of a ConfigMap |
//! | [`settings`] | limits and timeouts as options |
//! | [`tls`] | what is served over TLS, as options |
//! | [`gateway`] | the data plane as a process |
//! | [`serve`] | `sluicegate serve` |
//! | [`control`] | `sluicegate control` |
//! | [`proxy`] | `sluicegate proxy` |
//! | [`source`] | where routes come from, as options |
//! | [`signals`] | what signals ask of a gateway |
//! | [`takeover`] | one process taking over the sockets of another |
//! | [`capability`] | what an image lets a user who is not root do |
//! | [`check`] | `sluicegate check` |
//! | [`show`] | `sluicegate routes`, `sluicegate upstreams`, `sluicegate ready` and `sluicegate crds` |

mod address;
mod capability;
mod check;
mod cli;
mod configmap;
mod control;
mod gateway;
mod log;
mod proxy;
mod serve;
mod settings;
mod show;
mod signals;
mod source;
mod takeover;
mod tls;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use sluicegate_model::text::one_line;

use cli::{Cli, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    cli.log.init();
    capability::raise_bind();
    let done = match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Control(args) => control::run(*args),
        Command::Proxy(args) => proxy::run(*args),
        Command::Check(args) => return check::run(&args),
        Command::Crds => {
            show::definitions();
            Ok(())
        }
        Command::Ready(args) => show::ready(&args),
        Command::Routes(args) => show::routes(&args),
        Command::Upstreams(args) => show::upstreams(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Tells the user what went wrong, in one line: names from outside may hold line breaks.
#[expect(clippy::print_stderr, reason = "this is the command line's own voice")]
fn complain(message: &str) {
    eprintln!("sluicegate: {}", one_line(message));
}

/// Tells the user what was asked for. Whoever reads may stop before the end, as `head` does.
fn say(text: &str) {
    if let Err(error) = writeln!(io::stdout(), "{text}")
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        complain(&format!("cannot write to standard output: {error}"));
    }
}
