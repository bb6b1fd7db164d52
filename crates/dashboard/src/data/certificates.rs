//! The certificates with their names and their expiry.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use sluicegate_model::{Certificate, KeyKind};

use super::Data;
use super::overview::{EXPIRY_WARNING_DAYS, seconds};
use crate::list::{Part, Wanted};

/// At most this many hosts of a certificate are listed.
const HOSTS_MAX: usize = 50;

/// A served certificate.
#[derive(Clone, Serialize)]
pub(super) struct Served {
    source: String,
    names: Vec<String>,
    /// The hosts for which clients receive the certificate.
    hosts: Vec<String>,
    /// The number of all these hosts.
    host_count: usize,
    key: &'static str,
    not_before: u64,
    not_after: u64,
    /// `expired`, `early`, `soon` or `ok`.
    state: &'static str,
    /// Whether clients without a known server name receive the certificate.
    is_default: bool,
}

impl Data {
    pub(super) fn certificates(&self, wanted: &Wanted) -> Part<Served> {
        let tls = self.dashboard.admin.registry.tls().unwrap_or_default();
        let mut served: HashMap<*const Certificate, (&Arc<Certificate>, Vec<String>, bool)> = HashMap::new();
        for host in &tls.hosts {
            for certificate in &host.certificates {
                let entry = served.entry(Arc::as_ptr(certificate));
                entry.or_insert((certificate, Vec::new(), false)).1.push(host.host.to_string());
            }
        }
        for certificate in &tls.default {
            served.entry(Arc::as_ptr(certificate)).or_insert((certificate, Vec::new(), false)).2 = true;
        }
        let now = SystemTime::now();
        let served = served
            .into_values()
            .map(|(certificate, hosts, is_default)| of(certificate, hosts, is_default, now));
        let mut served: Vec<Served> = served
            .filter(|of| {
                let texts = [&of.source].into_iter().chain(&of.names).chain(&of.hosts);
                wanted.finds(&texts.map(String::as_str).collect::<Vec<_>>().join(" ").to_lowercase())
            })
            .collect();
        served.sort_by(|one, other| (one.not_after, &one.source).cmp(&(other.not_after, &other.source)));
        wanted.part(&served, |of| {
            let mut of = of.clone();
            of.hosts.truncate(HOSTS_MAX);
            of.names.truncate(HOSTS_MAX);
            of
        })
    }
}

fn of(certificate: &Certificate, hosts: Vec<String>, is_default: bool, now: SystemTime) -> Served {
    let soon = std::time::Duration::from_secs(EXPIRY_WARNING_DAYS * 86_400);
    Served {
        source: certificate.source.to_string(),
        names: certificate.names.iter().map(ToString::to_string).collect(),
        host_count: hosts.len(),
        hosts,
        key: match certificate.key_kind {
            KeyKind::Ecdsa => "ECDSA",
            KeyKind::Rsa => "RSA",
            KeyKind::Ed25519 => "Ed25519",
        },
        not_before: seconds(certificate.not_before),
        not_after: seconds(certificate.not_after),
        state: match () {
            () if certificate.not_after <= now => "expired",
            () if certificate.not_before > now => "early",
            () if certificate.not_after < now + soon => "soon",
            () => "ok",
        },
        is_default,
    }
}
