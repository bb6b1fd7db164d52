//! Tests of the options of `load`: accepted and rejected values, and the written output.

use std::fs;
use std::io::Write as _;

use crate::server::{Server, lab, load, number, ok};

#[test]
fn load_command_rejects_invalid_options_with_the_reason() {
    let cases = [
        ("", "<URL>"),
        ("--unknown http://127.0.0.1:9/", "--unknown"),
        ("-t4 -c2 http://127.0.0.1:9/", "fewer connections than threads"),
        ("-t0 http://127.0.0.1:9/", "1 to 1024"),
        ("-c0 http://127.0.0.1:9/", "1 to 1000000"),
        ("-R0 http://127.0.0.1:9/", "over 0"),
        ("-R -5 http://127.0.0.1:9/", "-5"),
        ("-R fast http://127.0.0.1:9/", "100, 2k or 1.5M"),
        ("-d0 http://127.0.0.1:9/", "at least 1ms"),
        ("-d 5d http://127.0.0.1:9/", "30s, 500ms or 1.5m"),
        ("--timeout 0 http://127.0.0.1:9/", "at least 1ms"),
        ("-H nonsense http://127.0.0.1:9/", "Name: value"),
        ("--header-values nonsense http://127.0.0.1:9/", "Name: value"),
        ("--header-values X-Key:/nonexistent http://127.0.0.1:9/", "/nonexistent"),
        ("--header-values X-Key:/dev/null http://127.0.0.1:9/", "no line"),
        ("--paths /nonexistent http://127.0.0.1:9/", "/nonexistent"),
        ("--paths /dev/null http://127.0.0.1:9/", "no line"),
        ("--h2 --paths /dev/null http://127.0.0.1:9/", "--h2"),
        ("--h2 --header-values X-Key:/dev/null http://127.0.0.1:9/", "--h2"),
        ("127.0.0.1:9", "http:// or https://"),
        ("ftp://127.0.0.1:9/", "only http:// and https://"),
        ("http://127.0.0.1:99999/", "1 to 65535"),
        ("http://nobody.invalid/", "\"nobody.invalid\" has no address"),
        ("-m2 http://127.0.0.1:9/", "--h2"),
        ("--grpc http://127.0.0.1:9/", "--h2"),
        ("--h2 -m0 http://127.0.0.1:9/", "1 to 1000"),
        ("--h2 -m1001 http://127.0.0.1:9/", "1 to 1000"),
        ("--h2 -m2 --new-connections http://127.0.0.1:9/", "--new-connections"),
        ("--h2 --grpc --posts 5 http://127.0.0.1:9/", "--posts"),
        ("--h2 -H Connection:close http://127.0.0.1:9/", "no such header in HTTP/2"),
        ("--h2 -H TE:gzip http://127.0.0.1:9/", "trailers"),
        ("--posts 101 http://127.0.0.1:9/", "0..=100"),
        ("--posts -1 http://127.0.0.1:9/", "-1"),
        ("--posts half http://127.0.0.1:9/", "half"),
        ("--connect-to 127.0.0.1 http://a.invalid/", "127.0.0.1:8443"),
        ("--connect-to 127.0.0.1:0 http://a.invalid/", "127.0.0.1:8443"),
        ("--connect-to localhost:80 http://a.invalid/", "127.0.0.1:8443"),
        ("--cacert /nonexistent https://127.0.0.1:9/", "/nonexistent"),
        ("--json /nonexistent/a http://127.0.0.1:9/", "/nonexistent/a cannot be written"),
        ("--hgrm /nonexistent/a http://127.0.0.1:9/", "/nonexistent/a cannot be written"),
        ("--connect-to 127.0.0.1 http://a.invalid/", "127.0.0.1:8443"),
        ("--connect-to 127.0.0.1:0 http://a.invalid/", "127.0.0.1:8443"),
        ("--connect-to localhost:80 http://a.invalid/", "127.0.0.1:8443"),
        ("--cacert /nonexistent http://127.0.0.1:9/", "https://"),
    ];
    for (words, reason) in cases {
        let output = lab(&format!("load {words}"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {error}");
        assert!(error.contains(reason), "{words}: {error}");
    }
}

#[test]
fn option_connect_to_changes_the_address_but_not_the_host_header() {
    let server = Server::answering(|stream, request| {
        let status = if request.host == "app.invalid:81" { 200 } else { 500 };
        stream.write_all(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").as_bytes())
    });
    let report = load(&format!("-t1 -c2 -d200ms -R100 --connect-to {} http://app.invalid:81/", server.addr));
    assert_eq!(number(&report, "/statuses/200"), 20, "{report:#}");
    assert_eq!(report["address"], server.addr.to_string());
}

#[test]
fn help_of_load_command_states_units_defaults_and_exit_codes() {
    let output = lab("load --help");
    let help = String::from_utf8_lossy(&output.stdout);
    // Lines may be wrapped anywhere.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in
        ["requests per second", "[default: 2s]", "[default: 10s]", "ms", "--fail-on-errors", "Exit codes"]
    {
        assert!(help.to_lowercase().contains(&word.to_lowercase()), "{word}: {help}");
    }
}

#[test]
fn load_command_prints_its_report_in_the_layout_of_wrk2() {
    let server = Server::answering(|stream, _| ok(stream));
    let directory = tempfile::tempdir().unwrap();
    let (hgrm, json) = (directory.path().join("a.hgrm"), directory.path().join("a.json"));
    let files = format!("--hgrm {} --json {}", hgrm.display(), json.display());
    let output = lab(&format!("load -U {files} -t2 -c4 -d500ms -R200 {}", server.url()));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut rest = text.as_str();
    for line in [
        "Running 500.00ms test @ http://127.0.0.1:",
        "\n  2 threads and 4 connections",
        "\n  Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency ",
        "\n    Req/Sec ",
        "\n  Latency Distribution (HdrHistogram - Recorded Latency)\n 50.000%",
        "\n 99.999%",
        "\n99.9999%",
        "\n100.000%",
        "\n  Detailed Percentile spectrum:\n       Value   Percentile   TotalCount 1/(1-Percentile)\n\n",
        "          100          inf\n#[Mean    = ",
        "\n  Latency Distribution (HdrHistogram - Uncorrected Latency",
        "\n  100 requests in 500.00ms, ",
        "B read\nRequests/sec:    200.00\nTransfer/sec: ",
    ] {
        let Some(at) = rest.find(line) else { panic!("{line:?} is missing in order in {text}") };
        rest = &rest[at + line.len() - 1..];
    }
    assert!(!text.contains("Socket errors"), "{text}");
    let hgrm = fs::read_to_string(hgrm).unwrap();
    let last = hgrm.lines().rfind(|line| !line.starts_with('#')).unwrap();
    assert!(last.trim_start().contains("1.000000000000        100            inf"), "{last}");
    let json: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(json["requests"]["answered"], 100);
}
