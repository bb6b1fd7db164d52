//! The compiler of schemas.

use jsonschema::{Draft, PatternOptions, ValidationOptions};
use serde_json::Value;

/// The most memory of a compiled regular expression, in bytes.
const PATTERN_MAX: usize = 1 << 20;

/// Why a schema cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaFault {
    /// The place: a JSON Pointer.
    pub pointer: String,
    /// The fault.
    pub message: String,
}

/// The options of all schemas. Regular expressions take linear time, and nothing is fetched.
pub(crate) fn options() -> ValidationOptions<'static> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(true)
        // To compile an expression of a client takes too long.
        .with_format("regex", |_: &str| true)
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_MAX))
}

/// The fault of a schema, which may refer to other schemas: these are not checked.
#[must_use]
pub fn schema_fault(schema: &Value) -> Option<SchemaFault> {
    let mut alone = schema.clone();
    remove_references(&mut alone);
    let fault = options().build(&alone).err()?;
    Some(SchemaFault { pointer: fault.instance_path().to_string(), message: fault.to_string() })
}

fn remove_references(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("$ref").is_some_and(Value::is_string) {
                fields.remove("$ref");
            }
            fields.values_mut().for_each(remove_references);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_references),
        _ => {}
    }
}
