//! What is wrong with an object, and where it was written.

use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use sluicegate_model::text::{OneLine, one_line};

use crate::locate;
use crate::object::ObjectRef;

/// How bad a [`Problem`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Something that was asked for is not done.
    Error,
    /// All is done that can be, and it may not be what was meant.
    Warning,
    /// Nothing is wrong, and it is good to know.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// Where an object was written.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The manifest, or the directory of manifests; nothing for objects of a cluster.
    pub file: Option<Arc<Path>>,
    /// The first line of the document, from 1; 0 where there is none.
    pub line: u32,
    /// Where to look for the line of a field.
    pub(crate) document: Option<Written>,
}

impl Origin {
    /// A cluster, where objects are known by their names alone.
    pub(crate) const CLUSTER: Self = Self { file: None, line: 0, document: None };

    /// A whole file or directory, without a line.
    pub(crate) fn file(file: &Arc<Path>) -> Self {
        Self { file: Some(file.clone()), line: 0, document: None }
    }

    /// The line of `field`, or of the nearest thing around it that is written; found by reading the document
    /// again, so it costs about as much as parsing it.
    pub(crate) fn line_of(&self, field: &str) -> u32 {
        self.document.as_ref().and_then(|document| document.line_of(field)).unwrap_or(self.line)
    }
}

/// An object as it was written: a document of a manifest, or a part of one.
#[derive(Clone)]
pub(crate) struct Written {
    pub(crate) text: Arc<str>,
    /// The line of the file on which `text` begins, from 1.
    pub(crate) line: u32,
    /// Which part of it is the object: empty, or `items[3]` of a `List`.
    pub(crate) part: Box<str>,
}

impl Written {
    fn line_of(&self, field: &str) -> Option<u32> {
        let path = match (&*self.part, field) {
            ("", field) => field.to_owned(),
            (part, "") => part.to_owned(),
            (part, field) => format!("{part}.{field}"),
        };
        Some(self.line + locate::line(&self.text, &path)? - 1)
    }
}

/// Never shows the text, which may be a Secret's.
impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Written").field("line", &self.line).field("part", &self.part).finish_non_exhaustive()
    }
}

/// Something wrong in an object or a file, and what to do about it.
#[derive(Clone, Debug)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Where the object was written.
    pub origin: Origin,
    /// The object, if the manifest could be read far enough to know it.
    pub object: Option<ObjectRef>,
    /// Which field of it, such as `spec.rules[0].http.paths[1].pathType`; empty for the whole.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl Problem {
    /// What is wrong with an option of the command line, such as `--configmap`.
    pub(crate) fn of_option(option: &str, message: String) -> Self {
        let origin = Origin::file(&Path::new(option).into());
        Self { severity: Severity::Warning, origin, object: None, field: String::new(), message }
    }

    /// What is wrong within its object, in one line: `field: what is wrong`.
    pub(crate) fn within(&self) -> String {
        match &*self.field {
            "" => one_line(&self.message).into_owned(),
            field => one_line(&format!("{field}: {}", self.message)).into_owned(),
        }
    }

    /// The line of the offending field, or of the nearest thing around it that is written; 0 where there is
    /// none. It is looked up at each call.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.origin.line_of(&self.field)
    }
}

/// Two problems are one when they say the same of the same object; the lines may have moved.
impl PartialEq for Problem {
    fn eq(&self, other: &Self) -> bool {
        self.severity == other.severity
            && self.origin.file == other.origin.file
            && self.object == other.object
            && self.field == other.field
            && self.message == other.message
    }
}

impl Eq for Problem {}

impl Hash for Problem {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.severity, &self.origin.file, &self.object, &self.field, &self.message).hash(state);
    }
}

/// `file:line: Kind namespace/name: field: what is wrong`, without a file for objects of a cluster. It is one line: users choose the
/// names of files, objects and annotations, and none of these may forge a second line.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = OneLine(f);
        if let Some(file) = &self.origin.file {
            write!(line, "{}:", file.display())?;
            match self.line() {
                0 => {}
                number => write!(line, "{number}:")?,
            }
            line.write_str(" ")?;
        }
        if let Some(object) = &self.object {
            write!(line, "{object}: ")?;
        }
        if !self.field.is_empty() {
            write!(line, "{}: ", self.field)?;
        }
        line.write_str(&self.message)
    }
}

/// What is wrong inside one object, said without knowing where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) field: String,
    pub(crate) message: String,
}

/// What was found while an object was checked.
#[derive(Debug, Default)]
pub(crate) struct Findings(pub(crate) Vec<Finding>);

impl Findings {
    pub(crate) fn error(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.add(Severity::Error, field.into(), message.into());
    }

    pub(crate) fn warning(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.add(Severity::Warning, field.into(), message.into());
    }

    fn add(&mut self, severity: Severity, field: String, message: String) {
        self.0.push(Finding { severity, field, message });
    }

    /// Whether something that was asked for is not done.
    pub(crate) fn has_errors(&self) -> bool {
        self.0.iter().any(|finding| finding.severity == Severity::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;

    #[test]
    fn control_characters_in_names_cannot_break_a_problem_line() {
        let forged = "x\n2026-01-01T00:00:00Z ERROR forged\u{2028}\u{85}\u{202e}\u{1b}[2J";
        let problem = Problem {
            severity: Severity::Warning,
            origin: Origin::file(&Path::new(&format!("{forged}.yaml")).into()),
            object: Some(ObjectRef { kind: Kind::Ingress, namespace: forged.into(), name: forged.into() }),
            field: format!("metadata.annotations[{forged}]"),
            message: format!("{forged} is odd"),
        };
        for text in [problem.to_string(), problem.within()] {
            assert!(!text.contains(sluicegate_model::text::is_hidden), "{text:?}");
            assert!(
                text.contains("x\\n2026-01-01T00:00:00Z ERROR forged\\u2028\\u0085\\u202e\\u001b[2J"),
                "{text:?}"
            );
        }
    }
}
