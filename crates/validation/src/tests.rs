//! Tests of compiled contracts.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use sluicegate_model::ApiContract;
use sluicegate_model::contract::{
    MediaContract, OperationContract, Parameter, ParameterPlace, ParameterStyle, ResponseContract,
    StatusRange,
};

use crate::{Contract, Operation, Place, RequestHead, Violation};

const JSON: Option<&[u8]> = Some(b"application/json; charset=utf-8");

fn parameter(name: &str, place: ParameterPlace, is_required: bool, schema: u32) -> Parameter {
    let style = match place {
        ParameterPlace::Query | ParameterPlace::Cookie => ParameterStyle::Form,
        ParameterPlace::Path | ParameterPlace::Header => ParameterStyle::Simple,
    };
    let schema = Some(schema);
    Parameter { name: name.into(), place, is_required, style, explodes: false, schema, allows_empty: false }
}

fn compiled(schemas: &Value, operation: OperationContract) -> Arc<Operation> {
    let schemas = schemas.to_string().into();
    let operations = vec![OperationContract { id: "a".into(), ..operation }];
    let contract = Contract::new(&ApiContract { schemas, operations, has_mocks: false }).unwrap();
    contract.operation("a").unwrap().clone()
}

fn with_body(schemas: &Value) -> Arc<Operation> {
    let media =
        |media_type: &str| MediaContract { media_type: media_type.into(), schema: Some(0), examples: vec![] };
    let bodies = vec![media("application/*"), media("text/csv")];
    let responses = vec![
        ResponseContract { status: StatusRange::Code(200), bodies: vec![media("application/json")] },
        ResponseContract { status: StatusRange::Code(204), bodies: vec![] },
    ];
    compiled(
        schemas,
        OperationContract { bodies, responses, requires_body: true, ..OperationContract::default() },
    )
}

fn pointers(violations: &[Violation]) -> Vec<String> {
    let pointer = |violation: &Violation| match &violation.place {
        Place::Body(pointer) => pointer.to_string(),
        other => format!("{other:?}"),
    };
    violations.iter().map(pointer).collect()
}

