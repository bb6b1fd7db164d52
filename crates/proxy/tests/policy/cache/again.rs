//! Revalidation, and responses that end early.

use super::*;

#[tokio::test]
async fn conditional_requests_with_a_current_validator_receive_304() -> TestResult {
    let lines = "Cache-Control: max-age=60\r\nETag: \"v1\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nX-Own: 1\r\nContent-Type: text/plain\r\n";
    for transport in TRANSPORTS {
        let (backend, gateway) = gateway(answer(lines), rules()).await?;
        assert_eq!(ask_by(&gateway, "GET", "/", &[], transport).await?.status, 200);
        for (line, status) in [
            ("If-None-Match: \"v1\"", 304),
            ("If-None-Match: W/\"v1\"", 304),
            ("If-None-Match: \"a,b\", W/\"v0\" , \"v1\"", 304),
            ("If-None-Match: *", 304),
            ("If-None-Match: \"v2\"", 200),
            ("If-None-Match: v1", 200),
            ("If-None-Match: \"v1", 200),
            ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", 304),
            ("If-Modified-Since: Mon, 07 Nov 1994 08:49:37 GMT", 304),
            ("If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT", 304),
            ("If-Modified-Since: Sun Nov  6 08:49:37 1994", 304),
            ("If-Modified-Since: Saturday, 05-Nov-94 08:49:37 GMT", 200),
            ("If-Modified-Since: Sat, 05 Nov 1994 08:49:37 GMT", 200),
            ("If-Modified-Since: x", 200),
        ] {
            let response = ask_by(&gateway, "GET", "/", &[line], transport).await?;
            assert_eq!(response.status, status, "{line}");
            assert_eq!(response.text().is_empty(), status == 304);
            assert_eq!(response.header("etag"), Some("\"v1\""));
            // Scripts need these headers of a 304, such as the CORS headers.
            assert_eq!(response.header("x-own"), Some("1"));
            assert_eq!(response.header("content-type").is_some(), status == 200);
            assert_eq!(ask_by(&gateway, "HEAD", "/", &[line], transport).await?.status, status);
        }
        // An ETag has precedence over a date.
        let both = ["If-None-Match: \"v2\"", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"];
        assert_eq!(ask_by(&gateway, "GET", "/", &both, transport).await?.status, 200);
        assert_eq!(backend.requests(), 1);
        // Conditions that only the endpoint evaluates.
        for line in ["If-Match: \"v1\"", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"] {
            let response = ask_by(&gateway, "GET", "/", &[line], transport).await?;
            assert_eq!(said(&response), "sluicegate; fwd=bypass", "{line}");
        }
        assert_eq!(backend.requests(), 3);
    }
    Ok(())
}

#[tokio::test]
async fn set_cookie_and_no_store_headers_of_a_304_reach_only_the_revalidating_client() -> TestResult {
    for (said, name) in
        [("Set-Cookie: session=1", "set-cookie"), ("Cache-Control: no-store", "cache-control")]
    {
        let validates = by_request(move |request| match request.header("if-none-match") {
            Some(_) => format!("HTTP/1.1 304 Not Modified\r\n{said}\r\n\r\n"),
            None => ok("Cache-Control: no-cache\r\nETag: \"v1\"\r\n", "body"),
        });
        for transport in TRANSPORTS {
            let (_backend, gateway) = gateway_of(1, validates.clone(), rules()).await?;
            assert_eq!(ask_by(&gateway, "GET", "/", &[], transport).await?.status, 200);
            let renewed = ask_by(&gateway, "GET", "/", &[], transport).await?;
            assert_eq!((renewed.status, &*renewed.text()), (200, "body"));
            let value = said.split_once(": ").unwrap().1;
            assert!(renewed.headers_named(name).contains(&value), "{said}");
            let others = ask_by(&gateway, "GET", "/", &[], transport).await?;
            assert!(!others.headers_named(name).contains(&value), "it is not kept");
        }
    }
    // Header edits of a policy also remove lines of a 304.
    let backend = Backend::start(by_request(|request| match request.header("if-none-match") {
        Some(_) => "HTTP/1.1 304 Not Modified\r\nSet-Cookie: session=1\r\n\r\n".into(),
        None => ok("Cache-Control: no-cache\r\nETag: \"v1\"\r\n", "body"),
    }))
    .await?;
    let mut traffic = keeping(rules());
    traffic.features.response_headers = removing("set-cookie");
    let gateway = before(&backend, traffic).workers(1).start().await?;
    ask(&gateway, "/", &[]).await?;
    let renewed = ask(&gateway, "/", &[]).await?;
    assert_eq!((&*renewed.text(), renewed.header("set-cookie")), ("body", None));
    Ok(())
}

#[tokio::test]
async fn revalidation_with_many_header_lines_loses_no_request() -> TestResult {
    let many = |name: &str, count: usize| -> String {
        (0..count).map(|number| format!("{name}-{number}: 1\r\n")).collect()
    };
    for own in ["Set-Cookie: a=b\r\n".repeat(20), "Cache-Control: no-store\r\n".repeat(20)] {
        let validates = by_request(move |request| match request.header("if-none-match") {
            Some(_) => format!("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n{own}\r\n"),
            None => ok(&format!("Cache-Control: no-cache\r\nETag: \"a\"\r\n{}", many("X", 240)), "body"),
        });
        for transport in TRANSPORTS {
            let (_backend, gateway) = gateway_of(1, validates.clone(), rules()).await?;
            gateway.configure(|config| config.settings.limits.headers = 256).await;
            for time in ["first", "second", "third"] {
                let response = ask_by(&gateway, "GET", "/", &[], transport).await?;
                assert_eq!((response.status, &*response.text()), (200, "body"), "the {time} time");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn stale_response_is_revalidated_with_its_own_validator() -> TestResult {
    for transport in TRANSPORTS {
        let validates = by_request(|request| match request.header("if-none-match") {
            Some("\"v1\"") => {
                "HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\nCache-Control: max-age=60\r\nX-New: 1\r\n\r\n"
                    .into()
            }
            _ => ok("Cache-Control: max-age=0\r\nETag: \"v1\"\r\nX-Old: 1\r\nX-New: 0\r\n", "body"),
        });
        let (backend, gateway) = gateway_of(1, validates, rules()).await?;
        assert_eq!(
            said(&ask_by(&gateway, "GET", "/", &[], transport).await?),
            "sluicegate; fwd=miss; stored"
        );
        let theirs = ["If-None-Match: \"v0\"", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"];
        let renewed = ask_by(&gateway, "GET", "/", &theirs, transport).await?;
        assert_eq!(
            (renewed.status, &*renewed.text(), said(&renewed)),
            (200, "body", "sluicegate; fwd=stale; fwd-status=304")
        );
        assert_eq!((renewed.headers_named("x-new"), renewed.header("x-old")), (vec!["1"], Some("1")));
        let request = backend.last_request().unwrap();
        assert_eq!(
            (request.header("if-none-match"), request.header("if-modified-since")),
            (Some("\"v1\""), None)
        );
        let hit = ask_by(&gateway, "GET", "/", &[], transport).await?;
        assert_eq!((&*hit.text(), said(&hit)), ("body", "sluicegate; hit; ttl=60"));
        assert_eq!((backend.requests(), counted(&gateway, |shard| &shard.cache_revalidated)), (2, 1));
        assert_eq!(backend.accepted(), 1, "the connection goes on");
        // Requests that demand a fresher response than the stored one.
        for (line, says) in [
            ("Cache-Control: no-cache", "sluicegate; fwd=stale; fwd-status=304"),
            ("Cache-Control: max-age=0", "sluicegate; fwd=stale; fwd-status=304"),
            ("Pragma: no-cache", "sluicegate; fwd=stale; fwd-status=304"),
            ("Cache-Control: min-fresh=3600", "sluicegate; fwd=stale; fwd-status=304"),
            ("Cache-Control: no-store", "sluicegate; fwd=bypass"),
            ("Cache-Control: max-age=30, min-fresh=30", "sluicegate; hit; ttl=60"),
            ("Cache-Control: only-if-cached", "sluicegate; hit; ttl=60"),
        ] {
            assert_eq!(said(&ask_by(&gateway, "GET", "/", &[line], transport).await?), says, "{line}");
        }
        let asked = backend.requests();
        let nothing = ask_by(&gateway, "GET", "/b", &["Cache-Control: only-if-cached"], transport).await?;
        assert_eq!((nothing.status, backend.requests()), (504, asked));
    }
    Ok(())
}

#[tokio::test]
async fn cache_status_header_of_a_forced_reload_contains_fwd_request() -> TestResult {
    let (_backend, gateway) = gateway(answer("Cache-Control: max-age=60\r\n"), rules()).await?;
    assert_eq!(said(&ask(&gateway, "/", &[]).await?), "sluicegate; fwd=miss; stored");
    for line in ["Cache-Control: no-cache", "Cache-Control: max-age=0"] {
        assert_eq!(said(&ask(&gateway, "/", &[line]).await?), "sluicegate; fwd=request; stored", "{line}");
    }
    Ok(())
}

#[tokio::test]
async fn stale_response_is_served_if_the_endpoint_fails() -> TestResult {
    let hour = Some(Age::of_millis(3_600_000));
    let stale = "Age: 60\r\n";
    for (lines, policy, stands_in) in [
        (format!("Cache-Control: max-age=60, stale-if-error=600\r\n{stale}"), None, true),
        (format!("Cache-Control: max-age=60\r\n{stale}"), hour, true),
        (format!("Cache-Control: max-age=60\r\nETag: \"a\"\r\n{stale}"), None, false),
        (format!("Cache-Control: max-age=60, must-revalidate\r\nETag: \"a\"\r\n{stale}"), hour, false),
        (format!("Cache-Control: max-age=60, proxy-revalidate\r\nETag: \"a\"\r\n{stale}"), hour, false),
        (format!("Cache-Control: s-maxage=60\r\nETag: \"a\"\r\n{stale}"), hour, false),
        ("Cache-Control: no-cache, stale-if-error=600\r\nETag: \"a\"\r\n".into(), hour, false),
        ("Cache-Control: max-age=60\r\nETag: \"a\"\r\nAge: 3660\r\n".into(), hour, false),
    ] {
        let (mut backend, gateway) =
            gateway(answer(&lines), Cache { stale_if_error: policy, ..rules() }).await?;
        assert_eq!(said(&ask(&gateway, "/", &[]).await?), "sluicegate; fwd=miss; stored", "{lines}");
        backend.set(Behaviour::status(503));
        let failing = ask(&gateway, "/", &[]).await?;
        backend.set(Behaviour::status(404));
        let missing = ask(&gateway, "/", &[]).await?;
        assert_eq!(missing.status, 404, "an answer is an answer");
        backend.kill().await;
        let dead = ask(&gateway, "/", &[]).await?;
        for (response, otherwise) in [(failing, 503), (dead, 502)] {
            let expected = if stands_in { 200 } else { otherwise };
            assert_eq!(response.status, expected, "{lines}");
            if stands_in {
                assert_eq!(said(&response), "sluicegate; fwd=stale; detail=stale-if-error");
                assert_eq!(response.text(), "0");
            }
        }
        let expected = if stands_in { 2 } else { 0 };
        assert_eq!(counted(&gateway, |shard| &shard.cache_stale), expected, "{lines}");
    }
    Ok(())
}

#[tokio::test]
async fn response_304_with_another_etag_does_not_renew_the_stored_response() -> TestResult {
    let validates = by_request(move |request| match request.header("if-none-match") {
        Some("\"v1\"") => {
            "HTTP/1.1 304 Not Modified\r\nETag: \"v2\"\r\nCache-Control: max-age=60\r\n\r\n".into()
        }
        Some(other) => panic!("{other}"),
        None => ok("Cache-Control: max-age=0\r\nETag: \"v1\"\r\n", "old"),
    });
    let (_backend, gateway) = gateway_of(1, validates, rules()).await?;
    for _ in 0..2 {
        assert_eq!(ask(&gateway, "/", &[]).await?.header("etag"), Some("\"v1\""));
        let old = ask(&gateway, "/", &[]).await?;
        assert_eq!((&*old.text(), old.header("etag")), ("old", Some("\"v1\"")));
    }
    Ok(())
}

#[tokio::test]
async fn uncacheable_or_410_response_evicts_the_stored_response() -> TestResult {
    for (news, stands_in) in
        [("200 OK\r\nCache-Control: private, no-store", false), ("410 Gone", false), ("404 Not Found", true)]
    {
        let (mut backend, gateway) =
            gateway(answer("Cache-Control: max-age=0, stale-if-error=600\r\n"), rules()).await?;
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
        backend.set(Behaviour::raw(format!("HTTP/1.1 {news}\r\nContent-Length: 0\r\n\r\n")));
        // The method makes no difference.
        for method in ["HEAD", "GET"] {
            assert_ne!(ask_by(&gateway, method, "/", &[], Transport::Http).await?.text(), "0");
        }
        backend.set(Behaviour::status(503));
        let failing = ask(&gateway, "/", &[]).await?;
        assert_eq!(failing.status, if stands_in { 200 } else { 503 }, "{news}");
        backend.kill().await;
    }
    Ok(())
}

#[tokio::test]
async fn client_that_forces_a_reload_receives_the_error_of_the_endpoint() -> TestResult {
    let (backend, gateway) = gateway(answer("Cache-Control: max-age=60\r\n"), rules()).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    backend.set(Behaviour::status(500));
    assert_eq!(ask(&gateway, "/", &["Cache-Control: no-cache"]).await?.status, 500);
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200, "it is fresh for others");
    Ok(())
}

#[tokio::test]
async fn successful_unsafe_request_invalidates_the_cached_response_of_its_uri() -> TestResult {
    for transport in TRANSPORTS {
        let status = Arc::new(std::sync::atomic::AtomicU16::new(200));
        let answered = status.clone();
        let behaviour = by_request(move |request| match &*request.method {
            "GET" => ok("Cache-Control: max-age=60\r\nVary: Accept\r\n", "body"),
            _ => {
                let status = answered.load(std::sync::atomic::Ordering::Relaxed);
                format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")
            }
        });
        let (backend, gateway) = gateway(behaviour, rules()).await?;
        let get = async |target: &str, line: &str| {
            anyhow::Ok(said(&ask_by(&gateway, "GET", target, &[line], transport).await?).contains("hit"))
        };
        for (method, answers, ends) in [
            ("POST", 200, true),
            ("PUT", 204, true),
            ("DELETE", 303, true),
            ("PATCH", 200, true),
            ("PURGE", 200, true),
            ("POST", 404, false),
            ("DELETE", 500, false),
            ("OPTIONS", 200, false),
        ] {
            status.store(answers, std::sync::atomic::Ordering::Relaxed);
            for target in ["/a?b", "/a"] {
                for line in ["Accept: a", "Accept: b"] {
                    get(target, line).await?;
                    assert!(get(target, line).await?, "{method} {answers}");
                }
            }
            let changed = ask_by(&gateway, method, "/a?b", &["Content-Length: 0"], transport).await?;
            assert_eq!(changed.status, answers);
            assert_eq!(said(&changed), "sluicegate; fwd=method");
            for line in ["Accept: a", "Accept: b"] {
                assert_eq!(get("/a?b", line).await?, !ends, "{method} {answers}");
                assert!(get("/a", line).await?, "another target");
            }
        }
        assert_eq!(kept(&gateway).entries, 4);
        drop(backend);
    }
    Ok(())
}

#[tokio::test]
async fn response_requested_before_an_invalidation_is_not_stored() -> TestResult {
    let behaviour = Behaviour::choose(|request| match &*request.method {
        "GET" => Behaviour::raw(ok("Cache-Control: max-age=60\r\n", "old")).delay(Duration::from_millis(300)),
        _ => Behaviour::status(200),
    });
    let (backend, gateway) = gateway(behaviour, rules()).await?;
    let mut reader = gateway.connect().await?;
    reader.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    backend.wait_until(|backend| backend.requests() == 1).await?;
    assert_eq!(ask_by(&gateway, "POST", "/", &["Content-Length: 0"], Transport::Http).await?.status, 200);
    assert_eq!(reader.read_response().await?.text(), "old");
    assert_eq!(kept(&gateway).entries, 0);
    Ok(())
}
