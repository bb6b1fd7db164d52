//! From an untyped object to its Kubernetes type.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;
use sluicegate_model::feature::{Check, Fault, Faults};
use sluicegate_model::value::span;

use crate::object::Kind;
use crate::object::annotation::closest;
use crate::object::policy::crd;
use crate::problem::{Findings, Severity};

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

/// Fields of our kinds with a former name, and their present name.
const RENAMED: [(&str, &str); 7] = [
    ("access", "ipAccess"),
    ("default", "defaultAction"),
    ("external", "extAuth"),
    ("perAttempt", "timeouts.backendRequest"),
    ("respond", "directResponse"),
    ("rewrite", "urlRewrite"),
    ("statuses", "codes"),
];

/// The strictness of reading an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Unknown fields cause warnings.
    Lenient,
    /// Unknown fields cause warnings, and no message repeats a value.
    Confidential,
    /// For the kinds of the group `sluicegate.dev`. Unknown or empty fields of the specification are errors: a misspelt
    /// field may be a restriction of access.
    Strict(Kind),
}

/// The object as a `T`. Fields that `T` does not have are warnings or errors. A value of the wrong type is an error
/// with its field, and the result is `None`.
pub(super) fn parse<T: DeserializeOwned>(
    value: &Value,
    manner: Manner,
    findings: &mut Findings,
) -> Option<T> {
    if let (Manner::Strict(_), Some(spec)) = (manner, value.get("spec")) {
        refuse_nulls(spec, "spec", findings);
    }
    read_at(value, "", manner, findings)
}

/// The parts of a specification that a `T` has, each by itself: a part with an error is reported and left out. A `T`
/// has a field for each part, and each part is optional.
pub(crate) fn parts<T>(spec: &Value, kind: Kind, findings: &mut Findings) -> T
where
    T: DeserializeOwned + Default + Check + JsonSchema + 'static,
{
    let known = crd::fields::<T>();
    let mut valid = Map::new();
    for (name, part) in spec.as_object().into_iter().flatten() {
        // An empty part is reported already.
        if known.contains(name.as_str()) && !part.is_null() {
            let part = Map::from_iter([(name.clone(), part.clone())]);
            if reads::<T>(part.clone(), kind, findings) {
                valid.extend(part);
            } else if !findings.has_errors() {
                // No part is lost without an error: the part may restrict access.
                findings.error(format!("spec.{name}"), "cannot be read");
            }
        }
    }
    // Each part is readable by itself. If not all parts are readable together, no part may be lost without an error.
    let read = |valid: &Map<String, Value>, findings: &mut Findings| -> T {
        serde_json::from_value(Value::Object(valid.clone())).unwrap_or_else(|error| {
            findings.error("spec", error.to_string());
            T::default()
        })
    };
    let mut faulty = Vec::new();
    read(&valid, findings).check(&mut Faults::new("spec", &mut |field, fault| match fault {
        Fault::Error(message) => {
            faulty.extend(field.split(['.', '[']).nth(1).map(str::to_owned));
            findings.error(field, message);
        }
        Fault::Warning(message) => findings.warning(field, message),
    }));
    valid.retain(|name, _| !faulty.contains(name));
    read(&valid, findings)
}

/// The entries of a list of the specification, each with its place. Errors of one entry leave the other entries.
pub(crate) fn entries<T: DeserializeOwned>(
    spec: &Value,
    name: &str,
    kind: Kind,
    findings: &mut Findings,
) -> Placed<T> {
    let list = match spec.get(name) {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(list)) => list,
        Some(other) => {
            findings.error(format!("spec.{name}"), mismatch(other, Some("a sequence"), false));
            return Vec::new();
        }
    };
    let entry = |(index, entry): (usize, &Value)| {
        let within = format!("spec.{name}[{index}]");
        read_at(entry, &within, Manner::Strict(kind), findings).map(|entry| (index, entry))
    };
    list.iter().enumerate().filter_map(entry).collect()
}

/// The entries of a list, each with its place.
pub(crate) type Placed<T> = Vec<(usize, T)>;

