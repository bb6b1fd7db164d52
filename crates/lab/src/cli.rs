//! The command line.

use clap::{Parser, Subcommand};

use crate::backend::BackendArgs;
use crate::load::LoadArgs;

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
    /// Run a back end that answers about 1 KB of metadata, or what the URL asks for.
    Backend(Box<BackendArgs>),
}
