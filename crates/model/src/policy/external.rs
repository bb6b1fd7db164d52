//! External authorization: an HTTP service decides about each request (nginx: `auth_request`).

use std::time::Duration;

use minicbor::{Decode, Encode};
use rustls_pki_types::CertificateDer;
use serde::{Serialize, Serializer};

use crate::encoding::bound::{AskMethod, CacheKey, HeaderName, Link};
use crate::encoding::{Adapt as _, List, Maybe, Raw, Time, Within};

use super::security::{Credential, seconds};

/// The service, the contents of the request to the service, and the use of the response. A 2xx status allows the client's
/// request. The client receives a response with 401 or 403. Any other result is a failure, and the request is denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct External {
    /// The URL: `https://` or `http://`, with a host. The gateway does not follow redirects.
    #[n(0)]
    pub url: Box<str>,
    /// The CA certificates to trust for the service. Empty: the public CA certificates.
    #[serde(serialize_with = "count")]
    #[cbor(n(1), with = "List::<Raw>")]
    pub authorities: Vec<CertificateDer<'static>>,
    /// The method of requests to the service: `GET`, `HEAD` or `POST`. The requests have no body.
    #[cbor(n(2), with = "Within::<AskMethod>")]
    pub method: Box<str>,
    /// The timeout of one request to the service, including the connect, from 100 ms to 60 s.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(3), with = "Time")]
    pub timeout: Duration,
    /// The client's headers that the service receives, in lower case. `None`: all headers, except headers about the body or
    /// the connection. Not with `cache`.
    #[cbor(n(4), with = "Maybe::<List<Within<HeaderName>>>")]
    pub request_headers: Option<Vec<Box<str>>>,
    /// The headers of the service's response that endpoints receive, in lower case. The gateway removes these headers from
    /// client requests.
    #[cbor(n(5), with = "List::<Within<HeaderName>>")]
    pub response_headers: Vec<Box<str>>,
    /// The redirect to the sign-in page, in place of a 401.
    #[n(6)]
    pub sign_in: Option<SignIn>,
    /// The responses to cache. `None`: no response is cached.
    #[n(7)]
    pub cache: Option<ExternalCache>,
}

/// The sign-in page for clients (ingress-nginx: `auth-signin`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct SignIn {
    /// The page: `https://` or `http://` with a host, or a path of the same host.
    #[cbor(n(0), with = "Within::<Link>")]
    pub url: Box<str>,
    /// The query parameter with the URL of the client's request.
    #[n(1)]
    pub parameter: Box<str>,
}

/// The cached responses. The service receives only the parts of the key, so that its response can depend only on these parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct ExternalCache {
    /// The parts of the key, at least one. The response to a request without one of the parts is not cached.
    #[cbor(n(0), with = "Within::<CacheKey<KeyPart>>")]
    pub key: Vec<KeyPart>,
    /// How long a 2xx response is valid, up to 24 h. 0 disables caching of 2xx responses.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(1), with = "Time")]
    pub admitted: Duration,
    /// How long a 401 or 403 response is valid, up to 24 h. 0 disables caching of these responses.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(2), with = "Time")]
    pub refused: Duration,
}

/// A part of the key: the service receives this part of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum KeyPart {
    /// A header, a parameter or a cookie. A header has no prefix.
    #[n(0)]
    Value(#[n(0)] Credential),
    /// The method.
    #[n(1)]
    Method,
    /// The scheme and the host.
    #[n(2)]
    Host,
    /// The path, in normal form.
    #[n(3)]
    Path,
    /// The client IP.
    #[n(4)]
    Address,
}

fn count<S: Serializer>(authorities: &[CertificateDer<'static>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&authorities.len())
}
