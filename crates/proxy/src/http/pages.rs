//! Error pages: the response of a Service in place of a refusal, or in place of an endpoint's response.
//!
//! The request for a page has the client's method, query and headers, and no body. If the Service does not respond in time
//! with a page of at most [`PAGE_MAX`] bytes, the client receives the original response. A page is only the response to a
//! request that is already denied or failed. So a page never admits a request, whatever its status is.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use sluicegate_http1::{ChunkedDecoder, HeadLimits, Known, Method, ResponseFraming, ResponseHead};
use sluicegate_model::Settings;
use sluicegate_model::feature::ErrorPages;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

use super::chunks::{self, Coding};
use super::encode::{write_display, write_line};
use super::exchange::{Exchange, Persist};
use super::question::{Added, NOT_ASKED, is_about_request, write_forwarded};
use super::refuse::Refusal;
use crate::failure::{ClientFault, Fault};
use crate::feature::compression::is_grpc;
use crate::feature::edit::drop_lines;
use crate::name::is_same_name;
use crate::rule::Backends;
use crate::stream::Stream;
use crate::upstream::{AvoidedEndpoints, Connection, EndpointPreference, LocalUpstream};

/// The longest body of a page, in bytes.
const PAGE_MAX: usize = 256 * 1024;

/// The time limit for a page.
const PAGE_TIME: Duration = Duration::from_secs(10);

/// The limit of requests for pages in flight of one worker: above the limit, clients receive the original responses.
const PAGES_MAX: usize = 256;

/// The headers that describe the original response and its route, in lower case. A client cannot set them.
const OWN_HEADERS: [&[u8]; 7] = [
    b"x-code",
    b"x-format",
    b"x-original-uri",
    b"x-namespace",
    b"x-ingress-name",
    b"x-service-name",
    b"x-service-port",
];

thread_local! {
    static PAGES: Cell<usize> = const { Cell::new(0) };
}

/// A request for a page in flight, counted until the value is dropped.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let taken = PAGES.get();
        (taken < PAGES_MAX).then(|| {
            PAGES.set(taken + 1);
            Self
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        PAGES.set(PAGES.get() - 1);
    }
}

/// A page.
pub(super) struct Page {
    pub(super) status: u16,
    pub(super) media_type: Option<Box<[u8]>>,
    pub(super) body: Vec<u8>,
}

