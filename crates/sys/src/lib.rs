//! The one system call that Sluicegate needs and no safe library offers, kept apart so that every other
//! crate can forbid unsafe code.

use std::io;
use std::os::fd::AsFd;

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

    use super::{unacknowledged_bytes, unsent_bytes};

    #[test]
    fn a_peer_that_lives_acknowledges() -> std::io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut near = TcpStream::connect(listener.local_addr()?)?;
        let (mut far, _) = listener.accept()?;
        near.write_all(b"hello")?;
        far.read_exact(&mut [0; 5])?;
        assert_eq!(unacknowledged_bytes(&near)?, 0);
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
