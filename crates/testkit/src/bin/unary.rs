//! The least gRPC server: it answers every call with status 0 and one message, and spends next to nothing on it, so that
//! it is never what is measured. One thread; no HPACK, since it need not understand what it is asked; each answer is
//! the same bytes but for the stream's number.
//!
//! `unary LISTEN... MESSAGE-LENGTH`: the message has one field, number 1, a string of this length.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// RFC 9113, 4.1.
const FRAME_HEADER: usize = 9;
/// Frame types (RFC 9113, 6) and flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// What a client may send on a connection before it is told more, and after how much it is (RFC 9113, 6.9.2).
const FIRST_WINDOW: u32 = 65_535;
const CREDIT: u32 = 32 * 1024;

#[allow(clippy::print_stderr, reason = "where a program says why it ended")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Err(error) = run().await else { return ExitCode::SUCCESS };
    eprintln!("unary: {error:#}");
    ExitCode::FAILURE
}

async fn run() -> anyhow::Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let length = arguments.pop().and_then(|length| length.parse().ok());
    let length: usize = length.context("usage: unary LISTEN... MESSAGE-LENGTH")?;
    let mut listening = JoinSet::new();
    for addr in arguments {
        let addr: SocketAddr = addr.parse().with_context(|| addr.clone())?;
        let listener = TcpListener::bind(addr).await.with_context(|| format!("listening at {addr}"))?;
        listening.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move { Connection::new(length).serve(stream).await });
            }
        });
    }
    listening.join_next().await.context("there is no address to listen at")??;
    bail!("nothing can be accepted any more")
}

/// One connection of a client.
struct Connection {
    input: BytesMut,
    output: Vec<u8>,
    /// The three frames of every answer; the streams' numbers are missing.
    answer: Vec<[Vec<u8>; 2]>,
    /// How much of DATA an answer has.
    data: i64,
    /// How much of DATA the client takes.
    window: i64,
    /// Streams to answer when it takes more.
    waiting: VecDeque<[u8; 4]>,
    /// How much of DATA came that the client was not yet given new room for.
    received: u32,
}

impl Connection {
    fn new(length: usize) -> Self {
        let message = message(length);
        Self {
            input: BytesMut::with_capacity(64 * 1024),
            output: Vec::new(),
            data: i64::try_from(message.len()).unwrap_or(i64::MAX),
            answer: vec![
                // :status 200; content-type, the name from the static table (RFC 7541, appendix A).
                frame(HEADERS, END_HEADERS, &[&b"\x88\x0f\x10\x10"[..], b"application/grpc"].concat()),
                frame(DATA, 0, &message),
                frame(HEADERS, END_HEADERS | END_STREAM, b"\x00\x0bgrpc-status\x010"),
            ],
            window: i64::from(FIRST_WINDOW),
            waiting: VecDeque::new(),
            received: 0,
        }
    }

    async fn serve(&mut self, mut stream: TcpStream) -> anyhow::Result<()> {
        stream.set_nodelay(true)?;
        let mut preface = [0; PREFACE.len()];
        stream.read_exact(&mut preface).await?;
        ensure!(preface == PREFACE, "the client does not speak HTTP/2");
        self.send(SETTINGS, 0, &[]);
        loop {
            while self.take_frame() {}
            while self.window >= self.data
                && let Some(id) = self.waiting.pop_front()
            {
                self.window -= self.data;
                for [before, after] in &self.answer {
                    self.output.extend_from_slice(before);
                    self.output.extend_from_slice(&id);
                    self.output.extend_from_slice(after);
                }
            }
            stream.write_all(&self.output).await?;
            self.output.clear();
            if stream.read_buf(&mut self.input).await? == 0 {
                return Ok(());
            }
        }
    }

    /// Takes a frame if it is there to its end.
    fn take_frame(&mut self) -> bool {
        let &[l2, l1, l0, kind, flags, ref id @ ..] = &self.input[..self.input.len().min(FRAME_HEADER)]
        else {
            return false;
        };
        let Ok(id) = <[u8; 4]>::try_from(id) else { return false };
        let length = u32::from_be_bytes([0, l2, l1, l0]);
        let whole = FRAME_HEADER + length as usize;
        if self.input.len() < whole {
            return false;
        }
        match kind {
            HEADERS | DATA => {
                if flags & END_STREAM != 0 {
                    self.waiting.push_back(id);
                }
                if kind == DATA {
                    self.received += length;
                }
                if self.received >= CREDIT {
                    self.send(WINDOW_UPDATE, 0, &self.received.to_be_bytes());
                    self.received = 0;
                }
            }
            SETTINGS if flags & ACK == 0 => self.send(SETTINGS, ACK, &[]),
            PING if flags & ACK == 0 => {
                let data = self.input[FRAME_HEADER..whole].to_vec();
                self.send(PING, ACK, &data);
            }
            // Of a stream none is needed: an answer fits into what every client takes at first.
            WINDOW_UPDATE if id == [0; 4] && length == 4 => {
                let more = &self.input[FRAME_HEADER..whole];
                self.window += i64::from(u32::from_be_bytes([more[0], more[1], more[2], more[3]]));
            }
            _ => {}
        }
        self.input.advance(whole);
        true
    }

    /// Says something about the connection.
    fn send(&mut self, kind: u8, flags: u8, payload: &[u8]) {
        self.output.extend_from_slice(&frame(kind, flags, payload).join(&[0; 4][..]));
    }
}

/// What comes before and after the stream's number in a frame.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> [Vec<u8>; 2] {
    let [_, l2, l1, l0] = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [vec![l2, l1, l0, kind, flags], payload.to_vec()]
}

/// A message as gRPC frames it: not compressed, its length, then field 1 with its length as Protocol Buffers write it.
fn message(length: usize) -> Vec<u8> {
    let mut field = vec![0x0a];
    let mut rest = length;
    while rest >= 0x80 {
        field.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    field.push(rest as u8);
    field.resize(field.len() + length, b'x');
    let mut message = vec![0];
    message.extend_from_slice(&u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
    message.extend(field);
    message
}
