//! Tests of the options of `backend`: accepted and rejected values.

use std::net::TcpListener;
use std::process::{Command, Output};

fn backend(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-lab"));
    command.arg("backend").args(words.split_whitespace()).output().unwrap()
}

#[test]
fn backend_command_rejects_invalid_options_with_the_reason() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let cases = [
        ("--unknown", "--unknown"),
        ("--listen 9000", "127.0.0.1:9000, [::1]:9000 or localhost:9000"),
        ("--listen 127.0.0.1:70000", "a port up to 65535"),
        ("--listen example.com:80", "not an IP address"),
        ("--listen 192.0.2.1:80", "cannot listen at 192.0.2.1:80"),
        ("--exit gently", "at-once, drain, hang, refuse"),
        ("--name a/b", "letters, digits"),
        ("--start-up 5", "500ms, 12s or 2m"),
        ("--start-up 25h", "at most 24h"),
        ("--drain-timeout soon", "500ms, 12s or 2m"),
        ("--idle-timeout 99ms", "at least 100ms"),
        ("--journal /nonexistent/a", "--journal /nonexistent/a cannot be written"),
        (&format!("--listen {taken}"), &format!("cannot listen at {taken}")),
    ];
    for (words, reason) in cases {
        let output = backend(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {error}");
        assert!(error.contains(reason), "{words}: {error}");
    }
}

#[test]
fn help_of_backend_command_states_units_ranges_defaults_and_an_example() {
    let help = String::from_utf8(backend("--help").stdout).unwrap();
    for word in [
        "[default: 127.0.0.1:9000]",
        "[default: at-once]",
        "24h",
        "milliseconds",
        "16 MiB",
        "SIGUSR1",
        "curl",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
}
