//! From a declarative file of Kong to objects that serve the same requests.
//!
//! The command `convert` prints the objects, and the directory source serves them. The output is a Gateway, an HTTPRoute
//! for each part of a route, Services with their endpoints, Consumers, Secrets and policies. Each HTTPRoute has a priority of
//! its own, which orders the routes as Kong orders them. A note names each thing that is not converted. A part of the file
//! that restricts access and is not converted closes its routes: they respond with 503.
//!
//! | module | content |
//! |---|---|
//! | [`callers`] | the limits of single consumers and groups |
//! | [`consumers`] | the Consumers and their credentials |
//! | [`gateway`] | the Gateway and its certificates |
//! | [`openid`] | logins and the introspection of tokens |
//! | [`plugins`] | the plugins of a route, as parts of policies and filters |
//! | [`rewrite`] | the path for the service |
//! | [`routes`] | the HTTPRoutes |
//! | [`services`] | the Services, their endpoints and health checks |

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sluicegate_kong::node::ReadError;
use sluicegate_kong::note::Notes;
use sluicegate_kong::{File, Note, Severity, Source};

use super::numbered;
use crate::object::gateway_api::GROUP;
use crate::translate::ObjectName;

mod callers;
mod consumers;
mod gateway;
mod openid;
mod plugins;
mod rewrite;
mod routes;
mod services;
#[cfg(test)]
mod tests;

/// The longest list of targets of a policy.
const TARGETS_MAX: usize = 16;

/// The version of our policies.
const POLICY_VERSION: &str = "sluicegate.dev/v1alpha1";

/// The options of a conversion.
#[derive(Clone, Debug)]
pub struct KongOptions {
    /// The Gateway of the routes. All objects have its namespace. Default `default/kong`.
    pub gateway: ObjectName,
    /// The class of the Gateway. Default `sluicegate`.
    pub gateway_class: String,
    /// The port for HTTP. Default 8000, as in Kong.
    pub http_port: u16,
    /// The port for HTTPS. Default 8443, as in Kong.
    pub https_port: u16,
    /// Whether the Gateway exists, so that it is not printed. Default false.
    pub has_gateway: bool,
    /// Whether the objects are for a cluster, which accepts fewer names than the gateway. Default false.
    pub for_cluster: bool,
}

impl Default for KongOptions {
    fn default() -> Self {
        Self {
            gateway: ObjectName { namespace: "default".into(), name: "kong".into() },
            gateway_class: "sluicegate".to_owned(),
            http_port: 8000,
            https_port: 8443,
            has_gateway: false,
            for_cluster: false,
        }
    }
}

/// The result of the conversion of a file.
#[derive(Debug, Default)]
pub struct KongConverted {
    /// The objects, as YAML; empty if a note is an error.
    pub yaml: String,
    /// The errors of the files, and the things that are not converted, each with its file and its line in the file.
    pub notes: Vec<(PathBuf, Note)>,
}

impl KongConverted {
    /// The number of errors.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.notes.iter().filter(|(_, note)| note.severity == Severity::Error).count()
    }
}

/// Converts the texts of declarative files of Kong, which are one configuration. `variable` returns the value of a variable of the
/// environment.
#[must_use]
pub fn convert_kong(
    files: &[(PathBuf, String)],
    options: &KongOptions,
    variable: &dyn Fn(&str) -> Option<String>,
) -> KongConverted {
    let path = |file: usize| files.get(file).map(|(path, _)| path.clone()).unwrap_or_default();
    let names: Vec<String> = files.iter().map(|(path, _)| path.display().to_string()).collect();
    let sources = files.iter().zip(&names).map(|((_, text), name)| Source { name, text });
    let file = match File::read_all(&sources.collect::<Vec<_>>(), variable) {
        Ok(file) => file,
        Err(ReadError { file, line, message }) => {
            let note = Note { line, severity: Severity::Error, entity: String::new(), message };
            return KongConverted { yaml: String::new(), notes: vec![(path(file), note)] };
        }
    };
    let places = &file.places;
    let Objects { objects, notes } = objects(&file, options);
    let documents = objects.iter().filter_map(|(_, object)| serde_saphyr::to_string(object).ok());
    let notes = notes.into_iter().map(|note| {
        let (file, line) = places.of(note.line);
        (path(file), Note { line, ..note })
    });
    KongConverted { yaml: documents.collect::<Vec<_>>().join("---\n"), notes: notes.collect() }
}

/// Whether a text is a declarative file of Kong: a line begins with the key of its format. In YAML, an indented line may be a
/// part of a text, such as a value of a ConfigMap.
#[must_use]
pub fn is_kong(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}');
    let is_json = text.trim_start().starts_with('{');
    let is_key = |line: &str| {
        let line = if is_json { line.trim_start_matches(['{', ' ', '\t']) } else { line };
        let rest = line.trim_start_matches(['"', '\'']).strip_prefix("_format_version");
        rest.is_some_and(|rest| rest.trim_start_matches(['"', '\'', ' ']).starts_with(':'))
    };
    text.lines().any(is_key)
}

/// A note with its file: `FILE:LINE: ENTITY: MESSAGE`.
#[must_use]
pub fn located(file: &Path, note: &Note) -> String {
    sluicegate_model::text::one_line(&format!("{}:{}: {note}", file.display(), note.line)).into_owned()
}

/// The objects of a file, each with the line of its entity.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) objects: Vec<(u32, Value)>,
    pub(crate) notes: Vec<Note>,
}

