//! A server of Envoy's protocol `ext_authz` over gRPC, with message types of its own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) attributes: Option<Attributes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Attributes {
    #[prost(message, optional, tag = "1")]
    pub(super) source: Option<Peer>,
    #[prost(message, optional, tag = "2")]
    pub(super) destination: Option<Peer>,
    #[prost(message, optional, tag = "4")]
    pub(super) request: Option<Request>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Peer {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<Address>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Address {
    #[prost(message, optional, tag = "1")]
    pub(super) socket_address: Option<SocketAddress>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SocketAddress {
    #[prost(string, tag = "2")]
    pub(super) address: String,
    #[prost(uint32, tag = "3")]
    pub(super) port: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Request {
    #[prost(message, optional, tag = "2")]
    pub(super) http: Option<HttpRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpRequest {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) method: String,
    #[prost(map = "string, string", tag = "3")]
    pub(super) headers: HashMap<String, String>,
    #[prost(string, tag = "4")]
    pub(super) path: String,
    #[prost(string, tag = "5")]
    pub(super) host: String,
    #[prost(string, tag = "6")]
    pub(super) scheme: String,
    #[prost(int64, tag = "9")]
    pub(super) size: i64,
    #[prost(string, tag = "10")]
    pub(super) protocol: String,
    #[prost(string, tag = "11")]
    pub(super) body: String,
    #[prost(bytes = "vec", tag = "12")]
    pub(super) raw_body: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(message, optional, tag = "2")]
    pub(super) denied: Option<Denied>,
    #[prost(message, optional, tag = "3")]
    pub(super) ok: Option<Allowed>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Denied {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(message, repeated, tag = "2")]
    pub(super) headers: Vec<HeaderOption>,
    #[prost(string, tag = "3")]
    pub(super) body: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Allowed {
    #[prost(message, repeated, tag = "2")]
    pub(super) headers: Vec<HeaderOption>,
    #[prost(string, repeated, tag = "5")]
    pub(super) headers_to_remove: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(super) response_headers_to_add: Vec<HeaderOption>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderOption {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, optional, tag = "2")]
    pub(super) append: Option<Flag>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Flag {
    #[prost(bool, tag = "1")]
    pub(super) value: bool,
}

pub(super) fn header(key: &str, value: &str, append: bool) -> HeaderOption {
    let header = Header { key: key.to_owned(), value: value.to_owned() };
    HeaderOption { header: Some(header), append: append.then_some(Flag { value: true }) }
}

pub(super) fn allowed(ok: Allowed) -> CheckResponse {
    CheckResponse { status: Some(Status { code: 0 }), denied: None, ok: Some(ok) }
}

type Decide = dyn Fn(&HttpRequest) -> (CheckResponse, u16) + Send + Sync;

/// A server that decides by a function. The function also returns the gRPC status.
pub(super) struct Authz {
    pub(super) addr: SocketAddr,
    last: Arc<Mutex<Option<(String, CheckRequest)>>>,
    task: JoinHandle<()>,
}

impl Authz {
    pub(super) async fn start(
        decide: impl Fn(&HttpRequest) -> (CheckResponse, u16) + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let last = Arc::new(Mutex::new(None));
        let (decide, seen): (Arc<Decide>, _) = (Arc::new(decide), last.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, decide.clone(), seen.clone()));
            }
        });
        Ok(Self { addr, last, task })
    }

    /// The path and the message of the last call.
    pub(super) fn last(&self) -> (String, CheckRequest) {
        self.last.lock().unwrap().clone().expect("a call")
    }

    /// The request of the last call.
    pub(super) fn last_http(&self) -> HttpRequest {
        self.last().1.attributes.unwrap().request.unwrap().http.unwrap()
    }
}

impl Drop for Authz {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    stream: TcpStream,
    decide: Arc<Decide>,
    last: Arc<Mutex<Option<(String, CheckRequest)>>>,
) -> anyhow::Result<()> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(call) = connection.accept().await {
        let (request, mut respond) = call?;
        let (decide, last) = (decide.clone(), last.clone());
        tokio::spawn(async move {
            let (parts, mut body) = request.into_parts();
            let mut frame = Vec::new();
            while let Some(data) = body.data().await {
                let data = data?;
                body.flow_control().release_capacity(data.len())?;
                frame.extend_from_slice(&data);
            }
            let check = CheckRequest::decode(&frame[5..])?;
            *last.lock().unwrap() = Some((parts.uri.path().to_owned(), check.clone()));
            let http = check.attributes.and_then(|of| of.request).and_then(|of| of.http).unwrap_or_default();
            let (answer, status) = decide(&http);
            let mut response = Response::new(());
            let media_type = HeaderValue::from_static("application/grpc");
            response.headers_mut().insert("content-type", media_type);
            let mut sink = respond.send_response(response, false)?;
            let message = answer.encode_to_vec();
            let mut frame = vec![0];
            frame.extend_from_slice(&u32::try_from(message.len())?.to_be_bytes());
            frame.extend_from_slice(&message);
            sink.send_data(Bytes::from(frame), false)?;
            let mut trailers = HeaderMap::new();
            trailers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from(status));
            sink.send_trailers(trailers)?;
            anyhow::Ok(())
        });
    }
    Ok(())
}
