//! The status of a policy or a Consumer: current and intended (Gateway API: `PolicyStatus`, GEP-713).

use serde_json::{Map, Value, json};

use super::conditions::{CurrentStatus, condition, list};
use crate::merge::policy::standing::{Reason, Standing as Verdict};
use crate::object::{Kind, ObjectRef};
use crate::status::Condition;

/// The controller in our entries: other controllers may write beside us.
const CONTROLLER: &str = crate::translate::CONTROLLER;

/// The type of our condition.
const ACCEPTED: &str = "Accepted";

/// The intended status of a policy or a Consumer, for one of its generations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DesiredPolicyStatus {
    verdicts: Vec<Verdict>,
    generation: Option<i64>,
}

impl DesiredPolicyStatus {
    pub(super) fn new(verdicts: Vec<Verdict>, standing: &CurrentStatus) -> Self {
        Self { verdicts, generation: standing.generation }
    }

    /// The status to write, beside the entries of other controllers in the current status.
    pub(super) fn render(
        &self,
        before: &Map<String, Value>,
        object: &ObjectRef,
    ) -> Option<Map<String, Value>> {
        match object.kind {
            Kind::Consumer => self.conditions_of_consumer(before),
            _ => Some(self.ancestors_of_policy(before, object)),
        }
    }

    fn conditions_of_consumer(&self, before: &Map<String, Value>) -> Option<Map<String, Value>> {
        let verdict = self.verdicts.first()?;
        let before = list(before.get("conditions"));
        let mut conditions: Vec<Value> =
            before.iter().filter(|condition| condition["type"] != ACCEPTED).cloned().collect();
        conditions.push(condition(before, &accepted(verdict), self.generation));
        Some(Map::from_iter([("conditions".to_owned(), conditions.into())]))
    }

    /// The entries of other controllers stay.
    fn ancestors_of_policy(&self, before: &Map<String, Value>, object: &ObjectRef) -> Map<String, Value> {
        const ANCESTORS_MAX: usize = 16;
        let before = list(before.get("ancestors"));
        let of_us = |ancestor: &Value| ancestor["controllerName"] == CONTROLLER;
        let mut ancestors: Vec<Value> = before.iter().filter(|ancestor| !of_us(ancestor)).cloned().collect();
        for verdict in self.verdicts.iter().filter(|verdict| verdict.reason != Reason::Foreign) {
            let Some(reference) = reference(object, verdict) else { continue };
            let known =
                before.iter().find(|ancestor| of_us(ancestor) && ancestor["ancestorRef"] == reference);
            let conditions = list(known.and_then(|known| known.get("conditions")));
            ancestors.push(json!({
                "ancestorRef": reference,
                "controllerName": CONTROLLER,
                "conditions": [condition(conditions, &accepted(verdict), self.generation)],
            }));
        }
        ancestors.truncate(ANCESTORS_MAX);
        Map::from_iter([("ancestors".to_owned(), ancestors.into())])
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

/// Our condition.
fn accepted(verdict: &Verdict) -> Condition {
    Condition {
        name: ACCEPTED,
        is_true: verdict.reason.is_accepted(),
        reason: verdict.reason.as_str(),
        message: verdict.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::policy::standing::TargetName;
    use crate::source::cluster::conditions::DesiredStatus;

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

    fn desired(verdicts: Vec<Verdict>, standing: &CurrentStatus) -> DesiredStatus {
        DesiredStatus::Policy(DesiredPolicyStatus::new(verdicts, standing))
    }

    fn standing(status: Value, generation: i64) -> CurrentStatus {
        let status = status.as_object().cloned().unwrap_or_default();
        CurrentStatus { generation: Some(generation), status, ..CurrentStatus::default() }
    }

    #[test]
    fn transition_time_of_a_condition_changes_only_with_its_status() {
        let policy = object(Kind::SecurityPolicy);
        let fresh = standing(json!({}), 1);
        let wish = desired(vec![verdict(Reason::Accepted, "")], &fresh);
        let mut written = fresh.task(&policy, &wish, None).expect("nothing stands there");
        let condition = &written["ancestors"][0]["conditions"][0];
        assert_eq!((&condition["status"], &condition["observedGeneration"]), (&json!("True"), &json!(1)));
        assert_eq!(written["ancestors"][0]["ancestorRef"]["group"], "networking.k8s.io");
        written["ancestors"][0]["conditions"][0]["lastTransitionTime"] = json!("2020-01-01T00:00:00Z");
        let stands = standing(written, 2);
        assert_eq!(stands.task(&policy, &wish, None), None);
        let overridden = desired(vec![verdict(Reason::Overridden, "by another")], &stands);
        let condition =
            &stands.task(&policy, &overridden, None).expect("it differs")["ancestors"][0]["conditions"][0];
        assert_eq!(condition["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert_eq!(
            (&condition["reason"], &condition["observedGeneration"]),
            (&json!("Overridden"), &json!(2))
        );
        let refused = desired(vec![verdict(Reason::Invalid, "no Secret")], &stands);
        let condition =
            &stands.task(&policy, &refused, None).expect("it differs")["ancestors"][0]["conditions"][0];
        assert_ne!(condition["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert_eq!(condition["status"], "False");
    }

    #[test]
    fn policy_status_of_other_controllers_is_preserved_and_foreign_targets_are_ignored() {
        let policy = object(Kind::RateLimitPolicy);
        let theirs =
            json!({"controllerName": "example.com/other", "ancestorRef": {"name": "x"}, "conditions": []});
        let stands = standing(json!({"ancestors": [theirs]}), 1);
        let foreign = desired(vec![verdict(Reason::Foreign, "of another class")], &stands);
        assert_eq!(stands.task(&policy, &foreign, None), None);
        let ours = desired(vec![verdict(Reason::Accepted, "")], &stands);
        let written = stands.task(&policy, &ours, None).expect("ours is missing");
        assert_eq!(written["ancestors"].as_array().map(Vec::len), Some(2));
        assert_eq!(written["ancestors"][0], theirs);
        assert_eq!(standing(json!({}), 1).task(&policy, &foreign, None), None, "of nothing, nothing is said");
        let gone = standing(written, 1);
        let nothing = desired(Vec::new(), &gone);
        assert_eq!(gone.task(&policy, &nothing, None), Some(json!({"ancestors": [theirs]})));
    }

    #[test]
    fn condition_of_a_consumer_is_written_to_status_conditions() {
        let consumer = object(Kind::Consumer);
        let fresh = standing(json!({"conditions": [{"type": "Theirs"}]}), 3);
        let of_consumer =
            Verdict { target: None, ..verdict(Reason::Invalid, "Secret default/a does not exist") };
        let wish = desired(vec![of_consumer], &fresh);
        let written = fresh.task(&consumer, &wish, None).expect("ours is missing");
        assert_eq!(written["conditions"][0]["type"], "Theirs");
        assert_eq!(written["conditions"][1]["message"], "Secret default/a does not exist");
        assert_eq!(standing(written, 3).task(&consumer, &wish, None), None);
        assert_eq!(fresh.task(&consumer, &DesiredStatus::Policy(DesiredPolicyStatus::default()), None), None);
    }
}
