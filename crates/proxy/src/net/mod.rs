//! TCP sockets. In unit tests, a socket may belong to a simulated network instead of the kernel.

#[cfg(test)]
mod either;
#[cfg(test)]
pub(crate) mod simulated;

#[cfg(test)]
pub(crate) use either::{
    DetachedTcpStream, ListeningSocket, TcpStream, connect, is_silent, unacknowledged_bytes,
    unacknowledged_for, unsent_bytes,
};
#[cfg(not(test))]
pub(crate) use kernel::{
    DetachedTcpStream, ListeningSocket, TcpStream, connect, is_silent, unacknowledged_bytes,
    unacknowledged_for, unsent_bytes,
};

/// The sockets of the kernel.
mod kernel {
    use std::io;
    use std::net::SocketAddr;

    use rustix::net::{RecvFlags, recv};
    use socket2::{SockRef, Socket};
    use tokio::net::{TcpSocket, UdpSocket};

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

    /// Connects. If no one waits for the connection any more, it is reset rather than closed: after a close, the kernel would hold the
    /// local port for a minute (TIME_WAIT).
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        socket.set_zero_linger()?;
        let stream = socket.connect(address).await?;
        SockRef::from(&stream).set_linger(None)?;
        Ok(stream)
    }

    /// Whether the kernel has neither bytes nor an end of the stream for the gateway.
    pub(crate) fn is_silent(stream: &TcpStream) -> bool {
        let mut byte = [0; 1];
        let peeked = recv(stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        peeked.is_err_and(|error| io::Error::from(error).kind() == io::ErrorKind::WouldBlock)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::ErrorKind;
    use std::pin::pin;
    use std::task::Poll;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn abandoned_connect_resets_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        {
            // On loopback, the kernel establishes the connection at once. The runtime learns this later.
            let mut connecting = pin!(connect(address));
            let is_pending = poll_fn(|cx| Poll::Ready(connecting.as_mut().poll(cx).is_pending())).await;
            assert!(is_pending);
        }
        let (mut accepted, _) = listener.accept().await.unwrap();
        assert_eq!(accepted.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn established_connection_ends_with_a_close() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (connected, accepted) = tokio::join!(connect(listener.local_addr().unwrap()), listener.accept());
        drop(connected.unwrap());
        assert_eq!(accepted.unwrap().0.read(&mut [0; 1]).await.unwrap(), 0);
    }
}
