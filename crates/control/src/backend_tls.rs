//! BackendTLSPolicies: the policy of each port of a Service, the TLS settings of the policy, and the state of the policy.
//!
//! A policy for a port has precedence over a policy for the whole Service. Of several policies for the same target, the
//! oldest policy has precedence, then the first by name, whether the policy is valid or not: requests for a Service whose
//! policy is invalid are never sent in clear text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use foldhash::HashMap;
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use sluicegate_model::value::CipherSuites;
use sluicegate_model::{TransportTls, UpstreamKey, Verification};

use crate::intent::listener::{Parent, uses_backend_tls};
use crate::intent::{At, Intents};
use crate::object::backend_tls::{Authorities, BackendTlsPolicy, DENIED, Target, Validation};
use crate::object::secret::Data;
use crate::object::service::IpProtocol;
use crate::object::{Kind, ObjectRef};
use crate::problem::{Problem, Severity};
use crate::status::{self, ACCEPTED, Condition, Content, ObjectStatus};
use crate::store::{ServiceRef, Store};

const RESOLVED_REFS: &str = "ResolvedRefs";

/// The BackendTLSPolicies of a store, by their targets.
#[derive(Default)]
pub(crate) struct BackendTls<'a> {
    /// The oldest first.
    policies: Vec<Policy<'a>>,
    services: HashMap<ServiceRef, OfService>,
}

struct Policy<'a> {
    at: At<'a>,
    policy: &'a BackendTlsPolicy,
    trust: Trust<'a>,
    /// For each target, the policy with precedence there, by its place. `None`: the Service does not have the port.
    holders: Vec<Option<usize>>,
}

/// The policies of a Service, by their places.
#[derive(Default)]
struct OfService {
    /// The policy of all ports without an own policy.
    whole: Option<usize>,
    /// The policies of single ports, by the keys of the ports.
    ports: HashMap<Arc<str>, usize>,
    /// The policy of a port that the Service does not have, which may be any of its ports.
    unknown: Option<usize>,
}

/// The verification that a policy requires.
pub(crate) struct Trust<'a> {
    /// The verification, with the names that the policy requires; or the reason why endpoints cannot be verified.
    pub(crate) verification: Result<(Verification, &'a Validation), Fault>,
    /// The invalid references to CA certificates.
    references: Vec<Fault>,
}

/// The reason why a part of a policy cannot be honoured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    /// The reason in conditions.
    reason: &'static str,
    field: String,
    message: String,
    /// Whether the problems of the policy itself include the fault.
    is_known: bool,
}

/// The Gateways of each port of a Service, by the key of the port.
type Uses<'r> = HashMap<ServiceRef, BTreeMap<&'r Arc<str>, BTreeSet<&'r ObjectRef>>>;

impl<'a> BackendTls<'a> {
    pub(crate) fn new(store: &'a Store) -> Self {
        let policies =
            store.all::<BackendTlsPolicy>().map(|(object, policy, origin)| (At { object, origin }, policy));
        let mut policies: Vec<_> = policies.collect();
        policies.sort_by_cached_key(|(at, policy)| at.age(policy.created));
        let mut result = Self::default();
        for (index, (at, policy)) in policies.into_iter().enumerate() {
            let holder = |target: &Target| {
                let service: ServiceRef = (at.object.namespace.clone(), target.service.clone());
                let port = target.port.as_ref().map(|port| key_of_port(store, &service, port));
                let of_service = result.services.entry(service).or_default();
                match port {
                    None => Some(*of_service.whole.get_or_insert(index)),
                    Some(Ok(port)) => Some(*of_service.ports.entry(port).or_insert(index)),
                    Some(Err(_)) => {
                        of_service.unknown.get_or_insert(index);
                        None
                    }
                }
            };
            let holders = policy.targets.iter().map(holder).collect();
            result.policies.push(Policy { at, policy, trust: trust(store, policy), holders });
        }
        result
    }

    /// The identity of an upstream that a route of Gateway API names, with the TLS settings of the BackendTLSPolicy of the
    /// port, if there is a policy. With an error, the gateway must not send requests to the upstream.
    pub(crate) fn secure(&self, mut key: UpstreamKey) -> Result<UpstreamKey, String> {
        let Some(of_service) = self.services.get(&(key.namespace.clone(), key.service.clone())) else {
            return Ok(key);
        };
        let Some(index) = of_service.ports.get(&key.port).copied().or(of_service.whole) else {
            return match of_service.unknown {
                None => Ok(key),
                Some(index) => Err(format!(
                    "{} requires TLS to a port that the Service does not have",
                    self.policies[index].at.object
                )),
            };
        };
        let Policy { at, trust, .. } = &self.policies[index];
        let (_, validation) = trust.verification.as_ref().map_err(|fault| {
            format!("{} requires TLS to the Service, but is invalid: {}", at.object, fault.in_words())
        })?;
        key.transport.tls = Some(Arc::new(TransportTls {
            server_name: validation.hostname.clone(),
            sends_name: true,
            verifies: true,
            secret: None,
            policy: Some(format!("{}/{}", at.object.namespace, at.object.name).into()),
            ciphers: CipherSuites::default(),
            depth: None,
        }));
        Ok(key)
    }

