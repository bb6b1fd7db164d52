//! The laboratory of Sluicegate: measures how a gateway keeps its users while everything changes.
//!
//! | module | what |
//! |---|---|
//! | [`cli`] | the command line |
//! | [`backend`] | `sluicegate-lab backend`: a back end, the pod of experiments |
//! | [`load`] | `sluicegate-lab load`: a constant-rate, open-loop load |
//! | [`report`] | `sluicegate-lab report`: what was found, to be looked at |
//! | [`published`] | what published studies found |
//! | [`socket`] | sockets that block |

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
            // As clap does for what it does not understand.
            ExitCode::from(2)
        }
    }
}

/// Tells the user what went wrong.
#[expect(clippy::print_stderr, reason = "this is the command line's own voice")]
fn complain(message: &str) {
    eprintln!("sluicegate-lab: {message}");
}
