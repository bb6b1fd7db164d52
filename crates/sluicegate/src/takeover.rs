//! One process taking over the listening sockets of another, so that no connection is refused or lost between
//! the two (Z10).
//!
//! The sockets themselves are passed on, not just their ports: with them goes the queue of connections that
//! nobody has accepted yet, which closing a socket would reset. The two meet at an abstract Unix socket named
//! after the first address that they serve. Like ports, such names belong to the network namespace, so pods on
//! the host's network find each other too; who connects must run as the same user.
//!
//! 1. The new process connects; the old one gives up the name, sends its sockets, and goes on serving.
//! 2. The new one takes the name, loads its configuration, serves, and says so.
//! 3. The old one stops accepting, and drains. If the new one dies before step 2, nothing has happened.
//!
//! It is the same for an old process that drains already: it accepts until step 3 or the end of its grace.

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
/// How long either side waits for the other's word.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the new process may take to load its configuration.
const LOADING: Duration = Duration::from_secs(300);

/// What is being taken over from another process.
pub(crate) struct Inheritance {
    /// Its listening sockets.
    pub(crate) sockets: Vec<OwnedFd>,
    old: UnixStream,
}

impl Inheritance {
    /// Asks the process that serves `address`, if there is one of ours, for its sockets.
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
                // It is about to end. The ports can be shared until then.
                tracing::warn!(
                    "the running gateway did not hand over its sockets: {error:#}; this process opens its own"
                );
                Ok(None)
            }
        }
    }

    /// Tells the old process that this one serves, so that it drains.
    ///
    /// # Errors
    /// If the old process has ended, which is no harm: its sockets live on here.
    pub(crate) fn complete(mut self) -> io::Result<()> {
        self.old.write_all(b"R")
    }
}

/// The name under which a process can be asked for its sockets, held by this one.
pub(crate) struct Offer {
    name: UnixAddr,
    listener: UnixListener,
}

impl Offer {
    /// Takes the name. Whoever held it lets go of it before it hands over its sockets.
    pub(crate) fn new(address: SocketAddr) -> anyhow::Result<Self> {
        let name = name(address)?;
        let listener = bind(&name)?;
        Ok(Self { name, listener })
    }

    /// Hands the sockets over to the first process that asks and comes to serve. Returns when that has
    /// happened; blocks until then.
    pub(crate) fn hand_over(self, sockets: impl Fn() -> io::Result<Vec<OwnedFd>>) -> anyhow::Result<()> {
        let Self { name, mut listener } = self;
        loop {
            let (new, _) = listener.accept()?;
            // The other side takes the name as soon as it has the sockets, so that it can be asked in turn.
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

/// Somebody who is about to let go of the name may hold it for a moment.
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

/// Abstract names have no owner: whoever is there must be the same user.
fn same_user(peer: &UnixStream) -> anyhow::Result<()> {
    let theirs = sluicegate_sys::peer_user(peer)?;
    anyhow::ensure!(
        theirs == rustix::process::geteuid().as_raw(),
        "the other process of the takeover runs as another user"
    );
    Ok(())
}

/// Each message carries how many sockets there are in all, and some of them.
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
        // A process that is stopped and continued, or gets a signal, is interrupted where it waits with a time limit
        // (signal(7)).
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
    fn sockets_change_hands_with_their_queue() -> anyhow::Result<()> {
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
    fn a_process_that_dies_before_it_serves_changes_nothing() -> anyhow::Result<()> {
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
