//! The parts of a policy that are in force.

use std::sync::Arc;

use crate::object::{Kind, ObjectRef};

/// The state of a policy for one of its targets, or the state of a Consumer, an Api, a Plan or a Subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The policy, the Consumer, the Api, the Plan or the Subscription.
    pub object: ObjectRef,
    /// The target of a policy.
    pub target: Option<TargetName>,
    /// The Gateways of the target that the gateway serves; none for a target without a Gateway.
    pub ancestors: Vec<Ancestor>,
    /// Whether the policy or the Consumer is in force, and if not, the reason.
    pub reason: Reason,
    /// The reason as a sentence; empty if there is nothing to add.
    pub message: String,
}

/// The target of a policy, in the policy's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetName {
    /// `Gateway`, `HTTPRoute`, `GRPCRoute`, `Api`, `Ingress` or `Service`.
    pub kind: Kind,
    /// Its name.
    pub name: Arc<str>,
    /// The listener of the Gateway, the rule of the route, the operation or set of the Api, or the port of the Service.
    pub section: Option<Arc<str>>,
}

/// A Gateway for which a policy has a state (Gateway API: `PolicyAncestorStatus`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// The Gateway.
    pub gateway: ObjectRef,
    /// The listener that the policy targets.
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
    /// The subscription waits for approval.
    Pending,
    /// The subscription is suspended or rejected.
    Suspended,
    /// An older policy has the same target.
    Conflicted,
    /// The target does not exist.
    TargetNotFound,
    /// The target exists, but has no such port, listener or rule.
    NoSuchSection,
    /// The target is a listener below HTTP, where no policy has an effect.
    BelowHttp,
    /// The target is of another class, whose controller may report the state of the policy.
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
            Self::Invalid | Self::BelowHttp => "Invalid",
            Self::Pending => "Pending",
            Self::Suspended => "Suspended",
            Self::Conflicted => "Conflicted",
            Self::TargetNotFound | Self::NoSuchSection => "TargetNotFound",
            Self::Foreign => "Foreign",
        }
    }
}
