//! An untyped object into its Kubernetes type.

use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;
use serde_path_to_error::Segment;

use crate::object::annotation::closest;
use crate::problem::Findings;

/// Fields that are often misspelt.
const FIELDS: [&str; 33] = [
    "addressType",
    "addresses",
    "annotations",
    "backend",
    "conditions",
    "controller",
    "data",
    "defaultBackend",
    "endpoints",
    "externalName",
    "host",
    "hosts",
    "http",
    "ingressClassName",
    "labels",
    "metadata",
    "name",
    "namespace",
    "number",
    "path",
    "pathType",
    "paths",
    "port",
    "ports",
    "protocol",
    "ready",
    "resource",
    "rules",
    "secretName",
    "service",
    "spec",
    "targetPort",
    "tls",
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
    for segment in error.path() {
        match segment {
            Segment::Seq { index } => push_index(&mut field, *index),
            Segment::Map { key } => push_key(&mut field, key),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    let mut message = error.inner().to_string();
    if confidential {
        message = "has a value of the wrong type".to_owned();
    } else if message.ends_with("expected a string")
        && !message.contains("sequence")
        && !message.contains("map")
    {
        // Such as the host `no`, or the annotation 1.10.
        message.push_str(": write it in quotes");
    }
    findings.error(field, message);
    None
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
