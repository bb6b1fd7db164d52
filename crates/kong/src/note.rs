//! Messages about a file.

use std::fmt;

/// The severity of a [`Note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Kong rejects the file, or the file has no clear meaning.
    Error,
    /// A part of the file has no effect here.
    Unconverted,
}

/// A message about a part of the file: `entity: what`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// The line of the part, from 1.
    pub line: u32,
    /// The severity.
    pub severity: Severity,
    /// The entity, such as `route "shop"`.
    pub entity: String,
    /// The fault and the remedy.
    pub message: String,
}

/// The note without its line.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.entity {
            "" => f.write_str(&self.message),
            entity => write!(f, "{entity}: {}", self.message),
        }
    }
}

/// The notes of a file, in the order in which they were found.
#[derive(Clone, Debug, Default)]
pub struct Notes(pub Vec<Note>);

impl Notes {
    /// Adds an error.
    pub fn error(&mut self, line: u32, entity: &str, message: impl Into<String>) {
        self.add(Severity::Error, line, entity, message.into());
    }

    /// Adds a part that is not converted.
    pub fn unconverted(&mut self, line: u32, entity: &str, message: impl Into<String>) {
        self.add(Severity::Unconverted, line, entity, message.into());
    }

    fn add(&mut self, severity: Severity, line: u32, entity: &str, message: String) {
        self.0.push(Note { line, severity, entity: entity.to_owned(), message });
    }

    /// Whether a note is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|note| note.severity == Severity::Error)
    }
}
