//! Serves one connection of a backend.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::sleep;

use super::behaviour::{Answer, OnAccept};
use super::{Behaviour, Life, Request, Shared, lock};
use crate::wire::{self, BodyDecoder, Framing};

pub(super) struct Connection {
    stream: TcpStream,
    shared: Arc<Shared>,
    buffer: BytesMut,
    number: u64,
    answered: u64,
    reset: bool,
}

/// Whether the connection continues after a request.
#[derive(PartialEq, Eq)]
enum Next {
    Request,
    End,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, shared: &Arc<Shared>) -> Self {
        let number = shared.accepted.fetch_add(1, Ordering::Relaxed) + 1;
        shared.open.fetch_add(1, Ordering::Relaxed);
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(shared);
        Self { stream, shared, buffer: BytesMut::new(), number, answered: 0, reset: false }
    }

    /// Serves until the peer, the behaviour or the end of the backend closes the connection.
    pub(super) async fn run(mut self, mut life: watch::Receiver<Life>) {
        tokio::select! {
            biased;
            _ = life.changed() => self.reset |= *life.borrow() == Life::Reset,
            // Socket errors are expected in tests. The tests check the peer's side.
            _ = self.serve() => {}
        }
    }

    async fn serve(&mut self) -> io::Result<()> {
        let on_accept = lock(&self.shared.behaviour).on_accept;
        match on_accept {
            OnAccept::Close => return Ok(()),
            OnAccept::Hold => std::future::pending().await,
            OnAccept::Serve => {}
        }
        while let Some((mut request, mut body)) = self.read_head().await? {
            let behaviour = self.decide(&request);
            if self.answer(&behaviour, &mut request, &mut body).await? == Next::End {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads a request's head and appends the request to the journal. `None` at the end of the stream.
    async fn read_head(&mut self) -> io::Result<Option<(Request, BodyDecoder)>> {
        let (mut request, framing) = loop {
            match take_head(&mut self.buffer) {
                Ok(Some(found)) => break found,
                Ok(None) => {}
                Err(what) => {
                    self.shared.malformed.fetch_add(1, Ordering::Relaxed);
                    let body = format!("malformed request: {what}\n");
                    let head = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: ";
                    self.stream.write_all(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes()).await?;
                    return Ok(None);
                }
            }
            if self.read_more().await? == 0 {
                return Ok(None);
            }
        };
        request.connection = self.number;
        request.nth = self.answered + 1;
        self.shared.requests.fetch_add(1, Ordering::Relaxed);
        let mut journal = lock(&self.shared.journal);
        journal.ids.extend(request.header("x-id").map(str::to_owned));
        journal.last = Some(request.clone());
        drop(journal);
        Ok(Some((request, BodyDecoder::new(framing.unwrap_or(Framing::Length(0))))))
    }

    fn decide(&self, request: &Request) -> Behaviour {
        let mut behaviour = lock(&self.shared.behaviour).clone();
        while let Answer::Choose(decide) = &behaviour.answer
            && behaviour.early
        {
            behaviour = decide(request);
        }
        behaviour
    }

    async fn answer(
        &mut self,
        behaviour: &Behaviour,
        request: &mut Request,
        body: &mut BodyDecoder,
    ) -> io::Result<Next> {
        if !behaviour.early && !self.read_body(behaviour, request, body).await? {
            return Ok(Next::End);
        }
        if let Answer::Choose(decide) = &behaviour.answer {
            let chosen = decide(request);
            return Box::pin(self.answer(&chosen, request, body)).await;
        }
        if !behaviour.delay.is_zero() {
            sleep(behaviour.delay).await;
        }
        self.stream.write_all(&behaviour.interim).await?;
        match &behaviour.answer {
            Answer::Metadata => self.send(request, 200, self.metadata(request).as_bytes()).await?,
            Answer::Echo => self.send(request, 200, &[&request.head[..], &request.raw_body].concat()).await?,
            Answer::Sized { status, length } => self.send(request, *status, &vec![b'x'; *length]).await?,
            Answer::Chunked { chunks, pause, trailers } => self.send_chunks(chunks, *pause, trailers).await?,
            Answer::Raw(bytes) => self.stream.write_all(bytes).await?,
            Answer::Never => self.discard().await?,
            Answer::Reset => {
                self.reset = true;
                return Ok(Next::End);
            }
            // `Choose` is resolved above, or by the caller.
            Answer::Close | Answer::Choose(_) => return Ok(Next::End),
            Answer::Upgrade if request.header("upgrade").is_some() => {
                self.tunnel().await?;
                return Ok(Next::End);
            }
            Answer::Upgrade => self.send(request, 200, b"no upgrade asked for\n").await?,
        }
        self.answered += 1;
        if behaviour.early && !self.read_body(behaviour, request, body).await? {
            return Ok(Next::End);
        }
        let enough = behaviour.close_after.is_some_and(|answers| self.answered >= answers);
        let asked = request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let old = request.minor_version == 0;
        Ok(if enough || asked || old || behaviour.then_close { Next::End } else { Next::Request })
    }

    /// Reads the rest of the body; false when the stream ends before the body.
    async fn read_body(
        &mut self,
        behaviour: &Behaviour,
        request: &mut Request,
        body: &mut BodyDecoder,
    ) -> io::Result<bool> {
        let expects =
            request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
        if expects && behaviour.continues && !behaviour.early {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        loop {
            let raw = Some(&mut request.raw_body);
            if let Err(what) = body.decode(&mut self.buffer, &mut request.body, raw) {
                self.shared.malformed.fetch_add(1, Ordering::Relaxed);
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            if body.is_done() {
                lock(&self.shared.journal).last = Some(request.clone());
                return Ok(true);
            }
            if self.read_more().await? == 0 {
                return Ok(false);
            }
        }
    }

    async fn read_more(&mut self) -> io::Result<usize> {
        let pace = lock(&self.shared.behaviour).read_pace;
        let Some((size, pause)) = pace else {
            return wire::read_more(&mut self.stream, &mut self.buffer).await;
        };
        let mut piece = vec![0; size];
        let read = self.stream.read(&mut piece).await?;
        self.buffer.extend_from_slice(&piece[..read]);
        sleep(pause).await;
        Ok(read)
    }

    async fn send(&mut self, request: &Request, status: u16, body: &[u8]) -> io::Result<()> {
        let mut out = format!("HTTP/1.1 {status} {}\r\nServer: testkit\r\n", reason(status)).into_bytes();
        let bodiless = status < 200 || status == 204 || status == 304;
        if !bodiless {
            let fields = format!("Content-Type: text/plain\r\nContent-Length: {}\r\n", body.len());
            out.extend_from_slice(fields.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        if !bodiless && request.method != "HEAD" {
            out.extend_from_slice(body);
        }
        self.stream.write_all(&out).await
    }

    async fn send_chunks(
        &mut self,
        chunks: &[Vec<u8>],
        pause: Duration,
        trailers: &[(String, String)],
    ) -> io::Result<()> {
        self.stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
        for chunk in chunks {
            let size = format!("{:x}\r\n", chunk.len());
            self.stream.write_all(&[size.as_bytes(), chunk, b"\r\n"].concat()).await?;
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
        let mut end = "0\r\n".to_owned();
        for (name, value) in trailers {
            end.push_str(&format!("{name}: {value}\r\n"));
        }
        end.push_str("\r\n");
        self.stream.write_all(end.as_bytes()).await
    }

    async fn tunnel(&mut self) -> io::Result<()> {
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        self.stream.write_all(head.as_bytes()).await?;
        loop {
            let bytes = self.buffer.split();
            self.stream.write_all(&bytes).await?;
            if self.read_more().await? == 0 {
                return self.stream.shutdown().await;
            }
        }
    }

    /// Reads until the peer closes.
    async fn discard(&mut self) -> io::Result<()> {
        while self.read_more().await? > 0 {
            self.buffer.clear();
        }
        Ok(())
    }

    fn metadata(&self, request: &Request) -> String {
        let addr = self.shared.addr;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let id = request.header("x-id").unwrap_or("-");
        let request_id = request.header("x-request-id").unwrap_or("-");
        let mut text = format!(
            "Server address: {addr}\nServer name: backend-{}\nUnix time: {now}\nURI: {}\nRequest ID: {request_id}\n\
             X-Id: {id}\nConnection: {}\nRequest of connection: {}\n",
            addr.ip(),
            request.target,
            request.connection,
            request.nth,
        );
        while text.len() < 1024 {
            text.push_str("Filler: the quick brown fox jumps over the lazy dog\n");
        }
        text
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.reset {
            let _ = self.stream.set_zero_linger();
        }
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn take_head(buffer: &mut BytesMut) -> Result<Option<(Request, Option<Framing>)>, String> {
    let mut headers = [httparse::EMPTY_HEADER; wire::MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let framing = Framing::of(parsed.headers)?;
    let mut request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        target: parsed.path.unwrap_or_default().to_owned(),
        minor_version: parsed.version.unwrap_or_default(),
        headers: wire::owned(parsed.headers),
        ..Request::default()
    };
    request.head = buffer.split_to(length).to_vec();
    Ok(Some((request, framing)))
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        304 => "Not Modified",
        404 => "Not Found",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "As Told",
    }
}
