//! Fingerprints in place of secrets.
//!
//! The values of Secrets are secrets. In other objects, the name of a field, of a header or of an annotation tells that its value
//! may be a secret, or the value itself does. A text of several lines in a ConfigMap may hold anything.

use serde_json::{Map, Value, json};
use sluicegate_model::audit::SECRET;

use super::content::{described, hexadecimal};
use crate::object::{Kind, ObjectRef};

/// The digits of a fingerprint. With 16 bits, 1 of 65,536 changes of a secret has the same fingerprint, and 1 of 65,536 guesses fits.
const FINGERPRINT: usize = 4;

/// Parts of the names of secrets, without separators and in lower case.
const NAMES: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "authorization",
    "cookie",
    "sha256",
    "snippet",
];

/// The ends of the names of fields with a name or an address in place of a secret.
const HARMLESS: [&str; 11] =
    ["name", "names", "namespace", "ref", "uri", "url", "endpoint", "header", "path", "type", "method"];

/// The starts of values that are secrets.
const STARTS: [&str; 5] = ["Bearer ", "Basic ", "sgk_", "eyJ", "-----BEGIN"];

/// Replaces the secrets of an object.
pub(super) fn cover(object: &ObjectRef, content: &mut Map<String, Value>) {
    let cover = Cover { object, is_configmap: object.kind == Kind::ConfigMap };
    for (name, value) in content {
        let is_data = object.kind == Kind::Secret && matches!(&**name, "data" | "stringData");
        match value {
            Value::Object(entries) if is_data => {
                for (key, value) in entries {
                    *value = cover.fingerprint(&format!("{name}/{key}"), value);
                }
            }
            _ if is_data => *value = cover.fingerprint(name, value),
            _ => cover.value(name, name, value),
        }
    }
}

struct Cover<'o> {
    object: &'o ObjectRef,
    is_configmap: bool,
}

impl Cover<'_> {
    /// Covers the secrets of a value at a path, which is the value of the field `name`.
    fn value(&self, path: &str, name: &str, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                // A header, a variable or an item with a name and a value.
                let named = fields.get("name").and_then(Value::as_str).is_some_and(is_secret);
                for (key, value) in fields {
                    let path = format!("{path}/{key}");
                    if named && key == "value" {
                        *value = self.fingerprint(&path, value);
                    } else {
                        self.value(&path, key, value);
                    }
                }
            }
            Value::Array(entries) => {
                for (index, value) in entries.iter_mut().enumerate() {
                    // An entry with a name stays the same entry when others come and go.
                    let place = value.get("name").and_then(Value::as_str);
                    let place = place.map_or_else(|| index.to_string(), |name| format!("name={name}"));
                    self.value(&format!("{path}/{place}"), name, value);
                }
            }
            Value::String(text) if is_secret(name) || is_secret_value(text) => {
                *value = self.fingerprint(path, value);
            }
            Value::String(text) if self.is_configmap && text.trim_end().contains('\n') => {
                *text = described(text);
            }
            Value::String(text) => {
                if let Some(covered) = without_password(text) {
                    *value = json!({"url": covered, "password": self.fingerprint(path, value)});
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The path makes the fingerprints of equal secrets differ.
    fn fingerprint(&self, path: &str, value: &Value) -> Value {
        let hash = hexadecimal(format!("{} {path}\n{value}", self.object).as_bytes());
        json!({SECRET: hash[..FINGERPRINT]})
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_lowercase();
    NAMES.iter().any(|part| name.contains(part)) && !HARMLESS.iter().any(|end| name.ends_with(end))
}

fn is_secret_value(text: &str) -> bool {
    let is_certificate = text.starts_with("-----BEGIN CERTIFICATE") && !text.contains("PRIVATE");
    STARTS.iter().any(|start| text.starts_with(start)) && !is_certificate || text.contains("PRIVATE KEY-----")
}

/// A URL without its password; `None` for other texts.
fn without_password(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let (user, host) = authority.rsplit_once('@')?;
    let (user, _) = user.split_once(':')?;
    Some(format!("{scheme}://{user}@{host}{}", &rest[authority.len()..]))
}
