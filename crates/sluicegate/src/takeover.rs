//! The takeover of the listening sockets from another process, so that no connection is refused or lost between the processes
//! (Z10).
//!
//! The old process passes the sockets themselves, not only their ports. The sockets include the queues of unaccepted
//! connections, which closing a socket would reset. The processes meet at an abstract Unix socket, named after the first
//! address that both serve. Like ports, abstract names belong to the network namespace, so pods on the host's network find
//! each other too. The peer must run as the same user.
//!
//! 1. The new process connects. The old process gives up the name, sends its sockets, and continues to serve.
//! 2. The new process takes the name, loads its configuration, serves, and reports this.
//! 3. The old process stops accepting, and drains. If the new process dies before step 2, the old process continues to serve.
//!
//! The steps are the same for an old process that already drains: it accepts until step 3 or the end of its grace.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::time::Duration;

use anyhow::Context as _;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// How many sockets go into one message; the kernel allows 253 (unix(7), `SCM_RIGHTS`).
const BATCH: usize = 64;
/// The timeout for each message of the other process.
const PATIENCE: Duration = Duration::from_secs(5);
/// The timeout for the new process to load its configuration.
const LOADING: Duration = Duration::from_secs(300);

/// The sockets and the connection from a takeover.
pub(crate) struct Inheritance {
    /// The listening sockets.
    pub(crate) sockets: Vec<OwnedFd>,
    old: UnixStream,
}

impl Inheritance {
    /// Requests the sockets of the process that serves `address`, if a Sluicegate process does.
    pub(crate) fn ask(address: SocketAddr) -> anyhow::Result<Option<Self>> {
        let old =
            match UnixStream::connect_addr(&name(address)?) {
                Ok(old) => old,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
                Err(error) => return Err(error).context(
                    "cannot ask the running gateway for its sockets; stop it, or start with --no-takeover",
                ),
            };
        same_user(&old)?;
        old.set_read_timeout(Some(PATIENCE))?;
        match receive(&old) {
            Ok(sockets) => Ok(Some(Self { sockets, old })),
            Err(error) => {
                // The other process is about to end. Until then both processes share the ports.
                tracing::warn!(
                    "the running gateway did not hand over its sockets: {error:#}; this process opens its own"
                );
                Ok(None)
            }
        }
    }

    /// Reports to the old process that this process serves, so that the old process drains.
    ///
    /// # Errors
    /// If the old process has ended. The error is harmless: the sockets stay open in this process.
    pub(crate) fn complete(mut self) -> io::Result<()> {
        self.old.write_all(b"R")
    }
}

/// The name at which other processes request the sockets, held by this process.
pub(crate) struct Offer {
    name: UnixAddr,
    listener: UnixListener,
}

impl Offer {
    /// Takes the name. The previous holder releases the name before it hands over its sockets.
    pub(crate) fn new(address: SocketAddr) -> anyhow::Result<Self> {
        let name = name(address)?;
        let listener = bind(&name)?;
        Ok(Self { name, listener })
    }

    /// Blocks until another process has taken over the sockets. A process that requests the sockets, but then does not serve,
    /// does not count.
    pub(crate) fn hand_over(self, sockets: impl Fn() -> io::Result<Vec<OwnedFd>>) -> anyhow::Result<()> {
        let Self { name, mut listener } = self;
        loop {
            let (new, _) = listener.accept()?;
            // The other process takes the name when it has the sockets, so that a later process can request them.
            drop(listener);
            match serve_one(&new, &sockets()?) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    tracing::warn!(
                        "a process asked for the sockets, but did not take over: {error:#}; this process continues to serve"
                    );
                }
            }
            drop(new);
            listener = bind(&name)?;
        }
    }
}

/// A process that is about to release the name may still hold the name for a moment.
fn bind(name: &UnixAddr) -> anyhow::Result<UnixListener> {
    const TRIES: u32 = 200;
    let mut tries = 0;
    loop {
        match UnixListener::bind_addr(name) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < TRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            bound => return bound.context("cannot offer the sockets for a takeover"),
        }
    }
}

fn serve_one(mut new: &UnixStream, sockets: &[OwnedFd]) -> anyhow::Result<()> {
    same_user(new)?;
    new.set_write_timeout(Some(PATIENCE))?;
    send(new, sockets)?;
    new.set_read_timeout(Some(LOADING))?;
    let mut word = [0; 1];
    new.read_exact(&mut word).context("the new process ended before it served")?;
    Ok(())
}

fn name(address: SocketAddr) -> io::Result<UnixAddr> {
    UnixAddr::from_abstract_name(format!("sluicegate/takeover/{address}"))
}

/// Abstract names have no owner, so the peer must be the same user.
fn same_user(peer: &UnixStream) -> anyhow::Result<()> {
    let theirs = sluicegate_sys::peer_user(peer)?;
    anyhow::ensure!(
        theirs == rustix::process::geteuid().as_raw(),
        "the other process of the takeover runs as another user"
    );
    Ok(())
}

/// Each message carries the total number of sockets, and some of them.
fn send(to: &UnixStream, sockets: &[OwnedFd]) -> anyhow::Result<()> {
    let total = u32::try_from(sockets.len())?.to_be_bytes();
    for batch in sockets.chunks(BATCH) {
        let fds: Vec<BorrowedFd<'_>> = batch.iter().map(|socket| socket.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        anyhow::ensure!(
            control.push(SendAncillaryMessage::ScmRights(&fds)),
            "too many sockets for one message"
        );
        retry_on_intr(|| sendmsg(to, &[IoSlice::new(&total)], &mut control, SendFlags::NOSIGNAL))?;
    }
    Ok(())
}

fn receive(from: &UnixStream) -> anyhow::Result<Vec<OwnedFd>> {
    let mut sockets = Vec::new();
    loop {
        let mut total = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        // A stopped and continued process, or a process with a signal, is interrupted in a wait with a timeout (signal(7)).
        let received = retry_on_intr(|| {
            recvmsg(from, &mut [IoSliceMut::new(&mut total)], &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        anyhow::ensure!(received.bytes == total.len(), "the running gateway closed the connection");
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                sockets.extend(fds);
            }
        }
        if sockets.len() >= u32::from_be_bytes(total) as usize {
            return Ok(sockets);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn takeover_preserves_connections_queued_in_the_kernel() -> anyhow::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let waiting = std::net::TcpStream::connect(address)?;
        let old = std::thread::spawn(move || {
            Offer::new(address)?.hand_over(|| Ok(vec![listener.try_clone()?.into()]))
        });
        let inheritance = loop {
            match Inheritance::ask(address)? {
                Some(inheritance) => break inheritance,
                None => std::thread::yield_now(),
            }
        };
        let socket = TcpListener::from(inheritance.sockets[0].try_clone()?);
        assert_eq!(socket.local_addr()?, address);
        inheritance.complete()?;
        old.join().expect("no panic")?;
        let (accepted, _) = socket.accept()?;
        assert_eq!(accepted.peer_addr()?, waiting.local_addr()?);
        Ok(())
    }

    #[test]
    fn old_process_accepts_another_takeover_after_an_aborted_takeover() -> anyhow::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let old = std::thread::spawn(move || {
            Offer::new(address)?.hand_over(|| Ok(vec![listener.try_clone()?.into()]))
        });
        let ask = || loop {
            if let Some(inheritance) = Inheritance::ask(address)? {
                return anyhow::Ok(inheritance);
            }
        };
        drop(ask()?);
        let second = ask()?;
        assert!(!old.is_finished());
        second.complete()?;
        old.join().expect("no panic")?;
        Ok(())
    }
}
