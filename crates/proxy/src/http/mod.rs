//! HTTP between clients and endpoints.
//!
//! | module | what |
//! |---|---|
//! | `connection` | a client connection: wait, read a head, serve it, again |
//! | `http2` | an HTTP/2 connection of a client: a request for each stream |
//! | `wire` | what both have in common: how a request's body comes, and a response goes |
//! | `exchange` | the life of a request, phase by phase |
//! | `admit` | whether the policies of its route let a request pass |
//! | `steer` | what the policy for its traffic makes of it |
//! | `cached` | answers that are kept, and what is kept of answers |
//! | `mirror` | copies for others |
//! | `question` | what services are asked about a request |
//! | `attempt` | one try at one endpoint, up to the head of its response |
//! | `respond` | the response's head, and what follows it |
//! | `refuse` | what becomes of a request that no endpoint answers |
//! | `upload` | the request's way to the endpoint |
//! | `download` | the response's way to the client |
//! | `compress` | whether a response is compressed on that way |
//! | `protocols` | which protocols a 101 may change to |
//! | `tunnel` | what follows a 101 |
//! | `chunks` | chunked bodies, decoded and encoded again |
//! | `encode` | heads as they are passed on |
//! | `reply` | what Sluicegate answers itself |
//! | `record` | what is counted and logged of a request |

mod admit;
mod attempt;
mod cached;
mod chunks;
mod compress;
pub(crate) mod connection;
mod download;
mod encode;
mod exchange;
mod http2;
mod mirror;
mod pace;
mod protocols;
mod question;
mod record;
mod refuse;
mod reply;
mod respond;
mod steer;
mod tunnel;
mod upload;
mod wire;

pub(crate) use encode::is_same_name;
