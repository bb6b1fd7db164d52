//! HAProxy that learns of endpoints, certificates and hosts through its runtime API, as from HAProxy Technologies'
//! controller.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use sluicegate_netns::Process;

use super::{Config, Driver, HOST, Kind, Part, Pem, Prepared, Protocol, Site, fill, replace, version_of};
use crate::experiment::Work;
use crate::results::ConfigFile;

pub(crate) const KIND: Kind = Kind {
    name: "haproxy",
    title: "HAProxy",
    learns: "Endpoints, certificates and hosts are set through its runtime API, as HAProxy Technologies' controller does, \
             which checks endpoints every 2 s by connecting to them. A reload is made when more than 42 endpoints need \
             more slots.",
    version: |_| {
        let line = version_of("haproxy".as_ref(), &["-v"])?;
        Ok(line.split(" - ").next().unwrap_or(&line).to_owned())
    },
    works: &Work::ALL,
    functions: &[],
    prepare,
};

/// The number of slots for endpoints that the controller adds at a time (`scale-server-slots`).
const SLOTS: usize = 42;

/// The timeout of one exchange with the runtime API, and of a reload.
const LIMIT: Duration = Duration::from_secs(5);

/// The maximum number of bytes that the runtime API accepts at once (`tune.bufsize`, less some room for the command).
const AT_ONCE: usize = 15_000;

fn prepare(site: &Site, config: &Config) -> anyhow::Result<Prepared> {
    let mut driver = Haproxy { site: site.clone(), protocol: config.protocol, slots: Vec::new() };
    driver.assign(&config.endpoints);
    driver.write(config)?;
    let mut command = Command::new("haproxy");
    // -W: a master that reloads; -S: the address of the master.
    command.args(["-W", "-q", "-S"]).arg(driver.file("master"));
    command.arg("-f").arg(driver.file("haproxy.cfg")).args(&site.options);
    let files = vec![
        ConfigFile::new("haproxy.cfg", &driver.text()),
        ConfigFile::new("hosts.map", &map_lines(config).concat()),
    ];
    Ok(Prepared { command, files, driver: Box::new(driver) })
}

struct Haproxy {
    site: Site,
    protocol: Protocol,
    /// The endpoint of each slot.
    slots: Vec<Option<SocketAddr>>,
}

impl Driver for Haproxy {
    fn apply(&mut self, process: &Process, part: Part, config: &Config) -> anyhow::Result<()> {
        match part {
            Part::Endpoints => {
                let before = self.slots.clone();
                self.assign(&config.endpoints);
                // A later reload must start with the new configuration.
                self.write(config)?;
                if self.slots.len() == before.len() {
                    self.set_servers(&before)
                } else {
                    self.reload(process)
                }
            }
            Part::Certificate => {
                self.write(config)?;
                self.set_certificate(&config.certificate)
            }
            Part::Hosts => {
                self.write(config)?;
                self.set_hosts(config)
            }
        }
    }
}

impl Haproxy {
    /// A remaining endpoint keeps its slot, so that its connections stay too.
    fn assign(&mut self, endpoints: &[SocketAddr]) {
        for slot in &mut self.slots {
            slot.take_if(|addr| !endpoints.contains(addr));
        }
        if self.slots.len() < endpoints.len().max(1) {
            self.slots.resize(endpoints.len().max(1).next_multiple_of(SLOTS), None);
        }
        let new: Vec<SocketAddr> =
            endpoints.iter().filter(|addr| !self.slots.contains(&Some(**addr))).copied().collect();
        let free = self.slots.iter_mut().filter(|slot| slot.is_none());
        for (slot, addr) in free.zip(new) {
            *slot = Some(addr);
        }
    }

    fn set_servers(&self, before: &[Option<SocketAddr>]) -> anyhow::Result<()> {
        let changed = (1..).zip(self.slots.iter().zip(before)).filter(|(_, (slot, before))| slot != before);
        let commands = changed.map(|(number, (slot, _))| match slot {
            Some(addr) => format!(
                ";set server app/s{number} addr {} port {};set server app/s{number} state ready",
                addr.ip(),
                addr.port()
            ),
            None => format!(";set server app/s{number} state maint"),
        });
        for batch in batches(commands) {
            let answer = self.ask(&format!("set severity-output number{batch}\n"))?;
            // The levels from emergency to error, in the order of syslog.
            let is_error =
                |line: &str| ["[0]:", "[1]:", "[2]:", "[3]:"].iter().any(|level| line.starts_with(level));
            ensure!(!answer.lines().any(is_error), "HAProxy does not take the endpoints: {answer}");
        }
        Ok(())
    }

    fn set_certificate(&self, certificate: &Pem) -> anyhow::Result<()> {
        let file = self.file("tls.pem");
        let (file, pem) = (file.display(), pem(certificate));
        for command in [format!("set ssl cert {file} <<\n{pem}\n"), format!("commit ssl cert {file}\n")] {
            let answer = self.ask(&command)?;
            let taken = answer.contains("Transaction created") || answer.contains("Success!");
            ensure!(taken, "HAProxy does not take the certificate: {answer}");
        }
        Ok(())
    }

