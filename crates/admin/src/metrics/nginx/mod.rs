//! The metrics of ingress-nginx, with its names and labels, for dashboards and alerts that exist already.
//!
//! All values come from counters that the gateway has anyway. Names without a meaning here are absent, not zero:
//! `docs/migrate/ingress-nginx.md` lists them. The metrics exist if the settings name the controller of ingress-nginx.
//!
//! | module | metrics |
//! |---|---|
//! | `requests` | requests by host, path, method, status, Service and canary |
//! | `certificates` | the certificates of hosts |
//! | this module | the configuration, the process, Ingresses without endpoints |

mod certificates;
mod requests;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sluicegate_model::{Build, Config};

use super::families::Families;
use super::process::{self, Memory, Process, Storage};
use crate::planes::Lease;
use crate::{Admin, Planes};

/// The labels of every metric about the controller.
type ControllerLabels<'c> = [(&'static str, &'c str); 3];

/// The state of the metrics between scrapes.
#[derive(Default)]
pub(super) struct Nginx {
    /// The hash of the last scraped configuration.
    hash: Mutex<(Weak<Config>, u64)>,
}

impl Nginx {
    pub(super) fn encode(
        &self,
        families: &mut Families<'_>,
        admin: &Admin,
        planes: &Planes,
        process: &Process,
    ) -> fmt::Result {
        let Some(class) = admin.registry.settings().and_then(|settings| settings.nginx_controller) else {
            return Ok(());
        };
        let namespace = admin.namespace.as_deref().unwrap_or_default();
        let pod = admin.pod.as_deref().unwrap_or_default();
        let controller =
            [("controller_class", &*class), ("controller_namespace", namespace), ("controller_pod", pod)];
        self.encode_config(families, admin, controller)?;
        if let Some(Lease { name, is_held }) = &planes.lease {
            families.gauges(
                "nginx_ingress_controller_leader_election_status",
                "1 if this process holds the Lease with this name, otherwise 0",
                [((controller, [("name", &**name)]), u64::from(*is_held))],
            )?;
        }
        encode_connections(families, admin, controller)?;
        encode_process(families, process, controller)?;
        encode_orphans(families, admin, controller)?;
        certificates::encode(families, &admin.registry, (&class, namespace))?;
        requests::encode(families, &admin.registry, controller)
    }

    /// The configuration. Each configuration that the gateway publishes is a successful reload: there is no other kind.
    fn encode_config(
        &self,
        families: &mut Families<'_>,
        admin: &Admin,
        controller: ControllerLabels<'_>,
    ) -> fmt::Result {
        let Build { version, commit } = admin.build;
        let build = [
            ("build", commit.unwrap_or(version)),
            ("release", version),
            ("repository", env!("CARGO_PKG_REPOSITORY")),
        ];
        families.infos(
            "nginx_ingress_controller_build",
            "Version of the running gateway",
            [(controller, build)],
        )?;
        if let Some(hash) = self.hash(admin) {
            families.gauges(
                "nginx_ingress_controller_config_hash",
                "Hash of the served configuration, without endpoints",
                [(controller, hash)],
            )?;
        }
        let Some(seconds) = admin.last_change.seconds() else { return Ok(()) };
        families.gauges(
            "nginx_ingress_controller_config_last_reload_successful",
            "1 once the gateway has a configuration",
            [(controller, 1)],
        )?;
        families.gauges(
            "nginx_ingress_controller_config_last_reload_successful_timestamp_seconds",
            "Time of the last change of the configuration, in seconds since 1970, without changes of endpoints",
            [(controller, seconds)],
        )?;
        families.plain_counters(
            "nginx_ingress_controller_success",
            "Changes of the configuration, without changes of endpoints",
            [(controller, admin.last_change.count())],
        )
    }

    /// The hash of the current configuration, which is computed once.
    fn hash(&self, admin: &Admin) -> Option<u64> {
        let config = admin.registry.published()?;
        let mut known = self.hash.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0.as_ptr() != Arc::as_ptr(&config) {
            let mut hasher = HashWriter(DefaultHasher::new());
            let Config { settings, hosts, default_rule, listeners, tls, consumers, .. } = &*config;
            let parts = (settings, hosts, default_rule, listeners, &**tls, consumers);
            serde_json::to_writer(&mut hasher, &parts).ok()?;
            // Prometheus has 53 bits for an integer.
            *known = (Arc::downgrade(&config), hasher.0.finish() >> 11);
        }
        Some(known.1)
    }
}

