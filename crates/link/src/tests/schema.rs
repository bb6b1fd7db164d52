//! The messages are those of `link.proto`.

use std::collections::BTreeMap;

use bytes::{Buf as _, Bytes};
use proptest::strategy::{Strategy as _, ValueTree as _};
use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::model::config;
use crate::cut::cut;

const SCHEMA: &str = include_str!("../../proto/sluicegate/link/v1/link.proto");

/// The fields of each message by their numbers: their type.
fn messages() -> BTreeMap<&'static str, BTreeMap<u32, &'static str>> {
    let mut messages: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    let mut message = "";
    let mut is_enum = false;
    for line in SCHEMA.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "repeated").collect();
        match words[..] {
            ["message", name, "{"] => message = name,
            ["enum", ..] => is_enum = true,
            ["}"] => is_enum = false,
            [kind, _, "=", number] | ["optional", kind, _, "=", number] if !is_enum && kind != "syntax" => {
                let number = number.trim_end_matches(';').parse().expect(line);
                assert_eq!(messages.entry(message).or_default().insert(number, kind), None, "{line}");
            }
            _ => {}
        }
    }
    messages
}

/// Holds the bytes of a message against the schema.
fn check(
    schema: &BTreeMap<&str, BTreeMap<u32, &str>>,
    message: &str,
    mut bytes: Bytes,
    seen: &mut BTreeMap<(String, u32), usize>,
) {
    while bytes.has_remaining() {
        let (number, wire) = decode_key(&mut bytes).unwrap();
        let kind = schema[message].get(&number);
        let kind = *kind.unwrap_or_else(|| panic!("{message} has no field {number} in link.proto"));
        *seen.entry((message.to_owned(), number)).or_default() += 1;
        match wire {
            WireType::Varint => {
                decode_varint(&mut bytes).unwrap();
                assert!(!matches!(kind, "bytes" | "string"), "{message} {number}");
                assert!(!schema.contains_key(kind), "{message} {number} is no {kind}");
            }
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut bytes).unwrap()).unwrap();
                let value = bytes.split_to(length);
                match kind {
                    "bytes" => {}
                    "string" => assert!(std::str::from_utf8(&value).is_ok()),
                    // Packed.
                    "ContentCoding" | "uint32" => {}
                    message => check(schema, message, value, seen),
                }
            }
            WireType::SixtyFourBit => {
                bytes.advance(8);
                assert_eq!(kind, "double", "{message} {number}");
            }
            other => panic!("{message} {number} is {other:?}"),
        }
    }
}

#[test]
fn every_field_is_in_the_schema_and_every_field_of_the_schema_is_used() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (schema, mut seen) = (messages(), BTreeMap::new());
    for _ in 0..150 {
        let config = config().new_tree(&mut runner).unwrap().current();
        for (name, body) in cut(&config) {
            let message = match name.kind {
                1 => "Settings",
                2 => "Route",
                3 => "VirtualHost",
                4 => "Listener",
                5 => "TlsHost",
                6 => "Certificates",
                7 => "TlsRoute",
                8 => "TicketSecrets",
                9 => "Upstream",
                10 => "Endpoints",
                11 => "Certificate",
                12 => "ClientAuth",
                13 => "UpstreamTls",
                14 => "Security",
                15 => "RateLimits",
                16 => "Consumer",
                17 => "Traffic",
                other => panic!("{other}"),
            };
            check(&schema, message, body, &mut seen);
            let named = match name.kind {
                3 | 5 | 7 => "HostPattern",
                4 => "ListenerName",
                9 | 10 => "UpstreamKey",
                16 => "ObjectId",
                _ => continue,
            };
            check(&schema, named, name.name, &mut seen);
        }
    }
    for (message, bytes) in said() {
        check(&schema, message, bytes, &mut seen);
    }
    for (message, fields) in schema {
        for number in fields.keys() {
            assert!(seen.contains_key(&(message.to_owned(), *number)), "{message} {number} is not tried");
        }
    }
}

/// What is said beside resources, with something in each field.
fn said() -> Vec<(&'static str, Bytes)> {
    use crate::proto::*;
    let bytes = || Bytes::from_static(b"x");
    let hello = Hello { node: "n".into(), build: "b".into(), epoch: bytes(), version: 1, state: bytes() };
    let held = vec![Held { kind: 1, name: bytes(), digest: bytes() }];
    let inventory = Inventory { held, more: true };
    let served = Served { version: 1, refused: 1 };
    let welcome = Welcome { epoch: bytes(), build: "b".into(), wants_inventory: true };
    let changed = vec![Resource { kind: 1, name: bytes(), body: bytes() }];
    let gone = vec![Name { kind: 1, name: bytes() }];
    let batch = Batch { version: 1, more: true, changed, gone };
    let proxy =
        [FromProxySay::Hello(hello), FromProxySay::Inventory(inventory), FromProxySay::Served(served)];
    let control = [
        FromControlSay::Welcome(welcome),
        FromControlSay::Batch(batch),
        FromControlSay::Heartbeat(Heartbeat { version: 1 }),
    ];
    let proxy = proxy.map(|say| ("FromProxy", FromProxy { say: Some(say) }.encode_to_vec().into()));
    let control = control.map(|say| ("FromControl", FromControl { say: Some(say) }.encode_to_vec().into()));
    proxy.into_iter().chain(control).collect()
}
