//! Tests that the seeds of fuzzing are up to date. An update of the golden encodings writes the seeds again (see
//! `golden`).

use std::collections::BTreeSet;
use std::path::PathBuf;

use bytes::Bytes;
use proptest::strategy::{Strategy as _, ValueTree as _};
use sluicegate_model::Config;

use super::cbor::{Value, edited};
use super::everything::everything;
use super::golden::updates;
use super::model::config;
use crate::cut::cut;
use crate::fuzz::check_message;
use crate::messages::*;
use crate::resource::{Kind, Name};
use crate::store::{Delta, Store};

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/link_message")
}

fn batch(changes: Vec<ResourceChange>) -> Vec<u8> {
    encoded(&FromControl { say: Some(FromControlSay::Batch(Batch { version: 7, more: false, changes })) })
}

fn changes(config: &Config) -> Vec<ResourceChange> {
    let change =
        |(name, body): (Name, Bytes)| ResourceChange { kind: name.kind, name: name.name, body: Some(body) };
    cut(config).into_iter().map(change).collect()
}

/// The seeds: configurations, one of each other message, and messages that a control plane must not send.
fn written() -> Vec<(String, Vec<u8>)> {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut configs: Vec<_> = everything().into();
    configs.extend((0..5).map(|_| config().new_tree(&mut runner).unwrap().current()));
    let mut seeds: Vec<_> = (1..)
        .zip(&configs)
        .map(|(nth, config)| (format!("configuration_{nth}"), batch(changes(config))))
        .collect();
    let epoch = || Bytes::from_static(&[5; 16]);
    let hello = Hello {
        node: "node-1".into(),
        build: "0.1.0".into(),
        epoch: epoch(),
        version: 6,
        state: Bytes::from_static(&[6; 32]),
    };
    let held = changes(&configs[2]).into_iter().take(4).map(|change| Held {
        kind: change.kind,
        name: change.name,
        digest: Bytes::from_static(&[8; 16]),
    });
    let inventory = Inventory { held: held.collect(), more: false };
    for (name, say) in [
        ("hello", FromProxySay::Hello(hello)),
        ("inventory", FromProxySay::Inventory(inventory)),
        ("served", FromProxySay::Served(Served { version: 7, refused: 1 })),
        (
            "report",
            FromProxySay::Report(Report {
                instance: "0123".into(),
                sequence: 3,
                body: Bytes::from_static(&[9; 32]),
            }),
        ),
    ] {
        seeds.push((name.into(), encoded(&FromProxy { say: Some(say) })));
    }
    let welcome = Welcome {
        epoch: epoch(),
        build: "0.1.0".into(),
        wants_inventory: true,
        stores_reports: true,
        counts_quotas: true,
    };
    for (name, say) in [
        ("welcome", FromControlSay::Welcome(welcome)),
        ("heartbeat", FromControlSay::Heartbeat(Heartbeat { version: 7 })),
        ("stored", FromControlSay::Stored(Stored { sequence: 3 })),
    ] {
        seeds.push((name.into(), encoded(&FromControl { say: Some(say) })));
    }
    let gone = changes(&configs[0]).into_iter().take(3).map(|change| ResourceChange { body: None, ..change });
    seeds.push(("gone".into(), batch(gone.collect())));
    let host = || changes(&configs[1]).into_iter().find(|change| change.kind == Kind::Host as u32).unwrap();
    let mut unknown = host();
    unknown.body = unknown.body.map(|body| edited(&body, |host| host.at(&[1, 0]).add(10, Value::Null)));
    seeds.push(("policy_of_an_unknown_kind".into(), batch(vec![unknown])));
    let mut other = host();
    other.name = [&other.name[..1], &[0x18, 0], &other.name[2..]].concat().into();
    seeds.push(("two_names_for_one_host".into(), batch(vec![host(), other])));
    seeds
}

#[test]
fn fuzz_seeds_decode_and_cover_every_resource_kind() {
    if updates() {
        for (name, bytes) in written() {
            std::fs::write(dir().join(name), bytes).unwrap();
        }
    }
    let mut kinds = BTreeSet::new();
    for file in dir().read_dir().unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        check_message(&bytes);
        if !path.file_name().unwrap().to_string_lossy().starts_with("configuration") {
            continue;
        }
        let message: FromControl = decoded(&bytes).unwrap();
        let Some(FromControlSay::Batch(batch)) = message.say else { panic!("{}", path.display()) };
        kinds.extend(batch.changes.iter().map(|change| change.kind));
        let changed = batch.changes.into_iter();
        let changed =
            changed.map(|change| (Name { kind: change.kind, name: change.name }, change.body.unwrap()));
        let mut store = Store::default();
        store.apply(Delta { changed: changed.collect(), gone: Vec::new() });
        assert_eq!(store.refused(), 0, "{}", path.display());
    }
    assert_eq!(kinds, (1..=20).collect());
}
