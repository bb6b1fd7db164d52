//! The formats of what commands print.

use clap::{Args, ValueEnum};
use serde::Serialize;
use sluicegate_control::write_yaml;

/// The option for the format.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OutputArgs {
    /// The format.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// The format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines for people.
    Text,
    /// Lines for people, with more columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

impl OutputArgs {
    pub(crate) fn is_for_people(self) -> bool {
        matches!(self.output, Format::Text | Format::Wide)
    }

    pub(crate) fn is_wide(self) -> bool {
        self.output == Format::Wide
    }

    /// Prints a document. `text` makes its lines for people: of all columns or not.
    pub(crate) fn print(
        self,
        document: &impl Serialize,
        text: impl FnOnce(bool) -> String,
    ) -> anyhow::Result<()> {
        match self.output {
            Format::Text => crate::say(text(false).trim_end()),
            Format::Wide => crate::say(text(true).trim_end()),
            Format::Json => crate::say(&serde_json::to_string_pretty(document)?),
            Format::Yaml => crate::say(write_yaml(&serde_json::to_value(document)?).trim_end()),
        }
        Ok(())
    }
}
