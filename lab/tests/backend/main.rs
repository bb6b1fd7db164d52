//! `sluicegate-lab backend` as a process, as its clients see it.
//!
//! | module | contents |
//! |---|---|
//! | `pod` | the process under test, and a client of it |
//! | `answers` | the effect of the URL, echoed headers, rejected requests |
//! | `ends` | the effect of signals on connections and on connects |
//! | `http2` | the same over HTTP/2, and gRPC calls |
//! | `journals` | the journal, written before each response |
//! | `options` | accepted and rejected options |

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod answers;
mod ends;
mod http2;
mod journals;
mod options;
mod pod;
