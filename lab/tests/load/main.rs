//! `sluicegate-lab load` against servers with known behaviour.
//!
//! | module | contents |
//! |---|---|
//! | `server` | servers with a behaviour that the test sets, and the program under test |
//! | `truths` | latencies and rates that were computed by hand |
//! | `errors` | each class of error, provoked |
//! | `tls` | successful and failing handshakes |
//! | `signals` | a load that a signal ends early |
//! | `http2` | the same over HTTP/2, and the errors that only HTTP/2 has |
//! | `streams` | HTTP/2 servers with a behaviour that the test sets |
//! | `options` | accepted and rejected options, and the output |

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod errors;
mod http2;
mod options;
mod server;
mod signals;
mod streams;
mod tls;
mod truths;
