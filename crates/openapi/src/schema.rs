//! Schemas: from OpenAPI 3.0 and 3.1 to JSON Schema 2020-12.
//!
//! A schema that several operations use is converted once. References between schemas become numbers, so a recursive schema has
//! a finite form. Requests and responses have forms of their own, because a request may lack properties that are `readOnly`, and
//! a response those that are `writeOnly`.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use sluicegate_validation::{SchemaFault, schema_fault};

use crate::finding::{Findings, Pointer};
use crate::reference::{resolve, target};

/// The schema in place of a schema that cannot be compiled.
const ANY: &str = "true";

/// The deepest nesting of a schema.
const DEPTH_MAX: usize = 64;

/// Keywords whose value is a schema.
const SCHEMA: [&str; 11] = [
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords whose value is a list of schemas.
const LIST: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];

/// Keywords whose value is a map of schemas.
const MAP: [&str; 3] = ["dependentSchemas", "patternProperties", "properties"];

/// Keywords whose value stays as it is. `default`, `example` and `examples` are for mocks.
const VALUE: [&str; 26] = [
    "const",
    "contentEncoding",
    "contentMediaType",
    "default",
    "dependentRequired",
    "enum",
    "example",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "required",
    "type",
    "uniqueItems",
];

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    Request,
    Response,
}

/// A converted schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schema {
    /// The JSON text.
    pub(crate) text: String,
    /// The numbers of the schemas to which the schema refers.
    pub(crate) references: Vec<u32>,
    /// Why it cannot be compiled.
    pub(crate) fault: Option<SchemaFault>,
}

/// Converts the schemas of a document.
pub(crate) struct Converter<'v> {
    root: &'v Value,
    is_30: bool,
    /// By the address of a schema in the document.
    numbers: HashMap<(usize, Direction), u32>,
    /// Numbered schemas that are not converted yet.
    waiting: Vec<(u32, &'v Value, Direction, String)>,
    schemas: Vec<Schema>,
}

impl<'v> Converter<'v> {
    pub(crate) fn new(root: &'v Value) -> Self {
        let version = root.get("openapi").and_then(Value::as_str).unwrap_or_default();
        Self {
            root,
            is_30: version.starts_with("3.0"),
            numbers: HashMap::new(),
            waiting: Vec::new(),
            schemas: Vec::new(),
        }
    }

    /// The number of a schema. A schema that only refers to another schema has the number of that schema.
    pub(crate) fn number(&mut self, schema: &'v Value, direction: Direction, at: &Pointer<'_>) -> u32 {
        if let Some(reference) = self.sole_reference(schema)
            && let Some(target) = target(self.root, reference)
        {
            return self.number_at(target, direction, || reference.trim_start_matches('#').to_owned());
        }
        self.number_at(schema, direction, || at.to_string())
    }

    fn number_at(&mut self, schema: &'v Value, direction: Direction, at: impl Fn() -> String) -> u32 {
        let key = (std::ptr::from_ref(schema).addr(), direction);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = u32::try_from(self.schemas.len()).unwrap_or(u32::MAX);
        self.schemas.push(Schema::default());
        self.numbers.insert(key, number);
        self.waiting.push((number, schema, direction, at()));
        number
    }

