//! What holds for any bytes that are said to be a message of the link: for the fuzz target `link_message`, and for a test.

use std::fmt;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use sluicegate_model::encoding::part::Reader;
use sluicegate_model::encoding::{Adapt, NoParts, Same, Unknown, Within, decode_as, encode_as};
use sluicegate_model::policy::{RateLimits, Security, Traffic};

use crate::cut::cut;
use crate::digest::Digest;
use crate::messages::{Batch, FromControl, FromControlSay, FromProxy, decoded, encoded};
use crate::resource::{Kind, Name};
use crate::store::{Delta, Store};

/// How much longer a message may be after it was read: by one byte for the length of a list without one.
const LONGER: usize = 2;

/// Reads bytes as what either plane says.
///
/// # Panics
/// If a message is not the same after it was written and read again, or grows; or if what a batch of resources makes is
/// not the same for those who get it in turn.
pub fn check_message(bytes: &[u8]) {
    comes_back::<FromProxy>(bytes);
    if let Some(FromControl { say: Some(FromControlSay::Batch(batch)) }) = comes_back(bytes) {
        is_told_on(batch);
    }
}

/// The message, if it is one.
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

/// A policy that is taken over is written as it came.
fn reads_the_same<A, T>(body: &Bytes)
where
    A: Adapt<T, ()> + for<'p> Adapt<T, Reader<'p, NoParts>>,
    T: PartialEq + fmt::Debug,
{
    if let Ok(policy) = decode_as::<A, T, _>(body, Unknown::Refused, &NoParts) {
        assert_eq!(encode_as::<A, T, ()>(&policy, &mut ()), *body);
    }
}

/// Whatever is taken over of a batch can be said to others, who take over all of it and have the same then.
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
            Some(Kind::Traffic) => reads_the_same::<Same, Traffic>(&body),
            _ => {}
        }
        // Nobody finds a digest by chance.
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
