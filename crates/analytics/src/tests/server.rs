//! A server of PostgreSQL for a test.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::WAIT;
use crate::Location;

const PASSWORD: &str = "a password";
/// The user of the server if the test runs as root: the server refuses root.
const UNPRIVILEGED: u32 = 65_534;

/// A server with a directory of its own. It ends with the value.
pub(crate) struct Server {
    programs: PathBuf,
    dir: TempDir,
    port: u16,
    process: Option<Child>,
}

impl Server {
    /// Starts a server, or reports that there is none.
    pub(crate) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!(
                "no server of PostgreSQL is installed: the test is skipped (scripts/setup test installs it)"
            );
            return None;
        };
        let dir = TempDir::new().expect("a directory");
        let port =
            TcpListener::bind(("127.0.0.1", 0)).and_then(|free| free.local_addr()).expect("a port").port();
        let password = dir.path().join("password");
        std::fs::File::create(&password)
            .and_then(|mut file| file.write_all(PASSWORD.as_bytes()))
            .expect("a file");
        let mut this = Self { programs, dir, port, process: None };
        if rustix::process::geteuid().is_root() {
            for path in [this.dir.path(), &password] {
                std::os::unix::fs::chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("an owner");
            }
        }
        let created = this
            .command("initdb")
            .args(["--auth=scram-sha-256", "--username=gate", "--no-sync", "--pwfile"])
            .arg(&password)
            .arg(this.data())
            .stdout(Stdio::null())
            .status();
        assert!(created.expect("initdb runs").success());
        this.begin();
        Some(this)
    }

    /// Starts the process, and waits for it.
    pub(crate) fn begin(&mut self) {
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).args([
            "-c",
            "fsync=off",
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
        ]);
        command.arg(format!("port={}", self.port)).arg("-k").arg(self.dir.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("postgres runs"));
        let end = Instant::now() + Duration::from_secs(60);
        while let Err(error) = self.location("postgres").connect(WAIT) {
            assert!(Instant::now() < end, "the server does not start: {error}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the process at once.
    pub(crate) fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // SIGQUIT ends the children too.
            let id = rustix::process::Pid::from_child(&process);
            rustix::process::kill_process(id, rustix::process::Signal::QUIT).expect("a signal");
            process.wait().expect("the process ends");
        }
    }

    /// A new database.
    pub(crate) fn database(&self, name: &str) -> Location {
        let mut sql = self.location("postgres").connect(WAIT).expect("a connection");
        // The database may exist.
        let _ = sql.run(&format!("CREATE DATABASE {name}"));
        self.location(name)
    }

    fn location(&self, name: &str) -> Location {
        let url = format!("postgres://gate@127.0.0.1:{}/{name}", self.port);
        url.parse::<Location>().expect("a URL").with_password(PASSWORD)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.dir.path()).env("LC_ALL", "C");
        if rustix::process::geteuid().is_root() {
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The folder of the newest server, as Debian installs it, or in the path.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let installed = versions.map(|version| version.path().join("bin"));
    let in_path = std::env::var_os("PATH");
    let in_path = in_path.iter().flat_map(std::env::split_paths).collect::<Vec<_>>();
    let has_server = |folder: &PathBuf| Path::new(folder).join("initdb").exists();
    installed.chain(in_path).filter(has_server).max()
}
