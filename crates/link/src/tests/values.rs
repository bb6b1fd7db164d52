//! Tests that the decoder rejects values outside the bounds of the model.

use std::sync::Arc;

use bytes::Bytes;
use minicbor::Encode;
use sluicegate_model::encoding::Fault;
use sluicegate_model::{Config, UpstreamKey};

use super::cbor::{Value, edited};
use super::everything::everything;
use crate::cut::cut;
use crate::digest::Digest;
use crate::resource::{Kind, Name, Refusal};
use crate::store::Store;

/// The fault of a resource with `value` at `path`.
fn altered(kind: Kind, body: &Bytes, path: &[i64], value: Value) -> Fault {
    let body = edited(body, |policy| *policy.at(path) = value);
    let name = match kind.is_shared() {
        true => kind.named(Digest::of(&body).into_bytes()),
        false => kind.named(Bytes::new()),
    };
    match Store::default().refusal(&name, body) {
        Some(Refusal::Body(fault)) => fault,
        other => panic!("{path:?}: {other:?}"),
    }
}

fn body_of(value: &impl Encode<()>) -> Bytes {
    crate::messages::encoded(value).into()
}

#[test]
fn decoder_rejects_invalid_values_of_policies() {
    let text = |text: &str| Value::Text(text.into());
    let numbers = |numbers: &[i128]| Value::Array(numbers.iter().copied().map(Value::Int).collect());
    let [config, _] = everything();
    let full = &config.hosts[0].rules[0];

    let security = body_of(&**full.security.as_ref().unwrap());
    let refused = |path: &[i64], value| altered(Kind::Security, &security, path, value);
    for absent in [0, 2] {
        let body = edited(&security, |policy| policy.remove(absent));
        let name = Kind::Security.named(Digest::of(&body).into_bytes());
        assert!(matches!(Store::default().refusal(&name, body), Some(Refusal::Body(Fault::Malformed(_)))));
    }
    assert_eq!(refused(&[2, 1], Value::Array(vec![text("x")])), Fault::Invalid("a network"));
    for origin in ["https://", "https://*example.com", ".example.com", "null"] {
        assert_eq!(refused(&[3, 0, 0], text(origin)), Fault::Invalid("an origin"), "{origin}");
    }
    let header = Fault::Invalid("the name of a header");
    for path in [&[3, 2][..], &[3, 3]] {
        assert_eq!(refused(path, Value::Array(vec![text("a\r\nb")])), header);
    }
    let (number, duration) = (Fault::Invalid("a number"), Fault::Invalid("a duration"));
    let jwt = |path: &[i64]| [&[4, 2], path].concat();
    for provider in [0, 1] {
        assert_eq!(refused(&jwt(&[0, provider, 4, 1, 0, 0]), Value::Bytes(vec![])), Fault::Invalid("a key"));
    }
    assert_eq!(refused(&jwt(&[0, 0, 5]), Value::Int(601_000_000_000)), duration);
    assert_eq!(refused(&jwt(&[0, 0, 7, 0, 0]), text("")), Fault::Invalid("the name of a claim"));
    assert_eq!(refused(&jwt(&[0, 0, 8, 0, 1]), text("a b")), header);
    assert_eq!(refused(&jwt(&[1, 0, 1, 1]), text("Bearer")), Fault::Invalid("the text before a credential"));
    assert_eq!(refused(&jwt(&[1, 1, 1, 0]), text("")), Fault::Invalid("the name of a parameter"));
    let methods = Fault::Invalid("the methods of authentication");
    assert_eq!(refused(&jwt(&[0, 1, 0]), text("issuer-0")), methods, "two providers of one name");
    let ext_auth = |path: &[i64]| [&[4, 5], path].concat();
    assert_eq!(refused(&ext_auth(&[3]), Value::Int(i128::from(u64::MAX))), duration);
    assert_eq!(refused(&ext_auth(&[6, 0]), text("a b")), Fault::Invalid("the URL of a sign-in page"));
    assert_eq!(refused(&[5, 1, 0, 5, 0, 1], text("admin")), Fault::Invalid("a path"));

    let limits = body_of(&**full.rate_limits.as_ref().unwrap());
    let refused = |path: &[i64], value| altered(Kind::RateLimits, &limits, path, value);
    for requests in [0, 1_000_001] {
        assert_eq!(refused(&[1, 0, 1], Value::Int(requests)), number);
        assert_eq!(refused(&[1, 0, 3], Value::Int(requests)), number, "the burst");
        assert_eq!(refused(&[2, 0, 1], Value::Int(requests)), number, "in flight");
    }
    assert_eq!(refused(&[1, 0, 2], Value::Int(999_999)), duration);
    assert_eq!(refused(&[1, 0, 2], Value::Int(u64::MAX.into())), duration);
    assert_eq!(refused(&[1, 0, 4], Value::Int(1)), Fault::Invalid("a limit"), "a window with a burst");
    for bits in [0, 129] {
        assert_eq!(refused(&[1, 0, 5, 0, 1, 0], Value::Int(bits)), number);
    }
    assert_eq!(refused(&[1, 0, 5, 1, 1, 0], text("")), header);
    assert_eq!(refused(&[1, 0, 5, 2, 1, 0], text("")), Fault::Invalid("the name of a claim"));
    for path in [&[1, 1, 0][..], &[2, 0, 0]] {
        assert_eq!(refused(path, text("bucket")), Fault::Invalid("the name of a limit"));
    }
    let redis = |field: i64| [4, 1, 0, field];
    assert_eq!(refused(&redis(0), text("")), Fault::Invalid("the address of a server"));
    assert_eq!(refused(&redis(6), Value::Int(0)), duration);
    assert_eq!(refused(&redis(7), Value::Int(6_000_000_000)), duration);

    let traffic = body_of(&**full.traffic.as_ref().unwrap());
    let refused = |path: &[i64], value| altered(Kind::Traffic, &traffic, path, value);
    let path = Fault::Invalid("a path");
    let features = Fault::Invalid("a combination of features");
    assert_eq!(refused(&[1, 0, 0], Value::Int(u64::MAX.into())), Fault::Invalid("a duration"));
    assert_eq!(refused(&[1, 0, 1], Value::Int(0)), Fault::Invalid("a duration"));
    assert_eq!(refused(&[1, 1, 0], Value::Int(101)), number);
    assert_eq!(refused(&[1, 1, 1], numbers(&[399])), number);
    assert_eq!(refused(&[1, 1, 2, 0], Value::Int(101)), number);
    assert_eq!(refused(&[1, 1, 2, 1], Value::Int(1001)), number);
    assert_eq!(refused(&[1, 3, 0, 0, 0], text("a:b")), header);
    assert_eq!(refused(&[1, 3, 0, 0, 0], text("Host")), header);
    assert_eq!(refused(&[1, 3, 0, 0, 1], text("a\nb")), Fault::Invalid("the value of a header"));
    for wrong in ["v2", "/a?b", "/a#b", "/a/../b"] {
        assert_eq!(refused(&[1, 5, 0, 1], text(wrong)), path, "{wrong}");
    }
    assert_eq!(refused(&[1, 5, 1], text("a/b")), Fault::Invalid("the name of a host"));
    for (status, fault) in [(300, &number), (309, &number), (304, &features), (306, &features)] {
        assert_eq!(refused(&[1, 6, 4], Value::Int(status)), *fault, "{status}");
    }
    assert_eq!(refused(&[1, 6, 2], Value::Int(0)), number);
    assert_eq!(refused(&[1, 8, 0, 0], Value::Int(0)), number);
    assert_eq!(refused(&[1, 8, 1, 1], Value::Int(399)), number);
    assert_eq!(refused(&[1, 9, 0], Value::Int(1_000_001)), number);
    let backend = Value::read(&traffic).at(&[1, 9, 1, 0]).clone();
    let many = refused(&[1, 9, 1], Value::Array(vec![backend; 9]));
    assert_eq!(many, Fault::Invalid("the length of a list"));
    assert_eq!(refused(&[1, 9, 1, 0, 3, 0, 1], text("")), Fault::Invalid("the name of a cookie"));
    for (field, size, fault) in [
        (0, 1, "a size"),
        (0, i128::from(u64::MAX), "a size"),
        (1, 1 << 19, "a combination of features"),
        (1, 0, "a combination of features"),
    ] {
        assert_eq!(refused(&[1, 12, field], Value::Int(size)), Fault::Invalid(fault), "{size}");
    }
    let other = config.rules().nth(1).and_then(|rule| rule.traffic.clone()).unwrap();
    let other = body_of(&*other);
    let refused = |path: &[i64], value| altered(Kind::Traffic, &other, path, value);
    assert_eq!(refused(&[1, 7, 0], Value::Int(199)), number);
    assert_eq!(refused(&[1, 7, 0], Value::Int(204)), features);
    assert_eq!(refused(&[1, 7, 2], text(&"x".repeat(16 * 1024 + 1))), features);

    let good = body_of(&*config.consumers[0]);
    let short = Value::Array(vec![Value::Bytes(vec![1; 31])]);
    assert!(matches!(altered(Kind::Consumer, &good, &[3], short), Fault::Malformed(_)));
}

