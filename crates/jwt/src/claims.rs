//! The claims of a token, and the rules for claims.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::{Fault, token};

/// The claims of a verified token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims(pub(crate) Map<String, Value>);

/// The rules for the tokens of an issuer.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The required value of `iss`. `None`: any value.
    pub issuer: Option<Box<str>>,
    /// The audiences, of which `aud` must contain at least one. Empty: any audience.
    pub audiences: Vec<Box<str>>,
    /// The tolerated clock difference.
    pub clock_skew: Duration,
    /// Whether a token without `exp` is accepted.
    pub allows_eternal: bool,
    /// Further conditions.
    pub required: Vec<Wanted>,
}

/// A condition on a claim: its value is one of the allowed values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The claim's name, see [`Claims::get`].
    pub claim: Box<str>,
    /// The allowed values. Empty: any value.
    pub values: Vec<Box<str>>,
}

impl Rules {
    /// The tolerated clock difference in whole seconds, rounded up.
    #[must_use]
    pub fn skew(&self) -> i64 {
        let seconds = self.clock_skew.as_secs() + u64::from(self.clock_skew.subsec_nanos() > 0);
        i64::try_from(seconds).unwrap_or(i64::MAX)
    }
}

impl Claims {
    /// The claims in a JSON object from a trusted source, such as a response of the authorization server (RFC 7662, 2.2).
    ///
    /// # Errors
    /// The text is no JSON object, or too long.
    pub fn parse(json: &[u8]) -> Result<Self, Fault> {
        if json.len() > token::MAX {
            return Err(Fault::TooLong);
        }
        serde_json::from_slice(json).map(Self).map_err(|_| Fault::Malformed)
    }

    /// The claim with this name. If the token has no such claim, dots in the name select fields of objects, as in
    /// `realm_access.roles`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).or_else(|| {
            let (first, rest) = name.split_once('.')?;
            rest.split('.').try_fold(self.0.get(first)?, |value, name| value.get(name))
        })
    }

    /// The claim with this name, if the claim is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// The expiry of the token, in seconds since 1970.
    #[must_use]
    pub fn expiry(&self) -> Option<i64> {
        self.time("exp").ok()?
    }

    /// Whether the token has the claim with one of the values. The claim is text, a number or `true` in the notation of
    /// JSON, a list of these, or the words of `scope` and `scp` (RFC 8693, 4.2).
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

    /// Checks all rules. The caller has checked the signature. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// The first broken rule.
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

    /// A time in seconds since 1970 (RFC 7519, 2, NumericDate). The claim may have a fraction.
    ///
    /// # Errors
    /// The claim is no number.
    pub fn time(&self, name: &str) -> Result<Option<i64>, Fault> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let number = value.as_i64().or_else(|| {
            let number = value.as_f64()?;
            // The cast saturates for numbers beyond the range.
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
