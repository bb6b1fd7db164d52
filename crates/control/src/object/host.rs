//! The host of a rule, of a listener or of a route.

use sluicegate_model::HostPattern;
use sluicegate_model::value::syntax::dns_name_fault;

/// Parses `spec.rules[].host` by the rules of Kubernetes' own validation. A host is a lower-case DNS name (RFC 1123).
/// Its first label may be `*`. IP addresses are not hosts. An empty host matches any host.
///
/// # Errors
///
/// If the text is no host, with the reason and the remedy.
pub fn parse(host: &str) -> Result<HostPattern, String> {
    if host.is_empty() {
        return Ok(HostPattern::Any);
    }
    if host == "*" {
        return Err("\"*\" is not a host: remove the host to match every host".to_owned());
    }
    if host.parse::<std::net::IpAddr>().is_ok() || host.starts_with('[') {
        return Err(format!("{host:?} is an IP address, but a host must be a DNS name"));
    }
    let (name, pattern): (&str, fn(Box<str>) -> HostPattern) = match host.strip_prefix("*.") {
        Some(suffix) => (suffix, HostPattern::Wildcard),
        None => (host, HostPattern::Exact),
    };
    if name.contains('*') {
        return Err(format!(
            "{host:?} has a '*' that is not its whole first label: write it as in \"*.example.com\""
        ));
    }
    match dns_name_fault(name) {
        Some(fault) => Err(format!("{host:?} {fault}")),
        None => Ok(pattern(name.into())),
    }
}

/// Parses a `hostname` of Gateway API, whose wildcards stand for one or more labels.
pub(crate) fn parse_suffix(host: &str) -> Result<HostPattern, String> {
    parse(host).map(|pattern| match pattern {
        HostPattern::Wildcard(suffix) => HostPattern::Suffix(suffix),
        other => other,
    })
}

/// Whether a pattern matches all names of another pattern.
pub(crate) fn covers(wide: &HostPattern, narrow: &HostPattern) -> bool {
    match (wide, narrow) {
        (HostPattern::Any, _) => true,
        (HostPattern::Suffix(_), HostPattern::Suffix(name)) => wide == narrow || wide.matches(name),
        (_, HostPattern::Exact(name)) => wide.matches(name),
        _ => wide == narrow,
    }
}

/// How specific a hostname of a listener or of a route is: an exact name, or else the number of bytes of a suffix; no hostname
/// is the least specific.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Specificity {
    is_exact: bool,
    length: usize,
}

pub(crate) fn specificity(pattern: &HostPattern) -> Specificity {
    match pattern {
        HostPattern::Any => Specificity::default(),
        HostPattern::Exact(name) => Specificity { is_exact: true, length: name.len() },
        HostPattern::Suffix(name) | HostPattern::Wildcard(name) => {
            Specificity { is_exact: false, length: name.len() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn host_is_parsed_as_exact_wildcard_or_any() {
        for (host, expected) in [
            ("", "*"),
            ("a.example", "a.example"),
            ("*.example.com", "*.example.com"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("1.example", "1.example"),
        ] {
            assert_eq!(parse(host).unwrap().to_string(), expected, "{host}");
        }
    }

    #[test]
    fn invalid_host_of_an_ingress_is_rejected_with_the_reason() {
        for (host, reason) in [
            ("10.0.0.1", "IP address"),
            ("::1", "IP address"),
            ("[::1]", "IP address"),
            ("A.example", "lower case"),
            ("*", "remove the host"),
            ("a.*.example", "'*'"),
            ("*a.example", "'*'"),
            ("*.", "not a DNS name"),
            ("*.*.example", "'*'"),
            ("a..example", "not a DNS name"),
            ("a.example.", "not a DNS name"),
            ("-a.example", "not a DNS name"),
            ("a_b.example", "not a DNS name"),
            ("a.example:80", "port"),
            ("bücher.example", "xn--"),
            ("a b", "not a DNS name"),
        ] {
            let message = parse(host).unwrap_err();
            assert!(message.contains(reason), "{host}: {message}");
        }
        assert!(parse(&"a.".repeat(130)).unwrap_err().contains("253"));
    }
}
