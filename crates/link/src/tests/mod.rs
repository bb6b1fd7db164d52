mod model;
mod resources;
mod schema;
