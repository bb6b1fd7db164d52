//! Tests of both planes over real sockets, with mutual TLS.

mod certificates;
mod hostile;
mod planes;
mod reports;
mod scopes;
mod simulation;
mod support;
