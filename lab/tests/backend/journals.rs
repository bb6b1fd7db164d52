//! Tests of the journal: the backend writes each request before its response.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::pod::{Pod, get, send, until};

fn pod(journal: &Path) -> Pod {
    Pod::start(&format!("--journal {}", journal.display()))
}

#[test]
fn journal_contains_only_completed_non_idempotent_requests() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("journal");
    let pod = pod(&journal);
    let mut client = pod.client();
    assert_eq!(client.answer(&get("/", "get")).status, 200);
    assert_eq!(client.answer(&send("PUT", "/", "put", "body")).status, 200);
    assert_eq!(client.answer(&send("POST", "/", "post", "body")).status, 200);
    assert_eq!(client.answer(&send("POST", "/", "empty", "")).status, 200);
    assert_eq!(client.answer(&send("PATCH", "/?r=503", "patch", "body")).status, 503);
    assert_eq!(client.answer("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").status, 200);
    let mut broken = pod.client();
    broken.begin("broken");
    broken.send("bo");
    drop(broken);
    let mut whole = pod.client();
    whole.begin("whole");
    assert_eq!(fs::read_to_string(&journal).unwrap(), "post\nempty\npatch\n");
    assert_eq!(whole.finish().status, 200);
    assert_eq!(fs::read_to_string(&journal).unwrap(), "post\nempty\npatch\nwhole\n");
}

#[test]
fn pod_writes_the_id_to_the_journal_before_it_responds() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("journal");
    let pod = pod(&journal);
    let mut client = pod.client();
    client.send(&send("POST", "/?t=600000", "early", "body"));
    until("it is there", || (fs::read_to_string(&journal).unwrap() == "early\n").then_some(()));
}

#[test]
fn pod_rejects_an_id_that_would_break_a_journal_line() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("journal");
    let pod = pod(&journal);
    let mut client = pod.client();
    for id in ["", "two words", "\u{e9}", &"7".repeat(129)] {
        assert_eq!(client.answer(&send("POST", "/", id, "body")).status, 400, "{id}");
    }
    assert_eq!(fs::read_to_string(&journal).unwrap(), "");
}

#[test]
fn journal_of_a_killed_pod_contains_every_request_with_a_response() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("journal");
    let mut pod = pod(&journal);
    let answered = Mutex::new(HashSet::new());
    let sent = AtomicU64::new(0);
    thread::scope(|scope| {
        for client in 0..4 {
            let (mut connection, answered, sent) = (pod.client(), &answered, &sent);
            scope.spawn(move || {
                for number in 0.. {
                    let id = format!("{client}-{number}");
                    connection.send(&send("POST", "/?s=1", &id, "body"));
                    // An error here means that the process was killed.
                    if connection.read(false).is_err() {
                        return;
                    }
                    answered.lock().unwrap().insert(id);
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        until("many are answered", || (sent.load(Ordering::Relaxed) >= 1000).then_some(()));
        pod.signal(Signal::KILL);
    });
    pod.wait();
    let text = fs::read_to_string(&journal).unwrap();
    let written: HashSet<String> = text.lines().map(str::to_owned).collect();
    let answered = answered.into_inner().unwrap();
    assert!(written.is_superset(&answered), "{:?}", answered.difference(&written));
    // Requests that were in flight at the kill may be in the journal too.
    assert!(written.len() <= answered.len() + 4);
    assert_eq!(written.len(), text.lines().count());
}
