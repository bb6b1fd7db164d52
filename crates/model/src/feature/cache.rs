//! The response cache (RFC 9111).

use std::time::Duration;

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Check, Faults};
use crate::value::{Age, Entries, HeaderName, Size};

/// A cache of responses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase", default)]
#[cbor(map)]
pub struct Cache {
    /// The memory for the policy's cached responses and their keys, in each data plane, in bytes. If the cache is full,
    /// the gateway evicts the least recently used responses. 64Ki to 64Gi. Default: 64Mi.
    #[n(0)]
    pub max_size: CacheSize,
    /// The largest body that the gateway caches, in bytes. The gateway forwards longer bodies without caching them. 1
    /// to a quarter of maxSize. Default: 1Mi, or a quarter of maxSize if that is less.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub max_response_size: Option<Size>,
    /// The freshness of responses with status 200, 203, 301 or 308 that do not set their own freshness. Does not
    /// apply to requests with a Cookie. 1s to 8760h. Default: the gateway does not cache these responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub default_time: Option<Age>,
    /// The time for which a stale response replaces an error: no endpoint responds, or an endpoint responds with 500,
    /// 502, 503 or 504. Responses with must-revalidate, proxy-revalidate, s-maxage or no-cache are exempt. 1s to
    /// 8760h. Default: the response's own stale-if-error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub stale_if_error: Option<Age>,
    /// Further parts of the cache key, beside host, path, query and the headers in Vary. Default: none.
    #[serde(skip_serializing_if = "super::is_default")]
    #[n(4)]
    pub key: CacheKey,
}

/// The size of a cache: 64 KiB to 64 GiB.
pub type CacheSize = Size<{ 64 << 10 }, { 64 << 30 }>;

impl Default for Cache {
    fn default() -> Self {
        Self {
            max_size: CacheSize::of(64 << 20),
            max_response_size: None,
            default_time: None,
            stale_if_error: None,
            key: CacheKey::default(),
        }
    }
}

impl Cache {
    /// The longest body, in bytes.
    #[must_use]
    pub fn longest_body(&self) -> u64 {
        self.max_response_size.map_or((1 << 20).min(self.max_size.get() / 4), Size::get)
    }

    /// How long a stale response may be served if the endpoint fails. 0: the response decides (RFC 5861).
    #[must_use]
    pub fn stale_time(&self) -> Duration {
        self.stale_if_error.map_or(Duration::ZERO, Age::get)
    }
}

/// Further parts of the cache key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase", default)]
#[cbor(map)]
pub struct CacheKey {
    /// Names of request headers. 1 to 8 entries. Default: none.
    #[serde(skip_serializing_if = "super::is_default")]
    #[n(0)]
    pub headers: Entries<HeaderName, 8>,
}

impl Check for Cache {
    fn check(&self, at: &mut Faults<'_>) {
        if let Some(size) = self.max_response_size
            && !(1..=self.max_size.get() / 4).contains(&size.get())
        {
            at.error(
                "maxResponseSize",
                format!("{:?} is not between 1 and a quarter of maxSize", size.to_string()),
            );
        }
    }
}
