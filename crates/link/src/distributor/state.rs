//! The distributed state: every resource once, encoded, with the version of its last change.
//!
//! The log names each resource once, at its last change. The difference between any version and the newest version is a
//! range of the log. A slow data plane therefore receives only the newest state of the changed resources. While a data
//! plane waits, the control plane stores only a version number for that data plane.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sluicegate_model::{Endpoint, UpstreamKey};

use crate::cut::{Changes, endpoints_body};
use crate::digest::Digest;
use crate::grpc::put_prefix;
use crate::messages;
use crate::resource::{Kind, Name, changed_item, gone_item, state_of};

/// The size in bytes at which a message is full.
const MESSAGE: usize = 256 << 10;
/// The distributor copies resources below this size, in bytes, together. It sends larger resources without a copy.
const SMALL: usize = 4 << 10;
/// The minimum number of removals that stay in the log.
const GONE_MIN: usize = 1024;
/// The minimum time for which every removal stays in the log. The time is longer than the timeout for a batch.
const GONE_TIME: Duration = Duration::from_secs(120);

pub(super) struct State {
    /// The identity of this run of the control plane.
    pub(super) epoch: Bytes,
    /// The version of the last change. 0: no configuration yet.
    pub(super) version: u64,
    /// The newest version of all scopes: the next change of this scope has a newer version.
    pub(super) newest: u64,
    /// The oldest version with a known difference. Removals before this version are no longer in the log.
    floor: u64,
    resources: BTreeMap<Name, Held>,
    gone: HashMap<Name, Stamp>,
    gone_log: BTreeMap<Stamp, Name>,
    log: BTreeMap<Stamp, (Name, Instant)>,
    /// The most recent difference, cached because most subscribers need this difference.
    latest: Option<(u64, Batch)>,
    /// All resources, cached for new subscribers.
    full: Option<Batch>,
    /// The digest of all resources, with its version.
    digest: Option<(u64, Bytes)>,
}

/// The time of a change: the version, and the number of the change within the version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Stamp {
    version: u64,
    index: u32,
}

struct Held {
    /// The resource as an item of a batch. The item ends with the body.
    item: Bytes,
    body: usize,
    digest: Digest,
    stamp: Stamp,
}

/// The difference to a version, ready to be sent.
#[derive(Clone)]
pub(super) struct Batch {
    pub(super) version: u64,
    /// Messages with their prefixes, in pieces.
    pub(super) pieces: Arc<[Bytes]>,
    /// The time of the first change in the batch.
    pub(super) since: Instant,
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

/// The difference from a version is unknown, or no longer known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FellBehind;

impl State {
    pub(super) fn new() -> Self {
        let mut epoch = [0; 16];
        if aws_lc_rs::rand::fill(&mut epoch).is_err() {
            epoch.fill_with(|| fastrand::u8(..));
        }
        Self {
            epoch: Bytes::copy_from_slice(&epoch),
            version: 0,
            newest: 0,
            floor: 0,
            resources: BTreeMap::new(),
            gone: HashMap::new(),
            gone_log: BTreeMap::new(),
            log: BTreeMap::new(),
            latest: None,
            full: None,
            digest: None,
        }
    }

    pub(super) fn resources(&self) -> usize {
        self.resources.len()
    }

    /// Applies a change. A change without effect does nothing.
    pub(super) fn publish(&mut self, change: Prepared, now: Instant) {
        let mut stamp = Stamp { version: self.newest.max(self.version) + 1, index: 0 };
        match change {
            Prepared::Endpoints(upstream, body) => {
                let settings = Kind::Upstream.named(upstream.name.clone());
                if self.resources.contains_key(&settings) {
                    self.set(&mut stamp, upstream, body, now);
                }
            }
            Prepared::Config(changes) => {
                for (name, body) in changes {
                    match body {
                        Some(body) => self.set(&mut stamp, name, body, now),
                        None => self.remove(&mut stamp, name, now),
                    }
                }
            }
        }
        if stamp.index > 0 {
            self.version = stamp.version;
            self.full = None;
            self.forget_gone(now);
        }
    }

    fn set(&mut self, stamp: &mut Stamp, name: Name, body: Bytes, now: Instant) {
        if let Some(held) = self.resources.get(&name) {
            if held.item[held.body..] == *body {
                return;
            }
            self.log.remove(&held.stamp);
        }
        if let Some(gone) = self.gone.remove(&name) {
            self.gone_log.remove(&gone);
            self.log.remove(&gone);
        }
        let (digest, length) = (Digest::of(&body), body.len());
        let item = changed_item(&name, body);
        let held = Held { body: item.len() - length, item, digest, stamp: *stamp };
        self.log.insert(*stamp, (name.clone(), now));
        self.resources.insert(name, held);
        stamp.index += 1;
    }

