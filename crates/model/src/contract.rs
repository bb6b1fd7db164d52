//! Contracts of APIs: the parts of an OpenAPI document by which the data plane validates requests and responses, and responds
//! with mocks.

use std::sync::Arc;

use minicbor::{Decode, Encode};

use crate::encoding::{Adapt as _, Maybe, Part, Text};

/// The contract of an API: schemas, and the operations that use them. The rules of an API share the contract.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ApiContract {
    /// A JSON object: numbers of schemas, as text, and the schemas (JSON Schema 2020-12). A schema refers to another schema by
    /// `{"$ref": "#/$defs/NUMBER"}`.
    #[cbor(n(0), with = "Text")]
    pub schemas: Arc<str>,
    /// The operations.
    #[n(1)]
    pub operations: Vec<OperationContract>,
    /// Whether the gateway responds to requests for some operations itself.
    #[n(2)]
    pub has_mocks: bool,
}

impl Part for ApiContract {
    const KIND: u32 = 19;
    const WHAT: &'static str = "contract of an API";
}

impl ApiContract {
    /// The numbers of the schemas of parameters and bodies, some of them several times.
    pub fn schemas_of_operations(&self) -> impl Iterator<Item = u32> {
        self.operations.iter().flat_map(OperationContract::schemas)
    }
}

/// The contract of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct OperationContract {
    /// The id of the operation in the API.
    #[cbor(n(0), with = "Text")]
    pub id: Box<str>,
    /// The parameters.
    #[n(1)]
    pub parameters: Vec<Parameter>,
    /// Whether a request must have a body.
    #[n(2)]
    pub requires_body: bool,
    /// The media types of request bodies.
    #[n(3)]
    pub bodies: Vec<MediaContract>,
    /// The responses.
    #[n(4)]
    pub responses: Vec<ResponseContract>,
}

impl OperationContract {
    /// The numbers of its schemas.
    pub fn schemas(&self) -> impl Iterator<Item = u32> {
        let headers = self.responses.iter().flat_map(|response| &response.headers);
        let of_parameters = self.parameters.iter().chain(headers).filter_map(|parameter| parameter.schema);
        let of_responses = self.responses.iter().flat_map(|response| &response.bodies);
        of_parameters.chain(self.bodies.iter().chain(of_responses).filter_map(|body| body.schema))
    }
}

/// A parameter of an operation (OpenAPI 3.1, "Parameter Object").
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Parameter {
    /// The name. Names of headers are not case-sensitive.
    #[cbor(n(0), with = "Text")]
    pub name: Box<str>,
    /// The place in requests.
    #[n(1)]
    pub place: ParameterPlace,
    /// Whether a request must have the parameter.
    #[n(2)]
    pub is_required: bool,
    /// The form of arrays and objects.
    #[n(3)]
    pub style: ParameterStyle,
    /// Whether each item of an array, or each property of an object, is a parameter of its own.
    #[n(4)]
    pub explodes: bool,
    /// The number of the schema; `None` for any value.
    #[n(5)]
    pub schema: Option<u32>,
    /// Whether the value may be empty, whatever the schema says.
    #[n(6)]
    pub allows_empty: bool,
}

/// The place of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum ParameterPlace {
    /// A variable of the path.
    #[n(0)]
    Path,
    /// The query.
    #[n(1)]
    Query,
    /// A header.
    #[n(2)]
    Header,
    /// A cookie.
    #[n(3)]
    Cookie,
}

/// The form of arrays and objects in a parameter (OpenAPI 3.1, "Style Values").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum ParameterStyle {
    /// `a,b`.
    #[n(0)]
    Simple,
    /// `.a.b`.
    #[n(1)]
    Label,
    /// `;name=a;name=b`.
    #[n(2)]
    Matrix,
    /// `name=a&name=b`.
    #[n(3)]
    Form,
    /// `name=a%20b`.
    #[n(4)]
    SpaceDelimited,
    /// `name=a|b`.
    #[n(5)]
    PipeDelimited,
    /// `name[a]=b`.
    #[n(6)]
    DeepObject,
    /// A JSON text (`content` in place of `schema`).
    #[n(7)]
    Json,
}

