//! The APIs in service, for people, each with its environments and its document; and the terms on which callers use them: plans,
//! subscriptions, and Consumers with their keys.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use sluicegate_model::Visibility;
use sluicegate_model::feature::{Concurrency, Limit, Quota};

use crate::documents::Documents;
use crate::manifest::read_openapi;
use crate::merge::policy::standing::{Reason, Standing};
use crate::object::api::contract::Contract;
use crate::object::api::lifecycle::{LifecycleState, VersionPlace};
use crate::object::api::{Api, Environment};
use crate::object::plan::written::ApprovalMode;
use crate::object::plan::{Plan, Subscription};
use crate::object::policy::consumer::Consumer;
use crate::object::{Kind, ObjectRef};
use crate::problem::Origin;
use crate::store::Store;

/// The objects that a source serves, for the dashboard and the portal. The objects of each kind are in the order of their names.
#[derive(Debug, Default)]
pub struct Published {
    /// The APIs.
    pub apis: Vec<PublishedApi>,
    /// The plans.
    pub plans: Vec<PublishedPlan>,
    /// The subscriptions.
    pub subscriptions: Vec<PublishedSubscription>,
    /// The Consumers.
    pub consumers: Vec<PublishedConsumer>,
}

/// A `Plan` in service.
#[derive(Debug)]
pub struct PublishedPlan {
    /// The object.
    pub object: ObjectRef,
    /// The title; the name of the object without a title.
    pub title: Box<str>,
    /// The description.
    pub description: Option<Box<str>>,
    /// The rate limits of each subscription.
    pub limits: Vec<Limit>,
    /// The concurrency limits of each subscription.
    pub concurrency: Vec<Concurrency>,
    /// The quotas of each subscription.
    pub quotas: Vec<Quota>,
    /// Whether a new subscription waits for approval.
    pub needs_approval: bool,
    /// The visitors of the developer portal that may ask for a subscription.
    pub visibility: Visibility,
    /// The place where the object was written; `None` for objects of a cluster.
    pub origin: Option<Place>,
}

/// A `Subscription` in service.
#[derive(Debug)]
pub struct PublishedSubscription {
    /// The object.
    pub object: ObjectRef,
    /// The Consumer.
    pub consumer: ObjectRef,
    /// The plan.
    pub plan: ObjectRef,
    /// The APIs, each with the names of its operation sets; `None` for all operations.
    pub apis: Vec<(ObjectRef, Option<Vec<Arc<str>>>)>,
    /// `Active`, `Pending`, `Suspended`, `Rejected` or `Invalid`.
    pub state: &'static str,
    /// The reason for a state other than `Active`; empty without a reason.
    pub message: Box<str>,
    /// The time of the creation, in seconds since 1970; `None` for objects of a file.
    pub created: Option<i64>,
    /// The program that manages the object from a repository, such as Flux. The portal does not cancel the subscription.
    pub manager: Option<Box<str>>,
    /// The place where the object was written; `None` for objects of a cluster.
    pub origin: Option<Place>,
}

/// A `Consumer` in service.
#[derive(Debug)]
pub struct PublishedConsumer {
    /// The object.
    pub object: ObjectRef,
    /// The user name that endpoints receive.
    pub username: Box<str>,
    /// The API keys, without their values and hashes.
    pub keys: Vec<PublishedKey>,
    /// The place where the object was written; `None` for objects of a cluster.
    pub origin: Option<Place>,
}

/// An API key of a Consumer.
#[derive(Debug)]
pub struct PublishedKey {
    /// The name, if the entry has one.
    pub name: Option<Box<str>>,
    /// The end of the validity, in seconds since 1970.
    pub expires: Option<u64>,
    /// Whether the key is revoked.
    pub is_revoked: bool,
    /// The name of the Secret with the key, if a Secret has it.
    pub secret: Option<Arc<str>>,
}

