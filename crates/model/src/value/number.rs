//! Whole numbers within a range.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::encoding::Fault;

/// A whole number from `MIN` to `MAX`, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number<T, const MIN: i64, const MAX: i64>(T);

/// A percentage from 1 to 100.
pub type Percent = Number<u8, 1, 100>;
/// A TCP or UDP port.
pub type Port = Number<u16, 1, 65535>;
/// A weight among backends.
pub type Weight = Number<u32, 0, 1_000_000>;

/// The number is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{number} is not between {min} and {max}")]
pub struct OutOfRange {
    number: i64,
    min: i64,
    max: i64,
}

impl<T: TryFrom<i64> + Copy, const MIN: i64, const MAX: i64> Number<T, MIN, MAX> {
    /// The number.
    ///
    /// # Errors
    /// The number is out of range.
    pub fn new(number: i64) -> Result<Self, OutOfRange> {
        let error = OutOfRange { number, min: MIN, max: MAX };
        if !(MIN..=MAX).contains(&number) {
            return Err(error);
        }
        T::try_from(number).map(Self).map_err(|_| error)
    }

    /// A number that the code itself states.
    ///
    /// # Panics
    /// The number is out of range.
    #[must_use]
    pub fn of(number: i64) -> Self {
        match Self::new(number) {
            Ok(number) => number,
            Err(error) => panic!("{error}"),
        }
    }

    /// The number as a plain integer.
    #[must_use]
    pub fn get(self) -> T {
        self.0
    }
}

impl<T: TryFrom<i64> + Copy, const MIN: i64, const MAX: i64> FromStr for Number<T, MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().map_err(|_| format!("{text} is not a number from {MIN} to {MAX}"))?;
        Self::new(number).map_err(|error| error.to_string())
    }
}

impl<T: fmt::Display, const MIN: i64, const MAX: i64> fmt::Display for Number<T, MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Serialize, const MIN: i64, const MAX: i64> Serialize for Number<T, MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: TryFrom<i64> + Copy, const MIN: i64, const MAX: i64> Deserialize<'de> for Number<T, MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(i64::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl<T, const MIN: i64, const MAX: i64> JsonSchema for Number<T, MIN, MAX> {
    fn schema_name() -> Cow<'static, str> {
        format!("Number{MIN}To{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "format": "int64", "minimum": MIN, "maximum": MAX })
    }
}

impl<C, T: Into<i64> + Copy, const MIN: i64, const MAX: i64> Encode<C> for Number<T, MIN, MAX> {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        encoder.i64(self.0.into())?.ok()
    }
}

impl<'b, C, T: TryFrom<i64> + Copy, const MIN: i64, const MAX: i64> Decode<'b, C> for Number<T, MIN, MAX> {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Self::new(decoder.i64()?).map_err(|_| Fault::Invalid("a number").into())
    }
}

#[cfg(test)]
mod tests {
    use minicbor::decode;

    use super::*;

    #[test]
    fn yaml_parser_and_decoder_reject_a_number_outside_its_range() {
        assert_eq!(serde_json::from_str::<Percent>("100").unwrap().get(), 100);
        let error = serde_json::from_str::<Percent>("101").unwrap_err().to_string();
        assert!(error.starts_with("101 is not between 1 and 100"), "{error}");
        assert_eq!(decode::<Percent>(&minicbor::to_vec(100).unwrap()).unwrap().get(), 100);
        assert!(decode::<Percent>(&minicbor::to_vec(101).unwrap()).is_err());
        assert!(Number::<u8, 0, 1000>::new(256).is_err(), "the range exceeds the type");
    }
}
