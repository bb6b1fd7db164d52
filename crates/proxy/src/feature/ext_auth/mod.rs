//! External authorization: services that decide about requests, for SecurityPolicies (nginx: `auth_request`) and for the
//! filter `ExternalAuth` of Gateway API.
//!
//! `http/question.rs` writes the questions. Each worker asks on its own connections: workers take no lock and share only
//! the compiled policy. The gateway uses only named parts of an answer. An invalid answer denies the request.
//!
//! A worker remembers an answer by the exact bytes of the question. So two requests share an answer only if the service
//! cannot distinguish them. While a question is in flight, requests with the same question wait for its answer.
//!
//! | module | purpose |
//! |---|---|
//! | `local` | a worker's side: limits, shared questions, counters and logs |
//! | `connection` | the HTTP exchange with a service |
//! | `addresses` | the addresses of a service |
//! | `answer` | the meaning of a response |
//! | `filter` | the filter `ExternalAuth` of Gateway API |
//! | `grpc` | Envoy's protocol `ext_authz` |

mod addresses;
mod answer;
mod connection;
pub(crate) mod filter;
pub(crate) mod grpc;
mod local;

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use sluicegate_http1::{Known, Method};
use sluicegate_model::feature::ExternalAuth;
use sluicegate_model::feature::authentication::auth_request::AuthRequest;
use sluicegate_model::feature::authentication::ext_auth::{self as feature, ExtAuth};
use sluicegate_model::feature::external_auth::CHECK_TIMEOUT;
use sluicegate_model::value::secret;

use super::authentication::credential::Place;
use crate::http_client::{Server, ServerError};

pub(crate) use answer::{Answer, Verdict};
pub(crate) use filter::{Applied, Detail, Filter};
pub(crate) use local::Externals;

/// An external service, compiled once for all workers.
#[derive(Debug)]
pub(crate) struct External {
    /// Unique in this process.
    number: u64,
    /// The name of the service in logs.
    name: Box<str>,
    timeout: Duration,
    /// The `extAuth` of a policy; `None` for a filter.
    source: Option<Arc<ExtAuth>>,
    /// The filter; `None` for a policy.
    pub(crate) filter: Option<Filter>,
    /// The server of the URL; `None` for a filter, whose endpoints the gateway always knows.
    service: Option<Server>,
    method: Method,
    /// The first bytes of each question, if its path has no variables.
    pub(crate) opening: Box<[u8]>,
    /// The value of Host.
    pub(crate) authority: Box<str>,
    pub(crate) told: Told,
    response_headers: Vec<(Known, Box<str>)>,
}

/// The parts of a request that the service receives.
#[derive(Debug)]
pub(crate) enum Told {
    /// All headers except headers about the body and the connection.
    All,
    /// These headers.
    Named(Vec<(Known, Box<str>)>),
    /// Only the parts of the key by which answers are remembered.
    Key(Vec<Part>),
}

/// A part of the key.
#[derive(Debug)]
pub(crate) enum Part {
    Value(Place),
    Method,
    Host,
    Path,
    Address,
}

/// A question to a service.
#[derive(Debug)]
pub(crate) struct Question {
    /// The whole request.
    pub(crate) bytes: Vec<u8>,
    /// The text by which the answer is remembered. `None`: the whole request.
    pub(crate) key: Option<Vec<u8>>,
    /// Whether the answer may be remembered.
    pub(crate) is_whole: bool,
    pub(crate) method: Method,
    /// Whether the question may be repeated after a server may have read it.
    pub(crate) is_repeatable: bool,
}

impl External {
    pub(super) fn new(source: &Arc<ExtAuth>, number: u64) -> Result<Self, ServerError> {
        let authorities =
            secret::authorities(&source.ca_certificate_ref).map_err(|_| ServerError::NoAuthorities)?;
        let service = match &source.auth_request {
            None => Server::new(&source.url, authorities)?,
            // As in nginx (`proxy_ssl_verify`). The name of the host without its port is what ingress-nginx sends.
            Some(_) => Server::unverified(&source.url)?,
        };
        let authority: Box<str> = match &source.auth_request {
            None => (*service.authority).into(),
            Some(_) => service.host_without_port().into(),
        };
        let opening =
            format!("{} {} HTTP/1.1\r\nHost: {authority}\r\n", source.method.as_str(), service.target,);
        let named = |name: &str| (Known::of(name.as_bytes()), name.into());
        let told = match (&source.cache, &source.request_headers) {
            (Some(cache), _) => Told::Key(cache.key.iter().map(Part::new).collect()),
            (None, names) if names.is_empty() => Told::All,
            (None, names) => Told::Named(names.iter().map(|name| named(name)).collect()),
        };
        Ok(Self {
            number,
            name: (*source.url).into(),
            timeout: source.timeout.get(),
            filter: None,
            service: Some(service),
            method: Method::of(source.method.as_str().as_bytes()),
            opening: opening.into_bytes().into(),
            authority,
            told,
            response_headers: {
                let further = source.auth_request.iter().flat_map(|request| request.response_headers.iter());
                let names = source.response_headers.iter().map(|name| named(name));
                names.chain(further.map(|name| named(name))).collect()
            },
            source: Some(source.clone()),
        })
    }

