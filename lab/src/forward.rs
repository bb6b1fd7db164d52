//! `sluicegate-lab forward`: a byte forwarder. One thread, level-triggered epoll, and for each request recv, send,
//! recv, send; no HTTP. Every proxy does at least this work, so its cost is the lower limit of the other figures.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;

/// The event data of the listener; connections count from 0.
const LISTENER: u64 = u64::MAX;

/// The options.
#[derive(Clone, Debug, Args)]
pub(crate) struct ForwardArgs {
    /// The IP address and port where the forwarder accepts connections.
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The IP addresses and ports of the endpoints. Each connection goes to one endpoint, in turn.
    #[arg(required = true, value_name = "ENDPOINT")]
    endpoints: Vec<SocketAddr>,
}

/// Forwards until the process is killed.
pub(crate) fn run(args: ForwardArgs) -> anyhow::Result<ExitCode> {
    let ForwardArgs { listen, endpoints } = args;
    let listener = TcpListener::bind(listen).with_context(|| format!("--listen {listen}"))?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut floor =
        Floor { epoll, listener, backends: endpoints, accepted: 0, pairs: Vec::new(), free: Vec::new() };
    floor.run().map(|()| ExitCode::SUCCESS)
}

struct Floor {
    epoll: OwnedFd,
    listener: TcpListener,
    backends: Vec<SocketAddr>,
    accepted: usize,
    pairs: Vec<Option<Pair>>,
    free: Vec<usize>,
}

/// A client connection and its backend connection, by side.
struct Pair {
    ends: [Side; 2],
}

struct Side {
    stream: TcpStream,
    /// Bytes that this side has not accepted yet.
    pending: Vec<u8>,
}

impl Floor {
    fn run(&mut self) -> anyhow::Result<()> {
        let mut buffer = vec![0; 16 * 1024];
        let mut events = Vec::with_capacity(256);
        loop {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                let data = event.data.u64();
                if data == LISTENER {
                    self.accept();
                    continue;
                }
                let (index, side) = ((data / 2) as usize, (data % 2) as usize);
                // An earlier event of this batch may have ended the pair.
                let Some(pair) = self.pairs.get_mut(index).and_then(Option::as_mut) else { continue };
                if pair.serve(side, event.flags, &self.epoll, data, &mut buffer).is_err() {
                    // Closing the sockets removes them from the epoll set.
                    self.pairs[index] = None;
                    self.free.push(index);
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((client, _)) = self.listener.accept() {
            let backend = self.backends[self.accepted % self.backends.len()];
            self.accepted += 1;
            // If the backend is unreachable, the client loses its connection.
            let _ = self.pair(client, backend);
        }
    }

    fn pair(&mut self, client: TcpStream, backend: SocketAddr) -> io::Result<()> {
        let backend = TcpStream::connect(backend)?;
        let index = self.free.pop().unwrap_or_else(|| {
            self.pairs.push(None);
            self.pairs.len() - 1
        });
        for (side, stream) in [&client, &backend].into_iter().enumerate() {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll::add(&self.epoll, stream, EventData::new_u64((index * 2 + side) as u64), EventFlags::IN)?;
        }
        let ends = [client, backend].map(|stream| Side { stream, pending: Vec::new() });
        self.pairs[index] = Some(Pair { ends });
        Ok(())
    }
}

impl Pair {
    /// Moves bytes from this side to the other. An error, or the end of a stream, ends the pair.
    fn serve(
        &mut self,
        side: usize,
        flags: EventFlags,
        epoll: &OwnedFd,
        data: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let other = 1 - side;
        let (own_data, other_data) = (EventData::new_u64(data), EventData::new_u64(data ^ 1));
        if flags.contains(EventFlags::OUT) {
            let end = &mut self.ends[side];
            let written = end.stream.write(&end.pending)?;
            end.pending.drain(..written);
            if end.pending.is_empty() {
                epoll::modify(epoll, &end.stream, own_data, EventFlags::IN)?;
                epoll::modify(epoll, &self.ends[other].stream, other_data, EventFlags::IN)?;
            }
            return Ok(());
        }
        let read = match self.ends[side].stream.read(buffer) {
            // The event belongs to an earlier pair, which had this place at the beginning of the batch.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            result => result?,
        };
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let written = match self.ends[other].stream.write(&buffer[..read]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            result => result?,
        };
        if written < read {
            // The socket is full: read no more from this side until the other side has accepted the bytes.
            self.ends[other].pending.extend_from_slice(&buffer[written..read]);
            epoll::modify(epoll, &self.ends[side].stream, own_data, EventFlags::empty())?;
            epoll::modify(epoll, &self.ends[other].stream, other_data, EventFlags::OUT)?;
        }
        Ok(())
    }
}
