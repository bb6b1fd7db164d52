//! Combinations of credentials: a caller needs all credentials of one combination.

use sluicegate_model::feature::authentication::{Combination as Source, Need as Wanted};

use super::consumer::Consumers;
use super::identify::{Identity, Memories, NotAuthenticated, SlowCheckResults, differ};
use super::{Authentication, Method, Scopes};
use crate::failure::Denial;
use crate::request::RequestView;

/// Methods of a policy, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Methods(u8);

impl Methods {
    pub(crate) fn one(number: usize) -> Self {
        Self(1 << number)
    }

    /// The methods for which the function returns true.
    fn of(methods: &[Method], is_it: impl Fn(&Method) -> bool) -> Self {
        let numbers = methods.iter().enumerate().filter(|(_, method)| is_it(method));
        numbers.fold(Self::default(), |all, (number, _)| all.and(Self::one(number)))
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn has(self, number: usize) -> bool {
        self.0 & (1 << number) != 0
    }
}

/// A compiled combination.
#[derive(Debug)]
pub(super) struct Combination {
    needs: Vec<Need>,
    /// The scopes that tokens need: all of one entry. Empty: none.
    pub(super) scopes: Vec<Scopes>,
}

#[derive(Debug)]
enum Need {
    /// One of these methods succeeds. Without a method, no caller has the credential.
    Methods(Methods),
    /// The method of API keys succeeds, by the key at this place.
    ApiKey(usize, usize),
    ClientCertificate,
}

impl Combination {
    pub(super) fn new(source: &Source, methods: &[Method]) -> Self {
        let need = |wanted: &Wanted| match wanted {
            Wanted::ApiKey(Some(place)) => {
                let known = methods.iter().enumerate().find_map(|(number, method)| match method {
                    Method::ApiKey { places, .. } => {
                        Some(Need::ApiKey(number, places.iter().position(|known| known.source() == place)?))
                    }
                    _ => None,
                });
                known.unwrap_or(Need::Methods(Methods::default()))
            }
            Wanted::ApiKey(None) => {
                Need::Methods(Methods::of(methods, |method| matches!(method, Method::ApiKey { .. })))
            }
            Wanted::Password => {
                Need::Methods(Methods::of(methods, |method| matches!(method, Method::Basic(_))))
            }
            Wanted::Token => Need::Methods(Methods::of(methods, |method| {
                matches!(method, Method::Jwt(_) | Method::Introspection(_))
            })),
            Wanted::TokenOrSession => Need::Methods(Methods::of(methods, |method| {
                matches!(method, Method::Jwt(_) | Method::Introspection(_) | Method::Oidc(_))
            })),
            Wanted::ClientCertificate => Need::ClientCertificate,
            Wanted::Service => {
                Need::Methods(Methods::of(methods, |method| matches!(method, Method::External(_))))
            }
        };
        Self {
            needs: source.needs.iter().map(need).collect(),
            scopes: source.scopes.iter().map(Scopes::new).collect(),
        }
    }

    /// Whether a need has only methods for which the function returns true.
    pub(super) fn lacks(&self, methods: &[Method], is_unusable: impl Fn(&Method) -> bool) -> bool {
        self.needs.iter().any(|need| match need {
            Need::Methods(of) => {
                let mut of = methods.iter().enumerate().filter(|(number, _)| of.has(*number));
                of.all(|(_, method)| is_unusable(method))
            }
            Need::ApiKey(..) | Need::ClientCertificate => false,
        })
    }
}

/// The parts of a request and the state that checks read.
pub(super) struct Checked<'c> {
    pub(super) request: &'c RequestView<'c>,
    pub(super) consumers: &'c Consumers,
    pub(super) memories: &'c Memories<'c>,
    pub(super) awaited: &'c SlowCheckResults,
}

