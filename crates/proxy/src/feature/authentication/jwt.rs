//! JSON Web Tokens (JWT) of callers.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_jwt::{Algorithm, Claims, Fault, KeySet, Rules, Token, Wanted};
use sluicegate_model::feature::ClaimRequirement;
use sluicegate_model::feature::Jwt;
use sluicegate_model::feature::authentication::jwt as feature;
use sluicegate_model::feature::authentication::jwt::{ClaimToHeader, ProviderKeys};

use sluicegate_model::value::secret::{self, FromSecret};

use super::consumer::{Consumers, Scope};
use super::credential::Place;
use super::oidc::Session;
use crate::failure::Denial;
use crate::openid::{Places, Published, keys_at};

/// The memory limit for the tokens that a worker remembers, in bytes. There is room for 10,000 tokens in turn, signed by
/// RSA with 2,048 bits, and for twice as many at most.
const REMEMBERED_MAX: usize = 48 * 1024 * 1024;

/// The memory of a remembered token in addition to its text, in bytes: mostly its claims.
const OVERHEAD: usize = 1024;

/// The accepted issuers of tokens, compiled.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// Unique in this process.
    number: u64,
    providers: Vec<Provider>,
    pub(crate) places: Vec<Place>,
    pub(crate) forwards: bool,
}

#[derive(Debug)]
struct Provider {
    rules: Rules,
    keys: Keys,
    /// Claims that become headers, with the names of these headers.
    headers: Vec<(Box<str>, Box<str>)>,
}

#[derive(Debug)]
enum Keys {
    Known(KeySet),
    /// The keys may change, and may not be there yet.
    Published(Arc<Published<KeySet>>),
}

/// A verified token.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) claims: Claims,
    /// The header lines for the endpoint.
    pub(crate) lines: Box<[u8]>,
    /// The end of its validity, in seconds since 1970.
    until: i64,
    /// The number of a table of consumers, and the token's consumer in that table.
    consumer: Cell<(u64, Option<u32>)>,
    /// The session of a browser, if the token is the ID token of a login.
    pub(crate) session: Option<Arc<Session>>,
}

impl Tokens {
    pub(in crate::feature) fn new(jwt: &Jwt, number: u64, places: &Places<KeySet>) -> Self {
        Self {
            number,
            providers: jwt.providers.iter().map(|provider| Provider::new(provider, places)).collect(),
            places: jwt.places().map(|place| Place::new(&place)).collect(),
            forwards: jwt.forward,
        }
    }

    /// The names of the headers that claims become.
    pub(in crate::feature) fn headers(&self) -> impl Iterator<Item = &str> {
        self.providers.iter().flat_map(|provider| &provider.headers).map(|(_, header)| &**header)
    }

    /// Whether no token can be verified.
    pub(in crate::feature) fn has_no_key(&self) -> bool {
        let is_empty = |provider: &Provider| matches!(&provider.keys, Keys::Known(keys) if keys.is_empty());
        self.providers.iter().all(is_empty)
    }

    /// Verifies a token, unless it is remembered as verified. `now` is in seconds since 1970.
    pub(crate) fn verify(
        &self,
        text: &[u8],
        now: i64,
        memory: &mut TokenMemory,
    ) -> Result<Rc<Verified>, Denial> {
        let keys = self.keys();
        if let Some(verified) = memory.find(keys, text) {
            return if verified.is_over(now) { Err(Denial::Token(Fault::Expired)) } else { Ok(verified) };
        }
        let verified = Rc::new(self.verify_anew(text, now, !memory.is_of_explanation)?);
        memory.remember(keys, text, &verified);
        Ok(verified)
    }

    /// The version of the keys that verify tokens now.
    fn keys(&self) -> VerifiedBy {
        let changes = |provider: &Provider| match &provider.keys {
            Keys::Known(_) => 0,
            Keys::Published(published) => published.changes(),
        };
        (self.number, self.providers.iter().map(changes).sum())
    }

