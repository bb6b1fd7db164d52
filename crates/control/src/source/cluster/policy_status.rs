//! The status of a policy, a Consumer or an Api: current and intended (Gateway API: `PolicyStatus`, GEP-713).

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::conditions::{CurrentStatus, condition, list};
use crate::merge::policy::standing::{Reason, Standing as Verdict};
use crate::object::{Kind, ObjectRef};
use crate::status::{ACCEPTED, Condition};
use crate::translate::{CONTROLLER, GATEWAY_CONTROLLER};

/// The longest list of ancestors (Gateway API, `PolicyStatus`).
const ANCESTORS_MAX: usize = 16;

/// The intended status of a policy, a Consumer or an Api, for one of its generations.
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
            Kind::Consumer | Kind::Api | Kind::Plan | Kind::Subscription => self.own_conditions(before),
            _ => Some(self.ancestors_of_policy(before, object)),
        }
    }

    /// The conditions of an object that is no policy.
    fn own_conditions(&self, before: &Map<String, Value>) -> Option<Map<String, Value>> {
        let verdict = self.verdicts.first()?;
        let before = list(before.get("conditions"));
        let mut conditions: Vec<Value> =
            before.iter().filter(|condition| condition["type"] != ACCEPTED).cloned().collect();
        conditions.push(condition(before, &accepted(verdict), self.generation));
        Some(Map::from_iter([("conditions".to_owned(), conditions.into())]))
    }

    /// The entries of other controllers stay.
    fn ancestors_of_policy(&self, before: &Map<String, Value>, object: &ObjectRef) -> Map<String, Value> {
        let before = list(before.get("ancestors"));
        let of_us = |ancestor: &Value| {
            [CONTROLLER, GATEWAY_CONTROLLER].iter().any(|ours| ancestor["controllerName"] == *ours)
        };
        let mut entries = self.entries(object);
        let theirs = before.iter().filter(|ancestor| !of_us(ancestor)).take(ANCESTORS_MAX);
        let mut ancestors: Vec<Value> = theirs.cloned().collect();
        let room = ANCESTORS_MAX - ancestors.len();
        if entries.len() > room {
            // Without room for all entries, faults are more useful.
            entries.sort_by_key(|entry| entry.accepted.is_true);
            entries.truncate(room);
        }
        for Entry { reference, controller, accepted, .. } in entries {
            let known =
                before.iter().find(|ancestor| of_us(ancestor) && ancestor["ancestorRef"] == reference);
            let conditions = list(known.and_then(|known| known.get("conditions")));
            ancestors.push(json!({
                "ancestorRef": reference,
                "controllerName": controller,
                "conditions": [condition(conditions, &accepted, self.generation)],
            }));
        }
        Map::from_iter([("ancestors".to_owned(), ancestors.into())])
    }

    /// An entry for each Gateway of the targets, and for each target without a Gateway. Of several targets with the same
    /// Gateway, the entry describes the target with the worst state.
    fn entries(&self, policy: &ObjectRef) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for verdict in self.verdicts.iter().filter(|verdict| verdict.reason != Reason::Foreign) {
            for entry in Entry::of(verdict, policy) {
                match entries.iter_mut().find(|known| known.reference == entry.reference) {
                    None => entries.push(entry),
                    Some(known) if known.reason < entry.reason => *known = entry,
                    Some(_) => {}
                }
            }
        }
        entries
    }
}

/// An entry of `status.ancestors`.
struct Entry {
    reference: Value,
    /// The name of the controller of the object.
    controller: &'static str,
    reason: Reason,
    accepted: Condition,
}

impl Entry {
    /// The entries of a verdict about a policy.
    fn of(verdict: &Verdict, policy: &ObjectRef) -> Vec<Self> {
        let Some(target) = &verdict.target else { return Vec::new() };
        let object =
            ObjectRef { kind: target.kind, namespace: policy.namespace.clone(), name: target.name.clone() };
        let is_of_gateway_api = target.kind.is_of_gateway_api();
        let controller = if is_of_gateway_api { GATEWAY_CONTROLLER } else { CONTROLLER };
        let entry = |of: &ObjectRef, section: Option<&Arc<str>>| {
            let mut accepted = accepted(verdict);
            // A fault of the policy names its field; any other message is about the target.
            if *of != object && verdict.reason != Reason::Invalid && !accepted.message.is_empty() {
                accepted.message = format!("{object}: {}", accepted.message);
            }
            Self { reference: reference(of, section), controller, reason: verdict.reason, accepted }
        };
        match &verdict.ancestors[..] {
            [] => vec![entry(&object, target.section.as_ref())],
            gateways => gateways.iter().map(|of| entry(&of.gateway, of.section.as_ref())).collect(),
        }
    }
}

