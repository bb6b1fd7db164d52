//! Decisions about Subscriptions.

use serde_json::{Map, Value};

/// A decision of an operator about a Subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The Subscription is active by its plan, also with `approval: Manual`.
    Approve,
    /// The Consumer may not call.
    Reject,
    /// The Consumer may not call for now.
    Suspend,
    /// Ends a suspension.
    Resume,
}

impl Decision {
    /// Writes the decision into the specification of a Subscription.
    pub fn write(self, spec: &mut Map<String, Value>) {
        match self {
            Self::Approve => spec.insert("approval".to_owned(), "Approved".into()),
            Self::Reject => spec.insert("approval".to_owned(), "Rejected".into()),
            Self::Suspend => spec.insert("suspended".to_owned(), true.into()),
            Self::Resume => spec.remove("suspended"),
        };
    }

    /// Whether the specification of a Subscription has a decision against the Consumer.
    #[must_use]
    pub fn is_against(spec: &Map<String, Value>) -> bool {
        let approval = spec.get("approval").and_then(Value::as_str);
        approval == Some("Rejected") || spec.get("suspended") == Some(&Value::Bool(true))
    }

    /// The verb, for logs.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
        }
    }
}
