//! Lists with a limit.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::problem::Findings;

/// A list that may be empty.
pub(crate) fn bounded<T>(
    written: Option<Vec<T>>,
    most: usize,
    field: &str,
    findings: &mut Findings,
) -> Vec<T> {
    let list = written.unwrap_or_default();
    if list.len() > most {
        findings.error(field, format!("has {} entries, but may have at most {most}", list.len()));
    }
    list
}

/// The readable entries of a list, each with its place, if the object as a whole is unreadable.
pub(crate) fn readable<T: DeserializeOwned>(object: &Value, name: &str) -> Vec<(usize, T)> {
    let list = object.get("spec").and_then(|spec| spec.get(name)).and_then(Value::as_array);
    let entries = list.into_iter().flatten().enumerate();
    entries.filter_map(|(index, entry)| Some((index, serde_json::from_value(entry.clone()).ok()?))).collect()
}
