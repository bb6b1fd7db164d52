//! Tests that the encoding does not change by accident. `tests/golden` holds the current encoding of each value, and
//! each encoding decodes as the original value.
//!
//! A new field changes the files. `SLUICEGATE_UPDATE_GOLDEN=1 cargo test -p sluicegate-link golden` writes the files
//! and the seeds of fuzzing again. Check the diff: a changed or removed line means that planes of different versions no
//! longer understand each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Once;

use bytes::Bytes;
use sluicegate_model::encoding::SKIPPED_FROM;

use super::cbor::{Value, edited};
use super::everything::everything;
use super::model::normal;
use super::schema::{Schema, Visit};
use crate::cut::cut;
use crate::digest::Digest;
use sluicegate_model::usage::{QuotaName, QuotaTotal, QuotaUse};

use crate::messages::*;
use crate::resource::{Kind, Name, Refusal};
use crate::store::{Delta, Store};

/// The entries of each golden file, by the name of the file.
type Files = BTreeMap<String, Vec<Entry>>;

struct Entry {
    title: String,
    name: Bytes,
    body: Bytes,
    /// The types of the body and of the name.
    types: [&'static str; 2],
}

pub(super) fn updates() -> bool {
    std::env::var_os("SLUICEGATE_UPDATE_GOLDEN").is_some_and(|value| value == "1")
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.hex"))
}

/// The types of the body and of the name of a resource.
fn types(kind: Kind) -> [&'static str; 2] {
    match kind {
        Kind::Settings => ["Settings", ""],
        Kind::DefaultRule => ["Route", ""],
        Kind::Host => ["VirtualHost", "HostPattern"],
        Kind::Listener => ["Listener", "ListenerName"],
        Kind::TlsHost => ["TlsHost", "HostPattern"],
        Kind::AcmeHost => ["AcmeHost", ""],
        Kind::DefaultCertificates => ["", ""],
        Kind::Passthrough => ["TlsRoute", "HostPattern"],
        Kind::TicketSecrets => ["TicketSecret", ""],
        Kind::Upstream => ["Upstream", "UpstreamKey"],
        Kind::Endpoints => ["Endpoint", "UpstreamKey"],
        Kind::Certificate => ["Certificate", ""],
        Kind::ClientAuth => ["ClientAuth", ""],
        Kind::UpstreamTls => ["UpstreamTls", ""],
        Kind::Security => ["Security", ""],
        Kind::RateLimits => ["RateLimits", ""],
        Kind::Consumer => ["Consumer", "ObjectId"],
        Kind::Traffic => ["Traffic", ""],
        Kind::Subscriptions => ["Subscriptions", ""],
        Kind::ApiContract => ["ApiContract", ""],
    }
}

/// Messages with a value in each field.
fn messages() -> Vec<(&'static str, &'static str, Bytes)> {
    let bytes = Bytes::from_static;
    let hello =
        Hello { node: "n".into(), build: "b".into(), epoch: bytes(b"e"), version: 1, state: bytes(b"s") };
    let held = vec![Held { kind: 1, name: bytes(b"n"), digest: bytes(b"d") }];
    let change = |body| ResourceChange { kind: 1, name: bytes(b"n"), body };
    let batch = Batch { version: 1, more: true, changes: vec![change(Some(bytes(b"b"))), change(None)] };
    let welcome = Welcome {
        epoch: bytes(b"e"),
        build: "b".into(),
        wants_inventory: true,
        stores_reports: true,
        counts_quotas: true,
    };
    let name = QuotaName { subscription: "s".into(), quota: "q".into(), terms: "t".into() };
    let uses = vec![QuotaUse { name: name.clone(), window: 1, length: 2, count: 3, known: 4 }];
    let totals = vec![QuotaTotal { name, window: 1, count: 2 }];
    let proxy = [
        ("hello", FromProxySay::Hello(hello)),
        ("inventory", FromProxySay::Inventory(Inventory { held, more: true })),
        ("served", FromProxySay::Served(Served { version: 1, refused: 1 })),
        ("report", FromProxySay::Report(Report { instance: "i".into(), sequence: 1, body: bytes(b"b") })),
        ("uses", FromProxySay::Uses(Uses { instance: "i".into(), sequence: 1, uses })),
    ];
    let control = [
        ("welcome", FromControlSay::Welcome(welcome)),
        ("batch", FromControlSay::Batch(batch)),
        ("heartbeat", FromControlSay::Heartbeat(Heartbeat { version: 1 })),
        ("stored", FromControlSay::Stored(Stored { sequence: 1 })),
        ("totals", FromControlSay::Totals(Totals { sequence: 1, totals })),
    ];
    let proxy = proxy.map(|(name, say)| (name, "FromProxy", encoded(&FromProxy { say: Some(say) }).into()));
    let control =
        control.map(|(name, say)| (name, "FromControl", encoded(&FromControl { say: Some(say) }).into()));
    proxy.into_iter().chain(control).collect()
}

fn written() -> Files {
    let mut files = Files::new();
    for (nth, config) in everything().iter().enumerate() {
        for (name, body) in cut(config) {
            let kind = name.kind().unwrap();
            let title = format!("configuration {}, {name}", nth + 1);
            let mut types = types(kind);
            // Only hosts of Gateways have a map as their name.
            if types[1] == "HostPattern" && matches!(Value::read(&name.name), Value::Map(_)) {
                types[1] = "HostName";
            }
            let entry = Entry { title, name: name.name, body, types };
            files.entry(format!("{:02}-{kind:?}", name.kind)).or_default().push(entry);
        }
    }
    for (name, of, body) in messages() {
        let entry = Entry { title: name.to_owned(), name: Bytes::new(), body, types: [of, ""] };
        files.entry("messages".to_owned()).or_default().push(entry);
    }
    files
}

/// The text of an entry: hexadecimal digits, each line with a comment after `#` that names the field and the value.
fn listed(schema: &Schema, entry: &Entry) -> String {
    let mut text = format!("== {}\nname {}\n", entry.title, hex(&entry.name));
    let value = Value::read(&entry.body);
    let mut notes = BTreeMap::new();
    schema.walk(&value, entry.types[0], &mut |visit: &Visit<'_>| {
        let mut note = visit.label.split('.').next_back().unwrap_or_default().to_owned();
        for name in visit.names {
            let _ = write!(note, " {name}");
        }
        if let (Value::Map(_), Some(shape)) = (visit.value, visit.shape) {
            let _ = write!(note, " {shape}");
        }
        notes.insert(visit.path.to_vec(), note.trim().to_owned());
    });
    list(&mut text, &value, "", &mut Vec::new(), &notes);
    text
}

