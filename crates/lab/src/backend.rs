//! `sluicegate-lab backend`: what gateways are given to send requests to, a pod of the experiments.
//!
//! It answers what the URL asks for, tells which requests it was given, and ends as pods do, well or badly. It shares the
//! machine with what is measured, so it does little: one thread, and no work that an answer does not need.
//!
//! | module | what |
//! |---|---|
//! | [`args`] | the options |
//! | [`life`] | starting late, what signals ask for, the ways to end |
//! | [`server`] | its listeners |
//! | [`connections`] | the connections that are open, and how they are closed |
//! | [`answer`] | from a request to its answer |
//! | [`shape`] | what the URL asks for |
//! | [`body`] | bodies of answers |
//! | [`journal`] | the requests that came and must not come twice |

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
