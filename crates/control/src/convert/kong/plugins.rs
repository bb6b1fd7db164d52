//! The plugins of a route, as parts of policies and filters.
//!
//! For each name, the plugin with the most specific scope applies. A plugin that restricts access and cannot be converted
//! closes the route.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sluicegate_kong::file::{Credential, CredentialKind, Plugin};
use sluicegate_kong::node::{self, Node};
use sluicegate_model::feature::DirectResponse;
use sluicegate_model::value::{HeaderName, syntax};

use super::consumers::{BASIC, basic_secret};
use super::{Conversion, duration};

/// Plugins that change nothing about access, and the replacement of each.
const HARMLESS: [(&str, &str); 35] = [
    ("prometheus", "the gateway has metrics of its own at /metrics of the admin interface"),
    ("http-log", "use the access log"),
    ("file-log", "use the access log"),
    ("tcp-log", "use the access log"),
    ("udp-log", "use the access log"),
    ("syslog", "use the access log"),
    ("loggly", "use the access log"),
    ("kafka-log", "use the access log"),
    ("datadog", "use the metrics and traces of the gateway"),
    ("statsd", "use the metrics of the gateway"),
    ("statsd-advanced", "use the metrics of the gateway"),
    ("zipkin", "use the traces of the gateway (OpenTelemetry)"),
    ("opentelemetry", "set the traces of the gateway by its options"),
    ("correlation-id", "the gateway sends X-Request-ID to endpoints"),
    ("aws-lambda", "call the function by its URL as a service"),
    ("azure-functions", "call the function by its URL as a service"),
    ("grpc-gateway", "let the service translate JSON"),
    ("grpc-web", "let the service translate gRPC-Web"),
    ("request-transformer-advanced", "write request-transformer"),
    ("response-transformer-advanced", "write response-transformer"),
    ("proxy-cache-advanced", "write proxy-cache"),
    ("session", "keep sessions in the service"),
    ("canary", "write weights of targets"),
    ("route-transformer-advanced", "write the destination into the service"),
    ("forward-proxy", "write the destination into the service"),
    ("mocking", "write request-termination"),
    ("degraphql", "call the GraphQL service directly"),
    ("exit-transformer", "error responses have the form of the gateway"),
    ("kafka-upstream", "write a service that sends to Kafka"),
    ("upstream-timeout", "write the timeouts of the service"),
    ("acme", "let cert-manager issue the certificates"),
    ("ai-prompt-decorator", "change the prompt in the service"),
    ("ai-prompt-template", "change the prompt in the service"),
    ("ai-request-transformer", "change the request in the service"),
    ("ai-response-transformer", "change the response in the service"),
];

/// The shortest secret of tokens, in bytes.
const SECRET_MIN: usize = 16;

/// Plugins without an effect here.
const WITHOUT_EFFECT: [&str; 1] = ["app-registration"];

/// Plugins that change nothing about access, and have a conversion.
const CONVERTED: [&str; 6] =
    ["cors", "redirect", "request-transformer", "response-transformer", "proxy-cache", "request-termination"];

/// The plugins that authenticate, and have a conversion.
const AUTHENTICATION: [&str; 5] = ["key-auth", "basic-auth", "jwt", "openid-connect", "oauth2-introspection"];

/// The effects of the plugins of a route.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Whether the route responds with 503.
    pub(super) closed: bool,
    /// Parts of a TrafficPolicy.
    pub(super) traffic: Map<String, Value>,
    /// The line and the parts of a SecurityPolicy.
    pub(super) security: (u32, Map<String, Value>),
    /// The line of the plugin, and the parts of a RateLimitPolicy.
    pub(super) limits: (u32, Map<String, Value>),
    /// Filters of the HTTPRoute.
    pub(super) filters: Vec<Value>,
    /// The expressions of User-Agent that receive 403.
    pub(super) bots: Vec<String>,
    /// Whether a filter redirects all requests, so that no service receives any.
    pub(super) redirects: bool,
}

/// The plugin cannot be converted, and the remedy.
pub(super) struct Unconverted(String);

impl From<String> for Unconverted {
    fn from(message: String) -> Self {
        Self(message)
    }
}

impl From<&str> for Unconverted {
    fn from(message: &str) -> Self {
        Self(message.to_owned())
    }
}

/// Whether a plugin may restrict access.
pub(super) fn restricts(name: &str) -> bool {
    !CONVERTED.contains(&name)
        && !WITHOUT_EFFECT.contains(&name)
        && HARMLESS.iter().all(|(known, _)| *known != name)
}

pub(super) fn text<'p>(plugin: &'p Plugin, key: &str) -> Option<&'p str> {
    plugin.config.get(key).and_then(Node::text)
}

pub(super) fn flag(plugin: &Plugin, key: &str, default: bool) -> bool {
    plugin.config.get(key).and_then(Node::flag).unwrap_or(default)
}

pub(super) fn texts(plugin: &Plugin, key: &str) -> Option<Vec<String>> {
    let list = plugin.config.get(key)?.list()?;
    Some(list.iter().filter_map(Node::text).map(str::to_owned).collect())
}

