//! Access by client IP, and whether one of several access rules is enough.

use ipnet::IpNet;
use sluicegate_model::value::{Entries, Network};

use super::Meaning::Sets;
use super::Row;
use super::value::Value;

/// Networks of an annotation.
pub(crate) type Networks = Entries<Network, 256, 0>;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `allowlist-source-range`.
    pub(crate) allow: Option<Networks>,
    /// `whitelist-source-range`, the former name.
    pub(crate) former_allow: Option<Networks>,
    /// `denylist-source-range`.
    pub(crate) deny: Networks,
    /// `satisfy: any`.
    pub(crate) satisfies_any: bool,
}

/// Networks and addresses with commas. As in ingress-nginx, an entry may have bits beyond its prefix length.
pub(super) fn networks(value: &Value<'_>) -> Result<Networks, String> {
    let network = |entry: &str| match entry.parse::<IpNet>() {
        Ok(network) => network.trunc().to_string().parse(),
        Err(_) => entry.parse(),
    };
    let networks = value.list().map(network).collect::<Result<Vec<Network>, String>>()?;
    if networks.is_empty() {
        return Err("is empty: write networks such as 10.0.0.0/8, or remove the annotation".to_owned());
    }
    let count = networks.len();
    Entries::new(networks).ok_or_else(|| format!("has {count} networks, but may have at most 256"))
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "allowlist-source-range",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.access.allow = Some(networks(value)?);
            Ok(())
        }),
        sets: "The client IPs that may call, with commas. Other clients receive 403.",
        default: "",
    },
    Row {
        name: "whitelist-source-range",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.access.former_allow = Some(networks(value)?);
            Ok(())
        }),
        sets: "The former name of `allowlist-source-range`, which has precedence.",
        default: "",
    },
    Row {
        name: "denylist-source-range",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.access.deny = networks(value)?;
            Ok(())
        }),
        sets: "The client IPs that may not call, with commas. These clients receive 403.",
        default: "",
    },
    Row {
        name: "satisfy",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.access.satisfies_any = value.word(&[("any", true), ("all", false)])?;
            Ok(())
        }),
        sets: "`any`: an allowed client IP or a successful authentication is enough. `all`: both are needed.",
        default: "`all`",
    },
];
