//! What a token says, and what it has to say.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::Fault;

/// What a verified token says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims(pub(crate) Map<String, Value>);

/// What tokens of an issuer have to say.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// What `iss` has to be; anything, if there is none.
    pub issuer: Option<Box<str>>,
    /// Of which `aud` has to name one; anything, if it is empty.
    pub audiences: Vec<Box<str>>,
    /// How far clocks may be apart.
    pub clock_skew: Duration,
    /// Whether a token without `exp` is taken.
    pub allows_eternal: bool,
    /// What else.
    pub required: Vec<Wanted>,
}

/// A claim, and values of which it has to have one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name, see [`Claims::get`].
    pub claim: Box<str>,
    /// The values; any, if it is empty.
    pub values: Vec<Box<str>>,
}

impl Rules {
    /// How far clocks may be apart, in whole seconds: rather one too many.
    #[must_use]
    pub fn skew(&self) -> i64 {
        let seconds = self.clock_skew.as_secs() + u64::from(self.clock_skew.subsec_nanos() > 0);
        i64::try_from(seconds).unwrap_or(i64::MAX)
    }
}

impl Claims {
    /// The claim of this name; if there is none, and the name has dots, what they lead to, object by object, as in
    /// `realm_access.roles`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).or_else(|| {
            let (first, rest) = name.split_once('.')?;
            rest.split('.').try_fold(self.0.get(first)?, |value, name| value.get(name))
        })
    }

    /// The claim of this name, if it is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// Until when the token is valid, in seconds since 1970.
    #[must_use]
    pub fn expiry(&self) -> Option<i64> {
        self.time("exp").ok()?
    }

    /// Whether there is such a claim with one of the values: as text, as a number or `true` as JSON writes it, in a list of
    /// these, or among the words of `scope` and `scp` (RFC 8693, 4.2).
    #[must_use]
    pub fn has(&self, wanted: &Wanted) -> bool {
        let Some(claim) = self.get(&wanted.claim) else { return false };
        if wanted.values.is_empty() {
            return !claim.is_null();
        }
        let is_scope = matches!(&*wanted.claim, "scope" | "scp");
        match claim {
            Value::String(words) if is_scope => words.split(' ').any(|word| wanted.names(word)),
            Value::Array(all) => all.iter().any(|value| wanted.is(value)),
            value => wanted.is(value),
        }
    }

    /// Checks all but the signature. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// The first rule that is not kept.
    pub fn check(&self, rules: &Rules, now: i64) -> Result<(), Fault> {
        if rules.issuer.as_deref().is_some_and(|issuer| self.text("iss") != Some(issuer)) {
            return Err(Fault::Issuer);
        }
        if !rules.audiences.is_empty() {
            let wanted = |audience: &Value| {
                audience.as_str().is_some_and(|audience| rules.audiences.iter().any(|one| **one == *audience))
            };
            let is_ours = match self.0.get("aud") {
                Some(Value::Array(all)) => all.iter().any(wanted),
                Some(one) => wanted(one),
                None => false,
            };
            if !is_ours {
                return Err(Fault::Audience);
            }
        }
        let skew = rules.skew();
        match self.time("exp")? {
            Some(end) if now >= end.saturating_add(skew) => return Err(Fault::Expired),
            None if !rules.allows_eternal => return Err(Fault::Eternal),
            _ => {}
        }
        if self.time("nbf")?.is_some_and(|start| now < start.saturating_sub(skew)) {
            return Err(Fault::NotYetValid);
        }
        match rules.required.iter().all(|wanted| self.has(wanted)) {
            true => Ok(()),
            false => Err(Fault::Claim),
        }
    }

    /// A time (RFC 7519, 2, NumericDate), which may have a fraction.
    fn time(&self, name: &str) -> Result<Option<i64>, Fault> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let number = value.as_i64().or_else(|| {
            let number = value.as_f64()?;
            // What is too far away is as far as a number goes: the cast saturates.
            Some(number.floor() as i64)
        });
        number.map(Some).ok_or(Fault::Malformed)
    }
}

impl Wanted {
    fn names(&self, text: &str) -> bool {
        self.values.iter().any(|value| **value == *text)
    }

    fn is(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.names(text),
            Value::Bool(_) | Value::Number(_) => self.names(&value.to_string()),
            _ => false,
        }
    }
}