impl<'f> Conversion<'f> {
    /// The effects of the plugins of a route of a service.
    pub(super) fn effects(&mut self, route: usize, service: Option<usize>) -> Effects {
        let mut chosen: BTreeMap<&str, (u8, &Plugin)> = BTreeMap::new();
        for plugin in &self.file.plugins {
            let scope = plugin.scope;
            let applies = plugin.enabled
                && scope.consumer.is_none()
                && scope.consumer_group.is_none()
                && scope.route.is_none_or(|of| of == route)
                && scope.service.is_none_or(|of| Some(of) == service);
            if !applies {
                continue;
            }
            let rank = 2 * u8::from(scope.route.is_some()) + u8::from(scope.service.is_some());
            let known = chosen.entry(&plugin.name).or_insert((rank, plugin));
            if rank > known.0 {
                *known = (rank, plugin);
            }
        }
        let mut effects = Effects::default();
        let auth: Vec<&Plugin> =
            AUTHENTICATION.iter().filter_map(|name| chosen.get(name)).map(|(_, plugin)| *plugin).collect();
        let acl = chosen.get("acl").map(|(_, plugin)| *plugin);
        let place = (route, service);
        if let Err((plugin, Unconverted(message))) = self.authentication(place, &auth, acl, &mut effects) {
            self.close(plugin, &message, &mut effects);
        }
        for (name, (_, plugin)) in chosen {
            let converted = match name {
                "key-auth" | "basic-auth" | "jwt" | "openid-connect" | "oauth2-introspection" | "acl" => Ok(()),
                "ip-restriction" => self.ip_restriction(plugin, &mut effects),
                "rate-limiting" => self.rate_limiting(plugin, &mut effects),
                "request-size-limiting" => self.request_size(plugin, &mut effects),
                "bot-detection" => self.bots(plugin, &mut effects),
                "cors" => {
                    self.cors(plugin, &mut effects);
                    Ok(())
                }
                "request-transformer" => {
                    self.transformer(plugin, "RequestHeaderModifier", "requestHeaderModifier", &mut effects);
                    Ok(())
                }
                "response-transformer" => {
                    self.transformer(
                        plugin,
                        "ResponseHeaderModifier",
                        "responseHeaderModifier",
                        &mut effects,
                    );
                    Ok(())
                }
                "proxy-cache" => {
                    self.cache(plugin, &mut effects);
                    Ok(())
                }
                "request-termination" => self.termination(plugin, &mut effects),
                "redirect" => self.redirect(plugin, &mut effects),
                "pre-function" | "post-function" => Err(
                    "runs code, which may restrict access: write a service or a SecurityPolicy, and remove the plugin"
                        .into(),
                ),
                name if WITHOUT_EFFECT.contains(&name) => Ok(()),
                name => match HARMLESS.iter().find(|(known, _)| *known == name) {
                    Some((_, instead)) => {
                        self.note(plugin, &format!("is not converted: {instead}"));
                        Ok(())
                    }
                    None => Err("is not supported: write its function into the service or a policy, and remove the plugin"
                        .into()),
                },
            };
            if let Err(Unconverted(message)) = converted {
                self.close(plugin, &message, &mut effects);
            }
        }
        self.limits_of_callers(place, &mut effects);
        effects
    }

    pub(super) fn note(&mut self, plugin: &Plugin, message: &str) {
        self.plugin_note(plugin, plugin.line, message);
    }

    /// Reports a part of a plugin in this line. The plugin has the entity of its scope, because a file often has the same plugin several
    /// times.
    pub(super) fn plugin_note(&mut self, plugin: &Plugin, line: u32, message: impl Into<String>) {
        let (file, scope) = (self.file, plugin.scope);
        let of = [
            scope.consumer.map(|place| file.consumers[place].label()),
            scope.consumer_group.map(|place| file.consumer_groups[place].label()),
            scope.route.map(|place| file.routes[place].label()),
            scope.service.map(|place| file.services[place].label()),
        ];
        let of = of.into_iter().flatten().map(|entity| format!(" of {entity}"));
        let label = plugin.label() + &of.collect::<String>();
        self.notes.unconverted(line, &label, message);
    }

    fn close(&mut self, plugin: &Plugin, message: &str, effects: &mut Effects) {
        effects.closed = true;
        let message = format!("{message} (its routes respond with 503)");
        self.plugin_note(plugin, plugin.line, message);
    }

    /// Reports a field that is set to another value than the default.
    fn dropped(&mut self, plugin: &Plugin, key: &str, default: &str, instead: &str) {
        let Some(value) = plugin.config.get(key) else { return };
        let is_default = match (value.text(), value.list()) {
            (Some(text), _) => text == default,
            (None, Some(items)) => {
                items.iter().filter_map(Node::text).collect::<Vec<_>>().join(",") == default
            }
            (None, None) => false,
        };
        if !is_default {
            let message = format!("config.{key} is not converted: {instead}");
            self.plugin_note(plugin, value.line, message);
        }
    }

