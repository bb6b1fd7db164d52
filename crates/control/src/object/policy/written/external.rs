//! External HTTP services that authenticate and authorize requests.

use schemars::JsonSchema;
use serde::Deserialize;

use super::credential::SecretKeyRef;

/// An HTTP service that allows or denies each request.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.cache) || !has(self.requestHeaders)",
    "message": "requestHeaders cannot be combined with cache: the service receives only the parts of cache.key"
}]))]
pub(crate) struct External {
    /// The URL of the service, http:// or https://, such as the URL of a Service in the cluster. The gateway does not
    /// follow redirects.
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^https?://[^/?#@]+"))]
    pub(crate) url: String,
    /// The Secret with the CA certificates of the service, in PEM and in the policy's namespace. Default of key:
    /// ca.crt. Default: the public CA certificates.
    pub(crate) ca_certificate_ref: Option<SecretKeyRef>,
    /// The method of the request to the service: GET, HEAD or POST. The request has no body. Default: GET.
    pub(crate) method: Option<ExternalMethod>,
    /// The timeout for the whole exchange with the service, including the connect. 100ms to 60s. Default: 5s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) timeout: Option<String>,
    /// The client's headers that the service receives. 1 to 64 entries. Default: all headers except those about the
    /// connection, the body (Content-*) and the client's cache (If-*, Range). In addition, the service receives
    /// X-Original-URL, X-Original-Method, X-Auth-Request-Redirect, X-Request-ID, and the forwarding headers that
    /// endpoints receive.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 256)))]
    pub(crate) request_headers: Option<Vec<String>>,
    /// The headers of the service's response that endpoints receive. 1 to 32 entries. The gateway drops these headers
    /// from every client request, however the caller authenticates. Default: none.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 256)))]
    pub(crate) response_headers: Option<Vec<String>>,
    /// The redirect (302) that clients receive instead of a 401 of the service. Default: clients receive the 401.
    pub(crate) sign_in: Option<SignIn>,
    /// Caches responses of the service. The service then receives only the parts of the key, so that its response
    /// depends on nothing else. The gateway does not cache responses to requests that lack a part, nor responses with
    /// Set-Cookie, nor longer than Cache-Control allows. Each worker has its own cache, and a change of the policy
    /// empties the cache. Default: no cache.
    pub(crate) cache: Option<ExternalCache>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum ExternalMethod {
    Get,
    Head,
    Post,
}

/// The page where clients sign in.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SignIn {
    /// The URL of the page, https:// or http://, or a path of the same host, such as /oauth2/start.
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^(https?://[^/?#@]+|/([^/]|$))"))]
    pub(crate) url: String,
    /// The query parameter that the gateway adds, with the URL of the client's request. If url is a path, the parameter
    /// has the path and query of the request. Default: rd.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9._~-]+$"))]
    pub(crate) redirect_parameter: Option<String>,
}

/// Responses that are cached by a key.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ExternalCache {
    /// The parts of a request that the service receives, and by which the gateway finds its response. 1 to 8 entries.
    #[schemars(length(min = 1, max = 8))]
    pub(crate) key: Vec<ExternalKey>,
    /// How long a 2xx stays cached. 0s to 24h; 0s: not at all. Default: 1m.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) admitted: Option<String>,
    /// How long a 401 or a 403 stays cached. 0s to 24h; 0s: not at all. Default: 10s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) refused: Option<String>,
}

/// A part of the key.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.name) == (self.type == 'Header' || self.type == 'Cookie' || self.type == 'Query')",
    "message": "name is needed with type: Header, Cookie or Query, and only there"
}]))]
pub(crate) struct ExternalKey {
    /// The part of the request. Header, Cookie and Query: the value of a header, a cookie or a query parameter; a
    /// request with two of them receives 400. Method: the method (X-Original-Method). Host: scheme and host of
    /// X-Original-URL. Path: the path of X-Original-URL, without the query. Address: the client IP (X-Real-IP).
    #[serde(rename = "type")]
    pub(crate) kind: ExternalKeyType,
    /// The name of the header, the cookie or the parameter. Needed with type Header, Cookie or Query, and only there.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum ExternalKeyType {
    Header,
    Cookie,
    Query,
    Method,
    Host,
    Path,
    Address,
}
