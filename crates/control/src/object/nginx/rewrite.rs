//! Regular expressions of paths, and rewrites.

use super::Meaning::Sets;
use super::Row;
use crate::object::ingress::RulePath;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `use-regex`.
    use_regex: bool,
    /// `rewrite-target`; empty without the annotation.
    pub(crate) target: Box<str>,
}

impl Settings {
    /// Whether this path turns all paths of its host into regular expressions.
    pub(crate) fn uses_regex(&self, path: &RulePath) -> bool {
        self.use_regex || !self.target.is_empty() && *self.target != *path.written
    }
}

pub(super) const ROWS: &[Row] = &[Row {
    name: "use-regex",
    restricts: false,
    meaning: Sets(|settings, value| {
        settings.rewrite.use_regex = value.switch()?;
        Ok(())
    }),
    sets: "Matches all paths of the hosts, of all Ingresses, as regular expressions without regard to case.",
    default: "`false`",
}];
