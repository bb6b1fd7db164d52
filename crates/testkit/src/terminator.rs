//! TLS termination in front of a backend.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::tls::{Authority, Issued};

/// Terminates TLS for a backend, and records the handshakes of clients.
#[derive(Debug)]
pub struct Terminator {
    addr: SocketAddr,
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Seen {
    certificate: Mutex<Arc<CertifiedKey>>,
    names: Mutex<Vec<Option<String>>>,
    handshakes: AtomicU64,
}

impl Terminator {
    /// Presents this certificate, and forwards the bytes to `backend`. With `clients`, requires client certificates of
    /// this CA.
    ///
    /// # Errors
    /// If the terminator cannot listen.
    ///
    /// # Panics
    /// If the certificate is invalid.
    pub async fn start(backend: SocketAddr, shown: &Issued, clients: Option<&Authority>) -> io::Result<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let seen = Arc::new(Seen {
            certificate: Mutex::new(certified(shown)),
            names: Mutex::default(),
            handshakes: AtomicU64::new(0),
        });
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.certificate()).expect("a certificate");
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
                builder.with_client_cert_verifier(verifier.expect("a verifier"))
            }
        };
        let acceptor = TlsAcceptor::from(Arc::new(builder.with_cert_resolver(seen.clone())));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let task = tokio::spawn({
            let seen = seen.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, acceptor.clone(), backend, seen.clone()));
                }
            }
        });
        Ok(Self { addr, seen, task })
    }

    /// The address of the listener.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Presents another certificate to new connections.
    pub fn show(&self, issued: &Issued) {
        *self.seen.certificate.lock().unwrap_or_else(PoisonError::into_inner) = certified(issued);
    }

    /// The server names from clients.
    #[must_use]
    pub fn names(&self) -> Vec<Option<String>> {
        self.seen.names.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of complete handshakes.
    #[must_use]
    pub fn handshakes(&self) -> u64 {
        self.seen.handshakes.load(Ordering::Relaxed)
    }
}

impl Drop for Terminator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ResolvesServerCert for Seen {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_owned);
        self.names.lock().unwrap_or_else(PoisonError::into_inner).push(name);
        Some(self.certificate.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn certified(issued: &Issued) -> Arc<CertifiedKey> {
    let certificate = &issued.certificate;
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&certificate.key.0).expect("a key");
    Arc::new(CertifiedKey::new(certificate.chain.clone(), key))
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, backend: SocketAddr, seen: Arc<Seen>) {
    let Ok(mut secured) = acceptor.accept(stream).await else { return };
    seen.handshakes.fetch_add(1, Ordering::Relaxed);
    if let Ok(mut plain) = TcpStream::connect(backend).await {
        // The end of one side ends both sides.
        let _ = copy_bidirectional(&mut secured, &mut plain).await;
    }
    let _ = secured.shutdown().await;
}
