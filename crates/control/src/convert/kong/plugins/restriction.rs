//! The plugins that restrict requests by their address, their size or their client.

use serde_json::{Map, json};
use sluicegate_kong::file::Plugin;
use sluicegate_kong::node::Node;

use super::{Effects, Unconverted, flag, text, texts};
use crate::convert::kong::Conversion;

impl Conversion<'_> {
    pub(super) fn ip_restriction(
        &mut self,
        plugin: &Plugin,
        effects: &mut Effects,
    ) -> Result<(), Unconverted> {
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

    pub(super) fn request_size(&mut self, plugin: &Plugin, effects: &mut Effects) -> Result<(), Unconverted> {
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

    pub(super) fn bots(&mut self, plugin: &Plugin, effects: &mut Effects) -> Result<(), Unconverted> {
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
}
