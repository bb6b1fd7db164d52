//! The checks of an operation.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use sluicegate_model::contract::{
    MediaContract, OperationContract, Parameter, ParameterPlace, ResponseContract, StatusRange,
};

use crate::contract::{Schemas, Validator};
use crate::form::{Form, FormFault};
use crate::json;
use crate::media::{essence, is_form, is_in, is_json};
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

/// A parameter or a header, with its compiled schema.
#[derive(Debug)]
struct Described {
    parameter: Parameter,
    shape: Shape,
    validator: Option<Validator>,
}

/// A compiled operation.
#[derive(Debug)]
pub struct Operation {
    parameters: Vec<Described>,
    requires_body: bool,
    bodies: Vec<Media>,
    responses: Vec<Response>,
    /// The responses as written, and the schemas by their numbers, if operations of the contract are mocked.
    mocks: Option<Mocks>,
}

/// A compiled response.
#[derive(Debug)]
struct Response {
    status: StatusRange,
    headers: Vec<Described>,
    bodies: Vec<Media>,
}

/// A media type and the schema of its content.
#[derive(Debug)]
struct Media {
    range: Box<str>,
    validator: Option<Validator>,
    /// How a form is read, if the content may be a form.
    form: Option<Form>,
}

/// Compiles the parts of an operation.
struct Compiler<'s> {
    schemas: &'s Arc<Schemas>,
    /// The schemas by their numbers.
    all: &'s Map<String, Value>,
}

impl Compiler<'_> {
    fn shape(&self, schema: Option<u32>) -> Shape {
        let schema = schema.and_then(|number| self.all.get(&number.to_string()));
        schema.map(|schema| Shape::of(schema, self.all)).unwrap_or_default()
    }

    fn described(&self, all: &[Parameter]) -> Vec<Described> {
        let one = |parameter: &Parameter| Described {
            parameter: parameter.clone(),
            shape: self.shape(parameter.schema),
            validator: parameter.schema.map(|number| Validator::new(self.schemas, number)),
        };
        all.iter().map(one).collect()
    }

    fn media(&self, bodies: &[MediaContract]) -> Vec<Media> {
        let one = |source: &MediaContract| {
            let MediaContract { media_type: range, schema, fields, parts, examples: _ } = source;
            let form = || Form {
                fields: fields.clone().into(),
                parts: parts.clone().into(),
                shape: self.shape(*schema),
            };
            Media {
                range: range.clone(),
                validator: schema.map(|number| Validator::new(self.schemas, number)),
                form: (is_form(range) || range.ends_with('*')).then(form),
            }
        };
        bodies.iter().map(one).collect()
    }
}

impl Media {
    /// The most specific media type for content of this type.
    fn of<'m>(all: &'m [Self], media_type: &str) -> Option<&'m Self> {
        let matching = all.iter().filter(|media| is_in(media_type, &media.range));
        matching.max_by_key(|media| (!media.range.ends_with('*'), media.range.len()))
    }

    /// The validator for content of this type, and the media type.
    fn validator<'m>(
        all: &'m [Self],
        content_type: Option<&[u8]>,
    ) -> Option<(&'m Self, &'m Validator, String)> {
        let media_type = essence(content_type?)?;
        let media = Self::of(all, &media_type)?;
        let is_read = is_json(&media_type) || is_form(&media_type) && media.form.is_some();
        media.validator.as_ref().filter(|_| is_read).map(|validator| (media, validator, media_type))
    }

    /// The violations of a body of this type.
    fn check(all: &[Self], content_type: Option<&[u8]>, body: &[u8]) -> Vec<Violation> {
        let Some((media, validator, media_type)) = Self::validator(all, content_type) else {
            return Vec::new();
        };
        match (&media.form, content_type) {
            (Some(form), Some(content_type)) if is_form(&media_type) => {
                check_form(validator, form.read((content_type, &media_type), body), body.len())
            }
            _ => check_json(validator, body),
        }
    }
}

