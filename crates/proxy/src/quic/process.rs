//! The processes before and after this one, in a takeover of the sockets.
//!
//! Two processes share the sockets then, and the kernel gives each datagram to the first reader. So only one process reads:
//! the old process until it stops accepting, then the new process. The old process hands over a socket by which it receives
//! the datagrams of its connections, which the new process passes back. The first message on this socket contains the secret
//! of the connection IDs.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use quinn::udp::EcnCodepoint;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown, socketpair,
};
use socket2::{Domain, Socket, Type};

use super::id::{Ids, SECRET};
use super::switch::{Datagram, Switch};

/// The longest message: a datagram with its addresses.
const LONGEST: usize = 65_536 + HEADER;
/// A kind, two addresses, the local address, and the congestion notification.
const HEADER: usize = 1 + ADDRESS + ADDRESS + 17 + 1;
const ADDRESS: usize = 18;

/// The kinds of messages.
const HELLO: u8 = 0;
const STOPPED: u8 = 1;
const DATAGRAM: u8 = 2;

/// This process among its predecessors and successors.
pub(crate) struct Process {
    ids: Arc<Ids>,
    switches: Mutex<HashMap<SocketAddr, Weak<Switch>>>,
    /// The process before, until it ends.
    before: Mutex<Option<Arc<OwnedFd>>>,
    /// The process after, while it takes over.
    after: Mutex<Option<Arc<OwnedFd>>>,
    /// Whether the process before still reads the sockets.
    waits: Mutex<bool>,
}

