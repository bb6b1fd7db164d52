//! The flooder: one thread at the lowest priority, with a bounded number of connections. A connection that ends is
//! opened again at once.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, anyhow};
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::frames;
use crate::kind::{Kind, Script};

/// The lowest priority: the flooder uses only the CPU time that the gateway and its clients leave.
const NICE: i32 = 19;

/// The time between two bytes of a slow client.
const DRIP: Duration = Duration::from_millis(100);

/// The interval of checks whether an unread connection is still open.
const LOOK: Duration = Duration::from_millis(100);

/// The pause after a failed connect.
const PAUSE: Duration = Duration::from_millis(10);

/// A running flood.
pub(crate) struct Flooder {
    stop: watch::Sender<()>,
    thread: JoinHandle<io::Result<()>>,
    counts: Arc<Counts>,
}

/// The counts of a flood.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    /// Connections that the gateway ended.
    pub(crate) cut_off: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Frames of HTTP/2.
    pub(crate) frames: AtomicU64,
}

impl Flooder {
    pub(crate) fn start(kind: Kind, addr: SocketAddr, connections: usize) -> anyhow::Result<Self> {
        let (stop, stopped) = watch::channel(());
        let counts = Arc::new(Counts::default());
        let thread = thread::Builder::new().name("flood".to_owned()).spawn({
            let counts = counts.clone();
            move || flood(kind, addr, connections, stopped, counts)
        })?;
        Ok(Self { stop, thread, counts })
    }

    /// Ends all connections.
    pub(crate) fn stop(self) -> anyhow::Result<Arc<Counts>> {
        drop(self.stop);
        self.thread.join().map_err(|_| anyhow!("the flooder panicked"))?.context("the flooder")?;
        Ok(self.counts)
    }
}

fn flood(
    kind: Kind,
    addr: SocketAddr,
    connections: usize,
    mut stopped: watch::Receiver<()>,
    counts: Arc<Counts>,
) -> io::Result<()> {
    // On Linux the priority applies only to this thread.
    setpriority_process(Some(gettid()), NICE)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut tasks = JoinSet::new();
        for number in 0..connections {
            let counts = counts.clone();
            tasks.spawn(async move {
                loop {
                    if connection(kind, addr, source(number), &counts).await.is_err() {
                        sleep(PAUSE).await;
                    }
                }
            });
        }
        // An error means that the sender is dropped, for which this task waits.
        let _ = stopped.changed().await;
    });
    Ok(())
}

/// The flooder has separate source addresses, so that the load does not run out of ports.
fn source(number: usize) -> SocketAddr {
    let host = u8::try_from(number % 250).unwrap_or_default();
    (Ipv4Addr::new(127, 0, 2, host + 1), 0).into()
}

/// One connection, until the gateway ends the connection. An error if the connect fails.
async fn connection(kind: Kind, addr: SocketAddr, source: SocketAddr, counts: &Counts) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(source)?;
    let mut stream = socket.connect(addr).await?;
    stream.set_nodelay(true)?;
    stream.set_zero_linger()?;
    counts.connections.fetch_add(1, Ordering::Relaxed);
    let add = |counter: &AtomicU64, count: u64| counter.fetch_add(count, Ordering::Relaxed);
    // The gateway caused every early end.
    let said = async |stream: &mut TcpStream, bytes: &[u8]| {
        stream.write_all(bytes).await?;
        add(&counts.bytes, bytes.len() as u64);
        io::Result::Ok(())
    };
    match kind.script() {
        Script::Flood(start, mut blocks) => {
            let (mut reader, mut writer) = stream.split();
            let write = async {
                let mut bytes = start;
                while writer.write_all(&bytes).await.is_ok() {
                    add(&counts.bytes, bytes.len() as u64);
                    add(&counts.frames, frames::count(&bytes));
                    bytes = blocks.next();
                }
            };
            tokio::select! { () = write => {}, () = drain(&mut reader) => {} }
        }
        Script::Hold(bytes) => {
            if said(&mut stream, &bytes).await.is_ok() {
                drain(&mut stream).await;
            }
        }
        Script::Abort(bytes) => {
            if said(&mut stream, &bytes).await.is_ok() && matches!(stream.read(&mut [0; 4096]).await, Ok(1..))
            {
                return Ok(());
            }
        }
        Script::Stall(bytes) => {
            if said(&mut stream, &bytes).await.is_ok() {
                while stream.take_error()?.is_none() {
                    sleep(LOOK).await;
                }
            }
        }
        Script::Drip(bytes) => {
            for byte in bytes {
                let is_over = timeout(DRIP, drain(&mut stream)).await.is_ok();
                if is_over || said(&mut stream, &[byte]).await.is_err() {
                    break;
                }
            }
        }
    }
    add(&counts.cut_off, 1);
    Ok(())
}

/// Reads until the end of the stream.
async fn drain(reader: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut sink = [0; 16 * 1024];
    while let Ok(1..) = reader.read(&mut sink).await {}
}
