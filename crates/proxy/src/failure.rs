//! Why a request failed, and on whose side.

use std::io;

use sluicegate_http1::ResponseError;
use sluicegate_proxy_protocol::Malformed;

/// An attempt failed at the upstream's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The upstream has no endpoint.
    #[error("the upstream has no ready endpoint")]
    NoEndpoint,
    /// The rule names no valid backend (Gateway API, `HTTPRouteRule.backendRefs`).
    #[error("the rule names no valid backend")]
    InvalidBackend,
    /// The upstream's own limit is reached.
    #[error("the upstream has reached its limit of requests in flight")]
    Overloaded,
    /// The endpoint's host refused the connection: no program listens.
    #[error("the endpoint refused the connection")]
    ConnectRefused,
    /// There is no route to the endpoint.
    #[error("the endpoint is unreachable")]
    ConnectUnreachable,
    /// The connect timed out, or another endpoint accepted first.
    #[error("the connect to the endpoint timed out")]
    ConnectTimeout,
    /// Another error of connecting, such as a lack of local ports.
    #[error("the connect to the endpoint failed")]
    ConnectError,
    /// The TLS handshake failed: the endpoint's certificate is not accepted, or the endpoint does not support TLS.
    #[error("the TLS handshake with the endpoint failed")]
    TlsHandshake,
    /// The endpoint does not support HTTP/2.
    #[error("the endpoint does not support HTTP/2")]
    NoHttp2,
    /// The endpoint has refused the request before it processed it (`REFUSED_STREAM`, GOAWAY; RFC 9113, 8.7).
    #[error("the endpoint refused the stream")]
    Refused,
    /// The endpoint's HTTP/2 does not support WebSocket (RFC 8441).
    #[error("the endpoint does not support WebSocket over HTTP/2")]
    NoWebSocket,
    /// A kept-alive connection was closed before the first byte of a response.
    #[error("the endpoint closed a kept-alive connection before a response")]
    Stale,
    /// A new connection was closed or reset before the first byte of a response.
    #[error("the endpoint closed the connection before a response")]
    Reset,
    /// The endpoint's kernel did not acknowledge sent bytes.
    #[error("the endpoint does not acknowledge the request")]
    Unacknowledged,
    /// The endpoint did not respond in time.
    #[error("the endpoint did not respond in time")]
    ResponseTimeout,
    /// The endpoint accepted no more of the request's body.
    #[error("the endpoint stopped reading the request")]
    WriteTimeout,
    /// The received bytes are not an acceptable HTTP response.
    #[error("the endpoint sent an invalid response: {0}")]
    BadResponse(ResponseError),
    /// The connection ended inside the response's head or body, or the body broke its framing.
    #[error("the endpoint ended the response early")]
    Truncated,
    /// The response's body stalled for too long.
    #[error("the endpoint stopped sending the response's body")]
    BodyTimeout,
    /// The endpoint was removed and its drain time is over.
    #[error("the endpoint was removed and its drain time is over")]
    Drained,
    /// The endpoint changed the protocol without a request for it.
    #[error("the endpoint changed the protocol without a request")]
    Unsolicited,
    /// The endpoint changed to a protocol that the request did not name (RFC 9110, 7.8).
    #[error("the endpoint changed to another protocol than the requested one")]
    OtherProtocol,
    /// The response is longer than a policy allows.
    #[error("the response is longer than the policy allows")]
    TooLong,
    /// The endpoint responded with a status that a policy retries at another endpoint.
    #[error("the endpoint responded with a status code of retries.codes")]
    RetriedStatus,
    /// An attempt failed, and the retry budget of the Service allows no retry (Gateway API, `RetryConstraint`).
    #[error("an attempt failed, and the retry budget of the Service is used up")]
    OverRetryBudget,
}

impl Failure {
    /// The number of kinds.
    pub const COUNT: usize = 25;

