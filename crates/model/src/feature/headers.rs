//! Edits of headers.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{EditedHeader, Entries, HeaderValue};

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
