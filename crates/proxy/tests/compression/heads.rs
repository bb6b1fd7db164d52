//! Selection of the responses to compress, and their heads.

use std::sync::Arc;

use sluicegate_model::{Codings, ContentCoding};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::Gateway;

use super::{TRANSPORTS, TestResult, answer, connect, decoded, gateway_to, get, text};

const HTML: &str = "Content-Type: text/html; charset=utf-8\r\n";

#[tokio::test]
async fn client_receives_its_preferred_coding_or_identity() -> TestResult {
    let body = text(20_000);
    let (_backend, gateway) = gateway_to(answer(HTML, &body)).await?;
    for transport in TRANSPORTS {
        let mut client = connect(&gateway, transport).await?;
        for (accepted, expected) in [
            ("gzip, deflate, br, zstd", Some("zstd")),
            ("gzip, br", Some("br")),
            ("x-gzip", Some("gzip")),
            ("*;q=0.5, zstd;q=0", Some("br")),
            ("gzip;q=0", None),
            ("identity;q=1, gzip;q=0.5", None),
            ("gzip;q=many", None),
            ("deflate", None),
            ("gzip;q=0.5\r\nAccept-Encoding: br;q=0.7", Some("br")),
        ] {
            let response = client.request(get(accepted)).await?;
            let what = format!("{accepted} by {transport:?}");
            assert_eq!(response.header("Content-Encoding"), expected, "{what}");
            assert_eq!(decoded(&response), body.as_bytes(), "{what}");
            assert_eq!(response.headers_named("Vary"), ["Accept-Encoding"], "{what}");
            let length = expected.is_none().then_some("20000");
            assert_eq!(response.header("Content-Length"), length, "{what}");
            let chunked = expected.map(|_| "chunked");
            assert_eq!(response.header("Transfer-Encoding"), chunked, "{what}");
            assert!(
                expected.is_none() || response.body.len() < 10_000,
                "{what}: {} bytes",
                response.body.len()
            );
        }
        let response = client.request("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        assert_eq!(
            (response.header("Content-Encoding"), response.header("Vary")),
            (None, Some("Accept-Encoding"))
        );
    }
    Ok(())
}

#[tokio::test]
async fn compression_is_off_by_default_and_configurable_for_each_route() -> TestResult {
    let head = "Content-Type: text/html\r\nETag: \"x\"\r\nAccept-Ranges: bytes\r\n";
    let backend = Backend::start(answer(head, &text(1000))).await?;
    let gateway = Gateway::of([&backend]).await?;
    let mut client = gateway.connect().await?;
    let untouched = client.request(get("gzip")).await?;
    assert_eq!(untouched.header("ETag"), Some("\"x\""));
    assert_eq!((untouched.header("Vary"), untouched.header("Content-Encoding")), (None, None));
    for (of_all, of_route, expected) in [
        ("off", Some("br, gzip"), Some("gzip")),
        ("gzip", Some("off"), None),
        ("gzip", Some("br"), None),
        ("gzip", None, Some("gzip")),
    ] {
        let codings = |text: &str| text.parse::<Codings>().expect("codings");
        gateway
            .configure(|config| {
                config.settings.compression.codings = codings(of_all);
                Arc::make_mut(&mut config.hosts[0]).rules[0].compression = of_route.map(codings);
            })
            .await;
        let response = client.request(get("gzip")).await?;
        assert_eq!(response.header("Content-Encoding"), expected, "{of_all}, {of_route:?}");
        // Clients that accept brotli receive another representation.
        let varies = of_route != Some("off");
        assert_eq!(response.header("Vary").is_some(), varies, "{of_all}, {of_route:?}");
    }
    Ok(())
}

