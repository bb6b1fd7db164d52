//! Manifests: from the text of a file to checked objects and findings, with no I/O.
//!
//! | module | what |
//! |---|---|
//! | [`split`] | a file's text into its documents |
//! | [`document`] | one document into the objects that it holds |
//! | [`syntax`] | the text of a document into an untyped value |
//! | [`aliases`] | what the aliases of a document would expand to |
//! | [`typed`] | an untyped object into its Kubernetes type: wrong types and unknown fields |

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

mod aliases;
pub(crate) mod document;
pub(crate) mod split;
mod syntax;
mod typed;

pub(crate) use document::{Document, Guarded, ParsedObject, check};

/// How the text of a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    Yaml,
    Json,
}

/// The content of a file.
#[derive(Debug, Default)]
pub(crate) struct Manifest {
    /// Its documents, each with the line on which its text begins, from 1.
    pub(crate) documents: Vec<(u32, Arc<Document>)>,
}

impl Manifest {
    /// Parses a file's text. Documents that are the same as in `previous` are taken from there.
    pub(crate) fn parse(text: &str, syntax: Syntax, previous: &Self) -> Self {
        let known: HashMap<&str, &Arc<Document>> =
            previous.documents.iter().map(|(_, document)| (&*document.text, document)).collect();
        let parse = |text: &str| match known.get(text) {
            Some(document) => Arc::clone(document),
            None => Arc::new(Document::parse(text, syntax)),
        };
        let documents = match syntax {
            Syntax::Yaml => split::yaml(text).map(|(line, text)| (line, parse(text))).collect(),
            Syntax::Json => split::json(text).into_iter().map(|(line, text)| (line, parse(text))).collect(),
        };
        Self { documents }
    }

    /// Whether all of it could be read; if not, an object that is missing may just be unreadable.
    pub(crate) fn is_complete(&self) -> bool {
        self.documents.iter().all(|(_, document)| document.is_complete)
    }

    /// What SecurityPolicies in it may guard that cannot be read so far as to tell, each once.
    pub(crate) fn unknown_guards(&self) -> Vec<Guarded> {
        let guarded = self.documents.iter().flat_map(|(_, document)| &document.unknown_guards);
        let guarded: BTreeSet<&Guarded> = guarded.collect();
        guarded.into_iter().cloned().collect()
    }
}
