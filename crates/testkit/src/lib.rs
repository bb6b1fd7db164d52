//! What Sluicegate is tested with: in-process back ends that behave as they are told, a raw client, a load
//! that checks every answer.
//!
//! In: of ours only what [`gateway`] starts. The HTTP here is written apart from the gateway's own parser, since a tool that
//! shares the code under test shares its mistakes. Out: what whole-gateway tests, the demo and the floods
//! lean on.
//!
//! | module | what it is |
//! |---|---|
//! | [`backend`] | programmable HTTP/1.1 servers that count, keep a journal, die and come back |
//! | [`client`] | a client that sends exactly these bytes and understands the answer |
//! | [`mod@decode`] | compressed bodies, and beginnings of them |
//! | [`gateway`] | a gateway's data plane in this process, on a free port |
//! | [`http2_backend`] | a back end that speaks HTTP/2 |
//! | [`hole`] | an address of loopback that swallows connects |
//! | [`load`] | many kept-alive connections, closed loop or constant rate, every answer checked |
//! | [`redis`] | a real server of Redis or Valkey, killed and paused |
//! | [`stream`], [`tls`], [`terminator`] | connections over TLS; a certificate authority; TLS in front of a back end |

mod any_certificate;
pub mod backend;
pub mod client;
pub mod decode;
pub mod gateway;
pub mod hole;
mod http2;
pub mod http2_backend;
pub mod load;
pub mod redis;
pub mod stream;
pub mod terminator;
pub mod tls;
mod wire;
