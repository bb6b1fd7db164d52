//! Tests of the effect of signals on open connections and on new connects.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::pod::{Client, Ended, Pod, get, until};

/// An idle connection that has received a response, and a connection with a request in flight.
fn clients(pod: &Pod) -> (Client, Client) {
    let (mut kept, mut busy) = (pod.client(), pod.client());
    assert_eq!(kept.answer(&get("/?s=1", "1")).status, 200);
    busy.begin("2");
    (kept, busy)
}

#[test]
fn pod_exits_at_once_on_sigterm_by_default_and_closes_its_connections() {
    let mut pod = Pod::start("");
    let (mut kept, mut busy) = clients(&pod);
    pod.signal(Signal::TERM);
    assert_eq!(pod.wait().code(), Some(0));
    assert_eq!((kept.ended(), busy.ended()), (Ended::Closed, Ended::Closed));
    assert!(pod.is_refusing());
}

#[test]
fn draining_pod_finishes_requests_in_flight_and_exits() {
    let mut pod = Pod::start("--exit drain");
    let (mut kept, mut busy) = clients(&pod);
    let mut new = pod.client();
    pod.signal(Signal::TERM);
    assert_eq!((kept.ended(), new.ended()), (Ended::Closed, Ended::Closed));
    assert!(pod.is_refusing());
    assert!(pod.is_running(), "it waits for what is under way");
    let answer = busy.finish();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert_eq!(busy.ended(), Ended::Closed);
    assert_eq!(pod.wait().code(), Some(0));
}

#[test]
fn draining_pod_serves_requests_sent_before_the_drain() {
    let mut pod = Pod::start("--exit drain");
    let (mut kept, _) = clients(&pod);
    let mut new = pod.client();
    // The paused pod reads nothing, so all of this waits in the kernel.
    pod.signal(Signal::STOP);
    pod.signal(Signal::TERM);
    kept.send(&get("/?s=2", "3"));
    let mut late = pod.client();
    for client in [&mut new, &mut late] {
        client.send(&get("/?s=2", "4"));
    }
    pod.signal(Signal::CONT);
    for client in [&mut kept, &mut new, &mut late] {
        assert_eq!(client.read(false).unwrap().body, "xx");
        assert_eq!(client.ended(), Ended::Closed);
    }
    assert_eq!(pod.wait().code(), Some(0));
}

#[test]
fn draining_pod_sends_a_long_response_completely() {
    let mut pod = Pod::start("--exit drain");
    let mut reader = pod.client();
    // The response is larger than the socket buffers, so it stays in flight until the client reads it.
    reader.send(&get("/?s=64m", "1"));
    let mut kept = pod.client();
    assert_eq!(kept.answer(&get("/", "2")).status, 200);
    pod.signal(Signal::TERM);
    assert_eq!(kept.ended(), Ended::Closed);
    assert_eq!(reader.read(false).unwrap().body.len(), 64 << 20);
    assert_eq!(pod.wait().code(), Some(0));
}

#[test]
fn draining_pod_exits_at_the_drain_timeout() {
    let mut pod = Pod::start("--exit drain --drain-timeout 50ms");
    let (mut kept, mut busy) = clients(&pod);
    pod.signal(Signal::TERM);
    assert_eq!((kept.ended(), busy.ended()), (Ended::Closed, Ended::Closed));
    assert_eq!(pod.wait().code(), Some(0));
}

#[test]
fn hanging_pod_keeps_connections_open_without_responding() {
    let mut pod = Pod::start("--exit hang");
    let (mut kept, mut busy) = clients(&pod);
    pod.signal(Signal::TERM);
    kept.be_impatient();
    busy.be_impatient();
    until("it hangs", || {
        kept.send(&get("/?s=1", "3"));
        kept.read(false).is_err_and(|error| error.kind() == ErrorKind::WouldBlock).then_some(())
    });
    busy.send("body");
    assert_eq!(busy.ended(), Ended::Silent);
    // Connects succeed, because the kernel completes them.
    let mut new = pod.client();
    new.be_impatient();
    new.send(&get("/?s=1", "4"));
    assert_eq!((new.ended(), kept.ended()), (Ended::Silent, Ended::Silent));
    pod.signal(Signal::TERM);
    assert!(pod.is_running());
    pod.signal(Signal::INT);
    assert_eq!(pod.wait().code(), Some(0));
}

#[test]
fn refusing_pod_resets_its_connections_and_continues_to_run() {
    let mut pod = Pod::start("--exit refuse");
    let (mut kept, mut busy) = clients(&pod);
    pod.signal(Signal::TERM);
    assert_eq!((kept.ended(), busy.ended()), (Ended::Reset, Ended::Reset));
    assert!(pod.is_refusing());
    pod.signal(Signal::TERM);
    pod.signal(Signal::USR2);
    assert!(pod.is_refusing() && pod.is_running());
    pod.signal(Signal::INT);
    assert_eq!(pod.wait().code(), Some(0));
}

#[test]
fn pod_refuses_connections_between_sigusr1_and_sigusr2() {
    let pod = Pod::start("--exit drain");
    for _ in 0..3 {
        let (mut kept, mut busy) = clients(&pod);
        pod.signal(Signal::USR1);
        assert_eq!((kept.ended(), busy.ended()), (Ended::Reset, Ended::Reset));
        assert!(pod.is_refusing());
        pod.signal(Signal::USR2);
        until("it accepts again", || TcpStream::connect(pod.addr).ok());
        // A repeated signal has no effect.
        pod.signal(Signal::USR2);
        let mut client = pod.client();
        assert_eq!(client.answer(&get("/", "5")).status, 200);
        // The pod again closes connections gracefully.
        assert_eq!(client.answer(&get("/", "6").replace("Host", "Connection: close\r\nHost")).status, 200);
        assert_eq!(client.ended(), Ended::Closed);
    }
    let (mut kept, _) = clients(&pod);
    pod.signal(Signal::TERM);
    assert_eq!(kept.ended(), Ended::Closed);
}

#[test]
fn sigint_ends_a_pod_at_once_whatever_its_option_exit() {
    for style in ["at-once", "drain", "hang", "refuse"] {
        let mut pod = Pod::start(&format!("--exit {style}"));
        let (_kept, mut busy) = clients(&pod);
        pod.signal(Signal::INT);
        assert_eq!(pod.wait().code(), Some(0), "{style}");
        assert_eq!(busy.ended(), Ended::Closed, "{style}");
    }
    let mut pod = Pod::start("--exit drain");
    let (mut kept, mut busy) = clients(&pod);
    pod.signal(Signal::TERM);
    assert_eq!(kept.ended(), Ended::Closed);
    pod.signal(Signal::INT);
    assert_eq!(pod.wait().code(), Some(0), "while it drains");
    assert_eq!(busy.ended(), Ended::Closed);
}

#[test]
fn pod_refuses_connections_until_its_start_up_delay_has_passed() {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let begun = Instant::now();
    let pod = Pod::begin(addr, "--start-up 500ms");
    until("it listens", || match TcpStream::connect(addr) {
        Ok(_) => Some(()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            None
        }
    });
    assert!(begun.elapsed() >= Duration::from_millis(500));
    assert_eq!(pod.answer(&get("/healthz", "1")).body, "ok\n");
}

#[test]
fn sigterm_ends_a_pod_that_is_still_starting() {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut pod = Pod::begin(addr, "--start-up 1h --exit hang");
    pod.signal(Signal::TERM);
    // The process ends itself, or the kernel ends it if the process did not handle signals yet.
    pod.wait();
}
