//! Host names and header names: lookup by host name, and comparison of header names.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use sluicegate_model::HostPattern;

/// The longest host name (RFC 1035, 2.3.4: 255 octets on the wire).
const MAX_HOST: usize = 255;

/// A value for each host pattern. A lookup prefers the exact name, then one wildcard label, then several wildcard labels,
/// then any host.
#[derive(Clone, Debug)]
pub(crate) struct HostMap<T> {
    exact: HashMap<Box<[u8]>, T, RandomState>,
    /// Keyed by the suffix behind the first label.
    wildcard: HashMap<Box<[u8]>, T, RandomState>,
    /// Keyed by the suffix behind one or more labels.
    suffix: HashMap<Box<[u8]>, T, RandomState>,
    any: Option<T>,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self {
            exact: HashMap::default(),
            wildcard: HashMap::default(),
            suffix: HashMap::default(),
            any: None,
        }
    }
}

impl<T> HostMap<T> {
    /// Whether there is no name.
    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty() && self.suffix.is_empty() && self.any.is_none()
    }

    /// Reserves room for `names` names.
    pub(crate) fn with_capacity(names: usize) -> Self {
        Self { exact: HashMap::with_capacity_and_hasher(names, RandomState::default()), ..Self::default() }
    }

    pub(crate) fn insert(&mut self, pattern: &HostPattern, value: T) {
        match pattern {
            HostPattern::Exact(name) => drop(self.exact.insert(name.as_bytes().into(), value)),
            HostPattern::Wildcard(suffix) => drop(self.wildcard.insert(suffix.as_bytes().into(), value)),
            HostPattern::Suffix(suffix) => drop(self.suffix.insert(suffix.as_bytes().into(), value)),
            HostPattern::Any => self.any = Some(value),
        }
    }

    /// Removes a pattern, and returns its value.
    pub(crate) fn remove(&mut self, pattern: &HostPattern) -> Option<T> {
        match pattern {
            HostPattern::Exact(name) => self.exact.remove(name.as_bytes()),
            HostPattern::Wildcard(suffix) => self.wildcard.remove(suffix.as_bytes()),
            HostPattern::Suffix(suffix) => self.suffix.remove(suffix.as_bytes()),
            HostPattern::Any => self.any.take(),
        }
    }

    /// The value of this pattern.
    pub(crate) fn get(&self, pattern: &HostPattern) -> Option<&T> {
        match pattern {
            HostPattern::Exact(name) => self.exact.get(name.as_bytes()),
            HostPattern::Wildcard(suffix) => self.wildcard.get(suffix.as_bytes()),
            HostPattern::Suffix(suffix) => self.suffix.get(suffix.as_bytes()),
            HostPattern::Any => self.any.as_ref(),
        }
    }

    /// The value for this name, in any case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&T> {
        self.first(name, Some)
    }

    /// The first result of `visit` for a value whose pattern matches this name, from the most specific pattern on. The name
    /// may be in any case.
    pub(crate) fn first<'s, R>(
        &'s self,
        name: &[u8],
        mut visit: impl FnMut(&'s T) -> Option<R>,
    ) -> Option<R> {
        if !(self.exact.is_empty() && self.wildcard.is_empty() && self.suffix.is_empty()) {
            let mut lower = [0; MAX_HOST];
            if let Some(lower) = lower.get_mut(..name.len()) {
                lower.copy_from_slice(name);
                lower.make_ascii_lowercase();
                if let Some(found) = self.first_named(lower, &mut visit) {
                    return Some(found);
                }
            }
        }
        self.any.as_ref().and_then(visit)
    }

    /// [`first`](Self::first) among the patterns with a name. `name` is in lower case.
    fn first_named<'s, R>(&'s self, name: &[u8], visit: &mut impl FnMut(&'s T) -> Option<R>) -> Option<R> {
        if let Some(found) = self.exact.get(name).and_then(&mut *visit) {
            return Some(found);
        }
        let mut suffix = memchr::memchr(b'.', name).filter(|dot| *dot > 0).map(|dot| &name[dot + 1..])?;
        if let Some(found) = self.wildcard.get(suffix).and_then(&mut *visit) {
            return Some(found);
        }
        if self.suffix.is_empty() {
            return None;
        }
        loop {
            if let Some(found) = self.suffix.get(suffix).and_then(&mut *visit) {
                return Some(found);
            }
            suffix = &suffix[memchr::memchr(b'.', suffix)? + 1..];
        }
    }

    /// Adds the values of `other` whose patterns have no value here.
    pub(crate) fn add_missing(&mut self, other: &Self)
    where
        T: Clone,
    {
        let maps = [
            (&mut self.exact, &other.exact),
            (&mut self.wildcard, &other.wildcard),
            (&mut self.suffix, &other.suffix),
        ];
        for (own, other) in maps {
            for (name, value) in other {
                if !own.contains_key(name) {
                    own.insert(name.clone(), value.clone());
                }
            }
        }
        if self.any.is_none() {
            self.any.clone_from(&other.any);
        }
    }
}

/// The host of `host[:port]`, without the trailing dot of a fully qualified name. The brackets of an IPv6 literal stay.
pub(crate) fn host_name(authority: &[u8]) -> &[u8] {
    let port = memchr::memrchr(b':', authority)
        .filter(|colon| authority[colon + 1..].iter().all(u8::is_ascii_digit));
    let name = port.map_or(authority, |colon| &authority[..colon]);
    name.strip_suffix(b".").unwrap_or(name)
}

/// Whether CGI and similar interfaces treat two names as the same: in any case, and with `_` for `-`.
pub(crate) fn is_same_name(one: &[u8], other: &[u8]) -> bool {
    let folded = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    one.len() == other.len() && one.iter().map(folded).eq(other.iter().map(folded))
}
