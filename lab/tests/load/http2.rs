//! HTTP/2: the same measurements, and the errors that only HTTP/2 has.

use std::collections::HashSet;
use std::fs;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use h2::server::Builder;
use http::HeaderMap;
use rcgen::CertifiedKey;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;

use crate::server::{Server, load, number, only};
use crate::streams::{Habits, answering, ok, respond};
use crate::tls::pem;

const SHORT: &str = "--h2 -t2 -c4 -d300ms -R100";

/// An empty SETTINGS frame.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// GOAWAY: the server has processed the first stream, and no other.
const GOODBYE: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];

/// The whole response of a stream: `:status: 200`.
fn answer(stream: u32) -> Vec<u8> {
    [&[0, 0, 1, 1, 5][..], &stream.to_be_bytes(), &[0x88]].concat()
}

/// The streams of the incoming requests, until the connection ends.
fn requests(stream: &TcpStream) -> impl Iterator<Item = u32> + use<> {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let _ = input.read_exact(&mut [0; 24]);
    std::iter::from_fn(move || {
        loop {
            let mut head = [0; 9];
            input.read_exact(&mut head).ok()?;
            let [_, high, low, kind, _, stream @ ..] = head;
            input.read_exact(&mut vec![0; usize::from(high) << 8 | usize::from(low)]).ok()?;
            if kind == 1 {
                return Some(u32::from_be_bytes(stream));
            }
        }
    })
}

/// A TLS configuration for `localhost` that offers these protocols, and its certificate in PEM.
fn config(protocols: &[&[u8]]) -> (Arc<ServerConfig>, String) {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], PrivateKeyDer::Pkcs8(signing_key.serialize_der().into()))
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    (Arc::new(config), pem(cert.der()))
}

#[test]
fn load_command_uses_http2_over_clear_text_and_tls() {
    let addr = answering(Habits::default(), ok);
    let report = load(&format!("{SHORT} --verify http://{addr}/"));
    assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
    assert_eq!((number(&report, "/requests/answered"), number(&report, "/connected")), (30, 4));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    let (tls, pem) = config(&[b"http/1.1", b"h2"]);
    fs::write(&file, pem).unwrap();
    let addr = answering(Habits { tls: Some(tls), ..Habits::default() }, |seen, to| {
        let is_named = seen.head.uri() == "https://localhost/a?b";
        respond(seen, to, if is_named { 200 } else { 500 }, Bytes::new(), &HeaderMap::new());
    });
    let options = format!("--cacert {} --connect-to {addr} --ramp 1s --verify", file.display());
    let report = load(&format!("{SHORT} {options} https://localhost/a?b"));
    assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
    assert_eq!((number(&report, "/requests/answered"), number(&report, "/connected")), (30, 4));
}

#[test]
fn load_command_reports_a_server_that_supports_only_http_1() {
    for protocols in [&[b"http/1.1".as_slice()][..], &[]] {
        let (tls, _) = config(protocols);
        let addr = answering(Habits { tls: Some(tls), ..Habits::default() }, ok);
        let report = load(&format!("{SHORT} --ramp 1s https://{addr}/"));
        assert_eq!(only(&report, "/errors/connect"), number(&report, "/errors/kinds/tls_handshake"));
    }
    let server = Server::accepting(|mut stream| {
        let _ = stream.read(&mut [0; 4096])?;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")?;
        stream.read_to_end(&mut Vec::new()).map(|_| ())
    });
    let report = load(&format!("-m10 --h2 -t1 -c1 -d300ms {}", server.url()));
    assert!(number(&report, "/errors/kinds/read_malformed") > 0, "{report:#}");
    assert_eq!(number(&report, "/requests/answered"), 0);
}

