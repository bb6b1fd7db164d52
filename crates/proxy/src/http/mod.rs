//! HTTP between clients and endpoints.
//!
//! | module | purpose |
//! |---|---|
//! | `connection` | a client connection: wait, read a head, serve it, again |
//! | `http2` | an HTTP/2 connection of a client: a request for each stream |
//! | `http3` | an HTTP/3 connection of a client |
//! | `stream_head` | the heads of requests on streams of HTTP/2 and HTTP/3 |
//! | `wire` | the common part of all versions: request bodies in, responses out |
//! | `exchange` | the life of a request, phase by phase |
//! | `target` | the target of a request: rejected targets, the path for the lookup |
//! | `view` | the views of a request for features, and the edits by features |
//! | `admit` | the security policy and the limits of a request's route |
//! | `login` | the steps of a login by OpenID Connect |
//! | `filter` | the filters `ExternalAuth` of a request's listener and route |
//! | `gather` | bodies that the gateway buffers for authorization services |
//! | `steer` | the traffic policy of a request's route |
//! | `cached` | the cache in the life of a request |
//! | `mirror` | mirrored requests |
//! | `question` | questions to authorization services |
//! | `attempt` | one attempt at one endpoint, up to the head of its response |
//! | `respond` | the response's head, and its body or tunnel |
//! | `pages` | error pages of a Service in place of responses |
//! | `kong` | error bodies and headers in the form of Kong |
//! | `problem` | problem documents of refusals on routes of APIs |
//! | `refuse` | responses to requests that no endpoint serves |
//! | `upload` | the path of the request to the endpoint |
//! | `download` | the path of the response to the client |
//! | `compress` | compression of responses |
//! | `protocols` | the protocols to which a 101 may change |
//! | `tunnel` | the tunnel after a 101 |
//! | `chunks` | chunked bodies, decoded and encoded again |
//! | `encode` | forwarded heads |
//! | `reply` | the gateway's own responses |
//! | `record` | counters and logs of a request |

mod admit;
mod attempt;
mod cached;
mod chunks;
mod compress;
pub(crate) mod connection;
mod download;
pub(crate) mod encode;
pub(crate) mod exchange;
mod filter;
mod gather;
mod http2;
pub(crate) mod http3;
mod kong;
mod login;
mod mirror;
mod pace;
mod pages;
mod problem;
pub(crate) mod protocols;
mod question;
mod record;
mod refuse;
mod reply;
mod respond;
pub(crate) mod steer;
mod stream_head;
pub(crate) mod target;
mod tunnel;
mod upload;
pub(crate) mod validate;
pub(crate) mod view;
mod wire;
