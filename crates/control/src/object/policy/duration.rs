//! Durations in the notation of Gateway API (GEP-2257): `1h30m`, `500ms`.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::problem::Findings;

/// Parses one to four parts, each a whole number of up to five digits with its unit.
fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    for parts in 0.. {
        if rest.is_empty() {
            return (1..=4).contains(&parts).then_some(sum);
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=5).contains(&digits) {
            return None;
        }
        let (number, behind) = rest.split_at(digits);
        let number: u64 = number.parse().ok()?;
        // The longer name first.
        let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
        let (unit, milliseconds) = units.into_iter().find(|(unit, _)| behind.starts_with(unit))?;
        sum += Duration::from_millis(number * milliseconds);
        rest = &behind[unit.len()..];
    }
    None
}

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse;

    #[test]
    fn durations_follow_gep_2257() {
        for (text, milliseconds) in [
            ("0s", 0),
            ("500ms", 500),
            ("1h30m", 5_400_000),
            ("1h1m1s1ms", 3_661_001),
            ("99999h", 359_996_400_000),
            ("1s1s", 2000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "1", "s", "1d", "1.5h", "-1s", "100000s", "1h1m1s1ms1s", "1 s", "1H"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
