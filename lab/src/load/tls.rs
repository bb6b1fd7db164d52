//! TLS, driven directly over rustls' core without I/O: an idle connection has no buffers.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::crypto::{SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError};
use rustls::{ClientConfig, Error, RootCertStore};
use sluicegate_any_certificate::AnyCertificate;

use super::target::Target;

/// The ALPN name of HTTP/2 (RFC 9113, 3.2).
const HTTP2: &[u8] = b"h2";

/// The options of TLS connections.
#[derive(Clone, Debug)]
pub(crate) struct TlsOptions {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsOptions {
    /// With `authorities`, a PEM file, servers need a certificate of these CAs. With `groups`, the key exchange uses
    /// one of these groups: the server's preferred group.
    pub(crate) fn new(
        target: &Target,
        authorities: Option<&Path>,
        groups: &[&'static dyn SupportedKxGroup],
        is_http2: bool,
    ) -> anyhow::Result<Self> {
        let mut provider = aws_lc_rs::default_provider();
        if !groups.is_empty() {
            provider.kx_groups = groups.to_vec();
        }
        let provider = Arc::new(provider);
        let builder =
            ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let mut config = match authorities {
            Some(path) => builder.with_root_certificates(roots(path)?).with_no_client_auth(),
            // Like wrk, the client trusts every issuer.
            None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
                .with_no_client_auth(),
        };
        // The client makes full handshakes, as new users do.
        config.resumption = Resumption::disabled();
        let protocol = if is_http2 { HTTP2 } else { b"http/1.1" };
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::try_from(target.host.clone()).with_context(|| {
            format!("{}: {:?} cannot be the name of a TLS server", target.url, target.host)
        })?;
        Ok(Self { config: Arc::new(config), name })
    }
}

/// The key exchange group by its name in TLS and curl.
pub(crate) fn group(name: &str) -> Result<&'static dyn SupportedKxGroup, String> {
    match name.to_ascii_uppercase().as_str() {
        "X25519MLKEM768" => Ok(aws_lc_rs::kx_group::X25519MLKEM768),
        "X25519" => Ok(aws_lc_rs::kx_group::X25519),
        "P-256" => Ok(aws_lc_rs::kx_group::SECP256R1),
        "P-384" => Ok(aws_lc_rs::kx_group::SECP384R1),
        _ => Err("it is none of X25519MLKEM768, X25519, P-256 and P-384".to_owned()),
    }
}

fn roots(path: &Path) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let in_file = || format!("--cacert {}", path.display());
    for certificate in CertificateDer::pem_file_iter(path).with_context(in_file)? {
        roots.add(certificate.with_context(in_file)?).with_context(in_file)?;
    }
    anyhow::ensure!(!roots.is_empty(), "{}: there is no certificate in it", in_file());
    Ok(roots)
}

/// The client's side of a TLS connection.
pub(crate) struct Tls {
    session: UnbufferedClientConnection,
    /// The received beginning of a record, or of several records that belong together.
    partial: Vec<u8>,
}

/// The state after the received records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Handshaking,
    Ready,
    /// The server sends no more data.
    Ended,
}

/// The maximum size of handshake messages, which may be larger than a record.
const MAX_PARTIAL: usize = 256 * 1024;

impl Tls {
    /// Begins the handshake: the first message is in `outgoing`.
    pub(crate) fn new(options: &TlsOptions, outgoing: &mut Vec<u8>) -> Result<Self, Error> {
        let session = UnbufferedClientConnection::new(options.config.clone(), options.name.clone())?;
        let mut tls = Self { session, partial: Vec::new() };
        tls.read(&mut [], &mut Vec::new(), outgoing)?;
        Ok(tls)
    }

    /// Reads records. Appends their content to `plain`, and the output of TLS to `outgoing`.
    pub(crate) fn read(
        &mut self,
        records: &mut [u8],
        plain: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Result<Progress, Error> {
        if self.partial.is_empty() {
            let (used, progress) = process(&mut self.session, records, plain, outgoing)?;
            self.partial.extend_from_slice(&records[used..]);
            return Ok(progress);
        }
        self.partial.extend_from_slice(records);
        let (used, progress) = process(&mut self.session, &mut self.partial, plain, outgoing)?;
        self.partial.drain(..used);
        if self.partial.len() > MAX_PARTIAL {
            return Err(Error::General("a message that is too large".to_owned()));
        }
        Ok(progress)
    }

    /// Whether the server has agreed to HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.session.alpn_protocol() == Some(HTTP2)
    }

    /// Encrypts `data` into `outgoing`.
    pub(crate) fn write(&mut self, data: &[u8], outgoing: &mut Vec<u8>) -> Result<(), Error> {
        loop {
            let status = self.session.process_tls_records(&mut []);
            match status.state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let start = outgoing.len();
                    // Each record adds at most 29 bytes to its data.
                    let mut size = data.len() + 32 * (1 + data.len() / (16 * 1024));
                    loop {
                        outgoing.resize(start + size, 0);
                        match traffic.encrypt(data, &mut outgoing[start..]) {
                            Ok(sealed) => {
                                outgoing.truncate(start + sealed);
                                return Ok(());
                            }
                            Err(EncryptError::InsufficientSize(more)) => size = more.required_size,
                            Err(error) => return Err(Error::General(error.to_string())),
                        }
                    }
                }
                ConnectionState::EncodeTlsData(mut data) => encode(&mut data, outgoing)?,
                ConnectionState::TransmitTlsData(data) => data.done(),
                _ => return Err(Error::General("the connection takes no data".to_owned())),
            }
        }
    }
}

/// Returns the number of used bytes of the records.
fn process(
    session: &mut UnbufferedClientConnection,
    records: &mut [u8],
    plain: &mut Vec<u8>,
    outgoing: &mut Vec<u8>,
) -> Result<(usize, Progress), Error> {
    let mut used = 0;
    loop {
        let status = session.process_tls_records(&mut records[used..]);
        let mut discard = status.discard;
        let progress = match status.state? {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    discard += record.discard;
                    plain.extend_from_slice(record.payload);
                }
                None
            }
            ConnectionState::EncodeTlsData(mut data) => {
                encode(&mut data, outgoing)?;
                None
            }
            ConnectionState::TransmitTlsData(data) => {
                // The output is in `outgoing`. The caller sends this output first.
                data.done();
                None
            }
            ConnectionState::BlockedHandshake => Some(Progress::Handshaking),
            ConnectionState::WriteTraffic(_) => Some(Progress::Ready),
            ConnectionState::PeerClosed | ConnectionState::Closed => Some(Progress::Ended),
            _ => return Err(Error::General("a state that no client gets into".to_owned())),
        };
        used += discard;
        if let Some(progress) = progress {
            return Ok((used, progress));
        }
    }
}

fn encode(
    data: &mut rustls::unbuffered::EncodeTlsData<'_, rustls::client::ClientConnectionData>,
    outgoing: &mut Vec<u8>,
) -> Result<(), Error> {
    let start = outgoing.len();
    let mut size = 2048;
    loop {
        outgoing.resize(start + size, 0);
        match data.encode(&mut outgoing[start..]) {
            Ok(encoded) => {
                outgoing.truncate(start + encoded);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(more)) => size = more.required_size,
            Err(error) => return Err(Error::General(error.to_string())),
        }
    }
}