    fn dropped_preflight(&mut self, plugin: &Plugin) {
        let instead = "add the plugin cors, which responds to preflight requests";
        self.dropped(plugin, "run_on_preflight", "true", instead);
    }

    /// Reports the keys of the configuration beside these.
    pub(super) fn others(&mut self, plugin: &Plugin, known: &[&str]) {
        for (key, value) in plugin.config.map().unwrap_or_default() {
            if !known.contains(&&**key) && value.value != node::Value::Null {
                let message = format!("config.{key} is not converted: remove it");
                self.plugin_note(plugin, value.line, message);
            }
        }
    }

    fn authentication<'p>(
        &mut self,
        (route, service): (usize, Option<usize>),
        plugins: &[&'p Plugin],
        acl: Option<&'p Plugin>,
        effects: &mut Effects,
    ) -> Result<(), (&'p Plugin, Unconverted)> {
        let Some(first) = plugins.first() else {
            return match acl {
                Some(acl) => {
                    Err((acl, "needs a plugin that authenticates: add key-auth, basic-auth or jwt".into()))
                }
                None => Ok(()),
            };
        };
        effects.security.0 = first.line;
        let mut authentication = Map::new();
        for plugin in plugins {
            let converted = match &*plugin.name {
                "key-auth" => Ok(self.key_auth(plugin)),
                "basic-auth" => Ok(self.basic_auth(plugin)),
                "jwt" => self.jwt(plugin),
                "oauth2-introspection" => self.introspection(plugin),
                _ => {
                    let mut fields = self.openid_connect(plugin).map_err(|fault| (*plugin, fault))?;
                    if fields.len() > 1 && plugins.len() > 1 {
                        let message = "has two methods, of which one is enough, beside other plugins that authenticate: remove a method or the other plugins";
                        return Err((plugin, message.into()));
                    }
                    authentication.append(&mut fields);
                    continue;
                }
            };
            let field = match &*plugin.name {
                "key-auth" => "apiKey",
                "basic-auth" => "basic",
                "jwt" => "jwt",
                _ => "introspection",
            };
            authentication.insert(field.to_owned(), converted.map_err(|fault| (*plugin, fault))?);
        }
        // With `anonymous`, a request without credentials is of a consumer.
        let is_anonymous = |plugin: &&&Plugin| text(plugin, "anonymous").is_some_and(|name| !name.is_empty());
        let anonymous = plugins.iter().filter(is_anonymous).count();
        if plugins.len() > 1 {
            let require = if anonymous > 0 { "Any" } else { "All" };
            authentication.insert("require".to_owned(), require.into());
        }
        if anonymous > 0 {
            let names: Vec<&str> = plugins.iter().filter_map(|plugin| text(plugin, "anonymous")).collect();
            let is_terminated = self.file.plugins.iter().any(|plugin| {
                let consumer = plugin.scope.consumer.map(|place| &self.file.consumers[place]);
                plugin.enabled
                    && plugin.name == "request-termination"
                    && plugin.scope.route.is_none_or(|of| of == route)
                    && plugin.scope.service.is_none_or(|of| Some(of) == service)
                    && consumer.is_some_and(|of| {
                        names.contains(&of.name()) || names.iter().any(|name| of.id.as_deref() == Some(name))
                    })
            });
            if !is_terminated && acl.is_none() {
                let message = "anonymous lets all callers in, so callers are not authenticated: remove anonymous to identify consumers";
                self.note(first, message);
                return Ok(());
            }
            if !is_terminated {
                let message = "anonymous is not converted, and callers without credentials receive 401: remove anonymous";
                self.note(first, message);
            }
        }
        let has_tokens =
            ["jwt", "oidc", "introspection"].iter().any(|field| authentication.contains_key(*field));
        effects.security.1.insert("authentication".to_owned(), authentication.into());
        if let Some(acl) = acl {
            if has_tokens {
                return Err((acl, "is not converted together with tokens, which name no consumer here: write authorization with claims".into()));
            }
            let rules = self.acl(acl).map_err(|fault| (acl, fault))?;
            effects.security.1.insert("authorization".to_owned(), json!({"rules": rules}));
        }
        Ok(())
    }

    fn key_auth(&mut self, plugin: &Plugin) -> Value {
        self.others(
            plugin,
            &[
                "key_names",
                "key_in_header",
                "key_in_query",
                "key_in_body",
                "hide_credentials",
                "anonymous",
                "run_on_preflight",
                "realm",
            ],
        );
        self.dropped(plugin, "realm", "", "the challenge has no realm");
        self.dropped_preflight(plugin);
        if flag(plugin, "key_in_body", false) {
            self.note(plugin, "config.key_in_body is not converted: send keys in a header");
        }
        let names = texts(plugin, "key_names").unwrap_or_else(|| vec!["apikey".to_owned()]);
        let mut from = Vec::new();
        for name in names {
            if flag(plugin, "key_in_header", true) {
                from.push(json!({"header": {"name": name}}));
            }
            if flag(plugin, "key_in_query", true) {
                from.push(json!({"query": name}));
            }
        }
        if from.len() > 8 {
            self.note(
                plugin,
                "config.key_names has more than 8 places, and the first 8 are converted: remove names",
            );
            from.truncate(8);
        }
        json!({"from": from, "forward": !flag(plugin, "hide_credentials", false)})
    }

