//! Cross-origin requests (Fetch standard, "HTTP extensions").

use sluicegate_http1::{Known, Method, RequestHead, ResponseHead};
use sluicegate_model::feature;
use sluicegate_model::feature::cors::NginxCors;
use sluicegate_model::value::{HeaderName, OriginPattern};

use super::edit::{Edits, has_line};
use super::rate_limit::seconds_up;
use super::security::Arrival;
use crate::failure::Denial;

/// The CORS rules of a policy, compiled.
#[derive(Debug)]
pub(crate) struct Cors {
    origins: Vec<OriginPattern>,
    /// Whether the response allows the headers that the browser asks for.
    echoes_headers: bool,
    /// Whether the response allows the method that the browser asks for.
    echoes_method: bool,
    /// Header lines of each response.
    response: Box<[u8]>,
    /// Header lines of each response to a preflight.
    preflight: Box<[u8]>,
    /// Whether responses are the same for every origin.
    is_for_all: bool,
    /// Whether the policy has the form of ingress-nginx ([`feature::cors::NginxCors`]).
    is_nginx: bool,
}

/// The kind of a request, seen from the browser that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The request is not cross-origin.
    Same,
    /// The request asks whether a cross-origin request is allowed.
    Preflight,
    /// The request is cross-origin.
    Actual,
}

impl Cors {
    pub(super) fn new(cors: &feature::Cors) -> Self {
        if let Some(nginx) = &cors.nginx {
            return Self::of_nginx(cors, nginx);
        }
        let joined = |all: &[HeaderName]| all.join(", ");
        let has_any = |all: &[HeaderName]| all.iter().any(|one| one.as_str() == "*");
        let credentials =
            if cors.allow_credentials { "Access-Control-Allow-Credentials: true\r\n" } else { "" };
        let mut response = credentials.to_owned();
        if !cors.expose_headers.is_empty() {
            response
                .push_str(&format!("Access-Control-Expose-Headers: {}\r\n", joined(&cors.expose_headers)));
        }
        // Browsers need the exposed headers only later, but Gateway API expects them here too.
        let mut preflight = response.clone();
        // For requests with credentials, browsers read `*` as the name of a method (Fetch standard, "CORS-preflight
        // fetch").
        let echoes_method = cors.allow_methods.iter().any(|one| one.as_str() == "*");
        if !echoes_method {
            preflight
                .push_str(&format!("Access-Control-Allow-Methods: {}\r\n", cors.allow_methods.join(", ")));
        }
        let echoes_headers = has_any(&cors.allow_headers);
        if !echoes_headers && !cors.allow_headers.is_empty() {
            preflight.push_str(&format!("Access-Control-Allow-Headers: {}\r\n", joined(&cors.allow_headers)));
        }
        preflight.push_str(&format!("Access-Control-Max-Age: {}\r\n", seconds_up(cors.max_age.get())));
        Self {
            is_for_all: !cors.allow_credentials && cors.allow_origins.contains(&OriginPattern::Any),
            origins: cors.allow_origins.to_vec(),
            echoes_headers,
            echoes_method,
            response: response.into_bytes().into(),
            preflight: preflight.into_bytes().into(),
            is_nginx: false,
        }
    }

    fn of_nginx(cors: &feature::Cors, nginx: &NginxCors) -> Self {
        let credentials = cors.allow_credentials.then_some("true");
        let age = nginx.max_age.to_string();
        let lines = [
            ("Credentials", "Allow", credentials),
            ("Methods", "Allow", Some(&*nginx.methods)),
            ("Headers", "Allow", Some(&*nginx.headers)),
            ("Headers", "Expose", nginx.exposed.as_deref()),
            ("Age", "Max", Some(&*age)),
        ];
        let lines = lines.into_iter().filter_map(|(what, verb, value)| Some((what, verb, value?)));
        let lines: String =
            lines.map(|(what, verb, value)| format!("Access-Control-{verb}-{what}: {value}\r\n")).collect();
        Self {
            is_for_all: cors.allow_origins.contains(&OriginPattern::Any),
            origins: cors.allow_origins.to_vec(),
            echoes_headers: false,
            echoes_method: false,
            response: lines.as_bytes().into(),
            // The lines are the same.
            preflight: Box::default(),
            is_nginx: true,
        }
    }

    /// Whether the policy has the form of ingress-nginx, whose responses come before all other checks.
    pub(crate) fn is_nginx(&self) -> bool {
        self.is_nginx
    }

    /// The result for a request; `None` if the next checks follow.
    pub(crate) fn arrive(&self, head: &RequestHead, buf: &[u8], edits: &mut Edits) -> Option<Arrival> {
        if self.kind(head, buf) != Kind::Preflight {
            self.write_response(head, buf, &mut edits.response_lines);
            return None;
        }
        if !self.allows(head, buf) {
            return Some(Arrival::Denied(Denial::Origin));
        }
        self.write_preflight(head, buf, &mut edits.response_lines);
        Some(Arrival::Preflight)
    }

    /// The kind of a request.
    pub(crate) fn kind(&self, head: &RequestHead, buf: &[u8]) -> Kind {
        if self.is_nginx {
            return match head.method {
                _ if !self.allows(head, buf) => Kind::Same,
                Method::Options => Kind::Preflight,
                _ => Kind::Actual,
            };
        }
        match head.header(buf, Known::Origin) {
            None => Kind::Same,
            Some(_) if head.method != Method::Options => Kind::Actual,
            Some(_) => match head.find(buf, "access-control-request-method") {
                Some(_) => Kind::Preflight,
                None => Kind::Actual,
            },
        }
    }

