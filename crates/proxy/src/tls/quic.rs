//! TLS inside QUIC (RFC 9001): the configuration of the requested name, for connections of HTTP/3.
//!
//! quinn needs the configuration before the ClientHello has arrived. So a session of this module collects the ClientHello,
//! finds the host, and then passes everything on to a session of the host's configuration.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session as QuicSession,
    UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::server::{Acceptor, ProducesTickets, ServerSessionMemoryCache};
use rustls::version::TLS13;
use rustls::{AlertDescription, ProtocolVersion};

use super::provider;
use super::table::{ByKey, Found, Host, Session, TlsTable};
use crate::failure::TlsFault;

/// The protocol of HTTP/3 for ALPN (RFC 9114, 3.1).
const PROTOCOL: &[u8] = b"h3";

/// How many sessions of a host clients may resume with 0-RTT. Each session is in memory until a client resumes it, so that
/// no copy of a request is accepted twice (RFC 8446, 8.1).
const RESUMABLE: usize = 4096;

/// The configuration of a host for QUIC.
#[derive(Clone)]
pub(super) struct HostConfig(Arc<QuicServerConfig>);

impl HostConfig {
    /// From the configuration for TCP.
    pub(super) fn new(
        config: &rustls::ServerConfig,
        with_early_data: bool,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let mut config = config.clone();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        if with_early_data {
            // RFC 9001, 4.6.1: the only value except 0.
            config.max_early_data_size = u32::MAX;
            config.session_storage = ServerSessionMemoryCache::new(RESUMABLE);
            config.ticketer = Arc::new(NoTickets);
        }
        Ok(Self(Arc::new(QuicServerConfig::try_from(config)?)))
    }
}

impl fmt::Debug for HostConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostConfig")
    }
}

/// Sessions with 0-RTT have no tickets that a client could use twice.
#[derive(Debug)]
struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// The names of an entry point, for handshakes of QUIC.
pub(crate) struct QuicNames {
    names: Arc<TlsTable>,
    /// For all that does not depend on the name.
    any: Arc<QuicServerConfig>,
    /// The limit for the ClientHello in bytes.
    limit: usize,
}

impl QuicNames {
    /// # Errors
    /// If the cryptographic library lacks the cipher of the first packets.
    pub(crate) fn new(names: Arc<TlsTable>, limit: usize) -> io::Result<Self> {
        let config = rustls::ServerConfig::builder_with_provider(provider());
        let config = config.with_protocol_versions(&[&TLS13]).map_err(io::Error::other)?;
        let config = config.with_no_client_auth().with_cert_resolver(Arc::new(ByKey(Vec::new())));
        let any = QuicServerConfig::try_from(config).map_err(io::Error::other)?;
        Ok(Self { names, any: Arc::new(any), limit })
    }
}

impl ServerConfig for QuicNames {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.any.initial_keys(version, id)
    }

    fn retry_tag(&self, version: u32, id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.any.retry_tag(version, id, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        parameters: &TransportParameters,
    ) -> Box<dyn QuicSession> {
        Box::new(NamedSession {
            nameless: self.any.clone().start_session(version, parameters),
            names: self,
            version,
            parameters: *parameters,
            hello: Vec::new(),
            acceptor: Acceptor::default(),
            chosen: None,
        })
    }
}

/// A session that waits for the name, or has found its host.
struct NamedSession {
    names: Arc<QuicNames>,
    version: u32,
    parameters: TransportParameters,
    /// The ClientHello so far.
    hello: Vec<u8>,
    acceptor: Acceptor,
    /// Stands for the session until the host is known.
    nameless: Box<dyn QuicSession>,
    chosen: Option<Chosen>,
}

struct Chosen {
    name: Option<Box<str>>,
    host: Arc<Host>,
    session: Box<dyn QuicSession>,
}

/// The result of a ClientHello: quinn's data of the handshake.
pub(crate) struct QuicHandshake {
    name: Option<Box<str>>,
    host: Arc<Host>,
}

