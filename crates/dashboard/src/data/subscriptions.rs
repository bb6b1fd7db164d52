//! The subscriptions.

use super::Data;
use crate::catalogue::Subscription;
use crate::list::{Part, Wanted};

impl Data {
    pub(super) fn subscriptions(&self, wanted: &Wanted) -> Part<Subscription> {
        let mut subscriptions = self.dashboard.catalogue.subscriptions();
        subscriptions.retain(|of| {
            let own = [&of.namespace, &of.name, &of.consumer_namespace, &of.consumer, &of.plan];
            let apis = of.apis.iter().map(|api| &api.name);
            let texts = own.into_iter().chain(apis).map(String::as_str).chain([of.state]);
            wanted.finds(&texts.collect::<Vec<_>>().join(" ").to_lowercase())
        });
        wanted.part(&subscriptions, Clone::clone)
    }
}
