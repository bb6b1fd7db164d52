//! The certificate of the demo. The demo replaces the certificate repeatedly, and checks the certificate on new
//! connections.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustls::pki_types::CertificateDer;
use sluicegate_testkit::client::Client;
use sluicegate_testkit::stream::Transport;
use sluicegate_testkit::tls::Authority;
use tokio::time::{Instant, sleep};

/// The name of the Secret, in the namespace `default`.
pub(crate) const SECRET: &str = "demo";

/// The number of connections that check each certificate, and the time between two of them.
const LOOKS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// The time for which the gateway may still present the previous certificate. The workers switch one after another.
const LATE: Duration = Duration::from_millis(500);

/// The maximum number of examples of failures.
const EXAMPLES: usize = 5;

/// The Secret, with its current and its previous certificate.
#[derive(Debug)]
pub(crate) struct Certificate {
    path: PathBuf,
    newest: CertificateDer<'static>,
    previous: Option<CertificateDer<'static>>,
    replaced: Instant,
    newest_was_shown: bool,
    counts: Rc<RefCell<Counts>>,
}

/// The counts of certificates, and of the connections that check them.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Replacements of the certificate.
    pub(crate) rotations: u64,
    /// Certificates that a connection received while they were the newest.
    pub(crate) met: u64,
    /// New connections, including failed connections.
    pub(crate) handshakes: u64,
    /// Connections without a response of status 200, or with a wrong certificate.
    pub(crate) failed: u64,
    /// Some failures as text.
    pub(crate) examples: Vec<String>,
}

impl Certificate {
    /// Issues the first certificate, and writes the Secret to a folder of manifests.
    pub(crate) fn start(manifests: &Path) -> anyhow::Result<Self> {
        let path = manifests.join("certificate.yaml");
        let newest = issue(&path)?;
        let (replaced, counts) = (Instant::now(), Rc::default());
        Ok(Self { path, newest, previous: None, replaced, newest_was_shown: false, counts })
    }

    /// The live counts.
    pub(crate) fn counts(&self) -> Rc<RefCell<Counts>> {
        Rc::clone(&self.counts)
    }

    /// Replaces the certificate about once a second, forever. The same loop makes the connections, so that each
    /// connection knows the expected certificate.
    pub(crate) async fn rotate(&mut self, addr: SocketAddr) -> anyhow::Result<()> {
        loop {
            for _ in 0..LOOKS {
                let age = self.replaced.elapsed();
                let shown = look(addr).await;
                self.judge(shown, age);
                sleep(PAUSE).await;
            }
            self.replace()?;
        }
    }

    fn replace(&mut self) -> anyhow::Result<()> {
        self.previous = Some(std::mem::replace(&mut self.newest, issue(&self.path)?));
        self.replaced = Instant::now();
        self.newest_was_shown = false;
        self.counts.borrow_mut().rotations += 1;
        Ok(())
    }

    /// Counts the certificate of a connection. `age` is the age of the newest certificate at the start of the
    /// connection.
    fn judge(&mut self, shown: anyhow::Result<CertificateDer<'static>>, age: Duration) {
        let mut counts = self.counts.borrow_mut();
        counts.handshakes += 1;
        let fault = match shown {
            Ok(shown) if shown == self.newest => {
                counts.met += u64::from(!self.newest_was_shown);
                self.newest_was_shown = true;
                return;
            }
            Ok(shown) if Some(&shown) == self.previous.as_ref() && age < LATE => return,
            Ok(_) => format!("not the newest certificate was shown, which was {age:.0?} old"),
            Err(error) => format!("{error:#}"),
        };
        counts.failed += 1;
        if counts.examples.len() < EXAMPLES {
            counts.examples.push(fault);
        }
    }
}

/// Writes a Secret with a new certificate.
fn issue(path: &Path) -> anyhow::Result<CertificateDer<'static>> {
    let issued = Authority::of_process().issue(&["localhost"]);
    crate::replace(path, &issued.secret(SECRET))?;
    issued.certificate.chain.first().cloned().context("an empty chain")
}

/// The certificate that a new connection receives. The client resumes no session, because a resumed session has no
/// certificate.
async fn look(addr: SocketAddr) -> anyhow::Result<CertificateDer<'static>> {
    let mut client = Client::connect_by(addr, Transport::Https).await?;
    let response = client.request("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    ensure!(response.status == 200, "status {}: {}", response.status, response.text());
    let chain = client.tls().and_then(|tls| tls.peer_certificates()).unwrap_or_default();
    chain.first().cloned().context("no certificate was shown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_fails_if_a_certificate_is_served_long_after_its_replacement() {
        let directory = tempfile::tempdir().unwrap();
        let mut certificate = Certificate::start(directory.path()).unwrap();
        let oldest = certificate.newest.clone();
        certificate.replace().unwrap();
        let old = certificate.newest.clone();
        certificate.replace().unwrap();
        let new = certificate.newest.clone();
        let mut failed = |shown: &CertificateDer<'static>, age| {
            let before = certificate.counts.borrow().failed;
            certificate.judge(Ok(shown.clone()), age);
            certificate.counts.borrow().failed > before
        };
        assert!(!failed(&old, Duration::ZERO) && failed(&old, LATE));
        assert!(!failed(&new, Duration::ZERO) && !failed(&new, LATE));
        assert!(failed(&oldest, Duration::ZERO));
        let counts = certificate.counts.borrow();
        assert_eq!((counts.rotations, counts.met, counts.handshakes, counts.failed), (2, 1, 5, 2));
    }
}
