//! The command line.

use clap::{Parser, Subcommand};

use crate::backend::BackendArgs;
use crate::forward::ForwardArgs;
use crate::load::LoadArgs;
use crate::report::ReportArgs;
use crate::run::RunArgs;

/// Measures how a gateway keeps its users while everything changes.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send requests at a constant rate, and count latency from when each was due.
    Load(Box<LoadArgs>),
    /// Move bytes and do nothing else: the floor of what a proxy costs.
    Forward(ForwardArgs),
    /// List the experiments that come with the program.
    Experiments,
    /// Carry out an experiment: the same load on each gateway in turn, while everything changes.
    Run(Box<RunArgs>),
    /// Run a back end that answers about 1 KB of metadata, or what the URL asks for.
    Backend(Box<BackendArgs>),
    /// Make the report of stored results: a page, a summary and plots.
    Report(ReportArgs),
}
