//! Validation of requests and responses by the contract of an API, and mock responses.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use sluicegate_http1::{Chunk, ChunkedDecoder, Known, Line, RequestFraming, ResponseFraming};
use sluicegate_model::feature::ValidationMode;
use sluicegate_model::rule::{ApiOperation, PathMatch};
use sluicegate_validation::{
    Operation, Place, Preferences, RequestHead, Violation, has_foreign_charset, problem,
};
use tokio::time::{Instant, timeout_at};

use super::exchange::Exchange;
use super::gather::{GatherError, Gathering, Room};
use super::refuse::Refusal;
use super::reply::reason as reason_phrase;
use super::upload::UploadError;
use crate::buffer::BUFFER;
use crate::counters::ApiShard;
use crate::deadline::after;
use crate::failure::{ClientFault, Failure, Fault};
use crate::feature::validation::Checks;
use crate::request::HeadView;
use crate::rule::RouteIndex;
use crate::upstream::{Connection, LocalUpstream};
use crate::worker::Snapshot;

/// The chunked coding adds at most this many bytes for each byte of data.
const CODING: usize = 8;

/// A problem document of the gateway (RFC 9457).
pub(super) struct Problem {
    pub(super) status: u16,
    /// The reason in the record of the request.
    pub(super) reason: &'static str,
    pub(super) body: String,
}

impl Problem {
    fn refusal(status: u16, reason: &'static str, detail: &str, violations: &[Violation]) -> Refusal {
        let body = problem(status, reason_phrase(status), detail, violations).to_string();
        Refusal::Problem(Box::new(Self { status, reason, body }))
    }
}

/// The validation of a response that is forwarded at once.
pub(super) struct Inspected {
    pub(super) limit: usize,
    content_type: Option<Vec<u8>>,
    status: u16,
}

