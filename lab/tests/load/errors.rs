//! Each class of error, provoked.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::server::{Server, lab, load, number, ok, only};

const SHORT: &str = "-t2 -c4 -d300ms -R100";

#[test]
fn load_command_counts_refused_connections() {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let report = load(&format!("{SHORT} http://{addr}/"));
    assert_eq!(only(&report, "/errors/connect"), number(&report, "/errors/kinds/connect_refused"));
    assert_eq!(number(&report, "/requests/sent"), 0);
    assert_eq!(number(&report, "/requests/unsent"), 30);
}

#[test]
fn load_command_counts_timeouts_of_connection_attempts() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    // Linux queues one connection more than the given backlog, and responds to no further connect.
    rustix::net::listen(&listener, 0).unwrap();
    let _filler = TcpStream::connect(addr).unwrap();
    let report = load(&format!("{SHORT} --timeout 100ms http://{addr}/"));
    assert_eq!(only(&report, "/errors/timeout"), number(&report, "/errors/kinds/connect_timeout"));
}

#[test]
fn load_command_counts_response_timeouts_and_opens_new_connections() {
    let server = Server::answering(|_, _| {
        thread::sleep(Duration::from_secs(60));
        Ok(())
    });
    let report = load(&format!("{SHORT} --timeout 50ms {}", server.url()));
    let timeouts = only(&report, "/errors/timeout");
    assert_eq!(timeouts, number(&report, "/errors/kinds/answer_timeout"));
    assert_eq!(timeouts, number(&report, "/requests/sent"));
    assert!(number(&report, "/connected") > 4, "it goes on with new connections: {report:#}");
}

#[test]
fn load_command_counts_connections_closed_before_a_response() {
    let server = Server::answering(|_, _| Err(std::io::ErrorKind::Other.into()));
    let report = load(&format!("{SHORT} {}", server.url()));
    assert_eq!(only(&report, "/errors/read"), number(&report, "/errors/kinds/read_closed"));
    assert_eq!(number(&report, "/errors/read"), number(&report, "/requests/sent"));
}

#[test]
fn load_command_backs_off_if_the_server_closes_connections_at_once() {
    let server = Server::accepting(|_| Ok(()));
    let report = load(&format!("-t1 -c1 -d500ms -R1 {}", server.url()));
    // The pauses between connects are 0, 1, 2, 4, ... 64, 100, 100, ... ms.
    let connected = number(&report, "/connected");
    assert!((1..=20).contains(&connected), "{report:#}");
}

#[test]
fn load_command_counts_truncated_response_bodies() {
    let server = Server::answering(|stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")?;
        Err(std::io::ErrorKind::Other.into())
    });
    let report = load(&format!("{SHORT} {}", server.url()));
    assert_eq!(only(&report, "/errors/read"), number(&report, "/errors/kinds/read_truncated"));
}

#[test]
fn load_command_counts_a_reset_within_a_response_body_as_truncated() {
    let server = Server::answering(|stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")?;
        rustix::net::sockopt::set_socket_linger(&*stream, Some(Duration::ZERO))?;
        Err(std::io::ErrorKind::Other.into())
    });
    let report = load(&format!("{SHORT} {}", server.url()));
    assert_eq!(only(&report, "/errors/read"), number(&report, "/errors/kinds/read_truncated"));
}

#[test]
fn load_command_counts_connections_reset_before_a_response() {
    let server = Server::answering(|stream, _| {
        rustix::net::sockopt::set_socket_linger(&*stream, Some(Duration::ZERO))?;
        Err(std::io::ErrorKind::Other.into())
    });
    let report = load(&format!("{SHORT} {}", server.url()));
    assert_eq!(only(&report, "/errors/read"), number(&report, "/errors/kinds/read_reset"));
}

#[test]
fn load_command_counts_responses_that_are_not_http() {
    let server = Server::answering(|stream, _| stream.write_all(b"220 mail.example.com ESMTP\r\n"));
    let report = load(&format!("{SHORT} {}", server.url()));
    assert_eq!(only(&report, "/errors/read"), number(&report, "/errors/kinds/read_malformed"));
}

