//! Changes that users request: keys of Consumers, and subscriptions.
//!
//! A change is a POST request with JSON. The caller of this crate makes the change where the object is written.

use std::pin::Pin;
use std::time::Duration;

use hyper::StatusCode;
use serde::Deserialize;
use sluicegate_model::Decision;

use crate::users::Name;

/// The longest period of validity and overlap, in hours: ten years.
const HOURS_MAX: u32 = 87_600;

/// The overlap without `overlap_hours`, as of `sluicegate key rotate`.
const OVERLAP_HOURS: u32 = 24;

/// Makes changes.
pub trait Changes: Send + Sync {
    /// Whether a change needs a token of the user for the Kubernetes API.
    fn needs_token(&self) -> bool;

    /// Makes a change, with the rights of the token if it is needed.
    fn change(&self, change: Change, token: Option<String>) -> Changing;
}

/// A change that is being made.
pub type Changing = Pin<Box<dyn Future<Output = Result<Option<NewKey>, ChangeError>> + Send>>;

/// A new key. The key is shown once, in the response.
pub struct NewKey {
    /// The name of the key.
    pub name: String,
    /// The key itself.
    pub key: String,
}

/// The reason why an object is not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeError {
    /// The status of the response.
    pub status: StatusCode,
    /// The error and the remedy.
    pub message: String,
    /// Whether the message is only for operators: it may name files and rights of the gateway.
    pub is_private: bool,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A change of the keys of a Consumer.
    Key {
        /// The Consumer.
        consumer: Name,
        /// The change.
        change: KeyChange,
    },
    /// A decision about a Subscription.
    Decide {
        /// The Subscription.
        subscription: Name,
        /// The decision.
        decision: Decision,
    },
    /// A new Subscription of a Consumer to an Api, by a Plan of the namespace of the Api.
    Subscribe {
        /// The Consumer.
        consumer: Name,
        /// The Api.
        api: Name,
        /// The name of the Plan.
        plan: String,
    },
    /// The end of a Subscription, which its user requests.
    Cancel {
        /// The Subscription.
        subscription: Name,
    },
}

/// A change of the keys of a Consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// Adds a new key.
    Issue {
        /// The name; by default, a part of the hash of the key.
        name: Option<String>,
        /// The period of validity; `None`: no end.
        valid_for: Option<Duration>,
    },
    /// Adds a new key in place of a key.
    Rotate {
        /// The name of the old key.
        name: String,
        /// The time for which the old key stays valid.
        overlap: Duration,
        /// The period of validity of the new key; `None`: no end.
        valid_for: Option<Duration>,
    },
    /// Makes a key invalid.
    Revoke {
        /// The name of the key.
        name: String,
    },
    /// Removes the entry of an invalid key.
    Remove {
        /// The name of the key.
        name: String,
    },
}

/// A change as a browser writes it.
#[derive(Deserialize)]
#[serde(tag = "change", rename_all = "lowercase", deny_unknown_fields)]
enum Written {
    Issue { consumer: Name, key: Option<String>, valid_hours: Option<u32> },
    Rotate { consumer: Name, key: String, overlap_hours: Option<u32>, valid_hours: Option<u32> },
    Revoke { consumer: Name, key: String },
    Remove { consumer: Name, key: String },
    Approve { subscription: Name },
    Reject { subscription: Name },
    Suspend { subscription: Name },
    Resume { subscription: Name },
    Subscribe { consumer: Name, api: Name, plan: String },
    Cancel { subscription: Name },
}

impl Change {
    /// Reads a change.
    ///
    /// # Errors
    ///
    /// If the text is no change, with the reason.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        let written: Written = serde_json::from_slice(body)
            .map_err(|error| format!("The body of the request is no change: {error}."))?;
        let hours = |name: &str, hours: u32, least: u32| match (least..=HOURS_MAX).contains(&hours) {
            true => Ok(Duration::from_secs(u64::from(hours) * 3600)),
            false => Err(format!("{name} is no number from {least} to {HOURS_MAX}.")),
        };
        let valid = |written: Option<u32>| written.map(|of| hours("valid_hours", of, 1)).transpose();
        let decide = |subscription, decision| Self::Decide { subscription, decision };
        let (consumer, change) = match written {
            Written::Issue { consumer, key, valid_hours } => {
                let name = key.filter(|name| !name.is_empty());
                (consumer, KeyChange::Issue { name, valid_for: valid(valid_hours)? })
            }
            Written::Rotate { consumer, key: name, overlap_hours, valid_hours } => {
                let overlap = hours("overlap_hours", overlap_hours.unwrap_or(OVERLAP_HOURS), 0)?;
                (consumer, KeyChange::Rotate { name, overlap, valid_for: valid(valid_hours)? })
            }
            Written::Revoke { consumer, key: name } => (consumer, KeyChange::Revoke { name }),
            Written::Remove { consumer, key: name } => (consumer, KeyChange::Remove { name }),
            Written::Approve { subscription } => return Ok(decide(subscription, Decision::Approve)),
            Written::Reject { subscription } => return Ok(decide(subscription, Decision::Reject)),
            Written::Suspend { subscription } => return Ok(decide(subscription, Decision::Suspend)),
            Written::Resume { subscription } => return Ok(decide(subscription, Decision::Resume)),
            Written::Subscribe { consumer, api, plan } => {
                return Ok(Self::Subscribe { consumer, api, plan });
            }
            Written::Cancel { subscription } => return Ok(Self::Cancel { subscription }),
        };
        Ok(Self::Key { consumer, change })
    }

    /// The change in words for the log, without a secret.
    pub(crate) fn in_words(&self) -> String {
        match self {
            Self::Key { consumer, change } => match change {
                KeyChange::Issue { .. } => format!("issue a key of Consumer {consumer}"),
                KeyChange::Rotate { name, .. } => format!("rotate the key {name:?} of Consumer {consumer}"),
                KeyChange::Revoke { name } => format!("revoke the key {name:?} of Consumer {consumer}"),
                KeyChange::Remove { name } => format!("remove the key {name:?} of Consumer {consumer}"),
            },
            Self::Decide { subscription, decision } => {
                format!("{} Subscription {subscription}", decision.verb())
            }
            Self::Subscribe { consumer, api, plan } => {
                format!("subscribe Consumer {consumer} to Api {api} by Plan {plan:?}")
            }
            Self::Cancel { subscription } => format!("cancel Subscription {subscription}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_read_within_its_bounds() {
        let issue = Change::read(br#"{"change": "issue", "consumer": "shop/a", "valid_hours": 24}"#);
        let consumer = Name { namespace: "shop".to_owned(), name: "a".to_owned() };
        let change = KeyChange::Issue { name: None, valid_for: Some(Duration::from_secs(86_400)) };
        assert_eq!(issue, Ok(Change::Key { consumer, change }));
        for wrong in [
            "",
            "[]",
            r#"{"change": "delete", "consumer": "shop/a"}"#,
            r#"{"change": "issue", "consumer": "shop"}"#,
            r#"{"change": "issue", "consumer": "a/b/c"}"#,
            r#"{"change": "issue", "consumer": "a/../b"}"#,
            r#"{"change": "issue", "consumer": "a/b\u001b"}"#,
            r#"{"change": "issue", "consumer": "shop/a", "valid_hours": 0}"#,
            r#"{"change": "issue", "consumer": "shop/a", "valid_hours": 87601}"#,
            r#"{"change": "issue", "consumer": "shop/a", "sha256": "00"}"#,
            r#"{"change": "rotate", "consumer": "shop/a", "key": "k", "overlap_hours": -1}"#,
        ] {
            assert!(Change::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