    /// The status of each policy for each Gateway whose routes name a target of the policy (Gateway API: `PolicyStatus`,
    /// GEP-1897). Adds the problems of these policies.
    pub(crate) fn statuses(
        &self,
        store: &Store,
        intents: &Intents<'_>,
        problems: &mut Vec<Problem>,
    ) -> Vec<ObjectStatus> {
        if self.policies.is_empty() {
            return Vec::new();
        }
        let uses = uses(intents);
        let status = |(index, policy): (usize, &Policy<'_>)| {
            let newest = store.not_in_service::<BackendTlsPolicy>(policy.at.object);
            ObjectStatus {
                object: policy.at.object.clone(),
                generation: newest.map_or(policy.policy, |(newest, _)| newest).generation,
                content: Content::Policy(self.ancestors(store, index, policy, &uses, problems)),
            }
        };
        self.policies.iter().enumerate().map(status).collect()
    }

    /// The Gateways of a policy, each with the conditions of the policy there.
    fn ancestors(
        &self,
        store: &Store,
        index: usize,
        policy: &Policy<'_>,
        uses: &Uses<'_>,
        problems: &mut Vec<Problem>,
    ) -> Vec<(ObjectRef, Vec<Condition>)> {
        // For each Gateway, whether the policy applies there.
        let mut gateways: BTreeMap<&ObjectRef, bool> = BTreeMap::new();
        let mut ineffective = None;
        for (target, holder) in policy.policy.targets.iter().zip(&policy.holders) {
            let service = (policy.at.object.namespace.clone(), target.service.clone());
            let port = target.port.as_ref().map(|port| key_of_port(store, &service, port));
            // A port that does not exist may be any port.
            let is_meant = |used: &Arc<str>| !matches!(&port, Some(Ok(port)) if port != used);
            let of_service = uses.get(&service).into_iter().flatten();
            let of_target = of_service.filter(|(used, _)| is_meant(used));
            let of_target: BTreeSet<&ObjectRef> =
                of_target.flat_map(|(_, gateways)| gateways).copied().collect();
            if of_target.is_empty() {
                continue;
            }
            for gateway in of_target {
                *gateways.entry(gateway).or_default() |= *holder == Some(index);
            }
            if let Some(Err(fault)) = port {
                let message = format!(
                    "{fault}; requests for its ports without a policy receive 500, and connections are closed"
                );
                problems.push(policy.at.problem(Severity::Error, &target.field(), message.clone()));
                ineffective.get_or_insert(("TargetNotFound", message));
            }
            if let Some(holder) = holder.filter(|holder| *holder != index) {
                let message = format!(
                    "{} (older, or first by name) applies there already; this policy has no effect there",
                    self.policies[holder].at.object
                );
                problems.push(policy.at.warning(&target.field(), message.clone()));
                ineffective.get_or_insert(("Conflicted", message));
            }
        }
        if !gateways.is_empty() {
            policy.report(problems);
        }
        let [accepted, resolved_refs] = policy.conditions(store);
        let conditions = |(gateway, applies): (&ObjectRef, bool)| {
            let accepted = match &ineffective {
                Some((reason, message)) if !applies => unmet(ACCEPTED, reason, message.clone()),
                _ => accepted.clone(),
            };
            (gateway.clone(), vec![accepted, resolved_refs.clone()])
        };
        gateways.into_iter().map(conditions).collect()
    }
}

