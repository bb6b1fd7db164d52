//! From the fields to the entities.

use super::entity::label;
use super::fields::Fields;
use super::{
    Address, Certificate, Consumer, ConsumerGroup, Credential, CredentialKind, File, Hash, HashSource,
    HealthCheck, PassiveCheck, Places, Plugin, Protocol, Route, Scope, Service, Target, Upstream, migrate,
    schema,
};
use crate::id::Id;
use crate::node::{Node, Value};
use crate::note::Notes;

/// The longest time of Kong in milliseconds.
const MILLISECONDS: (u64, u64) = (1, 2_147_483_646);

/// The lists of credentials of a consumer.
const CREDENTIALS: [(&str, CredentialKind); 6] = [
    ("keyauth_credentials", CredentialKind::Key),
    ("basicauth_credentials", CredentialKind::Basic),
    ("jwt_secrets", CredentialKind::Jwt),
    ("hmacauth_credentials", CredentialKind::Other("hmacauth_credentials")),
    ("oauth2_credentials", CredentialKind::Other("oauth2_credentials")),
    ("mtls_auth_credentials", CredentialKind::Other("mtls_auth_credentials")),
];

/// Parts of a file without a place in the entities, and the replacement of each.
const UNCONVERTED: [(&str, &str); 12] = [
    ("vaults", "write the values into the environment of the conversion"),
    ("keys", "write the keys into jwt_secrets"),
    ("key_sets", "write the keys into jwt_secrets"),
    ("partials", "write the configuration into each plugin"),
    ("filter_chains", "WebAssembly filters are not supported"),
    ("licenses", "no license is needed"),
    ("rbac_roles", "use the access control of Kubernetes"),
    ("custom_entities", "entities of custom plugins are not supported"),
    ("custom_plugins", "custom plugins are not supported"),
    ("cloned_plugins", "write the original plugin"),
    ("service_packages", "packages of Konnect are not supported"),
    ("_konnect", "settings of Konnect are not supported"),
];

/// Reads the root of a file. `is_old`: the paths are those of the formats 1.1 and 2.1.
pub(super) fn file(root: &Node, is_old: bool, places: Places) -> File {
    let mut notes = Notes::default();
    let mut file = File { places, ..File::default() };
    if let Some(mut fields) = Fields::new(root, String::new(), None, &mut notes) {
        for known in ["_format_version", "_workspace"] {
            fields.take(known);
        }
        file.has_hashes = fields.flag("_transform", &mut notes) == Some(false);
        let defaults = fields.take("_info").and_then(|info| info.get("defaults"));
        let configs = fields.take("_plugin_configs");
        let of = |kind: &str| defaults.and_then(|defaults| defaults.get(kind));
        let mut reader = Reader {
            file: &mut file,
            notes: &mut notes,
            is_old,
            configs,
            service: of("service"),
            route: of("route"),
            upstream: of("upstream"),
            target: of("target"),
            pending: Pending::default(),
        };
        reader.read(&mut fields);
        let pending = std::mem::take(&mut reader.pending);
        reader.resolve(&pending);
        schema::check(reader.file, reader.notes);
        fields.finish(
            |key| UNCONVERTED.iter().find(|(known, _)| *known == key).map(|(_, instead)| *instead),
            &mut notes,
        );
    }
    vaults(root, &mut notes);
    notes.0.sort();
    notes.0.dedup();
    file.notes = notes.0;
    file
}

/// Whether a value is a reference to a vault.
pub(crate) fn is_vault(text: &str) -> bool {
    text.starts_with("{vault://")
}

/// Reports the references to vaults.
fn vaults(node: &Node, notes: &mut Notes) {
    match &node.value {
        Value::Scalar { text, .. } if is_vault(text) => notes.unconverted(
            node.line,
            "",
            "a value is a reference to a vault: write the value as ${{ env \"DECK_NAME\" }}",
        ),
        Value::Null | Value::Scalar { .. } => {}
        Value::List(items) => items.iter().for_each(|item| vaults(item, notes)),
        Value::Map(entries) => entries.iter().for_each(|(_, value)| vaults(value, notes)),
    }
}

