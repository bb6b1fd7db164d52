//! Servers with a behaviour that the test sets, and the program under test.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;

use serde_json::Value;

/// A server in this process, with a thread for each connection. The server ends with the process.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
}

/// A received request.
#[derive(Default)]
pub(crate) struct Request {
    /// The value of its x-lab-id.
    pub(crate) id: String,
    pub(crate) method: String,
    pub(crate) host: String,
    /// The length of its body.
    pub(crate) body: usize,
    /// Its number among the requests of its connection, from 0.
    pub(crate) number: usize,
}

impl Server {
    /// Runs this function for each request; an error closes the connection.
    pub(crate) fn answering(
        answer: impl Fn(&mut TcpStream, &Request) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::accepting(move |stream| {
            let mut stream = stream;
            let mut lines = BufReader::new(stream.try_clone()?);
            for number in 0.. {
                let mut request = Request { number, ..Request::default() };
                loop {
                    let mut line = String::new();
                    if lines.read_line(&mut line)? == 0 {
                        return Ok(());
                    }
                    if request.method.is_empty() {
                        request.method = line.split(' ').next().unwrap().to_owned();
                    }
                    if let Some(length) = line.strip_prefix("Content-Length: ") {
                        request.body = length.trim_end().parse().unwrap();
                    }
                    if let Some(id) = line.strip_prefix("x-lab-id: ") {
                        request.id = id.trim_end().to_owned();
                    }
                    if let Some(host) = line.strip_prefix("Host: ") {
                        request.host = host.trim_end().to_owned();
                    }
                    if line == "\r\n" {
                        break;
                    }
                }
                lines.read_exact(&mut vec![0; request.body])?;
                answer(&mut stream, &request)?;
            }
            Ok(())
        })
    }

    /// Runs this function for each connection.
    pub(crate) fn accepting(serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let serve = serve.clone();
                // Broken connections are expected: most tests provoke them.
                thread::spawn(move || {
                    let stream = stream?;
                    stream.set_nodelay(true)?;
                    serve(stream)
                });
            }
        });
        Self { addr }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.addr)
    }
}

/// Responds with 200 and two bytes.
pub(crate) fn ok(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
}

/// Runs the program with these arguments.
pub(crate) fn lab(words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluicegate-lab")).args(words.split_whitespace()).output().unwrap()
}

/// Runs a load with these options, and returns the program's JSON report.
pub(crate) fn load(words: &str) -> Value {
    let output = lab(&format!("load --json - {words}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {error}");
    let parsed = serde_json::from_slice(&output.stdout);
    let report: Value = parsed.unwrap_or_else(|wrong| panic!("{words}: {wrong}: {error}"));
    // In every case, each sent request has a response or exactly one failure.
    let of = |path| number(&report, path);
    let failed = of("/errors/read") + of("/errors/write") + of("/errors/kinds/answer_timeout");
    assert_eq!(of("/requests/sent"), of("/requests/answered") + failed, "{words}: {report:#}");
    assert_eq!(of("/requests/answered"), of("/latency/count"), "{words}: {report:#}");
    report
}

/// A number of the program's JSON, by its path.
#[track_caller]
pub(crate) fn number(report: &Value, path: &str) -> u64 {
    let found = report.pointer(path).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("{path} is not a number in {report:#}"))
}

/// Checks that these are the only errors, and returns their number.
#[track_caller]
pub(crate) fn only(report: &Value, path: &str) -> u64 {
    let count = number(report, path);
    assert!(count > 0, "{path} is 0 in {report:#}");
    assert_eq!(count, number(report, "/errors/total"), "{report:#}");
    count
}
