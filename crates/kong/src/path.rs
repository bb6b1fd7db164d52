//! The normal form of paths, and the path for the service.

/// The normal form in which Kong compares paths: escapes of unreserved characters are decoded, other escapes are in upper
/// case, segments `.` and `..` are removed, and consecutive slashes are one slash.
#[must_use]
pub fn normal(path: &str) -> String {
    let decoded = decode(path);
    let is_directory = matches!(decoded.rsplit('/').next(), Some("" | "." | ".."));
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let tail = if is_directory && !segments.is_empty() { "/" } else { "" };
    format!("/{}{tail}", segments.join("/"))
}

/// Decodes escapes of unreserved characters. Other escapes are in upper case.
fn decode(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let code = after.get(..2).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        (out, rest) = match (code, byte) {
            (Some(_), Some(byte)) if is_unreserved(byte) => {
                (out + &char::from(byte).to_string(), &after[2..])
            }
            (Some(code), _) => (out + "%" + &code.to_ascii_uppercase(), &after[2..]),
            (None, _) => (out + "%", after),
        };
    }
    out + rest
}

/// RFC 3986, 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// The path for the service (`path_handling: v0`).
///
/// `service` is the path of the service, or `/`. `path` is the path of the request in normal form. `matched` is the length
/// of the part of the path that the route removes: the length of the matched path with `strip_path`, without a matched path
/// 1. `None`: the route removes nothing.
#[must_use]
pub fn join(service: &str, path: &str, matched: Option<usize>) -> String {
    let base = service.strip_suffix('/').unwrap_or(service);
    let ends_with_slash = base.len() < service.len();
    let Some(matched) = matched else {
        return match (path, ends_with_slash) {
            ("/", false) => service.to_owned(),
            _ => format!("{base}{path}"),
        };
    };
    match without_dots(path.get(matched..).unwrap_or_default()) {
        "" if service == "/" => "/".to_owned(),
        // The service decides with which path of the request a slash remains.
        "" if path.ends_with('/') && (ends_with_slash || path.len() > 1) => {
            format!("{base}/")
        }
        "" => base.to_owned(),
        rest if rest.starts_with('/') => format!("{base}{rest}"),
        rest => format!("{base}/{rest}"),
    }
}

