//! Values that are generated from schemas. The same schema always has the same value.

use serde_json::{Map, Number, Value, json};

use crate::shape::of_reference;

/// The nesting below which only required properties are generated.
const OPTIONAL_DEPTH: usize = 4;

/// The deepest nesting.
const DEPTH_MAX: usize = 12;

/// The most values.
const VALUES_MAX: usize = 2000;

/// The most items of a generated array, and the longest generated text.
const LENGTH_MAX: u64 = 100;

/// A value of a schema. `schemas` are the schemas by their numbers.
pub(crate) fn sample(schema: &Value, schemas: &Map<String, Value>) -> Value {
    Sampler { schemas, left: VALUES_MAX }.value(schema, 0)
}

struct Sampler<'s> {
    schemas: &'s Map<String, Value>,
    left: usize,
}

impl Sampler<'_> {
    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        let Some(fields) = schema.as_object().filter(|_| depth < DEPTH_MAX && self.left > 0) else {
            return Value::Null;
        };
        self.left -= 1;
        if let Some(known) = known(fields) {
            return known.clone();
        }
        if let Some(target) = fields.get("$ref").and_then(|reference| of_reference(reference, self.schemas)) {
            return self.value(target, depth + 1);
        }
        if let Some(parts) = fields.get("allOf").and_then(Value::as_array) {
            return self.all(fields, parts, depth);
        }
        for name in ["oneOf", "anyOf"] {
            if let Some(first) = fields.get(name).and_then(Value::as_array).and_then(|parts| parts.first()) {
                let part = self.value(first, depth + 1);
                return match (part, fields.contains_key("properties")) {
                    (Value::Object(part), true) => {
                        let mut object = self.object(fields, depth);
                        object.extend(part);
                        object.into()
                    }
                    (part, _) => part,
                };
            }
        }
        let types: Vec<&str> = match fields.get("type") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ if fields.contains_key("properties") => vec!["object"],
            _ if fields.contains_key("items") => vec!["array"],
            _ => Vec::new(),
        };
        match types.iter().find(|name| **name != "null").copied() {
            Some("object") => self.object(fields, depth).into(),
            Some("array") => self.array(fields, depth),
            Some("string") => text(fields).into(),
            Some("integer") => number(fields, true),
            Some("number") => number(fields, false),
            Some("boolean") => true.into(),
            _ if types.is_empty() => json!({}),
            _ => Value::Null,
        }
    }

    /// The properties of all parts.
    fn all(&mut self, fields: &Map<String, Value>, parts: &[Value], depth: usize) -> Value {
        let mut object = Map::new();
        for part in parts {
            match self.value(part, depth + 1) {
                Value::Object(part) => object.extend(part),
                other if parts.len() == 1 => return other,
                _ => {}
            }
        }
        object.extend(self.object(fields, depth));
        object.into()
    }

    fn object(&mut self, fields: &Map<String, Value>, depth: usize) -> Map<String, Value> {
        let required = fields.get("required").and_then(Value::as_array);
        let is_required =
            |name: &str| required.is_some_and(|names| names.iter().any(|known| known.as_str() == Some(name)));
        let mut object = Map::new();
        for (name, property) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if depth < OPTIONAL_DEPTH || is_required(name) {
                object.insert(name.clone(), self.value(property, depth + 1));
            }
        }
        object
    }

    fn array(&mut self, fields: &Map<String, Value>, depth: usize) -> Value {
        let first =
            fields.get("prefixItems").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut items: Vec<Value> = first.iter().map(|item| self.value(item, depth + 1)).collect();
        let least = fields.get("minItems").and_then(Value::as_u64);
        let wanted = least.unwrap_or_else(|| u64::from(depth < OPTIONAL_DEPTH)).min(LENGTH_MAX);
        if let Some(item) = fields.get("items").filter(|item| item.is_object()) {
            while (items.len() as u64) < wanted && self.left > 0 {
                items.push(self.value(item, depth + 1));
            }
        }
        items.into()
    }
}