    fn remove(&mut self, stamp: &mut Stamp, name: Name, now: Instant) {
        let Some(held) = self.resources.remove(&name) else { return };
        self.log.remove(&held.stamp);
        self.log.insert(*stamp, (name.clone(), now));
        self.gone_log.insert(*stamp, name.clone());
        self.gone.insert(name, *stamp);
        stamp.index += 1;
    }

    fn forget_gone(&mut self, now: Instant) {
        while self.gone.len() > GONE_MIN.max(self.resources.len()) {
            let Some(oldest) = self.gone_log.first_entry() else { return };
            let stamp = *oldest.key();
            if self.log.get(&stamp).is_some_and(|(_, since)| now.duration_since(*since) < GONE_TIME) {
                return;
            }
            self.gone.remove(&oldest.remove());
            self.log.remove(&stamp);
            self.floor = self.floor.max(stamp.version);
        }
    }

    /// The difference from `version` to the newest version, if they differ.
    pub(super) fn since(&mut self, version: u64) -> Result<Option<Batch>, FellBehind> {
        if version < self.floor || version > self.version {
            return Err(FellBehind);
        }
        if version == self.version {
            return Ok(None);
        }
        if let Some((from, batch)) = &self.latest
            && (*from, batch.version) == (version, self.version)
        {
            return Ok(Some(batch.clone()));
        }
        let changes = || self.log.range(Stamp { version: version + 1, index: 0 }..);
        let items = changes().map(|(_, (name, _))| match self.resources.get(name) {
            Some(held) => held.item.clone(),
            None => gone_item(name),
        });
        let since = changes().map(|(_, (_, since))| *since).min().unwrap_or_else(Instant::now);
        let batch = Batch { version: self.version, pieces: packed(self.version, items), since };
        self.latest = Some((version, batch.clone()));
        Ok(Some(batch))
    }

    /// All resources, for a data plane without resources.
    pub(super) fn all(&mut self) -> Batch {
        let batch = self.full.get_or_insert_with(|| Batch {
            version: self.version,
            pieces: packed(self.version, self.resources.values().map(|held| held.item.clone())),
            since: Instant::now(),
        });
        Batch { since: Instant::now(), ..batch.clone() }
    }

    /// The difference from an inventory to the newest version.
    pub(super) fn difference(&self, inventory: &HashMap<Name, Bytes>) -> Batch {
        let changed = self.resources.iter().filter(|(name, held)| {
            inventory.get(*name).is_none_or(|digest| **digest != *held.digest.prefix())
        });
        let changed = changed.map(|(_, held)| held.item.clone());
        let gone = inventory.keys().filter(|name| !self.resources.contains_key(*name)).map(gone_item);
        let pieces = packed(self.version, changed.chain(gone));
        Batch { version: self.version, pieces, since: Instant::now() }
    }

    /// The newest version without changes, for a data plane with the same resources from another control plane.
    pub(super) fn nothing(&self) -> Batch {
        let pieces = packed(self.version, std::iter::empty());
        Batch { version: self.version, pieces, since: Instant::now() }
    }

