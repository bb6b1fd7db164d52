//! One connection of a load: sends requests in turn, and reconnects like a well-behaved client.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout_at};

use super::{Expect, Failure, Kind, Shared};
use crate::stream::Stream;
use crate::wire::{self, BodyDecoder, Framing};

/// The runtime's timers have a resolution of a millisecond. A request that is sent within this time of its due time is
/// not charged for the timer.
const TIMER: Duration = Duration::from_millis(2);

/// The pause after a failed connect, to spare a dead server.
const PAUSE: Duration = Duration::from_millis(10);

struct Connection {
    shared: Arc<Shared>,
    stream: Option<Stream>,
    connected: bool,
    input: BytesMut,
    output: Vec<u8>,
    body: Vec<u8>,
    id: String,
}

/// A failed request: the reason, and a description.
type Failed = (Failure, String);

/// Sends until the watched sender is dropped.
pub(super) async fn run(shared: Arc<Shared>, mut stopped: watch::Receiver<()>) {
    let mut connection = Connection {
        shared,
        stream: None,
        connected: false,
        input: BytesMut::new(),
        output: Vec::new(),
        body: Vec::new(),
        id: String::new(),
    };
    while stopped.has_changed().is_ok() {
        let (number, due) = connection.shared.ticket();
        let mut start = Instant::now();
        if let Some(due) = due {
            if start < due {
                tokio::select! {
                    biased;
                    _ = stopped.changed() => return,
                    () = sleep_until(due.into()) => {}
                }
            }
            let now = Instant::now();
            let woken_in_time = start < due && now < due + TIMER;
            start = if woken_in_time { now } else { due };
        }
        connection.request(number, start).await;
    }
}

impl Connection {
    async fn request(&mut self, number: u64, start: Instant) {
        let kind = self.write_request(number);
        // The timeout starts now and not at the due time, because it limits the server and not the queue.
        let deadline = Instant::now() + self.shared.load.timeout;
        let result = match timeout_at(deadline.into(), self.exchange()).await {
            Ok(result) => result,
            Err(_) => Err((Failure::Timeout, format!("no response in {:?}", self.shared.load.timeout))),
        };
        let now = Instant::now();
        let result = result.and_then(|status| self.check(status));
        let Err((failure, what)) = result else {
            self.shared.lock().succeed(now - start);
            return;
        };
        let at = start.saturating_duration_since(self.shared.started);
        let id = &self.id;
        self.shared.lock().fail(kind, failure, || format!("{kind:?} {id} at {at:.3?}: {failure}: {what}"));
        if failure != Failure::Body && !matches!(failure, Failure::Status(_)) {
            self.stream = None;
        }
        if failure == Failure::Connect {
            sleep(PAUSE).await;
        }
    }

    fn write_request(&mut self, number: u64) -> Kind {
        let load = &self.shared.load;
        let kind = if load.posts > 0.0 && fastrand::f64() < load.posts { Kind::Post } else { Kind::Get };
        // Ids have equal lengths, so that no id is a part of another id.
        self.id = format!("{}-{number:010}", self.shared.id_prefix);
        let method = if kind == Kind::Post { "POST" } else { "GET" };
        let path = if load.path.contains("{id}") { &load.path.replace("{id}", &self.id) } else { &load.path };
        self.output.clear();
        let head = format_args!("{method} {path} HTTP/1.1\r\nHost: {}\r\nX-Id: {}\r\n", load.host, self.id);
        // Writing to a Vec does not fail.
        let _ = self.output.write_fmt(head);
        if load.is_new_each {
            self.output.extend_from_slice(b"Connection: close\r\n");
        }
        if kind == Kind::Post {
            let _ = write!(self.output, "Content-Length: {}\r\n\r\n", load.body);
            let end = self.output.len() + load.body;
            self.output.extend_from_slice(self.id.as_bytes());
            self.output.resize(end, b'.');
        } else {
            self.output.extend_from_slice(b"\r\n");
        }
        kind
    }

