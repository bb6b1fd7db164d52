//! Apis, from an OpenAPI document to the responses.

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{self, Client, Response};
use sluicegate_testkit::provider::{self, CLIENT, Provider};
use sluicegate_testkit::tls::{Authority, ClientOptions, ExtendedKeyUsagePurpose};

use crate::support::{LIMIT, Site, free_address};

type TestResult = anyhow::Result<()>;

const DOCUMENT: &str = "
openapi: 3.1.0
info: {title: Pets, version: 1.2.0}
servers: [{url: https://pets.example.com/v1}]
paths:
  /pets:
    get: {operationId: listPets, tags: [read]}
    post:
      operationId: createPet
      requestBody: {content: {application/json: {}}}
  /pets/mine:
    get: {operationId: myPets}
  /pets/{id}:
    parameters: [{name: id, in: path, required: true}]
    get: {operationId: getPet, tags: [read]}
    delete: {operationId: deletePet}
  /pets/{id}/toys/{toy}:
    parameters: [{name: id, in: path, required: true}, {name: toy, in: path, required: true}]
    put: {}
";

/// A document whose operations require different callers.
const SECURED: &str = "
openapi: 3.1.0
info: {title: Safes, version: '1'}
security: [{key: []}]
components:
  securitySchemes:
    key: {type: apiKey, in: header, name: X-Key}
    second: {type: apiKey, in: query, name: second}
    oauth: {type: oauth2}
    certificate: {type: mutualTLS}
paths:
  /key: {get: {}}
  /open: {get: {security: []}}
  /write: {get: {security: [{oauth: [write, read]}]}}
  /either: {get: {security: [{key: []}, {oauth: [read]}]}}
  /optional: {get: {security: [{}, {key: []}]}}
  /both: {get: {security: [{key: [], oauth: []}]}}
  /certificate: {get: {security: [{certificate: []}]}}
  /trusted: {get: {security: [{certificate: [], key: []}, {key: [], oauth: [read]}]}}
  /pair: {get: {security: [{key: [], second: []}]}}
";

/// An Api with the document, and further lines of the specification.
fn api(more: &str, backend: &str) -> String {
    let document = DOCUMENT.replace('\n', "\n      ");
    api_of(&format!("inline: |{document}"), more, backend)
}

/// An Api with a document at this place.
fn api_of(document: &str, more: &str, backend: &str) -> String {
    format!(
        "---
apiVersion: sluicegate.dev/v1alpha1
kind: Api
metadata: {{name: pets}}
spec:
  owner: team-pets
  document:
    {document}
  environments:
  - name: production
    hosts: [pets.test]
    backend: {{service: web, port: http{backend}}}
{more}"
    )
}

/// A server that publishes a document.
fn published(document: &str) -> Behaviour {
    let length = document.len();
    Behaviour::raw(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{document}"))
}

async fn ask(site: &Site, method: &str, target: &str, lines: &str) -> anyhow::Result<Response> {
    let request =
        format!("{method} {target} HTTP/1.1\r\nHost: pets.test\r\nContent-Length: 0\r\n{lines}\r\n");
    Ok(Client::connect(site.http).await?.request(request).await?)
}

#[tokio::test]
async fn operations_are_served_and_other_requests_receive_problems() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    site.save("ingress.yaml", &api("", ""))?;
    let _gateway = site.serve(&["--workers=1"]).await?;
    for (method, target) in [
        ("GET", "/v1/pets"),
        ("POST", "/v1/pets"),
        ("HEAD", "/v1/pets"),
        ("GET", "/v1/pets/7?verbose=1"),
        ("DELETE", "/v1/pets/7"),
        ("GET", "/v1/pets/mine"),
        ("PUT", "/v1/pets/7/toys/ball"),
    ] {
        assert_eq!(ask(&site, method, target, "").await?.status, 200, "{method} {target}");
        assert_eq!(backend.last_request().expect("a request").target, target);
    }
    let served = backend.requests();
    for (method, target, status, allow) in [
        ("GET", "/v1", 404, None),
        ("GET", "/v1/pets/", 404, None),
        ("GET", "/v1/pets/7/toys", 404, None),
        ("PUT", "/v1/pets", 405, Some("GET, HEAD, POST, OPTIONS")),
        ("DELETE", "/v1/pets/mine", 405, Some("GET, HEAD, OPTIONS")),
        ("GET", "/v1/pets/7/toys/ball", 405, Some("PUT, OPTIONS")),
        ("OPTIONS", "/v1/pets/7", 204, Some("GET, HEAD, DELETE, OPTIONS")),
    ] {
        let response = ask(&site, method, target, "").await?;
        let allowed: Vec<&str> = allow.into_iter().collect();
        assert_eq!(
            (response.status, response.headers_named("allow")),
            (status, allowed),
            "{method} {target}"
        );
        if status != 204 {
            assert_eq!(response.header("content-type"), Some("application/problem+json"));
            let problem: serde_json::Value = serde_json::from_slice(&response.body)?;
            assert_eq!(problem["status"], status);
        }
    }
    assert_eq!(backend.requests(), served, "no endpoint receives other requests");
    Ok(())
}

#[tokio::test]
async fn endpoints_receive_their_own_base_path() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    site.save("ingress.yaml", &api("    basePath: /shop\n", ", basePath: /internal/v1"))?;
    let _gateway = site.serve(&["--workers=1"]).await?;
    assert_eq!(ask(&site, "GET", "/shop/pets/7?a=b", "").await?.status, 200);
    assert_eq!(backend.last_request().expect("a request").target, "/internal/v1/pets/7?a=b");
    assert_eq!(ask(&site, "GET", "/v1/pets/7", "").await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn policies_select_operations_by_id_and_by_set() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    let sets = "  operationSets: [{name: changes, methods: [POST, PUT, DELETE]}]\n";
    let deny = |name: &str, section: &str, status: u16| {
        format!(
            "---
apiVersion: sluicegate.dev/v1alpha1
kind: TrafficPolicy
metadata: {{name: {name}}}
spec:
  targetRefs: [{{group: sluicegate.dev, kind: Api, name: pets{section}}}]
  directResponse: {{statusCode: {status}}}
"
        )
    };
    let policies = deny("all", "", 418)
        + &deny("of-set", ", sectionName: changes", 451)
        + &deny("of-operation", ", sectionName: deletePet", 410);
    site.save("ingress.yaml", &(api(sets, "") + &policies))?;
    let gateway = site.serve(&["--workers=1"]).await?;
    for (method, target, status) in [
        ("GET", "/v1/pets", 418),
        ("POST", "/v1/pets", 451),
        ("PUT", "/v1/pets/7/toys/8", 451),
        ("DELETE", "/v1/pets/7", 410),
        ("GET", "/v1/none", 404),
    ] {
        let found = ask(&site, method, target, "").await?.status;
        assert_eq!(found, status, "{method} {target}: {}", gateway.output());
    }
    Ok(())
}

#[tokio::test]
async fn document_of_a_configmap_is_read_and_changes_of_it_apply() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    let configmap = |document: &str| {
        let document = document.replace('\n', "\n    ");
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: pets}}\ndata:\n  openapi.yaml: |{document}\n"
        )
    };
    let inline = DOCUMENT.replace('\n', "\n      ");
    let by_name = api("", "").replace(&format!("inline: |{inline}"), "configMap: {name: pets}");
    site.save("ingress.yaml", &by_name)?;
    let gateway = site.serve(&["--workers=1"]).await?;
    assert_eq!(ask(&site, "GET", "/v1/pets", "").await?.status, 503, "{}", gateway.output());
    site.save("document.yaml", &configmap(DOCUMENT))?;
    let wait = async |target: &str, status: u16| {
        let end = std::time::Instant::now() + LIMIT;
        while ask(&site, "GET", target, "").await?.status != status {
            anyhow::ensure!(std::time::Instant::now() < end, "{target}: {}", gateway.output());
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        anyhow::Ok(())
    };
    wait("/v1/pets", 200).await?;
    site.save("document.yaml", &configmap(&DOCUMENT.replace("/pets:", "/animals:")))?;
    wait("/v1/animals", 200).await?;
    wait("/v1/pets", 404).await?;
    Ok(())
}

