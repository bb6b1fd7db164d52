//! The changes of the dashboard and of the portal, where the objects are written.

use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use http::StatusCode;
use sluicegate_control::{
    ConsumerKeys, Creation, Credentials, EditError, EditFault, Edited, IssuedKey, KeyError, Kind, ObjectRef,
    new_subscription, reference,
};
use sluicegate_dashboard::{Change, ChangeError, Changes, Changing, KeyChange, Name, NewKey};
use sluicegate_model::Decision;

use crate::dashboard::Knowledge;

/// The longest part of the name of a new Subscription that comes from another name, in bytes.
const PART_MAX: usize = 80;

/// The place of the objects of a source.
#[derive(Clone, Debug)]
pub(crate) enum Objects {
    /// A directory of manifests.
    Directory(PathBuf),
    /// A cluster.
    Cluster(Credentials),
}

/// Makes changes.
#[derive(Clone)]
pub(crate) struct Changer {
    pub(crate) objects: Objects,
    pub(crate) knowledge: Knowledge,
    /// Whether changes in a cluster need the rights of the user. Otherwise they have the rights of the gateway.
    pub(crate) is_of_users: bool,
}

/// A change of an object that exists.
enum Edit {
    Key(KeyChange),
    Decide(Decision),
    Cancel,
}

impl Changes for Changer {
    fn needs_token(&self) -> bool {
        self.is_of_users && matches!(self.objects, Objects::Cluster(_))
    }

    fn change(&self, change: Change, token: Option<String>) -> Changing {
        let changer = self.clone();
        Box::pin(async move { changer.make(change, token).await.map_err(refused) })
    }
}

impl Changer {
    async fn make(&self, change: Change, token: Option<String>) -> Result<Option<NewKey>, EditError> {
        let client = match &self.objects {
            Objects::Directory(_) => None,
            Objects::Cluster(credentials) => Some(match (self.is_of_users, &token) {
                // The server of the dashboard requires the token.
                (true, token) => credentials.client_of(token.as_deref().unwrap_or_default()).await?,
                (false, _) => credentials.client().await?,
            }),
        };
        let (object, edit) = match change {
            Change::Subscribe { consumer, api, plan } => {
                let new = NewSubscription::of(&consumer, &api, &plan);
                let place = match (&self.objects, &client) {
                    (_, Some(client)) => Creation::Cluster(client),
                    (Objects::Directory(dir), None) => Creation::Directory(dir),
                    (Objects::Cluster(_), None) => return Err(EditError::NoFolder),
                };
                place.create(&new.object, new.spec).await?;
                return Ok(None);
            }
            Change::Key { consumer, change } => (of(Kind::Consumer, &consumer), Edit::Key(change)),
            Change::Decide { subscription, decision } => {
                (of(Kind::Subscription, &subscription), Edit::Decide(decision))
            }
            Change::Cancel { subscription } => (of(Kind::Subscription, &subscription), Edit::Cancel),
        };
        let file = self.file_of(&object);
        let place = match (&client, &file) {
            (Some(client), _) => Edited::Cluster(client),
            (None, Some(file)) => Edited::File(file),
            (None, None) => {
                let path = match &self.objects {
                    Objects::Directory(dir) => dir.clone(),
                    Objects::Cluster(_) => PathBuf::new(),
                };
                return Err(EditError::Missing { path, object });
            }
        };
        match edit {
            Edit::Key(change) => place.change_keys(&object, |keys| change_key(keys, &change)).await,
            Edit::Decide(decision) => {
                let write = |spec: &mut _| {
                    decision.write(spec);
                    Ok::<_, EditError>(None)
                };
                place.change(&object, write).await
            }
            Edit::Cancel => {
                let published = self.knowledge.published();
                let found = published.subscriptions.iter().find(|of| of.object == object);
                let consumer = found.map(|of| of.consumer.clone());
                place
                    .cancel(&object, &consumer.ok_or_else(|| EditError::Reassigned(object.clone()))?)
                    .await?;
                Ok(None)
            }
        }
    }

