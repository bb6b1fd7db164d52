//! The admin interface over a running data plane.

mod documents;
mod exposition;
mod gateway;
mod metrics;
mod paths;
