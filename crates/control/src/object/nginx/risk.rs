//! The risks of annotations, as ingress-nginx 1.15 classifies them (`annotations-risk-level`).

/// The risk that the author of an Ingress changes more than the Ingress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Risk {
    Low,
    Medium,
    High,
    /// Every annotation. Without the key, the gateway accepts them all, because no annotation is executed.
    #[default]
    Critical,
}

const MEDIUM: &[&str] = &[
    "affinity-mode",
    "allowlist-source-range",
    "auth-cache-duration",
    "auth-cache-key",
    "auth-proxy-set-headers",
    "auth-realm",
    "auth-request-redirect",
    "auth-response-headers",
    "auth-secret",
    "auth-signin-redirect-param",
    "auth-tls-secret",
    "auth-tls-verify-client",
    "app-root",
    "canary-by-cookie",
    "canary-by-header",
    "canary-by-header-pattern",
    "canary-by-header-value",
    "cors-allow-headers",
    "cors-allow-methods",
    "cors-allow-origin",
    "cors-expose-headers",
    "custom-headers",
    "denylist-source-range",
    "fastcgi-index",
    "fastcgi-params-configmap",
    "force-ssl-redirect",
    "opentelemetry-operation-name",
    "permanent-redirect",
    "preserve-trailing-slash",
    "proxy-body-size",
    "proxy-cookie-domain",
    "proxy-cookie-path",
    "proxy-next-upstream",
    "proxy-redirect-from",
    "proxy-redirect-to",
    "proxy-ssl-ciphers",
    "proxy-ssl-secret",
    "rewrite-target",
    "session-cookie-domain",
    "session-cookie-expires",
    "session-cookie-max-age",
    "session-cookie-name",
    "session-cookie-path",
    "temporal-redirect",
    "whitelist-source-range",
    "x-forwarded-prefix",
];

const HIGH: &[&str] = &[
    "auth-signin",
    "auth-tls-error-page",
    "auth-tls-match-cn",
    "auth-url",
    "mirror-host",
    "mirror-target",
    "modsecurity-transaction-id",
    "proxy-ssl-name",
    "server-alias",
    "upstream-hash-by",
];

impl Risk {
    /// The risk of an annotation without its prefix.
    pub(crate) fn of(short: &str) -> Self {
        match short {
            _ if short.ends_with("-snippet") => Self::Critical,
            _ if HIGH.contains(&short) => Self::High,
            _ if MEDIUM.contains(&short) => Self::Medium,
            _ => Self::Low,
        }
    }

    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Low => "Low",
            Self::Medium => "Medium",
            Self::High => "High",
            Self::Critical => "Critical",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::row;
    use super::*;

    #[test]
    fn every_classified_annotation_has_a_row() {
        let lacking: Vec<_> = MEDIUM.iter().chain(HIGH).filter(|name| row(name).is_none()).collect();
        assert!(lacking.is_empty(), "{lacking:?}");
        assert_eq!((Risk::of("auth-snippet"), Risk::of("auth-type")), (Risk::Critical, Risk::Low));
    }
}
