//! The checks of an operation.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use sluicegate_model::contract::{
    MediaContract, OperationContract, Parameter, ParameterPlace, ResponseContract, StatusRange,
};

use crate::contract::{Schemas, Validator};
use crate::json;
use crate::media::{essence, is_in, is_json};
use crate::mock::{Mock, MockFault, Preferences, choose};
use crate::parameter::{Found, Pairs, of_pairs, of_text};
use crate::shape::Shape;
use crate::violation::{Place, VIOLATIONS_MAX, Violation};

/// The head of a request.
pub struct RequestHead<'r> {
    /// The variables of the path, and their values.
    pub path: &'r [(&'r str, &'r [u8])],
    /// The query, without the question mark.
    pub query: &'r [u8],
    /// The values of a header by its name in lower case.
    pub header: &'r dyn Fn(&str) -> Vec<&'r [u8]>,
}

/// The responses of the contract, and the parts that they name.
type Mocks = (Vec<ResponseContract>, Arc<Map<String, Value>>);

/// A compiled operation.
#[derive(Debug)]
pub struct Operation {
    parameters: Vec<(Parameter, Shape, Option<Validator>)>,
    requires_body: bool,
    bodies: Vec<Media>,
    responses: Vec<(StatusRange, Vec<Media>)>,
    /// The responses as written, and the schemas by their numbers, if operations of the contract are mocked.
    mocks: Option<Mocks>,
}

/// A media type and the schema of its content.
#[derive(Debug)]
struct Media {
    range: Box<str>,
    validator: Option<Validator>,
}

impl Media {
    fn new(source: &MediaContract, schemas: &Arc<Schemas>) -> Self {
        let validator = source.schema.map(|number| Validator::new(schemas, number));
        Self { range: source.media_type.clone(), validator }
    }

    /// The most specific media type for content of this type.
    fn of<'m>(all: &'m [Self], media_type: &str) -> Option<&'m Self> {
        let matching = all.iter().filter(|media| is_in(media_type, &media.range));
        matching.max_by_key(|media| (!media.range.ends_with('*'), media.range.len()))
    }

    /// The validator for content of this type.
    fn validator<'m>(all: &'m [Self], content_type: Option<&[u8]>) -> Option<&'m Validator> {
        let media_type = essence(content_type?).filter(|media_type| is_json(media_type))?;
        Self::of(all, &media_type)?.validator.as_ref()
    }
}

impl Operation {
    pub(crate) fn new(
        source: &OperationContract,
        schemas: &Arc<Schemas>,
        all: &Map<String, Value>,
        samples: Option<&Arc<Map<String, Value>>>,
    ) -> Self {
        let media = |bodies: &[MediaContract]| bodies.iter().map(|body| Media::new(body, schemas)).collect();
        let parameter = |parameter: &Parameter| {
            let schema = parameter.schema.and_then(|number| all.get(&number.to_string()));
            let shape = schema.map(|schema| Shape::of(schema, all)).unwrap_or_default();
            let validator = parameter.schema.map(|number| Validator::new(schemas, number));
            (parameter.clone(), shape, validator)
        };
        Self {
            parameters: source.parameters.iter().map(parameter).collect(),
            requires_body: source.requires_body,
            bodies: media(&source.bodies),
            responses: source.responses.iter().map(|of| (of.status, media(&of.bodies))).collect(),
            mocks: samples.map(|samples| (source.responses.clone(), samples.clone())),
        }
    }

