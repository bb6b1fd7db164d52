//! The plugins of a route, as parts of policies and filters.
//!
//! For each name, the plugin with the most specific scope applies. A plugin that restricts access and cannot be converted
//! closes the route.
//!
//! | module | plugins |
//! |---|---|
//! | [`authentication`] | key-auth, basic-auth, jwt, acl; `openid` has the plugins of OpenID Connect |
//! | [`headers`] | cors, request-transformer, response-transformer |
//! | [`limits`] | rate-limiting |
//! | [`response`] | proxy-cache, redirect, request-termination |
//! | [`restriction`] | ip-restriction, request-size-limiting, bot-detection |

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sluicegate_kong::file::Plugin;
use sluicegate_kong::node::{self, Node};

use super::Conversion;

mod authentication;
mod headers;
mod limits;
mod response;
mod restriction;

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
        self.add_limits_of_callers(place, &mut effects);
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
}

/// Decodes base64, also without padding and in the alphabet of URLs.
pub(super) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    STANDARD_NO_PAD.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(text)).ok()
}
