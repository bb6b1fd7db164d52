//! Lists with a limit.

use std::borrow::Cow;
use std::ops::Deref;

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::encoding::Fault;
use crate::encoding::adapt::{Adapt as _, List, Same};

/// A list of at most `MAX` entries. A list that is written has at least `MIN` entries, by default one: the author of
/// `consumers: []` means no caller, but a reader would understand every caller. An absent list is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entries<T, const MAX: usize, const MIN: usize = 1>(Vec<T>);

impl<T, const MAX: usize, const MIN: usize> Entries<T, MAX, MIN> {
    /// A list; `None` if the list has more than `MAX` entries.
    #[must_use]
    pub fn new(entries: Vec<T>) -> Option<Self> {
        (entries.len() <= MAX).then_some(Self(entries))
    }

    /// Adds an entry. Returns false if the list is full.
    pub fn push(&mut self, entry: T) -> bool {
        let has_room = self.0.len() < MAX;
        if has_room {
            self.0.push(entry);
        }
        has_room
    }

    /// The entries, to change them.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.0.iter_mut()
    }

    /// Keeps the entries that satisfy a condition.
    pub fn retain(&mut self, condition: impl FnMut(&T) -> bool) {
        self.0.retain(condition);
    }
}

impl<T, const MAX: usize, const MIN: usize> Default for Entries<T, MAX, MIN> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MAX: usize, const MIN: usize> Deref for Entries<T, MAX, MIN> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T, const MAX: usize, const MIN: usize> IntoIterator for &'a Entries<T, MAX, MIN> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: Serialize, const MAX: usize, const MIN: usize> Serialize for Entries<T, MAX, MIN> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize, const MIN: usize> Deserialize<'de> for Entries<T, MAX, MIN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = Vec::deserialize(deserializer)?;
        match entries.len() {
            0 if MIN > 0 => Err(de::Error::custom("is empty: write an entry, or remove the field")),
            count if count > MAX => {
                Err(de::Error::custom(format_args!("has {count} entries, but may have at most {MAX}")))
            }
            _ => Ok(Self(entries)),
        }
    }
}

impl<T: JsonSchema, const MAX: usize, const MIN: usize> JsonSchema for Entries<T, MAX, MIN> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}{MIN}To{MAX}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        let mut schema = json_schema!({ "type": "array", "items": items, "maxItems": MAX });
        if MIN > 0 {
            schema.insert("minItems".to_owned(), MIN.into());
        }
        schema
    }
}

impl<C, T, const MAX: usize, const MIN: usize> Encode<C> for Entries<T, MAX, MIN>
where
    T: Encode<C> + for<'b> Decode<'b, C>,
{
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        List::<Same>::encode(&self.0, encoder, context)
    }
}

impl<'b, C, T, const MAX: usize, const MIN: usize> Decode<'b, C> for Entries<T, MAX, MIN>
where
    T: Encode<C> + for<'a> Decode<'a, C>,
{
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        let entries = List::<Same>::decode(decoder, context)?;
        Self::new(entries).ok_or_else(|| Fault::Invalid("the length of a list").into())
    }
}

#[cfg(test)]
mod tests {
    use minicbor::decode;

    use super::*;

    #[test]
    fn list_in_yaml_must_not_be_empty_and_no_list_may_exceed_its_limit() {
        let parse = |text: &str| serde_json::from_str::<Entries<u8, 2>>(text).map(|entries| entries.to_vec());
        assert_eq!(parse("[1, 2]").unwrap(), [1, 2]);
        assert!(parse("[]").unwrap_err().to_string().starts_with("is empty"));
        assert!(parse("[1, 2, 3]").unwrap_err().to_string().starts_with("has 3 entries"));
        assert!(serde_json::from_str::<Entries<u8, 2, 0>>("[]").unwrap().is_empty());
        let decode = |list: &[u8]| decode::<Entries<u8, 2>>(&minicbor::to_vec(list).unwrap()).is_ok();
        assert!(decode(&[]) && decode(&[1, 2]) && !decode(&[1, 2, 3]));
    }
}
