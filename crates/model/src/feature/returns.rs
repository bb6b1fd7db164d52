//! Responses without an endpoint that depend on the request, as the directives `return` and `if` of nginx.

use minicbor::{Decode, Encode};
use serde::Serialize;

use crate::encoding::{Adapt as _, Text};
use crate::rule::Pattern;
use crate::value::{Entries, MediaType, Number, Template};

/// A response without an endpoint. Annotations of ingress-nginx set it, because its parts have variables of nginx. APIs set it for
/// the time after their end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Return {
    /// Conditions on the request, all of which must hold.
    #[serde(skip_serializing_if = "super::is_default")]
    #[cbor(n(0), default, skip_if = "super::is_default")]
    pub conditions: Entries<Condition, { Condition::MAX }, 0>,
    /// The status code of the response.
    #[n(1)]
    pub status_code: Number<u16, 200, 599>,
    /// The content of the response. Default: a line with the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub content: Option<Content>,
}

impl Return {
    /// The maximum number of responses of a rule. The first response whose conditions hold applies.
    pub const MAX: usize = 32;
}

/// The content of a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub enum Content {
    /// A redirect.
    #[n(0)]
    Location(#[n(0)] Location),
    /// A body.
    #[n(1)]
    Body(#[n(0)] Body),
}

/// The target of a redirect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Location {
    /// The URL. The gateway puts scheme and host before a path.
    #[n(0)]
    pub url: Template,
    /// Whether a path stays a path (nginx: `absolute_redirect off`).
    #[serde(skip_serializing_if = "super::is_default")]
    #[cbor(n(1), default, skip_if = "super::is_default")]
    pub is_relative: bool,
    /// Whether the port of the client's connection follows the host before a path (nginx: `port_in_redirect`).
    #[serde(skip_serializing_if = "super::is_default")]
    #[cbor(n(2), default, skip_if = "super::is_default")]
    pub has_port: bool,
}

/// A body with variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Body {
    /// The text.
    #[n(0)]
    pub text: Template,
    /// The media type.
    #[n(1)]
    pub media_type: MediaType,
}

/// A condition on a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Condition {
    /// The text that the test examines.
    #[n(0)]
    pub subject: Template,
    /// The test.
    #[n(1)]
    pub test: Test,
    /// Whether the test must fail.
    #[serde(skip_serializing_if = "super::is_default")]
    #[cbor(n(2), default, skip_if = "super::is_default")]
    pub is_negated: bool,
}

impl Condition {
    /// The maximum number of conditions of a response.
    pub const MAX: usize = 8;
}

/// A test of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub enum Test {
    /// The text is equal to this text, with regard to case.
    #[n(0)]
    Equals(#[cbor(n(0), with = "Text")] Box<str>),
    /// The expression matches the text. Templates of the response may have its captures.
    #[n(1)]
    Matches(#[n(0)] Pattern),
    /// The text is neither empty nor `0`.
    #[n(2)]
    IsSet,
    /// The time has come, whatever the text: seconds since 1970.
    #[n(3)]
    Since(#[n(0)] u64),
}
