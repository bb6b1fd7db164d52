//! Validation of requests: no panic, a bounded number of violations, and a problem document without the secret of the request.

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use sluicegate_openapi::{Document, Parts};
use sluicegate_validation::{Contract, Operation, RequestHead, problem};

static OPERATION: LazyLock<Arc<Operation>> = LazyLock::new(|| {
    let pet = json!({"$ref": "#/components/schemas/Pet"});
    let form = json!({"schema": pet, "encoding": {
        "owner": {"style": "deepObject"}, "friends": {"style": "form", "explode": false}, "born": {"contentType": "application/json"},
    }});
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "paths": {"/pets/{id}": {"put": {
            "operationId": "put",
            "parameters": [
                {"name": "id", "in": "path", "required": true, "style": "matrix", "schema": {"type": "array", "items": {"type": "integer"}}},
                {"name": "pet", "in": "query", "style": "deepObject", "schema": pet},
                {"name": "list", "in": "query", "style": "pipeDelimited", "schema": {"type": "array", "items": {"type": "number"}}},
                {"name": "X-Pet", "in": "header", "content": {"application/json": {"schema": pet}}},
                {"name": "pet", "in": "cookie", "explode": false, "schema": pet},
            ],
            "requestBody": {"content": {"application/*": {"schema": pet}, "application/x-www-form-urlencoded": form, "multipart/form-data": form}},
            "responses": {},
        }}},
        "components": {"schemas": {"Pet": {
            "type": "object", "required": ["name"], "additionalProperties": false,
            "properties": {
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 9},
                "born": {"type": ["integer", "null"], "format": "date"},
                "owner": {"anyOf": [{"type": "object", "properties": {"pets": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}}}, {"type": "string"}]},
                "friends": {"type": "array", "uniqueItems": true, "items": {"enum": ["a", 1, true]}},
            },
        }}},
    });
    let document = Document::read(&document);
    let contract = document.contract(&[Parts { requests: true, ..Parts::default() }]);
    Contract::new(&contract).unwrap().operation("put").unwrap().clone()
});

/// The words of lines 1 to 5: the id, the query, a header, cookies and the media type. The rest is the body.
fuzz_target!(|message: &[u8]| {
    let mut lines = message.splitn(6, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (id, query, pet, cookie, content_type, body) = (line(), line(), line(), line(), line(), line());
    let header = |name: &str| match name {
        "x-pet" if !pet.is_empty() => vec![pet],
        "cookie" => vec![cookie, b"a=b"],
        _ => Vec::new(),
    };
    let head = RequestHead { path: &[("id", id)], query, header: &header };
    let mut violations = OPERATION.check_head(&head);
    assert!(violations.len() <= 20);
    let of_body = OPERATION.check_request_body(Some(content_type), body);
    assert!(of_body.len() <= 20);
    assert!(of_body.is_empty() || OPERATION.has_request_schema(Some(content_type)));
    violations.extend(of_body);
    assert!(violations.iter().all(|violation| violation.detail.len() <= 303));
    assert!(problem(400, "Bad Request", "x", &violations).is_object());
});
