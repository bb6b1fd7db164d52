//! The command line.

use clap::{Parser, Subcommand};

use crate::load::LoadArgs;
use crate::report::ReportArgs;

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
    /// Make the report of stored results: a page, a summary and plots.
    Report(ReportArgs),
}
