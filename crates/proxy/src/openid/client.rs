//! The gateway as a client of an authorization server (RFC 6749): it sends forms, and reads JSON.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use sluicegate_model::feature::authentication::oidc::ClientAuthentication;
use sluicegate_model::value::secret::KeyBytes;

use super::published::LENGTH_MAX;
use crate::http_client::{HttpClient, HttpError, HttpLimits, Server};
use crate::query::escape;

/// The identity of the gateway at an authorization server.
pub(crate) struct OAuthClient {
    pub(crate) id: Box<str>,
    secret: Option<KeyBytes>,
    how: ClientAuthentication,
    pub(crate) timeout: Duration,
}

/// A body of `application/x-www-form-urlencoded`, or a query.
#[derive(Default)]
pub(crate) struct Form(Vec<u8>);

/// The reason why an authorization server gives no valid response. It never contains a token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OAuthError {
    #[error(transparent)]
    Exchange(#[from] HttpError),
    /// The server rejects the request (RFC 6749, 5.2): its error code.
    #[error("the server responds with {status}: {code}")]
    Rejected { status: StatusCode, code: String },
    #[error("the server responds with {0}, not 200")]
    Status(StatusCode),
    #[error("the server's response is not the expected JSON")]
    Json,
}

/// An error response (RFC 6749, 5.2).
#[derive(serde::Deserialize)]
struct ErrorResponse {
    error: String,
}

impl OAuthClient {
    pub(crate) fn new(
        id: &str,
        secret: Option<KeyBytes>,
        how: ClientAuthentication,
        timeout: Duration,
    ) -> Self {
        Self { id: id.into(), secret, how, timeout }
    }

    /// An HTTP client of this server.
    pub(crate) fn connect(&self, server: &Server) -> HttpClient {
        HttpClient::new(server.clone(), HttpLimits { timeout: self.timeout, body: LENGTH_MAX })
    }

    /// Sends a form with the credentials of the gateway. Returns the body of the response.
    pub(crate) async fn post(&self, client: &mut HttpClient, mut form: Form) -> Result<Bytes, OAuthError> {
        let mut lines = vec![
            (CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")),
            (ACCEPT, HeaderValue::from_static("application/json")),
        ];
        match (&self.secret, self.how) {
            (Some(secret), ClientAuthentication::Basic) => lines.extend(self.basic(secret)),
            (Some(secret), ClientAuthentication::Post) => {
                form.add("client_id", self.id.as_bytes());
                form.add("client_secret", secret.get());
            }
            // RFC 6749, 3.2.1: a client without a secret sends its ID.
            (None, _) => form.add("client_id", self.id.as_bytes()),
        }
        let response = client.post(&lines, Bytes::from(form.0)).await?;
        let body = response.body?;
        if response.status != StatusCode::OK {
            return Err(match serde_json::from_slice::<ErrorResponse>(&body) {
                Ok(ErrorResponse { error }) if response.status.is_client_error() => {
                    OAuthError::Rejected { status: response.status, code: printable(&error) }
                }
                _ => OAuthError::Status(response.status),
            });
        }
        Ok(body)
    }

    /// The credentials in the form of Basic authentication (RFC 6749, 2.3.1).
    fn basic(&self, secret: &KeyBytes) -> Option<(http::HeaderName, HeaderValue)> {
        let mut text = Vec::new();
        escape_form(&mut text, self.id.as_bytes());
        text.push(b':');
        escape_form(&mut text, secret.get());
        let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(text))).ok()?;
        value.set_sensitive(true);
        Some((AUTHORIZATION, value))
    }
}

impl std::fmt::Debug for OAuthClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OAuthClient").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Form {
    pub(crate) fn add(&mut self, name: &str, value: &[u8]) {
        if !self.0.is_empty() {
            self.0.push(b'&');
        }
        escape(&mut self.0, name.as_bytes());
        self.0.push(b'=');
        escape(&mut self.0, value);
    }

    /// The URL with the form as its query, or behind its query.
    pub(crate) fn behind(&self, url: &str) -> Vec<u8> {
        let between: &[u8] = match url.rsplit_once('?') {
            None => b"?",
            Some((_, query)) if query.is_empty() || query.ends_with('&') => b"",
            Some(_) => b"&",
        };
        [url.as_bytes(), between, &self.0].concat()
    }
}

/// Escapes text as in a form: a space is `+`.
fn escape_form(out: &mut Vec<u8>, text: &[u8]) {
    for (index, word) in text.split(|byte| *byte == b' ').enumerate() {
        if index > 0 {
            out.push(b'+');
        }
        escape(out, word);
    }
}

/// A code of the peer for logs: at most 64 printable characters.
pub(crate) fn printable(code: &str) -> String {
    code.chars().filter(|char| char.is_ascii_graphic() || *char == ' ').take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_credentials_are_escaped_as_in_a_form() {
        let secret = KeyBytes::new(&b"a:b %+\xc3\xa4"[..]).expect("a secret");
        let timeout = Duration::from_secs(1);
        let client = OAuthClient::new("shop:1 x", Some(secret), ClientAuthentication::Basic, timeout);
        let (_, value) = client.basic(client.secret.as_ref().expect("a secret")).expect("a header");
        let text = value.to_str().expect("text").strip_prefix("Basic ").expect("Basic");
        let text = String::from_utf8(STANDARD.decode(text).expect("base64")).expect("text");
        assert_eq!(text, "shop%3A1+x:a%3Ab+%25%2B%C3%A4");
        assert!(!format!("{client:?}").contains("a:b"));
    }

    #[test]
    fn parameters_are_added_to_a_url_with_or_without_a_query() {
        let mut form = Form::default();
        form.add("a", b"1 2");
        form.add("b", b"&");
        for (url, expected) in [
            ("https://a/x", "https://a/x?a=1%202&b=%26"),
            ("https://a/x?", "https://a/x?a=1%202&b=%26"),
            ("https://a/x?c=d", "https://a/x?c=d&a=1%202&b=%26"),
        ] {
            assert_eq!(String::from_utf8(form.behind(url)).expect("text"), expected);
        }
    }
}
