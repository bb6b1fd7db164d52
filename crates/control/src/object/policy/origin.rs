//! Origins of web pages (RFC 6454).

use sluicegate_model::policy::security::OriginPattern;
use sluicegate_model::value::syntax;

/// Parses `*`, `https://app.example.com[:port]` or `https://*.example.com[:port]`.
pub(crate) fn parse(text: &str) -> Result<OriginPattern, String> {
    if text == "*" {
        return Ok(OriginPattern::Any);
    }
    if text == "null" {
        return Err("null is the origin of every sandboxed page, and cannot be allowed".to_owned());
    }
    let lower_case = text.to_ascii_lowercase();
    let Some((scheme, rest)) = lower_case.split_once("://") else {
        return Err(format!("{text:?} has no scheme: write it as https://app.example.com"));
    };
    if scheme.is_empty() || !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    {
        return Err(format!("{text:?} has no scheme: write it as https://app.example.com"));
    }
    if rest.contains(['/', '?', '#', '@']) {
        return Err(format!("{text:?} is more than an origin: write only the scheme, the host and the port"));
    }
    let (name, port) = split_port(rest)
        .ok_or_else(|| format!("{text:?} has no valid port: write a port from 1 to 65535"))?;
    let (wildcard, name) = match name.strip_prefix("*.") {
        Some(name) => (true, name),
        None => (false, name),
    };
    if name.contains('*') {
        return Err(format!(
            "{text:?} has a '*' that is not the first label: write it as https://*.example.com"
        ));
    }
    let is_address = !wildcard && name.starts_with('[') && name.ends_with(']');
    if let Some(fault) = syntax::dns_name_fault(name).filter(|_| !is_address) {
        return Err(format!("{text:?}: {name:?} {fault}"));
    }
    // Browsers omit the default port of the scheme.
    let own = match scheme {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        _ => None,
    };
    let port = port.filter(|port| Some(*port) != own).map(|port| format!(":{port}")).unwrap_or_default();
    Ok(match wildcard {
        true => OriginPattern::Below {
            scheme: format!("{scheme}://").into(),
            suffix: format!(".{name}{port}").into(),
        },
        false => OriginPattern::Exact(format!("{scheme}://{name}{port}").into()),
    })
}

/// The host, and the port if there is one; `None` if the text is invalid.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let end = text.rfind(']').map_or(0, |bracket| bracket + 1);
    match text[end..].rsplit_once(':') {
        None => Some((text, None)),
        Some((before, port)) => {
            let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
            Some((&text[..end + before.len()], Some(port)))
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_model::policy::security::OriginPattern;

    use super::parse;

    fn shown(text: &str) -> String {
        match parse(text).unwrap() {
            OriginPattern::Any => "any".to_owned(),
            OriginPattern::Exact(origin) => origin.into(),
            OriginPattern::Below { scheme, suffix } => format!("{scheme}|{suffix}"),
        }
    }

    #[test]
    fn origins_are_normalized_to_the_form_of_browsers() {
        for (text, expected) in [
            ("*", "any"),
            ("https://App.Example.com", "https://app.example.com"),
            ("https://app.example.com:443", "https://app.example.com"),
            ("http://app.example.com:443", "http://app.example.com:443"),
            ("https://*.example.com:8443", "https://|.example.com:8443"),
            ("https://*.example.com", "https://|.example.com"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("http://127.0.0.1", "http://127.0.0.1"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn origins_that_browsers_never_send_are_rejected() {
        for (text, reason) in [
            ("app.example.com", "has no scheme"),
            ("://x", "has no scheme"),
            ("null", "sandboxed"),
            ("https://app.example.com/", "more than an origin"),
            ("https://app.example.com/x", "more than an origin"),
            ("https://user@app.example.com", "more than an origin"),
            ("https://app.*.com", "first label"),
            ("https://*app.example.com", "first label"),
            ("https://*", "first label"),
            ("https://a:0", "port"),
            ("https://a:99999", "port"),
            ("https://", "not a DNS name"),
            ("https://a b", "not a DNS name"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(reason), "{text}: {fault}");
        }
    }
}
