//! Bounded parts of lists. A client asks with `limit`, `after` and `search`.

use form_urlencoded::parse;
use serde::Serialize;

/// The number of items without `limit`.
const LIMIT_DEFAULT: usize = 100;

/// The largest number of items of one part.
pub(crate) const LIMIT_MAX: usize = 500;

/// The longest text to search for, in bytes.
const SEARCH_MAX: usize = 200;

/// The requested part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    limit: usize,
    after: usize,
    /// In lower case. Each word must occur.
    words: Vec<String>,
}

/// The reason why a query asks for no part of a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ListError {
    /// A number cannot be read, or is outside of its range.
    #[error("the parameter {0} is no number from {1} to {2}")]
    Number(&'static str, usize, usize),
    /// The searched text is too long.
    #[error("the parameter search has more than {SEARCH_MAX} bytes")]
    Search,
    /// A parameter is unknown.
    #[error("the parameter {0:?} is unknown: write limit, after and search")]
    Unknown(String),
}

/// A part of a list.
#[derive(Debug, Serialize)]
pub(crate) struct Part<T> {
    /// The number of all items that match the search.
    total: usize,
    /// The number of items before the next part; `None` at the end.
    next: Option<usize>,
    items: Vec<T>,
}

impl Wanted {
    pub(crate) fn read(query: &str) -> Result<Self, ListError> {
        let mut wanted = Self { limit: LIMIT_DEFAULT, after: 0, words: Vec::new() };
        let number = |name, text: &str, (min, max)| {
            let number = text.parse().ok().filter(|number| (min..=max).contains(number));
            number.ok_or(ListError::Number(name, min, max))
        };
        for (name, value) in parse(query.as_bytes()) {
            match &*name {
                "limit" => wanted.limit = number("limit", &value, (1, LIMIT_MAX))?,
                "after" => wanted.after = number("after", &value, (0, 10_000_000))?,
                "search" if value.len() > SEARCH_MAX => return Err(ListError::Search),
                "search" => {
                    wanted.words = value.to_lowercase().split_whitespace().map(str::to_owned).collect();
                }
                other => return Err(ListError::Unknown(other.chars().take(100).collect())),
            }
        }
        Ok(wanted)
    }

    /// Whether a text in lower case matches the search.
    pub(crate) fn finds(&self, text: &str) -> bool {
        self.words.iter().all(|word| text.contains(word.as_str()))
    }

    /// The requested part of these items, all of which match the search. Only the items of the part are made.
    pub(crate) fn part<I, T>(&self, items: &[I], make: impl Fn(&I) -> T) -> Part<T> {
        let end = items.len().min(self.after.saturating_add(self.limit));
        let part = items.get(self.after..end).unwrap_or_default();
        Part {
            total: items.len(),
            next: (end < items.len()).then_some(end),
            items: part.iter().map(make).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_has_bounded_parts() {
        let items: Vec<_> = (0..1200).collect();
        let wanted = Wanted::read("").expect("a part");
        assert_eq!(wanted.part(&items, |item| *item).items.len(), LIMIT_DEFAULT);
        let wanted = Wanted::read("limit=500&after=1000").expect("a part");
        let part = wanted.part(&items, |item| *item);
        assert_eq!(
            (part.items.len(), part.items.first(), part.next, part.total),
            (200, Some(&1000), None, 1200)
        );
        let wanted = Wanted::read("after=5000").expect("a part");
        assert!(wanted.part(&items, |item| *item).items.is_empty());
    }

    #[test]
    fn query_outside_of_the_bounds_is_rejected() {
        for query in ["limit=0", "limit=501", "limit=x", "after=-1", "other=1"] {
            assert!(Wanted::read(query).is_err(), "{query}");
        }
        assert_eq!(Wanted::read(&format!("search={}", "a".repeat(201))), Err(ListError::Search));
    }

    #[test]
    fn search_finds_texts_with_all_words() {
        let wanted = Wanted::read("search=Shop+cart").expect("a search");
        assert!(wanted.finds("cart of shop") && !wanted.finds("shop"));
    }
}
