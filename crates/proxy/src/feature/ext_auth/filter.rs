//! The filter `ExternalAuth` of Gateway API: the parts of a request that its Service receives, and the meaning of the
//! Service's response.

use sluicegate_http1::{Known, Line, ResponseHead};
use sluicegate_model::feature::{ExternalAuth, ExternalAuthProtocol};
use sluicegate_model::value::{HeaderName, syntax};

use super::answer::{Answer, Verdict};
use crate::feature::authentication::credential::is_line;
use crate::feature::edit::{drop_lines, has_line, write_line};
use crate::name::is_same_name;
use crate::request::HeadView;

/// A filter, compiled.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) protocol: Protocol,
    /// The value of `Host` of checks with gRPC.
    pub(crate) authority: Box<str>,
    /// The longest body in bytes that the Service receives. 0: no body.
    pub(crate) body: usize,
    request_headers: Vec<(Known, Box<str>)>,
}

#[derive(Debug)]
pub(crate) enum Protocol {
    Http {
        /// The path in front of the path of the request, without a slash at its end.
        path: Box<str>,
        /// The headers of responses that endpoints receive. Empty: all headers.
        response_headers: Vec<(Known, Box<str>)>,
    },
    Grpc,
}

/// The parts of a filter's response that go to the endpoint or to the client.
#[derive(Debug, Default)]
pub(crate) struct Detail {
    /// The changes of the request, in order.
    pub(super) edits: Vec<HeaderEdit>,
    /// Header lines for the client.
    pub(crate) response_lines: Vec<u8>,
    /// The body for a denied client.
    pub(crate) body: Vec<u8>,
    /// The type of the body.
    pub(crate) media_type: Option<Box<[u8]>>,
}

/// A change of a header of the request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeaderEdit {
    pub(super) name: Box<[u8]>,
    pub(super) value: Box<[u8]>,
    pub(super) action: HeaderAction,
}

/// The kinds of changes (`HeaderValueOption.HeaderAppendAction` of Envoy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderAction {
    /// Replaces all values of the header.
    Set,
    /// Adds a value.
    Append,
    /// Adds the header if the request has no such header.
    AddIfAbsent,
    /// Replaces the header if the request has the header.
    OverwriteIfPresent,
    /// Removes the header.
    Remove,
}

/// The result of edits for a request.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The header lines of the client that are removed, by index.
    pub(crate) removed: Vec<usize>,
    /// New header lines.
    pub(crate) added: Vec<u8>,
}

impl Filter {
    pub(super) fn new(source: &ExternalAuth) -> Self {
        let named = |names: &[HeaderName]| -> Vec<(Known, Box<str>)> {
            names.iter().map(|name| (Known::of(name.as_bytes()), name.as_str().into())).collect()
        };
        let protocol = match &source.protocol {
            ExternalAuthProtocol::Http { path, response_headers } => Protocol::Http {
                path: path.as_ref().map_or("", |path| path.trim_end_matches('/')).into(),
                response_headers: named(response_headers),
            },
            ExternalAuthProtocol::Grpc => Protocol::Grpc,
        };
        let upstream = &source.upstream;
        Self {
            protocol,
            authority: format!("{}.{}.svc", upstream.service, upstream.namespace).into(),
            body: usize::try_from(source.body).unwrap_or(usize::MAX),
            request_headers: named(&source.request_headers),
        }
    }

    /// Whether the Service receives this header line of the client.
    pub(crate) fn tells(&self, line: &Line, buf: &[u8]) -> bool {
        self.tells_all()
            || line.known == Known::Authorization && !self.is_grpc()
            || self.request_headers.iter().any(|(known, name)| is_line(line, *known, name, buf))
    }

