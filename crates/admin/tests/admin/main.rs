//! Tests of the admin interface of a running data plane.

mod documents;
mod exposition;
mod gateway;
mod metrics;
mod nginx;
mod paths;
