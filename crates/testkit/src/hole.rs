//! A loopback address that drops connects, like the address of a dead pod, without root.
//!
//! A listener with a full queue does not respond to a SYN (`listen(2)`): a connect hangs until the kernel times out
//! after minutes. Unlike a network namespace (the crate `sluicegate-netns`), a hole cannot silence established
//! connections.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A listener that accepts no connection. Dropping the value makes the address refuse connections.
#[derive(Debug)]
pub struct Hole {
    addr: SocketAddr,
    listener: TcpListener,
    /// A connection that fills the queue of the listener.
    filler: TcpStream,
}

impl Hole {
    /// Makes a free port of 127.0.0.1 a hole.
    pub async fn start() -> io::Result<Self> {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
    }

    /// Makes this address a hole, such as the address of a killed backend.
    pub async fn start_at(addr: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        // Linux queues one connection more than the argument.
        let listener = socket.listen(0)?;
        let addr = listener.local_addr()?;
        let filler = TcpStream::connect(addr).await?;
        Ok(Self { addr, listener, filler })
    }

    /// The address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends the silence. The returned listener accepts connections, for
    /// [`Backend::start_on`](crate::backend::Backend::start_on). The first connection is unused.
    pub fn open(self) -> io::Result<std::net::TcpListener> {
        drop(self.filler);
        let listener = self.listener.into_std()?;
        rustix::net::listen(&listener, 128)?;
        Ok(listener)
    }
}
