//! The changed fields between two versions of an object.

use serde_json::{Map, Value, json};
use sluicegate_model::audit::SECRET;

/// The maximum number of changed fields of an entry.
const CHANGES_MAX: usize = 64;

/// The longest value of a changed field, in bytes of JSON. Of a longer value, the entry has the parts.
const VALUE_MAX: usize = 2048;

/// The maximum length of all changed fields of an entry, in bytes of JSON.
const LENGTH_MAX: usize = 16 * 1024;

/// The changed fields, and how many more there are.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Difference {
    pub(super) changes: Vec<Value>,
    pub(super) more: usize,
    length: usize,
}

/// The difference between two versions. Of a new or deleted object, the other version is empty.
pub(super) fn difference(old: &Map<String, Value>, new: &Map<String, Value>) -> Difference {
    let mut difference = Difference::default();
    // A version without labels and annotations has no metadata. The change is about a label or an annotation all the same.
    let metadata = |content: &Map<String, Value>| content.get("metadata")?.as_object().cloned();
    if metadata(old).is_some() != metadata(new).is_some() {
        let with = |content: &Map<String, Value>| {
            let mut content = content.clone();
            content.entry("metadata").or_insert_with(|| json!({}));
            content
        };
        difference.objects("", &with(old), &with(new));
    } else {
        difference.objects("", old, new);
    }
    difference
}

impl Difference {
    fn objects(&mut self, path: &str, old: &Map<String, Value>, new: &Map<String, Value>) {
        for (name, value) in old {
            self.values(&step(path, name), Some(value), new.get(name));
        }
        for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
            self.values(&step(path, name), None, Some(value));
        }
    }

    /// Entries that are equal at the start and at the end of two lists are no change.
    fn lists(&mut self, path: &str, old: &[Value], new: &[Value]) {
        let start = old.iter().zip(new).take_while(|(old, new)| old == new).count();
        let (old_rest, new_rest) = (&old[start..], &new[start..]);
        let end =
            old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
        let (old_rest, new_rest) = (&old_rest[..old_rest.len() - end], &new_rest[..new_rest.len() - end]);
        for nth in 0..old_rest.len().max(new_rest.len()) {
            self.values(&format!("{path}/{}", start + nth), old_rest.get(nth), new_rest.get(nth));
        }
    }

    fn values(&mut self, path: &str, old: Option<&Value>, new: Option<&Value>) {
        let (empty, no_entries) = (Map::new(), Vec::new());
        match (old, new) {
            (old, new) if old == new => {}
            (old, new) if is_secret(old) || is_secret(new) => {
                let change = match (old, new) {
                    (None, _) => "added",
                    (_, None) => "removed",
                    _ => "changed",
                };
                self.add(json!({"field": path, "secret": change}));
            }
            (Some(Value::Object(old)), Some(Value::Object(new))) => self.objects(path, old, new),
            (Some(Value::Array(old)), Some(Value::Array(new))) => self.lists(path, old, new),
            (None, Some(Value::Object(new))) if is_long(new) => self.objects(path, &empty, new),
            (Some(Value::Object(old)), None) if is_long(old) => self.objects(path, old, &empty),
            (None, Some(Value::Array(new))) if is_long(new) => self.lists(path, &no_entries, new),
            (Some(Value::Array(old)), None) if is_long(old) => self.lists(path, old, &no_entries),
            (old, new) => {
                let mut change = Map::new();
                change.insert("field".into(), path.into());
                for (name, value) in [("old", old), ("new", new)] {
                    change.extend(value.map(|value| (name.to_owned(), shown(value))));
                }
                self.add(change.into());
            }
        }
    }

    fn add(&mut self, change: Value) {
        let length = change.to_string().len();
        if self.changes.len() < CHANGES_MAX && self.length + length <= LENGTH_MAX {
            self.length += length;
            self.changes.push(change);
        } else {
            self.more += 1;
        }
    }
}

/// A step of a JSON pointer (RFC 6901, 3).
fn step(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn is_secret(value: Option<&Value>) -> bool {
    value.is_some_and(|value| value.get(SECRET).is_some())
}

fn is_long(value: &impl serde::Serialize) -> bool {
    serde_json::to_string(value).map_or(0, |text| text.len()) > VALUE_MAX
}

/// A value without the fingerprints of its secrets.
fn shown(value: &Value) -> Value {
    match value {
        value if value.get(SECRET).is_some() => "(secret)".into(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), shown(value))).collect(),
        Value::Array(entries) => entries.iter().map(shown).collect(),
        value if is_long(value) => "(long)".into(),
        value => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(old: &Value, new: &Value) -> Vec<Value> {
        let of = |value: &Value| value.as_object().cloned().unwrap_or_default();
        difference(&of(old), &of(new)).changes
    }

    #[test]
    fn changed_fields_are_pointers_with_the_old_and_the_new_value() {
        let old = json!({"spec": {"limits": [{"name": "a", "requests": 1}, {"name": "b"}], "title": "x", "a/b": 1}});
        let new = json!({"spec": {"limits": [{"name": "a", "requests": 2}, {"name": "b"}], "a/b": 2}, "x": {"y": 1}});
        assert_eq!(
            changes(&old, &new),
            [
                json!({"field": "/spec/a~1b", "old": 1, "new": 2}),
                json!({"field": "/spec/limits/0/requests", "old": 1, "new": 2}),
                json!({"field": "/spec/title", "old": "x"}),
                json!({"field": "/x", "new": {"y": 1}}),
            ]
        );
        assert_eq!(
            changes(&json!({}), &json!({"metadata": {"labels": {"a": "b"}}})),
            [json!({"field": "/metadata/labels", "new": {"a": "b"}})]
        );
        assert_eq!(
            changes(&json!({"a": [1, 2, 3]}), &json!({"a": [1, 4, 2, 3]})),
            [json!({"field": "/a/1", "new": 4})]
        );
        assert_eq!(changes(&json!({"a": [1, 2]}), &json!({"a": [2]})), [json!({"field": "/a/0", "old": 1})]);
    }

    #[test]
    fn secrets_have_no_value_and_no_fingerprint() {
        let secret = |print: &str| json!({SECRET: print});
        let old = json!({"data": {"a": secret("1111"), "b": secret("2222"), "c": {"d": secret("3333")}}});
        let new = json!({"data": {"a": secret("4444"), "e": secret("5555")}, "f": [{"g": secret("6666")}]});
        assert_eq!(
            changes(&old, &new),
            [
                json!({"field": "/data/a", "secret": "changed"}),
                json!({"field": "/data/b", "secret": "removed"}),
                json!({"field": "/data/c", "old": {"d": "(secret)"}}),
                json!({"field": "/data/e", "secret": "added"}),
                json!({"field": "/f", "new": [{"g": "(secret)"}]}),
            ]
        );
    }

    #[test]
    fn difference_is_bounded() {
        let many: Map<_, _> = (0..1000).map(|n| (format!("{n:04}"), "x".repeat(100).into())).collect();
        let of = difference(&Map::new(), &many);
        assert_eq!((of.changes.len(), of.more), (CHANGES_MAX, 1000 - CHANGES_MAX));
        let long =
            json!({"spec": {"a": (0..100).map(|n| format!("{n}{}", "x".repeat(3000))).collect::<Vec<_>>()}});
        let changes = changes(&json!({}), &long);
        assert_eq!(changes[1], json!({"field": "/spec/a/1", "new": "(long)"}));
        assert!(json!(changes).to_string().len() < LENGTH_MAX);
    }
}
