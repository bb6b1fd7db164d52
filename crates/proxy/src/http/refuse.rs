//! Responses to requests that no endpoint serves.

use std::io::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use memchr::memmem;
use sluicegate_http1::{Known, Method, Rejection, Version};
use sluicegate_validation::Mock;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout};

use super::encode::write_line;
use super::exchange::{Exchange, Persist};
use super::pages::Page;
use super::problem;
use super::reply::{self, Content, Grpc, Reply};
use super::validate::Problem;
use crate::failure::{ClientFault, Denial, Failure, Fault};
use crate::feature::compression::is_grpc;
use crate::feature::ext_auth::Answer;
use crate::feature::returns::{Returned, ReturnedContent};
use crate::feature::traffic::TrafficPolicy;
use crate::record::request_id;

/// Why a request receives no response of an endpoint.
pub(super) enum Refusal {
    Fault(Fault),
    /// A policy denies the request.
    Denied(Denial),
    /// A limit denies the request with this status.
    Limited(Denial, u16),
    /// The Service of a filter denies the request with this response.
    Answered(Denial, Rc<Answer>),
    /// A filter has no valid answer of its Service.
    FailedClosed(Denial),
    /// A browser asks whether it may send a cross-origin request, and it may.
    Preflight,
    Rejected(Rejection),
    NoRoute,
    /// `OPTIONS *` is about the gateway itself.
    Options,
    /// A redirect with this status. The location is in the `request` buffer.
    Redirect(u16),
    /// A policy sets a fixed response.
    Fixed(Arc<TrafficPolicy>),
    /// A policy returns a response that depends on the request.
    Returned(Box<Returned>),
    /// A policy injects a failure with this status.
    Aborted(u16),
    /// The request, or the response of the endpoint, does not match the description of its operation.
    Problem(Box<Problem>),
    /// The response of a mocked operation.
    Mocked(Box<Mock>),
    /// An error page in place of a response.
    Page(Page),
    /// The client wants only a cached response, and none is cached (RFC 9111, 5.2.1.7).
    NotCached,
}

impl<F: Into<Fault>> From<F> for Refusal {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

impl Refusal {
    /// The status of the response.
    pub(super) fn status(&self) -> u16 {
        match self {
            Self::Fault(fault) => fault.status(),
            Self::Denied(denial) | Self::Answered(denial, _) => denial.status(),
            Self::Limited(_, status) => *status,
            Self::FailedClosed(_) => 403,
            Self::Preflight => 204,
            Self::Rejected(rejection) => rejection.status(),
            Self::NoRoute => 404,
            Self::Options => 200,
            Self::Redirect(status) | Self::Aborted(status) => *status,
            Self::Fixed(policy) => policy.direct_response().map_or(500, |fixed| fixed.status_code.get()),
            Self::Returned(returned) => returned.status,
            Self::NotCached => 504,
            Self::Page(page) => page.status,
            Self::Problem(problem) => problem.status,
            Self::Mocked(mock) => mock.status,
        }
    }

    /// The reason in the record of the request, if the request failed.
    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Fault(fault) => Some(fault.reason()),
            Self::Denied(denial)
            | Self::Limited(denial, _)
            | Self::Answered(denial, _)
            | Self::FailedClosed(denial) => Some(denial.reason()),
            Self::Rejected(rejection) => Some(rejection.reason()),
            Self::NoRoute => Some("no_route"),
            Self::Aborted(_) => Some("fault_injected"),
            Self::NotCached => Some("not_cached"),
            Self::Problem(problem) => Some(problem.reason),
            Self::Preflight
            | Self::Options
            | Self::Redirect(_)
            | Self::Fixed(_)
            | Self::Returned(_)
            | Self::Mocked(_)
            | Self::Page(_) => None,
        }
    }

    /// A text with advice for the user of a browser.
    fn advice(&self, status: u16) -> Option<String> {
        let Self::Denied(denial) = self else { return None };
        Some(format!("{status} {}: {}\n", reply::reason(status), denial.advice()?))
    }

    /// The fixed response of a policy, or the response of a Service.
    pub(super) fn content(&self) -> Option<Content<'_>> {
        match self {
            Self::Fixed(policy) => policy.direct_response().map(|fixed| Content {
                body: fixed.body.as_bytes(),
                media_type: fixed.content_type.as_deref().map(str::as_bytes),
            }),
            Self::Returned(returned) => match &returned.content {
                ReturnedContent::Body { text, media_type } => {
                    Some(Content { body: text, media_type: Some(media_type.as_bytes()) })
                }
                ReturnedContent::Status | ReturnedContent::Location(_) => None,
            },
            Self::Answered(_, answer) => answer
                .detail
                .as_ref()
                .map(|detail| Content { body: &detail.body, media_type: detail.media_type.as_deref() }),
            Self::Problem(problem) => {
                Some(Content { body: problem.body.as_bytes(), media_type: Some(problem::MEDIA_TYPE) })
            }
            Self::Mocked(mock) => mock
                .media_type
                .as_ref()
                .map(|media_type| Content { body: &mock.body, media_type: Some(media_type.as_bytes()) }),
            Self::Page(page) => Some(Content { body: &page.body, media_type: page.media_type.as_deref() }),
            _ => None,
        }
    }
}

