//! Changes of objects where they are written: in a manifest, or in a cluster with the rights of the client.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use kube::Client;
use kube::api::{
    Api, DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams, Preconditions,
};
use serde_json::{Map, Value, json};
use sluicegate_model::Decision;

use crate::keys::{ConsumerKeys, KeyError};
use crate::manifest::{read_yaml, write_yaml};
use crate::object::{Kind, ObjectRef, manager};
use crate::source::cluster::client::ClientError;

/// The folder of new objects, below the directory of manifests.
const NEW: &str = "portal";

/// One change of files at a time: two changes of one file at once would lose one of them.
static FILES: Mutex<()> = Mutex::new(());

/// The reason why an object is not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// There is no client for the cluster.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The API server does not read or change the object.
    #[error("the API server rejects the change: {0}")]
    Cluster(kube::Error),
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The file does not have the object as a document of its own.
    #[error("{} has no document with {object}: write one, or name its namespace", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The object.
        object: ObjectRef,
    },
    /// The object has no readable specification.
    #[error("{0} has no readable spec")]
    Unreadable(ObjectRef),
    /// An object with the name of a new object exists.
    #[error("{0} exists already")]
    Exists(ObjectRef),
    /// An operator has decided against a Subscription.
    #[error("an operator has rejected or suspended {0}, so its user cannot cancel it")]
    Decided(ObjectRef),
    /// Another program manages a Subscription.
    #[error("{by} manages {object} in a repository and would write it again: remove it there")]
    Managed {
        /// The Subscription.
        object: ObjectRef,
        /// The name of the program.
        by: Box<str>,
    },
    /// The Subscription is of another Consumer than the user saw.
    #[error("{0} is of another Consumer now")]
    Reassigned(ObjectRef),
    /// There is no place for a new object.
    #[error("a new object needs a directory of manifests, and --manifests names a file")]
    NoFolder,
    /// The key cannot be changed.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// The kind of an [`EditError`], for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditFault {
    /// The request is wrong as such.
    Invalid,
    /// The identity is unknown to the API server.
    Unauthenticated,
    /// The identity does not have the right.
    Denied,
    /// The object does not exist.
    Missing,
    /// The object is in another state than the change needs.
    Conflict,
    /// The file or the API server is unavailable.
    Unavailable,
}

/// The attempts to change an object that another process changes at the same time.
const ATTEMPTS: u32 = 5;

impl From<kube::Error> for EditError {
    fn from(error: kube::Error) -> Self {
        Self::Cluster(error)
    }
}

impl EditError {
    /// Whether the change is tried again after this attempt, the first being 1. Another process, such as the writer of the status, may
    /// change the object between the reading and the writing.
    fn is_tried_again(&self, attempt: u32) -> bool {
        attempt < ATTEMPTS && matches!(self, Self::Cluster(kube::Error::Api(status)) if status.code == 409)
    }

    /// The kind of the error.
    #[must_use]
    pub fn fault(&self) -> EditFault {
        match self {
            Self::Cluster(kube::Error::Api(status)) => match status.code {
                400 | 422 => EditFault::Invalid,
                401 => EditFault::Unauthenticated,
                403 => EditFault::Denied,
                404 => EditFault::Missing,
                409 => EditFault::Conflict,
                _ => EditFault::Unavailable,
            },
            Self::Missing { .. } | Self::Key(KeyError::NoSuchKey { .. }) => EditFault::Missing,
            Self::Exists(_)
            | Self::Decided(_)
            | Self::Managed { .. }
            | Self::Reassigned(_)
            | Self::Key(
                KeyError::Exists(_) | KeyError::TooMany | KeyError::Valid(_) | KeyError::NotValid(_),
            ) => EditFault::Conflict,
            Self::Key(KeyError::Time | KeyError::Name(_)) => EditFault::Invalid,
            Self::Client(_)
            | Self::Cluster(_)
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::Unreadable(_)
            | Self::NoFolder
            | Self::Key(KeyError::Random) => EditFault::Unavailable,
        }
    }
}

