//! Whether a reader understood all bytes: the decoded value is encoded again and compared with the received bytes.
//!
//! This single check covers all types at every depth. The check finds fields that are unknown to this version, variants that
//! `minicbor` decoded as absent, keys that occur twice, and any second encoding of the same value.

use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};

use super::{SKIPPED_FROM, Unknown};

/// `sent` was decoded to a value, and `written` is the encoding of that value. `written` may have more fields than `sent`:
/// absent fields take their defaults.
pub(super) fn is_known(sent: &[u8], written: &[u8], unknown: Unknown) -> Result<bool, Error> {
    // The usual case.
    if sent == written {
        return Ok(true);
    }
    holds(&mut Decoder::new(sent), &mut Decoder::new(written), unknown)
}

/// Compares one item of each encoding. The recursion is at most as deep as `written`, which is as deep as the type.
fn holds(sent: &mut Decoder<'_>, written: &mut Decoder<'_>, unknown: Unknown) -> Result<bool, Error> {
    match (sent.datatype()?, written.datatype()?) {
        (Type::Map, Type::Map) => map_holds(sent, written, unknown),
        (Type::Array, Type::Array) => {
            let begin = sent.position();
            let (Some(length), Some(other)) = (sent.array()?, written.array()?) else { return Ok(false) };
            if length != other || !is_shortest(sent, begin, length) {
                return Ok(false);
            }
            for _ in 0..length {
                if !holds(sent, written, unknown)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => Ok(skipped(sent)? == skipped(written)?),
    }
}

fn map_holds(sent: &mut Decoder<'_>, written: &mut Decoder<'_>, unknown: Unknown) -> Result<bool, Error> {
    let begin = sent.position();
    let (Some(length), Some(mut left)) = (sent.map()?, written.map()?) else { return Ok(false) };
    if !is_shortest(sent, begin, length) {
        return Ok(false);
    }
    let mut next = |written: &mut Decoder<'_>| match left.checked_sub(1) {
        Some(less) => {
            left = less;
            written.i64().map(Some)
        }
        None => Ok(None),
    };
    let mut of_value = next(written)?;
    let mut before = None;
    for _ in 0..length {
        let begin = sent.position();
        let index = sent.i64()?;
        // The key occurs twice or out of order. No index is negative.
        let is_in_order = before.replace(index).is_none_or(|before| before < index);
        if !is_in_order || u64::try_from(index).is_ok_and(|index| !is_shortest(sent, begin, index)) {
            return Ok(false);
        }
        while of_value.is_some_and(|default| default < index) {
            written.skip()?;
            of_value = next(written)?;
        }
        if of_value == Some(index) {
            if !holds(sent, written, unknown)? {
                return Ok(false);
            }
            of_value = next(written)?;
        } else if unknown == Unknown::Skipped && index >= SKIPPED_FROM {
            sent.skip()?;
        } else {
            return Ok(false);
        }
    }
    while of_value.is_some() {
        written.skip()?;
        of_value = next(written)?;
    }
    Ok(true)
}

/// Whether a number, read since `begin`, has its shortest encoding (RFC 8949, 4.2.1).
fn is_shortest(decoder: &Decoder<'_>, begin: usize, number: u64) -> bool {
    let length = match number {
        0..=0x17 => 1,
        0x18..=0xff => 2,
        0x100..=0xffff => 3,
        0x1_0000..=0xffff_ffff => 5,
        _ => 9,
    };
    decoder.position() - begin == length
}

/// The bytes of an item.
fn skipped<'b>(decoder: &mut Decoder<'b>) -> Result<&'b [u8], Error> {
    let begin = decoder.position();
    decoder.skip()?;
    Ok(decoder.input().get(begin..decoder.position()).unwrap_or_default())
}
