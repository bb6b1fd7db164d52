//! TLS connections, each for one request: a full handshake, a request, an answer, the end.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::{NamedGroup, SignatureScheme};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::tls::{Authority, ClientOptions, Issued};

/// How many connections are made at a time.
const AT_ONCE: usize = 8;

/// What was made.
pub(crate) struct Made {
    pub(crate) requests: u64,
    pub(crate) took: Duration,
    pub(crate) p99_millis: f64,
}

/// Makes connections for this long.
pub(crate) async fn make(addr: SocketAddr, duration: Duration) -> anyhow::Result<Made> {
    let start = Instant::now();
    let end = start + duration;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        tasks.spawn(async move {
            let mut times = Vec::new();
            while Instant::now() < end {
                let begin = Instant::now();
                one(addr).await?;
                times.push(begin.elapsed());
            }
            anyhow::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(done) = tasks.join_next().await {
        times.extend(done??);
    }
    times.sort();
    let p99 = times.get(times.len() * 99 / 100).context("no connection was made")?;
    Ok(Made { requests: times.len() as u64, took: start.elapsed(), p99_millis: p99.as_secs_f64() * 1e3 })
}

async fn one(addr: SocketAddr) -> anyhow::Result<()> {
    // What all gateways can do. Options of its own, so that nothing is resumed.
    let mut client = Client::connect_tls(addr, &options(), "bench.example").await?;
    let request = "GET / HTTP/1.1\r\nHost: bench.example\r\nConnection: close\r\n\r\n";
    let response = client.request(request).await?;
    ensure!(response.status == 200, "the answer is {}", response.status);
    Ok(())
}

/// How long a signature with the certificate's key takes: what no handshake can do without.
pub(crate) fn signature_micros(certificate: &Issued) -> anyhow::Result<f64> {
    const TIMES: u32 = 300;
    let key = any_supported_type(&certificate.certificate.key.0)?;
    let signer = key.choose_scheme(&[SignatureScheme::RSA_PSS_SHA256]).context("an RSA key")?;
    let start = Instant::now();
    for _ in 0..TIMES {
        signer.sign(b"what is signed is hashed first")?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES))
}

fn options() -> ClientOptions {
    Authority::of_process().client().provider(|provider| {
        provider.kx_groups.retain(|group| group.name() == NamedGroup::X25519);
    })
}
