//! The process under test, and a client of it.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The timeout of each wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running backend; dropping this value kills the backend.
pub(crate) struct Pod {
    child: Child,
    pub(crate) addr: SocketAddr,
}

impl Pod {
    /// Starts a backend with these options at a free port, and waits until it serves.
    pub(crate) fn start(options: &str) -> Self {
        let mut child = command(&format!("--listen 127.0.0.1:0 {options}")).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(stdout).read_line(&mut line);
            let _ = sender.send(line);
        });
        let line = lines.recv_timeout(PATIENCE).unwrap();
        let (_, addr) = line.trim_end().split_once(" serves at ").unwrap();
        Self { child, addr: addr.parse().unwrap() }
    }

    /// Starts a backend that will listen at this address, without waiting for it.
    pub(crate) fn begin(addr: SocketAddr, options: &str) -> Self {
        let child = command(&format!("--listen {addr} {options}")).spawn().unwrap();
        Self { child, addr }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the backend ends by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        until("it ends", || self.child.try_wait().unwrap())
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn is_refusing(&self) -> bool {
        TcpStream::connect(self.addr).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    }

    pub(crate) fn client(&self) -> Client {
        let stream = TcpStream::connect(self.addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    /// Sends a request on a new connection, and returns the response.
    pub(crate) fn answer(&self, request: &str) -> Answer {
        self.client().answer(request)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(options: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-lab"));
    command.arg("backend").args(options.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Waits until `look` returns a value.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited too long until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A client connection to the backend.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

/// The way in which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Closed,
    Reset,
    /// The connection did not end, and no byte arrived.
    Silent,
}

impl Client {
    pub(crate) fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn answer(&mut self, request: &str) -> Answer {
        self.send(request);
        self.read(request.starts_with("HEAD ")).unwrap()
    }

    /// Reads a response, which has a body unless the request was a HEAD.
    pub(crate) fn read(&mut self, is_head: bool) -> io::Result<Answer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: String::new() };
        if let Some(length) = answer.header("content-length").filter(|_| !is_head) {
            let mut body = vec![0; length.parse().unwrap()];
            self.stream.read_exact(&mut body)?;
            answer.body = String::from_utf8(body).unwrap();
        }
        Ok(answer)
    }

    /// Returns how the connection ends. Fails if a byte arrives first.
    pub(crate) fn ended(&mut self) -> Ended {
        match self.stream.by_ref().bytes().next() {
            None => Ended::Closed,
            Some(Ok(_)) => panic!("there is a byte"),
            Some(Err(error)) if error.kind() == ErrorKind::ConnectionReset => Ended::Reset,
            Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => Ended::Silent,
            Some(Err(error)) => panic!("{error}"),
        }
    }

    /// From now on, the test treats a wait of more than 300 ms as no response.
    pub(crate) fn be_impatient(&self) {
        self.stream.get_ref().set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    }

    /// Begins a request that is in flight until [`Self::finish`].
    pub(crate) fn begin(&mut self, id: &str) {
        self.send(&format!(
            "POST / HTTP/1.1\r\nHost: a\r\nx-lab-id: {id}\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        ));
        // The backend has requested the body, so it has received the request.
        assert_eq!(self.read(false).unwrap().status, 100);
    }

    pub(crate) fn finish(&mut self) -> Answer {
        self.answer("body")
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// A GET of this path, with this id.
pub(crate) fn get(path: &str, id: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nx-lab-id: {id}\r\n\r\n")
}

/// A request with this body and this id.
pub(crate) fn send(method: &str, path: &str, id: &str, body: &str) -> String {
    let length = body.len();
    format!("{method} {path} HTTP/1.1\r\nHost: a\r\nx-lab-id: {id}\r\nContent-Length: {length}\r\n\r\n{body}")
}
