//! The status of a policy or a Consumer: current and intended (Gateway API: `PolicyStatus`, GEP-713).

use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Map, Value, json};
use sluicegate_model::text::one_line;

use crate::merge::policy::standing::{Reason, Standing as Verdict};
use crate::object::{Kind, ObjectRef};

/// The controller in our entries: other controllers may write beside us.
const CONTROLLER: &str = crate::translate::CONTROLLER;

/// The type of our condition.
const ACCEPTED: &str = "Accepted";

/// The longest message of a condition, in bytes.
const MESSAGE_MAX: usize = 4096;

/// The current status.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CurrentPolicyStatus {
    /// `metadata.uid`, by which an Event names it.
    pub(super) uid: Option<Box<str>>,
    /// `metadata.generation`: the number of the version of the specification.
    pub(super) generation: Option<i64>,
    /// `metadata.resourceVersion`, so that we overwrite nothing that we have not seen.
    pub(super) version: Option<Box<str>>,
    status: Map<String, Value>,
}

/// The intended status of a policy or a Consumer, for one of its generations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DesiredPolicyStatus {
    verdicts: Vec<Verdict>,
    generation: Option<i64>,
}

impl CurrentPolicyStatus {
    pub(super) fn of(object: &DynamicObject) -> Self {
        let status = object.data.get("status").and_then(Value::as_object);
        Self {
            uid: object.metadata.uid.as_deref().map(Into::into),
            generation: object.metadata.generation,
            version: object.metadata.resource_version.as_deref().map(Into::into),
            status: status.cloned().unwrap_or_default(),
        }
    }

    /// The status to write; `None` if the object has it.
    pub(super) fn task(&self, object: &ObjectRef, wish: &DesiredPolicyStatus) -> Option<Value> {
        let status = match object.kind {
            Kind::Consumer => self.conditions_of_consumer(wish)?,
            _ => self.ancestors_of_policy(object, wish),
        };
        let stands = |(key, value): (&String, &Value)| list(self.status.get(key)) == list(Some(value));
        if status.iter().all(stands) { None } else { Some(Value::Object(status)) }
    }

    fn conditions_of_consumer(&self, wish: &DesiredPolicyStatus) -> Option<Map<String, Value>> {
        let verdict = wish.verdicts.first()?;
        let before = list(self.status.get("conditions"));
        let mut conditions: Vec<Value> =
            before.iter().filter(|condition| !is_ours(condition)).cloned().collect();
        conditions.push(condition(before, verdict, wish.generation));
        Some(Map::from_iter([("conditions".to_owned(), conditions.into())]))
    }

    /// The entries of other controllers stay.
    fn ancestors_of_policy(&self, object: &ObjectRef, wish: &DesiredPolicyStatus) -> Map<String, Value> {
        const ANCESTORS_MAX: usize = 16;
        let before = list(self.status.get("ancestors"));
        let of_us = |ancestor: &Value| ancestor["controllerName"] == CONTROLLER;
        let mut ancestors: Vec<Value> = before.iter().filter(|ancestor| !of_us(ancestor)).cloned().collect();
        for verdict in wish.verdicts.iter().filter(|verdict| verdict.reason != Reason::Foreign) {
            let Some(reference) = reference(object, verdict) else { continue };
            let known =
                before.iter().find(|ancestor| of_us(ancestor) && ancestor["ancestorRef"] == reference);
            let conditions = list(known.and_then(|known| known.get("conditions")));
            ancestors.push(json!({
                "ancestorRef": reference,
                "controllerName": CONTROLLER,
                "conditions": [condition(conditions, verdict, wish.generation)],
            }));
        }
        ancestors.truncate(ANCESTORS_MAX);
        Map::from_iter([("ancestors".to_owned(), ancestors.into())])
    }
}

impl DesiredPolicyStatus {
    pub(super) fn new(verdicts: Vec<Verdict>, standing: &CurrentPolicyStatus) -> Self {
        Self { verdicts, generation: standing.generation }
    }
}

/// The target of a verdict.
fn reference(object: &ObjectRef, verdict: &Verdict) -> Option<Value> {
    let target = verdict.target.as_ref()?;
    let group = target.kind.api_versions()[0].split_once('/').map_or("", |(group, _)| group);
    let mut reference = json!({
        "group": group,
        "kind": target.kind.as_str(),
        "namespace": &*object.namespace,
        "name": &*target.name,
    });
    if let Some(section) = &target.section {
        reference["sectionName"] = json!(&**section);
    }
    Some(reference)
}

