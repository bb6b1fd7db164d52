//! The protocol `ext_authz` of Envoy over gRPC: `envoy.service.auth.v3.Authorization/Check`.

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use sluicegate_http1::{Known, ResponseHead, is_token};

use super::answer::{Answer, Verdict};
use super::filter::{Detail, HeaderAction, HeaderEdit, is_free};
use crate::feature::edit::write_line;
use crate::protobuf::{self, Malformed, bytes, checked_fields, integer};

/// The path of the call.
pub(crate) const PATH: &str = "/envoy.service.auth.v3.Authorization/Check";

/// The status of a denial without a status of its own.
const FORBIDDEN: u16 = 403;

/// The attributes of a request (`AttributeContext`).
pub(crate) struct Attributes<'r> {
    pub(crate) client: IpAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) time: SystemTime,
    pub(crate) id: &'r str,
    pub(crate) method: &'r [u8],
    /// Header lines. Several lines of a name count as one value.
    pub(crate) headers: &'r [u8],
    /// The path in normal form, with the query.
    pub(crate) path: &'r [u8],
    pub(crate) host: &'r [u8],
    pub(crate) scheme: &'r str,
    /// The length of the body; `None` if it is unknown.
    pub(crate) size: Option<u64>,
    pub(crate) protocol: &'r str,
    /// The body, if the Service receives it.
    pub(crate) body: &'r [u8],
}

/// Why a message is not a valid `CheckResponse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("the response has no gRPC message")]
    Missing,
    #[error("the gRPC message is compressed, incomplete or one of several")]
    Frame,
    #[error("the gRPC message is malformed")]
    Malformed,
    #[error("the gRPC message has neither a status nor an ok_response")]
    NoStatus,
    #[error("the gRPC message has an invalid header")]
    Header,
    #[error("the gRPC message changes query parameters, which is not supported")]
    Query,
}

impl From<Malformed> for MessageError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl Attributes<'_> {
    /// Writes the frame of a `CheckRequest`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let message = self.message();
        out.push(0);
        out.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(&message);
    }

    fn message(&self) -> Vec<u8> {
        let mut request = Vec::with_capacity(1024 + self.body.len());
        let since = self.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        bytes(
            &mut request,
            1,
            &message(|time| {
                integer(time, 1, since.as_secs());
                integer(time, 2, since.subsec_nanos().into());
            }),
        );
        bytes(&mut request, 2, &self.http());
        let attributes = message(|attributes| {
            bytes(attributes, 1, &peer(self.client, 0));
            bytes(attributes, 2, &peer(self.destination.ip(), self.destination.port()));
            bytes(attributes, 4, &request);
        });
        message(|check| bytes(check, 1, &attributes))
    }

    /// `AttributeContext.HttpRequest`.
    fn http(&self) -> Vec<u8> {
        let text = |out: &mut Vec<u8>, field, value: &[u8]| {
            bytes(out, field, protobuf::utf8(value).as_bytes());
        };
        message(|http| {
            text(http, 1, self.id.as_bytes());
            text(http, 2, self.method);
            for (name, value) in merged(self.headers) {
                bytes(
                    http,
                    3,
                    &message(|entry| {
                        text(entry, 1, &name);
                        text(entry, 2, &value);
                    }),
                );
            }
            text(http, 4, self.path);
            text(http, 5, self.host);
            text(http, 6, self.scheme.as_bytes());
            // An unknown length is -1.
            integer(http, 9, self.size.unwrap_or(u64::MAX));
            text(http, 10, self.protocol.as_bytes());
            if !self.body.is_empty() {
                // A string must be valid UTF-8.
                bytes(http, if str::from_utf8(self.body).is_ok() { 11 } else { 12 }, self.body);
            }
        })
    }
}

fn message(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// `AttributeContext.Peer` with a socket address.
fn peer(address: IpAddr, port: u16) -> Vec<u8> {
    let socket = message(|socket| {
        bytes(socket, 2, address.to_string().as_bytes());
        integer(socket, 3, port.into());
    });
    let address = message(|address| bytes(address, 1, &socket));
    message(|peer| bytes(peer, 1, &address))
}

/// Header lines as a map. The names are in lower case.
fn merged(lines: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut map: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for line in lines.split(|byte| *byte == b'\n') {
        // The name of a pseudo-header begins with a colon.
        let Some(colon) = line.iter().skip(1).position(|byte| *byte == b':') else { continue };
        let (name, value) = (line[..=colon].to_ascii_lowercase(), line[colon + 2..].trim_ascii());
        match map.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => {
                // RFC 9110, 5.3, and RFC 6265, 5.4.
                known.extend_from_slice(if name == b"cookie" { b"; " } else { b"," });
                known.extend_from_slice(value);
            }
            None => map.push((name, value.to_vec())),
        }
    }
    map
}

