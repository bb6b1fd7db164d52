//! Tests of responses: the effect of the URL, echoed headers, rejected requests.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::pod::{Ended, Pod, get, send};

#[test]
fn url_of_the_request_selects_status_length_and_delay_of_the_response() {
    let pod = Pod::start("");
    let mut client = pod.client();
    for (path, status, length) in [
        ("/?s=500", 200, 500),
        ("/?s=0", 200, 0),
        ("/any/path?s=100k&r=404", 404, 100 * 1024),
        ("/?r=503&s=1&id=7", 503, 1),
        ("/?r=204&s=5", 204, 0),
        ("/?r=304", 304, 0),
        ("/healthz", 200, 3),
    ] {
        let answer = client.answer(&get(path, "7"));
        assert_eq!((answer.status, answer.body.len()), (status, length), "{path}");
        assert_eq!(answer.header("content-type"), Some("text/plain"), "{path}");
    }
    let begun = Instant::now();
    assert_eq!(client.answer(&get("/?t=50", "7")).status, 200);
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

#[test]
fn default_response_is_one_kilobyte_describing_the_server_and_the_request() {
    let pod = Pod::start("--name web-1");
    let request =
        "GET /a/b?c=d HTTP/1.1\r\nHost: shop\r\nX-Forwarded-For: 10.1.2.3\r\nX-Request-Id: 77\r\n\r\n";
    let answer = pod.answer(request);
    assert_eq!((answer.status, answer.body.len()), (200, 1024));
    for line in [
        &format!("Server address: {}\n", pod.addr),
        "Server name: web-1\n",
        "Client address: 127.0.0.1:",
        "Date: 2",
        "Method: GET\n",
        "URI: /a/b?c=d\n",
        "Request ID: 77\n",
        "host: shop\n",
        "x-forwarded-for: 10.1.2.3\n",
    ] {
        assert!(answer.body.contains(line), "{line} in {}", answer.body);
    }
    assert!(answer.body.ends_with("..\n"), "{}", answer.body);
    // A long value is not cut.
    let answer = pod.answer(&format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "a".repeat(2000)));
    assert!(answer.body.len() > 2000 && answer.body.contains(&"a".repeat(2000)));
}

#[test]
fn response_headers_contain_the_request_id_body_length_and_pod() {
    let pod = Pod::start("--name web-1");
    let mut client = pod.client();
    let cases = [
        (get("/", "1"), 200, "1024"),
        (get("/?s=70k", "2"), 200, "71680"),
        (get("/?r=503&s=7", "3"), 503, "7"),
        (get("/?r=204", "4"), 204, "0"),
        (get("/?s=7", "5").replace("GET", "HEAD"), 200, "0"),
        (send("POST", "/?s=9", "6", "some body"), 200, "9"),
    ];
    for (request, status, length) in cases {
        let answer = client.answer(&request);
        let id = request.split("x-lab-id: ").nth(1).unwrap().lines().next();
        assert_eq!((answer.status, answer.header("x-lab-id")), (status, id), "{request}");
        assert_eq!(answer.header("x-lab-length"), Some(length), "{request}");
        assert_eq!(answer.header("x-lab-pod"), Some("web-1"), "{request}");
    }
    let answer = client.answer("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    for name in ["x-lab-id", "x-lab-length", "x-lab-pod"] {
        assert_eq!(answer.header(name), None, "whoever has no id is not of the lab");
    }
}

#[test]
fn load_command_with_verify_finds_no_error_in_responses_of_a_pod() {
    let pod = Pod::start("");
    for path in ["/", "/?s=100k"] {
        let mut load = Command::new(env!("CARGO_BIN_EXE_sluicegate-lab"));
        let url = format!("http://{}{path}", pod.addr);
        load.args(["load", "--verify", "--fail-on-errors", "-t1", "-c2", "-d100ms", &url]);
        let output = load.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn invalid_url_returns_400_with_the_valid_options() {
    let pod = Pod::start("");
    let mut client = pod.client();
    for (query, reason) in [
        ("s=-1", "up to 1024m"),
        ("s=999999999999", "up to 1024m"),
        ("t=soon", "up to 600000"),
        ("s=1&r=700", "200 to 599"),
    ] {
        let answer = client.answer(&get(&format!("/?{query}"), "7"));
        assert_eq!((answer.status, answer.header("x-lab-id")), (400, Some("7")), "{query}");
        assert!(answer.body.contains(reason), "{query}: {}", answer.body);
    }
}

#[test]
fn pod_rejects_an_oversized_request_body_or_head() {
    let pod = Pod::start("");
    let request = send("POST", "/", "7", "").replace("Length: 0", &format!("Length: {}", (16 << 20) + 1));
    let mut client = pod.client();
    let answer = client.answer(&request);
    assert_eq!((answer.status, answer.header("x-lab-id")), (413, Some("7")));
    assert_eq!(client.ended(), Ended::Closed);
    // A body without a declared length.
    let mut client = pod.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1000001\r\n");
    client.send(&"x".repeat(0x0100_0001));
    assert_eq!(client.read(false).unwrap().status, 413);
    let mut client = pod.client();
    let head = get("/", &"7".repeat(64 * 1024));
    client.send(&head[..64 * 1024]);
    assert_eq!(client.read(false).unwrap().status, 431);
}

#[test]
fn pod_reads_a_request_body_of_the_maximum_size_completely() {
    let pod = Pod::start("");
    let mut client = pod.client();
    assert_eq!(client.answer(&send("POST", "/", "7", &"x".repeat(16 << 20))).status, 200);
    assert_eq!(client.answer(&get("/", "8")).status, 200);
}

#[test]
fn idle_timeout_closes_idle_connections_but_not_slow_responses() {
    let pod = Pod::start("--idle-timeout 100ms");
    let mut idle = pod.client();
    let mut unfinished = pod.client();
    unfinished.send("GET / HTTP/1.1\r\nHo");
    let mut body = pod.client();
    body.begin("7");
    let mut slow = pod.client();
    assert_eq!(slow.answer(&get("/?t=1000", "8")).status, 200);
    for client in [&mut idle, &mut unfinished, &mut body, &mut slow] {
        assert_eq!(client.ended(), Ended::Closed);
    }
}
