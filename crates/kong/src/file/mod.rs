//! The entities of a file.
//!
//! Nested entities and references by name or id lead to the same result: an entity names another entity by its place in
//! the list of the [`File`].
//!
//! | module | content |
//! |---|---|
//! | [`entity`] | the entities |
//! | [`fields`] | the fields of an entity, as the file writes them |
//! | [`read`] | from the fields to the entities |
//! | [`merge`] | several files as one configuration |
//! | [`migrate`] | the paths of the formats 1.1 and 2.1 |
//! | [`schema`] | types of plugin fields, unique names, and values that Kong demands |

use crate::environment;
use crate::node::{self, Node, ReadError};
use crate::note::{Note, Notes};

mod entity;
mod fields;
mod merge;
mod migrate;
mod read;
mod schema;
#[cfg(test)]
mod tests;

pub use entity::{
    Address, Certificate, Consumer, ConsumerGroup, Credential, CredentialKind, Hash, HashSource, HealthCheck,
    PassiveCheck, Plugin, Protocol, Route, Scope, Service, Target, Upstream,
};

pub use merge::Places;

/// The formats that can be read.
pub const FORMATS: [&str; 3] = ["1.1", "2.1", "3.0"];

/// The text of a file, with its name in messages.
#[derive(Clone, Copy, Debug)]
pub struct Source<'t> {
    /// The name.
    pub name: &'t str,
    /// The text.
    pub text: &'t str,
}

/// A declarative file, or several files that are one configuration.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// The services.
    pub services: Vec<Service>,
    /// The routes.
    pub routes: Vec<Route>,
    /// The upstreams.
    pub upstreams: Vec<Upstream>,
    /// The consumers.
    pub consumers: Vec<Consumer>,
    /// The groups of consumers.
    pub consumer_groups: Vec<ConsumerGroup>,
    /// The certificates.
    pub certificates: Vec<Certificate>,
    /// The certificates of CAs: id and PEM.
    pub ca_certificates: Vec<(Option<String>, String)>,
    /// The plugins.
    pub plugins: Vec<Plugin>,
    /// Whether the file has hashed credentials (`_transform: false`).
    pub has_hashes: bool,
    /// The parts of the file that have an error, or no place in the entities.
    pub notes: Vec<Note>,
    /// The files of the lines.
    pub places: Places,
}

impl File {
    /// Reads the text of a file. `variable` returns the value of a variable of the environment.
    ///
    /// # Errors
    ///
    /// The text is not YAML, a variable is unusable, or the file has no known `_format_version`. Other errors are
    /// [`notes`](Self::notes).
    pub fn read(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, ReadError> {
        Self::read_all(&[Source { name: "", text }], variable)
    }

    /// Reads the texts of several files, which are one configuration. Lines of entities and notes are counted on: see
    /// [`places`](Self::places).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), or two files have different values of one key.
    pub fn read_all(
        sources: &[Source<'_>],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ReadError> {
        let (mut places, mut before) = (Places::default(), 0);
        let (mut roots, mut repeated) = (Vec::with_capacity(sources.len()), Vec::new());
        for (file, Source { name, text }) in sources.iter().enumerate() {
            let of_file = |fault: ReadError| ReadError { file, ..fault };
            let filled = environment::fill(text, variable).map_err(of_file)?;
            let (root, of_root) = node::read(&filled, before).map_err(of_file)?;
            before = places.add(name, text, before);
            check_format(&root).map_err(|fault| fault.located(&places))?;
            roots.push(root);
            repeated.extend(of_root);
        }
        let root = merge::merged(roots, &places).map_err(|fault| fault.located(&places))?;
        let is_old = root.get("_format_version").and_then(Node::text) != Some("3.0");
        let mut file = read::file(&root, is_old, places);
        let mut notes = Notes(std::mem::take(&mut file.notes));
        for (line, key) in repeated {
            notes.unconverted(
                line,
                "",
                format!("the key {key:?} is written twice, and the last value applies: remove one"),
            );
        }
        notes.0.sort();
        file.notes = notes.0;
        Ok(file)
    }
}

impl ReadError {
    /// The error with its file, from a line that is counted on.
    fn located(self, places: &Places) -> Self {
        let (file, line) = places.of(self.line);
        Self { file, line, ..self }
    }
}

/// Checks that the root of a file names a format that can be read.
fn check_format(root: &Node) -> Result<(), ReadError> {
    if root.map().is_none() {
        return Err(ReadError::new(root.line, "the file is no mapping: write _format_version and entities"));
    }
    let formats = FORMATS.map(|format| format!("\"{format}\"")).join(", ");
    let Some(version) = root.get("_format_version") else {
        let fault = format!("_format_version is missing: write one of {formats}");
        return Err(ReadError::new(root.line, fault));
    };
    match version.text() {
        Some(format) if FORMATS.contains(&format) => Ok(()),
        _ => {
            let fault = format!("_format_version is unknown: write one of {formats}");
            Err(ReadError::new(version.line, fault))
        }
    }
}
