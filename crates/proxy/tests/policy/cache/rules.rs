//! Freshness and what may be stored, by RFC 9110, 9111 and 9213.

use super::*;

/// Whether the cache serves the second of two equal requests.
async fn is_reused(response: &str) -> anyhow::Result<bool> {
    let (backend, gateway) = gateway(Behaviour::raw(response), rules()).await?;
    ask(&gateway, "/", &[]).await?;
    ask(&gateway, "/", &[]).await?;
    Ok(backend.requests() == 1)
}

async fn is_reused_with(lines: &str) -> anyhow::Result<bool> {
    is_reused(&ok(lines, "body")).await
}

#[tokio::test]
async fn cache_uses_the_first_value_of_the_age_header() -> TestResult {
    for (lines, is_fresh) in [
        ("Age: 7200, 0\r\n", false),
        ("Age: 7200,0\r\n", false),
        ("Age: 0, 7200\r\n", true),
        ("Age: 7200\r\nAge: 0\r\n", false),
        ("Age: 0\r\nAge: 7200\r\n", true),
        ("Age: 7200;x=1\r\n", false),
        ("Age: 2147483648\r\n", false),
        ("Age: 99999999999999999999\r\n", false),
        // The cache ignores a value that is not a number of seconds (RFC 9111, 5.1).
        ("Age: abc\r\n", true),
        ("Age: -7200\r\n", true),
        ("Age: 7200.0\r\n", true),
        ("Age: , 7200\r\n", true),
    ] {
        let lines = format!("Cache-Control: max-age=3600\r\n{lines}");
        assert_eq!(is_reused_with(&lines).await?, is_fresh, "{lines}");
    }
    Ok(())
}

#[tokio::test]
async fn cache_parses_expires_and_date_in_obsolete_forms() -> TestResult {
    for (lines, is_fresh) in [
        ("Expires: Sunday, 18-Aug-75 02:01:18 GMT\r\n", true),
        ("Expires: Sunday, 06-Nov-94 08:49:37 GMT\r\n", false),
        ("Expires: Thu Aug 18 02:01:18 2050\r\n", true),
        ("Expires: thu, 18 AUG 2050 02:01:18 gmt\r\n", true),
        ("Expires: Thu, 18 Aug 2050 02:01:18 UTC\r\n", false),
        // A date this old makes the response stale.
        ("Cache-Control: max-age=60\r\nDate: Sunday, 06-Nov-94 08:49:37 GMT\r\n", false),
        ("Cache-Control: max-age=60\r\nDate: Sun Nov  6 08:49:37 1994\r\n", false),
    ] {
        assert_eq!(is_reused_with(lines).await?, is_fresh, "{lines}");
    }
    Ok(())
}

#[tokio::test]
async fn targeted_cache_control_overrides_cache_control_and_expires() -> TestResult {
    let past = "Expires: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let future = "Expires: Thu, 18 Aug 2050 02:01:18 GMT\r\n";
    for (lines, is_fresh) in [
        ("CDN-Cache-Control: max-age=60\r\n".to_owned(), true),
        ("CDN-Cache-Control: max-age=60\r\nCache-Control: no-store\r\n".to_owned(), true),
        ("CDN-Cache-Control: max-age=60\r\nCache-Control: max-age=0\r\n".to_owned(), true),
        (format!("CDN-Cache-Control: max-age=60\r\n{past}"), true),
        (format!("CDN-Cache-Control: max-age=0\r\n{future}"), false),
        (format!("CDN-Cache-Control: foo\r\n{future}"), false),
        ("CDN-Cache-Control: no-store\r\nCache-Control: max-age=60\r\n".to_owned(), false),
        ("CDN-Cache-Control: private\r\nCache-Control: max-age=60\r\n".to_owned(), false),
        ("CDN-Cache-Control: no-cache\r\nCache-Control: max-age=60\r\n".to_owned(), false),
        ("CDN-Cache-Control: max-age=60\r\nCDN-Cache-Control: private\r\n".to_owned(), false),
        ("CDN-Cache-Control: max-age=60\r\nAge: 61\r\n".to_owned(), false),
        // The cache ignores a malformed field.
        ("CDN-Cache-Control: max-age=60, &&\r\nCache-Control: no-store\r\n".to_owned(), false),
        ("CDN-Cache-Control: max-age=\"60\"\r\nCache-Control: no-store\r\n".to_owned(), false),
        ("CDN-Cache-Control: max-age=0,\r\nCache-Control: max-age=60\r\n".to_owned(), true),
        // A response that no shared cache may store is not stored.
        ("CDN-Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n".to_owned(), false),
        ("CDN-Cache-Control: max-age=60\r\nVary: *\r\n".to_owned(), false),
    ] {
        assert_eq!(is_reused_with(&lines).await?, is_fresh, "{lines}");
    }
    // The field allows only what it names: requests with credentials need `public` in it.
    let lines = "CDN-Cache-Control: max-age=60\r\nCache-Control: public\r\n";
    let (backend, gateway) = gateway(answer(lines), rules()).await?;
    for _ in 0..2 {
        ask(&gateway, "/", &["Authorization: Basic eDp4"]).await?;
    }
    assert_eq!(backend.requests(), 2);
    Ok(())
}

