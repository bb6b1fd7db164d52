//! Validation of requests and responses of an Api by its document, and mocks.

use serde_json::{Value, json};
use sluicegate_netns::Process;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{self, Client, Response};

use crate::support::{Site, until};

type TestResult = anyhow::Result<()>;

const DOCUMENT: &str = r##"
openapi: 3.0.3
info: {title: Pets, version: 1.2.0}
servers: [{url: https://pets.example.com/v1}]
paths:
  /pets:
    get:
      operationId: listPets
      parameters:
      - {name: limit, in: query, schema: {type: integer, minimum: 1, maximum: 100}}
      - {name: X-Shop, in: header, required: true, schema: {type: string, enum: [north, south]}}
      responses: {"200": {description: pets, content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Pet"}}}}}}
    post:
      operationId: createPet
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Pet"}}}}
      responses:
        "200": {description: pet, content: {application/json: {schema: {$ref: "#/components/schemas/Pet"}, examples: {cat: {value: {id: 1, name: Tom}}, dog: {value: {id: 2, name: Rex}}}}}}
        "404": {description: none, content: {application/problem+json: {example: {title: none}}}}
  /pets/{id}:
    get:
      operationId: getPet
      parameters: [{name: id, in: path, required: true, schema: {type: integer}}]
      responses: {"200": {description: pet, content: {application/json: {schema: {$ref: "#/components/schemas/Pet"}}}}}
    put:
      operationId: putPet
      parameters: [{name: id, in: path, required: true, schema: {type: integer}}]
      requestBody: {content: {application/json: {schema: {properties: {name: {pattern: "(?=x)"}}}}}}
      responses: {default: {description: any}}
  /orders:
    post:
      operationId: order
      requestBody:
        content:
          application/x-www-form-urlencoded: {schema: {$ref: "#/components/schemas/Order"}, encoding: {to: {style: deepObject}}}
          multipart/form-data: {schema: {$ref: "#/components/schemas/Order"}}
      responses: {"200": {description: done, headers: {X-Left: {required: true, schema: {type: integer}}}}}
components:
  schemas:
    Order:
      type: object
      required: [count]
      properties: {count: {type: integer}, to: {type: object, additionalProperties: {type: string, maxLength: 9}}}
    Pet:
      type: object
      required: [name, id]
      properties:
        id: {type: integer, readOnly: true}
        name: {type: string, maxLength: 20}
        tag: {type: string, nullable: true}
        mother: {$ref: "#/components/schemas/Pet"}
"##;

/// An Api with the document, and further lines of the specification.
fn api(more: &str) -> String {
    let document = DOCUMENT.replace('\n', "\n      ");
    format!(
        "---
apiVersion: sluicegate.dev/v1alpha1
kind: Api
metadata: {{name: pets}}
spec:
  document:
    inline: |{document}
  environments:
  - {{name: production, hosts: [pets.test], backend: {{service: web, port: http}}}}
{more}"
    )
}

async fn gateway(backend: &Backend, more: &str, options: &[&str]) -> anyhow::Result<(Site, Process)> {
    let site = Site::of([backend])?;
    site.save("ingress.yaml", &api(more))?;
    let gateway = site.serve(options).await?;
    Ok((site, gateway))
}

fn request(method: &str, target: &str, lines: &str, body: &str) -> String {
    let length = if lines.contains("Transfer-Encoding") {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    format!("{method} {target} HTTP/1.1\r\nHost: pets.test\r\n{length}{lines}\r\n{body}")
}

const JSON: &str = "Content-Type: application/json\r\n";

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
const PARTS: &str = "Content-Type: multipart/form-data; boundary=x\r\n";
const PART_OF_COUNT_7: &str = "--x\r\nContent-Disposition: form-data; name=\"count\"\r\n\r\n7\r\n--x--\r\n";

async fn ask(site: &Site, method: &str, target: &str, lines: &str, body: &str) -> anyhow::Result<Response> {
    Ok(Client::connect(site.http).await?.request(request(method, target, lines, body)).await?)
}

fn errors(response: &Response) -> anyhow::Result<Value> {
    assert_eq!(response.header("content-type"), Some("application/problem+json"), "{}", response.text());
    let problem: Value = serde_json::from_slice(&response.body)?;
    assert_eq!(problem["status"], response.status);
    Ok(problem["errors"].clone())
}

async fn metric(site: &Site, name: &str, labels: &[&str]) -> anyhow::Result<u64> {
    let text = client::get(site.admin, "localhost", "/metrics").await?.text();
    let is_it = |line: &&str| line.starts_with(name) && labels.iter().all(|label| line.contains(label));
    let value = text.lines().find(is_it).and_then(|line| line.rsplit(' ').next());
    Ok(value.unwrap_or("0").parse()?)
}

#[tokio::test]
async fn invalid_requests_receive_problems_that_name_each_error() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let (site, gateway) = gateway(&backend, "  validation: {request: Enforce, status: 422}\n", &[]).await?;
    for (method, target, lines, body) in [
        ("GET", "/v1/pets?limit=7", "X-Shop: north\r\n", ""),
        ("GET", "/v1/pets/7", "", ""),
        ("HEAD", "/v1/pets/7", "", ""),
        ("POST", "/v1/orders", FORM, "count=7&to[city]=Rome"),
        ("POST", "/v1/orders", PARTS, PART_OF_COUNT_7),
        ("POST", "/v1/pets", JSON, r#"{"name": "Tom", "tag": null, "mother": {"name": "Eve"}}"#),
    ] {
        let response = ask(&site, method, target, lines, body).await?;
        assert_eq!(response.status, 200, "{method} {target}: {}\n{}", response.text(), gateway.output());
    }
    assert_eq!(
        backend.last_request().expect("a request").body,
        br#"{"name": "Tom", "tag": null, "mother": {"name": "Eve"}}"#
    );
    let served = backend.requests();
    for (method, target, lines, body, expected) in [
        (
            "GET",
            "/v1/pets?limit=0",
            "X-Shop: east\r\n",
            "",
            json!([
                {"parameter": "limit", "in": "query", "detail": "value is less than the minimum of 1"},
                {"header": "X-Shop", "detail": "value is not one of \"north\" or \"south\""},
            ]),
        ),
        ("GET", "/v1/pets", "", "", json!([{"header": "X-Shop", "detail": "is required"}])),
        (
            "GET",
            "/v1/pets/tom",
            "",
            "",
            json!([
                {"parameter": "id", "in": "path", "detail": "value is not of type \"integer\""},
            ]),
        ),
        (
            "POST",
            "/v1/pets",
            JSON,
            r#"{"name": 7, "mother": {"name": "a", "mother": {}}}"#,
            json!([
                {"pointer": "#/mother/mother", "detail": "\"name\" is a required property"},
                {"pointer": "#/name", "detail": "value is not of type \"string\""},
            ]),
        ),
        ("POST", "/v1/pets", "", "", json!([{"pointer": "#", "detail": "is required"}])),
        (
            "POST",
            "/v1/orders",
            FORM,
            "count=x&to%5Bcity%5D=New+York+City",
            json!([
                {"pointer": "#/count", "detail": "value is not of type \"integer\""},
                {"pointer": "#/to/city", "detail": "value is longer than 9 characters"},
            ]),
        ),
        (
            "POST",
            "/v1/orders",
            PARTS,
            "--x--\r\n",
            json!([{"pointer": "#", "detail": "\"count\" is a required property"}]),
        ),
        (
            "POST",
            "/v1/pets",
            JSON,
            r#"{"name": "#,
            json!([{"pointer": "#", "detail": "is not JSON: line 1, column 9"}]),
        ),
    ] {
        let response = ask(&site, method, target, lines, body).await?;
        assert_eq!(response.status, 422, "{method} {target}: {}", response.text());
        assert_eq!(errors(&response)?, expected, "{method} {target}");
    }
    assert_eq!(backend.requests(), served, "no endpoint receives invalid requests");
    let rejected =
        metric(&site, "sluicegate_api_invalid_total", &["message=\"request\"", "action=\"rejected\""]);
    assert_eq!(rejected.await?, 8);
    Ok(())
}

#[tokio::test]
async fn body_is_validated_in_every_framing_and_forwarded_unchanged() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let (site, _gateway) = gateway(&backend, "  validation: {request: Enforce}\n", &[]).await?;
    let chunked = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    for (body, status) in [("{\"name\": \"Tom\"}", 200), ("{\"name\": 77777}", 400)] {
        let (first, second) = body.split_at(5);
        let coded = format!("5\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", second.len());
        let response = ask(&site, "POST", "/v1/pets", chunked, &coded).await?;
        assert_eq!(response.status, status, "{}", response.text());
        let mut http2 = Client::connect_http2(site.http).await?;
        let response = http2.request(request("POST", "/v1/pets", JSON, body)).await?;
        assert_eq!(response.status, status, "{}", response.text());
    }
    // A media type is required: the endpoint could read the body as JSON all the same.
    let response =
        ask(&site, "POST", "/v1/pets", "Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n").await?;
    assert_eq!(errors(&response)?, json!([{"header": "Content-Type", "detail": "is required"}]));
    assert_eq!((backend.requests(), backend.malformed()), (2, 0));
    assert_eq!(backend.last_request().expect("a request").body, b"{\"name\": \"Tom\"}");
    // The client waits for a 100.
    let mut client = Client::connect(site.http).await?;
    let lines = format!("{JSON}Expect: 100-continue\r\n");
    let whole = request("POST", "/v1/pets", &lines, "{\"name\": \"Tom\"}");
    let (head, body) = whole.split_at(whole.len() - 15);
    client.send(head).await?;
    assert_eq!(client.read_interim().await?, 100);
    client.send(body).await?;
    assert_eq!(client.read_response().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn media_type_that_an_operation_does_not_describe_receives_415_also_without_validation() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let (site, _gateway) = gateway(&backend, "", &[]).await?;
    for (lines, body, status) in [
        ("Content-Type: application/JSON; charset=utf-8\r\n", "{}", 200),
        ("Content-Type: text/plain\r\n", "{}", 415),
        ("Content-Type: application/json\r\nContent-Type: text/plain\r\n", "{}", 415),
        ("", "{}", 415),
        ("", "", 200),
        ("Content-Type: text/plain\r\n", "", 200),
    ] {
        let response = ask(&site, "POST", "/v1/pets", lines, body).await?;
        assert_eq!(response.status, status, "{lines} {body}");
        if status == 415 {
            assert_eq!(errors(&response)?, Value::Null);
        }
    }
    Ok(())
}

#[tokio::test]
async fn reported_requests_are_forwarded_counted_and_logged() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    let log = site.path().join("access.log");
    site.save("ingress.yaml", &api("  validation: {request: Report, bodyLimit: 100k}\n"))?;
    let _gateway = site.serve(&["--access-log", &log.to_string_lossy()]).await?;
    assert_eq!(ask(&site, "POST", "/v1/pets", JSON, "{\"name\": 7}").await?.status, 200);
    assert_eq!(backend.last_request().expect("a request").body, b"{\"name\": 7}");
    // Longer bodies pass as they are, with a length and without.
    let long = format!("{{\"name\": \"{}\"}}", "x".repeat(400_000));
    assert_eq!(ask(&site, "POST", "/v1/pets", JSON, &long).await?.status, 200);
    assert!(backend.last_request().expect("a request").body == long.as_bytes());
    let lines = format!("{JSON}Transfer-Encoding: chunked\r\n");
    let coded: String = long
        .as_bytes()
        .chunks(70_000)
        .map(|part| format!("{:x}\r\n{}\r\n", part.len(), String::from_utf8_lossy(part)))
        .collect();
    assert_eq!(ask(&site, "POST", "/v1/pets", &lines, &(coded + "0\r\n\r\n")).await?.status, 200);
    assert!(backend.last_request().expect("a request").body == long.as_bytes(), "the body is unchanged");
    let mut http2 = Client::connect_http2(site.http).await?;
    assert_eq!(http2.request(request("POST", "/v1/pets", JSON, &long)).await?.status, 200);
    assert!(backend.last_request().expect("a request").body == long.as_bytes(), "the body is unchanged");
    assert_eq!(backend.malformed(), 0);
    let count = async |name: &'static str, labels: &'static [&'static str]| metric(&site, name, labels).await;
    assert_eq!(
        count("sluicegate_api_invalid_total", &["message=\"request\"", "action=\"reported\""]).await?,
        1
    );
    assert_eq!(count("sluicegate_api_not_validated_total", &["message=\"request\""]).await?, 3);
    let end = std::time::Instant::now() + crate::support::LIMIT;
    while !std::fs::read_to_string(&log).unwrap_or_default().contains("\"invalid\":\"request\"") {
        anyhow::ensure!(std::time::Instant::now() < end, "the access log does not name the invalid request");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    Ok(())
}

#[tokio::test]
async fn body_above_the_limit_receives_413() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let (site, _gateway) =
        gateway(&backend, "  validation: {request: Enforce, bodyLimit: \"50\"}\n", &[]).await?;
    let long = format!("{{\"name\": \"{}\"}}", "x".repeat(60));
    let chunked = format!("{JSON}Transfer-Encoding: chunked\r\n");
    let coded = format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len());
    for (lines, body) in [(JSON, &long), (&*chunked, &coded)] {
        let response = ask(&site, "POST", "/v1/pets", lines, body).await?;
        assert_eq!(response.status, 413, "{}", response.text());
        errors(&response)?;
    }
    let lines = format!("{JSON}Content-Encoding: gzip\r\n");
    assert_eq!(ask(&site, "POST", "/v1/pets", &lines, "x").await?.status, 415);
    assert_eq!(backend.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn json_in_another_charset_than_utf_8_receives_415_or_is_reported() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let (site, _gateway) = gateway(&backend, "  validation: {request: Enforce}\n", &[]).await?;
    let lines = |charset: &str| format!("Content-Type: application/json; charset={charset}\r\n");
    let body = r#"{"name": "tom"}"#;
    let refused = ask(&site, "POST", "/v1/pets", &lines("utf-16"), body).await?;
    assert_eq!(refused.status, 415, "{}", refused.text());
    assert!(refused.text().contains("in UTF-8"), "{}", refused.text());
    assert_eq!(backend.requests(), 0);
    let accepted = ask(&site, "POST", "/v1/pets", &lines("\"UTF-8\""), body).await?;
    assert_eq!(accepted.status, 200, "{}", accepted.text());
    let (site, _gateway) = gateway(&backend, "  validation: {request: Report}\n", &[]).await?;
    assert_eq!(ask(&site, "POST", "/v1/pets", &lines("utf-16"), body).await?.status, 200);
    assert_eq!(metric(&site, "sluicegate_api_invalid_total", &["action=\"reported\""]).await?, 1);
    Ok(())
}

#[tokio::test]
async fn operation_sets_override_the_validation_of_the_api() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let more = "  validation: {request: Enforce}
  operationSets:
  - {name: open, operations: [getPet], validation: {request: Disabled}}
  - {name: reads, methods: [GET], validation: {request: Report, status: 499}}
";
    let (site, _gateway) = gateway(&backend, more, &[]).await?;
    assert_eq!(ask(&site, "GET", "/v1/pets/tom", "", "").await?.status, 200);
    assert_eq!(ask(&site, "GET", "/v1/pets?limit=x", "", "").await?.status, 200);
    assert_eq!(ask(&site, "POST", "/v1/pets", JSON, "{}").await?.status, 400);
    assert_eq!(metric(&site, "sluicegate_api_invalid_total", &["action=\"reported\""]).await?, 1);
    Ok(())
}

#[tokio::test]
async fn schema_that_cannot_be_compiled_closes_only_its_operation() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let (site, gateway) = gateway(&backend, "  validation: {request: Enforce}\n", &[]).await?;
    let response = ask(&site, "PUT", "/v1/pets/7", JSON, "{}").await?;
    assert_eq!(response.status, 503, "{}", gateway.output());
    errors(&response)?;
    assert_eq!(ask(&site, "POST", "/v1/pets", JSON, "{\"name\": \"a\"}").await?.status, 200);
    let pointer =
        "#/paths/~1pets~1{id}/put/requestBody/content/application~1json/schema/properties/name/pattern";
    let output = gateway.output();
    assert!(output.contains(pointer) && output.contains("putPet"), "{output}");
    Ok(())
}

#[tokio::test]
async fn invalid_responses_receive_502_in_enforce() -> TestResult {
    let json_of = |body: &str| {
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nX-Own: 1\r\n\r\n{body}"
        )
    };
    let backend = Backend::start(Behaviour::raw(json_of(r#"{"id": 1, "name": "Tom"}"#))).await?;
    let (site, _gateway) =
        gateway(&backend, "  validation: {response: Enforce, bodyLimit: 300k}\n", &[]).await?;
    let response =
        ask(&site, "GET", "/v1/pets/7", "Accept-Encoding: gzip\r\nRange: bytes=0-1\r\n", "").await?;
    assert_eq!((response.status, response.header("x-own")), (200, Some("1")), "{}", response.text());
    assert_eq!(response.body, br#"{"id": 1, "name": "Tom"}"#);
    let asked = backend.last_request().expect("a request");
    assert_eq!((asked.header("accept-encoding"), asked.header("range")), (None, None));
    let long = format!(r#"{{"id": 1, "name": "Tom", "more": "{}"}}"#, "x".repeat(200_000));
    let chunked: String = long
        .as_bytes()
        .chunks(30_000)
        .map(|part| format!("{:x}\r\n{}\r\n", part.len(), String::from_utf8_lossy(part)))
        .collect();
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}0\r\n\r\n"
    );
    for raw in [json_of(&long), chunked] {
        backend.set(Behaviour::raw(raw));
        let response = ask(&site, "GET", "/v1/pets/7", "", "").await?;
        assert!(response.status == 200 && response.body == long.as_bytes(), "{}", response.status);
        let mut http2 = Client::connect_http2(site.http).await?;
        let response = http2.request(request("GET", "/v1/pets/7", "", "")).await?;
        assert!(response.status == 200 && response.body == long.as_bytes(), "{}", response.status);
    }
    let too_long = format!(r#"{{"id": 1, "name": "Tom", "more": "{}"}}"#, "x".repeat(400_000));
    for (raw, expected) in [
        (json_of(r#"{"name": "Tom"}"#), json!([{"pointer": "#", "detail": "\"id\" is a required property"}])),
        (json_of("7"), json!([{"pointer": "#", "detail": "value is not of type \"object\""}])),
        (json_of(&too_long), json!([{"pointer": "#", "detail": "is too long to be validated"}])),
        (
            json_of(r#"{"id": 1, "name": "Tom"}"#).replace("json\r\n", "json; charset=utf-16\r\n"),
            json!([{"pointer": "#", "detail": "has another charset than UTF-8"}]),
        ),
        (
            "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
            json!([{"detail": "The operation has no response with status 500."}]),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\nabc".to_owned(),
            json!([{"header": "Content-Type", "detail": "is no media type of the response"}]),
        ),
    ] {
        backend.set(Behaviour::raw(raw));
        let response = ask(&site, "GET", "/v1/pets/7", "", "").await?;
        assert_eq!(response.status, 502, "{expected}: {}", response.text());
        assert_eq!(errors(&response)?, expected);
    }
    let head = |left: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{left}\r\n");
    backend.set(Behaviour::raw(head("X-Left: 7\r\n")));
    assert_eq!(ask(&site, "POST", "/v1/orders", "", "").await?.status, 200);
    for (left, detail) in [("X-Left: x\r\n", "value is not of type \"integer\""), ("", "is required")] {
        backend.set(Behaviour::raw(head(left)));
        let response = ask(&site, "POST", "/v1/orders", "", "").await?;
        assert_eq!(response.status, 502, "{}", response.text());
        assert_eq!(errors(&response)?, json!([{"header": "X-Left", "detail": detail}]));
    }
    let rejected =
        metric(&site, "sluicegate_api_invalid_total", &["message=\"response\"", "action=\"rejected\""]);
    assert_eq!(rejected.await?, 8);
    Ok(())
}

#[tokio::test]
async fn reported_responses_are_forwarded_as_they_arrive() -> TestResult {
    let part = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let invalid = format!("{head}{}{}0\r\n\r\n", part("{\"name\": \"T"), part("om\"}"));
    let backend = Backend::start(Behaviour::raw(invalid)).await?;
    let (site, _gateway) =
        gateway(&backend, "  validation: {response: Report, bodyLimit: 1k}\n", &[]).await?;
    let reported = async || {
        metric(&site, "sluicegate_api_invalid_total", &["message=\"response\"", "action=\"reported\""]).await
    };
    let response = ask(&site, "GET", "/v1/pets/7", "", "").await?;
    assert_eq!((response.status, &*response.body), (200, &b"{\"name\": \"Tom\"}"[..]));
    // The gateway counts a response after the client has received it.
    until(async || Ok(reported().await? > 0)).await?;
    assert_eq!(reported().await?, 1);
    backend.set(Behaviour::raw(format!("{head}{}0\r\n\r\n", part("{\"name\": \"Tom\", \"id\": 1}"))));
    assert_eq!(ask(&site, "GET", "/v1/pets/7", "", "").await?.status, 200);
    assert_eq!(reported().await?, 1, "a valid response");
    backend.set(Behaviour::raw("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"));
    assert_eq!(ask(&site, "GET", "/v1/pets/7", "", "").await?.status, 500);
    until(async || Ok(reported().await? > 1)).await?;
    assert_eq!(reported().await?, 2);
    backend.set(Behaviour::raw(format!("{head}{}0\r\n\r\n", part(&"x".repeat(2000)))));
    assert_eq!(ask(&site, "GET", "/v1/pets/7", "", "").await?.body.len(), 2000);
    assert_eq!(reported().await?, 2);
    assert_eq!(metric(&site, "sluicegate_api_not_validated_total", &["message=\"response\""]).await?, 1);
    let latin = head.replace("json\r\n", "json; charset=latin1\r\n");
    backend.set(Behaviour::raw(format!("{latin}{}0\r\n\r\n", part("{}"))));
    assert_eq!(ask(&site, "GET", "/v1/pets/7", "", "").await?.body, b"{}");
    assert_eq!(reported().await?, 2, "the charset is not read");
    assert_eq!(metric(&site, "sluicegate_api_not_validated_total", &["message=\"response\""]).await?, 2);
    // The client receives the first part before the endpoint sends the second part.
    backend.set(Behaviour::raw(format!("{head}{}", part("{\"a\": "))));
    let mut client = Client::connect(site.http).await?;
    client.send(request("GET", "/v1/pets/7", "", "")).await?;
    client.read_until("{\"a\": ").await?;
    Ok(())
}

#[tokio::test]
async fn operations_without_a_backend_respond_with_examples_of_the_document() -> TestResult {
    let site = Site::of([])?;
    let mocked =
        api("  validation: {request: Enforce}\n").replace(", backend: {service: web, port: http}", "");
    site.save("ingress.yaml", &mocked)?;
    let gateway = site.serve(&[]).await?;
    let post = async |lines: &str| {
        ask(&site, "POST", "/v1/pets", &format!("{JSON}{lines}"), "{\"name\": \"a\"}").await
    };
    let response = post("").await?;
    assert_eq!(response.status, 200, "{}", gateway.output());
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.text(), r#"{"id":1,"name":"Tom"}"#);
    assert_eq!(post("Prefer: example=dog\r\n").await?.text(), r#"{"id":2,"name":"Rex"}"#);
    let missing = post("Prefer: code=404\r\n").await?;
    assert_eq!((missing.status, &*missing.text()), (404, r#"{"title":"none"}"#));
    assert_eq!(post("Accept: image/png\r\n").await?.status, 406);
    assert_eq!(post("Prefer: code=500\r\n").await?.status, 404);
    let generated = ask(&site, "GET", "/v1/pets/7", "", "").await?;
    let value: Value = serde_json::from_slice(&generated.body)?;
    assert_eq!((&value["id"], &value["name"]), (&json!(0), &json!("string")));
    assert_eq!(ask(&site, "GET", "/v1/pets/tom", "", "").await?.status, 400, "requests are validated");
    assert_eq!(ask(&site, "HEAD", "/v1/pets/7", "", "").await?.status, 200);
    let mut http2 = Client::connect_http2(site.http).await?;
    assert_eq!(http2.request(request("GET", "/v1/pets/7", "", "")).await?.body, generated.body);
    assert_eq!(metric(&site, "sluicegate_api_mocked_total", &["name=\"pets\""]).await?, 6);
    Ok(())
}

#[tokio::test]
async fn set_of_operations_is_mocked_beside_served_operations() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let more = "  operationSets: [{name: new, operations: [createPet], mock: true}]\n";
    let (site, _gateway) = gateway(&backend, more, &[]).await?;
    assert_eq!(ask(&site, "POST", "/v1/pets", JSON, "{}").await?.text(), r#"{"id":1,"name":"Tom"}"#);
    assert_eq!(backend.requests(), 0);
    assert_eq!(ask(&site, "GET", "/v1/pets/7", "", "").await?.status, 200);
    assert_eq!(backend.requests(), 1);
    Ok(())
}
