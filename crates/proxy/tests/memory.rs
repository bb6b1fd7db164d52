//! The memory cost of idle clients, and of clients that read a large response slowly.
//!
//! Both ends are in this process, but the clients are bare sockets, whose buffers belong to the kernel. The growth of
//! the process is therefore the gateway's. The tests run one at a time, since all of them measure the whole process.
#![allow(clippy::print_stdout, reason = "the figures are worth reading also when they are good")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::Gateway;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

type TestResult = anyhow::Result<()>;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

static TURN: Mutex<()> = Mutex::const_new(());

/// The resident memory of this process in bytes.
fn resident() -> anyhow::Result<u64> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap_or_default();
    let kilobytes: u64 = line.trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024)
}

/// The number of connections whose two ends this process may have open, at most 10,000.
fn most_connections() -> anyhow::Result<usize> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let files = limit.maximum.unwrap_or(100_000);
    Ok(usize::try_from(files.saturating_sub(1000) / 2)?.min(10_000))
}

/// Opens connections, sends these bytes on each, and reads the response if `answered` is true.
fn open(addr: SocketAddr, count: usize, bytes: &[u8], answered: bool) -> std::io::Result<Vec<TcpStream>> {
    let open_one = |_| {
        let mut stream = TcpStream::connect(addr)?;
        stream.write_all(bytes)?;
        if answered {
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            let mut status = [0; b"HTTP/1.1 200 OK\r\n".len()];
            stream.read_exact(&mut status)?;
            assert!(status == *b"HTTP/1.1 200 OK\r\n", "{}", status.escape_ascii());
        }
        Ok(stream)
    };
    (0..count).map(open_one).collect()
}

/// The number of bytes by which the gateway grows for each connection on which a client sent these bytes.
async fn cost(bytes: &'static [u8], answered: bool) -> anyhow::Result<u64> {
    let backend = Backend::start(Behaviour::sized(10)).await?;
    let gateway = Gateway::of([&backend]).await?;
    let (addr, count) = (gateway.addr(), most_connections()?);
    // The first connections also allocate buffers and tables. That memory is not part of the cost of one more
    // connection.
    let first = spawn_blocking(move || open(addr, 100, GET, true)).await??;
    let before = resident()?;
    let clients = spawn_blocking(move || open(addr, count, bytes, answered)).await??;
    let open = |gateway: &Gateway| gateway.proxy().registry().counters().workers().sum(|worker| &worker.open);
    gateway.wait_until(|gateway| open(gateway) == (first.len() + count) as u64).await?;
    let each = resident()?.saturating_sub(before) / count as u64;
    println!("{count} connections, {} bytes sent on each: {each} bytes of memory for each", bytes.len());
    drop((first, clients));
    gateway.wait_until_idle().await?;
    Ok(each)
}

#[tokio::test]
async fn idle_connection_uses_less_than_8_kib() -> TestResult {
    let _turn = TURN.lock().await;
    assert!(cost(b"", false).await? < 8192, "one that was never used");
    assert!(cost(GET, true).await? < 8192, "one that waits for its next request");
    Ok(())
}

#[tokio::test]
async fn connection_within_a_request_head_uses_less_than_64_kib() -> TestResult {
    let _turn = TURN.lock().await;
    assert!(cost(b"GET / HTTP/1.1\r\nHost: a\r\n", false).await? < 65536);
    Ok(())
}

#[tokio::test]
async fn large_response_to_a_slow_client_is_not_buffered_in_memory() -> TestResult {
    const SIZE: usize = 50_000_000;
    let _turn = TURN.lock().await;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let gateway = Gateway::builder().endpoints([listener.local_addr()?]).start().await?;
    for head in ["Content-Length: 50000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n2faf080\r\n", "\r\n"]
    {
        let mut client = gateway.connect().await?;
        client.send(GET).await?;
        let mut endpoint = Client::over(listener.accept().await?.0)?.with_limit(Duration::from_millis(300));
        endpoint.read_until("\r\n\r\n").await?;
        endpoint.send(format!("HTTP/1.1 200 OK\r\n{head}")).await?;
        let before = resident()?;
        let (piece, mut sent, mut read) = ([b'x'; 10_000], 0, 0);
        while read < SIZE / 2 {
            // The endpoint fills the buffers of the kernel and of the gateway; then the client reads a little.
            while endpoint.send(piece).await.is_ok() {
                sent += piece.len();
                assert!(sent < SIZE, "it never had to wait");
            }
            let most = resident()?.saturating_sub(before);
            println!("{most} bytes more of memory with {sent} bytes of {SIZE} sent and {read} read");
            assert!(most < 4_000_000, "{most} bytes for {head}");
            for _ in 0..250 {
                read += client.read_exact(20_000).await?.len();
            }
        }
    }
    gateway.wait_until_idle().await
}
