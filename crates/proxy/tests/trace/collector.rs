//! A collector: OTLP over HTTP, with its own message types (opentelemetry-proto, `trace/v1/trace.proto` and others).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use prost::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

#[derive(Clone, PartialEq, Message)]
struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Integer(i64),
}

/// A span as the collector received it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) span: String,
    pub(crate) parent: String,
    pub(crate) state: String,
    pub(crate) name: String,
    pub(crate) kind: i32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The code of its status: 2 is an error.
    pub(crate) status: i32,
    pub(crate) flags: u32,
    attributes: BTreeMap<String, String>,
    pub(crate) service: String,
}

impl Span {
    /// An attribute as text.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }
}

/// A running collector.
pub(crate) struct Collector {
    addr: SocketAddr,
    spans: Arc<Mutex<Vec<Span>>>,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Collector {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (addr, spans, requests) = (listener.local_addr()?, Arc::default(), Arc::default());
        let task = tokio::spawn({
            let (spans, requests) = (Arc::clone(&spans), Arc::clone(&requests));
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Arc::clone(&spans), Arc::clone(&requests)));
                }
            }
        });
        Ok(Self { addr, spans, requests, task })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The spans received so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap().clone()
    }

    /// The heads of the requests received so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, spans: Arc<Mutex<Vec<Span>>>, requests: Arc<Mutex<Vec<String>>>) {
    let mut buf = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = buf.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            if !matches!(stream.read_buf(&mut buf).await, Ok(1..)) {
                return;
            }
        };
        let head = String::from_utf8(buf.drain(..end).collect()).unwrap();
        let length = head.lines().find_map(|line| {
            line.to_ascii_lowercase().strip_prefix("content-length: ").map(|length| length.parse().unwrap())
        });
        let length: usize = length.expect("a length");
        while buf.len() < length {
            if !matches!(stream.read_buf(&mut buf).await, Ok(1..)) {
                return;
            }
        }
        let body: Vec<u8> = buf.drain(..length).collect();
        spans.lock().unwrap().extend(read(&body));
        requests.lock().unwrap().push(head);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}

fn read(body: &[u8]) -> Vec<Span> {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    // The request contains no field that this collector does not know.
    assert_eq!(request.encoded_len(), body.len());
    let mut spans = Vec::new();
    for of_resource in request.resource_spans {
        let service = texts(of_resource.resource.unwrap().attributes).remove("service.name").unwrap();
        for of_scope in of_resource.scope_spans {
            assert_eq!(of_scope.scope.unwrap().name, "sluicegate");
            spans.extend(of_scope.spans.into_iter().map(|span| Span::new(span, &service)));
        }
    }
    spans
}

impl Span {
    fn new(span: SpanMessage, service: &str) -> Self {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Self {
            trace: hex(&span.trace_id),
            span: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            state: span.trace_state,
            name: span.name,
            kind: span.kind,
            start: span.start_time_unix_nano,
            end: span.end_time_unix_nano,
            status: span.status.map_or(0, |status| status.code),
            flags: span.flags,
            attributes: texts(span.attributes),
            service: service.into(),
        }
    }
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |attribute: KeyValue| match attribute.value.unwrap().value.unwrap() {
        Value::Text(text) => (attribute.key, text),
        Value::Integer(number) => (attribute.key, number.to_string()),
    };
    let count = attributes.len();
    let texts: BTreeMap<_, _> = attributes.into_iter().map(text).collect();
    assert_eq!(texts.len(), count, "a key twice");
    texts
}
