//! The users who write objects, as the API server tells the webhook.

use serde_json::Value;
use sluicegate_model::audit::Requested;

use super::content::version;
use super::now;
use crate::object::{Kind, ObjectRef};

/// The longest name of a user or of a group, in characters.
const NAME_MAX: usize = 256;

/// The maximum number of recorded groups.
const GROUPS_MAX: usize = 32;

/// A request of the API server about an object.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// The API group of the object.
    pub group: String,
    /// The kind of the object.
    pub kind: String,
    /// The namespace of the object; empty for kinds that have none.
    pub namespace: String,
    /// The name of the object; empty if the API server makes the name.
    pub name: String,
    /// The new version; `None` for a deletion.
    pub object: Option<Value>,
    /// The version before; `None` for a new object.
    pub old: Option<Value>,
    /// The name of the user.
    pub user: String,
    /// The groups of the user.
    pub groups: Vec<String>,
}

/// The request as the audit trail stores it; `None` for a kind that the audit trail does not have, and for a request that changes no
/// recorded field. The gateway itself sends such requests after a change of a user, when it reports problems.
#[must_use]
pub fn requested(admission: &Admission) -> Option<Requested> {
    let Admission { group, kind, namespace, name, object, old, user, groups } = admission;
    let kind = Kind::parse(kind).filter(|kind| kind.is_recorded() && kind.group() == group)?;
    // An object with a generated name has its name only in the object.
    let name = object.as_ref().and_then(|object| object["metadata"]["name"].as_str()).unwrap_or(name);
    let object_ref = ObjectRef { kind, namespace: namespace.as_str().into(), name: name.into() };
    let shortened = |text: &str| -> Box<str> { text.chars().take(NAME_MAX).collect::<String>().into() };
    let hash = |object: &Value| version(&object_ref, object).hash;
    let (new, old) = (object.as_ref().map(hash), old.as_ref().map(hash));
    (new.is_none() || new != old).then(|| Requested {
        subject: object_ref.subject(),
        hash: new.unwrap_or_default(),
        user: shortened(user),
        groups: groups.iter().take(GROUPS_MAX).map(|group| shortened(group)).collect(),
        time: now(),
    })
}
