//! External authorization: an HTTP service decides about each request (nginx: `auth_request`).

use std::borrow::Cow;

use minicbor::{Decode, Encode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Credential;
use super::auth_request::AuthRequest;
use super::jwt::five_seconds;
use crate::UpstreamKey;
use crate::feature::{Check, Faults};
use crate::value::secret::{CaCertificates, FromSecret};
use crate::value::span::HOUR;
use crate::value::{
    CookieName, Entries, ForwardedHeader, HeaderName, ParameterName, ServiceHeader, SignInParameter,
    SignInUrl, Span, Url,
};

/// An HTTP service that allows or denies each request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.cache) || !has(self.requestHeaders)",
    "message": "requestHeaders cannot be combined with cache: the service receives only the parts of cache.key"
}]))]
#[cbor(map)]
pub struct ExtAuth {
    /// The URL of the service, http:// or https://. With http:// and the DNS name of a Service, such as
    /// `http://auth.default.svc:8080/check`, the gateway asks the endpoints of the Service. The gateway does not follow
    /// redirects.
    #[n(0)]
    pub url: Url,
    /// The Secret with the CA certificates of the service, in PEM and in the policy's namespace. Default of
    /// caCertificateRef.key: ca.crt. Default: the public CA certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub ca_certificate_ref: Option<FromSecret<CaCertificates>>,
    /// The method of the request to the service: GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS. The request has no body.
    /// Default: GET.
    #[serde(default)]
    #[n(2)]
    pub method: ExtAuthMethod,
    /// The timeout for the whole exchange with the service, including the connect. 100ms to 60s. Default: 5s.
    #[serde(default = "five_seconds")]
    #[n(3)]
    pub timeout: Span<100, 60_000>,
    /// The client's headers that the service receives. 1 to 64 entries. Default: all headers except those about the
    /// connection, the body (Content-*) and the client's cache (If-*, Range). In addition, the service receives
    /// X-Original-URL, X-Original-Method, X-Auth-Request-Redirect, X-Request-ID, and the forwarding headers that
    /// endpoints receive.
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    #[n(4)]
    pub request_headers: Entries<ServiceHeader, 64>,
    /// The headers of the service's response that endpoints receive. 1 to 32 entries. The gateway drops these headers
    /// from every client request, however the caller authenticates. Default: none.
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    #[n(5)]
    pub response_headers: Entries<ForwardedHeader, 32>,
    /// The redirect (302) that clients receive instead of a 401 of the service. Default: clients receive the 401.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(6)]
    pub sign_in: Option<SignIn>,
    /// Caches responses of the service. The service then receives only the parts of the key, so that its response
    /// depends on nothing else. The gateway does not cache responses to requests that lack a part, nor responses with
    /// Set-Cookie, nor longer than Cache-Control allows. Each worker has its own cache, and a change of the policy
    /// empties the cache. Default: no cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(7)]
    pub cache: Option<ExtAuthCache>,
    /// The upstream of the Service that the URL names. The control plane sets it. `None`: the data plane resolves the
    /// host of the URL.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(8)]
    pub upstream: Option<UpstreamKey>,
    /// The parts that annotations of ingress-nginx set.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(9)]
    pub auth_request: Option<AuthRequest>,
}

/// The method of requests to the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "UPPERCASE")]
#[cbor(index_only)]
pub enum ExtAuthMethod {
    /// GET.
    #[default]
    #[n(0)]
    Get,
    /// HEAD.
    #[n(1)]
    Head,
    /// POST.
    #[n(2)]
    Post,
    /// PUT.
    #[n(3)]
    Put,
    /// PATCH.
    #[n(4)]
    Patch,
    /// DELETE.
    #[n(5)]
    Delete,
    /// OPTIONS.
    #[n(6)]
    Options,
}

impl ExtAuthMethod {
    /// The name of the method.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
        }
    }
}

/// The page where clients sign in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct SignIn {
    /// The URL of the page, https:// or http://, or a path of the same host, such as /oauth2/start.
    #[n(0)]
    pub url: SignInUrl,
    /// The query parameter that the gateway adds, with the URL of the client's request. If url is a path, the parameter
    /// has the path and query of the request. Default: rd.
    #[serde(default)]
    #[n(1)]
    pub redirect_parameter: SignInParameter,
}

/// Responses that are cached by a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(map)]
pub struct ExtAuthCache {
    /// The parts of a request that the service receives, and by which the gateway finds its response. 1 to 8 entries.
    #[n(0)]
    pub key: Entries<KeyPart, 8>,
    /// How long a 2xx stays cached. 0s to 24h; 0s: not at all. Default: 1m.
    #[serde(default = "minute")]
    #[n(1)]
    pub admitted: CacheTime,
    /// How long a 401 or a 403 stays cached. 0s to 24h; 0s: not at all. Default: 10s.
    #[serde(default = "ten_seconds")]
    #[n(2)]
    pub refused: CacheTime,
}

