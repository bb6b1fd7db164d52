//! How the model is written for data planes and for snapshots: CBOR (RFC 8949), derived on the model's own types.
//!
//! The crate is `minicbor`: its derive numbers fields instead of naming them, it borrows nothing from serde (whose derive
//! already makes the dumps of the model, with names and without secrets), and it hands a context to each field, which the
//! shared parts need. It never allocates by an announced length, and skips what it must not read without recursion.
//!
//! # A new field
//!
//! One line: the field, and `#[n(index)]` with the next index of its type. An index is never used again. The index says
//! what a reader does that does not know the field:
//!
//! | index | a reader that does not know it | for |
//! |---|---|---|
//! | below [`SKIPPED_FROM`] | refuses the resource: its last valid version stays | anything that may close something |
//! | [`SKIPPED_FROM`] and above | skips it | what a reader may serve without |
//!
//! A policy ([`Unknown::Refused`]) has to be known as a whole: all indices count as the first kind. A field that is added
//! later is absent in what older writers sent, so it is an `Option`, or has `#[cbor(default)]`, or stands in a type that is
//! read by [`OrDefault`]. In a policy it is an `Option`: an absent field is not written, and older readers refuse only the
//! policies that use it. Structs are maps (`#[cbor(map)]`), so that absent fields take no room.
//!
//! An unknown variant of an enum refuses the resource. `minicbor` would read an optional field with one as absent;
//! [`decode`] notices that, as it notices everything else that was in the bytes and is not in the value.
//!
//! | module | what |
//! |---|---|
//! | [`adapt`] | types of other crates, and combinations: what `with = ".."` names |
//! | [`bound`] | which values are allowed |
//! | [`part`] | what many resources share, by the digest of its encoding |
//! | `known` | whether all that was sent was understood |

use std::fmt;

use minicbor::{Decode, Decoder, Encode, Encoder};

pub mod adapt;
pub mod bound;
mod known;
pub mod part;
#[cfg(test)]
mod tests;

pub use adapt::{
    Adapt, Address, Interned, List, Maybe, OrDefault, Parsed, Pointer, Raw, Same, Text, Time, Within,
    WithinAs,
};
pub use bound::Bound;
pub use part::{Context, Find, NoParts, Part, PartName, Shared};

use part::Reader;

/// Fields with this index and above may be skipped by a reader that does not know them, except in policies.
pub const SKIPPED_FROM: i64 = 64;

/// What becomes of bytes that hold a field which is unknown to this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// They are refused at any depth: what is unknown may be what closes something.
    Refused,
    /// They are refused unless the index of the field is [`SKIPPED_FROM`] or above.
    Skipped,
}

/// Why bytes are refused. The text never has their content, which may be a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A field has a value that is not allowed.
    Invalid(&'static str),
    /// A field names a part that is not there.
    Unresolved(&'static str),
    /// They are no encoding of the type, or a field is missing.
    Malformed(Box<str>),
    /// They hold more than this version knows.
    Partial,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(field) => write!(f, "{field} has a value that is not allowed"),
            Self::Unresolved(what) => write!(f, "the {what} that it names is not there"),
            Self::Malformed(why) => write!(f, "it cannot be decoded: {why}"),
            Self::Partial => f.write_str("it has parts that this version does not know"),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for minicbor::decode::Error {
    fn from(fault: Fault) -> Self {
        Self::custom(fault)
    }
}

impl From<minicbor::decode::Error> for Fault {
    fn from(error: minicbor::decode::Error) -> Self {
        if let Some(fault) =
            std::error::Error::source(&error).and_then(|source| source.downcast_ref::<Self>())
        {
            return fault.clone();
        }
        // Numbers are left out, except those of our own fields: where bytes are read as what they are not, a number is
        // made of them.
        Self::Malformed(match () {
            () if error.is_missing_value() => error.to_string().into(),
            () if error.is_unknown_variant() => "a variant is unknown to this version".into(),
            () if error.is_end_of_input() => "it ends too early".into(),
            () if error.is_type_mismatch() => "a value has another type".into(),
            () => "a value is malformed".into(),
        })
    }
}

/// The encoding of a value: the same bytes for the same value.
pub fn encode<T: Encode<Ctx>, Ctx>(value: &T, context: &mut Ctx) -> Vec<u8> {
    // Memory takes all bytes, and no type of the model refuses to be written. Readers refuse an empty encoding.
    minicbor::to_vec_with(value, context).unwrap_or_default()
}

/// The encoding of a value by an adapter.
pub fn encode_as<A: Adapt<T, Ctx>, T, Ctx>(value: &T, context: &mut Ctx) -> Vec<u8> {
    encode_into::<A, T, Ctx>(Vec::new(), value, context)
}

fn encode_into<A: Adapt<T, Ctx>, T, Ctx>(room: Vec<u8>, value: &T, context: &mut Ctx) -> Vec<u8> {
    let mut encoder = Encoder::new(room);
    match A::encode(value, &mut encoder, context) {
        Ok(()) => encoder.into_writer(),
        // As above.
        Err(_) => Vec::new(),
    }
}

/// Reads a value, and checks that it says all that the bytes say.
///
/// # Errors
/// If the bytes are no encoding of such a value, or hold more than it says and `unknown` does not let that be skipped; if a
/// value is out of its [`Bound`], or a [`Part`] is not found.
pub fn decode<T, P>(bytes: &[u8], unknown: Unknown, parts: &P) -> Result<T, Fault>
where
    P: Find,
    T: for<'p> Encode<Reader<'p, P>> + for<'p, 'b> Decode<'b, Reader<'p, P>>,
{
    decode_as::<Same, T, P>(bytes, unknown, parts)
}

/// [`decode`] by an adapter.
///
/// # Errors
/// As those of [`decode`].
pub fn decode_as<A, T, P>(bytes: &[u8], unknown: Unknown, parts: &P) -> Result<T, Fault>
where
    P: Find,
    A: for<'p> Adapt<T, Reader<'p, P>>,
{
    let mut reader = Reader::new(parts);
    let mut decoder = Decoder::new(bytes);
    let value = A::decode(&mut decoder, &mut reader)?;
    if decoder.position() != bytes.len() {
        return Err(Fault::Partial);
    }
    let written = encode_into::<A, T, _>(Vec::with_capacity(bytes.len()), &value, &mut reader);
    match known::is_known(bytes, &written, unknown)? {
        true => Ok(value),
        false => Err(Fault::Partial),
    }
}