impl Exchange<'_> {
    /// The error pages of the route.
    fn error_pages(&self) -> Option<&ErrorPages> {
        self.traffic()?.source().features.error_pages.as_deref()
    }

    /// Whether responses with this status have an error page. `is_own`: the response is the gateway's own.
    fn has_page(&self, status: u16, is_own: bool) -> bool {
        let Some(pages) = self.error_pages() else { return false };
        // A gRPC client does not understand a page.
        let is_call = || self.head().header(Known::ContentType).is_some_and(is_grpc);
        (is_own || pages.replaces_endpoints)
            && pages.codes.iter().any(|code| code.get() == status)
            && !is_call()
    }

    /// Responds to a request that no endpoint served, with an error page if there is one.
    pub(super) async fn refuse_with_page(&mut self, refusal: Refusal) -> Persist {
        let is_gone = matches!(refusal, Refusal::Fault(Fault::Client(ClientFault::Closed)));
        let may_have_page = !self.committed && !is_gone && !matches!(refusal, Refusal::Page(_));
        if may_have_page
            && self.has_page(refusal.status(), true)
            && let Some(page) = Box::pin(self.page(refusal.status())).await
        {
            self.count_refusal(&refusal);
            return self.refuse(Refusal::Page(page)).await;
        }
        self.refuse(refusal).await
    }

    /// Whether an error page replaces the response whose head is in the `reply` buffer.
    pub(super) fn replaces_response(&self) -> bool {
        self.has_page(self.scratch.reply_head.status, false)
    }

    /// The page in place of the response whose head is in the `reply` buffer. Without a page the response stays as it is.
    pub(super) async fn replace_response(
        &mut self,
        upstream: &Rc<LocalUpstream>,
        connection: Connection,
    ) -> Result<Connection, Refusal> {
        let Some(page) = self.page(self.scratch.reply_head.status).await else { return Ok(connection) };
        let endpoint = connection.endpoint().clone();
        self.note_response(upstream, &endpoint);
        let head = &self.scratch.reply_head;
        let behind = (self.scratch.reply.len() - head.len) as u64;
        let is_over = match head.framing {
            ResponseFraming::None => behind == 0,
            ResponseFraming::Length(length) => behind == length,
            ResponseFraming::Chunked | ResponseFraming::UntilClose => false,
        };
        if is_over && head.keep_alive && self.upload.is_sent() {
            connection.recycle(&self.snapshot.settings, Instant::now(), head.keep_alive_timeout);
        }
        Err(Refusal::Page(page))
    }

    /// The slot of the upstream for a request: the Service of the error pages if the chosen upstream has no endpoint.
    pub(super) fn or_default_backend(&mut self, slot: usize) -> usize {
        let has_endpoint = |slot| self.worker.upstream(slot).is_some_and(|upstream| upstream.has_endpoint());
        if !self.error_pages().is_some_and(|pages| pages.serves_empty) || has_endpoint(slot) {
            return slot;
        }
        let Some(pages) = self.pages_slot().filter(|slot| has_endpoint(*slot)) else { return slot };
        self.edit(|exchange, edits| {
            let head = exchange.head();
            for (index, line) in head.head.lines.iter().enumerate() {
                if is_own(line.name.of(head.buf)) {
                    edits.remove(index);
                }
            }
            exchange.write_description(503, &mut edits.request_lines);
        });
        pages
    }

    fn pages_slot(&self) -> Option<usize> {
        self.snapshot.table.target(self.record.route?).course.as_ref()?.pages
    }

    /// The page of a status; `None` if the Service does not serve the page.
    async fn page(&mut self, status: u16) -> Option<Page> {
        let policy = self.traffic()?.clone();
        let shard = policy.stats.of(self.worker.id);
        let page = match (self.pages_slot().and_then(|slot| self.worker.upstream(slot)), Place::take()) {
            (Some(upstream), Some(_place)) => {
                let request = self.page_request(status);
                let method = self.scratch.head.method;
                let settings = policy.compiled.settings.clone();
                let limits =
                    HeadLimits { bytes: settings.limits.response_head, headers: settings.limits.headers };
                let fetching = async {
                    let (preference, now) = (EndpointPreference::default(), Instant::now());
                    let mut tried = AvoidedEndpoints::default();
                    // A Service without an endpoint delays no response.
                    let turn = upstream.pick(&tried, &preference, &settings.resilience, now)?;
                    if let Some(mut pooled) = upstream.pooled(&turn, true, now) {
                        upstream.count_attempt(pooled.endpoint());
                        if let Some(fetched) =
                            fetch(&mut pooled.socket.stream, &request, method, &limits).await
                        {
                            return Some(fetched.recycle(pooled, &settings));
                        }
                    }
                    let mut connection =
                        upstream.connect((&settings, &preference), &mut tried, Some(turn)).await.ok()?;
                    upstream.count_attempt(connection.endpoint());
                    let fetched = fetch(&mut connection.socket.stream, &request, method, &limits).await?;
                    Some(fetched.recycle(connection, &settings))
                };
                // The client may leave in the meantime.
                let fetched = self.awaited(timeout(PAGE_TIME, fetching), self.head_deadline).await;
                fetched.ok().flatten().and_then(Result::ok).flatten()
            }
            _ => None,
        };
        let Some(Fetched { mut head, text, body, .. }) = page else {
            shard.page_failures.add(1);
            return None;
        };
        shard.pages.add(1);
        policy.compiled.response.strip(&mut head.lines, &text);
        let mut media_type = None;
        for line in head.lines.iter().filter(|line| !line.hop_by_hop) {
            let (name, value) = (line.name.of(&text), line.value.of(&text));
            match line.known {
                Known::ContentType => media_type = Some(value.into()),
                Known::ContentLength | Known::Date => {}
                _ => write_line(&mut self.scratch.response_lines, name, value),
            }
        }
        Some(Page { status: head.status, media_type, body })
    }

    /// The request for the page of a status.
    fn page_request(&self, status: u16) -> Vec<u8> {
        let view = self.view();
        let mut request = Vec::with_capacity(1024);
        request.extend_from_slice(view.head.method_name());
        request.extend_from_slice(b" /");
        if let Some(query) = view.head.query() {
            request.push(b'?');
            request.extend_from_slice(query);
        }
        request.extend_from_slice(b" HTTP/1.1\r\n");
        match view.head.authority() {
            [] => write_display(&mut request, "Host", self.client.origin.local),
            authority => write_line(&mut request, b"Host", authority),
        }
        let added = Added {
            origin: &self.client.origin,
            underscores: self.snapshot.settings.underscores_in_headers,
            request_id: self.record.request_id,
            nginx: self.nginx_forwarding(),
        };
        let mut lines = Vec::with_capacity(1024);
        write_forwarded(&mut lines, &view, &added, |line, buf| {
            is_about_request(line, buf) && !is_own(line.name.of(buf))
        });
        for name in NOT_ASKED.iter().chain(&["X-Real-IP"]) {
            drop_lines(&mut lines, name.as_bytes());
        }
        request.extend_from_slice(&lines);
        self.write_description(status, &mut request);
        write_line(&mut request, b"X-Original-URI", view.head.target());
        if !matches!(view.head.head.method, Method::Get | Method::Head) {
            request.extend_from_slice(b"Content-Length: 0\r\n");
        }
        request.extend_from_slice(b"\r\n");
        request
    }

    /// Writes the header lines that describe a response and its route.
    fn write_description(&self, status: u16, out: &mut Vec<u8>) {
        write_display(out, "X-Code", status);
        let head = self.head();
        let accept = head.head.lines.iter().find(|line| is_same_name(line.name.of(head.buf), b"accept"));
        if let Some(accept) = accept {
            write_line(out, b"X-Format", accept.value.of(head.buf));
        }
        let Some(route) = self.record.route else { return };
        let target = self.snapshot.table.target(route);
        write_display(out, "X-Namespace", &target.id.namespace);
        write_display(out, "X-Ingress-Name", &target.id.name);
        let slot = match &target.backends {
            Backends::One(slot) => Some(*slot),
            Backends::Weighted(backends) => backends.iter().find_map(|backend| backend.slot),
        };
        if let Some(upstream) = slot.and_then(|slot| self.worker.upstream(slot)) {
            write_display(out, "X-Service-Name", &upstream.shared.key().service);
            let written = self.error_pages().and_then(|pages| pages.service_port.as_deref());
            write_display(out, "X-Service-Port", written.unwrap_or(&upstream.shared.key().port));
        }
    }
}

