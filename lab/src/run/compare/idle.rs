//! The memory of a gateway for an idle connection.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::sleep;

use super::super::say;
use super::super::watch::memory_of_tree;
use super::GRACE;
use super::bench::{Backends, Bench};
use super::task::{RAMP, Task};
use crate::experiment::Work;
use crate::gateway::Kind;
use crate::gateway::api::Limit;
use crate::results::{Idle, Load};

/// The number of connections before the measured connections, so that shared memory is not counted.
const FIRST: u64 = 100;

pub(super) async fn measure(
    bench: &Bench<'_>,
    kind: &'static Kind,
    connections: u64,
) -> anyhow::Result<Idle> {
    let mut kib = [0.0; 2];
    for (kib, work) in kib.iter_mut().zip([Work::Http, Work::Https]) {
        // Both measurements use the same load, so that only the number of connections differs.
        let task = Task::plain(work);
        bench.divide(1)?;
        let backends = Backends::start().await?;
        let standing = bench.start(kind, task, 1, Limit::HIGH, &backends).await?;
        let mut bytes = [0; 2];
        for (bytes, connections) in bytes.iter_mut().zip([FIRST, FIRST + connections]) {
            let mut load = task.load(connections, &standing.gateway, standing.scratch.path())?;
            // Each connection carries a request every two seconds.
            load.command.args(["-d5s".to_owned(), format!("-R{}", connections / 2)]);
            let json = load.json().to_owned();
            let mut load = load.start()?;
            sleep(RAMP + Duration::from_secs(4)).await;
            *bytes = memory_of_tree(standing.gateway.process.pid())?;
            let status = load.wait(GRACE).await?;
            ensure!(status.success(), "the load ended with {status}:\n{}", load.output());
            let done: Load =
                serde_json::from_str(&fs::read_to_string(&json)?).context("what the load has written")?;
            ensure!(
                done.errors.total == 0,
                "{} requests on {connections} connections failed: {:?}",
                done.errors.total,
                done.errors.kinds
            );
        }
        *kib = bytes[1].saturating_sub(bytes[0]) as f64 / 1024.0 / connections as f64;
    }
    let [http_kib, https_kib] = kib;
    say(&format!(
        "{:<14} idle connections: {http_kib:.1} KiB over HTTP, {https_kib:.1} over HTTPS",
        kind.name
    ));
    Ok(Idle { connections, http_kib, https_kib })
}