    fn basic_auth(&mut self, plugin: &Plugin) -> Value {
        self.others(plugin, &["hide_credentials", "anonymous", "realm", "run_on_preflight"]);
        self.dropped_preflight(plugin);
        let secret = match &self.basic {
            Some(name) => name.clone(),
            None => {
                let users = basic_secret(self.file, &self.closed, &mut self.notes);
                let name = self.secret(plugin.line, BASIC, None, &[("auth", &users)]);
                self.basic.insert(name).clone()
            }
        };
        json!({
            "secretRef": {"name": secret},
            "realm": text(plugin, "realm").unwrap_or("service"),
            "forward": !flag(plugin, "hide_credentials", false),
        })
    }

    fn jwt(&mut self, plugin: &Plugin) -> Result<Value, Unconverted> {
        self.others(
            plugin,
            &[
                "header_names",
                "uri_param_names",
                "cookie_names",
                "key_claim_name",
                "claims_to_verify",
                "maximum_expiration",
                "secret_is_base64",
                "anonymous",
                "run_on_preflight",
                "realm",
            ],
        );
        self.dropped(plugin, "realm", "", "the challenge has no realm");
        self.dropped_preflight(plugin);
        if text(plugin, "key_claim_name").is_some_and(|name| name != "iss") {
            return Err(
                "key_claim_name is not iss: write a SecurityPolicy with the issuers of the tokens".into()
            );
        }
        if plugin.config.get("maximum_expiration").and_then(Node::number).is_some_and(|time| time > 0.0) {
            self.note(plugin, "config.maximum_expiration is not converted: limit the lifetime at the issuer");
        }
        let claims = texts(plugin, "claims_to_verify").unwrap_or_default();
        let is_base64 = flag(plugin, "secret_is_base64", false);
        let mut providers = Vec::new();
        for (place, consumer) in self.file.consumers.iter().enumerate() {
            let is_jwt = |of: &&Credential| of.kind == CredentialKind::Jwt;
            for credential in consumer.credentials.iter().filter(is_jwt) {
                if self.closed.contains(&place) {
                    continue;
                }
                let Some(key) = credential.text("key") else {
                    let message = "has no key, which Kong generates: write the issuer of the tokens";
                    self.notes.unconverted(credential.line, "jwt_secrets", message);
                    continue;
                };
                let algorithm = credential.text("algorithm").unwrap_or("HS256");
                let keys = if algorithm.starts_with("HS") {
                    let secret = credential.text("secret").unwrap_or_default().as_bytes().to_vec();
                    let secret = match is_base64 {
                        true => decoded(&secret).unwrap_or_default(),
                        false => secret,
                    };
                    if secret.len() < SECRET_MIN {
                        let message = format!(
                            "a secret has less than {SECRET_MIN} bytes, so the tokens of {} are not valid: use a longer secret",
                            consumer.label()
                        );
                        self.notes.unconverted(credential.line, "jwt_secrets", message);
                        continue;
                    }
                    let name = self.secret_once(credential.line, "jwt", "secret", &secret);
                    json!({"sharedSecretRef": {"name": name}})
                } else {
                    json!({"inline": credential.text("rsa_public_key").unwrap_or_default()})
                };
                providers.push(json!({
                    "name": format!("kong-{}", providers.len() + 1),
                    "issuer": key,
                    "algorithms": [algorithm],
                    "keys": keys,
                    "allowMissingExpiry": !claims.iter().any(|claim| claim == "exp"),
                    "clockSkew": "0s",
                }));
            }
        }
        match providers.len() {
            0 => return Err("no consumer has a usable jwt_secrets: write jwt_secrets with key".into()),
            1..=8 => {}
            _ => {
                return Err(
                    "more than 8 jwt_secrets are not converted: write a SecurityPolicy with a JWK set".into(),
                );
            }
        }
        self.note(
            plugin,
            "services do not receive the consumer of a token: write claimToHeaders in the SecurityPolicy",
        );
        if !claims.iter().any(|claim| claim == "exp") {
            self.note(
                plugin,
                "tokens with an exp in the past are not valid: write exp into claims_to_verify",
            );
        }
        let headers = texts(plugin, "header_names").unwrap_or_else(|| vec!["authorization".to_owned()]);
        let mut from: Vec<Value> =
            headers.iter().map(|name| json!({"header": {"name": name, "prefix": "Bearer "}})).collect();
        let parameters = texts(plugin, "uri_param_names").unwrap_or_else(|| vec!["jwt".to_owned()]);
        from.extend(parameters.iter().map(|name| json!({"query": name})));
        from.extend(
            texts(plugin, "cookie_names").unwrap_or_default().iter().map(|name| json!({"cookie": name})),
        );
        if from.len() > 8 {
            self.note(
                plugin,
                "has more than 8 places of tokens, and the first 8 are converted: remove places",
            );
            from.truncate(8);
        }
        Ok(json!({"providers": providers, "from": from}))
    }