/// The place where an object was written.
#[derive(Clone, Debug)]
pub struct Place {
    /// The file.
    pub file: Arc<Path>,
    /// The first line of the document, from 1.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

impl Place {
    fn of(origin: &Origin) -> Option<Self> {
        Some(Self { file: origin.file.clone()?, line: origin.line })
    }
}

/// An `Api` in service.
#[derive(Clone, Debug)]
pub struct PublishedApi {
    /// The namespace of the object.
    pub namespace: Arc<str>,
    /// The name of the object.
    pub name: Arc<str>,
    /// The title; empty without a title.
    pub title: Box<str>,
    /// The version; empty without a version.
    pub version: Box<str>,
    /// The team or the person who is responsible.
    pub owner: Option<Box<str>>,
    /// The state of the lifecycle, such as `Published`.
    pub state: &'static str,
    /// The time of the deprecation, in seconds since 1970.
    pub deprecation: Option<i64>,
    /// The time of the end, in seconds since 1970.
    pub sunset: Option<i64>,
    /// The place of the version in requests, in words.
    pub versioning: Option<Box<str>>,
    /// The environments.
    pub environments: Vec<PublishedEnvironment>,
    /// The place where the object was written, `file:line`; `None` for objects of a cluster.
    pub origin: Option<Place>,
    /// The visitors of the developer portal that see the API.
    pub visibility: Visibility,
    contract: Option<Arc<Contract>>,
}

/// An environment of an API.
#[derive(Clone, Debug)]
pub struct PublishedEnvironment {
    /// The name.
    pub name: Arc<str>,
    /// The host patterns.
    pub hosts: Vec<Box<str>>,
    /// The path before the paths of the document; empty for `/`.
    pub base_path: Box<str>,
    /// The key of the upstream.
    pub upstream: Box<str>,
    /// Whether the environment names a certificate.
    pub has_certificate: bool,
    /// Whether the environment has a document of its own, in place of the document of the API.
    pub has_own_document: bool,
    contract: Option<Arc<Contract>>,
}

impl PublishedApi {
    /// The number of operations in the document of the API.
    #[must_use]
    pub fn operations(&self) -> usize {
        operations(self.contract.as_ref())
    }