/// Each response takes 20 ms: a connection with one stream receives at most 50 a second, and a connection with ten
/// streams 500.
#[test]
fn load_command_sends_concurrent_streams_on_one_connection() {
    let most = Arc::new(AtomicUsize::new(0));
    for streams in [1, 10] {
        let seen = most.clone();
        seen.store(0, Ordering::Relaxed);
        let pause = Duration::from_millis(20);
        let addr = answering(Habits { pause, ..Habits::default() }, move |request, to| {
            seen.fetch_max(request.under_way, Ordering::Relaxed);
            ok(request, to);
        });
        let report = load(&format!("--h2 -t1 -c2 -m{streams} -d1s http://{addr}/"));
        assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
        let answered = number(&report, "/requests/answered") as usize;
        assert!((streams * 50..=streams * 102).contains(&answered), "{streams}: {answered}");
        assert_eq!(most.load(Ordering::Relaxed), streams, "at once");
        assert!(number(&report, "/latency/min_us") >= 20_000, "{report:#}");
    }
}

#[test]
fn load_command_respects_the_stream_limit_of_the_server() {
    let mut builder = Builder::new();
    builder.max_concurrent_streams(3);
    let habits = Habits { builder, pause: Duration::from_millis(5), ..Habits::default() };
    let addr = answering(habits, ok);
    // The client sends its first requests before it receives the limit. The server refuses the requests beyond the
    // limit.
    let report = load(&format!("--h2 -t1 -c1 -m10 -d500ms http://{addr}/"));
    assert!(number(&report, "/requests/answered") > 30, "{report:#}");
    assert!(number(&report, "/errors/total") <= 7, "{report:#}");
    assert_eq!(number(&report, "/errors/total"), number(&report, "/errors/kinds/h2_refused"), "{report:#}");
}

/// As over HTTP/1: 100 requests a second are due, and the server responds to 50, so each request is later than the one
/// before.
#[test]
fn latency_of_requests_due_while_all_streams_are_busy_starts_at_the_due_time() {
    let pause = Duration::from_millis(40);
    let addr = answering(Habits { pause, ..Habits::default() }, ok);
    let report = load(&format!("--h2 -t1 -c1 -m2 -d2s -R100 http://{addr}/"));
    assert_eq!(number(&report, "/requests/due"), 200);
    let answered = number(&report, "/requests/answered");
    assert!((50..=106).contains(&answered), "{answered}");
    assert_eq!(number(&report, "/requests/unsent"), 200 - answered);
    let max = number(&report, "/latency/max_us");
    assert!((1_000_000..1_800_000).contains(&max), "{max} us");
}

#[test]
fn load_command_counts_statuses_wrong_ids_and_wrong_lengths_over_http2() {
    let addr = answering(Habits::default(), |seen, mut to| match seen.number % 3 {
        0 => ok(seen, to),
        1 => respond(seen, to, 503, Bytes::new(), &HeaderMap::new()),
        _ => {
            let head = http::Response::builder().header("x-lab-id", "other").header("x-lab-length", "9");
            to.send_response(head.body(()).unwrap(), true).unwrap();
        }
    });
    let report = load(&format!("--h2 -t1 -c1 -d300ms -R200 --verify http://{addr}/"));
    assert_eq!((number(&report, "/statuses/200"), number(&report, "/statuses/503")), (40, 20));
    assert_eq!(number(&report, "/errors/wrong/other_id"), 20);
    assert_eq!(number(&report, "/errors/wrong/wrong_length"), 20);
    assert_eq!(number(&report, "/errors/total"), 60);
}

#[test]
fn reset_of_a_stream_by_the_server_is_counted_as_an_error_of_one_request() {
    for (reason, kind) in [(Reason::REFUSED_STREAM, "h2_refused"), (Reason::INTERNAL_ERROR, "h2_reset")] {
        let addr = answering(Habits::default(), move |seen, mut to| match seen.number % 2 {
            0 => ok(seen, to),
            _ => to.send_reset(reason),
        });
        let report = load(&format!("--h2 -t1 -c1 -m4 -d300ms -R200 http://{addr}/"));
        assert_eq!(only(&report, "/errors/read"), number(&report, &format!("/errors/kinds/{kind}")));
        assert_eq!((number(&report, "/errors/read"), number(&report, "/connected")), (30, 1));
    }
}

