//! Faults of a document.

use std::fmt;

/// The severity of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A part of the document is not served.
    Error,
    /// All is served, but the document may not say what its author intends.
    Warning,
}

/// A fault, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// The place: a JSON Pointer (RFC 6901); empty for the whole document.
    pub pointer: String,
    /// The fault and the remedy.
    pub message: String,
}

impl Finding {
    /// The steps of the pointer, without their escapes.
    pub fn steps(&self) -> impl Iterator<Item = String> {
        self.pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"))
    }
}

/// `#/paths/~1pets/get: message`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}: {}", self.pointer, self.message)
    }
}

/// The faults of a document, at most [`Findings::MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// The maximum number of faults. A document with many more is likely no OpenAPI document.
    pub const MAX: usize = 200;

    /// The faults, in the order of the document.
    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.0.iter()
    }

    /// Whether a part of the document is not served.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|finding| finding.severity == Severity::Error)
    }

    pub(crate) fn error(&mut self, at: &Pointer<'_>, message: impl Into<String>) {
        self.push(Severity::Error, at, message.into());
    }

    pub(crate) fn warning(&mut self, at: &Pointer<'_>, message: impl Into<String>) {
        self.push(Severity::Warning, at, message.into());
    }

    pub(crate) fn warning_at(&mut self, pointer: String, message: String) {
        if self.0.len() < Self::MAX {
            self.0.push(Finding { severity: Severity::Warning, pointer, message });
        }
    }

    fn push(&mut self, severity: Severity, at: &Pointer<'_>, message: String) {
        if self.0.len() < Self::MAX {
            self.0.push(Finding { severity, pointer: at.to_string(), message });
        }
    }
}

/// A place in a document, written down only for a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pointer<'p> {
    Root,
    Field(&'p Self, &'p str),
    Item(&'p Self, usize),
}

impl<'p> Pointer<'p> {
    pub(crate) fn field(&'p self, name: &'p str) -> Self {
        Pointer::Field(self, name)
    }

    pub(crate) fn item(&'p self, index: usize) -> Self {
        Pointer::Item(self, index)
    }
}

impl fmt::Display for Pointer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(parent, name) => write!(f, "{parent}/{}", name.replace('~', "~0").replace('/', "~1")),
            Self::Item(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}
