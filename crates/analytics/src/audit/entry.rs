//! An entry of the audit trail, and the chain of entries.
//!
//! An entry is a JSON object in one line. Its field `previous` is the hash of the entry before. The hash of an entry is the SHA-256 of
//! its line. So a change or a removal of an entry breaks the chain at the next entry.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use humantime::format_rfc3339_millis;
use serde_json::{Map, Value, json};
use sluicegate_model::audit::Actor;

/// The kind of entries about the audit trail itself.
pub const TRAIL: &str = "AuditTrail";
/// The operation of the entry about removed entries.
pub(super) const PRUNED: &str = "pruned";

/// The SHA-256 of the line of an entry, in hexadecimal digits.
pub(super) fn hash(line: &str) -> String {
    let mut text = String::with_capacity(64);
    for byte in digest(&SHA256, line.as_bytes()).as_ref() {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The line of an entry with its hash, as users receive it.
pub(super) fn exported(line: &str, hash: &str) -> String {
    format!("{},\"hash\":\"{hash}\"}}", line.strip_suffix('}').unwrap_or(line))
}

/// The line of an entry, and its hash, from a line that users received.
fn imported(exported: &str) -> Option<(String, &str)> {
    let (line, rest) = exported.trim_end().rsplit_once(",\"hash\":\"")?;
    Some((format!("{line}}}"), rest.strip_suffix("\"}")?))
}

/// `2026-11-26T10:00:00.000Z`
pub(super) fn rfc3339(millis: i64) -> String {
    let since = Duration::from_millis(u64::try_from(millis).unwrap_or_default());
    format_rfc3339_millis(UNIX_EPOCH + since).to_string()
}

/// An actor as JSON, without the fields that are not known.
pub(super) fn actor(actor: &Actor) -> Value {
    match actor {
        Actor::User { name, groups } => json!({"type": "user", "name": name, "groups": groups}),
        Actor::Manager(name) => json!({"type": "manager", "name": name}),
        Actor::Owner(name) => json!({"type": "owner", "name": name}),
        Actor::Unknown => json!({"type": "unknown"}),
    }
}

/// The check of the chain, line by line from the oldest entry on.
#[derive(Debug, Default)]
pub struct Chain {
    entries: u64,
    first: Option<(i64, String)>,
    last: i64,
    hash: String,
    /// The newest note of removed entries: the number and the hash of the last removed entry.
    pruned: Option<(i64, String)>,
    anchor: Option<(i64, String)>,
    is_anchored: bool,
}

/// A chain without a break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The number of entries.
    pub entries: u64,
    /// The number of the first entry.
    pub first: i64,
    /// The number of the last entry.
    pub last: i64,
    /// The hash of the last entry.
    pub hash: String,
}

/// The place where a chain is broken.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// A line is no entry.
    #[error(
        "the line after entry {0} is no entry of an audit trail: the text was changed, or the export is incomplete"
    )]
    Line(i64),
    /// An entry was changed.
    #[error("entry {0} was changed after it was written: its hash does not fit its content")]
    Changed(i64),
    /// Entries are missing.
    #[error("entries are missing or were exchanged between entry {before} and entry {after}")]
    Missing {
        /// The number of the entry before.
        before: i64,
        /// The number of the next entry.
        after: i64,
    },
    /// The first entry is not the first, and no entry says that entries were removed.
    #[error("entries before entry {0} are missing, and no entry tells that their retention ended")]
    Start(i64),
    /// The newest entries are missing.
    #[error("the newest entries are missing: the trail ends with entry {last}, but its head is entry {head}")]
    End {
        /// The last entry.
        last: i64,
        /// The last entry by the head.
        head: i64,
    },
    /// The chain does not have a known entry.
    #[error("entry {0} with the given hash is not in the trail")]
    Anchor(i64),
}

impl Chain {
    /// A chain that must have the entry with this number and hash.
    #[must_use]
    pub fn with_anchor(anchor: Option<(i64, String)>) -> Self {
        Self { is_anchored: anchor.is_none(), anchor, ..Self::default() }
    }

    /// The number of the last entry.
    #[must_use]
    pub fn last(&self) -> i64 {
        self.last
    }

    /// Takes the next line of an export as JSON.
    ///
    /// # Errors
    /// If the line does not continue the chain.
    pub fn take(&mut self, exported: &str) -> Result<(), ChainError> {
        let broken = || ChainError::Line(self.last);
        let (line, given) = imported(exported).ok_or_else(broken)?;
        let entry: Map<String, Value> = serde_json::from_str(&line).map_err(|_| broken())?;
        let number = entry.get("number").and_then(Value::as_i64).ok_or_else(broken)?;
        let previous = entry.get("previous").and_then(Value::as_str).ok_or_else(broken)?;
        if hash(&line) != given {
            return Err(ChainError::Changed(number));
        }
        match self.first {
            None => self.first = Some((number, previous.to_owned())),
            Some(_) if number != self.last + 1 || previous != self.hash => {
                return Err(ChainError::Missing { before: self.last, after: number });
            }
            Some(_) => {}
        }
        if entry.get("operation").is_some_and(|operation| operation == PRUNED) {
            let through = entry.get("removed").and_then(|removed| removed["through"].as_i64());
            let hash = entry.get("removed").and_then(|removed| removed["hash"].as_str());
            self.pruned = through.zip(hash.map(str::to_owned));
        }
        self.is_anchored |= self.anchor.as_ref().is_some_and(|(of, hash)| (*of, &**hash) == (number, given));
        self.entries += 1;
        self.last = number;
        self.hash = given.to_owned();
        Ok(())
    }

    /// The result after the last line. `head` is the number and the hash of the last entry, if they are known.
    ///
    /// # Errors
    /// If entries are missing at the start or at the end.
    pub fn finish(self, head: Option<(i64, &str)>) -> Result<Verified, ChainError> {
        let (first, previous) = self.first.unwrap_or_default();
        let begins = (0, String::new());
        let is_start = match &self.pruned {
            Some((through, hash)) => (first - 1, &previous) == (*through, hash),
            None => false,
        };
        if self.entries > 0 && !is_start && (first - 1, previous) != begins {
            return Err(ChainError::Start(first));
        }
        if let Some((number, hash)) = head
            && (number, hash) != (self.last, &*self.hash)
        {
            return Err(ChainError::End { last: self.last, head: number });
        }
        match self.anchor {
            Some((number, _)) if !self.is_anchored => Err(ChainError::Anchor(number)),
            _ => Ok(Verified { entries: self.entries, first, last: self.last, hash: self.hash }),
        }
    }
}
