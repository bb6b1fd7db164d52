//! Tests of the split of the model into resources, and of its reassembly.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use sluicegate_model::{
    Change, Config, HostPattern, ObjectId, PathPattern, Rule, Tls, UpstreamKey, Upstreams, VirtualHost,
};

use super::cbor::{Value, edited};
use super::model::{config, normal};
use crate::cut::{Cutter, cut, endpoints_body};
use crate::fuzz::check_message;
use crate::messages::{Batch, FromControl, FromControlSay, ResourceChange, encoded};
use crate::resource::{Kind, Name};
use crate::store::{Delta, Store};

fn served(changes: Vec<Change>) -> Option<Arc<Config>> {
    changes.into_iter().find_map(|change| match change {
        Change::Config(config) => Some(config),
        Change::Endpoints { .. } => None,
    })
}

fn all_of(config: &Config) -> Delta {
    Delta { changed: cut(config).into_iter().collect(), gone: Vec::new() }
}

fn between(before: &Config, after: &Config) -> Delta {
    let (before, after) = (cut(before), cut(after));
    let gone = before.keys().filter(|name| !after.contains_key(*name)).cloned().collect();
    let changed = after.into_iter().filter(|(name, body)| before.get(name) != Some(body)).collect();
    Delta { changed, gone }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_configuration_is_decoded_as_it_was_encoded(config in config()) {
        let mut store = Store::default();
        let back = served(store.apply(all_of(&config))).expect("a configuration");
        prop_assert_eq!(store.refused(), 0);
        prop_assert_eq!(normal(Config::clone(&back)), config);
    }

    #[test]
    fn applying_only_the_difference_produces_the_next_configuration(before in config(), after in config()) {
        let mut store = Store::default();
        store.apply(all_of(&before));
        let back = served(store.apply(between(&before, &after)));
        let back = back.map_or_else(|| before.clone(), |config| normal(Config::clone(&config)));
        prop_assert_eq!(&back, &after);
        // The snapshot and the state digest are the same as if all changes had arrived at once.
        let mut fresh = Store::default();
        fresh.apply(all_of(&after));
        prop_assert_eq!(store.state(), fresh.state());
        prop_assert_eq!(store.snapshot(), fresh.snapshot());
    }

    #[test]
    fn changes_between_any_configurations_result_in_all_resources_of_the_last_one(
        one in config(),
        other in config(),
        seeds in prop::collection::vec(any::<u64>(), 1..8),
    ) {
        let pool = [one.clone(), decoded_again(&one), other.clone(), decoded_again(&other)];
        let (mut cutter, mut resources) = (Cutter::default(), BTreeMap::new());
        let mut store = Store::default();
        for seed in seeds {
            let mut random = fastrand::Rng::with_seed(seed);
            let config = mixed(&pool, &mut random);
            let (expected, mut delta) = (cut(&config), Delta::default());
            for (name, body) in cutter.cut(&Arc::new(config.clone())) {
                match body {
                    Some(body) => {
                        resources.insert(name.clone(), body.clone());
                        delta.changed.push((name, body));
                    }
                    None => {
                        prop_assert!(resources.remove(&name).is_some(), "{} was not there", name);
                        delta.gone.push(name);
                    }
                }
            }
            prop_assert_eq!(&resources, &expected);
            let back = served(store.apply(delta)).expect("settings are always there");
            prop_assert_eq!(normal(Config::clone(&back)), normal(config.clone()));
            // The data planes receive other endpoints before the next configuration.
            if let Some(key) = random.choice(config.upstreams.keys()) {
                cutter.endpoints_changed(key);
                let name = Kind::Endpoints.of_upstream(key);
                resources.insert(name.clone(), endpoints_body(&[]));
                store.apply(Delta { changed: vec![(name, endpoints_body(&[]))], gone: vec![] });
            }
        }
    }

    #[test]
    fn altered_message_is_rejected_or_decodes_as_another_message(config in config(), changes in any::<Vec<(prop::sample::Index, u8)>>()) {
        let changed = cut(&config).into_iter();
        let change = |(name, body): (Name, _)| ResourceChange { kind: name.kind, name: name.name, body: Some(body) };
        let batch = Batch { version: 1, more: false, changes: changed.map(change).collect() };
        let mut bytes = encoded(&FromControl { say: Some(FromControlSay::Batch(batch)) });
        check_message(&bytes);
        for (at, with) in changes {
            let at = at.index(bytes.len());
            bytes[at] = with;
            check_message(&bytes);
        }
    }

    #[test]
    fn arbitrary_bytes_are_rejected_or_decode_as_a_message(bytes: Vec<u8>) {
        check_message(&bytes);
    }

    #[test]
    fn decoder_never_panics_on_altered_resource_bytes(config in config(), at: prop::sample::Index, with: u8) {
        let mut delta = all_of(&config);
        for (_, body) in &mut delta.changed {
            let mut bytes = body.to_vec();
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= with;
            }
            *body = bytes.into();
        }
        Store::default().apply(delta);
    }
}