    fn set_hosts(&self, config: &Config) -> anyhow::Result<()> {
        let file = self.file("hosts.map");
        let file = file.display();
        let answer = self.ask(&format!("prepare map {file}\n"))?;
        let version = answer.trim().strip_prefix("New version created:").map(str::trim);
        let version = version.with_context(|| format!("HAProxy does not prepare a map: {answer}"))?;
        for batch in batches(map_lines(config)) {
            let answer = self.ask(&format!("add map @{version} {file} <<\n{batch}\n"))?;
            ensure!(answer.trim().is_empty(), "HAProxy does not take the hosts: {answer}");
        }
        let answer = self.ask(&format!("commit map @{version} {file}\n"))?;
        ensure!(answer.trim().is_empty(), "HAProxy does not take the hosts: {answer}");
        Ok(())
    }

    /// Waits until the new worker responds. The old worker may still receive a command after the new worker has read
    /// its configuration, and that command would be lost.
    fn reload(&self, process: &Process) -> anyhow::Result<()> {
        let old = self.worker()?;
        // A master that has just started its worker loses a signal; a master that responds is ready for signals.
        wait_until(|| self.ask_at("master", "show proc\n").is_ok())
            .context("HAProxy's master does not answer")?;
        process.signal(Signal::USR2)?;
        wait_until(|| self.worker().is_ok_and(|worker| worker != old)).context("HAProxy does not reload")
    }

    /// The process id of the responding worker, as a line of text.
    fn worker(&self) -> anyhow::Result<String> {
        let info = self.ask("show info\n")?;
        let line = info.lines().find(|line| line.starts_with("Pid:"));
        Ok(line.with_context(|| format!("HAProxy does not say its process id: {info}"))?.to_owned())
    }

    fn ask(&self, command: &str) -> anyhow::Result<String> {
        self.ask_at("socket", command)
    }

    fn ask_at(&self, socket: &str, command: &str) -> anyhow::Result<String> {
        let exchange = || {
            let mut stream = UnixStream::connect(self.file(socket))?;
            stream.set_read_timeout(Some(LIMIT))?;
            stream.set_write_timeout(Some(LIMIT))?;
            stream.write_all(command.as_bytes())?;
            // The master responds until no more input can come.
            stream.shutdown(Shutdown::Write)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        };
        exchange().with_context(|| {
            format!("asking HAProxy's runtime API: {}", command.lines().next().unwrap_or_default())
        })
    }

    fn write(&self, config: &Config) -> anyhow::Result<()> {
        replace(&self.file("tls.pem"), &pem(&config.certificate))?;
        replace(&self.file("hosts.map"), &map_lines(config).concat())?;
        replace(&self.file("haproxy.cfg"), &self.text())
    }

    fn text(&self) -> String {
        let Site { http, https, workers, .. } = &self.site;
        let server = match self.protocol {
            Protocol::Http1 => "default-server check",
            Protocol::Grpc => "default-server check proto h2",
        };
        let servers: Vec<String> = (1..)
            .zip(&self.slots)
            .map(|(number, slot)| match slot {
                Some(addr) => format!("    server s{number} {addr}"),
                None => format!("    server s{number} 127.0.0.1:1 disabled"),
            })
            .collect();
        fill(
            include_str!("templates/haproxy.cfg"),
            &[
                ("workers", workers),
                ("socket", &self.file("socket").display()),
                ("http", http),
                ("https", https),
                ("certificate", &self.file("tls.pem").display()),
                ("hosts", &self.file("hosts.map").display()),
                ("server", &server),
                ("servers", &servers.join("\n")),
            ],
        )
    }

    fn file(&self, name: &str) -> PathBuf {
        self.site.directory.join(name)
    }
}

fn wait_until(is_so: impl Fn() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        ensure!(Instant::now() < deadline, "waited in vain for {LIMIT:?}");
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// These texts in as few commands as the runtime API accepts.
fn batches(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut batches: Vec<String> = Vec::new();
    for text in texts {
        match batches.last_mut() {
            Some(batch) if batch.len() + text.len() <= AT_ONCE => *batch += &text,
            _ => batches.push(text),
        }
    }
    batches
}

/// Chain and key in one text; without blank lines, since a blank line ends the input of the runtime API.
fn pem(Pem { chain, key }: &Pem) -> String {
    [chain, key]
        .into_iter()
        .flat_map(|text| text.lines())
        .filter(|line| !line.trim().is_empty())
        .map(|line| format!("{}\n", line.trim()))
        .collect()
}

/// Each host with its backend.
fn map_lines(config: &Config) -> Vec<String> {
    [HOST]
        .into_iter()
        .chain(config.hosts.iter().map(String::as_str))
        .map(|host| format!("{host} app\n"))
        .collect()
}
