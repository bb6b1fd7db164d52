//! Below HTTP: connections and datagrams that are passed on without parsing them.
//!
//! | module | purpose |
//! |---|---|
//! | [`table`] | routes of each listener |
//! | [`connection`] | TCP, and TLS passthrough |
//! | [`udp`] | datagrams |
//! | [`record`] | counters and logs |

mod connection;
mod record;
mod table;
mod udp;

pub(crate) use connection::{Arrival, pass_through, serve};
pub(crate) use table::{Layer4Table, Target};
pub(crate) use udp::serve as serve_datagrams;
