//! A gateway process serves a declarative file of Kong, directly and after a conversion.

use std::net::SocketAddr;

use crate::http_routes::{LOOPBACK, gateway};
use crate::support::{Site, free_address, sluicegate};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;

type TestResult = anyhow::Result<()>;

/// A file with a service whose only target is this address.
fn file(target: SocketAddr) -> String {
    format!(
        "
_format_version: \"3.0\"
services:
- name: shop
  host: pool
  path: /srv
  routes:
  - {{name: prefix, paths: [/rou]}}
  - {{name: regex, paths: ['~/users/(?<id>[0-9]+)']}}
  - {{name: host, hosts: ['*.a.test', 'b.*'], strip_path: false}}
  - {{name: method, methods: [POST], paths: [/rou], plugins: [{{name: request-termination, config: {{status_code: 418, message: no}}}}]}}
  - name: secured
    paths: [/rou/secured]
    plugins: [{{name: key-auth, config: {{hide_credentials: true}}}}, {{name: acl, config: {{allow: [buyers]}}}}]
  - {{name: basic, paths: [/basic], plugins: [{{name: basic-auth}}]}}
upstreams:
- {{name: pool, host_header: in.test, targets: [{{target: '{target}'}}]}}
consumers:
- {{username: ann, keyauth_credentials: [{{key: a-long-secret-of-ann}}], acls: [{{group: buyers}}],
   basicauth_credentials: [{{username: ann, password: of-ann}}]}}
- {{username: bob, keyauth_credentials: [{{key: a-long-secret-of-bob}}]}}
"
    )
}

/// Checks the responses of a gateway that serves the file.
async fn check(listener: SocketAddr) -> TestResult {
    for (request, host, status, received) in [
        ("GET /rou", "x.test", 200, "GET /srv HTTP/1.1"),
        ("GET /rou/?q=1", "x.test", 200, "GET /srv/?q=1 HTTP/1.1"),
        ("GET /roureq", "x.test", 200, "GET /srv/req HTTP/1.1"),
        ("GET /rou/req", "x.test", 200, "GET /srv/req HTTP/1.1"),
        ("GET /users/12", "x.test", 200, "GET /srv HTTP/1.1"),
        ("GET /users/12/a", "x.test", 200, "GET /srv/a HTTP/1.1"),
        ("GET /other", "y.x.a.test", 200, "GET /srv/other HTTP/1.1"),
        ("GET /other", "b.org", 200, "GET /srv/other HTTP/1.1"),
        ("GET /", "b.org:81", 200, "GET /srv HTTP/1.1"),
        ("GET /other", "x.test", 404, ""),
        ("POST /rou", "x.test", 418, "{\"message\":\"no\"}"),
        // Two conditions decide before one condition, also for another host.
        ("POST /rou", "x.a.test", 418, "{\"message\":\"no\"}"),
        ("GET /rou/secured", "x.test", 401, ""),
        ("GET /rou/secured?apikey=a-long-secret-of-bob", "x.test", 403, ""),
        ("GET /rou/secured?apikey=a-long-secret-of-ann", "x.test", 200, "GET /srv HTTP/1.1"),
    ] {
        let mut client = Client::connect(listener).await?;
        let response = client
            .request(format!("{request} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"))
            .await?;
        assert_eq!(response.status, status, "{request} {host}");
        let text = response.text();
        assert!(text.starts_with(received), "{request} {host}: {text}");
        if received.starts_with("GET") {
            assert!(text.to_ascii_lowercase().contains("host: in.test"), "{request} {host}: {text}");
        }
    }
    // ann:of-ann and ann:of-bob
    for (credentials, status) in [("YW5uOm9mLWFubg==", 200), ("YW5uOm9mLWJvYg==", 401)] {
        let mut client = Client::connect(listener).await?;
        let line = format!("Authorization: Basic {credentials}\r\n");
        let response = client.request(format!("GET /basic HTTP/1.1\r\nHost: x.test\r\n{line}\r\n")).await?;
        assert_eq!(response.status, status, "{credentials}");
    }
    Ok(())
}

#[tokio::test]
async fn file_of_kong_is_served_directly_at_the_ports_of_a_gateway_with_its_name() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let (site, listener) = (Site::new()?, free_address()?);
    let of_user = gateway(&format!("{{name: http, protocol: HTTP, port: {}}}", listener.port()));
    site.save("gateway.yaml", &of_user.replace("name: edge", "name: kong"))?;
    site.save("kong.yaml", &file(backend.addr()))?;
    let _gateway = site.serve(&LOOPBACK).await?;
    check(listener).await
}

