//! Rewrites of the cookies and locations in responses (nginx: `proxy_cookie_domain`, `proxy_cookie_path`, `proxy_redirect`).

use minicbor::{Decode, Encode};
use serde::Serialize;

use crate::encoding::{Adapt as _, List, Same, Text};
use crate::rule::Pattern;

/// Rewrites of cookies and locations of endpoints. A TrafficPolicy has no such field: only annotations of ingress-nginx set it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct ResponseRewrite {
    /// Rewrites of the attribute `Domain` of cookies. The first matching rewrite applies. A domain is compared as a whole,
    /// without regard to case and to a dot at its begin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cbor(n(0), with = "List::<Same>")]
    pub cookie_domains: Vec<TextRewrite>,
    /// Rewrites of the attribute `Path` of cookies. The first matching rewrite applies, to the begin of the path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cbor(n(1), with = "List::<Same>")]
    pub cookie_paths: Vec<TextRewrite>,
    /// Rewrites of `Location` and `Refresh`. The first matching rewrite applies, to the begin of the URL.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cbor(n(2), with = "List::<Same>")]
    pub locations: Vec<TextRewrite>,
}

/// A rewrite of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct TextRewrite {
    /// The text that the rewrite replaces.
    #[n(0)]
    pub from: RewriteFrom,
    /// The text in its place. After a regular expression, `$1` to `$9` are its captures.
    #[cbor(n(1), with = "Text")]
    pub to: Box<str>,
}

/// The text that a rewrite replaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum RewriteFrom {
    /// This text.
    #[n(0)]
    Literal(#[cbor(n(0), with = "Text")] Box<str>),
    /// The whole text, if the regular expression matches.
    #[n(1)]
    Regex(#[n(0)] Pattern),
}
