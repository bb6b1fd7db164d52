//! Traffic split: requests for Services other than the route's.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::service_ref::{self, ServiceRef};
use super::{Check, Faults};
use crate::UpstreamKey;
use crate::rule::Pattern;
use crate::value::{CookieName, Entries, HeaderName, MatchValue, Weight};

/// Shares of the requests for other Services: a canary, or two versions side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Split {
    /// The weight of the Service that the route names. 0 to 1000000. Default: 100.
    #[serde(default = "hundred")]
    #[n(0)]
    pub weight: Weight,
    /// The other Services. 1 to 8 entries. The first Service whose match matches receives the request. Otherwise the
    /// gateway chooses by weight between the route's Service and the Services whose exclude does not match.
    #[n(1)]
    pub backends: Entries<SplitBackend, 8>,
    /// Whether a Service without an endpoint receives no request, as a canary of ingress-nginx: the route's own Service
    /// receives the request instead.
    #[serde(skip_deserializing, skip_serializing_if = "super::is_default")]
    #[schemars(skip)]
    #[cbor(n(40), default, skip_if = "super::is_default")]
    pub skips_empty: bool,
}

/// Another Service. The annotations of this Service set how the gateway connects to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct SplitBackend {
    /// The Service.
    #[serde(rename = "serviceRef", deserialize_with = "service_ref::deserialize")]
    #[schemars(with = "ServiceRef")]
    #[n(0)]
    pub upstream: UpstreamKey,
    /// The weight of the Service. 0 to 1000000. Default: 0, so that the Service receives requests only by match.
    #[serde(default = "zero")]
    #[n(1)]
    pub weight: Weight,
    /// Requests that match one of these entries go to the Service. 1 to 16 entries. Default: none.
    #[serde(rename = "match", default, skip_serializing_if = "super::is_default")]
    #[n(2)]
    pub matches: Entries<RequestMatch, 16>,
    /// The gateway does not send requests that match one of these entries to the Service by weight. 1 to 16 entries.
    /// Default: none.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(3)]
    pub exclude: Entries<RequestMatch, 16>,
}

/// A condition on requests: exactly one of header and cookie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.header) != has(self.cookie)",
    "message": "write exactly one of header and cookie"
}]))]
#[cbor(map)]
pub struct RequestMatch {
    /// The name of a header.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub header: Option<HeaderName>,
    /// The name of a cookie.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub cookie: Option<CookieName>,
    /// The exact value. Default: any value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub value: Option<MatchValue>,
    /// A regular expression in place of the exact value (`canary-by-header-pattern` of ingress-nginx).
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(40)]
    pub pattern: Option<Pattern>,
    /// Whether requests that match the entry do not go to the Service, neither by later entries nor by weight (`never` of
    /// ingress-nginx).
    #[serde(skip_deserializing, skip_serializing_if = "super::is_default")]
    #[schemars(skip)]
    #[cbor(n(41), default, skip_if = "super::is_default")]
    pub refuses: bool,
}

fn hundred() -> Weight {
    Weight::of(100)
}

fn zero() -> Weight {
    Weight::of(0)
}

impl Check for Split {
    fn check(&self, at: &mut Faults<'_>) {
        let is_zero = |weight: Weight| weight.get() == 0;
        for (index, backend) in self.backends.iter().enumerate() {
            let field = format!("backends[{index}]");
            if is_zero(backend.weight) && backend.matches.is_empty() {
                at.warning(&field, "receives no requests: write weight or match");
            }
            for (list, entries) in [("match", &backend.matches), ("exclude", &backend.exclude)] {
                for (nth, entry) in entries.iter().enumerate() {
                    if entry.header.is_some() == entry.cookie.is_some() {
                        at.error(
                            &format!("{field}.{list}[{nth}].header"),
                            "must be exactly one of header and cookie",
                        );
                    }
                }
            }
        }
        if is_zero(self.weight) && self.backends.iter().all(|backend| is_zero(backend.weight)) {
            at.error(
                "weight",
                "leaves requests without a match without a Service: write a weight above 0 for one Service",
            );
        }
    }
}
