//! Redirects.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::url_rewrite::PathRewrite;
use super::{Check, Faults};
use crate::value::{Hostname, Number, Port};

/// The target of a redirect. Parts that are not set stay as in the request. The query always stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.scheme) || has(self.hostname) || has(self.port) || has(self.path)",
    "message": "the redirect leads back to itself: write scheme, hostname, port or path"
}]))]
#[cbor(map)]
pub struct Redirect {
    /// The scheme of the target: http or https. Default: the scheme of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub scheme: Option<Scheme>,
    /// The host of the target. Default: the host of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub hostname: Option<Hostname>,
    /// The port of the target. 1 to 65535. Default: the scheme's port if scheme is set, otherwise the port of the
    /// request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub port: Option<Port>,
    /// The path of the target. Default: the path of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub path: Option<PathRewrite>,
    /// The status code of the redirect: 301, 302, 303, 307 or 308. Default: 302.
    #[serde(default = "found")]
    #[n(4)]
    pub status_code: Number<u16, 301, 308>,
}

fn found() -> Number<u16, 301, 308> {
    Number::of(302)
}

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(index_only)]
pub enum Scheme {
    /// Plain HTTP.
    #[n(0)]
    Http,
    /// HTTP over TLS.
    #[n(1)]
    Https,
}

impl Check for Redirect {
    fn check(&self, at: &mut Faults<'_>) {
        if self.scheme.is_none() && self.hostname.is_none() && self.port.is_none() && self.path.is_none() {
            at.error("", "leads back to itself: write scheme, hostname, port or path");
        }
        // RFC 9110, 15.4.
        if !matches!(self.status_code.get(), 301..=303 | 307 | 308) {
            at.error("statusCode", format!("{} is not one of 301, 302, 303, 307 and 308", self.status_code));
        }
    }
}