/// Whether a header describes the original response and its route.
fn is_own(name: &[u8]) -> bool {
    OWN_HEADERS.iter().any(|own| is_same_name(name, own))
}

/// The whole response of a Service.
struct Fetched {
    head: ResponseHead,
    /// The bytes of the head.
    text: Vec<u8>,
    body: Vec<u8>,
    /// Whether the connection has nothing behind the response.
    is_clean: bool,
}

impl Fetched {
    /// Returns the connection of the response to its pool, if the connection can carry another request.
    fn recycle(self, connection: Connection, settings: &Settings) -> Self {
        if self.is_clean && self.head.keep_alive {
            connection.recycle(settings, Instant::now(), self.head.keep_alive_timeout);
        }
        self
    }
}

/// Sends the request, and reads the response.
async fn fetch(stream: &mut Stream, request: &[u8], method: Method, limits: &HeadLimits) -> Option<Fetched> {
    stream.write_all(request).await.ok()?;
    stream.flush().await.ok()?;
    let (head, mut text) = stream.read_response(method, limits).await.ok()?;
    let mut coded = text.split_off(head.len);
    let (mut body, mut decoder) = (Vec::new(), ChunkedDecoder::default());
    loop {
        let is_over = match head.framing {
            ResponseFraming::None => true,
            ResponseFraming::Length(length) => {
                let length = usize::try_from(length).ok().filter(|length| *length <= PAGE_MAX)?;
                let taken = coded.len().min(length - body.len());
                body.extend(coded.drain(..taken));
                body.len() == length
            }
            ResponseFraming::Chunked => {
                let recoded = chunks::recode(&mut decoder, &coded, &mut body, &mut Coding::Plain).ok()?;
                coded.drain(..recoded.taken);
                decoder.is_done()
            }
            ResponseFraming::UntilClose => {
                body.append(&mut coded);
                false
            }
        };
        if is_over {
            let is_clean = coded.is_empty();
            return Some(Fetched { head, text, body, is_clean });
        }
        // The coding of chunks adds less than the length of the longest page.
        if body.len() > PAGE_MAX || coded.len() > PAGE_MAX {
            return None;
        }
        if stream.read_buf(&mut coded).await.ok()? == 0 {
            let is_whole = head.framing == ResponseFraming::UntilClose;
            return is_whole.then_some(Fetched { head, text, body, is_clean: false });
        }
    }
}
