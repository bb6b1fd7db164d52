//! HTTP/2 on both sides. The other tests also run over HTTP/2 (`SLUICEGATE_TEST_TRANSPORT=http2`), and cover the
//! behaviour of both versions. The tests here cover features that only HTTP/2 has.
//!
//! | module | contents |
//! |---|---|
//! | `clients` | streams, GOAWAY, malformed requests |
//! | `malformed` | messages that RFC 9113 calls malformed |
//! | `floods` | clients that cause work without any request |
//! | `endpoints` | connections that requests share, refused streams, GOAWAY, gRPC |
//! | `uploads` | request bodies that arrive slowly |
//! | `streams` | gRPC streams that are open while everything changes |

mod clients;
mod endpoints;
mod floods;
mod malformed;
mod streams;
mod uploads;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, Response};
use sluicegate_testkit::gateway::Gateway;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

type TestResult = anyhow::Result<()>;

/// A client that speaks HTTP/2 in clear text, and the task that drives its connection.
async fn connect(
    gateway: &Gateway,
) -> anyhow::Result<(SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>)> {
    let stream = TcpStream::connect(gateway.addr()).await?;
    let (requests, connection) = h2::client::handshake(stream).await?;
    Ok((requests.ready().await?, tokio::spawn(connection)))
}

/// A complete response.
#[derive(Debug)]
struct Answer {
    head: Response<()>,
    body: Vec<u8>,
    trailers: http::HeaderMap,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.headers().get(name).and_then(|value| value.to_str().ok())
    }
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://a.test{path}")).body(()).expect("a request")
}

/// Sends a request with this body and these trailers, and reads the response.
async fn ask(
    requests: &SendRequest<Bytes>,
    request: Request<()>,
    body: &[u8],
    trailers: &[(&'static str, &'static str)],
) -> Result<Answer, h2::Error> {
    let mut requests = requests.clone().ready().await?;
    let ends = body.is_empty() && trailers.is_empty();
    let (response, mut sink) = requests.send_request(request, ends)?;
    if !ends {
        sink.send_data(Bytes::copy_from_slice(body), trailers.is_empty())?;
        if !trailers.is_empty() {
            let field = |(name, value): &(&'static str, &'static str)| {
                (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
            };
            sink.send_trailers(trailers.iter().map(field).collect())?;
        }
    }
    let (parts, mut stream) = response.await?.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    let trailers = stream.trailers().await?.unwrap_or_default();
    Ok(Answer { head: Response::from_parts(parts, ()), body, trailers })
}

/// A gateway in front of endpoints that speak HTTP/2.
async fn before(addresses: impl IntoIterator<Item = std::net::SocketAddr>) -> anyhow::Result<Gateway> {
    Gateway::builder().workers(1).http2_endpoints(addresses).start().await
}
