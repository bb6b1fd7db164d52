//! Requests and responses.

use std::io;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use sluicegate_http_server::{Bounds, Counters, Handler, Kind, Server, Transport, Watched};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::review::{Request as Asked, Review};
use crate::{
    AUDIT, BODY_TIMEOUT, Certificate, HEAD_TIMEOUT, Judge, JudgeError, MAX_AGE, MAX_AT_ONCE, MAX_CONNECTIONS,
    MAX_REVIEW, MAX_VALUES, Outcome, Reviews, Verdict, Witness,
};

/// The webhook before its start.
#[derive(Clone)]
pub struct Webhook {
    /// The certificate of the server.
    pub certificate: Arc<Certificate>,
    /// The judge of objects.
    pub judge: Judge,
    /// The witness of writes, if there is an audit trail.
    pub witness: Option<Witness>,
    /// The counters of reviews.
    pub reviews: Arc<Reviews>,
}

impl Webhook {
    /// Serves until the future is dropped, which closes every connection.
    ///
    /// # Errors
    /// If `listener` is not a listening socket.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        let bounds = Bounds { connections: MAX_CONNECTIONS, reserve: 0, head: HEAD_TIMEOUT, age: MAX_AGE };
        let transport = Tls(self.certificate);
        let handler = Pages {
            judge: self.judge,
            witness: self.witness,
            reviews: self.reviews,
            at_once: Semaphore::new(MAX_AT_ONCE),
            parser: Semaphore::new(1),
        };
        let counters = Arc::<Counters>::default();
        Server { name: "the admission webhook", bounds, counters, transport, handler }.serve(listener).await
    }
}

/// TLS with the current certificate.
struct Tls(Arc<Certificate>);

impl Transport for Tls {
    type Stream = TlsStream<Watched>;

    async fn open(&self, stream: Watched) -> io::Result<Self::Stream> {
        let certificate = self.0.clone();
        let config = spawn_blocking(move || certificate.config()).await.map_err(io::Error::other)?;
        TlsAcceptor::from(config).accept(stream).await
    }
}

struct Pages {
    judge: Judge,
    witness: Option<Witness>,
    reviews: Arc<Reviews>,
    /// Permits to hold a body.
    at_once: Semaphore,
    /// The permit to parse a body, until its verdict.
    parser: Semaphore,
}

/// A response without a verdict: the status, and the text for the log of the API server.
type Failure = (StatusCode, String);

impl Handler for Pages {
    type Body = Full<Bytes>;

    async fn respond(&self, request: Request<Incoming>, _: Kind) -> Response<Full<Bytes>> {
        match self.review(request).await {
            Ok((outcome, review)) => {
                if let Some(outcome) = outcome {
                    self.reviews.count(outcome);
                }
                response(StatusCode::OK, "application/json", review)
            }
            Err((status, text)) => {
                self.reviews.count(Outcome::Failed);
                tracing::debug!(%status, "the admission webhook rejects a request: {text}");
                let mut response = response(status, "text/plain; charset=utf-8", format!("{text}\n").into());
                if status == StatusCode::METHOD_NOT_ALLOWED {
                    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
                }
                response
            }
        }
    }
}

impl Pages {
    /// The response to a review, with its outcome. A request for the audit trail has no outcome.
    async fn review(&self, request: Request<Incoming>) -> Result<(Option<Outcome>, Vec<u8>), Failure> {
        if request.method() != Method::POST {
            let text = "The webhook accepts only POST with an AdmissionReview";
            return Err((StatusCode::METHOD_NOT_ALLOWED, text.to_owned()));
        }
        let is_for_audit = request.uri().path() == AUDIT;
        // The permit lasts until the body is freed, after the parser.
        let received = async {
            let permit = self.at_once.acquire().await;
            (permit, body(request.into_body()).await)
        };
        let (_permit, body) = timeout(BODY_TIMEOUT, received).await.map_err(|_| {
            let text = format!("The body did not arrive within {} s", BODY_TIMEOUT.as_secs());
            (StatusCode::REQUEST_TIMEOUT, text)
        })?;
        let body = body?;
        let _parser = self.parser.acquire().await;
        // A large body takes tens of milliseconds, in which other tasks of this thread would wait.
        let witness = self.witness.clone().filter(|_| is_for_audit);
        let asked = spawn_blocking(move || {
            let mut asked = asked(&body)?;
            if let Some(witness) = witness
                && let Some(witnessed) = asked.witnessed()
            {
                witness(witnessed);
            }
            Ok(asked)
        })
        .await;
        let mut asked = asked
            .unwrap_or_else(|_| Err((StatusCode::INTERNAL_SERVER_ERROR, "The parser failed".to_owned())))?;
        let verdict = match asked.reviewed() {
            None => Verdict::default(),
            Some(_) if is_for_audit => Verdict::default(),
            Some(object) => (self.judge)(object).await.map_err(|error| {
                let status = match error {
                    JudgeError::NotReviewed(_) => StatusCode::BAD_REQUEST,
                    JudgeError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
                };
                (status, error.to_string())
            })?,
        };
        let outcome = if verdict.errors.is_empty() { Outcome::Allowed } else { Outcome::Denied };
        let review = serde_json::to_vec(&Review::new(asked.uid, &verdict))
            .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(((!is_for_audit).then_some(outcome), review))
    }
}

/// Reads a body of at most [`MAX_REVIEW`].
async fn body(body: Incoming) -> Result<Bytes, Failure> {
    let too_large = || {
        (
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("The AdmissionReview exceeds the limit of {MAX_REVIEW} bytes"),
        )
    };
    if body.size_hint().lower() > MAX_REVIEW as u64 {
        return Err(too_large());
    }
    match Limited::new(body, MAX_REVIEW).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err((StatusCode::BAD_REQUEST, format!("The body ended early: {error}"))),
    }
}

/// Parses a body of at most [`MAX_VALUES`].
fn asked(body: &[u8]) -> Result<Asked, Failure> {
    let values = body.iter().filter(|byte| matches!(byte, b',' | b'{' | b'[')).count();
    if values > MAX_VALUES {
        let text = format!("The AdmissionReview exceeds the limit of {MAX_VALUES} values");
        return Err((StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    Asked::read(body).map_err(|text| (StatusCode::BAD_REQUEST, text))
}

fn response(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
