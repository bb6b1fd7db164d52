//! A described request on its way through the gateway, as far as the decisions about it need the way: the counterpart of
//! [`Exchange`](crate::http) without a connection. The views and the edits are those of the request path, so the same compiled
//! policies decide. Nothing is counted, sent or remembered.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use sluicegate_http1::{HeadLimits, HeadScan, Known, RequestHead};
use sluicegate_model::{Config, ObjectId, Settings};

use super::data::{Explanation, Outcome, Step, Verdict};
use super::described::Described;
use super::routing::Place;
use crate::feature::edit::Edits;
use crate::feature::traffic::TrafficPolicy;
use crate::http::connection::{Origin, forwarding_lines};
use crate::http::encode::original_peer;
use crate::http::view::is_trusted;
use crate::request::{ClientView, HeadView, RequestView, WireVersion};
use crate::rule::{RouteIndex, Table, Target};
use crate::template::{Captured, TemplateView};
use crate::tls;
use crate::upstream::SharedUpstream;

/// The remedy for a verdict that needs the client IP.
pub(super) const ADD_FROM: &str = "add --from with the client IP";

/// The configuration that explains requests.
#[derive(Clone, Copy)]
pub(super) struct Served<'t> {
    pub(super) table: &'t Table,
    pub(super) config: &'t Config,
    /// The live upstreams, in a process with a data plane.
    pub(super) upstreams: &'t [Arc<SharedUpstream>],
    /// Whether an upstream without endpoints has none: a directory of manifests often names none.
    pub(super) knows_endpoints: bool,
}

/// The end of a request that no endpoint serves.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) outcome: Outcome,
    pub(super) status: Option<u16>,
    pub(super) reason: Option<&'static str>,
    pub(super) policy: Option<ObjectId>,
    pub(super) location: Option<String>,
    pub(super) because: String,
}

/// A described request in progress.
pub(super) struct Trial<'t> {
    pub(super) served: Served<'t>,
    pub(super) described: &'t Described,
    buf: &'t [u8],
    head: RequestHead,
    pub(super) origin: Origin,
    pub(super) trusted: bool,
    /// The path in normal form, or the path that a policy has rewritten.
    pub(super) path: Vec<u8>,
    /// Whether the client sent the path in another form.
    pub(super) is_rewritten: bool,
    /// Whether a policy has rewritten the path.
    pub(super) is_changed: bool,
    pub(super) query: Option<Vec<u8>>,
    pub(super) captured: Option<Box<Captured>>,
    pub(super) request_lines: Vec<u8>,
    pub(super) index: Option<RouteIndex>,
    /// The traffic policy whose settings apply.
    pub(super) traffic: Option<&'t TrafficPolicy>,
    pub(super) found: Explanation,
}

/// A point to which edits are undone.
pub(super) struct Mark {
    head: RequestHead,
    path: Vec<u8>,
    request_lines: Vec<u8>,
    is: (bool, bool),
}

impl<'t> Trial<'t> {
    pub(super) fn new(
        served: Served<'t>,
        described: &'t Described,
        place: &Place,
        head: &RequestHead,
        buf: &'t [u8],
    ) -> Self {
        let peer = described.from.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let shown = described.from.map_or_else(|| "(client IP)".to_owned(), |from| from.to_string());
        let port = place.address.port();
        let origin = Origin {
            alt_svc: None,
            peer,
            listener: place.address,
            local: place.address,
            entrance: place.entrance,
            session: None,
            is_tls: described.is_https,
            forwarding: forwarding_lines(shown, port, described.is_https).into(),
            identity: Box::default(),
            has_certificate: false,
            denied: None,
            ends: None,
        };
        Self {
            served,
            described,
            buf,
            head: head.clone(),
            origin,
            trusted: described.from.is_some_and(|from| is_trusted(&served.table.settings, from)),
            path: Vec::new(),
            is_rewritten: false,
            is_changed: false,
            query: None,
            captured: None,
            request_lines: Vec::new(),
            index: None,
            traffic: None,
            found: Explanation { listener: place.name.clone(), is_certain: true, ..Explanation::default() },
        }
    }