    /// Sends the request and reads the response's body into `body`. Returns the status.
    async fn exchange(&mut self) -> Result<u16, Failed> {
        self.drop_if_closed();
        if self.stream.is_none() {
            self.connect().await.map_err(|error| (Failure::Connect, error.to_string()))?;
        }
        let Some(mut stream) = self.stream.take() else {
            return Err((Failure::Connect, "no connection".to_owned()));
        };
        // The task returns the connection only after a complete response. An early return closes the connection.
        let written = stream.write_all(&self.output).await;
        let written = match written {
            Ok(()) => stream.flush().await,
            error => error,
        };
        written.map_err(|error| (Failure::Read, format!("write: {error}")))?;
        let (status, reusable) = self.read(&mut stream).await?;
        if reusable {
            self.stream = Some(stream);
        }
        Ok(status)
    }

    /// Detects that the server closed the connection while it was idle.
    fn drop_if_closed(&mut self) {
        if self.stream.as_mut().is_some_and(|stream| !stream.is_quiet()) {
            self.stream = None;
        }
    }

    async fn connect(&mut self) -> io::Result<()> {
        self.stream = Some(Stream::connect(self.shared.load.addr, self.shared.load.transport).await?);
        self.input.clear();
        if self.connected {
            self.shared.lock().reconnects += 1;
        }
        self.connected = true;
        Ok(())
    }

    /// Reads one response. Returns the status, and whether the connection can carry another response.
    async fn read(&mut self, stream: &mut Stream) -> Result<(u16, bool), Failed> {
        self.body.clear();
        let (status, framing, close) = loop {
            let head = take_head(&mut self.input).map_err(|what| (Failure::Malformed, what))?;
            match head {
                Some((100 | 102..200, ..)) => continue,
                Some(head) => break head,
                None => {}
            }
            self.read_more(stream, true).await?;
        };
        let mut decoder = BodyDecoder::new(framing);
        loop {
            let decoded = decoder.decode(&mut self.input, &mut self.body, None);
            decoded.map_err(|what| (Failure::Malformed, what))?;
            if decoder.is_done() {
                break;
            }
            if self.read_more(stream, !decoder.ends_by_close()).await? == 0 {
                return Ok((status, false));
            }
        }
        if !self.input.is_empty() {
            let what = format!("{} bytes after the response", self.input.len());
            return Err((Failure::Malformed, what));
        }
        Ok((status, !close))
    }

    async fn read_more(&mut self, stream: &mut Stream, needed: bool) -> Result<usize, Failed> {
        match wire::read_more(stream, &mut self.input).await {
            Ok(0) if needed => Err((Failure::Read, "closed before the response was complete".to_owned())),
            Ok(read) => Ok(read),
            Err(error) => Err((Failure::Read, error.to_string())),
        }
    }

    fn check(&self, status: u16) -> Result<(), Failed> {
        let body = || String::from_utf8_lossy(&self.body[..self.body.len().min(200)]).into_owned();
        if status != 200 {
            return Err((Failure::Status(status), body()));
        }
        let good = match &self.shared.load.expect {
            Expect::Anything => true,
            Expect::Body(expected) => *expected == self.body,
            Expect::OwnId => memchr::memmem::find(&self.body, self.id.as_bytes()).is_some(),
        };
        if good { Ok(()) } else { Err((Failure::Body, body())) }
    }
}

/// Removes a complete head from the front: the status, the framing of the body, and whether the connection closes after
/// the response.
fn take_head(input: &mut BytesMut) -> Result<Option<(u16, Framing, bool)>, String> {
    if input.is_empty() {
        return Ok(None);
    }
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Response::new(&mut headers);
    let length = match parsed.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let status = parsed.code.unwrap_or_default();
    let framing = Framing::of_response(status, false, parsed.headers)?;
    let keeps = parsed.version == Some(1) || wire::has_token(parsed.headers, "connection", "keep-alive");
    let close = !keeps || wire::has_token(parsed.headers, "connection", "close");
    input.advance(length);
    Ok(Some((status, framing, close)))
}
