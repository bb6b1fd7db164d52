//! The counts of one limit in one command to a server, and the server's answer.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use super::connection::{APART_MAX, ServerError, command};
use crate::feature::rate_limit::buckets::Buckets;
use crate::feature::rate_limit::clock::{Clock, nanos, since_1970};
use crate::feature::rate_limit::pending::Amount;
use crate::feature::rate_limit::window::{BUCKETS_MAX, Pace, pack};

/// The keys of a batch, to which a set may add. The number is small enough not to block the server for long.
pub(super) const KEYS: usize = 256;

const BUCKET: &str = include_str!("bucket.lua");
const WINDOW: &str = include_str!("window.lua");

/// A shared limit.
#[derive(Clone)]
pub(super) struct Member<B> {
    /// The prefix of its keys.
    pub(super) name: Arc<str>,
    pub(super) pace: Pace,
    pub(super) buckets: B,
}

/// The allowed calls of a limit, by key.
pub(super) struct Batch {
    member: Member<Arc<Buckets>>,
    amounts: Vec<(u64, Amount)>,
}

impl Batch {
    /// Takes the pending calls of a limit, if any. Also returns whether these are all.
    pub(super) fn take(member: Member<Arc<Buckets>>, now: Instant) -> Option<(Self, bool)> {
        let amounts = member.buckets.take(KEYS, now);
        let is_all = amounts.len() < KEYS;
        (!amounts.is_empty()).then_some((Self { member, amounts }, is_all))
    }

    /// Writes the batch as a command.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut texts = Vec::with_capacity(3 * self.amounts.len() + 2);
        texts.push(self.amounts.len().to_string());
        for (key, _) in &self.amounts {
            texts.push(format!("{}:{key:016x}", self.member.name));
        }
        let script = match self.member.pace {
            Pace::Bucket { interval, tolerance } => {
                texts.push((tolerance.saturating_mul(BUCKETS_MAX) / 1000).to_string());
                for (_, Amount { count, age }) in &self.amounts {
                    texts.push(u64::from(*count).saturating_mul(interval).div_ceil(1000).to_string());
                    texts.push((age / 1000).to_string());
                }
                BUCKET
            }
            Pace::Sliding { window, .. } => {
                texts.push((window / 1000).max(1).to_string());
                for (_, Amount { count, age }) in &self.amounts {
                    texts.push(count.to_string());
                    texts.push((age / 1000).to_string());
                }
                WINDOW
            }
        };
        let parts = [&b"EVAL"[..], script.as_bytes()].into_iter();
        command(out, parts.chain(texts.iter().map(String::as_bytes)));
    }

    /// Applies the answer.
    pub(super) fn read(&self, numbers: &[i64], clock: &Clock, asked: Instant) -> Result<(), ServerError> {
        let each = match self.member.pace {
            Pace::Bucket { .. } => 1,
            Pace::Sliding { .. } => 2,
        };
        let shown = set_clock(numbers, clock, asked)?;
        let values = &numbers[1..];
        if values.len() != each * self.amounts.len() || values.iter().any(|value| *value < 0) {
            return Err(ServerError::Unexpected);
        }
        let now = Instant::now();
        for ((key, _), values) in self.amounts.iter().zip(values.chunks(each)) {
            let state = match (&self.member.pace, values) {
                (Pace::Sliding { window, .. }, [before, current]) => {
                    pack(shown / window, before.unsigned_abs(), current.unsigned_abs())
                }
                // The time by which the bucket is ahead of the clock of the server. Tokens may have returned between
                // the question and the answer. The caller receives these tokens.
                (_, [full, ..]) => {
                    let ahead = full.unsigned_abs().saturating_mul(1000).saturating_sub(shown);
                    clock.elapsed(asked).saturating_add(ahead)
                }
                (_, []) => return Err(ServerError::Unexpected),
            };
            self.member.buckets.merge(*key, &self.member.pace, state, now);
        }
        Ok(())
    }
}

/// Asks only for the time, and whether writing is allowed.
pub(super) fn write_probe(prefix: &str, out: &mut Vec<u8>) {
    let mut name = String::with_capacity(prefix.len() + 6);
    // Writing to a String does not fail.
    let _ = write!(name, "{prefix}:probe");
    command(out, [&b"EVAL"[..], BUCKET.as_bytes(), b"1", name.as_bytes(), b"1000", b"1000", b"0"]);
}

/// The answer to a probe or a batch begins with the time.
pub(super) fn set_clock(numbers: &[i64], clock: &Clock, asked: Instant) -> Result<u64, ServerError> {
    let micros = numbers.first().and_then(|micros| u64::try_from(*micros).ok());
    let shown = micros.ok_or(ServerError::Unexpected)?.saturating_mul(1000);
    if shown.abs_diff(since_1970()) > nanos(APART_MAX) {
        return Err(ServerError::Clock);
    }
    clock.set(shown, asked, Instant::now());
    Ok(shown)
}
