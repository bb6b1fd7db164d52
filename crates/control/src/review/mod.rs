//! The review of an object before the cluster stores the object: the problems that [`translate`] would report for the object.
//!
//! A review parses the object and translates the object together with the objects that it names. The object does not enter the
//! store, so a review changes nothing that the gateway serves. A review starts no process, writes no file and fills in no
//! template.
//!
//! | kind | what a review reports |
//! |---|---|
//! | Ingress of a class that the gateway serves | all problems of the Ingress, and conflicts with other Ingresses |
//! | Ingress of another class | nothing |
//! | kinds of `sluicegate.dev` | the problems within the object |
//!
//! An error of the object itself rejects the object. The state of other objects, such as a Secret that does not exist yet, is
//! only a warning: `kubectl apply --filename DIR` may create objects in any order.

use std::collections::BTreeSet;

use serde_json::Value;
use sluicegate_model::{HostPattern, UpstreamKey};
use tokio::sync::{mpsc, oneshot};

use crate::frontend::ingress::class::{Classes, Dialect};
use crate::manifest::{Document, ParsedObject};
use crate::object::class::IngressClass;
use crate::object::ingress::{Ingress, Rule, RulePath, path_field};
use crate::object::{Kind, Object, ObjectRef, policy};
use crate::problem::{Problem, Severity};
use crate::store::{ServiceRef, Store};
use crate::translate::named::Named;
use crate::translate::{IngressNginx, ObjectName, TranslateOptions, Translation, ingress_nginx, translate};

#[cfg(test)]
mod tests;

/// The maximum number of other Ingresses that a review takes into account for regular expressions and canaries, which bounds the
/// time of a review. Conflicts of paths are found among all Ingresses.
const NEIGHBORS_MAX: usize = 200;

/// The maximum number of reviews that wait for the task that follows the cluster.
const QUEUE: usize = 16;

/// The result of a review. Each text is one line: the object, the field, the problem and the remedy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reviewed {
    /// The errors of the object, which reject it.
    pub errors: Vec<String>,
    /// The other problems.
    pub warnings: Vec<String>,
}

/// The reason why an object is not reviewed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The object is of a kind that no review covers.
    #[error(
        "{0} is not reviewed: the webhook reviews Ingresses and the kinds of sluicegate.dev. Correct the rules of the webhook configuration"
    )]
    Kind(String),
    /// The task that follows the cluster has ended.
    #[error("the process ends")]
    Ends,
}

/// Reviews objects with the objects of a running source.
#[derive(Clone, Debug)]
pub struct Reviews(mpsc::Sender<Question>);

/// An object for the task that has the store.
pub(crate) struct Question {
    parsed: ParsedObject,
    answer: oneshot::Sender<Reviewed>,
}

impl Reviews {
    /// The reviews, and the questions for the task that has the store.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Question>) {
        let (sender, questions) = mpsc::channel(QUEUE);
        (Self(sender), questions)
    }

    /// Reviews an object as written. `object` is `None` for an object whose deletion the cluster asks about.
    ///
    /// # Errors
    ///
    /// If no review covers the kind of the object, or if the process ends.
    pub async fn review(&self, object: Value) -> Result<Reviewed, ReviewError> {
        let parsed = match parse(object)? {
            Ok(parsed) => parsed,
            Err(reviewed) => return Ok(reviewed),
        };
        let (answer, reviewed) = oneshot::channel();
        self.0.send(Question { parsed, answer }).await.map_err(|_| ReviewError::Ends)?;
        reviewed.await.map_err(|_| ReviewError::Ends)
    }
}

impl Question {
    /// Answers with the objects of the store. `is_complete` tells whether all objects of the cluster are known.
    pub(crate) fn answer(self, store: &Store, options: &TranslateOptions, is_complete: bool) {
        let reviewed = match is_complete {
            true => review(store, options, &self.parsed),
            false => Reviewed {
                errors: Vec::new(),
                warnings: vec![format!(
                    "{}: is not checked, because the gateway does not know the objects of the cluster yet",
                    self.parsed.object
                )],
            },
        };
        // The API server may have ended the request.
        let _ = self.answer.send(reviewed);
    }
}