#[tokio::test]
async fn unauthenticated_clients_learn_nothing_about_the_paths_of_an_api() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    let policy = "---
apiVersion: sluicegate.dev/v1alpha1
kind: SecurityPolicy
metadata: {name: keys}
spec:
  targetRefs: [{group: sluicegate.dev, kind: Api, name: pets}]
  authentication: {apiKey: {}}
";
    site.save("ingress.yaml", &(api("", "") + policy))?;
    let _gateway = site.serve(&["--workers=1"]).await?;
    for (method, target) in
        [("GET", "/v1/pets"), ("PATCH", "/v1/pets"), ("GET", "/v1/none"), ("OPTIONS", "/v1/pets")]
    {
        assert_eq!(ask(&site, method, target, "").await?.status, 401, "{method} {target}");
    }
    assert_eq!(backend.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn state_and_dates_of_the_lifecycle_decide_about_requests_and_headers() -> TestResult {
    let backend = Backend::start(Behaviour::raw(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nLink: <https://own.test/>; rel=\"next\"\r\nSunset: never\r\n\r\n",
    ))
    .await?;
    let site = Site::of([&backend])?;
    let with = |lifecycle: &str| api(&format!("  lifecycle: {{{lifecycle}}}\n"), "");
    let dates = "deprecation: \"2026-01-01T00:00:00Z\", sunset: \"2999-01-01T00:00:00Z\", successor: \"https://pets.test/v2\"";
    site.save("ingress.yaml", &with(&format!("state: Deprecated, {dates}")))?;
    let gateway = site.serve(&["--workers=1"]).await?;
    let deprecated = ask(&site, "GET", "/v1/pets", "").await?;
    assert_eq!((deprecated.status, deprecated.header("deprecation")), (200, Some("@1767225600")));
    assert_eq!(deprecated.headers_named("sunset"), ["Tue, 01 Jan 2999 00:00:00 GMT"]);
    let links = ["<https://own.test/>; rel=\"next\"", "<https://pets.test/v2>; rel=\"successor-version\""];
    assert_eq!(deprecated.headers_named("link"), links);
    // The responses of the gateway have the headers too.
    assert_eq!(ask(&site, "PUT", "/v1/pets", "").await?.header("deprecation"), Some("@1767225600"));

    for (lifecycle, status) in [
        ("state: Published", 200),
        ("state: PreReleased", 200),
        ("state: Blocked", 503),
        ("state: Retired", 410),
        ("state: Created", 404),
        ("sunset: \"2026-01-01T00:00:00Z\"", 410),
    ] {
        site.save("ingress.yaml", &with(lifecycle))?;
        let end = std::time::Instant::now() + LIMIT;
        while ask(&site, "GET", "/v1/pets", "").await?.status != status {
            anyhow::ensure!(std::time::Instant::now() < end, "{lifecycle}: {}", gateway.output());
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
    let ended = ask(&site, "GET", "/v1/pets", "").await?;
    assert_eq!(ended.header("content-type"), Some("application/problem+json"));
    assert_eq!(ended.header("sunset"), Some("Thu, 01 Jan 2026 00:00:00 GMT"));
    Ok(())
}

#[tokio::test]
async fn clients_choose_a_version_by_path_header_or_parameter() -> TestResult {
    let backends = [Backend::start(Behaviour::ok()).await?, Backend::start(Behaviour::ok()).await?];
    for (place, first, second, other) in [
        ("Path", ("/v1/1/pets", ""), ("/v1/2/pets", ""), ("/v1/3/pets", "")),
        (
            "Header",
            ("/v1/pets", "Api-Version: 1\r\n"),
            ("/v1/pets", "Api-Version: 2\r\n"),
            ("/v1/pets", "Api-Version: 3\r\n"),
        ),
        (
            "Query",
            ("/v1/pets?api-version=1", ""),
            ("/v1/pets?api-version=2", ""),
            ("/v1/pets?api-version=3", ""),
        ),
    ] {
        let site = Site::of([&backends[0]])?;
        let version = |number: u8, more: &str| {
            let of = format!("  version: \"{number}\"\n  versioning: {{in: {place}{more}}}\n");
            api(&of, "").replace("{name: pets}", &format!("{{name: pets-{number}}}"))
        };
        let default = if place == "Path" { "" } else { ", isDefault: true" };
        let other_service =
            format!("---{}{}", crate::support::SERVICE, crate::support::slices([backends[1].addr()]))
                .replace("web", "new");
        let new = version(2, default).replace("service: web", "service: new");
        site.save("ingress.yaml", &(version(1, "") + &new + &other_service))?;
        let gateway = site.serve(&["--workers=1"]).await?;
        for ((target, lines), expected) in [(first, 0), (second, 1)] {
            let before = backends[expected].requests();
            let status = ask(&site, "GET", target, lines).await?.status;
            assert_eq!(
                (status, backends[expected].requests()),
                (200, before + 1),
                "{target} {lines}: {}",
                gateway.output()
            );
            assert_eq!(ask(&site, "PUT", target, lines).await?.status, 405, "{target} {lines}");
        }
        assert_eq!(ask(&site, "GET", other.0, other.1).await?.status, 404, "{other:?}");
        let before = backends[1].requests();
        let expected = if place == "Path" { (404, before) } else { (200, before + 1) };
        let status = ask(&site, "GET", "/v1/pets", "").await?.status;
        assert_eq!((status, backends[1].requests()), expected, "{place}: the default version");
    }
    Ok(())
}

#[tokio::test]
async fn access_log_names_api_version_environment_and_operation() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    site.save("ingress.yaml", &api("", ""))?;
    let log = site.path().join("access.log");
    let _gateway = site.serve(&["--access-log", &log.to_string_lossy()]).await?;
    ask(&site, "GET", "/v1/pets/7", "").await?;
    ask(&site, "GET", "/v1/wrong", "").await?;
    let end = std::time::Instant::now() + LIMIT;
    let lines = loop {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        if text.lines().count() == 2 {
            break text;
        }
        anyhow::ensure!(std::time::Instant::now() < end, "{text}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    let mut lines: Vec<serde_json::Value> =
        lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    // Two workers may have written them.
    lines.sort_by_key(|line| line["target"].to_string());
    for (line, operation) in lines.iter().zip([Some("getPet"), None]) {
        assert_eq!((&line["route"], &line["api_version"]), (&"Api default/pets".into(), &"1.2.0".into()));
        assert_eq!((&line["environment"], line["operation"].as_str()), (&"production".into(), operation));
    }
    Ok(())
}

#[tokio::test]
async fn operations_require_the_callers_that_the_document_names() -> TestResult {
    let (backend, provider) = (Backend::start(Behaviour::echo()).await?, Provider::start().await?);
    let site = Site::of([&backend])?;
    let document = format!("inline: |{}", SECURED.replace('\n', "\n      "));
    site.save("ingress.yaml", &api_of(&document, "  documentSecurity: Enforce\n", ""))?;
    let _gateway = site.serve(&["--workers=1"]).await?;
    // Without a policy, no method can check a credential.
    assert_eq!(ask(&site, "GET", "/open", "").await?.status, 200);
    assert_eq!(ask(&site, "GET", "/key", "X-Key: a-long-key-of-alice\r\n").await?.status, 503);
    let problems = client::get(site.admin, "localhost", "/config").await?.text();
    assert!(problems.contains("the scheme \\\"key\\\" needs spec.authentication.apiKey"), "{problems}");

    let (issuer, secret) = (provider.state().issuer.clone(), provider::SECRET);
    let policy = format!(
        "apiVersion: sluicegate.dev/v1alpha1
kind: SecurityPolicy
metadata: {{name: pets}}
spec:
  targetRefs: [{{group: sluicegate.dev, kind: Api, name: pets}}]
  authentication:
    apiKey: {{}}
    introspection: {{url: {issuer}/introspect, clientId: {CLIENT:?}, clientSecretRef: {{name: client}}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: client}}
stringData: {{client-secret: {secret:?}}}
---
apiVersion: sluicegate.dev/v1alpha1
kind: Consumer
metadata: {{name: alice}}
spec:
  apiKeys: [{{secretRef: {{name: key}}}}]
---
apiVersion: v1
kind: Secret
metadata: {{name: key}}
stringData: {{key: a-long-key-of-alice}}
"
    );
    site.save("policy.yaml", &policy)?;
    for (token, scope) in [("reader", "read"), ("writer", "read write"), ("nobody", "")] {
        let claims = serde_json::json!({"active": true, "sub": token, "scope": scope});
        provider.state().introspected.insert(token.to_owned(), claims);
    }
    let (key, none) = ("X-Key: a-long-key-of-alice\r\n", "");
    let (reader, writer) = ("Authorization: Bearer reader\r\n", "Authorization: Bearer writer\r\n");
    let end = std::time::Instant::now() + LIMIT;
    while ask(&site, "GET", "/key", key).await?.status != 200 {
        anyhow::ensure!(std::time::Instant::now() < end, "the key is not accepted");
    }
    let both = format!("{key}{reader}");
    for (target, lines, status) in [
        ("/key", none, 401),
        ("/key", "X-API-Key: a-long-key-of-alice\r\n", 401),
        ("/key", writer, 401),
        ("/open", none, 200),
        ("/open", "X-Key: wrong\r\n", 200),
        ("/write", writer, 200),
        ("/write", reader, 403),
        ("/write", key, 401),
        ("/either", key, 200),
        ("/either", reader, 200),
        ("/either", "Authorization: Bearer nobody\r\n", 403),
        ("/either", none, 401),
        ("/optional", none, 200),
        ("/optional", key, 200),
        ("/optional", "X-Key: wrong\r\n", 401),
        ("/both", key, 401),
        ("/both", reader, 401),
        ("/both", &both, 200),
        ("/certificate", &both, 403),
        ("/trusted", none, 401),
        ("/trusted", key, 401),
        ("/trusted", &format!("{key}{writer}"), 200),
        ("/trusted", &format!("{key}Authorization: Bearer nobody\r\n"), 403),
        ("/pair", key, 401),
        ("/pair?second=a-long-key-of-alice", none, 401),
        ("/pair?second=wrong", key, 401),
        ("/pair?second=a-long-key-of-alice", key, 200),
        ("/none", none, 401),
        ("/none", key, 401),
    ] {
        assert_eq!(ask(&site, "GET", target, lines).await?.status, status, "{target} {lines:?}");
    }
    let refused = ask(&site, "GET", "/write", reader).await?;
    let challenge = Some("Bearer error=\"insufficient_scope\", scope=\"read write\"");
    assert_eq!(refused.header("www-authenticate"), challenge);
    let problems = client::get(site.admin, "localhost", "/config").await?.text();
    assert!(!problems.contains("needs spec.authentication"), "{problems}");
    Ok(())
}

#[tokio::test]
async fn operation_requires_a_client_certificate_of_the_host() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    let (authority, clients) = (Authority::new(), Authority::named("Clients"));
    let document = format!("inline: |{}", SECURED.replace('\n', "\n      "));
    // The CA certificates of the clients are those of an Ingress of the host. A second host has none.
    let more = "    tls: {secretName: edge}
  - name: other
    hosts: [other.test]
    backend: {service: web, port: http}
    tls: {secretName: edge}
  documentSecurity: Enforce
";
    site.save("api.yaml", &api_of(&document, more, ""))?;
    let pem = clients.pem().replace('\n', "\\n");
    site.save(
        "ingress.yaml",
        &format!(
            "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: clients
  annotations: {{sluicegate.dev/auth-tls-secret: clients, sluicegate.dev/auth-tls-verify-client: optional}}
spec:
  ingressClassName: sluicegate
  tls: [{{hosts: [pets.test], secretName: edge}}]
  rules:
  - host: pets.test
    http: {{paths: [{{path: /ingress, pathType: Exact, backend: {{service: {{name: web, port: {{name: http}}}}}}}}]}}
---
apiVersion: v1
kind: Secret
metadata: {{name: clients}}
stringData: {{ca.crt: \"{pem}\"}}
"
        ),
    )?;
    site.save("edge.yaml", &authority.issue(&["pets.test", "other.test"]).secret("edge"))?;
    let https = free_address()?;
    let _gateway = site.serve(&["--workers=1", "--listen-https", &https.to_string()]).await?;
    let ask = async |options: &ClientOptions, name: &str, host: &str| {
        let mut client = Client::connect_tls(https, options, name).await?;
        let response = client.request(format!("GET /certificate HTTP/1.1\r\nHost: {host}\r\n\r\n")).await?;
        anyhow::Ok(response.status)
    };
    let alice = clients.issue_for(&["alice"], ExtendedKeyUsagePurpose::ClientAuth);
    let known = authority.client().identity(&alice);
    assert_eq!(ask(&known, "pets.test", "pets.test").await?, 200);
    assert_eq!(ask(&authority.client(), "pets.test", "pets.test").await?, 403);
    // The certificate is valid for its host alone.
    assert_eq!(ask(&known, "other.test", "other.test").await?, 403);
    assert_ne!(ask(&known, "pets.test", "other.test").await?, 200);
    Ok(())
}

#[tokio::test]
async fn document_of_a_url_is_fetched_and_its_last_valid_version_stays() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let server = Backend::start(published(DOCUMENT)).await?;
    let site = Site::of([&backend])?;
    let document = |server: &Backend| format!("url: http://{}/openapi.yaml", server.addr());
    site.save("ingress.yaml", &api_of(&document(&server), "", ""))?;
    let policy = "
apiVersion: sluicegate.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: misspelt}
spec:
  targetRefs: [{group: sluicegate.dev, kind: Api, name: pets, sectionName: misspelt}]
  timeouts: {request: 1s}
";
    site.save("policy.yaml", policy)?;
    let cache = site.path().join(".documents").to_string_lossy().into_owned();
    let host = server.ip().to_string();
    let options = ["--api-document-host", &host, "--api-document-interval", "1s", "--api-document-cache"];
    let options = [&options[..], &[&cache]].concat();
    let status = async |target: &str| anyhow::Ok(ask(&site, "GET", target, "").await?.status);
    let until = async |target: &str, wanted: u16| {
        let end = std::time::Instant::now() + LIMIT;
        while status(target).await? != wanted {
            anyhow::ensure!(std::time::Instant::now() < end, "{target} is not {wanted}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        Ok(())
    };
    let mut gateway = site.serve(&options).await?;
    assert_eq!(status("/v1/pets").await?, 200, "the first configuration has the document");
    server.set(published(&DOCUMENT.replace("/pets/mine", "/pets/ours")));
    until("/v1/pets/ours/x", 404).await?;
    until("/v1/pets/ours", 200).await?;
    let problems = client::get(site.admin, "localhost", "/config").await?.text();
    assert!(problems.contains("has no operation or set \\\"misspelt\\\""), "{problems}");
    for fault in ["openapi: 3.1.0\npaths: {/cats: {get: 7}}\n", "a: ["] {
        server.set(published(fault));
        let fetched = server.requests();
        server.wait_until(|server| server.requests() > fetched + 1).await?;
        assert_eq!((status("/v1/pets/ours").await?, status("/cats").await?), (200, 404), "{fault}");
    }
    let problems = client::get(site.admin, "localhost", "/config").await?.text();
    assert!(problems.contains("the last valid version stays in service"), "{problems}");
    gateway.kill()?;
    let _gateway = site.serve(&options).await?;
    assert_eq!(status("/v1/pets/ours").await?, 200, "the stored version is in service");
    Ok(())
}

#[tokio::test]
async fn document_of_a_host_that_is_not_allowed_is_never_fetched() -> TestResult {
    let (backend, server) =
        (Backend::start(Behaviour::echo()).await?, Backend::start(published(DOCUMENT)).await?);
    let site = Site::of([&backend])?;
    site.save(
        "ingress.yaml",
        &api_of(&format!("url: http://{}/", server.addr()), "    basePath: /v1\n", ""),
    )?;
    let _gateway = site.serve(&["--api-document-host", "docs.example.com"]).await?;
    assert_eq!(ask(&site, "GET", "/v1/pets", "").await?.status, 503);
    let problems = client::get(site.admin, "localhost", "/config").await?.text();
    assert!(problems.contains("is not allowed: start the gateway with --api-document-host"), "{problems}");
    assert_eq!(server.accepted(), 0);
    Ok(())
}

#[tokio::test]
async fn environments_have_documents_and_policies_of_their_own() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    let next = DOCUMENT.replace("/pets/mine", "/pets/ours").replace('\n', "\n        ");
    let more = format!(
        "  - name: staging
    hosts: [staging.test]
    backend: {{service: web, port: http}}
    document:
      inline: |{next}
---
apiVersion: sluicegate.dev/v1alpha1
kind: TrafficPolicy
metadata: {{name: staging}}
spec:
  targetRefs: [{{group: sluicegate.dev, kind: Api, name: pets, sectionName: staging}}]
  responseHeaders: {{set: [{{name: X-Environment, value: staging}}]}}
"
    );
    site.save("ingress.yaml", &api(&more, ""))?;
    let _gateway = site.serve(&["--workers=1"]).await?;
    for (host, target, allow) in [
        ("pets.test", "/v1/pets/mine", Some("GET, HEAD, OPTIONS")),
        ("pets.test", "/v1/pets/ours", Some("GET, HEAD, DELETE, OPTIONS")),
        ("staging.test", "/v1/pets/mine", Some("GET, HEAD, DELETE, OPTIONS")),
        ("staging.test", "/v1/pets/ours", Some("GET, HEAD, OPTIONS")),
    ] {
        let request = format!("PATCH {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        let response = Client::connect(site.http).await?.request(request).await?;
        assert_eq!(response.header("allow"), allow, "{host} {target}");
    }
    for (host, environment) in [("pets.test", None), ("staging.test", Some("staging"))] {
        let request = format!("GET /v1/pets HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let response = Client::connect(site.http).await?.request(request).await?;
        assert_eq!((response.status, response.header("x-environment")), (200, environment), "{host}");
    }
    Ok(())
}

#[tokio::test]
async fn version_decides_about_its_requests_also_at_paths_of_the_default_version() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    for (place, lines, query) in [("Header", "Api-Version: 1\r\n", ""), ("Query", "", "?api-version=1")] {
        let site = Site::of([&backend])?;
        let version = |number: u8, more: &str, lifecycle: &str| {
            let of = format!(
                "  version: \"{number}\"\n  versioning: {{in: {place}{more}}}\n  lifecycle: {{{lifecycle}}}\n"
            );
            api(&of, "").replace("{name: pets}", &format!("{{name: pets-{number}}}"))
        };
        let new = version(2, ", isDefault: true", "state: Published").replace("/pets/mine", "/new");
        let deprecated = "state: Deprecated, deprecation: \"2026-01-01T00:00:00Z\"";
        for (state, at_common_path, at_new_path) in
            [("state: Retired", 410, 410), ("state: Blocked", 503, 503), (deprecated, 200, 404)]
        {
            site.save("ingress.yaml", &(version(1, "", state) + &new))?;
            let mut gateway = site.serve(&["--workers=1"]).await?;
            for (target, status) in [("/v1/pets", at_common_path), ("/v1/new", at_new_path)] {
                let response = ask(&site, "GET", &format!("{target}{query}"), lines).await?;
                assert_eq!(response.status, status, "{place} {state} {target}");
                let is_deprecated = state == deprecated;
                assert_eq!(response.header("deprecation").is_some(), is_deprecated, "{state} {target}");
                assert!(!response.text().contains("no such version"), "{place} {state} {target}");
            }
            let other = (query.replace('1', "3"), lines.replace('1', "3"));
            let response = ask(&site, "GET", &format!("/v1/new{}", other.0), &other.1).await?;
            assert!(response.text().contains("no such version"), "{}", response.text());
            assert_eq!(ask(&site, "GET", "/v1/new", "").await?.status, 200);
            gateway.stop(LIMIT).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn unknown_version_has_no_lifecycle_of_the_default_version() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let dates = "deprecation: \"2026-01-01T00:00:00Z\", successor: \"https://next.test/\"";
    let ended = "state: Deprecated, deprecation: \"2026-01-01T00:00:00Z\", sunset: \"2026-02-01T00:00:00Z\"";
    for (place, lines, query) in [("Header", "Api-Version: 9\r\n", ""), ("Query", "", "?api-version=9")] {
        for (state, of_default) in [
            (format!("state: Deprecated, sunset: \"2037-01-01T00:00:00Z\", {dates}"), 200),
            (ended.to_owned(), 410),
            (format!("state: Retired, {dates}"), 410),
            (format!("state: Blocked, {dates}"), 503),
        ] {
            let site = Site::of([&backend])?;
            let of = format!(
                "  version: \"1\"\n  versioning: {{in: {place}, isDefault: true}}\n  lifecycle: {{{state}}}\n"
            );
            site.save("ingress.yaml", &api(&of, ""))?;
            let mut gateway = site.serve(&["--workers=1"]).await?;
            let response = ask(&site, "GET", "/v1/pets", "").await?;
            assert_eq!((response.status, response.header("deprecation").is_some()), (of_default, true));
            for (method, target) in [("GET", "/v1/pets"), ("PATCH", "/v1/pets"), ("GET", "/v1/missing")] {
                let response = ask(&site, method, &format!("{target}{query}"), lines).await?;
                assert_eq!(response.status, 404, "{place} {state} {method} {target}");
                assert!(response.text().contains("no such version"), "{}", response.text());
                for name in ["deprecation", "sunset", "link"] {
                    assert_eq!(response.header(name), None, "{place} {state} {method} {target}");
                }
            }
            gateway.stop(LIMIT).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn needed_subscriptions_without_authentication_are_reported() -> TestResult {
    let site = Site::of([])?;
    site.save("ingress.yaml", &api("  subscriptions: Required\n", ""))?;
    let _gateway = site.serve(&["--workers=1"]).await?;
    assert_eq!(ask(&site, "GET", "/v1/pets", "").await?.status, 403);
    let problems = client::get(site.admin, "localhost", "/config").await?.text();
    assert_eq!(problems.matches("nothing identifies the callers").count(), 1, "{problems}");
    Ok(())
}