    /// The digest of all resources.
    pub(super) fn digest(&mut self) -> Bytes {
        match &self.digest {
            Some((version, digest)) if *version == self.version => digest.clone(),
            _ => {
                let digest = state_of(self.resources.iter().map(|(name, held)| (name, &held.digest)));
                self.digest = Some((self.version, digest.clone()));
                digest
            }
        }
    }
}

/// A change in the form of resources. The caller prepares the change before it locks the state.
#[derive(Clone)]
pub(super) enum Prepared {
    Config(Changes),
    Endpoints(Name, Bytes),
}

impl Prepared {
    pub(super) fn endpoints(upstream: &UpstreamKey, endpoints: &[Endpoint]) -> Self {
        Self::Endpoints(Kind::Endpoints.of_upstream(upstream), endpoints_body(endpoints))
    }
}

/// The items of one batch as messages, in pieces.
fn packed(version: u64, items: impl Iterator<Item = Bytes>) -> Arc<[Bytes]> {
    let mut items = items.peekable();
    let mut pieces = Vec::new();
    loop {
        let mut of_message = Vec::new();
        let mut length = 0;
        while let Some(item) = items.next_if(|item| length == 0 || length + item.len() <= MESSAGE) {
            length += item.len();
            of_message.push(item);
        }
        let more = items.peek().is_some();
        let head = messages::Batch::head(version, more, of_message.len());
        let mut run = BytesMut::with_capacity(length.min(MESSAGE) + 64);
        put_prefix(&mut run, head.len() + length);
        run.extend_from_slice(&head);
        for item in of_message {
            if item.len() < SMALL {
                run.extend_from_slice(&item);
            } else {
                pieces.extend([run.split().freeze(), item].into_iter().filter(|piece| !piece.is_empty()));
            }
        }
        pieces.extend(Some(run.freeze()).filter(|run| !run.is_empty()));
        if !more {
            return pieces.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluicegate_model::policy::{Consumer, KeyHash};
    use sluicegate_model::{Config, HostPattern, ObjectId, VirtualHost};

    use super::*;
    use crate::cut::Cutter;

    /// A state, and the configurations that it has received.
    struct Published {
        state: State,
        cutter: Cutter,
    }

    impl Published {
        fn new() -> Self {
            Self { state: State::new(), cutter: Cutter::default() }
        }

        fn publish(&mut self, config: Config, now: Instant) {
            let changes = self.cutter.cut(&Arc::new(config));
            self.state.publish(Prepared::Config(changes), now);
        }
    }

    fn hosts(range: std::ops::Range<usize>) -> Config {
        let host = |index: usize| {
            let host = HostPattern::Exact(format!("{index}.example").into());
            Arc::new(VirtualHost::new(host, Vec::new()))
        };
        Config { hosts: range.map(host).collect(), ..Config::default() }
    }

    #[test]
    fn change_log_contains_each_resource_once_and_forgets_old_removals() {
        let mut published = Published::new();
        let begin = Instant::now();
        for round in 0..20_usize {
            let now = begin + GONE_TIME * u32::try_from(round).unwrap_or(0);
            published.publish(hosts(round * 500..(round + 1) * 500), now);
        }
        let state = &mut published.state;
        assert_eq!(state.version, 20);
        assert_eq!(state.resources(), 503, "with the settings, default certificates and ticket secrets");
        assert!(state.gone.len() <= GONE_MIN + 500, "{}", state.gone.len());
        assert_eq!(state.log.len(), state.resources.len() + state.gone.len());
        assert_eq!(state.gone_log.len(), state.gone.len());
        assert_eq!(state.since(1).map(|_| ()), Err(FellBehind));
        assert_eq!(state.since(21).map(|_| ()), Err(FellBehind), "that is of somebody else");
        assert!(state.since(19).is_ok_and(|batch| batch.is_some()));
        assert!(state.since(20).is_ok_and(|batch| batch.is_none()));
    }

    #[test]
    fn change_log_keeps_recent_removals() {
        let mut published = Published::new();
        let now = Instant::now();
        published.publish(hosts(0..5000), now);
        published.publish(hosts(0..1), now);
        published.publish(hosts(0..2), now);
        assert!(published.state.since(1).is_ok());
    }

    #[test]
    fn batch_contains_only_the_last_of_repeated_changes_to_a_resource() {
        let mut published = Published::new();
        let now = Instant::now();
        for end in [3, 2, 3, 2, 3] {
            published.publish(hosts(0..end), now);
        }
        let batch = published.state.since(1).ok().flatten().expect("a change");
        assert!(batch.len() < 60, "one resource: {}", batch.len());
    }

    #[test]
    fn key_change_of_a_consumer_is_sent_in_less_than_200_bytes() {
        let consumer = |index: u16, key| {
            let name = format!("consumer-{index}");
            let id = ObjectId { kind: "Consumer", namespace: "default".into(), name: name.as_str().into() };
            let (username, groups) = (name.into(), vec!["gold".into()]);
            Arc::new(Consumer {
                id,
                username,
                groups,
                keys: vec![key],
                tokens: vec![],
                users: vec![],
                refused: false,
                terms: vec![],
            })
        };
        let key = |index: u16| {
            let mut hash = [0; 32];
            hash[..2].copy_from_slice(&index.to_be_bytes());
            KeyHash(hash)
        };
        let publish = |published: &mut Published, consumers: &[Arc<Consumer>]| {
            let config = Config { consumers: consumers.to_vec(), ..Config::default() };
            published.publish(config, Instant::now());
        };
        let mut consumers: Vec<_> = (0..10_000).map(|index| consumer(index, key(index))).collect();
        let mut published = Published::new();
        publish(&mut published, &consumers);
        consumers[5000] = consumer(5000, key(12_345));
        publish(&mut published, &consumers);
        let batch = published.state.since(1).ok().flatten().expect("a change");
        assert!(batch.len() < 200, "{}", batch.len());
    }
}
