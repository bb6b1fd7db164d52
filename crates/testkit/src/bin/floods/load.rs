//! The well-behaved client.

use std::net::SocketAddr;
use std::time::Duration;

use sluicegate_testkit::load::{Load, Report, Running};
use sluicegate_testkit::stream::Transport;

/// Persistent connections of each protocol.
const CONNECTIONS: usize = 10;

/// The share of requests on new connections.
const NEW: f64 = 0.1;

/// The timeout for all connects.
const START: Duration = Duration::from_secs(10);

/// Steady requests over HTTPS: HTTP/1.1 and HTTP/2 in equal parts on persistent connections, and some on new
/// connections.
pub(crate) struct WellBehaved {
    kept: [Running; 2],
    new: Running,
}

/// The results of the requests.
pub(crate) struct Behaved {
    pub(crate) kept: Report,
    pub(crate) new: Report,
}

impl WellBehaved {
    /// Starts the load, and waits until all connections are open.
    pub(crate) async fn start(addr: SocketAddr, rate: f64) -> anyhow::Result<Self> {
        let load = |transport, share: f64| {
            let path = "/ok?id={id}";
            Load::new(addr).transport(transport).path(path).rate(rate * share).connections(CONNECTIONS)
        };
        let kept = [
            load(Transport::Https, (1.0 - NEW) / 2.0).expect_own_id().start()?,
            load(Transport::Http2, (1.0 - NEW) / 2.0).expect_own_id().start()?,
        ];
        let new = load(Transport::Https, NEW).expect_own_id().new_connections().start()?;
        for running in kept.iter().chain([&new]) {
            running.wait_for_ok(CONNECTIONS as u64, START).await?;
        }
        Ok(Self { kept, new })
    }

    pub(crate) async fn stop(self) -> anyhow::Result<Behaved> {
        let [http1, http2] = self.kept;
        let (http1, http2, new) = tokio::try_join!(http1.stop(), http2.stop(), self.new.stop())?;
        let mut kept = http1;
        kept.merge(&http2);
        Ok(Behaved { kept, new })
    }
}

impl Behaved {
    pub(crate) fn requests(&self) -> u64 {
        self.kept.requests() + self.new.requests()
    }

    pub(crate) fn failures(&self) -> u64 {
        self.kept.failures() + self.new.failures()
    }
}
