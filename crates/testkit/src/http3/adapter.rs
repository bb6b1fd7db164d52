//! An adapter for clients of HTTP/1.1 to HTTP/3. A request becomes a stream, and the response becomes HTTP/1.1, so that
//! every test can run over HTTP/3.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::pin::pin;

use bytes::{Buf as _, Bytes, BytesMut};
use h3::client::RequestStream;
use h3_quinn::{BidiStream, RecvStream};
use http::{Method, Request, Response, Version};
use tokio::io::{AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, split};

use super::Http3Client;
use crate::tls::Authority;
use crate::wire::{self, BodyDecoder, Framing, fields};

/// The buffer between the two protocols, in bytes.
const PIPE: usize = 64 * 1024;

type Receiving = RequestStream<RecvStream, Bytes>;

/// An HTTP/1.1 connection over an HTTP/3 connection, and its local address. The connection ends when either side ends it.
///
/// # Errors
/// If the gateway does not speak HTTP/3.
pub(crate) async fn adapt(gateway: SocketAddr) -> io::Result<(DuplexStream, SocketAddr)> {
    let client = connect(gateway).await?;
    let local = client.endpoint.local_addr()?;
    let (near, far) = tokio::io::duplex(PIPE);
    tokio::spawn(async move {
        let (input, output) = split(far);
        let mut adapter = Adapter { input, output, buffer: BytesMut::new(), gateway, client };
        // The pipe shows the end.
        let _ = adapter.run().await;
        let Adapter { client, .. } = adapter;
        client.connection.close(0x100_u32.into(), b"");
        client.endpoint.wait_idle().await;
    });
    Ok((near, local))
}

async fn connect(gateway: SocketAddr) -> io::Result<Http3Client> {
    let options = Authority::of_process().client();
    Http3Client::connect(gateway, &options, "localhost").await.map_err(io::Error::other)
}

struct Adapter {
    input: ReadHalf<DuplexStream>,
    output: WriteHalf<DuplexStream>,
    buffer: BytesMut,
    gateway: SocketAddr,
    client: Http3Client,
}

impl Adapter {
    /// Handles requests in turn, until a request fails, or the gateway ends the connection between two requests.
    async fn run(&mut self) -> io::Result<()> {
        loop {
            let Some((request, framing)) = self.read_request().await? else { return Ok(()) };
            let is_head = request.method() == Method::HEAD;
            let mut stream = self.open(request).await?;
            let mut body = BodyDecoder::new(framing);
            let (response, receiving) = match body.is_done() {
                true => {
                    stream.finish().await.map_err(io::Error::other)?;
                    let (_sending, mut receiving) = stream.split();
                    let response = tokio::select! {
                        response = final_response(&mut receiving) => response?,
                        // A close by the client aborts the exchange.
                        _ = until_closed(&mut self.input, &mut self.buffer) => {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                    };
                    (response, receiving)
                }
                false => self.upload(&mut body, stream).await?,
            };
            self.pass_on(response, receiving, is_head).await?;
        }
    }

    /// Sends the head of a request. A client opens a new connection when the gateway has announced the end of the first.
    async fn open(&mut self, request: Request<()>) -> io::Result<RequestStream<BidiStream<Bytes>, Bytes>> {
        if let Ok(stream) = self.client.open(request.clone()).await {
            return Ok(stream);
        }
        self.client = connect(self.gateway).await?;
        self.client.open(request).await.map_err(io::Error::other)
    }

    async fn read_request(&mut self) -> io::Result<Option<(Request<()>, Framing)>> {
        loop {
            if let Some(request) = self.take_request()? {
                return Ok(Some(request));
            }
            tokio::select! {
                biased;
                read = wire::read_more(&mut self.input, &mut self.buffer) => if read? == 0 {
                    return Ok(None);
                },
                _ = self.client.connection.closed(), if self.buffer.is_empty() => return Ok(None),
            }
        }
    }

    fn take_request(&mut self) -> io::Result<Option<(Request<()>, Framing)>> {
        let Some((mut request, framing)) = wire::take_request(&mut self.buffer, Version::HTTP_3)? else {
            return Ok(None);
        };
        if request.headers_mut().remove("upgrade").is_some() {
            return Err(io::Error::other("h3 has no websockets"));
        }
        Ok(Some((request, framing)))
    }

    /// Sends the body until a response arrives, or to the end of the body.
    async fn upload(
        &mut self,
        body: &mut BodyDecoder,
        stream: RequestStream<BidiStream<Bytes>, Bytes>,
    ) -> io::Result<(Response<()>, Receiving)> {
        let (mut sending, mut receiving) = stream.split();
        let response = {
            let mut response = pin!(final_response(&mut receiving));
            loop {
                let mut data = Vec::new();
                let was_done = body.is_done();
                if !was_done {
                    body.decode(&mut self.buffer, &mut data, None).map_err(io::Error::other)?;
                }
                if was_done || (data.is_empty() && !body.is_done()) {
                    // A close by the client aborts the exchange.
                    tokio::select! {
                        response = &mut response => break response?,
                        read = wire::read_more(&mut self.input, &mut self.buffer) => {
                            if read? == 0 {
                                sending.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
                                return Err(io::ErrorKind::UnexpectedEof.into());
                            }
                        }
                    }
                    continue;
                }
                if !data.is_empty() {
                    tokio::select! {
                        response = &mut response => break response?,
                        sent = sending.send_data(Bytes::from(data)) => sent.map_err(io::Error::other)?,
                    }
                }
                if body.is_done() {
                    let trailers = fields(&body.trailers);
                    if !trailers.is_empty() {
                        sending.send_trailers(trailers).await.map_err(io::Error::other)?;
                    }
                    sending.finish().await.map_err(io::Error::other)?;
                }
            }
        };
        Ok((response, receiving))
    }

    async fn pass_on(
        &mut self,
        response: Response<()>,
        mut body: Receiving,
        is_head: bool,
    ) -> io::Result<()> {
        let (parts, ()) = response.into_parts();
        let has_body = !is_head && !matches!(parts.status.as_u16(), 204 | 304);
        let is_chunked = has_body && !parts.headers.contains_key("content-length");
        self.output.write_all(&wire::response_head(&parts, is_chunked)?).await?;
        while let Some(mut data) = body.recv_data().await.map_err(io::Error::other)? {
            let data = data.copy_to_bytes(data.remaining());
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
        let trailers = body.recv_trailers().await.map_err(io::Error::other)?;
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

/// The first response that is not interim.
async fn final_response(receiving: &mut Receiving) -> io::Result<Response<()>> {
    loop {
        let response = receiving.recv_response().await.map_err(io::Error::other)?;
        if !response.status().is_informational() {
            return Ok(response);
        }
    }
}

/// Returns when the client closes.
async fn until_closed(input: &mut ReadHalf<DuplexStream>, buffer: &mut BytesMut) {
    while matches!(wire::read_more(input, buffer).await, Ok(1..)) {}
}