/// An equal configuration that shares nothing with this one.
fn decoded_again(config: &Config) -> Config {
    let config = served(Store::default().apply(all_of(config))).expect("a configuration");
    Config::clone(&config)
}

/// A configuration with parts of these configurations.
fn mixed(pool: &[Config], random: &mut fastrand::Rng) -> Config {
    let whole = random.choice(pool).expect("a configuration");
    let mut mixed =
        Config { hosts: vec![], consumers: vec![], upstreams: Upstreams::default(), ..whole.clone() };
    let mut tls = Tls { hosts: vec![], acme: vec![], ..Tls::clone(&whole.tls) };
    let mut hosts = BTreeMap::new();
    let (mut tls_hosts, mut acme, mut consumers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for config in pool {
        for host in config.hosts.iter().filter(|_| random.bool()) {
            hosts.insert(Kind::Host.of_host(&host.entry_point, &host.host), host.clone());
        }
        for host in config.tls.hosts.iter().filter(|_| random.bool()) {
            tls_hosts.insert(Kind::TlsHost.of_host(&host.entry_point, &host.host), host.clone());
        }
        for host in config.tls.acme.iter().filter(|_| random.bool()) {
            acme.insert(Kind::of_acme_host(&host.host), host.clone());
        }
        for consumer in config.consumers.iter().filter(|_| random.bool()) {
            consumers.insert(consumer.id.clone(), consumer.clone());
        }
        let upstreams = config.upstreams.iter().filter(|_| random.bool());
        mixed.upstreams.extend(upstreams.map(|(key, upstream)| (key.clone(), upstream.clone())));
    }
    mixed.hosts = hosts.into_values().collect();
    mixed.consumers = consumers.into_values().collect();
    (tls.hosts, tls.acme) = (tls_hosts.into_values().collect(), acme.into_values().collect());
    // An unchanged list keeps its pointer.
    mixed.tls = if random.bool() { Arc::new(tls) } else { whole.tls.clone() };
    mixed
}

fn host(name: &str, path: &str) -> Arc<VirtualHost> {
    let id = ObjectId { kind: "Ingress", namespace: "default".into(), name: name.into() };
    let upstream = UpstreamKey::new("default", name, "80");
    let routes = vec![Rule::new(id, PathPattern::Prefix(path.into()), upstream)];
    Arc::new(VirtualHost::new(HostPattern::Exact(name.into()), routes))
}

fn hosts(hosts: Vec<Arc<VirtualHost>>) -> Config {
    Config { hosts, ..Config::default() }
}

#[test]
fn resource_with_an_unknown_value_keeps_its_last_valid_version() {
    let mut store = Store::default();
    store.apply(all_of(&hosts(vec![host("a", "/1"), host("b", "/1")])));
    let mut delta = between(&hosts(vec![]), &hosts(vec![host("a", "/2"), host("b", "/2"), host("c", "/2")]));
    for (name, body) in &mut delta.changed {
        if name.to_string() != "Host b" {
            *body = edited(body, |host| *host.at(&[1, 0, 1, 0]) = Value::Int(99));
        }
    }
    let config = served(store.apply(delta)).expect("b has changed");
    assert_eq!(config.hosts, [host("a", "/1"), host("b", "/2")], "c has no good form");
    assert_eq!(store.refused(), 2);
    // The snapshot contains the last valid versions, so that they survive a restart.
    let mut restarted = Store::default();
    let config = served(restarted.apply(Delta { changed: store.snapshot(), gone: vec![] })).unwrap();
    assert_eq!(config.hosts, [host("a", "/1"), host("b", "/2")]);
    // After a correction no resource is rejected.
    store.apply(all_of(&hosts(vec![host("a", "/3"), host("c", "/3")])));
    assert_eq!(store.refused(), 0);
}

#[test]
fn snapshot_contains_shared_resources_referenced_by_last_valid_versions() {
    let policy = Arc::new(sluicegate_model::ClientAuth {
        source: "Secret a/b".into(),
        roots: vec![vec![1, 2, 3].into()],
        crls: vec![],
        mode: sluicegate_model::ClientAuthMode::Required,
        forward: false,
        at_requests: None,
    });
    let mut with_policy = host("a", "/");
    Arc::make_mut(&mut with_policy).rules[0].client_auth = Some(policy);
    let mut store = Store::default();
    store.apply(all_of(&hosts(vec![with_policy.clone()])));
    let mut delta = between(&hosts(vec![with_policy.clone()]), &hosts(vec![host("a", "/")]));
    assert_eq!(delta.gone.len(), 1, "the policy");
    let (_, body) = delta.changed.iter_mut().find(|(name, _)| name.kind() == Some(Kind::Host)).unwrap();
    *body = Bytes::from_static(&[0xff]);
    store.apply(delta);
    let mut restarted = Store::default();
    let config = served(restarted.apply(Delta { changed: store.snapshot(), gone: vec![] })).unwrap();
    assert_eq!(config.hosts, [with_policy]);
}

#[test]
fn unknown_resource_kinds_and_skippable_fields_are_ignored() {
    let mut delta = all_of(&hosts(vec![host("a", "/")]));
    let (settings, body) = delta.changed.iter_mut().find(|(name, _)| name.kind == 1).unwrap();
    *body = edited(body, |settings| settings.add(1000, Value::Bytes(vec![7])));
    let unknown = Name { kind: 99, ..settings.clone() };
    delta.changed.push((unknown, Bytes::from_static(b"new")));
    let mut store = Store::default();
    let config = served(store.apply(delta)).expect("a configuration");
    assert_eq!(config.hosts, [host("a", "/")]);
    assert_eq!(store.refused(), 1);
}

#[test]
fn absent_settings_have_their_defaults() {
    let settings = |body: Bytes| {
        let mut store = Store::default();
        store.apply(Delta { changed: vec![(Kind::Settings.alone(), body)], gone: vec![] });
        assert_eq!(store.refused(), 0);
        store.config().settings
    };
    let default = sluicegate_model::Settings::default();
    assert_eq!(settings(Value::Map(vec![]).write()), default);
    // Only one timeout is set, and only the level of one coding.
    let drain = Value::Map(vec![(0, Value::Map(vec![(14, Value::Int(1_000_000_000))]))]);
    let expected = std::time::Duration::from_secs(1);
    let timeouts = sluicegate_model::settings::Timeouts { drain: expected, ..Default::default() };
    assert_eq!(settings(drain.write()), sluicegate_model::Settings { timeouts, ..default.clone() });
    let level = Value::Map(vec![(9, Value::Map(vec![(3, Value::Map(vec![(0, Value::Int(9))]))]))]);
    let found = settings(level.write()).compression;
    assert_eq!(
        (found.levels.gzip.get(), found.levels.zstd.get(), found.types),
        (9, 3, default.compression.types)
    );
}

#[test]
fn decoder_allocates_no_memory_for_announced_lengths_or_nesting() {
    let hosts = all_of(&hosts(vec![host("a", "/")]));
    for begin in
        [&[0x9b_u8][..], &[0xbb], &[0x5b], &[0x7b], &[0xa1, 0, 0x9b], &[0xa1, 1, 0x9b], &[0x82, 0, 0xbb]]
    {
        let announced = [begin, &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]].concat();
        // Arrays nested as deeply as the body is long, in a skippable field and in a known field.
        let deep = [&[0xa1, 0x18, 64][..], &[0x81; 100_000], &[0]].concat();
        let known = [&[0xa1, 1][..], &[0x81; 100_000], &[0]].concat();
        let endless = [&[0xa1, 1][..], &[0x9f; 100_000]].concat();
        for (body, may_be_skipped) in [(announced, false), (deep, true), (known, false), (endless, false)] {
            for (name, _) in &hosts.changed {
                let refusal = Store::default().refusal(name, body.clone().into());
                // Only settings skip the field, and all their other fields have defaults.
                let is_read = may_be_skipped && name.kind() == Some(Kind::Settings);
                assert_eq!(refusal.is_none(), is_read, "{name}: {refusal:?}");
            }
            check_message(&body);
        }
    }
}

