//! An untyped object into its Kubernetes type.

use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;
use serde_path_to_error::Segment;

use crate::object::annotation::closest;
use crate::problem::Findings;

/// Fields that are often misspelt.
const FIELDS: [&str; 52] = [
    "addresses",
    "addressType",
    "allowedRoutes",
    "annotations",
    "backend",
    "backendRefs",
    "conditions",
    "controller",
    "controllerName",
    "data",
    "defaultBackend",
    "endpoints",
    "externalName",
    "gatewayClassName",
    "group",
    "host",
    "hostname",
    "hostnames",
    "hosts",
    "http",
    "ingressClassName",
    "kind",
    "kinds",
    "labels",
    "listeners",
    "matchLabels",
    "metadata",
    "mode",
    "name",
    "namespace",
    "namespaces",
    "number",
    "parentRefs",
    "path",
    "paths",
    "pathType",
    "port",
    "ports",
    "protocol",
    "ready",
    "resource",
    "rules",
    "secretName",
    "sectionName",
    "selector",
    "service",
    "spec",
    "targetPort",
    "tls",
    "type",
    "value",
    "weight",
];

/// The object as a `T`. Fields that `T` does not have are warned of; a value of the wrong type is an error, with
/// its field, and nothing is returned. With `confidential`, no value is repeated in a message.
pub(super) fn parse<T: DeserializeOwned>(
    value: &Value,
    confidential: bool,
    findings: &mut Findings,
) -> Option<T> {
    let mut unknown = Vec::new();
    if let Ok(object) = serde_ignored::deserialize(value, |path| unknown.push(render(&path))) {
        for field in unknown {
            warn_of_unknown(field, findings);
        }
        return Some(object);
    }
    let error = serde_path_to_error::deserialize::<_, T>(value).err()?;
    let mut field = String::new();
    let mut found = value;
    for segment in error.path() {
        match segment {
            Segment::Seq { index } => {
                push_index(&mut field, *index);
                found = found.get(index).unwrap_or(&Value::Null);
            }
            Segment::Map { key } => {
                push_key(&mut field, key);
                found = found.get(key).unwrap_or(&Value::Null);
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    let message = error.inner().to_string();
    // Serde's own form of what does not fit (`serde::de::Error::invalid_type`, `invalid_value`).
    let is_serdes = message.starts_with("invalid type: ") || message.starts_with("invalid value: ");
    let expected = message.rsplit_once(", expected ").filter(|_| is_serdes).map(|(_, expected)| expected);
    if expected.is_none()
        && found.is_string()
        && (field.starts_with("data") || field.starts_with("binaryData"))
    {
        // A Secret's or a ConfigMap's; no other object has these fields.
        findings.error(field, "is not valid base64");
        return None;
    }
    findings.error(field, mismatch(found, expected, confidential));
    None
}

/// What is wrong with a value where `expected` should be, in serde's words or those of the Kubernetes types.
fn mismatch(found: &Value, expected: Option<&str>, confidential: bool) -> String {
    let is = match found {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    };
    let must_be = match (expected, found) {
        (None, _) => return "has a value that cannot be used".to_owned(),
        // Such as the host `no`, or the annotation 1.10.
        (Some("a string" | "a base64-encoded string"), Value::Bool(_) | Value::Number(_)) => {
            return "must be text: write it in quotes".to_owned();
        }
        (Some("i32" | "i64"), Value::String(text)) => match text.parse::<i64>() {
            Ok(number) if !confidential => return format!("must be a number: write {number}"),
            _ => "a number",
        },
        (Some("i32"), Value::Number(_)) => "a whole number of at most 32 bits",
        (Some("i64"), Value::Number(_)) => "a whole number of at most 64 bits",
        (Some("a boolean"), Value::String(text)) if text == "true" || text == "false" => {
            return "must be true or false: write it without quotes".to_owned();
        }
        (Some("a string" | "a base64-encoded string"), _) => "text",
        (Some("i32" | "i64"), _) => "a number",
        (Some("a boolean"), _) => "true or false",
        (Some("a sequence"), _) => "a list",
        (Some("IntOrString"), _) => "a number or text",
        (Some("a timestamp string"), _) => "a time such as \"2024-01-31T12:00:00Z\"",
        // The name of a Kubernetes type.
        (Some(_), Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            "a mapping"
        }
        (Some(_), Value::Object(_)) => return "has a value that cannot be used".to_owned(),
    };
    match found {
        Value::String(text) if !confidential => format!("must be {must_be}, and is {text:?}"),
        _ => format!("must be {must_be}, and is {is}"),
    }
}

fn warn_of_unknown(field: String, findings: &mut Findings) {
    let name = field.rsplit(['.', ']']).next().unwrap_or_default();
    let message = match closest(name, &FIELDS) {
        Some(meant) if meant != name => format!("is unknown and does nothing: did you mean {meant}?"),
        _ => "is unknown and does nothing: is it in the right place?".to_owned(),
    };
    findings.warning(field, message);
}

fn render(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => {
            let mut field = render(parent);
            push_index(&mut field, *index);
            field
        }
        Path::Map { parent, key } => {
            let mut field = render(parent);
            push_key(&mut field, key);
            field
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            render(parent)
        }
    }
}

fn push_index(field: &mut String, index: usize) {
    field.push_str(&format!("[{index}]"));
}

fn push_key(field: &mut String, key: &str) {
    if key.contains(['.', '/', '[', ']']) {
        field.push_str(&format!("[{key}]"));
        return;
    }
    if !field.is_empty() {
        field.push('.');
    }
    field.push_str(key);
}