/// Parses an object; the inner error is the verdict about an unreadable object.
fn parse(mut object: Value) -> Result<Result<ParsedObject, Reviewed>, ReviewError> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (kind, version) = (text("kind"), text("apiVersion"));
    let is_reviewed =
        |kind: &Kind| *kind == Kind::Ingress || kind.api_versions()[0].starts_with(policy::GROUP);
    let known = Kind::parse(kind).filter(|known| known.api_versions().contains(&version));
    if known.filter(is_reviewed).is_none() {
        return Err(ReviewError::Kind(format!("{version:.80} {kind:.80}")));
    }
    let document = Document::of_value(&mut object);
    let faults = document.faults.iter().map(|fault| fault.message.clone()).collect();
    let parsed = document.objects.into_iter().next();
    Ok(parsed.ok_or(Reviewed { errors: faults, warnings: Vec::new() }))
}

/// Reviews a parsed object.
fn review(store: &Store, options: &TranslateOptions, parsed: &ParsedObject) -> Reviewed {
    let problems = match &parsed.form {
        Some(Object::Ingress(ingress)) => {
            let Some(dialect) = Classes::new(store, options).dialect(ingress) else {
                return Reviewed::default();
            };
            let nginx = ingress_nginx(store, options).filter(|_| dialect == Dialect::IngressNginx);
            IngressReview { store, options, parsed, ingress, dialect, nginx }.problems()
        }
        _ => of_object(parsed),
    };
    let mut reviewed = Reviewed::default();
    for problem in problems {
        let texts = match problem.severity {
            Severity::Error if problem.cause.is_none() => &mut reviewed.errors,
            _ => &mut reviewed.warnings,
        };
        let text = problem.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    reviewed
}

/// The problems within an object.
fn of_object(parsed: &ParsedObject) -> Vec<Problem> {
    let mut alone = Store::default();
    alone.set_object(parsed);
    alone.problems().collect()
}

/// The review of an Ingress that the gateway serves.
struct IngressReview<'r> {
    store: &'r Store,
    options: &'r TranslateOptions,
    parsed: &'r ParsedObject,
    ingress: &'r Ingress,
    dialect: Dialect,
    /// The options of the dialect of ingress-nginx, if it is the dialect of the Ingress.
    nginx: Option<IngressNginx>,
}