    /// The stable names for metrics and logs, by [`index`](Self::index).
    pub const REASONS: [&'static str; Self::COUNT] = [
        "no_endpoint",
        "overloaded",
        "connect_refused",
        "connect_unreachable",
        "connect_timeout",
        "connect_error",
        "stale_connection",
        "reset",
        "unacknowledged",
        "response_timeout",
        "write_timeout",
        "bad_response",
        "truncated",
        "body_timeout",
        "drained",
        "unsolicited_upgrade",
        "tls_handshake",
        "no_http2",
        "refused_stream",
        "no_websocket",
        "unwanted_status",
        "response_too_long",
        "other_protocol",
        "invalid_backend",
        "over_retry_budget",
    ];

    /// The kind's number, below [`COUNT`](Self::COUNT).
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::NoEndpoint => 0,
            Self::Overloaded => 1,
            Self::ConnectRefused => 2,
            Self::ConnectUnreachable => 3,
            Self::ConnectTimeout => 4,
            Self::ConnectError => 5,
            Self::Stale => 6,
            Self::Reset => 7,
            Self::Unacknowledged => 8,
            Self::ResponseTimeout => 9,
            Self::WriteTimeout => 10,
            Self::BadResponse(_) => 11,
            Self::Truncated => 12,
            Self::BodyTimeout => 13,
            Self::Drained => 14,
            Self::Unsolicited => 15,
            Self::TlsHandshake => 16,
            Self::NoHttp2 => 17,
            Self::Refused => 18,
            Self::NoWebSocket => 19,
            Self::RetriedStatus => 20,
            Self::TooLong => 21,
            Self::OtherProtocol => 22,
            Self::InvalidBackend => 23,
            Self::OverRetryBudget => 24,
        }
    }

    /// The stable name for metrics and logs.
    #[must_use]
    pub fn reason(self) -> &'static str {
        Self::REASONS[self.index()]
    }

    /// The status for the client if the failure is final (RFC 9110, 15.6).
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidBackend => 500,
            Self::NoEndpoint | Self::Overloaded | Self::OverRetryBudget => 503,
            Self::ConnectTimeout | Self::ResponseTimeout | Self::WriteTimeout => 504,
            _ => 502,
        }
    }

    /// Whether another attempt may follow although bytes of the request were sent, provided that the request is
    /// idempotent. A received response is final, good or bad.
    pub(crate) fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Stale
                | Self::Reset
                | Self::Unacknowledged
                | Self::Drained
                | Self::Refused
                | Self::RetriedStatus
        )
    }

    /// Whether the endpoint is taken not to have processed the request. Such a failure says nothing about the load of the
    /// endpoint, and each request has few of them: a pooled connection is used once, and refused streams have a limit.
    pub(crate) fn is_unprocessed(self) -> bool {
        matches!(self, Self::Stale | Self::Refused)
    }

    pub(crate) fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Self::ConnectRefused,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Self::ConnectUnreachable,
            io::ErrorKind::TimedOut => Self::ConnectTimeout,
            _ => Self::ConnectError,
        }
    }
}

/// A request ended on the client's side, or a limit rejected the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientFault {
    /// The client closed its connection before the response was complete (499 in logs, as in nginx).
    #[error("the client closed the connection")]
    Closed,
    /// The head did not arrive in time.
    #[error("the client did not send the whole head in time")]
    HeadTimeout,
    /// The body did not arrive in time.
    #[error("the client stopped sending the body")]
    BodyTimeout,
    /// The client does not read.
    #[error("the client does not read the response")]
    WriteTimeout,
    /// The body is over the limit.
    #[error("the request's body exceeds the limit")]
    BodyTooLarge,
    /// The body's framing is invalid.
    #[error("the request's body is malformed")]
    BadBody,
    /// `CONNECT` or `TRACE`.
    #[error("the gateway does not serve the method")]
    Method,
    /// The TLS connection was opened for another host, and its certificate or its client certificate policy does not
    /// apply to this host (RFC 9110, 7.4).
    #[error("the connection is not valid for this host")]
    Misdirected,
    /// The body arrived more slowly than the minimum rate.
    #[error("the client sends the body too slowly")]
    BodyTooSlow,
    /// The body took longer in total than the limit.
    #[error("the client did not send the whole body in time")]
    BodyTotalTimeout,
    /// The upload had stalled for longest at an endpoint with too many stalled uploads.
    #[error("too many uploads at the endpoint are stalled")]
    UploadStalled,
    /// The client's certificate is missing or not valid.
    #[error("the client's certificate is missing or not valid")]
    Certificate,
    /// The name in the client's certificate is not allowed.
    #[error("the name in the client's certificate is not allowed")]
    CertificateSubject,
}

