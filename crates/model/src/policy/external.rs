//! An HTTP service that is asked about each request (nginx: `auth_request`).

use std::time::Duration;

use rustls_pki_types::CertificateDer;
use serde::{Serialize, Serializer};

use super::security::{Credential, seconds};

/// Who is asked, what it is told, and what is made of its answer: 2xx lets the request in, 401 and 403 are the client's answer,
/// anything else is a failure, which lets nobody in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct External {
    /// `https://` or `http://`, with a host. Redirects are not followed.
    pub url: Box<str>,
    /// Who vouches for the server; those whom browsers trust, if it is empty.
    #[serde(serialize_with = "count")]
    pub authorities: Vec<CertificateDer<'static>>,
    /// The method that it is asked by: `GET`, `HEAD` or `POST`. There is never a body.
    pub method: Box<str>,
    /// For all of one question, connecting included, from 100 ms to 60 s.
    #[serde(serialize_with = "seconds")]
    pub timeout: Duration,
    /// The client's headers that it is told, in lower case; all that are not about the body or the connection, if there is no list.
    /// Not with `cache`.
    pub request_headers: Option<Vec<Box<str>>>,
    /// The headers of its answer that endpoints get, in lower case. Clients cannot set these themselves.
    pub response_headers: Vec<Box<str>>,
    /// Where a client goes instead of getting a 401.
    pub sign_in: Option<SignIn>,
    /// Which of its answers are remembered; none without it.
    pub cache: Option<ExternalCache>,
}

/// Where clients say who they are (ingress-nginx: `auth-signin`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SignIn {
    /// `https://` or `http://` with a host, or a path of the same host.
    pub url: Box<str>,
    /// The parameter that says where the client wanted to go.
    pub parameter: Box<str>,
}

/// Which answers are remembered. The service is told nothing but what is in the key, so that its answer can depend on nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExternalCache {
    /// At least one part. An answer to a request that lacks one is not remembered.
    pub key: Vec<KeyPart>,
    /// How long a 2xx is good, up to 24 h; 0 is not at all.
    #[serde(serialize_with = "seconds")]
    pub admitted: Duration,
    /// How long a 401 or a 403 is good, up to 24 h; 0 is not at all.
    #[serde(serialize_with = "seconds")]
    pub refused: Duration,
}

/// What of a request the service is told, and its answer is good for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum KeyPart {
    /// A header, a parameter or a cookie. A header has no prefix here.
    Value(Credential),
    /// The method.
    Method,
    /// The scheme and the host.
    Host,
    /// The path, in normal form.
    Path,
    /// The client's address, as far as trusted peers tell it.
    Address,
}

fn count<S: Serializer>(authorities: &[CertificateDer<'static>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&authorities.len())
}
