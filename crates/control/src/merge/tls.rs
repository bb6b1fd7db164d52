//! `spec.tls` of Ingresses and its Secrets: the certificates of each host, and the clients that may connect.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sluicegate_model::tls::TicketSecret;
use sluicegate_model::{Certificate, ClientAuth, HostPattern, Tls, TlsHost};

use super::passthrough;
use crate::object::ingress::{self, Ingress};
use crate::object::secret::TLS_TYPE;
use crate::object::{Kind, ObjectRef, annotation};
use crate::problem::Problem;
use crate::store::Store;
use crate::translate::{ObjectName, Source, TranslateOptions};

/// The TLS settings of the Ingresses.
#[derive(Default)]
pub(crate) struct Built {
    pub(crate) tls: Tls,
    pub(crate) problems: Vec<Problem>,
    /// The policies for client certificates, by their Ingress.
    client_auth: HashMap<ObjectRef, Arc<ClientAuth>>,
    /// The hosts that have TLS.
    hosts: BTreeMap<HostPattern, Host>,
    ssl_redirect: bool,
}

/// A host while it is built.
#[derive(Default)]
struct Host {
    certificates: Vec<Arc<Certificate>>,
    /// The namespaces of the Ingresses with this host, the oldest first. All certificates are of the first namespace:
    /// the gateway sends no certificate of another namespace for the host, whatever its type of key.
    namespaces: Vec<Arc<str>>,
    client_auth: Option<Arc<ClientAuth>>,
}