/// Converts a file. A file with an error has no objects.
pub(crate) fn objects(file: &File, options: &KongOptions) -> Objects {
    let mut conversion = Conversion {
        file,
        options,
        names: Names::default(),
        notes: Notes(file.notes.clone()),
        listeners: Vec::new(),
        objects: Vec::new(),
        backends: BTreeMap::new(),
        policies: BTreeMap::new(),
        routes: Vec::new(),
        basic: None,
        closed: BTreeSet::new(),
        secrets: BTreeMap::new(),
        limits_of_callers: BTreeMap::new(),
    };
    if conversion.notes.has_errors() {
        return Objects { objects: Vec::new(), notes: conversion.notes.0 };
    }
    conversion.gateway();
    conversion.consumers();
    conversion.all_routes();
    let policies = conversion.policy_objects();
    let Conversion { objects, routes, mut notes, .. } = conversion;
    notes.0.sort();
    notes.0.dedup();
    if notes.has_errors() {
        return Objects { objects: Vec::new(), notes: notes.0 };
    }
    // kubectl applies the objects in this order, so no route is served before its policies exist.
    Objects { objects: objects.into_iter().chain(policies).chain(routes).collect(), notes: notes.0 }
}

/// The state of a conversion.
struct Conversion<'f> {
    file: &'f File,
    options: &'f KongOptions,
    names: Names,
    notes: Notes,
    /// The hostnames of the HTTPS listeners; empty: all names.
    listeners: Vec<String>,
    /// The objects other than policies and routes.
    objects: Vec<(u32, Value)>,
    /// The backends of services, by their destination.
    backends: BTreeMap<services::Destination, Vec<services::Backend>>,
    /// The policies, by kind, distinction and content; each with its line and its HTTPRoutes.
    policies: BTreeMap<(&'static str, u32, String), (u32, Vec<String>)>,
    /// The HTTPRoutes.
    routes: Vec<(u32, Value)>,
    /// The name of the Secret with passwords.
    basic: Option<String>,
    /// The places of consumers whose credentials are not valid.
    closed: BTreeSet<usize>,
    /// The Secrets of plugins and credentials, by line and label: several routes may need the same Secret.
    secrets: BTreeMap<(u32, &'static str), String>,
    /// The limits of the plugins of consumers and groups, by the number of the plugin; `None` if a plugin is not converted.
    limits_of_callers: BTreeMap<usize, Option<Vec<Value>>>,
}

impl Conversion<'_> {
    fn metadata(&self, name: &str) -> Value {
        json!({"name": name, "namespace": &*self.options.gateway.namespace})
    }

    /// Lets a policy with this content apply to an HTTPRoute. Policies with equal content and distinction are one policy.
    fn apply(
        &mut self,
        kind: &'static str,
        distinction: u32,
        line: u32,
        content: &Map<String, Value>,
        route: &str,
    ) {
        if content.is_empty() {
            return;
        }
        let content = Value::Object(content.clone()).to_string();
        let entry = self.policies.entry((kind, distinction, content));
        entry.or_insert_with(|| (line, Vec::new())).1.push(route.to_owned());
    }

    /// The policies, each with at most as many targets as the API allows.
    fn policy_objects(&mut self) -> Vec<(u32, Value)> {
        let mut objects = Vec::new();
        for ((kind, distinction, content), (line, targets)) in std::mem::take(&mut self.policies) {
            if kind == "RateLimitPolicy" && targets.len() > TARGETS_MAX {
                let message = format!(
                    "has {} HTTPRoutes, and a policy has at most {TARGETS_MAX}: each group of routes has a count of its own",
                    targets.len()
                );
                self.notes.unconverted(distinction, "plugin \"rate-limiting\"", message);
            }
            for targets in targets.chunks(TARGETS_MAX) {
                let Ok(Value::Object(content)) = serde_json::from_str::<Value>(&content) else { continue };
                let name = self.names.unique(kind, targets.first().map_or("kong", String::as_str));
                let mut spec = Map::new();
                let targets: Vec<Value> = targets
                    .iter()
                    .map(|name| json!({"group": GROUP, "kind": "HTTPRoute", "name": name}))
                    .collect();
                spec.insert("targetRefs".to_owned(), targets.into());
                spec.extend(content);
                let metadata = self.metadata(&name);
                objects.push((
                    line,
                    json!({"apiVersion": POLICY_VERSION, "kind": kind, "metadata": metadata, "spec": spec}),
                ));
            }
        }
        objects
    }
}

/// A time as Gateway API writes it: numbers of at most 5 digits with units.
fn duration(milliseconds: u64) -> String {
    let units = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let (mut rest, mut text) = (milliseconds, String::new());
    for (unit, length) in units {
        if rest >= length {
            text.push_str(&format!("{}{unit}", rest / length));
            rest %= length;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// The names of the objects, which are unique for each kind.
#[derive(Default)]
struct Names(BTreeSet<(&'static str, String)>);

impl Names {
    /// A free name that resembles a text.
    fn unique(&mut self, kind: &'static str, text: &str) -> String {
        let mut slug = String::with_capacity(text.len());
        for character in text.to_ascii_lowercase().chars() {
            match character.is_ascii_alphanumeric() {
                true => slug.push(character),
                false if slug.ends_with('-') || slug.is_empty() => {}
                false => slug.push('-'),
            }
        }
        // A Service is a DNS label, and begins with a letter.
        slug.truncate(50);
        let slug = slug.trim_end_matches('-');
        let base = match slug.chars().next() {
            None => "kong".to_owned(),
            Some(first) if first.is_ascii_digit() => format!("kong-{slug}"),
            Some(_) => slug.to_owned(),
        };
        let mut number = 1;
        loop {
            let name = numbered(&base, number);
            if self.0.insert((kind, name.clone())) {
                return name;
            }
            number += 1;
        }
    }
}
