//! HTTP between clients and endpoints.
//!
//! | module | what |
//! |---|---|
//! | `connection` | a client connection: wait, read a head, serve it, again |
//! | `http2` | an HTTP/2 connection of a client: a request for each stream |
//! | `wire` | what both have in common: how a request's body comes, and a response goes |
//! | `exchange` | the life of a request, phase by phase |
//! | `attempt` | one try at one endpoint, up to the head of its response |
//! | `upload` | the request's way to the endpoint |
//! | `download` | the response's way to the client |
//! | `compress` | whether a response is compressed on that way |
//! | `tunnel` | what follows a 101 |
//! | `chunks` | chunked bodies, decoded and encoded again |
//! | `encode` | heads as they are passed on |
//! | `reply` | what Sluicegate answers itself |
//! | `record` | what is counted and logged of a request |

mod attempt;
mod chunks;
mod compress;
pub(crate) mod connection;
mod download;
mod encode;
mod exchange;
mod http2;
mod record;
mod reply;
mod tunnel;
mod upload;
mod wire;
