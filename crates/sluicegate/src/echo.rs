//! `sluicegate echo`: a back end for demonstrations and experiments.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::address::listen_address;

/// About how much the metadata is, as in the published experiment.
const METADATA: usize = 1024;
/// The largest answer that a URL can ask for.
const MAX_SIZE: usize = 1 << 30;

#[derive(Debug, Args)]
#[command(after_help = "\
The URL shapes the answer: ?s=SIZE bytes of body (k and m are understood), ?t=MS milliseconds of delay, \
?r=STATUS as the status, joined by &. /healthz answers 200.")]
pub(crate) struct EchoArgs {
    /// Where to listen; may be given several times.
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address, default_value = "127.0.0.1:9000")]
    listen: Vec<SocketAddr>,
    /// The server's name in the answers.
    #[arg(long, value_name = "NAME", default_value = "echo")]
    name: String,
}

pub(crate) fn run(args: &EchoArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut servers = tokio::task::JoinSet::new();
        for &address in &args.listen {
            let listener =
                TcpListener::bind(address).await.with_context(|| format!("cannot listen at {address}"))?;
            tracing::info!(%address, "echo serves");
            servers.spawn(serve(listener, address, args.name.clone()));
        }
        tokio::select! {
            _ = servers.join_next() => Ok(()),
            signal = crate::signals::terminated() => signal,
        }
    })
}

async fn serve(listener: TcpListener, address: SocketAddr, name: String) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        // It only matters for speed.
        let _ = stream.set_nodelay(true);
        let name = name.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, address, peer, name.clone()));
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // A client that breaks off is its own affair.
            let _ = connection.await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    address: SocketAddr,
    peer: SocketAddr,
    name: String,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let shape = match Shape::of(request.uri().query().unwrap_or_default()) {
        Ok(shape) => shape,
        Err(message) => return Ok(respond(StatusCode::BAD_REQUEST, message.into())),
    };
    let body = match (request.uri().path(), shape.size) {
        ("/healthz", _) => Bytes::from_static(b"ok\n"),
        (_, Some(size)) => vec![b'x'; size].into(),
        (_, None) => metadata(&request, address, peer, &name).into(),
    };
    // The whole request is read before it is answered, as a real application does. What breaks off while it
    // is read gets no answer anyway.
    let mut incoming = request.into_body();
    while let Some(Ok(_)) = incoming.frame().await {}
    if let Some(delay) = shape.delay {
        tokio::time::sleep(delay).await;
    }
    Ok(respond(shape.status, body))
}

fn respond(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// What the URL asks for.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    size: Option<usize>,
    delay: Option<Duration>,
    status: StatusCode,
}

impl Shape {
    fn of(query: &str) -> Result<Self, String> {
        let mut shape = Self { size: None, delay: None, status: StatusCode::OK };
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let wrong = || format!("{key}={value} is not understood: s=SIZE, t=MS, r=STATUS\n");
            match key {
                "s" => shape.size = Some(size(value).ok_or_else(wrong)?),
                "t" => shape.delay = Some(Duration::from_millis(value.parse().map_err(|_| wrong())?)),
                "r" => {
                    shape.status = value
                        .parse()
                        .ok()
                        .filter(|status: &StatusCode| (200..=599).contains(&status.as_u16()))
                        .ok_or_else(wrong)?;
                }
                _ => {}
            }
        }
        Ok(shape)
    }
}

fn size(value: &str) -> Option<usize> {
    let (digits, unit) = match value.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => value.strip_suffix(['m', 'M']).map_or((value, 1), |digits| (digits, 1024 * 1024)),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit).filter(|size| *size <= MAX_SIZE)
}

/// What the server knows of itself and of the request, made up to about 1 KB.
fn metadata(request: &Request<Incoming>, address: SocketAddr, peer: SocketAddr, name: &str) -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut text = String::with_capacity(METADATA + 256);
    let request_id = request.headers().get("x-request-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let request_id = request_id.unwrap_or_else(|| format!("{:032x}", fastrand::u128(..)));
    // Writing to a String does not fail.
    let _ = write!(
        text,
        "Server address: {address}\nServer name: {name}\nDate: {}.{:03}\nURI: {}\nRequest ID: {request_id}\n\
         Method: {}\nPeer: {peer}\n",
        since.as_secs(),
        since.subsec_millis(),
        request.uri(),
        request.method(),
    );
    for (name, value) in request.headers() {
        let _ = writeln!(text, "{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    while text.len() + 1 < METADATA {
        let missing = METADATA - 1 - text.len();
        text.extend(std::iter::repeat_n('.', missing.min(79)));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_shapes_the_answer() {
        let shape = Shape::of("s=2k&t=15&r=503&other=1").expect("understood");
        assert_eq!((shape.size, shape.delay), (Some(2048), Some(Duration::from_millis(15))));
        assert_eq!(shape.status, StatusCode::SERVICE_UNAVAILABLE);
        for wrong in ["s=x", "s=9999999m", "t=-1", "r=99", "r=101", "r=abc"] {
            assert!(Shape::of(wrong).is_err(), "{wrong}");
        }
    }
}