    /// The Service of a filter.
    pub(super) fn of_filter(source: &ExternalAuth, number: u64) -> Self {
        Self {
            number,
            name: format!("Service {}/{}", source.upstream.namespace, source.upstream.service).into(),
            timeout: CHECK_TIMEOUT,
            source: None,
            filter: Some(Filter::new(source)),
            service: None,
            method: Method::Get,
            opening: Box::default(),
            authority: Box::default(),
            told: Told::Named(Vec::new()),
            response_headers: Vec::new(),
        }
    }

    /// The method of the questions of a policy.
    pub(crate) fn method(&self) -> Method {
        self.method
    }

    /// The name of the method of the questions of a policy.
    pub(crate) fn method_name(&self) -> &'static str {
        self.source.as_ref().map_or("GET", |source| source.method.as_str())
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The sign-in page for clients that would receive a 401, and the parameter with the original URL.
    pub(crate) fn sign_in(&self) -> Option<&feature::SignIn> {
        self.source.as_ref()?.sign_in.as_ref()
    }

    /// The parts that annotations of ingress-nginx set.
    pub(crate) fn auth_request(&self) -> Option<&AuthRequest> {
        self.source.as_ref()?.auth_request.as_ref()
    }

    /// Whether the question must declare that it has no body (RFC 9110, 8.6).
    pub(crate) fn says_length(&self) -> bool {
        matches!(self.method, Method::Post | Method::Put | Method::Patch)
    }

    /// Whether the service receives the path or the method, so that its answer may depend on them.
    pub(super) fn reads_target(&self) -> bool {
        match &self.told {
            Told::All | Told::Named(_) => true,
            Told::Key(parts) => parts.iter().any(|part| matches!(part, Part::Method | Part::Path)),
        }
    }

    /// The response headers of the service that endpoints receive.
    pub(super) fn response_headers(&self) -> &[(Known, Box<str>)] {
        &self.response_headers
    }

    /// The query parameters in the key by which answers are remembered.
    pub(super) fn parameters(&self) -> impl Iterator<Item = &str> {
        let parts = match &self.told {
            Told::Key(parts) => &parts[..],
            Told::All | Told::Named(_) => &[],
        };
        parts.iter().filter_map(|part| match part {
            Part::Value(place) => place.parameter(),
            Part::Method | Part::Host | Part::Path | Part::Address => None,
        })
    }

    /// Whether answers may be remembered.
    fn remembers(&self) -> bool {
        let of_request = |request: &AuthRequest| request.cache.is_some();
        self.source.as_ref().is_some_and(|source| source.cache.is_some())
            || self.auth_request().is_some_and(of_request)
    }

    /// The longest time for which an answer may be remembered.
    fn time_to_live(&self, verdict: Verdict, status: u16) -> Duration {
        if let Some(cache) = self.auth_request().and_then(|request| request.cache.as_ref()) {
            return cache.time(status).get();
        }
        match (self.source.as_ref().and_then(|source| source.cache.as_ref()), verdict) {
            (None, _) => Duration::ZERO,
            (Some(cache), Verdict::Admitted) => cache.admitted.get(),
            (Some(cache), Verdict::Unauthorized | Verdict::Forbidden | Verdict::Responded(_)) => {
                cache.refused.get()
            }
        }
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The hash by which the answer to a question is remembered.
    fn mark(&self, question: &Question) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&self.number.to_be_bytes());
        context.update(question.key.as_deref().unwrap_or(&question.bytes));
        let mut mark = [0; 32];
        // A SHA-256 has 32 bytes.
        mark.copy_from_slice(context.finish().as_ref());
        mark
    }
}

impl Part {
    fn new(source: &feature::KeyPart) -> Self {
        match source {
            feature::KeyPart::Value(credential) => Self::Value(Place::new(credential)),
            feature::KeyPart::Method => Self::Method,
            feature::KeyPart::Host => Self::Host,
            feature::KeyPart::Path => Self::Path,
            feature::KeyPart::Address => Self::Address,
        }
    }
}
