//! The rewrite of the path and host of requests.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{Hostname, RewritePath};

/// The path and host that endpoints receive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct UrlRewrite {
    /// The new path. The gateway keeps the query. Default: the client's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub path: Option<PathRewrite>,
    /// The new host. The client's host goes into X-Forwarded-Host. Default: the client's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub hostname: Option<Hostname>,
}

/// A new path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct PathRewrite {
    /// The part of the path that value replaces. ReplaceFullPath: the whole path. ReplacePrefixMatch: the route's own
    /// path. With value /app and a route of /shop, /shop/cart becomes /app/cart.
    #[serde(rename = "type")]
    #[n(0)]
    pub kind: PathRewriteType,
    /// The new path or prefix, which begins with /.
    #[n(1)]
    pub value: RewritePath,
}

/// The part of a path that a rewrite replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(index_only)]
pub enum PathRewriteType {
    /// The whole path.
    #[n(0)]
    ReplaceFullPath,
    /// The path of the rule. The rest of the path follows.
    #[n(1)]
    ReplacePrefixMatch,
}
