//! Rewrites of the cookies and locations in responses of endpoints.

use sluicegate_http1::{Known, ResponseHead};
use sluicegate_model::feature::ResponseRewrite;
use sluicegate_model::feature::response_rewrite::{RewriteFrom, TextRewrite};

use super::edit::write_line;
use crate::name::is_same_name;

/// Replaces the lines of a response that the feature rewrites. The new lines go to `out`, in the order of the old lines.
pub(crate) fn rewrite(source: &ResponseRewrite, head: &mut ResponseHead, buf: &[u8], out: &mut Vec<u8>) {
    let ResponseRewrite { cookie_domains, cookie_paths, locations } = source;
    let rewrites_cookies = !cookie_domains.is_empty() || !cookie_paths.is_empty();
    let is_rewritten = |known: Known| known == Known::SetCookie && rewrites_cookies;
    // Either all cookies move to the new lines or none, so that they keep their order.
    let mut cookies = Vec::new();
    let mut changes = false;
    for line in head.lines.iter().filter(|line| is_rewritten(line.known) && !line.hop_by_hop) {
        let value = line.value.of(buf);
        let renewed = cookie(value, cookie_domains, cookie_paths);
        changes |= renewed.is_some();
        write_line(&mut cookies, line.name.of(buf), renewed.as_deref().unwrap_or(value));
    }
    for line in head.lines.iter_mut().filter(|line| !line.hop_by_hop) {
        let (name, value) = (line.name.of(buf), line.value.of(buf));
        if is_rewritten(line.known) {
            line.hop_by_hop = changes;
        } else if !locations.is_empty()
            && let Some(renewed) = location(name, value, locations)
        {
            line.hop_by_hop = true;
            write_line(out, name, &renewed);
        }
    }
    if changes {
        out.extend_from_slice(&cookies);
    }
}

/// The new value of `Location` or `Refresh`.
fn location(name: &[u8], value: &[u8], rewrites: &[TextRewrite]) -> Option<Vec<u8>> {
    let start = if is_same_name(name, b"location") {
        0
    } else if is_same_name(name, b"refresh") {
        let at = value.windows(4).position(|text| text.eq_ignore_ascii_case(b"url="))?;
        at + 4
    } else {
        return None;
    };
    let (before, url) = value.split_at(start);
    let renewed = rewrites.iter().find_map(|of| begin(of, url))?;
    Some([before, &renewed].concat())
}

/// The new value of `Set-Cookie` (RFC 6265, 5.2).
fn cookie(value: &[u8], domains: &[TextRewrite], paths: &[TextRewrite]) -> Option<Vec<u8>> {
    let mut renewed = Vec::with_capacity(value.len());
    let mut changes = false;
    for (index, part) in value.split(|byte| *byte == b';').enumerate() {
        if index > 0 {
            renewed.push(b';');
        }
        let equals = part.iter().position(|byte| *byte == b'=').filter(|_| index > 0);
        let new = equals.and_then(|equals| {
            let (name, of_attribute) = (part[..equals].trim_ascii(), &part[equals + 1..]);
            let of_attribute = of_attribute.trim_ascii();
            let new = if name.eq_ignore_ascii_case(b"domain") {
                domains.iter().find_map(|of| domain(of, of_attribute))
            } else if name.eq_ignore_ascii_case(b"path") {
                paths.iter().find_map(|of| begin(of, of_attribute))
            } else {
                None
            };
            Some([&part[..=equals], &new?].concat())
        });
        changes |= new.is_some();
        renewed.extend_from_slice(new.as_deref().unwrap_or(part));
    }
    changes.then_some(renewed)
}

/// The new domain, if a rewrite matches the whole domain. A dot at the begin stays.
fn domain(TextRewrite { from, to }: &TextRewrite, value: &[u8]) -> Option<Vec<u8>> {
    let bare = value.strip_prefix(b".").unwrap_or(value);
    let dot = &value[..value.len() - bare.len()];
    match from {
        RewriteFrom::Literal(from) => {
            let from = from.strip_prefix('.').unwrap_or(from);
            let to = to.strip_prefix('.').unwrap_or(to);
            bare.eq_ignore_ascii_case(from.as_bytes()).then(|| [dot, to.as_bytes()].concat())
        }
        RewriteFrom::Regex(pattern) => pattern.replacement(bare, to).map(|renewed| [dot, &renewed].concat()),
    }
}