/// The valid entries of a list of at most 16 entries, each with its place. Errors of one entry leave the other entries.
pub(crate) fn valid_entries<T: DeserializeOwned + Check>(
    spec: &Value,
    name: &str,
    kind: Kind,
    findings: &mut Findings,
) -> Placed<T> {
    /// The limit of the schema.
    const ENTRIES_MAX: usize = 16;
    let field = format!("spec.{name}");
    match spec.get(name).and_then(Value::as_array).map(Vec::len) {
        Some(0) => findings.error(&field, "is empty: write an entry, or remove the field"),
        Some(count) if count > ENTRIES_MAX => {
            findings.error(&field, format!("has {count} entries, but may have at most {ENTRIES_MAX}"));
        }
        _ => {}
    }
    let mut entries: Placed<T> = entries(spec, name, kind, findings);
    entries.retain(|(index, entry)| {
        let mut is_valid = true;
        entry.check(&mut Faults::new(&format!("{field}[{index}]"), &mut |field, fault| match fault {
            Fault::Error(message) => {
                is_valid = false;
                findings.error(field, message);
            }
            Fault::Warning(message) => findings.warning(field, message),
        }));
        is_valid
    });
    entries
}

/// Reports parts of a specification that its kind does not have.
pub(crate) fn report_unknown_parts(spec: &Value, kind: Kind, findings: &mut Findings) {
    let known = crd::names_at(kind, "spec");
    match spec {
        Value::Object(fields) => {
            for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
                let mut field = "spec".to_owned();
                push_key(&mut field, name);
                report_unknown_field(field, Manner::Strict(kind), findings);
            }
        }
        Value::Null => {}
        other => findings.error("spec", mismatch(other, Some("a mapping"), false)),
    }
}

/// A value at a field of an object.
fn read_at<T: DeserializeOwned>(
    value: &Value,
    within: &str,
    manner: Manner,
    findings: &mut Findings,
) -> Option<T> {
    let mut unknown = Vec::new();
    let read = serde_ignored::deserialize(value, |path| unknown.push(join(within, &render(&path)))).ok();
    // The unknown fields before the unreadable field, if there is an unreadable field.
    for field in unknown {
        report_unknown_field(field, manner, findings);
    }
    if read.is_none()
        && let Err(error) = serde_path_to_error::deserialize::<_, T>(value)
    {
        let Misfit { field, message, .. } = misfit(value, within, &error, manner);
        findings.error(field, message);
    }
    read
}

/// `spec.field`
fn join(within: &str, field: &str) -> String {
    match field {
        "" => within.to_owned(),
        field if within.is_empty() => field.to_owned(),
        field if field.starts_with('[') => format!("{within}{field}"),
        field => format!("{within}.{field}"),
    }
}

/// Whether a part of a specification can be read. All its errors are reported: after each, the faulty element is left
/// out.
fn reads<T: DeserializeOwned>(part: Map<String, Value>, kind: Kind, findings: &mut Findings) -> bool {
    /// The maximum number of errors that are reported of one part.
    const ERRORS_MAX: usize = 16;
    let manner = Manner::Strict(kind);
    let mut rest = Value::Object(part);
    let mut unknown = Vec::new();
    // Fields behind an unreadable element are seen after the element is left out.
    let mut reported: BTreeSet<String> = BTreeSet::new();
    let mut shifts = Shifts::default();
    for errors in 0..ERRORS_MAX {
        let read = serde_ignored::deserialize::<_, _, T>(&rest, |path| {
            unknown.push(join("spec", &render(&path)));
        });
        if read.is_ok() {
            for field in unknown {
                if reported.insert(field.clone()) {
                    report_unknown_field(field, manner, findings);
                }
            }
            return errors == 0;
        }
        unknown.clear();
        let Err(error) = serde_path_to_error::deserialize::<_, T>(&rest) else { return false };
        let Misfit { field, message, path } = misfit(&rest, "spec", &error, manner);
        let shown = shifts.original(&field);
        // A list of which all entries were left out is not empty in the object. An empty field is reported already.
        let is_new = reported.insert(shown.clone())
            && !findings.0.iter().any(|other| other.severity == Severity::Error && other.field == shown);
        if is_new && !shifts.0.contains_key(&field) {
            findings.error(shown, message);
        }
        // The path of a missing field is the path of its mapping, which is unreadable as a whole.
        reported.insert(shifts.original(&render_steps(&path)));
        if path.len() <= 1 || !remove(&mut rest, &path, &mut shifts) {
            return false;
        }
    }
    false
}

