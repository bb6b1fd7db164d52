//! The headers that protect a page in a browser.

use hyper::HeaderMap;
use hyper::header::{
    CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};

/// At most this many hosts of an API are in the policy of its page.
const HOSTS_MAX: usize = 32;

/// Adds the headers of every response.
pub(crate) fn protect(headers: &mut HeaderMap, policy: HeaderValue) {
    let others = [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    ];
    for (name, value) in others {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(CONTENT_SECURITY_POLICY, policy);
}

/// The content security policy of a page. Scripts may connect to the dashboard, and to these hosts of an API.
pub(crate) fn policy<'h>(hosts: impl IntoIterator<Item = &'h str>) -> HeaderValue {
    let mut connect = "'self'".to_owned();
    let is_plain = |host: &&str| {
        let name = host.strip_prefix("*.").unwrap_or(host);
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    for host in hosts.into_iter().filter(is_plain).take(HOSTS_MAX) {
        connect.push_str(&format!(" http://{host}:* https://{host}:*"));
    }
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
         connect-src {connect}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_allows_only_plain_hosts() {
        let policy = policy(["api.test", "*.api.test", "*", "a b", "x;script-src *", "'unsafe-inline'"]);
        let policy = policy.to_str().expect("a text");
        let expected = "connect-src 'self' http://api.test:* https://api.test:* http://*.api.test:* https://*.api.test:*; base";
        assert!(policy.contains(expected), "{policy}");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
    }
}
