//! `Namespace`, and the selection of namespaces by their labels.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::kind::Raw;
use super::{Kind, Object, ObjectRef, annotation};
use crate::problem::Findings;

/// The label of every namespace with its name, which the API server writes.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A `Namespace`: only its labels matter.
#[derive(Debug, PartialEq)]
pub(crate) struct Namespace {
    labels: BTreeMap<Box<str>, Box<str>>,
}

/// A selection of namespaces: the namespaces that meet all requirements.
#[derive(Debug, PartialEq)]
pub(crate) struct NamespaceSelector(Vec<Requirement>);

/// A condition on a label.
#[derive(Debug, PartialEq)]
struct Requirement {
    label: Box<str>,
    condition: Condition,
}

/// The allowed values of a label (Kubernetes API, `LabelSelectorRequirement.operator`).
#[derive(Debug, PartialEq)]
enum Condition {
    In(Vec<String>),
    /// Another value, or no label.
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

impl Namespace {
    fn check(raw: v1::Namespace, object: &ObjectRef, findings: &mut Findings) -> Self {
        annotation::check_names(Kind::Namespace, raw.metadata.annotations.as_ref(), findings);
        let labels = raw.metadata.labels.unwrap_or_default().into_iter();
        let mut labels: BTreeMap<Box<str>, Box<str>> =
            labels.map(|(label, value)| (label.into(), value.into())).collect();
        labels.insert(NAME_LABEL.into(), (*object.name).into());
        Self { labels }
    }
}

impl NamespaceSelector {
    /// A selection as written in this field. If the selection is missing or has an error, it selects no namespace: `None`.
    /// `what` is the kind of the allowed objects in a sentence.
    pub(super) fn check(
        raw: Option<LabelSelector>,
        field: &str,
        what: &str,
        findings: &mut Findings,
    ) -> Option<Self> {
        let Some(LabelSelector { match_labels, match_expressions }) = raw else {
            let fault = "is missing: select namespaces by their labels";
            findings.error_or(field, fault, format!("no {what} is attached"));
            return None;
        };
        let labels = match_labels.unwrap_or_default().into_iter();
        let labels = labels.map(|(label, value)| {
            Some(Requirement { label: label.into(), condition: Condition::In(vec![value]) })
        });
        let mut requirements: Vec<Option<Requirement>> = labels.collect();
        for (index, written) in match_expressions.unwrap_or_default().into_iter().enumerate() {
            let requirement = Requirement::check(written).map_err(|(within, fault)| {
                let field = format!("{field}.matchExpressions[{index}].{within}");
                findings.error_or(field, fault, format!("no {what} is attached"));
            });
            requirements.push(requirement.ok());
        }
        requirements.into_iter().collect::<Option<Vec<Requirement>>>().map(Self)
    }

    /// Whether it selects a namespace.
    pub(super) fn selects(&self, namespace: &Namespace) -> bool {
        self.0.iter().all(|requirement| requirement.is_met_by(namespace))
    }
}

impl Requirement {
    /// A valid requirement, or the faulty field and the reason.
    fn check(raw: LabelSelectorRequirement) -> Result<Self, (&'static str, String)> {
        let LabelSelectorRequirement { key, operator, values } = raw;
        let values = values.unwrap_or_default();
        if key.is_empty() {
            return Err(("key", "is missing: name a label".to_owned()));
        }
        let condition = match &*operator {
            "In" | "NotIn" if values.is_empty() => {
                return Err(("values", format!("is missing: {operator} needs values")));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                return Err(("values", format!("is not allowed with {operator}: remove it")));
            }
            "In" => Condition::In(values),
            "NotIn" => Condition::NotIn(values),
            "Exists" => Condition::Exists,
            "DoesNotExist" => Condition::DoesNotExist,
            other => {
                let fault = format!("{other:?} is unknown: write In, NotIn, Exists or DoesNotExist");
                return Err(("operator", fault));
            }
        };
        Ok(Self { label: key.into(), condition })
    }

    fn is_met_by(&self, namespace: &Namespace) -> bool {
        let value = namespace.labels.get(&self.label);
        let is_among =
            |values: &[String]| value.is_some_and(|value| values.iter().any(|one| **one == **value));
        match &self.condition {
            Condition::In(values) => is_among(values),
            Condition::NotIn(values) => !is_among(values),
            Condition::Exists => value.is_some(),
            Condition::DoesNotExist => value.is_none(),
        }
    }
}

impl Raw for v1::Namespace {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(Namespace::check(self, object, findings).into())
    }
}
