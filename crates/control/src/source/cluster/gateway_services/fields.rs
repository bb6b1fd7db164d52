//! The comparison of a Service with an intended Service, by the rules of server-side apply.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1;
use serde_json::{Map, Value, json};

use super::FIELD_MANAGER;

/// Whether a Service has all intended values, and no other value of ours from an earlier write.
pub(super) fn is_as_intended(current: &v1::Service, intended: &v1::Service) -> bool {
    let (Ok(values), Ok(intended)) = (serde_json::to_value(current), serde_json::to_value(intended)) else {
        return false;
    };
    let entries = current.metadata.managed_fields.iter().flatten();
    let mut ours = entries.filter(|entry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.is_none()
    });
    let owned = ours.next().and_then(|entry| entry.fields_v1.as_ref());
    let owned: BTreeSet<String> = owned.map(|fields| owned_paths(&fields.0)).unwrap_or_default();
    let intended = leaves(&intended);
    let values = leaves(&values);
    intended.keys().eq(&owned) && intended.iter().all(|(path, value)| values.get(path) == Some(value))
}

/// The fields that a writer owns (`fieldsV1` of server-side apply), as paths.
fn owned_paths(fields: &Value) -> BTreeSet<String> {
    fn add(path: &str, fields: &Value, paths: &mut BTreeSet<String>) {
        let parts = fields.as_object().into_iter().flatten().filter(|(name, _)| *name != ".");
        let mut is_leaf = true;
        for (name, within) in parts {
            is_leaf = false;
            // `f:NAME` is a field, `k:{...}` is the item of a list with these keys.
            let key = match name.strip_prefix("k:").map(serde_json::from_str::<Value>) {
                Some(Ok(keys)) => keys.to_string(),
                _ => name.strip_prefix("f:").unwrap_or(name).to_owned(),
            };
            add(&format!("{path}\n{key}"), within, paths);
        }
        if is_leaf {
            paths.insert(path.to_owned());
        }
    }
    let mut paths = BTreeSet::new();
    add("", fields, &mut paths);
    paths
}

/// The fields of a Service that server-side apply treats as units, by the paths of [`owned_paths`].
fn leaves(service: &Value) -> BTreeMap<String, Value> {
    fn add(path: &str, value: &Value, leaves: &mut BTreeMap<String, Value>) {
        match value {
            // A selector is a unit.
            Value::Object(fields) if path != "\nspec\nselector" => {
                for (name, value) in fields {
                    add(&format!("{path}\n{name}"), value, leaves);
                }
            }
            Value::Array(owners) if path == "\nmetadata\nownerReferences" => {
                for owner in owners {
                    leaves.insert(format!("{path}\n{}", json!({"uid": owner["uid"]})), owner.clone());
                }
            }
            Value::Array(ports) if path == "\nspec\nports" => {
                for port in ports {
                    let keys = ["port", "protocol"].map(|key| (key.to_owned(), port[key].clone()));
                    let keys = Value::Object(Map::from_iter(keys));
                    add(&format!("{path}\n{keys}"), port, leaves);
                }
            }
            _ => {
                leaves.insert(path.to_owned(), value.clone());
            }
        }
    }
    let mut all = BTreeMap::new();
    for (part, fields) in [("metadata", &["labels", "annotations", "ownerReferences"][..]), ("spec", &[])] {
        let within = service[part].as_object().into_iter().flatten();
        for (name, value) in within.filter(|(name, _)| fields.is_empty() || fields.contains(&name.as_str())) {
            add(&format!("\n{part}\n{name}"), value, &mut all);
        }
    }
    all
}