struct HashWriter(DefaultHasher);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Client connections and requests. The gateway does not know how many connections are idle.
fn encode_connections(
    families: &mut Families<'_>,
    admin: &Admin,
    controller: ControllerLabels<'_>,
) -> fmt::Result {
    let workers = admin.registry.counters().workers();
    let state = |state| (controller, [("state", state)]);
    families.gauges(
        "nginx_ingress_controller_nginx_process_connections",
        "Open client connections (active), and requests in flight (writing)",
        [
            (state("active"), workers.sum(|worker| &worker.open)),
            (state("writing"), workers.sum(|worker| &worker.in_flight)),
        ],
    )?;
    let accepted = workers.sum(|worker| &worker.accepted);
    families.plain_counters(
        "nginx_ingress_controller_nginx_process_connections_total",
        "Accepted client connections",
        ["accepted", "handled"].map(|name| (state(name), accepted)),
    )?;
    families.plain_counters(
        "nginx_ingress_controller_nginx_process_requests_total",
        "Requests of clients",
        [(controller, workers.sum(|worker| &worker.requests))],
    )
}

fn encode_process(
    families: &mut Families<'_>,
    process: &Process,
    controller: ControllerLabels<'_>,
) -> fmt::Result {
    families.plain_counters(
        "nginx_ingress_controller_nginx_process_cpu_seconds_total",
        "CPU time of the process, in seconds",
        [(controller, process::cpu_seconds())],
    )?;
    families.gauges(
        "nginx_ingress_controller_nginx_process_num_procs",
        "Processes of the gateway",
        [(controller, 1)],
    )?;
    if let Some(start) = process.start_seconds() {
        families.gauges(
            "nginx_ingress_controller_nginx_process_oldest_start_time_seconds",
            "Start time of the process, in seconds since 1970",
            [(controller, start)],
        )?;
    }
    if let Some(Memory { of_addresses, resident }) = Memory::read() {
        families.gauges(
            "nginx_ingress_controller_nginx_process_resident_memory_bytes",
            "Resident memory of the process, in bytes",
            [(controller, resident)],
        )?;
        families.gauges(
            "nginx_ingress_controller_nginx_process_virtual_memory_bytes",
            "Virtual memory of the process, in bytes",
            [(controller, of_addresses)],
        )?;
    }
    let Some(io) = Storage::read() else { return Ok(()) };
    families.plain_counters(
        "nginx_ingress_controller_nginx_process_read_bytes_total",
        "Bytes that the process has read from storage",
        [(controller, io.read)],
    )?;
    families.plain_counters(
        "nginx_ingress_controller_nginx_process_write_bytes_total",
        "Bytes that the process has written to storage",
        [(controller, io.written)],
    )
}

/// Ingresses with an upstream without endpoints. Data planes do not know whether the Service exists.
fn encode_orphans(
    families: &mut Families<'_>,
    admin: &Admin,
    controller: ControllerLabels<'_>,
) -> fmt::Result {
    let Some(config) = admin.registry.published() else { return Ok(()) };
    let upstreams = admin.registry.upstreams();
    let served: HashSet<_> = upstreams
        .iter()
        .filter(|upstream| upstream.endpoints().eligible().next().is_some())
        .map(|upstream| upstream.key())
        .collect();
    let mut ingresses = BTreeMap::<_, bool>::new();
    for rule in config.rules().filter(|rule| rule.id.kind == "Ingress") {
        let is_orphan = rule.upstreams().any(|upstream| !served.contains(upstream));
        *ingresses.entry((&*rule.id.namespace, &*rule.id.name)).or_default() |= is_orphan;
    }
    families.gauges(
        "nginx_ingress_controller_orphan_ingress",
        "1 if a Service of the Ingress has no endpoint, otherwise 0",
        ingresses.into_iter().map(|((namespace, name), is_orphan)| {
            let labels = [("namespace", namespace), ("ingress", name), ("type", "no-endpoint")];
            ((controller, labels), u64::from(is_orphan))
        }),
    )
}
