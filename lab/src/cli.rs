//! The command line.

use clap::{Parser, Subcommand};

use crate::backend::BackendArgs;
use crate::forward::ForwardArgs;
use crate::load::LoadArgs;
use crate::report::ReportArgs;
use crate::run::RunArgs;

/// Measures how gateways serve requests while routes and endpoints change.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send requests at a constant rate, and measure latency from the time when each request was due.
    Load(Box<LoadArgs>),
    /// Forward bytes without HTTP: the lowest cost that a proxy can have.
    Forward(ForwardArgs),
    /// List the built-in experiments.
    Experiments,
    /// Run an experiment: the same load on each gateway in turn, while routes and endpoints change.
    Run(Box<RunArgs>),
    /// Run an HTTP server that responds with about 1 KB of metadata, or as the URL asks.
    Backend(Box<BackendArgs>),
    /// Make the report of stored results: a page, a summary and plots.
    Report(ReportArgs),
}
