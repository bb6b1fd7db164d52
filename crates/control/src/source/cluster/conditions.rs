//! Status that consists of conditions: current and intended.

use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Map, Value, json};
use sluicegate_model::text::one_line;

use super::gateway_status;
use super::policy_status::DesiredPolicyStatus;
use crate::object::ObjectRef;
use crate::status::{Condition, ObjectStatus};

/// The longest message of a condition, in bytes.
const MESSAGE_MAX: usize = 4096;

/// The current status of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CurrentStatus {
    /// `metadata.uid`, by which an Event names the object.
    pub(super) uid: Option<Box<str>>,
    /// `metadata.generation`: the number of the version of the specification.
    pub(super) generation: Option<i64>,
    /// `metadata.resourceVersion`, so that we overwrite nothing that we have not seen.
    pub(super) version: Option<Box<str>>,
    /// The API group and version in which the gateway reads the object.
    pub(super) api_version: &'static str,
    pub(super) status: StatusText,
}

/// A status as JSON text. The tree of a status would take several KiB, and the gateway keeps the status of each object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StatusText(Box<str>);

impl From<&Value> for StatusText {
    fn from(status: &Value) -> Self {
        Self(status.to_string().into())
    }
}

impl StatusText {
    fn read(&self) -> Map<String, Value> {
        // Only an empty text is not JSON.
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// The intended status of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DesiredStatus {
    /// Of a policy or a Consumer.
    Policy(DesiredPolicyStatus),
    /// Of an object of Gateway API.
    Object(Box<ObjectStatus>),
}

impl CurrentStatus {
    pub(super) fn of(object: &DynamicObject, api_version: &'static str) -> Self {
        let status = object.data.get("status").map(StatusText::from);
        Self {
            uid: object.metadata.uid.as_deref().map(Into::into),
            generation: object.metadata.generation,
            version: object.metadata.resource_version.as_deref().map(Into::into),
            api_version,
            status: status.unwrap_or_default(),
        }
    }

    /// The status to write; `None` if the object has it. `addresses` are the addresses of the data planes, if known.
    pub(super) fn task(
        &self,
        object: &ObjectRef,
        wish: &DesiredStatus,
        addresses: Option<&[Box<str>]>,
    ) -> Option<Value> {
        let current = self.status.read();
        let status = match wish {
            DesiredStatus::Policy(wish) => wish.render(&current, object)?,
            DesiredStatus::Object(wish) => gateway_status::render(&current, wish, addresses),
        };
        let stands = |(key, value): (&String, &Value)| {
            let known = current.get(key).unwrap_or(&Value::Null);
            known == value || is_nothing(known) && is_nothing(value)
        };
        if status.iter().all(stands) { None } else { Some(Value::Object(status)) }
    }
}

/// The condition as JSON. If the previous condition had the same status, its time stays.
pub(super) fn condition(before: &[Value], new: &Condition, generation: Option<i64>) -> Value {
    let status = if new.is_true { "True" } else { "False" };
    let known =
        before.iter().find(|condition| condition["type"] == new.name && condition["status"] == status);
    let since = known.and_then(|known| known.get("lastTransitionTime")).cloned();
    let mut condition = json!({
        "type": new.name,
        "status": status,
        "reason": new.reason,
        "message": super::status::shortened(&one_line(&new.message), MESSAGE_MAX),
        "lastTransitionTime": since.unwrap_or_else(|| format!("{:.0}", Timestamp::now()).into()),
    });
    if let Some(generation) = generation {
        condition["observedGeneration"] = generation.into();
    }
    condition
}

/// Whether a status without this value says the same: an empty list, or a count of 0.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        other => other.is_null() || *other == 0,
    }
}

pub(super) fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