fn list(
    text: &mut String,
    value: &Value,
    before: &str,
    path: &mut Vec<i64>,
    notes: &BTreeMap<Vec<i64>, String>,
) {
    let digits = format!("{:indent$}{before}{}", "", hex(&value.head()), indent = path.len() * 2);
    let shown = match value {
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Bool(is) => is.to_string(),
        Value::Text(of) => format!("{of:?}"),
        Value::Null => "null".to_owned(),
        Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
        Value::Array(_) | Value::Map(_) => String::new(),
    };
    let note = notes.get(path).map_or("", String::as_str);
    let _ = match format!("{note} {shown}").trim() {
        "" => writeln!(text, "{digits}"),
        note => writeln!(text, "{digits:<48} # {note}"),
    };
    let mut item = |index: i64, value: &Value, before: &str| {
        path.push(index);
        list(text, value, before, path, notes);
        path.pop();
    };
    match value {
        Value::Array(items) => (0..).zip(items).for_each(|(index, value)| item(index, value, "")),
        Value::Map(entries) => {
            for (index, value) in entries {
                item(*index, value, &format!("{} ", hex(&Value::Int((*index).into()).write())));
            }
        }
        _ => {}
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes_of(hex: &str) -> Bytes {
    let digits: Vec<_> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

/// The title, name and body of each entry in a file.
fn read(text: &str) -> Vec<(String, Bytes, Bytes)> {
    let entries = text.split("== ").skip(1).map(|entry| {
        let (title, rest) = entry.split_once('\n').unwrap();
        let (name, body) = rest.split_once('\n').unwrap();
        let digits: String =
            body.lines().map(|line| line.split_once('#').map_or(line, |(digits, _)| digits)).collect();
        (title.to_owned(), bytes_of(name.strip_prefix("name").unwrap()), bytes_of(&digits))
    });
    entries.collect()
}

/// The text of a golden file. If [`updates`] returns true, the first call writes all files again.
fn golden(name: &str) -> String {
    static UPDATE: Once = Once::new();
    UPDATE.call_once(|| {
        if updates() {
            let dir = file(name).parent().unwrap().to_owned();
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).unwrap();
            let schema = Schema::read();
            for (name, entries) in written() {
                std::fs::write(file(&name), text_of(&schema, &entries)).unwrap();
            }
        }
    });
    std::fs::read_to_string(file(name)).unwrap_or_default()
}

fn text_of(schema: &Schema, entries: &[Entry]) -> String {
    let text: Vec<_> = entries.iter().map(|entry| listed(schema, entry)).collect();
    text.join("\n")
}

#[test]
fn encoded_values_match_the_golden_encodings() {
    let schema = Schema::read();
    let files = written();
    for (name, entries) in &files {
        let (golden, now) = (golden(name), text_of(&schema, entries));
        let differs = golden.lines().zip(now.lines()).position(|(golden, now)| golden != now);
        let line =
            differs.map_or_else(|| "it has another length".to_owned(), |at| format!("line {}", at + 1));
        assert!(golden == now, "{name}: {line}; see the first lines of golden.rs");
    }
    let there = file("x").parent().unwrap().read_dir().unwrap().count();
    assert_eq!(there, files.len(), "files of what is not written any more");
}

#[test]
fn golden_encodings_decode_to_their_original_values() {
    for (nth, config) in everything().into_iter().enumerate() {
        let mut changed = Vec::new();
        for name in written().into_keys().filter(|name| name != "messages") {
            let kind: u32 = name.split('-').next().unwrap().parse().unwrap();
            let of_config = read(&golden(&name)).into_iter();
            let of_config =
                of_config.filter(|(title, ..)| title.starts_with(&format!("configuration {},", nth + 1)));
            changed.extend(of_config.map(|(_, name, body)| (Name { kind, name }, body)));
        }
        let mut store = Store::default();
        store.apply(Delta { changed, gone: vec![] });
        assert_eq!((store.refused(), normal(store.config())), (0, normal(config)));
    }
    let golden = read(&golden("messages"));
    assert_eq!(golden.len(), messages().len());
    for ((title, _, golden), (name, of, now)) in golden.into_iter().zip(messages()) {
        assert_eq!(title, name);
        match of {
            "FromProxy" => assert_eq!(decoded::<FromProxy>(&golden), decoded(&now)),
            _ => assert_eq!(decoded::<FromControl>(&golden), decoded(&now)),
        }
    }
}

#[test]
fn golden_encodings_cover_every_field_and_variant() {
    let schema = Schema::read();
    let mut seen = BTreeSet::new();
    for entry in written().values().flatten() {
        for (bytes, of) in [&entry.body, &entry.name].into_iter().zip(entry.types) {
            if !of.is_empty() {
                schema.walk(&Value::read(bytes), of, &mut |visit: &Visit<'_>| {
                    seen.insert(visit.label.to_owned());
                    seen.extend(visit.names.iter().cloned());
                });
            }
        }
    }
    let all = schema.all();
    assert!(all.len() > 300, "{}", all.len());
    // Defaults that are never written.
    seen.extend(["EntryPoint::Flags", "ProxyHeader::ByPeer"].map(str::to_owned));
    let missing: Vec<_> = all.into_iter().filter(|field| !seen.contains(field)).collect();
    assert!(missing.is_empty(), "add them to everything.rs: {missing:?}");
}

#[test]
fn absent_optional_fields_of_settings_decode_as_none() {
    // An absent field must not look like a field with the value `None` (see `OrDefault`).
    let body = encoded(&sluicegate_model::Settings::default());
    Schema::read().walk(&Value::read(&body), "Settings", &mut |visit: &Visit<'_>| {
        assert!(!visit.is_optional, "{}", visit.label);
    });
}

