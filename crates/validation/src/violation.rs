//! What is wrong with a message.

use serde_json::{Value, json};

/// The most violations of one message that are collected.
pub(crate) const VIOLATIONS_MAX: usize = 20;

/// The longest detail of a violation, in bytes.
const DETAIL_MAX: usize = 300;

/// The place of a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A parameter of the path, of the query or a cookie: its name, and `path`, `query` or `cookie`.
    Parameter(Box<str>, &'static str),
    /// A header.
    Header(Box<str>),
    /// A value of the body: a JSON Pointer (RFC 6901), empty for the whole body.
    Body(Box<str>),
    /// The status of a response.
    Status,
}

/// A violation of a contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The place.
    pub place: Place,
    /// The fault. The text has no value of the message, which may be a secret.
    pub detail: String,
}

impl Violation {
    pub(crate) fn new(place: Place, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        if detail.len() > DETAIL_MAX {
            let end = (0..=DETAIL_MAX).rev().find(|end| detail.is_char_boundary(*end));
            detail.truncate(end.unwrap_or_default());
            detail.push_str("...");
        }
        Self { place, detail }
    }

    fn to_json(&self) -> Value {
        let detail = &self.detail;
        match &self.place {
            Place::Parameter(name, of) => json!({"parameter": name, "in": of, "detail": detail}),
            Place::Header(name) => json!({"header": name, "detail": detail}),
            Place::Body(pointer) => json!({"pointer": format!("#{pointer}"), "detail": detail}),
            Place::Status => json!({"detail": detail}),
        }
    }
}

/// A problem document (RFC 9457) with these violations.
#[must_use]
pub fn problem(status: u16, title: &str, detail: &str, violations: &[Violation]) -> Value {
    let errors: Vec<Value> = violations.iter().map(Violation::to_json).collect();
    let mut body = json!({"type": "about:blank", "title": title, "status": status, "detail": detail});
    if !errors.is_empty() {
        body["errors"] = errors.into();
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_document_names_the_place_of_each_error() {
        let violations = [
            Violation::new(Place::Body("/age".into()), "x"),
            Violation::new(Place::Parameter("q".into(), "query"), "y"),
            Violation::new(Place::Header("X-Id".into()), "z"),
        ];
        let body = problem(400, "Bad Request", "d", &violations);
        assert_eq!(
            body["errors"],
            json!([
                {"pointer": "#/age", "detail": "x"},
                {"parameter": "q", "in": "query", "detail": "y"},
                {"header": "X-Id", "detail": "z"},
            ])
        );
        assert_eq!(body["status"], 400);
        assert_eq!(problem(400, "a", "b", &[]).get("errors"), None);
    }

    #[test]
    fn detail_has_a_limit() {
        let detail = Violation::new(Place::Status, "é".repeat(DETAIL_MAX)).detail;
        assert!(detail.len() <= DETAIL_MAX + 3 && detail.ends_with("é..."));
    }
}
