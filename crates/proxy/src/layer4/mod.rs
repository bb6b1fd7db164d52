//! Below HTTP: connections and datagrams that are passed on without being understood.
//!
//! | module | what |
//! |---|---|
//! | [`table`] | who gets what comes at which listener |
//! | [`connection`] | TCP, and TLS that is passed through |
//! | [`record`] | what is counted and logged of it |

mod connection;
mod record;
mod table;

pub(crate) use connection::{Arrival, pass_through, serve};
pub(crate) use table::{Layer4Table, Target};
