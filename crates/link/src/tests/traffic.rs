//! A strategy for arbitrary traffic policies, with the field names of a TrafficPolicy.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use sluicegate_model::feature::MIRRORS_MAX;
use sluicegate_model::policy::Traffic;
use sluicegate_model::value::Entries;
use sluicegate_model::{Ejection, HealthCheck};

use super::model::{id, key};

/// A strategy for mappings with some of these fields. A `!` in a name marks a required field.
pub(super) fn object<const N: usize>(
    fields: [(&'static str, BoxedStrategy<Value>); N],
) -> BoxedStrategy<Value> {
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(name, value)| {
            let presence = match name.strip_suffix('!') {
                Some(_) => value.prop_map(Some).boxed(),
                None => option::of(value).boxed(),
            };
            let name = name.trim_end_matches('!');
            presence.prop_map(move |value| value.map(|value| (name.to_owned(), value)))
        })
        .collect();
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect::<Map<_, _>>())).boxed()
}

pub(super) fn list(entry: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    vec(entry, 1..4).prop_map(Value::Array).boxed()
}

pub(super) fn text(pattern: &'static str) -> BoxedStrategy<Value> {
    pattern.prop_map(Value::from).boxed()
}

pub(super) fn number(range: std::ops::RangeInclusive<u32>) -> BoxedStrategy<Value> {
    range.prop_map(Value::from).boxed()
}

pub(super) fn one_of(words: &'static [&'static str]) -> BoxedStrategy<Value> {
    prop::sample::select(words).prop_map(Value::from).boxed()
}

pub(super) fn seconds() -> BoxedStrategy<Value> {
    (1..=3600_u32).prop_map(|seconds| format!("{seconds}s").into()).boxed()
}

pub(super) fn url_rewrite() -> BoxedStrategy<Value> {
    let regex = object([
        ("pattern!", text(r"(/[a-z]{1,4}){1,3}\(\.\*\)")),
        ("value!", text("(/[a-z]{1,4}){1,3}\\$1")),
    ]);
    let hostname = || text("[a-z]{1,8}");
    prop_oneof![
        object([("path", path()), ("hostname", hostname())]),
        object([("regex", regex), ("hostname", hostname())]),
    ]
    .boxed()
}

pub(super) fn edits() -> BoxedStrategy<Value> {
    let header = || object([("name!", text("X-[A-Za-z]{1,8}")), ("value!", text("[!-~]{1,8}"))]);
    object([("set", list(header())), ("add", list(header())), ("remove", list(text("X-[A-Za-z]{1,8}")))])
}

fn path() -> BoxedStrategy<Value> {
    let kind = one_of(&["ReplaceFullPath", "ReplacePrefixMatch"]);
    object([("type!", kind), ("value!", text("(/[a-z]{1,4}){1,3}"))])
}

fn service() -> BoxedStrategy<Value> {
    object([("name!", text("[a-z]{1,8}")), ("port!", number(1..=65535))])
}

fn split() -> BoxedStrategy<Value> {
    let matches = || {
        let place = prop_oneof![
            object([("header!", text("x-[a-z]{1,8}")), ("value", text("[!-~]{1,8}"))]),
            object([("cookie!", text("[a-z]{1,8}")), ("value", text("[!-~]{1,8}"))]),
        ];
        list(place.boxed())
    };
    let backend = object([
        ("serviceRef!", service()),
        ("weight", number(0..=1_000_000)),
        ("match", matches()),
        ("exclude", matches()),
    ]);
    object([("weight!", number(1..=1_000_000)), ("backends!", list(backend))])
}

fn load_balancing() -> BoxedStrategy<Value> {
    let part = prop_oneof![
        Just(json!({"type": "Address"})),
        Just(json!({"type": "Path"})),
        object([("type!", one_of(&["Header", "Cookie", "Query"])), ("name!", text("[a-z]{1,8}"))]),
    ];
    let hash = object([
        ("algorithm!", one_of(&["ConsistentHash"])),
        ("hash!", list(part.boxed())),
        ("affinity", affinity()),
    ]);
    let algorithm = one_of(&["ResponseTime", "RoundRobin", "LeastRequest"]);
    prop_oneof![hash, object([("algorithm", algorithm), ("affinity", affinity())])].boxed()
}

pub(super) fn affinity() -> BoxedStrategy<Value> {
    let over_weights = || Just(json!(true)).boxed();
    let cookie = object([
        ("cookie!", text("[a-z]{1,8}")),
        ("maxAge", seconds()),
        ("path", text("/[a-z]{0,8}")),
        ("absoluteTimeout", seconds()),
        ("idleTimeout", seconds()),
        ("overWeights", over_weights()),
    ]);
    let header = object([
        ("header!", text("x-[a-z]{1,8}")),
        ("absoluteTimeout", seconds()),
        ("idleTimeout", seconds()),
        ("overWeights", over_weights()),
    ]);
    prop_oneof![cookie, header].boxed()
}

