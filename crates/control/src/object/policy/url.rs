//! URLs of servers.

use crate::problem::Findings;

/// Checks a URL of http or https with a host, in the form of the example. Returns whether the scheme is http.
pub(super) fn check(text: &str, field: &str, example: &str, findings: &mut Findings) -> bool {
    match text.parse::<http::Uri>() {
        _ if !text.bytes().all(|byte| byte.is_ascii_graphic()) => {
            findings.error(
                field,
                format!("{text:?} has characters that a URL cannot have: percent-encode them, such as %20"),
            );
            false
        }
        _ if text.contains('#') => {
            findings.error(field, format!("{text:?} has a fragment, which is never sent: remove it"));
            false
        }
        Ok(url) if has_bad_port(&url) => {
            findings.error(field, format!("{text:?} has no port from 1 to 65535"));
            false
        }
        Ok(url) if url.authority().is_some_and(|authority| authority.as_str().contains('@')) => {
            findings
                .error(field, "has a user name or a password, which the gateway does not send: remove it");
            false
        }
        Ok(url) if url.scheme_str() == Some("https") && url.host().is_some_and(|host| !host.is_empty()) => {
            false
        }
        Ok(url) if url.scheme_str() == Some("http") && url.host().is_some_and(|host| !host.is_empty()) => {
            true
        }
        _ => {
            findings.error(field, format!("{text:?} is not a URL: write it as {example}"));
            false
        }
    }
}

/// Whether the text after the host's colon is no port.
fn has_bad_port(url: &http::Uri) -> bool {
    let Some(authority) = url.authority() else { return false };
    let behind = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, behind)| behind);
    let port = behind.get(authority.host().len()..).and_then(|rest| rest.strip_prefix(':'));
    port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0))
}
