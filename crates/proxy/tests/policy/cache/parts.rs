//! Ranges of stored responses.

use super::*;

const LINES: &str = "Cache-Control: max-age=60\r\nETag: \"v1\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/plain\r\nX-Own: 1\r\n";

#[tokio::test]
async fn cache_serves_ranges_from_a_complete_stored_response() -> TestResult {
    for transport in TRANSPORTS {
        let (backend, gateway) = gateway(Behaviour::raw(ok(LINES, "0123456789")), rules()).await?;
        ask_by(&gateway, "GET", "/", &[], transport).await?;
        for (range, expected) in [
            ("bytes=0-1", Some(("01", "bytes 0-1/10"))),
            ("bytes=3-", Some(("3456789", "bytes 3-9/10"))),
            ("bytes=-2", Some(("89", "bytes 8-9/10"))),
            ("bytes=8-99", Some(("89", "bytes 8-9/10"))),
            ("bytes=0-", Some(("0123456789", "bytes 0-9/10"))),
            ("bytes=10-", None),
            ("bytes=-0", None),
        ] {
            let line = format!("Range: {range}");
            let response = ask_by(&gateway, "GET", "/", &[&line], transport).await?;
            assert!(said(&response).starts_with("sluicegate; hit"), "{range}: {}", said(&response));
            assert_eq!(response.header("x-own"), Some("1"));
            match expected {
                Some((body, content_range)) => {
                    assert_eq!((response.status, &*response.text()), (206, body), "{range}");
                    assert_eq!(response.headers_named("content-range"), [content_range]);
                    assert_eq!(response.headers_named("content-length"), [&*body.len().to_string()]);
                    assert_eq!(response.header("etag"), Some("\"v1\""));
                    assert_eq!(response.header("content-type"), Some("text/plain"));
                }
                None => {
                    assert_eq!((response.status, &*response.text()), (416, ""), "{range}");
                    assert_eq!(response.headers_named("content-range"), ["bytes */10"]);
                    // A cache behind this gateway would store the rejection for the whole target.
                    assert_eq!((response.header("cache-control"), response.header("etag")), (None, None));
                }
            }
        }
        assert_eq!(backend.requests(), 1);
        assert_eq!(ask_by(&gateway, "GET", "/", &[], transport).await?.text(), "0123456789");
    }
    Ok(())
}

#[tokio::test]
async fn if_range_requires_a_matching_strong_validator() -> TestResult {
    let (backend, gateway) = gateway(Behaviour::raw(ok(LINES, "0123456789")), rules()).await?;
    ask(&gateway, "/", &[]).await?;
    for (condition, status) in [
        ("If-Range: \"v1\"", 206),
        ("If-Range: \"v2\"", 200),
        ("If-Range: W/\"v1\"", 200),
        ("If-Range: Sun, 06 Nov 1994 08:49:37 GMT", 206),
        ("If-Range: Mon, 07 Nov 1994 08:49:37 GMT", 200),
        ("If-Range: x", 200),
        ("If-None-Match: \"v1\"", 304),
        ("If-None-Match: \"v2\"", 206),
    ] {
        let response = ask(&gateway, "/", &["Range: bytes=0-1", condition]).await?;
        assert_eq!(response.status, status, "{condition}");
    }
    // Two versions may share a `Last-Modified` date that is within a minute of the response.
    let young = "Cache-Control: max-age=60\r\nDate: Thu, 18 Aug 2050 02:01:18 GMT\r\nLast-Modified: Thu, 18 Aug 2050 02:01:00 GMT\r\n";
    let other = self::gateway(Behaviour::raw(ok(young, "0123456789")), rules()).await?;
    ask(&other.1, "/", &[]).await?;
    let lines = ["Range: bytes=0-1", "If-Range: Thu, 18 Aug 2050 02:01:00 GMT"];
    assert_eq!(ask(&other.1, "/", &lines).await?.status, 200);
    assert_eq!((backend.requests(), other.0.requests()), (1, 1));
    Ok(())
}

#[tokio::test]
async fn range_requests_unsupported_by_the_cache_go_to_the_endpoint() -> TestResult {
    let behaviour = by_request(|request| {
        match request.header("range") {
        Some(_) => "HTTP/1.1 206 Partial\r\nCache-Control: max-age=60\r\nContent-Range: bytes 0-0/10\r\nContent-Length: 1\r\n\r\n0".into(),
        None => ok(LINES, "0123456789"),
    }
    });
    let (backend, gateway) = gateway(behaviour, rules()).await?;
    // The cache stores no part of a response, and sends no additional request for the whole.
    for number in 1..=2 {
        let part = ask(&gateway, "/", &["Range: bytes=0-0"]).await?;
        assert_eq!((part.status, said(&part), backend.requests()), (206, "sluicegate; fwd=bypass", number));
    }
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0123456789");
    for lines in [
        vec!["Range: bytes=0-0,2-3"],
        vec!["Range: lines=0-0"],
        vec!["Range: bytes=0-0", "Range: bytes=1-1"],
        vec!["Range: bytes=0-0", "If-Match: \"v1\""],
        vec!["Range: bytes=0-0", "Cache-Control: no-cache"],
    ] {
        let asked = backend.requests();
        let part = ask(&gateway, "/", &lines).await?;
        assert_eq!((part.status, backend.requests()), (206, asked + 1), "{lines:?}");
    }
    let nothing = ask(&gateway, "/other", &["Range: bytes=0-0", "Cache-Control: only-if-cached"]).await?;
    assert_eq!(nothing.status, 504);
    // For other methods a range means nothing (RFC 9110, 14.2).
    let head = ask_by(&gateway, "HEAD", "/", &["Range: bytes=0-0"], Transport::Http).await?;
    assert_eq!(said(&head), "sluicegate; fwd=bypass");
    Ok(())
}

#[tokio::test]
async fn partial_responses_are_not_compressed() -> TestResult {
    let body = "text ".repeat(1000);
    let (_backend, gateway) = gateway(Behaviour::raw(ok(LINES, &body)), rules()).await?;
    gateway.configure(|config| config.settings.compression.codings = "gzip".parse().expect("codings")).await;
    let gzip = "Accept-Encoding: gzip";
    for transport in TRANSPORTS {
        let whole = ask_by(&gateway, "GET", "/", &[gzip], transport).await?;
        assert_eq!(whole.header("content-encoding"), Some("gzip"));
        let part = ask_by(&gateway, "GET", "/", &[gzip, "Range: bytes=0-3999"], transport).await?;
        assert_eq!((part.status, part.header("content-encoding"), part.body.len()), (206, None, 4000));
        // The client has a compressed representation, so no range of the stored one fits.
        let etag = format!("If-Range: {}", whole.header("etag").unwrap());
        let part = ask_by(&gateway, "GET", "/", &[gzip, "Range: bytes=0-9", &etag], transport).await?;
        assert_eq!(part.status, 200);
    }
    Ok(())
}
