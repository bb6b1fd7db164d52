//! The Consumers of policies, by their credentials.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use foldhash::{HashMap, HashSet};
use sluicegate_model::policy::consumer::{KeyTerms, TokenSubject};
use sluicegate_model::policy::{Consumer, KeyHash, Security};

use super::security::value_of;
use super::standing::{Reason, Standing};
use crate::intent::At;
use crate::object::ObjectRef;
use crate::object::policy::consumer::{self as object, KeySource};
use crate::object::policy::secret::{SecretValue, without_line_end};
use crate::problem::{Problem, Severity};
use crate::store::Store;

/// The shortest API key, in bytes.
const KEY_MIN: usize = 8;

/// A shorter key can be guessed.
const KEY_GOOD: usize = 16;

/// The result of all Consumers.
#[derive(Default)]
pub(super) struct Built {
    /// In the order of their ids.
    pub(super) consumers: Vec<Arc<Consumer>>,
    pub(super) problems: Vec<Problem>,
    pub(super) policy_statuses: Vec<Standing>,
}

/// The kinds of credentials that policies ask for.
#[derive(Clone, Copy, Default)]
struct Asked {
    keys: bool,
    tokens: bool,
    users: bool,
}

/// The kinds of credentials that the policies in force ask of the Consumers of each namespace.
#[derive(Default)]
struct Scopes {
    of_all: Asked,
    by_namespace: HashMap<Arc<str>, Asked>,
    /// The namespaces that one policy knows together.
    joined: HashSet<Vec<Arc<str>>>,
    all_are_joined: bool,
}

/// A credential, which identifies one Consumer of a namespace.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Credential {
    Key(KeyHash),
    Token(TokenSubject),
    User(Box<str>),
}

/// The Consumers that the policies know.
pub(super) fn build<'a>(store: &Store, policies: impl Iterator<Item = &'a Security>) -> Built {
    let scopes = Scopes::new(policies);
    let mut all: Vec<_> = store.all::<object::Consumer>().collect();
    all.sort_by_cached_key(|(object, consumer, origin)| At { object, origin }.age(consumer.created));
    let mut building =
        Building { store, scopes: &scopes, holders: HashMap::default(), built: Built::default() };
    for (object, consumer, origin) in all {
        building.add(At { object, origin }, consumer);
    }
    let mut built = building.built;
    built.consumers.sort_by(|one, other| one.id.cmp(&other.id));
    built
}

impl Scopes {
    fn new<'a>(policies: impl Iterator<Item = &'a Security>) -> Self {
        let mut scopes = Self::default();
        for Security { id, authentication, .. } in policies {
            let Some(authentication) = authentication else { continue };
            let asked = Asked {
                keys: authentication.api_key.is_some(),
                tokens: authentication.has_claims(),
                users: authentication.basic.is_some(),
            };
            match authentication.namespaces(&id.namespace) {
                None => {
                    scopes.of_all.merge(asked);
                    scopes.all_are_joined = true;
                }
                Some(namespaces) => {
                    for namespace in &namespaces {
                        scopes.by_namespace.entry(namespace.clone()).or_default().merge(asked);
                    }
                    if namespaces.len() > 1 {
                        scopes.joined.insert(namespaces);
                    }
                }
            }
        }
        scopes
    }

    fn of(&self, namespace: &Arc<str>) -> Asked {
        let mut asked = self.by_namespace.get(namespace).copied().unwrap_or_default();
        asked.merge(self.of_all);
        asked
    }

    /// Whether a policy knows the Consumers of both namespaces.
    fn join(&self, one: &Arc<str>, other: &Arc<str>) -> bool {
        self.all_are_joined || self.joined.iter().any(|set| set.contains(one) && set.contains(other))
    }
}

impl Asked {
    fn merge(&mut self, other: Self) {
        self.keys |= other.keys;
        self.tokens |= other.tokens;
        self.users |= other.users;
    }

    fn is_any(self) -> bool {
        self.keys || self.tokens || self.users
    }
}

/// Consumers while they are collected, the oldest first.
struct Building<'a> {
    store: &'a Store,
    scopes: &'a Scopes,
    /// The holders of each credential: the oldest of all, and the oldest of each other namespace.
    holders: HashMap<Credential, Vec<At<'a>>>,
    built: Built,
}

impl<'a> Building<'a> {
    fn add(&mut self, at: At<'a>, consumer: &object::Consumer) {
        let asked = self.scopes.of(&at.object.namespace);
        self.note_unused_credentials(at, consumer, asked);
        let mut fault = self.store.error_of(at.object);
        if asked.is_any() {
            let known = self.known(at, consumer, &mut fault);
            self.built.consumers.push(Arc::new(known));
        }
        let reason = if fault.is_some() { Reason::Invalid } else { Reason::Accepted };
        let message = fault.unwrap_or_default();
        self.built.policy_statuses.push(Standing {
            ancestors: Vec::new(),
            object: at.object.clone(),
            target: None,
            reason,
            message,
        });
    }

    /// Notes of credentials that no policy asks for.
    fn note_unused_credentials(&mut self, at: At<'_>, consumer: &object::Consumer, asked: Asked) {
        for (is_written, is_asked, field, what) in [
            (!consumer.keys.is_empty(), asked.keys, "spec.apiKeys", "API keys"),
            (!consumer.tokens.is_empty(), asked.tokens, "spec.tokens", "tokens (jwt, introspection, oidc)"),
            (!consumer.users.is_empty(), asked.users, "spec.basicUsers", "names and passwords (basic)"),
        ] {
            if is_written && !is_asked {
                let message = format!(
                    "is not used: no SecurityPolicy in effect knows this Consumer and accepts {what}"
                );
                self.built.problems.push(at.note(field, message));
            }
        }
    }

