//! Contracts: what the data plane needs of a document to validate messages and to respond with mocks.

use std::collections::HashSet;

use serde_json::{Map, Value};
use sluicegate_model::contract::{
    ApiContract, Example, MediaContract, OperationContract, Parameter, ParameterPlace, ParameterStyle,
    PartContract, ResponseContract, StatusRange,
};
use sluicegate_validation::{SchemaFault, is_form, is_multipart};

use crate::document::{Document, list, media_type};
use crate::finding::{Findings, Pointer};
use crate::reference::resolve;
use crate::schema::{Converter, Direction};

/// Headers that are no parameters (OpenAPI 3.1, "Parameter Object").
const NO_PARAMETERS: [&str; 3] = ["accept", "authorization", "content-type"];

/// The parts of the contract of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Parts {
    /// Parameters and request bodies.
    pub requests: bool,
    /// Responses.
    pub responses: bool,
    /// Examples.
    pub examples: bool,
}

/// Reads the contracts of operations.
pub(crate) struct Reader<'v> {
    root: &'v Value,
    pub(crate) converter: Converter<'v>,
}

impl<'v> Reader<'v> {
    pub(crate) fn new(root: &'v Value) -> Self {
        Self { root, converter: Converter::new(root) }
    }

    /// The value for which another value stands. The reader of operations reports faults of references.
    fn resolved(&self, value: &'v Value) -> Option<&'v Value> {
        resolve(self.root, value, &Pointer::Root, &mut Findings::default())
    }

    /// The contract of an operation. `shared` are the parameters of all operations of its path.
    pub(crate) fn operation(
        &mut self,
        fields: &'v Map<String, Value>,
        shared: Option<&'v Value>,
        at: &Pointer<'_>,
    ) -> OperationContract {
        let mut contract = OperationContract::default();
        // A parameter of the operation replaces a parameter of the path.
        let of_parameters = at.field("parameters");
        for (index, written) in list(fields.get("parameters")).iter().chain(list(shared)).enumerate() {
            let Some(parameter) = self.parameter(written, &of_parameters.item(index)) else { continue };
            let is_same = |known: &Parameter| known.place == parameter.place && known.name == parameter.name;
            if !contract.parameters.iter().any(is_same) {
                contract.parameters.push(parameter);
            }
        }
        if let Some(body) = fields.get("requestBody").and_then(|body| self.resolved(body)) {
            let at = at.field("requestBody");
            contract.requires_body = is_true(body.get("required"));
            contract.bodies = self.content(body, Direction::Request, &at);
        }
        let of_responses = at.field("responses");
        for (status, response) in fields.get("responses").and_then(Value::as_object).into_iter().flatten() {
            let Some(range) = StatusRange::parse(status) else { continue };
            let Some(response) = self.resolved(response) else { continue };
            let at = of_responses.field(status);
            let bodies = self.content(response, Direction::Response, &at);
            let headers = self.headers(response, &at);
            contract.responses.push(ResponseContract { status: range, bodies, headers });
        }
        // The most specific first.
        contract.responses.sort_by_key(|response| response.status);
        contract
    }

    fn parameter(&mut self, written: &'v Value, at: &Pointer<'_>) -> Option<Parameter> {
        let parameter = self.resolved(written)?;
        let text = |field: &str| parameter.get(field).and_then(Value::as_str);
        let name = text("name")?;
        let place = match text("in")? {
            "path" => ParameterPlace::Path,
            "query" => ParameterPlace::Query,
            "header" if NO_PARAMETERS.contains(&&*name.to_ascii_lowercase()) => return None,
            "header" => ParameterPlace::Header,
            "cookie" => ParameterPlace::Cookie,
            _ => return None,
        };
        Some(self.described(name, place, parameter, Direction::Request, at))
    }

    /// The headers of a response, without `Content-Type` (OpenAPI 3.1, "Response Object").
    fn headers(&mut self, response: &'v Value, at: &Pointer<'_>) -> Vec<Parameter> {
        let at = at.field("headers");
        let mut headers = Vec::new();
        for (name, written) in response.get("headers").and_then(Value::as_object).into_iter().flatten() {
            let Some(header) = self.resolved(written).filter(|_| !name.eq_ignore_ascii_case("content-type"))
            else {
                continue;
            };
            let at = at.field(name);
            headers.push(self.described(name, ParameterPlace::Header, header, Direction::Response, &at));
        }
        headers
    }

    /// The form and the schema of a parameter or a header.
    fn described(
        &mut self,
        name: &str,
        place: ParameterPlace,
        parameter: &'v Value,
        direction: Direction,
        at: &Pointer<'_>,
    ) -> Parameter {
        let content =
            parameter.get("content").and_then(Value::as_object).and_then(|content| content.iter().next());
        let style = match (style(parameter), place) {
            _ if content.is_some() => ParameterStyle::Json,
            (Some(style), _) => style,
            (_, ParameterPlace::Query | ParameterPlace::Cookie) => ParameterStyle::Form,
            _ => ParameterStyle::Simple,
        };
        let schema = match content {
            // Only JSON has a form that the gateway reads.
            Some((media, of)) if is_json(&media_type(media)) => of.get("schema"),
            Some(_) => None,
            None => parameter.get("schema"),
        };
        let of_schema = at.field("schema");
        let explodes = parameter.get("explode").and_then(Value::as_bool);
        Parameter {
            name: name.into(),
            place,
            is_required: is_true(parameter.get("required")) || place == ParameterPlace::Path,
            style,
            explodes: explodes.unwrap_or(style == ParameterStyle::Form),
            schema: schema.map(|schema| self.converter.number(schema, direction, &of_schema)),
            allows_empty: is_true(parameter.get("allowEmptyValue")),
        }
    }

    fn content(&mut self, of: &'v Value, direction: Direction, at: &Pointer<'_>) -> Vec<MediaContract> {
        let at = at.field("content");
        let mut media = Vec::new();
        for (name, of) in of.get("content").and_then(Value::as_object).into_iter().flatten() {
            let at = at.field(name);
            let of_schema = at.field("schema");
            let media_type = media_type(name);
            let is_read = is_json(&media_type) || is_form(&media_type) || media_type.ends_with('*');
            let schema = of.get("schema").filter(|_| is_read);
            let schema = schema.map(|schema| self.converter.number(schema, direction, &of_schema));
            let fields = if is_form(&media_type) { fields(of, &media_type) } else { Vec::new() };
            let parts = if is_multipart(&media_type) { parts(of) } else { Vec::new() };
            media.push(MediaContract { media_type, schema, examples: self.examples(of), fields, parts });
        }
        media
    }

    fn examples(&self, of: &'v Value) -> Vec<Example> {
        if let Some(value) = of.get("example") {
            return vec![Example { name: None, value: value.to_string().into() }];
        }
        let named = of.get("examples").and_then(Value::as_object).into_iter().flatten();
        let example = |(name, example): (&'v String, &'v Value)| {
            let value = self.resolved(example)?.get("value")?;
            Some(Example { name: Some(name.as_str().into()), value: value.to_string().into() })
        };
        named.filter_map(example).collect()
    }
}

impl Document {
    /// The contract of operations, with these parts of each operation.
    #[must_use]
    pub fn contract(&self, parts: &[Parts]) -> ApiContract {
        let mut operations = Vec::new();
        for (operation, parts) in
            self.operations.iter().zip(parts).filter(|(_, parts)| **parts != Parts::default())
        {
            let mut contract = OperationContract { id: operation.id.clone(), ..operation.contract.clone() };
            if !parts.requests {
                contract.parameters.clear();
                contract.bodies.clear();
                contract.requires_body = false;
            }
            if !parts.responses {
                contract.responses.clear();
            }
            if !parts.examples {
                let bodies = contract.responses.iter_mut().flat_map(|response| &mut response.bodies);
                bodies.for_each(|body| body.examples.clear());
            }
            contract.bodies.iter_mut().for_each(|body| body.examples.clear());
            operations.push(contract);
        }
        let mut schemas = String::from("{");
        for number in self.reached(&operations) {
            let Some(schema) = self.schemas.get(number as usize) else { continue };
            let comma = if schemas.len() > 1 { "," } else { "" };
            schemas.push_str(&format!("{comma}\"{number}\":{}", schema.text));
        }
        schemas.push('}');
        ApiContract {
            schemas: schemas.into(),
            operations,
            has_mocks: parts.iter().any(|parts| parts.examples),
        }
    }

