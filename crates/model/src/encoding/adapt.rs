//! The adapters that `#[cbor(with = "..")]` names: the encoding of types of other crates, and the checks of decoded values.
//!
//! Adapters combine: `Maybe::<Time>` is for an optional duration, `List::<Within<Token>>` for a list of valid tokens.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use minicbor::data::Type;
use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

use super::{Bound, Fault};

/// An encoding of a type.
pub trait Adapt<T, Ctx> {
    /// Writes a value.
    ///
    /// # Errors
    /// If the writer fails.
    fn encode<W: Write>(
        value: &T,
        encoder: &mut Encoder<W>,
        context: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>>;

    /// Reads a value.
    ///
    /// # Errors
    /// If the bytes do not encode an allowed value.
    fn decode(decoder: &mut Decoder<'_>, context: &mut Ctx) -> Result<T, decode::Error>;
}

/// The type's own encoding.
#[derive(Debug)]
pub struct Same;

impl<T, Ctx> Adapt<T, Ctx> for Same
where
    T: Encode<Ctx> + for<'b> Decode<'b, Ctx>,
{
    fn encode<W: Write>(
        value: &T,
        encoder: &mut Encoder<W>,
        context: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        value.encode(encoder, context)
    }

    fn decode(decoder: &mut Decoder<'_>, context: &mut Ctx) -> Result<T, decode::Error> {
        T::decode(decoder, context)
    }
}

/// An optional value.
#[derive(Debug)]
pub struct Maybe<A>(PhantomData<A>);

impl<T, Ctx, A: Adapt<T, Ctx>> Adapt<Option<T>, Ctx> for Maybe<A> {
    fn encode<W: Write>(
        value: &Option<T>,
        encoder: &mut Encoder<W>,
        context: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        match value {
            Some(value) => A::encode(value, encoder, context),
            None => encoder.null()?.ok(),
        }
    }

    fn decode(decoder: &mut Decoder<'_>, context: &mut Ctx) -> Result<Option<T>, decode::Error> {
        if decoder.datatype()? == Type::Null {
            decoder.null()?;
            return Ok(None);
        }
        A::decode(decoder, context).map(Some)
    }
}

/// A list. Memory grows with the items that are read, not with the announced length.
#[derive(Debug)]
pub struct List<A>(PhantomData<A>);

impl<T, Ctx, A: Adapt<T, Ctx>> Adapt<Vec<T>, Ctx> for List<A> {
    fn encode<W: Write>(
        values: &Vec<T>,
        encoder: &mut Encoder<W>,
        context: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.array(values.len() as u64)?;
        values.iter().try_for_each(|value| A::encode(value, encoder, context))
    }

    fn decode(decoder: &mut Decoder<'_>, context: &mut Ctx) -> Result<Vec<T>, decode::Error> {
        let length = decoder.array()?.ok_or_else(indefinite)?;
        let mut values = Vec::new();
        for _ in 0..length {
            values.push(A::decode(decoder, context)?);
        }
        Ok(values)
    }
}

/// Lists and maps have definite lengths.
fn indefinite() -> decode::Error {
    decode::Error::message("indefinite length")
}

/// Two values.
#[derive(Debug)]
pub struct Pair<A, B>(PhantomData<(A, B)>);

impl<T, U, Ctx, A: Adapt<T, Ctx>, B: Adapt<U, Ctx>> Adapt<(T, U), Ctx> for Pair<A, B> {
    fn encode<W: Write>(
        (one, other): &(T, U),
        encoder: &mut Encoder<W>,
        context: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.array(2)?;
        A::encode(one, encoder, context)?;
        B::encode(other, encoder, context)
    }

    fn decode(decoder: &mut Decoder<'_>, context: &mut Ctx) -> Result<(T, U), decode::Error> {
        if decoder.array()? != Some(2) {
            return Err(decode::Error::message("no pair"));
        }
        Ok((A::decode(decoder, context)?, B::decode(decoder, context)?))
    }
}

/// The value behind a pointer, encoded in place.
#[derive(Debug)]
pub struct Pointer;

impl<T, Ctx> Adapt<Arc<T>, Ctx> for Pointer
where
    T: Encode<Ctx> + for<'b> Decode<'b, Ctx>,
{
    fn encode<W: Write>(
        value: &Arc<T>,
        encoder: &mut Encoder<W>,
        context: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        T::encode(value, encoder, context)
    }

    fn decode(decoder: &mut Decoder<'_>, context: &mut Ctx) -> Result<Arc<T>, decode::Error> {
        T::decode(decoder, context).map(Arc::new)
    }
}

/// A value that is checked against its bound.
#[derive(Debug)]
pub struct Within<B>(PhantomData<B>);

impl<T, Ctx, B> Adapt<T, Ctx> for Within<B>
where
    T: Borrow<B::Value>,
    B: Bound,
    Same: Adapt<T, Ctx>,
{
    fn encode<W: Write>(
        value: &T,
        encoder: &mut Encoder<W>,
        context: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        Same::encode(value, encoder, context)
    }

    fn decode(decoder: &mut Decoder<'_>, context: &mut Ctx) -> Result<T, decode::Error> {
        WithinAs::<B, Same>::decode(decoder, context)
    }
}

/// A value that is checked against its bound, with the encoding of an adapter.
#[derive(Debug)]
pub struct WithinAs<B, A>(PhantomData<(B, A)>);

impl<T, Ctx, B, A> Adapt<T, Ctx> for WithinAs<B, A>
where
    T: Borrow<B::Value>,
    B: Bound,
    A: Adapt<T, Ctx>,
{
    fn encode<W: Write>(
        value: &T,
        encoder: &mut Encoder<W>,
        context: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        A::encode(value, encoder, context)
    }

    fn decode(decoder: &mut Decoder<'_>, context: &mut Ctx) -> Result<T, decode::Error> {
        let value = A::decode(decoder, context)?;
        if B::allows(value.borrow()) { Ok(value) } else { Err(Fault::Invalid(B::FIELD).into()) }
    }
}

/// A map whose absent fields take the defaults of the type. The default of an optional field must be `None`: otherwise a
/// reader could not distinguish an absent field from `None`.
#[derive(Debug)]
pub struct OrDefault;

impl<T, Ctx> Adapt<T, Ctx> for OrDefault
where
    T: Default + Encode<Ctx> + for<'b> Decode<'b, Ctx>,
{
    fn encode<W: Write>(
        value: &T,
        encoder: &mut Encoder<W>,
        context: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        value.encode(encoder, context)
    }

    fn decode(decoder: &mut Decoder<'_>, context: &mut Ctx) -> Result<T, decode::Error> {
        let begin = decoder.position();
        decoder.skip()?;
        let sent = decoder.input().get(begin..decoder.position()).unwrap_or_default();
        let defaults = super::encode(&T::default(), context);
        let (mut sent, mut defaults) = (Decoder::new(sent), Decoder::new(&defaults));
        let (Some(length), Some(of_defaults)) = (sent.map()?, defaults.map()?) else {
            return Err(indefinite());
        };
        let mut both = Encoder::new(Vec::new());
        // Writing to memory does not fail.
        let _ = both.map(length.saturating_add(of_defaults));
        // If a key occurs twice, the last value applies.
        let mut both = both.into_writer();
        for part in [defaults, sent] {
            both.extend_from_slice(part.input().get(part.position()..).unwrap_or_default());
        }
        T::decode(&mut Decoder::new(&both), context)
    }
}

/// Text.
#[derive(Debug)]
pub struct Text;

impl<T, Ctx> Adapt<T, Ctx> for Text
where
    T: AsRef<str> + for<'a> From<&'a str>,
{
    fn encode<W: Write>(
        text: &T,
        encoder: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.str(text.as_ref())?.ok()
    }

    fn decode(decoder: &mut Decoder<'_>, _: &mut Ctx) -> Result<T, decode::Error> {
        decoder.str().map(T::from)
    }
}

/// Bytes: DER, keys, secrets.
#[derive(Debug)]
pub struct Raw;

impl<T: AsRef<[u8]> + From<Vec<u8>>, Ctx> Adapt<T, Ctx> for Raw {
    fn encode<W: Write>(
        bytes: &T,
        encoder: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.bytes(bytes.as_ref())?.ok()
    }

    fn decode(decoder: &mut Decoder<'_>, _: &mut Ctx) -> Result<T, decode::Error> {
        Ok(decoder.bytes()?.to_vec().into())
    }
}

/// A type with a text form, which is also its encoding.
pub trait Parse: Display + FromStr {
    /// The name of the type in messages.
    const FIELD: &'static str;
}

impl Parse for IpNet {
    const FIELD: &'static str = "a network";
}

/// The text form of a value. Decoding parses the text.
#[derive(Debug)]
pub struct Parsed;

impl<T: Parse, Ctx> Adapt<T, Ctx> for Parsed {
    fn encode<W: Write>(
        value: &T,
        encoder: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.str(&value.to_string())?.ok()
    }

    fn decode(decoder: &mut Decoder<'_>, _: &mut Ctx) -> Result<T, decode::Error> {
        decoder.str()?.parse().map_err(|_| Fault::Invalid(T::FIELD).into())
    }
}

/// Nanoseconds of a duration, or a time as its seconds and nanoseconds since 1970.
#[derive(Debug)]
pub struct Time;

/// The longest duration. Clocks overflow with longer durations.
pub const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

impl<Ctx> Adapt<Duration, Ctx> for Time {
    fn encode<W: Write>(
        duration: &Duration,
        encoder: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.u64(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))?.ok()
    }

    fn decode(decoder: &mut Decoder<'_>, _: &mut Ctx) -> Result<Duration, decode::Error> {
        let duration = Duration::from_nanos(decoder.u64()?);
        if duration > LONGEST { Err(Fault::Invalid("a duration").into()) } else { Ok(duration) }
    }
}

impl<Ctx> Adapt<SystemTime, Ctx> for Time {
    fn encode<W: Write>(
        time: &SystemTime,
        encoder: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        let (seconds, nanos) = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
            // Before 1970 whole seconds suffice.
            Err(before) => (-i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX), 0),
        };
        encoder.array(2)?.i64(seconds)?.u32(nanos)?.ok()
    }

    fn decode(decoder: &mut Decoder<'_>, _: &mut Ctx) -> Result<SystemTime, decode::Error> {
        if decoder.array()? != Some(2) {
            return Err(decode::Error::message("no time"));
        }
        let (seconds, nanos) = (decoder.i64()?, decoder.u32()?);
        let apart = Duration::from_secs(seconds.unsigned_abs());
        let whole = match seconds >= 0 {
            true => SystemTime::UNIX_EPOCH.checked_add(apart),
            false => SystemTime::UNIX_EPOCH.checked_sub(apart),
        };
        let exact = whole.and_then(|whole| whole.checked_add(Duration::from_nanos(nanos.into())));
        exact.ok_or_else(|| Fault::Invalid("a time").into())
    }
}

