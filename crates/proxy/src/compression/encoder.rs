//! The three encoders behind one face.

use brotli::enc::StandardAlloc;
use brotli::enc::encode::{
    BrotliEncoderOperation as BrotliOperation, BrotliEncoderParameter as BrotliParameter,
    BrotliEncoderStateStruct,
};
use flate2::{Compress, FlushCompress, Status};
use sluicegate_model::ContentCoding;
use sluicegate_model::compression::Levels;
use zstd_safe::zstd_sys::ZSTD_EndDirective as ZstdDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

/// The window of gzip: 32 KiB, all that the format has.
const GZIP_WINDOW: u8 = 15;
/// The window of brotli: 64 KiB. 256 KiB take four times the memory, and make no more than 1% less of 4 MB of JSON.
const BROTLI_WINDOW: u32 = 16;
/// The window of zstd: 64 KiB, with tables of 2^15 entries. 2 MiB, its default, take 3.6 MiB for each response instead of
/// 0.7, and make 11% less of 4 MB of JSON, 1% less of 100 KB.
const ZSTD_WINDOW: u32 = 16;
const ZSTD_TABLE: u32 = 15;

/// Compresses one body.
pub(crate) enum Encoder {
    Gzip(Compress),
    Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>),
    Zstd(CCtx<'static>),
}

/// What an encoder is to do with what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Take it, and keep as much of it back as is good for the result.
    Take,
    /// Give all that was taken so far, so that it can be decoded. Nothing more may be given until that is done.
    Flush,
    /// Give all, and the end of the stream.
    Finish,
}

/// How far an encoder came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes taken.
    pub(crate) taken: usize,
    /// Bytes given.
    pub(crate) given: usize,
    /// Whether the operation is done; otherwise more room is needed.
    pub(crate) is_done: bool,
}

/// An encoder failed, which it has no reason to but a lack of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the encoder failed")]
pub(crate) struct EncoderError;

impl Encoder {
    pub(crate) fn new(coding: ContentCoding, levels: &Levels) -> Result<Self, EncoderError> {
        Ok(match coding {
            ContentCoding::Gzip => {
                let level = flate2::Compression::new(levels.gzip.into());
                Self::Gzip(Compress::new_gzip(level, GZIP_WINDOW))
            }
            ContentCoding::Brotli => {
                let mut state = Box::new(BrotliEncoderStateStruct::new(StandardAlloc::default()));
                state.set_parameter(BrotliParameter::BROTLI_PARAM_QUALITY, levels.brotli.into());
                state.set_parameter(BrotliParameter::BROTLI_PARAM_LGWIN, BROTLI_WINDOW);
                Self::Brotli(state)
            }
            ContentCoding::Zstd => {
                let mut context = CCtx::try_create().ok_or(EncoderError)?;
                for parameter in [
                    CParameter::CompressionLevel(levels.zstd.into()),
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

    /// Takes from `input` and gives to `out`, which has room.
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
        // As long as it fills the room there may be more (zlib.h, deflate).
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
        // What it could not give for lack of room (zstd.h, ZSTD_compressStream2).
        Operation::Flush | Operation::Finish => left == 0,
    };
    Ok(Progress { taken, given, is_done })
}