#[test]
fn decoder_rejects_invalid_values_of_other_resources() {
    let text = |text: &str| Value::Text(text.into());
    let [config, _] = everything();
    let settings = body_of(&config.settings);
    let refused = |path: &[i64], value| altered(Kind::Settings, &settings, path, value);
    assert_eq!(refused(&[0, 0], Value::Int(u64::MAX.into())), Fault::Invalid("a duration"));
    for number in [0, 257] {
        assert_eq!(refused(&[1, 3], Value::Int(number)), Fault::Invalid("the number of header lines"));
    }
    assert_eq!(refused(&[1, 9], Value::Int(1 << 31)), Fault::Invalid("a window of flow control"));
    assert_eq!(refused(&[2, 5], Value::Int(101)), Fault::Invalid("a percentage"));
    assert_eq!(refused(&[3], Value::Array(vec![text("x")])), Fault::Invalid("a network"));
    let twice = Value::Array(vec![Value::Int(0), Value::Int(0)]);
    assert_eq!(refused(&[9, 0], twice), Fault::Invalid("the content codings"));
    assert_eq!(refused(&[9, 1], Value::Array(vec![text("x")])), Fault::Invalid("a media type"));
    for (field, level) in [(0, 10), (1, 5), (2, 0)] {
        assert_eq!(refused(&[9, 3, field], Value::Int(level)), Fault::Invalid("a number"));
    }
    assert_eq!(refused(&[10, 0], text("x")), Fault::Invalid("the collector of spans"));
    for share in [-0.5, 100.5, f64::NAN] {
        let refusal = refused(&[10, 2], Value::Float(share));
        assert_eq!(refusal, Fault::Invalid("the share of requests that are traced"));
    }

    let resources = cut(&config);
    let of = |kind: Kind| resources.iter().find(|(name, _)| name.kind() == Some(kind)).unwrap().1;
    let refused = |path: &[i64], value| altered(Kind::Certificate, of(Kind::Certificate), path, value);
    assert_eq!(refused(&[1], Value::Array(vec![])), Fault::Invalid("the chain of a certificate"));
    assert_eq!(refused(&[2, 0], Value::Int(3)), Fault::Invalid("the format of a key"));
    assert_eq!(refused(&[4, 0, 1, 0], text("")), Fault::Invalid("the name of a host"));
    assert_eq!(
        refused(&[5], Value::Array(vec![Value::Int(i64::MAX.into()), Value::Int(u32::MAX.into())])),
        Fault::Invalid("a time")
    );
    let secret = altered(Kind::TicketSecrets, of(Kind::TicketSecrets), &[0], Value::Bytes(vec![1; 31]));
    assert_eq!(secret, Fault::Invalid("the length of a ticket secret"));
    let address = altered(Kind::Endpoints, of(Kind::Endpoints), &[0, 0, 0], Value::Bytes(vec![1; 5]));
    assert_eq!(address, Fault::Invalid("an address"));

    let checked = config.upstreams.values().find(|upstream| upstream.external_name.is_some()).unwrap();
    let upstream = sluicegate_model::Upstream { tls: None, ..sluicegate_model::Upstream::clone(checked) };
    let upstream = with_upstream(upstream);
    let refused = |path: &[i64], value| {
        let (name, body) = &upstream;
        let body = edited(body, |upstream| *upstream.at(path) = value);
        match Store::default().refusal(name, body) {
            Some(Refusal::Body(fault)) => fault,
            other => panic!("{path:?}: {other:?}"),
        }
    };
    let number = Fault::Invalid("a number");
    assert_eq!(refused(&[5, 0, 0], Value::Int(0)), number);
    assert_eq!(refused(&[5, 0, 2], Value::Int(0)), number);
    assert_eq!(refused(&[5, 1, 5], Value::Int(999_999)), Fault::Invalid("a duration"));
    for field in [7, 8] {
        assert_eq!(refused(&[5, 1, field], Value::Int(101)), number);
    }
    assert_eq!(refused(&[5, 1, 1], text("healthz")), Fault::Invalid("a path"));
    assert_eq!(refused(&[5, 1, 2], text("")), Fault::Invalid("the name of a host"));
    assert_eq!(refused(&[5, 1, 3, 0], Value::Int(99)), Fault::Invalid("a range of status codes"));
}

/// The resource of an upstream.
fn with_upstream(upstream: sluicegate_model::Upstream) -> (Name, Bytes) {
    let upstreams = [(UpstreamKey::new("default", "a", "80"), Arc::new(upstream))].into();
    let resources = cut(&Config { upstreams, ..Config::default() });
    resources.into_iter().find(|(name, _)| name.kind() == Some(Kind::Upstream)).unwrap()
}
