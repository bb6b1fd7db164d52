//! What Kong demands of a file beside its form: types of the fields of plugins, names that are unique, and values.
//!
//! Kong rejects a file that breaks one of these rules. A value of a wrong type would otherwise be a missing value, and a limit
//! or a restriction would silently not apply.

use std::collections::HashMap;

use super::entity::label;
use super::{CredentialKind, File, Places, Plugin, Route};
use crate::node::{Node, Value};
use crate::note::Notes;

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Number,
    Flag,
    Text,
    /// A list of texts.
    Texts,
    /// A list of numbers.
    Numbers,
    Mapping,
}

use Type::{Flag, Mapping, Number, Numbers, Text, Texts};

/// The fields of a plugin with a type.
type Fields = &'static [(Type, &'static [&'static str])];

/// The types of the fields of plugins.
const PLUGINS: [(&str, Fields); 14] = [
    ("acl", &[(Texts, &["allow", "deny", "whitelist", "blacklist"]), (Flag, &["hide_groups_header"])]),
    ("basic-auth", &[(Text, &["realm", "anonymous"]), (Flag, &["hide_credentials"])]),
    ("bot-detection", &[(Texts, &["allow", "deny", "whitelist", "blacklist"])]),
    (
        "cors",
        &[
            (Texts, &["origins", "methods", "headers", "exposed_headers"]),
            (Number, &["max_age"]),
            (Flag, &["credentials", "preflight_continue", "private_network", "allow_origin_absent"]),
        ],
    ),
    (
        "ip-restriction",
        &[(Texts, &["allow", "deny", "whitelist", "blacklist"]), (Number, &["status"]), (Text, &["message"])],
    ),
    (
        "jwt",
        &[
            (Texts, &["header_names", "uri_param_names", "cookie_names", "claims_to_verify"]),
            (Text, &["key_claim_name", "anonymous", "realm"]),
            (Flag, &["secret_is_base64", "run_on_preflight"]),
            (Number, &["maximum_expiration"]),
        ],
    ),
    (
        "key-auth",
        &[
            (Texts, &["key_names"]),
            (Text, &["anonymous", "realm"]),
            (Flag, &["key_in_header", "key_in_query", "key_in_body", "hide_credentials", "run_on_preflight"]),
        ],
    ),
    (
        "proxy-cache",
        &[
            (Texts, &["request_method", "content_type", "vary_headers", "vary_query_params"]),
            (Numbers, &["response_code"]),
            (Number, &["cache_ttl", "storage_ttl"]),
            (Flag, &["cache_control", "ignore_uri_case"]),
        ],
    ),
    (
        "rate-limiting",
        &[
            (Number, &["second", "minute", "hour", "day", "month", "year", "error_code", "sync_rate"]),
            (Text, &["limit_by", "header_name", "path", "policy", "error_message"]),
            (Flag, &["fault_tolerant", "hide_client_headers"]),
            (Mapping, &["redis"]),
        ],
    ),
    ("redirect", &[(Number, &["status_code"]), (Text, &["location"]), (Flag, &["keep_incoming_path"])]),
    (
        "request-size-limiting",
        &[(Number, &["allowed_payload_size"]), (Text, &["size_unit"]), (Flag, &["require_content_length"])],
    ),
    (
        "request-termination",
        &[
            (Number, &["status_code"]),
            (Text, &["message", "body", "content_type", "trigger"]),
            (Flag, &["echo"]),
        ],
    ),
    (
        "request-transformer",
        &[(Mapping, &["remove", "rename", "replace", "add", "append"]), (Text, &["http_method"])],
    ),
    ("response-transformer", &[(Mapping, &["remove", "rename", "replace", "add", "append"])]),
];

/// The periods of limits, from the shortest.
const PERIODS: [&str; 6] = ["second", "minute", "hour", "day", "month", "year"];

/// The algorithms of upstreams.
const ALGORITHMS: [&str; 5] =
    ["consistent-hashing", "latency", "least-connections", "round-robin", "sticky-sessions"];

impl Type {
    fn fits(self, node: &Node) -> bool {
        let entries = |is_it: fn(&Node) -> bool| node.list().is_some_and(|items| items.iter().all(is_it));
        match self {
            Number => node.number().is_some(),
            Flag => node.flag().is_some(),
            Text => node.text().is_some(),
            Texts => entries(|item| item.text().is_some()),
            Numbers => entries(|item| item.number().is_some()),
            Mapping => node.map().is_some(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Number => "a number without quotes",
            Flag => "true or false",
            Text => "a text",
            Texts => "a list of texts",
            Numbers => "a list of numbers",
            Mapping => "a mapping",
        }
    }
}

/// Checks the configuration of a plugin.
pub(super) fn check_plugin(plugin: &Plugin, notes: &mut Notes) {
    let Some((_, fields)) = PLUGINS.iter().find(|(name, _)| *name == plugin.name) else { return };
    for (key, node) in plugin.config.map().unwrap_or_default() {
        let expected = fields.iter().find(|(_, keys)| keys.contains(&&**key)).map(|(kind, _)| *kind);
        let Some(expected) = expected.filter(|kind| node.value != Value::Null && !kind.fits(node)) else {
            continue;
        };
        notes.error(
            node.line,
            &plugin.label(),
            format!("config.{key} has the wrong type: write {}", expected.name()),
        );
    }
    if plugin.name == "request-transformer" || plugin.name == "response-transformer" {
        for (step, parts) in plugin.config.map().unwrap_or_default() {
            for (part, node) in parts.map().unwrap_or_default() {
                let expected = if &**part == "uri" { Text } else { Texts };
                if node.value != Value::Null && !expected.fits(node) {
                    let message =
                        format!("config.{step}.{part} has the wrong type: write {}", expected.name());
                    notes.error(node.line, &plugin.label(), message);
                }
            }
        }
    }
    if plugin.name == "rate-limiting" {
        let limits: Vec<(&str, &Node, f64)> = PERIODS
            .iter()
            .filter_map(|period| {
                let node = plugin.config.get(period)?;
                Some((*period, node, node.number()?))
            })
            .collect();
        for pair in limits.windows(2) {
            let [(shorter, _, few), (longer, node, many)] = pair else { continue };
            if many < few {
                let message = format!(
                    "config.{longer} is less than config.{shorter}, which Kong rejects: write at least {few}"
                );
                notes.error(node.line, &plugin.label(), message);
            }
        }
    }
}

/// Checks the rules between entities, and values of entities.
pub(super) fn check(file: &File, notes: &mut Notes) {
    let places = &file.places;
    let mut scopes = HashMap::new();
    for plugin in &file.plugins {
        if let Some(first) = scopes.insert((&*plugin.name, plugin.scope), plugin.line) {
            let first = places.in_words(first);
            let message = format!(
                "is the second plugin with this name in its scope (the first: {first}), which Kong rejects: remove one"
            );
            notes.error(plugin.line, &plugin.label(), message);
        }
    }
    let mut unique = |kind: &str, entities: Vec<Named<'_>>| unique(kind, &entities, places, notes);
    // The id of a route may be made from the name.
    let ids: Vec<String> =
        file.routes.iter().map(|of| of.id.as_ref().map_or(String::new(), ToString::to_string)).collect();
    let routes = file.routes.iter().zip(&ids);
    let named = |line, name, id| Named { line, name, id };
    unique(
        "service",
        file.services.iter().map(|of| named(of.line, of.name.as_deref(), of.id.as_deref())).collect(),
    );
    unique("route", routes.map(|(of, id)| named(of.line, of.name.as_deref(), Some(id))).collect());
    unique(
        "upstream",
        file.upstreams.iter().map(|of| named(of.line, Some(&of.name), of.id.as_deref())).collect(),
    );
    unique(
        "consumer",
        file.consumers.iter().map(|of| named(of.line, of.username.as_deref(), of.id.as_deref())).collect(),
    );
    unique(
        "consumer_group",
        file.consumer_groups.iter().map(|of| named(of.line, Some(&of.name), of.id.as_deref())).collect(),
    );
    unique(
        "certificate",
        file.certificates.iter().map(|of| named(of.line, None, of.id.as_deref())).collect(),
    );
    let mut keys = HashMap::new();
    for credential in file.consumers.iter().flat_map(|consumer| &consumer.credentials) {
        let key = credential.text("key").filter(|_| credential.kind == CredentialKind::Key);
        if let Some(first) = key.and_then(|key| keys.insert(key, credential.line)) {
            let first = places.in_words(first);
            let message = format!(
                "the key is written twice (the first: {first}), which Kong rejects: write another key"
            );
            notes.error(credential.line, "keyauth_credentials", message);
        }
    }
    for service in &file.services {
        if !service.host.is_empty() && !is_host(&service.host) {
            let message =
                format!("host {:?} is no name or address: write such as shop.internal", service.host);
            notes.error(service.line, &service.label(), message);
        }
    }
    for upstream in &file.upstreams {
        if !ALGORITHMS.contains(&&*upstream.algorithm) {
            let message = format!(
                "algorithm {:?} is unknown: write one of {}",
                upstream.algorithm,
                ALGORITHMS.join(", ")
            );
            notes.error(upstream.line, &upstream.label(), message);
        }
        for target in upstream.targets.iter().filter(|target| !is_host(&target.host)) {
            let message = "is no name or address: write such as 10.0.0.1:8080";
            notes.error(target.line, &label("target", Some(&target.host)), message);
        }
    }
    file.routes.iter().for_each(|route| check_route(route, notes));
}

fn check_route(route: &Route, notes: &mut Notes) {
    let mut error = |message: String| notes.error(route.line, &route.label(), message);
    for method in &route.methods {
        if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
            error(format!("method {method:?} has other characters than A to Z: write it in upper case"));
        }
    }
    for host in route.hosts.iter().flatten().filter(|host| !is_host(&host.replace('*', "a"))) {
        error(format!("host {host:?} is no name: write a name, with one * at its begin or end"));
    }
    if route.headers.iter().any(|(name, _)| name == "host") {
        error("headers has host, which Kong rejects: write hosts".to_owned());
    }
    let is_http = |name: &String| matches!(&**name, "http" | "https" | "grpc" | "grpcs" | "ws" | "wss");
    if route.protocols.iter().any(is_http) && !route.protocols.iter().all(is_http) {
        error(
            "protocols has HTTP together with other protocols, which Kong rejects: write two routes"
                .to_owned(),
        );
    }
}

/// The names of an entity.
struct Named<'n> {
    line: u32,
    name: Option<&'n str>,
    id: Option<&'n str>,
}

