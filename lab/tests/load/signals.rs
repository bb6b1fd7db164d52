//! A load that a signal ends.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::server::{Server, number, ok};

/// The timeout of each wait, long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Starts a load of an hour, and waits for its first request. The server responds to each request after this pause.
fn begin(pace: &str, pause: Duration) -> (Server, Child) {
    let (arrived, arrivals) = mpsc::channel();
    let server = Server::answering(move |stream, _| {
        let _ = arrived.send(());
        thread::sleep(pause);
        ok(stream)
    });
    let child = spawn(&format!("--ramp 0 {pace}"), &server);
    arrivals.recv_timeout(LIMIT).unwrap();
    (server, child)
}

fn spawn(options: &str, server: &Server) -> Child {
    Command::new(env!("CARGO_BIN_EXE_sluicegate-lab"))
        .args(["load", "--json", "-", "-t2", "-c4", "-d1h", "--timeout", "1h"])
        .args(options.split_whitespace())
        .arg(server.url())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits until the process has ended.
fn end(child: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("it goes on");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the report of the process, which must end with this code.
fn report(child: &mut Child, code: i32) -> Value {
    let mut stdout = child.stdout.take().unwrap();
    // A separate thread reads, so that the test detects a load that does not end.
    let reading = thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    assert_eq!(end(child).code(), Some(code));
    serde_json::from_str(&reading.join().unwrap().unwrap()).unwrap()
}

#[test]
fn signal_ends_the_load_command_before_its_first_request_is_due() {
    let (arrived, arrivals) = mpsc::channel();
    let server = Server::accepting(move |mut stream| {
        let _ = arrived.send(());
        stream.read_to_end(&mut Vec::new()).map(|_| ())
    });
    let mut child = spawn("--ramp 1h -R100", &server);
    arrivals.recv_timeout(LIMIT).unwrap();
    signal(&child, Signal::INT);
    let report = report(&mut child, 130);
    assert_eq!((number(&report, "/requests/due"), number(&report, "/requests/sent")), (0, 0));
    assert_eq!(report["elapsed_s"], 0.0);
}

#[test]
fn load_command_that_a_signal_ends_reports_its_counts() {
    for (word, code, pace) in
        [(Signal::INT, 130, "-R200"), (Signal::TERM, 143, "-R200"), (Signal::INT, 130, "")]
    {
        let (_server, mut child) = begin(pace, Duration::ZERO);
        signal(&child, word);
        let report = report(&mut child, code);
        let (sent, answered) = (number(&report, "/requests/sent"), number(&report, "/requests/answered"));
        assert!(answered > 0, "{report:#}");
        assert_eq!(sent, answered, "what was under way is awaited: {report:#}");
        assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
        let elapsed = report["elapsed_s"].as_f64().unwrap();
        assert!(elapsed > 0.1 && elapsed < LIMIT.as_secs_f64(), "{elapsed}");
        assert_eq!(report["duration_s"], 3600.0, "what was wanted");
        if !pace.is_empty() {
            let due = number(&report, "/requests/due");
            assert_eq!(due, (elapsed * 200.0).ceil() as u64, "what was due until then: {report:#}");
        }
        let warnings = report["warnings"].as_array().unwrap();
        let is_told = |warning: &Value| warning.as_str().unwrap().contains("ended the load after");
        assert!(warnings.iter().any(is_told), "{report:#}");
    }
}

#[test]
fn second_signal_ends_the_process_at_once() {
    let (_server, mut child) = begin("-R100", LIMIT * 2);
    signal(&child, Signal::INT);
    // The process may handle simultaneous signals at once, and then counts none of them as the second.
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() && begun.elapsed() < LIMIT {
        signal(&child, Signal::TERM);
        thread::sleep(Duration::from_millis(10));
    }
    let status = end(&mut child);
    assert!(status.signal().is_some(), "{status}");
}