#[test]
fn load_command_resets_a_timed_out_stream_and_keeps_the_connection_open() {
    let resets = Arc::new(AtomicUsize::new(0));
    let seen = resets.clone();
    let pause = Duration::from_millis(300);
    let addr = answering(Habits { pause, ..Habits::default() }, move |_, mut to| {
        let is_reset = to.poll_reset(&mut Context::from_waker(Waker::noop())).is_ready();
        seen.fetch_add(usize::from(is_reset), Ordering::Relaxed);
    });
    let report = load(&format!("{SHORT} -m2 --timeout 100ms http://{addr}/"));
    let timeouts = only(&report, "/errors/timeout");
    assert_eq!(timeouts, number(&report, "/errors/kinds/answer_timeout"));
    assert_eq!((timeouts, number(&report, "/connected")), (number(&report, "/requests/sent"), 4));
    assert!(resets.load(Ordering::Relaxed) > 0, "the server is told");
}

#[test]
fn load_command_opens_a_new_connection_after_goaway_and_loses_no_request() {
    let addr = answering(Habits { most: 5, ..Habits::default() }, ok);
    let report = load(&format!("{SHORT} http://{addr}/"));
    // The server may refuse requests that the client sent before it received the GOAWAY.
    let refused = number(&report, "/errors/kinds/h2_goaway");
    assert_eq!(number(&report, "/errors/total"), refused, "{report:#}");
    assert_eq!(number(&report, "/requests/answered") + refused, 30);
    assert!(number(&report, "/connected") >= 6, "{report:#}");
    assert!(number(&report, "/closed_between_requests") > 0, "{report:#}");
}

/// Each connection has four requests in flight. The server has processed the first, responds to it, and ends the
/// connection.
#[test]
fn requests_above_the_last_stream_id_of_a_goaway_are_counted_as_h2_goaway() {
    let server = Server::accepting(|mut stream| {
        let mut came = requests(&stream);
        for _ in 0..4 {
            came.next();
        }
        stream.write_all(&[SETTINGS, GOODBYE, &answer(1)].concat())?;
        came.for_each(drop);
        Ok(())
    });
    let report = load(&format!("--h2 -t1 -c1 -m4 -d300ms {}", server.url()));
    let answered = number(&report, "/requests/answered");
    assert!(answered > 0, "{report:#}");
    assert_eq!(only(&report, "/errors/read"), number(&report, "/errors/kinds/h2_goaway"));
    assert_eq!(number(&report, "/errors/read"), 3 * answered, "{report:#}");
}

/// The server responds on the first connection only after it has accepted a second one.
#[test]
fn streams_accepted_before_goaway_complete_while_new_requests_use_a_new_connection() {
    let connections = AtomicUsize::new(0);
    let server = Server::accepting(move |mut stream| {
        let is_first = connections.fetch_add(1, Ordering::Relaxed) == 0;
        stream.write_all(SETTINGS)?;
        for came in requests(&stream) {
            if is_first {
                stream.write_all(GOODBYE)?;
                let begun = Instant::now();
                while connections.load(Ordering::Relaxed) < 2 && begun.elapsed() < Duration::from_secs(10) {
                    sleep(Duration::from_millis(5));
                }
            }
            stream.write_all(&answer(came))?;
        }
        Ok(())
    });
    let report = load(&format!("--h2 -t1 -c1 -m2 -d500ms -R100 {}", server.url()));
    assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
    assert_eq!((number(&report, "/requests/answered"), number(&report, "/connected")), (50, 2));
    assert_eq!(number(&report, "/closed_between_requests"), 1);
}

