//! The certificates of each host, and the clients that may connect.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sluicegate_model::value::CipherSuites;
use sluicegate_model::{Certificate, ClientAuth, HostPattern, TlsHost};

use super::passthrough;
use crate::frontend::certificate::covers;
use crate::intent::{ClientAuthIntent, Https, Intent, Tls};
use crate::object::ObjectRef;
use crate::problem::Problem;

/// The TLS settings of all hosts.
#[derive(Default)]
pub(crate) struct Merged {
    pub(crate) problems: Vec<Problem>,
    /// The hosts that have TLS.
    hosts: BTreeMap<HostPattern, Host>,
    ssl_redirect: bool,
}

/// The TLS settings of a host.
#[derive(Default)]
struct Host {
    certificates: Vec<Arc<Certificate>>,
    /// The namespaces of the objects with this host, the oldest first. All certificates are of the first namespace: the
    /// gateway sends no certificate of another namespace for the host, regardless of the type of key.
    namespaces: Vec<Arc<str>>,
    client_auth: Option<Arc<ClientAuth>>,
    ciphers: CipherSuites,
}

/// Merges the certificates of all hosts. If two certificates for one name have the same type of key, or are of two
/// namespaces, the older object has precedence.
pub(super) fn merge(
    intents: &[Intent<'_>],
    passthrough: &passthrough::Merged<'_>,
    ssl_redirect: bool,
) -> Merged {
    let mut merged = Merged { ssl_redirect, ..Merged::default() };
    let owners = owners(intents);
    for intent in intents {
        for tls in &intent.tls {
            merged.add_certificate(intent, tls, passthrough);
        }
        if let Some(auth) = &intent.client_auth {
            merged.add_client_auth(intent, auth, passthrough, &owners);
        }
    }
    // The oldest object with such a list decides.
    for intent in intents.iter().rev().filter(|intent| !intent.ciphers.are_all()) {
        for host in &intent.hosts {
            if let Some(known) = merged.hosts.get_mut(&*host.host) {
                known.ciphers = intent.ciphers;
            }
        }
    }
    merged
}

/// The owner of each host, for client certificates: the oldest object that serves the host, or else the oldest object
/// that names the host for TLS.
fn owners<'i>(intents: &'i [Intent<'_>]) -> HashMap<&'i HostPattern, &'i ObjectRef> {
    let mut owners = HashMap::new();
    if intents.iter().all(|intent| intent.client_auth.is_none()) {
        return owners;
    }
    for intent in intents {
        let of_rules = intent.hosts.iter().map(|host| &*host.host);
        let of_default = intent.default.iter().map(|_| &HostPattern::Any);
        for host in of_rules.chain(of_default) {
            owners.entry(host).or_insert(intent.at.object);
        }
    }
    for intent in intents {
        for host in intent.tls_hosts() {
            owners.entry(host).or_insert(intent.at.object);
        }
    }
    owners
}

impl Host {
    fn note(&mut self, namespace: &Arc<str>) {
        if !self.namespaces.contains(namespace) {
            self.namespaces.push(namespace.clone());
        }
    }
}

impl Merged {
    /// The hosts whose TLS the gateway terminates, in the order of their patterns.
    pub(crate) fn hosts(&self, passthrough: &passthrough::Merged<'_>) -> Vec<Arc<TlsHost>> {
        let hosts = self.hosts.iter().filter(|(pattern, _)| passthrough.of(pattern).is_none());
        let hosts = hosts.map(|(pattern, host)| {
            let mut certificates = host.certificates.clone();
            certificates.sort_by_key(|certificate| certificate.key_kind);
            Arc::new(TlsHost {
                client_auth: host.client_auth.clone(),
                ciphers: host.ciphers,
                ..TlsHost::new(pattern.clone(), certificates)
            })
        });
        hosts.collect()
    }

    /// Whether the rules of an object for a host are served over HTTPS only.
    pub(crate) fn is_https_only(&self, intent: &Intent<'_>, https: Https, host: &HostPattern) -> bool {
        if https.is_forced {
            return true;
        }
        let wildcard = match host {
            HostPattern::Exact(name) => {
                name.split_once('.').map(|(_, suffix)| HostPattern::Wildcard(suffix.into()))
            }
            _ => None,
        };
        let mut patterns = [Some(host), wildcard.as_ref()].into_iter().flatten();
        let is_its_own = |pattern: &&HostPattern| {
            intent.tls.iter().any(|tls| tls.is_for_all_hosts || tls.named.contains(pattern))
        };
        // The settings of other namespaces for a host count if these namespaces have a certificate for the host.
        let is_shown = |pattern: &&HostPattern| {
            self.hosts.get(pattern).is_some_and(|known| {
                known.client_auth.is_some()
                    || known.namespaces.contains(&intent.at.object.namespace)
                    || known.certificates.iter().any(|certificate| covers(certificate, host))
            })
        };
        let has_tls = patterns.any(|pattern| is_its_own(&pattern) || is_shown(&pattern));
        has_tls && https.if_tls.unwrap_or(self.ssl_redirect)
    }

    /// Takes a certificate. For a host with TLS passthrough, it redirects plain HTTP and does nothing else.
    fn add_certificate(&mut self, intent: &Intent<'_>, tls: &Tls<'_>, passthrough: &passthrough::Merged<'_>) {
        // A certificate that no client receives may be missing.
        let is_needed = tls.named.is_empty() || tls.named.iter().any(|host| passthrough.of(host).is_none());
        let certificate = match &tls.certificate {
            Some(Ok(certificate)) => Some(certificate),
            Some(Err(_)) if is_needed && tls.acme.as_ref().is_some_and(|acme| acme.is_missing) => {
                let fault =
                    "is not ordered yet; hosts without another certificate use the default certificate";
                self.problems.push(intent.at.note(&tls.place.field(), fault.to_owned()));
                None
            }
            Some(Err(fault)) if is_needed => {
                let fault = format!("{fault}; hosts without another certificate use the default certificate");
                self.problems.push(intent.problem(tls.place, fault));
                None
            }
            _ => None,
        };
        let namespace = &intent.at.object.namespace;
        for host in &*tls.hosts {
            if let Some(winner) = passthrough.of(host) {
                self.hosts.entry(host.clone()).or_default().note(namespace);
                if tls.certificate.is_some() {
                    let fault = format!("has no effect for host {host}: {winner} passes its TLS through");
                    self.problems.push(intent.problem(tls.place, fault));
                }
                continue;
            }
            if let Some(certificate) = certificate
                && !covers(certificate, host)
            {
                let fault = format!("{} is not valid for host {host}: clients reject it", certificate.source);
                self.problems.push(intent.problem(tls.place, fault));
            }
            let known = self.hosts.entry(host.clone()).or_default();
            known.note(namespace);
            let Some(certificate) = certificate else { continue };
            if let Some(owner) = known.namespaces.first().filter(|owner| *owner != namespace) {
                let fault = format!(
                    "{} is ignored for host {host}: an older Ingress of namespace {owner} has the host in spec.tls",
                    certificate.source
                );
                self.problems.push(intent.problem(tls.place, fault));
                continue;
            }
            match known.certificates.iter().find(|known| known.key_kind == certificate.key_kind) {
                None => known.certificates.push(certificate.clone()),
                Some(winner) if winner.source == certificate.source => {}
                Some(winner) => {
                    let fault = format!(
                        "{} is ignored for host {host}: an older Ingress gives the host {}, which has an {} key as well",
                        certificate.source, winner.source, certificate.key_kind
                    );
                    self.problems.push(intent.problem(tls.place, fault));
                }
            }
        }
    }

    /// Takes the clients that may connect to the hosts of an object.
    fn add_client_auth(
        &mut self,
        intent: &Intent<'_>,
        auth: &ClientAuthIntent<'_>,
        passthrough: &passthrough::Merged<'_>,
        owners: &HashMap<&HostPattern, &ObjectRef>,
    ) {
        if let Some((object, fault)) = &auth.fault {
            self.problems.push(intent.problem(auth.place, fault.clone()).caused_by(object));
        }
        for &host in &auth.hosts {
            if let Some(winner) = passthrough.of(host) {
                let fault = format!("has no effect for host {host}: {winner} passes its TLS through");
                self.problems.push(intent.problem(auth.place, fault));
                continue;
            }
            let is_of_another = |owner: &&&ObjectRef| owner.namespace != intent.at.object.namespace;
            if let Some(owner) = owners.get(host).filter(is_of_another) {
                let fault = format!(
                    "host {host} belongs to {owner} (older, or first by name) of another namespace, whose rules for client \
                     certificates apply; requests for routes of this Ingress receive 421"
                );
                self.problems.push(intent.problem(auth.place, fault));
                continue;
            }
            let known = &mut self.hosts.entry(host.clone()).or_default().client_auth;
            match known {
                None => *known = Some(auth.policy.clone()),
                Some(winner) if *winner == auth.policy => {}
                Some(_) => {
                    let fault = format!(
                        "an older Ingress has other rules for client certificates of host {host}, which apply; requests for routes of this Ingress receive 421"
                    );
                    self.problems.push(intent.problem(auth.place, fault));
                }
            }
        }
    }
}