/// The places in a resource for which `is` returns true.
fn places(schema: &Schema, kind: Kind, body: &[u8], is: impl Fn(&Visit<'_>) -> bool) -> Vec<Vec<i64>> {
    let mut places = Vec::new();
    let [of, _] = types(kind);
    schema.walk(&Value::read(body), of, &mut |visit: &Visit<'_>| {
        if is(visit) {
            places.push(visit.path.to_vec());
        }
    });
    places
}

/// The reason why the store rejects a resource with this body, or `None`.
fn refusal(store: &Store, name: &Name, body: Bytes) -> Option<Refusal> {
    let is_shared = name.kind().is_some_and(Kind::is_shared);
    let name = match is_shared {
        true => Name { name: Digest::of(&body).into_bytes(), ..name.clone() },
        false => name.clone(),
    };
    store.refusal(&name, body)
}

/// Calls `with` for each resource of each configuration, with a store that holds the whole configuration.
fn each(mut with: impl FnMut(&Store, Kind, &Name, &Bytes)) {
    for config in everything() {
        let resources = cut(&config);
        let mut store = Store::default();
        store.apply(Delta { changed: resources.clone().into_iter().collect(), gone: vec![] });
        for (name, body) in &resources {
            with(&store, name.kind().unwrap(), name, body);
        }
    }
}

