//! Simulates many data planes. This command prints figures:
//! `SLUICEGATE_LINK_SUBSCRIBERS=1000 cargo test --release -p sluicegate-link --test link simulation -- --nocapture`.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use sluicegate_link::PlaneTls;
use tokio::time::timeout;

use crate::support::{Certificates, Control, Data, config_change, endpoints_change};

const HOSTS: usize = 500;
const CHANGES: usize = 1000;
const LIMIT: Duration = Duration::from_secs(120);

/// The CPU time of this process, which runs both planes.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_planes_converge_after_a_burst_of_changes() -> anyhow::Result<()> {
    let subscribers = std::env::var("SLUICEGATE_LINK_SUBSCRIBERS");
    let subscribers: usize = subscribers.ok().map_or(Ok(200), |text| text.parse())?;
    let certificates = Certificates::new()?;
    let control = Control::start(certificates.control.path()).await?;
    let distributor = &control.distributor;
    let first = distributor.publish(&config_change(HOSTS, 1));
    let tls = PlaneTls::read(certificates.proxy.path())?;

    let (memory, used, begin) = (resident(), cpu(), Instant::now());
    let start = |number| Data::start_with(control.address, tls.clone(), None, &format!("node-{number}"));
    let mut data: Vec<Data> = (0..subscribers).map(start).collect();
    timeout(LIMIT, distributor.served_by(subscribers, first)).await?;
    println!(
        "{subscribers} data planes of {} resources: all in step after {:.2?}, CPU {:.2} ms and memory {} KiB for each \
         pair of ends; {} bytes for each",
        distributor.telemetry().resources,
        begin.elapsed(),
        (cpu() - used).as_secs_f64() * 1000.0 / subscribers as f64,
        (resident() - memory) / subscribers as u64,
        distributor.telemetry().counts.bytes / subscribers as u64,
    );

    // Measures the time from each change until the last data plane serves the change.
    let mut times = Vec::new();
    let (used, bytes) = (cpu(), distributor.telemetry().counts.bytes);
    for number in 0..200 {
        let begin = Instant::now();
        let version = distributor.publish(&endpoints_change(number, 2));
        timeout(LIMIT, distributor.served_by(subscribers, version)).await?;
        times.push(begin.elapsed());
    }
    let each = (cpu() - used).as_secs_f64() * 1e6 / 200.0 / subscribers as f64;
    let bytes = (distributor.telemetry().counts.bytes - bytes) / 200 / subscribers as u64;
    times.sort_unstable();
    println!(
        "one endpoint change: until the last serves it p50 {:.2?}, p99 {:.2?}; {each:.1} us of CPU (both ends) and {bytes} \
         bytes for each data plane",
        percentile(&times, 50),
        percentile(&times, 99),
    );

    // A burst of endpoint changes, with some route changes in between.
    let (used, before, begin) = (cpu(), distributor.telemetry().counts, Instant::now());
    for number in 0..CHANGES {
        distributor.publish(&endpoints_change(number % HOSTS, 3 + (number / HOSTS) as u16));
        if number % 200 == 199 {
            distributor.publish(&config_change(HOSTS + number, 9));
        }
        if number % 50 == 49 {
            tokio::task::yield_now().await;
        }
    }
    let newest = distributor.publish(&endpoints_change(0, 77));
    let published = begin.elapsed();
    timeout(LIMIT, distributor.served_by(subscribers, newest)).await?;
    let counts = distributor.telemetry().counts;
    println!(
        "{CHANGES} endpoint changes and 5 of routes, published in {published:.2?}: all in step after {:.2?}, CPU {:.2} s, \
         {:.1} batches and {} bytes for each data plane",
        begin.elapsed(),
        (cpu() - used).as_secs_f64(),
        (counts.batches - before.batches) as f64 / subscribers as f64,
        (counts.bytes - before.bytes) / subscribers as u64,
    );
    for data in &mut data {
        let served = data.wait(|served| served.port(0) == Some(77)).await?;
        assert_eq!(served.hosts(), HOSTS + CHANGES - 1);
        assert_eq!(served.port(1), Some(9), "the last configuration");
    }
    println!("resident memory {} MiB, connections {}", resident() / 1024, counts.accepted);
    Ok(())
}
