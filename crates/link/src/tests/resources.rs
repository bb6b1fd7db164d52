//! From the model to resources and back.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use prost::Message as _;
use sluicegate_model::{Change, Config, HostPattern, PathPattern, Route, RouteId, UpstreamKey, VirtualHost};

use super::model::{config, normal};
use crate::cut::cut;
use crate::fuzz::check_message;
use crate::proto;
use crate::resource::Kind;
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
    fn a_configuration_comes_back_as_it_was(config in config()) {
        let mut store = Store::default();
        let back = served(store.apply(all_of(&config))).expect("a configuration");
        prop_assert_eq!(store.refused(), 0);
        prop_assert_eq!(normal(Config::clone(&back)), config);
    }

    #[test]
    fn the_difference_alone_leads_to_the_next_configuration(before in config(), after in config()) {
        let mut store = Store::default();
        store.apply(all_of(&before));
        let back = served(store.apply(between(&before, &after)));
        let back = back.map_or_else(|| before.clone(), |config| normal(Config::clone(&config)));
        prop_assert_eq!(&back, &after);
        // What a snapshot holds, and what would be said to another control plane, is the same as if it had come at once.
        let mut fresh = Store::default();
        fresh.apply(all_of(&after));
        prop_assert_eq!(store.state(), fresh.state());
        prop_assert_eq!(store.snapshot(), fresh.snapshot());
    }

    #[test]
    fn a_message_that_was_changed_on_the_way_is_refused_or_another_one(config in config(), changes in any::<Vec<(prop::sample::Index, u8)>>()) {
        let changed = cut(&config).into_iter();
        let changed = changed.map(|(name, body)| proto::Resource { kind: name.kind, name: name.name, body });
        let batch = proto::Batch { version: 1, changed: changed.collect(), ..proto::Batch::default() };
        let mut bytes = proto::FromControl { say: Some(proto::FromControlSay::Batch(batch)) }.encode_to_vec();
        check_message(&bytes);
        for (at, with) in changes {
            let at = at.index(bytes.len());
            bytes[at] = with;
            check_message(&bytes);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_a_message(bytes: Vec<u8>) {
        check_message(&bytes);
    }

    #[test]
    fn bytes_that_were_changed_on_the_way_never_panic(config in config(), at: prop::sample::Index, with: u8) {
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

fn host(name: &str, path: &str) -> Arc<VirtualHost> {
    let id = RouteId { kind: "Ingress", namespace: "default".into(), name: name.into() };
    let upstream = UpstreamKey::new("default", name, "80");
    let routes = vec![Route::new(id, PathPattern::Prefix(path.into()), upstream)];
    Arc::new(VirtualHost { host: HostPattern::Exact(name.into()), routes, fallback: None })
}

fn hosts(hosts: Vec<Arc<VirtualHost>>) -> Config {
    Config { hosts, ..Config::default() }
}

#[test]
fn a_resource_with_an_unknown_value_keeps_its_last_good_form_and_the_others_go_on() {
    let mut store = Store::default();
    store.apply(all_of(&hosts(vec![host("a", "/1"), host("b", "/1")])));
    let mut delta = between(&hosts(vec![]), &hosts(vec![host("a", "/2"), host("b", "/2"), host("c", "/2")]));
    for (name, body) in &mut delta.changed {
        let mut message = proto::VirtualHost::decode(body.clone()).unwrap();
        if name.to_string() != "Host b" {
            message.routes[0].path.as_mut().unwrap().kind = 99;
        }
        *body = message.encode_to_vec().into();
    }
    let config = served(store.apply(delta)).expect("b has changed");
    assert_eq!(config.hosts, [host("a", "/1"), host("b", "/2")], "c has no good form");
    assert_eq!(store.refused(), 2);
    // The snapshot has what can be served, so that a restart does not lose it.
    let mut restarted = Store::default();
    let config = served(restarted.apply(Delta { changed: store.snapshot(), gone: vec![] })).unwrap();
    assert_eq!(config.hosts, [host("a", "/1"), host("b", "/2")]);
    // Mended, all is well.
    store.apply(all_of(&hosts(vec![host("a", "/3"), host("c", "/3")])));
    assert_eq!(store.refused(), 0);
}

#[test]
fn what_a_last_good_form_names_survives_in_the_snapshot() {
    let policy = Arc::new(sluicegate_model::ClientAuth {
        source: "Secret a/b".into(),
        roots: vec![vec![1, 2, 3].into()],
        crls: vec![],
        mode: sluicegate_model::ClientAuthMode::Required,
        forward: false,
    });
    let mut with_policy = host("a", "/");
    Arc::make_mut(&mut with_policy).routes[0].client_auth = Some(policy);
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
fn resources_of_unknown_kinds_and_unknown_fields_are_passed_over() {
    let mut delta = all_of(&hosts(vec![host("a", "/")]));
    let (settings, body) = delta.changed.iter_mut().find(|(name, _)| name.kind == 1).unwrap();
    // Field 1000, of length 1.
    *body = [&**body, &[0xc2, 0x3e, 1, 7]].concat().into();
    let unknown = crate::resource::Name { kind: 99, ..settings.clone() };
    delta.changed.push((unknown, Bytes::from_static(b"new")));
    let mut store = Store::default();
    let config = served(store.apply(delta)).expect("a configuration");
    assert_eq!(config.hosts, [host("a", "/")]);
    assert_eq!(store.refused(), 1);
}

#[test]
fn endpoints_alone_take_the_short_path() {
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
    let changed = vec![(Kind::Endpoints.of_upstream(&key), crate::cut::endpoints_body(&endpoints))];
    let changes = store.apply(Delta { changed, gone: vec![] });
    let [Change::Endpoints { upstream, endpoints: found }] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((upstream, found), (&key, &endpoints));
}

#[test]
fn a_shared_resource_that_is_not_what_its_name_says_is_refused() {
    let name = Kind::Certificate.named(Bytes::from_static(&[7; 32]));
    let mut store = Store::default();
    store.apply(Delta { changed: vec![(name, Bytes::new())], gone: vec![] });
    assert_eq!(store.refused(), 1);
}

#[test]
fn keys_are_in_no_debug_output() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..20 {
        let mut config = config().new_tree(&mut runner).unwrap().current();
        let tls = Arc::make_mut(&mut config.tls);
        tls.ticket_secrets = vec![sluicegate_model::tls::TicketSecret([77; 40].into())];
        for (name, body) in cut(&config) {
            let shown = match name.kind() {
                Some(Kind::Certificate) => {
                    format!("{:?}", proto::Certificate::decode(body.clone()).unwrap())
                }
                Some(Kind::TicketSecrets) => {
                    format!("{:?}", proto::TicketSecrets::decode(body.clone()).unwrap())
                }
                _ => continue,
            };
            let resource = proto::Resource { kind: name.kind, name: name.name.clone(), body };
            let batch = proto::Batch { changed: vec![resource], ..Default::default() };
            let all = proto::FromControl { say: Some(proto::FromControlSay::Batch(batch.clone())) };
            for shown in [shown, format!("{batch:?}"), format!("{all:?}"), format!("{:?}", batch.changed)] {
                assert!(shown.len() < 60 && shown.contains("(confidential)"), "{shown}");
            }
        }
    }
}

#[test]
fn a_host_has_one_name_alone() {
    let config = Config { hosts: vec![host("a", "/")], ..Config::default() };
    let mut changed: Vec<_> = cut(&config).into_iter().collect();
    let (mut name, body) =
        changed.iter().find(|(name, _)| name.kind() == Some(Kind::Host)).cloned().expect("the host");
    // The same field again: another text that says the same.
    name.name = [&*name.name, &*name.name].concat().into();
    changed.push((name, body));
    let mut store = Store::default();
    let served = served(store.apply(Delta { changed, gone: Vec::new() })).expect("a configuration");
    assert_eq!((served.hosts.len(), store.refused()), (1, 1));
}