    /// The violations of the parameters of a request.
    #[must_use]
    pub fn check_head(&self, head: &RequestHead<'_>) -> Vec<Violation> {
        let mut violations = Vec::new();
        if self.parameters.is_empty() {
            return violations;
        }
        let query = String::from_utf8_lossy(head.query);
        let query = Pairs::of_query(&query);
        let has_cookies = self.parameters.iter().any(|(of, ..)| of.place == ParameterPlace::Cookie);
        let cookies: Vec<Cow<'_, str>> = match has_cookies {
            true => (head.header)("cookie").into_iter().map(String::from_utf8_lossy).collect(),
            false => Vec::new(),
        };
        let cookies = Pairs::of_cookies(cookies.iter().map(|text| &**text));
        for (parameter, shape, validator) in &self.parameters {
            let found = match parameter.place {
                ParameterPlace::Query if parameter.allows_empty && query.is_empty(&parameter.name) => {
                    continue;
                }
                ParameterPlace::Query => of_pairs(parameter, shape, &query),
                ParameterPlace::Cookie => of_pairs(parameter, shape, &cookies),
                ParameterPlace::Path => {
                    let value = head.path.iter().find(|(name, _)| *name == &*parameter.name);
                    value.map_or(Found::Absent, |(_, value)| {
                        of_text(parameter, shape, &String::from_utf8_lossy(value))
                    })
                }
                ParameterPlace::Header => {
                    let values = (head.header)(&parameter.name.to_ascii_lowercase());
                    match values.is_empty() {
                        true => Found::Absent,
                        false => {
                            of_text(parameter, shape, &String::from_utf8_lossy(&values.join(&b", "[..])))
                        }
                    }
                }
            };
            let of_place = || place_of(parameter);
            match found {
                Found::Absent if parameter.is_required => {
                    violations.push(Violation::new(of_place(), "is required"));
                }
                Found::Absent => {}
                Found::Malformed(fault) => violations.push(Violation::new(of_place(), fault)),
                Found::Values(values) => {
                    let Some(validator) = validator else { continue };
                    if values.iter().any(|value| validator.is_valid(value)) {
                        continue;
                    }
                    let Some(value) = values.into_iter().next() else { continue };
                    let found = validator.violations(value, 0, |_| of_place());
                    violations.extend(found);
                }
            }
            if violations.len() >= VIOLATIONS_MAX {
                violations.truncate(VIOLATIONS_MAX);
                break;
            }
        }
        violations
    }

    /// The violation of a request without a body.
    #[must_use]
    pub fn check_absent_body(&self) -> Option<Violation> {
        self.requires_body.then(|| Violation::new(Place::Body("".into()), "is required"))
    }

    /// Whether a request must have a body.
    #[must_use]
    pub fn requires_body(&self) -> bool {
        self.requires_body
    }

    /// Whether the body of a request of this type has a schema.
    #[must_use]
    pub fn has_request_schema(&self, content_type: Option<&[u8]>) -> bool {
        Media::validator(&self.bodies, content_type).is_some()
    }

    /// The violations of the body of a request.
    #[must_use]
    pub fn check_request_body(&self, content_type: Option<&[u8]>, body: &[u8]) -> Vec<Violation> {
        Media::validator(&self.bodies, content_type)
            .map_or_else(Vec::new, |validator| check_json(validator, body))
    }

    /// The violation of the status and the media type of a response. `has_body`: whether the response may have a body.
    #[must_use]
    pub fn check_response_head(
        &self,
        status: u16,
        content_type: Option<&[u8]>,
        has_body: bool,
    ) -> Option<Violation> {
        let Some(bodies) = self.response(status) else {
            return Some(Violation::new(
                Place::Status,
                format!("The operation has no response with status {status}."),
            ));
        };
        if !has_body || bodies.is_empty() {
            return None;
        }
        let Some(content_type) = content_type else {
            return Some(Violation::new(Place::Header("Content-Type".into()), "is required"));
        };
        let is_known =
            essence(content_type).is_some_and(|media_type| Media::of(bodies, &media_type).is_some());
        (!is_known)
            .then(|| Violation::new(Place::Header("Content-Type".into()), "is no media type of the response"))
    }

    /// Whether the body of a response of this type has a schema.
    #[must_use]
    pub fn has_response_schema(&self, status: u16, content_type: Option<&[u8]>) -> bool {
        self.response(status).is_some_and(|bodies| Media::validator(bodies, content_type).is_some())
    }

    /// The violations of the body of a response.
    #[must_use]
    pub fn check_response_body(
        &self,
        status: u16,
        content_type: Option<&[u8]>,
        body: &[u8],
    ) -> Vec<Violation> {
        let validator = self.response(status).and_then(|bodies| Media::validator(bodies, content_type));
        validator.map_or_else(Vec::new, |validator| check_json(validator, body))
    }

    fn response(&self, status: u16) -> Option<&[Media]> {
        self.responses.iter().find(|(range, _)| range.contains(status)).map(|(_, bodies)| &**bodies)
    }

    /// The mock response.
    ///
    /// # Errors
    /// If the document has no such response.
    pub fn mock(&self, accept: Option<&[u8]>, preferences: &Preferences) -> Result<Mock, MockFault> {
        let (responses, schemas) = self.mocks.as_ref().ok_or(MockFault::NoResponse)?;
        choose(responses, schemas, accept, preferences)
    }
}

fn check_json(validator: &Validator, body: &[u8]) -> Vec<Violation> {
    let place = |pointer: &str| Place::Body(pointer.into());
    match json::read(body) {
        Ok(value) => validator.violations(value, body.len(), place),
        Err(fault) => vec![Violation::new(place(""), fault)],
    }
}

fn place_of(parameter: &Parameter) -> Place {
    let name = parameter.name.clone();
    match parameter.place {
        ParameterPlace::Header => Place::Header(name),
        ParameterPlace::Path => Place::Parameter(name, "path"),
        ParameterPlace::Query => Place::Parameter(name, "query"),
        ParameterPlace::Cookie => Place::Parameter(name, "cookie"),
    }
}
