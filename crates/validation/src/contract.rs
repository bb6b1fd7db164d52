//! The compiled contract of an API.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sluicegate_model::ApiContract;

use crate::operation::Operation;
use crate::schema::options;
use crate::violation::{Place, VIOLATIONS_MAX, Violation};

/// The longest value, in bytes of its text, of which all violations are collected. Of a longer value only the first violation
/// is: a client could otherwise cause millions.
const ALL_MAX: usize = 64 * 1024;

/// The contract cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractFault(pub String);

impl fmt::Display for ContractFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The validators of all operations of an API. All threads share them.
#[derive(Debug)]
pub struct Contract {
    operations: HashMap<Box<str>, Arc<Operation>>,
}

impl Contract {
    /// Compiles a contract.
    ///
    /// # Errors
    /// If the schemas cannot be compiled. The control plane compiles each schema before, and leaves out such operations.
    pub fn new(contract: &ApiContract) -> Result<Self, ContractFault> {
        let all: Value = serde_json::from_str(&contract.schemas).map_err(fault)?;
        let Value::Object(all) = all else {
            return Err(ContractFault("the schemas are no object".to_owned()));
        };
        let schemas = Arc::new(Schemas::new(contract, &all)?);
        let samples = contract.has_mocks.then(|| Arc::new(all.clone()));
        let operations = contract.operations.iter().map(|source| {
            (source.id.clone(), Arc::new(Operation::new(source, &schemas, &all, samples.as_ref())))
        });
        Ok(Self { operations: operations.collect() })
    }

    /// The operation with this id.
    #[must_use]
    pub fn operation(&self, id: &str) -> Option<&Arc<Operation>> {
        self.operations.get(id)
    }
}

fn fault(fault: impl fmt::Display) -> ContractFault {
    ContractFault(fault.to_string())
}

/// The schemas of a contract, compiled as one schema: so they share the schemas to which they refer. One schema of an API with a
/// thousand operations takes a tenth of the memory of a thousand schemas.
///
/// The one schema describes objects in objects: the names are the digits of the place of a schema, and the innermost value is the
/// value to check. So the search for the schema takes few steps.
#[derive(Debug)]
pub(crate) struct Schemas {
    validator: jsonschema::Validator,
    /// The numbers of the schemas of parameters and bodies, in order.
    numbers: Vec<u32>,
    /// The number of digits of a place.
    digits: usize,
}

impl Schemas {
    fn new(contract: &ApiContract, all: &Map<String, Value>) -> Result<Self, ContractFault> {
        let mut numbers: Vec<u32> = contract.schemas_of_operations().collect();
        numbers.sort_unstable();
        numbers.dedup();
        let digits = format!("{:x}", numbers.len()).len();
        let mut root = json!({ "$defs": all });
        for (place, number) in numbers.iter().enumerate() {
            let mut at = &mut root;
            for digit in digits_of(place, digits) {
                at = &mut at["properties"][digit];
            }
            *at = json!({"$ref": format!("#/$defs/{number}")});
        }
        let validator = options().build(&root).map_err(fault)?;
        Ok(Self { validator, numbers, digits })
    }
}

/// The hexadecimal digits of a place.
fn digits_of(place: usize, digits: usize) -> impl DoubleEndedIterator<Item = String> {
    let text = format!("{place:0digits$x}");
    let digits: Vec<String> = text.chars().map(String::from).collect();
    digits.into_iter()
}

/// A compiled schema.
#[derive(Clone, Debug)]
pub(crate) struct Validator {
    schemas: Arc<Schemas>,
    /// The place among the schemas; without one, no value is valid.
    place: Option<usize>,
}

impl Validator {
    pub(crate) fn new(schemas: &Arc<Schemas>, number: u32) -> Self {
        Self { schemas: schemas.clone(), place: schemas.numbers.binary_search(&number).ok() }
    }

    /// The object for the one schema of the contract.
    fn wrapped(&self, value: Value) -> Option<Value> {
        let digits = digits_of(self.place?, self.schemas.digits).rev();
        Some(digits.fold(value, |value, digit| Map::from_iter([(digit, value)]).into()))
    }

    pub(crate) fn is_valid(&self, value: &Value) -> bool {
        let wrapped = self.wrapped(value.clone());
        wrapped.is_some_and(|wrapped| self.schemas.validator.is_valid(&wrapped))
    }

    /// The violations of a value whose text has this length.
    pub(crate) fn violations(
        &self,
        value: Value,
        length: usize,
        place: impl Fn(&str) -> Place,
    ) -> Vec<Violation> {
        let validator = &self.schemas.validator;
        let Some(wrapped) = self.wrapped(value) else {
            return vec![Violation::new(place(""), "has an unknown schema")];
        };
        let violation = |error: jsonschema::ValidationError<'_>| {
            let within = error.instance_path().as_str().get(2 * self.schemas.digits..);
            Violation::new(place(within.unwrap_or_default()), error.masked().to_string())
        };
        if length > ALL_MAX {
            return validator.validate(&wrapped).err().map(violation).into_iter().collect();
        }
        if validator.is_valid(&wrapped) {
            return Vec::new();
        }
        validator.iter_errors(&wrapped).take(VIOLATIONS_MAX).map(violation).collect()
    }
}
