//! The types that a schema allows. A parameter is text; the schema decides whether `5` is a number or a string.

use serde_json::{Map, Value};

/// The deepest search for types.
const DEPTH_MAX: usize = 8;

/// The most parts of a shape. A schema whose parts refer to each other could have millions.
const PARTS_MAX: usize = 20_000;

/// A set of types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Types {
    pub(crate) null: bool,
    pub(crate) boolean: bool,
    pub(crate) number: bool,
    pub(crate) string: bool,
    pub(crate) array: bool,
    pub(crate) object: bool,
}

impl Types {
    fn add(&mut self, name: &str) {
        match name {
            "null" => self.null = true,
            "boolean" => self.boolean = true,
            "integer" | "number" => self.number = true,
            "string" => self.string = true,
            "array" => self.array = true,
            "object" => self.object = true,
            _ => {}
        }
    }

    fn add_value(&mut self, value: &Value) {
        self.add(match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        });
    }
}

/// The types of a value and of its parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shape {
    /// The types; none for any type.
    pub(crate) types: Types,
    pub(crate) items: Option<Box<Self>>,
    pub(crate) properties: Vec<(Box<str>, Self)>,
    pub(crate) additional: Option<Box<Self>>,
    /// Whether the search ended before the schema did: a value may have any type.
    pub(crate) is_partial: bool,
}

impl Shape {
    /// The shape of a schema. `schemas` are the schemas by their numbers.
    pub(crate) fn of(schema: &Value, schemas: &Map<String, Value>) -> Self {
        let mut shape = Self::default();
        let mut left = PARTS_MAX;
        shape.add(schema, schemas, 0, &mut left);
        shape
    }

    fn add(&mut self, schema: &Value, schemas: &Map<String, Value>, depth: usize, left: &mut usize) {
        let Some(fields) = schema.as_object() else { return };
        if depth >= DEPTH_MAX || *left == 0 {
            self.is_partial = true;
            return;
        }
        *left -= 1;
        if let Some(target) = fields.get("$ref").and_then(|reference| of_reference(reference, schemas)) {
            self.add(target, schemas, depth + 1, left);
        }
        match fields.get("type") {
            Some(Value::String(name)) => self.types.add(name),
            Some(Value::Array(names)) => {
                names.iter().filter_map(Value::as_str).for_each(|name| self.types.add(name));
            }
            _ => {
                let values = fields.get("enum").and_then(Value::as_array).into_iter().flatten();
                values.chain(fields.get("const")).for_each(|value| self.types.add_value(value));
            }
        }
        for name in ["allOf", "anyOf", "oneOf"] {
            for part in fields.get(name).and_then(Value::as_array).into_iter().flatten() {
                self.add(part, schemas, depth + 1, left);
            }
        }
        if let Some(items) = fields.get("items") {
            self.items.get_or_insert_default().add(items, schemas, depth + 1, left);
        }
        for (name, property) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let known = self.properties.iter().position(|(known, _)| **known == **name);
            let at = known.unwrap_or_else(|| {
                self.properties.push((name.as_str().into(), Self::default()));
                self.properties.len() - 1
            });
            self.properties[at].1.add(property, schemas, depth + 1, left);
        }
        if let Some(additional) = fields.get("additionalProperties").filter(|of| of.is_object()) {
            self.additional.get_or_insert_default().add(additional, schemas, depth + 1, left);
        }
    }

    /// Whether a value is an object and no array.
    pub(crate) fn is_object(&self) -> bool {
        self.types.object && !self.types.array
    }

    /// The shape of a property.
    pub(crate) fn property(&self, name: &str) -> Option<&Self> {
        let known = self.properties.iter().find(|(known, _)| **known == *name);
        known.map(|(_, shape)| shape).or(self.additional.as_deref())
    }

    /// The values that a text may stand for, the most likely first.
    pub(crate) fn values(&self, text: &str) -> Vec<Value> {
        let mut values = Vec::with_capacity(1);
        if (self.types.number || self.is_partial)
            && let Ok(number) = serde_json::from_str::<serde_json::Number>(text)
        {
            values.push(Value::Number(number));
        }
        match text {
            "true" if self.types.boolean || self.is_partial => values.push(Value::Bool(true)),
            "false" if self.types.boolean || self.is_partial => values.push(Value::Bool(false)),
            "" | "null" if self.types.null => values.push(Value::Null),
            _ => {}
        }
        if self.types.string || self.is_partial || values.is_empty() {
            values.push(text.into());
        }
        values
    }

    /// The most likely value of a text.
    pub(crate) fn value(&self, text: &str) -> Value {
        self.values(text).swap_remove(0)
    }
}

/// The schema to which `#/$defs/NUMBER` refers.
pub(crate) fn of_reference<'v>(reference: &Value, schemas: &'v Map<String, Value>) -> Option<&'v Value> {
    schemas.get(reference.as_str()?.strip_prefix("#/$defs/")?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shape_of_schemas_that_refer_to_each_other_has_a_limit() {
        let properties: Map<String, Value> =
            (0..50).map(|name| (name.to_string(), json!({"$ref": "#/$defs/0"}))).collect();
        let schemas = json!({"0": {"type": "object", "properties": properties}});
        let shape = Shape::of(&schemas["0"], schemas.as_object().unwrap());
        fn parts(shape: &Shape) -> usize {
            1 + shape.properties.iter().map(|(_, shape)| parts(shape)).sum::<usize>()
        }
        assert!(parts(&shape) < 2 * PARTS_MAX, "{}", parts(&shape));
        let partial = Shape { is_partial: true, ..Shape::default() };
        assert_eq!(json!(partial.values("5")), json!([5, "5"]));
    }

    #[test]
    fn text_becomes_a_value_of_an_allowed_type() {
        let schemas = json!({"0": {"type": "integer"}, "1": {"$ref": "#/$defs/1"}});
        let schemas = schemas.as_object().unwrap();
        for (schema, text, expected) in [
            (json!({"type": "integer"}), "5", json!([5])),
            (json!({"type": "integer"}), "05", json!(["05"])),
            (json!({"type": "integer"}), "five", json!(["five"])),
            (json!({"type": "string"}), "5", json!(["5"])),
            (json!({}), "5", json!(["5"])),
            (json!({"type": ["integer", "string"]}), "5", json!([5, "5"])),
            (json!({"anyOf": [{"$ref": "#/$defs/0"}, {"type": "null"}]}), "", json!([null])),
            (json!({"type": "boolean"}), "true", json!([true])),
            (json!({"enum": [1, 2]}), "1", json!([1])),
            (json!({"$ref": "#/$defs/1"}), "1", json!([1, "1"])),
            (json!({"type": "number"}), "1e999", json!(["1e999"])),
        ] {
            assert_eq!(json!(Shape::of(&schema, schemas).values(text)), expected, "{schema} {text}");
        }
    }
}
