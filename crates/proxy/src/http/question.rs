//! The question to an authorization service about a request, and the sign-in page of its client.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use sluicegate_http1::{Known, Line};
use sluicegate_model::policy::{Credential, SignIn};

use super::encode::{
    copy_lines, has, is_forwarding, may_forward_header, write_display, write_line, write_trusted_forwarding,
};
use super::exchange::Exchange;
use crate::failure::{Denial, Failure, Fault};
use crate::feature::SecurityPolicy;
use crate::feature::authentication::credential::{Ambiguous, is_line};
use crate::feature::ext_auth::{Answer, External, Part, Question, Told};

impl Exchange<'_> {
    /// The answer of the service, if the client waits that long and the request's deadline is not over.
    pub(super) async fn ask(
        &mut self,
        policy: &SecurityPolicy,
        external: &Arc<External>,
    ) -> Result<Result<Rc<Answer>, Denial>, Fault> {
        let Ok(question) = self.question(external) else { return Ok(Err(Denial::AmbiguousCredentials)) };
        let service = self.worker.externals.of(external, &policy.stats, self.worker.id);
        let asking = service.ask(external.clone(), question);
        Ok(self.awaited(asking, self.head_deadline).await?.ok_or(Failure::ResponseTimeout)?)
    }

    fn question(&self, external: &External) -> Result<Question, Ambiguous> {
        let mut bytes = Vec::with_capacity(1024);
        bytes.extend_from_slice(&external.opening);
        let is_whole = match &external.told {
            Told::Key(parts) => self.write_parts(&mut bytes, parts)?,
            Told::Named(names) => {
                self.write_request_of(&mut bytes, |line, buf| {
                    names.iter().any(|(known, name)| is_line(line, *known, name, buf))
                });
                false
            }
            Told::All => {
                self.write_request_of(&mut bytes, is_about_request);
                false
            }
        };
        if external.says_length() {
            bytes.extend_from_slice(b"Content-Length: 0\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        Ok(Question { bytes, is_whole })
    }

    /// Writes the request for the endpoint, without its body, as ingress-nginx describes it.
    fn write_request_of(&self, out: &mut Vec<u8>, is_told: impl Fn(&Line, &[u8]) -> bool) {
        let (buf, head) = (self.scratch.input.filled(), &self.scratch.head);
        let origin = &self.client.origin;
        copy_lines(out, buf, &head.lines, |line| {
            let is_told = match line.known {
                // The question has its own value, or the header describes a part that the service does not receive.
                Known::Host
                | Known::Expect
                | Known::XForwardedFor
                | Known::ContentLength
                | Known::Trailer => false,
                known if is_forwarding(known) => self.trusted,
                Known::Other => {
                    let name = line.name.of(buf);
                    let underscores = self.snapshot.settings.underscores_in_headers;
                    may_forward_header(name, self.trusted, underscores) && !is_own(name) && is_told(line, buf)
                }
                _ => is_told(line, buf),
            };
            is_told && !line.hop_by_hop
        });
        match self.trusted {
            true => write_trusted_forwarding(out, buf, head, origin, self.client_address()),
            false => out.extend_from_slice(&origin.forwarding),
        }
        out.extend_from_slice(&origin.identity);
        if !(self.trusted && has(&head.lines, Known::XForwardedHost)) {
            write_line(out, b"X-Forwarded-Host", self.authority().unwrap_or_default());
        }
        if !(self.trusted && has(&head.lines, Known::XRequestId)) {
            write_display(out, "X-Request-ID", format_args!("{:032x}", self.record.request_id));
        }
        write_line(out, b"X-Original-Method", head.method_name.of(buf));
        let mut target = Vec::new();
        self.write_target(&mut target);
        out.extend_from_slice(b"X-Original-URL: ");
        self.write_origin(out);
        out.extend_from_slice(&target);
        out.extend_from_slice(b"\r\n");
        write_line(out, b"X-Auth-Request-Redirect", &target);
    }

    /// Writes only the parts of the key. Returns whether all of them are present.
    fn write_parts(&self, out: &mut Vec<u8>, parts: &[Part]) -> Result<bool, Ambiguous> {
        let (buf, head) = (self.scratch.input.filled(), &self.scratch.head);
        let (mut cookies, mut origin, mut path, mut query) = (Vec::new(), Vec::new(), &b""[..], Vec::new());
        let mut is_whole = true;
        for part in parts {
            match part {
                Part::Value(place) => match (place.find(head, buf)?, place.source()) {
                    (None, _) => is_whole = false,
                    (Some(value), Credential::Header { name, .. }) => {
                        write_line(out, name.as_bytes(), &value);
                    }
                    (Some(value), Credential::Cookie(name)) => {
                        cookies.extend_from_slice(if cookies.is_empty() { b"" } else { b"; " });
                        cookies.extend_from_slice(name.as_bytes());
                        cookies.push(b'=');
                        cookies.extend_from_slice(&value);
                    }
                    (Some(value), Credential::Query(name)) => {
                        query.push(if query.is_empty() { b'?' } else { b'&' });
                        escape(&mut query, name.as_bytes());
                        query.push(b'=');
                        escape(&mut query, &value);
                    }
                },
                Part::Method => write_line(out, b"X-Original-Method", head.method_name.of(buf)),
                Part::Host => {
                    is_whole &= head.authority.is_some();
                    self.write_origin(&mut origin);
                    write_line(out, b"X-Forwarded-Proto", self.scheme());
                    write_line(out, b"X-Forwarded-Host", self.authority().unwrap_or_default());
                }
                Part::Path => path = self.path(),
                Part::Address => {
                    let address: IpAddr = self.client_address();
                    write_display(out, "X-Forwarded-For", address);
                    write_display(out, "X-Real-IP", address);
                }
            }
        }
        if !cookies.is_empty() {
            write_line(out, b"Cookie", &cookies);
        }
        if !(origin.is_empty() && path.is_empty() && query.is_empty()) {
            let path = if path.is_empty() { b"/" } else { path };
            write_line(out, b"X-Original-URL", &[&origin, path, &query].concat());
        }
        Ok(is_whole)
    }

    /// Writes the Location header line of the sign-in page, with the URL to return to.
    pub(super) fn write_sign_in(&mut self, SignIn { url, parameter }: &SignIn) {
        let mut wanted = Vec::new();
        // A sign-in page on the same host needs only the path.
        if !url.starts_with('/') {
            self.write_origin(&mut wanted);
        }
        self.write_target(&mut wanted);
        let out = &mut self.scratch.response_lines;
        out.extend_from_slice(b"Location: ");
        out.extend_from_slice(url.as_bytes());
        out.push(if url.contains('?') { b'&' } else { b'?' });
        escape(out, parameter.as_bytes());
        out.push(b'=');
        escape(out, &wanted);
        out.extend_from_slice(b"\r\n");
    }

    /// Writes the path in normal form, as the endpoint receives it, and the query.
    fn write_target(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.path());
        if let Some(query) = self.scratch.head.query {
            out.push(b'?');
            out.extend_from_slice(query.of(self.scratch.input.filled()));
        }
    }

    fn write_origin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.scheme());
        out.extend_from_slice(b"://");
        out.extend_from_slice(self.authority().unwrap_or_default());
    }

    fn scheme(&self) -> &'static [u8] {
        if self.client_view().is_https(self.head()) { b"https" } else { b"http" }
    }

    /// The host, if the client names one.
    fn authority(&self) -> Option<&[u8]> {
        Some(self.scratch.head.authority?.of(self.scratch.input.filled()))
    }
}

/// Whether a header describes the request itself, and neither its body nor responses that the client has stored.
fn is_about_request(line: &Line, buf: &[u8]) -> bool {
    let name = line.name.of(buf);
    let begins = |with: &[u8]| name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    !(begins(b"content-") || begins(b"if-") || name.eq_ignore_ascii_case(b"range"))
}

/// Whether only the gateway sets this header, for the service or for endpoints.
fn is_own(name: &[u8]) -> bool {
    let begins = |with: &[u8]| name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    begins(b"x-original-") || begins(b"x-consumer-") || name.eq_ignore_ascii_case(b"x-auth-request-redirect")
}

/// Escapes text for a query (RFC 3986, 2.3).
fn escape(out: &mut Vec<u8>, text: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(*byte),
            _ => {
                out.extend_from_slice(&[
                    b'%',
                    DIGITS[usize::from(byte >> 4)],
                    DIGITS[usize::from(byte & 15)],
                ]);
            }
        }
    }
}