    /// The file with an object.
    fn file_of(&self, object: &ObjectRef) -> Option<PathBuf> {
        let published = self.knowledge.published();
        let place = match object.kind {
            Kind::Consumer => published.consumers.iter().find(|of| of.object == *object)?.origin.as_ref(),
            _ => published.subscriptions.iter().find(|of| of.object == *object)?.origin.as_ref(),
        };
        Some(place?.file.to_path_buf())
    }
}

/// A new Subscription. Its name follows from the Consumer and the Api, so that a second request finds the first.
struct NewSubscription {
    object: ObjectRef,
    spec: serde_json::Value,
}

impl NewSubscription {
    fn of(consumer: &Name, api: &Name, plan: &str) -> Self {
        let hash = digest(&SHA256, format!("{consumer} {api}").as_bytes());
        let hash: String = hash.as_ref().iter().take(5).map(|byte| format!("{byte:02x}")).collect();
        let part = |name: &str| {
            name.chars().take(PART_MAX).collect::<String>().trim_end_matches(['-', '.']).to_owned()
        };
        let name = format!("{}-{}-{hash}", part(&consumer.name), part(&api.name));
        let consumer = of(Kind::Consumer, consumer);
        let api = of(Kind::Api, api);
        let plan = reference(Kind::Plan, &api.namespace, plan);
        let object = reference(Kind::Subscription, &api.namespace, &name);
        Self { spec: new_subscription(&consumer, &plan, &api), object }
    }
}

fn of(kind: Kind, name: &Name) -> ObjectRef {
    reference(kind, &name.namespace, &name.name)
}

fn change_key(keys: &mut ConsumerKeys<'_>, change: &KeyChange) -> Result<Option<NewKey>, KeyError> {
    let new = |IssuedKey { key, name }| Some(NewKey { name, key });
    match change {
        KeyChange::Issue { name, valid_for } => keys.issue(name.as_deref(), *valid_for).map(new),
        KeyChange::Rotate { name, overlap, valid_for } => keys.rotate(name, (*overlap, *valid_for)).map(new),
        KeyChange::Revoke { name } => keys.revoke(name).map(|()| None),
        KeyChange::Remove { name } => keys.remove(name).map(|()| None),
    }
}

fn refused(error: EditError) -> ChangeError {
    let status = match error.fault() {
        EditFault::Invalid => StatusCode::BAD_REQUEST,
        // 401 would end the session of the browser.
        EditFault::Unauthenticated | EditFault::Denied => StatusCode::FORBIDDEN,
        EditFault::Missing => StatusCode::NOT_FOUND,
        EditFault::Conflict => StatusCode::CONFLICT,
        EditFault::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    };
    let is_private = !matches!(
        error,
        EditError::Key(_)
            | EditError::Exists(_)
            | EditError::Decided(_)
            | EditError::Managed { .. }
            | EditError::Reassigned(_)
    );
    let text = error.to_string();
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    ChangeError { status, message: format!("{first}{}.", characters.as_str()), is_private }
}

/// The changer of a source.
pub(crate) fn changer(objects: Objects, knowledge: &Knowledge, is_of_users: bool) -> Arc<dyn Changes> {
    Arc::new(Changer { objects, knowledge: knowledge.clone(), is_of_users })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_request_for_a_subscription_has_the_name_of_the_first() {
        let name =
            |namespace: &str, name: &str| Name { namespace: namespace.to_owned(), name: name.to_owned() };
        let of = |consumer: &Name, api: &Name, plan| NewSubscription::of(consumer, api, plan).object;
        let first = of(&name("apps", "mobile"), &name("shop", "orders"), "gold");
        assert_eq!(first, of(&name("apps", "mobile"), &name("shop", "orders"), "silver"));
        assert_eq!(&*first.namespace, "shop");
        assert!(first.name.starts_with("mobile-orders-"), "{first}");
        assert_ne!(first, of(&name("other", "mobile"), &name("shop", "orders"), "gold"));
        let long = "a.".repeat(120);
        assert!(of(&name("apps", &long), &name("shop", &long), "gold").name.len() <= 253);
    }
}
