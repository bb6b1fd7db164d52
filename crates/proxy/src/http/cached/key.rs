//! Cache keys of requests, requests that bypass the cache, and the targets that an unsafe request invalidates: functions of
//! the request.

use sluicegate_http1::{Known, Line, Method, Normalised, RequestFraming, ResponseHead, normalise};
use sluicegate_model::{UpstreamKey, feature as model};

use crate::feature::cache::{
    Asked, Cache, RequestDirectives, add_part, add_target, is_condition, is_range_line, sent,
};
use crate::name::is_same_name;
use crate::request::{HeadView, RequestView};

/// The request for an endpoint.
pub(super) struct Forwarded<'r> {
    /// The whole head.
    pub(super) bytes: &'r [u8],
    /// The header lines that policies add.
    pub(super) lines: &'r [u8],
    /// The query.
    pub(super) query: Option<&'r [u8]>,
    /// The host that the endpoint receives in place of the client's host.
    pub(super) host: Option<&'r str>,
    pub(super) upstream: &'r UpstreamKey,
}

/// The cache's view of a request to this port that is about to go to an endpoint.
pub(super) fn asked(
    rules: &model::Cache,
    request: &RequestView<'_>,
    port: u16,
    forwarded: &Forwarded<'_>,
) -> Asked {
    let HeadView { head, buf } = request.head;
    let mut key = Vec::with_capacity(256);
    add_part(&mut key, if request.is_https() { b"https" } else { b"http" });
    add_part(&mut key, &request.head.authority().to_ascii_lowercase());
    // Endpoints use the port in links and redirects.
    add_part(&mut key, &port.to_le_bytes());
    let start = key.len();
    add_target(&mut key, request.path, forwarded.query);
    let target = start..key.len();
    // Endpoints use these headers in links and redirects.
    if request.client.is_trusted {
        for line in head.lines.iter().filter(|line| is_believed(line, buf)) {
            add_part(&mut key, &line.name.of(buf).to_ascii_lowercase());
            add_part(&mut key, line.value.of(buf));
        }
    }
    if let Some(host) = forwarded.host {
        add_part(&mut key, host.as_bytes());
    }
    for name in &rules.key.headers {
        add_part(&mut key, &sent(forwarded.bytes, name.as_bytes()));
    }
    let has = |known| head.header(buf, known).is_some();
    Asked {
        key: key.into(),
        target,
        upstream: forwarded.upstream.clone(),
        lines: forwarded.lines.into(),
        directives: RequestDirectives::of(head, buf),
        has_credentials: has(Known::Authorization) || has(Known::ProxyAuthorization),
        has_cookie: has(Known::Cookie),
        is_conditional: head.lines.iter().any(|line| is_condition(line.name.of(buf))),
    }
}

/// Whether a request without an identity bypasses the cache.
pub(super) fn bypasses_cache(HeadView { head, buf }: HeadView<'_>) -> bool {
    head.authority.is_none()
        || head.upgrade.is_some()
        || !matches!(head.framing, RequestFraming::None)
        || head.lines.iter().any(|line| {
            line.known == Known::Other
                && is_special(line.name.of(buf))
                && !(head.method == Method::Get && is_range_line(line, buf))
        })
        // The endpoint receives the host unchanged, but the key holds the host in lower case.
        || head.authority.is_some_and(|host| host.of(buf).iter().any(u8::is_ascii_uppercase))
}

/// Invalidates the responses that an unsafe request has changed (RFC 9111, 4.4): its target, and the targets of the same
/// origin that the response names.
pub(super) fn invalidate(
    cache: &Cache,
    asked: &Asked,
    request: &RequestView<'_>,
    (reply_head, reply): (&ResponseHead, &[u8]),
) {
    cache.invalidate(&asked.key);
    if request.head.head.authority.is_none() {
        return;
    }
    let (is_https, authority) = (request.is_https(), request.head.authority());
    for reference in [reply_head.header(reply, Known::Location), reply_head.find(reply, "content-location")] {
        let target = reference.and_then(|reference| resolve(reference, is_https, authority, request.path));
        if let Some((path, query)) = target {
            cache.invalidate(&asked.key_of(&path, query));
        }
    }
}