pub(super) fn traffic() -> BoxedStrategy<Arc<Traffic>> {
    let timeouts = object(
        ["request", "backendRequest", "connect", "response", "idle", "requestBody", "tunnel"]
            .map(|name| (name, seconds())),
    );
    let budget = object([("percent", number(0..=100)), ("minPerSecond", number(0..=1000))]);
    let retries = object([
        ("attempts", number(0..=100)),
        ("codes", list(number(500..=599))),
        ("budget", budget),
        ("backoff", text("[1-9]{1,3}ms")),
    ]);
    let limits = object([("requestBody", text("[1-9]{1,4}Ki")), ("responseBody", text("[1-9]{1,4}Mi"))]);
    let redirect = object([
        ("scheme!", one_of(&["http", "https"])),
        ("hostname", text("[a-z]{1,8}")),
        ("port", number(1..=65535)),
        ("path", path()),
        ("statusCode", prop::sample::select(vec![301, 302, 303, 307, 308]).prop_map(Value::from).boxed()),
    ]);
    let response = object([
        ("statusCode!", number(400..=599)),
        ("contentType", text("[a-z]{1,8}")),
        ("body", text(".{0,16}")),
    ]);
    let fault = object([
        ("delay", object([("percent", number(1..=100)), ("time!", seconds())])),
        ("abort", object([("percent", number(1..=100)), ("statusCode!", number(400..=599))])),
    ]);
    let cache = object([
        ("maxSize", text("[1-9]Mi")),
        ("maxResponseSize", text("[1-9]Ki")),
        ("defaultTime", seconds()),
        ("staleIfError", seconds()),
        ("key", object([("headers", list(text("x-[a-z]{1,8}")))])),
    ]);
    let others = [
        ("timeouts", timeouts),
        ("retries", retries),
        ("limits", limits),
        ("requestHeaders", edits()),
        ("responseHeaders", edits()),
        ("urlRewrite", url_rewrite()),
        ("fault", fault),
        ("split", split()),
        ("loadBalancing", load_balancing()),
        ("mirror", object([("serviceRef!", service()), ("percent", number(1..=100))])),
        ("cache", cache),
        ("bandwidth", object([("perSecond!", text("[1-9]{1,4}Ki")), ("after", text("[1-9]{1,4}Ki"))])),
    ];
    let answer = prop_oneof![object([("redirect", redirect)]), object([("directResponse", response)])];
    let ids = (id(), vec(id(), 0..3));
    (ids, object(others), answer.boxed(), key(), 1..=MIRRORS_MAX)
        .prop_map(|((id, inherits), mut features, answer, upstream, count)| {
            if let (Value::Object(features), Value::Object(answer)) = (&mut features, answer) {
                features.extend(answer);
            }
            let mut traffic = Traffic { id, features: valid(features), inherits };
            let mirrors = std::mem::take(&mut traffic.features.mirrors);
            let mirrors = mirrors.iter().flat_map(|mirror| std::iter::repeat_n(mirror.clone(), count));
            traffic.features.mirrors =
                Entries::new(mirrors.collect()).expect("at most the maximum of mirrors");
            for named in traffic.features.upstreams_mut() {
                *named = upstream.clone();
            }
            Arc::new(traffic)
        })
        .boxed()
}

/// A value of the model, from the fields of a policy.
pub(super) fn valid<T>(fields: Value) -> T
where
    T: for<'de> serde::Deserialize<'de>,
{
    serde_json::from_value(fields).expect("the fields are valid")
}

pub(super) fn ejection() -> impl Strategy<Value = Ejection> {
    object([("consecutiveErrors", number(1..=1000)), ("time", seconds()), ("maxPercent", number(1..=100))])
        .prop_map(valid)
}

pub(super) fn health_check() -> impl Strategy<Value = HealthCheck> {
    let common = object([
        ("interval", seconds()),
        ("timeout", seconds()),
        ("healthyThreshold", number(1..=100)),
        ("unhealthyThreshold", number(1..=100)),
    ]);
    let http = object([
        ("type!", one_of(&["HTTP"])),
        ("path", text("/[a-z/]{0,8}")),
        ("hostname", text("[a-z]{1,8}")),
        ("codes", one_of(&["200", "200-399", "100-599"])),
    ]);
    let grpc = object([("type!", one_of(&["GRPC"])), ("service", text("[A-Za-z.]{0,8}"))]);
    let kind = prop_oneof![http, grpc, Just(json!({"type": "TCP"}))];
    (kind, common).prop_map(|(mut check, common)| {
        if let (Value::Object(check), Value::Object(common)) = (&mut check, common) {
            check.extend(common);
        }
        valid(check)
    })
}