    /// Whether pages of the request's origin may read responses.
    pub(crate) fn allows(&self, head: &RequestHead, buf: &[u8]) -> bool {
        if self.is_nginx && self.is_for_all {
            return true;
        }
        let mut origins = head.lines.iter().filter(|line| line.known == Known::Origin);
        let (Some(origin), None) = (origins.next(), origins.next()) else { return false };
        let origin = origin.value.of(buf);
        self.is_for_all || self.origins.iter().any(|pattern| takes(pattern, origin, self.is_nginx))
    }

    /// Writes the header lines of the response to a preflight from an allowed origin.
    pub(crate) fn write_preflight(&self, head: &RequestHead, buf: &[u8], out: &mut Vec<u8>) {
        self.write_origin(head, buf, out);
        out.extend_from_slice(if self.is_nginx { &self.response } else { &self.preflight });
        if self.echoes_method
            && let Some(asked) = head.find(buf, "access-control-request-method")
        {
            out.extend_from_slice(b"Access-Control-Allow-Methods: ");
            out.extend_from_slice(asked);
            out.extend_from_slice(b"\r\nVary: Access-Control-Request-Method\r\n");
        }
        if self.echoes_headers
            && let Some(asked) = head.find(buf, "access-control-request-headers")
        {
            out.extend_from_slice(b"Access-Control-Allow-Headers: ");
            out.extend_from_slice(asked);
            out.extend_from_slice(b"\r\n");
        }
        if self.echoes_headers {
            out.extend_from_slice(b"Vary: Access-Control-Request-Headers\r\n");
        }
    }

    /// Writes the header lines of a response to a request that is or may be cross-origin.
    pub(crate) fn write_response(&self, head: &RequestHead, buf: &[u8], out: &mut Vec<u8>) {
        if self.kind(head, buf) != Kind::Same && self.allows(head, buf) {
            self.write_origin(head, buf, out);
            out.extend_from_slice(&self.response);
        } else if !self.is_for_all && !self.is_nginx {
            // A cache must not serve this response to an origin with other permissions.
            out.extend_from_slice(b"Vary: Origin\r\n");
        }
    }

    /// Removes the CORS headers of an endpoint: the policy decides. `own` are the header lines that policies add. The form of
    /// ingress-nginx only replaces the headers among these lines.
    pub(crate) fn silence(&self, head: &mut ResponseHead, buf: &[u8], own: &[u8]) {
        const PREFIX: &[u8] = b"access-control-";
        for line in &mut head.lines {
            let name = line.name.of(buf);
            let is_cors = name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
            line.hop_by_hop |= is_cors && (!self.is_nginx || has_line(own, name));
        }
    }

    fn write_origin(&self, head: &RequestHead, buf: &[u8], out: &mut Vec<u8>) {
        if self.is_for_all {
            out.extend_from_slice(b"Access-Control-Allow-Origin: *\r\n");
            return;
        }
        out.extend_from_slice(b"Access-Control-Allow-Origin: ");
        out.extend_from_slice(head.header(buf, Known::Origin).unwrap_or_default());
        out.extend_from_slice(if self.is_nginx { b"\r\n" } else { b"\r\nVary: Origin\r\n" });
    }
}

/// Whether a pattern matches an origin. `one_label`: a wildcard stands for one label.
fn takes(pattern: &OriginPattern, origin: &[u8], one_label: bool) -> bool {
    match pattern {
        // With credentials, browsers accept only the origin itself (Fetch standard, "CORS check").
        OriginPattern::Any => true,
        OriginPattern::Exact(exact) => origin.eq_ignore_ascii_case(exact.as_bytes()),
        OriginPattern::Below { scheme, suffix } => {
            let inner = origin.len().checked_sub(suffix.len()).and_then(|end| origin.get(scheme.len()..end));
            inner.is_some_and(|name| {
                origin[..scheme.len()].eq_ignore_ascii_case(scheme.as_bytes())
                    && origin[origin.len() - suffix.len()..].eq_ignore_ascii_case(suffix.as_bytes())
                    && !name.is_empty()
                    && name.iter().all(|byte| match byte {
                        b'.' => !one_label,
                        byte => byte.is_ascii_alphanumeric() || *byte == b'-',
                    })
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cors_origin_pattern_must_match_the_whole_origin() {
        let exact = OriginPattern::Exact("https://a.example.com".into());
        let below = OriginPattern::Below { scheme: "https://".into(), suffix: ".example.com".into() };
        for (origin, is_exact, is_below) in [
            ("https://a.example.com", true, true),
            ("https://A.Example.com", true, true),
            ("https://a.b.example.com", false, true),
            ("http://a.example.com", false, false),
            ("https://example.com", false, false),
            ("https://.example.com", false, false),
            ("https://a.example.com:8443", false, false),
            ("https://a.example.com.evil.com", false, false),
            ("https://evil.com/.example.com", false, false),
            ("https://evil.com#.example.com", false, false),
            ("https://user@x.example.com", false, false),
            ("null", false, false),
            ("", false, false),
        ] {
            assert_eq!(takes(&exact, origin.as_bytes(), false), is_exact, "{origin}");
            assert_eq!(takes(&below, origin.as_bytes(), false), is_below, "{origin}");
        }
        assert!(takes(&OriginPattern::Any, b"https://x", false));
    }
}
