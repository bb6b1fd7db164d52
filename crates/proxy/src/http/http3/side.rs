//! The streams of a connection beside its requests (RFC 9114, 6.2; RFC 9204, 4.2).

use std::cell::Cell;
use std::rc::Rc;

use quinn::{ReadError, RecvStream, SendStream, VarInt};
use sluicegate_http3::{
    Code, Control, DecoderInstructions, FrameReader, StreamKind, check_encoder, varint, write_control_stream,
    write_goaway,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Shared;

/// Announces the end of the connection: the first request that is not served.
pub(super) type Goaway = mpsc::UnboundedSender<u64>;

/// The streams that the client has opened: at most one of each kind.
#[derive(Default)]
pub(super) struct Kinds {
    control: Cell<bool>,
    encoder: Cell<bool>,
    decoder: Cell<bool>,
}

/// Opens the gateway's control stream.
pub(super) fn start(shared: &Rc<Shared>, tasks: &mut JoinSet<()>) -> Goaway {
    // The connection sends at most two announcements.
    let (goaway, mut announced) = mpsc::unbounded_channel();
    let shared = shared.clone();
    tasks.spawn_local(async move {
        let Ok(mut stream) = shared.connection.open_uni().await else { return };
        let largest = shared.worker.settings().limits.request_head as u64;
        let mut out = Vec::new();
        write_control_stream(&mut out, largest);
        loop {
            if stream.write_all(&out).await.is_err() {
                return is_stopped(&shared, &stream).await;
            }
            out.clear();
            tokio::select! {
                next = announced.recv() => match next {
                    Some(first_unserved) => write_goaway(&mut out, first_unserved),
                    // The connection is over. The stream must not end before (RFC 9114, 6.2.1).
                    None => return,
                },
                () = is_stopped(&shared, &stream) => return,
            }
        }
    });
    goaway
}

/// Ends the connection if the client does not read the control stream (RFC 9114, 6.2.1).
async fn is_stopped(shared: &Shared, stream: &SendStream) {
    if let Ok(Some(_)) = stream.stopped().await {
        shared.fail(Code::CLOSED_CRITICAL_STREAM);
    }
}

/// Reads a stream that the client has opened.
pub(super) async fn serve(shared: Rc<Shared>, kinds: Rc<Kinds>, mut stream: RecvStream) {
    // RFC 9114, 6.2: a stream may end before its type.
    let Ok(Some(kind)) = read_varint(&mut stream).await else { return };
    let served = match StreamKind::of(kind) {
        StreamKind::Control if !kinds.control.replace(true) => control(&shared, &mut stream).await,
        StreamKind::Encoder if !kinds.encoder.replace(true) => encoder(&mut stream).await,
        StreamKind::Decoder if !kinds.decoder.replace(true) => decoder(&mut stream).await,
        StreamKind::Unknown => {
            // The stream is open.
            let _ = stream.stop(VarInt::from_u32(Code::STREAM_CREATION_ERROR.value()));
            return shared.waste(64);
        }
        // A second stream of a kind, or a push of a client.
        _ => Err(Code::STREAM_CREATION_ERROR),
    };
    if let Err(code) = served {
        shared.fail(code);
    }
}

/// The end of a stream that must not end, if the client ended it, and not the end of the connection.
fn closed(error: Option<&ReadError>) -> Result<(), Code> {
    match error {
        Some(ReadError::ConnectionLost(_)) => Ok(()),
        _ => Err(Code::CLOSED_CRITICAL_STREAM),
    }
}

async fn control(shared: &Shared, stream: &mut RecvStream) -> Result<(), Code> {
    let (mut control, mut reader) = (Control::default(), FrameReader::default());
    loop {
        let header = match stream.read(reader.room()).await {
            Ok(Some(read)) => reader.advance(read),
            Ok(None) => return closed(None),
            Err(error) => return closed(Some(&error)),
        };
        let Some(header) = header else { continue };
        let matters = control.begin(header.kind, header.length)?;
        shared.waste(header.length.saturating_add(8));
        let mut payload = Vec::new();
        let mut left = header.length;
        while left > 0 {
            let mut piece = [0; 1024];
            let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match stream.read(&mut piece[..most]).await {
                Ok(Some(read)) => {
                    left -= read as u64;
                    // `begin` has checked the length.
                    if matters {
                        payload.extend_from_slice(&piece[..read]);
                    }
                }
                Ok(None) => return closed(None),
                Err(error) => return closed(Some(&error)),
            }
        }
        if matters {
            control.take(header.kind, &payload)?;
        }
    }
}

async fn encoder(stream: &mut RecvStream) -> Result<(), Code> {
    let mut piece = [0; 256];
    loop {
        match stream.read(&mut piece).await {
            Ok(Some(read)) => check_encoder(&piece[..read])?,
            Ok(None) => return closed(None),
            Err(error) => return closed(Some(&error)),
        }
    }
}

async fn decoder(stream: &mut RecvStream) -> Result<(), Code> {
    let (mut piece, mut instructions) = ([0; 256], DecoderInstructions::default());
    loop {
        match stream.read(&mut piece).await {
            Ok(Some(read)) => instructions.take(&piece[..read])?,
            Ok(None) => return closed(None),
            Err(error) => return closed(Some(&error)),
        }
    }
}

/// Reads an integer. `None` at the end of the stream.
async fn read_varint(stream: &mut RecvStream) -> Result<Option<u64>, ReadError> {
    let (mut bytes, mut filled) = ([0; 8], 0);
    loop {
        let wanted = if filled == 0 { 1 } else { varint::length(bytes[0]) };
        match stream.read(&mut bytes[filled..wanted]).await? {
            Some(read) => filled += read,
            None => return Ok(None),
        }
        if let Some((value, _)) = varint::read(&bytes[..filled]) {
            return Ok(Some(value));
        }
    }
}
