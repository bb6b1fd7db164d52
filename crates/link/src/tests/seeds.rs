//! The inputs that fuzzing starts from are still worth it.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use prost::Message as _;

use crate::fuzz::check_message;
use crate::proto::{FromControl, FromControlSay};
use crate::resource::Name;
use crate::store::{Delta, Store};

#[test]
fn the_seeds_hold_and_between_them_all_kinds_are_taken_over() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/link_message");
    let mut kinds = BTreeSet::new();
    for file in dir.read_dir().unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        check_message(&bytes);
        if !path.file_name().unwrap().to_string_lossy().starts_with("configuration") {
            continue;
        }
        let message = FromControl::decode(Bytes::from(bytes)).unwrap();
        let Some(FromControlSay::Batch(batch)) = message.say else { panic!("{}", path.display()) };
        kinds.extend(batch.changed.iter().map(|resource| resource.kind));
        let changed = batch.changed.into_iter();
        let changed =
            changed.map(|resource| (Name { kind: resource.kind, name: resource.name }, resource.body));
        let mut store = Store::default();
        store.apply(Delta { changed: changed.collect(), gone: Vec::new() });
        assert_eq!(store.refused(), 0, "{}", path.display());
    }
    assert_eq!(kinds, (1..=16).collect());
}