/// The path in normal form and the query of a reference, relative to a path of an origin (RFC 3986, 5.2). `None` if the
/// reference names another origin.
fn resolve<'r>(
    reference: &'r [u8],
    is_https: bool,
    authority: &[u8],
    base: &[u8],
) -> Option<(Vec<u8>, Option<&'r [u8]>)> {
    let (scheme, port): (&[u8], &[u8]) = if is_https { (b"https:", b":443") } else { (b"http:", b":80") };
    let reference = reference.split(|byte| *byte == b'#').next().unwrap_or_default();
    let (mut rest, mut base) = (reference, base);
    match reference.iter().position(|byte| matches!(byte, b':' | b'/' | b'?')) {
        Some(at) if reference[at] == b':' => {
            rest = &reference[at + 1..];
            // RFC 3986, 5.2.2: a reference with a scheme is not relative.
            if !reference[..=at].eq_ignore_ascii_case(scheme) || !rest.starts_with(b"//") {
                return None;
            }
        }
        _ => {}
    }
    if let Some(behind) = rest.strip_prefix(b"//") {
        let end = behind.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(behind.len());
        let (named, path) = behind.split_at(end);
        let without_port =
            |authority: &'_ [u8]| authority.strip_suffix(port).unwrap_or(authority).to_ascii_lowercase();
        if without_port(named) != without_port(authority) {
            return None;
        }
        (rest, base) = (path, b"/");
    }
    let (path, query) = match rest.iter().position(|byte| *byte == b'?') {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let path = match path.first() {
        Some(b'/') => path.to_vec(),
        None => base.to_vec(),
        Some(_) => {
            let folder = base.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            [&base[..folder], path].concat()
        }
    };
    let mut scratch = Vec::new();
    let path = match normalise(&path, &mut scratch).ok()? {
        Normalised::Plain | Normalised::AsIs => path,
        Normalised::Rewritten(path) => path.to_vec(),
    };
    Some((path, query))
}

/// Whether a trusted proxy uses this line to forward the client IP or the URL that the client requested.
fn is_believed(line: &Line, buf: &[u8]) -> bool {
    let begins = |with: &str| {
        let name = line.name.of(buf).get(..with.len());
        name.is_some_and(|start| is_same_name(start, with.as_bytes()))
    };
    match line.known {
        Known::XForwardedFor => false,
        Known::Forwarded
        | Known::XForwardedHost
        | Known::XForwardedPort
        | Known::XForwardedPrefix
        | Known::XForwardedProto
        | Known::XForwardedScheme
        | Known::XScheme => true,
        _ => begins("x-forwarded-") || begins("x-consumer-"),
    }
}

/// Whether a header makes a request personal to the endpoint. Such a request wants a range or sets conditions that only
/// the endpoint can check (RFC 9111, 4.3.2). Or it names another method, scheme, host or target for some endpoints.
fn is_special(name: &[u8]) -> bool {
    const NAMES: [&str; 14] = [
        "range",
        "if-range",
        "if-match",
        "if-unmodified-since",
        "base-url",
        "cf-visitor",
        "cloudfront-forwarded-proto",
        "destination",
        "front-end-https",
        "http-host",
        "request-uri",
        "ssl-offloaded",
        "wl-proxy-ssl",
        "x-forwarded",
    ];
    const ENDS: [&str; 10] = [
        "-host",
        "-url",
        "-uri",
        "-path",
        "-proto",
        "-scheme",
        "-ssl",
        "-method",
        "-override",
        "-destinationurl",
    ];
    let begins =
        |start: &str| name.get(..start.len()).is_some_and(|begin| is_same_name(begin, start.as_bytes()));
    let ends = |end: &&str| {
        let at = name.len().checked_sub(end.len());
        at.is_some_and(|at| is_same_name(&name[at..], end.as_bytes()))
    };
    // Headers of trusted proxies are part of the key, and headers of other peers are not forwarded.
    let is_forwarding = begins("x-forwarded-");
    NAMES.into_iter().any(|other| is_same_name(name, other.as_bytes()))
        || begins("x-") && !is_forwarding && ENDS.iter().any(ends)
}

#[cfg(test)]
mod tests {
    use super::resolve;

    #[test]
    fn uri_references_resolve_only_to_targets_of_the_same_origin() {
        for (reference, expected) in [
            ("/a/b?c", Some("/a/b?c")),
            ("/a/../b/%7e#c?d", Some("/b/~")),
            ("c", Some("/base/c")),
            ("../c?d", Some("/c?d")),
            ("", Some("/base/x")),
            ("?d", Some("/base/x?d")),
            ("?", Some("/base/x?")),
            ("http://One.example/a", Some("/a")),
            ("HTTP://one.example:80?b", Some("/?b")),
            ("//one.example/a", Some("/a")),
            ("https://one.example/a", None),
            ("http://two.example/a", None),
            ("//two.example/a", None),
            ("http://one.example:8080/a", None),
            ("http://one.example@two.example/a", None),
            ("http://user@one.example/a", None),
            ("http:/a", None),
            ("http:a", None),
            ("mailto:a@one.example", None),
            ("/../../a", None),
            ("/%zz", None),
        ] {
            let found =
                resolve(reference.as_bytes(), false, b"one.example", b"/base/x").map(|(mut path, query)| {
                    path.extend(query.into_iter().flat_map(|query| [b"?", query].concat()));
                    String::from_utf8(path).unwrap()
                });
            assert_eq!(found.as_deref(), expected, "{reference}");
        }
        assert!(resolve(b"https://one.example/a", true, b"one.example:443", b"/").is_some());
    }
}