impl Operation {
    pub(crate) fn new(
        source: &OperationContract,
        schemas: &Arc<Schemas>,
        all: &Map<String, Value>,
        samples: Option<&Arc<Map<String, Value>>>,
    ) -> Self {
        let compiler = Compiler { schemas, all };
        let response = |of: &ResponseContract| Response {
            status: of.status,
            headers: compiler.described(&of.headers),
            bodies: compiler.media(&of.bodies),
        };
        Self {
            parameters: compiler.described(&source.parameters),
            requires_body: source.requires_body,
            bodies: compiler.media(&source.bodies),
            responses: source.responses.iter().map(response).collect(),
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
        let has_cookies = self.parameters.iter().any(|of| of.parameter.place == ParameterPlace::Cookie);
        let cookies: Vec<Cow<'_, str>> = match has_cookies {
            true => (head.header)("cookie").into_iter().map(String::from_utf8_lossy).collect(),
            false => Vec::new(),
        };
        let cookies = Pairs::of_cookies(cookies.iter().map(|text| &**text));
        for described in &self.parameters {
            let Described { parameter, shape, .. } = described;
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
                ParameterPlace::Header => described.of_header(head.header),
            };
            described.check(found, &mut violations);
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
        Media::check(&self.bodies, content_type, body)
    }

    /// The violations of the status, the media type and the headers of a response. `has_body`: whether the response may have a
    /// body. `header`: the values of a header by its name in lower case.
    #[must_use]
    pub fn check_response_head<'h>(
        &self,
        status: u16,
        header: &dyn Fn(&str) -> Vec<&'h [u8]>,
        has_body: bool,
    ) -> Vec<Violation> {
        let Some(Response { headers, bodies, .. }) = self.response(status) else {
            let detail = format!("The operation has no response with status {status}.");
            return vec![Violation::new(Place::Status, detail)];
        };
        let mut violations = Vec::new();
        if has_body && !bodies.is_empty() {
            let detail = match header("content-type").first() {
                None => Some("is required"),
                Some(content_type) => {
                    let is_known = essence(content_type)
                        .is_some_and(|media_type| Media::of(bodies, &media_type).is_some());
                    (!is_known).then_some("is no media type of the response")
                }
            };
            violations
                .extend(detail.map(|detail| Violation::new(Place::Header("Content-Type".into()), detail)));
        }
        for described in headers {
            described.check(described.of_header(header), &mut violations);
        }
        violations.truncate(VIOLATIONS_MAX);
        violations
    }

    /// Whether the body of a response of this type has a schema.
    #[must_use]
    pub fn has_response_schema(&self, status: u16, content_type: Option<&[u8]>) -> bool {
        self.response(status).is_some_and(|of| Media::validator(&of.bodies, content_type).is_some())
    }

    /// The violations of the body of a response.
    #[must_use]
    pub fn check_response_body(
        &self,
        status: u16,
        content_type: Option<&[u8]>,
        body: &[u8],
    ) -> Vec<Violation> {
        self.response(status).map_or_else(Vec::new, |of| Media::check(&of.bodies, content_type, body))
    }

    fn response(&self, status: u16) -> Option<&Response> {
        self.responses.iter().find(|response| response.status.contains(status))
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

impl Described {
    /// The value of a header.
    fn of_header<'h>(&self, header: &dyn Fn(&str) -> Vec<&'h [u8]>) -> Found {
        let values = header(&self.parameter.name.to_ascii_lowercase());
        if values.is_empty() {
            return Found::Absent;
        }
        of_text(&self.parameter, &self.shape, &String::from_utf8_lossy(&values.join(&b", "[..])))
    }

    /// Adds the violations of a value.
    fn check(&self, found: Found, violations: &mut Vec<Violation>) {
        let place = || place_of(&self.parameter);
        match found {
            Found::Absent if self.parameter.is_required => {
                violations.push(Violation::new(place(), "is required"));
            }
            Found::Absent => {}
            Found::Malformed(fault) => violations.push(Violation::new(place(), fault)),
            Found::Values(values) => {
                let Some(validator) = &self.validator else { return };
                if values.iter().any(|value| validator.is_valid(value)) {
                    return;
                }
                let Some(value) = values.into_iter().next() else { return };
                violations.extend(validator.violations(value, 0, |_| place()));
            }
        }
    }
}

fn check_form(validator: &Validator, form: Result<[Value; 2], FormFault>, length: usize) -> Vec<Violation> {
    let place = |pointer: &str| Place::Body(pointer.into());
    match form {
        Ok([value, other]) => {
            let violations = validator.violations(value, length, place);
            let is_valid = violations.is_empty() || validator.is_valid(&other);
            if is_valid { Vec::new() } else { violations }
        }
        Err(FormFault { field, detail }) => {
            let pointer = field
                .map_or(String::new(), |name| format!("/{}", name.replace('~', "~0").replace('/', "~1")));
            vec![Violation::new(place(&pointer), detail)]
        }
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
