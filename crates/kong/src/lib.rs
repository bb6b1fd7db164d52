//! Kong's declarative files (`_format_version` 1.1, 2.1 and 3.0), with no I/O.
//!
//! Input: the text of a file or of several files, and a function that returns the values of environment variables. Output: the [`File`] with
//! its entities, and a [`Note`] for each part of the file that has no place in the entities. Each entity and each note has
//! the line of the file.
//!
//! The crate also contains the decisions of Kong that a conversion must preserve, as pure functions: the order of routes
//! (flavor `traditional_compatible`), and the path for the service (`path_handling: v0`).
//!
//! | module | content |
//! |---|---|
//! | [`environment`] | variables of the environment in the text |
//! | [`node`] | the text as a tree of values with lines |
//! | [`note`] | messages about the file |
//! | [`mod@file`] | the entities of a file |
//! | [`router`] | the parts of routes, their priorities, and the choice of a route |
//! | [`path`] | the normal form of paths, and the path for the service |
//! | [`id`] | the ids that Kong gives to entities without an id |

pub mod environment;
pub mod file;
pub mod id;
pub mod node;
pub mod note;
pub mod path;
pub mod router;

pub use file::{File, Source};
pub use note::{Note, Severity};