    /// Whether the Service receives a header of this name.
    pub(crate) fn names(&self, name: &[u8]) -> bool {
        self.request_headers.iter().any(|(_, known)| known.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Whether the Service receives all headers.
    pub(crate) fn tells_all(&self) -> bool {
        self.is_grpc() && self.request_headers.is_empty()
    }

    pub(crate) fn is_grpc(&self) -> bool {
        matches!(self.protocol, Protocol::Grpc)
    }

    /// Whether the body of a response with this status is necessary.
    pub(super) fn reads_body(&self, status: u16) -> bool {
        self.is_grpc() || passes(status)
    }

    /// The meaning of an HTTP response. `body` is the body for a denied client, if it is not too long.
    pub(super) fn answer(&self, head: &ResponseHead, buf: &[u8], body: Option<Vec<u8>>) -> Answer {
        if head.status == 200 {
            return self.admission(head, buf);
        }
        let mut detail = Detail::default();
        if passes(head.status) {
            for line in head.lines.iter().filter(|line| !line.hop_by_hop) {
                let (name, value) = (line.name.of(buf), line.value.of(buf));
                match line.known {
                    Known::ContentType => detail.media_type = Some(value.into()),
                    _ if is_free(name) => write_line(&mut detail.response_lines, name, value),
                    _ => {}
                }
            }
            detail.body = body.unwrap_or_default();
        }
        Answer::of_filter(Verdict::Responded(if passes(head.status) { head.status } else { 403 }), detail)
    }

    fn admission(&self, head: &ResponseHead, buf: &[u8]) -> Answer {
        let Protocol::Http { response_headers, .. } = &self.protocol else {
            return Answer::of_filter(Verdict::Responded(403), Detail::default());
        };
        let mut detail = Detail::default();
        // Callers cannot set the headers that the Service sets.
        detail.edits.extend(response_headers.iter().map(|(_, name)| HeaderEdit::remove(name.as_bytes())));
        for line in head.lines.iter().filter(|line| !line.hop_by_hop) {
            let (name, value) = (line.name.of(buf), line.value.of(buf));
            if line.known == Known::SetCookie {
                write_line(&mut detail.response_lines, name, value);
            }
            // The body of the response is not forwarded, so headers about the body are not either.
            let is_for_endpoint = match response_headers.is_empty() {
                true => !folded(name).starts_with("content-"),
                false => response_headers.iter().any(|(known, named)| is_line(line, *known, named, buf)),
            };
            if is_for_endpoint && is_free(name) {
                let is_set = |edit: &HeaderEdit| {
                    edit.action != HeaderAction::Remove && edit.name.eq_ignore_ascii_case(name)
                };
                let action = match detail.edits.iter().any(is_set) {
                    true => HeaderAction::Append,
                    false => HeaderAction::Set,
                };
                detail.edits.push(HeaderEdit { name: name.into(), value: value.into(), action });
            }
        }
        Answer::of_filter(Verdict::Admitted, detail)
    }
}

impl HeaderEdit {
    pub(super) fn remove(name: &[u8]) -> Self {
        Self { name: name.into(), value: Box::default(), action: HeaderAction::Remove }
    }
}

impl Detail {
    /// The changes of a request. `earlier` has the header lines that policies and other filters have added.
    pub(crate) fn apply(&self, HeadView { head, buf }: HeadView<'_>, earlier: &mut Vec<u8>) -> Applied {
        let mut applied = Applied::default();
        for edit in &self.edits {
            let lines = head.lines.iter().enumerate();
            let named = lines.filter(|(_, line)| is_same_name(line.name.of(buf), &edit.name));
            let mut named: Vec<usize> = named.map(|(index, _)| index).collect();
            named.retain(|index| !applied.removed.contains(index));
            let exists = named.iter().any(|index| !head.lines[*index].hop_by_hop)
                || has_line(earlier, &edit.name)
                || has_line(&applied.added, &edit.name);
            let (removes, adds) = match edit.action {
                HeaderAction::Set => (true, true),
                HeaderAction::Append => (false, true),
                HeaderAction::AddIfAbsent => (false, !exists),
                HeaderAction::OverwriteIfPresent => (exists, exists),
                HeaderAction::Remove => (true, false),
            };
            if removes {
                applied.removed.append(&mut named);
                drop_lines(earlier, &edit.name);
                drop_lines(&mut applied.added, &edit.name);
            }
            if adds {
                write_line(&mut applied.added, &edit.name, &edit.value);
            }
        }
        applied
    }
}

/// Whether the client receives a denial with this status from the Service. In place of another status, the client receives
/// 403: a success or a failure of the Service is no response to the client's request.
fn passes(status: u16) -> bool {
    matches!(status, 300..=303 | 305..500)
}

/// A name as endpoints may read it: some of them treat `_` as `-`.
fn folded(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_ascii_lowercase().replace('_', "-")
}

/// Whether a response of the Service may set a header. The gateway itself sets the other headers.
pub(super) fn is_free(name: &[u8]) -> bool {
    syntax::framing_fault(&folded(name)).is_none()
}

#[cfg(test)]
mod tests {
    use sluicegate_http1::{HeadLimits, HeadScan, RequestHead};

    use super::*;

    fn edit(name: &str, value: &str, action: HeaderAction) -> HeaderEdit {
        HeaderEdit { name: name.as_bytes().into(), value: value.as_bytes().into(), action }
    }

    #[test]
    fn edits_of_an_authorization_response_replace_client_headers_and_earlier_lines() {
        let text = b"GET / HTTP/1.1\r\nHost: a\r\nX-User: forged\r\nX_User: forged\r\nX-A: 1\r\n\r\n";
        let mut head = RequestHead::default();
        assert!(head.parse(text, &mut HeadScan::default(), &HeadLimits::default()).unwrap());
        let mut earlier = b"x-user: policy\r\nx-b: 2\r\n".to_vec();
        let detail = Detail {
            edits: vec![
                edit("X-User", "alice", HeaderAction::Set),
                edit("X-User", "admin", HeaderAction::Append),
                edit("X-A", "3", HeaderAction::AddIfAbsent),
                edit("X-C", "4", HeaderAction::AddIfAbsent),
                edit("X-D", "5", HeaderAction::OverwriteIfPresent),
                edit("X-B", "6", HeaderAction::OverwriteIfPresent),
                HeaderEdit::remove(b"x-c"),
            ],
            ..Detail::default()
        };
        let applied = detail.apply(HeadView { head: &head, buf: text }, &mut earlier);
        assert_eq!(applied.removed, [1, 2]);
        assert_eq!(String::from_utf8_lossy(&applied.added), "X-User: alice\r\nX-User: admin\r\nX-B: 6\r\n");
        assert_eq!(earlier, b"");
    }
}
