//! The uses of quotas in one command to a server, and the server's answer.

use std::sync::{Arc, Weak};

use super::connection::{ServerError, command};
use crate::feature::quota::{Counter, Taken, now};

/// The keys of a batch. The number is small enough not to block the server for long.
const KEYS: usize = 256;

const SCRIPT: &str = include_str!("quota.lua");

/// The quotas that are counted through a server.
#[derive(Debug)]
pub(super) struct SharedQuotas {
    counters: Vec<Weak<Counter>>,
    /// The name of this process at the server.
    instance: String,
    /// The number of the last batch.
    number: u64,
    /// The batch that the server has not answered yet. It comes again with the same number, so that it counts once.
    unanswered: Option<Arc<QuotaBatch>>,
    /// The next counter to take, so that each has its turn.
    next: usize,
}

/// Uses of quotas.
#[derive(Debug)]
pub(super) struct QuotaBatch {
    instance: String,
    number: u64,
    prefix: Arc<str>,
    uses: Vec<(Arc<Counter>, Taken)>,
}

impl Default for SharedQuotas {
    fn default() -> Self {
        let instance = format!("{:016x}", fastrand::u64(..));
        Self { counters: Vec::new(), instance, number: 0, unanswered: None, next: 0 }
    }
}

impl SharedQuotas {
    pub(super) fn add(&mut self, counter: &Arc<Counter>) {
        self.counters.retain(|known| known.strong_count() > 0);
        if !self.counters.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(counter))) {
            self.counters.push(Arc::downgrade(counter));
        }
    }

    /// The next batch, if there is one, and whether this is all.
    pub(super) fn take(&mut self, prefix: &str) -> (Option<Arc<QuotaBatch>>, bool) {
        if let Some(batch) = &self.unanswered {
            return (Some(batch.clone()), false);
        }
        let (mut uses, all) = (Vec::new(), self.counters.len());
        for turn in 0..all {
            let Some(counter) = self.counters[(self.next + turn) % all].upgrade() else { continue };
            let mut taken = counter.take().into_iter();
            // A quota is once in a batch. Windows that ended are few.
            if let Some(first) = taken.next() {
                uses.push((counter.clone(), first));
            }
            taken.for_each(|rest| counter.put_back(rest));
            if uses.len() == KEYS {
                self.next = (self.next + turn + 1) % all;
                break;
            }
        }
        if uses.is_empty() {
            return (None, true);
        }
        self.number += 1;
        let is_all = uses.len() < KEYS;
        let (instance, number, prefix) = (self.instance.clone(), self.number, prefix.into());
        let batch = Arc::new(QuotaBatch { instance, number, prefix, uses });
        self.unanswered = Some(batch.clone());
        (Some(batch), is_all)
    }

    /// The server has answered the batch.
    pub(super) fn answered(&mut self) {
        self.unanswered = None;
    }
}

impl QuotaBatch {
    /// Writes the batch as a command.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut texts = vec![self.uses.len().to_string()];
        for (counter, taken) in &self.uses {
            texts.push(counter.key.at_server(&self.prefix, taken.window, counter.is_of_calendar()));
        }
        texts.extend([self.instance.clone(), self.number.to_string()]);
        for (counter, taken) in &self.uses {
            let end = counter.end_of(taken.window).saturating_mul(1000);
            texts.extend([taken.window, end, taken.count, taken.known].map(|number| number.to_string()));
        }
        let parts = [&b"EVAL"[..], SCRIPT.as_bytes()].into_iter();
        command(out, parts.chain(texts.iter().map(String::as_bytes)));
    }

    /// Applies the answer.
    pub(super) fn read(&self, numbers: &[i64]) -> Result<(), ServerError> {
        if numbers.len() != 2 * self.uses.len() || numbers.iter().any(|number| *number < 0) {
            return Err(ServerError::Unexpected);
        }
        for ((counter, _), total) in self.uses.iter().zip(numbers.chunks(2)) {
            if let [window, count] = total {
                counter.merge((window.unsigned_abs(), count.unsigned_abs()), now());
            }
        }
        Ok(())
    }
}
