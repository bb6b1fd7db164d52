//! Handles a request, and builds its response.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, Version};
use tokio::time::timeout;

use super::body::Body;
use super::journal::Writer;
use super::shape::Shape;
use crate::load::{ID_HEADER, LENGTH_HEADER};

/// The response header with the name of the pod.
const POD_HEADER: &str = "x-lab-pod";
/// The approximate size of the metadata, as in the published experiments.
const METADATA: usize = 1024;
/// The padding of the metadata up to this size.
static PADDING: [u8; METADATA] = padding();
/// The longest body of a request.
const LONGEST_BODY: u64 = 16 << 20;
/// The longest id.
const LONGEST_ID: usize = 128;

/// The common data of all responses of a pod.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) name: HeaderValue,
    pub(super) journal: Option<Writer>,
    /// The response message of gRPC calls.
    pub(super) message: Bytes,
    /// The timeout of the body of a request.
    pub(super) patience: Duration,
}

/// The reason why the backend does not send the response of the URL.
enum Failure {
    Refused(StatusCode, String),
    /// The request broke off, so no client waits for a response.
    Broken,
}

/// The request broke off.
#[derive(Debug, thiserror::Error)]
#[error("the request broke off")]
pub(super) struct Broken;

impl Pod {
    /// The constant part of the metadata of a connection.
    pub(super) fn about(&self, address: SocketAddr, peer: SocketAddr) -> String {
        let name = self.name.to_str().unwrap_or_default();
        format!("Server address: {address}\nServer name: {name}\nClient address: {peer}\n")
    }

    /// The response to a request on the connection with this constant part.
    pub(super) async fn answer(
        &self,
        about: &str,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Broken> {
        let (head, incoming) = request.into_parts();
        let (status, body) = match self.decide(about, &head, incoming).await {
            Ok(answer) => answer,
            Err(Failure::Refused(status, message)) => (status, message.into()),
            Err(Failure::Broken) => return Err(Broken),
        };
        // RFC 9110, 6.4.1: responses with these statuses have no body.
        let is_empty = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let body = if is_empty { Body::Filler(0) } else { body };
        let length = if head.method == Method::HEAD { 0 } else { body.len() };
        let content_type = if matches!(body, Body::Message(_)) { "application/grpc" } else { "text/plain" };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(id) = head.headers.get(ID_HEADER) {
            headers.insert(ID_HEADER, id.clone());
            headers.insert(LENGTH_HEADER, length.into());
            headers.insert(POD_HEADER, self.name.clone());
        }
        if status == StatusCode::PAYLOAD_TOO_LARGE && head.version != Version::HTTP_2 {
            // The pod does not read the rest of the body, so it cannot find the next request on the connection.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response)
    }

    async fn decide(
        &self,
        about: &str,
        head: &Parts,
        incoming: Incoming,
    ) -> Result<(StatusCode, Body), Failure> {
        // The pod reads the whole request before its response, as a real application does.
        if !incoming.is_end_stream() {
            timeout(self.patience, receive(incoming)).await.map_err(|_| Failure::Broken)??;
        }
        if let Some(journal) = &self.journal
            && matches!(head.method, Method::POST | Method::PATCH)
        {
            record(journal, head)?;
        }
        let shape = Shape::of(head.uri.query().unwrap_or_default())
            .map_err(|message| Failure::Refused(StatusCode::BAD_REQUEST, message))?;
        if !shape.delay.is_zero() {
            tokio::time::sleep(shape.delay).await;
        }
        let body = match (head.uri.path(), shape.size) {
            _ if is_call(head) => Body::Message(self.message.clone()),
            ("/healthz", _) => Body::Text(Bytes::from_static(b"ok\n")),
            (_, Some(size)) => Body::Filler(size),
            (_, None) => Body::Text(metadata(about, head).into()),
        };
        Ok((shape.status, body))
    }
}

/// Whether the request is a gRPC call, which requires HTTP/2.
fn is_call(head: &Parts) -> bool {
    head.version == Version::HTTP_2
        && head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Reads a body to its end.
async fn receive(mut incoming: Incoming) -> Result<(), Failure> {
    let too_long =
        || Failure::Refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is longer than 16 MiB\n".to_owned());
    if incoming.size_hint().lower() > LONGEST_BODY {
        return Err(too_long());
    }
    let mut length = 0;
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|_| Failure::Broken)?;
        length += frame.data_ref().map_or(0, |data| data.len() as u64);
        if length > LONGEST_BODY {
            return Err(too_long());
        }
    }
    Ok(())
}

/// Records the request, if it has an id.
fn record(journal: &Writer, head: &Parts) -> Result<(), Failure> {
    let Some(id) = head.headers.get(ID_HEADER) else { return Ok(()) };
    let id = id.as_bytes();
    if !(1..=LONGEST_ID).contains(&id.len()) || !id.iter().all(u8::is_ascii_graphic) {
        let message = format!("{ID_HEADER} is not 1 to {LONGEST_ID} visible ASCII characters\n");
        return Err(Failure::Refused(StatusCode::BAD_REQUEST, message));
    }
    journal.append(id).map_err(|error| {
        let message = format!("the journal cannot be written: {error}");
        crate::complain(&message);
        Failure::Refused(StatusCode::INTERNAL_SERVER_ERROR, message + "\n")
    })
}

/// The metadata of the server and of the request, filled up to about 1 KB.
fn metadata(about: &str, head: &Parts) -> Vec<u8> {
    let mut text = Vec::with_capacity(METADATA + 512);
    text.extend_from_slice(about.as_bytes());
    let date = humantime::format_rfc3339_millis(SystemTime::now());
    // Writing to memory cannot fail.
    let _ = write!(text, "Date: {date}\nMethod: {}\nURI: {}\nRequest ID: ", head.method, head.uri);
    match head.headers.get("x-request-id") {
        Some(id) => text.extend_from_slice(id.as_bytes()),
        None => {
            let _ = write!(text, "{:032x}", fastrand::u128(..));
        }
    }
    text.push(b'\n');
    for (name, value) in &head.headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.push(b'\n');
    }
    if let Some(missing) = METADATA.checked_sub(text.len()) {
        // The end of the padding, with the end of the last line.
        text.extend_from_slice(&PADDING[METADATA - missing..]);
    }
    text
}

const fn padding() -> [u8; METADATA] {
    let mut padding = [b'.'; METADATA];
    let mut end = METADATA;
    while end > 0 {
        padding[end - 1] = b'\n';
        end = end.saturating_sub(80);
    }
    padding
}