    /// The first fault of the schemas by which the parts of an operation are validated.
    #[must_use]
    pub fn schema_fault(&self, contract: &OperationContract, parts: Parts) -> Option<&SchemaFault> {
        if self.is_compilable {
            return None;
        }
        let mut contract = contract.clone();
        if !parts.requests {
            contract.parameters.clear();
            contract.bodies.clear();
        }
        if !parts.responses {
            contract.responses.clear();
        }
        let numbers = self.reached(std::slice::from_ref(&contract));
        numbers.into_iter().find_map(|number| self.schemas.get(number as usize)?.fault.as_ref())
    }

    /// The numbers of the schemas that operations use, in order.
    fn reached(&self, operations: &[OperationContract]) -> Vec<u32> {
        let mut waiting: Vec<u32> = operations.iter().flat_map(OperationContract::schemas).collect();
        let mut reached: HashSet<u32> = waiting.iter().copied().collect();
        while let Some(number) = waiting.pop() {
            let references = self.schemas.get(number as usize).map(|schema| &*schema.references);
            for number in references.unwrap_or_default() {
                if reached.insert(*number) {
                    waiting.push(*number);
                }
            }
        }
        let mut numbers: Vec<u32> = reached.into_iter().collect();
        numbers.sort_unstable();
        numbers
    }
}

fn is_true(value: Option<&Value>) -> bool {
    value.and_then(Value::as_bool).unwrap_or_default()
}

/// The fields of a form that have a form of their own. Of parts of `multipart/form-data`, only the media type matters.
fn fields(of: &Value, media_type: &str) -> Vec<Parameter> {
    let mut fields = Vec::new();
    for (name, encoding) in of.get("encoding").and_then(Value::as_object).into_iter().flatten() {
        let has_style =
            ["style", "explode", "allowReserved"].iter().any(|field| encoding.get(field).is_some());
        let content_type = encoding.get("contentType").and_then(Value::as_str).unwrap_or_default();
        let style = match () {
            () if has_style && !is_multipart(media_type) => style(encoding).unwrap_or(ParameterStyle::Form),
            () if is_json(&crate::document::media_type(content_type)) => ParameterStyle::Json,
            () => continue,
        };
        let explodes = encoding.get("explode").and_then(Value::as_bool);
        fields.push(Parameter {
            name: name.as_str().into(),
            place: ParameterPlace::Query,
            is_required: false,
            style,
            explodes: explodes.unwrap_or(style == ParameterStyle::Form),
            schema: None,
            allows_empty: false,
        });
    }
    fields
}

/// The parts of `multipart/form-data` that name their media types.
fn parts(of: &Value) -> Vec<PartContract> {
    let written = of.get("encoding").and_then(Value::as_object).into_iter().flatten();
    let parts = written.filter_map(|(name, encoding)| {
        let text = encoding.get("contentType").and_then(Value::as_str)?;
        let types = text.split(',').map(|text| String::from(media_type(text)));
        let media_types: Vec<String> = types.filter(|of| !of.is_empty()).collect();
        (!media_types.is_empty()).then(|| PartContract { name: name.as_str().into(), media_types })
    });
    parts.collect()
}

/// The style that a parameter, a header or a field names.
fn style(of: &Value) -> Option<ParameterStyle> {
    Some(match of.get("style")?.as_str()? {
        "simple" => ParameterStyle::Simple,
        "label" => ParameterStyle::Label,
        "matrix" => ParameterStyle::Matrix,
        "form" => ParameterStyle::Form,
        "spaceDelimited" => ParameterStyle::SpaceDelimited,
        "pipeDelimited" => ParameterStyle::PipeDelimited,
        "deepObject" => ParameterStyle::DeepObject,
        _ => return None,
    })
}

/// Whether content of this media type is JSON.
fn is_json(media_type: &str) -> bool {
    sluicegate_validation::is_json(media_type)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALL: Parts = Parts { requests: true, responses: true, examples: true };

    fn document() -> Document {
        let pet = json!({"$ref": "#/components/schemas/Pet"});
        Document::read(&json!({
            "openapi": "3.1.0",
            "info": {"title": "Pets", "version": "1"},
            "paths": {"/pets/{id}": {
                "parameters": [
                    {"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}},
                    {"name": "q", "in": "query", "schema": {"type": "string"}},
                ],
                "put": {
                    "operationId": "put",
                    "parameters": [
                        {"name": "q", "in": "query", "required": true, "style": "pipeDelimited", "schema": {"type": "array"}},
                        {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
                        {"name": "filter", "in": "cookie", "content": {"application/json": {"schema": pet}}},
                    ],
                    "requestBody": {"required": true, "content": {"application/json": {"schema": pet}, "text/csv": {"schema": pet}}},
                    "responses": {
                        "default": {"description": "x"},
                        "200": {"description": "x", "content": {"application/json": {
                            "schema": {"type": "array", "items": pet}, "examples": {"b": {"value": 1}, "a": {"value": {"x": 1}}},
                        }}},
                        "4XX": {"description": "x"},
                    },
                },
            }},
            "components": {"schemas": {
                "Pet": {"type": "object", "properties": {"mother": {"$ref": "#/components/schemas/Pet"}}},
                "Unused": {"type": "object"},
            }},
        }))
    }

    #[test]
    fn contract_has_parameters_bodies_and_responses_of_operations() {
        let document = document();
        assert_eq!(document.findings.iter().count(), 0, "{:?}", document.findings);
        let contract = document.contract(&[ALL]);
        let [operation] = &contract.operations[..] else { panic!("{contract:?}") };
        let parameters: Vec<_> = operation
            .parameters
            .iter()
            .map(|of| (&*of.name, of.place, of.style, of.is_required, of.explodes))
            .collect();
        assert_eq!(
            parameters,
            [
                ("q", ParameterPlace::Query, ParameterStyle::PipeDelimited, true, false),
                ("filter", ParameterPlace::Cookie, ParameterStyle::Json, false, false),
                ("id", ParameterPlace::Path, ParameterStyle::Simple, true, false),
            ]
        );
        assert!(operation.requires_body);
        let [json, csv] = &operation.bodies[..] else { panic!("{operation:?}") };
        assert_eq!((&*json.media_type, csv.schema), ("application/json", None));
        let statuses: Vec<_> = operation.responses.iter().map(|response| response.status).collect();
        assert_eq!(statuses, [StatusRange::Code(200), StatusRange::Class(4), StatusRange::Default]);
        let names: Vec<_> =
            operation.responses[0].bodies[0].examples.iter().map(|example| example.name.as_deref()).collect();
        assert_eq!(names, [Some("a"), Some("b")]);
    }

    /// Prints the cost of a large document, whose path is in `SLUICEGATE_TEST_DOCUMENT`.
    #[test]
    #[ignore = "a measurement of a document that is not part of the project"]
    #[allow(clippy::print_stdout, reason = "a measurement")]
    fn measure_large_document() {
        let Ok(path) = std::env::var("SLUICEGATE_TEST_DOCUMENT") else { return };
        let root: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let started = std::time::Instant::now();
        let document = Document::read(&root);
        println!("read {:?}: {} schemas", started.elapsed(), document.schemas.len());
        println!("{:#?}", document.findings.iter().map(ToString::to_string).collect::<Vec<_>>());
        for parts in [Parts { requests: true, ..Parts::default() }, ALL] {
            let started = std::time::Instant::now();
            let contract = document.contract(&vec![parts; document.operations.len()]);
            println!("{parts:?} {:?}: {} bytes of schemas", started.elapsed(), contract.schemas.len());
            let memory = || -> u64 {
                let status = std::fs::read_to_string("/proc/self/statm").unwrap();
                status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4
            };
            let (started, before) = (std::time::Instant::now(), memory());
            let compiled = sluicegate_validation::Contract::new(&contract);
            println!("compiled {:?}, {} KiB, {:?}", started.elapsed(), memory() - before, compiled.err());
        }
    }

    #[test]
    fn contract_has_only_the_schemas_of_its_parts() {
        let document = document();
        let count = |parts| {
            let schemas: Value = serde_json::from_str(&document.contract(&[parts]).schemas).unwrap();
            schemas.as_object().unwrap().len()
        };
        assert_eq!(count(Parts { responses: true, ..Parts::default() }), 2);
        assert_eq!(count(Parts { requests: true, ..Parts::default() }), 3);
        assert_eq!(count(Parts::default()), 0);
        assert_eq!(
            document.contract(&[Parts { requests: true, ..Parts::default() }]).operations[0].responses,
            []
        );
    }

    #[test]
    fn parts_of_a_form_have_the_media_types_of_their_encoding() {
        let form = json!({"schema": {}, "encoding": {
            "photo": {"contentType": "Image/PNG, image/*"}, "note": {"style": "form"}, "data": {"contentType": ""},
        }});
        let document = Document::read(&json!({
            "openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "paths": {"/a": {"post": {
                "requestBody": {"content": {"multipart/form-data": form, "application/x-www-form-urlencoded": form}},
            }}},
        }));
        let bodies = &document.operations[0].contract.bodies;
        let parts = |media_type: &str| {
            let body = bodies.iter().find(|body| *body.media_type == *media_type).unwrap();
            body.parts.iter().map(|part| (&*part.name, part.media_types.join(" "))).collect::<Vec<_>>()
        };
        assert_eq!(parts("multipart/form-data"), [("photo", "image/png image/*".to_owned())]);
        assert_eq!(parts("application/x-www-form-urlencoded"), []);
    }

    #[test]
    fn fault_of_a_schema_is_of_the_operations_that_use_it() {
        let of = |schema: Value| json!({"content": {"application/json": {"schema": schema}}});
        let document = Document::read(&json!({
            "openapi": "3.1.0",
            "info": {"title": "Pets", "version": "1"},
            "paths": {"/a": {
                "post": {"requestBody": of(json!({"items": {"$ref": "#/components/schemas/Bad"}}))},
                "put": {"requestBody": of(json!({"type": "object"}))},
            }},
            "components": {"schemas": {"Bad": {"pattern": "("}}},
        }));
        let faults: Vec<_> = document
            .operations
            .iter()
            .map(|operation| document.schema_fault(&operation.contract, ALL).map(|fault| &*fault.pointer))
            .collect();
        assert_eq!(faults, [Some("/components/schemas/Bad/pattern"), None]);
    }
}
