//! Edits of headers, and headers whose values have variables of nginx.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{AnnotatedHeader, EditedHeader, Entries, HeaderValue, Template};

/// Changes of headers. The gateway first removes the headers in set and remove. Then it adds the headers in set and
/// add.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase", default)]
#[cbor(map)]
pub struct HeaderEdits {
    /// Headers that replace all headers of the same name. 1 to 32 entries. Default: none.
    #[serde(skip_serializing_if = "super::is_default")]
    #[n(0)]
    pub set: Entries<Header, 32>,
    /// Headers to add. Existing headers of the same name stay. 1 to 32 entries. Default: none.
    #[serde(skip_serializing_if = "super::is_default")]
    #[n(1)]
    pub add: Entries<Header, 32>,
    /// Names of headers to remove. 1 to 32 entries. Default: none.
    #[serde(skip_serializing_if = "super::is_default")]
    #[n(2)]
    pub remove: Entries<EditedHeader, 32>,
}

impl HeaderEdits {
    /// The names of headers that are removed before others are added.
    pub fn removed(&self) -> impl Iterator<Item = &EditedHeader> {
        self.remove.iter().chain(self.set.iter().map(|header| &header.name))
    }
}

/// A header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Header {
    /// The name of the header.
    #[n(0)]
    pub name: EditedHeader,
    /// The value of the header, without placeholders.
    #[n(1)]
    pub value: HeaderValue,
}

/// The maximum number of headers with variables of requests, and of responses.
pub const TEMPLATE_HEADERS_MAX: usize = 64;

/// Headers whose values are templates. Annotations of ingress-nginx set them, because templates have variables of nginx.
/// A header whose value is empty for a request is not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct TemplateHeaders {
    /// Headers for the endpoint, in place of headers of the same name (nginx: `proxy_set_header`).
    #[serde(skip_serializing_if = "super::is_default")]
    #[cbor(n(0), default, skip_if = "super::is_default")]
    pub request: Entries<TemplateHeader, TEMPLATE_HEADERS_MAX, 0>,
    /// Headers for the client.
    #[serde(skip_serializing_if = "super::is_default")]
    #[cbor(n(1), default, skip_if = "super::is_default")]
    pub response: Entries<ResponseHeader, TEMPLATE_HEADERS_MAX, 0>,
}

/// A header whose value is a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct TemplateHeader {
    /// The name of the header.
    #[n(0)]
    pub name: AnnotatedHeader,
    /// The value of the header.
    #[n(1)]
    pub value: Template,
}

/// A header of responses whose value is a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct ResponseHeader {
    /// The header.
    #[n(0)]
    pub header: TemplateHeader,
    /// The effect on headers of the same name, and the responses with the header.
    #[n(1)]
    pub mode: ResponseHeaderMode,
}

/// The effect of a header of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(index_only)]
pub enum ResponseHeaderMode {
    /// Existing headers stay. Only responses with status 200, 201, 204, 206, 301, 302, 303, 304, 307 or 308 have the
    /// header (nginx: `add_header`).
    #[n(0)]
    Add,
    /// Existing headers stay (nginx: `add_header` with `always`).
    #[n(1)]
    AddAlways,
    /// The header replaces existing headers. An empty value removes them (nginx: `more_set_headers`).
    #[n(2)]
    Set,
    /// As Set, for responses with one of the statuses of Add (nginx: `expires`).
    #[n(3)]
    SetIfSuccess,
}
