//! An address of loopback that swallows connects, as the address of a dead pod does, without root.
//!
//! A listener whose queue is full answers no SYN (`listen(2)`): a connect to it hangs until the kernel gives
//! up after minutes. Unlike in a network namespace (the crate `sluicegate-netns`), established connections cannot
//! be made to fall silent.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A listener that answers nobody. Once it is dropped, its address refuses.
#[derive(Debug)]
pub struct Hole {
    addr: SocketAddr,
    listener: TcpListener,
    /// Fills the queue.
    filler: TcpStream,
}

impl Hole {
    /// Makes a free port of 127.0.0.1 a hole.
    pub async fn start() -> io::Result<Self> {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
    }

    /// Makes this address a hole, such as that of a back end that was killed.
    pub async fn start_at(addr: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        // Linux queues one connection more than it is told.
        let listener = socket.listen(0)?;
        let addr = listener.local_addr()?;
        let filler = TcpStream::connect(addr).await?;
        Ok(Self { addr, listener, filler })
    }

    /// The address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends the silence: what is given accepts connections, for
    /// [`Backend::start_on`](crate::backend::Backend::start_on). The first is one that nobody uses.
    pub fn open(self) -> io::Result<std::net::TcpListener> {
        drop(self.filler);
        let listener = self.listener.into_std()?;
        rustix::net::listen(&listener, 128)?;
        Ok(listener)
    }
}