/// A body of the gateway in place of a line of text with the status.
struct OwnBody {
    bytes: Vec<u8>,
    media_type: &'static [u8],
}

impl OwnBody {
    fn content(&self) -> Content<'_> {
        Content { body: &self.bytes, media_type: Some(self.media_type) }
    }
}

impl Exchange<'_> {
    /// The body of a refusal without a body of its own: a problem document on routes of APIs, advice
    /// about a login, or a body in the form of Kong.
    fn own_body(&self, refusal: &Refusal, status: u16) -> Option<OwnBody> {
        if status < 400 || refusal.content().is_some() {
            return None;
        }
        if let Some(bytes) = self.problem(refusal, status) {
            return Some(OwnBody { bytes, media_type: problem::MEDIA_TYPE });
        }
        if let Some(text) = refusal.advice(status) {
            return Some(OwnBody { bytes: text.into_bytes(), media_type: b"text/plain" });
        }
        let (bytes, media_type) =
            self.snapshot.settings.kong_compatibility.then(|| self.kong_body(refusal, status))?;
        Some(OwnBody { bytes, media_type })
    }

    /// Responds to a request that no endpoint served.
    pub(super) async fn refuse(&mut self, refusal: Refusal) -> Persist {
        // No other request must wait for a response that will not come.
        self.cached = None;
        self.count_refusal(&refusal);
        if matches!(refusal, Refusal::Fault(Fault::Client(ClientFault::Closed))) {
            return Persist::Close;
        }
        let status = refusal.status();
        if self.committed {
            return Persist::Close;
        }
        let own = self.own_body(&refusal, status);
        self.record.status = status;
        if self.snapshot.settings.kong_compatibility {
            self.add_kong_headers();
        } else if self.record.reason.is_some() {
            self.add_request_id();
        }
        self.add_transport_lines();
        self.add_success_lines(status);
        if self.steered.is_some() {
            self.scratch.reply_head.lines.clear();
            self.add_template_headers(status);
        }
        let head = &self.scratch.head;
        let keep_alive = head.keep_alive
            && head.version == Version::Http11
            && self.upload.is_complete()
            && self.client.may_continue(self.worker, &self.snapshot.settings);
        let (response, date) = (&mut self.scratch.response, self.worker.date());
        let interim = response.len();
        if self.client.has_streams() {
            let is_late = self.head_deadline.is_some_and(|head_deadline| Instant::now() >= head_deadline);
            let media_type = head.header(self.scratch.input.filled(), Known::ContentType);
            let has_backend = !matches!(refusal, Refusal::Fault(Fault::Upstream(Failure::InvalidBackend)));
            let grpc = media_type.is_some_and(is_grpc).then_some(Grpc { is_late, has_backend });
            let location = matches!(refusal, Refusal::Redirect(_)).then_some(&*self.scratch.request);
            // A gRPC client does not understand the body of a Service.
            let is_call = grpc.is_some() && matches!(refusal, Refusal::Answered(..));
            let own = own.as_ref().map(OwnBody::content).filter(|_| grpc.is_none());
            let content = refusal.content().or(own).filter(|_| !is_call);
            let grpc = grpc.filter(|_| content.is_none());
            let has_body = (status >= 400 || content.is_some() || is_call) && head.method != Method::Head;
            let lines = &self.scratch.response_lines;
            let sent =
                Reply { status, has_body, content, location, grpc, lines }.send(&mut self.client.wire, &date);
            self.record.complete = sent.is_ok();
            self.record.bytes = sent.unwrap_or(0) as u64;
            return Persist::Close;
        }
        match refusal {
            Refusal::Options => reply::write_options(response, &date, !keep_alive),
            Refusal::Redirect(_) => {
                let (location, lines) = (&self.scratch.request, &self.scratch.response_lines);
                reply::write_redirect(response, (status, location), &date, lines, !keep_alive);
            }
            _ => {
                let (lines, with_body) = (&self.scratch.response_lines, head.method != Method::Head);
                let content = refusal.content().or(own.as_ref().map(OwnBody::content));
                reply::write(response, (status, content), &date, lines, !keep_alive, with_body);
            }
        }
        let rest = &self.scratch.response[self.interim_written..];
        let write = self.client.wire.write_all(rest);
        if !matches!(timeout(self.snapshot.settings.timeouts.client_write, write).await, Ok(Ok(()))) {
            return Persist::Close;
        }
        self.record.bytes = self.scratch.response.len() as u64;
        let head = memmem::find(&self.scratch.response[interim..], b"\r\n\r\n");
        self.record.head_bytes = head.map_or(0, |end| end + 4) as u64;
        self.record.complete = true;
        if keep_alive { Persist::KeepAlive } else { Persist::Linger }
    }

    /// Adds the ID of the request, by which `sluicegate explain --request-id` finds it. A header of a policy has precedence.
    fn add_request_id(&mut self) {
        let id = request_id(self.head(), self.trusted, self.record.request_id).into_owned();
        let lines = &mut self.scratch.response_lines;
        let has_own =
            |line: &[u8]| line.get(..13).is_some_and(|start| start.eq_ignore_ascii_case(b"x-request-id:"));
        if !lines.split(|byte| *byte == b'\n').any(has_own) {
            write_line(lines, b"X-Request-ID", &id);
        }
    }

    /// Adds the headers about HTTPS and HTTP/3 that every response over TLS has (RFC 6797, section 7.1; RFC 7838).
    fn add_transport_lines(&mut self) {
        let (hsts, lines) = (self.hsts(), &mut self.scratch.response_lines);
        if let Some(hsts) = hsts {
            // Writing to a Vec does not fail.
            let _ = write!(lines, "Strict-Transport-Security: {hsts}\r\n");
        }
        if let Some(alt_svc) = &self.client.origin.alt_svc {
            write_line(lines, b"Alt-Svc", alt_svc);
        }
    }

    pub(super) fn count_refusal(&mut self, refusal: &Refusal) {
        self.record.reason = refusal.reason().or(self.record.reason);
        match refusal {
            Refusal::Fault(fault) => self.count(*fault),
            Refusal::Rejected(rejection) => self.worker.stats().rejections[rejection.index()].add(1),
            Refusal::NoRoute => self.worker.stats().unrouted.add(1),
            Refusal::Denied(_)
            | Refusal::Limited(..)
            | Refusal::Answered(..)
            | Refusal::FailedClosed(_)
            | Refusal::Preflight
            | Refusal::Options
            | Refusal::Redirect(_)
            | Refusal::Fixed(_)
            | Refusal::Returned(_)
            | Refusal::Aborted(_)
            | Refusal::Problem(_)
            | Refusal::Mocked(_)
            | Refusal::Page(_)
            | Refusal::NotCached => {}
        }
    }

    pub(super) fn count(&mut self, fault: Fault) {
        self.record.reason = Some(fault.reason());
        if let Fault::Encoder(_) = fault {
            self.worker.stats().compressions_failed.add(1);
        }
        if let Fault::Client(fault) = fault {
            self.client.gone |= fault == ClientFault::Closed;
            self.worker.stats().client_faults[fault.index()].add(1);
        }
    }
}