/// The value that the schema states.
fn known(fields: &Map<String, Value>) -> Option<&Value> {
    let first = |name: &str| fields.get(name).and_then(Value::as_array).and_then(|values| values.first());
    let example = fields.get("example").or_else(|| first("examples"));
    example.or_else(|| fields.get("default")).or_else(|| fields.get("const")).or_else(|| first("enum"))
}

fn text(fields: &Map<String, Value>) -> String {
    let format = fields.get("format").and_then(Value::as_str).unwrap_or_default();
    let text = match format {
        "date" => "2024-01-01",
        "date-time" => "2024-01-01T00:00:00Z",
        "time" => "00:00:00Z",
        "duration" => "P1D",
        "email" | "idn-email" => "user@example.com",
        "hostname" | "idn-hostname" => "example.com",
        "ipv4" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        "uri" | "iri" | "url" => "https://example.com/",
        "uri-reference" | "iri-reference" => "/",
        "uuid" => "00000000-0000-4000-8000-000000000000",
        "byte" => "c3RyaW5n",
        _ => "string",
    };
    let mut text = text.to_owned();
    let limit = |name: &str| fields.get(name).and_then(Value::as_u64).map(|limit| limit.min(LENGTH_MAX));
    if let Some(least) = limit("minLength") {
        while (text.len() as u64) < least {
            text.push('x');
        }
    }
    if let Some(most) = limit("maxLength").and_then(|most| usize::try_from(most).ok()) {
        // The text is ASCII.
        text.truncate(most);
    }
    text
}

fn number(fields: &Map<String, Value>, is_integer: bool) -> Value {
    let of = |name: &str| fields.get(name).and_then(Value::as_f64);
    let step = of("multipleOf").filter(|step| *step > 0.0);
    let by = step.unwrap_or(if is_integer { 1.0 } else { 0.5 });
    let least = of("minimum").or_else(|| of("exclusiveMinimum").map(|limit| limit + by));
    let most = of("maximum").or_else(|| of("exclusiveMaximum").map(|limit| limit - by));
    let mut value = match (least, most) {
        (Some(least), _) => least,
        (None, Some(most)) => most.min(0.0),
        (None, None) => 0.0,
    };
    if is_integer {
        value = value.ceil();
    }
    if let Some(step) = step {
        value = (value / step).ceil() * step;
    }
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return json!(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::options;

    #[test]
    fn generated_value_is_valid() {
        for schema in [
            json!({"type": "object", "required": ["a"], "properties": {
                "a": {"type": "integer", "minimum": 3, "multipleOf": 5},
                "b": {"type": "string", "format": "date-time"},
                "c": {"type": "array", "minItems": 2, "items": {"type": ["null", "number"], "exclusiveMinimum": 1}},
                "d": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
                "e": {"enum": ["x", "y"]},
                "f": {"type": "string", "minLength": 20, "maxLength": 30},
                "g": {"type": "integer", "exclusiveMaximum": -5},
            }}),
            json!({"allOf": [
                {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "format": "uuid"}}},
                {"type": "object", "required": ["b"], "properties": {"b": {"const": 7}}},
            ], "required": ["c"], "properties": {"c": {"type": "string", "format": "email"}}}),
            json!({"type": "string", "maxLength": 3}),
            json!({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}),
        ] {
            let value = sample(&schema, &Map::new());
            let validator = options().build(&schema).unwrap();
            assert!(validator.is_valid(&value), "{schema} {value}");
            assert_eq!(value, sample(&schema, &Map::new()));
        }
    }

    #[test]
    fn recursive_schema_has_a_finite_value() {
        let node = json!({"type": "object", "required": ["next"], "properties": {
            "next": {"$ref": "#/$defs/0"}, "all": {"type": "array", "minItems": 50, "items": {"$ref": "#/$defs/0"}},
        }});
        let schemas = json!({ "0": node });
        let value = sample(&schemas["0"], schemas.as_object().unwrap());
        assert!(value.is_object() && value.to_string().len() < 100_000);
    }
}
