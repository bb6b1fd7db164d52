//! Compares two ingress controllers: both receive the same requests, and each difference between their responses is reported.
//!
//! Input: the addresses of both controllers, and requests from an access log, a HAR file, or the hosts and paths of Ingresses. Output:
//! the share of equal responses, and every difference.
//!
//! The comparison must not harm: it sends only safe methods (RFC 9110, 9.2.1) unless the operator names others, at a bounded rate, and one
//! pair of requests at a time.
//!
//! | module | content |
//! |---|---|
//! | [`source`] | requests from logs, HAR files and Ingresses |
//! | [`client`] | one request to one controller |
//! | [`compare`] | the differences between two responses |
//! | [`mod@run`] | all requests, one pair at a time, and the report |

pub mod client;
pub mod compare;
pub mod run;
pub mod source;

pub use client::{Controller, ControllerError};
pub use compare::{Difference, Rules};
pub use run::{DiffReport, Mismatch, Options, run};
pub use source::{Request, SourceError};