#[test]
fn each_request_in_flight_on_a_closed_connection_is_counted_as_an_error() {
    let server = Server::accepting(|mut stream| {
        let _ = stream.read(&mut [0; 16_384])?;
        stream.write_all(SETTINGS)?;
        // The client's acknowledgement of the settings must not meet a closed socket.
        stream.shutdown(Shutdown::Write)?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    });
    let report = load(&format!("--h2 -t1 -c1 -m5 -d300ms {}", server.url()));
    let read = only(&report, "/errors/read");
    let kinds = number(&report, "/errors/kinds/read_closed") + number(&report, "/errors/kinds/read_reset");
    assert_eq!(read, kinds, "{report:#}");
    assert_eq!(read % 5, 0, "{report:#}");
}

#[test]
fn load_command_sends_complete_post_bodies_through_a_small_http2_window() {
    let seen: Arc<Mutex<Vec<(bool, String, usize)>>> = Arc::default();
    let journal = seen.clone();
    let mut builder = Builder::new();
    builder.initial_window_size(10);
    let addr = answering(Habits { builder, ..Habits::default() }, move |request, to| {
        let id = request.head.headers()["x-lab-id"].to_str().unwrap().to_owned();
        journal.lock().unwrap().push((request.head.method() == "POST", id, request.body.len()));
        ok(request, to);
    });
    let report = load(&format!("--h2 -t2 -c4 -m3 -d400ms -R500 --posts 20 --verify http://{addr}/"));
    assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
    assert_eq!(number(&report, "/requests/answered"), 200);
    let posts = number(&report, "/requests/posts");
    assert!((36..=44).contains(&posts), "{posts}");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.iter().filter(|(is_post, ..)| *is_post).count() as u64, posts);
    assert!(seen.iter().all(|(is_post, _, body)| *body == if *is_post { 64 } else { 0 }));
    let ids: HashSet<&str> = seen.iter().map(|(_, id, _)| id.as_str()).collect();
    assert_eq!(ids.len(), 200, "each id is there once");
}

#[test]
fn grpc_call_without_status_0_counts_as_an_error() {
    let addr = answering(Habits::default(), |seen, to| {
        let head = &seen.head;
        let is_call = head.method() == "POST"
            && head.headers()["content-type"] == "application/grpc"
            && head.headers()["te"] == "trailers"
            && seen.body == [0; 5];
        let mut trailers = HeaderMap::new();
        match seen.number % 3 {
            0 => _ = trailers.insert("grpc-status", "0".parse().unwrap()),
            1 => _ = trailers.insert("grpc-status", "14".parse().unwrap()),
            _ => {}
        }
        respond(seen, to, if is_call { 200 } else { 500 }, Bytes::from_static(&[0; 5]), &trailers);
    });
    let report = load(&format!("--h2 --grpc -t1 -c1 -m2 -d300ms -R100 http://{addr}/lab.Lab/Call"));
    assert_eq!(number(&report, "/statuses/200"), 30, "{report:#}");
    assert_eq!(only(&report, "/errors/wrong/grpc_status"), 20);
}

#[test]
fn option_new_connections_opens_a_connection_for_each_http2_request() {
    let addr = answering(Habits::default(), ok);
    let report = load(&format!("{SHORT} --new-connections http://{addr}/"));
    assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
    assert_eq!((number(&report, "/requests/answered"), number(&report, "/connected")), (30, 30));
}

#[test]
fn load_command_reads_large_http2_responses_completely() {
    let body = Bytes::from(vec![b'x'; 5_000_000]);
    let (tls, _) = config(&[b"h2"]);
    let addr = answering(Habits { tls: Some(tls), ..Habits::default() }, move |seen, to| {
        respond(seen, to, 200, body.clone(), &HeaderMap::new());
    });
    let report = load(&format!("--h2 -t1 -c2 -m2 -d300ms -R10 --ramp 1s --timeout 30s https://{addr}/"));
    assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
    assert!(number(&report, "/bytes_read") >= 15_000_000);
}
