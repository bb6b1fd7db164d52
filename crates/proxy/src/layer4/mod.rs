//! Below HTTP: connections and datagrams that are passed on without parsing them.
//!
//! | module | purpose |
//! |---|---|
//! | [`connection`] | TCP, and TLS with and without termination |
//! | [`udp`] | datagrams |
//! | [`record`] | counters and logs |

mod connection;
mod record;
mod udp;

pub(crate) use connection::{pass_through, relay, serve};
pub(crate) use udp::serve as serve_datagrams;