impl QuicHandshake {
    /// The session of a connection.
    pub(crate) fn into_session(self) -> Session {
        let negotiated = (Some(ProtocolVersion::TLSv1_3), None);
        Session { name: self.name, host: self.host, negotiated }
    }
}

impl NamedSession {
    fn session(&self) -> &dyn QuicSession {
        self.chosen.as_ref().map_or(&*self.nameless, |chosen| &*chosen.session)
    }

    fn session_mut(&mut self) -> &mut dyn QuicSession {
        self.chosen.as_mut().map_or(&mut *self.nameless, |chosen| &mut *chosen.session)
    }

    /// Takes a part of the ClientHello. Returns the name once the ClientHello is complete.
    fn hear(&mut self, part: &[u8]) -> Result<Option<Option<Box<str>>>, TransportError> {
        if self.hello.len() + part.len() > self.names.limit {
            return Err(refused(TlsFault::HelloTooLarge));
        }
        self.hello.extend_from_slice(part);
        for part in part.chunks(1 << 14) {
            // The acceptor reads records (RFC 8446, 5.1), which QUIC does not have.
            let length = u16::try_from(part.len()).unwrap_or_default().to_be_bytes();
            let header = [22, 3, 1, length[0], length[1]];
            for mut bytes in [&header[..], part] {
                while !bytes.is_empty() {
                    self.acceptor.read_tls(&mut bytes).map_err(|_| refused(TlsFault::Protocol))?;
                }
            }
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    let hello = accepted.client_hello();
                    return Ok(Some(hello.server_name().map(|name| name.to_ascii_lowercase().into())));
                }
                Err((error, _)) => return Err(refused(TlsFault::of(&error))),
            }
        }
        Ok(None)
    }
}

/// The alert for a fault (RFC 9001, 4.8).
fn refused(fault: TlsFault) -> TransportError {
    let alert = match fault {
        TlsFault::UnknownName => AlertDescription::UnrecognisedName,
        TlsFault::HelloTooLarge => AlertDescription::DecodeError,
        TlsFault::Protocol | TlsFault::NotTls => AlertDescription::UnexpectedMessage,
        TlsFault::Incompatible => AlertDescription::HandshakeFailure,
        _ => AlertDescription::InternalError,
    };
    TransportError::from(TransportErrorCode::crypto(alert.into()))
}

impl QuicSession for NamedSession {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        self.session().initial_keys(id, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let Chosen { name, host, .. } = self.chosen.as_ref()?;
        Some(Box::new(QuicHandshake { name: name.clone(), host: host.clone() }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session().peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.session().early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session().early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session().is_handshaking()
    }

    fn read_handshake(&mut self, part: &[u8]) -> Result<bool, TransportError> {
        if let Some(chosen) = &mut self.chosen {
            // The data of the handshake was reported with the ClientHello.
            return chosen.session.read_handshake(part).map(|_| false);
        }
        let Some(name) = self.hear(part)? else { return Ok(false) };
        let host = match self.names.names.find(name.as_deref()) {
            Ok(Found::Host(host)) => host.clone(),
            // TLS passthrough has no form for QUIC.
            Ok(Found::Passthrough) => return Err(refused(TlsFault::UnknownName)),
            Err(fault) => return Err(refused(fault)),
        };
        let Some(config) = host.quic.clone() else { return Err(refused(TlsFault::UnknownName)) };
        let mut session = config.0.start_session(self.version, &self.parameters);
        let result = session.read_handshake(&std::mem::take(&mut self.hello));
        self.chosen = Some(Chosen { name, host, session });
        result.map(|_| true)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session().transport_parameters()
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        self.session_mut().write_handshake(out)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.session_mut().next_1rtt_keys()
    }

    fn is_valid_retry(&self, id: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.session().is_valid_retry(id, header, payload)
    }

    fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.session().export_keying_material(out, label, context)
    }
}
