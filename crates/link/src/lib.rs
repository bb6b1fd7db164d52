//! The way between the planes.
mod convert;
mod cut;
mod digest;
mod proto;
mod resource;
mod store;
#[cfg(test)]
mod tests;
