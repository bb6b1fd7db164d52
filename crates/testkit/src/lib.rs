//! The test tools of Sluicegate: programmable in-process backends, a raw client, a load generator that checks every
//! response.
//!
//! Only [`gateway`] runs code of the data plane. The other modules do not use the gateway's parser, because a test tool
//! must not share the faults of the tested code. Whole-gateway tests, the demo and the floods use this crate.
//!
//! | module | contents |
//! |---|---|
//! | [`backend`] | programmable HTTP/1.1 servers that count, keep a journal, die and restart |
//! | [`browser`] | a browser that stores cookies, without scripts |
//! | [`client`] | a client that sends exactly the given bytes, and parses the response |
//! | [`mod@decode`] | decoding of compressed bodies and their beginnings |
//! | [`gateway`] | a gateway's data plane in this process, on a free port |
//! | [`http2_backend`] | a backend for HTTP/2 |
//! | [`hole`] | a loopback address that drops connects |
//! | [`load`] | many persistent connections, closed loop or constant rate, every response checked |
//! | [`provider`] | an OpenID provider, which also introspects tokens |
//! | [`redis`] | a real Redis or Valkey server, which tests kill and pause |
//! | [`stream`], [`tls`], [`terminator`] | connections over TLS; a CA; TLS termination in front of a backend |

pub mod backend;
pub mod browser;
pub mod client;
pub mod decode;
pub mod gateway;
pub mod hole;
mod http2;
pub mod http2_backend;
pub mod http3;
pub mod load;
pub mod provider;
pub mod redis;
pub mod stream;
pub mod terminator;
pub mod tls;
mod wire;