impl ClientFault {
    /// Every kind, by [`index`](Self::index).
    pub const ALL: [Self; 13] = [
        Self::Closed,
        Self::HeadTimeout,
        Self::BodyTimeout,
        Self::WriteTimeout,
        Self::BodyTooLarge,
        Self::BadBody,
        Self::Method,
        Self::Misdirected,
        Self::BodyTooSlow,
        Self::BodyTotalTimeout,
        Self::UploadStalled,
        Self::Certificate,
        Self::CertificateSubject,
    ];

    /// The kind's number, below the length of [`ALL`](Self::ALL).
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The stable name for metrics and logs.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Closed => "client_closed",
            Self::HeadTimeout => "head_timeout",
            Self::BodyTimeout => "body_timeout",
            Self::WriteTimeout => "write_timeout",
            Self::BodyTooLarge => "body_too_large",
            Self::BadBody => "bad_body",
            Self::Method => "method_not_allowed",
            Self::Misdirected => "misdirected",
            Self::BodyTooSlow => "body_too_slow",
            Self::BodyTotalTimeout => "body_total_timeout",
            Self::UploadStalled => "upload_stalled",
            Self::Certificate => "client_certificate",
            Self::CertificateSubject => "client_subject",
        }
    }

    /// The status for the client, or for the log if the client cannot receive a response (499, nginx' code).
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Closed | Self::WriteTimeout => 499,
            Self::HeadTimeout
            | Self::BodyTimeout
            | Self::BodyTooSlow
            | Self::BodyTotalTimeout
            | Self::UploadStalled => 408,
            Self::BodyTooLarge => 413,
            Self::BadBody | Self::Certificate => 400,
            Self::CertificateSubject => 403,
            Self::Method => 405,
            Self::Misdirected => 421,
        }
    }
}

/// A connection ended before its TLS handshake did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFault {
    /// The client closed the connection, or the connection broke.
    #[error("the client closed the connection during the handshake")]
    Closed,
    /// The handshake took too long.
    #[error("the client did not complete the handshake in time")]
    Timeout,
    /// The first bytes are not TLS.
    #[error("the first bytes of the connection are not TLS")]
    NotTls,
    /// A plain HTTP request arrived, and the gateway responded with 400.
    #[error("the client sent a plain HTTP request")]
    ClearText,
    /// The ClientHello is over the limit.
    #[error("the ClientHello exceeds the limit")]
    HelloTooLarge,
    /// There is no certificate for the requested name.
    #[error("the gateway has no certificate for the requested name")]
    UnknownName,
    /// The host's configuration is unusable. For example, there is no CA certificate for its clients.
    #[error("the TLS configuration of the host is invalid")]
    Unusable,
    /// Client and gateway have no version, algorithm or protocol in common.
    #[error("client and gateway have no version, algorithm or protocol in common")]
    Incompatible,
    /// The client's certificate is missing or not accepted.
    #[error("the client's certificate is missing or not accepted")]
    ClientCertificate,
    /// The client aborted the handshake, most likely because it does not trust the certificate.
    #[error("the client aborted the handshake")]
    Refused,
    /// The client violated the protocol.
    #[error("the client violated the TLS protocol")]
    Protocol,
}

impl TlsFault {
    /// Every kind, by [`index`](Self::index).
    pub const ALL: [Self; 11] = [
        Self::Closed,
        Self::Timeout,
        Self::NotTls,
        Self::ClearText,
        Self::HelloTooLarge,
        Self::UnknownName,
        Self::Unusable,
        Self::Incompatible,
        Self::ClientCertificate,
        Self::Refused,
        Self::Protocol,
    ];

