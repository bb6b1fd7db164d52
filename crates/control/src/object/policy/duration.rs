//! Durations in the notation of Gateway API (GEP-2257): `1h30m`, `500ms`.

use std::ops::RangeInclusive;
use std::time::Duration;

use sluicegate_model::value::span::parse;

use crate::problem::Findings;

/// A duration within a range, which `named` states in words.
pub(crate) fn check(
    text: &str,
    range: RangeInclusive<Duration>,
    named: &str,
    field: &str,
    findings: &mut Findings,
) -> Option<Duration> {
    let Some(duration) = parse(text) else {
        findings.error(
            field,
            format!("{text:?} is not a duration: write whole numbers with h, m, s or ms, such as 1h30m"),
        );
        return None;
    };
    if !range.contains(&duration) {
        findings.error(field, format!("{text:?} is not between {named}"));
        return None;
    }
    Some(duration)
}