impl Policy<'_> {
    /// Reports the problems that the object itself does not report.
    fn report(&self, problems: &mut Vec<Problem>) {
        let is_unusable = self.trust.verification.is_err();
        for fault in self.trust.references.iter().filter(|fault| !fault.is_known) {
            let consequence = if is_unusable { DENIED } else { "the other CA certificates are trusted" };
            let message = format!("{}; {consequence}", fault.message);
            problems.push(self.at.problem(Severity::Error, &fault.field, message));
        }
        if let Err(fault) = &self.trust.verification
            && !fault.is_known
            && !self.trust.references.contains(fault)
        {
            let message = format!("{}; {DENIED}", fault.message);
            problems.push(self.at.problem(Severity::Error, &fault.field, message));
        }
    }

    /// The conditions `Accepted` and `ResolvedRefs` of the newest version, without regard to other policies.
    fn conditions(&self, store: &Store) -> [Condition; 2] {
        let newest = store.not_in_service::<BackendTlsPolicy>(self.at.object);
        let of_newest = newest.as_ref().map(|(newest, _)| trust(store, newest));
        let Trust { verification, references } = of_newest.as_ref().unwrap_or(&self.trust);
        let accepted = match (verification, newest) {
            (Err(fault), newest) => {
                let reason = reason(references, fault);
                let message = newest.map_or_else(|| fault.in_words(), |(_, error)| error);
                unmet(ACCEPTED, reason, message)
            }
            (Ok(_), Some((_, error))) => unmet(ACCEPTED, "Invalid", error),
            (Ok(_), None) => Condition::met(ACCEPTED, ACCEPTED),
        };
        let resolved_refs = match references.first() {
            None => Condition::met(RESOLVED_REFS, RESOLVED_REFS),
            Some(fault) => unmet(RESOLVED_REFS, fault.reason, fault.in_words()),
        };
        [accepted, resolved_refs]
    }
}

impl Trust<'_> {
    /// The reason why endpoints cannot be verified.
    pub(crate) fn fault(&self) -> Option<status::Fault> {
        let fault = self.verification.as_ref().err()?;
        Some(status::Fault::new(reason(&self.references, fault), fault.in_words()))
    }
}

/// The reason of the condition `Accepted`. `references` are the invalid references to CA certificates.
fn reason(references: &[Fault], fault: &Fault) -> &'static str {
    if references.contains(fault) { "NoValidCACertificate" } else { fault.reason }
}

impl Fault {
    fn in_words(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
}

/// A condition that is false.
fn unmet(name: &'static str, reason: &'static str, message: String) -> Condition {
    Condition { name, is_true: false, reason, message }
}

/// The ports of Services that routes name, and the Gateways of these routes.
fn uses<'r>(intents: &'r Intents<'_>) -> Uses<'r> {
    let mut uses = Uses::default();
    for listener in &intents.listeners {
        for UpstreamKey { namespace, service, port, .. } in &listener.filters.named {
            let service = (namespace.clone(), service.clone());
            uses.entry(service).or_default().entry(port).or_default().insert(listener.gateway);
        }
    }
    let mut add = |parents: &[Parent<'_>], named: &mut dyn Iterator<Item = &'r UpstreamKey>| {
        let listeners = intents.accepting(parents).filter(|listener| uses_backend_tls(listener.protocol));
        let gateways: BTreeSet<&'r ObjectRef> = listeners.map(|listener| listener.gateway).collect();
        for UpstreamKey { namespace, service, port, .. } in named.filter(|_| !gateways.is_empty()) {
            let service = (namespace.clone(), service.clone());
            uses.entry(service).or_default().entry(port).or_default().extend(&gateways);
        }
    };
    for route in &intents.http_routes {
        add(&route.parents, &mut route.named.iter());
    }
    for route in &intents.layer4 {
        let references = route.backends.plain.references.iter();
        add(&route.parents, &mut references.map(|reference| &reference.upstream));
    }
    uses
}

/// The key of a port that a policy names, or the reason why the Service does not have the port. A Service that does not
/// exist yet may have the port.
fn key_of_port(store: &Store, (namespace, name): &ServiceRef, port: &Arc<str>) -> Result<Arc<str>, String> {
    let Some((service, _)) = store.service(namespace, name) else { return Ok(port.clone()) };
    match service.port(port, IpProtocol::Tcp) {
        Some(known) => Ok(known.key.clone()),
        None => Err(format!(
            "Service {namespace}/{name} has no port {port:?}, it has {}",
            service.ports_in_words(IpProtocol::Tcp)
        )),
    }
}

/// The verification that a policy requires.
pub(crate) fn trust<'a>(store: &Store, policy: &'a BackendTlsPolicy) -> Trust<'a> {
    let validation = match &policy.validation {
        Ok(validation) => validation,
        Err((field, message)) => {
            let (field, message) = (field.clone(), message.clone());
            let fault = Fault { reason: "Invalid", field, message, is_known: true };
            return Trust { verification: Err(fault), references: Vec::new() };
        }
    };
    trust_of(store, validation)
}