    pub(super) fn head(&self) -> HeadView<'_> {
        HeadView { head: &self.head, buf: self.buf }
    }

    /// The client IP. The error: unknown, or not sent by a trusted peer.
    pub(super) fn address(&self) -> Result<IpAddr, IpAddr> {
        let peer = self.origin.peer;
        match self.described.from {
            None => Err(peer),
            Some(_) if !self.trusted => Ok(peer),
            Some(_) => {
                let settings = &self.served.table.settings;
                original_peer(self.buf, &self.head, peer, |peer| is_trusted(settings, peer))
            }
        }
    }

    /// Whether the client IP is missing in the description.
    pub(super) fn lacks_address(&self) -> bool {
        self.described.from.is_none()
    }

    pub(super) fn view(&self) -> RequestView<'_> {
        let client = ClientView {
            peer: self.origin.peer,
            address: self.address(),
            is_tls: self.described.is_https,
            is_trusted: self.trusted,
            wire: WireVersion::Http1,
            has_certificate: self.origin.has_certificate,
        };
        RequestView { head: self.head(), client, path: &self.path }
    }

    pub(super) fn template_view(&self) -> TemplateView<'_> {
        TemplateView {
            request: self.view(),
            query: self.query(),
            rule: self.index.and_then(|index| self.served.table.rule(index)),
            port: self.origin.listener.port(),
            identity: &self.origin.identity,
            request_id: 0,
            underscores: self.served.table.settings.underscores_in_headers,
            captured: self.captured.as_deref(),
        }
    }

    pub(super) fn query(&self) -> Option<&[u8]> {
        match &self.query {
            Some(query) => Some(&**query).filter(|query| !query.is_empty()),
            None => self.head().query(),
        }
    }

    /// Applies the edits that a function of the request makes.
    pub(super) fn edit<T>(&mut self, make: impl FnOnce(&Self, &mut Edits) -> T) -> T {
        let mut edits = Edits::default();
        let made = make(self, &mut edits);
        for index in &edits.removed_lines {
            self.head.lines[*index].hop_by_hop = true;
        }
        self.request_lines.extend_from_slice(&edits.request_lines);
        if let Some(query) = edits.query.take() {
            self.query = Some(query);
        }
        made
    }

    /// Replaces the path for the endpoint.
    pub(super) fn set_path(&mut self, path: Vec<u8>) {
        self.path = path;
        self.is_rewritten = true;
        self.is_changed = true;
    }

    /// The parts that the edits of a backend change.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            head: self.head.clone(),
            path: self.path.clone(),
            request_lines: self.request_lines.clone(),
            is: (self.is_rewritten, self.is_changed),
        }
    }

    /// Undoes the edits since the mark.
    pub(super) fn restore(&mut self, mark: Mark) {
        let Mark { head, path, request_lines, is } = mark;
        (self.head, self.path, self.request_lines) = (head, path, request_lines);
        (self.is_rewritten, self.is_changed) = is;
    }

    /// The settings for the request.
    pub(super) fn settings(&self) -> &Settings {
        self.traffic.map_or(&*self.served.table.settings, |policy| &*policy.compiled.settings)
    }

    pub(super) fn target(&self) -> Option<&'t Target> {
        self.index.map(|index| self.served.table.target(index))
    }

    /// The check of the client's certificate in the TLS handshake and at the request.
    pub(super) fn identify_certificate(&mut self) -> Result<(), End> {
        if !self.described.is_https {
            return Ok(());
        }
        let authority =
            String::from_utf8_lossy(crate::name::host_name(self.head().authority())).to_lowercase();
        let of_listener = self.served.table.tls(self.origin.entrance).map(|tls| tls.client_auth(&authority));
        let fails = |because: String| End { outcome: Outcome::Rejected, because, ..End::default() };
        let auth = match of_listener {
            Some(Err(fault)) => return Err(fails(format!("The TLS handshake fails: {fault}."))),
            Some(Ok(Some(auth))) => Some(auth),
            // In a process without a data plane, the rule tells.
            Some(Ok(None)) | None => self.target().and_then(|target| target.client_auth.as_ref()),
        };
        let Some(auth) = auth else { return Ok(()) };
        let certificate = self.described.certificate.as_ref();
        if !tls::is_accepted(auth, certificate) {
            let because = match certificate {
                None => format!(
                    "The client needs a certificate that the CA certificates of {} trust.",
                    auth.source
                ),
                Some(_) => format!(
                    "The CA certificates of {} do not trust the client's certificate without intermediate certificates.",
                    auth.source
                ),
            };
            self.step(Step {
                verdict: Verdict::Denies,
                remedy: certificate.is_none().then(|| "add --client-certificate".to_owned()),
                from: Some(auth.source.to_string()),
                ..Step::of("client certificate", because.clone())
            });
            return Err(fails(format!("The TLS handshake fails. {because}")));
        }
        let tls::Identity { lines, is_verified, denied } =
            tls::identity(auth, certificate.map(std::slice::from_ref));
        let is_valid = denied.is_none();
        (self.origin.identity, self.origin.denied) = (lines.into(), denied);
        self.origin.has_certificate = is_verified;
        let effect = match (certificate, is_valid) {
            (None, true) => "the client needs no certificate",
            (None, false) => "the client has no certificate",
            (Some(_), true) => "the certificate is accepted",
            (Some(_), false) => "the certificate is not accepted",
        };
        self.step(Step { from: Some(auth.source.to_string()), ..Step::of("client certificate", effect) });
        Ok(())
    }

    pub(super) fn step(&mut self, step: Step) {
        self.found.is_certain &= step.verdict != Verdict::Unknown;
        self.found.steps.push(step);
    }

    /// A step that lets the request pass.
    pub(super) fn allows(&mut self, phase: &str, from: &ObjectId, effect: impl Into<String>) {
        self.step(Step { from: Some(from.to_string()), ..Step::of(phase, effect) });
    }

    pub(super) fn changes(&mut self, phase: &str, from: &ObjectId, effect: impl Into<String>) {
        let step = Step::of(phase, effect);
        self.step(Step { from: Some(from.to_string()), verdict: Verdict::Changes, ..step });
    }

    /// A step that may end the request with this response, which is not known here.
    pub(super) fn unknown(
        &mut self,
        phase: &str,
        from: &ObjectId,
        effect: impl Into<String>,
        response: Option<(u16, &str)>,
    ) {
        let step = Step::of(phase, effect);
        self.step(Step {
            from: Some(from.to_string()),
            verdict: Verdict::Unknown,
            status: response.map(|(status, _)| status),
            reason: response.map(|(_, reason)| reason.to_owned()).filter(|reason| !reason.is_empty()),
            ..step
        });
    }

    /// A step that needs the client IP.
    pub(super) fn needs_address(&mut self, phase: &str, from: &ObjectId, response: Option<(u16, &str)>) {
        self.unknown(phase, from, "depends on the client IP", response);
        if let Some(step) = self.found.steps.last_mut() {
            step.remedy = Some(ADD_FROM.to_owned());
        }
    }

    /// The end of a request at a step.
    pub(super) fn ends(&mut self, phase: &str, from: Option<&ObjectId>, verdict: Verdict, end: End) -> End {
        self.step(Step {
            verdict,
            from: from.map(ToString::to_string),
            status: end.status,
            reason: end.reason.map(str::to_owned),
            ..Step::of(phase, end.because.clone())
        });
        end
    }
}

