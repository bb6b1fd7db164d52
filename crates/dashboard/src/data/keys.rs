//! The API keys of Consumers: names, states and expiry. No key and no hash is shown.

use std::time::SystemTime;

use serde::Serialize;

use super::Data;
use super::overview::seconds;
use crate::catalogue::{Consumer, Key};
use crate::list::{Part, Wanted};

/// A key of a Consumer.
#[derive(Serialize)]
pub(crate) struct Shown {
    namespace: String,
    consumer: String,
    username: String,
    name: Option<String>,
    state: &'static str,
    expires: Option<u64>,
    secret: Option<String>,
    origin: Option<String>,
}

impl Data {
    pub(super) fn keys(&self, wanted: &Wanted) -> Part<Shown> {
        shown(&self.dashboard.catalogue.consumers(), wanted)
    }
}

/// The requested part of the keys of these Consumers.
pub(crate) fn shown(consumers: &[Consumer], wanted: &Wanted) -> Part<Shown> {
    let now = seconds(SystemTime::now());
    let keys = consumers.iter().flat_map(|of| of.keys.iter().map(move |key| (of, key)));
    let found: Vec<(&Consumer, &Key)> = keys
        .filter(|(of, key)| {
            let own = [&of.namespace, &of.name, &of.username].into_iter().chain(&key.name);
            let texts = own.map(String::as_str).chain([key.state(now)]);
            wanted.finds(&texts.collect::<Vec<_>>().join(" ").to_lowercase())
        })
        .collect();
    wanted.part(&found, |(of, key)| Shown {
        namespace: of.namespace.clone(),
        consumer: of.name.clone(),
        username: of.username.clone(),
        name: key.name.clone(),
        state: key.state(now),
        expires: key.expires,
        secret: key.secret.clone(),
        origin: of.origin.clone(),
    })
}