    /// The rules of the plugin acl.
    fn acl(&mut self, plugin: &Plugin) -> Result<Vec<Value>, Unconverted> {
        // The names before version 2 of Kong.
        let list = |one: &str, other: &str| {
            texts(plugin, one).or_else(|| texts(plugin, other)).filter(|list| !list.is_empty())
        };
        let (allow, deny) = (list("allow", "whitelist"), list("deny", "blacklist"));
        self.others(
            plugin,
            &[
                "allow",
                "deny",
                "whitelist",
                "blacklist",
                "hide_groups_header",
                "always_use_authenticated_groups",
            ],
        );
        self.dropped(plugin, "hide_groups_header", "false", "services receive X-Consumer-Groups");
        self.dropped(plugin, "always_use_authenticated_groups", "false", "remove it");
        if allow.iter().chain(&deny).any(|groups| groups.len() > 64) {
            return Err("has more than 64 groups: write fewer groups".into());
        }
        match (allow, deny) {
            (Some(groups), None) => Ok(vec![json!({"action": "Allow", "groups": groups})]),
            (None, Some(groups)) => {
                Ok(vec![json!({"action": "Deny", "groups": groups}), json!({"action": "Allow"})])
            }
            _ => Err("needs either allow or deny".into()),
        }
    }

    fn ip_restriction(&mut self, plugin: &Plugin, effects: &mut Effects) -> Result<(), Unconverted> {
        let list = |one: &str, other: &str| {
            texts(plugin, one).or_else(|| texts(plugin, other)).filter(|list| !list.is_empty())
        };
        let (allow, deny) = (list("allow", "whitelist"), list("deny", "blacklist"));
        self.others(plugin, &["allow", "deny", "whitelist", "blacklist", "status", "message"]);
        if plugin.config.get("status").and_then(Node::number).is_some_and(|status| status != 403.0) {
            self.note(plugin, "config.status is not converted: the gateway responds with 403");
        }
        self.dropped(plugin, "message", "", "the gateway has a text of its own");
        let mut access = Map::new();
        for (field, list) in [("allow", allow), ("deny", deny)] {
            let Some(list) = list else { continue };
            let is_valid = |entry: &String| sluicegate_kong::router::network(entry).is_some();
            if list.len() > 256 || !list.iter().all(is_valid) {
                return Err(
                    "has more than 256 addresses, or an invalid address: correct the addresses".into()
                );
            }
            access.insert(field.to_owned(), list.into());
        }
        if access.is_empty() {
            return Err("needs allow or deny".into());
        }
        effects.security.0 = effects.security.0.max(plugin.line);
        effects.security.1.insert("ipAccess".to_owned(), access.into());
        Ok(())
    }

    fn rate_limiting(&mut self, plugin: &Plugin, effects: &mut Effects) -> Result<(), Unconverted> {
        let limits = self.limits(plugin)?;
        effects.limits.0 = plugin.line;
        let content = &mut effects.limits.1;
        content.insert("limits".to_owned(), limits.into());
        if flag(plugin, "hide_client_headers", false) {
            content.insert("headers".to_owned(), false.into());
        }
        self.share(plugin, effects);
        Ok(())
    }

    /// Lets data planes count together, if the plugin says so.
    pub(super) fn share(&mut self, plugin: &Plugin, effects: &mut Effects) {
        if text(plugin, "policy") != Some("redis") {
            return;
        }
        match self.redis(plugin) {
            Some(redis) => drop(effects.limits.1.insert("shared".to_owned(), json!({"redis": redis}))),
            None => {
                self.note(
                    plugin,
                    "config.redis has no host, so each data plane counts by itself: write host",
                );
            }
        }
    }

