//! OpenAPI documents: no panic, and a contract without faults compiles.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use sluicegate_openapi::{Document, Parts};
use sluicegate_validation::{Contract, Preferences};

const ALL: Parts = Parts { requests: true, responses: true, examples: true };

fuzz_target!(|text: &[u8]| {
    let Ok(root) = serde_json::from_slice::<Value>(text) else { return };
    let document = Document::read(&root);
    // The control plane leaves out operations whose schemas have a fault.
    if document.operations.iter().any(|operation| document.schema_fault(&operation.contract, ALL).is_some()) {
        return;
    }
    let contract = document.contract(&vec![ALL; document.operations.len()]);
    let compiled = Contract::new(&contract).expect("schemas without faults compile");
    for operation in &contract.operations {
        let Some(operation) = compiled.operation(&operation.id) else { continue };
        let _ = operation.check_request_body(Some(b"application/json"), b"{\"a\": [1]}");
        let _ = operation.mock(None, &Preferences::of(Vec::new()));
    }
});
