//! The three encoders behind one interface.

use brotli::enc::StandardAlloc;
use brotli::enc::encode::{
    BrotliEncoderOperation as BrotliOperation, BrotliEncoderParameter as BrotliParameter,
    BrotliEncoderStateStruct,
};
use flate2::{Compress, FlushCompress, Status};
use sluicegate_model::ContentCoding;
use sluicegate_model::feature::compression::Levels;
use zstd_safe::zstd_sys::ZSTD_EndDirective as ZstdDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use crate::failure::EncoderError;

/// The window of gzip: 32 KiB, the maximum of the format.
const GZIP_WINDOW: u8 = 15;
/// The window of brotli: 64 KiB. 256 KiB need four times the memory, and make 4 MB of JSON at most 1% smaller.
const BROTLI_WINDOW: u32 = 16;
/// The window of zstd: 64 KiB, with tables of 2^15 entries. The default, 2 MiB, needs 3.6 MiB for each response instead
/// of 0.7 MiB. It makes 4 MB of JSON 11% smaller, and 100 KB of JSON 1% smaller.
const ZSTD_WINDOW: u32 = 16;
const ZSTD_TABLE: u32 = 15;

/// Compresses one body.
pub(crate) enum Encoder {
    Gzip(Compress),
    Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>),
    Zstd(CCtx<'static>),
}

/// The operation of an encoder on its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Process input, and hold back as much output as is good for the result.
    Take,
    /// Write all output so far, so that it can be decoded. No further input is allowed until that is done.
    Flush,
    /// Write all output, and the end of the stream.
    Finish,
}

/// The progress of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The number of bytes read.
    pub(crate) taken: usize,
    /// The number of bytes written.
    pub(crate) given: usize,
    /// Whether the operation is done; otherwise more room is needed.
    pub(crate) is_done: bool,
}

impl Encoder {
    pub(crate) fn new(coding: ContentCoding, levels: &Levels) -> Result<Self, EncoderError> {
        Ok(match coding {
            ContentCoding::Gzip => {
                let level = flate2::Compression::new(levels.gzip.get().into());
                Self::Gzip(Compress::new_gzip(level, GZIP_WINDOW))
            }
            ContentCoding::Brotli => {
                let mut state = Box::new(BrotliEncoderStateStruct::new(StandardAlloc::default()));
                state.set_parameter(BrotliParameter::BROTLI_PARAM_QUALITY, levels.brotli.get().into());
                state.set_parameter(BrotliParameter::BROTLI_PARAM_LGWIN, BROTLI_WINDOW);
                Self::Brotli(state)
            }
            ContentCoding::Zstd => {
                let mut context = CCtx::try_create().ok_or(EncoderError)?;
                for parameter in [
                    CParameter::CompressionLevel(levels.zstd.get().into()),
                    CParameter::WindowLog(ZSTD_WINDOW),
                    CParameter::HashLog(ZSTD_TABLE),
                    CParameter::ChainLog(ZSTD_TABLE),
                ] {
                    context.set_parameter(parameter).map_err(|_| EncoderError)?;
                }
                Self::Zstd(context)
            }
        })
    }

    /// Reads from `input` and writes to `out`, which has room.
    pub(crate) fn encode(
        &mut self,
        input: &[u8],
        out: &mut [u8],
        operation: Operation,
    ) -> Result<Progress, EncoderError> {
        match self {
            Self::Gzip(state) => gzip(state, input, out, operation),
            Self::Brotli(state) => brotli(state, input, out, operation),
            Self::Zstd(context) => zstd(context, input, out, operation),
        }
    }
}

fn gzip(
    state: &mut Compress,
    input: &[u8],
    out: &mut [u8],
    operation: Operation,
) -> Result<Progress, EncoderError> {
    let flush = match operation {
        Operation::Take => FlushCompress::None,
        Operation::Flush => FlushCompress::Sync,
        Operation::Finish => FlushCompress::Finish,
    };
    let before = (state.total_in(), state.total_out());
    let status = state.compress(input, out, flush).map_err(|_| EncoderError)?;
    let count = |bytes: u64| usize::try_from(bytes).map_err(|_| EncoderError);
    let taken = count(state.total_in() - before.0)?;
    let given = count(state.total_out() - before.1)?;
    let is_done = match operation {
        Operation::Finish => status == Status::StreamEnd,
        // As long as the output fills the room, there may be more (zlib.h, deflate).
        Operation::Take | Operation::Flush => taken == input.len() && given < out.len(),
    };
    Ok(Progress { taken, given, is_done })
}

fn brotli(
    state: &mut BrotliEncoderStateStruct<StandardAlloc>,
    input: &[u8],
    out: &mut [u8],
    operation: Operation,
) -> Result<Progress, EncoderError> {
    let operation = match operation {
        Operation::Take => BrotliOperation::BROTLI_OPERATION_PROCESS,
        Operation::Flush => BrotliOperation::BROTLI_OPERATION_FLUSH,
        Operation::Finish => BrotliOperation::BROTLI_OPERATION_FINISH,
    };
    let (mut left, mut taken, mut room, mut given) = (input.len(), 0, out.len(), 0);
    let is_fine = state.compress_stream(
        operation,
        &mut left,
        input,
        &mut taken,
        &mut room,
        out,
        &mut given,
        &mut None,
        &mut |_, _, _, _| (),
    );
    if !is_fine {
        return Err(EncoderError);
    }
    let is_done = match operation {
        BrotliOperation::BROTLI_OPERATION_FINISH => state.is_finished(),
        _ => left == 0 && !state.has_more_output(),
    };
    Ok(Progress { taken, given, is_done })
}

fn zstd(
    context: &mut CCtx<'_>,
    input: &[u8],
    out: &mut [u8],
    operation: Operation,
) -> Result<Progress, EncoderError> {
    let directive = match operation {
        Operation::Take => ZstdDirective::ZSTD_e_continue,
        Operation::Flush => ZstdDirective::ZSTD_e_flush,
        Operation::Finish => ZstdDirective::ZSTD_e_end,
    };
    let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(out));
    let left = context.compress_stream2(&mut to, &mut from, directive).map_err(|_| EncoderError)?;
    let (taken, given) = (from.pos(), to.pos());
    let is_done = match operation {
        Operation::Take => taken == input.len() && given < to.capacity(),
        // The number of bytes without room in the output (zstd.h, ZSTD_compressStream2).
        Operation::Flush | Operation::Finish => left == 0,
    };
    Ok(Progress { taken, given, is_done })
}
