//! The regular expressions of a host: one search finds all expressions that match a path.

use regex::bytes::{RegexSet, RegexSetBuilder};
use sluicegate_model::rule::Pattern;

use super::tree::Entry;
use crate::request::HeadView;

/// The memory limit for the combined program of a host's expressions, in bytes. Above it, each expression is searched
/// separately.
const PROGRAM_MAX: usize = 32 * 1024 * 1024;

/// Fewer expressions than this are searched one by one in order: most requests match an early expression.
const SET_MIN: usize = 4;

/// Regular expressions, each with an entry, in the order of the entries.
#[derive(Debug, Default)]
pub(super) struct Regexes {
    all: Vec<(Pattern, Entry)>,
    set: Option<RegexSet>,
}

impl Regexes {
    pub(super) fn new(mut all: Vec<(Pattern, Entry)>) -> Self {
        all.sort_by_key(|(_, entry)| entry.order);
        let set = (all.len() >= SET_MIN).then(|| Self::set(&all)).flatten();
        Self { all, set }
    }

    fn set(all: &[(Pattern, Entry)]) -> Option<RegexSet> {
        let texts = all.iter().map(|(pattern, _)| match pattern.ignores_case() {
            true => format!("(?i){}", pattern.as_str()),
            false => pattern.as_str().to_owned(),
        });
        RegexSetBuilder::new(texts)
            .unicode(false)
            .size_limit(PROGRAM_MAX)
            .dfa_size_limit(PROGRAM_MAX)
            .build()
            .ok()
    }

    /// The matching entry with the lowest order; `best` if no matching entry here has a lower order.
    pub(super) fn find<'t>(
        &'t self,
        path: &[u8],
        request: HeadView<'_>,
        best: Option<&'t Entry>,
    ) -> Option<&'t Entry> {
        let limit = best.map_or(Entry::LAST, |best| best.order);
        let is_ahead = |(_, entry): &&(Pattern, Entry)| entry.order < limit;
        if !self.all.first().is_some_and(|first| is_ahead(&first)) {
            return best;
        }
        let found = match &self.set {
            Some(set) => {
                let found = set.matches(path);
                let found = found.iter().map(|index| &self.all[index]);
                found.take_while(is_ahead).find(|(_, entry)| entry.takes(request))
            }
            None => {
                let mut ahead = self.all.iter().take_while(is_ahead);
                ahead.find(|(pattern, entry)| pattern.is_match(path) && entry.takes(request))
            }
        };
        found.map(|(_, entry)| entry).or(best)
    }
}