/// The places of entries in lists of which earlier entries were left out.
#[derive(Default)]
struct Shifts(BTreeMap<String, Vec<usize>>);

impl Shifts {
    /// The field as it was before entries were left out.
    fn original(&self, field: &str) -> String {
        let mut original = String::new();
        let mut rest = field;
        while let Some((list, (index, behind))) =
            rest.split_once('[').and_then(|(list, of)| Some((list, of.split_once(']')?)))
        {
            original.push_str(list);
            let place = index.parse().ok().and_then(|index: usize| self.0.get(&original)?.get(index));
            let index = place.map_or(index.to_owned(), usize::to_string);
            original.push_str(&format!("[{index}]"));
            rest = behind;
        }
        original + rest
    }
}

/// The field of the specification at a path.
fn render_steps(path: &[Step]) -> String {
    let mut field = "spec".to_owned();
    for step in path {
        match step {
            Step::Key(key) => push_key(&mut field, key),
            Step::Index(index) => push_index(&mut field, *index),
        }
    }
    field
}

/// Leaves out the element at a path. Returns whether it was there.
fn remove(value: &mut Value, path: &[Step], shifts: &mut Shifts) -> bool {
    let Some((last, parents)) = path.split_last() else { return false };
    let mut at = value;
    for step in parents {
        let next = match step {
            Step::Key(key) => at.get_mut(key),
            Step::Index(index) => at.get_mut(index),
        };
        let Some(next) = next else { return false };
        at = next;
    }
    match (last, at) {
        (Step::Key(key), Value::Object(fields)) => fields.remove(key).is_some(),
        (Step::Index(index), Value::Array(entries)) if *index < entries.len() => {
            let places =
                shifts.0.entry(render_steps(parents)).or_insert_with(|| (0..entries.len()).collect());
            places.remove(*index);
            entries.remove(*index);
            true
        }
        _ => false,
    }
}

/// A step from a value to a part of it.
enum Step {
    Key(String),
    Index(usize),
}

/// A value that does not fit its type.
struct Misfit {
    field: String,
    message: String,
    path: Vec<Step>,
}

