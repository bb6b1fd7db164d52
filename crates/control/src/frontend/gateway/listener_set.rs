//! The ListenerSets of Gateways.

use std::collections::HashMap;

use crate::intent::At;
use crate::object::ObjectRef;
use crate::object::gateway::Gateway;
use crate::object::listener_set::{ListenerSet, PARENT_FIELD};
use crate::object::namespace::Namespace;
use crate::problem::Problem;
use crate::status::Fault;
use crate::store::Store;

/// A ListenerSet whose Gateway is served.
pub(super) struct Allowed<'a> {
    pub(super) at: At<'a>,
    pub(super) set: &'a ListenerSet,
    /// The place of its Gateway among the Gateways.
    pub(super) gateway: usize,
    /// The reason why the Gateway does not allow the set.
    pub(super) refusal: Option<Fault>,
}

/// The ListenerSets of these Gateways, the oldest set first.
pub(super) fn sets<'a>(
    store: &'a Store,
    gateways: impl Iterator<Item = (&'a ObjectRef, &'a Gateway)>,
    problems: &mut Vec<Problem>,
) -> Vec<Allowed<'a>> {
    let gateways: HashMap<&ObjectRef, (usize, &Gateway)> =
        gateways.enumerate().map(|(place, (object, gateway))| (object, (place, gateway))).collect();
    let sets = store.all::<ListenerSet>().map(|(object, set, origin)| (At { object, origin }, set));
    let mut sets: Vec<(At<'a>, &ListenerSet)> = sets.collect();
    sets.sort_by_cached_key(|(at, set)| at.age(set.created));
    let mut allowed = Vec::new();
    for (at, set) in sets {
        let Some(parent) = &set.gateway else { continue };
        let Some(&(place, gateway)) = gateways.get(parent) else {
            // A Gateway of another class reports itself.
            if !store.knows(parent) {
                let message = format!("{parent} does not exist; the listeners are not served");
                problems.push(at.warning(PARENT_FIELD, message));
            }
            continue;
        };
        let refusal = refusal(store, at, (parent, gateway));
        let problem = refusal.as_ref().map(|fault| at.warning(PARENT_FIELD, fault.message.clone()));
        problems.extend(problem);
        allowed.push(Allowed { at, set, gateway: place, refusal });
    }
    allowed
}

/// The reason why a Gateway does not allow a set.
fn refusal(store: &Store, at: At<'_>, (parent, gateway): (&ObjectRef, &Gateway)) -> Option<Fault> {
    let namespace = &at.object.namespace;
    if gateway.takes_sets_of(namespace, &parent.namespace, || store.namespace(namespace)) {
        return None;
    }
    let lacks_namespaces = gateway.selects_sets() && store.all::<Namespace>().next().is_none();
    let way_out = match lacks_namespaces {
        true => {
            "the gateway knows no Namespace. In a cluster, allow the gateway to get, list and watch namespaces"
        }
        false => "set spec.allowedListeners of the Gateway",
    };
    let message = format!(
        "{parent} does not allow ListenerSets of namespace {namespace}; the listeners are not served: {way_out}"
    );
    Some(Fault::new("NotAllowed", message))
}