impl Exchange<'_> {
    /// Checks a request by the description of its operation, and responds if the operation is mocked.
    pub(super) async fn check_request(&mut self, index: RouteIndex) -> Result<(), Refusal> {
        let snapshot = self.snapshot.clone();
        let target = snapshot.table.target(index);
        if let Some(api) = target.api.as_deref() {
            let head = &self.scratch.head;
            if let Some(detail) = foreign_media_type(api, head.framing, &self.headers("content-type")) {
                return Err(Problem::refusal(415, "media_type", &detail, &[]));
            }
        }
        let Some(checks) = target.checks.as_deref() else { return Ok(()) };
        let Some(operation) = &checks.operation else {
            return Err(Problem::refusal(
                503,
                "schema",
                "A schema of the operation cannot be compiled.",
                &[],
            ));
        };
        if checks.validation.request() != ValidationMode::Disabled {
            let violations = self.violations(checks, operation, snapshot.table.path(index)).await?;
            if !violations.is_empty() {
                self.record.invalid = Some("request");
                let shard = checks.stats.of(self.worker.id);
                if checks.validation.request() == ValidationMode::Enforce {
                    shard.requests_rejected.add(1);
                    let detail = "The request does not match the description of the operation.";
                    return Err(Problem::refusal(
                        checks.validation.status(),
                        "invalid_request",
                        detail,
                        &violations,
                    ));
                }
                shard.requests_reported.add(1);
            }
        }
        if checks.is_mocked {
            return Err(self.mocked(checks, operation));
        }
        if checks.validation.response() != ValidationMode::Disabled {
            self.ask_for_whole_response();
        }
        Ok(())
    }

    /// The violations of a request.
    async fn violations(
        &mut self,
        checks: &Checks,
        operation: &Operation,
        path: Option<&PathMatch>,
    ) -> Result<Vec<Violation>, Refusal> {
        if let Some(violations) = violations_of_head(operation, path, self.path(), self.head()) {
            return Ok(violations);
        }
        let content_type = self.head().header(Known::ContentType).map(<[u8]>::to_vec);
        let content_type = content_type.as_deref();
        let enforces = checks.validation.request() == ValidationMode::Enforce;
        if content_type.is_some_and(has_foreign_charset) {
            if enforces {
                checks.stats.of(self.worker.id).requests_rejected.add(1);
                let detail =
                    "The gateway validates bodies in UTF-8: send the body in UTF-8, without another charset.";
                return Err(Problem::refusal(415, "charset", detail, &[]));
            }
            let place = Place::Header("Content-Type".into());
            return Ok(vec![Violation { place, detail: "has another charset than UTF-8".to_owned() }]);
        }
        let has_schema = operation.has_request_schema(content_type);
        // An endpoint may read a body without a media type as JSON.
        let lacks_type = content_type.is_none() && operation.has_request_schema(Some(b"application/json"));
        if !has_schema && !operation.requires_body() && !lacks_type {
            return Ok(Vec::new());
        }
        let is_coded =
            self.headers("content-encoding").iter().any(|coding| !coding.eq_ignore_ascii_case(b"identity"));
        if has_schema && is_coded {
            if enforces {
                checks.stats.of(self.worker.id).requests_rejected.add(1);
                let detail = "The operation accepts no content coding: its body is validated.";
                return Err(Problem::refusal(415, "content_coding", detail, &[]));
            }
            checks.stats.of(self.worker.id).requests_skipped.add(1);
            return Ok(Vec::new());
        }
        let how = if enforces { Gathering::Whole } else { Gathering::IfShort };
        match self.gather_as(checks.validation.body_limit(), how).await {
            Ok(()) => {}
            Err(GatherError::Client(ClientFault::BodyTooLarge))
                if enforces && !self.upload.exceeds_limit() =>
            {
                checks.stats.of(self.worker.id).requests_rejected.add(1);
                let detail = format!("The body is longer than {} bytes.", checks.validation.body_limit());
                return Err(Problem::refusal(413, "body_too_large", &detail, &[]));
            }
            Err(GatherError::Client(fault)) => return Err(fault.into()),
            Err(GatherError::Late) => return Err(Failure::ResponseTimeout.into()),
            Err(GatherError::Denied(_)) => {
                let detail = "The gateway validates too many bodies at the moment.";
                return Err(Problem::refusal(503, "validation_busy", detail, &[]));
            }
        }
        let Some(body) = self.upload.gathered() else {
            checks.stats.of(self.worker.id).requests_skipped.add(1);
            return Ok(Vec::new());
        };
        if body.is_empty() {
            return Ok(operation.check_absent_body().into_iter().collect());
        }
        if lacks_type {
            let place = Place::Header("Content-Type".into());
            return Ok(vec![Violation { place, detail: "is required".to_owned() }]);
        }
        Ok(operation.check_request_body(content_type, body))
    }

    /// The values of a header.
    fn headers(&self, name: &str) -> Vec<&[u8]> {
        let head = self.head();
        values(&head.head.lines, head.buf, name)
    }

    fn mocked(&self, checks: &Checks, operation: &Operation) -> Refusal {
        let accept = self.headers("accept").join(&b", "[..]);
        let preferences = Preferences::of(self.headers("prefer"));
        match operation.mock(Some(&*accept), &preferences) {
            Ok(mock) => {
                checks.stats.of(self.worker.id).mocked.add(1);
                Refusal::Mocked(Box::new(mock))
            }
            Err(fault) => {
                let body = problem(fault.status(), fault.title(), &fault.to_string(), &[]).to_string();
                Refusal::Problem(Box::new(Problem { status: fault.status(), reason: "mock", body }))
            }
        }
    }

    /// A part of a content, or coded content, cannot be validated: the endpoint sends the whole content.
    fn ask_for_whole_response(&mut self) {
        self.edit(|exchange, edits| {
            let head = exchange.head();
            for (index, line) in head.head.lines.iter().enumerate() {
                let name = line.name.of(head.buf);
                if [&b"accept-encoding"[..], b"range"].iter().any(|other| name.eq_ignore_ascii_case(other)) {
                    edits.remove(index);
                }
            }
        });
    }

    /// Whether the response whose head is in the `reply` buffer is validated.
    pub(super) fn validates_response(&self) -> bool {
        self.record.route.and_then(|route| response_checks(&self.snapshot, route)).is_some()
            // A 304 has the headers of another response, and a 101 has no content.
            && !matches!(self.scratch.reply_head.status, 101 | 304)
    }

    /// Checks the response whose head is in the `reply` buffer. In Report, only the head is checked here, and a copy of the body
    /// after the client has received it.
    pub(super) async fn check_response(
        &mut self,
        upstream: &Rc<LocalUpstream>,
        mut connection: Connection,
    ) -> Result<Connection, Refusal> {
        let snapshot = self.snapshot.clone();
        let of_route = self.record.route.and_then(|route| response_checks(&snapshot, route));
        let Some((Checks { validation, stats, .. }, operation)) = of_route else { return Ok(connection) };
        let enforces = validation.response() == ValidationMode::Enforce;
        let (head, buf) = (&self.scratch.reply_head, self.scratch.reply.filled());
        let status = head.status;
        let content_type = head.header(buf, Known::ContentType).map(<[u8]>::to_vec);
        let has_body = !matches!(head.framing, ResponseFraming::None | ResponseFraming::Length(0));
        let header = |name: &str| values(&head.lines, buf, name);
        let mut violations = operation.check_response_head(status, &header, has_body);
        let has_schema = has_body && operation.has_response_schema(status, content_type.as_deref());
        let is_coded = head
            .header(buf, Known::ContentEncoding)
            .is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity"));
        let unreadable = match content_type.as_deref().is_some_and(has_foreign_charset) {
            _ if is_coded => Some("has a content coding"),
            true => Some("has another charset than UTF-8"),
            false => None,
        };
        let shard = |exchange: &Self| stats.of(exchange.worker.id);
        if violations.is_empty() && has_schema {
            let is_long = matches!(head.framing, ResponseFraming::Length(length) if length > validation.body_limit() as u64);
            match (enforces, unreadable) {
                (true, Some(fault)) => violations.push(unread(fault)),
                (true, None) if is_long => violations.push(unread("is too long to be validated")),
                (true, None) => match self.read_reply(&mut connection, validation.body_limit()).await {
                    Ok(Some((body, _room))) => {
                        violations = operation.check_response_body(status, content_type.as_deref(), &body);
                    }
                    Ok(None) => violations.push(unread("is too long to be validated")),
                    Err(fault) => {
                        if let Fault::Upstream(failure) = fault {
                            upstream.stats().failures[failure.index()].add(1);
                        }
                        return Err(fault.into());
                    }
                },
                (false, unreadable) if unreadable.is_some() || is_long => {
                    shard(self).responses_skipped.add(1);
                }
                (false, _) => {
                    self.inspects =
                        Some(Box::new(Inspected { limit: validation.body_limit(), content_type, status }));
                }
            }
        }
        if violations.is_empty() {
            return Ok(connection);
        }
        self.record.invalid = Some(if self.record.invalid.is_some() { "both" } else { "response" });
        if !enforces {
            shard(self).responses_reported.add(1);
            return Ok(connection);
        }
        shard(self).responses_rejected.add(1);
        self.note_response(upstream, &connection.endpoint().clone());
        let detail = "The response does not match the description of the operation.";
        Err(Problem::refusal(502, "invalid_response", detail, &violations))
    }

    /// Checks the copy of a body that the client has received. `None`: the body was too long, or incomplete.
    pub(super) fn check_copy(&mut self, inspected: &Inspected, body: Option<&[u8]>) {
        let snapshot = self.snapshot.clone();
        let of_route = self.record.route.and_then(|route| response_checks(&snapshot, route));
        let Some((checks, operation)) = of_route else { return };
        let shard: &ApiShard = checks.stats.of(self.worker.id);
        let Some(body) = body else { return shard.responses_skipped.add(1) };
        let Inspected { status, content_type, .. } = inspected;
        if !operation.check_response_body(*status, content_type.as_deref(), body).is_empty() {
            shard.responses_reported.add(1);
            self.record.invalid = Some(if self.record.invalid.is_some() { "both" } else { "response" });
        }
    }

    /// Reads the whole response into the `reply` buffer, while the upload continues. Returns the body, and the memory that the
    /// worker accounts for it; `None` if the body is longer than the limit, or if the worker has no memory left.
    async fn read_reply(
        &mut self,
        connection: &mut Connection,
        limit: usize,
    ) -> Result<Option<(Vec<u8>, Room)>, Fault> {
        let (mut copy, mut room) =
            (RawBody::new(self.scratch.reply_head.framing), Room::new(&self.worker.gathered));
        let (head_len, most) = (self.scratch.reply_head.len, limit.saturating_mul(CODING));
        let mut seen = head_len;
        let mut uploading = !self.upload.is_sent();
        let idle = self.settings().timeouts.upstream_idle;
        let ends = [self.response_deadline(), self.head_deadline];
        loop {
            let taken = copy.take(&self.scratch.reply.filled()[seen..]).ok_or(Failure::Truncated)?;
            seen += taken;
            // The buffer has the body too.
            if copy.body.len() > limit || seen > head_len + most || !room.grow_to(seen + copy.body.len()) {
                return Ok(None);
            }
            if copy.is_whole {
                return Ok(Some((copy.body, room)));
            }
            let pause = after(Instant::now(), idle);
            let due = ends.into_iter().flatten().min().map_or(pause, |end| end.min(pause));
            let stream = &mut connection.socket.stream;
            let step = poll_fn(|cx| {
                if uploading {
                    match self.poll_upload(cx, stream) {
                        Ok(super::upload::Progress::Sent) | Err(UploadError::Endpoint) => uploading = false,
                        Ok(_) => {}
                        Err(UploadError::Client(fault)) => return Poll::Ready(Err(Fault::Client(fault))),
                    }
                }
                if self.upload.is_complete() {
                    self.watch_client(cx)?;
                }
                let reply = &mut self.scratch.reply;
                reply.reserve(BUFFER / 2, usize::MAX);
                reply.poll_fill(cx, stream).map_err(|_| Fault::Upstream(Failure::Truncated))
            });
            match timeout_at(due, step).await {
                Ok(Ok(1..)) => {}
                Ok(Ok(0)) if self.scratch.reply_head.framing == ResponseFraming::UntilClose => {
                    copy.is_whole = true;
                }
                Ok(Ok(0)) => return Err(Failure::Truncated.into()),
                Ok(Err(fault)) => return Err(fault),
                Err(_) => return Err(Failure::BodyTimeout.into()),
            }
        }
    }
}

