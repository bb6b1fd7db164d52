//! The plugins that change headers.

use serde_json::{Map, Value, json};
use sluicegate_kong::file::Plugin;
use sluicegate_kong::node::{self, Node};

use super::{Effects, flag, text, texts};
use crate::convert::kong::Conversion;

impl Conversion<'_> {
    pub(super) fn cors(&mut self, plugin: &Plugin, effects: &mut Effects) {
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
    pub(super) fn transformer(&mut self, plugin: &Plugin, kind: &str, field: &str, effects: &mut Effects) {
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
}
