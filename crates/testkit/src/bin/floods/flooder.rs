//! Who floods: one thread that the kernel runs when nobody else wants the processor, with a bounded number of connections,
//! each of which is made again as soon as it is cut off.

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

/// The lowest priority: what the flooder uses is what the gateway and its clients leave over.
const NICE: i32 = 19;

/// Between two bytes of somebody slow.
const DRIP: Duration = Duration::from_millis(100);

/// Between two looks whether a connection that is not read still stands.
const LOOK: Duration = Duration::from_millis(100);

/// After a connect that failed.
const PAUSE: Duration = Duration::from_millis(10);

/// A flood that is under way.
pub(crate) struct Flooder {
    stop: watch::Sender<()>,
    thread: JoinHandle<io::Result<()>>,
    counts: Arc<Counts>,
}

/// What a flood has come to.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    /// How many of them the gateway ended.
    pub(crate) cut_off: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Those of HTTP/2.
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
    // Of the thread alone, as Linux has it.
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
        // An error is the end of the sender, which is what is waited for.
        let _ = stopped.changed().await;
    });
    Ok(())
}

/// Addresses of its own, so that the ports of the well-behaved are not used up.
fn source(number: usize) -> SocketAddr {
    let host = u8::try_from(number % 250).unwrap_or_default();
    (Ipv4Addr::new(127, 0, 2, host + 1), 0).into()
}

/// One connection, from its beginning until the gateway ends it. An error if there was none.
async fn connection(kind: Kind, addr: SocketAddr, source: SocketAddr, counts: &Counts) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(source)?;
    let mut stream = socket.connect(addr).await?;
    stream.set_nodelay(true)?;
    stream.set_zero_linger()?;
    counts.connections.fetch_add(1, Ordering::Relaxed);
    let add = |counter: &AtomicU64, count: u64| counter.fetch_add(count, Ordering::Relaxed);
    // Whatever ends this early is the gateway's doing.
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

/// Reads until there is nothing more to come.
async fn drain(reader: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut sink = [0; 16 * 1024];
    while let Ok(1..) = reader.read(&mut sink).await {}
}