    /// The limits of a plugin.
    pub(super) fn limits(&mut self, plugin: &Plugin) -> Result<Vec<Value>, Unconverted> {
        self.others(
            plugin,
            &[
                "second",
                "minute",
                "hour",
                "day",
                "month",
                "year",
                "limit_by",
                "header_name",
                "path",
                "policy",
                "fault_tolerant",
                "hide_client_headers",
                "error_code",
                "error_message",
                "sync_rate",
                "redis",
                "redis_host",
                "redis_port",
                "redis_password",
                "redis_username",
                "redis_database",
                "redis_ssl",
                "redis_ssl_verify",
                "redis_server_name",
                "redis_timeout",
            ],
        );
        self.dropped(plugin, "fault_tolerant", "true", "requests are served while Redis is unavailable");
        self.dropped(plugin, "sync_rate", "-1", "data planes exchange counts each 20 ms");
        self.dropped(plugin, "path", "", "write a route for the path");
        if text(plugin, "policy") == Some("cluster") {
            self.note(
                plugin,
                "policy cluster is not converted, and each data plane counts by itself: write redis",
            );
        }
        let key = match text(plugin, "limit_by").unwrap_or("consumer") {
            "consumer" | "credential" => json!([{"type": "Consumer"}]),
            "ip" => json!([{"type": "Address", "ipv6PrefixLength": 128}]),
            "service" => json!([]),
            "header" => match text(plugin, "header_name") {
                Some(name) if HeaderName::new(name).is_ok() => json!([{"type": "Header", "name": name}]),
                Some(name) => {
                    return Err(Unconverted(format!("header_name {name:?} is not the name of a header")));
                }
                None => return Err("needs header_name for limit_by: header".into()),
            },
            other => {
                return Err(Unconverted(format!(
                    "limit_by {other:?} is not converted: write consumer, ip, service or header"
                )));
            }
        };
        let mut limits = Vec::new();
        for (period, seconds) in [
            ("second", 1),
            ("minute", 60),
            ("hour", 3600),
            ("day", 86_400),
            ("month", 2_592_000),
            ("year", 31_536_000),
        ] {
            let Some(requests) = plugin.config.get(period).and_then(Node::number) else { continue };
            // Longer periods and larger numbers have the same rate.
            let (mut requests, mut milliseconds) = (requests.max(1.0), f64::from(seconds) * 1000.0);
            let shrink = (requests / 1_000_000.0).max(milliseconds / 2_592_000_000.0).max(1.0);
            if shrink > 1.0 {
                (requests, milliseconds) =
                    ((requests / shrink).floor().max(1.0), (milliseconds / shrink).ceil());
                let message = format!(
                    "{period} is converted to a shorter period with the same rate: at most 1000000 requests in 30 days"
                );
                self.note(plugin, &message);
            }
            let mut limit = json!({
                "name": period, "requests": requests as u64, "per": duration(milliseconds as u64),
                "algorithm": "SlidingWindow",
            });
            if key.as_array().is_some_and(|key| !key.is_empty()) {
                limit["key"] = key.clone();
            }
            if let Some(status) = plugin
                .config
                .get("error_code")
                .and_then(Node::number)
                .filter(|status| (400.0..600.0).contains(status) && *status != 429.0)
            {
                limit["statusCode"] = (status as u64).into();
            }
            limits.push(limit);
        }
        if limits.is_empty() {
            return Err("has no limit: write second, minute, hour, day, month or year".into());
        }
        if text(plugin, "error_message").is_some_and(|message| message != "API rate limit exceeded") {
            self.note(plugin, "config.error_message is not converted: the gateway has a text of its own");
        }
        Ok(limits)
    }

    fn redis(&mut self, plugin: &Plugin) -> Option<Value> {
        let redis = plugin.config.get("redis");
        let field = |new: &str, old: &str| {
            redis
                .and_then(|redis| redis.get(new))
                .or_else(|| plugin.config.get(old))
                .and_then(Node::text)
                .map(str::to_owned)
        };
        let host = field("host", "redis_host")?;
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let port = field("port", "redis_port").unwrap_or_else(|| "6379".to_owned());
        let mut shared = json!({"address": format!("{host}:{port}")});
        if let Some(password) = field("password", "redis_password") {
            let name = self.secret_once(plugin.line, "redis", "password", password.as_bytes());
            shared["passwordSecretRef"] = json!({"name": name});
            if let Some(user) = field("username", "redis_username") {
                shared["username"] = user.into();
            }
        }
        if let Some(database) = field("database", "redis_database").and_then(|text| text.parse::<u16>().ok())
        {
            shared["database"] = database.into();
        }
        if field("ssl", "redis_ssl").as_deref() == Some("true") {
            shared["tls"] = match field("server_name", "redis_server_name") {
                Some(name) => json!({"serverName": name}),
                None => json!({}),
            };
        }
        Some(shared)
    }

    fn request_size(&mut self, plugin: &Plugin, effects: &mut Effects) -> Result<(), Unconverted> {
        self.others(plugin, &["allowed_payload_size", "size_unit", "require_content_length"]);
        if flag(plugin, "require_content_length", false) {
            self.note(
                plugin,
                "config.require_content_length is not converted: the size of all bodies is limited",
            );
        }
        let unit = match text(plugin, "size_unit").unwrap_or("megabytes") {
            "megabytes" => 1_048_576.0,
            "kilobytes" => 1024.0,
            "bytes" => 1.0,
            other => return Err(Unconverted(format!("size_unit {other:?} is unknown"))),
        };
        let size = plugin.config.get("allowed_payload_size").and_then(Node::number).unwrap_or(128.0);
        // 0 would be no limit.
        let bytes = (size * unit).max(1.0) as u64;
        effects.traffic.insert("limits".to_owned(), json!({"requestBody": bytes.to_string()}));
        Ok(())
    }

    fn bots(&mut self, plugin: &Plugin, effects: &mut Effects) -> Result<(), Unconverted> {
        self.others(plugin, &["allow", "deny", "whitelist", "blacklist"]);
        let list =
            |one: &str, other: &str| texts(plugin, one).or_else(|| texts(plugin, other)).unwrap_or_default();
        if !list("allow", "whitelist").is_empty() {
            self.note(
                plugin,
                "config.allow is not converted: write expressions in deny that do not match these clients",
            );
        }
        let deny = list("deny", "blacklist");
        for expression in &deny {
            if sluicegate_model::rule::Pattern::new(expression.as_str(), false).is_err() {
                return Err(Unconverted(format!(
                    "{expression:?} is no supported regular expression: correct it"
                )));
            }
        }
        self.note(plugin, "the built-in list of Kong is not converted: write all expressions in deny");
        effects.bots = deny;
        Ok(())
    }

