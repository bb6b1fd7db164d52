//! The pods of the tests, which run in threads.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::socket::read_some;

/// The time that a thread waits for the next bytes of a gateway.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts `count` pods at different addresses with the same port, as the pods of a Service have. The pods run until the
/// process of the tests ends.
pub(super) fn start(network: [u8; 2], count: u8) -> io::Result<Vec<SocketAddr>> {
    let [a, b] = network;
    // A port that is free at one address may be taken at another.
    for _ in 0..20 {
        let first = TcpListener::bind((Ipv4Addr::new(127, a, b, 1), 0))?;
        let port = first.local_addr()?.port();
        let others = (2..=count).map(|d| TcpListener::bind((Ipv4Addr::new(127, a, b, d), port)));
        let Ok(listeners) = [Ok(first)].into_iter().chain(others).collect::<io::Result<Vec<_>>>() else {
            continue;
        };
        let addrs = listeners.iter().map(TcpListener::local_addr).collect();
        for listener in listeners {
            thread::spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    // The pod ignores an error of the connection, because a gateway may disconnect.
                    thread::spawn(move || drop(answer(stream)));
                }
            });
        }
        return addrs;
    }
    Err(io::Error::other("there is no port that is free at all addresses"))
}

/// Starts a pod at the port of `beside` that reads requests, and closes each connection instead of a response.
pub(super) fn start_broken(beside: SocketAddr) -> io::Result<SocketAddr> {
    let IpAddr::V4(ip) = beside.ip() else { return Err(io::Error::other("the pods of tests have IPv4")) };
    let [a, b, c, _] = ip.octets();
    let listener = TcpListener::bind((Ipv4Addr::new(a, b, c, 201), beside.port()))?;
    let addr = listener.local_addr();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            thread::spawn(move || {
                stream.set_read_timeout(Some(PATIENCE)).and_then(|()| read_some(&mut stream, &mut [0; 4096]))
            });
        }
    });
    addr
}

/// Responds to each request with the head of the request as the body, and with the address of the pod in the header
/// `x-pod`.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let pod = stream.local_addr()?;
    let mut received = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let read = read_some(&mut stream, &mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        received.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&received).into_owned();
        if let Some((lines, body)) = text.split_once("\r\n\r\n")
            && body.len() >= length_of_body(lines)
        {
            let head = format!("{lines}\r\n\r\n");
            let length = head.len();
            let answer = format!("HTTP/1.1 200 OK\r\nx-pod: {pod}\r\ncontent-length: {length}\r\n\r\n");
            stream.write_all((answer + &head).as_bytes())?;
            received.clear();
        }
    }
}

/// The length of the body that follows a head.
fn length_of_body(head: &str) -> usize {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let mut lengths = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths.next().and_then(|(_, value)| value.parse().ok()).unwrap_or_default()
}
