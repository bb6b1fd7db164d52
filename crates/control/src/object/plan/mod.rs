//! `Plan` and `Subscription`.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluicegate_model::feature::{Check, Fault, Faults};
use sluicegate_model::value::syntax;
use sluicegate_model::{Visibility, policy};

use super::gateway_api::Written;
use super::kind::Raw;
use super::policy::shared::{self, Sharing};
use super::{Kind, Object, ObjectRef, annotation, manager, visibility};
use crate::problem::Findings;
use written::{Approval, ApprovalMode, PlanSpec, SubscriptionSpec};

pub(crate) mod written;

/// A checked `Plan`.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) title: Option<Box<str>>,
    pub(crate) description: Option<Box<str>>,
    /// The terms for the data plane.
    pub(crate) terms: policy::Plan,
    pub(crate) approval: ApprovalMode,
    /// The visitors of the developer portal that may ask for a Subscription by the plan.
    pub(crate) visibility: Visibility,
    /// The server that shares the counts, if a part of it is in Secrets.
    pub(crate) sharing: Option<Sharing>,
}

/// A checked `Subscription`.
#[derive(Debug, PartialEq)]
pub(crate) struct Subscription {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    pub(crate) consumer: ObjectRef,
    pub(crate) plan: ObjectRef,
    pub(crate) apis: Vec<Subscribed>,
    pub(crate) approval: Option<Approval>,
    pub(crate) is_suspended: bool,
    /// The program that manages the object from a repository.
    pub(crate) manager: Option<Box<str>>,
}

/// An Api of a subscription.
#[derive(Debug, PartialEq)]
pub(crate) struct Subscribed {
    /// Its place in `spec.apis`.
    pub(crate) index: usize,
    pub(crate) api: ObjectRef,
    /// The names of operation sets; `None` for all operations.
    pub(crate) sets: Option<Vec<Arc<str>>>,
}

impl Plan {
    /// With an error there is no plan: a plan without one of its limits would allow too much.
    fn check(raw: Written<PlanSpec>, object: &ObjectRef, findings: &mut Findings) -> Option<Self> {
        annotation::check_names(object.kind, raw.metadata.annotations.as_ref(), findings);
        let spec = raw.spec.unwrap_or_default();
        for (name, text) in [("title", &spec.title), ("description", &spec.description)] {
            if let Some(fault) = text.as_deref().and_then(syntax::value_fault) {
                findings.error(format!("spec.{name}"), format!("{text:?} {fault}"));
            }
        }
        let limits: Vec<_> = spec.limits.iter().flat_map(|list| list.iter().cloned()).collect();
        let concurrency: Vec<_> = spec.concurrency.iter().flat_map(|list| list.iter().cloned()).collect();
        let quotas: Vec<_> = spec.quotas.iter().flat_map(|list| list.iter().cloned()).collect();
        check_all("limits", &limits, findings);
        check_all("concurrency", &concurrency, findings);
        check_all("quotas", &quotas, findings);
        let (shared, sharing) = match spec.shared {
            Some(written) => {
                let (shared, sharing) = shared::check(written, &object.namespace, findings);
                (Some(shared), sharing)
            }
            None => (None, None),
        };
        let limits = policy::RateLimits {
            id: object.id(),
            limits,
            concurrency,
            headers: spec.headers.unwrap_or(true),
            shared,
            exempt: policy::rate_limit::Exempt::default(),
        };
        let mut names = BTreeSet::new();
        let of_limits = limits.limits.iter().map(|limit| ("limits", &limit.name));
        let of_concurrency = limits.concurrency.iter().map(|limit| ("concurrency", &limit.name));
        let of_quotas = quotas.iter().map(|quota| ("quotas", &quota.name));
        for (list, name) in of_limits.chain(of_concurrency).chain(of_quotas) {
            if !names.insert(name) {
                let fault = format!("{name:?} is the name of two limits or quotas: rename one");
                findings.error(format!("spec.{list}"), fault);
            }
        }
        let visibility = visibility::check(spec.catalogue, findings);
        (!findings.has_errors()).then(|| Self {
            title: spec.title.map(Into::into),
            description: spec.description.map(Into::into),
            terms: policy::Plan { limits, quotas, x_headers: spec.x_headers.unwrap_or(false) },
            approval: spec.approval.unwrap_or_default(),
            visibility,
            sharing,
        })
    }
}

/// Checks each entry of a list.
fn check_all<T: Check>(list: &str, entries: &[T], findings: &mut Findings) {
    for (index, entry) in entries.iter().enumerate() {
        entry.check(&mut Faults::new(&format!("spec.{list}[{index}]"), &mut |field, fault| match fault {
            Fault::Error(message) => findings.error(field, message),
            Fault::Warning(message) => findings.warning(field, message),
        }));
    }
}

impl Subscription {
    fn check(raw: Written<SubscriptionSpec>, object: &ObjectRef, findings: &mut Findings) -> Option<Self> {
        annotation::check_names(object.kind, raw.metadata.annotations.as_ref(), findings);
        let spec = raw.spec.unwrap_or_default();
        let mut named = |kind: Kind, field: String, name: String, namespace: Option<String>| {
            let texts = [Some(&*name), namespace.as_deref()];
            for (text, field) in
                texts.into_iter().zip([format!("{field}.name"), format!("{field}.namespace")])
            {
                if let Some((text, fault)) = text.and_then(|text| Some((text, syntax::dns_name_fault(text)?)))
                {
                    findings.error(field, format!("{text:?} {fault}"));
                }
            }
            let namespace = namespace.map_or_else(|| object.namespace.clone(), Into::into);
            ObjectRef { kind, namespace, name: name.into() }
        };
        let (of, plan) = (spec.consumer_ref, spec.plan_ref);
        let consumer = named(Kind::Consumer, "spec.consumerRef".to_owned(), of.name, of.namespace);
        let plan = named(Kind::Plan, "spec.planRef".to_owned(), plan.name, None);
        let apis = spec.apis.into_iter().enumerate().map(|(index, written)| Subscribed {
            index,
            api: named(Kind::Api, format!("spec.apis[{index}]"), written.name, None),
            sets: written.operation_sets.map(|sets| sets.into_iter().map(Into::into).collect()),
        });
        let apis: Vec<_> = apis.collect();
        if apis.is_empty() {
            findings.error("spec.apis", "is empty: name at least one Api");
        }
        for of in &apis {
            if of.sets.as_ref().is_some_and(Vec::is_empty) {
                let fault = "is empty: name a set, or remove the field";
                findings.error(format!("spec.apis[{}].operationSets", of.index), fault);
            }
        }
        (!findings.has_errors()).then(|| Self {
            created: raw.metadata.creation_timestamp.map(|time| time.0.as_second()),
            consumer,
            plan,
            apis,
            approval: spec.approval,
            is_suspended: spec.suspended.unwrap_or(false),
            manager: manager::of(raw.metadata.labels.as_ref(), raw.metadata.annotations.as_ref()),
        })
    }
}

impl Raw for Written<PlanSpec> {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(Plan::check(self, object, findings)?.into())
    }
}

impl Raw for Written<SubscriptionSpec> {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(Subscription::check(self, object, findings)?.into())
    }
}
