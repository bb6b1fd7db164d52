//! A body that passes through an encoder.

use std::rc::Rc;

use sluicegate_http1::write_chunk_header;
#[cfg(test)]
use sluicegate_model::feature::compression::Levels;
use sluicegate_model::{ContentCoding, Settings};

use super::encoder::{Encoder, Operation};
use crate::buffer::BUFFER;
use crate::counters::{CompressedStats, LocalStats};
use crate::failure::EncoderError;

/// How much of a body is compressed before other tasks have their turn: about a millisecond's work.
pub(crate) const TURN: usize = 64 * 1024;

/// Compresses the body of a response, part by part.
///
/// Bytes from the endpoint go to [`room`](Self::room), and [`compress`](Self::compress) moves them to the client. Both
/// are bounded: no bytes are taken while earlier bytes are uncompressed, and no bytes are compressed while a buffer of
/// output is full.
pub(crate) struct Compressor {
    encoder: Encoder,
    /// The taken bytes, and how many of them were compressed.
    plain: Vec<u8>,
    done: usize,
    state: State,
    /// The total number of compressed bytes.
    taken: u64,
    /// The number of bytes compressed in this turn.
    in_turn: usize,
    /// Whether the client receives chunks.
    chunked: bool,
    /// The place that counts the compression.
    place: Option<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client has all taken bytes, or is about to receive them.
    Flushed,
    /// The encoder holds bytes back.
    Holding,
    /// The encoder is releasing the bytes that it held back.
    Flushing,
    /// The end of the stream was written.
    Finished,
}

/// A compression's place among the compressions of its worker, counted until the value is dropped.
struct Place {
    stats: Rc<LocalStats>,
    coding: ContentCoding,
}

impl Place {
    /// A place, if the limit allows one.
    fn take(stats: &Rc<LocalStats>, coding: ContentCoding, most: usize) -> Option<Self> {
        if stats.compressing.get() >= most as u64 {
            stats.compressions_passed_over.add(1);
            return None;
        }
        stats.compressing.add(1);
        Some(Self { stats: stats.clone(), coding })
    }

    fn counted(&self) -> &CompressedStats {
        &self.stats.compressed[self.coding.index()]
    }

    fn count(&self, taken: usize, given: usize) {
        let counted = self.counted();
        counted.bytes_in.add(taken as u64);
        counted.bytes_out.add(given as u64);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stats.compressing.sub(1);
    }
}

impl Compressor {
    /// Begins to compress a response, if the limit allows one more.
    pub(crate) fn begin(
        stats: &Rc<LocalStats>,
        coding: ContentCoding,
        settings: &Settings,
        chunked: bool,
    ) -> Option<Box<Self>> {
        let place = Place::take(stats, coding, settings.limits.compressions_per_worker)?;
        let encoder = Encoder::new(coding, &settings.compression.levels).ok()?;
        place.counted().responses.add(1);
        Some(Box::new(Self::new(encoder, chunked, Some(place))))
    }

    fn new(encoder: Encoder, chunked: bool, place: Option<Place>) -> Self {
        let plain = Vec::with_capacity(BUFFER);
        Self { encoder, plain, done: 0, state: State::Flushed, taken: 0, in_turn: 0, chunked, place }
    }

    /// A compressor that no place counts.
    #[cfg(test)]
    pub(crate) fn uncounted(coding: ContentCoding, levels: &Levels, chunked: bool) -> Self {
        Self::new(Encoder::new(coding, levels).expect("an encoder"), chunked, None)
    }

    /// The buffer for bytes from the endpoint.
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        self.plain.drain(..self.done);
        self.done = 0;
        &mut self.plain
    }

    /// The number of compressed bytes so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether the whole stream was written.
    pub(crate) fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    pub(crate) fn begin_turn(&mut self) {
        self.in_turn = 0;
    }

    /// Whether other tasks should have their turn before more is compressed.
    pub(crate) fn is_turn_over(&self) -> bool {
        self.in_turn >= TURN
    }

    /// Compresses the taken bytes, as far as there is room in `out`. `ended`: no further bytes follow.
    pub(crate) fn compress(&mut self, out: &mut Vec<u8>, ended: bool) -> Result<(), EncoderError> {
        if self.state == State::Flushing && !self.run(Operation::Flush, out)? {
            return Ok(());
        }
        if self.state == State::Finished || !ended && self.done == self.plain.len() {
            return Ok(());
        }
        self.run(if ended { Operation::Finish } else { Operation::Take }, out).map(drop)
    }

    /// The endpoint pauses: writes the bytes that the encoder holds back. Returns whether there were any.
    pub(crate) fn flush(&mut self, out: &mut Vec<u8>) -> Result<bool, EncoderError> {
        let holds = matches!(self.state, State::Holding | State::Flushing);
        if holds {
            self.run(Operation::Flush, out)?;
        }
        Ok(holds)
    }

    /// Whether the operation is done; otherwise there is no more room.
    fn run(&mut self, operation: Operation, out: &mut Vec<u8>) -> Result<bool, EncoderError> {
        let mut room = [0; BUFFER];
        let mut is_done = false;
        while !is_done && out.len() < BUFFER {
            let input = match operation {
                // Later bytes wait.
                Operation::Flush => &[],
                Operation::Take | Operation::Finish => &self.plain[self.done..],
            };
            let progress = self.encoder.encode(input, &mut room, operation)?;
            is_done = progress.is_done;
            if !is_done && progress.taken == 0 && progress.given == 0 {
                // The loop would never end.
                return Err(EncoderError);
            }
            self.done += progress.taken;
            self.taken += progress.taken as u64;
            self.in_turn += progress.taken;
            write(out, &room[..progress.given], self.chunked);
            if let Some(place) = &self.place {
                place.count(progress.taken, progress.given);
            }
        }
        self.state = match (operation, is_done) {
            (Operation::Take, _) => State::Holding,
            (Operation::Flush, false) => State::Flushing,
            (Operation::Flush, true) => State::Flushed,
            (Operation::Finish, false) => State::Holding,
            (Operation::Finish, true) => State::Finished,
        };
        Ok(is_done)
    }
}

