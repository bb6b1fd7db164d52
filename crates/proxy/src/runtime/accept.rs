//! Accepting client connections, and their distribution among workers.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use quinn::Endpoint;
use tokio::time::sleep;

use super::{Accepted, Runtime};
use crate::listener::{Listener, Protocol, QuicListener};
use crate::net::TcpStream;
use crate::quic::Quic;

/// How long accepting pauses when the process has no file descriptor left, or the worker is full.
const PAUSE: Duration = Duration::from_millis(20);

/// A tenth of the handshakes in progress up to which a worker accepts HTTP/3 in any case.
const MANY: u64 = 100;

/// Accepts connections from a listener until the task is aborted.
pub(super) fn accept(runtime: Rc<Runtime>, listener: Listener) -> io::Result<impl Future<Output = ()>> {
    let (local, protocol) = (listener.place.address, listener.protocol);
    let socket = listener.socket.listen()?;
    Ok(async move {
        loop {
            match socket.accept().await {
                Ok((stream, peer)) => {
                    runtime.worker.stats().accepted.add(1);
                    runtime.place(stream, peer, local, protocol);
                    while runtime.is_full() {
                        sleep(PAUSE).await;
                    }
                }
                Err(error) => {
                    runtime.worker.stats().accept_errors.add(1);
                    if !is_of_the_connection(&error) {
                        tracing::warn!(%error, listener = %local, "cannot accept connections; trying again");
                        sleep(PAUSE).await;
                    }
                }
            }
        }
    })
}

/// Accepts connections of HTTP/3 until the task is aborted.
pub(super) fn accept_quic(
    runtime: Rc<Runtime>,
    listener: QuicListener,
) -> io::Result<impl Future<Output = ()>> {
    let QuicListener { place, entrance, listener, quic } = listener;
    let counters = runtime.counters.clone();
    let mut quic = Quic::start(quic, (runtime.worker.id, counters), place.address)?;
    Ok(async move {
        // Without this task, the endpoint takes no new connections.
        let _closing = Closing(quic.endpoint.clone());
        while let Some(incoming) = quic.endpoint.accept().await {
            let worker = &runtime.worker;
            let (snapshot, stats) = (worker.snapshot(), &worker.stats().http3);
            let names = snapshot.table.tls(entrance).cloned().unwrap_or_default();
            let settings = &snapshot.settings;
            let config = match settings.tls.http3 {
                Some(http3) if !worker.has_closed_listeners() && !runtime.is_full() => {
                    let (handshaking, most) = (stats.handshaking.get(), u64::from(http3.handshakes));
                    if handshaking >= most.max(MANY).saturating_mul(10) {
                        None
                    } else if handshaking >= most && !incoming.remote_address_validated() {
                        stats.retries.add(1);
                        // A client without a proof of its address may always be asked for one.
                        let _ = incoming.retry();
                        continue;
                    } else {
                        quic.config(&names, settings, http3)
                            .inspect_err(|error| tracing::error!(%error, "cannot serve HTTP/3"))
                            .ok()
                    }
                }
                _ => None,
            };
            let Some(config) = config else {
                stats.refused.add(1);
                incoming.refuse();
                continue;
            };
            worker.stats().accepted.add(1);
            runtime.open_quic(incoming, config, (entrance, listener));
        }
    })
}

/// Ends the acceptance of connections of an endpoint.
struct Closing(Endpoint);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.set_server_config(None);
    }
}

impl Runtime {
    /// Serves a new connection, or passes it to the worker with the fewest connections. The kernel distributes
    /// connections over the workers' listeners by a hash, which is uneven for few, busy connections.
    fn place(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr, local: SocketAddr, protocol: Protocol) {
        let mine = self.worker.stats().open.get() + self.mailbox().arriving();
        let others = self.counters.workers().iter().enumerate().filter(|(id, _)| *id != self.worker.id);
        let least = others
            .filter(|(id, _)| self.mailboxes[*id].is_accepting())
            .map(|(id, stats)| (stats.open.get() + self.mailboxes[id].arriving(), id))
            .min();
        match least {
            Some((open, id)) if open + 1 + mine / 16 < mine => match stream.into_std() {
                Ok(stream) => {
                    self.worker.stats().handed_over.add(1);
                    self.mailboxes[id].hand_over(Accepted { stream, peer, local, protocol });
                }
                Err(error) => {
                    tracing::warn!(%error, %peer, "cannot pass a connection to another worker; the gateway closes the connection");
                }
            },
            _ => self.open(stream, peer, local, protocol),
        }
    }

    fn is_full(&self) -> bool {
        self.connections.borrow().len() >= self.worker.settings().limits.connections_per_worker
    }
}

/// Whether an error concerns one connection that is already gone, and not the listener (`accept(2)`, "Error handling").
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::TimedOut
    )
}
