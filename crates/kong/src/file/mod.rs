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
//! | [`migrate`] | the paths of the formats 1.1 and 2.1 |
//! | [`schema`] | types of plugin fields, unique names, and values that Kong demands |

use crate::environment;
use crate::node::{self, Node, ReadError};
use crate::note::{Note, Notes};

mod entity;
mod fields;
mod migrate;
mod read;
mod schema;
#[cfg(test)]
mod tests;

pub use entity::{
    Address, Certificate, Consumer, ConsumerGroup, Credential, CredentialKind, Hash, HashSource, HealthCheck,
    PassiveCheck, Plugin, Protocol, Route, Scope, Service, Target, Upstream,
};

/// The formats that can be read.
pub const FORMATS: [&str; 3] = ["1.1", "2.1", "3.0"];

/// A declarative file.
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
}

impl File {
    /// Reads the text of a file. `variable` returns the value of a variable of the environment.
    ///
    /// # Errors
    ///
    /// The text is not YAML, a variable is unusable, or the file has no known `_format_version`. Other errors are
    /// [`notes`](Self::notes).
    pub fn read(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, ReadError> {
        let (root, repeated) = node::read(&environment::fill(text, variable)?)?;
        let mut file = Self::of(&root)?;
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

    /// Reads the root of a file.
    fn of(root: &Node) -> Result<Self, ReadError> {
        if root.map().is_none() {
            return Err(ReadError::new(
                root.line,
                "the file is no mapping: write _format_version and entities",
            ));
        }
        let formats = FORMATS.map(|format| format!("\"{format}\"")).join(", ");
        let Some(version) = root.get("_format_version") else {
            return Err(ReadError::new(
                root.line,
                format!("_format_version is missing: write one of {formats}"),
            ));
        };
        match version.text() {
            Some(format) if FORMATS.contains(&format) => Ok(read::file(root, format != "3.0")),
            _ => Err(ReadError::new(
                version.line,
                format!("_format_version is unknown: write one of {formats}"),
            )),
        }
    }
}
