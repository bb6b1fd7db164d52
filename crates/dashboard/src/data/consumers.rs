//! The consumers. A credential is shown by its kind and number only; no key and no hash is shown.

use std::collections::HashMap;
use std::time::SystemTime;

use serde_json::{Value, json};
use sluicegate_model::ObjectId;
use sluicegate_proxy::counters::ConsumerStats;

use super::Data;
use super::overview::seconds;
use crate::list::{Part, Wanted};

impl Data {
    pub(super) fn consumers(&self, wanted: &Wanted) -> Part<Value> {
        let registry = &self.dashboard.admin.registry;
        let config = registry.published().unwrap_or_default();
        let stats: HashMap<ObjectId, _> =
            registry.consumers().into_iter().filter_map(|(id, stats)| Some((id?, stats))).collect();
        let found: Vec<_> = config
            .consumers
            .iter()
            .filter(|consumer| {
                let id = consumer.id.to_string();
                let own = [&*id, &*consumer.username].into_iter();
                let texts: Vec<&str> = own.chain(consumer.groups.iter().map(|group| &**group)).collect();
                wanted.finds(&texts.join(" ").to_lowercase())
            })
            .collect();
        let now = seconds(SystemTime::now());
        wanted.part(&found, |consumer| {
            let tokens = consumer
                .tokens
                .iter()
                .map(|token| json!({"issuer": token.issuer, "claim": token.claim, "value": token.value}));
            json!({
                "namespace": consumer.id.namespace,
                "name": consumer.id.name,
                "username": consumer.username,
                "groups": consumer.groups,
                "api_keys": consumer.keys.len(),
                "revoked_keys": consumer.terms.iter().filter(|terms| terms.revoked).count(),
                "expired_keys": consumer
                    .terms
                    .iter()
                    .filter(|terms| !terms.revoked && terms.expires.is_some_and(|end| end <= now))
                    .count(),
                "tokens": tokens.collect::<Vec<_>>(),
                "basic_users": consumer.users.len(),
                "disabled": consumer.refused,
                "requests": stats.get(&consumer.id).map(|stats| requests(stats)),
            })
        })
    }
}

fn requests(stats: &ConsumerStats) -> Value {
    let responses: [u64; 5] = std::array::from_fn(|class| stats.sum(|shard| &shard.responses[class]));
    json!({"responses": responses, "aborted": stats.sum(|shard| &shard.aborted)})
}
