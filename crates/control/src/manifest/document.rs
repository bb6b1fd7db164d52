//! From one document of a manifest to its objects.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use sluicegate_kong::node::ReadError;
use sluicegate_kong::{File, Note, Severity as NoteSeverity};
use sluicegate_model::audit::Version;
use sluicegate_model::value::syntax;

use super::{Syntax, split};
use crate::audit::content;
use crate::convert::kong::{self, KongOptions};
use crate::object::annotation::closest;
use crate::object::{Kind, Object, ObjectRef, policy};
use crate::problem::{Findings, Severity};

/// A parsed document.
pub(crate) struct Document {
    /// The text, which identifies the document and gives the lines of its fields.
    pub(crate) text: Arc<str>,
    /// The line of the beginning of the content, counted from 1 at the beginning of the text.
    pub(crate) line: u32,
    pub(crate) objects: Vec<ParsedObject>,
    /// The problems outside any object.
    pub(crate) faults: Vec<Fault>,
    /// Whether the names of all objects in it are known; if not, an earlier object that is missing may be unreadable.
    pub(crate) is_complete: bool,
    /// The routes that unreadable SecurityPolicies in it may guard.
    pub(crate) unknown_guards: Vec<Guarded>,
    /// Whether it is a declarative file of Kong.
    pub(crate) is_kong: bool,
    /// Whether the objects have versions for the audit trail.
    is_recorded: bool,
}

/// The routes that a SecurityPolicy with unknown targets may guard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Guarded {
    /// The routes of a namespace: policies guard nothing outside their namespace.
    Namespace(Arc<str>),
    /// Any route.
    Everything,
}

/// An object of a document.
#[derive(Debug)]
pub(crate) struct ParsedObject {
    pub(crate) object: ObjectRef,
    /// The part of the document: empty for all, or `items[3]`.
    pub(crate) part: Box<str>,
    /// The line of an object that is converted from another form, counted as in [`Document::line`].
    pub(crate) line: Option<u32>,
    /// The checked object; `None` if it is unusable.
    pub(crate) form: Option<Object>,
    pub(crate) findings: Findings,
    /// The version for the audit trail, if there is one.
    pub(crate) version: Option<Arc<Version>>,
}

/// A problem outside any object.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) severity: Severity,
    /// The line, if the parser reported it, counted as in [`Document::line`].
    pub(crate) line: Option<u32>,
    /// The object with the problem, as written: Kubernetes may not allow its name.
    pub(crate) object: Option<ObjectRef>,
    /// The field of the object, or of the document if there is no object.
    pub(crate) field: String,
    /// The part of the document with the object: empty for all, or `items[3]`.
    pub(crate) part: Box<str>,
    pub(crate) message: String,
}

/// Without the text, which may be the text of a Secret.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("objects", &self.objects)
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}

impl Document {
    /// The document of a file that is no text: the routes that it may guard.
    pub(crate) fn unreadable(text: &str) -> Self {
        Self { is_complete: false, unknown_guards: guarded_by_text(text), ..Self::empty("") }
    }

    /// A file or a folder that cannot be opened: it may guard anything.
    pub(crate) fn unopened() -> Self {
        Self { is_complete: false, unknown_guards: vec![Guarded::Everything], ..Self::empty("") }
    }

    fn empty(text: &str) -> Self {
        Self {
            text: text.into(),
            line: split::first_content_line(text),
            objects: Vec::new(),
            faults: Vec::new(),
            is_complete: true,
            unknown_guards: Vec::new(),
            is_kong: false,
            is_recorded: false,
        }
    }

