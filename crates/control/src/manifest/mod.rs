//! Manifests: from the text of a file to checked objects and findings, with no I/O.
//!
//! | module | content |
//! |---|---|
//! | [`split`] | from a file's text to its documents |
//! | [`document`] | from one document to its objects |
//! | [`syntax`] | from the text of a document to an untyped value |
//! | [`aliases`] | the expanded size of the aliases of a document |
//! | [`read`] | from an untyped object to a checked object |
//! | [`typed`] | from an untyped object to its Kubernetes type: wrong types and unknown fields |

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

mod aliases;
pub(crate) mod document;
pub(crate) mod read;
pub(crate) mod split;
mod syntax;
pub(crate) mod typed;

pub(crate) use document::{Document, Guarded, ParsedObject};

/// The syntax of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    Yaml,
    Json,
}

impl Syntax {
    /// JSON for a file whose name ends in `.json` or `.JSON`, else YAML.
    pub(crate) fn of(file: &Path) -> Self {
        match file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
            true => Self::Json,
            false => Self::Yaml,
        }
    }
}

/// Parses a YAML document of any content.
///
/// # Errors
///
/// The text is no YAML, or exceeds the limits for manifests. The message names the line, if known.
pub fn read_yaml(text: &str) -> Result<Value, String> {
    Syntax::Yaml.parse(text).map_err(syntax::SyntaxFault::in_words)
}

/// Reads a document of OpenAPI in YAML or JSON.
pub(crate) fn read_openapi(text: &str) -> Result<Value, String> {
    syntax::parse_openapi(text).map_err(syntax::SyntaxFault::in_words)
}

/// Writes a value as YAML.
#[must_use]
pub fn write_yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_default()
}

/// The readable objects of a file as written, also the objects of lists.
pub(crate) fn objects(text: &str, syntax: Syntax) -> Vec<Value> {
    fn add(value: Value, objects: &mut Vec<Value>) {
        let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        match value {
            Value::Object(mut fields) if is_list => {
                if let Some(Value::Array(items)) = fields.remove("items") {
                    items.into_iter().for_each(|item| add(item, objects));
                }
            }
            value => objects.push(value),
        }
    }
    let mut objects = Vec::new();
    let values: Vec<Value> = match syntax {
        Syntax::Yaml => split::yaml(text).filter_map(|(_, text)| syntax.parse(text).ok()).collect(),
        Syntax::Json => {
            split::json(text).into_iter().filter_map(|(_, text)| syntax.parse(text).ok()).collect()
        }
    };
    values.into_iter().for_each(|value| add(value, &mut objects));
    objects
}

/// The content of a file.
#[derive(Debug, Default)]
pub(crate) struct Manifest {
    /// Its documents, each with the line on which its text begins, from 1.
    pub(crate) documents: Vec<(u32, Arc<Document>)>,
}

impl Manifest {
    /// Parses a file's text. Documents that are equal in `previous` are taken from there. `is_recorded` tells whether the objects
    /// have versions for the audit trail.
    pub(crate) fn parse(text: &str, syntax: Syntax, previous: &Self, is_recorded: bool) -> Self {
        let known: HashMap<&str, &Arc<Document>> =
            previous.documents.iter().map(|(_, document)| (&*document.text, document)).collect();
        let parse = |text: &str| match known.get(text) {
            Some(document) => Arc::clone(document),
            None => Arc::new(Document::parse(text, syntax, is_recorded)),
        };
        let documents = match syntax {
            Syntax::Yaml => split::yaml(text).map(|(line, text)| (line, parse(text))).collect(),
            Syntax::Json => split::json(text).into_iter().map(|(line, text)| (line, parse(text))).collect(),
        };
        Self { documents }
    }

    /// Whether all of it was readable; if not, a missing object may be unreadable.
    pub(crate) fn is_complete(&self) -> bool {
        self.documents.iter().all(|(_, document)| document.is_complete)
    }

    /// The routes that unreadable SecurityPolicies in it may guard, without repeats.
    pub(crate) fn unknown_guards(&self) -> Vec<Guarded> {
        let guarded = self.documents.iter().flat_map(|(_, document)| &document.unknown_guards);
        let guarded: BTreeSet<&Guarded> = guarded.collect();
        guarded.into_iter().cloned().collect()
    }
}
