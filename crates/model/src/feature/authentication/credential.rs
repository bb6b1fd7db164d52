//! The places of credentials in requests.

use std::borrow::Cow;

use minicbor::{Decode, Encode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::value::{CookieName, CredentialPrefix, HeaderName, ParameterName};

/// A place of a credential.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum Credential {
    /// A header, after a prefix such as `Bearer `, which is compared without regard to case.
    #[n(0)]
    Header {
        /// The header's name.
        #[n(0)]
        name: HeaderName,
        /// The prefix: empty, or with a trailing space.
        #[n(1)]
        prefix: CredentialPrefix,
    },
    /// A parameter of the query.
    #[n(1)]
    Query(#[n(0)] ParameterName),
    /// A cookie.
    #[n(2)]
    Cookie(#[n(0)] CookieName),
}

impl Credential {
    /// A header without a prefix.
    #[must_use]
    pub fn header(name: HeaderName) -> Self {
        Self::Header { name, prefix: CredentialPrefix::default() }
    }
}

/// A place in requests: exactly one of header, query and cookie.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "CredentialSource")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.header), has(self.query), has(self.cookie)].filter(is, is).size() == 1",
    "message": "write exactly one of header, query and cookie"
}]))]
struct Place {
    /// A request header.
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<HeaderPlace>,
    /// The name of a query parameter. The case counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<ParameterName>,
    /// The name of a cookie. The case counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    cookie: Option<CookieName>,
}

/// A request header.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename = "HeaderSource")]
struct HeaderPlace {
    /// The name of the header. The case does not count.
    name: HeaderName,
    /// The text before the credential in the value, such as "Bearer " with the space. The case does not count. Default:
    /// no text.
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    prefix: CredentialPrefix,
}

impl<'de> Deserialize<'de> for Credential {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Place::deserialize(deserializer)? {
            Place { header: Some(HeaderPlace { name, prefix }), query: None, cookie: None } => {
                Ok(Self::Header { name, prefix })
            }
            Place { header: None, query: Some(name), cookie: None } => Ok(Self::Query(name)),
            Place { header: None, query: None, cookie: Some(name) } => Ok(Self::Cookie(name)),
            _ => Err(de::Error::custom("must have exactly one of header, query and cookie")),
        }
    }
}

impl Serialize for Credential {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let place = match self.clone() {
            Self::Header { name, prefix } => {
                Place { header: Some(HeaderPlace { name, prefix }), ..Place::default() }
            }
            Self::Query(name) => Place { query: Some(name), ..Place::default() },
            Self::Cookie(name) => Place { cookie: Some(name), ..Place::default() },
        };
        place.serialize(serializer)
    }
}

impl JsonSchema for Credential {
    fn schema_name() -> Cow<'static, str> {
        Place::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Place::json_schema(generator)
    }
}
