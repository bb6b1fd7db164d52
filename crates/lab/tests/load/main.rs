//! `sluicegate-lab load` against servers of which the truth is known.
//!
//! | module | what |
//! |---|---|
//! | `server` | servers that do what a test says, and the program under test |
//! | `truths` | latencies and rates that were computed by hand |
//! | `errors` | each class of error, provoked |
//! | `tls` | handshakes, good and bad |
//! | `signals` | a load that is ended early |
//! | `options` | what is understood, what is refused, what is written |

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod errors;
mod options;
mod server;
mod signals;
mod tls;
mod truths;
