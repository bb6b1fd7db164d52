//! A network namespace that resembles a Kubernetes node: pods behind a bridge, whose addresses drop packets after the
//! pods end.
//!
//! On 127.0.0.0/8 a dead address refuses connections at once. In a cluster the address of a dead pod drops packets: ARP
//! requests have no reply, a connect hangs for seconds until the kernel times out, and established connections fall
//! silent. Silent addresses break gateways that rely on their connect timeout. A test needs a bridge with real
//! neighbours to reproduce them.
//!
//! The addresses are from the documentation and benchmarking ranges (RFC 5737, RFC 2544); no packet leaves the
//! namespace. Needs Linux, root and `ip` (iproute2), see [`Namespace::available`].

use std::fs::{self, File};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::linux::fs::MetadataExt;
use std::panic;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::{TcpSocket, TcpStream};

use crate::process::Process;

/// The address of the node, on a bridge without ports: some kernels have no dummy device.
pub const NODE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// The address of the bridge of the pods.
const BRIDGE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// The namespace of the node, in which the gateway runs. Dropping the value kills the processes of the node and its
/// pods, and deletes the namespaces.
#[derive(Debug)]
pub struct Namespace {
    net: Net,
    pods: AtomicU32,
}

/// A pod: a namespace of its own with one address on the node's bridge. Dropping the value kills the processes and
/// deletes the namespace; the address then drops packets.
#[derive(Debug)]
pub struct Pod {
    net: Net,
    ip: Ipv4Addr,
}

impl Namespace {
    /// Whether this process can create namespaces; otherwise the reason.
    pub fn available() -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root".to_owned());
        }
        ip(&["-V"]).map_err(|error| format!("network namespaces need iproute2: {error:#}"))?;
        Net::create().map(drop).map_err(|error| format!("network namespaces cannot be made here: {error:#}"))
    }

    /// A namespace for a test. If namespaces are unavailable, prints the reason and returns `None`. With
    /// `SLUICEGATE_NETNS=require` in the environment the function fails instead, so that CI cannot skip the test.
    pub fn for_test() -> anyhow::Result<Option<Self>> {
        let Err(why) = Self::available() else { return Self::create().map(Some) };
        ensure!(std::env::var_os("SLUICEGATE_NETNS").is_none_or(|need| need != "require"), why);
        let _ = writeln!(std::io::stderr(), "skipped: {why}");
        Ok(None)
    }

    /// Creates the node: loopback, the node's address, the pods' bridge and a default route.
    pub fn create() -> anyhow::Result<Self> {
        let net = Net::create()?;
        let setup = [
            "link set lo up".to_owned(),
            "link add node0 type bridge".to_owned(),
            format!("addr add {NODE}/24 dev node0"),
            "link set node0 up".to_owned(),
            // A default route, as on a real node. The kernel drops its packets.
            "route add default dev node0".to_owned(),
            "link add pods0 type bridge".to_owned(),
            format!("addr add {BRIDGE}/24 dev pods0"),
            "link set pods0 up".to_owned(),
        ];
        for line in &setup {
            net.ip(line)?;
        }
        Ok(Self { net, pods: AtomicU32::new(0) })
    }

    /// Creates the next pod: 198.18.0.11, 198.18.0.12 and so on.
    pub fn pod(&self) -> anyhow::Result<Pod> {
        let number = self.pods.fetch_add(1, Ordering::Relaxed) + 1;
        let host = u8::try_from(10 + number).context("no address is left for another pod")?;
        let ip = Ipv4Addr::new(198, 18, 0, host);
        let net = Net::create()?;
        let link = format!("pod{number}");
        self.net.ip(&format!("link add {link} type veth peer name eth0 netns {}", net.name))?;
        self.net.ip(&format!("link set {link} master pods0 up"))?;
        net.ip("link set lo up")?;
        let pod = Pod { net, ip };
        pod.restore()?;
        Ok(pod)
    }

    /// Starts a command in the namespace.
    pub fn spawn(&self, command: Command) -> anyhow::Result<Process> {
        self.net.enter(|| Process::start(command))?
    }

    /// Runs a closure on a thread in the namespace, and returns its result. Sockets, threads, runtimes and processes of
    /// the closure stay in the namespace.
    pub fn enter<T: Send>(&self, run: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        self.net.enter(run)
    }

    /// Connects from the namespace. The connection also works outside of the namespace.
    pub async fn connect(&self, addr: SocketAddr) -> anyhow::Result<TcpStream> {
        let socket = self.net.enter(TcpSocket::new_v4)??;
        Ok(socket.connect(addr).await?)
    }
}

