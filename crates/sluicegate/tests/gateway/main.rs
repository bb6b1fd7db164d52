//! Gateways as processes of their own.

mod life;
mod manifests;
mod planes;
mod restrictions;
mod support;