/// A socket address: the bytes of the IP address, the port, and the scope of an IPv6 address if there is a scope.
#[derive(Debug)]
pub struct Address;

impl<Ctx> Adapt<SocketAddr, Ctx> for Address {
    fn encode<W: Write>(
        address: &SocketAddr,
        encoder: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        let scope = match address {
            SocketAddr::V6(address) => address.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        encoder.array(if scope == 0 { 2 } else { 3 })?;
        match address.ip() {
            IpAddr::V4(ip) => encoder.bytes(&ip.octets())?,
            IpAddr::V6(ip) => encoder.bytes(&ip.octets())?,
        };
        encoder.u16(address.port())?;
        if scope != 0 {
            encoder.u32(scope)?;
        }
        Ok(())
    }

    fn decode(decoder: &mut Decoder<'_>, _: &mut Ctx) -> Result<SocketAddr, decode::Error> {
        let length = decoder.array()?;
        let ip = decoder.bytes()?;
        let port = decoder.u16()?;
        let scope = match length {
            Some(2) => 0,
            Some(3) => decoder.u32()?,
            _ => return Err(decode::Error::message("no address")),
        };
        if let (Ok(octets), 0) = (<[u8; 4]>::try_from(ip), scope) {
            return Ok((Ipv4Addr::from(octets), port).into());
        }
        let octets = <[u8; 16]>::try_from(ip).map_err(|_| Fault::Invalid("an address"))?;
        Ok(SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, scope).into())
    }
}

/// The name of a kind of objects, which lives as long as the process. A control plane has some twenty names. Further names
/// from a sender are rejected, so that the memory stays bounded.
#[derive(Debug)]
pub struct Interned;

impl<Ctx> Adapt<&'static str, Ctx> for Interned {
    fn encode<W: Write>(
        name: &&'static str,
        encoder: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.str(name)?.ok()
    }

    fn decode(decoder: &mut Decoder<'_>, _: &mut Ctx) -> Result<&'static str, decode::Error> {
        interned(decoder.str()?).ok_or_else(|| Fault::Invalid("the kind of an object").into())
    }
}

fn interned(name: &str) -> Option<&'static str> {
    const KINDS_MAX: usize = 256;
    const LENGTH_MAX: usize = 64;
    static KINDS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kinds.get(name) {
        return Some(known);
    }
    if kinds.len() >= KINDS_MAX || name.len() > LENGTH_MAX {
        return None;
    }
    let kind: &'static str = Box::leak(name.into());
    kinds.insert(kind);
    Some(kind)
}
