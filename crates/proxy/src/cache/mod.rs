//! Responses that are kept for others: a shared cache by RFC 9111, one for each policy that wants it.
//!
//! | module | what |
//! |---|---|
//! | `directives` | what heads say of caching |
//! | `targeted` | the structured fields in which a response speaks to caches like this one |
//! | `draft` | the stored part of a response's head, and the rules of storing |
//! | `entry` | a stored response: the requests that it answers, and the form |
//! | `validators`, `range` | conditions and parts that clients ask for |
//! | `lines` | header lines of heads that were written here |
//! | `store` | all of them, within a limit of bytes |
//! | `flight` | requests in flight that several clients wait for |
//! | `account` | the bytes |
//! | `collector` | a response on its way to the client, collected |
//!
//! A response answers a request if an endpoint would have been asked for the same: what is compared are the bytes that go to
//! the endpoint, not what the client sent. What is done with it in the life of a request is in `http/cached/`.

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
pub(crate) use flight::{Flight, Outcome, UnderWay, WAIT};
pub(crate) use lines::{sent, without_conditions};
pub(crate) use range::{Part, asks_for_part, is_about_parts};
pub(crate) use store::{Cache, Entered};
pub(crate) use validators::is_condition;
