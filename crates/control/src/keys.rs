//! API keys of Consumers: issue, rotate, revoke. The objects keep only hashes.

use std::fmt::Write as _;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use sluicegate_model::value::syntax;

/// The number of random bytes of a key.
const KEY_BYTES: usize = 32;

/// The start of every key, by which scanners for secrets find keys.
const PREFIX: &str = "sgk_";

/// The most keys of a Consumer.
const KEYS_MAX: usize = 16;

/// The longest name of a key, in characters.
const NAME_MAX: usize = 63;

/// Why the keys of a Consumer cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The Consumer has no key with this name.
    #[error("the Consumer has no key {name:?}; its keys: {keys}")]
    NoSuchKey {
        /// The name.
        name: String,
        /// The names of the keys that exist.
        keys: String,
    },
    /// The Consumer has a key with this name.
    #[error("the Consumer has a key {0:?} already: write another --name")]
    Exists(String),
    /// The Consumer has as many keys as allowed.
    #[error(
        "the Consumer has {KEYS_MAX} keys, the most that are allowed: remove expired and revoked keys first (sluicegate key remove)"
    )]
    TooMany,
    /// A time is out of range.
    #[error("the time is out of range: write a time from 1s to 36500d")]
    Time,
    /// The key is valid, so its entry stays.
    #[error("the key {0:?} is valid: revoke the key before you remove it")]
    Valid(String),
    /// The key is not valid any more, so no new key takes its place.
    #[error("the key {0:?} is not valid any more: issue a new key (sluicegate key issue)")]
    NotValid(String),
    /// The name cannot be the name of a key.
    #[error("{0:?} cannot be the name of a key: write 1 to 63 characters of one line")]
    Name(String),
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    Random,
}

/// A new key.
pub struct IssuedKey {
    /// The key, which no object contains.
    pub key: String,
    /// Its name in the Consumer.
    pub name: String,
}

/// A key of a Consumer.
#[derive(Debug, PartialEq, Eq)]
pub struct ListedKey {
    /// Its name; empty if the entry has none.
    pub name: String,
    /// `Valid`, `Expired` or `Revoked`.
    pub state: &'static str,
    /// The end of its validity as written; empty without an end.
    pub expires: String,
}

/// The keys of a Consumer as written, in the object.
pub struct ConsumerKeys<'o>(&'o mut Map<String, Value>);

impl<'o> ConsumerKeys<'o> {
    /// The keys in the specification of a Consumer.
    pub fn of(spec: &'o mut Map<String, Value>) -> Self {
        Self(spec)
    }

    /// Adds a new key.
    ///
    /// # Errors
    ///
    /// The name exists, there are too many keys, or the time is out of range.
    pub fn issue(&mut self, name: Option<&str>, valid_for: Option<Duration>) -> Result<IssuedKey, KeyError> {
        self.issue_at(name, valid_for, Timestamp::now())
    }

    fn issue_at(
        &mut self,
        name: Option<&str>,
        valid_for: Option<Duration>,
        now: Timestamp,
    ) -> Result<IssuedKey, KeyError> {
        let mut random = [0; KEY_BYTES];
        rand::fill(&mut random).map_err(|_| KeyError::Random)?;
        let key = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
        let mut hash = String::new();
        for byte in digest(&SHA256, key.as_bytes()).as_ref() {
            // Writing to a String does not fail.
            let _ = write!(hash, "{byte:02x}");
        }
        let name = name.map_or_else(|| format!("key-{}", &hash[..8]), ToOwned::to_owned);
        if name.chars().count() > NAME_MAX || syntax::value_fault(&name).is_some() {
            return Err(KeyError::Name(name.chars().take(NAME_MAX).collect()));
        }
        let keys = self.list_mut();
        if keys.iter().any(|known| known["name"] == *name) {
            return Err(KeyError::Exists(name));
        }
        if keys.len() >= KEYS_MAX {
            return Err(KeyError::TooMany);
        }
        let mut entry = json!({"name": name, "sha256": hash});
        if let Some(valid_for) = valid_for {
            if valid_for.is_zero() {
                return Err(KeyError::Time);
            }
            entry["expires"] = later(now, valid_for)?.into();
        }
        keys.push(entry);
        Ok(IssuedKey { key, name })
    }

    /// Adds a new key in place of a key, which stays valid for `overlap`.
    ///
    /// # Errors
    ///
    /// There is no such key, there are too many keys, or the time is out of range.
    pub fn rotate(&mut self, name: &str, times: (Duration, Option<Duration>)) -> Result<IssuedKey, KeyError> {
        self.rotate_at(name, times, Timestamp::now())
    }

