//! Measures the CPU time of a scrape with many busy routes:
//! `cargo run --release -p sluicegate-admin --example scrape [ROUTES]`.
//!
//! The output includes the share of one CPU that a scrape every 15 s takes.
#![allow(clippy::print_stdout, reason = "the example prints its measurements")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_admin::{Admin, Hosts, LastChange, Problems, Readiness};
use sluicegate_model::{
    Build, Change, Conditions, Config, Endpoint, HostPattern, ObjectId, PathPattern, Rule, Upstream,
    UpstreamKey, VirtualHost,
};
use sluicegate_proxy::{Options, Proxy};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

const SCRAPES: u32 = 10;
const INTERVAL: Duration = Duration::from_secs(15);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let routes: usize = std::env::args().nth(1).map_or(Ok(5000), |routes| routes.parse())?;
    let backend = Backend::start(Behaviour::sized(16)).await?;
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let proxy = Proxy::start(Options { http: vec![any], workers: 2, ..Options::default() })?;
    let listener = TcpListener::bind(any).await?;
    let address = listener.local_addr()?;
    let admin = Admin {
        build: Build::PLAIN,
        registry: proxy.registry().clone(),
        readiness: Readiness::new(),
        pod: None,
        namespace: None,
        planes: Arc::new(Default::default),
        analytics: None,
        audit: None,
        hosts: Hosts::Any,
        last_change: LastChange::new(),
        problems: Arc::new(Problems::default),
    };
    tokio::spawn(admin.serve(listener));
    proxy.apply(Change::Config(config(routes, backend.addr()).into())).await;
    measure(address, "idle", routes).await?;
    let mut client = Client::connect(proxy.addresses()[0]).await?;
    for route in 0..routes {
        let request = format!("GET /some/path HTTP/1.1\r\nHost: shop-{route}.example.com\r\n\r\n");
        anyhow::ensure!(client.request(request).await?.status == 200, "the route is served");
    }
    // The process also holds the connections of the backend, so only the difference of the memory counts.
    let before = kilobytes("VmRSS:")?;
    measure(address, "busy", routes).await?;
    println!("resident: {before} kB before, {} kB at most", kilobytes("VmHWM:")?);
    Ok(())
}

async fn measure(admin: SocketAddr, what: &str, routes: usize) -> anyhow::Result<()> {
    for path in ["/metrics", "/config", "/routes", "/upstreams"] {
        let (started, mut bytes) = (Instant::now(), 0);
        for _ in 0..SCRAPES {
            bytes = get(admin, path).await?;
        }
        let each = started.elapsed() / SCRAPES;
        let share = each.div_duration_f64(INTERVAL) * 100.0;
        println!("{routes} {what} routes, {path}: {bytes} bytes in {each:.1?}, {share:.2} % of one CPU");
    }
    Ok(())
}

/// Reads a document and drops it. Returns its size.
async fn get(admin: SocketAddr, path: &str) -> anyhow::Result<usize> {
    let mut stream = TcpStream::connect(admin).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
    let (mut bytes, mut buffer) = (0, vec![0; 256 * 1024]);
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(bytes),
            read => bytes += read,
        }
    }
}

fn config(routes: usize, backend: SocketAddr) -> Config {
    let key = |index| UpstreamKey::new("shop", format!("service-{index}"), "http");
    let endpoint = Endpoint { address: backend, conditions: Conditions::READY };
    let host = |index| {
        VirtualHost::new(
            HostPattern::Exact(format!("shop-{index}.example.com").into()),
            vec![Rule::new(
                ObjectId {
                    kind: "Ingress",
                    namespace: "shop".into(),
                    name: format!("ingress-{index}").into(),
                },
                PathPattern::Prefix("/some/path".into()),
                key(index),
            )],
        )
    };
    let upstream = Arc::new(Upstream { endpoints: [endpoint].into(), ..Upstream::default() });
    Config {
        hosts: (0..routes).map(host).map(Arc::new).collect(),
        upstreams: (0..routes).map(|index| (key(index), upstream.clone())).collect(),
        ..Config::default()
    }
}

fn kilobytes(field: &str) -> anyhow::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let value = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    Ok(value.trim().trim_end_matches(" kB").to_owned())
}