    fn cors(&mut self, plugin: &Plugin, effects: &mut Effects) {
        self.others(
            plugin,
            &[
                "origins",
                "methods",
                "headers",
                "exposed_headers",
                "max_age",
                "credentials",
                "preflight_continue",
                "private_network",
                "allow_origin_absent",
            ],
        );
        for key in ["preflight_continue", "private_network"] {
            if flag(plugin, key, false) {
                self.note(
                    plugin,
                    &format!("config.{key} is not converted: the gateway responds to preflight requests"),
                );
            }
        }
        self.dropped(
            plugin,
            "allow_origin_absent",
            "true",
            "requests without Origin have no headers of CORS",
        );
        if plugin.config.get("max_age").and_then(Node::number).is_some_and(|age| age > 86_400.0) {
            self.note(
                plugin,
                "config.max_age is converted to 86400, which is the most: write a shorter time",
            );
        }
        let mut origins = texts(plugin, "origins").unwrap_or_else(|| vec!["*".to_owned()]);
        origins.retain(|origin| {
            let is_plain = origin == "*" || origin.parse::<sluicegate_model::value::OriginPattern>().is_ok();
            if !is_plain {
                let message = format!("the origin {origin:?} is not converted: write https://*.example.com for hosts below a domain");
                self.plugin_note(plugin, plugin.line, message);
            }
            is_plain
        });
        if origins.is_empty() {
            return;
        }
        let all = ["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
        let methods = texts(plugin, "methods").unwrap_or_else(|| all.map(str::to_owned).into());
        let mut cors = json!({
            "allowOrigins": origins, "allowMethods": methods,
            "allowHeaders": texts(plugin, "headers").unwrap_or_else(|| vec!["*".to_owned()]),
        });
        if let Some(exposed) = texts(plugin, "exposed_headers") {
            cors["exposeHeaders"] = exposed.into();
        }
        if flag(plugin, "credentials", false) {
            cors["allowCredentials"] = true.into();
        }
        if let Some(age) = plugin.config.get("max_age").and_then(Node::number) {
            cors["maxAge"] = (age.clamp(1.0, 86_400.0) as u64).into();
        }
        effects.filters.push(json!({"type": "CORS", "cors": cors}));
    }

    /// The headers of a transformer, as a filter.
    fn transformer(&mut self, plugin: &Plugin, kind: &str, field: &str, effects: &mut Effects) {
        self.others(plugin, &["remove", "rename", "replace", "add", "append", "http_method"]);
        if let Some(method) = text(plugin, "http_method") {
            self.note(
                plugin,
                &format!("config.http_method {method:?} is not converted: change the method in the service"),
            );
        }
        let (mut set, mut add, mut remove): (Vec<Value>, Vec<Value>, Vec<String>) = Default::default();
        for step in ["remove", "rename", "replace", "add", "append"] {
            let Some(written) = plugin.config.get(step) else { continue };
            for (part, values) in written.map().unwrap_or_default() {
                let is_empty =
                    values.list().is_some_and(<[Node]>::is_empty) || values.value == node::Value::Null;
                if is_empty {
                    continue;
                }
                let entries: Vec<&str> =
                    values.list().unwrap_or_default().iter().filter_map(Node::text).collect();
                if &**part != "headers" || step == "rename" {
                    let message = format!("config.{step}.{part} is not converted: change it in the service");
                    self.plugin_note(plugin, values.line, message);
                    continue;
                }
                for entry in entries {
                    if step == "remove" {
                        remove.push(entry.to_owned());
                        continue;
                    }
                    let (name, value) = entry.split_once(':').unwrap_or((entry, ""));
                    let (name, value) = (name.trim(), value.trim());
                    if value.contains("$(") {
                        let message = format!(
                            "config.{step}.{part} {name:?} has a template and is not converted: write a fixed value"
                        );
                        self.plugin_note(plugin, values.line, message);
                        continue;
                    }
                    let line = json!({"name": name, "value": value});
                    match step {
                        "append" => add.push(line),
                        _ => {
                            let condition = if step == "add" {
                                "even if the header exists"
                            } else {
                                "even if the header is missing"
                            };
                            let message = format!(
                                "config.{step}.{part} {name:?} sets the header {condition}: write it so in the service if that matters"
                            );
                            self.plugin_note(plugin, values.line, message);
                            set.push(line);
                        }
                    }
                }
            }
        }
        let mut edits = Map::new();
        for (list, entries) in [("set", set), ("add", add)] {
            if !entries.is_empty() {
                edits.insert(list.to_owned(), entries.into());
            }
        }
        if !remove.is_empty() {
            edits.insert("remove".to_owned(), remove.into());
        }
        if !edits.is_empty() {
            let mut filter = json!({"type": kind});
            filter[field] = edits.into();
            effects.filters.push(filter);
        }
    }

    fn cache(&mut self, plugin: &Plugin, effects: &mut Effects) {
        self.others(
            plugin,
            &[
                "strategy",
                "cache_ttl",
                "memory",
                "response_code",
                "request_method",
                "content_type",
                "cache_control",
                "storage_ttl",
                "vary_headers",
            ],
        );
        for (key, default, instead) in [
            ("response_code", "200,301,404", "RFC 9111 decides which statuses are stored"),
            ("request_method", "GET,HEAD", "responses to GET and HEAD are stored"),
            ("content_type", "text/plain,application/json", "responses of all media types are stored"),
            ("cache_control", "true", "the gateway follows Cache-Control"),
            ("storage_ttl", "", "the gateway stores no response longer than it is fresh"),
        ] {
            self.dropped(plugin, key, default, instead);
        }
        if texts(plugin, "vary_headers").is_some_and(|headers| headers.len() > 8) {
            self.note(
                plugin,
                "config.vary_headers has more than 8 names and is not converted: write fewer names",
            );
        }
        let time = plugin.config.get("cache_ttl").and_then(Node::number).unwrap_or(300.0).max(1.0);
        let mut cache = json!({"defaultTime": format!("{}s", time as u64)});
        if let Some(headers) =
            texts(plugin, "vary_headers").filter(|headers| (1..=8).contains(&headers.len()))
        {
            cache["key"] = json!({"headers": headers});
        }
        let message = "the headers of responses decide first about caching (RFC 9111), and cache_ttl applies to responses without them";
        self.note(plugin, message);
        effects.traffic.insert("cache".to_owned(), cache);
    }

    fn redirect(&mut self, plugin: &Plugin, effects: &mut Effects) -> Result<(), Unconverted> {
        self.others(plugin, &["status_code", "location", "keep_incoming_path"]);
        let status = plugin.config.get("status_code").and_then(Node::number).unwrap_or(301.0) as u16;
        let location = text(plugin, "location").unwrap_or_default();
        let Some((scheme, rest)) = location.split_once("://") else {
            return Err("location is no URL: write http:// or https:// with a host".into());
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, port.parse::<u16>().ok()),
            None => (authority, None),
        };
        let is_usable = matches!(scheme, "http" | "https")
            && syntax::dns_name_fault(&host.to_ascii_lowercase()).is_none()
            && (port.is_some() || !authority.contains(':'))
            && !path.contains(['?', '#'])
            && matches!(status, 301 | 302 | 303 | 307 | 308);
        if !is_usable {
            return Err("location has a query or an invalid host, or the status is none of 301, 302, 303, 307 and 308".into());
        }
        let mut redirect =
            json!({"scheme": scheme, "hostname": host.to_ascii_lowercase(), "statusCode": status});
        if let Some(port) = port {
            redirect["port"] = port.into();
        }
        if !flag(plugin, "keep_incoming_path", false) {
            let path = if path.is_empty() { "/" } else { path };
            redirect["path"] = json!({"type": "ReplaceFullPath", "replaceFullPath": path});
            self.note(plugin, "the location keeps the query of the request: let clients send none");
        }
        effects.filters.push(json!({"type": "RequestRedirect", "requestRedirect": redirect}));
        effects.redirects = true;
        Ok(())
    }