/// The new text, if a rewrite matches the begin of the text.
fn begin(TextRewrite { from, to }: &TextRewrite, value: &[u8]) -> Option<Vec<u8>> {
    match from {
        RewriteFrom::Literal(from) => {
            let rest = value.strip_prefix(from.as_bytes())?;
            Some([to.as_bytes(), rest].concat())
        }
        RewriteFrom::Regex(pattern) => pattern.replacement(value, to),
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_http1::{HeadLimits, HeadScan, Method};
    use sluicegate_model::rule::Pattern;

    use super::*;

    fn literal(from: &str, to: &str) -> TextRewrite {
        TextRewrite { from: RewriteFrom::Literal(from.into()), to: to.into() }
    }

    fn regex(from: &str, to: &str) -> TextRewrite {
        TextRewrite { from: RewriteFrom::Regex(Pattern::new(from, false).unwrap()), to: to.into() }
    }

    /// The end-to-end lines of a response with these lines, after the rewrite.
    fn rewritten(source: &ResponseRewrite, lines: &[&str]) -> String {
        let text =
            format!("HTTP/1.1 302 x\r\n{}\r\nContent-Length: 0\r\n\r\n", lines.join("\r\n")).into_bytes();
        let mut head = ResponseHead::default();
        let limits = HeadLimits::default();
        assert!(head.parse(&text, &mut HeadScan::default(), Method::Get, &limits).unwrap());
        let mut out = Vec::new();
        rewrite(source, &mut head, &text, &mut out);
        let mut all = Vec::new();
        for line in head.lines.iter().filter(|line| !line.hop_by_hop && line.known != Known::ContentLength) {
            write_line(&mut all, line.name.of(&text), line.value.of(&text));
        }
        String::from_utf8([all, out].concat()).unwrap()
    }

    /// The expected values are the responses of nginx 1.22.
    #[test]
    fn domains_and_paths_of_cookies_are_rewritten_as_in_nginx() {
        let source = ResponseRewrite {
            cookie_domains: vec![literal("localhost", "Example.org")],
            cookie_paths: vec![literal("/two/", "/")],
            ..ResponseRewrite::default()
        };
        for (cookie, expected) in [
            ("a=b; domain=LOCALHOST; Path=/two/x; HttpOnly", "a=b; domain=Example.org; Path=/x; HttpOnly"),
            ("b=c; Domain=.localhost", "b=c; Domain=.Example.org"),
            ("c=d; Domain=a.localhost; path=/two", "c=d; Domain=a.localhost; path=/two"),
            ("path=/two/; Secure", "path=/two/; Secure"),
        ] {
            let lines = rewritten(&source, &[&format!("Set-Cookie: {cookie}"), "X: y"]);
            assert!(lines.contains(&format!("Set-Cookie: {expected}\r\n")), "{cookie}: {lines}");
            assert_eq!(lines.matches("Set-Cookie").count(), 1, "{lines}");
        }
        let both = rewritten(&source, &["Set-Cookie: a=b", "Set-Cookie: c=d; Path=/two/"]);
        assert_eq!(both, "Set-Cookie: a=b\r\nSet-Cookie: c=d; Path=/\r\n", "the order stays");
    }

    #[test]
    fn locations_are_rewritten_by_prefix_or_regular_expression() {
        let source = ResponseRewrite {
            locations: vec![
                literal("http://up.test/", "https://front.test/"),
                regex("^http://([a-z]+)[.]inner/(.*)$", "https://$1.test/$2$3"),
            ],
            ..ResponseRewrite::default()
        };
        for (line, expected) in [
            ("Location: http://up.test/a", "Location: https://front.test/a"),
            ("location: http://shop.inner/a?b", "location: https://shop.test/a?b"),
            ("Refresh: 5; url=http://up.test/b", "Refresh: 5; url=https://front.test/b"),
            ("Location: http://UP.test/a", "Location: http://UP.test/a"),
            ("X-Location: http://up.test/a", "X-Location: http://up.test/a"),
        ] {
            assert_eq!(rewritten(&source, &[line]), format!("{expected}\r\n"));
        }
    }
}
