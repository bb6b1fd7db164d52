//! System calls without a safe library, in a crate of their own, so that every other crate can forbid unsafe code.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

use rustix::ioctl::{Getter, ioctl};

/// `SIOCOUTQ` of `<linux/sockios.h>`, the same number on every architecture that Sluicegate runs on.
const SIOCOUTQ: u32 = 0x5411;
/// `SIOCOUTQNSD` of `<linux/sockios.h>`.
const SIOCOUTQNSD: u32 = 0x894B;

/// The bytes in a TCP socket's send queue that the peer's kernel has not acknowledged (`tcp(7)`).
///
/// # Errors
/// The error of the kernel, such as `ENOTTY` for a file that is not a socket.
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<usize> {
    query::<SIOCOUTQ>(socket)
}

/// The bytes in the send queue that the kernel has not sent, because the peer's receive window is full.
///
/// # Errors
/// The errors of [`unacknowledged_bytes`].
pub fn unsent_bytes(socket: impl AsFd) -> io::Result<usize> {
    query::<SIOCOUTQNSD>(socket)
}

/// How long a TCP socket's peer has left sent bytes unacknowledged; `None` if the peer has acknowledged all bytes
/// (`TCP_INFO`, tcp(7)). The time starts at the last acknowledgement, even if the socket sent nothing for a while after it.
///
/// # Errors
/// The error of the kernel, such as `ENOTSOCK`.
pub fn unacknowledged_for(socket: impl AsFd) -> io::Result<Option<Duration>> {
    // SAFETY: `tcp_info` consists of integers.
    let info: libc::tcp_info = unsafe { option(socket, libc::IPPROTO_TCP, libc::TCP_INFO)? };
    Ok((info.tcpi_unacked > 0).then(|| Duration::from_millis(info.tcpi_last_ack_recv.into())))
}

/// The user of the process at the other end of a Unix socket, when that process connected or listened (`SO_PEERCRED`,
/// unix(7)). If the process is in another PID namespace, as in another pod, its PID is 0. Libraries that require a positive
/// PID then fail.
///
/// # Errors
/// The error of the kernel, such as `ENOTSOCK`.
pub fn peer_user(socket: impl AsFd) -> io::Result<u32> {
    // SAFETY: `ucred` consists of integers.
    let peer: libc::ucred = unsafe { option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED)? };
    Ok(peer.uid)
}

/// An option of a socket.
///
/// # Safety
/// Zeros, and all values that the kernel writes, must be valid values of `T`.
unsafe fn option<T>(socket: impl AsFd, level: i32, name: i32) -> io::Result<T> {
    // SAFETY: the caller guarantees that zeros are a valid value.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`, which has this size, and the socket is open for as long as
    // it is borrowed.
    let failed = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value)
}

fn query<const NAME: u32>(socket: impl AsFd) -> io::Result<usize> {
    // SAFETY: SIOCOUTQ and SIOCOUTQNSD, the only names above, write one C int to the given address and have no other effect
    // (tcp(7)). `Getter<_, c_int>` passes and reads this int.
    let bytes: i32 = unsafe { ioctl(socket, Getter::<NAME, i32>::new())? };
    Ok(usize::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::{peer_user, unacknowledged_bytes, unacknowledged_for, unsent_bytes};

    #[test]
    fn reachable_peer_acknowledges_all_sent_bytes() -> std::io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut near = TcpStream::connect(listener.local_addr()?)?;
        let (mut far, _) = listener.accept()?;
        near.write_all(b"hello")?;
        far.read_exact(&mut [0; 5])?;
        assert_eq!(unacknowledged_bytes(&near)?, 0);
        assert_eq!(unacknowledged_for(&near)?, None);
        Ok(())
    }

    #[test]
    fn user_id_of_the_peer_of_a_unix_socket_is_known() -> std::io::Result<()> {
        let (near, _far) = UnixStream::pair()?;
        assert_eq!(peer_user(&near)?, rustix::process::geteuid().as_raw());
        Ok(())
    }

    #[test]
    fn peer_with_a_full_receive_buffer_acknowledges_the_received_bytes() -> std::io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut near = TcpStream::connect(listener.local_addr()?)?;
        let (_far, _) = listener.accept()?;
        near.set_nonblocking(true)?;
        while near.write(&[0; 65536]).is_ok() {}
        while unsent_bytes(&near)? < unacknowledged_bytes(&near)? {
            std::thread::yield_now();
        }
        assert!(unsent_bytes(&near)? > 0);
        Ok(())
    }
}