impl Step {
    /// A step that lets the request pass.
    pub(super) fn of(phase: &str, effect: impl Into<String>) -> Self {
        Self { phase: phase.to_owned(), effect: effect.into(), ..Self::default() }
    }
}

impl End {
    /// A response of the gateway.
    pub(super) fn response(status: u16, reason: Option<&'static str>, because: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Responds,
            status: Some(status),
            reason,
            because: because.into(),
            ..Self::default()
        }
    }

    pub(super) fn rejected(rejection: sluicegate_http1::Rejection) -> Self {
        Self {
            outcome: Outcome::Rejected,
            ..Self::response(
                rejection.status(),
                Some(rejection.reason()),
                format!("The gateway rejects the request: {rejection}."),
            )
        }
    }

    pub(super) fn client(fault: crate::failure::ClientFault) -> Self {
        Self::response(fault.status(), Some(fault.reason()), format!("{}.", sentence(&fault.to_string())))
    }
}

/// A text with a capital letter at its beginning.
pub(super) fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The head of a described request; `Err` if the gateway rejects the head.
pub(super) fn parsed(buf: &[u8], settings: &Settings) -> Result<RequestHead, sluicegate_http1::Rejection> {
    let limits = HeadLimits { bytes: settings.limits.request_head, headers: settings.limits.headers };
    let mut head = RequestHead::default();
    match head.parse(buf, &mut HeadScan::default(), &limits)? {
        true => Ok(head),
        false => Err(sluicegate_http1::Rejection::HeadTooLarge),
    }
}

/// Whether a request is a call of gRPC.
pub(super) fn is_call(view: HeadView<'_>) -> bool {
    view.header(Known::ContentType).is_some_and(crate::feature::compression::is_grpc)
}
