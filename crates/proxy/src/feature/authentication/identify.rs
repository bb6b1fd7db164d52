//! The identity of the caller of a request.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use sluicegate_http1::RequestHead;
use sluicegate_model::feature::Require;

use super::basic::{CheckQueue, Credential, PasswordMemory};
use super::combination::{Checked, Methods};
use super::consumer::Consumers;
use super::credential::Place;
use super::introspection::{Introspections, Introspector, Outcome, Question};
use super::jwt::{TokenMemory, Verified};
use super::oidc::{Found, Login, Session, is_navigation};
use super::{Authentication, Method};
use crate::failure::Denial;
use crate::feature::ext_auth::{Answer, External, Verdict};
use crate::openid::now;
use crate::request::{HeadView, RequestView};

/// The identity of the caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) consumer: Option<u32>,
    pub(crate) token: Option<Rc<Verified>>,
    pub(crate) answer: Option<Rc<Answer>>,
    /// The methods that authenticated the caller; `None`: all methods.
    pub(crate) by: Option<Methods>,
    /// The places of the API keys that authenticated the caller: a bit for each place of the method.
    pub(crate) keys: u8,
}

/// The results of slow checks so far.
#[derive(Debug, Default)]
pub(crate) struct SlowCheckResults {
    pub(crate) password: Option<bool>,
    /// The answers of services, by the numbers of the services.
    pub(crate) answers: Vec<(u64, Result<Rc<Answer>, Denial>)>,
    /// The outcome for the token.
    pub(crate) introspected: Option<Outcome>,
    /// The refreshed session. `None` inside: the session is over.
    pub(crate) refreshed: Option<Result<Option<Rc<Verified>>, Denial>>,
}

/// The reason why the caller is not authenticated yet.
pub(crate) enum NotAuthenticated {
    Denied(Denial),
    /// A password must be checked first, which takes long.
    PasswordCheckPending {
        check: Box<dyn FnOnce() -> bool + Send>,
        queue: Arc<CheckQueue>,
        mark: [u8; 32],
    },
    /// An external authorization service must respond first.
    ExternalCheckPending(Arc<External>),
    /// An authorization server must check the token first.
    IntrospectionPending(Arc<Introspector>, Question),
    /// The session must be refreshed first.
    RefreshPending {
        login: Arc<Login>,
        session: Arc<Session>,
        verified: Rc<Verified>,
    },
}

impl From<Denial> for NotAuthenticated {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

/// The credentials that a worker has verified.
pub(crate) struct Memories<'w> {
    pub(crate) tokens: &'w RefCell<TokenMemory>,
    pub(crate) passwords: &'w RefCell<PasswordMemory>,
    pub(crate) introspections: &'w Introspections,
}

impl Authentication {
    /// Tries the methods in order. Slow methods are last.
    pub(crate) fn identify(
        &self,
        request: &RequestView<'_>,
        consumers: &Consumers,
        memories: &Memories<'_>,
        awaited: &SlowCheckResults,
    ) -> Result<Identity, NotAuthenticated> {
        let mut is_unknown = self.require == Require::Optional;
        if !self.combinations.is_empty() {
            let checked = Checked { request, consumers, memories, awaited };
            return self.identify_by_combinations(&checked, is_unknown);
        }
        let mut identity = Identity::default();
        let mut denial = Denial::NoCredentials;
        for (number, method) in self.methods.iter().enumerate() {
            match self.identify_by(method, request, consumers, memories, awaited) {
                Ok(found) if self.require != Require::All => {
                    return Ok(Identity { by: Some(Methods::one(number)), ..found });
                }
                // The API key of one consumer does not complete the token of another consumer.
                Ok(found) if differ(identity.consumer, found.consumer) => {
                    return Err(Denial::AmbiguousCredentials.into());
                }
                Ok(found) => {
                    identity.consumer = identity.consumer.or(found.consumer);
                    identity.token = identity.token.or(found.token);
                    identity.answer = identity.answer.or(found.answer);
                    identity.keys |= found.keys;
                }
                Err(NotAuthenticated::Denied(found))
                    if self.require != Require::All && found != Denial::AmbiguousCredentials =>
                {
                    is_unknown &= found.is_for_lack_of_credentials();
                    if denial == Denial::NoCredentials {
                        denial = found;
                    }
                }
                Err(found) => return Err(found),
            }
        }
        if self.require == Require::All || is_unknown { Ok(identity) } else { Err(denial.into()) }
    }

