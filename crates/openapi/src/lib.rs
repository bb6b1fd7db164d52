//! OpenAPI documents 3.0 and 3.1, without I/O: from a parsed YAML or JSON document to the operations that a gateway serves.
//!
//! | module | content |
//! |---|---|
//! | [`document`] | the document: title, servers, operations |
//! | [`operation`] | an operation: method, path, id, tags, media types |
//! | [`mod@contract`] | contracts of operations: parameters, bodies, responses |
//! | [`mod@schema`] | schemas, in the form of JSON Schema 2020-12 |
//! | [`security`] | security schemes, and what operations require of their callers |
//! | [`finding`] | faults, each with a JSON Pointer to its place |
//! | [`mod@reference`] | references inside of the document |
//!
//! A fault in one operation does not affect the others. Every fault is a [`Finding`]; nothing is dropped in silence.

#![forbid(unsafe_code)]

mod contract;
pub mod document;
pub mod finding;
pub mod operation;
mod reference;
mod schema;
pub mod security;

pub use contract::Parts;
pub use document::{Document, Server};
pub use finding::{Finding, Findings, Severity};
pub use operation::{Method, Operation};
pub use security::{KeyPlace, Need, Security, SecurityScheme};
pub use sluicegate_validation::SchemaFault;