    /// The reference of a schema without other keywords that matter.
    fn sole_reference(&self, schema: &'v Value) -> Option<&'v str> {
        let fields = schema.as_object()?;
        let is_alone = self.is_30 || fields.keys().all(|name| name == "$ref" || !is_keyword(name));
        fields.get("$ref").filter(|_| is_alone)?.as_str()
    }

    /// Converts all numbered schemas, and the schemas to which they refer. A fault is a finding too.
    pub(crate) fn finish(mut self, findings: &mut Findings) -> Vec<Schema> {
        while let Some((number, schema, direction, at)) = self.waiting.pop() {
            let mut references = Vec::new();
            let converted = self.convert(schema, direction, &mut references, &at, 0);
            let (text, fault) = match converted {
                Ok(schema) => match schema_fault(&schema) {
                    None => (schema.to_string(), None),
                    Some(fault) => {
                        (ANY.to_owned(), Some(SchemaFault { pointer: at + &fault.pointer, ..fault }))
                    }
                },
                Err(fault) => (ANY.to_owned(), Some(fault)),
            };
            if let Some(SchemaFault { pointer, message }) = fault.clone() {
                findings.warning_at(pointer, format!("cannot be validated: {message}"));
            }
            if let Some(known) = self.schemas.get_mut(number as usize) {
                references.sort_unstable();
                references.dedup();
                *known = Schema { text, references, fault };
            }
        }
        self.schemas
    }

    fn convert(
        &mut self,
        schema: &'v Value,
        direction: Direction,
        references: &mut Vec<u32>,
        at: &str,
        depth: usize,
    ) -> Result<Value, SchemaFault> {
        let fault = |pointer: String, message: String| SchemaFault { pointer, message };
        let fields = match schema {
            Value::Object(fields) => fields,
            Value::Bool(_) => return Ok(schema.clone()),
            _ => return Err(fault(at.to_owned(), "is no schema: write a mapping".to_owned())),
        };
        if depth > DEPTH_MAX {
            return Err(fault(at.to_owned(), format!("is nested more than {DEPTH_MAX} times")));
        }
        let mut converted = Map::new();
        if let Some(reference) = fields.get("$ref") {
            let at = format!("{at}/$ref");
            let Some(reference) = reference.as_str() else { return Err(fault(at, "is not text".to_owned())) };
            let Some(target) = target(self.root, reference) else {
                return Err(fault(at, format!("{reference:?} does not exist in the document")));
            };
            let number = self.number_at(target, direction, || reference.trim_start_matches('#').to_owned());
            references.push(number);
            converted.insert("$ref".to_owned(), format!("#/$defs/{number}").into());
            if self.is_30 {
                return Ok(converted.into());
            }
        }
        for (name, value) in fields {
            let at = || format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
            let value = match &**name {
                "$dynamicRef" | "$recursiveRef" => {
                    return Err(fault(at(), "is not supported: write $ref".to_owned()));
                }
                name if SCHEMA.contains(&name) => {
                    self.convert(value, direction, references, &at(), depth + 1)?
                }
                name if LIST.contains(&name) => {
                    let items = value.as_array().ok_or_else(|| fault(at(), "is no list".to_owned()))?;
                    let mut list = Vec::with_capacity(items.len());
                    for (index, item) in items.iter().enumerate() {
                        let at = format!("{}/{index}", at());
                        list.push(self.convert(item, direction, references, &at, depth + 1)?);
                    }
                    list.into()
                }
                name if MAP.contains(&name) => {
                    let items = value.as_object().ok_or_else(|| fault(at(), "is no mapping".to_owned()))?;
                    let mut map = Map::new();
                    for (key, item) in items {
                        let at = format!("{}/{}", at(), key.replace('~', "~0").replace('/', "~1"));
                        let item = self.convert(item, direction, references, &at, depth + 1)?;
                        map.insert(key.clone(), item);
                    }
                    map.into()
                }
                "required" => self.required(value, fields, direction),
                name if VALUE.contains(&name) => value.clone(),
                _ => continue,
            };
            converted.insert(name.clone(), value);
        }
        if self.is_30 {
            return Ok(of_30(converted, fields));
        }
        Ok(converted.into())
    }

    /// The required properties, without those that a message of this direction does not have.
    fn required(&self, required: &Value, fields: &'v Map<String, Value>, direction: Direction) -> Value {
        let (Some(names), Some(properties)) =
            (required.as_array(), fields.get("properties").and_then(Value::as_object))
        else {
            return required.clone();
        };
        let absent = match direction {
            Direction::Request => "readOnly",
            Direction::Response => "writeOnly",
        };
        let is_absent = |name: &Value| {
            let property = name.as_str().and_then(|name| properties.get(name));
            let is_marked = |schema: &Value| schema.get(absent) == Some(&Value::Bool(true));
            property.is_some_and(|property| {
                let mut ignored = Findings::default();
                is_marked(property)
                    || resolve(self.root, property, &Pointer::Root, &mut ignored).is_some_and(is_marked)
            })
        };
        names.iter().filter(|name| !is_absent(name)).cloned().collect::<Vec<_>>().into()
    }
}

fn is_keyword(name: &str) -> bool {
    SCHEMA.contains(&name) || LIST.contains(&name) || MAP.contains(&name) || VALUE.contains(&name)
}

/// The differences of OpenAPI 3.0 from JSON Schema: `nullable`, and the exclusive limits that are true or false.
fn of_30(mut schema: Map<String, Value>, written: &Map<String, Value>) -> Value {
    for (flag, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        match schema.get(flag) {
            Some(Value::Bool(true)) => match schema.remove(limit) {
                Some(limit) => drop(schema.insert(flag.to_owned(), limit)),
                None => drop(schema.remove(flag)),
            },
            Some(Value::Bool(false)) => drop(schema.remove(flag)),
            _ => {}
        }
    }
    if written.get("nullable") != Some(&Value::Bool(true)) {
        return schema.into();
    }
    // The examples are for mocks, which look for them here.
    let kept: Vec<_> = ["default", "example"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), schema.remove(name)?)))
        .collect();
    let mut either = Map::new();
    either.insert("anyOf".to_owned(), json!([schema, {"type": "null"}]));
    either.extend(kept);
    either.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(root: &Value, at: &str, direction: Direction) -> (Vec<Value>, Vec<String>) {
        let mut converter = Converter::new(root);
        assert_eq!(converter.number(root.pointer(at).unwrap(), direction, &Pointer::Root), 0);
        let mut findings = Findings::default();
        let schemas = converter.finish(&mut findings);
        let texts = schemas.iter().map(|schema| serde_json::from_str(&schema.text).unwrap()).collect();
        (texts, findings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn schema_of_openapi_30_becomes_json_schema() {
        let of = |schema: Value| {
            let root = json!({"openapi": "3.0.3", "schema": schema});
            let (schemas, findings) = converted(&root, "/schema", Direction::Request);
            assert_eq!(findings, [""; 0]);
            schemas[0].clone()
        };
        assert_eq!(
            of(json!({"type": "string", "nullable": true, "description": "x", "x-y": 1, "example": "a"})),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}], "example": "a"})
        );
        assert_eq!(
            of(
                json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false})
            ),
            json!({"type": "integer", "exclusiveMinimum": 1, "maximum": 9})
        );
        assert_eq!(
            of(json!({"properties": {"description": {"type": "string", "title": "x"}}})),
            json!({"properties": {"description": {"type": "string"}}})
        );
    }

    #[test]
    fn recursive_schema_has_one_number() {
        let root = json!({"openapi": "3.1.0", "components": {"schemas": {
            "Tree": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}}},
        }}, "schema": {"$ref": "#/components/schemas/Tree", "description": "x"}});
        let (schemas, findings) = converted(&root, "/schema", Direction::Request);
        assert_eq!(findings, [""; 0]);
        assert_eq!(
            schemas,
            [
                json!({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/0"}}}})
            ]
        );
    }

    #[test]
    fn request_may_lack_required_properties_that_are_read_only() {
        let root = json!({"openapi": "3.1.0", "id": {"readOnly": true}, "schema": {
            "required": ["id", "name", "secret"],
            "properties": {"id": {"$ref": "#/id"}, "name": true, "secret": {"writeOnly": true}},
        }});
        let required = |direction| converted(&root, "/schema", direction).0[0]["required"].clone();
        assert_eq!(required(Direction::Request), json!(["name", "secret"]));
        assert_eq!(required(Direction::Response), json!(["id", "name"]));
    }

    #[test]
    fn schema_that_cannot_be_compiled_is_a_finding() {
        for (schema, fault) in [
            (
                json!({"properties": {"a/b": {"pattern": "(?=x)y"}}}),
                "#/properties/a~1b/pattern: cannot be validated: ",
            ),
            (json!({"type": "text"}), "#/type: cannot be validated: "),
            (
                json!({"items": {"$ref": "#/none"}}),
                "#/items/$ref: cannot be validated: \"#/none\" does not exist",
            ),
            (json!({"allOf": {}}), "#/allOf: cannot be validated: is no list"),
            (json!({"minLength": "x"}), "#/minLength: cannot be validated: "),
        ] {
            let root = json!({"openapi": "3.1.0", "schema": schema});
            let (_, findings) = converted(&root, "/schema", Direction::Request);
            assert!(findings.len() == 1 && findings[0].starts_with(fault), "{findings:?}");
        }
    }
}