#[test]
fn parameters_are_checked_in_all_places() {
    let schemas = json!({
        "0": {"type": "integer", "minimum": 1},
        "1": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
        "2": {"type": "array", "items": {"$ref": "#/$defs/0"}, "maxItems": 2},
    });
    let operation = compiled(
        &schemas,
        OperationContract {
            parameters: vec![
                parameter("id", ParameterPlace::Path, true, 0),
                parameter("q", ParameterPlace::Query, true, 1),
                parameter("list", ParameterPlace::Query, false, 2),
                parameter("X-Id", ParameterPlace::Header, false, 0),
                parameter("session", ParameterPlace::Cookie, true, 1),
            ],
            ..OperationContract::default()
        },
    );
    let check = |id: &str, query: &str, headers: &[(&str, &'static str)]| {
        let header = |name: &str| {
            let values = headers.iter().filter(|(known, _)| *known == name);
            values.map(|(_, value)| value.as_bytes()).collect()
        };
        let path = [("id", id.as_bytes())];
        let violations =
            operation.check_head(&RequestHead { path: &path, query: query.as_bytes(), header: &header });
        violations.into_iter().map(|violation| (violation.place, violation.detail)).collect::<Vec<_>>()
    };
    let cookie = ("cookie", "a=b; session=abc");
    assert_eq!(check("7", "q=abc&list=1,2", &[cookie, ("x-id", "5")]), []);
    let of = |name: &str, place| Place::Parameter(name.into(), place);
    assert_eq!(
        check("x", "list=1,0", &[("x-id", "0"), ("x-id", "1")]),
        [
            (of("id", "path"), "value is not of type \"integer\"".to_owned()),
            (of("q", "query"), "is required".to_owned()),
            (of("list", "query"), "value is less than the minimum of 1".to_owned()),
            (Place::Header("X-Id".into()), "value is not of type \"integer\"".to_owned()),
            (of("session", "cookie"), "is required".to_owned()),
        ]
    );
    assert_eq!(check("7", "q=abc&q=abc", &[cookie])[0].1, "occurs several times, but is no array");
}

#[test]
fn body_is_checked_by_its_schema_if_it_is_json() {
    let operation = with_body(&json!({"0": {
        "type": "object", "required": ["name"], "additionalProperties": false,
        "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
    }}));
    let check = |body: &str| operation.check_request_body(JSON, body.as_bytes());
    assert_eq!(check(r#"{"name": "a", "tags": ["b"]}"#), []);
    assert_eq!(pointers(&check(r#"{"tags": ["a", 1, 2]}"#)), ["/tags/1", "/tags/2", ""]);
    assert_eq!(pointers(&check("{")), [""]);
    assert!(!check(r#"{"name": "a", "b": "geheim"}"#)[0].detail.contains("geheim"));
    assert!(operation.has_request_schema(Some(b"application/vnd.a+json")));
    assert!(!operation.has_request_schema(Some(b"text/csv")));
    assert_eq!(operation.check_request_body(Some(b"text/csv"), b"a;b"), []);
    assert!(operation.check_absent_body().is_some());
}

#[test]
fn response_is_checked_by_status_media_type_and_schema() {
    let operation = with_body(&json!({"0": {"type": "integer"}}));
    let head = |status, content_type: &'static str, has_body| {
        let content_type = Some(content_type.as_bytes()).filter(|text| !text.is_empty());
        operation.check_response_head(status, content_type, has_body).map(|violation| violation.detail)
    };
    assert_eq!(head(200, "application/json", true), None);
    assert_eq!(head(204, "", false), None);
    assert_eq!(
        head(500, "application/json", true).unwrap(),
        "The operation has no response with status 500."
    );
    assert_eq!(head(200, "text/html", true).unwrap(), "is no media type of the response");
    assert_eq!(head(200, "", true).unwrap(), "is required");
    assert_eq!(head(200, "", false), None);
    assert_eq!(pointers(&operation.check_response_body(200, JSON, b"\"x\"")), [""]);
    assert_eq!(operation.check_response_body(204, JSON, b"\"x\""), []);
}

#[test]
fn message_has_at_most_20_violations() {
    let operation = with_body(&json!({"0": {"type": "array", "items": {"type": "string"}}}));
    let body = |items: usize| format!("[{}0]", "0,".repeat(items));
    assert_eq!(operation.check_request_body(JSON, body(1000).as_bytes()).len(), 20);
    assert_eq!(operation.check_request_body(JSON, body(100_000).as_bytes()).len(), 1);
}

#[test]
fn endless_references_end() {
    for schemas in [
        json!({"0": {"$ref": "#/$defs/1"}, "1": {"$ref": "#/$defs/0"}}),
        json!({"0": {"allOf": [{"$ref": "#/$defs/0"}]}}),
        json!({"0": {"anyOf": [{"type": "string"}, {"not": {"$ref": "#/$defs/0"}}]}}),
        json!({"0": {"properties": {"a": {"$ref": "#/$defs/0"}}, "additionalProperties": {"$ref": "#/$defs/0"}}}),
    ] {
        let operation = with_body(&schemas);
        let _ = operation.check_request_body(JSON, br#"{"a": {"a": {"b": 1}}}"#);
    }
}

#[test]
fn recursive_schema_checks_all_depths() {
    let operation = with_body(&json!({"0": {
        "type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/0"}}},
    }}));
    let body = br#"{"children": [{"children": [{}, {"children": 1}]}]}"#;
    assert_eq!(pointers(&operation.check_request_body(JSON, body)), ["/children/0/children/1/children"]);
    let deep = [b"{\"children\":[".repeat(60), b"{}".to_vec(), b"]}".repeat(60)].concat();
    assert_eq!(operation.check_request_body(JSON, &deep), []);
}

#[test]
fn hostile_bodies_take_no_quadratic_time() {
    let operation = with_body(&json!({"0": {"anyOf": [
        {"type": "array", "uniqueItems": true, "items": {"type": "integer"}},
        {"type": "string", "pattern": "^(a+)+$"},
    ]}}));
    let unique = format!("[{}]", (0..100_000).map(|item| item.to_string()).collect::<Vec<_>>().join(","));
    let slow = format!("\"{}!\"", "a".repeat(500_000));
    let started = Instant::now();
    assert_eq!(operation.check_request_body(JSON, unique.as_bytes()), []);
    assert_eq!(operation.check_request_body(JSON, slow.as_bytes()).len(), 1);
    // Quadratic time would be minutes.
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

/// Prints the cost of a body of 1 KB.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "a measurement")]
fn measure_body() {
    let item = json!({"id": 7, "name": "Rex", "tags": ["a", "b"], "owner": {"email": "user@example.com", "age": 44}});
    let body = json!({"items": vec![item; 11]}).to_string();
    let operation = with_body(&json!({"0": {
        "type": "object", "required": ["items"], "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/1"}}},
    }, "1": {
        "type": "object", "required": ["id", "name"], "additionalProperties": false, "properties": {
            "id": {"type": "integer", "minimum": 1}, "name": {"type": "string", "maxLength": 50},
            "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}},
            "owner": {"type": "object", "properties": {"email": {"type": "string"}, "age": {"type": "integer"}}},
        },
    }}));
    const ROUNDS: u32 = 20_000;
    let started = Instant::now();
    for _ in 0..ROUNDS {
        assert!(operation.check_request_body(JSON, body.as_bytes()).is_empty());
    }
    println!("{} bytes: {:?}", body.len(), started.elapsed() / ROUNDS);
}