    /// The kind's number, below the length of [`ALL`](Self::ALL).
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The stable name for metrics and logs.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::NotTls => "not_tls",
            Self::ClearText => "clear_text",
            Self::HelloTooLarge => "hello_too_large",
            Self::UnknownName => "unknown_name",
            Self::Unusable => "unusable_host",
            Self::Incompatible => "incompatible",
            Self::ClientCertificate => "client_certificate",
            Self::Refused => "refused_by_client",
            Self::Protocol => "protocol",
        }
    }

    pub(crate) fn of(error: &rustls::Error) -> Self {
        use rustls::Error;
        match error {
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => Self::Incompatible,
            Error::NoCertificatesPresented | Error::InvalidCertificate(_) => Self::ClientCertificate,
            Error::AlertReceived(_) => Self::Refused,
            _ => Self::Protocol,
        }
    }
}

/// A connection ended because its peer did not send a valid PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderFault {
    /// The peer closed the connection, or the connection broke.
    #[error("the peer closed the connection before a PROXY header")]
    Closed,
    /// The header did not arrive in time.
    #[error("the peer did not send the PROXY header in time")]
    Timeout,
    /// The connection begins with other bytes.
    #[error("the connection does not begin with a PROXY header")]
    Missing,
    /// The header exceeds the length limit.
    #[error("the PROXY header is too long")]
    TooLong,
    /// The header is invalid.
    #[error("the PROXY header is malformed")]
    Malformed,
}

impl ProxyHeaderFault {
    /// Every kind, by [`index`](Self::index).
    pub const ALL: [Self; 5] = [Self::Closed, Self::Timeout, Self::Missing, Self::TooLong, Self::Malformed];

    /// The kind's number, below the length of [`ALL`](Self::ALL).
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The stable name for metrics and logs.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::Missing => "missing",
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
        }
    }
}

impl From<Malformed> for ProxyHeaderFault {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::NoHeader => Self::Missing,
            Malformed::TooLong => Self::TooLong,
            Malformed::Fields => Self::Malformed,
        }
    }
}