/// Whether the value is a map: a struct, or the fields of a variant.
fn is_map(visit: &Visit<'_>) -> bool {
    matches!(visit.value, Value::Map(_))
}

#[test]
fn unknown_field_at_any_depth_rejects_the_resource_unless_skippable() {
    let schema = Schema::read();
    let mut tried = 0;
    let unknown = |of: i64, place: &[i64], body: &Bytes| {
        edited(body, |value| value.at(place).add(of, Value::Text("new".into())))
    };
    each(|store, kind, name, body| {
        let mut all = places(&schema, kind, body, is_map);
        all.extend(places(&schema, kind, body, |visit| !visit.names.is_empty()).into_iter().filter_map(
            |mut place| {
                place.push(1);
                // An enum without fields has no map.
                matches!(at(body, &place), Some(Value::Map(_))).then_some(place)
            },
        ));
        for place in all {
            tried += 1;
            let because = |index| refusal(store, name, unknown(index, &place, body));
            let partial = Some(Refusal::Body(sluicegate_model::encoding::Fault::Partial));
            assert_eq!(because(SKIPPED_FROM - 1), partial, "{name} {place:?}");
            // No field has this index.
            let skipped = because(SKIPPED_FROM + 100);
            let is_known_as_a_whole = [
                Kind::Security,
                Kind::RateLimits,
                Kind::Traffic,
                Kind::Subscriptions,
                Kind::ApiContract,
                Kind::Consumer,
                Kind::ClientAuth,
                Kind::UpstreamTls,
            ]
            .contains(&kind);
            assert_eq!(skipped, partial.filter(|_| is_known_as_a_whole), "{name} {place:?}");
        }
    });
    assert!(tried > 200, "{tried}");
}

fn at(body: &[u8], path: &[i64]) -> Option<Value> {
    path.iter().try_fold(Value::read(body), |value, index| match value {
        Value::Array(items) => items.into_iter().nth(usize::try_from(*index).ok()?),
        Value::Map(entries) => entries.into_iter().find(|(key, _)| key == index).map(|(_, value)| value),
        _ => None,
    })
}

