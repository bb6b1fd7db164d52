//! Parts that many resources share, such as a certificate of a thousand names: each is written once, and named by the SHA-256
//! of its encoding where it is used.

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

/// Something that is shared.
pub trait Part: Any + Send + Sync {
    /// The number of its kind of resource on the link.
    const KIND: u32;
    /// What messages call it.
    const WHAT: &'static str;
}

/// What a value with shared parts is written to or read from.
pub trait Context: Sized {
    /// The name of a part, which is written on the way if it is not yet.
    fn name<T: Part + Encode<Self>>(&mut self, part: &Arc<T>) -> PartName;

    /// The part of this name, if there is one.
    fn part<T: Part>(&mut self, name: &PartName) -> Option<Arc<T>>;
}

/// Where a reader finds parts.
pub trait Find {
    /// The part of this name, if there is one.
    fn find<T: Part>(&self, name: &PartName) -> Option<Arc<T>>;
}

/// There are no parts.
#[derive(Clone, Copy, Debug)]
pub struct NoParts;

impl Find for NoParts {
    fn find<T: Part>(&self, _: &PartName) -> Option<Arc<T>> {
        None
    }
}

/// Reads values, and writes them again to compare: the names of parts are those that it found them by, in their order.
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

/// The name of a part in its place.
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