    /// `may_want`: whether a token with an unknown key lets the gateway fetch the keys again.
    fn verify_anew(&self, text: &[u8], now: i64, may_want: bool) -> Result<Verified, Denial> {
        let token = Token::parse(text).map_err(Denial::Token)?;
        let named = token.issuer().and_then(|issuer| self.of(Some(issuer)).next());
        let mut denial = Denial::Token(Fault::Issuer);
        // If a provider names the token's issuer, only such providers decide.
        for provider in named.into_iter().chain(self.of(None).filter(|_| named.is_none())) {
            match provider.verify(&token, now, may_want) {
                Ok(verified) => return Ok(verified),
                Err(new) => denial = new,
            }
        }
        Err(denial)
    }

    /// The providers with this issuer, or without an issuer.
    fn of(&self, issuer: Option<&str>) -> impl Iterator<Item = &Provider> {
        self.providers.iter().filter(move |provider| provider.rules.issuer.as_deref() == issuer)
    }
}

impl Provider {
    fn new(provider: &feature::Provider, places: &Places<KeySet>) -> Self {
        let algorithms: Vec<_> =
            provider.algorithms.iter().filter_map(|name| Algorithm::parse(name.as_str())).collect();
        let known = |keys: Result<KeySet, _>| Keys::Known(keys.unwrap_or_default());
        let keys = match &provider.keys {
            // If all names are unknown, the provider accepts no algorithm, instead of all.
            _ if algorithms.is_empty() && !provider.algorithms.is_empty() => Keys::Known(KeySet::default()),
            ProviderKeys::Inline(text) => known(KeySet::given(text.as_bytes(), &algorithms)),
            ProviderKeys::Secret(FromSecret::Value(text)) => known(KeySet::given(text.get(), &algorithms)),
            ProviderKeys::Shared(FromSecret::Value(secret)) => {
                known(KeySet::shared(secret.get(), &algorithms))
            }
            ProviderKeys::Remote(source) if secret::authorities(&source.ca_certificate_ref).is_ok() => {
                Keys::Published(keys_at(places, source, &algorithms))
            }
            // No usable key: the provider rejects every token.
            ProviderKeys::Secret(_) | ProviderKeys::Shared(_) | ProviderKeys::Remote(_) => {
                Keys::Known(KeySet::default())
            }
        };
        let rules = Rules {
            issuer: provider.issuer.as_ref().map(|issuer| issuer.as_str().into()),
            audiences: provider.audiences.iter().map(|audience| audience.as_str().into()).collect(),
            clock_skew: provider.clock_skew.get(),
            allows_eternal: provider.allow_missing_expiry,
            required: provider.required_claims.iter().map(wanted).collect(),
        };
        Self { rules, keys, headers: claim_headers(&provider.claim_to_headers) }
    }

    fn verify(&self, token: &Token<'_>, now: i64, may_want: bool) -> Result<Verified, Denial> {
        let published;
        let keys = match &self.keys {
            Keys::Known(keys) => keys,
            Keys::Published(place) => {
                published = place.document().ok_or(Denial::KeysUnknown)?;
                &*published
            }
        };
        let verified = token.verify(keys).and_then(|claims| self.admit(claims, now));
        // Some issuers publish keys without a `kid`. Then an invalid signature is the only sign of new keys.
        if let (Err(Fault::UnknownKey | Fault::Signature), Keys::Published(place)) = (&verified, &self.keys)
            && may_want
        {
            place.want();
        }
        verified.map_err(Denial::Token)
    }

    /// Checks the claims of a token with a valid signature.
    fn admit(&self, claims: &Claims, now: i64) -> Result<Verified, Fault> {
        claims.check(&self.rules, now)?;
        let skew = self.rules.skew();
        let until = claims.expiry().map_or(i64::MAX, |expiry| expiry.saturating_add(skew));
        Ok(Verified::new(claims.clone(), claim_lines(claims, &self.headers), until, None))
    }
}

/// The header lines with claims for the endpoint.
pub(super) fn claim_lines(claims: &Claims, headers: &[(Box<str>, Box<str>)]) -> Vec<u8> {
    let mut lines = Vec::new();
    for (claim, header) in headers {
        if let Some(value) = claims.get(claim).and_then(in_header) {
            lines.extend_from_slice(format!("{header}: {value}\r\n").as_bytes());
        }
    }
    lines
}

