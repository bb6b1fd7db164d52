//! The control plane of Sluicegate: sources, and their translation into the model.
pub mod object;
pub mod problem;
pub mod store;
pub mod translate;
mod locate;
mod manifest;