/// The place of an object that is to be changed.
#[derive(Clone)]
pub enum Edited<'e> {
    /// A document of this file. The change writes the document anew, without its comments. Other documents stay as they are.
    File(&'e Path),
    /// A cluster, with the rights of this client.
    Cluster(&'e Client),
}

/// The place of new objects.
#[derive(Clone)]
pub enum Creation<'e> {
    /// A folder below this directory of manifests.
    Directory(&'e Path),
    /// A cluster, with the rights of this client.
    Cluster(&'e Client),
}

impl Edited<'_> {
    /// Changes the specification of an object. If `change` fails, nothing changes. In a cluster, if another change comes between,
    /// the API server rejects the change.
    ///
    /// # Errors
    ///
    /// The object cannot be read or written, or `change` fails.
    pub async fn change<T, E: Into<EditError>>(
        &self,
        object: &ObjectRef,
        mut change: impl FnMut(&mut Map<String, Value>) -> Result<T, E>,
    ) -> Result<T, EditError> {
        match self {
            Self::File(path) => change_file(path, object, change),
            Self::Cluster(client) => {
                let mut attempt = 1;
                loop {
                    match change_cluster(client, object, &mut change).await {
                        Err(error) if error.is_tried_again(attempt) => attempt += 1,
                        result => return result,
                    }
                }
            }
        }
    }

    /// Removes a Subscription of a Consumer, unless an operator has decided against it, or another program manages it. The check and
    /// the removal are one step: a decision that comes between prevents the removal.
    ///
    /// # Errors
    ///
    /// The Subscription cannot be read or removed, is of another Consumer, has a decision against the Consumer, or is managed by
    /// another program.
    pub async fn cancel(&self, subscription: &ObjectRef, consumer: &ObjectRef) -> Result<(), EditError> {
        match self {
            Self::File(path) => remove_from_file(path, subscription, |spec, metadata| {
                check_cancel((spec, metadata), subscription, consumer)
            }),
            Self::Cluster(client) => {
                let mut attempt = 1;
                loop {
                    match cancel_in_cluster(client, subscription, consumer).await {
                        Err(error) if error.is_tried_again(attempt) => attempt += 1,
                        result => return result,
                    }
                }
            }
        }
    }

    /// Changes the keys of a Consumer.
    ///
    /// # Errors
    ///
    /// As [`change`](Self::change).
    pub async fn change_keys<T>(
        &self,
        consumer: &ObjectRef,
        mut change: impl FnMut(&mut ConsumerKeys<'_>) -> Result<T, KeyError>,
    ) -> Result<T, EditError> {
        self.change(consumer, |spec| change(&mut ConsumerKeys::of(spec))).await
    }
}

async fn cancel_in_cluster(
    client: &Client,
    subscription: &ObjectRef,
    consumer: &ObjectRef,
) -> Result<(), EditError> {
    let api = api(client, subscription);
    let found = api.get(&subscription.name).await?;
    let unreadable = || EditError::Unreadable(subscription.clone());
    let spec = found.data["spec"].as_object().ok_or_else(unreadable)?;
    check_cancel((spec, &found.metadata), subscription, consumer)?;
    let preconditions = Preconditions {
        uid: found.metadata.uid.clone(),
        resource_version: found.metadata.resource_version.clone(),
    };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    api.delete(&subscription.name, &params).await?;
    Ok(())
}

async fn change_cluster<T, E: Into<EditError>>(
    client: &Client,
    object: &ObjectRef,
    change: impl FnOnce(&mut Map<String, Value>) -> Result<T, E>,
) -> Result<T, EditError> {
    let api = api(client, object);
    let found = api.get(&object.name).await?;
    let before = match &found.data["spec"] {
        Value::Null => Map::new(),
        Value::Object(spec) => spec.clone(),
        _ => return Err(EditError::Unreadable(object.clone())),
    };
    let mut after = before.clone();
    let result = change(&mut after).map_err(Into::into)?;
    let mut patch = Map::new();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in after {
        if before.get(&name) != Some(&value) {
            patch.insert(name, value);
        }
    }
    if !patch.is_empty() {
        let version = found.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": patch});
        api.patch(&object.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(result)
}

fn api(client: &Client, object: &ObjectRef) -> Api<DynamicObject> {
    let resource = object.kind.resource(object.kind.api_versions()[0]);
    Api::namespaced_with(client.clone(), &object.namespace, &resource)
}

fn change_file<T, E: Into<EditError>>(
    file: &Path,
    object: &ObjectRef,
    change: impl FnOnce(&mut Map<String, Value>) -> Result<T, E>,
) -> Result<T, EditError> {
    let _one = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let text = fs::read_to_string(file).map_err(|error| EditError::Read { path: file.into(), error })?;
    let mut documents = documents(&text);
    let found = documents.iter_mut().find_map(|document| {
        let written = read_yaml(document).ok()?;
        is_written(&written, object).then_some((document, written))
    });
    let Some((document, mut written)) = found else {
        return Err(EditError::Missing { path: file.into(), object: object.clone() });
    };
    let unreadable = || EditError::Unreadable(object.clone());
    let fields = written.as_object_mut().ok_or_else(unreadable)?;
    let spec = fields.entry("spec").or_insert_with(|| json!({}));
    if spec.is_null() {
        *spec = json!({});
    }
    let spec = spec.as_object_mut().ok_or_else(unreadable)?;
    let before = spec.clone();
    let result = change(spec).map_err(Into::into)?;
    if *spec != before {
        let has_separator = document.starts_with("---");
        *document = text_of(&written, file);
        if has_separator {
            document.insert_str(0, "---\n");
        }
        save(file, &documents.concat())?;
    }
    Ok(result)
}

/// Whether the user of a Consumer may cancel a Subscription with this specification and this metadata.
fn check_cancel(
    (spec, metadata): (&Map<String, Value>, &ObjectMeta),
    subscription: &ObjectRef,
    consumer: &ObjectRef,
) -> Result<(), EditError> {
    let reference = &spec.get("consumerRef").unwrap_or(&Value::Null);
    let namespace = reference["namespace"].as_str().unwrap_or(&subscription.namespace);
    if reference["name"] != *consumer.name || *namespace != *consumer.namespace {
        return Err(EditError::Reassigned(subscription.clone()));
    }
    if Decision::is_against(spec) {
        return Err(EditError::Decided(subscription.clone()));
    }
    match manager::of(metadata.labels.as_ref(), metadata.annotations.as_ref()) {
        Some(by) => Err(EditError::Managed { object: subscription.clone(), by }),
        None => Ok(()),
    }
}

/// Removes the document of an object from a file, and a file without documents.
fn remove_from_file(
    file: &Path,
    object: &ObjectRef,
    check: impl FnOnce(&Map<String, Value>, &ObjectMeta) -> Result<(), EditError>,
) -> Result<(), EditError> {
    let _one = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let text = fs::read_to_string(file).map_err(|error| EditError::Read { path: file.into(), error })?;
    let mut documents = documents(&text);
    let found = documents.iter().enumerate().find_map(|(index, document)| {
        let written = read_yaml(document).ok()?;
        is_written(&written, object).then_some((index, written))
    });
    let Some((index, written)) = found else {
        return Err(EditError::Missing { path: file.into(), object: object.clone() });
    };
    let unreadable = || EditError::Unreadable(object.clone());
    let metadata = serde_json::from_value(written["metadata"].clone()).map_err(|_| unreadable())?;
    check(written["spec"].as_object().ok_or_else(unreadable)?, &metadata)?;
    documents.remove(index);
    let rest = documents.concat();
    match rest.trim().is_empty() {
        true => fs::remove_file(file).map_err(|error| EditError::Write { path: file.into(), error }),
        false => save(file, &rest),
    }
}

/// Whether a document is the object.
fn is_written(document: &Value, object: &ObjectRef) -> bool {
    let metadata = &document["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or("default");
    document["kind"] == *object.kind.as_str()
        && metadata["name"] == *object.name
        && *namespace == *object.namespace
}

/// The text of a document in the language of the file.
fn text_of(document: &Value, file: &Path) -> String {
    let is_json = file.extension().is_some_and(|extension| extension == "json");
    let mut text = match is_json {
        true => format!("{document:#}"),
        false => write_yaml(document),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The documents of a file, each with its separator. Together they are the file.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "---" {
            documents.push(String::new());
        }
        if let Some(last) = documents.last_mut() {
            last.push_str(line);
        }
    }
    documents
}

/// Replaces a file at once: the gateway never reads a half-written file.
fn save(file: &Path, text: &str) -> Result<(), EditError> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let hidden = file.with_file_name(format!(".{name}.new"));
    let write = || {
        fs::write(&hidden, text)?;
        if let Ok(metadata) = fs::metadata(file) {
            fs::set_permissions(&hidden, metadata.permissions())?;
        }
        fs::rename(&hidden, file)
    };
    write().map_err(|error| EditError::Write { path: file.into(), error })
}

impl Creation<'_> {
    /// Writes a new object with this specification.
    ///
    /// # Errors
    ///
    /// The object exists, or cannot be written.
    pub async fn create(&self, object: &ObjectRef, spec: Value) -> Result<(), EditError> {
        let document = json!({
            "apiVersion": object.kind.api_versions()[0],
            "kind": object.kind.as_str(),
            "metadata": {
                "namespace": object.namespace,
                "name": object.name,
                "labels": {manager::MANAGED_BY.0: manager::MANAGED_BY.1},
            },
            "spec": spec,
        });
        match self {
            Self::Cluster(client) => {
                let unreadable = |_| EditError::Unreadable(object.clone());
                let document: DynamicObject = serde_json::from_value(document).map_err(unreadable)?;
                match api(client, object).create(&PostParams::default(), &document).await {
                    Ok(_) => Ok(()),
                    Err(kube::Error::Api(status)) if status.code == 409 => {
                        Err(EditError::Exists(object.clone()))
                    }
                    Err(error) => Err(error.into()),
                }
            }
            Self::Directory(dir) => create_file(dir, object, &document),
        }
    }
}

fn create_file(dir: &Path, object: &ObjectRef, document: &Value) -> Result<(), EditError> {
    let _one = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    if !dir.is_dir() {
        return Err(EditError::NoFolder);
    }
    let folder = dir.join(NEW);
    fs::create_dir_all(&folder).map_err(|error| EditError::Write { path: folder.clone(), error })?;
    // Names of objects have no path separator.
    let kind = object.kind.as_str().to_lowercase();
    let name = format!("{kind}-{}-{}.yaml", object.namespace, object.name);
    if name.contains('/') {
        return Err(EditError::Unreadable(object.clone()));
    }
    let file = folder.join(name);
    if file.exists() {
        return Err(EditError::Exists(object.clone()));
    }
    save(&file, &text_of(document, &file))
}

/// The specification of a new Subscription.
#[must_use]
pub fn new_subscription(consumer: &ObjectRef, plan: &ObjectRef, api: &ObjectRef) -> Value {
    json!({
        "consumerRef": {"name": consumer.name, "namespace": consumer.namespace},
        "planRef": {"name": plan.name},
        "apis": [{"name": api.name}],
    })
}

/// A reference to an object.
#[must_use]
pub fn reference(kind: Kind, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef { kind, namespace: namespace.into(), name: name.into() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::client::Body;

    use super::*;

    #[test]
    fn documents_of_a_file_are_the_whole_file() {
        for (text, count) in [("a: 1\n", 1), ("---\na: 1\n---\nb: |\n  ---\n", 3), ("", 1)] {
            let found = documents(text);
            assert_eq!((found.concat().as_str(), found.len()), (text, count));
        }
    }

    const FILE: &str = "\
# The first stays as it is.
kind: Plan
metadata: {name: gold}
---
kind: Subscription
metadata: {name: a}
spec: {suspended: true}
---
kind: Subscription
metadata: {name: a, namespace: shop}
spec: {suspended: true}
";

    #[tokio::test]
    async fn change_of_a_file_changes_one_document() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.yaml");
        fs::write(&file, FILE).expect("a file");
        let object = reference(Kind::Subscription, "shop", "a");
        let change = |decision: Decision| {
            move |spec: &mut Map<String, Value>| {
                decision.write(spec);
                Ok::<_, EditError>(())
            }
        };
        for decision in [Decision::Resume, Decision::Approve] {
            Edited::File(&file).change(&object, change(decision)).await.expect("a change");
        }
        let text = fs::read_to_string(&file).expect("a file");
        let parts = documents(&text);
        assert_eq!(parts[..2], documents(FILE)[..2], "others stay");
        assert_eq!(read_yaml(&parts[2]).expect("a document")["spec"], json!({"approval": "Approved"}));
        let other = reference(Kind::Subscription, "shop", "b");
        let error = Edited::File(&file).change(&other, change(Decision::Reject)).await.expect_err("an error");
        assert_eq!(error.fault(), EditFault::Missing);
        assert!(error.to_string().contains("has no document with Subscription shop/b"), "{error}");
    }

    #[tokio::test]
    async fn subscription_of_the_own_consumer_is_cancelled_unless_an_operator_decided_against_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.yaml");
        let of = |name: &str, spec: &str| {
            format!(
                "---\nkind: Subscription\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{{spec}}}\n"
            )
        };
        let own = "consumerRef: {name: bob, namespace: apps}";
        let text = [
            of("kept", own),
            of("pending", own),
            of("approved", &format!("{own}, approval: Approved")),
            of("rejected", &format!("{own}, approval: Rejected")),
            of("suspended", &format!("{own}, suspended: true")),
            of("other", "consumerRef: {name: bob}"),
            of("flux", own).replace("shop}", "shop, labels: {kustomize.toolkit.fluxcd.io/name: x}}"),
        ];
        fs::write(&file, text.concat()).expect("a file");
        let bob = reference(Kind::Consumer, "apps", "bob");
        let cancel = async |name| {
            let object = reference(Kind::Subscription, "shop", name);
            Edited::File(&file).cancel(&object, &bob).await.map_err(|error| error.fault())
        };
        for name in ["rejected", "suspended", "other", "flux"] {
            assert_eq!(cancel(name).await, Err(EditFault::Conflict), "{name}");
        }
        for name in ["pending", "approved"] {
            assert_eq!(cancel(name).await, Ok(()), "{name}");
            assert_eq!(cancel(name).await, Err(EditFault::Missing), "{name}");
        }
        let left = fs::read_to_string(&file).expect("a file");
        assert_eq!(left, [&*text[0], &text[3], &text[4], &text[5], &text[6]].concat(), "others stay");
        fs::write(&file, &text[0]).expect("a file");
        assert_eq!(cancel("kept").await, Ok(()));
        assert!(!file.exists(), "no empty file stays");
    }

    /// A client of an API server with one Subscription of Consumer apps/bob, whose first removals come too late. The requests.
    fn cluster(labels: Value, conflicts: usize) -> (Client, Arc<Mutex<Vec<String>>>) {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let removals = seen.iter().filter(|method| *method == "DELETE").count();
            seen.push(request.method().to_string());
            let (status, answer) = match (request.method().as_str(), removals) {
                ("DELETE", removals) if removals < conflicts => {
                    (409, json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409}))
                }
                ("DELETE", _) => (200, json!({"kind": "Status", "status": "Success"})),
                _ => (
                    200,
                    json!({"apiVersion": "sluicegate.dev/v1alpha1", "kind": "Subscription",
                        "metadata": {"name": "a", "namespace": "shop", "uid": "u", "labels": labels,
                            "resourceVersion": removals.to_string()},
                        "spec": {"consumerRef": {"name": "bob", "namespace": "apps"}}}),
                ),
            };
            let response =
                http::Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
            std::future::ready(response)
        });
        (Client::new(service, "default"), requests)
    }

    #[tokio::test]
    async fn cancellation_in_a_cluster_is_tried_again_if_the_subscription_changes_in_between() {
        let (object, bob) =
            (reference(Kind::Subscription, "shop", "a"), reference(Kind::Consumer, "apps", "bob"));
        for (conflicts, expected) in [(0, Ok(())), (4, Ok(())), (5, Err(EditFault::Conflict))] {
            let (client, requests) = cluster(json!({}), conflicts);
            let result = Edited::Cluster(&client).cancel(&object, &bob).await.map_err(|error| error.fault());
            assert_eq!(result, expected, "{conflicts}");
            let requests = requests.lock().expect("no panic").clone();
            assert_eq!(requests, ["GET", "DELETE"].repeat(5.min(conflicts + 1)), "each attempt reads again");
        }
    }

    #[tokio::test]
    async fn subscription_that_another_program_manages_is_not_cancelled_in_a_cluster() {
        let (object, bob) =
            (reference(Kind::Subscription, "shop", "a"), reference(Kind::Consumer, "apps", "bob"));
        let (client, requests) = cluster(json!({"helm.toolkit.fluxcd.io/name": "shop"}), 0);
        let error = Edited::Cluster(&client).cancel(&object, &bob).await.expect_err("a managed object");
        assert_eq!(error.fault(), EditFault::Conflict);
        assert!(error.to_string().starts_with("Flux manages Subscription shop/a in a repository"), "{error}");
        assert_eq!(*requests.lock().expect("no panic"), ["GET"]);
    }

    #[tokio::test]
    async fn failed_change_leaves_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.json");
        let before = r#"{"kind": "Consumer", "metadata": {"name": "a"}}"#;
        fs::write(&file, before).expect("a file");
        let object = reference(Kind::Consumer, "default", "a");
        let place = Edited::File(&file);
        let failed = place.change_keys(&object, |keys| {
            keys.issue(Some("one"), None)?;
            keys.revoke("other")
        });
        assert_eq!(failed.await.expect_err("an error").fault(), EditFault::Missing);
        assert_eq!(fs::read_to_string(&file).expect("a file"), before);
        let key = place.change_keys(&object, |keys| keys.issue(Some("one"), None)).await;
        let text = fs::read_to_string(&file).expect("a file");
        let written: Value = serde_json::from_str(&text).expect("JSON stays JSON");
        assert_eq!(written["spec"]["apiKeys"][0]["name"], "one");
        assert!(!text.contains(&key.expect("a key").key));
    }

    #[tokio::test]
    async fn new_object_never_replaces_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let create = Creation::Directory(folder.path());
        let object = reference(Kind::Subscription, "shop", "a");
        create.create(&object, json!({"suspended": true})).await.expect("a new object");
        let again = create.create(&object, json!({})).await.expect_err("it exists");
        assert_eq!(again.fault(), EditFault::Conflict);
        let file = folder.path().join("portal/subscription-shop-a.yaml");
        let written = read_yaml(&fs::read_to_string(&file).expect("a file")).expect("YAML");
        assert_eq!(
            (&written["apiVersion"], &written["spec"]["suspended"]),
            (&"sluicegate.dev/v1alpha1".into(), &true.into())
        );
        let (of_file, other) = (Creation::Directory(&file), reference(Kind::Subscription, "shop", "b"));
        assert!(matches!(of_file.create(&other, json!({})).await, Err(EditError::NoFolder)));
    }
}
