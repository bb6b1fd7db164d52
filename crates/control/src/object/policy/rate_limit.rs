//! `RateLimitPolicy`.

use std::sync::Arc;

use foldhash::HashSet;
use serde_json::Value;
use sluicegate_model::feature::{Concurrency, Limit};
use sluicegate_model::policy::RateLimits;

use super::shared::{self, Sharing};
use super::target::Target;
use super::written::rate_limit::RateLimitParts;
use crate::manifest::typed::Placed;
use crate::object::ObjectRef;
use crate::problem::Findings;

/// A checked `RateLimitPolicy`: its valid limits.
#[derive(Debug, PartialEq)]
pub(crate) struct RateLimitPolicy {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    pub(crate) targets: Vec<Target>,
    pub(crate) limits: Arc<RateLimits>,
    /// The server that shares them, if a part of it is in Secrets.
    pub(crate) sharing: Option<Sharing>,
}

impl RateLimitPolicy {
    /// The entries of `limits` and `concurrency` are valid, each with its place. `findings` are the findings of reading the
    /// object.
    pub(crate) fn new(
        created: Option<i64>,
        targets: Vec<Target>,
        (mut rates, mut concurrency): (Placed<Limit>, Placed<Concurrency>),
        parts: RateLimitParts,
        spec: &Value,
        object: &ObjectRef,
        findings: &mut Findings,
    ) -> Self {
        if spec.get("limits").is_none() {
            if spec.get("concurrency").is_none() && !spec.is_null() {
                findings.error("spec", "limits nothing: write limits, concurrency or both");
            }
            if spec.get("shared").is_some() {
                let fault = "has no effect without limits: each data plane counts concurrency by itself";
                findings.error("spec.shared", fault);
            }
        }
        let mut names = HashSet::default();
        let mut is_another = |list: &str, index: usize, name: &str| {
            let is_another = names.insert(name.to_owned());
            if !is_another {
                let field = format!("spec.{list}[{index}].name");
                findings.error(field, format!("{name:?} is the name of two limits: rename one"));
            }
            is_another
        };
        rates.retain(|(index, limit)| is_another("limits", *index, &limit.name));
        concurrency.retain(|(index, limit)| is_another("concurrency", *index, &limit.name));
        // A misspelt field may be a field that protects the password.
        let (shared, sharing) = match (shared::fault(findings), parts.shared) {
            (Some(fault), _) => (Some(fault), None),
            (None, Some(written)) => {
                let (shared, sharing) = shared::check(written, &object.namespace, findings);
                (Some(shared), sharing)
            }
            (None, None) => (None, None),
        };
        let limits = RateLimits {
            id: object.id(),
            limits: rates.into_iter().map(|(_, limit)| limit).collect(),
            concurrency: concurrency.into_iter().map(|(_, limit)| limit).collect(),
            headers: parts.headers.unwrap_or(true),
            shared,
            exempt: parts.exempt,
        };
        Self { created, targets, limits: Arc::new(limits), sharing }
    }
}