/// The problem behind an error of serde.
fn misfit(
    value: &Value,
    within: &str,
    error: &serde_path_to_error::Error<serde_json::Error>,
    manner: Manner,
) -> Misfit {
    let confidential = manner == Manner::Confidential;
    let mut field = within.to_owned();
    let mut path = Vec::new();
    let mut found = value;
    for segment in error.path() {
        match segment {
            Segment::Seq { index } => {
                push_index(&mut field, *index);
                path.push(Step::Index(*index));
                found = found.get(index).unwrap_or(&Value::Null);
            }
            Segment::Map { key } => {
                push_key(&mut field, key);
                path.push(Step::Key(key.clone()));
                found = found.get(key).unwrap_or(&Value::Null);
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    let message = error.inner().to_string();
    // Serde's own message for absent fields (`serde::de::Error::missing_field`, `unknown_variant`).
    let quoted =
        |text: &str| -> Vec<String> { text.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    if message.starts_with("missing field ") {
        if let Some(name) = quoted(&message).first() {
            push_key(&mut field, name);
        }
        return Misfit { field, message: "is missing".to_owned(), path };
    }
    if let (Some((_, known)), Value::String(text)) =
        (message.strip_prefix("unknown variant ").and_then(|rest| rest.split_once(", expected ")), found)
    {
        let message = format!("{text:?} is unknown: write {}", in_words(&quoted(known)));
        return Misfit { field, message, path };
    }
    // Serde's own message for unsuitable values (`serde::de::Error::invalid_type`, `invalid_value`).
    let is_serdes = message.starts_with("invalid type: ") || message.starts_with("invalid value: ");
    let expected = message.rsplit_once(", expected ").filter(|_| is_serdes).map(|(_, expected)| expected);
    if expected.is_none()
        && found.is_string()
        && (field.starts_with("data") || field.starts_with("binaryData"))
    {
        // The field of a Secret or a ConfigMap; no other object has these fields.
        return Misfit { field, message: "is not valid base64".to_owned(), path };
    }
    let is_text = matches!(expected, Some("a string"));
    let message = match found {
        Value::Number(number) if is_text && is_duration(&field, manner) => {
            let seconds = number
                .as_u64()
                .map_or("a unit, such as 10s".to_owned(), |number| format!("{number}s for seconds"));
            format!("is a number without a unit: write {seconds}")
        }
        // Values of our kinds state what is wrong with them.
        _ if expected.is_none() && matches!(manner, Manner::Strict(_)) => message,
        found
            if !found.is_string()
                && let Some(names) = names_of(&field, manner) =>
        {
            // YAML 1.1 reads these words as true and false.
            let hint = if found.is_boolean() {
                "; YAML reads words such as Yes and Off as true or false"
            } else {
                ""
            };
            format!("must be {}, but is {}{hint}", in_words(&names), in_words_of(found))
        }
        _ => mismatch(found, expected, confidential),
    };
    Misfit { field, message, path }
}

/// The values of a field of our kinds that has a list of them.
fn names_of(field: &str, manner: Manner) -> Option<Vec<String>> {
    let Manner::Strict(kind) = manner else { return None };
    let names = crd::schema_at(kind, field)?.get("enum")?.as_array()?;
    Some(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Whether a field of our kinds is a duration, for which users of other gateways write numbers.
fn is_duration(field: &str, manner: Manner) -> bool {
    let Manner::Strict(kind) = manner else { return false };
    crd::schema_at(kind, field).is_some_and(|schema| schema.get("pattern") == Some(&span::PATTERN.into()))
}

/// The problem of a value where `expected` should be, in words of serde or of the Kubernetes types.
fn mismatch(found: &Value, expected: Option<&str>, confidential: bool) -> String {
    let is = in_words_of(found);
    let must_be = match (expected, found) {
        (None, _) => return "has an invalid value".to_owned(),
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
        (Some(_), Value::Object(_)) => return "has an invalid value".to_owned(),
    };
    match found {
        Value::String(text) if !confidential => format!("must be {must_be}, but is {text:?}"),
        _ => format!("must be {must_be}, but is {is}"),
    }
}

/// The type of a value.
fn in_words_of(found: &Value) -> &'static str {
    match found {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

fn report_unknown_field(field: String, manner: Manner, findings: &mut Findings) {
    let (within, name) = field.rsplit_once(['.', ']']).unwrap_or(("", &field));
    let known: Vec<&str> = match manner {
        Manner::Strict(kind) => crd::names_at(kind, within),
        Manner::Lenient | Manner::Confidential => FIELDS.to_vec(),
    };
    let former = RENAMED.iter().find(|(former, _)| *former == name);
    let hint = match (former, closest(name, &known)) {
        (Some((_, present)), _) if known.contains(present) || present.contains('.') => {
            format!("it is called {present}")
        }
        (_, Some(meant)) if meant != name => format!("did you mean {meant}?"),
        _ => "check its spelling and its place".to_owned(),
    };
    // Outside the specification, in the API server's part, there are newer versions of objects than ours.
    let is_around = ["metadata", "status"].iter().any(|part| field.starts_with(part));
    if matches!(manner, Manner::Strict(_)) && !is_around {
        findings.error(field, format!("is unknown: {hint}"));
    } else {
        findings.warning(field, format!("is unknown and ignored: {hint}"));
    }
}

/// Reports fields without a value.
fn refuse_nulls(value: &Value, field: &str, findings: &mut Findings) {
    match value {
        Value::Null => findings.error(field, "is empty: write a value, or remove the field"),
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                refuse_nulls(entry, &format!("{field}[{index}]"), findings);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let mut field = field.to_owned();
                push_key(&mut field, key);
                refuse_nulls(value, &field, findings);
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `A, B or C`
fn in_words(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
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
