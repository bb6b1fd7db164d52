//! The HTTP client for the gateway's own requests in the background: to servers of published keys, to trace collectors, and
//! to the admin interface of another process.
//!
//! Each exchange is limited in time and length. The client follows no redirects and makes no retries. The questions to
//! authorization services delay requests, so `feature/ext_auth` has connections of its own for them.

mod server;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use crate::deadline::after;
pub use server::{Server, ServerError};

/// The timeout of the TCP connect to one address: long enough for the first repetition of a lost SYN after 1 s.
const CONNECT: Duration = Duration::from_secs(3);

/// The longest head of a response, in bytes.
const HEAD: usize = 64 * 1024;

/// A client of one server. The client keeps one connection open between requests.
#[derive(Debug)]
pub struct HttpClient {
    server: Server,
    limits: HttpLimits,
    idle: Option<Connection>,
}

/// The limits of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// The timeout of the whole exchange, including the connect.
    pub timeout: Duration,
    /// The longest body of a response, in bytes.
    pub body: usize,
}

/// A response with any status.
#[derive(Debug)]
pub struct HttpResponse {
    /// The status of the response.
    pub status: StatusCode,
    /// The header of the response.
    pub headers: HeaderMap,
    /// The body of the response. The error is [`HttpError::Body`] or [`HttpError::Timeout`].
    pub body: Result<Bytes, HttpError>,
}

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The name of the server has no address, or no address accepts the connection.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The TLS handshake failed.
    #[error("the TLS handshake failed: {0}")]
    Tls(io::Error),
    /// The server does not respond with HTTP/1, or closes the connection.
    #[error("the HTTP exchange failed: {0}")]
    Http(#[from] hyper::Error),
    /// The body is incomplete or too long.
    #[error("the server's response is incomplete, or longer than {0} bytes")]
    Body(usize),
    /// The exchange exceeds the timeout.
    #[error("the server did not respond within {0:?}")]
    Timeout(Duration),
}

/// A connection without a request in flight.
#[derive(Debug)]
struct Connection {
    requests: SendRequest<Full<Bytes>>,
    /// Drives the connection, and ends with it.
    _driver: JoinSet<hyper::Result<()>>,
}

impl HttpClient {
    /// A client without a connection.
    #[must_use]
    pub fn new(server: Server, limits: HttpLimits) -> Self {
        Self { server, limits, idle: None }
    }

    /// Sends a GET request, and reads the response.
    ///
    /// # Errors
    /// If the server does not respond with HTTP within the timeout.
    pub async fn get(&mut self, lines: &[(HeaderName, HeaderValue)]) -> Result<HttpResponse, HttpError> {
        self.send(Method::GET, &self.server.target.clone(), lines, Bytes::new()).await
    }

