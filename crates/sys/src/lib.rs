//! The system calls that Sluicegate needs and no safe library offers, kept apart so that every other
//! crate can forbid unsafe code.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

use rustix::ioctl::{Getter, ioctl};

/// `SIOCOUTQ` of `<linux/sockios.h>`, the same number on every architecture that Sluicegate runs on.
const SIOCOUTQ: u32 = 0x5411;
/// `SIOCOUTQNSD` of `<linux/sockios.h>`.
const SIOCOUTQNSD: u32 = 0x894B;

/// How many bytes of a TCP socket's send queue its peer's kernel has not acknowledged yet (`tcp(7)`).
///
/// # Errors
/// What the kernel says, such as `ENOTTY` for something that is not a socket.
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<usize> {
    query::<SIOCOUTQ>(socket)
}

/// How many of them the kernel has not sent yet, because the peer has no room for them.
///
/// # Errors
/// As [`unacknowledged_bytes`].
pub fn unsent_bytes(socket: impl AsFd) -> io::Result<usize> {
    query::<SIOCOUTQNSD>(socket)
}

/// For how long a TCP socket's peer has acknowledged nothing, although it was sent something; `None` if it has
/// acknowledged all (`TCP_INFO`, tcp(7)). The time is counted from the last acknowledgement, also if nothing was sent
/// for a while after it.
///
/// # Errors
/// What the kernel says, such as `ENOTSOCK`.
pub fn unacknowledged_for(socket: impl AsFd) -> io::Result<Option<Duration>> {
    // SAFETY: `tcp_info` is made of integers alone.
    let info: libc::tcp_info = unsafe { option(socket, libc::IPPROTO_TCP, libc::TCP_INFO)? };
    Ok((info.tcpi_unacked > 0).then(|| Duration::from_millis(info.tcpi_last_ack_recv.into())))
}

/// The user that the process at the other end of a Unix socket ran as when it connected or listened (`SO_PEERCRED`,
/// unix(7)). That process may be in another PID namespace, as in another pod: its PID is 0 then, which libraries
/// that take PIDs for positive cannot tell.
///
/// # Errors
/// What the kernel says, such as `ENOTSOCK`.
pub fn peer_user(socket: impl AsFd) -> io::Result<u32> {
    // SAFETY: `ucred` is made of integers alone.
    let peer: libc::ucred = unsafe { option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED)? };
    Ok(peer.uid)
}

/// An option of a socket.
///
/// # Safety
/// Zeros and whatever else the kernel writes must be a value of `T`.
unsafe fn option<T>(socket: impl AsFd, level: i32, name: i32) -> io::Result<T> {
    // SAFETY: the caller says that zeros are a value.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`, which has as many, and the socket is open for as
    // long as it is borrowed.
    let failed = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value)
}

fn query<const NAME: u32>(socket: impl AsFd) -> io::Result<usize> {
    // SAFETY: SIOCOUTQ and SIOCOUTQNSD, the only names given above, write one C int to the given address and do
    // nothing else (tcp(7)), which is what `Getter<_, c_int>` passes and reads back.
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
    fn a_peer_that_lives_acknowledges() -> std::io::Result<()> {
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
    fn the_peer_of_a_unix_socket_is_a_user() -> std::io::Result<()> {
        let (near, _far) = UnixStream::pair()?;
        assert_eq!(peer_user(&near)?, rustix::process::geteuid().as_raw());
        Ok(())
    }

    #[test]
    fn a_peer_that_has_no_room_acknowledges_what_was_sent() -> std::io::Result<()> {
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