/// The claims that become headers, with the names of these headers.
pub(super) fn claim_headers(source: &[ClaimToHeader]) -> Vec<(Box<str>, Box<str>)> {
    source.iter().map(|to| (to.claim.as_str().into(), to.header.as_str().into())).collect()
}

impl Verified {
    pub(super) fn new(claims: Claims, lines: Vec<u8>, until: i64, session: Option<Arc<Session>>) -> Self {
        Self { claims, lines: lines.into(), until, consumer: Cell::new((0, None)), session }
    }

    /// Whether the token has expired at this time, in seconds since 1970.
    pub(super) fn is_over(&self, now: i64) -> bool {
        now >= self.until
    }

    /// The consumer of the token.
    pub(crate) fn consumer(&self, consumers: &Consumers, scope: &Scope) -> Option<u32> {
        let (number, consumer) = self.consumer.get();
        if number == consumers.number {
            return consumer;
        }
        let consumer = consumers.of_token(&self.claims, scope);
        self.consumer.set((consumers.number, consumer));
        consumer
    }
}

pub(in crate::feature) fn wanted(claim: &ClaimRequirement) -> Wanted {
    let values = claim.values.iter().map(|value| value.as_str().into()).collect();
    Wanted { claim: claim.name.as_str().into(), values }
}

/// A claim as a header value: text, numbers, and lists of these separated by commas. The value cannot end the line.
fn in_header(value: &serde_json::Value) -> Option<String> {
    use serde_json::Value;
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(all) => all.iter().filter_map(in_header).collect::<Vec<_>>().join(","),
        Value::Null | Value::Object(_) => return None,
    };
    let is_clean = text.chars().all(|character| !character.is_control());
    (is_clean && !text.is_empty()).then_some(text)
}

/// The number of [`Tokens`], and the number of changes of their keys.
pub(super) type VerifiedBy = (u64, u64);

/// The tokens that a worker has verified, so that each token is verified once. When the tokens exceed the limit, the
/// worker forgets the older half.
#[derive(Debug, Default)]
pub(crate) struct TokenMemory {
    young: HashMap<Box<[u8]>, (VerifiedBy, Rc<Verified>)>,
    old: HashMap<Box<[u8]>, (VerifiedBy, Rc<Verified>)>,
    young_size: usize,
    /// Whether the tokens are of described requests, which change nothing: no keys are fetched for them.
    is_of_explanation: bool,
}

impl TokenMemory {
    /// An empty memory for described requests.
    pub(crate) fn of_explanation() -> Self {
        Self { is_of_explanation: true, ..Self::default() }
    }

    /// A token that these [`Tokens`] verified. Other [`Tokens`] may have other keys.
    pub(super) fn find(&mut self, number: VerifiedBy, text: &[u8]) -> Option<Rc<Verified>> {
        if let Some((of, verified)) = self.young.get(text) {
            return (*of == number).then(|| verified.clone());
        }
        let (text, (of, verified)) = self.old.remove_entry(text)?;
        if of != number {
            return None;
        }
        self.insert(text, number, verified.clone());
        Some(verified)
    }

    pub(super) fn remember(&mut self, number: VerifiedBy, text: &[u8], verified: &Rc<Verified>) {
        self.insert(text.into(), number, verified.clone());
    }

    fn insert(&mut self, text: Box<[u8]>, number: VerifiedBy, verified: Rc<Verified>) {
        // The text itself, and the text of the claims.
        let size = text.len() * 2 + verified.lines.len() + OVERHEAD;
        if self.young_size + size > REMEMBERED_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_size = 0;
        }
        self.young_size += size;
        self.young.insert(text, (number, verified));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_verified_tokens_stay_cached() {
        let lines = b"X-User: 42\r\n".to_vec();
        let verified = Rc::new(Verified::new(Claims::default(), lines, i64::MAX, None));
        let mut memory = TokenMemory::default();
        // A signature has 342 characters.
        let text = |number: usize| format!("{number:0700}").into_bytes();
        for number in 0..10_000 {
            memory.remember((1, 0), &text(number), &verified);
        }
        for _ in 0..2 {
            assert!((0..10_000).all(|number| memory.find((1, 0), &text(number)).is_some()));
        }
        assert!(memory.find((2, 0), &text(0)).is_none(), "by other keys");
    }
}
