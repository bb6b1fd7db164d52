//! Words of explanations.

use std::time::Duration;

/// A period in words: `1 s`, `5 min`.
pub(super) fn span(period: Duration) -> String {
    let millis = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
    let units = [(3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")];
    let unit = units.into_iter().find(|(unit, _)| millis.is_multiple_of(*unit));
    let (unit, name) = unit.unwrap_or((1, "ms"));
    format!("{} {name}", millis / unit)
}

/// A number of things: `1 rule`, `2 rules`.
pub(super) fn things(number: usize, name: &str) -> String {
    format!("{number} {name}{}", if number == 1 { "" } else { "s" })
}

/// A probability: `5 %`, `33.3 %`.
pub(super) fn percent(percent: f64) -> String {
    match (percent * 10.0).round() / 10.0 {
        rounded if (rounded - rounded.round()).abs() < f64::EPSILON => format!("{rounded:.0} %"),
        rounded => format!("{rounded:.1} %"),
    }
}

/// Bytes of a request as text.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(percent(100.0 / 3.0), "33.3 %");
        assert_eq!(percent(50.0), "50 %");
        assert_eq!((things(1, "rule"), things(0, "rule")), ("1 rule".to_owned(), "0 rules".to_owned()));
        assert_eq!(span(Duration::from_secs(90)), "90 s");
        assert_eq!(span(Duration::from_secs(300)), "5 min");
    }
}
