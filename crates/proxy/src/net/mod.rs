//! TCP sockets. In unit tests, a socket may belong to a simulated network instead of the kernel.

#[cfg(test)]
mod either;
#[cfg(test)]
pub(crate) mod simulated;

#[cfg(test)]
pub(crate) use either::{
    DetachedTcpStream, ListeningSocket, TcpStream, is_silent, unacknowledged_bytes, unacknowledged_for,
    unsent_bytes,
};
#[cfg(not(test))]
pub(crate) use kernel::{
    DetachedTcpStream, ListeningSocket, TcpStream, is_silent, unacknowledged_bytes, unacknowledged_for,
    unsent_bytes,
};

/// The sockets of the kernel.
mod kernel {
    use std::io;

    use rustix::net::{RecvFlags, recv};
    use socket2::Socket;
    use tokio::net::UdpSocket;

    #[cfg(not(test))]
    pub(crate) use std::net::TcpStream as DetachedTcpStream;

    #[cfg(not(test))]
    pub(crate) use sluicegate_sys::{unacknowledged_bytes, unacknowledged_for, unsent_bytes};
    pub(crate) use tokio::net::{TcpListener, TcpStream};

    /// A socket that no runtime uses yet.
    #[derive(Debug)]
    pub(crate) struct ListeningSocket(Socket);

    impl ListeningSocket {
        pub(crate) fn new(socket: Socket) -> Self {
            Self(socket)
        }

        /// The socket in the runtime of this thread.
        pub(crate) fn listen(self) -> io::Result<TcpListener> {
            TcpListener::from_std(self.0.into())
        }

        /// The socket for QUIC, which another thread may use.
        pub(crate) fn detach(self) -> io::Result<std::net::UdpSocket> {
            Ok(self.0.into())
        }

        /// The socket for datagrams in the runtime of this thread.
        pub(crate) fn receive(self) -> io::Result<UdpSocket> {
            UdpSocket::from_std(self.0.into())
        }
    }

    /// Whether the kernel has neither bytes nor an end of the stream for the gateway.
    pub(crate) fn is_silent(stream: &TcpStream) -> bool {
        let mut byte = [0; 1];
        let peeked = recv(stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        peeked.is_err_and(|error| io::Error::from(error).kind() == io::ErrorKind::WouldBlock)
    }
}
