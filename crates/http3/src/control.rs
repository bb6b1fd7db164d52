//! The streams of a connection beside its requests: control streams and streams of QPACK (RFC 9114, 6.2; RFC 9204, 4.2).

use crate::code::Code;
use crate::frame::{FrameKind, write_header};
use crate::varint;

/// The type of a unidirectional stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// The control stream.
    Control,
    /// A pushed response, which clients must not send.
    Push,
    /// The instructions of the peer's encoder.
    Encoder,
    /// The instructions of the peer's decoder.
    Decoder,
    /// A stream to ignore.
    Unknown,
}

impl StreamKind {
    /// The type with this number.
    #[must_use]
    pub fn of(kind: u64) -> Self {
        match kind {
            0x0 => Self::Control,
            0x1 => Self::Push,
            0x2 => Self::Encoder,
            0x3 => Self::Decoder,
            _ => Self::Unknown,
        }
    }
}

/// Appends the beginning of the gateway's control stream: its type, and SETTINGS (RFC 9114, 7.2.4). The gateway has no
/// dynamic table, which is the default of QPACK, and accepts extended CONNECT (RFC 9220, 3).
pub fn write_control_stream(out: &mut Vec<u8>, largest_section: u64) {
    varint::write(out, 0x0);
    let mut settings = Vec::new();
    for (id, value) in [(0x6, largest_section), (0x8, 1)] {
        varint::write(&mut settings, id);
        varint::write(&mut settings, value);
    }
    write_header(out, 0x4, settings.len());
    out.extend_from_slice(&settings);
}

/// The state of a client's control stream.
#[derive(Debug, Default)]
pub struct Control {
    has_settings: bool,
    /// The limit of pushes that the client has set.
    max_push: Option<u64>,
    /// The push from which on the client accepts none.
    goaway: Option<u64>,
}

impl Control {
    /// The longest payload of a frame with a meaning on a control stream. SETTINGS have at most a few dozen bytes.
    pub const LARGEST: u64 = 4096;

    /// Checks the type of a frame before its payload was read. Returns whether the payload matters.
    ///
    /// # Errors
    /// The code with which the connection ends.
    pub fn begin(&self, kind: FrameKind, length: u64) -> Result<bool, Code> {
        let is_known = match kind {
            FrameKind::Settings if self.has_settings => return Err(Code::FRAME_UNEXPECTED),
            FrameKind::Settings => true,
            // RFC 9114, 6.2.1.
            _ if !self.has_settings => return Err(Code::MISSING_SETTINGS),
            FrameKind::Data | FrameKind::Headers | FrameKind::PushPromise | FrameKind::Forbidden => {
                return Err(Code::FRAME_UNEXPECTED);
            }
            FrameKind::CancelPush | FrameKind::Goaway | FrameKind::MaxPushId => true,
            FrameKind::Unknown => false,
        };
        if is_known && length > Self::LARGEST { Err(Code::EXCESSIVE_LOAD) } else { Ok(is_known) }
    }

    /// Takes a frame.
    ///
    /// # Errors
    /// The code with which the connection ends.
    pub fn take(&mut self, kind: FrameKind, payload: &[u8]) -> Result<(), Code> {
        if kind == FrameKind::Settings {
            self.has_settings = true;
            return check_settings(payload);
        }
        // RFC 9114, 7.1: the payload has exactly its fields.
        let Some((id, [])) = varint::read(payload) else { return Err(Code::FRAME_ERROR) };
        match kind {
            // RFC 9114, 7.2.7: the limit does not decrease.
            FrameKind::MaxPushId if self.max_push.is_some_and(|most| id < most) => Err(Code::ID_ERROR),
            FrameKind::MaxPushId => {
                self.max_push = Some(id);
                Ok(())
            }
            // RFC 9114, 5.2: the identifier does not increase.
            FrameKind::Goaway if self.goaway.is_some_and(|before| id > before) => Err(Code::ID_ERROR),
            FrameKind::Goaway => {
                self.goaway = Some(id);
                Ok(())
            }
            // RFC 9114, 7.2.3: the gateway has promised no push, so that no identifier is valid.
            FrameKind::CancelPush => Err(Code::ID_ERROR),
            _ => Ok(()),
        }
    }
}

/// Checks SETTINGS (RFC 9114, 7.2.4).
fn check_settings(mut payload: &[u8]) -> Result<(), Code> {
    let mut known = Vec::new();
    while !payload.is_empty() {
        let setting = varint::read(payload).and_then(|(id, rest)| Some((id, varint::read(rest)?)));
        let Some((id, (value, rest))) = setting else { return Err(Code::FRAME_ERROR) };
        // RFC 9114, 7.2.4.1: settings of HTTP/2. RFC 9220, 3 and RFC 8441, 3: the value is 0 or 1.
        if matches!(id, 0x2..=0x5) || known.contains(&id) || id == 0x8 && value > 1 {
            return Err(Code::SETTINGS_ERROR);
        }
        known.push(id);
        payload = rest;
    }
    Ok(())
}