/// Removes a segment `.` or `..` at the beginning, which the removal of a prefix may leave.
fn without_dots(rest: &str) -> &str {
    match rest {
        "." | ".." => "",
        _ => rest.strip_prefix("./").or_else(|| rest.strip_prefix("../")).unwrap_or(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::{join, normal};

    #[test]
    fn path_is_compared_in_normal_form() {
        for (path, expected) in [
            ("/", "/"),
            ("", "/"),
            ("/a/./b/../c", "/a/c"),
            ("/a//b/", "/a/b/"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/../a", "/a"),
            ("/%7euser%2f%c3%bc", "/~user%2F%C3%BC"),
            ("/a%2e%2e/%2e", "/a../"),
            ("/100%", "/100%"),
        ] {
            assert_eq!(normal(path), expected, "{path}");
            assert_eq!(normal(expected), expected, "{path}");
        }
    }

    /// The table of Kong's unit and integration tests for `path_handling: v0`: the path of the service, the path of the
    /// route (empty: no path), `strip_path` (empty: both), the path of the request, and the path for the service.
    const TABLE: &[(&str, &str, &[bool], &str, &str)] = &[
        ("/", "/", &[false, true], "/", "/"),
        ("/", "/", &[false, true], "/route", "/route"),
        ("/", "/", &[false, true], "/route/", "/route/"),
        ("/", "/", &[false, true], "/routereq", "/routereq"),
        ("/", "/", &[false, true], "/route/req", "/route/req"),
        ("/", "/route", &[false], "/route", "/route"),
        ("/", "/route", &[false], "/route/", "/route/"),
        ("/", "/route", &[false], "/routereq", "/routereq"),
        ("/", "/route", &[true], "/route", "/"),
        ("/", "/route", &[true], "/route/", "/"),
        ("/", "/route", &[true], "/routereq", "/req"),
        ("/", "/route/", &[false], "/route/", "/route/"),
        ("/", "/route/", &[false], "/route/req", "/route/req"),
        ("/", "/route/", &[true], "/route/", "/"),
        ("/", "/route/", &[true], "/route/req", "/req"),
        ("/srv", "/rou", &[false], "/roureq", "/srv/roureq"),
        ("/srv", "/rou", &[true], "/roureq", "/srv/req"),
        ("/srv/", "/rou", &[false], "/rou", "/srv/rou"),
        ("/srv/", "/rou", &[true], "/rou", "/srv"),
        ("/service", "/", &[false, true], "/", "/service"),
        ("/service", "/", &[false, true], "/route", "/service/route"),
        ("/service", "/", &[false, true], "/route/", "/service/route/"),
        ("/service", "/", &[false, true], "/routereq", "/service/routereq"),
        ("/service", "/", &[false, true], "/route/req", "/service/route/req"),
        ("/service", "/route", &[false], "/route", "/service/route"),
        ("/service", "/route", &[false], "/route/", "/service/route/"),
        ("/service", "/route", &[false], "/routereq", "/service/routereq"),
        ("/service", "/route", &[true], "/route", "/service"),
        ("/service", "/route", &[true], "/route/", "/service/"),
        ("/service", "/route", &[true], "/routereq", "/service/req"),
        ("/service", "/route/", &[false], "/route/", "/service/route/"),
        ("/service", "/route/", &[false], "/route/req", "/service/route/req"),
        ("/service", "/route/", &[true], "/route/", "/service/"),
        ("/service", "/route/", &[true], "/route/req", "/service/req"),
        ("/service/", "/", &[false, true], "/", "/service/"),
        ("/service/", "/", &[false, true], "/route", "/service/route"),
        ("/service/", "/", &[false, true], "/route/", "/service/route/"),
        ("/service/", "/", &[false, true], "/routereq", "/service/routereq"),
        ("/service/", "/", &[false, true], "/route/req", "/service/route/req"),
        ("/service/", "/route", &[false], "/route", "/service/route"),
        ("/service/", "/route", &[false], "/route/", "/service/route/"),
        ("/service/", "/route", &[false], "/routereq", "/service/routereq"),
        ("/service/", "/route", &[true], "/route", "/service"),
        ("/service/", "/route", &[true], "/route/", "/service/"),
        ("/service/", "/route", &[true], "/routereq", "/service/req"),
        ("/service/", "/route/", &[false], "/route/", "/service/route/"),
        ("/service/", "/route/", &[false], "/route/req", "/service/route/req"),
        ("/service/", "/route/", &[true], "/route/", "/service/"),
        ("/service/", "/route/", &[true], "/route/req", "/service/req"),
        ("/", "", &[false, true], "/", "/"),
        ("/", "", &[false, true], "/route", "/route"),
        ("/", "", &[false, true], "/route/", "/route/"),
        ("/service", "", &[false, true], "/", "/service"),
        ("/service", "", &[false, true], "/route", "/service/route"),
        ("/service", "", &[false, true], "/route/", "/service/route/"),
        ("/service/", "", &[false, true], "/", "/service/"),
        ("/service/", "", &[false, true], "/route", "/service/route"),
        ("/service/", "", &[false, true], "/route/", "/service/route/"),
        // The removed prefix may leave a segment of dots.
        ("/", "/a/", &[true], "/a/..b", "/..b"),
        ("/srv", "/a", &[true], "/a..", "/srv"),
        ("/srv", "/a", &[true], "/a../b", "/srv/b"),
        ("/srv", "/a", &[true], "/a./b", "/srv/b"),
    ];

    #[test]
    fn path_for_the_service_is_that_of_kong() {
        for (service, route, strips, request, expected) in TABLE {
            for strip in *strips {
                let matched = strip.then(|| route.len().max(1));
                let found = join(service, request, matched);
                assert_eq!(found, *expected, "{service} {route} {strip} {request}");
            }
        }
    }
}
