//! HTTP services that are asked about requests (nginx: `auth_request`).
//!
//! What a service is told is written in `http/question.rs`. Each worker asks for itself, on connections that it keeps: no lock
//! is taken, and nothing is shared but what is compiled. Only named parts of an answer go anywhere; what is not an answer lets
//! nobody in.
//!
//! An answer that may be remembered is remembered by the very bytes that were asked, so that whoever gets it would have asked
//! the same: no two requests that the service could have told apart share one. While it is on its way, others wait for it.
//!
//! | module | what |
//! |---|---|
//! | `local` | a worker's side: limits, one question for many, what is counted and logged |
//! | `connection` | how a service is spoken with |
//! | `addresses` | where it is |
//! | `answer` | what an answer comes to |
//! | `memory` | answers that are remembered |

mod addresses;
mod answer;
mod connection;
mod local;
mod memory;

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use sluicegate_http1::{Known, Method};
use sluicegate_model::policy::{self as model, ExternalCache};

use super::credential::Place;
use super::service::{Service, ServiceError};

pub(crate) use answer::{Answer, Verdict};
pub(crate) use local::Externals;

/// A service that is asked, compiled once for all workers.
#[derive(Debug)]
pub(crate) struct External {
    /// Unlike that of any other.
    number: u64,
    source: Arc<model::External>,
    service: Service,
    method: Method,
    /// How each question begins.
    pub(crate) opening: Box<[u8]>,
    pub(crate) told: Told,
    response_headers: Vec<(Known, Box<str>)>,
}

/// What the service is told of a request.
#[derive(Debug)]
pub(crate) enum Told {
    /// All headers but those about the body and the connection.
    All,
    /// These headers.
    Named(Vec<(Known, Box<str>)>),
    /// Nothing but what answers are remembered by.
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

/// What a service is asked.
#[derive(Debug)]
pub(crate) struct Question {
    /// The whole request.
    pub(crate) bytes: Vec<u8>,
    /// Whether its answer may be remembered.
    pub(crate) is_whole: bool,
}

impl External {
    pub(super) fn new(source: &Arc<model::External>, number: u64) -> Result<Self, ServiceError> {
        let service = Service::new(&source.url, &source.authorities)?;
        let opening =
            format!("{} {} HTTP/1.1\r\nHost: {}\r\n", source.method, service.target, service.authority);
        let named = |names: &[Box<str>]| {
            names.iter().map(|name| (Known::of(name.as_bytes()), name.clone())).collect()
        };
        let told = match (&source.cache, &source.request_headers) {
            (Some(cache), _) => Told::Key(cache.key.iter().map(Part::new).collect()),
            (None, Some(names)) => Told::Named(named(names)),
            (None, None) => Told::All,
        };
        Ok(Self {
            number,
            service,
            method: Method::of(source.method.as_bytes()),
            opening: opening.into_bytes().into(),
            told,
            response_headers: named(&source.response_headers),
            source: source.clone(),
        })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Where clients go instead of getting a 401, and the parameter that says where they wanted to go.
    pub(crate) fn sign_in(&self) -> Option<&model::SignIn> {
        self.source.sign_in.as_ref()
    }

    /// Whether the question has to say that it has no body (RFC 9110, 8.6).
    pub(crate) fn says_length(&self) -> bool {
        self.method == Method::Post
    }

    /// Whether the service is told of the path or the method, so that its answer may depend on them.
    pub(super) fn reads_target(&self) -> bool {
        match &self.told {
            Told::All | Told::Named(_) => true,
            Told::Key(parts) => parts.iter().any(|part| matches!(part, Part::Method | Part::Path)),
        }
    }

    /// The headers that endpoints get of an answer.
    pub(super) fn response_headers(&self) -> &[(Known, Box<str>)] {
        &self.response_headers
    }

    /// The parameters of the query that answers are remembered by.
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

    fn cache(&self) -> Option<&ExternalCache> {
        self.source.cache.as_ref()
    }

    fn timeout(&self) -> Duration {
        self.source.timeout
    }

    /// What the answer to these bytes is remembered by.
    fn mark(&self, question: &[u8]) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&self.number.to_be_bytes());
        context.update(question);
        let mut mark = [0; 32];
        // A SHA-256 is that long.
        mark.copy_from_slice(context.finish().as_ref());
        mark
    }
}

impl Part {
    fn new(source: &model::KeyPart) -> Self {
        match source {
            model::KeyPart::Value(credential) => Self::Value(Place::new(credential)),
            model::KeyPart::Method => Self::Method,
            model::KeyPart::Host => Self::Host,
            model::KeyPart::Path => Self::Path,
            model::KeyPart::Address => Self::Address,
        }
    }
}
