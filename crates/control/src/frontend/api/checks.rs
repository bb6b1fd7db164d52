//! Validation and mocks of the operations of an Api.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sluicegate_model::feature::{Validation, ValidationMode};
use sluicegate_model::rule::ApiChecks;
use sluicegate_openapi::{Operation, Parts};

use crate::object::api::contract::Contract;
use crate::object::api::{Api, Environment};

/// The checks of the operations that have any, by their ids. `report` receives the faults of schemas that close operations.
pub(super) fn of<'c>(
    contract: Option<&'c Contract>,
    api: &Api,
    environment: &Environment,
    report: &mut dyn FnMut(String),
) -> HashMap<&'c str, ApiChecks> {
    let Some(contract) = contract else { return HashMap::new() };
    let operations = &contract.document.operations;
    let settings: Vec<_> = operations.iter().map(|operation| settings(api, environment, operation)).collect();
    let parts: Vec<Parts> =
        settings.iter().map(|(validation, is_mocked)| parts(validation, *is_mocked)).collect();
    if parts.iter().all(|parts| *parts == Parts::default()) {
        return HashMap::new();
    }
    let of_all = contract.for_data_plane(parts.clone());
    let mut checks = HashMap::new();
    let mut closed: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    for ((operation, parts), (validation, is_mocked)) in operations.iter().zip(parts).zip(settings) {
        if parts == Parts::default() {
            continue;
        }
        let enforced = Parts {
            requests: validation.request() == ValidationMode::Enforce,
            responses: validation.response() == ValidationMode::Enforce && !is_mocked,
            examples: false,
        };
        let fault = contract.document.schema_fault(&operation.contract, enforced);
        if let Some(fault) = fault {
            closed.entry(contract.located(fault)).or_insert((0, &operation.id)).0 += 1;
        }
        let contract = Arc::clone(&of_all);
        checks.insert(
            &*operation.id,
            ApiChecks { contract, validation, is_mocked, is_closed: fault.is_some() },
        );
    }
    for (fault, (count, first)) in closed {
        let which = match count {
            1 => format!("requests for the operation {first:?}"),
            _ => format!("requests for {count} operations, such as {first:?},"),
        };
        report(format!(
            "{fault}; {which} receive 503: correct the schema, or do not enforce validation there"
        ));
    }
    checks
}

/// The validation of an operation, and whether the operation is mocked.
fn settings(api: &Api, environment: &Environment, operation: &Operation) -> (Validation, bool) {
    let sets = || api.sets.iter().filter(|set| set.has(operation));
    let validation = sets().fold(Validation::default(), |validation, set| validation.or(set.validation));
    (validation.or(api.validation), environment.upstream.is_none() || sets().any(|set| set.is_mocked))
}

fn parts(validation: &Validation, is_mocked: bool) -> Parts {
    Parts {
        requests: validation.request() != ValidationMode::Disabled,
        responses: validation.response() != ValidationMode::Disabled || is_mocked,
        examples: is_mocked,
    }
}

/// The media types that requests for an operation may have; none for any.
pub(super) fn media_types(operation: &Operation) -> Vec<Arc<str>> {
    let media_types = &operation.media_types;
    let are_usable = media_types.iter().all(|media_type| media_type.contains('/'));
    match are_usable && !media_types.iter().any(|media_type| **media_type == *"*/*") {
        true => media_types.iter().map(|media_type| Arc::from(&**media_type)).collect(),
        false => Vec::new(),
    }
}