    /// Parses a document. `is_recorded` tells whether its objects have versions for the audit trail.
    pub(crate) fn parse(text: &str, syntax: Syntax, is_recorded: bool) -> Self {
        let mut document = Self { is_recorded, ..Self::empty(text) };
        if kong::is_kong(text) {
            return document.of_kong(text);
        }
        match syntax.parse(text) {
            Ok(Value::Null) => {}
            Ok(mut value) => document.read(&mut value, ""),
            Err(fault) => {
                document.is_complete = false;
                document.unknown_guards = guarded_by_text(text);
                document.faults.push(Fault {
                    severity: Severity::Error,
                    line: fault.line,
                    object: None,
                    field: String::new(),
                    part: "".into(),
                    message: format!("cannot be read: {}", fault.message),
                });
            }
        }
        document
    }

    /// The objects of a declarative file of Kong. Variables have their values from the environment of the process.
    fn of_kong(mut self, text: &str) -> Self {
        self.is_kong = true;
        let document = &mut self;
        let file = File::read(text, &|name| std::env::var(name).ok());
        let converted = file.map(|file| kong::objects(&file, &KongOptions::default()));
        let (objects, notes) = match converted {
            Ok(kong::Objects { objects, notes }) => (objects, notes),
            Err(ReadError { line, message, file: _ }) => {
                let note = Note { line, severity: NoteSeverity::Error, entity: String::new(), message };
                (Vec::new(), vec![note])
            }
        };
        for note in notes {
            let is_error = note.severity == NoteSeverity::Error;
            // Nothing of the file is served, or its last valid version.
            document.is_complete &= !is_error;
            document.faults.push(Fault {
                severity: if is_error { Severity::Error } else { Severity::Warning },
                line: Some(note.line),
                object: None,
                field: String::new(),
                part: "".into(),
                message: note.to_string(),
            });
        }
        for (line, mut object) in objects {
            let first = document.objects.len();
            document.read(&mut object, "");
            document.objects[first..].iter_mut().for_each(|parsed| parsed.line = Some(line));
        }
        self
    }

    /// The document of an object that is parsed already.
    pub(crate) fn of_value(value: &mut Value) -> Self {
        let mut document = Self::empty("");
        document.read(value, "");
        document
    }

