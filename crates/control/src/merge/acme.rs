//! The certificates that objects ask an ACME server for.
//!
//! A certificate for a host goes only to the namespace of the oldest object with the host: an object of another namespace must not
//! receive a key for the host. A Secret that something else made stays as it is.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use sluicegate_acme::{Issued, NAMES_MAX, SecretName, Wish};
use sluicegate_model::{Certificate, HostPattern};

use super::passthrough;
use crate::acme::{Acme, Wished};
use crate::intent::{At, Intents, Place};
use crate::object::{ObjectRef, annotation};
use crate::problem::Problem;
use crate::store::Store;

/// The wishes of all objects.
#[derive(Default)]
pub(crate) struct Merged {
    /// The certificates, in the order of their Secrets.
    pub(crate) wished: Vec<Wished>,
    pub(crate) problems: Vec<Problem>,
}

/// A request of an object.
struct Asked<'i> {
    at: At<'i>,
    field: String,
    secret: &'i ObjectRef,
    hosts: Cow<'i, [HostPattern]>,
}

/// Merges the requests; the oldest object comes first.
pub(super) fn merge(
    store: &Store,
    intents: &Intents<'_>,
    passthrough: &passthrough::Merged<'_>,
    acme: &Acme,
) -> Merged {
    let mut merged = Merged::default();
    let asked = asked(intents);
    if asked.is_empty() {
        return merged;
    }
    if matches!(acme, Acme::Off) {
        let message = "has no effect: start the gateway with --acme-terms-agreed, or remove the annotation";
        let mut objects: Vec<At<'_>> = asked.iter().map(|asked| asked.at).collect();
        objects.dedup_by_key(|at| at.object);
        let problem = |at: At<'_>| at.warning(&annotation::field(annotation::ACME), message.to_owned());
        merged.problems.extend(objects.into_iter().map(problem));
        return merged;
    }
    let owners = owners(intents);
    let mut wished: BTreeMap<&ObjectRef, Wished> = BTreeMap::new();
    for Asked { at, field, secret, hosts } in &asked {
        let mut problem = |message: String| merged.problems.push(at.warning(field, message));
        if store.knows(secret) && store.secret(secret).is_none_or(|known| !known.is_acme) {
            problem(format!(
                "{secret} was not ordered from an ACME server, so the gateway does not renew it: delete the Secret, name another \
                 Secret, or remove the annotation {}",
                annotation::ACME
            ));
            continue;
        }
        let mut names = Vec::new();
        for host in hosts.iter() {
            match name(host) {
                Err(fault) => problem(fault),
                Ok(_) if passthrough.of(host).is_some() => {
                    problem(format!("no certificate is ordered for {host}: its TLS passes through"));
                }
                Ok(name) => match owners.get(host).filter(|owner| owner.namespace != at.object.namespace) {
                    Some(owner) => problem(format!(
                        "no certificate is ordered for {host}: {owner} of another namespace is older and has the host"
                    )),
                    None => names.push(name),
                },
            }
        }
        if hosts.is_empty() {
            problem("no certificate is ordered, because the entry names no hosts: name them".to_owned());
        }
        // A certificate for a part of the names would change as the others are corrected.
        if names.is_empty() {
            continue;
        }
        let known = wished.entry(secret).or_insert_with(|| Wished {
            wish: Wish {
                secret: SecretName { namespace: secret.namespace.clone(), name: secret.name.clone() },
                hosts: Vec::new(),
                current: store.secret(secret).and_then(|known| issued(known.certificate.as_deref()?)),
            },
            object: at.object.clone(),
            origin: at.origin.clone(),
            field: field.clone(),
        });
        names.retain(|name| !known.wish.hosts.contains(name));
        if known.wish.hosts.len() + names.len() > NAMES_MAX {
            problem(format!(
                "a certificate has at most {NAMES_MAX} names, so no certificate is ordered for the hosts of this entry: use several \
                 Secrets"
            ));
            continue;
        }
        known.wish.hosts.extend(names);
        known.wish.hosts.sort_unstable();
    }
    merged.wished = wished.into_values().filter(|wished| !wished.wish.hosts.is_empty()).collect();
    merged
}

fn asked<'i>(intents: &'i Intents<'_>) -> Vec<Asked<'i>> {
    let of_ingresses = intents.http.iter().flat_map(|intent| {
        intent.tls.iter().filter_map(move |tls| {
            let secret = &tls.acme.as_ref()?.secret;
            Some(Asked { at: intent.at, field: tls.place.field(), secret, hosts: Cow::Borrowed(tls.named) })
        })
    });
    let of_listeners = intents.listeners.iter().filter_map(|listener| {
        let (index, secret) = listener.acme.filter(|_| listener.protocol.terminates_tls())?;
        // Other namespaces grant Gateways the use of a Secret, not its making.
        let is_own = secret.namespace == listener.at.object.namespace;
        let Place::Listener(number) = listener.place else { return None };
        let field = format!("{}.tls.certificateRefs[{index}]", Place::Listener(number).field());
        let hosts = Cow::Borrowed(std::slice::from_ref(listener.hostname));
        is_own.then_some(Asked { at: listener.at, field, secret, hosts })
    });
    of_ingresses.chain(of_listeners).collect()
}

/// The oldest object with each host.
fn owners<'i>(intents: &'i Intents<'_>) -> HashMap<&'i HostPattern, &'i ObjectRef> {
    let of_ingresses = intents.http.iter().flat_map(|intent| {
        let hosts = intent.hosts();
        hosts.map(move |host| (intent.at.age(intent.created), host, intent.at.object))
    });
    let of_gateways = intents.gateways.iter().flat_map(|gateway| {
        let listeners = &intents.listeners[gateway.listeners.clone()];
        listeners.iter().map(move |listener| {
            (gateway.at.age(gateway.gateway.created), listener.hostname, gateway.at.object)
        })
    });
    let mut owners = HashMap::new();
    let mut all: Vec<_> = of_ingresses.chain(of_gateways).collect();
    all.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    for (_, host, object) in all {
        owners.entry(host).or_insert(object);
    }
    owners
}

/// The name of a host in a certificate, or the reason why no certificate can be ordered.
fn name(host: &HostPattern) -> Result<Box<str>, String> {
    match host {
        HostPattern::Exact(name) if name.parse::<IpAddr>().is_err() => Ok((**name).into()),
        HostPattern::Exact(name) => {
            Err(format!("no certificate is ordered for the address {name}: use a DNS name"))
        }
        HostPattern::Any => {
            Err("no certificate is ordered, because the listener has no hostname: set the hostname"
                .to_owned())
        }
        pattern => Err(format!(
            "no certificate is ordered for {pattern}: the challenges http-01 and tls-alpn-01 prove no wildcard. Name each host, or \
             use cert-manager with dns-01"
        )),
    }
}

fn issued(certificate: &Certificate) -> Option<Issued> {
    let names = certificate.names.iter().filter_map(|name| match name {
        HostPattern::Exact(name) => Some((**name).into()),
        _ => None,
    });
    Some(Issued {
        der: certificate.chain.first()?.clone(),
        not_before: certificate.not_before,
        not_after: certificate.not_after,
        names: names.collect(),
    })
}