/// The `grpc-status` of a response, in its head or in its trailers.
pub(super) fn status(head: &ResponseHead, buf: &[u8], trailers: &[u8]) -> Option<u32> {
    let of_head = head.lines.iter().find(|line| line.name.of(buf).eq_ignore_ascii_case(b"grpc-status"));
    let of_head = of_head.map(|line| line.value.of(buf));
    let of_trailers = trailers.split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon].eq_ignore_ascii_case(b"grpc-status").then(|| line[colon + 1..].trim_ascii())
    });
    str::from_utf8(of_trailers.or(of_head)?).ok()?.parse().ok()
}

/// The meaning of the body of a response.
pub(super) fn answer(body: &[u8]) -> Result<Answer, MessageError> {
    let (frame, message) = body.split_first_chunk::<5>().ok_or(MessageError::Missing)?;
    let [compressed, length @ ..] = *frame;
    if compressed != 0 || u32::from_be_bytes(length) as usize != message.len() {
        return Err(MessageError::Frame);
    }
    let (mut code, mut denied, mut allowed) = (None, None, None);
    for field in checked_fields(message) {
        match field? {
            (1, Err(status)) => code = Some(number(status, 1)?),
            (2, Err(response)) => (denied, allowed) = (Some(response), None),
            (3, Err(response)) => (denied, allowed) = (None, Some(response)),
            // Dynamic metadata has no meaning here.
            _ => {}
        }
    }
    match (code, allowed) {
        (None, None) => Err(MessageError::NoStatus),
        (None | Some(0), response) => admission(response.unwrap_or_default()),
        (Some(_), _) => denial(denied.unwrap_or_default()),
    }
}

/// `OkHttpResponse`.
fn admission(response: &[u8]) -> Result<Answer, MessageError> {
    let (mut detail, mut removed) = (Detail::default(), Vec::new());
    for field in checked_fields(response) {
        match field? {
            (2, Err(option)) => {
                let header = Header::read(option)?;
                if let Some(name) = header.free_name()? {
                    let action = header.action.unwrap_or(HeaderAction::Set);
                    detail.edits.push(HeaderEdit { name: name.into(), value: header.value.into(), action });
                }
            }
            // A request without its Host, or with other framing, would be malformed.
            (5, Err(name)) if is_token(name) && is_free(name) => removed.push(HeaderEdit::remove(name)),
            (6, Err(option)) => Header::read(option)?.write(&mut detail.response_lines)?,
            (7 | 8, _) => return Err(MessageError::Query),
            _ => {}
        }
    }
    detail.edits.append(&mut removed);
    Ok(Answer::of_filter(Verdict::Admitted, detail))
}

/// `DeniedHttpResponse`.
fn denial(response: &[u8]) -> Result<Answer, MessageError> {
    let (mut detail, mut status) = (Detail::default(), FORBIDDEN);
    for field in checked_fields(response) {
        match field? {
            (1, Err(of_http)) => {
                let code = u16::try_from(number(of_http, 1)?).unwrap_or(FORBIDDEN);
                status = if (200..600).contains(&code) { code } else { FORBIDDEN };
            }
            (2, Err(option)) => {
                let header = Header::read(option)?;
                match Known::of(header.name) {
                    Known::ContentType => detail.media_type = Some(header.value.into()),
                    _ => header.write(&mut detail.response_lines)?,
                }
            }
            (3, Err(body)) => detail.body = body.to_vec(),
            _ => {}
        }
    }
    Ok(Answer::of_filter(Verdict::Responded(status), detail))
}

/// The last number of a field, or 0.
fn number(message: &[u8], wanted: u64) -> Result<u64, MessageError> {
    let mut found = 0;
    for field in checked_fields(message) {
        if let (field, Ok(value)) = field?
            && field == wanted
        {
            found = value;
        }
    }
    Ok(found)
}

/// `HeaderValueOption`.
struct Header<'m> {
    name: &'m [u8],
    value: &'m [u8],
    /// The action, if the message has one.
    action: Option<HeaderAction>,
}

impl<'m> Header<'m> {
    fn read(option: &'m [u8]) -> Result<Self, MessageError> {
        let mut header = Self { name: &[], value: &[], action: None };
        let mut append = None;
        for field in checked_fields(option) {
            match field? {
                (1, Err(pair)) => {
                    for field in checked_fields(pair) {
                        match field? {
                            (1, Err(name)) => header.name = name,
                            (2 | 3, Err(value)) => header.value = value.trim_ascii(),
                            _ => {}
                        }
                    }
                }
                (2, Err(flag)) => append = Some(number(flag, 1)? != 0),
                (3, Ok(action)) => {
                    header.action = match action {
                        1 => Some(HeaderAction::AddIfAbsent),
                        2 => Some(HeaderAction::Set),
                        3 => Some(HeaderAction::OverwriteIfPresent),
                        _ => None,
                    };
                }
                _ => {}
            }
        }
        header.action = match append {
            Some(true) => Some(HeaderAction::Append),
            Some(false) => Some(HeaderAction::Set),
            None => header.action,
        };
        Ok(header)
    }

