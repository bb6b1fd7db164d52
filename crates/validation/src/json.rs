//! JSON bodies.
//!
//! A name that occurs twice in an object is a fault: the gateway and the endpoint could read different values (RFC 8259, 4).

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Number, Value};

/// Reads a JSON text. The fault contains no part of the text.
pub(crate) fn read(text: &[u8]) -> Result<Value, String> {
    let read: Result<Unambiguous, _> = serde_json::from_slice(text);
    read.map(|read| read.0).map_err(|fault| {
        let what = match fault.classify() {
            Category::Data => "has an object with two equal names",
            Category::Io | Category::Syntax | Category::Eof => "is not JSON",
        };
        format!("{what}: line {}, column {}", fault.line(), fault.column())
    })
}

/// A value whose objects have each name once.
struct Unambiguous(Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unambiguous(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((name, Unambiguous(value))) = fields.next_entry::<String, Unambiguous>()? {
            if map.insert(name, value).is_some() {
                return Err(A::Error::custom("two equal names"));
            }
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_read_as_by_its_library() {
        for text in
            [r#"{"a":[1,-2,3.5,null,true,"x\n"],"b":{"a":1}}"#, "18446744073709551615", "1e300", "[]", " 7 "]
        {
            assert_eq!(read(text.as_bytes()), Ok(serde_json::from_str(text).unwrap()), "{text}");
        }
    }

    #[test]
    fn ambiguous_or_invalid_json_is_a_fault_without_its_text() {
        for (text, fault) in [
            (r#"{"secret": 1, "secret": 2}"#, "has an object with two equal names: line 1, column 2"),
            (r#"[{"a": {"b": 1, "b": 1}}]"#, "has an object with two equal names"),
            (r#"{"secret" "#, "is not JSON: line 1, column 10"),
            ("secret", "is not JSON"),
            ("", "is not JSON"),
            ("1 2", "is not JSON"),
            ("\"\u{1}\"", "is not JSON"),
        ] {
            let found = read(text.as_bytes()).unwrap_err();
            assert!(found.starts_with(fault) && !found.contains("secret"), "{text}: {found}");
        }
        assert!(read(b"\"\xff\"").is_err());
        let deep = "[".repeat(100_000);
        assert!(read(deep.as_bytes()).is_err());
        assert_eq!(read(br#"{"a": {"a": 1}}"#), Ok(json!({"a": {"a": 1}})));
    }
}