/// Why a policy denied a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The policy cannot be applied, so all requests are denied.
    #[error("the policy cannot be used")]
    Unusable,
    /// The Consumer is invalid, so the caller is denied.
    #[error("the Consumer cannot be used")]
    Consumer,
    /// The client IP is not allowed.
    #[error("the address is not allowed")]
    Address,
    /// The path can be read in several ways, and another route's policy guards one of them.
    #[error("the path is ambiguous")]
    AmbiguousPath,
    /// The origin is not allowed.
    #[error("the origin is not allowed")]
    Origin,
    /// The request has no credentials.
    #[error("there are no credentials")]
    NoCredentials,
    /// The client has no valid certificate.
    #[error("there is no valid client certificate")]
    NoCertificate,
    /// The request has two credentials of one kind.
    #[error("there are two credentials of one kind")]
    AmbiguousCredentials,
    /// No consumer has this API key.
    #[error("the API key is unknown")]
    Key,
    /// The API key was valid until some time.
    #[error("the API key has expired")]
    KeyExpired,
    /// The API key is revoked.
    #[error("the API key is revoked")]
    KeyRevoked,
    /// The name or the password is wrong or missing.
    #[error("the name or the password is wrong")]
    Password,
    /// The nonce of a Digest response is too old, or of another process. The client repeats the request with a new nonce.
    #[error("the nonce is stale")]
    StaleNonce,
    /// The limit of concurrent password checks is reached.
    #[error("too many passwords are being checked")]
    TooManyPasswordChecks,
    /// The keys of the token's issuer have not been fetched yet.
    #[error("the issuer's keys are not known yet")]
    KeysUnknown,
    /// The external service requires authentication.
    #[error("the external service does not accept the credentials")]
    CheckUnauthorized,
    /// The external service denies the request.
    #[error("the external service denies the request")]
    CheckForbidden,
    /// The external service requires authentication, and the client is redirected to the sign-in page.
    #[error("the caller must sign in")]
    SignIn,
    /// The external service did not respond in time.
    #[error("the external service did not respond in time")]
    CheckTimeout,
    /// The external service is unreachable, or closed the connection.
    #[error("the external service is unreachable")]
    CheckUnreachable,
    /// The response of the external service is invalid.
    #[error("the external service sent an invalid response")]
    CheckAnswer,
    /// The limit of requests that wait for the external service is reached.
    #[error("too many requests wait for the external service")]
    TooManyExternalChecks,
    /// The external service denies the request with a response of its own, with this status.
    #[error("the external service responds with {0}")]
    CheckDenied(u16),
    /// The token is invalid.
    #[error("{0}")]
    Token(sluicegate_jwt::Fault),
    /// The caller is not authorized.
    #[error("the caller is not authorized")]
    Forbidden,
    /// The token lacks a scope that it needs.
    #[error("the token lacks a scope")]
    Scope,
    /// A rate limit is reached.
    #[error("a rate limit is reached")]
    RateLimit,
    /// A concurrency limit is reached.
    #[error("too many requests are in flight")]
    Concurrency,
    /// The caller has no subscription to the operation.
    #[error("the caller has no subscription to the operation")]
    NoSubscription,
    /// The subscription of the caller waits for approval.
    #[error("the subscription of the caller is not approved yet")]
    SubscriptionPending,
    /// The subscription of the caller is suspended, rejected or invalid.
    #[error("the subscription of the caller is not active")]
    SubscriptionInactive,
    /// A quota of the subscription is used up.
    #[error("a quota of the subscription is used up")]
    Quota,
    /// The browser must log in, and is redirected to the provider.
    #[error("the caller must log in")]
    Login,
    /// There is no session, and the request is no navigation of a browser.
    #[error("there is no session")]
    NoSession,
    /// The answer of the provider belongs to no login of the browser, or the login took too long.
    #[error("the login is unknown or has expired")]
    LoginState,
    /// The provider denied the login.
    #[error("the provider denied the login")]
    LoginDenied,
    /// The provider does not accept the code, which is valid once.
    #[error("the provider does not accept the code of the login")]
    LoginCode,
    /// The tokens of the provider are not valid.
    #[error("the provider sent invalid tokens")]
    LoginToken,
    /// The tokens of the provider are too long for cookies.
    #[error("the tokens of the provider are too long for cookies")]
    SessionTooLong,
    /// The provider is unreachable, or gives no valid response.
    #[error("the identity provider is unavailable")]
    ProviderUnavailable,
    /// The authorization server says that the token is not active.
    #[error("the token is not active")]
    TokenInactive,
    /// The authorization server gives no valid response about the token.
    #[error("the authorization server is unavailable")]
    IntrospectionUnavailable,
}

impl Denial {
    /// The number of kinds.
    pub const COUNT: usize = 41 + sluicegate_jwt::Fault::ALL.len();

    /// Every kind, by [`index`](Self::index).
    #[must_use]
    pub fn all() -> [Self; Self::COUNT] {
        let mut all = [Self::Unusable; Self::COUNT];
        let rest = [
            Self::Unusable,
            Self::Address,
            Self::AmbiguousPath,
            Self::Origin,
            Self::NoCredentials,
            Self::AmbiguousCredentials,
            Self::Key,
            Self::Password,
            Self::TooManyPasswordChecks,
            Self::Forbidden,
            Self::RateLimit,
            Self::KeysUnknown,
            Self::CheckUnauthorized,
            Self::CheckForbidden,
            Self::SignIn,
            Self::CheckTimeout,
            Self::CheckUnreachable,
            Self::CheckAnswer,
            Self::TooManyExternalChecks,
            Self::Concurrency,
            Self::Consumer,
            Self::CheckDenied(403),
            Self::StaleNonce,
            Self::KeyExpired,
            Self::KeyRevoked,
            Self::NoSubscription,
            Self::SubscriptionPending,
            Self::SubscriptionInactive,
            Self::Quota,
            Self::Login,
            Self::NoSession,
            Self::LoginState,
            Self::LoginDenied,
            Self::LoginCode,
            Self::LoginToken,
            Self::SessionTooLong,
            Self::ProviderUnavailable,
            Self::TokenInactive,
            Self::IntrospectionUnavailable,
            Self::Scope,
            Self::NoCertificate,
        ];
        let tokens = sluicegate_jwt::Fault::ALL.map(Self::Token);
        for (place, denial) in all.iter_mut().zip(rest.into_iter().chain(tokens)) {
            *place = denial;
        }
        all
    }

