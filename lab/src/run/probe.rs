//! Checks whether a gateway serves its new configuration, by single requests beside the load on separate connections.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use sluicegate_netns::Namespace;

use crate::gateway::HOST;
use crate::gateway::api::Call;

/// The timeout of a request.
const LIMIT: Duration = Duration::from_secs(1);

/// The longest time until a change takes effect.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time between two requests.
const PAUSE: Duration = Duration::from_millis(20);

/// The part of a response that is read.
const MOST: u64 = 64 * 1024;

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The pod that the response names.
    pub(crate) pod: Option<String>,
}

pub(crate) fn accepts(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, LIMIT).is_ok()
}

/// Requests a path over plain HTTP.
pub(crate) fn get(address: SocketAddr, host: &str, path: &str) -> io::Result<Answer> {
    call(address, host, path, &Call::good(None))
}

/// Makes a call over plain HTTP.
pub(crate) fn call(address: SocketAddr, host: &str, path: &str, call: &Call) -> io::Result<Answer> {
    let mut stream = connect(address)?;
    stream.write_all(call.request(host, path, "x-lab-id: probe\r\n").as_bytes())?;
    let mut bytes = Vec::new();
    stream.take(MOST).read_to_end(&mut bytes)?;
    answer(&String::from_utf8_lossy(&bytes)).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn answer(text: &str) -> Option<Answer> {
    let head = text.split("\r\n\r\n").next()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let mut headers = lines.filter_map(|line| line.split_once(": "));
    let pod = headers.find(|(name, _)| name.eq_ignore_ascii_case("x-lab-pod"));
    Some(Answer { status, pod: pod.map(|(_, value)| value.to_owned()) })
}

/// The certificate on a new connection, in DER.
pub(crate) fn certificate(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Vec<u8>> {
    let mut stream = connect(address)?;
    let name = ServerName::try_from(HOST).map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)?;
    }
    let leaf = tls.peer_certificates().and_then(|chain| chain.first());
    leaf.map(|leaf| leaf.to_vec()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
}

/// The time until this holds, with checks in the namespace as long as `is_wanted`; [`None`] if it takes too long.
pub(crate) fn follow(
    namespace: &Namespace,
    mut holds: impl FnMut() -> bool + Send,
    is_wanted: impl Fn() -> bool + Send,
) -> anyhow::Result<Option<Duration>> {
    let told = Instant::now();
    namespace.enter(move || {
        while told.elapsed() < PATIENCE && is_wanted() {
            if holds() {
                return Some(told.elapsed());
            }
            std::thread::sleep(PAUSE);
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_reads_status_and_pod_name_from_the_response() {
        let pod = Some("pod-7".to_owned());
        assert_eq!(
            answer("HTTP/1.1 200 OK\r\nA: b\r\nX-Lab-Pod: pod-7\r\n\r\nx"),
            Some(Answer { status: 200, pod })
        );
        assert_eq!(answer("HTTP/1.1 404 Not Found\r\n\r\n"), Some(Answer { status: 404, pod: None }));
        assert_eq!(answer("SSH-2.0"), None);
    }
}