    /// The document of an environment as JSON, or the document of the API if there is no such environment. `None` if there is no
    /// readable document. Each call reads the document again.
    #[must_use]
    pub fn document(&self, environment: &str) -> Option<serde_json::Value> {
        let environment = self.environments.iter().find(|of| *of.name == *environment);
        let contract = environment.map_or(&self.contract, |of| &of.contract).as_ref()?;
        read_openapi(&contract.text.unpack()?).ok()
    }
}

impl PublishedEnvironment {
    /// The number of operations.
    #[must_use]
    pub fn operations(&self) -> usize {
        operations(self.contract.as_ref())
    }
}

fn operations(contract: Option<&Arc<Contract>>) -> usize {
    contract.map_or(0, |contract| contract.document.operations.len())
}

/// Lists the objects that a store serves. `standings` are the states of these objects.
pub(crate) fn published(store: &Store, documents: &Documents, standings: &[Standing]) -> Published {
    Published {
        apis: apis(store, documents),
        plans: plans(store),
        subscriptions: subscriptions(store, standings),
        consumers: consumers(store),
    }
}

fn plans(store: &Store) -> Vec<PublishedPlan> {
    let published = store.all::<Plan>().map(|(object, plan, origin)| PublishedPlan {
        object: object.clone(),
        title: plan.title.clone().unwrap_or_else(|| (&*object.name).into()),
        description: plan.description.clone(),
        limits: plan.terms.limits.limits.clone(),
        concurrency: plan.terms.limits.concurrency.clone(),
        quotas: plan.terms.quotas.clone(),
        needs_approval: plan.approval == ApprovalMode::Manual,
        visibility: plan.visibility.clone(),
        origin: Place::of(origin),
    });
    let mut published: Vec<_> = published.collect();
    published.sort_by(|one, other| by_name(&one.object, &other.object));
    published
}

fn subscriptions(store: &Store, standings: &[Standing]) -> Vec<PublishedSubscription> {
    let of_subscriptions = standings.iter().filter(|standing| standing.object.kind == Kind::Subscription);
    let standings: HashMap<&ObjectRef, &Standing> =
        of_subscriptions.map(|standing| (&standing.object, standing)).collect();
    let published = store.all::<Subscription>().map(|(object, subscription, origin)| {
        let standing = standings.get(object);
        PublishedSubscription {
            object: object.clone(),
            consumer: subscription.consumer.clone(),
            plan: subscription.plan.clone(),
            apis: subscription.apis.iter().map(|of| (of.api.clone(), of.sets.clone())).collect(),
            state: match standing.map(|standing| standing.reason) {
                Some(Reason::Accepted) => "Active",
                Some(Reason::Pending) => "Pending",
                Some(Reason::Suspended) if !subscription.is_suspended => "Rejected",
                Some(Reason::Suspended) => "Suspended",
                _ => "Invalid",
            },
            message: standing.map(|standing| standing.message.as_str()).unwrap_or_default().into(),
            created: subscription.created,
            manager: subscription.manager.clone(),
            origin: Place::of(origin),
        }
    });
    let mut published: Vec<_> = published.collect();
    published.sort_by(|one, other| by_name(&one.object, &other.object));
    published
}

fn consumers(store: &Store) -> Vec<PublishedConsumer> {
    let published = store.all::<Consumer>().map(|(object, consumer, origin)| {
        let keys = consumer.keys.iter().map(|(_, key)| PublishedKey {
            name: key.name.clone(),
            expires: key.expires,
            is_revoked: key.is_revoked,
            secret: key.secret().map(|value| value.secret.name.clone()),
        });
        PublishedConsumer {
            object: object.clone(),
            username: consumer.username.clone(),
            keys: keys.collect(),
            origin: Place::of(origin),
        }
    });
    let mut published: Vec<_> = published.collect();
    published.sort_by(|one, other| by_name(&one.object, &other.object));
    published
}

fn by_name(one: &ObjectRef, other: &ObjectRef) -> Ordering {
    (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name))
}

fn apis(store: &Store, documents: &Documents) -> Vec<PublishedApi> {
    let published = store.all::<Api>().map(|(object, api, origin)| {
        // The translation reports a missing document.
        let contract = api.document.as_ref().and_then(|document| document.find(store, documents).contract());
        let of_document = contract.as_ref().map(|contract| &contract.document);
        let text = |own: &Option<Box<str>>, other: Option<&Box<str>>| own.as_ref().or(other).cloned();
        let version = text(&api.version, of_document.map(|document| &document.version)).unwrap_or_default();
        PublishedApi {
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            title: text(&api.title, of_document.map(|document| &document.title)).unwrap_or_default(),
            owner: api.owner.clone(),
            state: state(api.lifecycle.state),
            deprecation: api.lifecycle.deprecation,
            sunset: api.lifecycle.sunset,
            versioning: api.versioning.as_ref().map(|versioning| {
                let default = if versioning.is_default { ", and the default version" } else { "" };
                let name = &versioning.name;
                match versioning.place {
                    VersionPlace::Path => "the path segment after the base path".into(),
                    VersionPlace::Header => format!("the header {name}{default}").into(),
                    VersionPlace::Query => format!("the query parameter {name}{default}").into(),
                }
            }),
            environments: api
                .environments
                .iter()
                .map(|written| {
                    let contract = match &written.document {
                        Some(own) => own.as_ref().and_then(|of| of.find(store, documents).contract()),
                        None => contract.clone(),
                    };
                    let document = contract.as_ref().map(|contract| &contract.document);
                    let server = document.and_then(|document| document.servers.first());
                    let base = written.base_path.as_deref().or(server.map(|server| &*server.path));
                    let base = base.unwrap_or_default();
                    let in_path = api.versioning.as_ref().is_some_and(|of| of.place == VersionPlace::Path);
                    let version = text(&api.version, document.map(|document| &document.version));
                    let version = version.filter(|_| in_path).map(|version| format!("/{version}"));
                    let base = format!("{base}{}", version.unwrap_or_default());
                    environment(written, base, contract)
                })
                .collect(),
            version,
            origin: Place::of(origin),
            visibility: api.visibility.clone(),
            contract,
        }
    });
    let mut published: Vec<_> = published.collect();
    published.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    published
}