    /// The kind's number, below [`COUNT`](Self::COUNT).
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::Unusable => 0,
            Self::Address => 1,
            Self::AmbiguousPath => 2,
            Self::Origin => 3,
            Self::NoCredentials => 4,
            Self::AmbiguousCredentials => 5,
            Self::Key => 6,
            Self::Password => 7,
            Self::TooManyPasswordChecks => 8,
            Self::Forbidden => 9,
            Self::RateLimit => 10,
            Self::KeysUnknown => 11,
            Self::CheckUnauthorized => 12,
            Self::CheckForbidden => 13,
            Self::SignIn => 14,
            Self::CheckTimeout => 15,
            Self::CheckUnreachable => 16,
            Self::CheckAnswer => 17,
            Self::TooManyExternalChecks => 18,
            Self::Concurrency => 19,
            Self::Consumer => 20,
            Self::CheckDenied(_) => 21,
            Self::StaleNonce => 22,
            Self::KeyExpired => 23,
            Self::KeyRevoked => 24,
            Self::NoSubscription => 25,
            Self::SubscriptionPending => 26,
            Self::SubscriptionInactive => 27,
            Self::Quota => 28,
            Self::Login => 29,
            Self::NoSession => 30,
            Self::LoginState => 31,
            Self::LoginDenied => 32,
            Self::LoginCode => 33,
            Self::LoginToken => 34,
            Self::SessionTooLong => 35,
            Self::ProviderUnavailable => 36,
            Self::TokenInactive => 37,
            Self::IntrospectionUnavailable => 38,
            Self::Scope => 39,
            Self::NoCertificate => 40,
            Self::Token(fault) => 41 + fault as usize,
        }
    }

    /// The stable name for metrics and logs.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unusable => "policy_unusable",
            Self::Consumer => "consumer_unusable",
            Self::Address => "address",
            Self::AmbiguousPath => "ambiguous_path",
            Self::Origin => "origin",
            Self::NoCredentials => "no_credentials",
            Self::NoCertificate => "no_certificate",
            Self::AmbiguousCredentials => "ambiguous_credentials",
            Self::Key => "unknown_key",
            Self::KeyExpired => "expired_key",
            Self::KeyRevoked => "revoked_key",
            Self::NoSubscription => "no_subscription",
            Self::SubscriptionPending => "subscription_pending",
            Self::SubscriptionInactive => "subscription_inactive",
            Self::Quota => "quota",
            Self::Password => "wrong_password",
            Self::StaleNonce => "stale_nonce",
            Self::TooManyPasswordChecks => "passwords_busy",
            Self::Forbidden => "forbidden",
            Self::Scope => "insufficient_scope",
            Self::RateLimit => "rate_limit",
            Self::Concurrency => "concurrency_limit",
            Self::KeysUnknown => "keys_unknown",
            Self::CheckUnauthorized => "check_unauthorized",
            Self::CheckForbidden => "check_forbidden",
            Self::SignIn => "sign_in",
            Self::CheckTimeout => "check_timeout",
            Self::CheckUnreachable => "check_unreachable",
            Self::CheckAnswer => "check_bad_answer",
            Self::TooManyExternalChecks => "checks_busy",
            Self::CheckDenied(_) => "check_denied",
            Self::Login => "login",
            Self::NoSession => "no_session",
            Self::LoginState => "login_state",
            Self::LoginDenied => "login_denied",
            Self::LoginCode => "login_code",
            Self::LoginToken => "login_token",
            Self::SessionTooLong => "session_too_long",
            Self::ProviderUnavailable => "provider_unavailable",
            Self::TokenInactive => "token_inactive",
            Self::IntrospectionUnavailable => "introspection_unavailable",
            Self::Token(fault) => fault.reason(),
        }
    }

    /// Whether the caller has no credentials at all, so that the denial is about their lack.
    #[must_use]
    pub(crate) fn is_for_lack_of_credentials(self) -> bool {
        matches!(self, Self::NoCredentials | Self::NoCertificate | Self::Login | Self::NoSession)
    }

    /// What the user of a browser can do about a login that failed.
    #[must_use]
    pub fn advice(self) -> Option<&'static str> {
        match self {
            Self::LoginState | Self::LoginCode => {
                Some("the login is not valid any more: open the page again to log in")
            }
            Self::LoginDenied => {
                Some("the identity provider denied the login: open the page again to log in")
            }
            Self::LoginToken | Self::SessionTooLong => {
                Some("the identity provider sent an answer that the gateway cannot use: tell the operator")
            }
            Self::ProviderUnavailable => Some("the identity provider is unavailable: try again in a minute"),
            _ => None,
        }
    }

    /// The status of the response.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Unusable
            | Self::Consumer
            | Self::TooManyPasswordChecks
            | Self::KeysUnknown
            | Self::TooManyExternalChecks
            | Self::ProviderUnavailable
            | Self::IntrospectionUnavailable => 503,
            Self::LoginToken | Self::SessionTooLong => 502,
            // As nginx does for `auth_request`.
            Self::CheckTimeout | Self::CheckUnreachable | Self::CheckAnswer => 500,
            Self::SignIn | Self::Login => 302,
            Self::CheckDenied(status) => status,
            Self::Address
            | Self::Origin
            | Self::Forbidden
            | Self::Scope
            // No challenge of HTTP asks for a certificate, and a response with 401 needs a challenge (RFC 9110, 15.5.2).
            | Self::NoCertificate
            | Self::CheckForbidden
            | Self::LoginDenied
            | Self::NoSubscription
            | Self::SubscriptionPending
            | Self::SubscriptionInactive => 403,
            Self::AmbiguousPath | Self::AmbiguousCredentials | Self::LoginState | Self::LoginCode => 400,
            Self::NoCredentials
            | Self::Key
            | Self::KeyExpired
            | Self::KeyRevoked
            | Self::Password
            | Self::StaleNonce
            | Self::CheckUnauthorized
            | Self::NoSession
            | Self::TokenInactive
            | Self::Token(_) => 401,
            // As for rates: the caller does too much (RFC 6585, 4), not the gateway (503).
            Self::RateLimit | Self::Concurrency | Self::Quota => 429,
        }
    }
}