/// Checks the instructions of a client's encoder. The gateway allows no dynamic table, so that only the capacity 0 is valid
/// (RFC 9204, 3.2.2 and 4.3).
///
/// # Errors
/// The code with which the connection ends.
pub fn check_encoder(instructions: &[u8]) -> Result<(), Code> {
    let is_valid = instructions.iter().all(|byte| *byte == 0b0010_0000);
    if is_valid { Ok(()) } else { Err(Code::ENCODER_STREAM_ERROR) }
}

/// Checks the instructions of a client's decoder: the gateway's encoder has no dynamic table, so that only cancellations of
/// streams are valid (RFC 9204, 4.4).
#[derive(Debug, Default)]
pub struct DecoderInstructions {
    is_inside: bool,
}

impl DecoderInstructions {
    /// Takes bytes of the decoder stream.
    ///
    /// # Errors
    /// The code with which the connection ends.
    pub fn take(&mut self, instructions: &[u8]) -> Result<(), Code> {
        for byte in instructions {
            self.is_inside = match (self.is_inside, byte) {
                (true, byte) => byte & 0x80 != 0,
                (false, 0b0100_0000..=0b0111_1111) => byte & 0x3f == 0x3f,
                (false, _) => return Err(Code::DECODER_STREAM_ERROR),
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_stream_begins_with_settings_and_has_them_once() {
        let mut control = Control::default();
        assert_eq!(control.begin(FrameKind::Goaway, 1), Err(Code::MISSING_SETTINGS));
        assert_eq!(control.begin(FrameKind::Unknown, 1), Err(Code::MISSING_SETTINGS));
        assert_eq!(control.begin(FrameKind::Settings, 0), Ok(true));
        assert_eq!(control.take(FrameKind::Settings, &[]), Ok(()));
        assert_eq!(control.begin(FrameKind::Settings, 0), Err(Code::FRAME_UNEXPECTED));
        assert_eq!(control.begin(FrameKind::Data, 0), Err(Code::FRAME_UNEXPECTED));
        assert_eq!(control.begin(FrameKind::Unknown, u64::MAX), Ok(false));
        assert_eq!(control.begin(FrameKind::MaxPushId, u64::MAX), Err(Code::EXCESSIVE_LOAD));
    }

    #[test]
    fn settings_of_http2_and_duplicates_are_rejected() {
        assert_eq!(check_settings(&[0x6, 0x40, 0x64, 0x21, 0x0]), Ok(()));
        for reserved in 2..=5 {
            assert_eq!(check_settings(&[reserved, 0]), Err(Code::SETTINGS_ERROR));
        }
        assert_eq!(check_settings(&[0x6, 1, 0x6, 1]), Err(Code::SETTINGS_ERROR));
        assert_eq!(check_settings(&[0x8, 2]), Err(Code::SETTINGS_ERROR));
        assert_eq!(check_settings(&[0x6]), Err(Code::FRAME_ERROR));
        assert_eq!(check_settings(&[0x6, 0x40]), Err(Code::FRAME_ERROR));
    }

    #[test]
    fn identifiers_of_pushes_follow_their_order() {
        let mut control = Control::default();
        let mut take = |kind, payload: &[u8]| control.take(kind, payload);
        assert_eq!(take(FrameKind::Goaway, &[8]), Ok(()));
        assert_eq!(take(FrameKind::Goaway, &[4]), Ok(()));
        assert_eq!(take(FrameKind::Goaway, &[8]), Err(Code::ID_ERROR));
        assert_eq!(take(FrameKind::MaxPushId, &[8]), Ok(()));
        assert_eq!(take(FrameKind::MaxPushId, &[4]), Err(Code::ID_ERROR));
        assert_eq!(take(FrameKind::CancelPush, &[0]), Err(Code::ID_ERROR));
        assert_eq!(take(FrameKind::Goaway, &[0, 0]), Err(Code::FRAME_ERROR));
        assert_eq!(take(FrameKind::Goaway, &[]), Err(Code::FRAME_ERROR));
    }

    #[test]
    fn instructions_for_a_dynamic_table_are_rejected() {
        assert_eq!(check_encoder(&[0x20, 0x20]), Ok(()));
        assert_eq!(check_encoder(&[0x21]), Err(Code::ENCODER_STREAM_ERROR));
        assert_eq!(check_encoder(&[0xc0, 0x00]), Err(Code::ENCODER_STREAM_ERROR));
        let mut decoder = DecoderInstructions::default();
        assert_eq!(decoder.take(&[0x41, 0x7f, 0x80]), Ok(()));
        assert_eq!(decoder.take(&[0x01, 0x44]), Ok(()), "the rest of an instruction");
        assert_eq!(decoder.take(&[0x81]), Err(Code::DECODER_STREAM_ERROR));
        assert_eq!(decoder.take(&[0x01]), Err(Code::DECODER_STREAM_ERROR));
    }
}
