//! What holds for any bytes that are said to be a message of the link: for the fuzz target `link_message`, and for a test.

use std::fmt;

use bytes::Bytes;
use prost::Message;
use sluicegate_model::policy::{RateLimits, Security, Traffic};

use crate::convert::{Refusal, whole};
use crate::cut::cut;
use crate::digest::Digest;
use crate::proto::{self, Batch, FromControl, FromControlSay, FromProxy};
use crate::resource::{Kind, Name};
use crate::store::{Delta, Store};

/// How much longer a message may be after it was read: numbers that were written as short as negative ones can be, or one by
/// one, are not.
const LONGER: usize = 4;

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
fn comes_back<M: Message + Default + PartialEq>(bytes: &[u8]) -> Option<M> {
    let message = M::decode(bytes).ok()?;
    let written = message.encode_to_vec();
    assert!(written.len() <= LONGER * bytes.len(), "{} bytes were {}", written.len(), bytes.len());
    assert!(M::decode(&*written).is_ok_and(|again| again == message), "it is another one");
    Some(message)
}

/// A policy that is taken over can be said to others. What was changed on the way has another name, and no route names it.
fn reads_the_same<M, T>(body: &Bytes)
where
    M: Message + Default + for<'a> From<&'a T>,
    T: TryFrom<M, Error = Refusal> + PartialEq + fmt::Debug,
{
    if let Ok(policy) = whole::<M>(body.clone()).and_then(T::try_from) {
        assert_eq!(T::try_from(M::from(&policy)), Ok(policy));
    }
}

/// Whatever is taken over of a batch can be said to others, who take over all of it and have the same then.
fn is_told_on(batch: Batch) {
    for resource in &batch.changed {
        match Kind::of(resource.kind) {
            Some(Kind::Security) => reads_the_same::<proto::Security, Security>(&resource.body),
            Some(Kind::RateLimits) => reads_the_same::<proto::RateLimits, RateLimits>(&resource.body),
            Some(Kind::Traffic) => reads_the_same::<proto::Traffic, Traffic>(&resource.body),
            _ => {}
        }
    }
    let mut store = Store::default();
    let changed = batch.changed.into_iter().map(|resource| {
        let name = Name { kind: resource.kind, name: resource.name };
        // Nobody finds a digest by chance.
        let is_shared = name.kind().is_some_and(Kind::is_shared);
        let name = match is_shared {
            true => Name { name: Digest::of(&resource.body).into_bytes(), ..name },
            false => name,
        };
        (name, resource.body)
    });
    let gone = batch.gone.into_iter().map(|name| Name { kind: name.kind, name: name.name });
    store.apply(Delta { changed: changed.collect(), gone: gone.collect() });
    let config = store.config();
    let mut other = Store::default();
    other.apply(Delta { changed: cut(&config).into_iter().collect(), gone: Vec::new() });
    assert_eq!((other.refused(), other.config()), (0, config));
}