fn write(out: &mut Vec<u8>, piece: &[u8], chunked: bool) {
    match (piece, chunked) {
        // An empty chunk would be the last chunk.
        ([], _) => {}
        (piece, false) => out.extend_from_slice(piece),
        (piece, true) => {
            write_chunk_header(out, piece.len());
            out.extend_from_slice(piece);
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use sluicegate_testkit::decode::{Decoded, decode};

    use sluicegate_model::value::Number;

    use super::*;

    fn compressor(coding: ContentCoding, levels: &Levels) -> Compressor {
        Compressor::uncounted(coding, levels, false)
    }

    /// Takes all available output, with little room at a time.
    fn drain(compressor: &mut Compressor, sent: &mut Vec<u8>, ended: bool) {
        loop {
            let mut out = Vec::new();
            compressor.compress(&mut out, ended).expect("no failure");
            assert!(out.len() < 2 * BUFFER, "{} bytes at once", out.len());
            sent.extend_from_slice(&out);
            if compressor.is_finished()
                || !ended && compressor.done == compressor.plain.len() && out.len() < BUFFER
            {
                return;
            }
        }
    }

    fn flush(compressor: &mut Compressor, sent: &mut Vec<u8>) {
        loop {
            let mut out = Vec::new();
            let gave = compressor.flush(&mut out).expect("no failure");
            assert!(out.len() < 2 * BUFFER, "{} bytes at once", out.len());
            sent.extend_from_slice(&out);
            if !gave {
                return;
            }
        }
    }

    /// Text that is moderately compressible and does not repeat.
    fn text(length: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(7);
        let words = ["route", "upstream", "endpoint", "the", "a", "gateway", "\u{fc}ber"];
        let mut text = Vec::with_capacity(length + 32);
        while text.len() < length {
            text.extend_from_slice(words[random.usize(..words.len())].as_bytes());
            text.extend_from_slice(format!(" {} ", random.u32(..100_000)).as_bytes());
        }
        text.truncate(length);
        text
    }

    fn any_body() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let random = vec(any::<u8>(), 0..3000);
        let dull = (any::<u8>(), 0..200_000_usize).prop_map(|(byte, length)| vec![byte; length]);
        let wordy = (0..100_000_usize).prop_map(text);
        vec(prop_oneof![random, dull, wordy], 0..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn compressed_body_decodes_to_the_original_and_flushed_parts_decode_at_once(
            pieces in any_body(),
            flushes in vec(any::<bool>(), 6),
            level in 1_i64..=4,
        ) {
            for coding in ContentCoding::ALL {
                let levels = Levels { gzip: Number::of(level), brotli: Number::of(level), zstd: Number::of(level) };
                let mut compressor = compressor(coding, &levels);
                let (mut plain, mut sent) = (Vec::new(), Vec::new());
                for (piece, flushes) in pieces.iter().zip(&flushes) {
                    for part in piece.chunks(BUFFER) {
                        compressor.room().extend_from_slice(part);
                        drain(&mut compressor, &mut sent, false);
                    }
                    plain.extend_from_slice(piece);
                    if *flushes {
                        flush(&mut compressor, &mut sent);
                        let decoded = decode(coding, &sent);
                        prop_assert!(plain.is_empty() || decoded.body == plain, "{coding}: a flushed part");
                        prop_assert!(!decoded.is_whole, "{coding} has not ended");
                    }
                }
                drain(&mut compressor, &mut sent, true);
                prop_assert_eq!(compressor.taken(), plain.len() as u64);
                prop_assert!(decode(coding, &sent) == Decoded { body: plain, is_whole: true }, "{coding}");
            }
        }
    }

    #[test]
    fn compressor_completes_an_interrupted_flush_before_it_accepts_new_input() {
        // The output that brotli and zstd hold back exceeds the room.
        let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(60_000).collect();
        for coding in ContentCoding::ALL {
            let mut compressor = compressor(coding, &Levels::default());
            let mut sent = Vec::new();
            compressor.room().extend_from_slice(&noise);
            drain(&mut compressor, &mut sent, false);
            let mut full = vec![0; BUFFER - 1];
            compressor.flush(&mut full).expect("no failure");
            sent.extend_from_slice(&full[BUFFER - 1..]);
            compressor.room().extend_from_slice(b"more");
            drain(&mut compressor, &mut sent, true);
            let whole = [&noise[..], b"more"].concat();
            assert_eq!(decode(coding, &sent), Decoded { body: whole, is_whole: true }, "{coding}");
        }
    }

    #[test]
    fn compressed_output_without_flushes_is_smaller_than_with_flushes() {
        let text = text(300_000);
        for coding in ContentCoding::ALL {
            let [mut seldom, mut often] = [Vec::new(), Vec::new()];
            for (sent, flushes) in [(&mut seldom, false), (&mut often, true)] {
                let mut compressor = compressor(coding, &Levels::default());
                for part in text.chunks(1000) {
                    compressor.room().extend_from_slice(part);
                    drain(&mut compressor, sent, false);
                    if flushes {
                        flush(&mut compressor, sent);
                    }
                }
                drain(&mut compressor, sent, true);
            }
            assert!(seldom.len() < often.len(), "{coding}");
        }
    }
}
