//! What of a policy is in force.

use std::sync::Arc;

use crate::object::{Kind, ObjectRef};

/// How a policy stands with one of its targets, or how a Consumer stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The policy or the Consumer.
    pub object: ObjectRef,
    /// The target of a policy.
    pub target: Option<TargetName>,
    /// Whether it is in force, and if not, why.
    pub reason: Reason,
    /// The same as a sentence; empty if there is nothing to add.
    pub message: String,
}

/// What a policy names, in its own namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetName {
    /// `Ingress` or `Service`.
    pub kind: Kind,
    /// Its name.
    pub name: Arc<str>,
    /// The port of the Service.
    pub section: Option<Arc<str>>,
}

/// Whether something is in force, and if not, why (Gateway API: `PolicyConditionReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It is in force as it is written.
    Accepted,
    /// It is in force, but more specific policies govern some of the routes.
    Overridden,
    /// It cannot be honoured as it is written; what is done instead is in the message.
    Invalid,
    /// An older policy has the same target.
    Conflicted,
    /// There is no such target.
    TargetNotFound,
    /// The Service is there, and has no such port.
    NoSuchPort,
    /// The target is an Ingress of another class, of which others may say how the policy stands.
    Foreign,
}

impl Reason {
    /// Whether it is in force as it is written.
    #[must_use]
    pub fn is_accepted(self) -> bool {
        matches!(self, Self::Accepted | Self::Overridden)
    }

    /// Its name, as conditions have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Overridden => "Overridden",
            Self::Invalid => "Invalid",
            Self::Conflicted => "Conflicted",
            Self::TargetNotFound | Self::NoSuchPort => "TargetNotFound",
            Self::Foreign => "Foreign",
        }
    }
}