/// References between entities that are read one after the other: the place of the entity, the line, and the name or id.
#[derive(Default)]
struct Pending {
    /// The services of routes.
    services: Vec<(usize, u32, String)>,
    /// The scopes of plugins, each with the kind of the other entity.
    scopes: Vec<(usize, u32, &'static str, String)>,
    /// The consumers of credentials.
    credentials: Vec<(Credential, String)>,
    /// The consumers of groups of the plugin acl.
    acls: Vec<(u32, String, String)>,
    /// The consumers of groups: the group, and the consumer.
    members: Vec<(u32, String, String)>,
    /// The upstreams of targets.
    targets: Vec<(Target, String)>,
    /// The certificates of names.
    snis: Vec<(u32, String, String)>,
}

struct Reader<'f, 'n> {
    file: &'f mut File,
    notes: &'f mut Notes,
    is_old: bool,
    /// The shared configurations of plugins.
    configs: Option<&'n Node>,
    service: Option<&'n Node>,
    route: Option<&'n Node>,
    upstream: Option<&'n Node>,
    target: Option<&'n Node>,
    pending: Pending,
}

/// The name of an entity in messages, before its fields are read.
fn named(kind: &str, node: &Node) -> String {
    let name = ["name", "username", "custom_id", "target", "id"].iter().find_map(|key| node.get(key)?.text());
    label(kind, name.or_else(|| node.text()))
}

impl<'n> Reader<'_, 'n> {
    fn read(&mut self, fields: &mut Fields<'n>) {
        for node in fields.list("services", self.notes) {
            self.service(node);
        }
        for node in fields.list("routes", self.notes) {
            self.route(node, None);
        }
        for node in fields.list("upstreams", self.notes) {
            self.upstream(node);
        }
        for node in fields.list("targets", self.notes) {
            self.target(node, None);
        }
        for node in fields.list("consumers", self.notes) {
            self.consumer(node);
        }
        for node in fields.list("consumer_groups", self.notes) {
            self.consumer_group(node);
        }
        for node in fields.list("consumer_group_consumers", self.notes) {
            self.member(node);
        }
        for (list, kind) in CREDENTIALS {
            for node in fields.list(list, self.notes) {
                self.credential(node, list, kind, None);
            }
        }
        for node in fields.list("acls", self.notes) {
            self.acl(node, None);
        }
        for node in fields.list("certificates", self.notes) {
            self.certificate(node);
        }
        for node in fields.list("snis", self.notes) {
            self.sni(node);
        }
        for node in fields.list("ca_certificates", self.notes) {
            self.ca_certificate(node);
        }
        for node in fields.list("plugins", self.notes) {
            self.plugin(node, Scope::default());
        }
        for node in fields.list("consumer_group_plugins", self.notes) {
            self.plugin(node, Scope::default());
        }
    }

