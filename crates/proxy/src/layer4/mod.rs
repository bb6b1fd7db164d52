//! Below HTTP: connections and datagrams that are passed on without being understood.
//!
//! | module | what |
//! |---|---|
//! | [`table`] | who gets what comes at which listener |
//! | [`connection`] | TCP, and TLS that is passed through |
//! | [`udp`] | datagrams |
//! | [`record`] | what is counted and logged of it |

mod connection;
mod record;
mod table;
mod udp;

pub(crate) use connection::{Arrival, pass_through, serve};
pub(crate) use table::{Layer4Table, Target};
pub(crate) use udp::serve as serve_datagrams;
