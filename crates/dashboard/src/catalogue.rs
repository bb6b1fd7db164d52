//! What the control plane knows beside the configuration: the APIs with their documents, and the problems of objects.

use serde::Serialize;

/// The knowledge of a control plane. The functions run on a thread that may block.
pub trait Catalogue: Send + Sync {
    /// The APIs, in the order of their names.
    fn apis(&self) -> Vec<Api>;

    /// The OpenAPI document of an API, as JSON.
    fn document(&self, namespace: &str, name: &str) -> Option<serde_json::Value>;

    /// The problems of objects, errors first.
    fn problems(&self) -> Vec<Problem>;
}

/// An API in service.
#[derive(Clone, Debug, Serialize)]
pub struct Api {
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The title.
    pub title: String,
    /// The version.
    pub version: String,
    /// The responsible team or person.
    pub owner: Option<String>,
    /// The state of the lifecycle.
    pub state: &'static str,
    /// The time of the deprecation, in seconds since 1970.
    pub deprecation: Option<i64>,
    /// The time of the end, in seconds since 1970.
    pub sunset: Option<i64>,
    /// The place of the version in requests, in words.
    pub versioning: Option<String>,
    /// The number of operations.
    pub operations: usize,
    /// The environments.
    pub environments: Vec<Environment>,
    /// The place where the object was written; `None` for objects of a cluster.
    pub origin: Option<String>,
}

/// An environment of an API.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// The name.
    pub name: String,
    /// The host patterns.
    pub hosts: Vec<String>,
    /// The path before the paths of the document.
    pub base_path: String,
    /// The key of the upstream.
    pub upstream: String,
    /// Whether the environment names a certificate.
    pub https: bool,
}

/// A problem of an object or a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// `error`, `warning` or `note`.
    pub severity: &'static str,
    /// The file with the line, if the object was read from a file.
    pub place: Option<String>,
    /// The object, `Ingress namespace/name`.
    pub object: Option<String>,
    /// The field of the object; empty for the whole object.
    pub field: String,
    /// The error and the remedy.
    pub message: String,
}
