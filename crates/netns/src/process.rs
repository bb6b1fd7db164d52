//! Child processes with captured output: start, wait for readiness, stop by process id, and CPU time.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A child process in a process group of its own, so that Ctrl-C in a terminal reaches only the parent. Dropping the
/// value kills the group.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    output: File,
}

impl Process {
    /// Starts a command without input. Its output goes to an unnamed temporary file, see [`Self::output`].
    pub fn start(mut command: Command) -> anyhow::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let output = tempfile::tempfile().context("a temporary file for the output")?;
        command.process_group(0).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Self { child, name, output })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The output so far, standard output and standard error together.
    pub fn output(&self) -> String {
        // The read has its own position: the child shares the position of the file, and a seek would move the child's
        // writes.
        let mut bytes = vec![0; self.output.metadata().map_or(0, |file| file.len()) as usize];
        match self.output.read_exact_at(&mut bytes, 0) {
            Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("(the output cannot be read: {error})"),
        }
    }

    /// Whether the process is still running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal to the process, not to its group.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(self.id(), signal).with_context(|| format!("{signal:?} to {}", self.name))
    }

    /// Sends SIGTERM to the process, not to its group.
    pub fn terminate(&self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Sends SIGKILL to the process and its group, and reaps it.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        // The kernel does not reuse the id before the process is reaped, so the signal reaches no other group.
        if self.child.try_wait()?.is_none() {
            kill_process_group(self.id(), Signal::KILL)
                .with_context(|| format!("SIGKILL to {}", self.name))?;
            self.child.wait()?;
        }
        Ok(())
    }

    /// Sends SIGTERM, and kills the process after `grace`. Unlike [`kill`](Self::kill), SIGTERM lets the process reap
    /// its own children.
    pub async fn stop(&mut self, grace: Duration) -> anyhow::Result<()> {
        if self.is_running() {
            self.terminate()?;
            if self.wait(grace).await.is_err() {
                self.kill()?;
            }
        }
        Ok(())
    }

    /// Waits for the end of the process; an error after `limit`.
    pub async fn wait(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("{} still runs after {limit:?}; it printed:\n{}", self.name, self.output());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until `addr` accepts a connection; an error after `limit` or when the process ends.
    pub async fn wait_for_port(&mut self, addr: SocketAddr, limit: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + limit;
        while TcpStream::connect(addr).await.is_err() {
            self.not_ready(&format!("{addr} to accept"), deadline).await?;
        }
        Ok(())
    }

    /// Waits until `GET path` at `addr` returns 200; an error after `limit` or when the process ends.
    pub async fn wait_for_ok(&mut self, addr: SocketAddr, path: &str, limit: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let get = timeout(Duration::from_secs(1), status_line(addr, path)).await;
            if matches!(get, Ok(Ok(line)) if line.starts_with(b"HTTP/1.1 200 ")) {
                return Ok(());
            }
            self.not_ready(&format!("200 from http://{addr}{path}"), deadline).await?;
        }
    }

    /// The CPU time of this process and its descendants so far.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        cpu_time_of_tree(self.pid())
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    async fn not_ready(&mut self, what: &str, deadline: Instant) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended ({status}) while waiting for {what}; it printed:\n{}", self.name, self.output());
        }
        if Instant::now() > deadline {
            bail!("waited in vain for {what}; {} printed:\n{}", self.name, self.output());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Drop cannot report an error.
        let _ = self.kill();
    }
}

/// The first bytes of the response to a GET.
async fn status_line(addr: SocketAddr, path: &str) -> io::Result<[u8; 13]> {
    let mut stream = TcpStream::connect(addr).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut line = [0; 13];
    stream.read_exact(&mut line).await?;
    Ok(line)
}

/// The CPU time of one process so far: the kernel's accounting in nanoseconds, over all its living threads
/// (`/proc/PID/task/*/schedstat`, first field).
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end between the listing and the read.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        let first = text.split_ascii_whitespace().next().and_then(|field| field.parse::<u64>().ok());
        nanos += first.ok_or_else(|| io::Error::other(format!("schedstat of {pid} reads {text:?}")))?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// The CPU time of a process and its descendants so far, including ended descendants: a gateway that reloads leaves
/// workers behind.
pub fn cpu_time_of_tree(pid: u32) -> io::Result<Duration> {
    let processes = tree(pid)?;
    let used = |pid| match cpu_time(pid) {
        // The process ended after the listing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Duration::ZERO),
        used => used,
    };
    processes.into_iter().map(|pid| Ok(used(pid)? + cpu_time_of_ended(pid))).sum()
}

/// The CPU time of the reaped children, in ticks of mostly 10 ms (`proc_pid_stat(5)`, cutime and cstime).
fn cpu_time_of_ended(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name may contain spaces and parentheses; the third field follows the name.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_ascii_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// A process and all its descendants.
pub fn tree(pid: u32) -> io::Result<Vec<u32>> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        next += 1;
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks {
            let children = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
            found.extend(children.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
    }
    Ok(found)
}
