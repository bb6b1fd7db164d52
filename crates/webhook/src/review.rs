//! The messages of Kubernetes: `AdmissionReview` of `admission.k8s.io/v1`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Verdict, Witnessed};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The longest warning, in characters. Kubernetes cuts longer warnings.
pub const MAX_WARNING: usize = 256;

/// The maximum number of characters of all warnings. Kubernetes drops further warnings.
pub const MAX_WARNINGS: usize = 4096;

/// The maximum number of errors in one response.
pub const MAX_ERRORS: usize = 32;

/// A request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request>,
}

/// A question about one object. The server skips the other fields.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) uid: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
    #[serde(default)]
    kind: GroupKind,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    user_info: UserInfo,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Default, Deserialize)]
struct GroupKind {
    #[serde(default)]
    group: String,
    #[serde(default)]
    kind: String,
}

#[derive(Debug, Default, Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Option<Vec<String>>,
}

impl Request {
    /// Reads the body of a request; the error says what is wrong.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        let written: Written = serde_json::from_slice(body)
            .map_err(|error| format!("The body is not valid JSON of an AdmissionReview: {error}"))?;
        if written.api_version != API_VERSION || written.kind != KIND {
            return Err(format!(
                "The webhook reads {KIND} of {API_VERSION}, not {:?} of {:?}",
                shortened(&written.kind, 80),
                shortened(&written.api_version, 80)
            ));
        }
        written.request.ok_or_else(|| format!("The {KIND} has no request"))
    }

    /// The write that the request announces; `None` if it writes nothing.
    pub(crate) fn witnessed(&mut self) -> Option<Witnessed> {
        let is_deletion = self.operation == "DELETE";
        let writes = is_deletion || matches!(&*self.operation, "CREATE" | "UPDATE");
        let take = std::mem::take;
        (writes && !self.dry_run).then(|| Witnessed {
            group: take(&mut self.kind.group),
            kind: take(&mut self.kind.kind),
            namespace: take(&mut self.namespace),
            name: take(&mut self.name),
            object: (!is_deletion).then(|| self.object.take()),
            old: Some(self.old_object.take()).filter(|old| !old.is_null()),
            user: take(&mut self.user_info.username),
            groups: self.user_info.groups.take().unwrap_or_default(),
        })
    }

    /// The object to review; `None` if the request needs no review. A deletion removes no more than its object. A change of an
    /// object that waits for its deletion may only remove finalizers, and a rejection would keep the object.
    pub(crate) fn reviewed(&mut self) -> Option<Value> {
        let is_ending =
            self.object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
        let is_written = matches!(&*self.operation, "CREATE" | "UPDATE");
        (is_written && !is_ending).then(|| self.object.take())
    }
}

/// The response to a request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Review {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

#[derive(Debug, Serialize)]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Status {
    status: &'static str,
    code: u16,
    reason: &'static str,
    message: String,
}

impl Review {
    pub(crate) fn new(uid: String, verdict: &Verdict) -> Self {
        let status = (!verdict.errors.is_empty()).then(|| Status {
            status: "Failure",
            code: 400,
            reason: "BadRequest",
            message: listed(&verdict.errors),
        });
        let warnings = warnings(&verdict.warnings);
        let response = Response { uid, allowed: status.is_none(), status, warnings };
        Self { api_version: API_VERSION, kind: KIND, response }
    }
}

/// The errors, one on each line.
fn listed(errors: &[String]) -> String {
    let mut lines: Vec<&str> = errors.iter().take(MAX_ERRORS).map(|error| &**error).collect();
    let more = errors.len() - lines.len();
    let more = format!("and {more} more errors; sluicegate check lists all of them");
    if errors.len() > MAX_ERRORS {
        lines.push(&more);
    }
    lines.join("\n")
}

/// The warnings within the limits of Kubernetes.
fn warnings(all: &[String]) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    let mut room = MAX_WARNINGS - MAX_WARNING;
    for warning in all {
        let warning = shortened(warning, MAX_WARNING);
        let Some(left) = room.checked_sub(warning.chars().count()) else {
            let more = all.len() - kept.len();
            kept.push(format!("and {more} more warnings; sluicegate check lists all of them"));
            break;
        };
        room = left;
        kept.push(warning);
    }
    kept
}

/// A text of at most `max` characters.
fn shortened(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(max - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_stay_within_the_limits_of_kubernetes() {
        let many: Vec<String> = (0..100).map(|n| format!("{n:03} {}", "ü".repeat(500))).collect();
        let kept = warnings(&many);
        assert!(kept.iter().all(|warning| warning.chars().count() <= MAX_WARNING));
        assert!(kept.iter().map(|warning| warning.chars().count()).sum::<usize>() <= MAX_WARNINGS);
        assert_eq!(kept.len(), 16);
        assert!(kept[0].starts_with("000 ü") && kept[0].ends_with('…'), "{}", kept[0]);
        assert_eq!(kept[15], "and 85 more warnings; sluicegate check lists all of them");
        let few = vec!["a".repeat(MAX_WARNING); 3];
        assert_eq!(warnings(&few), few);
    }

    #[test]
    fn errors_are_lines_of_a_bounded_list() {
        let many: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        let text = listed(&many);
        assert_eq!(text.lines().count(), MAX_ERRORS + 1);
        assert!(text.ends_with("31\nand 8 more errors; sluicegate check lists all of them"), "{text}");
        assert_eq!(listed(&many[..2]), "0\n1");
    }
}
