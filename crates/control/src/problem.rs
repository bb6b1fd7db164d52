//! Problems of objects, and the places where the objects were written.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use sluicegate_model::text::{OneLine, one_line};

use crate::locate;
use crate::object::ObjectRef;

/// The severity of a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The gateway does not do all that the object asks for.
    Error,
    /// The gateway does all that it can, but the result may differ from the user's intention.
    Warning,
    /// Nothing is wrong; the user should know.
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

/// The place where an object was written.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The manifest, or the directory of manifests; `None` for objects of a cluster.
    pub file: Option<Arc<Path>>,
    /// The first line of the document, from 1; 0 without a document.
    pub line: u32,
    /// The text for the search for the line of a field.
    pub(crate) document: Option<Written>,
}

impl Origin {
    /// A cluster, which knows objects by their names alone.
    pub(crate) const CLUSTER: Self = Self { file: None, line: 0, document: None };

    /// A whole file or directory, without a line.
    pub(crate) fn file(file: &Arc<Path>) -> Self {
        Self { file: Some(file.clone()), line: 0, document: None }
    }

    /// The line of `field`, or of the nearest enclosing field in the text. The search reads the document again, so it
    /// costs about as much as parsing.
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
    /// The part of the document with the object: empty, or `items[3]` of a `List`.
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

/// Never shows the text, which may be the text of a Secret.
impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Written").field("line", &self.line).field("part", &self.part).finish_non_exhaustive()
    }
}

/// An error in an object or a file, and the remedy.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The severity.
    pub severity: Severity,
    /// The place where the object was written.
    pub origin: Origin,
    /// The object, if the manifest could be read far enough to know it.
    pub object: Option<ObjectRef>,
    /// The field of the object, such as `spec.rules[0].http.paths[1].pathType`; empty for the whole object.
    pub field: String,
    /// The error and the remedy.
    pub message: String,
    /// The other object with the error, such as a missing Secret, if the problem is an error only because of that object.
    pub cause: Option<ObjectRef>,
}

impl Problem {
    /// A problem with an option of the command line, such as `--configmap`.
    pub(crate) fn of_option(option: &str, message: String) -> Self {
        let origin = Origin::file(&Path::new(option).into());
        Self { severity: Severity::Warning, origin, object: None, field: String::new(), message, cause: None }
    }

    /// A problem with a cluster, or with an object of a cluster as a whole.
    pub(crate) fn of_cluster(severity: Severity, object: Option<&ObjectRef>, message: String) -> Self {
        let (origin, object) = (Origin::CLUSTER, object.cloned());
        Self { severity, origin, object, field: String::new(), message, cause: None }
    }

    /// The problem with the object whose state is the cause.
    pub(crate) fn caused_by(self, object: &ObjectRef) -> Self {
        Self { cause: Some(object.clone()), ..self }
    }

    /// The problem without its object, in one line: `field: message`.
    pub(crate) fn within(&self) -> String {
        match &*self.field {
            "" => one_line(&self.message).into_owned(),
            field => one_line(&format!("{field}: {}", self.message)).into_owned(),
        }
    }

    /// The line of the faulty field, or of the nearest enclosing field in the text; 0 without a document. Each call
    /// searches again.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.origin.line_of(&self.field)
    }
}

/// Two problems are equal if they have the same message about the same object; the lines may have moved.
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

/// `file:line: Kind namespace/name: field: message`, without a file for objects of a cluster. The text is one line:
/// users choose the names of files, objects and annotations, and no name may forge a second line.
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

/// An error inside one object, without the place where the object was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) field: String,
    /// The error and the remedy.
    pub(crate) message: String,
    /// How the gateway treats the object without the field, if no older version of the object stays in service. Empty: the message does
    /// not say it.
    otherwise: Cow<'static, str>,
}

/// The ending of the message of an error in a version that is not in service, because an older version is.
const KEPT: &str = " (the last valid version stays in service)";

impl Finding {
    /// The message, and what the gateway does. `is_kept`: an older version of the object stays in service.
    pub(crate) fn in_words(&self, is_kept: bool) -> String {
        let Self { message, otherwise, .. } = self;
        match (self.severity == Severity::Error && is_kept, &**otherwise) {
            (true, _) => format!("{message}{KEPT}"),
            (false, "") => message.clone(),
            (false, otherwise) => format!("{message}; {otherwise}"),
        }
    }
}

/// The findings of the check of an object.
#[derive(Debug, Default)]
pub(crate) struct Findings(pub(crate) Vec<Finding>);

impl Findings {
    pub(crate) fn error(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.error_or(field, message, "");
    }

    /// An error, and what the gateway does if no older version of the object stays in service.
    pub(crate) fn error_or(
        &mut self,
        field: impl Into<String>,
        message: impl Into<String>,
        otherwise: impl Into<Cow<'static, str>>,
    ) {
        self.add(Severity::Error, field.into(), message.into(), otherwise.into());
    }

    pub(crate) fn warning(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.add(Severity::Warning, field.into(), message.into(), "".into());
    }

    fn add(&mut self, severity: Severity, field: String, message: String, otherwise: Cow<'static, str>) {
        self.0.push(Finding { severity, field, message, otherwise });
    }

    /// Whether a finding is an error: the gateway does not do all that the object asks for.
    pub(crate) fn has_errors(&self) -> bool {
        self.0.iter().any(|finding| finding.severity == Severity::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;

    #[test]
    fn problem_with_control_characters_in_names_is_a_single_line() {
        let forged = "x\n2026-01-01T00:00:00Z ERROR forged\u{2028}\u{85}\u{202e}\u{1b}[2J";
        let problem = Problem {
            severity: Severity::Warning,
            origin: Origin::file(&Path::new(&format!("{forged}.yaml")).into()),
            object: Some(ObjectRef { kind: Kind::Ingress, namespace: forged.into(), name: forged.into() }),
            field: format!("metadata.annotations[{forged}]"),
            message: format!("{forged} is odd"),
            cause: None,
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
