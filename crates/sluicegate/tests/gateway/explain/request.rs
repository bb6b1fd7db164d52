//! Random requests.

use fastrand::Rng;
use sluicegate_admin::explain::Question;

use super::configuration::{PATHS, choose};

/// Paths of the Api, some of them with parameters that its document does not allow.
const API_PATHS: [&str; 7] =
    ["/pets", "/pets?limit=many", "/pets?limit=5", "/a/1", "/a/long", "/pets?limit=", "/a/1?limit=many"];

/// A key of the Consumer alice, a revoked key of the Consumer bob, and an unknown key.
const KEYS: [&str; 4] = ["key-of-alice", "key-of-bob", "key-of-carol", "unknown"];

/// Tokens by HS256: valid, expired, with another secret, of another issuer.
const TOKENS: [&str; 5] = [
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2lzc3Vlci50ZXN0Iiwic3ViIjoiYWxpY2UiLCJleHAiOjQxMDI0NDQ4MDAsInNjb3BlIjoicmVhZCJ9.PGovnwMB-qiYpsYh-pIeDY0sosig0_b3vrmB7fldn9g",
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2lzc3Vlci50ZXN0Iiwic3ViIjoiYm9iIiwiZXhwIjoxMDAwMDAwMDAwLCJzY29wZSI6InJlYWQifQ.6CGXJpPVAJWast7HigPKHUMH11qGKJEtZ3-t6x0T-wk",
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2lzc3Vlci50ZXN0Iiwic3ViIjoiYm9iIiwiZXhwIjo0MTAyNDQ0ODAwfQ.AaOTHjUZXFVg1zcpjPDiWgaIbaSt_zaEjz7SActcfWk",
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL290aGVyLnRlc3QiLCJzdWIiOiJib2IiLCJleHAiOjQxMDI0NDQ4MDB9.3TFY4KKl9qlzarxrQxEQuqvSqFIBS6oFh4yLs8kGdjU",
    "no-token",
];

/// `alice:secret`, `alice:wrong`, `dave:secret`, and no name.
const BASIC: [&str; 4] = ["YWxpY2U6c2VjcmV0", "YWxpY2U6d3Jvbmc=", "ZGF2ZTpzZWNyZXQ=", "%%%"];

/// The ID of a request.
pub(super) fn id(number: usize) -> String {
    format!("request-{number}")
}

/// A random request to a port.
pub(super) fn random(random: &mut Rng, (port, hosts): (u16, &[&str]), number: usize) -> Question {
    let host = if random.u8(..16) == 0 { "other.test" } else { choose(random, hosts) };
    let is_of_api = host == "api.test" && random.u8(..4) > 0;
    let paths: &[&str] = if is_of_api { &API_PATHS } else { &PATHS };
    let mut path = choose(random, paths).to_owned();
    if !is_of_api && random.u8(..3) == 0 {
        path.push_str(choose(
            random,
            &["/", "/x", "x", "/x/y", "//", "/%2e%2e/z", "/..", "%2Fz", "/.", ";p", "%zz", "/%C3%A4"],
        ));
    }
    if random.u8(..12) == 0 {
        path = path.to_uppercase();
    }
    if !is_of_api && random.u8(..3) == 0 {
        path.push_str(choose(random, &["?q=1", "?q=2", "?q=1&p=x", "?", "?limit=5", "?limit=many"]));
    }
    let host = host.replace('*', "x");
    let method = choose(random, &["GET", "GET", "GET", "POST", "PUT", "OPTIONS", "HEAD", "DELETE"]);
    let mut headers = vec![format!("X-Request-ID: {}", id(number))];
    let mut may = |random: &mut Rng, one_of: u8, name: &str, values: &[&str]| {
        if random.u8(..one_of) == 0 {
            headers.push(format!("{name}: {}", choose(random, values)));
        }
    };
    may(random, 3, "X-V", &["1", "2", ""]);
    may(random, 3, "X-Forwarded-For", &["10.1.2.3", "10.9.9.9", "192.0.2.1", "192.0.2.1, 10.1.2.3", "wrong"]);
    may(random, 8, "X-Forwarded-Proto", &["https", "http"]);
    may(random, 2, "X-API-Key", &KEYS);
    match random.u8(..4) {
        0 => may(
            random,
            1,
            "Authorization",
            &TOKENS.map(|token| format!("Bearer {token}")).each_ref().map(|text| &**text),
        ),
        1 => may(
            random,
            1,
            "Authorization",
            &BASIC.map(|text| format!("Basic {text}")).each_ref().map(|text| &**text),
        ),
        _ => {}
    }
    may(random, 3, "Origin", &["https://app.test", "https://evil.test"]);
    may(random, 3, "Access-Control-Request-Method", &["GET", "PUT"]);
    may(random, 6, "X-Original-URL", &["/admin"]);
    may(random, 6, "X-Canary", &["always", "never", "x"]);
    let url = format!("http://{host}:{port}{path}");
    Question { method: method.to_owned(), url, headers, from: Some([127, 0, 0, 1].into()), certificate: None }
}

/// The request as a client sends it.
pub(super) fn text(question: &Question) -> String {
    let rest = question.url.strip_prefix("http://").unwrap_or_default();
    let (authority, target) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let mut text = format!("{} {target} HTTP/1.1\r\nHost: {authority}\r\n", question.method);
    for header in &question.headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text
}