/// The media types that an operation accepts, in words, if the operation does not describe the media type of a body.
pub(crate) fn foreign_media_type(
    api: &ApiOperation,
    framing: RequestFraming,
    content_types: &[&[u8]],
) -> Option<String> {
    if api.media_types.is_empty() {
        return None;
    }
    let is_known = match content_types {
        [content_type] => sluicegate_validation::matches(content_type, &api.media_types),
        // Without a media type, a body without a length may be empty.
        [] => !matches!(framing, RequestFraming::Length(1..)),
        _ => false,
    };
    if is_known || matches!(framing, RequestFraming::None | RequestFraming::Length(0)) {
        return None;
    }
    Some(format!("The operation accepts {}.", api.media_types.join(", ")))
}

/// The violations of a request by its head; `None` if its body decides. `pattern` is the path condition of the route.
pub(crate) fn violations_of_head(
    operation: &Operation,
    pattern: Option<&PathMatch>,
    path: &[u8],
    HeadView { head, buf }: HeadView<'_>,
) -> Option<Vec<Violation>> {
    let variables = match pattern {
        Some(PathMatch::Template(template)) => template.values(path).unwrap_or_default(),
        _ => Vec::new(),
    };
    let header = |name: &str| values(&head.lines, buf, name);
    let query = HeadView { head, buf }.query().unwrap_or_default();
    let violations = operation.check_head(&RequestHead { path: &variables, query, header: &header });
    if !violations.is_empty() {
        return Some(violations);
    }
    let has_no_body = matches!(head.framing, RequestFraming::None | RequestFraming::Length(0));
    has_no_body.then(|| operation.check_absent_body().into_iter().collect())
}