impl Process {
    /// A process, with the sockets of the process before. Takes the socket to that process out of them, if there is one.
    pub(crate) fn start(inherited: &mut Vec<Socket>) -> io::Result<Arc<Self>> {
        let is_link = |socket: &Socket| {
            matches!(socket.r#type(), Ok(Type::SEQPACKET)) && matches!(socket.domain(), Ok(Domain::UNIX))
        };
        let link = inherited.iter().position(is_link).map(|at| Arc::new(OwnedFd::from(inherited.remove(at))));
        let hello = link.as_ref().and_then(|link| read_hello(link));
        let ids = match hello {
            Some((secret, process)) => Ids::with_secret(secret, process.wrapping_add(1)),
            None => Ids::new(),
        };
        let link = link.filter(|_| hello.is_some());
        let process = Arc::new(Self {
            ids: Arc::new(ids.map_err(io::Error::other)?),
            switches: Mutex::default(),
            before: Mutex::new(link.clone()),
            after: Mutex::default(),
            waits: Mutex::new(link.is_some()),
        });
        if let Some(link) = link {
            let of_thread = process.clone();
            std::thread::Builder::new()
                .name("quic-before".into())
                .spawn(move || of_thread.follow_before(&link))?;
        }
        Ok(process)
    }

    pub(super) fn ids(&self) -> &Arc<Ids> {
        &self.ids
    }

    /// The lanes of an address.
    pub(crate) fn switch(self: &Arc<Self>, address: SocketAddr, workers: usize) -> Arc<Switch> {
        // Locked until the switch is in the list, so that the end of the wait reaches it.
        let waits = lock(&self.waits);
        let switch = Arc::new(Switch::new(address, self.clone(), workers, !*waits));
        let mut switches = lock(&self.switches);
        switches.retain(|_, switch| switch.strong_count() > 0);
        switches.insert(address, Arc::downgrade(&switch));
        switch
    }

    /// A socket for a process that takes over. `None` without HTTP/3.
    pub(crate) fn offer(self: &Arc<Self>) -> io::Result<Option<OwnedFd>> {
        if lock(&self.switches).values().all(|switch| switch.strong_count() == 0) {
            return Ok(None);
        }
        let (own, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let process = self.ids.process().to_be_bytes();
        let hello = [&[HELLO][..], &process, self.ids.secret()].concat();
        send(&own, &hello, SendFlags::NOSIGNAL)?;
        let own = Arc::new(own);
        *lock(&self.after) = Some(own.clone());
        let process = self.clone();
        std::thread::Builder::new().name("quic-after".into()).spawn(move || process.follow_after(&own))?;
        Ok(Some(theirs))
    }

    /// Leaves the sockets to the process after, if it serves HTTP/3.
    pub(crate) fn stop_reading(&self) {
        let Some(after) = lock(&self.after).clone() else { return };
        if send(&*after, &[STOPPED], SendFlags::NOSIGNAL).is_ok() {
            self.all().iter().for_each(|switch| switch.set_reading(false));
        }
    }

    /// Leaves the sockets to the process before, because this process serves no HTTP/3.
    pub(crate) fn decline(&self) {
        if let Some(before) = lock(&self.before).take() {
            // A process that has ended needs no end.
            let _ = shutdown(&*before, Shutdown::Both);
        }
    }

    /// Passes a datagram to the process before. `None` if there is no such process; false if it has no room.
    pub(super) fn pass_back(&self, listener: SocketAddr, datagram: &Datagram) -> Option<bool> {
        let before = lock(&self.before).clone()?;
        let sent = send(&*before, &encode(listener, datagram), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        match sent {
            Ok(_) => Some(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => Some(false),
            Err(_) => {
                *lock(&self.before) = None;
                None
            }
        }
    }

    fn all(&self) -> Vec<Arc<Switch>> {
        lock(&self.switches).values().filter_map(Weak::upgrade).collect()
    }

    /// Waits until the process before stops reading, and then until it ends.
    fn follow_before(&self, link: &OwnedFd) {
        let mut message = [0; 64];
        loop {
            let received = receive(link, &mut message);
            {
                let mut waits = lock(&self.waits);
                if std::mem::take(&mut *waits) {
                    for switch in self.all() {
                        switch.set_reading(true);
                    }
                }
            }
            if received.is_none() {
                break;
            }
        }
        *lock(&self.before) = None;
    }

    /// Receives the datagrams that the process after passes back.
    fn follow_after(&self, link: &Arc<OwnedFd>) {
        let mut message = vec![0; LONGEST];
        while let Some(length) = receive(link, &mut message) {
            let Some((listener, datagram)) = decode(&message[..length]) else { continue };
            let switch = lock(&self.switches).get(&listener).and_then(Weak::upgrade);
            let owner = super::id::destination(&datagram.bytes).and_then(|id| self.ids.owner(id));
            match (owner, switch) {
                (Some(owner), Some(switch)) if owner.process == self.ids.process() => {
                    // A full lane drops the datagram, which its sender repeats.
                    switch.pass(owner.worker.into(), datagram);
                }
                // The datagram belongs to a process that this process replaced.
                _ => drop(self.pass_back(listener, &datagram)),
            }
        }
        let mut after = lock(&self.after);
        if after.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            *after = None;
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("number", &self.ids.process()).finish_non_exhaustive()
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next message. `None` at the end.
fn receive(link: &OwnedFd, message: &mut [u8]) -> Option<usize> {
    loop {
        match recv(link.as_fd(), &mut *message, RecvFlags::empty()) {
            Ok((0, _)) => return None,
            Ok((length, _)) => return Some(length),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

fn read_hello(link: &OwnedFd) -> Option<([u8; SECRET], u16)> {
    let mut message = [0; 64];
    let (length, _) = recv(link.as_fd(), &mut message, RecvFlags::DONTWAIT).ok()?;
    match message.get(..length)? {
        [HELLO, high, low, secret @ ..] => Some((secret.try_into().ok()?, u16::from_be_bytes([*high, *low]))),
        _ => None,
    }
}

fn encode(listener: SocketAddr, datagram: &Datagram) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + datagram.bytes.len());
    message.push(DATAGRAM);
    for address in [listener, datagram.from] {
        message.extend_from_slice(&octets(address.ip()));
        message.extend_from_slice(&address.port().to_be_bytes());
    }
    message.push(u8::from(datagram.to.is_some()));
    message.extend_from_slice(&octets(datagram.to.unwrap_or(Ipv6Addr::UNSPECIFIED.into())));
    message.push(datagram.ecn.map_or(0, |ecn| ecn as u8));
    message.extend_from_slice(&datagram.bytes);
    message
}

fn decode(message: &[u8]) -> Option<(SocketAddr, Datagram)> {
    let (header, bytes) = message.split_first_chunk::<HEADER>()?;
    let [DATAGRAM, header @ ..] = &header[..] else { return None };
    let (listener, header) = address(header)?;
    let (from, header) = address(header)?;
    let (has_local, header) = header.split_first()?;
    let (local, ecn) = header.split_first_chunk::<16>()?;
    let to = (*has_local == 1).then(|| ip(*local));
    let ecn = EcnCodepoint::from_bits(*ecn.first()?);
    Some((listener, Datagram { from, to, ecn, bytes: bytes.to_vec() }))
}

/// IPv4 addresses are mapped (RFC 4291, 2.5.5.2).
fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn ip(octets: [u8; 16]) -> IpAddr {
    IpAddr::from(octets).to_canonical()
}

fn address(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (octets, rest) = bytes.split_first_chunk::<16>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    Some((SocketAddr::new(ip(*octets), u16::from_be_bytes(*port)), rest))
}

#[cfg(test)]
mod tests {
    use quinn::ConnectionIdGenerator as _;

    use super::super::switch::Way;
    use super::*;

    #[test]
    fn datagrams_between_processes_keep_their_addresses() {
        for (from, to) in [("192.0.2.1:9", Some("192.0.2.2")), ("[2001:db8::1]:9", None)] {
            let datagram = Datagram {
                from: from.parse().unwrap(),
                to: to.map(|to| to.parse().unwrap()),
                ecn: Some(EcnCodepoint::Ce),
                bytes: b"packet".to_vec(),
            };
            let listener = "0.0.0.0:443".parse().unwrap();
            let message = encode(listener, &datagram);
            assert_eq!(decode(&message), Some((listener, datagram)));
            for length in 0..HEADER {
                assert_eq!(decode(&message[..length]), None);
            }
        }
    }

    #[test]
    fn successor_reads_after_its_predecessor_has_stopped_and_passes_its_datagrams_back() {
        let address = "127.0.0.1:443".parse().unwrap();
        let old = Process::start(&mut Vec::new()).unwrap();
        assert!(old.offer().unwrap().is_none(), "without HTTP/3");
        let old_switch = old.switch(address, 2);
        let mut lane = old_switch.take_lane(1).unwrap();
        let mut inherited = vec![Socket::from(old.offer().unwrap().unwrap())];
        let new = Process::start(&mut inherited).unwrap();
        assert!(inherited.is_empty(), "the link is no listener");
        let switch = new.switch(address, 1);
        let mut woken = switch.take_lane(0).unwrap();
        assert!(old_switch.is_reading() && !switch.is_reading());
        old.stop_reading();
        assert!(!old_switch.is_reading());
        assert!(woken.blocking_recv().is_some());
        assert!(switch.is_reading());
        let id = old.ids().generator(1).generate_cid();
        let bytes = [&[0x40][..], &id].concat();
        assert_eq!(switch.way(0, &bytes), Way::Process);
        let datagram = Datagram { from: "192.0.2.1:9".parse().unwrap(), to: None, ecn: None, bytes };
        assert_eq!(switch.pass_back(&datagram), Some(true));
        assert_eq!(lane.blocking_recv(), Some(datagram));
    }

    #[test]
    fn predecessor_reads_on_if_its_successor_serves_no_http3() {
        let address = "127.0.0.1:443".parse().unwrap();
        let old = Process::start(&mut Vec::new()).unwrap();
        let switch = old.switch(address, 1);
        let new = Process::start(&mut vec![Socket::from(old.offer().unwrap().unwrap())]).unwrap();
        new.decline();
        old.stop_reading();
        assert!(switch.is_reading());
    }

    #[test]
    fn successor_reads_if_its_predecessor_dies() {
        let address = "127.0.0.1:443".parse().unwrap();
        let old = Process::start(&mut Vec::new()).unwrap();
        let _switch = old.switch(address, 1);
        let (own, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let hello = [&[HELLO, 0, 0][..], old.ids().secret()].concat();
        send(&own, &hello, SendFlags::NOSIGNAL).unwrap();
        let new = Process::start(&mut vec![Socket::from(theirs)]).unwrap();
        let switch = new.switch(address, 1);
        let mut woken = switch.take_lane(0).unwrap();
        drop(own);
        assert!(woken.blocking_recv().is_some());
        assert!(switch.is_reading());
    }
}
