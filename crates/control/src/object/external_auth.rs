//! The filter `ExternalAuth` of a rule or a listener, and the other filters of listeners.

use std::sync::Arc;

use sluicegate_model::UpstreamKey;
use sluicegate_model::feature::external_auth::{BODY_MAX, HEADERS_MAX};
use sluicegate_model::feature::{self, ExternalAuthProtocol};
use sluicegate_model::value::{Entries, HeaderName, RewritePath, syntax};

use super::route::BackendRef;
use super::{Kind, gateway_api};
use crate::problem::Findings;
use crate::status::Fault;

/// The consequence of an invalid filter of a rule.
pub(crate) const OF_RULE: &str = "requests receive 500";

/// The consequence of an invalid filter of a listener.
pub(crate) const OF_LISTENER: &str = "requests of the listener receive 503";

/// The longest list of filters of a listener (Gateway API).
const FILTERS_MAX: usize = 16;

/// A checked filter `ExternalAuth`.
#[derive(Debug, PartialEq)]
pub(crate) struct ExternalAuth {
    pub(crate) backend: BackendRef,
    protocol: ExternalAuthProtocol,
    request_headers: Entries<HeaderName, HEADERS_MAX>,
    body: u32,
}

/// An invalid field of a filter.
#[derive(Debug)]
pub(super) struct Invalid {
    pub(super) within: String,
    pub(super) fault: String,
    /// Whether the value is valid in Gateway API, but not supported.
    is_unsupported: bool,
}

/// The checked filters of a listener.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ListenerFilters {
    /// The filters `ExternalAuth`, each with its place in `filters.requests`.
    pub(crate) all: Vec<(usize, ExternalAuth)>,
    /// The reason why the listener is not accepted.
    pub(crate) fault: Option<Fault>,
    /// The first reference that leads to nothing.
    pub(crate) unresolved: Option<Fault>,
}

/// The field of a filter of a listener, as problems name it.
pub(crate) fn listener_filter_field(listener: usize, filter: usize) -> String {
    format!("spec.listeners[{listener}].filters.requests[{filter}]")
}

impl ExternalAuth {
    /// A filter in this field.
    pub(super) fn check(
        raw: gateway_api::ExternalAuth,
        field: &str,
        namespace: &Arc<str>,
        consequence: &str,
        findings: &mut Findings,
    ) -> Result<Self, Invalid> {
        let gateway_api::ExternalAuth { protocol, backend_ref, grpc, http, forward_body } = raw;
        let (protocol, request_headers) = match (protocol.as_deref(), grpc, http) {
            (Some("HTTP"), None, http) => {
                let http = http.unwrap_or_default();
                let headers = names(http.allowed_headers, "http.allowedHeaders", |_| None)?;
                let response_headers = names(
                    http.allowed_response_headers,
                    "http.allowedResponseHeaders",
                    syntax::framing_fault,
                )?;
                (ExternalAuthProtocol::Http { path: path(http.path.as_deref())?, response_headers }, headers)
            }
            (Some("GRPC"), grpc, None) => {
                let headers = grpc.unwrap_or_default().allowed_headers;
                (ExternalAuthProtocol::Grpc, names(headers, "grpc.allowedHeaders", |_| None)?)
            }
            (Some("HTTP"), Some(_), _) => return Err(Invalid::new("grpc", "needs protocol: GRPC")),
            (Some("GRPC"), _, Some(_)) => return Err(Invalid::new("http", "needs protocol: HTTP")),
            (None, ..) => return Err(Invalid::new("protocol", "is missing: write HTTP or GRPC")),
            (Some(other), ..) => {
                let fault = format!("{other:?} is not supported: write HTTP or GRPC");
                return Err(Invalid { is_unsupported: true, ..Invalid::new("protocol", fault) });
            }
        };
        let body = forward_body.and_then(|body| body.max_size).unwrap_or(0);
        let body = u32::try_from(body).ok().filter(|body| *body <= BODY_MAX).ok_or_else(|| {
            let fault = format!("{body} is not between 0 and {BODY_MAX}");
            Invalid { is_unsupported: body > 0, ..Invalid::new("forwardBody.maxSize", fault) }
        })?;
        let backend = backend_ref.ok_or_else(|| Invalid::new("backendRef", "is missing: name a Service"))?;
        let field = format!("{field}.externalAuth.backendRef");
        let backend =
            BackendRef::check_with(backend, &field, namespace, (consequence, &[Kind::Service]), findings);
        Ok(Self { backend, protocol, request_headers, body })
    }

    pub(crate) fn is_grpc(&self) -> bool {
        self.protocol == ExternalAuthProtocol::Grpc
    }