/// The values of a header.
pub(crate) fn values<'b>(lines: &[Line], buf: &'b [u8], name: &str) -> Vec<&'b [u8]> {
    let lines = lines.iter().filter(|line| line.name.of(buf).eq_ignore_ascii_case(name.as_bytes()));
    lines.map(|line| line.value.of(buf)).collect()
}

/// The checks of the responses of a route, if they are validated.
fn response_checks(snapshot: &Snapshot, route: RouteIndex) -> Option<(&Checks, &Operation)> {
    let checks = snapshot.table.target(route).checks.as_deref()?;
    let operation = checks.operation.as_deref()?;
    (checks.validation.response() != ValidationMode::Disabled).then_some((checks, operation))
}

fn unread(detail: &str) -> Violation {
    Violation { place: Place::Body("".into()), detail: detail.to_owned() }
}

/// The body of a response, from the bytes as the endpoint sends them.
pub(super) struct RawBody {
    pub(super) body: Vec<u8>,
    left: Option<u64>,
    decoder: Option<ChunkedDecoder>,
    pub(super) is_whole: bool,
}

impl RawBody {
    pub(super) fn new(framing: ResponseFraming) -> Self {
        let (left, decoder) = match framing {
            ResponseFraming::None => (Some(0), None),
            ResponseFraming::Length(length) => (Some(length), None),
            ResponseFraming::Chunked => (None, Some(ChunkedDecoder::default())),
            ResponseFraming::UntilClose => (None, None),
        };
        Self { body: Vec::new(), is_whole: left == Some(0), left, decoder }
    }