    /// The name of a valid header; `None` if a response may not set the header.
    fn free_name(&self) -> Result<Option<&'m [u8]>, MessageError> {
        if self.name.starts_with(b":") {
            return Ok(None);
        }
        let is_text = self.value.iter().all(|byte| !byte.is_ascii_control() || *byte == b'\t');
        if !is_token(self.name) || !is_text {
            return Err(MessageError::Header);
        }
        Ok(Some(self.name).filter(|name| is_free(name)))
    }

    fn write(&self, lines: &mut Vec<u8>) -> Result<(), MessageError> {
        if let Some(name) = self.free_name()? {
            write_line(lines, name, self.value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        let mut body = vec![0];
        body.extend_from_slice(&(message.len() as u32).to_be_bytes());
        body.extend_from_slice(message);
        body
    }

    fn option(name: &str, value: &str) -> Vec<u8> {
        let pair = message(|pair| {
            bytes(pair, 1, name.as_bytes());
            bytes(pair, 2, value.as_bytes());
        });
        message(|option| bytes(option, 1, &pair))
    }

    fn coded(code: u64, field: u32, response: &[u8]) -> Vec<u8> {
        framed(&message(|check| {
            bytes(check, 1, &message(|status| integer(status, 1, code)));
            bytes(check, field, response);
        }))
    }

    #[test]
    fn check_response_without_a_status_is_invalid() {
        assert_eq!(answer(b"").unwrap_err(), MessageError::Missing);
        assert_eq!(answer(&framed(b"")).unwrap_err(), MessageError::NoStatus);
        assert_eq!(answer(&framed(&[0x12, 0])).unwrap_err(), MessageError::NoStatus);
        // An empty status is OK.
        assert_eq!(answer(&framed(&[0x0a, 0])).unwrap().verdict, Verdict::Admitted);
        assert_eq!(answer(&framed(&[0x1a, 0])).unwrap().verdict, Verdict::Admitted);
    }

    #[test]
    fn incomplete_or_compressed_check_response_is_invalid() {
        let whole = coded(0, 3, &message(|ok| bytes(ok, 2, &option("x-user", "alice"))));
        assert!(answer(&whole).is_ok());
        for length in 0..whole.len() {
            let mut cut = whole[..length].to_vec();
            if length >= 5 {
                cut[1..5].copy_from_slice(&((length - 5) as u32).to_be_bytes());
            }
            let admits = answer(&cut).is_ok_and(|answer| answer.verdict == Verdict::Admitted);
            // The status alone is complete.
            assert_eq!(admits, length == 9, "{length}");
        }
        let mut compressed = whole.clone();
        compressed[0] = 1;
        assert_eq!(answer(&compressed).unwrap_err(), MessageError::Frame);
        assert_eq!(answer(&[whole.clone(), whole].concat()).unwrap_err(), MessageError::Frame);
    }

    #[test]
    fn check_response_cannot_set_framing_headers_or_split_lines() {
        for name in
            ["Host", ":authority", ":path", "content-length", "transfer-encoding", "x-consumer-username"]
        {
            let response = coded(0, 3, &message(|ok| bytes(ok, 2, &option(name, "1"))));
            assert_eq!(answer(&response).unwrap().detail.unwrap().edits, [], "{name}");
        }
        for (name, value) in [("x y", "1"), ("", "1"), ("x", "1\r\ny: 2")] {
            let response = coded(0, 3, &message(|ok| bytes(ok, 2, &option(name, value))));
            assert_eq!(answer(&response).unwrap_err(), MessageError::Header, "{name:?}");
        }
        let query = coded(0, 3, &message(|ok| bytes(ok, 8, b"token")));
        assert_eq!(answer(&query).unwrap_err(), MessageError::Query);
    }

    #[test]
    fn denied_check_response_has_the_status_the_headers_and_the_body_of_the_service() {
        let response = message(|denied| {
            bytes(denied, 1, &message(|status| integer(status, 1, 302)));
            bytes(denied, 2, &option("location", "/login"));
            bytes(denied, 2, &option("content-type", "text/html"));
            bytes(denied, 3, b"<p>");
        });
        let denied = answer(&coded(16, 2, &response)).unwrap();
        assert_eq!(denied.verdict, Verdict::Responded(302));
        let detail = denied.detail.unwrap();
        assert_eq!(detail.response_lines, b"location: /login\r\n");
        assert_eq!((&*detail.body, detail.media_type.as_deref()), (&b"<p>"[..], Some(&b"text/html"[..])));
        let bare = framed(&message(|check| bytes(check, 1, &message(|status| integer(status, 1, 7)))));
        assert_eq!(answer(&bare).unwrap().verdict, Verdict::Responded(403));
    }

    #[test]
    fn several_lines_of_a_header_are_one_value_of_the_check_request() {
        let lines = b":path: /a\r\nX-A: 1\r\nCookie: a=b\r\nx-a: 2\r\ncookie: c=d\r\n";
        let found: Vec<_> = merged(lines)
            .into_iter()
            .map(|(name, value)| {
                format!("{}={}", String::from_utf8_lossy(&name), String::from_utf8_lossy(&value))
            })
            .collect();
        assert_eq!(found, [":path=/a", "x-a=1,2", "cookie=a=b; c=d"]);
    }
}
