use std::time::Duration;

use super::*;
use crate::settings::Timeouts;
use crate::{Balance, Conditions, HostPattern, ObjectId, UpstreamKey, UpstreamLimits};

fn read<T>(bytes: &[u8]) -> Result<T, Fault>
where
    T: for<'p> Encode<Reader<'p, NoParts>> + for<'p, 'b> Decode<'b, Reader<'p, NoParts>>,
{
    decode(bytes, Unknown::Skipped, &NoParts)
}

#[test]
fn decoder_accepts_only_the_canonical_encoding_of_a_value() {
    let name = HostPattern::Exact("a".into());
    let good = encode(&name, &mut ());
    assert_eq!(good, [0x82, 0, 0xa1, 0, 0x61, b'a']);
    assert_eq!(read(&good), Ok(name));
    for other in [
        // Longer encodings of numbers and lengths, an indefinite length, a duplicate field, and trailing bytes.
        &[0x82, 0x18, 0, 0xa1, 0, 0x61, b'a'][..],
        &[0x98, 2, 0, 0xa1, 0, 0x61, b'a'],
        &[0x82, 0, 0xa1, 0, 0x78, 1, b'a'],
        &[0x82, 0, 0xbf, 0, 0x61, b'a', 0xff],
        &[0x82, 0, 0xa2, 0, 0x61, b'b', 0, 0x61, b'a'],
        &[0x82, 0, 0xa1, 0, 0x61, b'a', 0],
    ] {
        assert!(read::<HostPattern>(other).is_err(), "{other:?}");
    }
    // The fields in another order.
    let conditions = [0xa3, 0, 0xf5, 1, 0xf4, 2, 0xf5];
    assert!(read::<Conditions>(&conditions).is_ok());
    assert_eq!(read::<Conditions>(&[0xa3, 1, 0xf4, 0, 0xf5, 2, 0xf5]), Err(Fault::Partial));
}

#[test]
fn decoder_skips_unknown_fields_from_index_64() {
    let limits = UpstreamLimits { max_requests: Some(1), max_requests_per_endpoint: None };
    let known = [0xa1, 0, 1];
    assert_eq!(encode(&limits, &mut ()), known);
    let with = |index: &[u8]| [&[0xa2, 0, 1], index, &[0x61, b'x']].concat();
    assert_eq!(read(&with(&[0x18, 64])), Ok(limits));
    assert_eq!(read::<UpstreamLimits>(&with(&[0x18, 63])), Err(Fault::Partial));
    let refused = decode::<UpstreamLimits, _>(&with(&[0x18, 64]), Unknown::Refused, &NoParts);
    assert_eq!(refused, Err(Fault::Partial));
}

#[test]
fn decoding_error_names_the_field_and_contains_no_input() {
    let missing = read::<UpstreamKey>(&[0xa0]).expect_err("a required field is absent").to_string();
    assert!(missing.contains("UpstreamKey::namespace"), "{missing}");
    // A number of eight bytes in place of a small number, a variant or another type.
    let number = [0x1b, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38];
    let limits = read::<UpstreamLimits>(&[&[0xa1, 0][..], &number].concat()).map(|_| ());
    let variant = read::<Balance>(&number).map(|_| ());
    let other = read::<HostPattern>(&[&[0x82][..], &number, &[0xa0]].concat()).map(|_| ());
    let negative = read::<Balance>(&[0x3b, 0xf1, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38]).map(|_| ());
    let text = read::<UpstreamKey>(&[0xa1, 0, 0x64, b'k', b'e', b'y', 0xff]).map(|_| ());
    for fault in [limits, variant, other, negative, text] {
        let shown = fault.map_err(|fault| format!("{fault} {fault:?}")).expect_err("invalid input");
        assert!(!shown.contains(|digit: char| digit.is_ascii_digit()) && !shown.contains("key"), "{shown}");
    }
}

#[test]
fn decoder_rejects_a_duration_beyond_the_maximum() {
    let read = |bytes: &[u8]| decode_as::<Time, Duration, _>(bytes, Unknown::Refused, &NoParts);
    let longest = encode_as::<Time, _, _>(&adapt::LONGEST, &mut ());
    assert_eq!(read(&longest), Ok(adapt::LONGEST));
    let longer = encode_as::<Time, _, _>(&(adapt::LONGEST + Duration::from_nanos(1)), &mut ());
    assert_eq!(read(&longer), Err(Fault::Invalid("a duration")));
}

#[test]
fn decoder_limits_how_many_kind_names_it_stores_and_their_length() {
    let read = |kind: String| {
        let id = [&[0xa3, 0, 0x78, kind.len() as u8][..], kind.as_bytes(), &[1, 0x61, b'a', 2, 0x61, b'b']]
            .concat();
        read::<ObjectId>(&id)
    };
    let long = |length| "k".repeat(length);
    assert_eq!(read(long(64)).map(|id| id.kind.len()), Ok(64));
    assert_eq!(read(long(65)), Err(Fault::Invalid("the kind of an object")));
    let many = (0..300).map(|number| read(format!("a kind of objects of a control plane, {number}")));
    assert!(many.filter(Result::is_err).count() >= 40);
}

#[test]
fn absent_fields_decode_as_the_defaults_of_their_type() {
    let read = |bytes: &[u8]| decode_as::<OrDefault, Timeouts, _>(bytes, Unknown::Refused, &NoParts);
    assert_eq!(read(&[0xa0]), Ok(Timeouts::default()));
    let shorter = Timeouts { tls_handshake: Duration::from_nanos(7), ..Timeouts::default() };
    assert_eq!(read(&[0xa1, 0, 7]), Ok(shorter));
    assert_eq!(read(&[0xa2, 0, 6, 0, 7]), Err(Fault::Partial), "a duplicate field");
}
