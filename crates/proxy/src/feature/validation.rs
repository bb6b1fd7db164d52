//! Validation of requests and responses by the contracts of APIs, and mock responses.
//!
//! A contract is compiled once, when its configuration is published. All workers share the validators, and further
//! configurations as long as the contract is the same.

use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::feature::Validation;
use sluicegate_model::rule::{ApiChecks, Rule};
use sluicegate_model::{ApiContract, ObjectId};
use sluicegate_validation::{Contract, Operation};

use crate::counters::{ApiStats, Counters};

/// The checks of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Checks {
    pub(crate) validation: Validation,
    /// `None` closes the operation: its contract cannot be compiled.
    pub(crate) operation: Option<Arc<Operation>>,
    pub(crate) is_mocked: bool,
    pub(crate) stats: Arc<ApiStats>,
    api: ObjectId,
    source: Arc<ApiContract>,
    compiled: Compiled,
}

/// A compiled contract; `None` if it cannot be compiled.
type Compiled = Option<Arc<Contract>>;

/// The contracts and the counters of the APIs of a table.
#[derive(Debug, Default)]
pub(crate) struct Apis {
    /// By the address of the contract, which the value keeps alive.
    contracts: HashMap<usize, (Arc<ApiContract>, Compiled)>,
    stats: HashMap<ObjectId, Arc<ApiStats>>,
}

/// The state of an API, for readers.
#[derive(Clone, Debug)]
pub struct ApiState {
    /// The object.
    pub id: ObjectId,
    /// The counters.
    pub stats: Arc<ApiStats>,
}

impl Apis {
    /// The checks of a rule. A contract that did not change since the table `before` stays compiled.
    pub(crate) fn checks(&mut self, rule: &Rule, before: &Self, counters: &Counters) -> Option<Box<Checks>> {
        let api = rule.api.as_ref()?;
        let ApiChecks { contract, validation, is_mocked, is_closed } = &**api.checks.as_ref()?;
        let compiled = self.compiled(contract, before);
        let operation = compiled.as_ref().filter(|_| !is_closed);
        let operation = operation.and_then(|compiled| compiled.operation(api.operation.as_deref()?).cloned());
        let known = self.stats.get(&rule.id).or_else(|| before.stats.get(&rule.id)).cloned();
        let stats = known.unwrap_or_else(|| counters.new_api());
        self.stats.insert(rule.id.clone(), stats.clone());
        Some(Box::new(Checks {
            validation: *validation,
            operation,
            is_mocked: *is_mocked,
            stats,
            api: rule.id.clone(),
            source: contract.clone(),
            compiled,
        }))
    }

    /// Adopts the checks of an unchanged rule.
    pub(crate) fn adopt(&mut self, checks: &Checks) {
        let place = Arc::as_ptr(&checks.source).addr();
        self.contracts.entry(place).or_insert_with(|| (checks.source.clone(), checks.compiled.clone()));
        self.stats.entry(checks.api.clone()).or_insert_with(|| checks.stats.clone());
    }

    /// Each API with checks.
    pub(crate) fn states(&self) -> impl Iterator<Item = ApiState> {
        self.stats.iter().map(|(id, stats)| ApiState { id: id.clone(), stats: stats.clone() })
    }

    fn compiled(&mut self, contract: &Arc<ApiContract>, before: &Self) -> Compiled {
        let place = Arc::as_ptr(contract).addr();
        if let Some((_, compiled)) = self.contracts.get(&place) {
            return compiled.clone();
        }
        let all = self.contracts.values().chain(before.contracts.values());
        let known =
            before.contracts.get(&place).or_else(|| all.into_iter().find(|(known, _)| known == contract));
        let compiled = known.map_or_else(|| compile(contract), |(_, compiled)| compiled.clone());
        self.contracts.insert(place, (contract.clone(), compiled.clone()));
        compiled
    }
}

fn compile(contract: &ApiContract) -> Compiled {
    match Contract::new(contract) {
        Ok(compiled) => Some(Arc::new(compiled)),
        Err(fault) => {
            tracing::error!(%fault, "the contract of an API cannot be compiled: its operations respond with 503");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use sluicegate_model::contract::OperationContract;
    use sluicegate_model::rule::ApiOperation;
    use sluicegate_model::{PathPattern, Transport, UpstreamKey};

    use super::*;

    fn rule(contract: ApiContract) -> Rule {
        let id = ObjectId { kind: "Api", namespace: "shop".into(), name: "pets".into() };
        let transport = Transport::default();
        let upstream =
            UpstreamKey { namespace: "shop".into(), service: "web".into(), port: "80".into(), transport };
        let checks = ApiChecks {
            contract: Arc::new(contract),
            validation: Validation::default(),
            is_mocked: false,
            is_closed: false,
        };
        let operation = Some("a".into());
        let api = ApiOperation { operation, checks: Some(Box::new(checks)), ..ApiOperation::default() };
        Rule { api: Some(Box::new(api)), ..Rule::new(id, PathPattern::Exact("/a".into()), upstream) }
    }

    #[test]
    fn equal_contracts_are_compiled_once() {
        let counters = Counters::new(1, Arc::<AtomicU64>::default());
        let contract = |schemas: &str| ApiContract {
            schemas: schemas.into(),
            operations: vec![OperationContract { id: "a".into(), ..OperationContract::default() }],
            has_mocks: false,
        };
        let mut first = Apis::default();
        let one = first.checks(&rule(contract("{}")), &Apis::default(), &counters).unwrap();
        let beside = first.checks(&rule(contract("{}")), &Apis::default(), &counters).unwrap();
        let mut second = Apis::default();
        let other = second.checks(&rule(contract("{}")), &first, &counters).unwrap();
        let changed = second.checks(&rule(contract("{\"0\":true}")), &first, &counters).unwrap();
        let compiled = |checks: &Checks| Arc::as_ptr(checks.compiled.as_ref().unwrap());
        assert_eq!(compiled(&one), compiled(&beside));
        assert_eq!(compiled(&one), compiled(&other));
        assert_ne!(compiled(&one), compiled(&changed));
        assert!(Arc::ptr_eq(&one.stats, &changed.stats), "the counters belong to the object");
    }

    #[test]
    fn contract_that_cannot_be_compiled_closes_its_operations() {
        let counters = Counters::new(1, Arc::<AtomicU64>::default());
        let contract = ApiContract { schemas: "[".into(), ..ApiContract::default() };
        let checks = Apis::default().checks(&rule(contract), &Apis::default(), &counters).unwrap();
        assert!(checks.operation.is_none());
    }
}