/// How long a response stays cached.
pub type CacheTime = Span<0, { 24 * HOUR }>;

fn minute() -> CacheTime {
    CacheTime::of_millis(60_000)
}

fn ten_seconds() -> CacheTime {
    CacheTime::of_millis(10_000)
}

/// A part of the key: the service receives this part of the request.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum KeyPart {
    /// A header, a parameter or a cookie. A header has no prefix.
    #[n(0)]
    Value(#[n(0)] Credential),
    /// The method.
    #[n(1)]
    Method,
    /// The scheme and the host.
    #[n(2)]
    Host,
    /// The path, in normal form.
    #[n(3)]
    Path,
    /// The client IP.
    #[n(4)]
    Address,
}

/// A part of the key.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename = "ExternalKey")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.name) == (self.type == 'Header' || self.type == 'Cookie' || self.type == 'Query')",
    "message": "name is needed with type: Header, Cookie or Query, and only there"
}]))]
struct WrittenPart {
    /// The part of the request. Header, Cookie and Query: the value of a header, a cookie or a query parameter; a
    /// request with two of them receives 400. Method: the method (X-Original-Method). Host: scheme and host of
    /// X-Original-URL. Path: the path of X-Original-URL, without the query. Address: the client IP (X-Real-IP).
    #[serde(rename = "type")]
    kind: PartType,
    /// The name of the header, the cookie or the parameter. Needed with type Header, Cookie or Query, and only there.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<ParameterName>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "ExternalKeyType")]
enum PartType {
    Header,
    Cookie,
    Query,
    Method,
    Host,
    Path,
    Address,
}

impl TryFrom<WrittenPart> for KeyPart {
    type Error = String;

    fn try_from(WrittenPart { kind, name }: WrittenPart) -> Result<Self, String> {
        let (PartType::Header | PartType::Cookie | PartType::Query) = kind else {
            return match (kind, name) {
                (_, Some(_)) => Err("name is only for type Header, Cookie and Query: remove it".to_owned()),
                (PartType::Method, None) => Ok(Self::Method),
                (PartType::Host, None) => Ok(Self::Host),
                (PartType::Path, None) => Ok(Self::Path),
                (_, None) => Ok(Self::Address),
            };
        };
        let name = name.ok_or("name is missing: name the header, the cookie or the parameter")?;
        let of_name = |fault: String| format!("name: {fault}");
        Ok(Self::Value(match kind {
            PartType::Header if name.eq_ignore_ascii_case("cookie") => {
                return Err(
                    "name: \"Cookie\" has all cookies: write type: Cookie with the name of one".to_owned()
                );
            }
            PartType::Header => {
                Credential::header(HeaderName::of(&ServiceHeader::new(&name).map_err(of_name)?))
            }
            PartType::Cookie => Credential::Cookie(CookieName::new(&name).map_err(of_name)?),
            _ => Credential::Query(name),
        }))
    }
}

impl<'de> Deserialize<'de> for KeyPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(WrittenPart::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl Serialize for KeyPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, name) = match self {
            Self::Value(Credential::Header { name, .. }) => (PartType::Header, Some(name.as_str())),
            Self::Value(Credential::Cookie(name)) => (PartType::Cookie, Some(name.as_str())),
            Self::Value(Credential::Query(name)) => (PartType::Query, Some(name.as_str())),
            Self::Method => (PartType::Method, None),
            Self::Host => (PartType::Host, None),
            Self::Path => (PartType::Path, None),
            Self::Address => (PartType::Address, None),
        };
        let name = name.and_then(|name| ParameterName::new(name).ok());
        WrittenPart { kind, name }.serialize(serializer)
    }
}

impl JsonSchema for KeyPart {
    fn schema_name() -> Cow<'static, str> {
        WrittenPart::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        WrittenPart::json_schema(generator)
    }
}

impl Check for ExtAuth {
    fn check(&self, at: &mut Faults<'_>) {
        if self.cache.is_some() && !self.request_headers.is_empty() {
            at.error(
                "requestHeaders",
                "has no effect with cache, because the service receives only the parts of cache.key: remove it",
            );
        }
        crate::feature::warn_of_repeated("requestHeaders", &self.request_headers, at);
        crate::feature::warn_of_repeated("responseHeaders", &self.response_headers, at);
        if let Some(cache) = &self.cache {
            crate::feature::warn_of_repeated("cache.key", &cache.key, at);
        }
    }
}
