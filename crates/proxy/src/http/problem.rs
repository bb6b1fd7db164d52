//! Problem documents (RFC 9457): the bodies of refusals on routes of APIs.

use serde_json::{Map, Value, json};

use super::exchange::Exchange;
use super::refuse::Refusal;
use super::reply::{Content, reason};
use crate::failure::Fault;

/// The media type of problem documents.
const MEDIA_TYPE: &[u8] = b"application/problem+json";

/// The type of refusals by a limit or a quota (draft-ietf-httpapi-ratelimit-headers-11, 6).
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The content of a problem document.
pub(super) fn content(body: &[u8]) -> Content<'_> {
    Content { body, media_type: Some(MEDIA_TYPE) }
}

impl Exchange<'_> {
    /// The problem document of a refusal without a body of its own, if the route is of an API.
    pub(super) fn problem(&self, refusal: &Refusal, status: u16) -> Option<Vec<u8>> {
        if status < 400 || refusal.content().is_some() {
            return None;
        }
        self.snapshot.table.target(self.record.route?).api.as_ref()?;
        let mut problem = Map::new();
        let kind = match refusal {
            Refusal::Limited(..) => QUOTA_EXCEEDED,
            _ => "about:blank",
        };
        problem.insert("type".into(), kind.into());
        problem.insert("title".into(), reason(status).into());
        problem.insert("status".into(), status.into());
        let detail = match refusal {
            Refusal::Denied(denial) | Refusal::Limited(denial, _) | Refusal::FailedClosed(denial) => {
                Some(denial.to_string())
            }
            Refusal::Fault(Fault::Client(fault)) => Some(fault.to_string()),
            // Clients need not know the state of the endpoints.
            _ => None,
        };
        if let Some(detail) = detail {
            problem.insert("detail".into(), sentence(&detail).into());
        }
        if let (Refusal::Limited(..), Some(limit)) = (refusal, &self.record.limit) {
            problem.insert("violated-policies".into(), json!([limit]));
        }
        serde_json::to_vec(&Value::Object(problem)).ok()
    }
}

/// A message as a sentence.
fn sentence(message: &str) -> String {
    let mut chars = message.chars();
    chars.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), chars.as_str()))
}
