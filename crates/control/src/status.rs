//! The intended status of objects of Gateway API, for the generation that was translated.
//!
//! The types of conditions and their reasons have the names of Gateway API v1.7.

use std::sync::Arc;

use crate::address::StatusAddresses;
use crate::object::{Kind, ObjectRef};

/// The condition `Accepted`, and its reason if it is true.
pub(crate) const ACCEPTED: &str = "Accepted";

/// The condition `Programmed`.
pub(crate) const PROGRAMMED: &str = "Programmed";

/// The reason of `Programmed` while the data planes do not serve an object yet.
pub(crate) const PENDING: &str = "Pending";

/// The reason of a Gateway that cannot have the addresses that it requests.
pub(crate) const ADDRESS_NOT_USABLE: &str = "AddressNotUsable";

/// The reason of the condition `Programmed` of a ListenerSet whose Gateway is not programmed.
pub(crate) const PARENT_NOT_PROGRAMMED: &str = "ParentNotProgrammed";

/// The intended status of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStatus {
    pub(crate) object: ObjectRef,
    /// `metadata.generation` of the translated object.
    pub(crate) generation: Option<i64>,
    pub(crate) content: Content,
}

/// The part of a status that the gateway writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    GatewayClass {
        conditions: Vec<Condition>,
        /// The features that need a kind which the cluster does not have.
        lacking: Vec<&'static str>,
    },
    Gateway(GatewayStatus),
    ListenerSet(ListenerSetStatus),
    /// The parents of a route that are Gateways of ours or their ListenerSets.
    Route(Vec<ParentStatus>),
    /// The Gateways of ours whose routes name a target of a policy, each with the conditions of the policy there.
    Policy(Vec<(ObjectRef, Vec<Condition>)>),
    /// The Gateways of ours whose routes name an XBackend of release 1.6, each with the conditions of the XBackend there.
    BackendParents(Vec<(ObjectRef, Vec<Condition>)>),
    /// As `BackendParents`, of release 1.7.
    BackendAncestors(Vec<(ObjectRef, Vec<Condition>)>),
}

/// The status of a Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GatewayStatus {
    pub(crate) accepted: Condition,
    /// Whether its client certificate is usable, if it names one.
    pub(crate) resolved: Option<Condition>,
    /// Whether its listeners for HTTPS admit clients without a valid certificate although they validate certificates.
    pub(crate) is_insecure: bool,
    /// The reason why the data planes do not serve the Gateway.
    pub(crate) unprogrammed: Option<Fault>,
    pub(crate) addresses: StatusAddresses,
    pub(crate) listeners: Vec<ListenerStatus>,
    /// The number of accepted ListenerSets.
    pub(crate) attached_sets: usize,
}

/// The status of a ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerSetStatus {
    pub(crate) gateway: ObjectRef,
    pub(crate) accepted: Condition,
    /// The reason why the data planes do not serve the set.
    pub(crate) unprogrammed: Option<Fault>,
    /// The addresses of its Gateway.
    pub(crate) addresses: StatusAddresses,
    /// None, if the Gateway does not allow the set.
    pub(crate) listeners: Vec<ListenerStatus>,
}

/// The status of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerStatus {
    pub(crate) name: Arc<str>,
    /// The kinds of routes that the listener allows.
    pub(crate) kinds: Vec<Kind>,
    /// The number of routes that the listener accepts.
    pub(crate) attached_routes: usize,
    pub(crate) conditions: Vec<Condition>,
}

/// The status of a route for one of its parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParentStatus {
    /// The Gateway or the ListenerSet.
    pub(crate) parent: ObjectRef,
    /// The listener that the parent names.
    pub(crate) section: Option<Box<str>>,
    /// The port that the parent names.
    pub(crate) port: Option<u16>,
    pub(crate) conditions: Vec<Condition>,
}

impl ObjectStatus {
    /// Whether the object concerns a Gateway of ours. A status without entries only removes older entries.
    pub(crate) fn is_ours(&self) -> bool {
        match &self.content {
            Content::GatewayClass { .. } | Content::Gateway(_) | Content::ListenerSet(_) => true,
            Content::Route(parents) => !parents.is_empty(),
            Content::Policy(of) | Content::BackendParents(of) | Content::BackendAncestors(of) => {
                !of.is_empty()
            }
        }
    }

    /// Sets the reason why the data planes do not serve this object, if the object is an accepted Gateway.
    pub(crate) fn set_unprogrammed(&mut self, fault: &Fault) {
        if let Content::Gateway(gateway) = &mut self.content
            && gateway.accepted.is_true
        {
            gateway.unprogrammed = Some(fault.clone());
            set_pending(&mut gateway.listeners, fault);
        }
    }

    /// Sets the reason why the data planes do not serve the Gateway of this ListenerSet, if the set is accepted.
    pub(crate) fn set_parent_unprogrammed(&mut self, fault: &Fault) {
        if let Content::ListenerSet(set) = &mut self.content
            && set.accepted.is_true
        {
            set.unprogrammed = Some(Fault::new(PARENT_NOT_PROGRAMMED, fault.message.clone()));
            set_pending(&mut set.listeners, fault);
        }
    }
}

/// Listeners of a Gateway that no data plane serves yet are not programmed either.
fn set_pending(listeners: &mut [ListenerStatus], fault: &Fault) {
    let conditions = listeners.iter_mut().flat_map(|listener| &mut listener.conditions);
    for condition in conditions.filter(|condition| condition.name == PROGRAMMED && condition.is_true) {
        if fault.reason == PENDING {
            *condition = Condition::unless(PROGRAMMED, PROGRAMMED, Some(fault));
        }
    }
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// Its type.
    pub(crate) name: &'static str,
    pub(crate) is_true: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The reason why a condition is not as wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Condition {
    /// A condition that is true.
    pub(crate) fn met(name: &'static str, reason: &'static str) -> Self {
        Self { name, is_true: true, reason, message: String::new() }
    }

    /// A condition that is true without a fault; `reason` is its reason then.
    pub(crate) fn unless(name: &'static str, reason: &'static str, fault: Option<&Fault>) -> Self {
        match fault {
            None => Self::met(name, reason),
            Some(fault) => {
                Self { name, is_true: false, reason: fault.reason, message: fault.message.clone() }
            }
        }
    }
}

impl Fault {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}
