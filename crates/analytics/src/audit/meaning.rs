//! A change in the words of its field: a key issued, a subscription approved, an API deprecated.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

type Content = Map<String, Value>;

/// Describes the meaning of a change of an object. The text is empty if the list of changed fields suffices. A new or deleted
/// object has only one version.
pub(super) fn meaning(kind: &str, old: Option<&Content>, new: Option<&Content>) -> String {
    match kind {
        "Consumer" => keys(old, new),
        "Subscription" => subscription(old, new),
        "Api" => lifecycle(old, new),
        _ => Vec::new(),
    }
    .join("; ")
}

fn field<'c>(content: Option<&'c Content>, name: &str) -> &'c Value {
    content.and_then(|content| content.get("spec")?.get(name)).unwrap_or(&Value::Null)
}

/// The keys of a Consumer by name. A key without a name is known by its place.
fn named(content: Option<&Content>) -> BTreeMap<String, &Value> {
    let keys = field(content, "apiKeys").as_array().into_iter().flatten().enumerate();
    keys.map(|(nth, key)| (key["name"].as_str().map_or_else(|| format!("#{}", nth + 1), str::to_owned), key))
        .collect()
}

fn keys(old: Option<&Content>, new: Option<&Content>) -> Vec<String> {
    let (before, after) = (named(old), named(new));
    let issued: Vec<_> = after.keys().filter(|name| !before.contains_key(*name)).collect();
    let mut said = Vec::new();
    let mut replaced = None;
    for (name, key) in &before {
        let Some(now) = after.get(name) else {
            said.push(format!("key {name:?} removed"));
            continue;
        };
        let is_revoked = |key: &Value| key["revoked"] == true;
        match (is_revoked(key), is_revoked(now)) {
            (false, true) => said.push(format!("key {name:?} revoked")),
            (true, false) => said.push(format!("key {name:?} is valid again")),
            _ if key["expires"] == now["expires"] => {}
            // The old key of a rotation expires after an overlap.
            _ if issued.len() == 1 && replaced.is_none() && now["expires"].is_string() => {
                replaced = Some((name, now));
            }
            _ => said.push(match now["expires"].as_str() {
                Some(expires) => format!("key {name:?} expires at {expires}"),
                None => format!("key {name:?} does not expire any more"),
            }),
        }
        let value = |key: &Value| [key["sha256"].clone(), key["secretRef"].clone()];
        if value(key) != value(now) {
            said.push(format!("key {name:?} replaced"));
        }
    }
    match (replaced, &*issued) {
        (Some((name, key)), [new]) => {
            let expires = key["expires"].as_str().unwrap_or_default();
            said.push(format!("key {name:?} rotated: key {new:?} issued, key {name:?} expires at {expires}"));
        }
        _ => said.extend(issued.iter().map(|name| format!("key {name:?} issued"))),
    }
    said
}

fn subscription(old: Option<&Content>, new: Option<&Content>) -> Vec<String> {
    if new.is_none() {
        return Vec::new();
    }
    let mut said = Vec::new();
    if field(old, "approval") != field(new, "approval") {
        said.push(match field(new, "approval").as_str() {
            Some("Approved") => "subscription approved",
            Some("Rejected") => "subscription rejected",
            _ => "approval withdrawn",
        });
    }
    match (field(old, "suspended") == true, field(new, "suspended") == true) {
        (false, true) => said.push("subscription suspended"),
        (true, false) => said.push("subscription resumed"),
        _ => {}
    }
    said.into_iter().map(str::to_owned).collect()
}

fn lifecycle(old: Option<&Content>, new: Option<&Content>) -> Vec<String> {
    let state = |content| field(content, "lifecycle")["state"].as_str().unwrap_or("Published").to_owned();
    match (old, new) {
        (Some(_), Some(_)) if state(old) != state(new) => {
            vec![format!("lifecycle from {} to {}", state(old), state(new))]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(kind: &str, old: &Value, new: &Value, expected: &str) {
        let of = |spec: &Value| json!({"spec": spec}).as_object().cloned().filter(|_| !spec.is_null());
        assert_eq!(meaning(kind, of(old).as_ref(), of(new).as_ref()), expected);
    }

    #[test]
    fn keys_are_issued_rotated_and_revoked() {
        let a = json!({"name": "a", "sha256": "x"});
        let keys = |keys: &[&Value]| json!({"apiKeys": keys});
        check("Consumer", &Value::Null, &keys(&[&a]), "key \"a\" issued");
        check("Consumer", &keys(&[&a]), &Value::Null, "key \"a\" removed");
        check("Consumer", &json!({}), &keys(&[&a, &json!({})]), "key \"#2\" issued; key \"a\" issued");
        let revoked = json!({"name": "a", "sha256": "x", "revoked": true});
        check("Consumer", &keys(&[&a]), &keys(&[&revoked]), "key \"a\" revoked");
        check("Consumer", &keys(&[&revoked]), &keys(&[&a]), "key \"a\" is valid again");
        let expires = json!({"name": "a", "sha256": "x", "expires": "2027"});
        check("Consumer", &keys(&[&a]), &keys(&[&expires]), "key \"a\" expires at 2027");
        check(
            "Consumer",
            &keys(&[&a]),
            &keys(&[&expires, &json!({"name": "b"})]),
            "key \"a\" rotated: key \"b\" issued, key \"a\" expires at 2027",
        );
        check("Consumer", &keys(&[&a]), &keys(&[&json!({"name": "a", "sha256": "y"})]), "key \"a\" replaced");
    }

    #[test]
    fn decisions_about_subscriptions_and_apis_have_words() {
        check("Subscription", &json!({}), &json!({"approval": "Approved"}), "subscription approved");
        check("Subscription", &json!({"approval": "Approved"}), &json!({}), "approval withdrawn");
        check("Subscription", &json!({}), &json!({"suspended": true}), "subscription suspended");
        check(
            "Subscription",
            &json!({"suspended": true}),
            &json!({"suspended": false}),
            "subscription resumed",
        );
        check("Subscription", &json!({}), &Value::Null, "");
        let deprecated = json!({"lifecycle": {"state": "Deprecated"}});
        check("Api", &json!({}), &deprecated, "lifecycle from Published to Deprecated");
        check("Plan", &json!({}), &deprecated, "");
    }
}
