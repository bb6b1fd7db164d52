//! The document of an API, read once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use sluicegate_model::ApiContract;
use sluicegate_openapi::{Document, Finding, Parts, SchemaFault};

use crate::catalogue::Packed;
use crate::documents::DOCUMENT_LENGTH_MAX;
use crate::locate;
use crate::manifest::read_openapi;
use crate::object::Kind;
use crate::object::policy::{GROUP, VERSION};

/// The bytes that the search for the lines of faults reads at most: each search reads the document from its beginning.
const SEARCHED_MAX: usize = 32 << 20;

/// The most contracts of one document that are kept. Environments can have contracts of their own.
const CONTRACTS_MAX: usize = 16;

/// A document and its faults.
#[derive(Debug)]
pub(crate) struct Contract {
    pub(crate) document: Document,
    /// The text, for people.
    pub(crate) text: Packed,
    /// The faults, each with its place in the document.
    pub(crate) faults: Vec<ContractFault>,
    /// The contracts for the data plane, by the parts that they have, so that a contract is made once.
    made: Mutex<Vec<(Vec<Parts>, Arc<ApiContract>)>>,
}

/// The contracts follow from the document.
impl PartialEq for Contract {
    fn eq(&self, other: &Self) -> bool {
        self.document == other.document && self.faults == other.faults
    }
}

/// A fault of a document.
#[derive(Debug, PartialEq)]
pub(crate) struct ContractFault {
    pub(crate) is_error: bool,
    pub(crate) message: String,
}

impl Contract {
    pub(crate) fn read(text: &str) -> Self {
        let failed = |message: String| Self {
            document: Document::default(),
            text: Packed::default(),
            faults: vec![ContractFault { is_error: true, message }],
            made: Mutex::default(),
        };
        if text.len() > DOCUMENT_LENGTH_MAX {
            return failed(format!("has {} bytes, but may have at most {DOCUMENT_LENGTH_MAX}", text.len()));
        }
        let root = match read_openapi(text) {
            Ok(root) => root,
            Err(fault) => return failed(format!("cannot be read as YAML or JSON: {fault}")),
        };
        let document = Document::read(&root);
        let fault = |(nth, finding): (usize, &Finding)| {
            let is_error = finding.severity == sluicegate_openapi::Severity::Error;
            // Brackets, because names of fields may contain dots and slashes.
            let field: String = finding.steps().map(|step| format!("[{step}]")).collect();
            let line = if nth * text.len() < SEARCHED_MAX { locate::line(text, &field) } else { None };
            let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            (line, ContractFault { is_error, message: format!("{place}{finding}") })
        };
        let mut faults: Vec<_> = document.findings.iter().enumerate().map(fault).collect();
        // Faults without a line are last.
        faults.sort_by_key(|(line, _)| (line.is_none(), *line));
        let faults = faults.into_iter().map(|(_, fault)| fault).collect();
        Self { document, text: Packed::new(text), faults, made: Mutex::default() }
    }

    /// Whether a part of the document cannot be served.
    pub(crate) fn has_errors(&self) -> bool {
        self.faults.iter().any(|fault| fault.is_error)
    }

    /// The contract with these parts of each operation, for the data plane.
    pub(crate) fn for_data_plane(&self, parts: Vec<Parts>) -> Arc<ApiContract> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, contract)) = made.iter().find(|(known, _)| *known == parts) {
            return contract.clone();
        }
        let contract = Arc::new(self.document.contract(&parts));
        if made.len() >= CONTRACTS_MAX {
            made.remove(0);
        }
        made.push((parts, contract.clone()));
        contract
    }

    /// A fault of a schema with its line in the document, if the line is known.
    pub(crate) fn located(&self, fault: &SchemaFault) -> String {
        let text = format!("#{}: ", fault.pointer);
        let known = self.faults.iter().find(|known| known.message.contains(&text));
        known.map_or_else(|| format!("{text}{}", fault.message), |known| known.message.clone())
    }
}

/// An OpenAPI document outside of any object.
#[derive(Debug)]
pub struct ApiDocument(Contract);

impl ApiDocument {
    /// Reads a document in YAML or JSON.
    #[must_use]
    pub fn read(text: &str) -> Self {
        Self(Contract::read(text))
    }

    /// Its title; empty without a title.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.0.document.title
    }

    /// Its version; empty without a version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.0.document.version
    }

    /// The host of its first server.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.0.document.servers.first()?.host.as_deref()
    }

    /// The number of its operations.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.0.document.operations.len()
    }

    /// Its faults: whether the fault is an error, and the message with line and JSON Pointer.
    pub fn faults(&self) -> impl Iterator<Item = (bool, &str)> {
        self.0.faults.iter().map(|fault| (fault.is_error, &*fault.message))
    }
}

/// An Api with an inline document and one environment.
#[must_use]
pub fn api_object(name: &str, namespace: Option<&str>, document: &str, environment: &Value) -> Value {
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": Kind::Api.as_str(),
        "metadata": metadata,
        "spec": {"document": {"inline": document}, "environments": [environment]},
    })
}

/// The documents of a ConfigMap by their keys, which are read once.
#[derive(Default)]
pub(crate) struct Cached(Mutex<BTreeMap<String, Arc<Contract>>>);

/// The documents follow from the values of the ConfigMap.
impl PartialEq for Cached {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cached")
    }
}

impl Cached {
    pub(crate) fn get(&self, key: &str, text: &str) -> Arc<Contract> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let contract = known.entry(key.to_owned()).or_insert_with(|| Arc::new(Contract::read(text)));
        contract.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_a_document_name_line_and_pointer() {
        let text =
            "openapi: 3.1.0\ninfo: {title: a, version: b}\npaths:\n  /a:\n    get: {}\n    fetch: {}\n";
        let contract = Contract::read(text);
        let [fault] = &contract.faults[..] else { panic!("{contract:?}") };
        assert!(fault.message.starts_with("line 6: #/paths/~1a/fetch: "), "{fault:?}");
        assert!(!fault.is_error);
    }

    #[test]
    fn words_of_yaml_1_1_and_codes_are_text() {
        let text = "openapi: 3.1.0\ninfo: {title: Y, version: '1'}\npaths:\n  /a:\n    get: {operationId: no, tags: [OFF, 007]}\n";
        let contract = Contract::read(text);
        assert_eq!(contract.faults, []);
        let [operation] = &contract.document.operations[..] else { panic!("{contract:?}") };
        let tags: Vec<&str> = operation.tags.iter().map(|tag| &**tag).collect();
        assert_eq!((&*contract.document.title, &*operation.id, &tags[..]), ("Y", "no", &["OFF", "007"][..]));
    }

    #[test]
    fn text_that_is_no_document_is_a_fault() {
        for (text, fault) in [("a: [", "cannot be read"), ("7", "is no mapping"), ("", "is no mapping")] {
            let contract = Contract::read(text);
            assert!(
                contract.faults[0].is_error && contract.faults[0].message.contains(fault),
                "{contract:?}"
            );
        }
        assert!(
            Contract::read(&" ".repeat(DOCUMENT_LENGTH_MAX + 1)).faults[0]
                .message
                .contains("at most 16777216")
        );
    }
}
