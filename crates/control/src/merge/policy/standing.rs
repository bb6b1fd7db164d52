//! The parts of a policy that are in force.

use std::sync::Arc;

use crate::object::{Kind, ObjectRef};

/// The state of a policy for one of its targets, or the state of a Consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The policy or the Consumer.
    pub object: ObjectRef,
    /// The target of a policy.
    pub target: Option<TargetName>,
    /// Whether the policy or the Consumer is in force, and if not, the reason.
    pub reason: Reason,
    /// The reason as a sentence; empty if there is nothing to add.
    pub message: String,
}

/// The target of a policy, in the policy's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetName {
    /// `Ingress` or `Service`.
    pub kind: Kind,
    /// Its name.
    pub name: Arc<str>,
    /// The port of the Service.
    pub section: Option<Arc<str>>,
}

/// Whether a policy or a Consumer is in force, and if not, the reason (Gateway API: `PolicyConditionReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The policy is in force as written.
    Accepted,
    /// The policy is in force, but more specific policies apply to some of the routes.
    Overridden,
    /// The policy cannot be honoured as written; the message says what the gateway does instead.
    Invalid,
    /// An older policy has the same target.
    Conflicted,
    /// The target does not exist.
    TargetNotFound,
    /// The Service exists, but has no such port.
    NoSuchPort,
    /// The target is an Ingress of another class, whose controller may report the state of the policy.
    Foreign,
}

impl Reason {
    /// Whether the policy is in force as written.
    #[must_use]
    pub fn is_accepted(self) -> bool {
        matches!(self, Self::Accepted | Self::Overridden)
    }

    /// The name of the reason in conditions.
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