/// An encoder failed, which happens only for lack of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the encoder failed")]
pub(crate) struct EncoderError;

/// Why an exchange did not end properly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Client(#[from] ClientFault),
    #[error(transparent)]
    Upstream(#[from] Failure),
    #[error(transparent)]
    Encoder(#[from] EncoderError),
}

impl Fault {
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::Client(fault) => fault.status(),
            Self::Upstream(failure) => failure.status(),
            Self::Encoder(_) => 500,
        }
    }

    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Client(fault) => fault.reason(),
            Self::Upstream(failure) => failure.reason(),
            Self::Encoder(_) => "compression_failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_of_each_failure_matches_its_position_and_its_reason() {
        for (index, fault) in ClientFault::ALL.iter().enumerate() {
            assert_eq!(fault.index(), index);
        }
        for (index, fault) in ProxyHeaderFault::ALL.iter().enumerate() {
            assert_eq!(fault.index(), index);
        }
        for (index, fault) in TlsFault::ALL.iter().enumerate() {
            assert_eq!(fault.index(), index);
        }
        for (index, denial) in Denial::all().iter().enumerate() {
            assert_eq!(denial.index(), index);
        }
        assert_eq!(Failure::OverRetryBudget.index(), Failure::COUNT - 1);
        assert_eq!(Failure::OverRetryBudget.reason(), "over_retry_budget");
        assert_eq!(Failure::InvalidBackend.reason(), "invalid_backend");
        assert_eq!(Failure::OtherProtocol.reason(), "other_protocol");
        assert_eq!(Failure::RetriedStatus.reason(), "unwanted_status");
        assert_eq!(Failure::BodyTimeout.reason(), "body_timeout");
        assert_eq!(Failure::Unacknowledged.reason(), "unacknowledged");
    }
}
