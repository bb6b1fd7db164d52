//! The regular expressions of a path.

use std::sync::OnceLock;

use sluicegate_model::rule::{Pattern, PatternError};

type Checked = Result<Pattern, PatternError>;

/// The regular expressions of a path, which are checked once.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    /// `^PATH`.
    anchored: OnceLock<Checked>,
    /// `^PATH/`.
    below: OnceLock<Checked>,
    /// `PATH`.
    anywhere: OnceLock<Checked>,
}

/// The expressions follow from the text of the path.
impl PartialEq for Patterns {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Patterns {
    /// The expression for requests of a location: the text at the begin of the path.
    pub(crate) fn anchored(&self, text: &str) -> Checked {
        self.anchored.get_or_init(|| Pattern::new(format!("^{text}"), true)).clone()
    }

    /// The expression for requests below the path.
    pub(crate) fn below(&self, text: &str) -> Checked {
        let text = text.trim_end_matches('/');
        self.below.get_or_init(|| Pattern::new(format!("^{text}/"), true)).clone()
    }

    /// The expression of a rewrite: the text anywhere in the path.
    pub(crate) fn anywhere(&self, text: &str) -> Checked {
        self.anywhere.get_or_init(|| Pattern::new(text, true)).clone()
    }
}