    /// Sends a POST request, and reads the response.
    ///
    /// # Errors
    /// If the server does not respond with HTTP within the timeout.
    pub async fn post(
        &mut self,
        lines: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<HttpResponse, HttpError> {
        self.send(Method::POST, &self.server.target.clone(), lines, body).await
    }

    /// Sends a request for a path and a query of the server, and reads the response.
    ///
    /// # Errors
    /// If the server does not respond with HTTP within the timeout.
    pub async fn send(
        &mut self,
        method: Method,
        target: &str,
        lines: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<HttpResponse, HttpError> {
        self.exchange(self.request(method, target, lines, body)).await
    }

    fn request(
        &self,
        method: Method,
        target: &str,
        lines: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        // Both texts come from a valid URL.
        *request.uri_mut() = Uri::try_from(target).unwrap_or_default();
        let headers = request.headers_mut();
        headers.extend(HeaderValue::from_str(&self.server.authority).ok().map(|host| (HOST, host)));
        let agent = concat!("sluicegate/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        headers.extend(lines.iter().cloned());
        request
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<HttpResponse, HttpError> {
        let due = after(Instant::now(), self.limits.timeout);
        let late = HttpError::Timeout(self.limits.timeout);
        // A connection is dropped unless the response ends within the limits.
        let idle = self.idle.take().filter(|connection| !connection.requests.is_closed());
        let responded = async {
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            connection.requests.ready().await?;
            let response = connection.requests.send_request(request).await?;
            Ok::<_, HttpError>((connection, response))
        };
        let Ok(responded) = timeout_at(due, responded).await else { return Err(late) };
        let (connection, response) = responded?;
        let (head, body) = response.into_parts();
        let body = match timeout_at(due, Limited::new(body, self.limits.body).collect()).await {
            Ok(Ok(body)) => {
                self.idle = Some(connection);
                Ok(body.to_bytes())
            }
            Ok(Err(_)) => Err(HttpError::Body(self.limits.body)),
            Err(_) => Err(late),
        };
        Ok(HttpResponse { status: head.status, headers: head.headers, body })
    }

    async fn connect(&self) -> Result<Connection, HttpError> {
        let Server { host, port, tls, .. } = &self.server;
        let connected = async { first_open(lookup_host((&**host, *port)).await?, CONNECT).await };
        let tcp = connected.await.map_err(HttpError::Connect)?;
        // The first request shows a connection that broke already.
        let _ = tcp.set_nodelay(true);
        let Some((config, name)) = tls else { return Connection::over(tcp).await };
        let secured = TlsConnector::from(config.clone()).connect(name.clone(), tcp).await;
        Connection::over(secured.map_err(HttpError::Tls)?).await
    }
}

/// Connects to the first address that accepts the connection within the time.
async fn first_open(
    addresses: impl IntoIterator<Item = SocketAddr>,
    time: Duration,
) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match timeout(time, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

impl Connection {
    async fn over<S>(stream: S) -> Result<Self, HttpError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (requests, connection) =
            http1::Builder::new().max_buf_size(HEAD).handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        Ok(Self { requests, _driver: driver })
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_testkit::backend::{Backend, Behaviour};
    use sluicegate_testkit::client::LIMIT;
    use sluicegate_testkit::hole::Hole;

    use super::*;

    const SHORT: Duration = Duration::from_millis(200);

    async fn server(behaviour: Behaviour) -> (Backend, HttpClient) {
        let backend = Backend::start(behaviour).await.expect("a port");
        let client = client(&backend, LIMIT);
        (backend, client)
    }

    fn client(backend: &Backend, timeout: Duration) -> HttpClient {
        let url = format!("http://{}/a?b=c", backend.addr());
        HttpClient::new(Server::new(&url, &[]).expect("a URL"), HttpLimits { timeout, body: 1000 })
    }

    #[tokio::test]
    async fn client_reuses_a_connection_while_the_server_keeps_the_connection_open() {
        let (backend, mut client) = server(Behaviour::sized(1000)).await;
        for _ in 0..3 {
            let response = client.get(&[]).await.expect("a response");
            assert_eq!((response.status, response.body.expect("a body").len()), (StatusCode::OK, 1000));
        }
        assert_eq!((backend.requests(), backend.accepted()), (3, 1));
        let request = backend.last_request().expect("a request");
        assert_eq!(
            (&*request.target, request.header("host")),
            ("/a?b=c", Some(&*backend.addr().to_string()))
        );
    }

    #[tokio::test]
    async fn client_connects_to_the_next_address_if_an_address_refuses_or_times_out() {
        let backend = Backend::start(Behaviour::ok()).await.expect("a port");
        let (mut closed, hole) =
            (Backend::start(Behaviour::ok()).await.expect("a port"), Hole::start().await.expect("a port"));
        closed.kill().await;
        let tcp = first_open([closed.addr(), hole.addr(), backend.addr()], SHORT).await.expect("a server");
        assert_eq!(tcp.peer_addr().expect("an address"), backend.addr());
        let failure = first_open([closed.addr(), hole.addr()], SHORT).await.expect_err("no server");
        assert_eq!(failure.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn client_does_not_follow_redirects() {
        let elsewhere = Backend::start(Behaviour::ok()).await.expect("a port");
        let location = format!("Location: http://{}/", elsewhere.addr());
        let redirect = format!("HTTP/1.1 302 x\r\n{location}\r\nContent-Length: 0\r\n\r\n");
        let (_backend, mut client) = server(Behaviour::raw(redirect)).await;
        assert_eq!(client.get(&[]).await.expect("a response").status, StatusCode::FOUND);
        assert_eq!(elsewhere.accepted(), 0);
    }

    #[tokio::test]
    async fn client_rejects_a_body_beyond_the_limits_and_closes_the_connection() {
        let too_slow = Behaviour::chunked(vec!["x"; 100], LIMIT, &[]);
        for behaviour in [Behaviour::sized(1001), Behaviour::too_little(10).then_close(), too_slow] {
            let (backend, _) = server(behaviour).await;
            let mut client = client(&backend, SHORT);
            let response = client.get(&[]).await.expect("a head");
            assert_eq!(response.status, StatusCode::OK);
            let error = response.body.expect_err("no whole body");
            assert!(matches!(error, HttpError::Body(1000) | HttpError::Timeout(SHORT)), "{error}");
            assert!(client.idle.is_none());
        }
    }

    #[tokio::test]
    async fn client_fails_within_the_timeout_without_a_valid_response() {
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(2 * HEAD));
        for behaviour in [Behaviour::garbage(), Behaviour::close_on_accept(), Behaviour::raw(long)] {
            let (_backend, mut client) = server(behaviour).await;
            assert!(matches!(client.get(&[]).await, Err(HttpError::Http(_))));
        }
        for behaviour in [Behaviour::silent(), Behaviour::hold_on_accept()] {
            let (backend, _) = server(behaviour).await;
            assert!(matches!(client(&backend, SHORT).get(&[]).await, Err(HttpError::Timeout(SHORT))));
        }
        let (mut backend, mut client) = server(Behaviour::ok()).await;
        backend.kill().await;
        assert!(matches!(client.get(&[]).await, Err(HttpError::Connect(_))));
    }
}