#[test]
fn unknown_fields_that_a_decoder_skips_do_not_change_the_decoded_value() {
    let schema = Schema::read();
    for (name, of, body) in messages() {
        let mut places = Vec::new();
        schema.walk(&Value::read(&body), of, &mut |visit: &Visit<'_>| {
            if is_map(visit) {
                places.push(visit.path.to_vec());
            }
        });
        let add =
            |body: Bytes, place: Vec<i64>| edited(&body, |value| value.at(&place).add(1000, Value::Null));
        let newer = places.into_iter().rev().fold(body.clone(), add);
        match of {
            "FromProxy" => assert_eq!(decoded::<FromProxy>(&newer), decoded(&body), "{name}"),
            _ => assert_eq!(decoded::<FromControl>(&newer), decoded(&body), "{name}"),
        }
    }
    // A message of an unknown kind decodes as an empty message.
    let newer = Value::Map(vec![(0, Value::Array(vec![Value::Int(99), Value::Map(vec![(0, Value::Null)])]))]);
    assert_eq!(decoded::<FromControl>(&newer.write()), Ok(FromControl { say: None }));
    for config in everything() {
        let mut changed: Vec<_> = cut(&config).into_iter().collect();
        for (name, body) in &mut changed {
            let kind = name.kind().unwrap();
            if kind.is_shared() || kind == Kind::Consumer {
                continue;
            }
            // The deepest place comes first, so that the other paths stay valid.
            for place in places(&schema, kind, body, is_map).into_iter().rev() {
                *body = edited(body, |value| value.at(&place).add(1000, Value::Array(vec![Value::Null])));
            }
        }
        let mut store = Store::default();
        store.apply(Delta { changed, gone: vec![] });
        assert_eq!((store.refused(), normal(store.config())), (0, normal(config)));
    }
}

#[test]
fn unknown_variant_at_any_depth_rejects_the_resource() {
    let schema = Schema::read();
    let mut tried = 0;
    each(|store, kind, name, body| {
        for place in places(&schema, kind, body, |visit| !visit.names.is_empty()) {
            tried += 1;
            let other = edited(body, |value| match value.at(&place) {
                Value::Array(parts) => parts[0] = Value::Int(99),
                index => *index = Value::Int(99),
            });
            assert!(refusal(store, name, other).is_some(), "{name} {place:?}");
        }
    });
    assert!(tried > 50, "{tried}");
}

#[test]
fn missing_field_has_a_default_or_rejects_the_resource() {
    let schema = Schema::read();
    let mut refused = 0;
    each(|store, kind, name, body| {
        for place in places(&schema, kind, body, is_map) {
            let Some(Value::Map(entries)) = at(body, &place) else { continue };
            for (index, _) in entries {
                let without = edited(body, |value| value.at(&place).remove(index));
                // The decoder must not panic. If it accepts the body, decoding covers all remaining fields.
                refused += usize::from(refusal(store, name, without).is_some());
            }
        }
    });
    assert!(refused > 100, "{refused}");
}

#[test]
fn indices_of_shared_resources_match_their_resource_kinds() {
    use sluicegate_model::encoding::Part;
    use sluicegate_model::policy::{RateLimits, Security, Subscriptions, Traffic};
    use sluicegate_model::{ApiContract, Certificate, ClientAuth, UpstreamTls};
    let of = [
        (Certificate::KIND, Kind::Certificate),
        (ClientAuth::KIND, Kind::ClientAuth),
        (UpstreamTls::KIND, Kind::UpstreamTls),
        (Security::KIND, Kind::Security),
        (RateLimits::KIND, Kind::RateLimits),
        (Traffic::KIND, Kind::Traffic),
        (Subscriptions::KIND, Kind::Subscriptions),
        (ApiContract::KIND, Kind::ApiContract),
    ];
    assert!(of.iter().all(|(number, kind)| Kind::of(*number) == Some(*kind) && kind.is_shared()));
}
