//! The workers' lanes at one address: each worker reads the datagrams of its own connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use quinn::udp::EcnCodepoint;
use tokio::sync::mpsc;

use super::id::destination;
use super::process::Process;

/// How many datagrams may wait for a worker that another worker or process passes on. Further datagrams are dropped, and
/// their senders repeat them.
const LANE: usize = 1024;

/// A datagram that reached another worker or process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(super) from: SocketAddr,
    /// The address of the gateway that the datagram was sent to.
    pub(super) to: Option<IpAddr>,
    pub(super) ecn: Option<EcnCodepoint>,
    pub(super) bytes: Vec<u8>,
}

/// The lanes of one address.
pub(crate) struct Switch {
    address: SocketAddr,
    process: Arc<Process>,
    lanes: Vec<mpsc::Sender<Datagram>>,
    /// The other ends of the lanes, until their workers take them.
    untaken: Mutex<Vec<Option<mpsc::Receiver<Datagram>>>>,
    /// Whether this process reads the sockets. Only one of two processes with the same sockets does.
    is_reading: AtomicBool,
}

/// The place where a datagram belongs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// This worker: the connection is its own, or new.
    Here,
    Worker(usize),
    /// Another process.
    Process,
}

impl Switch {
    pub(super) fn new(address: SocketAddr, process: Arc<Process>, workers: usize, is_reading: bool) -> Self {
        let (lanes, untaken) =
            (0..workers).map(|_| mpsc::channel(LANE)).map(|(lane, end)| (lane, Some(end))).unzip();
        Self {
            address,
            process,
            lanes,
            untaken: Mutex::new(untaken),
            is_reading: AtomicBool::new(is_reading),
        }
    }

    pub(super) fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// The lane of a worker, once.
    pub(super) fn take_lane(&self, worker: usize) -> Option<mpsc::Receiver<Datagram>> {
        self.untaken.lock().unwrap_or_else(PoisonError::into_inner).get_mut(worker)?.take()
    }

    pub(super) fn is_reading(&self) -> bool {
        self.is_reading.load(Ordering::Acquire)
    }

    pub(super) fn set_reading(&self, is_reading: bool) {
        self.is_reading.store(is_reading, Ordering::Release);
        for lane in self.lanes.iter().filter(|_| is_reading) {
            // An empty datagram wakes the worker. A full lane wakes it too.
            let _ = lane.try_send(Datagram { from: self.address, to: None, ecn: None, bytes: Vec::new() });
        }
    }

    /// The way of a packet that `worker` received from the kernel.
    pub(super) fn way(&self, worker: usize, packet: &[u8]) -> Way {
        let ids = self.process.ids();
        match destination(packet).and_then(|id| ids.owner(id)) {
            Some(owner) if owner.process != ids.process() => Way::Process,
            Some(owner) if usize::from(owner.worker) != worker => {
                match self.lanes.get(usize::from(owner.worker)) {
                    Some(_) => Way::Worker(owner.worker.into()),
                    None => Way::Here,
                }
            }
            _ => Way::Here,
        }
    }

    /// Passes a datagram to a worker of this process. False if the worker's lane is full.
    pub(super) fn pass(&self, worker: usize, datagram: Datagram) -> bool {
        self.lanes.get(worker).is_some_and(|lane| lane.try_send(datagram).is_ok())
    }

    /// Passes a datagram to the process before this one. `None` if there is no such process; false if it has no room.
    pub(super) fn pass_back(&self, datagram: &Datagram) -> Option<bool> {
        self.process.pass_back(self.address, datagram)
    }
}
