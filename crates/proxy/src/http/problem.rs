//! Problem documents (RFC 9457): the bodies of refusals on routes of APIs.

use serde_json::json;
use sluicegate_validation::problem;

use super::exchange::Exchange;
use super::refuse::Refusal;
use super::reply::reason;
use crate::failure::Fault;

/// The media type of problem documents.
pub(super) const MEDIA_TYPE: &[u8] = b"application/problem+json";

/// The type of refusals by a limit or a quota (draft-ietf-httpapi-ratelimit-headers-11, 6).
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

impl Exchange<'_> {
    /// The problem document of a refusal without a body of its own, if the route is of an API.
    pub(super) fn problem(&self, refusal: &Refusal, status: u16) -> Option<Vec<u8>> {
        self.snapshot.table.target(self.record.route?).api.as_ref()?;
        let detail = match refusal {
            Refusal::Denied(denial) | Refusal::Limited(denial, _) | Refusal::FailedClosed(denial) => {
                Some(denial.to_string())
            }
            Refusal::Fault(Fault::Client(fault)) => Some(fault.to_string()),
            // Clients need not know the state of the endpoints.
            _ => None,
        };
        let mut problem = problem(status, reason(status), "", &[]);
        let fields = problem.as_object_mut()?;
        match detail {
            Some(detail) => drop(fields.insert("detail".into(), sentence(&detail).into())),
            None => drop(fields.remove("detail")),
        }
        if let Refusal::Limited(..) = refusal {
            fields.insert("type".into(), QUOTA_EXCEEDED.into());
            if let Some(limit) = &self.record.limit {
                fields.insert("violated-policies".into(), json!([limit]));
            }
        }
        Some(problem.to_string().into_bytes())
    }
}

/// A message as a sentence.
fn sentence(message: &str) -> String {
    let mut chars = message.chars();
    chars.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), chars.as_str()))
}
