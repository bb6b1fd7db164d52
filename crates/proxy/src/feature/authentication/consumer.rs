//! Finds the consumer of a credential.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::{constant_time, digest};
use foldhash::HashMap;
use sluicegate_jwt::Claims;
use sluicegate_model::policy::consumer::{KeyTerms, SubjectClaim};
use sluicegate_model::policy::{Consumer, KeyHash};

use crate::counters::ConsumerStats;
use crate::counters::Counters;
use crate::failure::Denial;
use crate::feature::quota::now;
use crate::hash::Fingerprint;

/// All consumers, compiled once for all workers.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    /// Unique among all tables of consumers.
    pub(crate) number: u64,
    all: Vec<Known>,
    keys: HashMap<[u8; 32], CredentialOwners>,
    tokens: HashMap<(SubjectClaim, Box<str>), CredentialOwners>,
    users: HashMap<Box<str>, CredentialOwners>,
}

/// A consumer and its counters.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) consumer: Arc<Consumer>,
    /// The header lines by which the gateway names the consumer to endpoints.
    pub(crate) lines: Box<[u8]>,
    pub(crate) stats: Arc<ConsumerStats>,
    pub(crate) fingerprint: Fingerprint,
    /// Whether the gateway refuses all requests of the consumer.
    pub(crate) is_refused: bool,
    /// Whether some of its keys have an end.
    has_terms: bool,
}

/// The consumers with one credential: mostly one consumer, or several from different namespaces.
#[derive(Debug, Default)]
struct CredentialOwners {
    first: u32,
    others: Vec<u32>,
}

/// The namespaces whose consumers count; `None`: all namespaces.
pub(crate) type Scope = Option<Vec<Arc<str>>>;

impl Consumers {
    /// The consumers of a configuration. Consumers that existed `before` retain their counters.
    pub(crate) fn new(all: &[Arc<Consumer>], before: &Self, counters: &Counters) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let stats: HashMap<_, _> =
            before.all.iter().map(|known| (&known.consumer.id, &known.stats)).collect();
        let mut table = Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            all: Vec::with_capacity(all.len()),
            keys: HashMap::default(),
            tokens: HashMap::default(),
            users: HashMap::default(),
        };
        for consumer in all {
            let index = u32::try_from(table.all.len()).unwrap_or(u32::MAX);
            for KeyHash(key) in &consumer.keys {
                add(&mut table.keys, *key, index);
            }
            for token in &consumer.tokens {
                add(&mut table.tokens, (token.claim, token.value.clone()), index);
            }
            for user in &consumer.users {
                add(&mut table.users, user.clone(), index);
            }
            let known = stats.get(&consumer.id).map(|stats| Arc::clone(stats));
            let stats = known.unwrap_or_else(|| counters.new_consumer(table.all.len()));
            table.all.push(Known {
                consumer: consumer.clone(),
                lines: lines(consumer),
                stats,
                fingerprint: Fingerprint::of(&consumer.id),
                is_refused: consumer.refused,
                has_terms: !consumer.terms.is_empty(),
            });
        }
        table
    }

    /// Whether this table was compiled from exactly these consumers.
    pub(crate) fn is_of(&self, all: &[Arc<Consumer>]) -> bool {
        self.all.len() == all.len()
            && self.all.iter().zip(all).all(|(known, consumer)| Arc::ptr_eq(&known.consumer, consumer))
    }

    pub(crate) fn get(&self, index: u32) -> &Known {
        &self.all[index as usize]
    }

    /// All consumers, for the admin interface.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Known> {
        self.all.iter()
    }

    /// The consumer with this API key, if the key is valid.
    pub(crate) fn of_key(&self, key: &[u8], scope: &Scope) -> Result<u32, Denial> {
        let (index, hash) = self.owner_of_key(key, scope).ok_or(Denial::Key)?;
        let Known { consumer, has_terms, .. } = self.get(index);
        if !has_terms {
            return Ok(index);
        }
        let place = consumer.keys.iter().position(|KeyHash(known)| *known == hash);
        let is_of_key = |terms: &&KeyTerms| usize::try_from(terms.key).ok() == place;
        match consumer.terms.iter().find(is_of_key) {
            Some(terms) if terms.revoked => Err(Denial::KeyRevoked),
            Some(KeyTerms { expires: Some(end), .. }) if *end <= now() => Err(Denial::KeyExpired),
            _ => Ok(index),
        }
    }

    /// The consumer with this API key, and the hash of the key.
    fn owner_of_key(&self, key: &[u8], scope: &Scope) -> Option<(u32, [u8; 32])> {
        let hash = digest::digest(&digest::SHA256, key);
        let hash: [u8; 32] = hash.as_ref().try_into().ok()?;
        let (found, few) = self.keys.get_key_value(&hash)?;
        // The table compares byte by byte, but compares a hash that a caller cannot choose.
        constant_time::verify_slices_are_equal(found, &hash).ok()?;
        Some((self.within(few, scope, |_| true)?, hash))
    }

    /// The consumer with these claims.
    pub(crate) fn of_token(&self, claims: &Claims, scope: &Scope) -> Option<u32> {
        if self.tokens.is_empty() {
            return None;
        }
        let issuer = claims.text("iss");
        let client = claims.text("client_id").or_else(|| claims.text("azp"));
        let said = [(SubjectClaim::Subject, claims.text("sub")), (SubjectClaim::ClientId, client)];
        said.into_iter().find_map(|(claim, value)| {
            let value = value?;
            let few = self.tokens.get(&(claim, value.into()))?;
            self.within(few, scope, |consumer| {
                let mut tokens = consumer.tokens.iter();
                tokens.any(|token| {
                    token.claim == claim
                        && *token.value == *value
                        && token.issuer.as_deref().is_none_or(|of| Some(of) == issuer)
                })
            })
        })
    }

    /// The consumer with this user name for Basic authentication.
    pub(crate) fn of_user(&self, user: &str, scope: &Scope) -> Option<u32> {
        self.within(self.users.get(user)?, scope, |_| true)
    }

    fn within(
        &self,
        few: &CredentialOwners,
        scope: &Scope,
        is_right: impl Fn(&Consumer) -> bool,
    ) -> Option<u32> {
        few.iter().find(|index| {
            let consumer = &self.get(*index).consumer;
            let is_known = |namespaces: &Vec<Arc<str>>| namespaces.contains(&consumer.id.namespace);
            scope.as_ref().is_none_or(is_known) && is_right(consumer)
        })
    }
}

impl CredentialOwners {
    fn iter(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }
}

fn add<K: Hash + Eq>(table: &mut HashMap<K, CredentialOwners>, key: K, index: u32) {
    table
        .entry(key)
        .and_modify(|few| few.others.push(index))
        .or_insert(CredentialOwners { first: index, others: Vec::new() });
}

fn lines(consumer: &Consumer) -> Box<[u8]> {
    let mut lines = format!("X-Consumer-Username: {}\r\n", consumer.username);
    if !consumer.groups.is_empty() {
        lines.push_str(&format!("X-Consumer-Groups: {}\r\n", consumer.groups.join(",")));
    }
    lines.into_bytes().into()
}