#[test]
fn endpoint_change_is_applied_without_a_full_configuration() {
    let key = UpstreamKey::new("default", "a", "80");
    let mut before = hosts(vec![host("a", "/")]);
    before.upstreams.insert(key.clone(), Arc::default());
    let mut store = Store::default();
    store.apply(all_of(&before));
    let endpoints: Arc<[_]> = [sluicegate_model::Endpoint {
        address: "192.0.2.1:80".parse().unwrap(),
        conditions: sluicegate_model::Conditions::READY,
    }]
    .into();
    let changed = vec![(Kind::Endpoints.of_upstream(&key), endpoints_body(&endpoints))];
    let changes = store.apply(Delta { changed, gone: vec![] });
    let [Change::Endpoints { upstream, endpoints: found }] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((upstream, found), (&key, &endpoints));
}

#[test]
fn shared_resource_with_a_wrong_digest_is_rejected() {
    let name = Kind::Certificate.named(Bytes::from_static(&[7; 32]));
    let mut store = Store::default();
    store.apply(Delta { changed: vec![(name, Bytes::new())], gone: vec![] });
    assert_eq!(store.refused(), 1);
}

#[test]
fn debug_output_of_resources_hides_private_keys() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..20 {
        let mut config = config().new_tree(&mut runner).unwrap().current();
        let tls = Arc::make_mut(&mut config.tls);
        tls.ticket_secrets = vec![sluicegate_model::tls::TicketSecret([77; 40].into())];
        for (name, body) in cut(&config) {
            if !matches!(name.kind(), Some(Kind::Certificate | Kind::TicketSecrets)) {
                continue;
            }
            let change = ResourceChange { kind: name.kind, name: name.name.clone(), body: Some(body) };
            let batch = Batch { version: 1, more: false, changes: vec![change] };
            let all = FromControl { say: Some(FromControlSay::Batch(batch.clone())) };
            for shown in [format!("{batch:?}"), format!("{all:?}"), format!("{:?}", batch.changes)] {
                assert!(shown.len() < 160 && shown.contains("(confidential)"), "{shown}");
            }
        }
    }
}

#[test]
fn host_with_a_noncanonical_name_is_rejected() {
    let config = Config { hosts: vec![host("a", "/")], ..Config::default() };
    let mut changed: Vec<_> = cut(&config).into_iter().collect();
    let (mut name, body) =
        changed.iter().find(|(name, _)| name.kind() == Some(Kind::Host)).cloned().expect("the host");
    // A longer encoding of the same number: other bytes for the same name.
    assert_eq!(name.name[1], 0);
    name.name = [&name.name[..1], &[0x18, 0], &name.name[2..]].concat().into();
    changed.push((name, body));
    let mut store = Store::default();
    let served = served(store.apply(Delta { changed, gone: Vec::new() })).expect("a configuration");
    assert_eq!((served.hosts.len(), store.refused()), (1, 1));
}
