//! Further names of hosts.

use sluicegate_model::HostPattern;

use super::Meaning::Sets;
use super::Row;
use crate::object::host;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `server-alias`.
    pub(crate) hosts: Vec<HostPattern>,
}

pub(super) const ROWS: &[Row] = &[Row {
    name: "server-alias",
    restricts: false,
    meaning: Sets(|settings, value| {
        for name in value.list() {
            match host::parse(name)? {
                HostPattern::Any => return Err(format!("{name:?} is not a host")),
                // An alias is a name of nginx, whose wildcards stand for any number of labels.
                HostPattern::Wildcard(suffix) => settings.alias.hosts.push(HostPattern::Suffix(suffix)),
                host => settings.alias.hosts.push(host),
            }
        }
        Ok(())
    }),
    sets: "Further hosts, with commas, that have all rules of the host. An Ingress with the host itself has precedence.",
    default: "",
}];