impl IngressReview<'_> {
    fn problems(&self) -> Vec<Problem> {
        let object = &self.parsed.object;
        let translation = self.translate();
        let mut problems = of_object(self.parsed);
        problems.extend(translation.problems.into_iter().chain(translation.upstream_problems.into_values()));
        problems.retain(|problem| problem.object.as_ref() == Some(object) && !self.is_unknown(problem));
        problems.extend(self.conflicts());
        problems
    }

    /// Whether the cause of a problem may only be that the gateway has not read an object. The gateway reads ConfigMaps, and most
    /// Secrets, once a served object names them.
    fn is_unknown(&self, problem: &Problem) -> bool {
        let of_kind = |object: &&ObjectRef| matches!(object.kind, Kind::Secret | Kind::ConfigMap);
        problem.cause.as_ref().filter(of_kind).is_some_and(|object| !self.store.knows(object))
    }

    /// Translates the Ingress with the objects that it names, and with its neighbors.
    fn translate(&self) -> Translation {
        let mut store = Store::default();
        let mut copied = BTreeSet::new();
        let classes = self.store.all::<IngressClass>().map(|(object, ..)| object.clone());
        let neighbors = self.neighbors().into_iter().map(|(object, _)| object.clone());
        let configmap = self.options.configmap.as_ref().map(ObjectName::configmap);
        for object in classes.chain(neighbors).chain(configmap) {
            store.copy(&object, self.store);
        }
        store.set_object(self.parsed);
        loop {
            let translation = translate(&store, self.options);
            let mut named = self.named(&store, &translation);
            named.retain(|object| copied.insert(object.clone()) && self.store.knows(object));
            if named.is_empty() {
                return translation;
            }
            for object in named {
                store.copy(&object, self.store);
            }
        }
    }

    /// The Services, Secrets and ConfigMaps that the Ingress names, as far as the objects in the store tell.
    fn named(&self, store: &Store, translation: &Translation) -> Vec<ObjectRef> {
        let Named { certificates, others, .. } = Named::find(store, self.options);
        let of_upstream = |key: &UpstreamKey| (key.namespace.clone(), key.service.clone());
        let mut services: BTreeSet<ServiceRef> =
            translation.config.upstreams.keys().map(of_upstream).collect();
        if let Some(nginx) = &self.nginx {
            let namespace = &self.parsed.object.namespace;
            let settings = self.ingress.nginx.settings(&nginx.prefix, &nginx.globals, namespace);
            let own = settings.errors.default_backend.iter().cloned();
            services.extend(own.map(|name| (namespace.clone(), name)));
            let of_all = nginx.default_backend.clone();
            services.extend(of_all.map(|of| (of.namespace, of.name)));
        }
        let services =
            services.into_iter().map(|(namespace, name)| ObjectRef { kind: Kind::Service, namespace, name });
        certificates.into_iter().chain(others).chain(services).collect()
    }

    /// The other served Ingresses of the same dialect with a host of the Ingress.
    fn neighbors(&self) -> Vec<(&ObjectRef, &Ingress)> {
        let mut neighbors: Vec<_> = self.others().filter(|(_, other)| self.shares_host(other)).collect();
        // The result must not depend on the order of a hash table.
        neighbors.sort_unstable_by_key(|(object, other)| (other.created.is_none(), other.created, *object));
        neighbors.truncate(NEIGHBORS_MAX);
        neighbors
    }

    /// The other Ingresses of the same dialect that the gateway serves.
    fn others(&self) -> impl Iterator<Item = (&ObjectRef, &Ingress)> {
        let classes = Classes::new(self.store, self.options);
        let all = self.store.all::<Ingress>().map(|(object, ingress, _)| (object, ingress));
        all.filter(move |(object, ingress)| {
            **object != self.parsed.object && classes.dialect(ingress) == Some(self.dialect)
        })
    }

    fn shares_host(&self, other: &Ingress) -> bool {
        let mut hosts = other.rules.iter().map(|rule| &rule.host);
        hosts.any(|host| self.ingress.rules.iter().any(|rule| rule.host == *host))
    }

    /// The paths that another Ingress has for the same host. As in ingress-nginx, a canary shares the path of its main Ingress,
    /// and an Ingress that has a path already keeps the path.
    fn conflicts(&self) -> Vec<Problem> {
        let object = &self.parsed.object;
        let stored = self.store.all::<Ingress>().find(|(known, ..)| *known == object);
        let stored = stored.map(|(_, ingress, _)| ingress);
        let is_canary = self.is_canary(object, self.ingress);
        let others: Vec<_> =
            self.others().filter(|(of, other)| self.is_canary(of, other) == is_canary).collect();
        let mut conflicts = Vec::new();
        for (rule, path) in paths(self.ingress) {
            if stored.is_some_and(|stored| self.has(stored, &rule.host, path)) {
                continue;
            }
            let owner = others.iter().find(|(_, other)| self.has(other, &rule.host, path));
            let Some((owner, _)) = owner else { continue };
            let host = &rule.host;
            conflicts.push(Problem {
                field: format!("{}.path", path_field(rule.index, path.index)),
                ..Problem::of_cluster(
                    Severity::Error,
                    Some(object),
                    format!("{owner} already has the path {:?} of host {host}. Change the path, the host or {owner}", path.written),
                )
            });
        }
        conflicts
    }

    /// Whether an Ingress has a path of a host. Paths of ingress-nginx conflict even if their types differ.
    fn has(&self, ingress: &Ingress, host: &HostPattern, path: &RulePath) -> bool {
        let is_same = |other: &RulePath| match self.dialect {
            Dialect::Own => other.pattern == path.pattern,
            Dialect::IngressNginx => nginx_path(other) == nginx_path(path),
        };
        paths(ingress).any(|(rule, other)| rule.host == *host && is_same(other))
    }

    fn is_canary(&self, object: &ObjectRef, ingress: &Ingress) -> bool {
        self.nginx.as_ref().is_some_and(|nginx| {
            ingress.nginx.settings(&nginx.prefix, &nginx.globals, &object.namespace).canary.is_canary
        })
    }
}

/// The path of a location of ingress-nginx.
fn nginx_path(path: &RulePath) -> &str {
    if path.written.is_empty() { "/" } else { &path.written }
}

/// The paths of an Ingress.
fn paths(ingress: &Ingress) -> impl Iterator<Item = (&Rule, &RulePath)> {
    ingress.rules.iter().flat_map(|rule| rule.paths.iter().map(move |path| (rule, path)))
}