/// Reports names and ids that two entities of a kind have.
fn unique(kind: &str, entities: &[Named<'_>], places: &Places, notes: &mut Notes) {
    let mut known: HashMap<(&str, &str), u32> = HashMap::new();
    for Named { line, name, id } in entities {
        let all = [("name", *name), ("id", *id)].into_iter();
        let all = all.filter_map(|(what, text)| Some((what, text.filter(|text| !text.is_empty())?)));
        for (what, text) in all {
            if let Some(first) = known.insert((what, text), *line) {
                let first = places.in_words(first);
                let message = format!(
                    "has the {what} of another {kind} ({first}), which Kong rejects: write another {what}"
                );
                notes.error(*line, &label(kind, name.or(*id)), message);
                break;
            }
        }
    }
}

/// Whether a text may be a name or an address, with or without a port. Kong also accepts `_` in names.
fn is_host(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
    super::read::is_vault(text) || (!text.is_empty() && text.bytes().all(is_known))
}

#[cfg(test)]
mod tests {
    use super::super::File;

    /// The errors of a file with this content.
    fn errors(content: &str) -> Vec<String> {
        let text = format!("_format_version: \"3.0\"\n{content}");
        let file = File::read(&text, &|_| None).unwrap();
        file.notes.iter().map(|note| format!("{}: {note}", note.line)).collect()
    }

    #[test]
    fn field_of_a_wrong_type_is_an_error() {
        for (name, config, message) in [
            (
                "cors",
                "{origins: 'https://a.test'}",
                "config.origins has the wrong type: write a list of texts",
            ),
            (
                "rate-limiting",
                "{minute: '5'}",
                "config.minute has the wrong type: write a number without quotes",
            ),
            (
                "key-auth",
                "{key_in_query: maybe}",
                "config.key_in_query has the wrong type: write true or false",
            ),
            (
                "ip-restriction",
                "{deny: [[10.0.0.1]]}",
                "config.deny has the wrong type: write a list of texts",
            ),
            (
                "request-transformer",
                "{add: {headers: 'a:b'}}",
                "config.add.headers has the wrong type: write a list of texts",
            ),
            (
                "proxy-cache",
                "{response_code: 200}",
                "config.response_code has the wrong type: write a list of numbers",
            ),
        ] {
            let found = errors(&format!("plugins: [{{name: {name}, config: {config}}}]\n"));
            assert_eq!(found, [format!("2: plugin {name:?}: {message}")]);
        }
        for valid in [
            "{name: cors, config: {origins: null, methods: [GET]}}",
            "{name: request-transformer, config: {replace: {uri: /a}}}",
        ] {
            assert_eq!(errors(&format!("plugins: [{valid}]\n")), [""; 0]);
        }
    }

    #[test]
    fn file_that_kong_rejects_has_an_error() {
        for (content, message) in [
            (
                "plugins:\n- {name: acl, config: {deny: [a]}}\n- {name: acl, config: {allow: [a]}}\n",
                "4: plugin \"acl\": is the second plugin with this name in its scope",
            ),
            (
                "services: [{name: a, host: a.test}, {name: a, host: b.test}]\n",
                "2: service \"a\": has the name",
            ),
            ("services: [{name: a, host: $IP}]\n", "2: service \"a\": host \"$IP\" is no name or address"),
            ("routes: [{name: a, paths: [/], methods: [get]}]\n", "method \"get\" has other characters"),
            ("routes: [{name: a, paths: [/], headers: {Host: [a]}}]\n", "headers has host"),
            ("routes: [{name: a, paths: [/], protocols: [http, tcp]}]\n", "protocols has HTTP together"),
            ("routes: [{name: a, hosts: ['a b']}]\n", "host \"a b\" is no name"),
            ("upstreams: [{name: a, algorithm: round_robin}]\n", "algorithm \"round_robin\" is unknown"),
            (
                "upstreams: [{name: a, targets: [{target: '<ip>:80'}]}]\n",
                "target \"<ip>\": is no name or address",
            ),
            (
                "consumers: [{username: a, keyauth_credentials: [{key: same}]}, {username: b, keyauth_credentials: [{key: same}]}]\n",
                "the key is written twice",
            ),
            (
                "plugins: [{name: rate-limiting, config: {minute: 9, hour: 1}}]\n",
                "config.hour is less than config.minute, which Kong rejects: write at least 9",
            ),
        ] {
            let found = errors(content);
            assert!(found.iter().any(|error| error.contains(message)), "{content}: {found:?}");
        }
    }
}