/// A reference to an object or a part of it (Gateway API: `ParentReference`).
fn reference(object: &ObjectRef, section: Option<&Arc<str>>) -> Value {
    let group = object.kind.api_versions()[0].split_once('/').map_or("", |(group, _)| group);
    let mut reference = json!({
        "group": group,
        "kind": object.kind.as_str(),
        "namespace": &*object.namespace,
        "name": &*object.name,
    });
    if let Some(section) = section {
        reference["sectionName"] = json!(&**section);
    }
    reference
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
    use crate::merge::policy::standing::{Ancestor, TargetName};
    use crate::source::cluster::conditions::DesiredStatus;

    fn object(kind: Kind) -> ObjectRef {
        ObjectRef { kind, namespace: "default".into(), name: "a".into() }
    }

    fn verdict(reason: Reason, message: &str) -> Verdict {
        let target = TargetName { kind: Kind::Ingress, name: "shop".into(), section: None };
        Verdict {
            object: object(Kind::SecurityPolicy),
            target: Some(target),
            ancestors: Vec::new(),
            reason,
            message: message.into(),
        }
    }

    /// The state for an HTTPRoute of these Gateways.
    fn of_route(name: &str, gateways: &[&str], reason: Reason, message: &str) -> Verdict {
        let gateway = |name: &&str| Ancestor {
            gateway: ObjectRef { kind: Kind::Gateway, namespace: "infra".into(), name: (*name).into() },
            section: None,
        };
        let target = TargetName { kind: Kind::HttpRoute, name: name.into(), section: None };
        let ancestors = gateways.iter().map(gateway).collect();
        Verdict { target: Some(target), ancestors, ..verdict(reason, message) }
    }

    fn desired(verdicts: Vec<Verdict>, standing: &CurrentStatus) -> DesiredStatus {
        DesiredStatus::Policy(DesiredPolicyStatus::new(verdicts, standing))
    }

    fn standing(status: Value, generation: i64) -> CurrentStatus {
        CurrentStatus { generation: Some(generation), status: (&status).into(), ..CurrentStatus::default() }
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
    fn policy_has_one_ancestor_for_each_gateway_with_the_worst_state_of_its_targets() {
        let policy = object(Kind::SecurityPolicy);
        let fresh = standing(json!({}), 4);
        let wish = desired(
            vec![
                of_route("a", &["edge"], Reason::Accepted, ""),
                of_route("b", &["edge", "inner"], Reason::Overridden, "by another"),
                of_route("c", &["edge"], Reason::Conflicted, "an older policy applies"),
                of_route("d", &[], Reason::TargetNotFound, "HTTPRoute default/d does not exist"),
                of_route("e", &["edge"], Reason::Foreign, "of another class"),
                verdict(Reason::Accepted, ""),
            ],
            &fresh,
        );
        let written = fresh.task(&policy, &wish, None).expect("nothing stands there");
        let ancestors = written["ancestors"].as_array().expect("a list");
        let shown = ancestors.iter().map(|of| {
            let (reference, condition) = (&of["ancestorRef"], &of["conditions"][0]);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            format!(
                "{} {} {} {}/{}: {} {} {:?}",
                text(&of["controllerName"]),
                text(&reference["group"]),
                text(&reference["kind"]),
                text(&reference["namespace"]),
                text(&reference["name"]),
                condition["observedGeneration"],
                text(&condition["reason"]),
                text(&condition["message"]),
            )
        });
        let gateway = "sluicegate.dev/gateway-controller gateway.networking.k8s.io";
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                format!(
                    "{gateway} Gateway infra/edge: 4 Conflicted \"HTTPRoute default/c: an older policy applies\""
                ),
                format!("{gateway} Gateway infra/inner: 4 Overridden \"HTTPRoute default/b: by another\""),
                format!(
                    "{gateway} HTTPRoute default/d: 4 TargetNotFound \"HTTPRoute default/d does not exist\""
                ),
                "sluicegate.dev/ingress-controller networking.k8s.io Ingress default/shop: 4 Accepted \"\""
                    .to_owned(),
            ]
        );
        assert_eq!(standing(written, 4).task(&policy, &wish, None), None, "it stands");
    }

    #[test]
    fn ancestors_have_at_most_16_entries_and_faults_and_foreign_entries_stay() {
        let policy = object(Kind::SecurityPolicy);
        let theirs =
            json!({"controllerName": "example.com/other", "ancestorRef": {"name": "x"}, "conditions": []});
        let stands = standing(json!({"ancestors": [theirs]}), 1);
        let gateways: Vec<String> = (0..20).map(|nth| format!("g{nth}")).collect();
        let gateways: Vec<&str> = gateways.iter().map(String::as_str).collect();
        let verdicts = vec![
            of_route("a", &gateways, Reason::Accepted, ""),
            of_route("b", &["last"], Reason::Conflicted, "an older policy applies"),
        ];
        let written =
            stands.task(&policy, &desired(verdicts, &stands), None).expect("nothing of ours stands there");
        let ancestors = written["ancestors"].as_array().expect("a list");
        assert_eq!((ancestors.len(), &ancestors[0]), (16, &theirs));
        assert_eq!(ancestors[1]["ancestorRef"]["name"], "last");
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
