//! TLS connections, each for one request: a full handshake, a request, an answer, the end.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::time::{ClockId, clock_gettime};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::{NamedGroup, SignatureScheme};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::tls::{Authority, ClientOptions, Issued};

use crate::measure::Made;

/// How many connections are made at a time.
const AT_ONCE: usize = 8;

/// For how long signatures are made.
const SIGNING: Duration = Duration::from_millis(500);

/// Makes connections for this long.
pub(crate) async fn make(addr: SocketAddr, name: &'static str, duration: Duration) -> anyhow::Result<Made> {
    let start = Instant::now();
    let end = start + duration;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        tasks.spawn(async move {
            let mut times = Vec::new();
            while Instant::now() < end {
                let begin = Instant::now();
                one(addr, name).await?;
                times.push(begin.elapsed());
            }
            anyhow::Ok(times)
        });
    }
    Made::of(tasks, start).await
}

async fn one(addr: SocketAddr, name: &str) -> anyhow::Result<()> {
    // What all gateways can do. Options of its own, so that nothing is resumed.
    let mut client = Client::connect_tls(addr, &options(), name).await?;
    let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
    let response = client.request(request).await?;
    ensure!(response.status == 200, "the answer is {}", response.status);
    Ok(())
}

/// The CPU time of a signature with the certificate's key: what no handshake can do without.
pub(crate) fn signature_micros(certificate: &Issued) -> anyhow::Result<f64> {
    let key = any_supported_type(&certificate.certificate.key.0)?;
    let schemes = [SignatureScheme::RSA_PSS_SHA256, SignatureScheme::ECDSA_NISTP256_SHA256];
    let signer = key.choose_scheme(&schemes).context("a key that neither signs by RSA nor with P-256")?;
    let cpu_time = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime));
    let start = cpu_time()?;
    let mut times = 0_u32;
    loop {
        signer.sign(b"what is signed is hashed first")?;
        times += 1;
        let took = cpu_time()? - start;
        if took > SIGNING {
            return Ok(took.as_secs_f64() * 1e6 / f64::from(times));
        }
    }
}

pub(crate) fn options() -> ClientOptions {
    Authority::of_process().client().provider(|provider| {
        provider.kx_groups.retain(|group| group.name() == NamedGroup::X25519);
    })
}
