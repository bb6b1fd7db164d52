//! Keys that issuers publish.

use std::sync::Arc;

use sluicegate_jwt::{Algorithm, KeySet};
use sluicegate_model::feature::authentication::jwt::RemoteKeys;

use super::published::{Document, Places, Published};

impl Document for KeySet {
    /// The accepted algorithms.
    type Terms = Vec<Algorithm>;

    const NAME: &'static str = "the keys of a token issuer";
    const UNKNOWN: &'static str = "requests with its tokens receive 503";
    const MEDIA_TYPES: &'static str = "application/jwk-set+json, application/json";

    fn read(text: &[u8], terms: &Self::Terms) -> Result<Self, String> {
        Self::given(text, terms).map_err(|fault| format!("the keys {fault}"))
    }
}

/// The keys at a URL, for these algorithms. Empty `algorithms`: all that fit.
pub(crate) fn keys_at(
    places: &Places<KeySet>,
    source: &Arc<RemoteKeys>,
    algorithms: &[Algorithm],
) -> Arc<Published<KeySet>> {
    // A published key is no shared secret.
    let wanted = Algorithm::ALL.into_iter().filter(|algorithm| {
        !algorithm.is_shared() && (algorithms.is_empty() || algorithms.contains(algorithm))
    });
    places.at(source, wanted.collect())
}