#[tokio::test]
async fn response_with_malformed_cache_control_or_vary_is_not_stored() -> TestResult {
    let keeping = cache_of(json!({"defaultTime": "1m", "staleIfError": "10m"}));
    for lines in [
        "Cache-Control: private; max-age=0\r\n",
        "Cache-Control: max-age=60; private\r\n",
        "Cache-Control: max-age=60 no-store\r\n",
        "Cache-Control: no-store no-cache\r\nETag: \"a\"\r\n",
        "Cache-Control: no-cache; private\r\nExpires: Thu, 18 Aug 2050 02:01:18 GMT\r\n",
        "Cache-Control: max-age=60\r\nVary: Cookie; Accept\r\n",
        "Cache-Control: max-age=60\r\nVary: Cookie Accept\r\n",
        "Cache-Control: max-age=60\r\nVary: \"Cookie\"\r\n",
        "Cache-Control: max-age=60\r\nVary: Accept:, Cookie\r\n",
    ] {
        let (_backend, gateway) = gateway(answer(lines), keeping.clone()).await?;
        ask(&gateway, "/", &[]).await?;
        assert_eq!(kept(&gateway).entries, 0, "{lines}");
    }
    Ok(())
}

#[tokio::test]
async fn pragma_no_cache_prevents_reuse_only_without_cache_control() -> TestResult {
    let future = "Expires: Thu, 18 Aug 2050 02:01:18 GMT\r\n";
    assert!(!is_reused_with(&format!("Pragma: no-cache\r\n{future}")).await?);
    assert!(is_reused_with("Pragma: no-cache\r\nCache-Control: max-age=60\r\n").await?);
    assert!(is_reused_with(&format!("Pragma: other\r\n{future}")).await?);
    Ok(())
}

