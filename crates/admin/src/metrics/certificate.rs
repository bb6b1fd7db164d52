//! The expiry of certificates.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use sluicegate_proxy::registry::Registry;

use super::families::Families;

/// The maximum number of certificates in the metrics: the certificates with the earliest expiry.
const MOST: usize = 1000;

pub(super) fn encode(families: &mut Families<'_>, registry: &Registry) -> fmt::Result {
    let tls = registry.tls().unwrap_or_default();
    let all = tls.hosts.iter().flat_map(|host| &host.certificates).chain(&tls.default);
    let ends: BTreeMap<_, _> = all
        .map(|certificate| {
            let end = certificate.not_after.duration_since(SystemTime::UNIX_EPOCH);
            ((end.map_or(0, |end| end.as_secs()), &*certificate.source, certificate.key_kind), ())
        })
        .collect();
    families.gauges(
        "sluicegate_certificate_not_after_seconds",
        "Expiry of a served certificate, in seconds since 1970; at most 1000 certificates, those that expire first",
        ends.keys().take(MOST).map(|(end, source, kind)| {
            ([("source", (*source).to_owned()), ("key", kind.to_string())], *end)
        }),
    )
}
