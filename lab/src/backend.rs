//! `sluicegate-lab backend`: the server behind the gateways, a pod of the experiments.
//!
//! The URL determines the response. The backend can record the received requests, and ends as pods do, gracefully or
//! not. The backend shares the machine with the measured gateway, so it has one thread and does no unnecessary work.
//!
//! | module | content |
//! |---|---|
//! | [`args`] | the options |
//! | [`life`] | a late start, signals, the ways to end |
//! | [`server`] | its listeners |
//! | [`connections`] | the open connections, and how they are closed |
//! | [`answer`] | from a request to its response |
//! | [`shape`] | the response that the URL asks for |
//! | [`body`] | bodies of responses |
//! | [`journal`] | the received requests that must not arrive twice |

mod answer;
mod args;
mod body;
mod connections;
pub(crate) mod journal;
mod life;
mod server;
mod shape;

pub(crate) use self::args::BackendArgs;
pub(crate) use self::life::run;
