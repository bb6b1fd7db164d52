//! Error codes (RFC 9114, 8.1; RFC 9204, 6).

use std::fmt;

/// Why a stream or a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(u64);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// The name in the specification.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self.0 {
                    $($value => $text,)*
                    _ => "unknown",
                }
            }
        }
    };
}

codes! {
    /// The end of a connection without an error.
    NO_ERROR = 0x100, "H3_NO_ERROR";
    /// A peer violates the protocol in a way without another code.
    GENERAL_PROTOCOL_ERROR = 0x101, "H3_GENERAL_PROTOCOL_ERROR";
    /// A fault of the gateway.
    INTERNAL_ERROR = 0x102, "H3_INTERNAL_ERROR";
    /// A stream that the peer must not open.
    STREAM_CREATION_ERROR = 0x103, "H3_STREAM_CREATION_ERROR";
    /// A stream that must stay open was closed.
    CLOSED_CRITICAL_STREAM = 0x104, "H3_CLOSED_CRITICAL_STREAM";
    /// A frame that is not allowed here.
    FRAME_UNEXPECTED = 0x105, "H3_FRAME_UNEXPECTED";
    /// A frame with an invalid layout or size.
    FRAME_ERROR = 0x106, "H3_FRAME_ERROR";
    /// The peer causes too much work.
    EXCESSIVE_LOAD = 0x107, "H3_EXCESSIVE_LOAD";
    /// An identifier that is used wrongly.
    ID_ERROR = 0x108, "H3_ID_ERROR";
    /// A fault in SETTINGS.
    SETTINGS_ERROR = 0x109, "H3_SETTINGS_ERROR";
    /// The control stream does not begin with SETTINGS.
    MISSING_SETTINGS = 0x10a, "H3_MISSING_SETTINGS";
    /// The gateway did not process the request.
    REQUEST_REJECTED = 0x10b, "H3_REQUEST_REJECTED";
    /// The request or its response is not needed any more.
    REQUEST_CANCELLED = 0x10c, "H3_REQUEST_CANCELLED";
    /// The request ended before its end.
    REQUEST_INCOMPLETE = 0x10d, "H3_REQUEST_INCOMPLETE";
    /// A malformed message.
    MESSAGE_ERROR = 0x10e, "H3_MESSAGE_ERROR";
    /// A field section that cannot be decoded.
    DECOMPRESSION_FAILED = 0x200, "QPACK_DECOMPRESSION_FAILED";
    /// A fault on the encoder stream.
    ENCODER_STREAM_ERROR = 0x201, "QPACK_ENCODER_STREAM_ERROR";
    /// A fault on the decoder stream.
    DECODER_STREAM_ERROR = 0x202, "QPACK_DECODER_STREAM_ERROR";
}

impl Code {
    /// The code on the wire. At most 0x3fff.
    #[must_use]
    pub fn value(self) -> u32 {
        u32::try_from(self.0).unwrap_or_default()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