    fn rotate_at(
        &mut self,
        name: &str,
        (overlap, valid_for): (Duration, Option<Duration>),
        now: Timestamp,
    ) -> Result<IssuedKey, KeyError> {
        let end = later(now, overlap)?;
        self.entry(name)?;
        if !self.list_at(now).iter().any(|key| key.name == name && key.state == "Valid") {
            return Err(KeyError::NotValid(name.to_owned()));
        }
        let old = self.entry(name)?;
        // A key that ends earlier keeps its end.
        let ends_earlier = |written: &str| {
            written
                .parse::<Timestamp>()
                .is_ok_and(|known| end.parse().is_ok_and(|end: Timestamp| known < end))
        };
        if !old.get("expires").and_then(Value::as_str).is_some_and(ends_earlier) {
            old.insert("expires".to_owned(), end.into());
        }
        self.issue_at(None, valid_for, now)
    }

    /// Makes a key invalid at once. Its entry stays, so that callers learn the reason.
    ///
    /// # Errors
    ///
    /// There is no such key.
    pub fn revoke(&mut self, name: &str) -> Result<(), KeyError> {
        self.entry(name)?;
        // A manifest can have several keys with one name.
        for entry in self.list_mut().iter_mut().filter(|entry| entry["name"] == *name) {
            entry["revoked"] = true.into();
        }
        Ok(())
    }

    /// Removes the entry of an expired or revoked key. Callers with the key then learn that the key is unknown.
    ///
    /// # Errors
    ///
    /// There is no such key, or the key is valid.
    pub fn remove(&mut self, name: &str) -> Result<(), KeyError> {
        self.remove_at(name, Timestamp::now())
    }

    fn remove_at(&mut self, name: &str, now: Timestamp) -> Result<(), KeyError> {
        self.entry(name)?;
        if self.list_at(now).iter().any(|key| key.name == name && key.state == "Valid") {
            return Err(KeyError::Valid(name.to_owned()));
        }
        self.list_mut().retain(|entry| entry["name"] != *name);
        Ok(())
    }

    /// All keys.
    #[must_use]
    pub fn list(&self) -> Vec<ListedKey> {
        self.list_at(Timestamp::now())
    }

    fn list_at(&self, now: Timestamp) -> Vec<ListedKey> {
        let keys = self.0.get("apiKeys").and_then(Value::as_array);
        let of = |entry: &Value| {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            let expires = text("expires");
            let state = match () {
                () if entry["revoked"] == true => "Revoked",
                () if expires.parse::<Timestamp>().is_ok_and(|end| end <= now) => "Expired",
                () => "Valid",
            };
            ListedKey { name: text("name"), state, expires }
        };
        keys.into_iter().flatten().map(of).collect()
    }

    fn entry(&mut self, name: &str) -> Result<&mut Map<String, Value>, KeyError> {
        let names: Vec<String> =
            self.list_mut().iter().filter_map(|known| known["name"].as_str()).map(Into::into).collect();
        let found = self.list_mut().iter_mut().find(|known| known["name"] == *name);
        let keys = if names.is_empty() { "none with a name".to_owned() } else { names.join(", ") };
        found
            .and_then(Value::as_object_mut)
            .ok_or_else(|| KeyError::NoSuchKey { name: name.to_owned(), keys })
    }

    fn list_mut(&mut self) -> &mut Vec<Value> {
        let keys = self.0.entry("apiKeys").or_insert_with(|| json!([]));
        if !keys.is_array() {
            *keys = json!([]);
        }
        match keys {
            Value::Array(list) => list,
            _ => unreachable!("the value was made an array"),
        }
    }
}

