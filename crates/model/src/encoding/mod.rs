//! The encoding of the model for data planes and for snapshots: CBOR (RFC 8949), derived on the model's own types.
//!
//! The crate is `minicbor`. Its derive numbers fields instead of naming them. The derive is independent of serde, whose
//! derive already makes the dumps of the model, with names and without secrets. `minicbor` passes a context to each field,
//! which shared parts need. The crate never allocates by an announced length, and skips unknown values without recursion.
//!
//! # A new field
//!
//! A new field is one line: the field, and `#[n(index)]` with the next index of its type. An index is never used again. The
//! index decides how a reader handles a field that the reader does not know:
//!
//! | index | a reader without the field | for |
//! |---|---|---|
//! | below [`SKIPPED_FROM`] | rejects the resource: its last valid version stays | fields that may restrict access |
//! | [`SKIPPED_FROM`] and above | skips the field | fields that a reader can ignore safely |
//!
//! A reader must know every field of a policy ([`Unknown::Refused`]): all indices count as the first kind. Older writers omit
//! a field that was added later. Such a field is an `Option`, has `#[cbor(default)]`, or is in a type that [`OrDefault`]
//! decodes. In a policy a later field is an `Option`: an absent field is not written, and older readers reject only the
//! policies with the field. Structs are maps (`#[cbor(map)]`), so that absent fields take no space.
//!
//! A reader rejects a resource with an unknown variant of an enum. `minicbor` would decode an optional field with an unknown
//! variant as absent. [`decode`] detects this case, and every other part of the bytes that the value lacks.
//!
//! | module | what |
//! |---|---|
//! | [`adapt`] | the adapters that `with = ".."` names: types of other crates, and combinations |
//! | [`bound`] | the allowed values |
//! | [`part`] | parts that many resources share, named by the digest of their encoding |
//! | `known` | whether the reader understood all bytes |

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

/// A reader may skip unknown fields with this index and above, except in policies.
pub const SKIPPED_FROM: i64 = 64;

/// Whether a flag has its default, so that no encoding needs the flag.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature of skip_if and skip_serializing_if")]
pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

/// The handling of bytes with a field that this version does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The bytes are rejected, at any depth: the unknown field may restrict access.
    Refused,
    /// The bytes are rejected unless the index of the field is [`SKIPPED_FROM`] or above.
    Skipped,
}

/// The reason why bytes are rejected. The text never contains the bytes, which may be a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A field has a value that is not allowed.
    Invalid(&'static str),
    /// A field names a part that does not exist.
    Unresolved(&'static str),
    /// The bytes do not encode the type, or a field is missing.
    Malformed(Box<str>),
    /// The bytes hold more than this version knows.
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
        // The message keeps only the numbers of our own fields. Other numbers may come from content that was decoded as the
        // wrong type.
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
    // Writing to memory does not fail, and every type of the model can be encoded. Readers reject an empty encoding.
    minicbor::to_vec_with(value, context).unwrap_or_default()
}

/// The encoding of a value, made by an adapter.
pub fn encode_as<A: Adapt<T, Ctx>, T, Ctx>(value: &T, context: &mut Ctx) -> Vec<u8> {
    encode_into::<A, T, Ctx>(Vec::new(), value, context)
}

fn encode_into<A: Adapt<T, Ctx>, T, Ctx>(room: Vec<u8>, value: &T, context: &mut Ctx) -> Vec<u8> {
    let mut encoder = Encoder::new(room);
    match A::encode(value, &mut encoder, context) {
        Ok(()) => encoder.into_writer(),
        // Writing to memory does not fail, as in `encode`.
        Err(_) => Vec::new(),
    }
}

/// Decodes a value, and checks that the value represents all bytes.
///
/// # Errors
/// If the bytes do not encode such a value. If the bytes hold unknown content that `unknown` does not allow to skip. If a
/// value is out of its [`Bound`], or a [`Part`] is not found.
pub fn decode<T, P>(bytes: &[u8], unknown: Unknown, parts: &P) -> Result<T, Fault>
where
    P: Find,
    T: for<'p> Encode<Reader<'p, P>> + for<'p, 'b> Decode<'b, Reader<'p, P>>,
{
    decode_as::<Same, T, P>(bytes, unknown, parts)
}

/// [`decode`] with an adapter.
///
/// # Errors
/// The errors of [`decode`].
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
