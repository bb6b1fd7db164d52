//! The plans, each with the number of its subscriptions.

use std::collections::HashMap;

use serde::Serialize;

use super::Data;
use crate::catalogue::Plan;
use crate::list::{Part, Wanted};

/// A plan with the number of its subscriptions.
#[derive(Serialize)]
pub(super) struct Counted {
    #[serde(flatten)]
    plan: Plan,
    subscriptions: usize,
}

impl Data {
    pub(super) fn plans(&self, wanted: &Wanted) -> Part<Counted> {
        let mut counts: HashMap<(String, String), usize> = HashMap::new();
        for of in self.dashboard.catalogue.subscriptions() {
            *counts.entry((of.namespace, of.plan)).or_default() += 1;
        }
        let mut plans = self.dashboard.catalogue.plans();
        plans.retain(|plan| {
            let own = [&plan.namespace, &plan.name, &plan.title].into_iter().chain(&plan.description);
            wanted.finds(&own.map(String::as_str).collect::<Vec<_>>().join(" ").to_lowercase())
        });
        wanted.part(&plans, |plan| {
            let count = counts.get(&(plan.namespace.clone(), plan.name.clone()));
            Counted { plan: plan.clone(), subscriptions: count.copied().unwrap_or(0) }
        })
    }
}
