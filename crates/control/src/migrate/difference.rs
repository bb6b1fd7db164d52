//! Supported annotations that differ from ingress-nginx in a detail.

/// Names without a prefix, in alphabetical order, and the differences.
pub(crate) const DIFFERENCES: &[(&str, &str)] = &[
    ("connection-proxy-header", "The gateway keeps connections to endpoints open by itself."),
    (
        "proxy-send-timeout",
        "One timeout applies to reads and writes: the longer of proxy-read-timeout and proxy-send-timeout.",
    ),
];

/// The difference of an annotation.
pub(crate) fn of(short: &str) -> Option<&'static str> {
    let place = DIFFERENCES.binary_search_by_key(&short, |(name, _)| name).ok()?;
    Some(DIFFERENCES[place].1)
}

#[cfg(test)]
mod tests {
    use super::DIFFERENCES;
    use crate::object::nginx::row;

    #[test]
    fn differences_are_sorted_and_name_known_annotations() {
        assert!(DIFFERENCES.is_sorted_by_key(|(name, _)| *name));
        for (name, _) in DIFFERENCES {
            assert!(row(name).is_some(), "{name}");
        }
    }
}
