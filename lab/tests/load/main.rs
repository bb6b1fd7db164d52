//! `sluicegate-lab load` against servers of which the truth is known.
//!
//! | module | what |
//! |---|---|
//! | `server` | servers with a behaviour that the test sets, and the program under test |
//! | `truths` | latencies and rates that were computed by hand |
//! | `errors` | each class of error, provoked |
//! | `tls` | handshakes, good and bad |
//! | `signals` | a load that is ended early |
//! | `http2` | the same of HTTP/2, and its own errors |
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