#[test]
fn load_command_counts_each_response_status_separately() {
    let server = Server::answering(|stream, request| {
        let status = [200, 500, 503][request.number % 3];
        stream.write_all(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").as_bytes())
    });
    let words = format!("-t1 -c2 -d300ms -R200 {}", server.url());
    let report = load(&words);
    assert_eq!(only(&report, "/errors/not_2xx"), 40);
    for status in ["200", "500", "503"] {
        assert_eq!(number(&report, &format!("/statuses/{status}")), 20);
    }
    assert_eq!(number(&report, "/latency/count"), 60, "an error is an answer too");
    assert_eq!(lab(&format!("load {words}")).status.code(), Some(0));
    assert_eq!(lab(&format!("load --fail-on-errors {words}")).status.code(), Some(1));
}

#[test]
fn load_command_with_verify_counts_responses_with_a_missing_or_wrong_id() {
    let server = Server::answering(|stream, request| {
        let echo = match request.number % 4 {
            0 => "x-lab-id: 00000000-0000000000000000\r\n".to_owned(),
            1 => String::new(),
            _ => format!("X-Lab-Id: {}\r\n", request.id),
        };
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{echo}Content-Length: 2\r\n\r\nok").as_bytes())
    });
    let words = format!("-t1 -c1 -d400ms -R100 {}", server.url());
    let report = load(&format!("--verify {words}"));
    assert_eq!(number(&report, "/errors/wrong/other_id"), 10);
    assert_eq!(number(&report, "/errors/wrong/missing_id"), 10);
    assert_eq!(number(&report, "/errors/total"), 20);
    assert_eq!(number(&load(&words), "/errors/total"), 0, "it has to be asked for");
}

#[test]
fn load_command_with_verify_counts_wrong_body_lengths() {
    let server = Server::answering(|stream, request| {
        let length = if request.number % 2 == 0 { 2 } else { 3 };
        let head = format!("x-lab-length: {length}\r\nx-lab-id: {}\r\n", request.id);
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{head}Content-Length: 2\r\n\r\nok").as_bytes())
    });
    let report = load(&format!("--verify -t1 -c1 -d400ms -R100 {}", server.url()));
    assert_eq!(only(&report, "/errors/wrong/wrong_length"), 20);
}

#[test]
fn load_command_counts_responses_followed_by_unsolicited_bytes() {
    let server = Server::answering(|stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok, and more")
    });
    let report = load(&format!("{SHORT} {}", server.url()));
    assert_eq!(only(&report, "/errors/wrong/surplus_bytes"), 30);
}

#[test]
fn connection_close_header_is_not_counted_as_an_error() {
    // The server announces the close.
    let server = Server::answering(|stream, request| match request.number {
        0 => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
        _ => Ok(()),
    });
    let report = load(&format!("{SHORT} {}", server.url()));
    assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
    assert_eq!(number(&report, "/requests/answered"), 30);
    assert_eq!(number(&report, "/closed_between_requests"), 30);
    // The server does not announce the close, and closes long before the next request is due. On a very busy machine
    // the close and the request may still cross.
    let server = Server::answering(|stream, _| {
        ok(stream)?;
        Err(std::io::ErrorKind::Other.into())
    });
    let report = load(&format!("-t2 -c4 -d500ms -R20 {}", server.url()));
    assert!(number(&report, "/closed_between_requests") > 0, "{report:#}");
    let met = number(&report, "/errors/read") + number(&report, "/errors/write");
    assert_eq!(number(&report, "/requests/answered") + met, 10, "{report:#}");
    let server = Server::accepting(|mut stream| {
        let _ = stream.read(&mut [0; 4096])?;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
    });
    let report = load(&format!("{SHORT} {}", server.url()));
    assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
    assert_eq!(number(&report, "/requests/answered"), 30);
}

#[test]
fn load_command_reads_large_responses_completely() {
    let server = Server::answering(|stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n")?;
        stream.write_all(&[b'x'; 5_000_000])
    });
    let report = load(&format!("-t1 -c2 -d300ms -R20 {}", server.url()));
    assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
    assert!(number(&report, "/bytes_read") >= 30_000_000);
}
