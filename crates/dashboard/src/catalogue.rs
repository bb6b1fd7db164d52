//! What the control plane knows beside the configuration: the APIs with their documents, and the problems of objects.

use serde::Serialize;
use sluicegate_model::Visibility;
use sluicegate_model::feature::{Concurrency, Limit, Quota};

/// The knowledge of a control plane. The functions run on a thread that may block.
pub trait Catalogue: Send + Sync {
    /// The APIs, in the order of their names.
    fn apis(&self) -> Vec<Api>;

    /// The OpenAPI document of an environment of an API, as JSON. Without such an environment, the document of the API.
    fn document(&self, namespace: &str, name: &str, environment: &str) -> Option<serde_json::Value>;

    /// The plans, in the order of their names.
    fn plans(&self) -> Vec<Plan>;

    /// The subscriptions, in the order of their names.
    fn subscriptions(&self) -> Vec<Subscription>;

    /// The Consumers with their keys, in the order of their names.
    fn consumers(&self) -> Vec<Consumer>;

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
    /// The number of operations in the document of the API.
    pub operations: usize,
    /// The environments.
    pub environments: Vec<Environment>,
    /// The place where the object was written; `None` for objects of a cluster.
    pub origin: Option<String>,
    /// The visitors of the portal that see the API.
    #[serde(serialize_with = "visitors")]
    pub visible_to: Visibility,
}

/// A plan.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The title.
    pub title: String,
    /// The description.
    pub description: Option<String>,
    /// The rate limits of each subscription.
    pub limits: Vec<Limit>,
    /// The concurrency limits of each subscription.
    pub concurrency: Vec<Concurrency>,
    /// The quotas of each subscription.
    pub quotas: Vec<Quota>,
    /// Whether a new subscription waits for approval.
    pub needs_approval: bool,
    /// The place where the object was written; `None` for objects of a cluster.
    pub origin: Option<String>,
    /// The visitors of the portal that see the plan.
    #[serde(serialize_with = "visitors")]
    pub visible_to: Visibility,
}

/// A subscription.
#[derive(Clone, Debug, Serialize)]
pub struct Subscription {
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The namespace of the Consumer.
    pub consumer_namespace: String,
    /// The name of the Consumer.
    pub consumer: String,
    /// The name of the plan, in the namespace of the subscription.
    pub plan: String,
    /// The APIs, in the namespace of the subscription.
    pub apis: Vec<Subscribed>,
    /// `Active`, `Pending`, `Suspended`, `Rejected` or `Invalid`.
    pub state: &'static str,
    /// The reason for a state other than `Active`.
    pub message: String,
    /// The time of the creation, in seconds since 1970; `None` for objects of a file.
    pub created: Option<i64>,
    /// The program that manages the object from a repository, such as Flux. Its users cannot cancel the subscription.
    pub manager: Option<String>,
    /// The place where the object was written; `None` for objects of a cluster.
    pub origin: Option<String>,
}

/// An API of a subscription.
#[derive(Clone, Debug, Serialize)]
pub struct Subscribed {
    /// The name of the API.
    pub name: String,
    /// The names of operation sets; `None` for all operations.
    pub operation_sets: Option<Vec<String>>,
}

/// A Consumer with its API keys.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The user name that endpoints receive.
    pub username: String,
    /// The keys, in the order of the object.
    pub keys: Vec<Key>,
    /// The place where the object was written; `None` for objects of a cluster.
    pub origin: Option<String>,
}

/// An API key, without its value and its hash.
#[derive(Clone, Debug)]
pub struct Key {
    /// The name, if the key has one.
    pub name: Option<String>,
    /// The end of the validity, in seconds since 1970.
    pub expires: Option<u64>,
    /// Whether the key is revoked.
    pub is_revoked: bool,
    /// The name of the Secret with the key, if a Secret has it.
    pub secret: Option<String>,
}

impl Key {
    /// The state at a time, in seconds since 1970.
    #[must_use]
    pub fn state(&self, now: u64) -> &'static str {
        match self.expires {
            _ if self.is_revoked => "Revoked",
            Some(end) if end <= now => "Expired",
            _ => "Valid",
        }
    }
}

/// The visitors in words.
fn visitors<S: serde::Serializer>(visibility: &Visibility, serializer: S) -> Result<S::Ok, S::Error> {
    match visibility {
        Visibility::Hidden => serializer.serialize_none(),
        Visibility::Public => serializer.serialize_str("all visitors"),
        Visibility::Groups(groups) => serializer.serialize_str(&format!("groups: {}", groups.join(", "))),
    }
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
    /// Whether the environment has a document of its own, in place of the document of the API.
    pub has_own_document: bool,
    /// The number of operations.
    pub operations: usize,
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
