//! The subscriptions to Apis: which Consumer may call which operations, by which Plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use sluicegate_model::ObjectId;
use sluicegate_model::policy::{self, SubscriptionState, Subscriptions};

use crate::intent::{At, Intents};
use crate::merge::policy::rate_limit;
use crate::merge::policy::standing::{Reason, Standing};
use crate::object::ObjectRef;
use crate::object::api::Api;
use crate::object::api::lifecycle::LifecycleState;
use crate::object::api::written::SubscriptionNeed;
use crate::object::plan::written::{Approval, ApprovalMode};
use crate::object::plan::{Plan, Subscribed, Subscription};
use crate::problem::Severity;
use crate::store::Store;

/// The subscriptions to all Apis.
#[derive(Default)]
pub(super) struct AllSubscriptions<'a> {
    plans: HashMap<&'a ObjectRef, Arc<policy::Plan>>,
    /// By the Api, those with operation sets first, and then the oldest first.
    by_api: HashMap<&'a ObjectRef, Vec<Entry<'a>>>,
}

/// A subscription to an Api.
struct Entry<'a> {
    object: &'a ObjectRef,
    subscription: &'a Subscription,
    sets: Option<&'a [Arc<str>]>,
    state: SubscriptionState,
}

impl<'a> AllSubscriptions<'a> {
    /// The subscriptions of the store, with their states and the states of plans.
    pub(super) fn new(store: &'a Store, intents: &mut Intents<'a>) -> Self {
        let mut all = Self::default();
        for (object, plan, origin) in store.all::<Plan>() {
            let at = At { object, origin };
            let (terms, unshared) = rate_limit::complete_plan(store, at, plan, &mut intents.problems);
            all.plans.insert(object, Arc::new(terms));
            let fault = store.error_of(object).or(unshared);
            intents.standings.push(standing(object, fault.map(|fault| (Reason::Invalid, fault))));
        }
        let mut subscriptions: Vec<_> = store
            .all::<Subscription>()
            .map(|(object, subscription, origin)| (At { object, origin }, subscription))
            .collect();
        subscriptions.sort_by_cached_key(|(at, subscription)| at.age(subscription.created));
        for (at, subscription) in subscriptions {
            all.add(store, at, subscription, intents);
        }
        for entries in all.by_api.values_mut() {
            entries.sort_by_key(|entry| entry.sets.is_none());
        }
        all
    }

    fn add(
        &mut self,
        store: &'a Store,
        at: At<'a>,
        subscription: &'a Subscription,
        intents: &mut Intents<'a>,
    ) {
        let mut first = store.error_of(at.object);
        let mut fault = |field: &str, message: String| {
            first.get_or_insert_with(|| format!("{field}: {message}"));
            intents.problems.push(at.problem(Severity::Error, field, message));
        };
        let plan = store.get::<Plan>(&subscription.plan);
        if plan.is_none() {
            let message = format!("{} does not exist; the Consumer may not call", subscription.plan);
            fault("spec.planRef", message);
        }
        if !store.knows(&subscription.consumer) {
            fault("spec.consumerRef", format!("{} does not exist", subscription.consumer));
        }
        let mut late = false;
        for of in &subscription.apis {
            let Subscribed { index, api: name, sets } = of;
            let field = format!("spec.apis[{index}]");
            let Some(api) = store.get::<Api>(name) else {
                fault(&field, format!("{name} does not exist"));
                continue;
            };
            for set in sets.iter().flatten() {
                if !api.sets.iter().any(|known| known.name == *set) {
                    fault(&format!("{field}.operationSets"), format!("{name} has no operation set {set:?}"));
                }
            }
            let end = api.lifecycle.deprecation.filter(|_| api.lifecycle.state == LifecycleState::Deprecated);
            if end.zip(subscription.created).is_some_and(|(end, created)| created > end) {
                late = true;
                let message = format!("is younger than the deprecation of {name}; the Consumer may not call");
                fault(&field, message);
            }
        }
        let is_pending = plan.is_some_and(|plan| plan.approval == ApprovalMode::Manual);
        let state = match (plan, subscription.approval) {
            (None, _) => SubscriptionState::Invalid,
            _ if late => SubscriptionState::Invalid,
            _ if subscription.is_suspended => SubscriptionState::Suspended,
            (_, Some(Approval::Rejected)) => SubscriptionState::Suspended,
            (_, None) if is_pending => SubscriptionState::Pending,
            _ => SubscriptionState::Active,
        };
        let told = first.map(|message| (Reason::Invalid, message)).or_else(|| match state {
            SubscriptionState::Pending => {
                Some((Reason::Pending, "waits for approval: set spec.approval to Approved".to_owned()))
            }
            SubscriptionState::Suspended => {
                Some((Reason::Suspended, "is suspended or rejected; the Consumer may not call".to_owned()))
            }
            _ => None,
        });
        intents.standings.push(standing(at.object, told));
        for Subscribed { api, sets, .. } in &subscription.apis {
            let entry = Entry { object: at.object, subscription, sets: sets.as_deref(), state };
            self.by_api.entry(api).or_default().push(entry);
        }
    }

