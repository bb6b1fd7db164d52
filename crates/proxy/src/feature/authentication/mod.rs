//! Authentication: the credentials of callers, and the consumers that they identify.
//!
//! | module | purpose |
//! |---|---|
//! | `credential` | the places of credentials in requests |
//! | `basic`, `digest` | passwords |
//! | `jwt` | tokens |
//! | `introspection` | tokens that an authorization server checks |
//! | `oidc` | the login of browsers |
//! | `consumer` | the consumers |
//! | `identify` | the identity of the caller |
//! | `combination` | credentials that are needed together |
//! | `forward` | the headers with the identity for endpoints |

pub(crate) mod basic;
mod combination;
pub(crate) mod consumer;
pub(crate) mod credential;
pub(crate) mod digest;
mod forward;
mod identify;
pub(crate) mod introspection;
pub(crate) mod jwt;
pub(crate) mod oidc;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_http1::Known;
use sluicegate_jwt::Wanted;
use sluicegate_model::feature::{self, Require};
use sluicegate_model::value::ScopeList;

pub(crate) use identify::{Identity, Memories, NotAuthenticated, SlowCheckResults};

use super::ext_auth::External;
use crate::openid::PublishedPlaces;
use basic::Passwords;
use combination::Combination;
use consumer::Scope;
use credential::Place;
use digest::DigestPasswords;
use introspection::Introspector;
use jwt::{Tokens, Verified};
use oidc::Login;

/// The authentication of a policy.
#[derive(Debug)]
pub(crate) struct Authentication {
    pub(crate) require: Require,
    pub(crate) methods: Vec<Method>,
    /// The combinations, one of which is enough; empty: the methods by themselves.
    combinations: Vec<Combination>,
    pub(crate) scope: Scope,
    /// The `WWW-Authenticate` header lines of a denial (RFC 9110, 11.6.1).
    pub(crate) challenges: Vec<u8>,
    /// The `WWW-Authenticate` header lines of a denial because of an invalid token (RFC 6750, 3.1).
    pub(crate) token_challenges: Vec<u8>,
    /// The scopes that tokens need: all of one entry. Empty: none.
    scopes: Vec<Scopes>,
    /// The query parameters that hold credentials.
    pub(in crate::feature) secret_parameters: Vec<Box<str>>,
    /// The headers that name the caller, which callers cannot set.
    pub(crate) own_headers: Vec<(Known, Box<str>)>,
}

/// Scopes that a token needs.
#[derive(Debug)]
struct Scopes {
    /// Each scope, in each claim that may have it.
    wanted: Vec<[Wanted; 2]>,
    /// The header line that names the scopes to a caller whose token lacks one (RFC 6750, 3.1).
    challenge: Vec<u8>,
}

#[derive(Debug)]
pub(crate) enum Method {
    Jwt(Tokens),
    ApiKey { places: Vec<Place>, forwards: bool },
    Basic(Passwords),
    Digest(Box<DigestPasswords>),
    External(Arc<External>),
    Introspection(Arc<Introspector>),
    Oidc(Arc<Login>),
    Unusable,
}

/// Adds a challenge, unless the same challenge is there.
fn add_challenge(challenges: &mut Vec<u8>, challenge: &[u8]) {
    if !challenge.is_empty() && memchr::memmem::find(challenges, challenge).is_none() {
        challenges.extend_from_slice(challenge);
    }
}

/// A number that is unique in this process.
pub(super) fn new_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

impl Scopes {
    fn new(list: &ScopeList) -> Self {
        let of = |scope: &str| {
            ["scope", "scp"].map(|claim| Wanted { claim: claim.into(), values: vec![scope.into()] })
        };
        let challenge =
            format!("WWW-Authenticate: Bearer error=\"insufficient_scope\", scope=\"{}\"\r\n", &**list);
        Self { wanted: list.split(' ').map(of).collect(), challenge: challenge.into() }
    }

    /// Whether a token has all of these scopes.
    fn are_in(&self, token: &Verified) -> bool {
        self.wanted.iter().all(|wanted| wanted.iter().any(|wanted| token.claims.has(wanted)))
    }
}

impl Authentication {
    /// Whether the token of the caller has the needed scopes. A caller without a token needs none.
    pub(in crate::feature) fn has_scopes(&self, identity: &Identity) -> bool {
        let Some(token) = identity.token.as_ref().filter(|_| !self.scopes.is_empty()) else { return true };
        self.scopes.iter().any(|scopes| scopes.are_in(token))
    }

