//! Durations in the notation of Gateway API (GEP-2257): `1h30m`, `500ms`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::encoding::Fault;
use crate::encoding::adapt::{Adapt as _, Time};

/// A duration from `MIN` to `MAX` milliseconds, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span<const MIN: u64, const MAX: u64>(Duration);

/// One hour, in milliseconds.
pub const HOUR: u64 = 3_600_000;

/// A timeout from 1ms to 24h.
pub type Timeout = Span<1, { 24 * HOUR }>;
/// An age from 1s to 8760h (365 days).
pub type Age = Span<1000, { 8760 * HOUR }>;

impl<const MIN: u64, const MAX: u64> Span<MIN, MAX> {
    /// A duration; `None` if the duration is out of range.
    #[must_use]
    pub fn new(duration: Duration) -> Option<Self> {
        (Duration::from_millis(MIN)..=Duration::from_millis(MAX))
            .contains(&duration)
            .then_some(Self(duration))
    }

    /// A duration that the code itself states, in milliseconds. A duration out of range becomes the nearest allowed duration.
    #[must_use]
    pub const fn of_millis(milliseconds: u64) -> Self {
        let clamped = if milliseconds < MIN {
            MIN
        } else if milliseconds > MAX {
            MAX
        } else {
            milliseconds
        };
        Self(Duration::from_millis(clamped))
    }

    /// The duration.
    #[must_use]
    pub fn get(self) -> Duration {
        self.0
    }
}

/// Parses a duration of GEP-2257: one to four parts, each a whole number of up to five digits with its unit.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
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
        let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", HOUR)];
        let (unit, milliseconds) = units.into_iter().find(|(unit, _)| behind.starts_with(unit))?;
        sum += Duration::from_millis(number * milliseconds);
        rest = &behind[unit.len()..];
    }
    None
}

/// The notation of GEP-2257, in whole milliseconds.
struct Notation(Duration);

impl fmt::Display for Notation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.as_millis();
        let parts =
            [(all / 3_600_000, "h"), (all / 60_000 % 60, "m"), (all / 1000 % 60, "s"), (all % 1000, "ms")];
        if all == 0 {
            return f.write_str("0s");
        }
        parts
            .into_iter()
            .filter(|(number, _)| *number > 0)
            .try_for_each(|(number, unit)| write!(f, "{number}{unit}"))
    }
}

/// Parses a duration within a range in milliseconds.
///
/// # Errors
/// The text is not a duration, or the duration is out of range: the rest of a sentence about the field.
pub fn within(text: &str, min: u64, max: u64) -> Result<Duration, String> {
    let Some(duration) = parse(text) else {
        return Err(format!(
            "{text:?} is not a duration: write whole numbers with h, m, s or ms, such as 1h30m"
        ));
    };
    let (min, max) = (Duration::from_millis(min), Duration::from_millis(max));
    if !(min..=max).contains(&duration) {
        return Err(format!("{text:?} is not between {} and {}", Notation(min), Notation(max)));
    }
    Ok(duration)
}

impl<const MIN: u64, const MAX: u64> fmt::Display for Span<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Notation(self.0).fmt(f)
    }
}

impl<const MIN: u64, const MAX: u64> Serialize for Span<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Span<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        within(&text, MIN, MAX).map(Self).map_err(de::Error::custom)
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for Span<MIN, MAX> {
    fn schema_name() -> Cow<'static, str> {
        format!("Span{MIN}To{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PATTERN })
    }
}

/// The pattern of durations in schemas (GEP-2257).
pub const PATTERN: &str = "^([0-9]{1,5}(h|m|s|ms)){1,4}$";

impl<C, const MIN: u64, const MAX: u64> Encode<C> for Span<MIN, MAX> {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        Time::encode(&self.0, encoder, context)
    }
}

impl<'b, C, const MIN: u64, const MAX: u64> Decode<'b, C> for Span<MIN, MAX> {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        let duration: Duration = Time::decode(decoder, context)?;
        Self::new(duration).ok_or_else(|| Fault::Invalid("a duration").into())
    }
}

#[cfg(test)]
mod tests {
    use minicbor::decode;

    use super::*;

    #[test]
    fn durations_are_parsed_as_gep_2257_requires() {
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
        for text in ["0s", "500ms", "1h30m", "1h1m1s1ms", "8760h"] {
            assert_eq!(Notation(parse(text).unwrap()).to_string(), text);
        }
    }

    #[test]
    fn yaml_parser_and_decoder_reject_a_duration_outside_its_range() {
        assert_eq!(serde_json::from_str::<Timeout>("\"24h\"").unwrap().get(), Duration::from_secs(24 * 3600));
        let error = serde_json::from_str::<Timeout>("\"25h\"").unwrap_err().to_string();
        assert!(error.starts_with("\"25h\" is not between 1ms and 24h"), "{error}");
        let error = serde_json::from_str::<Age>("\"9000h\"").unwrap_err().to_string();
        assert!(error.starts_with("\"9000h\" is not between 1s and 8760h"), "{error}");
        let encoded = |span| minicbor::to_vec(span).unwrap();
        assert!(decode::<Age>(&encoded(Age::of_millis(1000))).is_ok());
        assert!(decode::<Age>(&minicbor::to_vec(Timeout::of_millis(999)).unwrap()).is_err());
    }
}
