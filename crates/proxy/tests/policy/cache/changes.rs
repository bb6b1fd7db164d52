//! Requests that invalidate, and updates of stored responses by HEAD.

use super::*;

#[tokio::test]
async fn unsafe_request_invalidates_the_uris_of_location_and_content_location() -> TestResult {
    for transport in TRANSPORTS {
        let named = Arc::new(std::sync::Mutex::new(String::new()));
        let answered = named.clone();
        let behaviour = by_request(move |request| match &*request.method {
            "GET" => ok("Cache-Control: max-age=60\r\n", "body"),
            _ => format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", answered.lock().unwrap()),
        });
        let (_backend, gateway) = gateway(behaviour, rules()).await?;
        let get = async |target: &str| {
            anyhow::Ok(said(&ask_by(&gateway, "GET", target, &[], transport).await?).contains("hit"))
        };
        for (lines, ends) in [
            ("Location: /b/c?d\r\n", true),
            ("Content-Location: /b/c?d\r\n", true),
            ("Content-Location: c?d\r\n", true),
            ("Location: SCHEME://localhost/b/c?d#e\r\n", true),
            ("Location: /b/%63?d\r\n", true),
            ("Location: /b/c\r\n", false),
            // Another origin.
            ("Location: ftp://localhost/b/c?d\r\n", false),
            ("Location: SCHEME://localhost:8080/b/c?d\r\n", false),
            ("Location: //other.example/b/c?d\r\n", false),
            ("Content-Location: SCHEME://other.example/b/c?d\r\n", false),
        ] {
            let scheme = if transport == Transport::Http { "http" } else { "https" };
            *named.lock().unwrap() = lines.replace("SCHEME", scheme);
            get("/b/c?d").await?;
            assert!(get("/b/c?d").await?);
            ask_by(&gateway, "POST", "/b/a", &["Content-Length: 0"], transport).await?;
            assert_eq!(get("/b/c?d").await?, !ends, "{lines}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn unsafe_request_does_not_invalidate_cached_uris_of_another_host() -> TestResult {
    let behaviour = by_request(|request| {
        match &*request.method {
        "GET" => ok("Cache-Control: max-age=60\r\n", "body"),
        _ => "HTTP/1.1 201 Created\r\nLocation: http://one.example/a\r\nContent-Location: /a\r\nContent-Length: 0\r\n\r\n".into(),
    }
    });
    let (backend, gateway) = gateway(behaviour, rules()).await?;
    let send = async |method: &str, host: &str| {
        let mut client = gateway.connect().await?;
        let request = format!("{method} /a HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        let request = if method == "GET" { request.replace("Content-Length: 0\r\n", "") } else { request };
        anyhow::Ok(client.request(request).await?)
    };
    send("GET", "one.example").await?;
    send("POST", "two.example").await?;
    assert!(said(&send("GET", "one.example").await?).contains("hit"));
    send("POST", "one.example").await?;
    assert!(!said(&send("GET", "one.example").await?).contains("hit"));
    assert_eq!(backend.requests(), 4);
    Ok(())
}

#[tokio::test]
async fn response_to_head_renews_or_invalidates_a_stored_response() -> TestResult {
    let stored = "Cache-Control: max-age=60, stale-if-error=600\r\nETag: \"a\"\r\nAge: 90\r\nX-Own: old\r\n";
    let fresh = "Cache-Control: max-age=60\r\nX-Own: new\r\n";
    for (answered, expected) in [
        // The validator shows that the representation is the same.
        (format!("{fresh}ETag: \"a\"\r\nContent-Length: 4\r\n"), Some(("new", "hit"))),
        (format!("{fresh}ETag: \"a\"\r\n"), Some(("new", "hit"))),
        // No validator shows that the representation is the same.
        (format!("{fresh}Content-Length: 4\r\n"), Some(("old", "detail=stale-if-error"))),
        (fresh.to_owned(), Some(("old", "detail=stale-if-error"))),
        (format!("{fresh}ETag: W/\"a\"\r\n"), None),
        // The representation differs.
        (format!("{fresh}ETag: \"b\"\r\n"), None),
        (format!("{fresh}ETag: \"a\"\r\nContent-Length: 5\r\n"), None),
        ("Cache-Control: private\r\nETag: \"a\"\r\n".to_owned(), None),
        // The response is another representation of the target.
        (format!("{fresh}ETag: \"b\"\r\nContent-Type: x/y\r\n"), Some(("old", "detail=stale-if-error"))),
    ] {
        for transport in TRANSPORTS {
            let (backend, gateway) = gateway(Behaviour::raw(ok(stored, "body")), rules()).await?;
            ask_by(&gateway, "GET", "/", &[], transport).await?;
            backend.set(Behaviour::raw(format!("HTTP/1.1 200 OK\r\n{answered}\r\n")));
            let head = ask_by(&gateway, "HEAD", "/", &[], transport).await?;
            assert_eq!((head.status, head.text().is_empty()), (200, true));
            backend.set(Behaviour::status(503));
            let next = ask_by(&gateway, "GET", "/", &[], transport).await?;
            match expected {
                Some((own, way)) => {
                    assert_eq!(
                        (&*next.text(), next.headers_named("x-own")),
                        ("body", vec![own]),
                        "{answered}"
                    );
                    assert!(said(&next).contains(way), "{answered}: {}", said(&next));
                }
                None => assert_eq!((next.status, kept(&gateway).entries), (503, 0), "{answered}"),
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn response_to_head_is_never_served_to_a_get() -> TestResult {
    let lines = "Cache-Control: public, max-age=60\r\nETag: \"a\"\r\n";
    let (backend, gateway) = gateway(Behaviour::raw(ok(lines, "body")), rules()).await?;
    backend.set(Behaviour::raw(format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 9\r\n\r\n")));
    ask_by(&gateway, "HEAD", "/", &[], Transport::Http).await?;
    assert_eq!(kept(&gateway).entries, 0);
    backend.set(Behaviour::raw(ok(lines, "body")));
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "body");
    // A response to one caller does not change the response to others either.
    backend.set(Behaviour::raw(format!("HTTP/1.1 200 OK\r\n{lines}X-Own: mine\r\n\r\n")));
    let own = ["Authorization: Basic eDp4", "Cache-Control: no-cache"];
    ask_by(&gateway, "HEAD", "/", &own, Transport::Http).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.header("x-own"), None);
    Ok(())
}
