//! Properties that hold for any bytes in place of a message of the link, for the fuzz target `link_message` and for a
//! test.

use std::fmt;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use sluicegate_model::ApiContract;
use sluicegate_model::encoding::part::Reader;
use sluicegate_model::encoding::{Adapt, NoParts, Same, Unknown, Within, decode_as, encode_as};
use sluicegate_model::policy::{RateLimits, Security, Subscriptions, Traffic};

use crate::cut::cut;
use crate::digest::Digest;
use crate::messages::{Batch, FromControl, FromControlSay, FromProxy, decoded, encoded};
use crate::resource::{Kind, Name};
use crate::store::{Delta, Store};

/// The largest growth of a message by decoding and encoding: one byte for the length of a list without a length.
const LONGER: usize = 2;

/// Decodes bytes as messages of both planes.
///
/// # Panics
/// If a message changes or grows by encoding and decoding, or if the configuration of a batch changes on its way to a
/// second store.
pub fn check_message(bytes: &[u8]) {
    comes_back::<FromProxy>(bytes);
    if let Some(FromControl { say: Some(FromControlSay::Batch(batch)) }) = comes_back(bytes) {
        is_told_on(batch);
    }
}

/// Decodes a message. `None` if the bytes are not a message.
fn comes_back<M>(bytes: &[u8]) -> Option<M>
where
    M: Encode<()> + for<'b> Decode<'b, ()> + PartialEq,
{
    let message: M = decoded(bytes).ok()?;
    let written = encoded(&message);
    assert!(written.len() <= LONGER * bytes.len(), "{} bytes were {}", written.len(), bytes.len());
    assert!(decoded(&written).is_ok_and(|again: M| again == message), "it is another one");
    Some(message)
}

/// Asserts that the encoding of an accepted policy equals the received bytes.
fn reads_the_same<A, T>(body: &Bytes)
where
    A: Adapt<T, ()> + for<'p> Adapt<T, Reader<'p, NoParts>>,
    T: PartialEq + fmt::Debug,
{
    if let Ok(policy) = decode_as::<A, T, _>(body, Unknown::Refused, &NoParts) {
        assert_eq!(encode_as::<A, T, ()>(&policy, &mut ()), *body);
    }
}

/// Asserts that a second store accepts the resources that a store accepted from a batch, and has the same
/// configuration.
fn is_told_on(batch: Batch) {
    let (mut changed, mut gone) = (Vec::new(), Vec::new());
    for change in batch.changes {
        let name = Name { kind: change.kind, name: change.name };
        let Some(body) = change.body else {
            gone.push(name);
            continue;
        };
        match name.kind() {
            Some(Kind::Security) => reads_the_same::<Same, Security>(&body),
            Some(Kind::RateLimits) => reads_the_same::<Within<RateLimits>, RateLimits>(&body),
            Some(Kind::Subscriptions) => reads_the_same::<Within<Subscriptions>, Subscriptions>(&body),
            Some(Kind::Traffic) => reads_the_same::<Same, Traffic>(&body),
            Some(Kind::ApiContract) => reads_the_same::<Same, ApiContract>(&body),
            _ => {}
        }
        // Random bytes never contain a matching digest.
        let is_shared = name.kind().is_some_and(Kind::is_shared);
        let name = match is_shared {
            true => Name { name: Digest::of(&body).into_bytes(), ..name },
            false => name,
        };
        changed.push((name, body));
    }
    let mut store = Store::default();
    store.apply(Delta { changed, gone });
    let config = store.config();
    let mut other = Store::default();
    other.apply(Delta { changed: cut(&config).into_iter().collect(), gone: Vec::new() });
    assert_eq!((other.refused(), other.config()), (0, config));
}
