//! An HTTP service that is asked about each request (nginx: `auth_request`).

use std::time::Duration;

use minicbor::{Decode, Encode};
use rustls_pki_types::CertificateDer;
use serde::{Serialize, Serializer};

use crate::encoding::bound::{AskMethod, CacheKey, HeaderName, Link};
use crate::encoding::{Adapt as _, List, Maybe, Raw, Time, Within};

use super::security::{Credential, seconds};

/// Who is asked, what it is told, and what is made of its answer: 2xx lets the request in, 401 and 403 are the client's answer,
/// anything else is a failure, which lets nobody in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct External {
    /// `https://` or `http://`, with a host. Redirects are not followed.
    #[n(0)]
    pub url: Box<str>,
    /// Who vouches for the server; those whom browsers trust, if it is empty.
    #[serde(serialize_with = "count")]
    #[cbor(n(1), with = "List::<Raw>")]
    pub authorities: Vec<CertificateDer<'static>>,
    /// The method that it is asked by: `GET`, `HEAD` or `POST`. There is never a body.
    #[cbor(n(2), with = "Within::<AskMethod>")]
    pub method: Box<str>,
    /// For all of one question, connecting included, from 100 ms to 60 s.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(3), with = "Time")]
    pub timeout: Duration,
    /// The client's headers that it is told, in lower case; all that are not about the body or the connection, if there is no list.
    /// Not with `cache`.
    #[cbor(n(4), with = "Maybe::<List<Within<HeaderName>>>")]
    pub request_headers: Option<Vec<Box<str>>>,
    /// The headers of its answer that endpoints get, in lower case. Clients cannot set these themselves.
    #[cbor(n(5), with = "List::<Within<HeaderName>>")]
    pub response_headers: Vec<Box<str>>,
    /// Where a client goes instead of getting a 401.
    #[n(6)]
    pub sign_in: Option<SignIn>,
    /// Which of its answers are remembered; none without it.
    #[n(7)]
    pub cache: Option<ExternalCache>,
}

/// Where clients say who they are (ingress-nginx: `auth-signin`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct SignIn {
    /// `https://` or `http://` with a host, or a path of the same host.
    #[cbor(n(0), with = "Within::<Link>")]
    pub url: Box<str>,
    /// The parameter that says where the client wanted to go.
    #[n(1)]
    pub parameter: Box<str>,
}

/// Which answers are remembered. The service is told nothing but what is in the key, so that its answer can depend on nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct ExternalCache {
    /// At least one part. An answer to a request that lacks one is not remembered.
    #[cbor(n(0), with = "Within::<CacheKey<KeyPart>>")]
    pub key: Vec<KeyPart>,
    /// How long a 2xx is good, up to 24 h; 0 is not at all.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(1), with = "Time")]
    pub admitted: Duration,
    /// How long a 401 or a 403 is good, up to 24 h; 0 is not at all.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(2), with = "Time")]
    pub refused: Duration,
}

/// What of a request the service is told, and its answer is good for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum KeyPart {
    /// A header, a parameter or a cookie. A header has no prefix here.
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
    /// The client's address, as far as trusted peers tell it.
    #[n(4)]
    Address,
}

fn count<S: Serializer>(authorities: &[CertificateDer<'static>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&authorities.len())
}
