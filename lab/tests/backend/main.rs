//! `sluicegate-lab backend` as a process, and what its clients see.
//!
//! | module | what |
//! |---|---|
//! | `pod` | the process under test, and a client of it |
//! | `answers` | the effect of the URL, echoed headers, rejected requests |
//! | `ends` | what signals do to connections and to connects |
//! | `http2` | the same over HTTP/2, and calls of gRPC |
//! | `journals` | the journal, written before each response |
//! | `options` | accepted and rejected options |

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod answers;
mod ends;
mod http2;
mod journals;
mod options;
mod pod;