    /// Reads an object, or a list of objects.
    fn read(&mut self, value: &mut Value, part: &str) {
        let text_of = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text_of("apiVersion").to_owned(), text_of("kind").to_owned());
        if kind.is_empty() || api_version.is_empty() {
            let missing = if kind.is_empty() { "kind" } else { "apiVersion" };
            let is_ours = api_version.starts_with(policy::GROUP) || kind == Kind::SecurityPolicy.as_str();
            if is_ours {
                self.unknown_guards.push(guarded_by(value));
            } else if !value.is_object() {
                self.unknown_guards.extend(guarded_by_text(&value.to_string()));
            }
            self.refuse(None, part, "", format!("is not a Kubernetes object: it has no {missing}"));
            return;
        }
        let items_kind = kind.strip_suffix("List");
        if let (Some(items_kind), Some(Value::Array(items))) = (items_kind, value.get_mut("items")) {
            self.read_items(items, items_kind, &api_version, part);
            return;
        }
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        match Kind::parse(&kind) {
            Some(kind) if kind.api_versions().contains(&&*api_version) => self.read_object(kind, value, part),
            Some(kind) if is_former_version(kind, &api_version) || is_ours(kind) && group.is_empty() => {
                if kind == Kind::SecurityPolicy {
                    self.unknown_guards.push(guarded_by(value));
                }
                let message = format!(
                    "{api_version:?} is not a supported version of {kind}: write {}",
                    kind.api_versions()[0]
                );
                self.refuse(as_written(kind, value), part, "apiVersion", message);
            }
            None if group == policy::GROUP => {
                // No user would miss a guard with a misspelt kind.
                let ours = Kind::all().filter(|known| is_ours(*known));
                let ours: Vec<&str> = ours.map(Kind::as_str).collect();
                if closest(&kind, &ours).is_none_or(|meant| meant == Kind::SecurityPolicy.as_str()) {
                    self.unknown_guards.push(guarded_by(value));
                }
                self.refuse(None, part, "kind", format!("{kind:?} is unknown: write {}", ours.join(", ")));
            }
            _ => {
                tracing::debug!(
                    kind,
                    api_version,
                    "ignored an object of a kind that the gateway does not use"
                );
            }
        }
    }

    fn read_items(&mut self, items: &mut [Value], kind: &str, api_version: &str, part: &str) {
        for (index, item) in items.iter_mut().enumerate() {
            // The items of a typed list, such as a ServiceList, need no kind.
            if !kind.is_empty()
                && let Value::Object(fields) = item
            {
                fields.entry("kind").or_insert_with(|| kind.into());
                fields.entry("apiVersion").or_insert_with(|| api_version.into());
            }
            let dot = if part.is_empty() { "" } else { "." };
            self.read(item, &format!("{part}{dot}items[{index}]"));
        }
    }

    fn read_object(&mut self, kind: Kind, value: &Value, part: &str) {
        let object = match identify(kind, value) {
            Ok(object) => object,
            Err((field, message)) => {
                if kind == Kind::SecurityPolicy {
                    self.unknown_guards.push(guarded_by(value));
                }
                return self.refuse(as_written(kind, value), part, field, message);
            }
        };
        let mut findings = Findings::default();
        let form = (kind.row().read)(value, &object, &mut findings);
        if matches!(&form, Some(Object::SecurityPolicy(policy)) if policy.targets.is_empty()) {
            self.unknown_guards.push(Guarded::Namespace(object.namespace.clone()));
        }
        let is_recorded = self.is_recorded && kind.is_recorded();
        let version = is_recorded.then(|| content::version(&object, value).into());
        self.objects.push(ParsedObject { object, part: part.into(), line: None, form, findings, version });
    }

    fn refuse(&mut self, object: Option<ObjectRef>, part: &str, field: &str, message: String) {
        self.is_complete = false;
        let (part, field) = match object {
            Some(_) => (part, field.to_owned()),
            None => {
                let dot = if part.is_empty() || field.is_empty() { "" } else { "." };
                ("", format!("{part}{dot}{field}"))
            }
        };
        let part = part.into();
        self.faults.push(Fault { severity: Severity::Error, line: None, object, field, part, message });
    }
}

/// The routes that a SecurityPolicy may guard whose name or version is unusable.
fn guarded_by(value: &Value) -> Guarded {
    match value.get("metadata").map(|metadata| metadata.get("namespace")) {
        None | Some(None | Some(Value::Null)) => Guarded::named(""),
        Some(Some(Value::String(namespace))) => Guarded::named(namespace),
        Some(Some(_)) => Guarded::Everything,
    }
}

/// The routes that a text may guard that cannot be parsed, or is no text: `default`, and every namespace that it names.
/// Empty if it holds no SecurityPolicy.
pub(crate) fn guarded_by_text(text: &str) -> Vec<Guarded> {
    // In UTF-16 these are every second byte.
    let text = unescaped(&text.replace('\0', ""));
    let kinds = text.match_indices(Kind::SecurityPolicy.as_str());
    let is_named = kinds.map(|(at, _)| &text[..at]).any(|before| !before.ends_with(char::is_alphanumeric));
    if !is_named {
        return Vec::new();
    }
    let values = text.split("namespace").skip(1).filter_map(|rest| {
        let rest = rest.trim_start_matches(['"', '\'']).trim_start_matches([' ', '\t']).strip_prefix(':')?;
        let value = rest.split(['\n', ',', '}', '#']).next().unwrap_or_default();
        Some(value.trim().trim_matches(['"', '\'']))
    });
    let named = values.map(|value| match value {
        // The value may be on the next line.
        "" => Guarded::Everything,
        value => Guarded::named(value),
    });
    let named: BTreeSet<Guarded> = named.chain([Guarded::named("")]).collect();
    named.into_iter().collect()
}

