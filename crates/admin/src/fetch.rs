//! A client for the admin interface of a running gateway.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{CONNECTION, HeaderValue};
use serde::de::DeserializeOwned;
use sluicegate_proxy::http_client::{HttpClient, HttpError, HttpLimits, Server};

/// The limits of an exchange. A document of a large cluster is long.
const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(10), body: 256 * 1024 * 1024 };

/// The longest excerpt of an error response in messages, in characters.
const FIRST_MAX: usize = 200;

/// The reason why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The connect failed.
    #[error(
        "cannot connect to the admin interface at {address}: {error}; start the gateway, or name its --admin address with --admin"
    )]
    Connect {
        /// The address of the interface.
        address: SocketAddr,
        /// The error of the connect.
        error: io::Error,
    },
    /// The connect or the response took too long.
    #[error(
        "http://{address}{path} did not respond within {:?}; name the --admin address of a gateway with --admin",
        LIMITS.timeout
    )]
    Timeout {
        /// The address of the interface.
        address: SocketAddr,
        /// The requested path.
        path: String,
    },
    /// The response has an error status.
    #[error("http://{address}{path} responds with {status}: {first}{}", remedy(first))]
    Status {
        /// The address of the interface.
        address: SocketAddr,
        /// The requested path.
        path: String,
        /// The status of the response.
        status: hyper::StatusCode,
        /// The first line of the response, shortened.
        first: String,
    },
    /// The response is not a document.
    #[error(
        "http://{address}{path} does not respond as the admin interface of a gateway: {problem}; \
         name the --admin address of a gateway with --admin"
    )]
    Answer {
        /// The address of the interface.
        address: SocketAddr,
        /// The requested path.
        path: String,
        /// The fault in the response.
        problem: String,
    },
}

/// The remedy after an excerpt of a response. A sentence of an admin interface names its own remedy.
fn remedy(first: &str) -> &'static str {
    match first.ends_with('.') {
        true => "",
        false => "; name the --admin address of a gateway with --admin",
    }
}

/// Fetches a JSON document, such as `/routes`, from the admin interface at this address.
///
/// # Errors
/// If the connect fails, no response arrives within 10 s, or the response is not a JSON document.
pub async fn fetch<T: DeserializeOwned>(address: SocketAddr, path: &str) -> Result<T, FetchError> {
    let body = exchange(address, path).await?;
    let answer = |problem| FetchError::Answer { address, path: path.to_owned(), problem };
    serde_json::from_slice(&body).map_err(|error| answer(error.to_string()))
}

/// Fetches a text, such as `/readyz`, from the admin interface at this address.
///
/// # Errors
/// The errors of [`fetch`].
pub async fn fetch_text(address: SocketAddr, path: &str) -> Result<String, FetchError> {
    Ok(String::from_utf8_lossy(&exchange(address, path).await?).into_owned())
}

async fn exchange(address: SocketAddr, path: &str) -> Result<Bytes, FetchError> {
    let answer = |problem| FetchError::Answer { address, path: path.to_owned(), problem };
    let failed = |error| match error {
        HttpError::Connect(error) => FetchError::Connect { address, error },
        HttpError::Timeout(_) => FetchError::Timeout { address, path: path.to_owned() },
        error => answer(error.to_string()),
    };
    let server = Server::new(&format!("http://{address}{path}"), &[]);
    let server = server.map_err(|error| answer(error.to_string()))?;
    // The server would wait for another request.
    let close = [(CONNECTION, HeaderValue::from_static("close"))];
    let response = HttpClient::new(server, LIMITS).get(&close).await.map_err(failed)?;
    let (status, body) = (response.status, response.body.map_err(failed)?);
    if !status.is_success() {
        let text = String::from_utf8_lossy(&body);
        let first: String = text.lines().next().unwrap_or_default().chars().take(FIRST_MAX).collect();
        let first = first.escape_debug().to_string();
        return Err(FetchError::Status { address, path: path.to_owned(), status, first });
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_about_a_status_has_one_remedy() {
        let said = |first: &str| {
            let (address, path) = (SocketAddr::from(([127, 0, 0, 1], 9901)), "/audit".to_owned());
            let status = hyper::StatusCode::NOT_FOUND;
            FetchError::Status { address, path, status, first: first.to_owned() }.to_string()
        };
        let own = said("This process has no audit trail. Start sluicegate serve with --audit.");
        assert!(
            own.ends_with(
                "404 Not Found: This process has no audit trail. Start sluicegate serve with --audit."
            ),
            "{own}"
        );
        let other = said("<!DOCTYPE html>");
        assert!(
            other.ends_with("<!DOCTYPE html>; name the --admin address of a gateway with --admin"),
            "{other}"
        );
    }
}