    /// Compiles the authentication of a policy in this namespace.
    pub(super) fn new(
        source: &feature::Authentication,
        namespace: &Arc<str>,
        places: &PublishedPlaces,
    ) -> Self {
        let methods = Method::all(source, places);
        let mut own_headers: Vec<(Known, Box<str>)> =
            ["x-consumer-username", "x-consumer-groups"].map(|name| (Known::Other, name.into())).into();
        let (mut challenges, mut token_challenges) = (Vec::new(), Vec::new());
        let mut secret_parameters = Vec::new();
        for method in &methods {
            secret_parameters
                .extend(method.places().iter().filter_map(|place| Some(place.parameter()?.into())));
            add_challenge(&mut challenges, method.challenge());
            add_challenge(
                &mut token_challenges,
                match method {
                    Method::Jwt(_) | Method::Introspection(_) => {
                        b"WWW-Authenticate: Bearer error=\"invalid_token\"\r\n"
                    }
                    method => method.challenge(),
                },
            );
            match method {
                Method::Jwt(tokens) => {
                    let named = tokens.headers().map(|name| (Known::of(name.as_bytes()), name.into()));
                    own_headers.extend(named);
                }
                Method::Introspection(introspector) => {
                    let named =
                        introspector.own_headers().map(|name| (Known::of(name.as_bytes()), name.into()));
                    own_headers.extend(named);
                }
                Method::Oidc(login) => {
                    own_headers
                        .extend(login.own_headers().map(|name| (Known::of(name.as_bytes()), name.into())));
                    // The code of a login.
                    secret_parameters.push("code".into());
                    // Other methods read the header themselves.
                    let is_read = methods.iter().any(Method::reads_authorization);
                    if login.sets_authorization() && !is_read {
                        own_headers.push((Known::Authorization, "authorization".into()));
                    }
                }
                Method::External(external) => {
                    own_headers.extend_from_slice(external.response_headers());
                    secret_parameters.extend(external.parameters().map(Into::into));
                }
                Method::ApiKey { .. } | Method::Basic(_) | Method::Digest(_) | Method::Unusable => {}
            }
        }
        Self {
            require: source.require,
            combinations: source.combinations.iter().map(|of| Combination::new(of, &methods)).collect(),
            methods,
            scope: source.namespaces(namespace),
            challenges,
            token_challenges,
            scopes: source.required_scopes.iter().map(Scopes::new).collect(),
            secret_parameters,
            own_headers,
        }
    }

    /// The login of browsers, if there is one.
    pub(crate) fn login(&self) -> Option<&Arc<Login>> {
        self.methods.iter().find_map(Method::login)
    }

    /// Whether the policy asks a service whose answer may depend on the path or the method.
    pub(super) fn reads_target(&self) -> bool {
        self.methods.iter().any(|method| match method {
            Method::External(external) => external.reads_target(),
            Method::Jwt(_)
            | Method::Introspection(_)
            | Method::Oidc(_)
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
            Method::ApiKey { .. }
            | Method::Basic(_)
            | Method::Digest(_)
            | Method::External(_)
            | Method::Introspection(_)
            | Method::Oidc(_) => false,
        };
        if !self.combinations.is_empty() {
            return self.combinations.iter().all(|of| of.lacks(&self.methods, is_unusable));
        }
        let mut methods = self.methods.iter();
        if self.require == Require::All { methods.any(is_unusable) } else { methods.all(is_unusable) }
    }
}

impl Method {
    /// The methods of a policy, in the order of their checks.
    fn all(source: &feature::Authentication, places: &PublishedPlaces) -> Vec<Self> {
        let jwt = source.jwt.as_ref().map(|jwt| Self::Jwt(Tokens::new(jwt, new_number(), &places.keys)));
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
        let introspection = source.introspection.as_ref().map(|source| {
            let introspector = Introspector::new(source, new_number());
            introspector.map_or_else(
                |fault| Self::unusable("introspection", &source.url, &fault),
                |of| Self::Introspection(Arc::new(of)),
            )
        });
        let oidc = source.oidc.as_ref().map(|source| {
            let login = Login::new(source, new_number(), places);
            login.map_or_else(
                |fault| Self::unusable("login", &source.issuer, &fault),
                |login| Self::Oidc(Arc::new(login)),
            )
        });
        [jwt, api_key, basic, digest, introspection, oidc, ext_auth].into_iter().flatten().collect()
    }

    /// A method with a fault.
    fn unusable(method: &'static str, url: &str, fault: &str) -> Self {
        tracing::error!(
            method,
            url,
            fault,
            "cannot use a method of authentication; the gateway denies its callers"
        );
        Self::Unusable
    }

    /// Whether the method reads the header `Authorization`.
    fn reads_authorization(&self) -> bool {
        self.places().iter().any(Place::is_authorization)
    }

    /// The login of browsers.
    pub(crate) fn login(&self) -> Option<&Arc<Login>> {
        match self {
            Self::Oidc(login) => Some(login),
            _ => None,
        }
    }

    /// The places of the credentials.
    pub(crate) fn places(&self) -> &[Place] {
        match self {
            Self::Jwt(tokens) => &tokens.places,
            Self::ApiKey { places, .. } => places,
            Self::Basic(passwords) => std::slice::from_ref(&passwords.place),
            Self::Digest(passwords) => std::slice::from_ref(&passwords.place),
            Self::Introspection(introspector) => &introspector.places,
            Self::External(_) | Self::Oidc(_) | Self::Unusable => &[],
        }
    }

    /// Whether endpoints receive the credentials too.
    pub(crate) fn forwards(&self) -> bool {
        match self {
            Self::Jwt(tokens) => tokens.forwards,
            Self::ApiKey { forwards, .. } => *forwards,
            Self::Basic(passwords) => passwords.forwards,
            Self::Digest(passwords) => passwords.forwards,
            Self::Introspection(introspector) => introspector.forwards(),
            Self::External(_) | Self::Oidc(_) | Self::Unusable => true,
        }
    }

    fn challenge(&self) -> &[u8] {
        match self {
            // RFC 6750, 3.
            Self::Jwt(_) | Self::Introspection(_) => b"WWW-Authenticate: Bearer\r\n",
            // No scheme of RFC 9110 describes a login. A response with 401 needs a challenge.
            Self::Oidc(_) => b"WWW-Authenticate: Cookie\r\n",
            Self::ApiKey { .. } => b"WWW-Authenticate: Key\r\n",
            Self::Basic(passwords) => &passwords.challenge,
            // The service's own header lines, if it denies the request.
            // Each challenge of Digest authentication is new.
            Self::Digest(_) => b"",
            Self::External(_) | Self::Unusable => b"",
        }
    }
}
