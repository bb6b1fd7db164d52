//! The record of a finished request.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use sluicegate_model::{ObjectId, UpstreamKey};

use super::trace::Trace;
use crate::counters::{ConsumerShard, RouteShard};
use crate::request::{ClientView, HeadView};

/// A finished request, however it ended. Each sink takes what it needs. Making the record allocates nothing.
pub(crate) struct RequestRecord<'r> {
    /// The head as the client sent it.
    pub(crate) head: HeadView<'r>,
    pub(crate) client: ClientView,
    /// The number by which the gateway names the request.
    pub(crate) request_id: u128,
    /// The time from the last byte of the head to the last byte of the response.
    pub(crate) duration: Duration,
    /// The status that the client received; 0 if none.
    pub(crate) status: u16,
    /// Bytes of the response, head included.
    pub(crate) bytes: u64,
    /// Whether the response ended properly.
    pub(crate) is_complete: bool,
    /// Why the request failed, if it did.
    pub(crate) reason: Option<&'static str>,
    pub(crate) route: Option<RouteRecord<'r>>,
    pub(crate) upstream: Option<&'r UpstreamKey>,
    pub(crate) endpoint: Option<SocketAddr>,
    /// The time from the last attempt to the head of the endpoint's response.
    pub(crate) endpoint_duration: Option<Duration>,
    pub(crate) attempts: u32,
    /// The consumer that made the request, and its counters.
    pub(crate) consumer: Option<(&'r ObjectId, &'r ConsumerShard)>,
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
    pub(crate) shard: &'r RouteShard,
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
    /// The query parameters that hold credentials, on any route.
    pub(crate) all_secrets: &'h [Box<str>],
}

impl RequestRecord<'_> {
    /// When the request began.
    pub(crate) fn started(&self) -> SystemTime {
        SystemTime::now() - self.duration
    }
}

/// The words of the unchecked first line, for people.
pub(crate) fn request_line(buf: &[u8]) -> [&[u8]; 3] {
    const LONGEST: usize = 4096;
    let line = buf.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut words = line[..line.len().min(LONGEST)].split(|byte| *byte == b' ');
    [(); 3].map(|()| words.next().unwrap_or_default())
}
