//! Parts that many resources share, such as a certificate of a thousand names. Each part is written once; its users name the
//! part by the SHA-256 of its encoding.

use std::any::Any;
use std::sync::Arc;

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

use super::Fault;
use super::adapt::Adapt;

/// SHA-256 of the encoding of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct PartName(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 32]);

/// A shared part.
pub trait Part: Any + Send + Sync {
    /// The number of its kind of resource on the link.
    const KIND: u32;
    /// The name of the kind in messages.
    const WHAT: &'static str;
}

/// The context of encoding and decoding values with shared parts.
pub trait Context: Sized {
    /// The name of a part. The first call for a part also writes the part.
    fn name<T: Part + Encode<Self>>(&mut self, part: &Arc<T>) -> PartName;

    /// The part with this name, if the part exists.
    fn part<T: Part>(&mut self, name: &PartName) -> Option<Arc<T>>;
}

/// The source of parts for a reader.
pub trait Find {
    /// The part with this name, if the part exists.
    fn find<T: Part>(&self, name: &PartName) -> Option<Arc<T>>;
}

/// A source without parts.
#[derive(Clone, Copy, Debug)]
pub struct NoParts;

impl Find for NoParts {
    fn find<T: Part>(&self, _: &PartName) -> Option<Arc<T>> {
        None
    }
}

/// Decodes values, and encodes the values again for the comparison. The names of parts come back in the order in which the
/// reader found the parts.
#[derive(Debug)]
pub struct Reader<'p, P> {
    parts: &'p P,
    names: std::collections::VecDeque<PartName>,
}

impl<'p, P> Reader<'p, P> {
    pub(super) fn new(parts: &'p P) -> Self {
        Self { parts, names: std::collections::VecDeque::new() }
    }
}

impl<P: Find> Context for Reader<'_, P> {
    fn name<T: Part + Encode<Self>>(&mut self, _: &Arc<T>) -> PartName {
        self.names.pop_front().unwrap_or_default()
    }

    fn part<T: Part>(&mut self, name: &PartName) -> Option<Arc<T>> {
        self.names.push_back(*name);
        self.parts.find(name)
    }
}

/// The name of a part, in the place of the part.
#[derive(Debug)]
pub struct Shared;

impl<T, Ctx> Adapt<Arc<T>, Ctx> for Shared
where
    T: Part + Encode<Ctx>,
    Ctx: Context,
{
    fn encode<W: Write>(
        part: &Arc<T>,
        encoder: &mut Encoder<W>,
        context: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        let name = context.name(part);
        name.encode(encoder, context)
    }

    fn decode(decoder: &mut Decoder<'_>, context: &mut Ctx) -> Result<Arc<T>, decode::Error> {
        let name = PartName::decode(decoder, context)?;
        context.part(&name).ok_or_else(|| Fault::Unresolved(T::WHAT).into())
    }
}