    fn termination(&mut self, plugin: &Plugin, effects: &mut Effects) -> Result<(), Unconverted> {
        self.others(plugin, &["status_code", "message", "body", "content_type", "echo", "trigger"]);
        if text(plugin, "trigger").is_some() || flag(plugin, "echo", false) {
            self.note(
                plugin,
                "is not converted with trigger or echo: write a route with a header in its place",
            );
            return Ok(());
        }
        let status = plugin.config.get("status_code").and_then(Node::number).unwrap_or(503.0);
        let message = text(plugin, "message").unwrap_or(match status as u16 {
            503 => "Service unavailable",
            404 => "Not found",
            403 => "Forbidden",
            401 => "Unauthorized",
            _ => "The request was terminated",
        });
        let (media, body) = match text(plugin, "body") {
            Some(body) => {
                (text(plugin, "content_type").unwrap_or("application/json; charset=utf-8"), body.to_owned())
            }
            None => ("application/json; charset=utf-8", json!({"message": message}).to_string()),
        };
        let has_body = !matches!(status as u16, 204 | 205 | 304);
        let response = match has_body {
            true => json!({"statusCode": status as u16, "contentType": media, "body": body}),
            false => json!({"statusCode": status as u16}),
        };
        let is_valid = serde_json::from_value::<DirectResponse>(response.clone())
            .is_ok_and(|response| response.body.len() <= DirectResponse::BODY_MAX);
        if !is_valid {
            return Err(
                "has a status below 200, a longer body than 16384 bytes, or an invalid content_type".into()
            );
        }
        effects.traffic.insert("directResponse".to_owned(), response);
        Ok(())
    }
}

/// Decodes base64, also without padding and in the alphabet of URLs.
pub(super) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    STANDARD_NO_PAD.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(text)).ok()
}
