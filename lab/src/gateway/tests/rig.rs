//! A running gateway, and clients for it.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned, SupportedProtocolVersion};
use sluicegate_netns::Process;
use tempfile::TempDir;

use crate::experiment::Work;
use crate::socket::read_some;

use super::super::api::{Call, Header};
use super::super::{ALL, Api, Config, Driver, EXTRA, HOST, Kind, Part, Protocol, Site};
use super::{authority, pods};

/// The timeout for a change to take effect. A change usually takes a second or two, and longer on a busy machine.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// The path of requests that are no calls of an API.
const PATH: &str = "/path?query";

/// The timeout for one exchange.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running gateway, with pods that a change may add as endpoints.
pub(super) struct Running {
    pub(super) kind: &'static Kind,
    pub(super) site: Site,
    pub(super) config: Config,
    pub(super) pods: Vec<SocketAddr>,
    driver: Box<dyn Driver>,
    process: Process,
    _directory: TempDir,
}

/// Tests a promise of each kind of gateway, all at the same time. A gateway that is not installed is skipped, unless
/// SLUICEGATE_PEERS=require.
pub(super) fn each(promise: fn(&mut Running) -> anyhow::Result<()>) {
    each_with(3, promise);
}

/// Like [`each`], with this many pods.
pub(super) fn each_with(pods: u8, promise: fn(&mut Running) -> anyhow::Result<()>) {
    // The gateway `floor` only forwards bytes, so it makes no promises.
    let kinds = ALL.into_iter().chain(EXTRA).filter(|kind| kind.can(Work::Https));
    let broken: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> =
            kinds.map(|kind| (kind.name, scope.spawn(move || keep(kind, pods, promise)))).collect();
        let results = threads.into_iter().map(|(name, thread)| (name, thread.join().expect("no panic")));
        results.filter_map(|(name, result)| Some(format!("{name}: {:#}", result.err()?))).collect()
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Tests a promise of one kind of gateway, with this many pods. The first pod is the endpoint at the start.
pub(super) fn keep(
    kind: &'static Kind,
    pods: u8,
    promise: fn(&mut Running) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    keep_with(kind, pods, &Api::Nothing, promise)
}

/// Like [`keep`], with these functions of an API gateway.
pub(super) fn keep_with(
    kind: &'static Kind,
    pods: u8,
    api: &Api,
    promise: fn(&mut Running) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if let Err(error) = (kind.version)(&tools()) {
        if std::env::var("SLUICEGATE_PEERS").is_ok_and(|value| value == "require") {
            return Err(error.context("SLUICEGATE_PEERS=require"));
        }
        eprintln!("skipped: {}: {error:#}", kind.name);
        return Ok(());
    }
    let mut running = Running::start(kind, pods, api.clone())?;
    promise(&mut running).with_context(|| format!("it printed {:?}", running.process.output()))
}

/// `target/tools` of this repository.
fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools")
}

impl Running {
    fn start(kind: &'static Kind, pods: u8, api: Api) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        // Each gateway has its own addresses, so that no test takes a port that another test has just found free.
        static NETWORKS: AtomicU16 = AtomicU16::new(0);
        let [a, b] = NETWORKS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let network = [100 + a, b];
        let pods = pods::start(network, pods)?;
        let [http, https, admin] = free_ports(network)?;
        let site = Site {
            directory: directory.path().to_owned(),
            http,
            https,
            admin,
            workers: 2,
            kept: 100,
            tools: tools(),
            options: Vec::new(),
        };
        let certificate = authority::issue(&KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?)?;
        let config = Config {
            endpoints: vec![pods[0]],
            protocol: Protocol::Http1,
            certificate,
            hosts: Vec::new(),
            api,
        };
        let prepared = (kind.prepare)(&site, &config)?;
        let process = Process::start(prepared.command)?;
        let driver = prepared.driver;
        let mut running = Self { kind, site, config, pods, driver, process, _directory: directory };
        running.wait_until_served().with_context(|| format!("it printed {:?}", running.process.output()))?;
        Ok(running)
    }

    fn wait_until_served(&mut self) -> anyhow::Result<()> {
        for addr in [self.site.http, self.site.https] {
            eventually("it accepts connections", || Ok(TcpStream::connect(addr).is_ok()))?;
        }
        self.driver.started(&self.process, &self.config)?;
        let good = self.config.api.good().pop();
        eventually("it answers 200", || Ok(self.call(good.as_ref()).is_ok_and(|answer| answer.status == 200)))
    }

    /// Applies a change of the configuration to the gateway.
    pub(super) fn apply(
        &mut self,
        part: Part,
        change: impl FnOnce(&mut Config, &[SocketAddr]),
    ) -> anyhow::Result<()> {
        change(&mut self.config, &self.pods);
        self.driver.apply(&self.process, part, &self.config)
    }