/// Builds the certificates of all hosts. If two certificates for one name have the same type of key, or are of two
/// namespaces, the older Ingress has precedence.
pub(crate) fn build(
    store: &Store,
    ingresses: &[Source<'_>],
    passthrough: &passthrough::Built<'_>,
    options: &TranslateOptions,
) -> Built {
    let mut built = Built { ssl_redirect: options.ssl_redirect, ..Built::default() };
    let owners = owners(ingresses);
    for &source in ingresses {
        for index in 0..source.ingress.tls.len() {
            built.add_entry(store, source, index, passthrough);
        }
        if let Some(auth) = &source.ingress.client_auth {
            built.add_client_auth(store, source, auth, passthrough, &owners);
        }
    }
    let hosts =
        built.hosts.iter().filter(|(pattern, _)| passthrough.of(pattern).is_none()).map(|(pattern, host)| {
            let mut certificates = host.certificates.clone();
            certificates.sort_by_key(|certificate| certificate.key_kind);
            Arc::new(TlsHost { host: pattern.clone(), certificates, client_auth: host.client_auth.clone() })
        });
    built.tls.hosts = hosts.collect();
    built.tls.passthrough = passthrough.routes();
    built.tls.default = built.default_certificate(store, options).into_iter().collect();
    built.tls.ticket_secrets = built.ticket_secrets(store, options);
    built
}

/// The owner of each host, for client certificates: the oldest Ingress that serves the host, or else the oldest Ingress
/// that names the host for TLS.
fn owners<'a>(ingresses: &[Source<'a>]) -> HashMap<&'a HostPattern, &'a ObjectRef> {
    let mut owners = HashMap::new();
    if ingresses.iter().all(|source| source.ingress.client_auth.is_none()) {
        return owners;
    }
    for source in ingresses {
        let of_rules = source.ingress.rules.iter().map(|rule| &rule.host);
        let of_default = source.ingress.default_backend.iter().map(|_| &HostPattern::Any);
        for host in of_rules.chain(of_default) {
            owners.entry(host).or_insert(source.object);
        }
    }
    for source in ingresses {
        for host in source.ingress.tls.iter().flat_map(|tls| &tls.hosts) {
            owners.entry(host).or_insert(source.object);
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

impl Built {
    /// Whether the routes of an Ingress for a host are served over HTTPS only.
    pub(crate) fn is_https_only(&self, object: &ObjectRef, ingress: &Ingress, host: &HostPattern) -> bool {
        if ingress.force_ssl_redirect || ingress.client_auth.is_some() {
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
            ingress.tls.iter().any(|tls| !tls.has_hosts || tls.hosts.contains(pattern))
        };
        // The settings of other namespaces for a host count if these namespaces have a certificate for the host.
        let is_shown = |pattern: &&HostPattern| {
            self.hosts.get(pattern).is_some_and(|known| {
                known.client_auth.is_some()
                    || known.namespaces.contains(&object.namespace)
                    || known.certificates.iter().any(|certificate| names(certificate, host))
            })
        };
        let has_tls = patterns.any(|pattern| is_its_own(&pattern) || is_shown(&pattern));
        has_tls && ingress.ssl_redirect.unwrap_or(self.ssl_redirect)
    }

    /// The policy for client certificates of the routes of an Ingress.
    pub(crate) fn client_auth_of(&self, ingress: &ObjectRef) -> Option<Arc<ClientAuth>> {
        self.client_auth.get(ingress).cloned()
    }

    /// Takes an entry of `spec.tls`. For a host with TLS passthrough, the entry redirects plain HTTP and does nothing else.
    fn add_entry(
        &mut self,
        store: &Store,
        source: Source<'_>,
        index: usize,
        passthrough: &passthrough::Built<'_>,
    ) {
        let entry = &source.ingress.tls[index];
        let field = format!("spec.tls[{index}].secretName");
        // A certificate that no client receives may be missing.
        let is_needed =
            entry.hosts.is_empty() || entry.hosts.iter().any(|host| passthrough.of(host).is_none());
        let certificate = entry.secret.as_ref().filter(|_| is_needed).and_then(|name| {
            let object = ObjectRef {
                kind: Kind::Secret,
                namespace: source.object.namespace.clone(),
                name: name.clone(),
            };
            let certificate = certificate(store, &object);
            certificate
                .map_err(|fault| {
                    let fault =
                        format!("{fault}; hosts without another certificate use the default certificate");
                    self.problems.push(source.problem(&field, fault));
                })
                .ok()
        });
        let hosts = match entry.has_hosts {
            true => entry.hosts.clone(),
            false => hosts_of(source.ingress, certificate.as_deref()),
        };
        for host in hosts {
            if let Some(winner) = passthrough.of(&host) {
                self.hosts.entry(host.clone()).or_default().note(&source.object.namespace);
                if entry.secret.is_some() {
                    let fault = format!("has no effect for host {host}: {winner} passes its TLS through");
                    self.problems.push(source.problem(&field, fault));
                }
                continue;
            }
            if let Some(certificate) = &certificate
                && !names(certificate, &host)
            {
                let fault = format!("{} is not valid for host {host}: clients reject it", certificate.source);
                self.problems.push(source.problem(&field, fault));
            }
            let namespace = &source.object.namespace;
            let known = self.hosts.entry(host.clone()).or_default();
            known.note(namespace);
            let Some(certificate) = certificate.clone() else { continue };
            if let Some(owner) = known.namespaces.first().filter(|owner| *owner != namespace) {
                let fault = format!(
                    "{} is ignored for host {host}: an older Ingress of namespace {owner} has the host in spec.tls",
                    certificate.source
                );
                self.problems.push(source.problem(&field, fault));
                continue;
            }
            match known.certificates.iter().find(|known| known.key_kind == certificate.key_kind) {
                None => known.certificates.push(certificate),
                Some(winner) if winner.source == certificate.source => {}
                Some(winner) => {
                    let fault = format!(
                        "{} is ignored for host {host}: an older Ingress gives the host {}, which has an {} key as well",
                        certificate.source, winner.source, certificate.key_kind
                    );
                    self.problems.push(source.problem(&field, fault));
                }
            }
        }
    }

    /// Takes the clients that may connect to the hosts of an Ingress.
    fn add_client_auth(
        &mut self,
        store: &Store,
        source: Source<'_>,
        auth: &ingress::ClientAuth,
        passthrough: &passthrough::Built<'_>,
        owners: &HashMap<&HostPattern, &ObjectRef>,
    ) {
        let field = annotation::field(auth.annotation);
        let data = auth.authorities.as_ref().and_then(|object| store.data(object));
        if let Some(object) = &auth.authorities
            && data.is_none_or(|data| data.authorities.is_empty())
        {
            let fault = match store.knows(object) {
                true => format!("{object} has no certificates in data[ca.crt]; every client is rejected"),
                false => format!("{object} does not exist; every client is rejected"),
            };
            self.problems.push(source.problem(&field, fault));
        }
        let policy = Arc::new(ClientAuth {
            source: auth
                .authorities
                .as_ref()
                .map_or_else(|| "nothing".into(), |object| object.to_string().into()),
            roots: data.map(|data| data.authorities.clone()).unwrap_or_default(),
            crls: data.map(|data| data.revoked.clone()).unwrap_or_default(),
            mode: auth.mode,
            forward: auth.forward,
        });
        let of_rules = source.ingress.rules.iter().map(|rule| &rule.host);
        let of_tls = source.ingress.tls.iter().flat_map(|tls| &tls.hosts);
        let of_default = source.ingress.default_backend.iter().map(|_| &HostPattern::Any);
        for host in of_rules.chain(of_tls).chain(of_default) {
            if let Some(winner) = passthrough.of(host) {
                let fault = format!("has no effect for host {host}: {winner} passes its TLS through");
                self.problems.push(source.problem(&field, fault));
                continue;
            }
            if let Some(owner) = owners.get(host).filter(|owner| owner.namespace != source.object.namespace) {
                let fault = format!(
                    "host {host} belongs to {owner} (older, or first by name) of another namespace, whose rules for client \
                     certificates apply; requests for routes of this Ingress receive 421"
                );
                self.problems.push(source.problem(&field, fault));
                continue;
            }
            let known = &mut self.hosts.entry(host.clone()).or_default().client_auth;
            match known {
                None => *known = Some(policy.clone()),
                Some(winner) if **winner == *policy => {}
                Some(_) => {
                    let fault = format!(
                        "an older Ingress has other rules for client certificates of host {host}; every client is rejected"
                    );
                    self.problems.push(source.problem(&field, fault));
                }
            }
        }
        self.client_auth.insert(source.object.clone(), policy);
    }

    fn default_certificate(&mut self, store: &Store, options: &TranslateOptions) -> Option<Arc<Certificate>> {
        let name = options.default_certificate.as_ref()?;
        let given = certificate(store, &name.secret()).map_err(|fault| {
            let fault = format!("{fault}; a self-signed certificate is used");
            self.problems.push(Problem::of_option("--default-tls-certificate", fault));
        });
        given.ok()
    }

    fn ticket_secrets(&mut self, store: &Store, options: &TranslateOptions) -> Vec<TicketSecret> {
        let Some(object) = options.ticket_secret.as_ref().map(ObjectName::secret) else { return Vec::new() };
        let mut problem =
            |fault: String| self.problems.push(Problem::of_option("--tls-ticket-secret", fault));
        let Some(data) = store.data(&object) else {
            problem(format!("{object} does not exist; only this process resumes its TLS sessions"));
            return Vec::new();
        };
        let mut secrets = Vec::new();
        for (key, value) in data.values() {
            if value.len() < TicketSecret::MIN {
                let least = TicketSecret::MIN;
                problem(format!(
                    "{object}: data[{key}] has {} bytes, but needs {least}; the key is ignored",
                    value.len()
                ));
            } else {
                secrets.push(TicketSecret(value.into()));
            }
        }
        if secrets.is_empty() {
            problem(format!("{object} has no valid key; only this process resumes its TLS sessions"));
        }
        secrets
    }
}

/// The hosts of an entry without hosts: the hosts of the rules that the certificate covers, and the certificate's own
/// names if rules name no host. Without a certificate all hosts.
fn hosts_of(ingress: &Ingress, certificate: Option<&Certificate>) -> Vec<HostPattern> {
    let mut hosts: Vec<HostPattern> = Vec::new();
    for rule in &ingress.rules {
        match (&rule.host, certificate) {
            (HostPattern::Any, Some(certificate)) => hosts.extend(certificate.names.iter().cloned()),
            (HostPattern::Any, None) => {}
            (host, Some(certificate)) if !names(certificate, host) => {}
            (host, _) => hosts.push(host.clone()),
        }
    }
    if ingress.rules.is_empty()
        && let Some(certificate) = certificate
    {
        hosts.extend(certificate.names.iter().cloned());
    }
    hosts.sort();
    hosts.dedup();
    hosts
}

/// Whether a certificate covers all names of a pattern.
fn names(certificate: &Certificate, host: &HostPattern) -> bool {
    match host {
        HostPattern::Exact(name) => certificate.covers(name),
        pattern => certificate.names.contains(pattern),
    }
}

/// The certificate of a Secret, or the reason why there is none. The Secret itself reports its own problems.
fn certificate(store: &Store, object: &ObjectRef) -> Result<Arc<Certificate>, String> {
    if !store.knows(object) {
        return Err(format!("{object} does not exist as a Secret of type {TLS_TYPE}"));
    }
    let secret = store.secret(object).ok_or_else(|| format!("{object} cannot be read"))?;
    if *secret.kind != *TLS_TYPE {
        return Err(format!("{object} is of type {:?}, but TLS needs {TLS_TYPE}", secret.kind));
    }
    secret.certificate.clone().ok_or_else(|| format!("{object} has no valid certificate"))
}
