//! Sizes in bytes, in the notation of Kubernetes quantities: whole numbers with k, M, G, Ki, Mi or Gi.

use std::borrow::Cow;
use std::fmt;

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::encoding::Fault;

/// A size from `MIN` to `MAX` bytes, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size<const MIN: u64 = 0, const MAX: u64 = { u64::MAX }>(u64);

impl<const MIN: u64, const MAX: u64> Size<MIN, MAX> {
    /// A size that the code itself states. A size out of range becomes the nearest allowed size.
    #[must_use]
    pub const fn of(bytes: u64) -> Self {
        Self(if bytes < MIN {
            MIN
        } else if bytes > MAX {
            MAX
        } else {
            bytes
        })
    }

    /// The bytes.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

fn parse(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit {
        "" => 1,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// The size with the largest binary unit that leaves a whole number.
impl<const MIN: u64, const MAX: u64> fmt::Display for Size<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "Gi"), (20, "Mi"), (10, "Ki")];
        match units.into_iter().find(|(bits, _)| self.0 > 0 && self.0.trailing_zeros() >= *bits) {
            Some((bits, unit)) => write!(f, "{}{unit}", self.0 >> bits),
            None => self.0.fmt(f),
        }
    }
}

impl<const MIN: u64, const MAX: u64> Serialize for Size<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Size<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match parse(&text) {
            Some(bytes) if (MIN..=MAX).contains(&bytes) => Ok(Self(bytes)),
            Some(_) => {
                let (min, max) = (Size::<0>(MIN), Size::<0>(MAX));
                Err(de::Error::custom(format_args!("{text:?} is not between {min} and {max}")))
            }
            None => Err(de::Error::custom(format_args!(
                "{text:?} is not a size: write a whole number of bytes, or with k, M, G, Ki, Mi or Gi, such as 10Mi"
            ))),
        }
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for Size<MIN, MAX> {
    fn schema_name() -> Cow<'static, str> {
        format!("Size{MIN}To{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]{1,15}(k|M|G|Ki|Mi|Gi)?$" })
    }
}

impl<C, const MIN: u64, const MAX: u64> Encode<C> for Size<MIN, MAX> {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        encoder.u64(self.0)?.ok()
    }
}

impl<'b, C, const MIN: u64, const MAX: u64> Decode<'b, C> for Size<MIN, MAX> {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let bytes = decoder.u64()?;
        if (MIN..=MAX).contains(&bytes) { Ok(Self(bytes)) } else { Err(Fault::Invalid("a size").into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_the_units_of_kubernetes() {
        for (text, bytes) in
            [("0", 0), ("7", 7), ("1k", 1000), ("10Mi", 10 << 20), ("2Gi", 2 << 30), ("64Ki", 65536)]
        {
            let size: Size = serde_json::from_value(text.into()).unwrap();
            assert_eq!(size.get(), bytes, "{text}");
        }
        assert_eq!(Size::<0>::of(10 << 20).to_string(), "10Mi");
        assert_eq!(Size::<0>::of(1000).to_string(), "1000");
        for text in ["", "1m", "1 Mi", "-1", "1.5Mi", "99999999999Gi"] {
            assert!(serde_json::from_value::<Size>(text.into()).is_err(), "{text}");
        }
        let error = serde_json::from_value::<Size<1024, 2048>>("1".into()).unwrap_err().to_string();
        assert_eq!(error, "\"1\" is not between 1Ki and 2Ki");
    }
}
