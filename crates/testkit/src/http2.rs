//! An adapter for clients of HTTP/1.1 to HTTP/2. A request becomes a stream, and the response becomes HTTP/1.1, so that
//! every test can run over HTTP/2.

use std::future::poll_fn;
use std::io::{self, Write as _};

use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::{Method, Request, Response, Version};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, split};

use crate::wire::{self, BodyDecoder, Framing, fields};

/// The buffer between the two protocols, in bytes.
const PIPE: usize = 64 * 1024;

/// An HTTP/1.1 connection over an HTTP/2 connection. The connection ends when either side ends it.
///
/// # Errors
/// If the peer does not speak HTTP/2.
pub(crate) async fn adapt(
    connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<DuplexStream> {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
    let (requests, connection) = builder.handshake::<_, Bytes>(connection).await.map_err(io::Error::other)?;
    let (near, far) = tokio::io::duplex(PIPE);
    let driver = tokio::spawn(connection);
    tokio::spawn(async move {
        let (input, output) = split(far);
        let mut adapter = Adapter { input, output, buffer: BytesMut::new(), requests };
        let gone = async { drop(driver.await) };
        tokio::select! {
            // The last frames from the driver are still forwarded.
            biased;
            _ = adapter.run() => {}
            () = gone => {}
        }
    });
    Ok(near)
}

struct Adapter {
    input: ReadHalf<DuplexStream>,
    output: WriteHalf<DuplexStream>,
    buffer: BytesMut,
    requests: SendRequest<Bytes>,
}

impl Adapter {
    /// Handles requests in turn, until a request fails.
    async fn run(&mut self) -> io::Result<()> {
        loop {
            let Some((request, framing)) = self.read_request().await? else { return Ok(()) };
            let is_head = request.method() == Method::HEAD;
            let is_tunnel = request.extensions().get::<Protocol>().is_some();
            let mut body = BodyDecoder::new(framing);
            poll_fn(|cx| self.requests.poll_ready(cx)).await.map_err(io::Error::other)?;
            let (response, mut sink) =
                self.requests.send_request(request, body.is_done()).map_err(io::Error::other)?;
            if is_tunnel {
                let response = response.await.map_err(io::Error::other)?;
                if response.status() == 200 {
                    return self.tunnel(response.into_body(), &mut sink).await;
                }
                sink.send_reset(h2::Reason::CANCEL);
                self.pass_on(response, is_head).await?;
                continue;
            }
            let response = self.upload(&mut body, response, &mut sink).await?;
            self.pass_on(response, is_head).await?;
        }
    }

    async fn read_request(&mut self) -> io::Result<Option<(Request<()>, Framing)>> {
        loop {
            if let Some(request) = self.take_request()? {
                return Ok(Some(request));
            }
            if wire::read_more(&mut self.input, &mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn take_request(&mut self) -> io::Result<Option<(Request<()>, Framing)>> {
        let Some((mut request, framing)) = wire::take_request(&mut self.buffer, Version::HTTP_2)? else {
            return Ok(None);
        };
        let Some(upgrade) = request.headers_mut().remove("upgrade") else {
            return Ok(Some((request, framing)));
        };
        let protocol = upgrade.to_str().map_err(io::Error::other)?;
        request.extensions_mut().insert(Protocol::from(protocol));
        *request.method_mut() = Method::CONNECT;
        Ok(Some((request, Framing::UntilClose)))
    }

    /// Sends the body until a response arrives, or to the end of the body.
    async fn upload(
        &mut self,
        body: &mut BodyDecoder,
        mut response: ResponseFuture,
        sink: &mut SendStream<Bytes>,
    ) -> io::Result<Response<RecvStream>> {
        loop {
            let mut data = Vec::new();
            let was_done = body.is_done();
            if !was_done {
                body.decode(&mut self.buffer, &mut data, None).map_err(io::Error::other)?;
            }
            if was_done || (data.is_empty() && !body.is_done()) {
                // A close by the client aborts the exchange.
                tokio::select! {
                    response = &mut response => return response.map_err(io::Error::other),
                    read = wire::read_more(&mut self.input, &mut self.buffer) => {
                        if read? == 0 {
                            sink.send_reset(h2::Reason::CANCEL);
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                    }
                }
                continue;
            }
            let mut data = Bytes::from(data);
            while !data.is_empty() {
                sink.reserve_capacity(data.len());
                tokio::select! {
                    response = &mut response => return response.map_err(io::Error::other),
                    capacity = poll_fn(|cx| sink.poll_capacity(cx)) => {
                        let capacity = capacity.ok_or(io::ErrorKind::BrokenPipe)?.map_err(io::Error::other)?;
                        let piece = data.split_to(capacity.min(data.len()));
                        sink.send_data(piece, false).map_err(io::Error::other)?;
                    }
                }
            }
            if body.is_done() {
                let trailers = fields(&body.trailers);
                let sent = match trailers.is_empty() {
                    true => sink.send_data(Bytes::new(), true),
                    false => sink.send_trailers(trailers),
                };
                sent.map_err(io::Error::other)?;
            }
        }
    }

    /// Forwards bytes both ways until both sides have ended.
    async fn tunnel(&mut self, mut body: RecvStream, sink: &mut SendStream<Bytes>) -> io::Result<()> {
        self.output.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").await?;
        let (input, output, buffer) = (&mut self.input, &mut self.output, &mut self.buffer);
        let up = async {
            loop {
                while !buffer.is_empty() {
                    sink.reserve_capacity(buffer.len());
                    let capacity = poll_fn(|cx| sink.poll_capacity(cx)).await;
                    let capacity = capacity.ok_or(io::ErrorKind::BrokenPipe)?.map_err(io::Error::other)?;
                    let piece = buffer.split_to(capacity.min(buffer.len())).freeze();
                    sink.send_data(piece, false).map_err(io::Error::other)?;
                }
                if wire::read_more(input, buffer).await? == 0 {
                    return sink.send_data(Bytes::new(), true).map_err(io::Error::other);
                }
            }
        };
        let down = async {
            while let Some(data) = body.data().await {
                let data = data.map_err(io::Error::other)?;
                let _ = body.flow_control().release_capacity(data.len());
                output.write_all(&data).await?;
            }
            output.shutdown().await
        };
        tokio::try_join!(up, down).map(drop)
    }

    async fn pass_on(&mut self, response: Response<RecvStream>, is_head: bool) -> io::Result<()> {
        let (parts, mut body) = response.into_parts();
        let has_body = !is_head && !matches!(parts.status.as_u16(), 204 | 304);
        let is_chunked = has_body && !parts.headers.contains_key("content-length");
        let head = wire::response_head(&parts, is_chunked)?;
        self.output.write_all(&head).await?;
        while let Some(data) = body.data().await {
            let data = data.map_err(io::Error::other)?;
            let _ = body.flow_control().release_capacity(data.len());
            if data.is_empty() || !has_body {
                continue;
            }
            if is_chunked {
                self.output.write_all(format!("{:x}\r\n", data.len()).as_bytes()).await?;
            }
            self.output.write_all(&data).await?;
            if is_chunked {
                self.output.write_all(b"\r\n").await?;
            }
        }
        let trailers = body.trailers().await.map_err(io::Error::other)?;
        if is_chunked {
            let mut end = b"0\r\n".to_vec();
            for (name, value) in trailers.iter().flatten() {
                write!(end, "{name}: {}\r\n", value.to_str().unwrap_or_default())?;
            }
            end.extend_from_slice(b"\r\n");
            self.output.write_all(&end).await?;
        }
        self.output.flush().await
    }
}
