//! Writes and reads messages in the Protocol Buffers wire format. A worker encodes a message directly, without building
//! objects first.

use std::borrow::Cow;

/// The wire type of a field.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;
const FIXED32: u32 = 5;

/// A number, seven bits in each byte.
fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The length of an encoded number.
fn varint_len(number: usize) -> usize {
    let bits = usize::BITS - (number | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// The length of a field with a number up to 15 and `length` bytes.
fn field_len(length: usize) -> usize {
    1 + varint_len(length) + length
}

fn tag(out: &mut Vec<u8>, field: u32, wire: u32) {
    varint(out, (field << 3 | wire).into());
}

/// An integer, a bool or an enum.
pub(crate) fn integer(out: &mut Vec<u8>, field: u32, number: u64) {
    tag(out, field, VARINT);
    varint(out, number);
}

/// A `fixed64`.
pub(crate) fn fixed64(out: &mut Vec<u8>, field: u32, number: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&number.to_le_bytes());
}

/// A `fixed32`.
pub(crate) fn fixed32(out: &mut Vec<u8>, field: u32, number: u32) {
    tag(out, field, FIXED32);
    out.extend_from_slice(&number.to_le_bytes());
}

/// A string, bytes, or an encoded message.
pub(crate) fn bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    tag(out, field, LENGTH);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A string in parts.
pub(crate) fn parts(out: &mut Vec<u8>, field: u32, parts: &[&str]) {
    tag(out, field, LENGTH);
    varint(out, parts.iter().map(|part| part.len() as u64).sum());
    parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
}

/// A `KeyValue` (opentelemetry/proto/common/v1) whose value is a string.
pub(crate) fn text_attribute(out: &mut Vec<u8>, field: u32, key: &str, value: &[u8]) {
    let value = utf8(value);
    let any_value = field_len(value.len());
    begin_attribute(out, field, key, any_value);
    bytes(out, 1, value.as_bytes());
}

/// A `KeyValue` whose value is an integer.
pub(crate) fn integer_attribute(out: &mut Vec<u8>, field: u32, key: &str, value: u64) {
    let any_value = 1 + varint_len(usize::try_from(value).unwrap_or(usize::MAX));
    begin_attribute(out, field, key, any_value);
    integer(out, 3, value);
}

fn begin_attribute(out: &mut Vec<u8>, field: u32, key: &str, any_value: usize) {
    tag(out, field, LENGTH);
    varint(out, (field_len(key.len()) + field_len(any_value)) as u64);
    bytes(out, 1, key.as_bytes());
    tag(out, 2, LENGTH);
    varint(out, any_value as u64);
}

/// Valid UTF-8. An invalid string would make the whole message unreadable.
pub(crate) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A field of a received message: its number, and its value as a number or as bytes.
pub(crate) type Field<'m> = (u64, Result<u64, &'m [u8]>);

/// A message ends inside a field, or has an unknown wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The fields of a received message, up to the first malformed field.
pub(crate) fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    checked_fields(message).map_while(Result::ok)
}

/// The fields of a received message. A malformed field is the last item.
pub(crate) fn checked_fields(mut message: &[u8]) -> impl Iterator<Item = Result<Field<'_>, Malformed>> {
    std::iter::from_fn(move || {
        if message.is_empty() {
            return None;
        }
        let field = take_field(&mut message).ok_or(Malformed);
        if field.is_err() {
            message = &[];
        }
        Some(field)
    })
}

fn take_field<'m>(message: &mut &'m [u8]) -> Option<Field<'m>> {
    let key = take_varint(message)?;
    let value = match key & 7 {
        0 => Ok(take_varint(message)?),
        1 => Err(message.split_off(..8)?),
        2 => {
            let length = usize::try_from(take_varint(message)?).ok()?;
            Err(message.split_off(..length)?)
        }
        5 => Err(message.split_off(..4)?),
        _ => return None,
    };
    Some((key >> 3, value))
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = message.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computed_length_of_a_varint_equals_its_encoded_length() {
        for number in [0, 1, 127, 128, 300, 16_383, 16_384, usize::MAX] {
            let mut out = Vec::new();
            varint(&mut out, number as u64);
            assert_eq!(out.len(), varint_len(number), "{number}");
            assert_eq!(take_varint(&mut &out[..]), Some(number as u64));
        }
        assert_eq!(take_varint(&mut &[0xff; 11][..]), None);
        assert_eq!(take_varint(&mut &[0x80][..]), None);
    }

    #[test]
    fn parser_reads_protobuf_fields_before_a_truncated_field() {
        let mut out = Vec::new();
        integer(&mut out, 1, 300);
        bytes(&mut out, 2, b"why");
        fixed64(&mut out, 3, 1);
        fixed32(&mut out, 4, 1);
        out.extend_from_slice(&[0x12, 0xff, 0xff]);
        let read: Vec<_> = fields(&out).collect();
        assert_eq!(read[..2], [(1, Ok(300)), (2, Err(&b"why"[..]))]);
        assert_eq!(read.len(), 4);
        let checked: Vec<_> = checked_fields(&out).collect();
        assert_eq!((checked.len(), checked[4]), (5, Err(Malformed)));
    }
}
