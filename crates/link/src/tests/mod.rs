mod guarded;
mod model;
mod policy;
mod resources;
mod schema;
mod secrets;
mod seeds;
mod traffic;
