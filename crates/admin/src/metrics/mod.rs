//! The Prometheus exposition, in OpenMetrics text or the older text format.
//!
//! The configuration bounds every series; traffic and changing pods do not add series:
//!
//! - per route (at most [`MAX_ROUTES`](sluicegate_proxy::counters::MAX_ROUTES), then one series with empty labels for
//!   the rest): all series from the first request on, so that error rates can be computed;
//! - per policy: whether the policy rejects every request, its allowed requests, and its denied requests by reason,
//!   from the first occurrence of the reason; per consumer (at most
//!   [`MAX_CONSUMERS`](sluicegate_proxy::counters::MAX_CONSUMERS), then one series with empty labels for the rest):
//!   from its first request on;
//! - per listener of a Gateway: whether the listener is open; per route below HTTP: from its first connection on;
//! - per upstream: gauges always, counters and the histogram once one of them is not zero, counters by reason from the
//!   first occurrence of the reason;
//! - per worker: numbers that show whether the load is distributed evenly;
//! - for the process: all series, including every known reason;
//! - with `--ingress-nginx-compatibility`, the metrics of ingress-nginx: requests by method, status and canary, within
//!   [`MAX_SERIES_PER_ROUTE`](sluicegate_proxy::counters::MAX_SERIES_PER_ROUTE) and
//!   [`MAX_SERIES`](sluicegate_proxy::counters::MAX_SERIES).

mod certificate;
mod families;
mod format;
mod layer4;
mod nginx;
mod policy;
mod process;
mod route;
mod upstream;
mod worker;

use std::sync::Arc;
use std::{fmt, io};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use sluicegate_http_server::{Closed, Counters};

use crate::planes::{Measure, Number};
use crate::readiness::Phase;
use crate::{Admin, Problems, content};
use families::Families;
pub(crate) use format::Format;
use format::Plain;
use nginx::Nginx;
use process::Process;

/// The sources of the metrics.
pub(crate) struct Metrics {
    registry: Registry,
}

impl Metrics {
    pub(crate) fn new(admin: Admin, counters: Arc<Counters>) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Gateway {
            admin,
            counters,
            process: Process::new(),
            nginx: Nginx::default(),
        }));
        Self { registry }
    }

    pub(crate) fn write(&self, out: &mut content::Writer, format: Format) -> io::Result<()> {
        let written = match format {
            Format::OpenMetrics => encode(out, &self.registry),
            Format::Plain => encode(&mut Plain::new(out), &self.registry),
        };
        written.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Reads all values at each scrape.
struct Gateway {
    admin: Admin,
    counters: Arc<Counters>,
    process: Process,
    nginx: Nginx,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").finish_non_exhaustive()
    }
}

impl Collector for Gateway {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families::new(encoder);
        let (admin, registry) = (&self.admin, &self.admin.registry);
        families.info(
            "sluicegate_build",
            "Version and commit of the running gateway",
            &[("version", admin.build.version), ("commit", admin.build.commit.unwrap_or_default())],
        )?;
        let ready = u64::from(admin.readiness.phase() == Phase::Ready);
        families.gauge("sluicegate_ready", "1 while the gateway is ready for traffic, otherwise 0", ready)?;
        certificate::encode(&mut families, registry)?;
        let Problems { errors, warnings } = (admin.problems)();
        families.gauges(
            "sluicegate_config_problems",
            "Current problems of the configuration, by severity",
            [("error", errors), ("warning", warnings)]
                .map(|(severity, problems)| ([("severity", severity)], problems.len() as u64)),
        )?;
        if let Some(seconds) = admin.last_change.seconds() {
            families.gauge(
                "sluicegate_config_last_change_timestamp_seconds",
                "Time of the last change of the configuration, in seconds since 1970, without changes of endpoints",
                seconds,
            )?;
        }
        families.histogram(
            "sluicegate_propagation_seconds",
            "Time from the notice of a change until the last worker serves the change",
            &registry.counters().propagation(),
        )?;
        let planes = (admin.planes)();
        if let Some(lease) = &planes.lease {
            families.gauge(
                "sluicegate_leader",
                "1 if this process holds the Lease and writes status and Events, otherwise 0",
                u64::from(lease.is_held),
            )?;
        }
        for Measure { name, help, value } in &planes.measures {
            match value {
                Number::Counter(value) => families.counter(name, help, *value)?,
                Number::Counters(label, values) => {
                    let values = values.iter().map(|(of, value)| ([(*label, *of)], *value));
                    families.counters(name, help, values)?;
                }
                Number::Gauge(value) => families.gauge(name, help, *value)?,
            }
        }
        families.counters(
            "sluicegate_admin_connections_closed",
            "Connections that the admin interface closed, by reason",
            Closed::ALL.iter().map(|closed| ([("reason", closed.reason())], self.counters.closed(*closed))),
        )?;
        families.counter(
            "sluicegate_admin_requests_refused",
            "Requests to the admin interface rejected with 503, because only connections for probes were left",
            self.counters.refused(),
        )?;
        worker::encode(&mut families, registry)?;
        route::encode(&mut families, registry)?;
        policy::encode(&mut families, registry)?;
        layer4::encode(&mut families, registry)?;
        upstream::encode(&mut families, registry)?;
        self.process.encode(&mut families)?;
        self.nginx.encode(&mut families, admin, &planes, &self.process)
    }
}
