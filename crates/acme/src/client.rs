//! The HTTP client of the ACME protocol, and the words for its errors.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient, Problem};

/// The most characters of a text of the ACME server in a message.
const TEXT_MAX: usize = 300;

/// A request to the ACME server.
pub type HttpRequest = http::Request<Bytes>;

/// A response of the ACME server.
pub type HttpResponse = http::Response<Bytes>;

/// Sends a request and reads the response, within a limit of time and a limit of size. The error is one line.
pub type Exchange =
    dyn Fn(HttpRequest) -> Pin<Box<dyn Future<Output = Result<HttpResponse, String>> + Send>> + Send + Sync;

/// The client for `instant_acme`.
pub(crate) struct Client(pub(crate) Arc<Exchange>);

impl HttpClient for Client {
    fn request(
        &self,
        request: http::Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let exchange = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(never) => match never {},
            };
            let response = exchange(http::Request::from_parts(head, body)).await;
            Ok(response.map_err(|fault| Error::Other(fault.into()))?.map(Full::new).into())
        })
    }
}

/// The kind of a failure, which decides about the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The ACME server is away, or sends answers that are no ACME.
    Server,
    /// A rate limit of the ACME server.
    RateLimit,
    /// The ACME server does not know the account.
    NoAccount,
    /// The order alone.
    Order,
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn of_order(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Order, message: message.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match &error {
            Error::Api(problem) => Self { kind: kind(problem), message: in_words(problem) },
            Error::Timeout(_) => Self::of_order("the ACME server did not finish the order in time"),
            Error::Json(_) => Self {
                kind: FailureKind::Server,
                message: cut(&format!("the ACME server sent an invalid answer: {error}")),
            },
            _ => Self { kind: FailureKind::Server, message: cut(&error.to_string()) },
        }
    }
}

fn kind(problem: &Problem) -> FailureKind {
    let is = |name: &str| {
        let kind =
            problem.r#type.as_deref().and_then(|kind| kind.strip_prefix("urn:ietf:params:acme:error:"));
        kind == Some(name)
    };
    match problem.status {
        _ if is("rateLimited") => FailureKind::RateLimit,
        _ if is("accountDoesNotExist") => FailureKind::NoAccount,
        Some(500..) => FailureKind::Server,
        _ if is("serverInternal") => FailureKind::Server,
        _ => FailureKind::Order,
    }
}

/// The problem of the ACME server in one line.
pub(crate) fn in_words(problem: &Problem) -> String {
    let kind = problem.r#type.as_deref().unwrap_or("no type");
    let kind = kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(kind);
    let mut text = format!("{kind}: {}", problem.detail.as_deref().unwrap_or("no detail"));
    for of in problem.subproblems.iter().take(3) {
        text.push_str(&format!("; {}", of.detail.as_deref().unwrap_or("no detail")));
    }
    cut(&text)
}

/// A text that a server chose, without an end of a line and with a limited length.
fn cut(text: &str) -> String {
    let line = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    line.take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> Failure {
        Error::Api(serde_json::from_str(text).expect("a problem")).into()
    }

    #[test]
    fn problems_of_the_server_are_short_lines_and_decide_about_the_next_attempt() {
        let of = |kind: &str, status: u16| {
            problem(&format!(
                r#"{{"type":"urn:ietf:params:acme:error:{kind}","detail":"why","status":{status}}}"#
            ))
        };
        for (name, status, kind) in [
            ("rateLimited", 429, FailureKind::RateLimit),
            ("accountDoesNotExist", 400, FailureKind::NoAccount),
            ("serverInternal", 500, FailureKind::Server),
            ("malformed", 503, FailureKind::Server),
            // Three nonces in a row were rejected, which says nothing about other orders.
            ("badNonce", 400, FailureKind::Order),
            ("rejectedIdentifier", 400, FailureKind::Order),
        ] {
            let failure = of(name, status);
            assert_eq!((failure.kind, failure.message), (kind, format!("{name}: why")));
        }
        let long = problem(&format!(r#"{{"detail":"a\nb{}"}}"#, "x".repeat(10_000)));
        assert!(
            long.message.starts_with("no type: a bx") && long.message.len() == TEXT_MAX,
            "{}",
            long.message
        );
    }
}
