//! `make demo`: the gateway serves a steady load while backends are killed and the certificate is replaced.
//!
//! Five backends become seven and five again, repeatedly. Each backend is killed with SIGKILL before the EndpointSlice
//! loses its address: in this harsh order, the gateway still uses dead addresses. Half of the load is HTTPS, with a
//! certificate that is issued at start and replaced every second. A consumer calls an API with a plan. Ends on Ctrl-C, or after `DEMO_SECONDS`; exits with 1
//! if a request, a handshake or a call of the API failed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the result of this program is what it prints")]

mod api;
mod certificate;
mod fleet;
mod screen;
mod slice;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, bail};
use clap::Parser;
use sluicegate_netns::Process;
use sluicegate_testkit::load::Load;
use sluicegate_testkit::stream::Transport;
use sluicegate_testkit::tls::Authority;
use tokio::time::{Instant, sleep_until};

use self::api::Api;
use self::certificate::{Certificate, SECRET};
use self::fleet::Fleet;
use self::screen::Screen;
use self::slice::Slice;

/// The number of backends at the start, and after scaling up.
const FEW: usize = 5;
const MANY: usize = 7;

/// The timeout for the gateway's start and stop.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the gateway under load while its endpoints are killed and its certificate is replaced.
#[derive(Debug, Parser)]
#[command(name = "demo")]
struct Arguments {
    /// The duration of the demo, in seconds. [default: until Ctrl-C]
    #[arg(long, env = "DEMO_SECONDS")]
    seconds: Option<u64>,
    /// The requests per second, half of them over HTTPS.
    #[arg(long, default_value_t = 2000.0)]
    rate: f64,
    /// The number of persistent connections, half of them over TLS.
    #[arg(long, default_value_t = 50)]
    connections: usize,
    /// The seconds between two changes of the endpoints.
    #[arg(long, default_value_t = 4.0)]
    every: f64,
    /// The address of the gateway for HTTP.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The address of the gateway for HTTPS.
    #[arg(long, default_value = "127.0.0.1:8443")]
    listen_https: SocketAddr,
    /// The address of the admin interface.
    #[arg(long, default_value = "127.0.0.1:9901")]
    admin: SocketAddr,
    /// The address of the dashboard.
    #[arg(long, default_value = "127.0.0.1:9903")]
    dashboard: SocketAddr,
    /// The directory of manifests: an Ingress, a Service and its EndpointSlice.
    #[arg(long, default_value = "examples/quickstart")]
    manifests: PathBuf,
    /// The sluicegate program. [default: beside this program]
    #[arg(long)]
    sluicegate: Option<PathBuf>,
    /// Serve as a backend at this address instead. The demo starts its backends in this way.
    #[arg(long, hide = true)]
    backend: Option<SocketAddr>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.backend {
        Some(addr) => fleet::serve(addr).await,
        None => run(&arguments).await,
    };
    done.unwrap_or_else(|error| {
        eprintln!("demo: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let gateway = gateway_program(arguments.sluicegate.as_deref())?;
    must_be_free(arguments.listen, "listen")?;
    must_be_free(arguments.listen_https, "listen-https")?;
    must_be_free(arguments.admin, "admin")?;
    must_be_free(arguments.dashboard, "dashboard")?;

    let directory = tempfile::Builder::new().prefix("sluicegate-demo-").tempdir()?;
    let (manifests, authority) = (directory.path().join("manifests"), directory.path().join("ca.pem"));
    copy(&arguments.manifests, &manifests)?;
    fs::write(&authority, Authority::of_process().pem())?;
    let slice = Slice::find(&manifests)?;
    let mut certificate = Certificate::start(&manifests)?;
    let mut fleet = Fleet::start(slice, FEW).await?;
    let api = Api::start(&manifests, &gateway)?;
    let mut gateway = start_gateway(&gateway, arguments, &manifests).await?;

    println!("Sluicegate on http://{}: try `curl {0}`.", with_name(arguments.listen));
    println!(
        "And on https://{}: try `curl -k https://{0}`, or with `--cacert {}`.",
        with_name(arguments.listen_https),
        authority.display()
    );
    println!(
        "An API with a plan: try `curl -H '{}: {}' http://{}:{}/v1/pets`. Its consumer calls it all the time.",
        api::KEY_HEADER,
        api.key,
        api::HOST,
        arguments.listen.port()
    );
    println!("The dashboard with live analytics is on http://{}.", with_name(arguments.dashboard));
    println!(
        "{} requests/s over {} connections, {} of which use HTTPS. Every {} s endpoints are killed (SIGKILL) or added: \
         5, 7, 5, ...\nEvery second the certificate is replaced, and new connections check the certificate.\n",
        arguments.rate,
        arguments.connections,
        arguments.connections.div_ceil(2),
        arguments.every
    );
    let http = half_of_load(arguments, arguments.listen).start()?;
    let https = half_of_load(arguments, arguments.listen_https).transport(Transport::Https).start()?;
    let mut screen = Screen::new(http, https, certificate.counts(), arguments.admin);

    let end = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let changed = tokio::select! {
        changed = change(&mut fleet, Duration::from_secs_f64(arguments.every), &mut screen) => changed,
        rotated = certificate.rotate(arguments.listen_https) => rotated,
        called = api.call(arguments.listen) => called,
        _ = tokio::signal::ctrl_c() => Ok(()),
        () = wait_until(end) => Ok(()),
    };
    let is_good = screen.finish(fleet.changes()).await?;
    changed?;
    if !gateway.is_running() {
        bail!("the gateway has ended; it printed:\n{}", gateway.output());
    }
    gateway.stop(PATIENCE).await?;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn half_of_load(arguments: &Arguments, addr: SocketAddr) -> Load {
    Load::new(addr)
        .host(&with_name(addr))
        .path("/demo?id={id}")
        .connections(arguments.connections.div_ceil(2))
        .rate(arguments.rate / 2.0)
        .expect_own_id()
}

/// Scales the backends up and down forever, and shows the results of the requests.
async fn change(fleet: &mut Fleet, every: Duration, screen: &mut Screen) -> anyhow::Result<()> {
    loop {
        for size in [MANY, FEW] {
            let next = Instant::now() + every;
            screen.show_until(next, fleet.len()).await;
            fleet.scale(size).await?;
        }
    }
}

async fn start_gateway(program: &Path, arguments: &Arguments, manifests: &Path) -> anyhow::Result<Process> {
    let mut command = Command::new(program);
    command.arg("serve").arg("--manifests").arg(manifests);
    command.args(["--listen", &arguments.listen.to_string(), "--admin", &arguments.admin.to_string()]);
    // The gateway uses a default certificate instead of spec.tls, so that it serves plain HTTP without a redirect.
    let (https, secret) = (arguments.listen_https.to_string(), format!("default/{SECRET}"));
    command.args(["--listen-https", &https, "--default-tls-certificate", &secret]);
    command.args(["--analytics", "--dashboard-address", &arguments.dashboard.to_string()]);
    let mut gateway = Process::start(command)?;
    gateway.wait_for_ok(arguments.listen, "/", PATIENCE).await?;
    Ok(gateway)
}

/// The path of the gateway: the program of the same profile, unless an option names another.
fn gateway_program(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()?.with_file_name("sluicegate"),
    };
    if !path.exists() {
        bail!(
            "{} does not exist: run `make demo`, which builds it, or name the program with --sluicegate",
            path.display()
        );
    }
    Ok(path)
}

/// A gateway may share its ports with its successor, so the demo must detect a taken port here.
fn must_be_free(addr: SocketAddr, option: &str) -> anyhow::Result<()> {
    match TcpListener::bind(addr) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => bail!(
            "port {} of {} is in use: stop the process that listens there (`ss -ltnp 'sport = {0}'` shows it), or set another \
             port with --{option}",
            addr.port(),
            addr.ip()
        ),
        bound => bound.map(drop).with_context(|| format!("listening at {addr}")),
    }
}

/// Copies the files of a folder, so that the demo does not change the example.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let entries = fs::read_dir(from).with_context(|| format!("reading {}", from.display()))?;
    fs::create_dir(to)?;
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Replaces a manifest atomically, by a rename: a reader never sees a part of the file.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    // The gateway ignores hidden files.
    let new = path.with_file_name(".new");
    fs::write(&new, text)?;
    fs::rename(&new, path).with_context(|| format!("replacing {}", path.display()))
}

/// The address, with `localhost` in place of a loopback IP address.
fn with_name(addr: SocketAddr) -> String {
    if addr.ip().is_loopback() { format!("localhost:{}", addr.port()) } else { addr.to_string() }
}

async fn wait_until(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}
