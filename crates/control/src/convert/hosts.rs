//! The settings of a host over all Ingresses. Several Ingresses may have rules for a host, but the host has one certificate and
//! one requirement on clients.

use std::collections::{BTreeMap, BTreeSet};

use sluicegate_model::HostPattern;

use super::listeners::{self, Clients};
use crate::intent::{At, Place};
use crate::object::ingress::{ClientAuth, Ingress};
use crate::object::{Kind, ObjectRef, annotation};
use crate::problem::{Problem, Severity};

/// The hosts of all Ingresses.
#[derive(Default)]
pub(super) struct Hosts {
    /// The oldest Ingress with rules for the host.
    owners: BTreeMap<HostPattern, ObjectRef>,
    /// The Secret with the certificate, of the oldest Ingress that names one.
    certificates: BTreeMap<HostPattern, ObjectRef>,
    clients: BTreeMap<HostPattern, Clients>,
    passthrough: BTreeSet<HostPattern>,
}

/// The HTTPS listener of a host.
pub(super) struct HttpsListener<'h> {
    pub(super) host: &'h HostPattern,
    pub(super) secret: &'h ObjectRef,
    pub(super) clients: Clients,
}

impl Hosts {
    /// Takes the hosts of an Ingress. The oldest Ingress comes first.
    pub(super) fn add(&mut self, at: At<'_>, ingress: &Ingress, problems: &mut Vec<Problem>) {
        let mut hosts: Vec<&HostPattern> = ingress.rules.iter().map(|rule| &rule.host).collect();
        if !ingress.has_rules {
            hosts.push(&HostPattern::Any);
        }
        for host in &hosts {
            self.owners.entry((*host).clone()).or_insert_with(|| at.object.clone());
        }
        if ingress.ssl_passthrough {
            self.passthrough.extend(hosts.into_iter().filter(|host| **host != HostPattern::Any).cloned());
            return;
        }
        for (index, tls) in ingress.tls.iter().enumerate() {
            let Some(name) = &tls.secret else {
                let message = "is missing, and an HTTPS listener needs a certificate. The hosts are not converted for \
                               HTTPS. Set secretName";
                problems.push(at.warning(&Place::Secret(index).field(), message.to_owned()));
                continue;
            };
            let secret =
                ObjectRef { kind: Kind::Secret, namespace: at.object.namespace.clone(), name: name.clone() };
            let named: Vec<&HostPattern> =
                if tls.has_hosts { tls.hosts.iter().collect() } else { hosts.clone() };
            for host in named {
                self.certificates.entry(host.clone()).or_insert_with(|| secret.clone());
            }
        }
        let Some(auth) = &ingress.client_auth else { return };
        for host in hosts {
            if let Some(fault) = self.add_clients(at, auth, host) {
                problems.push(at.problem(Severity::Error, &annotation::field(auth.annotation), fault));
            }
        }
    }

    fn add_clients(&mut self, at: At<'_>, auth: &ClientAuth, host: &HostPattern) -> Option<String> {
        if *host == HostPattern::Any {
            return Some("needs rules with hosts: Gateway API verifies clients by port".to_owned());
        }
        let owner = self.owners.get(host)?;
        if owner.namespace != at.object.namespace {
            return Some(format!(
                "has no effect for the host of {owner}, which is older and of another namespace"
            ));
        }
        let clients = listeners::clients(auth).0;
        let known = self.clients.entry(host.clone()).or_insert_with(|| clients.clone());
        (*known != clients).then(|| "differs from an older Ingress with the same host".to_owned())
    }

    /// Whether the Ingress decides about requests to the host that match no rule.
    pub(super) fn is_owner(&self, object: &ObjectRef, host: &HostPattern) -> bool {
        self.owners.get(host).is_none_or(|owner| owner == object)
    }

    /// Whether the host demands client certificates.
    pub(super) fn verifies_clients(&self, host: &HostPattern) -> bool {
        self.clients.contains_key(host)
    }

    /// The HTTPS listener that serves a host.
    pub(super) fn https<'h>(&'h self, host: &'h HostPattern) -> Option<HttpsListener<'h>> {
        if self.passthrough.contains(host) {
            return None;
        }
        let clients = self.clients.get(host).cloned().flatten();
        let (of, secret) = self.certificates.get_key_value(host).or_else(|| {
            let HostPattern::Exact(name) = host else { return None };
            let (_, suffix) = name.split_once('.')?;
            self.certificates.get_key_value(&HostPattern::Wildcard(suffix.into()))
        })?;
        // A host with a requirement on clients needs a listener of its own.
        let host = if self.verifies_clients(host) { host } else { of };
        Some(HttpsListener { host, secret, clients })
    }

    /// All HTTPS listeners that demand no client certificates.
    pub(super) fn all_https(&self) -> impl Iterator<Item = HttpsListener<'_>> {
        let hosts = self.certificates.keys().filter(|host| !self.verifies_clients(host));
        hosts.filter_map(|host| self.https(host))
    }

    /// Whether the certificate of an Ingress is for all hosts.
    pub(super) fn has_any_certificate(&self) -> bool {
        self.certificates.contains_key(&HostPattern::Any)
    }
}
