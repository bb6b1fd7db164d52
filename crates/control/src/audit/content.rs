//! The fields of an object that users write, without secrets.

use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};
use sluicegate_model::audit::Version;

use super::secrets;
use crate::object::{Kind, ObjectRef, annotation};

/// The form of versions. Another selection of fields, or other rules for secrets, need another form.
const FORM: u32 = 1;

/// The longest text that is recorded as it is, in bytes. Of a longer text, the version has the length and a part of the hash.
const TEXT_MAX: usize = 512;

/// The prefix of the recorded annotations of Services, which hold the annotations of many programs.
const OURS: &str = "sluicegate.dev/";

/// The annotation in which kubectl repeats the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields around the specification that change with each write, or that the gateway itself writes.
const AROUND: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// The version of an object as written, or as the API server sends it.
pub(crate) fn version(object: &ObjectRef, value: &Value) -> Version {
    let metadata = &value["metadata"];
    let mut content = content(object.kind, value);
    secrets::cover(object, &mut content);
    shorten(&mut content);
    let content: Box<str> = json!(content).to_string().into();
    let text = |field: &str| metadata[field].as_str();
    let created = text("creationTimestamp").and_then(|time| time.parse::<Timestamp>().ok());
    Version {
        uid: text("uid").unwrap_or_default().into(),
        // Resource versions of a cluster are numbers, which grow.
        number: text("resourceVersion").and_then(|version| version.parse().ok()),
        generation: metadata["generation"].as_i64(),
        created: created.map(Timestamp::as_millisecond),
        manager: manager(&metadata["managedFields"]),
        hash: hash(&content),
        content,
    }
}

fn content(kind: Kind, value: &Value) -> Map<String, Value> {
    let mut content = Map::new();
    let is_recorded = |name: &str| match kind {
        // The gateway writes the name of a Gateway to the Service that it creates for the Gateway.
        Kind::Service => name.starts_with(OURS) && name != annotation::GATEWAY,
        _ => name != LAST_APPLIED && name != annotation::PROBLEMS,
    };
    let of_metadata = |field: &str| -> Option<Value> {
        let entries = value["metadata"][field].as_object()?.iter();
        let entries = entries.filter(|(name, _)| is_recorded(name));
        let entries: Map<_, _> = entries.map(|(name, value)| (name.clone(), value.clone())).collect();
        (!entries.is_empty()).then_some(Value::Object(entries))
    };
    let fields: &[&str] = if kind == Kind::Service { &["annotations"] } else { &["annotations", "labels"] };
    let metadata: Map<_, _> = fields
        .iter()
        .filter_map(|field| of_metadata(field).map(|entries| ((*field).to_owned(), entries)))
        .collect();
    if !metadata.is_empty() {
        content.insert("metadata".into(), metadata.into());
    }
    if kind != Kind::Service
        && let Some(fields) = value.as_object()
    {
        let written = fields.iter().filter(|(name, value)| !AROUND.contains(&&***name) && !value.is_null());
        content.extend(written.map(|(name, value)| (name.clone(), value.clone())));
    }
    content
}

/// Shortens each long text.
fn shorten(fields: &mut Map<String, Value>) {
    fn one(value: &mut Value) {
        match value {
            Value::String(text) if text.len() > TEXT_MAX => {
                *text = described(text);
            }
            Value::Array(entries) => entries.iter_mut().for_each(one),
            Value::Object(fields) => shorten(fields),
            _ => {}
        }
    }
    fields.values_mut().for_each(one);
}

/// `(1200 bytes, SHA-256 0123456789abcdef...)`
pub(super) fn described(text: &str) -> String {
    format!("({} bytes, SHA-256 {}...)", text.len(), &hexadecimal(text.as_bytes())[..16])
}

/// The form of versions, with the hash. A program with another form does not take the difference of the forms for changes.
fn hash(content: &str) -> Box<str> {
    format!("{FORM}:{}", hexadecimal(content.as_bytes())).into()
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in digest(&SHA256, bytes).as_ref() {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The newest manager of fields, without the managers of the status. The gateway itself writes the annotation with problems, as a
/// client without a name of its own.
fn manager(managed: &Value) -> Option<Box<str>> {
    let of = managed.as_array()?.iter();
    let of = of.filter(|entry| entry["subresource"].as_str().is_none_or(str::is_empty) && !is_own(entry));
    // The times have the same form, so the order of the texts is the order of the times.
    let newest = of.max_by_key(|entry| entry["time"].as_str().unwrap_or_default())?;
    Some(newest["manager"].as_str()?.chars().take(128).collect::<String>().into())
}

/// Whether a manager has only the annotation with problems.
fn is_own(entry: &Value) -> bool {
    let fields = &entry["fieldsV1"];
    let names = |value: &Value| -> Vec<String> {
        value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .filter(|name| name != ".")
            .collect()
    };
    let annotations = &fields["f:metadata"]["f:annotations"];
    names(fields) == ["f:metadata"]
        && names(&fields["f:metadata"]) == ["f:annotations"]
        && names(annotations) == [format!("f:{}", annotation::PROBLEMS)]
}
