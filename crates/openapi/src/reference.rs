//! References inside of a document (`$ref`).

use serde_json::Value;

use crate::finding::{Findings, Pointer};

/// The longest chain of references.
const CHAIN_MAX: usize = 16;

/// The value that `at` stands for: the value itself, or the target of its reference. `None` if the reference leads nowhere,
/// which is a finding.
pub(crate) fn resolve<'v>(
    root: &'v Value,
    mut value: &'v Value,
    at: &Pointer<'_>,
    findings: &mut Findings,
) -> Option<&'v Value> {
    for _ in 0..CHAIN_MAX {
        let Some(reference) = value.get("$ref") else { return Some(value) };
        let at = at.field("$ref");
        let Some(reference) = reference.as_str() else {
            findings.error(&at, "is not text: write #/components/...");
            return None;
        };
        let Some(pointer) = reference.strip_prefix('#') else {
            findings
                .error(&at, format!("{reference:?} is in another document: bundle both into one document"));
            return None;
        };
        match root.pointer(&decoded(pointer)) {
            Some(target) => value = target,
            None => {
                findings.error(&at, format!("{reference:?} does not exist in the document"));
                return None;
            }
        }
    }
    findings.error(at, "is a circle of references");
    None
}

/// The value to which a reference leads, which may refer to another value.
pub(crate) fn target<'v>(root: &'v Value, reference: &str) -> Option<&'v Value> {
    root.pointer(&decoded(reference.strip_prefix('#')?))
}

/// A pointer in a URI fragment, without percent encoding (RFC 6901, 6).
fn decoded(pointer: &str) -> String {
    let mut bytes = Vec::with_capacity(pointer.len());
    let mut rest = pointer.as_bytes();
    while let [first, more @ ..] = rest {
        let escape = match more {
            [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match escape {
            Some((high, low)) => {
                bytes.push(high * 16 + low);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resolved(root: &Value, reference: &str) -> (Option<Value>, Vec<String>) {
        let mut findings = Findings::default();
        let value = json!({ "$ref": reference });
        let found = resolve(root, &value, &Pointer::Root, &mut findings).cloned();
        (found, findings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn references_lead_to_parts_of_the_document() {
        let root = json!({"a/b": {"c d": 7}, "chain": {"$ref": "#/a~1b/c%20d"}});
        assert_eq!(resolved(&root, "#/a~1b/c%20d"), (Some(json!(7)), vec![]));
        assert_eq!(resolved(&root, "#/chain").0, Some(json!(7)));
    }

    #[test]
    fn references_that_lead_nowhere_are_faults() {
        let root = json!({"one": {"$ref": "#/two"}, "two": {"$ref": "#/one"}});
        for (reference, fault) in
            [("#/one", "circle"), ("#/none", "does not exist"), ("other.yaml#/one", "another document")]
        {
            let (found, findings) = resolved(&root, reference);
            assert!(found.is_none() && findings.len() == 1 && findings[0].contains(fault), "{findings:?}");
        }
    }
}
