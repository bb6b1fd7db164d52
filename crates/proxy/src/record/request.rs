//! The record of a finished request.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use sluicegate_http1::Known;
use sluicegate_model::access_log::LogFormat;
use sluicegate_model::rule::ApiOperation;
use sluicegate_model::value::Template;
use sluicegate_model::{ObjectId, UpstreamKey};

use super::trace::Trace;
use crate::counters::{ConsumerShard, EndpointTimes, RouteStats};
use crate::request::{ClientView, HeadView};
use crate::rule::{RouteIndex, Table};
use crate::template::TemplateView;
use crate::tls::Session;

/// A finished request, however it ended. Each sink takes what it needs. Making the record allocates nothing.
pub(crate) struct RequestRecord<'r> {
    /// The head as the client sent it.
    pub(crate) head: HeadView<'r>,
    pub(crate) client: ClientView,
    /// The TLS session of the client.
    pub(crate) tls: Option<&'r Session>,
    /// The format of the line in the access log, and the request as the format shows it.
    pub(crate) format: Option<(&'r LogFormat, TemplateView<'r>)>,
    /// The name of the span if the rule sets one, and the request as the name shows it.
    pub(crate) span_name: Option<(&'r Template, TemplateView<'r>)>,
    /// The number by which the gateway names the request.
    pub(crate) request_id: u128,
    /// The time from the last byte of the head to the last byte of the response.
    pub(crate) duration: Duration,
    /// The status that the client received; 0 if none.
    pub(crate) status: u16,
    /// Bytes of the request, head included, as far as the gateway has read the body.
    pub(crate) request_bytes: u64,
    /// Bytes of the response, head included.
    pub(crate) bytes: u64,
    /// Bytes of the head of the response, as far as they are bytes of the connection.
    pub(crate) head_bytes: u64,
    /// Whether the response ended properly.
    pub(crate) is_complete: bool,
    /// Why the request failed, if it did.
    pub(crate) reason: Option<&'static str>,
    pub(crate) route: Option<RouteRecord<'r>>,
    pub(crate) upstream: Option<&'r UpstreamKey>,
    pub(crate) endpoint: Option<SocketAddr>,
    /// The time from the last attempt to the head of the endpoint's response.
    pub(crate) endpoint_duration: Option<Duration>,
    /// The status that the endpoint sent.
    pub(crate) endpoint_status: Option<u16>,
    /// Bytes of the body that the endpoint sent.
    pub(crate) endpoint_bytes: u64,
    /// The times at the endpoint, if the endpoint has responded.
    pub(crate) endpoint_times: Option<EndpointTimes>,
    /// The time from the last attempt to the end of the response, if there was an attempt.
    pub(crate) upstream_duration: Option<Duration>,
    pub(crate) attempts: u32,
    /// The canary that the request was sent to.
    pub(crate) canary: Option<&'r UpstreamKey>,
    /// The consumer that made the request, and its counters.
    pub(crate) consumer: Option<(&'r ObjectId, &'r ConsumerShard)>,
    /// The number of the consumer in the route's table.
    pub(crate) consumer_number: Option<u32>,
    /// The plan by which the consumer called: `namespace/name`.
    pub(crate) plan: Option<&'r str>,
    /// The subscription by which the consumer called.
    pub(crate) subscription: Option<&'r ObjectId>,
    /// The policy that denied the request.
    pub(crate) policy: Option<&'r ObjectId>,
    /// The limit of the policy that is reached.
    pub(crate) limit: Option<&'r str>,
    /// The limits in a dry run that would have rejected the request: `namespace/policy/limit`.
    pub(crate) dry_runs: &'r [String],
    /// The gateway's span, if the request has one.
    pub(crate) trace: Option<&'r Trace>,
    /// The effect of the cache.
    pub(crate) cache: Option<&'static str>,
    /// The messages that do not match the description of their operation: `request`, `response` or `both`.
    pub(crate) invalid: Option<&'static str>,
    /// Whether the access log has the request.
    pub(crate) is_logged: bool,
    /// The query parameters that hold credentials, on the request's route.
    pub(crate) secrets: &'r [Box<str>],
    /// The query parameters that hold credentials, on any route.
    pub(crate) all_secrets: &'r [Box<str>],
}

/// The route of a request.
pub(crate) struct RouteRecord<'r> {
    pub(crate) id: &'r ObjectId,
    /// The path pattern, for a request with a span; `None` for a fallback.
    pub(crate) pattern: Option<&'r str>,
    pub(crate) stats: &'r RouteStats,
    pub(crate) worker: usize,
    /// The table of the route, and its number there.
    pub(crate) table: &'r Table,
    pub(crate) index: RouteIndex,
    /// The operation of an API.
    pub(crate) api: Option<&'r ApiOperation>,
}

/// A head that was rejected or incomplete.
pub(crate) struct RejectedHead<'h> {
    pub(crate) client: std::net::IpAddr,
    /// The received part of the head.
    pub(crate) buf: &'h [u8],
    pub(crate) status: u16,
    pub(crate) reason: &'static str,
    /// The size of the response.
    pub(crate) bytes: usize,
    pub(crate) duration: Duration,
    /// The format of the line in the access log.
    pub(crate) format: Option<&'h LogFormat>,
    /// Whether the access log has the request.
    pub(crate) is_logged: bool,
    /// The query parameters that hold credentials, on any route.
    pub(crate) all_secrets: &'h [Box<str>],
}

impl<'r> RequestRecord<'r> {
    /// When the request began.
    pub(crate) fn started(&self) -> SystemTime {
        SystemTime::now() - self.duration
    }

    /// The ID of the request: of a trusted client, or else of the gateway.
    pub(crate) fn id(&self) -> Cow<'r, [u8]> {
        request_id(self.head, self.client.is_trusted, self.request_id)
    }
}

/// The ID of a request: of a trusted client, or else of the gateway (`own`).
pub(crate) fn request_id(head: HeadView<'_>, is_trusted: bool, own: u128) -> Cow<'_, [u8]> {
    match head.header(Known::XRequestId).unwrap_or_default() {
        sent if is_trusted && !sent.is_empty() => Cow::Borrowed(sent),
        _ => Cow::Owned(format!("{own:032x}").into_bytes()),
    }
}

/// The words of the unchecked first line, for people.
pub(crate) fn request_line(buf: &[u8]) -> [&[u8]; 3] {
    const LONGEST: usize = 4096;
    let line = buf.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut words = line[..line.len().min(LONGEST)].split(|byte| *byte == b' ');
    [(); 3].map(|()| words.next().unwrap_or_default())
}