    /// A Consumer with the credentials that are its own. `fault` is the first faulty credential.
    fn known(&mut self, at: At<'a>, consumer: &object::Consumer, fault: &mut Option<String>) -> Consumer {
        let (mut keys, mut terms) = (Vec::new(), Vec::new());
        for (index, api_key) in &consumer.keys {
            let field = || format!("spec.apiKeys[{index}]");
            let key = match &api_key.source {
                KeySource::Secret(named) => self.key(at, named, field),
                KeySource::Hash(hash) => Ok(*hash),
            };
            match key {
                Ok(key) if self.takes(at, Credential::Key(key), field, fault) => {
                    if api_key.expires.is_some() || api_key.is_revoked {
                        let key = u32::try_from(keys.len()).unwrap_or(u32::MAX);
                        terms.push(KeyTerms { key, expires: api_key.expires, revoked: api_key.is_revoked });
                    }
                    keys.push(key);
                }
                Ok(_) => {}
                Err(reason) => {
                    let field = field();
                    let message = format!("{reason}; the key is rejected");
                    fault.get_or_insert_with(|| format!("{field}: {message}"));
                    self.built.problems.push(at.problem(Severity::Error, &field, message));
                }
            }
        }
        let mut tokens = Vec::new();
        for (index, token) in &consumer.tokens {
            if self.takes(at, Credential::Token(token.clone()), || format!("spec.tokens[{index}]"), fault) {
                tokens.push(token.clone());
            }
        }
        let mut users = Vec::new();
        for (index, user) in &consumer.users {
            if self.takes(at, Credential::User(user.clone()), || format!("spec.basicUsers[{index}]"), fault) {
                users.push(user.clone());
            }
        }
        if consumer.is_refused {
            let message =
                "cannot be used; requests with its credentials receive 503. Fix the errors of its fields";
            self.built.problems.push(at.problem(Severity::Error, "", message.to_owned()));
        }
        let (username, groups) = (consumer.username.clone(), consumer.groups.clone());
        Consumer { id: at.id(), username, groups, keys, tokens, users, refused: consumer.is_refused, terms }
    }

    /// The hash of the key in a Secret, or the reason why there is no key.
    fn key(
        &mut self,
        at: At<'_>,
        named: &SecretValue,
        field: impl Fn() -> String,
    ) -> Result<KeyHash, String> {
        let SecretValue { secret, key } = named;
        let value = without_line_end(value_of(self.store, named)?);
        let length = value.len();
        if length < KEY_MIN {
            return Err(format!(
                "data[{key}] of {secret} has {length} bytes: write at least {KEY_MIN}, better {KEY_GOOD} or more"
            ));
        }
        if !value.iter().all(|byte| matches!(byte, b'!'..=b'~')) {
            return Err(format!("data[{key}] of {secret} has spaces or bytes that a header cannot have"));
        }
        if length < KEY_GOOD {
            let message = format!(
                "data[{key}] of {secret} has {length} bytes and is easy to guess: write {KEY_GOOD} or more"
            );
            self.built.problems.push(at.warning(&field(), message));
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, value).as_ref());
        Ok(KeyHash(hash))
    }

    /// Whether a credential becomes this Consumer's: within a namespace the oldest Consumer owns it. Conflicts within a
    /// namespace, and between namespaces that one policy knows, are reported.
    fn takes(
        &mut self,
        at: At<'a>,
        credential: Credential,
        field: impl Fn() -> String,
        fault: &mut Option<String>,
    ) -> bool {
        let place = match self.holders.entry(credential) {
            Entry::Occupied(place) => place,
            // The most frequent case.
            Entry::Vacant(place) => {
                place.insert(vec![at]);
                return true;
            }
        };
        let (what, field) = (place.key().in_words(), &*field());
        let holders = place.into_mut();
        let same = holders.iter().find(|holder| holder.object.namespace == at.object.namespace).copied();
        // One Consumer of each namespace is enough for the report: there may be many.
        let joined = || {
            let first = holders.first()?;
            self.scopes.join(&first.object.namespace, &at.object.namespace).then_some(*first)
        };
        match same {
            Some(holder) if holder.object == at.object => {
                self.built.problems.push(at.warning(field, format!("{what} is written twice")));
                false
            }
            Some(holder) => {
                let message =
                    format!("{what} belongs to {} (older, or first by name), which keeps it", holder.object);
                fault.get_or_insert_with(|| format!("{field}: {message}"));
                self.built.problems.push(at.problem(Severity::Error, field, message));
                let message =
                    format!("{} also has {what} of this Consumer; this Consumer keeps it", at.object);
                self.built.problems.push(holder.warning("spec", message));
                false
            }
            None => {
                if let Some(holder) = joined() {
                    let tell = |at: At<'_>, other: &ObjectRef, field: &str| {
                        let message = format!(
                            "{what} also belongs to {other}; policies that know both use the first by namespace and name"
                        );
                        at.warning(field, message)
                    };
                    self.built.problems.push(tell(at, holder.object, field));
                    self.built.problems.push(tell(holder, at.object, "spec"));
                }
                holders.push(at);
                true
            }
        }
    }
}

impl Credential {
    /// The credential in words, without a key's value.
    fn in_words(&self) -> String {
        match self {
            Self::Key(_) => "the key".to_owned(),
            Self::Token(token) => format!("the token of {:?}", token.value),
            Self::User(user) => format!("the name {user:?}"),
        }
    }
}
