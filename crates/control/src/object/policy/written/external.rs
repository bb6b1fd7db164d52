//! HTTP services that are asked about requests.

use schemars::JsonSchema;
use serde::Deserialize;

use super::credential::SecretKeyRef;

/// An HTTP service that is asked about each request.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.cache) || !has(self.requestHeaders)",
    "message": "with cache, the service is told the parts of cache.key alone: leave requestHeaders out"
}]))]
pub(crate) struct External {
    /// Its URL, http:// or https://, such as that of a Service of the cluster. Redirects are not followed.
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^https?://[^/?#@]+"))]
    pub(crate) url: String,
    /// Who vouches for its server: certificates in PEM in a Secret of the policy's namespace. The default of key is ca.crt. Default:
    /// those whom browsers trust.
    pub(crate) ca_certificate_ref: Option<SecretKeyRef>,
    /// The method that it is asked by. There is never a body. Default: GET.
    pub(crate) method: Option<ExternalMethod>,
    /// For all of one question, connecting included, from 100ms to 60s. Default: 5s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) timeout: Option<String>,
    /// The client's headers that it is told, from 1 to 64. Default: all but those about the connection, the body (Content-*) and what
    /// the client has already (If-*, Range). Beside them it gets X-Original-URL, X-Original-Method, X-Auth-Request-Redirect,
    /// X-Request-ID, and the forwarding headers that endpoints get.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 256)))]
    pub(crate) request_headers: Option<Vec<String>>,
    /// The headers of its answer that endpoints get: from 1 to 32. Clients cannot set these headers themselves, whoever lets them in.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 256)))]
    pub(crate) response_headers: Option<Vec<String>>,
    /// Where a client is sent (302) instead of being answered 401 by the service.
    pub(crate) sign_in: Option<SignIn>,
    /// Which of its answers are remembered. With it, the service is told nothing but the parts of the key, so that its answer can
    /// depend on nothing else. An answer to a request that lacks one of them is not remembered, nor one with Set-Cookie, nor for longer
    /// than its Cache-Control allows. Each worker remembers for itself; a change of the policy forgets all. Default: none.
    pub(crate) cache: Option<ExternalCache>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum ExternalMethod {
    Get,
    Head,
    Post,
}

/// Where clients sign in.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SignIn {
    /// A URL, https:// or http://, or a path of the same host, such as /oauth2/start.
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^(https?://[^/?#@]+|/([^/]|$))"))]
    pub(crate) url: String,
    /// The parameter that is added to it, with the URL that the client wanted; its path and query if url is a path. Default: rd.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9._~-]+$"))]
    pub(crate) redirect_parameter: Option<String>,
}

/// Answers that are remembered by a key.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ExternalCache {
    /// What the service is told, and its answer is remembered by: from 1 to 8 parts.
    #[schemars(length(min = 1, max = 8))]
    pub(crate) key: Vec<ExternalKey>,
    /// How long a 2xx is good, from 0s to 24h. Default: 1m.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) admitted: Option<String>,
    /// How long a 401 or a 403 is good, from 0s to 24h. Default: 10s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) refused: Option<String>,
}

/// A part of the key.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.name) == (self.type == 'Header' || self.type == 'Cookie' || self.type == 'Query')",
    "message": "name is needed with type: Header, Cookie and Query, and is for these alone"
}]))]
pub(crate) struct ExternalKey {
    /// Header, Cookie and Query are the value of a header, a cookie or a parameter; a request with two of them is answered 400. Method
    /// is the method (X-Original-Method). Host is scheme and host, Path the path without the query, both of X-Original-URL. Address
    /// is the client's (X-Real-IP), as far as trusted peers tell it.
    #[serde(rename = "type")]
    pub(crate) kind: ExternalKeyType,
    /// The name of the header, the cookie or the parameter.
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
