//! Load balancing of a route: the hash for consistent hashing.

use sluicegate_model::feature::Credential;
use sluicegate_model::feature::{HashPart, HashPartType};
use sluicegate_model::value::{CookieName, HeaderName, ParameterName, Template};

use super::authentication::credential::Place;
use crate::hash::StableHash;
use crate::request::RequestView;
use crate::template::{self, TemplateView, TooLong};

/// The sources of the hash for consistent hashing.
#[derive(Debug)]
pub(crate) struct HashSource {
    part: HashPartType,
    /// `None` for the client IP and the path.
    place: Option<Place>,
}

impl HashSource {
    pub(super) fn new(part: &HashPart) -> Self {
        Self { part: part.kind, place: place_of(part) }
    }
}

/// The hash of a request, if there are sources.
pub(super) fn hash(sources: &[HashSource], request: &RequestView<'_>) -> Option<u64> {
    if sources.is_empty() {
        return None;
    }
    let mut hash = StableHash::new();
    for HashSource { part, place } in sources {
        match (part, place) {
            (HashPartType::Address, _) => hash.part(request.client.ip().to_string().as_bytes()),
            (HashPartType::Path, _) => hash.part(request.path),
            (_, Some(place)) => {
                let found = place.find(request.head.head, request.head.buf);
                hash.part(&found.ok().flatten().unwrap_or_default());
            }
            (_, None) => {}
        }
    }
    Some(hash.finish())
}

/// The hash of a text for a request.
pub(super) fn hash_of_text(text: &Template, view: &TemplateView<'_>) -> Result<u64, TooLong> {
    let mut rendered = Vec::new();
    view.render(text, template::Place::Body, &mut rendered)?;
    let mut hash = StableHash::new();
    hash.part(&rendered);
    Ok(hash.finish())
}

fn place_of(part: &HashPart) -> Option<Place> {
    let name = part.name.as_deref()?;
    let credential = match part.kind {
        HashPartType::Address | HashPartType::Path => return None,
        HashPartType::Header => Credential::header(HeaderName::new(name).ok()?),
        HashPartType::Cookie => Credential::Cookie(CookieName::new(name).ok()?),
        HashPartType::Query => Credential::Query(ParameterName::new(name).ok()?),
    };
    Some(Place::new(&credential))
}
