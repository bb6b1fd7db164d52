//! The messages that say how requests of a route go on.

use prost::{Enumeration, Message};

use super::{ObjectId, UpstreamBalance, UpstreamKey};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Traffic {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<ObjectId>,
    #[prost(message, optional, tag = "2")]
    pub(crate) timeouts: Option<RouteTimeouts>,
    #[prost(message, optional, tag = "3")]
    pub(crate) retries: Option<Retries>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) request_body: Option<u64>,
    #[prost(message, optional, tag = "5")]
    pub(crate) request_headers: Option<HeaderRules>,
    #[prost(message, optional, tag = "6")]
    pub(crate) response_headers: Option<HeaderRules>,
    #[prost(message, optional, tag = "7")]
    pub(crate) rewrite_path: Option<PathRewrite>,
    #[prost(string, optional, tag = "8")]
    pub(crate) rewrite_host: Option<String>,
    #[prost(message, optional, tag = "9")]
    pub(crate) redirect: Option<Redirect>,
    #[prost(message, optional, tag = "10")]
    pub(crate) fixed: Option<Fixed>,
    #[prost(message, optional, tag = "11")]
    pub(crate) delay: Option<Delay>,
    #[prost(message, optional, tag = "12")]
    pub(crate) abort: Option<Abort>,
    #[prost(message, optional, tag = "13")]
    pub(crate) split: Option<Split>,
    #[prost(message, optional, tag = "14")]
    pub(crate) choice: Option<Choice>,
    #[prost(message, optional, tag = "15")]
    pub(crate) mirror: Option<Mirror>,
    #[prost(message, optional, tag = "16")]
    pub(crate) cache: Option<Cache>,
    #[prost(uint64, optional, tag = "17")]
    pub(crate) response_body: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RouteTimeouts {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) request: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) connect: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) response_head: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) upstream_idle: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) request_body: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub(crate) tunnel_idle: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Retries {
    #[prost(uint32, tag = "1")]
    pub(crate) attempts: u32,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) per_attempt: Option<u64>,
    #[prost(uint32, repeated, tag = "3")]
    pub(crate) statuses: Vec<u32>,
    #[prost(message, optional, tag = "4")]
    pub(crate) budget: Option<RetryBudget>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RetryBudget {
    #[prost(uint32, tag = "1")]
    pub(crate) percent: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) min_per_second: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderRules {
    #[prost(message, repeated, tag = "1")]
    pub(crate) set: Vec<HeaderLine>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) add: Vec<HeaderLine>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) remove: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderLine {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PathRewrite {
    #[prost(enumeration = "PathRewriteKind", tag = "1")]
    pub(crate) kind: i32,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Redirect {
    #[prost(bool, optional, tag = "1")]
    pub(crate) https: Option<bool>,
    #[prost(string, optional, tag = "2")]
    pub(crate) host: Option<String>,
    #[prost(uint32, optional, tag = "3")]
    pub(crate) port: Option<u32>,
    #[prost(message, optional, tag = "4")]
    pub(crate) path: Option<PathRewrite>,
    #[prost(uint32, tag = "5")]
    pub(crate) status: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Fixed {
    #[prost(uint32, tag = "1")]
    pub(crate) status: u32,
    #[prost(string, optional, tag = "2")]
    pub(crate) content_type: Option<String>,
    #[prost(string, tag = "3")]
    pub(crate) body: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Delay {
    #[prost(uint32, tag = "1")]
    pub(crate) percent: u32,
    #[prost(uint64, tag = "2")]
    pub(crate) time: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Abort {
    #[prost(uint32, tag = "1")]
    pub(crate) percent: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) status: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Split {
    #[prost(uint32, tag = "1")]
    pub(crate) weight: u32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) branches: Vec<Branch>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Branch {
    #[prost(message, optional, tag = "1")]
    pub(crate) upstream: Option<UpstreamKey>,
    #[prost(uint32, tag = "2")]
    pub(crate) weight: u32,
    #[prost(message, repeated, tag = "3")]
    pub(crate) matches: Vec<RequestMatch>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) excludes: Vec<RequestMatch>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestMatch {
    #[prost(enumeration = "RequestMatchPlace", tag = "1")]
    pub(crate) place: i32,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, optional, tag = "3")]
    pub(crate) value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Choice {
    #[prost(enumeration = "UpstreamBalance", tag = "1")]
    pub(crate) balance: i32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) hash: Vec<HashPart>,
    #[prost(message, optional, tag = "3")]
    pub(crate) cookie: Option<AffinityCookie>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HashPart {
    #[prost(enumeration = "HashPartKind", tag = "1")]
    pub(crate) kind: i32,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AffinityCookie {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) max_age: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Mirror {
    #[prost(message, optional, tag = "1")]
    pub(crate) upstream: Option<UpstreamKey>,
    #[prost(uint32, tag = "2")]
    pub(crate) percent: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Cache {
    #[prost(uint64, tag = "1")]
    pub(crate) max_size: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) max_response_size: u64,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) default_time: Option<u64>,
    #[prost(uint64, tag = "4")]
    pub(crate) stale_if_error: u64,
    #[prost(string, repeated, tag = "5")]
    pub(crate) key_headers: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum PathRewriteKind {
    None = 0,
    Full = 1,
    Prefix = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum RequestMatchPlace {
    None = 0,
    Header = 1,
    Cookie = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum HashPartKind {
    None = 0,
    Address = 1,
    Header = 2,
    Cookie = 3,
    Query = 4,
    Path = 5,
}