fn environment(written: &Environment, base: String, contract: Option<Arc<Contract>>) -> PublishedEnvironment {
    PublishedEnvironment {
        name: written.name.clone(),
        hosts: written.hosts.iter().map(|host| host.to_string().into()).collect(),
        base_path: base.into(),
        upstream: written
            .upstream
            .as_ref()
            .map_or_else(|| "mock".into(), |upstream| upstream.to_string().into()),
        has_certificate: written.certificate.is_some(),
        has_own_document: written.document.is_some(),
        contract,
    }
}

fn state(state: LifecycleState) -> &'static str {
    match state {
        LifecycleState::Created => "Created",
        LifecycleState::PreReleased => "PreReleased",
        LifecycleState::Published => "Published",
        LifecycleState::Deprecated => "Deprecated",
        LifecycleState::Blocked => "Blocked",
        LifecycleState::Retired => "Retired",
    }
}

/// A text, compressed: a document takes a tenth of its length.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Packed(Box<[u8]>);

impl Packed {
    pub(crate) fn new(text: &str) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        // Writing to memory does not fail.
        let packed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
        Self(packed.unwrap_or_default().into())
    }

    fn unpack(&self) -> Option<String> {
        let mut text = String::new();
        DeflateDecoder::new(&*self.0).read_to_string(&mut text).ok()?;
        Some(text)
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packed bytes", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const API: &str = r#"
apiVersion: sluicegate.dev/v1alpha1
kind: Api
metadata: {name: pets, namespace: shop}
spec:
  owner: Team Pets
  versioning: {in: Path}
  document:
    inline: |
      openapi: 3.1.0
      info: {title: Pets, version: "2"}
      servers: [{url: https://api.test/base}]
      paths: {/pets: {get: {summary: Lists pets}}}
  environments:
  - {name: production, hosts: [api.test], backend: {service: pets, port: http}}
  - name: next
    hosts: [next.test]
    backend: {service: pets, port: http}
    document:
      inline: |
        openapi: 3.1.0
        info: {title: Pets, version: "3"}
        servers: [{url: https://api.test/next}]
        paths: {/pets: {get: {}}, /owners: {get: {summary: Lists owners}}}
"#;

    #[test]
    fn published_api_has_the_facts_of_its_object_and_of_its_document() {
        let mut store = Store::default();
        store.set_file(Path::new("shop.yaml"), API);
        let apis = apis(&store, &Documents::default());
        let [api] = &apis[..] else { panic!("{apis:?}") };
        assert_eq!((&*api.title, &*api.version, api.owner.as_deref()), ("Pets", "2", Some("Team Pets")));
        assert_eq!((api.state, api.operations()), ("Published", 1));
        assert_eq!(&*api.environments[0].base_path, "/base/2");
        assert_eq!(api.origin.as_ref().map(ToString::to_string).as_deref(), Some("shop.yaml:2"));
        let document = api.document("production").expect("a document");
        assert_eq!(document["paths"]["/pets"]["get"]["summary"], "Lists pets");
    }

    #[test]
    fn environment_has_the_facts_of_its_own_document() {
        let mut store = Store::default();
        store.set_file(Path::new("shop.yaml"), API);
        let apis = apis(&store, &Documents::default());
        let [production, next] = &apis[0].environments[..] else { panic!("{apis:?}") };
        assert_eq!((production.has_own_document, production.operations()), (false, 1));
        assert_eq!((next.has_own_document, next.operations(), &*next.base_path), (true, 2, "/next/3"));
        let document = apis[0].document("next").expect("a document");
        assert_eq!(document["paths"]["/owners"]["get"]["summary"], "Lists owners");
    }
}
