//! The cost of the private key operation of a handshake. No gateway with this library can make a handshake at a lower
//! cost.

use std::time::Duration;

use anyhow::Context as _;
use rustix::time::{ClockId, clock_gettime};
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;

use crate::certificate::{Issuer, Key};
use crate::experiment::{Compare, Work};
use crate::results::Point;

/// The duration of the signing.
const SIGNING: Duration = Duration::from_millis(500);

/// Signatures with the keys of the compared new TLS connections.
pub(super) fn signatures(compare: &Compare) -> anyhow::Result<Vec<Point>> {
    let mut points = Vec::new();
    for (work, key, name) in
        [(Work::TlsRsa, Key::Rsa, "signature, RSA"), (Work::TlsP256, Key::P256, "signature, P-256")]
    {
        if !compare.works.contains(&work) {
            continue;
        }
        for turn in 1..=compare.turns {
            let micros = signature_micros(key)?;
            points.push(Point {
                work: name.to_owned(),
                workers: 1,
                turn,
                requests_per_s: 1e6 / micros,
                cpu_us_per_request: micros,
                cpus: 1.0,
                ..Point::default()
            });
        }
    }
    Ok(points)
}

/// The CPU time of a signature in microseconds.
fn signature_micros(key: Key) -> anyhow::Result<f64> {
    let (pem, _) = Issuer::new(key)?.issue()?;
    let key = any_supported_type(&PrivateKeyDer::from_pem_slice(pem.key.as_bytes())?)?;
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
