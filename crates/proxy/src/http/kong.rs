//! Responses in the form of Kong (`--kong-compatibility`), for clients that read the bodies and headers of Kong.

use std::borrow::Cow;
use std::io::Write as _;

use serde_json::Value;

use super::exchange::Exchange;
use super::refuse::Refusal;
use crate::failure::{ClientFault, Denial, Failure, Fault};
use crate::feature::authentication::Method;

/// The forms of an error body. The client selects the form by `Accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Html,
    Xml,
    Plain,
}

impl Form {
    /// The form for an `Accept` header: the first of the media types with the greatest weight.
    fn of(accept: Option<&[u8]>) -> Self {
        let mut best = (0.0, Self::Json);
        for entry in accept.unwrap_or_default().split(|byte| *byte == b',') {
            let entry = String::from_utf8_lossy(entry).to_ascii_lowercase();
            let mut parts = entry.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok()).unwrap_or(1.0);
            if media_type.contains('/') && weight > best.0 {
                best = (weight, Self::of_media_type(media_type));
            }
        }
        best.1
    }

    fn of_media_type(media_type: &str) -> Self {
        match media_type {
            "text/html" => Self::Html,
            "text/plain" | "text/*" => Self::Plain,
            "application/xml" => Self::Xml,
            _ => Self::Json,
        }
    }

    fn media_type(self) -> &'static [u8] {
        match self {
            Self::Json => b"application/json; charset=utf-8",
            Self::Html => b"text/html; charset=utf-8",
            Self::Xml => b"application/xml; charset=utf-8",
            Self::Plain => b"text/plain; charset=utf-8",
        }
    }

    fn body(self, message: &str, id: &str) -> String {
        match self {
            Self::Json => {
                format!("{{\n  \"message\":{},\n  \"request_id\":\"{id}\"\n}}", Value::from(message))
            }
            Self::Html => format!(
                "<!doctype html>\n<html>\n  <head>\n    <meta charset=\"utf-8\">\n    <title>Error</title>\n  </head>\n  \
                 <body>\n    <h1>Error</h1>\n    <p>{message}.</p>\n    <p>request_id: {id}</p>\n  </body>\n</html>\n"
            ),
            Self::Xml => format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<error>\n  <message>{message}</message>\n  \
                 <requestid>{id}</requestid>\n</error>\n"
            ),
            Self::Plain => format!("{message}\nrequest_id: {id}\n"),
        }
    }
}

impl Exchange<'_> {
    /// The body of a refusal without a body of its own.
    pub(super) fn kong_body(&self, refusal: &Refusal, status: u16) -> (Vec<u8>, &'static [u8]) {
        let accept = match refusal {
            // The head is unknown.
            Refusal::Rejected(_) => None,
            _ => self.head().head.find_only(self.head().buf, "accept"),
        };
        let form = Form::of(accept);
        let message = match refusal {
            Refusal::Denied(Denial::Address) => {
                Cow::Owned(format!("IP address not allowed: {}", self.client_address()))
            }
            Refusal::Denied(Denial::NoCredentials) if self.asks_only_for_keys() => {
                Cow::Borrowed("No API key found in request")
            }
            _ => Cow::Borrowed(message(refusal, status)),
        };
        (form.body(&message, &self.kong_request_id()).into_bytes(), form.media_type())
    }

    /// Whether API keys are the only credentials of the route.
    fn asks_only_for_keys(&self) -> bool {
        let guard = self.record.route.and_then(|route| self.snapshot.table.target(route).guard.as_deref());
        let security = guard.and_then(|guard| guard.security.as_ref());
        let authentication = security.and_then(|policy| policy.compiled.authentication.as_ref());
        authentication.is_some_and(|of| matches!(&of.methods[..], [Method::ApiKey { .. }]))
    }

    fn kong_request_id(&self) -> String {
        format!("{:032x}", self.record.request_id)
    }

    /// Adds the headers of a response of the gateway itself.
    pub(super) fn add_kong_headers(&mut self) {
        let took = self.record.started.elapsed().as_millis();
        let id = self.kong_request_id();
        // Writing to a Vec does not fail.
        let _ = write!(
            self.scratch.response_lines,
            "X-Kong-Response-Latency: {took}\r\nX-Kong-Request-Id: {id}\r\n"
        );
    }

    /// Adds the headers of a response of an endpoint, or of the cache.
    pub(super) fn add_kong_upstream_headers(&mut self) {
        let Some(upstream) = self.record.endpoint_duration else { return self.add_kong_headers() };
        let before = self.record.asked.saturating_duration_since(self.record.started);
        let (upstream, before, id) = (upstream.as_millis(), before.as_millis(), self.kong_request_id());
        let _ = write!(
            self.scratch.response_lines,
            "X-Kong-Upstream-Latency: {upstream}\r\nX-Kong-Proxy-Latency: {before}\r\nX-Kong-Request-Id: {id}\r\n"
        );
    }
}