    /// The identity by one method.
    pub(super) fn identify_by(
        &self,
        method: &Method,
        request: &RequestView<'_>,
        consumers: &Consumers,
        memories: &Memories<'_>,
        awaited: &SlowCheckResults,
    ) -> Result<Identity, NotAuthenticated> {
        let (HeadView { head, buf }, scope) = (request.head, &self.scope);
        let of_token = |token: Rc<Verified>| {
            let consumer = token.consumer(consumers, scope);
            Identity { consumer, token: Some(token), ..Identity::default() }
        };
        match method {
            Method::Unusable => Err(Denial::NoCredentials.into()),
            Method::ApiKey { places, .. } => {
                self.identify_by_key(places.iter().enumerate(), request.head, consumers)
            }
            Method::Jwt(tokens) => {
                let text = first(&tokens.places, head, buf)?.ok_or(Denial::NoCredentials)?;
                let mut memory = memories.tokens.borrow_mut();
                Ok(of_token(tokens.verify(&text, now(), &mut memory)?))
            }
            Method::Introspection(introspector) => {
                let text = first(&introspector.places, head, buf)?.ok_or(Denial::NoCredentials)?;
                let question = introspector.question(&text)?;
                let known = || memories.introspections.find(&question);
                match awaited.introspected.clone().or_else(known) {
                    Some(outcome) => Ok(of_token(outcome?)),
                    None => Err(NotAuthenticated::IntrospectionPending(introspector.clone(), question)),
                }
            }
            Method::Oidc(login) => {
                let found = match &awaited.refreshed {
                    Some(Ok(Some(refreshed))) => Found::Valid(refreshed.clone()),
                    Some(Ok(None)) => Found::None,
                    Some(Err(denial)) => return Err((*denial).into()),
                    None => login.find(request, now(), &mut memories.tokens.borrow_mut()),
                };
                match found {
                    Found::Valid(verified) => Ok(of_token(verified)),
                    Found::Due(verified, session) => {
                        Err(NotAuthenticated::RefreshPending { login: login.clone(), session, verified })
                    }
                    Found::None if is_navigation(request.head) => Err(Denial::Login.into()),
                    Found::None => Err(Denial::NoSession.into()),
                }
            }
            Method::Basic(passwords) => {
                let text = passwords.place.find(head, buf).map_err(|_| Denial::AmbiguousCredentials)?;
                let text = text.ok_or(Denial::NoCredentials)?;
                let credential = Credential::decode(&text).ok_or(Denial::Password)?;
                let consumer = consumers.of_user(credential.user(), scope);
                let mut memory = memories.passwords.borrow_mut();
                let mark = passwords.mark(&credential, &memory);
                match awaited.password.or_else(|| memory.knows(&mark).then_some(true)) {
                    Some(true) => Ok(Identity { consumer, ..Identity::default() }),
                    Some(false) => Err(Denial::Password.into()),
                    None => {
                        let check = Box::new(passwords.check(credential));
                        Err(NotAuthenticated::PasswordCheckPending {
                            check,
                            queue: passwords.queue.clone(),
                            mark,
                        })
                    }
                }
            }
            Method::Digest(passwords) => {
                let text = passwords.place.find(head, buf).map_err(|_| Denial::AmbiguousCredentials)?;
                let text = text.ok_or(Denial::NoCredentials)?;
                let request = (head.method_name.of(buf), head.target.of(buf));
                let user = passwords.verify(&text, request, SystemTime::now())?;
                Ok(Identity { consumer: consumers.of_user(user, scope), ..Identity::default() })
            }
            Method::External(external) => match awaited.answer_of(external) {
                None => Err(NotAuthenticated::ExternalCheckPending(external.clone())),
                Some(Err(denial)) => Err((*denial).into()),
                Some(Ok(answer)) => match answer.verdict {
                    Verdict::Admitted => Ok(Identity { answer: Some(answer.clone()), ..Identity::default() }),
                    Verdict::Forbidden | Verdict::Responded(_) => Err(Denial::CheckForbidden.into()),
                    Verdict::Unauthorized if external.sign_in().is_some() => Err(Denial::SignIn.into()),
                    Verdict::Unauthorized => Err(Denial::CheckUnauthorized.into()),
                },
            },
        }
    }
}

impl Authentication {
    /// The identity by the API key at the first of these numbered places that has a key.
    pub(super) fn identify_by_key<'p>(
        &self,
        places: impl Iterator<Item = (usize, &'p Place)>,
        HeadView { head, buf }: HeadView<'_>,
        consumers: &Consumers,
    ) -> Result<Identity, NotAuthenticated> {
        for (number, place) in places {
            if let Some(key) = place.find(head, buf).map_err(|_| Denial::AmbiguousCredentials)? {
                let consumer = consumers.of_key(&key, &self.scope)?;
                return Ok(Identity { consumer: Some(consumer), keys: 1 << number, ..Identity::default() });
            }
        }
        Err(Denial::NoCredentials.into())
    }
}

impl SlowCheckResults {
    fn answer_of(&self, external: &External) -> Option<&Result<Rc<Answer>, Denial>> {
        self.answers.iter().find(|(number, _)| *number == external.number()).map(|(_, answer)| answer)
    }
}

/// Whether these are two different consumers.
pub(super) fn differ(one: Option<u32>, other: Option<u32>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// The credential at the first place that has one.
fn first<'b>(places: &[Place], head: &RequestHead, buf: &'b [u8]) -> Result<Option<Cow<'b, [u8]>>, Denial> {
    for place in places {
        if let Some(found) = place.find(head, buf).map_err(|_| Denial::AmbiguousCredentials)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
