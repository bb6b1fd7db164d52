//! `spec.tls` of Ingresses and its Secrets, and the clients that may connect.

use std::borrow::Cow;
use std::sync::Arc;

use sluicegate_model::{Certificate, ClientAuth, HostPattern};

use crate::frontend::certificate;
use crate::intent::{AcmeSecret, ClientAuthIntent, Place, Tls};
use crate::object::ObjectRef;
use crate::object::ingress::{self, Ingress};
use crate::store::Store;

/// The entries of `spec.tls`.
pub(crate) fn certificates<'a>(store: &Store, object: &ObjectRef, ingress: &'a Ingress) -> Vec<Tls<'a>> {
    let entry = |(index, entry): (usize, &'a ingress::Tls)| {
        let secret = entry.secret_of(&object.namespace);
        let certificate = secret.as_ref().map(|secret| certificate::of_secret(store, secret));
        let acme = secret.filter(|_| ingress.acme).map(|secret| {
            let is_missing = !store.knows(&secret);
            AcmeSecret { secret, is_missing }
        });
        let hosts = match entry.has_hosts {
            true => Cow::Borrowed(&entry.hosts[..]),
            false => {
                let certificate = certificate.as_ref().and_then(|found| found.as_deref().ok());
                Cow::Owned(hosts_of(ingress, certificate))
            }
        };
        Tls {
            place: Place::Secret(index),
            named: &entry.hosts,
            is_for_all_hosts: !entry.has_hosts,
            hosts,
            certificate,
            acme,
        }
    };
    ingress.tls.iter().enumerate().map(entry).collect()
}

/// The hosts of an entry without hosts: the hosts of the rules that the certificate covers, and the certificate's own
/// names if rules name no host. Without a certificate all hosts.
fn hosts_of(ingress: &Ingress, certificate: Option<&Certificate>) -> Vec<HostPattern> {
    let mut hosts: Vec<HostPattern> = Vec::new();
    for rule in &ingress.rules {
        match (&rule.host, certificate) {
            (HostPattern::Any, Some(certificate)) => hosts.extend(certificate.names.iter().cloned()),
            (HostPattern::Any, None) => {}
            (host, Some(certificate)) if !certificate::covers(certificate, host) => {}
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

/// The clients that may connect to the hosts of an Ingress.
pub(in crate::frontend) fn client_auth<'a>(
    store: &Store,
    ingress: &'a Ingress,
    auth: &'a ingress::ClientAuth,
) -> ClientAuthIntent<'a> {
    let data = auth.authorities.as_ref().and_then(|object| store.data(object));
    let is_without = data.is_none_or(|data| data.authorities.is_empty());
    let fault = auth.authorities.as_ref().filter(|_| is_without).map(|object| {
        let fault = match store.knows(object) {
            true => "has no certificates in data[ca.crt]",
            false => "does not exist",
        };
        (object.clone(), format!("{object} {fault}; every client is rejected"))
    });
    let policy = Arc::new(ClientAuth {
        source: auth
            .authorities
            .as_ref()
            .map_or_else(|| "nothing".into(), |object| object.to_string().into()),
        roots: data.map(|data| data.authorities.clone()).unwrap_or_default(),
        crls: data.map(|data| data.revoked.clone()).unwrap_or_default(),
        mode: auth.mode,
        forward: auth.forward,
        at_requests: None,
    });
    let of_rules = ingress.rules.iter().map(|rule| &rule.host);
    let of_tls = ingress.tls.iter().flat_map(|tls| &tls.hosts);
    let of_default = ingress.default_backend.iter().map(|_| &HostPattern::Any);
    let hosts = of_rules.chain(of_tls).chain(of_default).collect();
    ClientAuthIntent { place: Place::Annotation(auth.annotation), hosts, policy, fault }
}