impl Authentication {
    /// The identity by the first combination whose credentials the caller has. `is_optional`: a caller without credentials stays
    /// unknown.
    pub(super) fn identify_by_combinations(
        &self,
        of: &Checked<'_>,
        is_optional: bool,
    ) -> Result<Identity, NotAuthenticated> {
        let (mut denial, mut pending, mut is_unknown) = (None, None, is_optional);
        for combination in &self.combinations {
            match self.combined(combination, of) {
                Err(NotAuthenticated::Denied(found)) if found != Denial::AmbiguousCredentials => {
                    is_unknown &= found.is_for_lack_of_credentials();
                    denial = Some(nearer(denial, found));
                }
                Ok(identity) => return Ok(identity),
                Err(found @ NotAuthenticated::Denied(_)) => return Err(found),
                // Another combination may need no slow check.
                Err(found) => pending = pending.or(Some(found)),
            }
        }
        match (pending, denial) {
            (Some(pending), _) => Err(pending),
            (None, _) if is_unknown => Ok(Identity { by: Some(Methods::default()), ..Identity::default() }),
            (None, denial) => Err(denial.unwrap_or(Denial::NoCredentials).into()),
        }
    }

    fn combined(&self, combination: &Combination, of: &Checked<'_>) -> Result<Identity, NotAuthenticated> {
        let (mut all, mut denial, mut pending) =
            (Identity { by: Some(Methods::default()), ..Identity::default() }, None, None);
        for need in &combination.needs {
            match self.needed(need, of) {
                // The API key of one consumer does not complete the token of another consumer.
                Ok(found) if differ(all.consumer, found.consumer) => {
                    return Err(Denial::AmbiguousCredentials.into());
                }
                Ok(found) => {
                    all.consumer = all.consumer.or(found.consumer);
                    all.token = all.token.or(found.token);
                    all.answer = all.answer.or(found.answer);
                    all.by = all.by.zip(found.by).map(|(one, other)| one.and(other));
                    all.keys |= found.keys;
                }
                Err(NotAuthenticated::Denied(Denial::AmbiguousCredentials)) => {
                    return Err(Denial::AmbiguousCredentials.into());
                }
                Err(NotAuthenticated::Denied(found)) => denial = Some(nearer(denial, found)),
                Err(found) => pending = pending.or(Some(found)),
            }
        }
        let has_scopes = || match &all.token {
            Some(token) if !combination.scopes.is_empty() => {
                combination.scopes.iter().any(|scopes| scopes.are_in(token))
            }
            _ => true,
        };
        match (denial, pending) {
            (Some(denial), _) => Err(denial.into()),
            (None, Some(pending)) => Err(pending),
            (None, None) if !has_scopes() => Err(Denial::Scope.into()),
            (None, None) => Ok(all),
        }
    }

    /// The identity by one credential.
    fn needed(&self, need: &Need, of: &Checked<'_>) -> Result<Identity, NotAuthenticated> {
        let by = |number: usize, found: Identity| Identity { by: Some(Methods::one(number)), ..found };
        match need {
            Need::ClientCertificate if of.request.client.has_certificate => {
                Ok(Identity { by: Some(Methods::default()), ..Identity::default() })
            }
            Need::ClientCertificate => Err(Denial::NoCertificate.into()),
            Need::ApiKey(number, place) => {
                let Some(Method::ApiKey { places, .. }) = self.methods.get(*number) else {
                    return Err(Denial::NoCredentials.into());
                };
                let places = places.iter().enumerate().skip(*place).take(1);
                Ok(by(*number, self.identify_by_key(places, of.request.head, of.consumers)?))
            }
            Need::Methods(methods) => {
                let (mut denial, mut pending) = (None, None);
                let numbered = self.methods.iter().enumerate().filter(|(number, _)| methods.has(*number));
                for (number, method) in numbered {
                    match self.identify_by(method, of.request, of.consumers, of.memories, of.awaited) {
                        Ok(found) => return Ok(by(number, found)),
                        Err(NotAuthenticated::Denied(Denial::AmbiguousCredentials)) => {
                            return Err(Denial::AmbiguousCredentials.into());
                        }
                        Err(NotAuthenticated::Denied(found)) => denial = Some(nearer(denial, found)),
                        Err(found) => pending = pending.or(Some(found)),
                    }
                }
                Err(pending.unwrap_or_else(|| denial.unwrap_or(Denial::NoCredentials).into()))
            }
        }
    }
}

/// Of two reasons, the reason that is nearer to an admission. Of two reasons that are as near, the first.
fn nearer(known: Option<Denial>, found: Denial) -> Denial {
    let rank = |denial: Denial| match denial {
        Denial::NoCertificate => 0,
        Denial::NoCredentials => 1,
        Denial::Login | Denial::NoSession => 2,
        _ => 3,
    };
    known.filter(|known| rank(*known) >= rank(found)).unwrap_or(found)
}