    fn fields(&mut self, kind: &str, node: &'n Node, defaults: Option<&'n Node>) -> Option<Fields<'n>> {
        Fields::new(node, named(kind, node), defaults, self.notes)
    }

    fn service(&mut self, node: &'n Node) {
        let Some(mut fields) = self.fields("service", node, self.service) else { return };
        let notes = &mut *self.notes;
        let id = fields.text("id", notes);
        let name = fields.text("name", notes);
        let protocol = fields.text("protocol", notes);
        let host = fields.text("host", notes);
        let port = fields.integer("port", (0, 65535), notes);
        let path = fields.text("path", notes);
        let url = fields.text("url", notes);
        let url = url.as_deref().and_then(|url| {
            let parts = url_parts(url);
            if parts.is_none() {
                let fault = format!("url {url:?} is not protocol://host:port/path: correct the URL");
                notes.error(fields.line, &fields.entity, fault);
            }
            parts
        });
        let (url_protocol, url_host, url_port, url_path) = match url {
            Some((protocol, host, port, path)) => (Some(protocol), Some(host), Some(port), path),
            None => (None, None, None, None),
        };
        let protocol_name = url_protocol.or(protocol).unwrap_or_else(|| "http".to_owned());
        let host = url_host.or(host);
        if host.is_none() {
            notes.error(fields.line, &fields.entity, "host is missing: write host, or url");
        }
        let milliseconds = |fields: &mut Fields<'n>, key: &str, notes: &mut Notes| {
            let number = fields.integer(key, MILLISECONDS, notes);
            number.and_then(|number| u32::try_from(number).ok()).unwrap_or(60_000)
        };
        let port = url_port.or(port.and_then(|port| u16::try_from(port).ok()));
        let retries = fields.integer("retries", (0, 32767), notes).unwrap_or(5);
        let service = Service {
            line: fields.line,
            id,
            name,
            protocol: Protocol::of(&protocol_name),
            host: host.unwrap_or_default(),
            port: port.unwrap_or(80),
            protocol_name,
            path: url_path.or(path),
            retries: u16::try_from(retries).unwrap_or(5),
            connect_timeout: milliseconds(&mut fields, "connect_timeout", notes),
            write_timeout: milliseconds(&mut fields, "write_timeout", notes),
            read_timeout: milliseconds(&mut fields, "read_timeout", notes),
            enabled: fields.flag("enabled", notes).unwrap_or(true),
            tls_verify: fields.flag("tls_verify", notes),
            ca_certificates: fields.texts("ca_certificates", notes).unwrap_or_default(),
            client_certificate: fields.reference("client_certificate", notes).map(|(_, text)| text),
        };
        let place = self.file.services.len();
        self.file.services.push(service);
        for node in fields.list("routes", self.notes) {
            self.route(node, Some(place));
        }
        for node in fields.list("plugins", self.notes) {
            self.plugin(node, Scope { service: Some(place), ..Scope::default() });
        }
        fields.finish(
            |key| match key {
                "tls_verify_depth" => Some("the certificate chain may have any length"),
                "tls_sans" => Some("the certificate must have the host of the service"),
                _ => None,
            },
            self.notes,
        );
    }

    fn route(&mut self, node: &'n Node, service: Option<usize>) {
        let Some(mut fields) = self.fields("route", node, self.route) else { return };
        let notes = &mut *self.notes;
        let (line, entity) = (fields.line, fields.entity.clone());
        let id = fields.text("id", notes);
        let name = fields.text("name", notes);
        let id = match &id {
            Some(text) => Id::parse(text).or_else(|| {
                notes.error(line, &entity, format!("id {text:?} is no UUID"));
                None
            }),
            None => name.as_deref().map(|name| Id::of_entity("routes", name)),
        };
        let place = self.file.routes.len();
        if let Some((line, named)) = fields.reference("service", notes) {
            match service {
                Some(_) => {}
                None => self.pending.services.push((place, line, named)),
            }
        }
        let hosts = fields.texts("hosts", notes);
        let paths = fields.texts("paths", notes).unwrap_or_default();
        let paths = paths.into_iter().map(|path| self.checked_path(path, (line, &entity))).collect();
        let notes = &mut *self.notes;
        let mut headers = Vec::new();
        if let Some(written) = fields.take("headers") {
            for (name, values) in written.map().unwrap_or_default() {
                let values: Vec<String> = match (values.text(), values.list()) {
                    (Some(one), _) => vec![one.to_owned()],
                    (None, Some(list)) => list.iter().filter_map(Node::text).map(str::to_owned).collect(),
                    (None, None) => Vec::new(),
                };
                match values.is_empty() {
                    true => notes.error(
                        values_line(written, name),
                        &entity,
                        format!("headers.{name} has no value"),
                    ),
                    false => headers.push((name.to_ascii_lowercase(), values)),
                }
            }
        }
        let sources = addresses(&mut fields, "sources", notes);
        let destinations = addresses(&mut fields, "destinations", notes);
        let status = fields.integer("https_redirect_status_code", (301, 426), notes).unwrap_or(426);
        if let Some(handling) = fields.text("path_handling", notes)
            && handling != "v0"
        {
            notes.unconverted(
                line,
                &entity,
                format!("path_handling {handling:?} is not converted, v0 applies: write the paths for v0"),
            );
        }
        // The gateway forwards the same bytes with and without buffers.
        for key in ["request_buffering", "response_buffering"] {
            fields.flag(key, notes);
        }
        if fields.take("expression").is_some() {
            fields.take("priority");
            notes.error(
                line,
                &entity,
                "expression is of the flavor expressions, which is not supported: write hosts, paths, methods and headers",
            );
        }
        let protocols = fields.texts("protocols", notes);
        let protocols = protocols.unwrap_or_else(|| vec!["http".to_owned(), "https".to_owned()]);
        let is_grpc = protocols.iter().any(|protocol| protocol.starts_with("grpc"));
        let route = Route {
            line,
            id,
            name,
            service,
            protocols,
            methods: fields.texts("methods", notes).unwrap_or_default(),
            hosts: hosts.map(|hosts| hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect()),
            paths,
            headers,
            snis: fields.texts("snis", notes).unwrap_or_default(),
            sources,
            destinations,
            https_redirect_status_code: u16::try_from(status).unwrap_or(426),
            regex_priority: fields.integer("regex_priority", (0, u64::from(u32::MAX)), notes).unwrap_or(0),
            // The path of a call is its method.
            strip_path: fields.flag("strip_path", notes).unwrap_or(true) && !is_grpc,
            preserve_host: fields.flag("preserve_host", notes).unwrap_or(false),
        };
        let has_condition = !route.methods.is_empty()
            || route.hosts.as_ref().is_some_and(|hosts| !hosts.is_empty())
            || !route.paths.is_empty()
            || !route.headers.is_empty()
            || !route.snis.is_empty()
            || !route.sources.is_empty()
            || !route.destinations.is_empty();
        if !has_condition {
            notes.error(line, &entity, "has no condition: write hosts, paths, methods, headers or snis");
        }
        self.file.routes.push(route);
        for node in fields.list("plugins", self.notes) {
            self.plugin(node, Scope { route: Some(place), ..Scope::default() });
        }
        fields.finish(|_| None, self.notes);
    }

    /// A path in format 3.0. A plain path is in normal form.
    fn checked_path(&mut self, written: String, (line, entity): (u32, &str)) -> String {
        let path = if self.is_old { migrate::path(&written) } else { written };
        if let Some(expression) = path.strip_prefix('~') {
            if let Err(fault) = crate::router::compile(expression) {
                self.notes.error(line, entity, format!("path {path:?} is no regular expression: {fault}"));
            }
            return path;
        }
        if !path.starts_with('/') {
            let fault = format!("path {path:?} begins neither with / nor with ~/: correct the path");
            self.notes.error(line, entity, fault);
        } else if let Some(special) = path.chars().find(|special| "\\()[]{}*+?^$|".contains(*special)) {
            // Kong loads some of these paths, and then no request matches them.
            let fault = format!(
                "path {path:?} is plain text with {special:?}, so no request matches it: put ~ before a regular expression"
            );
            match "()*+$".contains(special) {
                // These characters are allowed in paths (RFC 3986, 3.3).
                true => self.notes.unconverted(line, entity, fault.replace(", so no request matches it", "")),
                false => self.notes.error(line, entity, fault),
            }
        }
        crate::path::normal(&path)
    }

    fn upstream(&mut self, node: &'n Node) {
        let Some(mut fields) = self.fields("upstream", node, self.upstream) else { return };
        let notes = &mut *self.notes;
        let id = fields.text("id", notes);
        let name = fields.text("name", notes).unwrap_or_default();
        let text = |fields: &mut Fields<'n>, key: &str, notes: &mut Notes| {
            fields.text(key, notes).unwrap_or_default()
        };
        let header = text(&mut fields, "hash_on_header", notes);
        let query = text(&mut fields, "hash_on_query_arg", notes);
        let cookie = text(&mut fields, "hash_on_cookie", notes);
        let fallback_header = text(&mut fields, "hash_fallback_header", notes);
        let fallback_query = text(&mut fields, "hash_fallback_query_arg", notes);
        let source = |kind: &str, header: &str, query: &str| match kind {
            "none" | "" => None,
            "consumer" => Some(HashSource::Consumer),
            "ip" => Some(HashSource::Ip),
            "path" => Some(HashSource::Path),
            "header" => Some(HashSource::Header(header.to_owned())),
            "cookie" => Some(HashSource::Cookie(cookie.clone())),
            "query_arg" => Some(HashSource::Query(query.to_owned())),
            other => Some(HashSource::Other(other.to_owned())),
        };
        let hash = Hash {
            on: source(&text(&mut fields, "hash_on", notes), &header, &query),
            fallback: source(&text(&mut fields, "hash_fallback", notes), &fallback_header, &fallback_query),
            cookie_path: fields.text("hash_on_cookie_path", notes),
        };
        fields.take("slots");
        let algorithm = fields.text("algorithm", notes).unwrap_or_else(|| match hash.on {
            // Before format 2.1, hash_on selected the algorithm.
            Some(_) => "consistent-hashing".to_owned(),
            None => "round-robin".to_owned(),
        });
        let checks = fields.take("healthchecks");
        let entity = fields.entity.clone();
        let active =
            checks.and_then(|checks| checks.get("active")).and_then(|node| active(node, &entity, notes));
        let passive =
            checks.and_then(|checks| checks.get("passive")).and_then(|node| passive(node, &entity, notes));
        if let Some(threshold) = checks.and_then(|checks| checks.get("threshold"))
            && threshold.number() != Some(0.0)
        {
            let instead = "healthchecks.threshold is not converted: the gateway uses unhealthy targets if no target is healthy";
            notes.unconverted(threshold.line, &entity, instead);
        }
        let upstream = Upstream {
            line: fields.line,
            id,
            name,
            algorithm,
            hash,
            host_header: fields.text("host_header", notes),
            active,
            passive,
            client_certificate: fields.reference("client_certificate", notes).map(|(_, text)| text),
            targets: Vec::new(),
        };
        if fields.flag("use_srv_name", notes) == Some(true) {
            notes.unconverted(
                fields.line,
                &entity,
                "use_srv_name is not converted: write the host into host_header",
            );
        }
        let place = self.file.upstreams.len();
        self.file.upstreams.push(upstream);
        for node in fields.list("targets", self.notes) {
            self.target(node, Some(place));
        }
        fields.finish(
            |key| match key {
                "hash_on_uri_capture" | "hash_fallback_uri_capture" => Some("hash on the path"),
                "sticky_sessions_cookie" | "sticky_sessions_cookie_path" => Some("hash on a cookie"),
                _ => None,
            },
            self.notes,
        );
    }

    fn target(&mut self, node: &'n Node, upstream: Option<usize>) {
        let Some(mut fields) = self.fields("target", node, self.target) else { return };
        let notes = &mut *self.notes;
        fields.take("id");
        let written = fields.text("target", notes).unwrap_or_default();
        let weight = fields.integer("weight", (0, 65535), notes).unwrap_or(100);
        let named = fields.reference("upstream", notes);
        fields.take("failover").filter(|failover| failover.flag() == Some(true)).inspect(|failover| {
            notes.unconverted(failover.line, &fields.entity, "failover is not converted: write weight 0");
        });
        let Some((host, port)) = host_and_port(&written) else {
            notes.error(fields.line, &fields.entity, format!("target {written:?} is not host:port"));
            return;
        };
        let port = port.unwrap_or(8000);
        let target = Target { line: fields.line, host, port, weight: u16::try_from(weight).unwrap_or(100) };
        match (upstream, named) {
            (Some(place), _) => self.file.upstreams[place].targets.push(target),
            (None, Some((_, name))) => self.pending.targets.push((target, name)),
            (None, None) => notes.error(fields.line, &fields.entity, "upstream is missing"),
        }
        fields.finish(|_| None, self.notes);
    }

    fn consumer(&mut self, node: &'n Node) {
        let Some(mut fields) = self.fields("consumer", node, None) else { return };
        let notes = &mut *self.notes;
        let consumer = Consumer {
            line: fields.line,
            id: fields.text("id", notes),
            username: fields.text("username", notes),
            custom_id: fields.text("custom_id", notes),
            credentials: Vec::new(),
            acls: Vec::new(),
            groups: Vec::new(),
        };
        if consumer.username.is_none() && consumer.custom_id.is_none() {
            notes.error(fields.line, &fields.entity, "has no name: write username or custom_id");
        }
        let place = self.file.consumers.len();
        self.file.consumers.push(consumer);
        for (list, kind) in CREDENTIALS {
            for node in fields.list(list, self.notes) {
                self.credential(node, list, kind, Some(place));
            }
        }
        for node in fields.list("acls", self.notes) {
            self.acl(node, Some(place));
        }
        for node in fields.list("groups", self.notes) {
            match node.text().or_else(|| node.get("name")?.text()) {
                Some(name) => self.file.consumers[place].groups.push(name.to_owned()),
                None => self.notes.error(node.line, &fields.entity, "groups has an entry without a name"),
            }
        }
        for node in fields.list("plugins", self.notes) {
            self.plugin(node, Scope { consumer: Some(place), ..Scope::default() });
        }
        fields.finish(|_| None, self.notes);
    }

    fn credential(
        &mut self,
        node: &'n Node,
        list: &'static str,
        kind: CredentialKind,
        consumer: Option<usize>,
    ) {
        // The name of an entity would show the key.
        let Some(mut fields) = Fields::new(node, list.to_owned(), None, self.notes) else { return };
        let named = fields.reference("consumer", self.notes);
        let known: &[&str] = match kind {
            CredentialKind::Key => &["id", "key", "ttl"],
            CredentialKind::Basic => &["id", "username", "password"],
            CredentialKind::Jwt => &["id", "key", "secret", "algorithm", "rsa_public_key"],
            CredentialKind::Other(_) => &[],
        };
        for key in known {
            fields.take(key);
        }
        let credential = Credential { line: fields.line, kind, fields: node.clone() };
        match (consumer, named) {
            (Some(place), _) => self.file.consumers[place].credentials.push(credential),
            (None, Some((_, name))) => self.pending.credentials.push((credential, name)),
            (None, None) => self.notes.error(fields.line, &fields.entity, "consumer is missing"),
        }
        if !known.is_empty() {
            fields.finish(|_| None, self.notes);
        }
    }

    fn acl(&mut self, node: &'n Node, consumer: Option<usize>) {
        let Some(mut fields) = Fields::new(node, "acls".to_owned(), None, self.notes) else { return };
        let notes = &mut *self.notes;
        fields.take("id");
        let named = fields.reference("consumer", notes);
        let Some(group) = fields.text("group", notes) else {
            notes.error(fields.line, &fields.entity, "group is missing");
            return;
        };
        match (consumer, named) {
            (Some(place), _) => self.file.consumers[place].acls.push(group),
            (None, Some((_, name))) => self.pending.acls.push((fields.line, group, name)),
            (None, None) => notes.error(fields.line, &fields.entity, "consumer is missing"),
        }
        fields.finish(|_| None, self.notes);
    }

    fn consumer_group(&mut self, node: &'n Node) {
        let Some(mut fields) = self.fields("consumer_group", node, None) else { return };
        let group = ConsumerGroup {
            line: fields.line,
            id: fields.text("id", self.notes),
            name: fields.text("name", self.notes).unwrap_or_default(),
        };
        for node in fields.list("consumers", self.notes) {
            let named = ["username", "custom_id", "id"].iter().find_map(|key| node.get(key)?.text());
            match node.text().or(named) {
                Some(consumer) => {
                    self.pending.members.push((node.line, group.name.clone(), consumer.to_owned()));
                }
                None => self.notes.error(node.line, &fields.entity, "consumers has an entry without a name"),
            }
        }
        let place = self.file.consumer_groups.len();
        self.file.consumer_groups.push(group);
        for node in fields.list("plugins", self.notes) {
            self.plugin(node, Scope { consumer_group: Some(place), ..Scope::default() });
        }
        fields.finish(|_| None, self.notes);
    }

    fn member(&mut self, node: &'n Node) {
        let Some(mut fields) = Fields::new(node, "consumer_group_consumers".to_owned(), None, self.notes)
        else {
            return;
        };
        fields.take("id");
        let group = fields.reference("consumer_group", self.notes);
        let consumer = fields.reference("consumer", self.notes);
        match (group, consumer) {
            (Some((_, group)), Some((line, consumer))) => self.pending.members.push((line, group, consumer)),
            _ => self.notes.error(fields.line, &fields.entity, "needs consumer_group and consumer"),
        }
        fields.finish(|_| None, self.notes);
    }

    fn certificate(&mut self, node: &'n Node) {
        let Some(mut fields) = self.fields("certificate", node, None) else { return };
        let notes = &mut *self.notes;
        let mut certificate = Certificate {
            line: fields.line,
            id: fields.text("id", notes),
            cert: fields.text("cert", notes).unwrap_or_default(),
            key: fields.text("key", notes).unwrap_or_default(),
            snis: Vec::new(),
        };
        for node in fields.list("snis", notes) {
            match node.text().or_else(|| node.get("name")?.text()) {
                Some(name) => certificate.snis.push(name.to_ascii_lowercase()),
                None => notes.error(node.line, &fields.entity, "snis has an entry without a name"),
            }
        }
        if certificate.cert.is_empty() || certificate.key.is_empty() {
            notes.error(fields.line, &fields.entity, "needs cert and key");
        }
        self.file.certificates.push(certificate);
        fields.finish(
            |key| matches!(key, "cert_alt" | "key_alt").then_some("a host has one certificate"),
            self.notes,
        );
    }

    fn sni(&mut self, node: &'n Node) {
        let Some(mut fields) = self.fields("sni", node, None) else { return };
        fields.take("id");
        let name = fields.text("name", self.notes);
        let certificate = fields.reference("certificate", self.notes);
        match (name, certificate) {
            (Some(name), Some((line, certificate))) => {
                self.pending.snis.push((line, name.to_ascii_lowercase(), certificate));
            }
            _ => self.notes.error(fields.line, &fields.entity, "needs name and certificate"),
        }
        fields.finish(|_| None, self.notes);
    }

    fn ca_certificate(&mut self, node: &'n Node) {
        let Some(mut fields) = self.fields("ca_certificate", node, None) else { return };
        let id = fields.text("id", self.notes);
        fields.take("cert_digest");
        match fields.text("cert", self.notes) {
            Some(cert) => self.file.ca_certificates.push((id, cert)),
            None => self.notes.error(fields.line, &fields.entity, "cert is missing"),
        }
        fields.finish(|_| None, self.notes);
    }

    fn plugin(&mut self, node: &'n Node, scope: Scope) {
        let Some(mut fields) = self.fields("plugin", node, None) else { return };
        let notes = &mut *self.notes;
        fields.take("id");
        fields.take("instance_name");
        let name = fields.text("name", notes).unwrap_or_default();
        if name.is_empty() {
            notes.error(fields.line, &fields.entity, "name is missing");
        }
        let place = self.file.plugins.len();
        for kind in ["service", "route", "consumer", "consumer_group"] {
            if let Some((line, named)) = fields.reference(kind, notes) {
                self.pending.scopes.push((place, line, kind, named));
            }
        }
        let empty = Node { line: fields.line, value: Value::Map([].into()) };
        let mut config = fields.take("config").cloned().unwrap_or(empty);
        if let Some(shared) = fields.text("_config", notes) {
            match self.configs.and_then(|configs| configs.get(&shared)) {
                Some(shared) => config = config.or(shared),
                None => {
                    let fault = format!("_config {shared:?} is not in _plugin_configs: correct the name");
                    notes.error(fields.line, &fields.entity, fault);
                }
            }
        }
        let plugin = Plugin {
            line: fields.line,
            name,
            enabled: fields.flag("enabled", notes).unwrap_or(true),
            protocols: fields.texts("protocols", notes).unwrap_or_default(),
            config,
            scope,
        };
        schema::check_plugin(&plugin, notes);
        self.file.plugins.push(plugin);
        fields.finish(
            |key| match key {
                "ordering" => Some("plugins run in the order of the gateway"),
                "condition" => Some("a plugin runs for all requests of its scope"),
                "partials" => Some("write the configuration into config"),
                _ => None,
            },
            self.notes,
        );
    }

    /// Resolves the references by name or id.
    fn resolve(&mut self, pending: &Pending) {
        let (file, notes) = (&mut *self.file, &mut *self.notes);
        let missing = |kind: &str, named: &str| format!("{kind} {named:?} does not exist: correct the name");
        for (place, line, named) in &pending.services {
            let found = service(file, named);
            if found.is_none() {
                notes.error(*line, &file.routes[*place].label(), missing("service", named));
            }
            file.routes[*place].service = found;
        }
        for (place, line, kind, named) in &pending.scopes {
            let found = match *kind {
                "service" => service(file, named),
                "route" => route(file, named),
                "consumer" => consumer(file, named),
                _ => file
                    .consumer_groups
                    .iter()
                    .position(|group| group.name == *named || group.id.as_ref() == Some(named)),
            };
            let label = file.plugins[*place].label();
            let scope = &mut file.plugins[*place].scope;
            match *kind {
                "service" => scope.service = found.or(scope.service),
                "route" => scope.route = found.or(scope.route),
                "consumer" => scope.consumer = found.or(scope.consumer),
                _ => scope.consumer_group = found.or(scope.consumer_group),
            }
            if found.is_none() {
                notes.error(*line, &label, missing(kind, named));
            }
        }
        for (credential, named) in &pending.credentials {
            match consumer(file, named) {
                Some(place) => file.consumers[place].credentials.push(credential.clone()),
                None => notes.error(credential.line, "", missing("consumer", named)),
            }
        }
        for (line, group, named) in &pending.acls {
            match consumer(file, named) {
                Some(place) => file.consumers[place].acls.push(group.clone()),
                None => notes.error(*line, "acls", missing("consumer", named)),
            }
        }
        for (line, group, named) in &pending.members {
            let known = file.consumer_groups.iter();
            let known = known.clone().find(|known| known.name == *group || known.id.as_ref() == Some(group));
            let group = known.map_or_else(|| group.clone(), |known| known.name.clone());
            match consumer(file, named) {
                Some(place) => file.consumers[place].groups.push(group),
                None => {
                    notes.error(*line, &label("consumer_group", Some(&group)), missing("consumer", named));
                }
            }
        }
        for (target, named) in &pending.targets {
            let mut upstreams = file.upstreams.iter_mut();
            match upstreams.find(|known| known.name == *named || known.id.as_ref() == Some(named)) {
                Some(upstream) => upstream.targets.push(target.clone()),
                None => {
                    notes.error(
                        target.line,
                        &label("target", Some(&target.host)),
                        missing("upstream", named),
                    );
                }
            }
        }
        for (line, name, named) in &pending.snis {
            match file.certificates.iter_mut().find(|known| known.id.as_ref() == Some(named)) {
                Some(certificate) => certificate.snis.push(name.clone()),
                None => notes.error(*line, &label("sni", Some(name)), missing("certificate", named)),
            }
        }
    }
}

