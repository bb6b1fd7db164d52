//! The plugins that respond in place of the service.

use serde_json::json;
use sluicegate_kong::file::Plugin;
use sluicegate_kong::node::Node;
use sluicegate_model::feature::DirectResponse;
use sluicegate_model::value::syntax;

use super::{Effects, Unconverted, flag, text, texts};
use crate::convert::kong::Conversion;

impl Conversion<'_> {
    pub(super) fn cache(&mut self, plugin: &Plugin, effects: &mut Effects) {
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

    pub(super) fn redirect(&mut self, plugin: &Plugin, effects: &mut Effects) -> Result<(), Unconverted> {
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

    pub(super) fn termination(&mut self, plugin: &Plugin, effects: &mut Effects) -> Result<(), Unconverted> {
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
