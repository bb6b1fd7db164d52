//! The plugin rate-limiting.

use serde_json::{Value, json};
use sluicegate_kong::file::Plugin;
use sluicegate_kong::node::Node;
use sluicegate_model::value::HeaderName;

use super::{Effects, Unconverted, flag, text};
use crate::convert::kong::{Conversion, duration};

impl Conversion<'_> {
    pub(super) fn rate_limiting(
        &mut self,
        plugin: &Plugin,
        effects: &mut Effects,
    ) -> Result<(), Unconverted> {
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
    pub(in super::super) fn share(&mut self, plugin: &Plugin, effects: &mut Effects) {
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
    pub(in super::super) fn limits(&mut self, plugin: &Plugin) -> Result<Vec<Value>, Unconverted> {
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
}
