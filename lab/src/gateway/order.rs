//! A request with a JSON body, and the API that describes it.

use std::fmt::Write as _;

/// The path of the operation.
pub(crate) const PATH: &str = "/shop/orders";

/// An OpenAPI document with the operation.
pub(crate) const DOCUMENT: &str = r##"openapi: 3.1.0
info: {title: orders, version: 1.0.0}
paths:
  /orders:
    get: {operationId: list, responses: {"200": {description: All.}}}
    post:
      operationId: create
      requestBody:
        required: true
        content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}
      responses: {"200": {description: Done.}}
components:
  schemas:
    Order:
      type: object
      required: [customer, items]
      additionalProperties: false
      properties:
        customer: {type: string, format: email, maxLength: 100}
        items: {type: array, minItems: 1, maxItems: 100, items: {$ref: "#/components/schemas/Item"}}
    Item:
      type: object
      required: [id, name, price]
      additionalProperties: false
      properties:
        id: {type: integer, minimum: 1}
        name: {type: string, minLength: 1, maxLength: 50}
        price: {type: number, exclusiveMinimum: 0}
        currency: {enum: [EUR, USD]}
        tags: {type: array, items: {type: string, pattern: "^[a-z]+$"}}
"##;

/// A valid body of about 1 KB.
pub(crate) fn body() -> String {
    let mut text = r#"{"customer": "user@example.com", "items": ["#.to_owned();
    for id in 1..=10 {
        // Writing to a String cannot fail.
        let comma = if id > 1 { ", " } else { "" };
        let _ = write!(
            text,
            r#"{comma}{{"id": {id}, "name": "Thing number {id}", "price": {id}.95, "currency": "EUR", "tags": ["new", "small"]}}"#
        );
    }
    text + "]}"
}

/// Invalid bodies, each with its fault.
pub(crate) fn invalid() -> [(&'static str, String); 3] {
    let body = body();
    [
        ("wrong type", body.replacen("\"id\": 10", "\"id\": \"x\"", 1)),
        ("missing property", r#"{"customer": "user@example.com"}"#.to_owned()),
        ("no JSON", body.replacen('{', "", 1)),
    ]
}
