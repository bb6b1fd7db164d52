//! Responses that are kept for others: a shared cache by RFC 9111, one for each policy that wants it.
//!
//! | module | what |
//! |---|---|
//! | `directives` | what heads say of caching |
//! | `entry` | a response that is kept: how long it is fresh, whom it answers |
//! | `store` | all of them, within a limit of bytes; who asks the endpoint for what several want |
//! | `account` | the bytes |
//! | `collector` | a response on its way to the client, collected |
//!
//! A response answers a request if an endpoint would have been asked for the same: what is compared are the bytes that go to
//! the endpoint, not what the client sent. What is done with it in the life of a request is in `http/cached.rs`.

mod account;
mod collector;
mod directives;
mod entry;
mod store;

pub(crate) use collector::Collector;
pub(crate) use directives::{RequestDirectives, withdraws};
pub(crate) use entry::{Asked, Draft, Entry, Times, is_condition, sent};
pub(crate) use store::{Cache, Entered, Flight, Outcome, UnderWay, WAIT};