    /// The subscriptions to the operations of an Api.
    pub(super) fn of<'s>(&'s self, object: &'s ObjectRef, api: &Api) -> ApiSubscriptions<'s> {
        let is_required = api.subscriptions == SubscriptionNeed::Required;
        let entries = self.by_api.get(object).map_or(&[][..], Vec::as_slice);
        ApiSubscriptions { all: self, object, is_required, entries, made: BTreeMap::new() }
    }
}

fn standing(object: &ObjectRef, told: Option<(Reason, String)>) -> Standing {
    let (reason, message) = told.unwrap_or((Reason::Accepted, String::new()));
    Standing { object: object.clone(), target: None, ancestors: Vec::new(), reason, message }
}

/// The subscriptions to an Api.
pub(super) struct ApiSubscriptions<'s> {
    all: &'s AllSubscriptions<'s>,
    object: &'s ObjectRef,
    is_required: bool,
    entries: &'s [Entry<'s>],
    /// By the entries with operation sets.
    made: BTreeMap<Vec<usize>, Arc<Subscriptions>>,
}

impl ApiSubscriptions<'_> {
    /// The subscriptions to an operation that has these names and sets; `None` if callers neither have nor need
    /// a subscription to the operation.
    pub(super) fn of(&mut self, sections: &[Arc<str>]) -> Option<Arc<Subscriptions>> {
        if self.entries.is_empty() && !self.is_required {
            return None;
        }
        let (part, whole) = self.entries.split_at(self.entries.partition_point(|of| of.sets.is_some()));
        let has = |entry: &Entry<'_>| entry.sets.iter().copied().flatten().any(|set| sections.contains(set));
        let special: Vec<usize> =
            part.iter().enumerate().filter(|(_, entry)| has(entry)).map(|(index, _)| index).collect();
        if whole.is_empty() && special.is_empty() && !self.is_required {
            return None;
        }
        if let Some(made) = self.made.get(&special) {
            return Some(made.clone());
        }
        let entries = special.iter().map(|index| &part[*index]).chain(whole);
        let made = Arc::new(self.make(entries));
        self.made.insert(special, made.clone());
        Some(made)
    }

    fn make<'e>(&self, entries: impl Iterator<Item = &'e Entry<'e>>) -> Subscriptions {
        let mut made = Subscriptions {
            id: self.object.id(),
            required: self.is_required,
            plans: Vec::new(),
            subscriptions: Vec::new(),
        };
        let mut places: HashMap<&ObjectRef, u32> = HashMap::default();
        let mut consumers = HashSet::default();
        for Entry { object, subscription, state, .. } in entries {
            if !consumers.insert(&subscription.consumer) {
                continue;
            }
            let plan = *places.entry(&subscription.plan).or_insert_with(|| {
                made.plans.push(match self.all.plans.get(&subscription.plan) {
                    Some(plan) => policy::Plan::clone(plan),
                    None => policy::Plan::empty(subscription.plan.id()),
                });
                u32::try_from(made.plans.len() - 1).unwrap_or(u32::MAX)
            });
            let (id, consumer): (ObjectId, ObjectId) = (object.id(), subscription.consumer.id());
            made.subscriptions.push(policy::Subscription { id, consumer, plan, state: *state });
        }
        made
    }
}
