//! The JSON documents of the application. No document contains a secret, a key or a hash.

mod certificates;
mod consumers;
pub(crate) mod keys;
pub(crate) mod overview;
mod plans;
mod policies;
mod routes;
mod subscriptions;
mod upstreams;

use std::sync::{Arc, Mutex};

use form_urlencoded::parse;
use serde::Serialize;
use serde_json::json;
use sluicegate_admin::explain;

use crate::list::Wanted;
use crate::{Api, Catalogue, Dashboard};
use routes::Known;

/// The documents of one dashboard.
pub(crate) struct Data {
    dashboard: Dashboard,
    /// The routes of the last request, for the next parts of the list.
    routes: Mutex<Option<Known>>,
}

/// The reason why there is no document.
#[derive(Debug)]
pub(crate) enum Absent {
    /// No document has this path.
    Path,
    /// The object does not exist.
    Object(String),
    /// A parameter is invalid.
    Query(String),
}

impl Data {
    pub(crate) fn new(dashboard: Dashboard) -> Arc<Self> {
        Arc::new(Self { dashboard, routes: Mutex::default() })
    }

    /// The document at a path below `/api/`. The call may block.
    pub(crate) fn document(&self, path: &str, query: &str) -> Result<Vec<u8>, Absent> {
        match path {
            "overview" => bytes(&self.overview(query)?),
            "routes" => bytes(&self.routes(&wanted(query)?)),
            "upstreams" => bytes(&self.upstreams(&wanted(query)?)),
            "certificates" => bytes(&self.certificates(&wanted(query)?)),
            "policies" => bytes(&self.policies(&wanted(query)?)),
            "consumers" => bytes(&self.consumers(&wanted(query)?)),
            "plans" => bytes(&self.plans(&wanted(query)?)),
            "subscriptions" => bytes(&self.subscriptions(&wanted(query)?)),
            "keys" => bytes(&self.keys(&wanted(query)?)),
            "apis" => {
                let wanted = wanted(query)?;
                let mut apis = self.dashboard.catalogue.apis();
                apis.retain(|api| wanted.finds(&text_of(api)));
                bytes(&wanted.part(&apis, Clone::clone))
            }
            "api" => self.api(query),
            "problems" => {
                let wanted = wanted(query)?;
                let mut problems = self.dashboard.catalogue.problems();
                problems.retain(|problem| {
                    let texts = [problem.place.as_deref(), problem.object.as_deref()].into_iter().flatten();
                    let own = [problem.severity, &problem.field, &problem.message];
                    let texts: Vec<&str> = texts.chain(own).collect();
                    wanted.finds(&texts.join(" ").to_lowercase())
                });
                bytes(&wanted.part(&problems, Clone::clone))
            }
            "explain" => {
                let described =
                    explain::described(query).map_err(|error| Absent::Query(error.to_string()))?;
                bytes(&self.dashboard.admin.registry.explain(&described))
            }
            _ => Err(Absent::Path),
        }
    }

    /// The hosts of an API, to which its page may connect.
    pub(crate) fn hosts_of(&self, namespace: &str, name: &str) -> Vec<String> {
        let apis = self.dashboard.catalogue.apis();
        let api = apis.into_iter().find(|api| api.namespace == namespace && api.name == name);
        api.into_iter().flat_map(|api| api.environments).flat_map(|environment| environment.hosts).collect()
    }

    /// Frees memory that no request used lately.
    pub(crate) fn forget(&self) {
        routes::forget(&self.routes);
    }

    /// An API with the document of an environment.
    fn api(&self, query: &str) -> Result<Vec<u8>, Absent> {
        let (namespace, name) = (parameter(query, "namespace"), parameter(query, "name"));
        let apis = self.dashboard.catalogue.apis();
        let api = apis.into_iter().find(|api| api.namespace == namespace && api.name == name);
        let api = api.ok_or_else(|| Absent::Object(format!("There is no Api {namespace}/{name}.")))?;
        with_document(&*self.dashboard.catalogue, &api, &api, query)
    }
}

/// An API as a visitor sees it, with the document of the environment that a query names. Without a name, the first environment.
pub(crate) fn with_document(
    catalogue: &dyn Catalogue,
    api: &Api,
    shown: &impl Serialize,
    query: &str,
) -> Result<Vec<u8>, Absent> {
    let wanted = parameter(query, "environment");
    let environment = api.environments.iter().find(|of| wanted.is_empty() || of.name == wanted);
    if environment.is_none() && !wanted.is_empty() {
        let Api { namespace, name, .. } = api;
        return Err(Absent::Object(format!("The Api {namespace}/{name} has no environment {wanted:?}.")));
    }
    let environment = environment.map(|of| &*of.name);
    let document = catalogue.document(&api.namespace, &api.name, environment.unwrap_or_default());
    bytes(&json!({"api": shown, "environment": environment, "document": document}))
}

/// The value of a parameter; empty without the parameter.
pub(crate) fn parameter(query: &str, wanted: &str) -> String {
    let found = parse(query.as_bytes()).find(|(name, _)| name == wanted);
    found.map(|(_, value)| value.into_owned()).unwrap_or_default()
}

/// The text of an API in which a search looks, in lower case.
pub(crate) fn text_of(api: &Api) -> String {
    let hosts = api.environments.iter().flat_map(|environment| &environment.hosts);
    let own = [&api.namespace, &api.name, &api.title, &api.version];
    let texts = own.into_iter().chain(hosts).chain(&api.owner).map(String::as_str).chain([api.state]);
    texts.collect::<Vec<_>>().join(" ").to_lowercase()
}

pub(crate) fn wanted(query: &str) -> Result<Wanted, Absent> {
    Wanted::read(query).map_err(|error| Absent::Query(error.to_string()))
}

pub(crate) fn bytes(document: &impl Serialize) -> Result<Vec<u8>, Absent> {
    serde_json::to_vec(document).map_err(|error| Absent::Query(error.to_string()))
}