    /// The filter for the data plane.
    pub(crate) fn with(&self, upstream: UpstreamKey) -> feature::ExternalAuth {
        let Self { backend: _, protocol, request_headers, body } = self;
        feature::ExternalAuth {
            upstream,
            protocol: protocol.clone(),
            request_headers: request_headers.clone(),
            body: *body,
        }
    }
}

impl Invalid {
    fn new(within: &str, fault: impl Into<String>) -> Self {
        Self { within: format!("externalAuth.{within}"), fault: fault.into(), is_unsupported: false }
    }
}

/// The path in front of the paths of requests.
fn path(written: Option<&str>) -> Result<Option<RewritePath>, Invalid> {
    let Some(written) = written.filter(|path| !path.is_empty()) else { return Ok(None) };
    let path = if written.starts_with('/') { written.to_owned() } else { format!("/{written}") };
    RewritePath::new(&path).map(Some).map_err(|fault| Invalid::new("http.path", fault))
}

/// The names of headers, each without a fault.
fn names(
    written: Option<Vec<String>>,
    list: &str,
    fault: impl Fn(&str) -> Option<&'static str>,
) -> Result<Entries<HeaderName, HEADERS_MAX>, Invalid> {
    let written = written.unwrap_or_default();
    let length = written.len();
    let name = |(index, text): (usize, String)| {
        let at = format!("{list}[{index}]");
        let name = HeaderName::new(&text).map_err(|fault| Invalid::new(&at, fault))?;
        match fault(&name) {
            None => Ok(name),
            Some(fault) => Err(Invalid::new(&at, format!("{text:?} {fault}"))),
        }
    };
    let names = written.into_iter().enumerate().map(name).collect::<Result<Vec<_>, _>>()?;
    Entries::new(names).ok_or_else(|| {
        Invalid::new(list, format!("has {length} entries, but may have at most {HEADERS_MAX}"))
    })
}

impl ListenerFilters {
    /// The filters of a listener with this index.
    pub(super) fn check(
        raw: Vec<gateway_api::ListenerFilter>,
        listener: usize,
        namespace: &Arc<str>,
        findings: &mut Findings,
    ) -> Self {
        let mut filters = Self::default();
        if raw.len() > FILTERS_MAX {
            let field = format!("spec.listeners[{listener}].filters.requests");
            let fault = format!("has {} entries, but may have at most {FILTERS_MAX}", raw.len());
            filters.refuse(field, fault, false, findings);
        }
        for (index, filter) in raw.into_iter().enumerate() {
            let field = listener_filter_field(listener, index);
            match filter.kind.as_deref().unwrap_or_default() {
                "ExternalAuth" => {
                    let written = filter.external_auth.ok_or_else(|| Invalid {
                        within: "externalAuth".to_owned(),
                        fault: "is missing".to_owned(),
                        is_unsupported: false,
                    });
                    let checked = written.and_then(|written| {
                        ExternalAuth::check(written, &field, namespace, OF_LISTENER, findings)
                    });
                    match checked {
                        Ok(checked) => filters.all.push((index, checked)),
                        Err(Invalid { within, fault, is_unsupported }) => {
                            filters.refuse(format!("{field}.{within}"), fault, is_unsupported, findings);
                        }
                    }
                }
                "ExtensionRef" => {
                    let extension = filter.extension_ref;
                    let kind = extension.and_then(|extension| extension.kind).unwrap_or_default();
                    let fault = format!("no ExtensionRef is supported, and kind {kind:?} is unknown");
                    filters.unresolved.get_or_insert_with(|| {
                        Fault::new("InvalidListenerFilterRef", format!("{field}.extensionRef: {fault}"))
                    });
                    filters.refuse(format!("{field}.type"), fault, true, findings);
                }
                "" => filters.refuse(format!("{field}.type"), "is missing".to_owned(), false, findings),
                other => {
                    let fault = format!("{other:?} is not supported at a listener");
                    filters.refuse(format!("{field}.type"), fault, true, findings);
                }
            }
        }
        filters
    }

    fn refuse(&mut self, field: String, fault: String, is_unsupported: bool, findings: &mut Findings) {
        let reason = if is_unsupported { "UnsupportedValue" } else { "InvalidListenerFilter" };
        self.fault.get_or_insert_with(|| Fault::new(reason, format!("{field}: {fault}")));
        findings.error(field, format!("{fault}; {OF_LISTENER}"));
    }

    /// Whether the gateway denies all requests of the listener, because a filter is invalid in itself.
    pub(crate) fn is_closed(&self) -> bool {
        self.fault.is_some() || self.all.iter().any(|(_, filter)| filter.backend.service.is_none())
    }
}