/// The verification that an object requires.
pub(crate) fn trust_of<'a>(store: &Store, validation: &'a Validation) -> Trust<'a> {
    let references = match &validation.authorities {
        Authorities::WellKnown => {
            return Trust { verification: Ok((Verification::WellKnown, validation)), references: Vec::new() };
        }
        Authorities::Of(references) => references,
    };
    let (mut roots, mut crls, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for reference in references {
        let object = match &reference.object {
            Ok(object) => object,
            Err(fault) => {
                let reason = if fault.is_kind { "InvalidKind" } else { "InvalidCACertificateRef" };
                let message = fault.message.clone();
                faults.push(Fault { reason, field: reference.field.clone(), message, is_known: true });
                continue;
            }
        };
        match authorities(store, object) {
            Ok(trusted) => {
                roots.extend(trusted.roots.iter().cloned());
                crls.extend(trusted.crls.iter().cloned());
            }
            Err(Untrusted { is_kind, message }) => {
                let reason = if is_kind { "InvalidKind" } else { "InvalidCACertificateRef" };
                let field = reference.field.clone();
                faults.push(Fault { reason, field, message, is_known: false });
            }
        }
    }
    let verification = match faults.first() {
        Some(fault) if roots.is_empty() => Err(fault.clone()),
        _ => match validation {
            Validation { alternative_names: Some(_), .. } if !crls.is_empty() => Err(Fault {
                reason: "Invalid",
                field: format!("{}.subjectAltNames", validation.field),
                message: "is not supported with revocation lists (data[ca.crl])".to_owned(),
                is_known: false,
            }),
            _ => Ok((Verification::Authorities { roots, crls }, validation)),
        },
    };
    Trust { verification, references: faults }
}

/// The CA certificates of an object.
pub(crate) struct Trusted<'s> {
    pub(crate) roots: &'s [CertificateDer<'static>],
    /// The revocation lists.
    pub(crate) crls: &'s [CertificateRevocationListDer<'static>],
}

/// The reason why an object has no valid CA certificates.
pub(crate) struct Untrusted {
    /// Whether the cluster does not have the kind.
    pub(crate) is_kind: bool,
    pub(crate) message: String,
}

/// The valid CA certificates of an object, or the reason why it has none.
pub(crate) fn authorities<'s>(store: &'s Store, object: &ObjectRef) -> Result<Trusted<'s>, Untrusted> {
    if store.lacks(object.kind) {
        let message = format!(
            "the Kubernetes API does not have the kind {}; enable it or name a ConfigMap",
            object.kind
        );
        return Err(Untrusted { is_kind: true, message });
    }
    let found = match object.kind {
        Kind::ClusterTrustBundle => of_bundle(store, object).map(|roots| Trusted { roots, crls: &[] }),
        _ => of_data(store, object).map(|data| Trusted { roots: &data.authorities, crls: &data.revoked }),
    };
    found.map_err(|message| Untrusted { is_kind: false, message })
}

fn of_bundle<'s>(store: &'s Store, object: &ObjectRef) -> Result<&'s [CertificateDer<'static>], String> {
    if !store.knows(object) {
        return Err(format!("{object} does not exist"));
    }
    let bundle = store.trust_bundle(object).ok_or_else(|| format!("{object} cannot be read"))?;
    let fault = |fault: &dyn fmt::Display| format!("spec.trustBundle of {object} {fault}");
    let roots = bundle.authorities.as_ref().map_err(|error| fault(error))?;
    let mut store = RootCertStore::empty();
    let usable = roots.iter().try_for_each(|root| store.add(root.clone()));
    usable.map_err(|error| fault(&format_args!("has an unusable certificate: {error}")))?;
    Ok(roots)
}

fn of_data<'s>(store: &'s Store, object: &ObjectRef) -> Result<&'s Data, String> {
    if !store.knows(object) {
        return Err(format!("{object} does not exist"));
    }
    let data = store.data(object).ok_or_else(|| format!("{object} cannot be read"))?;
    if data.authorities.is_empty() {
        return Err(match data.get("ca.crt") {
            None => format!("{object} has no data[ca.crt]"),
            Some(_) => format!("data[ca.crt] of {object} has no valid certificate"),
        });
    }
    let mut roots = RootCertStore::empty();
    match data.authorities.iter().try_for_each(|root| roots.add(root.clone())) {
        Ok(()) => Ok(data),
        Err(error) => Err(format!("data[ca.crt] of {object} has an unusable certificate: {error}")),
    }
}

/// Changes an upstream to the upstream whose endpoints receive this client certificate, if a BackendTLSPolicy applies to the
/// upstream. The certificate is a Secret: `namespace/name`.
pub(crate) fn present(upstream: &mut UpstreamKey, client_certificate: Option<&Arc<str>>) {
    let Some(certificate) = client_certificate else { return };
    if let Some(tls) = upstream.transport.tls.as_mut().filter(|tls| tls.policy.is_some()) {
        Arc::make_mut(tls).secret = Some((**certificate).into());
    }
}

/// The policy that the key of an upstream names.
pub(crate) fn named<'s>(store: &'s Store, policy: &str) -> Option<&'s BackendTlsPolicy> {
    let (namespace, name) = policy.split_once('/')?;
    let object = ObjectRef { kind: Kind::BackendTlsPolicy, namespace: namespace.into(), name: name.into() };
    store.backend_tls_policy(&object)
}
