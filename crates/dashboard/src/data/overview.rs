//! The first page: rates, marks, and what is served.

use std::time::SystemTime;

use form_urlencoded::parse;
use serde_json::{Value, json};
use sluicegate_admin::{Phase, Problems};

use super::{Absent, Data};

/// A certificate that ends sooner than this is a reason to act.
pub(super) const EXPIRY_WARNING_DAYS: u64 = 21;

impl Data {
    pub(super) fn overview(&self, query: &str) -> Result<Value, Absent> {
        let since = match parse(query.as_bytes()).find(|(name, _)| name == "since") {
            None => 0,
            Some((_, value)) => value.parse().map_err(|_| {
                Absent::Query("the parameter since is no time in seconds since 1970".to_owned())
            })?,
        };
        let admin = &self.dashboard.admin;
        let (points, marks) = self.dashboard.history.since(since);
        let config = admin.registry.config();
        let Problems { errors, warnings } = (admin.problems)();
        let now = SystemTime::now();
        let soon = std::time::Duration::from_secs(EXPIRY_WARNING_DAYS * 86_400);
        let served = config.as_ref().map(|config| {
            let endpoints = || config.upstreams.values().flat_map(|upstream| upstream.endpoints.iter());
            let certificates = || config.tls.hosts.iter().flat_map(|host| &host.certificates).chain(&config.tls.default);
            json!({
                "hosts": config.hosts.len(),
                "routes": config.rules().map(|rule| rule.matches.len()).sum::<usize>() + config.layer4_routes().count(),
                "upstreams": config.upstreams.len(),
                "upstreams_without_ready":
                    config.upstreams.values().filter(|of| !of.endpoints.iter().any(|of| of.conditions.ready)).count(),
                "endpoints": endpoints().count(),
                "endpoints_ready": endpoints().filter(|endpoint| endpoint.conditions.ready).count(),
                "certificates_expiring": certificates().filter(|of| of.not_after < now + soon).count(),
                "consumers": config.consumers.len(),
            })
        });
        Ok(json!({
            "now": seconds(now),
            "version": admin.build.to_string(),
            "pod": admin.pod,
            "phase": match admin.readiness.phase() {
                Phase::Starting => "starting",
                Phase::Ready => "ready",
                Phase::Draining => "draining",
            },
            "serves": !self.is_control_plane(),
            "last_change": admin.last_change.seconds(),
            "changes": admin.last_change.count(),
            "errors": errors.len(),
            "warnings": warnings.len(),
            "apis": self.dashboard.catalogue.apis().len(),
            "served": served,
            "planes": (admin.planes)().document,
            "interval": crate::history::INTERVAL.as_secs(),
            "points": points,
            "marks": marks,
        }))
    }

    /// Whether the process serves no requests itself.
    pub(super) fn is_control_plane(&self) -> bool {
        self.dashboard.is_control_plane
    }
}

/// Seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
