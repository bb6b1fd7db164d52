//! Cached responses: a shared cache by RFC 9111 for each policy that enables one.
//!
//! | module | purpose |
//! |---|---|
//! | `directives` | cache directives in heads |
//! | `targeted` | structured fields with directives for CDN caches |
//! | `draft` | the stored part of a response's head, and the rules of storing |
//! | `entry` | a cached response: the requests that it serves, and its form |
//! | `validators`, `range` | conditions and ranges of requests |
//! | `lines` | header lines of heads that the gateway has written |
//! | `store` | all cached responses, within a memory limit |
//! | `flight` | requests in flight that several clients wait for |
//! | `account` | the memory limit and use |
//! | `collector` | collects a response on its way to the client |
//!
//! A cached response serves a request if the endpoint would receive the same request: the cache compares the bytes for
//! the endpoint, not the client's bytes. `http/cached/` uses the cache in the life of a request.

mod account;
mod collector;
mod directives;
mod draft;
mod entry;
mod flight;
mod lines;
mod range;
mod store;
mod targeted;
mod validators;

pub(crate) use collector::Collector;
pub(crate) use directives::{RequestDirectives, withdraws};
pub(crate) use draft::{Asked, Draft, Times, add_part, add_target};
pub(crate) use entry::{Compared, Entry, is_of_bytes};
pub(crate) use flight::{Flight, InFlight, Outcome, WAIT};
pub(crate) use lines::{sent, without_conditions};
pub(crate) use range::{Part, asks_for_part, is_range_line};
pub(crate) use store::{Cache, CacheLookup};
pub(crate) use validators::is_condition;