#[tokio::test]
async fn kong_compatibility_gives_errors_and_responses_the_form_of_kong() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let (site, listener) = (Site::new()?, free_address()?);
    let of_user = gateway(&format!("{{name: http, protocol: HTTP, port: {}}}", listener.port()));
    site.save("gateway.yaml", &of_user.replace("name: edge", "name: kong"))?;
    site.save("kong.yaml", &file(backend.addr()))?;
    let options = [LOOPBACK[0], LOOPBACK[1], "--kong-compatibility"];
    let _gateway = site.serve(&options).await?;
    for (path, accept, status, media_type, message) in [
        ("/other", "*/*", 404, "application/json; charset=utf-8", "no Route matched with those values"),
        ("/other", "text/plain", 404, "text/plain; charset=utf-8", "no Route matched with those values"),
        ("/rou/secured", "*/*", 401, "application/json; charset=utf-8", "No API key found in request"),
        ("/rou/secured?apikey=unknown-key", "*/*", 401, "application/json; charset=utf-8", "Unauthorized"),
        (
            "/rou/secured?apikey=a-long-secret-of-bob",
            "text/html",
            403,
            "text/html; charset=utf-8",
            "You cannot consume this service",
        ),
    ] {
        let mut client = Client::connect(listener).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x.test\r\nAccept: {accept}\r\n\r\n");
        let response = client.request(request).await?;
        assert_eq!((response.status, response.header("content-type")), (status, Some(media_type)), "{path}");
        let id = response.header("x-kong-request-id").unwrap_or_default();
        let (text, is_told) = (response.text(), response.header("x-kong-response-latency").is_some());
        assert!(id.len() == 32 && is_told && text.contains(id) && text.contains(message), "{path}: {text}");
    }
    let mut client = Client::connect(listener).await?;
    let response = client.request("GET /rou HTTP/1.1\r\nHost: x.test\r\n\r\n".to_owned()).await?;
    assert_eq!(response.status, 200);
    for name in ["x-kong-request-id", "x-kong-upstream-latency", "x-kong-proxy-latency"] {
        assert!(response.header(name).is_some(), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn converted_file_of_kong_serves_the_same_requests() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let (site, listener) = (Site::new()?, free_address()?);
    let source = tempfile::tempdir()?;
    let path = source.path().join("kong.yaml");
    std::fs::write(&path, file(backend.addr()))?;
    let port = listener.port().to_string();
    let output = sluicegate().arg("convert").arg(&path).args(["--strict", "--http-port", &port]).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    site.save("objects.yaml", &String::from_utf8(output.stdout)?)?;
    let _gateway = site.serve(&LOOPBACK).await?;
    check(listener).await
}

#[test]
fn strict_conversion_fails_and_names_each_thing_that_is_not_converted() -> TestResult {
    let source = tempfile::tempdir()?;
    let path = source.path().join("kong.yaml");
    let plugin = "services:\n- name: a\n  url: http://a.test\n  routes: [{name: a, paths: [/]}]\n  plugins:\n  - name: prometheus\n";
    for (text, options, code, line) in [
        (
            format!("_format_version: \"3.0\"\n{plugin}"),
            &["--strict"][..],
            1,
            "kong.yaml:7: plugin \"prometheus\" of service \"a\": is not converted",
        ),
        (
            format!("_format_version: \"3.0\"\n{plugin}"),
            &[],
            0,
            "kong.yaml:7: plugin \"prometheus\" of service \"a\": is not converted",
        ),
        (
            "_format_version: \"3.0\"\nservices: [{name: a}]\n".to_owned(),
            &[],
            1,
            "kong.yaml:2: service \"a\": host is missing",
        ),
        ("kind: Service\n".to_owned(), &[], 1, "has no _format_version"),
    ] {
        std::fs::write(&path, &text)?;
        let output = sluicegate().arg("convert").arg(&path).args(options).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{text}: {errors}");
        assert!(errors.contains(line), "{text}: {errors}");
    }
    Ok(())
}

#[test]
fn files_of_a_directory_are_one_configuration() -> TestResult {
    let source = tempfile::tempdir()?;
    let convert = || sluicegate().arg("convert").arg("--strict").arg(source.path()).output();
    std::fs::write(
        source.path().join("a.yaml"),
        "_format_version: \"3.0\"\nservices:\n- {name: a, url: 'http://a.test'}\n",
    )?;
    std::fs::create_dir(source.path().join("team"))?;
    let routes = "_format_version: \"3.0\"\nroutes:\n- {name: r, paths: [/r], service: {name: a}}\n";
    std::fs::write(source.path().join("team/b.yml"), routes)?;
    let output = convert()?;
    let (objects, errors) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    assert!(output.status.success() && objects.contains("kind: HTTPRoute"), "{errors}");
    std::fs::write(
        source.path().join("team/c.json"),
        "{\"_format_version\": \"3.0\",\n\"services\": [{\"name\": \"a\", \"host\": \"b.test\"}]}",
    )?;
    let output = convert()?;
    let errors = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("team/c.json:2: service \"a\": has the name of another service ("), "{errors}");
    assert!(errors.contains("a.yaml:3), which Kong rejects"), "{errors}");
    Ok(())
}