/// Checks for each response whether a client that accepts gzip receives it compressed, and that `Vary` is the same for
/// every client.
async fn assert_compressed(
    cases: impl IntoIterator<Item = (Behaviour, bool)>,
    settings: impl FnOnce(&mut sluicegate_model::Settings),
) -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let change = |all: &mut sluicegate_model::Settings| {
        super::all(all);
        settings(all);
    };
    let gateway = Gateway::builder().backends([&backend]).settings(change).start().await?;
    for (nth, (behaviour, expected)) in cases.into_iter().enumerate() {
        backend.set(behaviour.then_close());
        for transport in TRANSPORTS {
            let mut client = connect(&gateway, transport).await?;
            let response = client.request(get("gzip")).await?;
            let coding = response.header("Content-Encoding");
            assert_eq!(coding == Some("gzip"), expected, "case {nth} by {transport:?}: {response:?}");
            let varies = response.headers_named("Vary").contains(&"Accept-Encoding");
            assert_eq!(varies, expected, "case {nth} by {transport:?}: {response:?}");
            if expected {
                decoded(&response);
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn response_is_compressed_if_its_media_type_is_listed() -> TestResult {
    let of_type = |media_type: &str| answer(&format!("Content-Type: {media_type}\r\n"), &text(1000));
    let cases = [
        (of_type("text/html"), true),
        (of_type("TEXT/HTML;charset=utf-8"), true),
        (of_type("application/json"), true),
        (of_type("image/svg+xml"), true),
        (of_type("text/event-stream"), false),
        (of_type("image/png"), false),
        (of_type("text/htmlx"), false),
        (of_type("application/octet-stream; text/html"), false),
        (of_type(""), false),
        (answer("", &text(1000)), false),
        (answer("Content-Type: text/html\r\nContent-Type: text/html\r\n", &text(1000)), false),
    ];
    assert_compressed(cases, |_| {}).await?;
    let wide = |settings: &mut sluicegate_model::Settings| {
        let types = ["text/*", "application/*"].map(|range| range.parse().expect("a range"));
        settings.compression.types = types.into();
    };
    let cases = [
        (of_type("text/event-stream"), true),
        (of_type("image/svg+xml"), false),
        (of_type("application/grpc"), false),
        (of_type("application/grpc+proto"), false),
        (of_type("application/grpc; x=y"), false),
        (of_type("application/grpcs"), true),
    ];
    assert_compressed(cases, wide).await
}

#[tokio::test]
async fn response_of_minimum_or_unknown_length_is_compressed() -> TestResult {
    let unknown = |body: &str| Behaviour::raw(format!("HTTP/1.1 200 OK\r\n{HTML}\r\n{body}"));
    let chunked = |body: &str| {
        Behaviour::raw(format!("HTTP/1.1 200 OK\r\n{HTML}Transfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n"))
    };
    let cases = [
        (answer(HTML, &text(255)), false),
        (answer(HTML, &text(256)), true),
        (answer(HTML, ""), false),
        (unknown("short"), true),
        (unknown(""), true),
        (chunked("5\r\nshort\r\n"), true),
        (chunked(""), true),
    ];
    assert_compressed(cases, |_| {}).await?;
    let cases = [(answer(HTML, "x"), true), (answer(HTML, ""), false)];
    assert_compressed(cases, |settings| settings.compression.min_length = 0).await
}

#[tokio::test]
async fn responses_with_content_encoding_digest_or_no_transform_are_not_compressed() -> TestResult {
    let cases = [
        ("Cache-Control: no-transform", false),
        ("Cache-Control: public, No-Transform , max-age=1", false),
        ("Cache-Control: public\r\nCache-Control: no-transform", false),
        ("Cache-Control: public, x-no-transform", true),
        ("Content-Encoding: gzip, br", false),
        ("Content-Encoding: br", false),
        ("Content-Encoding: identity", true),
        ("Content-Range: bytes 0-999/2000", false),
        ("Content-Digest: sha-256=:x:", false),
        ("Repr-Digest: sha-256=:x:", false),
        ("Digest: sha-256=x", false),
        ("Content-MD5: x", false),
        ("Trailer: X-Sum, Repr-Digest", false),
        ("Trailer: X-Sum", true),
    ];
    let cases = cases.map(|(lines, expected)| (answer(&format!("{HTML}{lines}\r\n"), &text(1000)), expected));
    assert_compressed(cases, |_| {}).await
}

#[tokio::test]
async fn responses_with_status_206_or_a_redirect_or_without_a_body_are_not_compressed() -> TestResult {
    let of_status = |status: u16| {
        let body = text(1000);
        Behaviour::raw(format!("HTTP/1.1 {status} X\r\n{HTML}Content-Length: {}\r\n\r\n{body}", body.len()))
    };
    let compressed =
        [200, 201, 202, 203, 207, 400, 403, 404, 422, 500, 503].map(|status| (of_status(status), true));
    assert_compressed(compressed, |_| {}).await?;
    let untouched = [206, 226, 300, 301, 302, 308, 600].map(|status| (of_status(status), false));
    assert_compressed(untouched, |_| {}).await?;
    let bodiless = [204, 205].map(|status| {
        let length = if status == 205 { "Content-Length: 0\r\n" } else { "" };
        (Behaviour::raw(format!("HTTP/1.1 {status} X\r\n{HTML}{length}\r\n")), false)
    });
    assert_compressed(bodiless, |_| {}).await
}

#[tokio::test]
async fn compressed_response_adds_accept_encoding_to_an_existing_vary_header() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    for (lines, expected) in [
        ("", &["Accept-Encoding"][..]),
        ("Vary: Origin\r\n", &["Origin, Accept-Encoding"]),
        ("Vary: Origin\r\nVary: Cookie, X\r\n", &["Origin, Cookie, X, Accept-Encoding"]),
        ("Vary:\r\n", &["Accept-Encoding"]),
        ("Vary: Origin, accept-encoding\r\n", &["Origin, accept-encoding"]),
        ("Vary: Origin\r\nVary: ACCEPT-ENCODING\r\n", &["Origin", "ACCEPT-ENCODING"]),
        ("Vary: *\r\n", &["*"]),
        ("Vary: Accept-Encoding-X\r\n", &["Accept-Encoding-X, Accept-Encoding"]),
    ] {
        backend.set(answer(&format!("{HTML}{lines}"), &text(1000)));
        for transport in TRANSPORTS {
            let mut client = connect(&gateway, transport).await?;
            for accepted in ["gzip", "identity"] {
                let response = client.request(get(accepted)).await?;
                assert_eq!(
                    response.headers_named("Vary"),
                    expected,
                    "{lines:?} for {accepted} by {transport:?}"
                );
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn compression_drops_accept_ranges_and_weakens_a_strong_etag() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    for (etag, expected) in [
        ("\"a,b\"", Some("W/\"a,b\"")),
        ("W/\"x\"", Some("W/\"x\"")),
        ("unquoted", None),
        ("\"\"", Some("W/\"\"")),
    ] {
        let lines = format!(
            "{HTML}ETag: {etag}\r\nAccept-Ranges: bytes\r\nX-Kept: 1\r\nContent-Encoding: identity\r\n"
        );
        backend.set(answer(&lines, &text(1000)));
        for transport in TRANSPORTS {
            let mut client = connect(&gateway, transport).await?;
            let response = client.request(get("br")).await?;
            assert_eq!(response.headers_named("ETag"), expected.as_slice(), "{etag} by {transport:?}");
            assert_eq!(response.headers_named("Content-Encoding"), ["br"], "{transport:?}");
            assert_eq!(response.header("Accept-Ranges"), None, "{transport:?}");
            assert_eq!(response.header("Content-Length"), None, "{transport:?}");
            assert_eq!(response.header("X-Kept"), Some("1"), "{transport:?}");
            let plain = client.request(get("identity")).await?;
            assert_eq!(plain.header("ETag"), Some(etag), "{transport:?}");
            assert_eq!(plain.header("Accept-Ranges"), Some("bytes"), "{transport:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn response_to_head_has_the_headers_of_get() -> TestResult {
    let body = text(1000);
    let full = format!("HTTP/1.1 200 OK\r\n{HTML}ETag: \"x\"\r\nContent-Length: {}\r\n\r\n", body.len());
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    for accepted in ["gzip", "identity"] {
        for transport in TRANSPORTS {
            let mut client = connect(&gateway, transport).await?;
            backend.set(Behaviour::raw(full.clone()));
            let head = client.request(get(accepted).replace("GET", "HEAD")).await?;
            backend.set(Behaviour::raw(format!("{full}{body}")));
            let get = client.request(get(accepted)).await?;
            let fields = |response: &sluicegate_testkit::client::Response| {
                let mut fields = response.headers.clone();
                // A response to HEAD may have this field, but does not need it (RFC 9112, 6.1). The date may change
                // meanwhile.
                fields.retain(|(name, _)| {
                    !["transfer-encoding", "date"].contains(&&*name.to_ascii_lowercase())
                });
                fields.sort();
                fields
            };
            assert_eq!(fields(&head), fields(&get), "{accepted} by {transport:?}");
            assert_eq!(head.body, b"");
            assert_eq!(decoded(&get), body.as_bytes());
        }
    }
    // The body is too short to compress.
    backend.set(Behaviour::raw(format!("HTTP/1.1 200 OK\r\n{HTML}Content-Length: 10\r\n\r\n")));
    let response =
        connect(&gateway, TRANSPORTS[0]).await?.request(get("gzip").replace("GET", "HEAD")).await?;
    assert_eq!((response.header("Content-Length"), response.header("Vary")), (Some("10"), None));
    let begun = super::count(&gateway, |worker| &worker.compressed[ContentCoding::Gzip.index()].responses);
    assert_eq!(begun, 2, "HEAD compresses nothing");
    Ok(())
}

#[tokio::test]
async fn response_304_has_the_etag_of_the_coding_that_the_client_cached() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    for (lines, if_none_match, etag, vary) in [
        ("ETag: \"x\"\r\n", "W/\"x\"", Some("W/\"x\""), Some("Accept-Encoding")),
        ("ETag: \"x\"\r\n", "\"y\", W/\"x\"", Some("W/\"x\""), Some("Accept-Encoding")),
        ("ETag: \"x\"\r\n", "\"y\"\r\nIf-None-Match: W/\"x\"", Some("W/\"x\""), Some("Accept-Encoding")),
        ("ETag: \"x\"\r\n", "\"x\"", Some("\"x\""), Some("Accept-Encoding")),
        ("ETag: \"x\"\r\n", "*", Some("\"x\""), Some("Accept-Encoding")),
        ("ETag: \"x\"\r\n", "W/\"xx\"", Some("\"x\""), Some("Accept-Encoding")),
        ("ETag: W/\"x\"\r\nVary: Origin\r\n", "W/\"x\"", Some("W/\"x\""), Some("Origin, Accept-Encoding")),
        ("", "W/\"x\"", None, Some("Accept-Encoding")),
        ("ETag: \"x\"\r\nContent-Type: image/png\r\n", "W/\"x\"", Some("\"x\""), None),
        ("ETag: \"x\"\r\nCache-Control: no-transform\r\n", "W/\"x\"", Some("\"x\""), None),
    ] {
        backend.set(Behaviour::raw(format!("HTTP/1.1 304 Not Modified\r\n{lines}\r\n")));
        for transport in TRANSPORTS {
            let mut client = connect(&gateway, transport).await?;
            let request = get(&format!("gzip\r\nIf-None-Match: {if_none_match}"));
            let response = client.request(request).await?;
            let what = format!("{lines:?} for {if_none_match} by {transport:?}");
            assert_eq!(response.status, 304, "{what}");
            assert_eq!(response.headers_named("ETag"), etag.as_slice(), "{what}");
            assert_eq!(response.headers_named("Vary"), vary.as_slice(), "{what}");
            assert_eq!(response.header("Content-Encoding"), None, "{what}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn http_1_0_client_receives_the_response_uncompressed() -> TestResult {
    let body = text(1000);
    let (_backend, gateway) = gateway_to(answer(HTML, &body)).await?;
    let mut client = connect(&gateway, TRANSPORTS[0]).await?;
    let response = client.request("GET / HTTP/1.0\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n").await?;
    assert_eq!(
        (response.header("Content-Encoding"), response.header("Vary")),
        (None, Some("Accept-Encoding"))
    );
    assert_eq!(response.header("Content-Length"), Some("1000"));
    assert_eq!(response.body, body.as_bytes());
    Ok(())
}

#[tokio::test]
async fn endpoint_receives_the_accept_encoding_of_the_client() -> TestResult {
    let (backend, gateway) = gateway_to(answer(HTML, &text(1000))).await?;
    connect(&gateway, TRANSPORTS[0]).await?.request(get("gzip;q=0.5, br")).await?;
    let request = backend.last_request().expect("a request");
    assert_eq!(request.header("Accept-Encoding"), Some("gzip;q=0.5, br"));
    Ok(())
}
