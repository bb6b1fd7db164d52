//! The records of requests.

use sluicegate_model::feature::observability::Unrecorded;

use super::Meaning::{Refused, Sets};
use super::Row;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `enable-access-log` and `enable-opentelemetry`.
    pub(crate) unrecorded: Unrecorded,
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "enable-access-log",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.observability.unrecorded.access_log = !value.switch()?;
            Ok(())
        }),
        sets: "Whether the access log has the requests.",
        default: "`true`",
    },
    Row {
        name: "enable-opentelemetry",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.observability.unrecorded.traces = !value.switch()?;
            Ok(())
        }),
        sets: "Whether the requests have spans. `true` needs `--otlp-endpoint`.",
        default: "`true` with `--otlp-endpoint`",
    },
    Row {
        name: "opentelemetry-trust-incoming-span",
        restricts: false,
        meaning: Refused("Set the trusted peers for the whole gateway with `--trusted-proxies`."),
        sets: "The gateway decides about a trace before it knows the rule.",
        default: "",
    },
];
