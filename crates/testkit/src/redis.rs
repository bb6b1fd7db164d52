//! A real server of Redis or Valkey, for limits that data planes share.

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

/// The programs that are such a server, unless SLUICEGATE_TEST_REDIS names one.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

/// A running server at a port of its own on loopback, with nothing on disk. It is killed when it is dropped.
#[derive(Debug)]
pub struct RedisServer {
    address: SocketAddr,
    options: Vec<String>,
    dir: TempDir,
    child: Option<Child>,
}

impl RedisServer {
    /// Starts one with these options, such as `--requirepass`. It answers when this returns.
    ///
    /// # Errors
    /// If none is installed, or it does not start.
    pub async fn start(options: &[&str]) -> anyhow::Result<Self> {
        // A port that was free may be another's a moment later.
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

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills it (SIGKILL), and waits until it is gone.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Starts it again, empty, where it was.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        ensure!(self.spawn().await?, "it does not start again at {}", self.address);
        Ok(())
    }

    /// Stops it where it is (SIGSTOP): it accepts connections and answers nothing.
    ///
    /// # Errors
    /// If it is not running.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If it is not running.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// What it answers to a command in one line, such as `DBSIZE`: the first that comes, without regard to more.
    ///
    /// # Errors
    /// If it does not answer.
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

    /// Whether it started.
    async fn spawn(&mut self) -> anyhow::Result<bool> {
        let mut child = self.program()?;
        let deadline = Instant::now() + LIMIT;
        while child.try_wait()?.is_none() {
            // Whoever answers at the port may be another that was there first, so it has to be alive after that.
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
        // It may be gone already.
        let _ = self.kill();
    }
}
