//! The traffic policies that the Ingresses of a class share.
//!
//! Thousands of Ingresses have the same annotations, or none. Each policy takes several kilobytes, here and in data planes. So
//! Ingresses with equal features share one policy, with the id of their class.

use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::feature::Features;
use sluicegate_model::policy::Traffic;

use crate::intent::Own;

/// The policies so far.
#[derive(Default)]
pub(super) struct Pool {
    /// By the address of the features, which stay in memory with their intent.
    by_address: HashMap<*const Features, Arc<Traffic>>,
    /// By their encoding.
    by_content: HashMap<Vec<u8>, Arc<Traffic>>,
}

impl Pool {
    /// The policy with the features of an Ingress.
    pub(super) fn of(&mut self, own: &Own) -> Arc<Traffic> {
        let make = || {
            let features = Features::clone(&own.features);
            Arc::new(Traffic { features, ..Traffic::new(own.class.clone()) })
        };
        let by_content = &mut self.by_content;
        let shared = || by_content.entry(own.features.encoding()).or_insert_with(make).clone();
        self.by_address.entry(Arc::as_ptr(&own.features)).or_insert_with(shared).clone()
    }
}
