//! CBOR as a tree, so that a test can change one place of an encoding.

use bytes::Bytes;
use minicbor::data::{Int, Type};
use minicbor::{Decoder, Encoder};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Int(i128),
    Float(f64),
    Bool(bool),
    Null,
    Bytes(Vec<u8>),
    Text(String),
    Array(Vec<Self>),
    Map(Vec<(i64, Self)>),
}

impl Value {
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut decoder = Decoder::new(bytes);
        let value = Self::decode(&mut decoder);
        assert_eq!(decoder.position(), bytes.len());
        value
    }

    fn decode(decoder: &mut Decoder<'_>) -> Self {
        match decoder.datatype().unwrap() {
            Type::Bool => Self::Bool(decoder.bool().unwrap()),
            Type::Null => {
                decoder.null().unwrap();
                Self::Null
            }
            Type::F64 => Self::Float(decoder.f64().unwrap()),
            Type::Bytes => Self::Bytes(decoder.bytes().unwrap().to_vec()),
            Type::String => Self::Text(decoder.str().unwrap().to_owned()),
            Type::Array => {
                let length = decoder.array().unwrap().unwrap();
                Self::Array((0..length).map(|_| Self::decode(decoder)).collect())
            }
            Type::Map => {
                let length = decoder.map().unwrap().unwrap();
                Self::Map((0..length).map(|_| (decoder.i64().unwrap(), Self::decode(decoder))).collect())
            }
            _ => Self::Int(decoder.int().unwrap().into()),
        }
    }

    pub(super) fn write(&self) -> Bytes {
        let mut encoder = Encoder::new(Vec::new());
        self.encode(&mut encoder);
        encoder.into_writer().into()
    }

    /// The first bytes of the encoding: the whole scalar, or the header before the items of an array or a map.
    pub(super) fn head(&self) -> Bytes {
        match self {
            Self::Array(items) => {
                let mut encoder = Encoder::new(Vec::new());
                encoder.array(items.len() as u64).unwrap();
                encoder.into_writer().into()
            }
            Self::Map(entries) => {
                let mut encoder = Encoder::new(Vec::new());
                encoder.map(entries.len() as u64).unwrap();
                encoder.into_writer().into()
            }
            _ => self.write(),
        }
    }

    fn encode(&self, encoder: &mut Encoder<Vec<u8>>) {
        match self {
            Self::Int(number) => encoder.int(Int::try_from(*number).unwrap()).unwrap(),
            Self::Float(number) => encoder.f64(*number).unwrap(),
            Self::Bool(is) => encoder.bool(*is).unwrap(),
            Self::Null => encoder.null().unwrap(),
            Self::Bytes(bytes) => encoder.bytes(bytes).unwrap(),
            Self::Text(text) => encoder.str(text).unwrap(),
            Self::Array(items) => {
                encoder.array(items.len() as u64).unwrap();
                items.iter().for_each(|item| item.encode(encoder));
                encoder
            }
            Self::Map(entries) => {
                encoder.map(entries.len() as u64).unwrap();
                for (index, value) in entries {
                    encoder.i64(*index).unwrap();
                    value.encode(encoder);
                }
                encoder
            }
        };
    }

    /// The value at a path of indices.
    pub(super) fn at(&mut self, path: &[i64]) -> &mut Self {
        path.iter().fold(self, |value, index| match value {
            Self::Array(items) => &mut items[usize::try_from(*index).unwrap()],
            Self::Map(entries) => {
                let entry = entries.iter_mut().find(|(key, _)| key == index);
                entry.map(|(_, value)| value).unwrap_or_else(|| panic!("no field {index}"))
            }
            _ => panic!("{value:?} has no {index}"),
        })
    }

    /// Adds a field to a map, in the order of the indices.
    pub(super) fn add(&mut self, index: i64, value: Self) {
        let Self::Map(entries) = self else { panic!("{self:?} is no map") };
        let at = entries.partition_point(|(key, _)| *key < index);
        entries.insert(at, (index, value));
    }

    pub(super) fn remove(&mut self, index: i64) {
        let Self::Map(entries) = self else { panic!("{self:?} is no map") };
        entries.retain(|(key, _)| *key != index);
    }
}

/// Decodes `body`, applies `edit`, and returns the new encoding.
pub(super) fn edited(body: &[u8], edit: impl FnOnce(&mut Value)) -> Bytes {
    let mut value = Value::read(body);
    edit(&mut value);
    value.write()
}
