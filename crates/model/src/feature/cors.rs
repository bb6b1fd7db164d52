//! Cross-origin requests (Fetch standard, "CORS protocol").

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Check, Faults};
use crate::value::span::HOUR;
use crate::value::{Entries, HeaderName, HeaderValue, MethodName, OriginPattern, Span};

/// Cross-origin requests (Fetch standard, "CORS protocol").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.allowCredentials) || !self.allowCredentials || !self.allowOrigins.exists(origin, origin == '*')",
    "message": "the origin * cannot be combined with allowCredentials: any page could act as its visitors; name the origins"
}]))]
#[cbor(map)]
pub struct Cors {
    /// The origins whose pages may read responses. 1 to 64 entries. Write `https://app.example.com`, with the port
    /// unless it is the scheme's default port. Write `https://*.example.com` for every host below a domain. Write *
    /// for every origin, which cannot be combined with allowCredentials.
    #[n(0)]
    pub allow_origins: Entries<OriginPattern, 64>,
    /// The methods that pages may use. * allows every method. 1 to 32 entries. Default: GET, HEAD, POST, PUT, PATCH,
    /// DELETE and OPTIONS.
    #[serde(default = "common_methods")]
    #[n(1)]
    pub allow_methods: Entries<MethodName, 32>,
    /// The request headers that pages may send, beside those that browsers always allow. * allows every header. At most
    /// 64 entries. Default: none.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(2)]
    pub allow_headers: Entries<HeaderName, 64, 0>,
    /// The response headers that pages may read, beside those that browsers always allow. * allows every header. At
    /// most 64 entries. Default: none.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(3)]
    pub expose_headers: Entries<HeaderName, 64, 0>,
    /// Whether pages may send credentials, such as cookies. Default: false.
    #[serde(default)]
    #[n(4)]
    pub allow_credentials: bool,
    /// How long a browser caches the response to a preflight request, such as 2h or 1h30m. 0s to 24h. Default: 5s.
    #[serde(default = "five_seconds")]
    #[n(5)]
    pub max_age: Span<0, { 24 * HOUR }>,
    /// The form of ingress-nginx. Then only `allow_origins` and `allow_credentials` of the other fields have an effect.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(40)]
    pub nginx: Option<Box<NginxCors>>,
}

/// Cross-origin requests as ingress-nginx handles them (`nginx.ingress.kubernetes.io/cors-*`). Every response to an allowed
/// origin has all headers, and every OPTIONS of an allowed origin receives 204. A wildcard stands for one label. The origin
/// `*` also allows requests without an origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct NginxCors {
    /// `Access-Control-Allow-Methods`.
    #[n(0)]
    pub methods: HeaderValue,
    /// `Access-Control-Allow-Headers`.
    #[n(1)]
    pub headers: HeaderValue,
    /// `Access-Control-Expose-Headers`.
    #[n(2)]
    pub exposed: Option<HeaderValue>,
    /// `Access-Control-Max-Age`, in seconds.
    #[n(3)]
    pub max_age: i64,
}

fn common_methods() -> Entries<MethodName, 32> {
    const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    Entries::new(METHODS.iter().filter_map(|name| MethodName::new(name).ok()).collect()).unwrap_or_default()
}

/// The default of the Fetch standard, "CORS-preflight fetch".
fn five_seconds() -> Span<0, { 24 * HOUR }> {
    Span::of_millis(5000)
}

impl Check for Cors {
    fn check(&self, at: &mut Faults<'_>) {
        for (index, origin) in self.allow_origins.iter().enumerate() {
            if self.allow_credentials && *origin == OriginPattern::Any && self.nginx.is_none() {
                at.error(
                    &format!("allowOrigins[{index}]"),
                    "* cannot be combined with allowCredentials, because any page could act as its visitors: name the origins",
                );
            }
        }
        for (index, method) in self.allow_methods.iter().enumerate() {
            if method.bytes().any(|byte| byte.is_ascii_lowercase()) {
                at.warning(
                    &format!("allowMethods[{index}]"),
                    format!(
                        "{method:?} is not a method that browsers use: write {}",
                        method.to_ascii_uppercase()
                    ),
                );
            }
        }
        if self.allow_credentials && self.expose_headers.iter().any(|name| name.as_str() == "*") {
            at.warning(
                "exposeHeaders",
                "* has no effect with allowCredentials (Fetch standard): name the headers",
            );
        }
    }
}