/// A media type of a body.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct MediaContract {
    /// The media type in lower case and without parameters, such as `application/json` or `image/*`.
    #[cbor(n(0), with = "Text")]
    pub media_type: Box<str>,
    /// The number of the schema; `None` for any content.
    #[n(1)]
    pub schema: Option<u32>,
    /// The examples, for mocks.
    #[n(2)]
    pub examples: Vec<Example>,
    /// The fields of a form with a form of their own (OpenAPI 3.1, "Encoding Object"). Their place is the query, whose styles
    /// they have.
    #[n(3)]
    pub fields: Vec<Parameter>,
    /// The parts of `multipart/form-data` with media types of their own.
    #[cbor(n(4), default, skip_if = "Vec::is_empty")]
    pub parts: Vec<PartContract>,
}

/// The media types of a part of `multipart/form-data` (OpenAPI 3.1, "Encoding Object", `contentType`).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PartContract {
    /// The name of the part.
    #[cbor(n(0), with = "Text")]
    pub name: Box<str>,
    /// The media types in lower case and without parameters, such as `text/plain` or `image/*`.
    #[n(1)]
    pub media_types: Vec<String>,
}

/// An example.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Example {
    /// The name; `None` for the only example of `example`.
    #[cbor(n(0), with = "Maybe::<Text>")]
    pub name: Option<Box<str>>,
    /// The JSON text of the value.
    #[cbor(n(1), with = "Text")]
    pub value: Box<str>,
}

/// A response of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ResponseContract {
    /// The statuses.
    #[n(0)]
    pub status: StatusRange,
    /// The media types; empty if the document describes no content.
    #[n(1)]
    pub bodies: Vec<MediaContract>,
    /// The headers.
    #[n(2)]
    pub headers: Vec<Parameter>,
}

/// The statuses of a response (OpenAPI 3.1, "Responses Object").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(map)]
pub enum StatusRange {
    /// One status.
    #[n(0)]
    Code(#[n(0)] u16),
    /// The statuses with this first digit.
    #[n(1)]
    Class(#[n(0)] u8),
    /// All statuses without another response (`default`).
    #[n(2)]
    Default,
}

impl StatusRange {
    /// Reads `200`, `2XX` or `default`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "default" {
            return Some(Self::Default);
        }
        let class = text.as_bytes().first().filter(|digit| (b'1'..=b'5').contains(digit))? - b'0';
        match text.get(1..)? {
            "XX" | "xx" => Some(Self::Class(class)),
            rest if rest.len() == 2 && rest.bytes().all(|byte| byte.is_ascii_digit()) => {
                let rest: u16 = rest.parse().ok()?;
                Some(Self::Code(u16::from(class) * 100 + rest))
            }
            _ => None,
        }
    }

    /// Whether a status is in the range.
    #[must_use]
    pub fn contains(self, status: u16) -> bool {
        match self {
            Self::Code(code) => code == status,
            Self::Class(class) => u16::from(class) == status / 100,
            Self::Default => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_codes_classes_and_the_default() {
        assert_eq!(StatusRange::parse("404"), Some(StatusRange::Code(404)));
        assert_eq!(StatusRange::parse("2XX"), Some(StatusRange::Class(2)));
        assert_eq!(StatusRange::parse("default"), Some(StatusRange::Default));
        for text in ["", "2", "20", "600", "2X", "+20", "2+1", "2000", "2é"] {
            assert_eq!(StatusRange::parse(text), None, "{text}");
        }
        assert!(StatusRange::Class(2).contains(299) && !StatusRange::Class(2).contains(300));
    }
}