#[tokio::test]
async fn responses_of_final_statuses_with_explicit_freshness_are_stored() -> TestResult {
    for (status, lines, is_stored) in [
        (299, "", true),
        (302, "", true),
        (400, "", true),
        (499, "", true),
        (500, "", true),
        (503, "", true),
        (599, "", true),
        (599, ", must-understand", false),
        (599, ", no-store, must-understand", false),
        (200, ", no-store, must-understand", true),
        (200, ", private, must-understand", false),
        // These statuses concern one request, one connection, or a part of the response.
        (206, "", false),
        (226, "", false),
        (401, "", false),
        (407, "", false),
        (408, "", false),
        (412, "", false),
        (416, "", false),
        (417, "", false),
        (421, "", false),
        (425, "", false),
        // RFC 6585.
        (428, "", false),
        (429, "", false),
        (431, "", false),
        (511, "", false),
    ] {
        let response =
            format!("HTTP/1.1 {status} X\r\nCache-Control: max-age=60{lines}\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(is_reused(&response).await?, is_stored, "{response}");
    }
    for status in [201, 202, 400, 403, 500, 599] {
        let validator = "ETag: \"a\"\r\nCache-Control: no-cache\r\n";
        let response = format!("HTTP/1.1 {status} X\r\n{validator}Content-Length: 0\r\n\r\n");
        let (_backend, gateway) = gateway(Behaviour::raw(response), rules()).await?;
        ask(&gateway, "/", &[]).await?;
        assert_eq!(kept(&gateway).entries, 0, "{status} without explicit freshness");
    }
    Ok(())
}

#[tokio::test]
async fn error_responses_are_stored_for_at_most_ten_seconds() -> TestResult {
    for (status, ttl) in [(400, "10"), (403, "10"), (500, "10"), (503, "10"), (404, "60"), (200, "60")] {
        let response = format!(
            "HTTP/1.1 {status} X\r\nCache-Control: max-age=70, stale-if-error=600\r\nAge: 10\r\nContent-Length: 0\r\n\r\n"
        );
        let (_backend, gateway) = gateway(Behaviour::raw(response), rules()).await?;
        ask(&gateway, "/", &[]).await?;
        let again = ask(&gateway, "/", &[]).await?;
        assert_eq!(again.status, status);
        assert_eq!(said(&again), format!("sluicegate; hit; ttl={ttl}"), "{status}");
    }
    Ok(())
}

#[tokio::test]
async fn error_responses_to_a_caller_with_credentials_are_not_shared() -> TestResult {
    let lines = "Cache-Control: public, s-maxage=60\r\nContent-Length: 0\r\n\r\n";
    for status in [400, 403, 500] {
        for own in ["Authorization: Basic eDp4", "Cookie: s=a"] {
            for [first, second] in [[own, "X: 1"], ["X: 1", own]] {
                let (backend, gateway) =
                    gateway(Behaviour::raw(format!("HTTP/1.1 {status} X\r\n{lines}")), rules()).await?;
                ask(&gateway, "/", &[first]).await?;
                ask(&gateway, "/", &[second]).await?;
                assert_eq!(backend.requests(), 2, "{status} {first} {second}");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn error_response_does_not_replace_a_usable_stored_response() -> TestResult {
    for (lines, is_usable) in [
        ("Cache-Control: max-age=60\r\n", true),
        ("Cache-Control: max-age=60, stale-if-error=600\r\nAge: 90\r\n", true),
        ("Cache-Control: max-age=60\r\nETag: \"a\"\r\nAge: 90\r\n", false),
    ] {
        for status in [400, 500] {
            let (backend, gateway) = gateway(answer(lines), rules()).await?;
            ask(&gateway, "/", &[]).await?;
            backend.set(Behaviour::raw(format!(
                "HTTP/1.1 {status} Oh\r\nCache-Control: max-age=60\r\nContent-Length: 0\r\n\r\n"
            )));
            let reload = ["Cache-Control: no-cache", "X-Evil: 1"];
            let failed = ask(&gateway, "/", &reload).await?;
            assert!(failed.status == status || is_usable, "{lines}");
            backend.set(answer(lines));
            let next = ask(&gateway, "/", &[]).await?;
            assert_eq!(next.status, if is_usable { 200 } else { status }, "{lines} {status}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn fields_named_by_no_cache_or_private_are_not_served_from_the_cache() -> TestResult {
    for directive in ["no-cache", "private"] {
        let lines = format!(
            "Cache-Control: max-age=60, {directive}=\"X-User, set-cookie\"\r\nX-User: alice\r\nSet-Cookie: s=1\r\nX-Other: 1\r\n"
        );
        for transport in TRANSPORTS {
            let (backend, gateway) = gateway(answer(&lines), rules()).await?;
            let first = ask_by(&gateway, "GET", "/", &[], transport).await?;
            assert_eq!((first.header("x-user"), first.header("set-cookie")), (Some("alice"), Some("s=1")));
            for line in ["X: 1", "If-Modified-Since: Thu, 18 Aug 2050 02:01:18 GMT"] {
                let second = ask_by(&gateway, "GET", "/", &[line], transport).await?;
                assert_eq!(
                    (second.header("x-user"), second.header("set-cookie")),
                    (None, None),
                    "{directive}"
                );
                assert_eq!(second.header("x-other"), Some("1"));
            }
            assert_eq!(backend.requests(), 1, "{directive}");
        }
    }
    // A cookie that the directive does not name keeps the response private.
    assert!(!is_reused_with("Cache-Control: max-age=60, private=\"x\"\r\nSet-Cookie: s=1\r\n").await?);
    Ok(())
}

#[tokio::test]
async fn fields_of_a_304_named_by_no_cache_reach_only_the_revalidating_client() -> TestResult {
    let validates = by_request(|request| match request.header("if-none-match") {
        Some(_) => "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nAge: 0\r\nX-User: bob\r\n\r\n".into(),
        None => {
            ok("Cache-Control: max-age=0, no-cache=\"x-user\"\r\nETag: \"a\"\r\nX-User: alice\r\n", "body")
        }
    });
    let (_backend, gateway) = gateway_of(1, validates, rules()).await?;
    for expected in ["alice", "bob", "bob"] {
        let response = ask(&gateway, "/", &[]).await?;
        assert_eq!((&*response.text(), response.headers_named("x-user")), ("body", vec![expected]));
        assert!(response.headers_named("age").len() <= 1);
    }
    Ok(())
}
