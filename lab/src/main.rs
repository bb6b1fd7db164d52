//! The laboratory of Sluicegate: measures gateways under load while routes and endpoints change.
//!
//! | module | content |
//! |---|---|
//! | [`cli`] | the command line |
//! | [`backend`] | `sluicegate-lab backend`: a backend, the pod of experiments |
//! | [`load`] | `sluicegate-lab load`: a constant-rate, open-loop load |
//! | [`report`] | `sluicegate-lab report`: the results for readers |
//! | [`published`] | the results of published studies |
//! | [`socket`] | blocking sockets |

mod backend;
mod certificate;
mod cli;
mod experiment;
mod forward;
mod gateway;
mod load;
mod published;
mod report;
mod results;
mod run;
mod socket;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Load(args) => load::run(*args),
        Command::Forward(args) => forward::run(args),
        Command::Experiments => experiment::list(),
        Command::Run(args) => run::run(&args),
        Command::Backend(args) => backend::run(&args),
        Command::Report(args) => report::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("{error:#}"));
            // The exit status of clap for invalid options.
            ExitCode::from(2)
        }
    }
}

/// Prints an error for the user.
#[expect(clippy::print_stderr, reason = "this is the command line's own voice")]
fn complain(message: &str) {
    eprintln!("sluicegate-lab: {message}");
}