fn service(file: &File, named: &String) -> Option<usize> {
    file.services
        .iter()
        .position(|known| known.name.as_ref() == Some(named) || known.id.as_ref() == Some(named))
}

fn route(file: &File, named: &String) -> Option<usize> {
    let id = Id::parse(named);
    file.routes
        .iter()
        .position(|known| known.name.as_ref() == Some(named) || (id.is_some() && known.id == id))
}

fn consumer(file: &File, named: &String) -> Option<usize> {
    let is_it = |known: &Consumer| {
        [&known.username, &known.custom_id, &known.id].into_iter().any(|name| name.as_ref() == Some(named))
    };
    file.consumers.iter().position(is_it)
}

/// The line of an entry of a mapping.
fn values_line(node: &Node, key: &str) -> u32 {
    let entries = node.map().unwrap_or_default();
    entries.iter().find(|(known, _)| **known == *key).map_or(node.line, |(_, value)| value.line)
}

/// The protocol, host, port and path of a URL.
fn url_parts(url: &str) -> Option<(String, String, u16, Option<String>)> {
    let (protocol, rest) = url.split_once("://")?;
    let (authority, path) = match rest.find('/') {
        Some(at) => (&rest[..at], Some(rest[at..].to_owned())),
        None => (rest, None),
    };
    let (host, port) = host_and_port(authority)?;
    let default = if matches!(protocol, "https" | "grpcs" | "tls" | "wss") { 443 } else { 80 };
    Some((protocol.to_ascii_lowercase(), host, port.unwrap_or(default), path))
}