/// The message of Kong for a refusal.
fn message(refusal: &Refusal, status: u16) -> &'static str {
    match refusal {
        Refusal::NoRoute => "no Route matched with those values",
        Refusal::Denied(denial) | Refusal::Limited(denial, _) | Refusal::FailedClosed(denial) => match denial
        {
            Denial::AmbiguousCredentials => "Duplicate API key found",
            Denial::Forbidden
            | Denial::Scope
            | Denial::Consumer
            | Denial::NoSubscription
            | Denial::SubscriptionPending
            | Denial::SubscriptionInactive => "You cannot consume this service",
            Denial::RateLimit | Denial::Quota => "API rate limit exceeded",
            _ => of_status(status),
        },
        Refusal::Fault(Fault::Client(ClientFault::BodyTooLarge)) => "Request size limit exceeded",
        Refusal::Fault(Fault::Upstream(Failure::NoEndpoint)) => {
            "failure to get a peer from the ring-balancer"
        }
        _ => of_status(status),
    }
}

/// The message of Kong for a status.
fn of_status(status: u16) -> &'static str {
    match status {
        400 => "Bad request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not found",
        405 => "Method not allowed",
        408 => "Request timeout",
        410 => "Gone",
        411 => "Length required",
        412 => "Precondition failed",
        413 => "Payload too large",
        414 => "URI too long",
        415 => "Unsupported media type",
        417 => "Expectation failed",
        421 => "Misdirected request",
        426 => "Please use HTTPS protocol",
        429 => "Too many requests",
        431 => "Request header fields too large",
        500 => "An unexpected error occurred",
        501 => "Not implemented",
        502 => "An invalid response was received from the upstream server",
        503 => "The upstream server is currently unavailable",
        504 => "The upstream server is timing out",
        505 => "HTTP version not supported",
        _ => "The request failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_selects_the_form_of_an_error() {
        for (accept, form) in [
            (None, Form::Json),
            (Some("*/*"), Form::Json),
            (Some("text/html,application/xhtml+xml,*/*;q=0.8"), Form::Html),
            (Some("text/html;q=0.1, application/xml"), Form::Xml),
            (Some("text/*"), Form::Plain),
            (Some("application/*"), Form::Json),
            (Some("image/png, text/html"), Form::Json),
            (Some("text/html;q=0, text/plain;q=abc"), Form::Plain),
            (Some("nonsense"), Form::Json),
        ] {
            assert_eq!(Form::of(accept.map(str::as_bytes)), form, "{accept:?}");
        }
    }

    #[test]
    fn json_body_has_the_layout_of_kong() {
        let body = Form::Json.body("no Route matched with those values", "ab");
        assert_eq!(
            body,
            "{\n  \"message\":\"no Route matched with those values\",\n  \"request_id\":\"ab\"\n}"
        );
        assert_eq!(Form::Plain.body("Unauthorized", "ab"), "Unauthorized\nrequest_id: ab\n");
    }
}