/// The text with the escapes of quoted strings resolved. `"Security\u0050olicy"` is a kind like any other (YAML 1.2,
/// 5.7; RFC 8259, 7).
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let digits = match after.bytes().next() {
            Some(b'x') => 2,
            Some(b'u') => 4,
            Some(b'U') => 8,
            _ => 0,
        };
        let code = after.get(1..=digits).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        if let Some(character) = code.and_then(char::from_u32) {
            out.push(character);
            rest = &after[1 + digits..];
        } else if after.starts_with(['\n', '\r']) {
            // A line that is folded without a space.
            rest = after.trim_start();
        } else {
            out.push('\\');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

impl Guarded {
    /// Whether it includes a route of this namespace.
    pub(crate) fn has(&self, namespace: &str) -> bool {
        match self {
            Self::Namespace(guarded) => **guarded == *namespace,
            Self::Everything => true,
        }
    }

    /// A namespace as written: an absent namespace is `default`, and an invalid namespace may be any.
    fn named(namespace: &str) -> Self {
        match namespace {
            "" => Self::Namespace("default".into()),
            _ if syntax::dns_name_fault(namespace).is_some() => Self::Everything,
            _ => Self::Namespace(namespace.into()),
        }
    }
}

impl fmt::Display for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(namespace) => write!(f, "all routes of namespace {namespace}"),
            Self::Everything => f.write_str("all routes"),
        }
    }
}

/// The name of a rejected object, to identify it; `None` without a name.
fn as_written(kind: Kind, value: &Value) -> Option<ObjectRef> {
    let text = |key: &str| {
        let text = value.get("metadata")?.get(key)?.as_str()?;
        // The name goes into one line of a log.
        (!text.is_empty()).then(|| text.escape_debug().to_string())
    };
    let namespace = match kind.is_cluster_scoped() {
        true => String::new(),
        false => text("namespace").unwrap_or_else(|| "default".to_owned()),
    };
    Some(ObjectRef { kind, namespace: namespace.into(), name: text("name")?.into() })
}

/// The name of an object, or the faulty field and the reason.
fn identify(kind: Kind, value: &Value) -> Result<ObjectRef, (&'static str, String)> {
    let text = |field: &'static str, key: &str, default: &'static str| {
        match value.get("metadata").and_then(|metadata| metadata.get(key)) {
            None | Some(Value::Null) => Ok((field, default)),
            Some(Value::String(text)) if text.is_empty() => Ok((field, default)),
            Some(Value::String(text)) => Ok((field, text.as_str())),
            // For example `name: no`.
            Some(_) => Err((field, "is not a string: write it in quotes".to_owned())),
        }
    };
    // The name of a ClusterTrustBundle is the name of its signer with colons, and a name: `example.com:ca:v1`.
    let is_of_signer = kind == Kind::ClusterTrustBundle;
    let fault = |text: &str| match is_of_signer && text.contains(':') {
        true => text.split(':').find_map(syntax::dns_name_fault),
        false => syntax::dns_name_fault(text),
    };
    let valid = |(field, text): (&'static str, &str)| match fault(text) {
        None => Ok(Arc::from(text)),
        Some(_) if text.is_empty() => Err((field, format!("is missing in an object of kind {kind}"))),
        Some(fault) => Err((field, format!("{text:?} {fault}"))),
    };
    let name = text("metadata.name", "name", "").and_then(valid)?;
    let namespace = match kind.is_cluster_scoped() {
        true => "".into(),
        false => text("metadata.namespace", "namespace", "default").and_then(valid)?,
    };
    Ok(ObjectRef { kind, namespace, name })
}

/// Whether this kind is of our own group.
fn is_ours(kind: Kind) -> bool {
    kind.api_versions()[0].starts_with(policy::GROUP)
}

/// Whether this kind was once served in `api_version`.
fn is_former_version(kind: Kind, api_version: &str) -> bool {
    let group = |version: &str| version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
    group(api_version) == group(kind.api_versions()[0])
        || (kind == Kind::Ingress && group(api_version) == "extensions")
}