/// Our condition. If the previous condition had the same status, its time stays.
fn condition(before: &[Value], verdict: &Verdict, generation: Option<i64>) -> Value {
    let status = if verdict.reason.is_accepted() { "True" } else { "False" };
    let known = before.iter().find(|condition| is_ours(condition) && condition["status"] == status);
    let since = known.and_then(|known| known.get("lastTransitionTime")).cloned();
    let mut condition = json!({
        "type": ACCEPTED,
        "status": status,
        "reason": verdict.reason.as_str(),
        "message": super::status::shortened(&one_line(&verdict.message), MESSAGE_MAX),
        "lastTransitionTime": since.unwrap_or_else(|| format!("{:.0}", Timestamp::now()).into()),
    });
    if let Some(generation) = generation {
        condition["observedGeneration"] = generation.into();
    }
    condition
}

fn is_ours(condition: &Value) -> bool {
    condition["type"] == ACCEPTED
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::policy::standing::TargetName;

    fn object(kind: Kind) -> ObjectRef {
        ObjectRef { kind, namespace: "default".into(), name: "a".into() }
    }

    fn verdict(reason: Reason, message: &str) -> Verdict {
        let target = TargetName { kind: Kind::Ingress, name: "shop".into(), section: None };
        Verdict {
            object: object(Kind::SecurityPolicy),
            target: Some(target),
            reason,
            message: message.into(),
        }
    }

    fn standing(status: Value, generation: i64) -> CurrentPolicyStatus {
        let status = status.as_object().cloned().unwrap_or_default();
        CurrentPolicyStatus { generation: Some(generation), status, ..CurrentPolicyStatus::default() }
    }

    #[test]
    fn transition_time_of_a_condition_changes_only_with_its_status() {
        let policy = object(Kind::SecurityPolicy);
        let fresh = standing(json!({}), 1);
        let wish = DesiredPolicyStatus::new(vec![verdict(Reason::Accepted, "")], &fresh);
        let mut written = fresh.task(&policy, &wish).expect("nothing stands there");
        let condition = &written["ancestors"][0]["conditions"][0];
        assert_eq!((&condition["status"], &condition["observedGeneration"]), (&json!("True"), &json!(1)));
        assert_eq!(written["ancestors"][0]["ancestorRef"]["group"], "networking.k8s.io");
        written["ancestors"][0]["conditions"][0]["lastTransitionTime"] = json!("2020-01-01T00:00:00Z");
        let stands = standing(written, 2);
        assert_eq!(stands.task(&policy, &wish), None);
        let overridden = DesiredPolicyStatus::new(vec![verdict(Reason::Overridden, "by another")], &stands);
        let condition =
            &stands.task(&policy, &overridden).expect("it differs")["ancestors"][0]["conditions"][0];
        assert_eq!(condition["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert_eq!(
            (&condition["reason"], &condition["observedGeneration"]),
            (&json!("Overridden"), &json!(2))
        );
        let refused = DesiredPolicyStatus::new(vec![verdict(Reason::Invalid, "no Secret")], &stands);
        let condition = &stands.task(&policy, &refused).expect("it differs")["ancestors"][0]["conditions"][0];
        assert_ne!(condition["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert_eq!(condition["status"], "False");
    }

    #[test]
    fn policy_status_of_other_controllers_is_preserved_and_foreign_targets_are_ignored() {
        let policy = object(Kind::RateLimitPolicy);
        let theirs =
            json!({"controllerName": "example.com/other", "ancestorRef": {"name": "x"}, "conditions": []});
        let stands = standing(json!({"ancestors": [theirs]}), 1);
        let foreign = DesiredPolicyStatus::new(vec![verdict(Reason::Foreign, "of another class")], &stands);
        assert_eq!(stands.task(&policy, &foreign), None);
        let ours = DesiredPolicyStatus::new(vec![verdict(Reason::Accepted, "")], &stands);
        let written = stands.task(&policy, &ours).expect("ours is missing");
        assert_eq!(written["ancestors"].as_array().map(Vec::len), Some(2));
        assert_eq!(written["ancestors"][0], theirs);
        assert_eq!(standing(json!({}), 1).task(&policy, &foreign), None, "of nothing, nothing is said");
        let gone = standing(written, 1);
        let nothing = DesiredPolicyStatus::new(Vec::new(), &gone);
        assert_eq!(gone.task(&policy, &nothing), Some(json!({"ancestors": [theirs]})));
    }

    #[test]
    fn condition_of_a_consumer_is_written_to_status_conditions() {
        let consumer = object(Kind::Consumer);
        let fresh = standing(json!({"conditions": [{"type": "Theirs"}]}), 3);
        let of_consumer =
            Verdict { target: None, ..verdict(Reason::Invalid, "Secret default/a does not exist") };
        let wish = DesiredPolicyStatus::new(vec![of_consumer], &fresh);
        let written = fresh.task(&consumer, &wish).expect("ours is missing");
        assert_eq!(written["conditions"][0]["type"], "Theirs");
        assert_eq!(written["conditions"][1]["message"], "Secret default/a does not exist");
        assert_eq!(standing(written, 3).task(&consumer, &wish), None);
        assert_eq!(fresh.task(&consumer, &DesiredPolicyStatus::default()), None);
    }
}
