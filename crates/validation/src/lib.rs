//! Validation of requests and responses by the contract of an API, and mock responses, without I/O.
//!
//! Input: the contract of an API ([`ApiContract`](sluicegate_model::ApiContract)), and the parts of a message. Output: what is
//! wrong with the message ([`Violation`]), as a problem document (RFC 9457), or the response of a mock.
//!
//! | module | content |
//! |---|---|
//! | [`mod@contract`] | the compiled contract: validators of all operations, which share the schemas |
//! | [`mod@operation`] | the checks of an operation |
//! | [`mod@parameter`] | parameters, from text to JSON values |
//! | [`mod@shape`] | the types that a schema allows, by which text becomes a value |
//! | [`mod@form`] | forms, from fields to a JSON object |
//! | [`mod@json`] | JSON bodies, in which each name occurs once |
//! | [`mod@media`] | media types |
//! | [`mod@charset`] | the charset of JSON and of forms |
//! | [`mod@mock`] | mock responses |
//! | [`mod@sample`] | values that are generated from schemas |
//! | [`mod@schema`] | the compiler of schemas |
//! | [`mod@violation`] | what is wrong, and its problem document |

#![forbid(unsafe_code)]

mod charset;
mod contract;
mod form;
mod json;
mod media;
mod mock;
mod operation;
mod parameter;
mod sample;
mod schema;
mod shape;
#[cfg(test)]
mod tests;
mod violation;

pub use charset::has_foreign_charset;
pub use contract::{Contract, ContractFault};
pub use media::{is_form, is_json, is_multipart, matches};
pub use mock::{Mock, MockFault, Preferences};
pub use operation::{Operation, RequestHead};
pub use schema::{SchemaFault, schema_fault};
pub use violation::{Place, Violation, problem};