fn later(now: Timestamp, after: Duration) -> Result<String, KeyError> {
    let after = SignedDuration::try_from(after).map_err(|_| KeyError::Time)?;
    let time = now.checked_add(after).map_err(|_| KeyError::Time)?;
    let whole = Timestamp::from_second(time.as_second()).map_err(|_| KeyError::Time)?;
    Ok(whole.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-26T12:00:00Z";
    const DAY: Duration = Duration::from_secs(86_400);

    fn consumer() -> Map<String, Value> {
        let spec = json!({"username": "alice", "apiKeys": [{"secretRef": {"name": "a"}}]});
        spec.as_object().unwrap().clone()
    }

    #[test]
    fn issued_key_is_random_and_the_object_has_only_its_hash() {
        let now: Timestamp = NOW.parse().unwrap();
        let mut spec = consumer();
        let mut keys = ConsumerKeys::of(&mut spec);
        let first = keys.issue_at(Some("first"), Some(90 * DAY), now).unwrap();
        let second = keys.issue_at(None, None, now).unwrap();
        assert!(first.key.starts_with("sgk_") && first.key.len() == 47 && first.key != second.key);
        assert!(matches!(keys.issue_at(Some("first"), None, now), Err(KeyError::Exists(_))));
        let text = Value::from(spec.clone()).to_string();
        assert!(!text.contains(&first.key) && !text.contains(&second.key));
        let entry = &spec["apiKeys"][1];
        assert_eq!(entry["expires"], "2027-02-24T12:00:00Z");
        let hash: String =
            digest(&SHA256, first.key.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(entry["sha256"], *hash);
        assert_eq!(spec["apiKeys"][0], json!({"secretRef": {"name": "a"}}), "others stay");
    }

    #[test]
    fn rotated_key_stays_valid_for_the_overlap() {
        let now: Timestamp = NOW.parse().unwrap();
        let mut spec = consumer();
        let mut keys = ConsumerKeys::of(&mut spec);
        keys.issue_at(Some("first"), Some(90 * DAY), now).unwrap();
        let second = keys.rotate_at("first", (DAY, None), now).unwrap();
        let listed: Vec<_> = keys.list_at(now).into_iter().skip(1).collect();
        assert_eq!(
            listed,
            [
                ListedKey { name: "first".into(), state: "Valid", expires: "2026-11-27T12:00:00Z".into() },
                ListedKey { name: second.name.clone(), state: "Valid", expires: String::new() },
            ]
        );
        let error = keys.rotate_at("other", (DAY, None), now).map(|key| key.name).unwrap_err();
        let expected = format!("the Consumer has no key \"other\"; its keys: first, {}", second.name);
        assert_eq!(error.to_string(), expected);
        keys.revoke(&second.name).unwrap();
        assert_eq!(keys.list_at(now)[2].state, "Revoked");
    }

    #[test]
    fn key_that_is_not_valid_is_not_rotated_and_no_key_is_issued_without_validity() {
        let now: Timestamp = NOW.parse().unwrap();
        let mut spec = consumer();
        let mut keys = ConsumerKeys::of(&mut spec);
        for name in ["revoked", "expired"] {
            keys.issue_at(Some(name), Some(DAY), now).unwrap();
        }
        keys.revoke("revoked").unwrap();
        let later = now.checked_add(SignedDuration::from_hours(25)).unwrap();
        for (name, now) in [("revoked", now), ("expired", later)] {
            assert!(matches!(keys.rotate_at(name, (DAY, None), now), Err(KeyError::NotValid(_))), "{name}");
        }
        assert!(matches!(keys.issue_at(Some("new"), Some(Duration::ZERO), now), Err(KeyError::Time)));
        assert_eq!(keys.list_at(now).len(), 3);
    }

    #[test]
    fn all_keys_with_a_name_are_revoked() {
        let keys =
            json!({"apiKeys": [{"name": "a", "sha256": "1"}, {"name": "b"}, {"name": "a", "sha256": "2"}]});
        let mut spec = keys.as_object().unwrap().clone();
        let mut keys = ConsumerKeys::of(&mut spec);
        keys.revoke("a").unwrap();
        let states: Vec<_> = keys.list().into_iter().map(|key| key.state).collect();
        assert_eq!(states, ["Revoked", "Valid", "Revoked"]);
    }

    #[test]
    fn only_invalid_key_is_removed() {
        let now: Timestamp = NOW.parse().unwrap();
        let mut spec = consumer();
        let mut keys = ConsumerKeys::of(&mut spec);
        for name in ["valid", "revoked", "expired"] {
            keys.issue_at(Some(name), (name == "expired").then_some(DAY), now).unwrap();
        }
        keys.revoke("revoked").unwrap();
        assert!(matches!(keys.remove_at("valid", now), Err(KeyError::Valid(_))));
        assert!(matches!(keys.remove_at("other", now), Err(KeyError::NoSuchKey { .. })));
        let later = now.checked_add(SignedDuration::from_hours(25)).unwrap();
        assert!(matches!(keys.remove_at("expired", now), Err(KeyError::Valid(_))));
        keys.remove_at("expired", later).unwrap();
        keys.remove_at("revoked", now).unwrap();
        let names: Vec<_> = keys.list_at(now).into_iter().map(|key| key.name).collect();
        assert_eq!(names, ["", "valid"]);
    }

    #[test]
    fn name_of_a_key_is_one_short_line() {
        let mut spec = consumer();
        let mut keys = ConsumerKeys::of(&mut spec);
        for name in ["", "a\nb", &"a".repeat(64)] {
            assert!(matches!(keys.issue(Some(name), None), Err(KeyError::Name(_))), "{name:?}");
        }
        assert!(keys.issue(Some(&"a".repeat(63)), None).is_ok());
    }
}