impl Pod {
    /// The pod's address.
    pub fn ip(&self) -> IpAddr {
        self.ip.into()
    }

    /// Starts a command in the pod.
    pub fn spawn(&self, command: Command) -> anyhow::Result<Process> {
        self.net.enter(|| Process::start(command))?
    }

    /// Runs a closure on a thread in the pod, see [`Namespace::enter`].
    pub fn enter<T: Send>(&self, run: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        self.net.enter(run)
    }

    /// Listens at this port of the pod's address. The socket also works outside of the namespace.
    pub fn listen(&self, port: u16) -> anyhow::Result<TcpListener> {
        let bound = self.net.enter(|| TcpListener::bind((self.ip, port)))?;
        bound.with_context(|| format!("listening at {}:{port}", self.ip))
    }

    /// Makes the address drop packets, as after a power failure of a pod's node: no ARP reply, no RST, no FIN. The
    /// processes continue.
    pub fn blackhole(&self) -> anyhow::Result<()> {
        self.net.ip(&format!("addr del {}/24 dev eth0", self.ip))
    }

    /// Adds the pod's address, also after [`Self::blackhole`].
    pub fn restore(&self) -> anyhow::Result<()> {
        self.net.ip(&format!("addr add {}/24 dev eth0", self.ip))?;
        self.net.ip("link set eth0 up")?;
        self.net.ip(&format!("route replace default via {BRIDGE}"))
    }

    /// Kills the pod's processes with SIGKILL, as when a container dies: connections end, and the address refuses
    /// connections.
    pub fn kill(&self) -> anyhow::Result<()> {
        self.net.kill_processes()
    }

    /// Kills the pod's processes and removes its address, as when a pod is deleted: connections end, and the address
    /// then drops packets.
    pub fn delete(&self) -> anyhow::Result<()> {
        self.net.kill_processes()?;
        self.blackhole()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // An open socket in this process keeps the namespace alive. The namespace does not respond after its link is
        // gone.
        let _ = self.net.ip("link del eth0");
    }
}

/// A named network namespace.
#[derive(Debug)]
struct Net {
    name: String,
    file: File,
}

impl Net {
    /// Creates a namespace with a unique name.
    fn create() -> anyhow::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        for _ in 0..1000 {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("sluicegate-{}-{number}", std::process::id());
            match ip(&["netns", "add", &name]) {
                Ok(()) => {
                    let file =
                        File::open(path(&name)).with_context(|| format!("opening namespace {name}"))?;
                    return Ok(Self { name, file });
                }
                // An earlier process with the same id left the namespace behind.
                Err(error) if format!("{error:#}").contains("File exists") => {}
                Err(error) => return Err(error),
            }
        }
        bail!("every name for a network namespace is taken")
    }

    /// Runs `ip` with these arguments, separated by spaces, in this namespace.
    fn ip(&self, arguments: &str) -> anyhow::Result<()> {
        let words: Vec<_> = ["-n", &self.name].into_iter().chain(arguments.split(' ')).collect();
        ip(&words)
    }

    fn enter<T: Send>(&self, run: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        // A thread of its own enters the namespace and then ends, so that no other code runs in the namespace.
        let entered = thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(run())
            });
            thread.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked))
        });
        entered.map_err(|error: rustix::io::Errno| error).with_context(|| format!("entering {}", self.name))
    }

    /// Kills every process in the namespace except this process, and waits for their end. Only this process knows the
    /// namespace, so this process started all of them.
    fn kill_processes(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let processes = self.processes()?;
            if processes.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "processes {processes:?} of {} do not die", self.name);
            for pid in processes {
                // The process may have ended.
                let _ = kill_process(pid, Signal::KILL);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn processes(&self) -> anyhow::Result<Vec<Pid>> {
        let own = std::process::id().to_string();
        let inode = self.file.metadata()?.st_ino();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            let lives_here = || {
                // A zombie has no namespace.
                let namespace = fs::metadata(entry.path().join("ns/net"));
                namespace.is_ok_and(|namespace| namespace.st_ino() == inode)
            };
            if name != own
                && let Some(pid) = name.parse().ok().and_then(Pid::from_raw)
                && lives_here()
            {
                found.push(pid);
            }
        }
        Ok(found)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // Drop cannot report an error. A remaining namespace is empty, and its name has the id of this process.
        let _ = self.kill_processes();
        let _ = ip(&["netns", "del", &self.name]);
    }
}

fn path(name: &str) -> String {
    format!("/run/netns/{name}")
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).output().context("running ip")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), error.trim());
    Ok(())
}
