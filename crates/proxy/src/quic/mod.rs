//! QUIC (RFC 9000) for HTTP/3: sockets, and the way of each datagram to the worker of its connection.
//!
//! The kernel distributes datagrams over the workers' sockets by the addresses of both sides. A client that changes its
//! address, and a process that takes over the sockets, need another way. So each connection ID names the process and the
//! worker of its connection, encrypted. A worker that receives a datagram of another worker passes the datagram on; a process
//! passes the datagrams of its predecessor back.
//!
//! | module | purpose |
//! |---|---|
//! | [`id`] | connection IDs |
//! | [`switch`] | the workers' lanes at one address |
//! | [`process`] | the processes before and after this one |
//! | [`socket`] | the sockets of one worker, as quinn uses them |

mod id;
mod process;
mod socket;
mod switch;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Endpoint, EndpointConfig, IdleTimeout, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use sluicegate_model::Settings;
use sluicegate_model::tls::Http3;

pub(crate) use process::Process;
pub(crate) use switch::Switch;

use crate::counters::Counters;
use crate::tls::{QuicNames, TlsTable};
use socket::Socket;

/// How many streams a client may open beside its requests. HTTP/3 needs three (RFC 9114, 6.2).
const SIDE_STREAMS: u32 = 8;
/// The bytes of all responses of a connection that wait for acknowledgements.
const SEND_WINDOW: u64 = 1024 * 1024;
/// How many bytes of a connection may wait until the worker accepts the connection, and of all such connections together.
const WAITING: u64 = 16 * 1024;
const WAITING_IN_ALL: u64 = 4 * 1024 * 1024;
/// How often a silent connection is checked while it is open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The sockets of one worker for QUIC at one address, and their switch.
pub(crate) struct Place {
    /// The sockets of the worker: its own, or those of the process before.
    pub(crate) sockets: Vec<std::net::UdpSocket>,
    pub(crate) switch: Arc<Switch>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("sockets", &self.sockets).finish_non_exhaustive()
    }
}

/// The endpoint of one worker at one address, with the configuration for new connections.
pub(crate) struct Quic {
    pub(crate) endpoint: Endpoint,
    switch: Arc<Switch>,
    /// The configuration for new connections, and its sources.
    latest: Option<(Arc<TlsTable>, Http3, Arc<ServerConfig>)>,
}

impl Quic {
    /// Starts to receive datagrams in the runtime of this thread.
    ///
    /// # Errors
    /// If a socket lacks a necessary option, or the worker listens already.
    pub(crate) fn start(
        place: Place,
        (worker, counters): (usize, Arc<Counters>),
        address: SocketAddr,
    ) -> io::Result<Self> {
        let Place { sockets, switch } = place;
        let ids = switch.process().ids();
        let mut config = EndpointConfig::new(ids.reset_key());
        let generator_ids = ids.clone();
        let owner = u8::try_from(worker).map_err(|_| io::ErrorKind::InvalidInput)?;
        config.cid_generator(move || Box::new(generator_ids.generator(owner)));
        let socket = Socket::new(sockets, switch.clone(), (worker, counters), address)?;
        // Without a configuration, quinn takes no new connections. The worker passes another one with each connection.
        let base = ServerConfig::new(Arc::new(QuicNames::new(Arc::default(), 0)?), ids.token_key());
        let endpoint = Endpoint::new_with_abstract_socket(
            config,
            Some(limited(base)),
            Arc::new(socket),
            Arc::new(TokioRuntime),
        )?;
        Ok(Self { endpoint, switch, latest: None })
    }

    /// The configuration for a new connection.
    ///
    /// # Errors
    /// If the cryptographic library lacks the cipher of the first packets.
    pub(crate) fn config(
        &mut self,
        names: &Arc<TlsTable>,
        settings: &Settings,
        http3: Http3,
    ) -> io::Result<Arc<ServerConfig>> {
        if let Some((known, of, config)) = &self.latest
            && Arc::ptr_eq(known, names)
            && *of == http3
        {
            return Ok(config.clone());
        }
        let crypto = QuicNames::new(names.clone(), settings.limits.client_hello)?;
        let mut config =
            limited(ServerConfig::new(Arc::new(crypto), self.switch.process().ids().token_key()));
        config.transport_config(Arc::new(transport(settings)));
        let config = Arc::new(config);
        self.latest = Some((names.clone(), http3, config.clone()));
        Ok(config)
    }
}

/// Limits for connections that the worker has not accepted yet.
fn limited(mut config: ServerConfig) -> ServerConfig {
    config.incoming_buffer_size(WAITING).incoming_buffer_size_total(WAITING_IN_ALL);
    config
}

fn transport(settings: &Settings) -> TransportConfig {
    let limits = &settings.limits;
    let idle = settings.timeouts.client_idle.max(2 * KEEP_ALIVE);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(limits.http2_streams))
        .max_concurrent_uni_streams(VarInt::from_u32(SIDE_STREAMS))
        .stream_receive_window(VarInt::from_u32(limits.http2_stream_window))
        .receive_window(VarInt::from_u32(limits.http2_connection_window))
        .send_window(SEND_WINDOW)
        .crypto_buffer_size(limits.client_hello)
        // A request may wait long for its response; idle connections are closed by the gateway.
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_idle_timeout(IdleTimeout::try_from(idle).ok())
        // HTTP/3 needs no datagrams (RFC 9297).
        .datagram_receive_buffer_size(None);
    transport
}
