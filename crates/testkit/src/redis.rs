//! A real Redis or Valkey server, for limits that data planes share.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::client::LIMIT;

/// The names of the server programs, unless SLUICEGATE_TEST_REDIS names a program.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

/// A running server at a loopback port of its own, without files. Dropping the value kills the server.
#[derive(Debug)]
pub struct RedisServer {
    address: SocketAddr,
    options: Vec<String>,
    dir: TempDir,
    child: Option<Child>,
}

impl RedisServer {
    /// Starts a server with these options, such as `--requirepass`. The server responds when the function returns.
    ///
    /// # Errors
    /// If no server is installed, or the server does not start.
    pub async fn start(options: &[&str]) -> anyhow::Result<Self> {
        // Another process may take the free port before the server listens.
        for _ in 0..5 {
            let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
            let options = options.iter().map(ToString::to_string).collect();
            let mut server = Self { address: free, options, dir: TempDir::new()?, child: None };
            if server.spawn().await? {
                return Ok(server);
            }
        }
        bail!("found no port for a server of Redis")
    }

    /// The address of the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills the server (SIGKILL), and waits for its end.
    ///
    /// # Errors
    /// If the server cannot be killed.
    pub fn kill(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Restarts the server, empty, at the same address.
    ///
    /// # Errors
    /// If the server does not start.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        ensure!(self.spawn().await?, "it does not start again at {}", self.address);
        Ok(())
    }

    /// Pauses the server (SIGSTOP): it accepts connections and does not respond.
    ///
    /// # Errors
    /// If the server is not running.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes the server.
    ///
    /// # Errors
    /// If the server is not running.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// The first part of the response to a command of one line, such as `DBSIZE`.
    ///
    /// # Errors
    /// If the server does not respond.
    pub async fn ask(&self, command: &str) -> anyhow::Result<String> {
        let asked = async {
            let mut stream = TcpStream::connect(self.address).await?;
            stream.write_all(format!("{command}\r\n").as_bytes()).await?;
            let mut answer = vec![0; 16 * 1024];
            let length = stream.read(&mut answer).await?;
            anyhow::Ok(String::from_utf8_lossy(&answer[..length]).trim_end().to_owned())
        };
        timeout(LIMIT, asked).await.context("no answer")?
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let child = self.child.as_ref().context("it is not running")?;
        Ok(kill_process(Pid::from_child(child), signal)?)
    }

    /// Whether the server started.
    async fn spawn(&mut self) -> anyhow::Result<bool> {
        let mut child = self.program()?;
        let deadline = Instant::now() + LIMIT;
        while child.try_wait()?.is_none() {
            // Another server may have had the port before, so this server must still be alive after the response.
            let answer = self.ask("PING").await;
            if answer.is_ok_and(|answer| answer == "+PONG" || answer.starts_with("-NOAUTH")) {
                sleep(Duration::from_millis(20)).await;
                let runs = child.try_wait()?.is_none();
                self.child = runs.then_some(child);
                return Ok(runs);
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!("a server of Redis does not answer");
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(false)
    }

    fn program(&self) -> anyhow::Result<Child> {
        let port = self.address.port().to_string();
        let named = std::env::var_os("SLUICEGATE_TEST_REDIS");
        let programs = named.map_or_else(|| PROGRAMS.map(Into::into).to_vec(), |program| vec![program]);
        for program in &programs {
            let spawned = Command::new(program)
                .args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no", "--dir"])
                .arg(self.dir.path())
                .args(&self.options)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn();
            match spawned {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                spawned => return Ok(spawned?),
            }
        }
        bail!("none of {programs:?} is installed: run scripts/setup test")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // The server may have exited already.
        let _ = self.kill();
    }
}
