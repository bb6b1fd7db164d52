//! Authentication: the credentials of callers, and the consumers that they identify.
//!
//! | module | purpose |
//! |---|---|
//! | `credential` | the places of credentials in requests |
//! | `basic`, `digest` | passwords |
//! | `jwt`, `jwks` | tokens, and the published keys of their issuers |
//! | `consumer` | the consumers |
//! | `identify` | the identity of the caller |
//! | `forward` | the headers with the identity for endpoints |

pub(crate) mod basic;
pub(crate) mod consumer;
pub(crate) mod credential;
pub(crate) mod digest;
mod forward;
mod identify;
pub(crate) mod jwks;
pub(crate) mod jwt;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_http1::Known;
use sluicegate_model::feature::{self, Require};

pub(crate) use identify::{Identity, Memories, NotAuthenticated, SlowCheckResults};

use super::ext_auth::External;
use basic::Passwords;
use consumer::Scope;
use credential::Place;
use digest::DigestPasswords;
use jwks::Places;
use jwt::Tokens;

/// The authentication of a policy.
#[derive(Debug)]
pub(crate) struct Authentication {
    pub(crate) requires_all: bool,
    pub(crate) methods: Vec<Method>,
    pub(crate) scope: Scope,
    /// The `WWW-Authenticate` header lines of a denial (RFC 9110, 11.6.1).
    pub(crate) challenges: Vec<u8>,
    /// The `WWW-Authenticate` header lines of a denial because of an invalid token (RFC 6750, 3.1).
    pub(crate) token_challenges: Vec<u8>,
    /// The query parameters that hold credentials.
    pub(in crate::feature) secret_parameters: Vec<Box<str>>,
    /// The headers that name the caller, which callers cannot set.
    pub(crate) own_headers: Vec<(Known, Box<str>)>,
}

#[derive(Debug)]
pub(crate) enum Method {
    Jwt(Tokens),
    ApiKey { places: Vec<Place>, forwards: bool },
    Basic(Passwords),
    Digest(Box<DigestPasswords>),
    External(Arc<External>),
    Unusable,
}

/// A number that is unique in this process.
pub(super) fn new_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

impl Authentication {
    /// Compiles the authentication of a policy in this namespace.
    pub(super) fn new(source: &feature::Authentication, namespace: &Arc<str>, places: &Places) -> Self {
        let methods = Method::all(source, places);
        let mut own_headers: Vec<(Known, Box<str>)> =
            ["x-consumer-username", "x-consumer-groups"].map(|name| (Known::Other, name.into())).into();
        let (mut challenges, mut token_challenges) = (Vec::new(), Vec::new());
        let mut secret_parameters = Vec::new();
        for method in &methods {
            secret_parameters
                .extend(method.places().iter().filter_map(|place| Some(place.parameter()?.into())));
            challenges.extend_from_slice(method.challenge());
            token_challenges.extend_from_slice(match method {
                Method::Jwt(_) => b"WWW-Authenticate: Bearer error=\"invalid_token\"\r\n",
                method => method.challenge(),
            });
            match method {
                Method::Jwt(tokens) => {
                    let named = tokens.headers().map(|name| (Known::of(name.as_bytes()), name.into()));
                    own_headers.extend(named);
                }
                Method::External(external) => {
                    own_headers.extend_from_slice(external.response_headers());
                    secret_parameters.extend(external.parameters().map(Into::into));
                }
                Method::ApiKey { .. } | Method::Basic(_) | Method::Digest(_) | Method::Unusable => {}
            }
        }
        Self {
            requires_all: source.require == Require::All,
            methods,
            scope: source.namespaces(namespace),
            challenges,
            token_challenges,
            secret_parameters,
            own_headers,
        }
    }

    /// Whether the policy asks a service whose answer may depend on the path or the method.
    pub(super) fn reads_target(&self) -> bool {
        self.methods.iter().any(|method| match method {
            Method::External(external) => external.reads_target(),
            Method::Jwt(_)
            | Method::ApiKey { .. }
            | Method::Basic(_)
            | Method::Digest(_)
            | Method::Unusable => false,
        })
    }

    /// Whether no caller can authenticate, because no method is usable.
    pub(super) fn cannot_be_satisfied(&self) -> bool {
        let is_unusable = |method: &Method| match method {
            Method::Unusable => true,
            Method::Jwt(tokens) => tokens.has_no_key(),
            Method::ApiKey { .. } | Method::Basic(_) | Method::Digest(_) | Method::External(_) => false,
        };
        let mut methods = self.methods.iter();
        if self.requires_all { methods.any(is_unusable) } else { methods.all(is_unusable) }
    }
}

impl Method {
    /// The methods of a policy, in the order of their checks.
    fn all(source: &feature::Authentication, places: &Places) -> Vec<Self> {
        let jwt = source.jwt.as_ref().map(|jwt| Self::Jwt(Tokens::new(jwt, new_number(), places)));
        let api_key = source.api_key.as_ref().map(|api_key| Self::ApiKey {
            places: api_key.places().map(|place| Place::new(&place)).collect(),
            forwards: api_key.forward,
        });
        let basic = source.basic.as_ref().map(|basic| match basic.secret_ref.value() {
            Ok(users) => Self::Basic(Passwords::new(basic, users, new_number())),
            Err(_) => Self::Unusable,
        });
        let digest = source.digest.as_ref().map(|digest| match digest.users.value() {
            Ok(users) => Self::Digest(Box::new(DigestPasswords::new(digest, users))),
            Err(_) => Self::Unusable,
        });
        let ext_auth = source.ext_auth.as_ref().map(|ext_auth| match External::new(ext_auth, new_number()) {
            Ok(external) => Self::External(Arc::new(external)),
            Err(error) => {
                tracing::error!(%error, url = &*ext_auth.url, "cannot use an authorization service; the gateway denies requests that need the service's decision");
                Self::Unusable
            }
        });
        [jwt, api_key, basic, digest, ext_auth].into_iter().flatten().collect()
    }

    /// The places of the credentials.
    pub(crate) fn places(&self) -> &[Place] {
        match self {
            Self::Jwt(tokens) => &tokens.places,
            Self::ApiKey { places, .. } => places,
            Self::Basic(passwords) => std::slice::from_ref(&passwords.place),
            Self::Digest(passwords) => std::slice::from_ref(&passwords.place),
            Self::External(_) | Self::Unusable => &[],
        }
    }

    /// Whether endpoints receive the credentials too.
    pub(crate) fn forwards(&self) -> bool {
        match self {
            Self::Jwt(tokens) => tokens.forwards,
            Self::ApiKey { forwards, .. } => *forwards,
            Self::Basic(passwords) => passwords.forwards,
            Self::Digest(passwords) => passwords.forwards,
            Self::External(_) | Self::Unusable => true,
        }
    }

    fn challenge(&self) -> &[u8] {
        match self {
            // RFC 6750, 3.
            Self::Jwt(_) => b"WWW-Authenticate: Bearer\r\n",
            Self::ApiKey { .. } => b"WWW-Authenticate: Key\r\n",
            Self::Basic(passwords) => &passwords.challenge,
            // The service's own header lines, if it denies the request.
            // Each challenge of Digest authentication is new.
            Self::Digest(_) => b"",
            Self::External(_) | Self::Unusable => b"",
        }
    }
}