    /// Takes bytes. Returns how many were used: the rest comes again, with more. `None` if the coding is invalid.
    pub(super) fn take(&mut self, raw: &[u8]) -> Option<usize> {
        if self.is_whole {
            return Some(0);
        }
        if let Some(left) = &mut self.left {
            let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(raw.len());
            self.body.extend_from_slice(&raw[..taken]);
            *left -= taken as u64;
            self.is_whole = *left == 0;
            return Some(taken);
        }
        let Some(decoder) = &mut self.decoder else {
            self.body.extend_from_slice(raw);
            return Some(raw.len());
        };
        let mut taken = 0;
        while !decoder.is_done() {
            let (used, chunk) = decoder.next(&raw[taken..]).ok()?;
            taken += used;
            match chunk {
                Chunk::Data(data) => self.body.extend_from_slice(data),
                Chunk::Trailers(_) | Chunk::End => {}
                Chunk::Partial => break,
            }
        }
        self.is_whole = decoder.is_done();
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_read_from_pieces_in_every_framing() {
        let chunked = b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nA: b\r\n\r\nrest";
        for (framing, raw, expected) in [
            (ResponseFraming::Length(5), &b"abcderest"[..], "abcde"),
            (ResponseFraming::Chunked, chunked, "abcde"),
            (ResponseFraming::None, b"rest", ""),
        ] {
            for step in 1..raw.len() {
                let (mut body, mut from, mut to) = (RawBody::new(framing), 0, 0);
                while !body.is_whole && to < raw.len() {
                    to = (to + step).min(raw.len());
                    from += body.take(&raw[from..to]).unwrap();
                }
                assert!(body.is_whole && body.body == expected.as_bytes(), "{framing:?} {step}");
            }
        }
        let mut body = RawBody::new(ResponseFraming::UntilClose);
        assert_eq!((body.take(b"abc"), body.is_whole), (Some(3), false));
        assert_eq!(RawBody::new(ResponseFraming::Chunked).take(b"x\r\n"), None);
    }
}
