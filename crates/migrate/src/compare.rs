//! The differences between two responses.

use std::collections::BTreeSet;
use std::fmt;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName};
use serde::Serialize;

use crate::client::Response;

/// Headers that differ between two responses of one server: times, connections and identifiers.
const VOLATILE: [&str; 14] = [
    "age",
    "alt-svc",
    "connection",
    "content-length",
    "date",
    "etag",
    "expires",
    "keep-alive",
    "last-modified",
    "server",
    "transfer-encoding",
    "via",
    "x-powered-by",
    "x-request-id",
];

/// The parts of responses that the comparison covers.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Headers that are not compared, beside the volatile headers.
    pub ignored: Vec<HeaderName>,
    /// The header by which endpoints name their Service.
    pub service_header: Option<HeaderName>,
    /// Whether bodies are not compared.
    pub ignores_bodies: bool,
}

/// A difference between the response of the old controller and the response of the new controller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The part that differs: `status`, `service`, `header NAME`, `body` or `response`.
    pub part: String,
    /// The value of the old controller.
    pub old: String,
    /// The value of the new controller.
    pub new: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?} became {:?}", self.part, self.old, self.new)
    }
}

impl Rules {
    /// The differences between two responses; a reason in place of a response is compared as a part of its own.
    #[must_use]
    pub fn differences(
        &self,
        old: &Result<Response, String>,
        new: &Result<Response, String>,
    ) -> Vec<Difference> {
        let (old, new) = match (old, new) {
            (Ok(old), Ok(new)) => (old, new),
            // A connection that both controllers close is the same behavior, whatever the words for it.
            (Err(_), Err(_)) => return Vec::new(),
            (old, new) => {
                let shown = |response: &Result<Response, String>| match response {
                    Ok(response) => response.status.as_u16().to_string(),
                    Err(reason) => reason.clone(),
                };
                return vec![Difference { part: "response".to_owned(), old: shown(old), new: shown(new) }];
            }
        };
        let mut differences = Vec::new();
        let mut compare = |part: String, old: String, new: String| {
            if old != new {
                differences.push(Difference { part, old, new });
            }
        };
        compare("status".to_owned(), old.status.as_u16().to_string(), new.status.as_u16().to_string());
        if let Some(header) = &self.service_header {
            compare("service".to_owned(), values(&old.headers, header), values(&new.headers, header));
        }
        // Controllers write their own bodies for errors and redirects.
        let is_error = |response: &Response| {
            response.status.is_client_error()
                || response.status.is_server_error()
                || response.status.is_redirection()
        };
        let has_own_body = is_error(old) && is_error(new);
        let names: BTreeSet<&str> =
            old.headers.keys().chain(new.headers.keys()).map(HeaderName::as_str).collect();
        for name in names.into_iter().filter(|name| !self.ignores(name)) {
            let Ok(header) = HeaderName::try_from(name) else { continue };
            if has_own_body && header == CONTENT_TYPE {
                continue;
            }
            let part = format!("header {name}");
            compare(part, values(&old.headers, &header), values(&new.headers, &header));
        }
        if !self.ignores_bodies && old.status == new.status && !has_own_body && old.body != new.body {
            let shown = |response: &Response| {
                let hash: String = response.body[..4].iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{} bytes, sha256 {hash}...", response.length)
            };
            differences.push(Difference { part: "body".to_owned(), old: shown(old), new: shown(new) });
        }
        differences
    }

    fn ignores(&self, name: &str) -> bool {
        VOLATILE.contains(&name)
            || self.ignored.iter().any(|ignored| ignored.as_str() == name)
            || self.service_header.as_ref().is_some_and(|header| header.as_str() == name)
    }
}

/// The values of a header, sorted. Of a cookie only the name and the attributes count, because its value is new in each response.
fn values(headers: &HeaderMap, name: &HeaderName) -> String {
    let shown = |value: &http::HeaderValue| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        match name.as_str() {
            "set-cookie" => without_value(&value),
            // The order and the case of the names do not matter (RFC 9110, 12.5.5).
            "vary" => sorted_list(&value),
            _ => value,
        }
    };
    let mut values: Vec<String> = headers.get_all(name).iter().map(shown).collect();
    values.sort();
    values.join(", ")
}

fn without_value(cookie: &str) -> String {
    let mut parts = cookie.split(';').map(str::trim);
    let pair = parts.next().unwrap_or_default();
    let name = pair.split('=').next().unwrap_or_default();
    let is_time = |part: &&str| part.to_ascii_lowercase().starts_with("expires=");
    let mut attributes: Vec<String> =
        parts.filter(|part| !is_time(part)).map(str::to_ascii_lowercase).collect();
    attributes.sort();
    format!("{name}=...; {}", attributes.join("; "))
}

fn sorted_list(value: &str) -> String {
    let mut names: Vec<String> = value.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
    names.sort();
    names.dedup();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, StatusCode};

    use super::*;

    fn response(status: u16, headers: &[(&'static str, &'static str)], body: u8) -> Result<Response, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let status = StatusCode::from_u16(status).unwrap();
        Ok(Response { status, headers: map, body: [body; 32], length: u64::from(body) })
    }

    fn parts(old: &Result<Response, String>, new: &Result<Response, String>) -> Vec<String> {
        let rules = Rules { service_header: Some(HeaderName::from_static("x-service")), ..Rules::default() };
        rules.differences(old, new).into_iter().map(|difference| difference.part).collect()
    }

    #[test]
    fn status_headers_service_and_body_are_compared() {
        let old = response(200, &[("x-a", "1"), ("x-service", "web"), ("date", "now")], 1);
        let new = response(200, &[("x-a", "2"), ("x-service", "api"), ("date", "later"), ("x-b", "1")], 2);
        assert_eq!(parts(&old, &new), ["service", "header x-a", "header x-b", "body"]);
        assert_eq!(parts(&old, &old), [""; 0]);
        assert_eq!(parts(&old, &response(503, &[("x-a", "1"), ("x-service", "web")], 9)), ["status"]);
        assert_eq!(parts(&old, &Err("closed".to_owned())), ["response"]);
        assert_eq!(parts(&Err("one".to_owned()), &Err("other".to_owned())), [""; 0]);
    }

    #[test]
    fn cookies_are_compared_by_name_and_attributes_alone() {
        let old = response(200, &[("set-cookie", "route=1; Path=/; HttpOnly; Expires=now")], 1);
        assert_eq!(parts(&old, &response(200, &[("set-cookie", "route=2; HttpOnly; path=/")], 1)), [""; 0]);
        assert_eq!(
            parts(&old, &response(200, &[("set-cookie", "route=2; Path=/")], 1)),
            ["header set-cookie"]
        );
    }

    #[test]
    fn bodies_of_errors_and_their_media_types_are_not_compared() {
        assert_eq!(parts(&response(404, &[("content-type", "a/b")], 1), &response(404, &[], 2)), [""; 0]);
        assert_eq!(
            parts(&response(200, &[("content-type", "a/b")], 1), &response(200, &[], 1)),
            ["header content-type"]
        );
    }
}
