//! Session affinity by cookie.

use std::fmt::Write as _;

use sluicegate_model::feature;
use sluicegate_model::feature::Credential;

use super::authentication::credential::Place;
use crate::request::HeadView;

/// A cookie for session affinity.
#[derive(Debug)]
pub(crate) struct Affinity {
    place: Place,
    source: feature::Affinity,
}

impl Affinity {
    pub(super) fn new(source: &feature::Affinity) -> Self {
        Self { place: Place::new(&Credential::Cookie(source.cookie.clone())), source: source.clone() }
    }

    /// The mark of the endpoint that the client's cookie names.
    pub(super) fn mark(&self, head: HeadView<'_>) -> Option<u64> {
        let value = self.place.find(head.head, head.buf).ok()??;
        u64::from_str_radix(std::str::from_utf8(&value).ok()?, 16).ok()
    }

    /// The header line that sets the cookie for the endpoint with this mark.
    pub(crate) fn set_cookie(&self, mark: u64, is_https: bool) -> String {
        let mut line = format!("Set-Cookie: {}={mark:016x}; Path=/; HttpOnly", self.source.cookie);
        if let Some(age) = self.source.max_age {
            // Writing to a String does not fail.
            let _ = write!(line, "; Max-Age={}", age.get().as_secs());
        }
        // Browsers accept a cookie in a frame of another site only over HTTPS.
        line.push_str(if is_https { "; Secure; SameSite=None" } else { "; SameSite=Lax" });
        line.push_str("\r\n");
        line
    }
}