/// A host name or an address, with an optional port. An IPv6 address is without brackets.
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host.to_owned(), Some(port.parse().ok()?))),
            None => rest.is_empty().then(|| (host.to_owned(), None)),
        };
    }
    let (host, port) = match text.split_once(':') {
        // An IPv6 address without brackets.
        Some((_, rest)) if rest.contains(':') => (text, None),
        Some((host, port)) => (host, Some(port.parse().ok()?)),
        None => (text, None),
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

fn addresses(fields: &mut Fields<'_>, key: &str, notes: &mut Notes) -> Vec<Address> {
    let mut addresses = Vec::new();
    for node in fields.list(key, notes) {
        let ip = node.get("ip").and_then(Node::text).map(str::to_owned);
        let port = node.get("port").and_then(Node::text);
        let parsed = port.and_then(|port| port.parse().ok());
        let is_valid = ip.as_deref().is_none_or(|ip| crate::router::network(ip).is_some())
            && port.is_some() == parsed.is_some()
            && (ip.is_some() || port.is_some());
        match is_valid {
            true => addresses.push(Address { ip, port: parsed }),
            false => notes.error(
                node.line,
                &fields.entity,
                format!("{key} has an entry without a valid ip or port"),
            ),
        }
    }
    addresses
}

/// A number at a path inside a node, or the default.
fn number_at(node: &Node, path: &[&str], default: f64, entity: &str, notes: &mut Notes) -> f64 {
    let found = path.iter().try_fold(node, |node, key| node.get(key));
    match found.map(|found| (found, found.number())) {
        None => default,
        Some((_, Some(number))) if number >= 0.0 => number,
        Some((found, _)) => {
            notes.error(found.line, entity, format!("healthchecks: {} is no number", path.join(".")));
            default
        }
    }
}

fn small(number: f64) -> u8 {
    number.min(255.0) as u8
}

fn active(node: &Node, entity: &str, notes: &mut Notes) -> Option<HealthCheck> {
    let mut at = |path: &[&str], default| number_at(node, path, default, entity, notes);
    let healthy_interval = at(&["healthy", "interval"], 0.0);
    let unhealthy_interval = at(&["unhealthy", "interval"], 0.0);
    let successes = small(at(&["healthy", "successes"], 0.0));
    let failures = [["unhealthy", "http_failures"], ["unhealthy", "tcp_failures"], ["unhealthy", "timeouts"]];
    let failures = failures.map(|path| small(at(&path, 0.0)));
    let timeout = at(&["timeout"], 1.0);
    if healthy_interval == 0.0 && unhealthy_interval == 0.0 {
        return None;
    }
    let statuses = node.get("healthy").and_then(|healthy| healthy.get("http_statuses")).and_then(Node::list);
    let statuses: Vec<u16> = match statuses {
        Some(statuses) => statuses.iter().filter_map(|status| status.text()?.parse().ok()).collect(),
        None => vec![200, 302],
    };
    let text = |key: &str, default: &str| node.get(key).and_then(Node::text).unwrap_or(default).to_owned();
    if let Some(headers) =
        node.get("headers").filter(|headers| headers.map().is_some_and(|map| !map.is_empty()))
    {
        let fault = "healthchecks.active.headers is not converted: check a path that needs no header";
        notes.unconverted(headers.line, entity, fault);
    }
    Some(HealthCheck {
        line: node.line,
        kind: text("type", "http"),
        path: text("http_path", "/"),
        timeout,
        healthy_interval,
        unhealthy_interval,
        successes,
        failures: failures.into_iter().filter(|count| *count > 0).min().unwrap_or(0),
        statuses,
        sni: node.get("https_sni").and_then(Node::text).map(str::to_owned),
    })
}

fn passive(node: &Node, entity: &str, notes: &mut Notes) -> Option<PassiveCheck> {
    let mut at = |key: &str| small(number_at(node, &["unhealthy", key], 0.0, entity, notes));
    let (http_failures, tcp_failures, timeouts) = (at("http_failures"), at("tcp_failures"), at("timeouts"));
    let runs = http_failures > 0 || tcp_failures > 0 || timeouts > 0;
    runs.then_some(PassiveCheck { line: node.line, http_failures, tcp_failures, timeouts })
}