    /// A request over plain HTTP.
    pub(super) fn get(&self, host: &str) -> anyhow::Result<Answer> {
        self.ask(host, &Call::good(None))
    }

    /// A call of an API, with a credential in `header`.
    pub(super) fn call(&self, header: Option<&Header>) -> anyhow::Result<Answer> {
        self.make(&Call::good(header.cloned()))
    }

    /// A call of an API.
    pub(super) fn make(&self, call: &Call) -> anyhow::Result<Answer> {
        self.ask(HOST, call)
    }

    /// A call of this path.
    pub(super) fn call_path(&self, path: &str, header: Option<&Header>) -> anyhow::Result<Answer> {
        let stream = connect(self.site.http)?;
        let client = stream.local_addr()?;
        exchange(stream, HOST, path, &Call::good(header.cloned()), client)
    }

    fn ask(&self, host: &str, call: &Call) -> anyhow::Result<Answer> {
        let stream = connect(self.site.http)?;
        let client = stream.local_addr()?;
        let path = match &self.config.api {
            api @ (Api::Managed(_) | Api::Validation) => &*api.path(None),
            _ => PATH,
        };
        exchange(stream, host, path, call, client)
    }

    /// A request over HTTPS with the server name `name`.
    pub(super) fn get_secured(&self, host: &str, name: &str) -> anyhow::Result<Answer> {
        let stream = self.secured(name, rustls::ALL_VERSIONS, &[])?;
        let client = stream.sock.local_addr()?;
        exchange(stream, host, PATH, &Call::good(None), client)
    }

    /// The certificate that new clients receive.
    pub(super) fn shown(&self) -> anyhow::Result<CertificateDer<'static>> {
        let stream = self.secured(HOST, rustls::ALL_VERSIONS, &[])?;
        let shown = stream.conn.peer_certificates().and_then(|chain| chain.first());
        Ok(shown.context("no certificate is shown")?.clone().into_owned())
    }

    /// A TLS connection after the handshake.
    pub(super) fn secured(
        &self,
        name: &str,
        versions: &[&'static SupportedProtocolVersion],
        protocols: &[&[u8]],
    ) -> anyhow::Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)?
            .with_root_certificates(authority::trusted()?)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let mut session = ClientConnection::new(Arc::new(config), ServerName::try_from(name.to_owned())?)?;
        let mut stream = connect(self.site.https)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream).context("the handshake")?;
        }
        Ok(StreamOwned::new(session, stream))
    }
}

/// The response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// The pod that responded, from `x-pod`.
    pub(super) pod: Option<SocketAddr>,
    /// The address of the client.
    pub(super) client: SocketAddr,
    text: String,
}

impl Answer {
    /// A header of the request as the pod received it.
    pub(super) fn seen(&self, name: &str) -> Option<&str> {
        field(self.text.split_once("\r\n\r\n")?.1, name)
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
}

/// Waits until `is_so` returns true.
pub(super) fn eventually(what: &str, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "{LIMIT:?} are over before {what}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Whether several requests in a row all have the expected result, so that each worker agrees.
pub(super) fn all<T: PartialEq + Debug>(
    mut ask: impl FnMut() -> anyhow::Result<T>,
    expected: &T,
) -> anyhow::Result<bool> {
    for _ in 0..20 {
        if ask()? != *expected {
            return Ok(false);
        }
    }
    Ok(true)
}

fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn exchange(
    mut stream: impl Read + Write,
    host: &str,
    path: &str,
    call: &Call,
    client: SocketAddr,
) -> anyhow::Result<Answer> {
    stream.write_all(call.request(host, path, "").as_bytes())?;
    let mut answer = Vec::new();
    // The loop does not wait for the end of the connection, because some gateways delay the close.
    while !is_whole(&answer) {
        let mut buffer = [0; 4096];
        let read = read_some(&mut stream, &mut buffer)?;
        ensure!(read > 0, "the answer ends after {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&buffer[..read]);
    }
    let text = String::from_utf8(answer)?;
    let Some(status) = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)) else {
        bail!("this is no answer: {text:?}");
    };
    let pod = field(&text, "x-pod").map(str::parse).transpose()?;
    Ok(Answer { status: status.parse()?, pod, client, text })
}

fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = field(head, "content-length").and_then(|value| value.parse::<usize>().ok());
    length.map_or_else(|| body.ends_with("0\r\n\r\n"), |length| body.len() >= length)
}

fn free_ports(network: [u8; 2]) -> io::Result<[SocketAddr; 3]> {
    let [a, b] = network;
    let listen = || TcpListener::bind((Ipv4Addr::new(127, a, b, 200), 0));
    let listeners = [listen()?, listen()?, listen()?];
    let [http, https, admin] = listeners.each_ref().map(TcpListener::local_addr);
    Ok([http?, https?, admin?])
}
