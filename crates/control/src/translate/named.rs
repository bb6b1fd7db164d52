//! The relevant objects: the Ingresses that are served, and the Secrets and ConfigMaps that are named for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::HashSet;
use sluicegate_model::UpstreamKey;

use super::{Acme, ObjectName, TranslateOptions};
use crate::frontend::gateway::parameters;
use crate::frontend::ingress::class::{Classes, Dialect};
use crate::object::api::{Api, DocumentSource};
use crate::object::backend::Backend;
use crate::object::backend_tls::{BackendTlsPolicy, Target};
use crate::object::gateway::Gateway;
use crate::object::http_route::HttpRoute;
use crate::object::ingress::Ingress;
use crate::object::listener_set::ListenerSet;
use crate::object::plan::Plan;
use crate::object::policy::consumer::Consumer;
use crate::object::policy::rate_limit::RateLimitPolicy;
use crate::object::policy::security::SecurityPolicy;
use crate::object::route::{BackendRef, Route};
use crate::object::{Kind, ObjectRef};
use crate::store::Store;

/// The objects that a source must know before the translation of a store, beside Ingresses, Services and their slices.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// The Ingresses that the gateway serves.
    pub(crate) ingresses: HashSet<ObjectRef>,
    /// Secrets with certificates, which must have the type `kubernetes.io/tls`.
    pub(crate) certificates: HashSet<ObjectRef>,
    /// Secrets of any type, and ConfigMaps.
    pub(crate) others: BTreeSet<ObjectRef>,
    pub(crate) trust_bundles: HashSet<ObjectRef>,
}

impl Named {
    /// Finds the objects in a store.
    pub(crate) fn find(store: &Store, options: &TranslateOptions) -> Self {
        let mut named = Self::default();
        named.certificates.extend(options.default_certificate.as_ref().map(ObjectName::secret));
        if let Acme::On(acme) = &options.acme {
            named.others.extend([acme.account.secret(), acme.challenges.secret()]);
        }
        named.others.extend(options.ticket_secret.as_ref().map(ObjectName::secret));
        let configmaps = [&options.configmap, &options.tcp_services, &options.udp_services];
        named.others.extend(configmaps.into_iter().flatten().map(ObjectName::configmap));
        let all = store.all::<Ingress>().map(|(object, ingress, _)| (object, ingress));
        named.add_ingresses(store, options, all);
        named.others.extend(parameters::references(store, options).cloned());
        named.add_gateways(store);
        named.add_policies(store);
        for (_, api, _) in store.all::<Api>() {
            named.certificates.extend(api.environments.iter().filter_map(|of| of.certificate.clone()));
            named.others.extend(api.documents().filter_map(|document| match document {
                DocumentSource::ConfigMap { object, .. } => Some(object.clone()),
                DocumentSource::Inline(_) | DocumentSource::Url(_) => None,
            }));
        }
        named
    }

    /// Follows changes of Ingresses alone. Objects that only their earlier versions named stay until the next
    /// [`find`](Self::find).
    pub(crate) fn follow<'o>(
        &mut self,
        store: &Store,
        options: &TranslateOptions,
        changed: impl Iterator<Item = &'o ObjectRef> + Clone,
    ) {
        for object in changed.clone() {
            self.ingresses.remove(object);
        }
        let known = changed.filter_map(|object| Some((object, store.get::<Ingress>(object)?)));
        self.add_ingresses(store, options, known);
    }

    fn add_ingresses<'o>(
        &mut self,
        store: &Store,
        options: &TranslateOptions,
        ingresses: impl Iterator<Item = (&'o ObjectRef, &'o Ingress)>,
    ) {
        let classes = Classes::new(store, options);
        let nginx = super::ingress_nginx(store, options);
        for (object, ingress) in ingresses {
            let Some(dialect) = classes.dialect(ingress) else { continue };
            self.add(store, object, ingress);
            if dialect == Dialect::IngressNginx
                && let Some(nginx) = &nginx
            {
                let settings = ingress.nginx.settings(&nginx.prefix, &nginx.globals, &object.namespace);
                self.others.extend(settings.references.iter().cloned());
            }
        }
    }

    /// The certificates of Gateways and ListenerSets, the CA certificates of Gateways, and the Secrets and BackendTLSPolicies of
    /// Services that routes name.
    fn add_gateways(&mut self, store: &Store) {
        let listeners = store.all::<Gateway>().flat_map(|(_, gateway, _)| &gateway.listeners);
        let of_sets = store.all::<ListenerSet>().flat_map(|(_, set, _)| &set.listeners);
        let listeners: Vec<_> = listeners.chain(of_sets).collect();
        let certificates = listeners.iter().flat_map(|listener| &listener.certificates);
        self.certificates.extend(certificates.map(|(_, secret)| secret.clone()));
        let clients =
            store.all::<Gateway>().filter_map(|(_, gateway, _)| gateway.client_certificate.as_ref());
        self.certificates.extend(clients.filter_map(|secret| secret.as_ref().ok()).cloned());
        let validations = store.all::<Gateway>().flat_map(|(_, gateway, _)| gateway.frontend.validations());
        let authorities = validations.flat_map(|validation| &validation.authorities);
        self.add_authorities(authorities.filter_map(|reference| reference.object.as_ref().ok()));
        let rules = store.all::<HttpRoute>().flat_map(|(_, route, _)| &route.rules);
        let backends = rules.flat_map(|rule| {
            let backends = rule.backends.iter().map(|backend| &backend.reference);
            let auth = rule.auth.iter().map(|(_, auth)| &auth.backend);
            backends.chain(rule.mirrors.iter().map(|(_, mirror)| mirror)).chain(auth)
        });
        let filters = listeners.iter().flat_map(|listener| &listener.filters.all);
        let backends = backends.chain(filters.map(|(_, filter)| &filter.backend));
        let named = backends.filter_map(|backend: &BackendRef| backend.service.as_ref());
        let below_http = store.all::<Route>().flat_map(|(_, route, _)| &route.backends);
        let below_http = below_http.filter_map(|backend| backend.service.as_ref());
        let (named, below_http): (Vec<_>, Vec<_>) = (named.collect(), below_http.collect());
        let x_backends = named.iter().chain(&below_http).filter(|named| named.kind == Kind::XBackend);
        for object in x_backends.map(|named| named.object()) {
            let Some((backend, _)) = store.x_backend(&object) else { continue };
            self.certificates.extend(backend.client_certificate().cloned());
            self.add_authorities(backend.authorities());
        }
        let of_services = named.into_iter().filter(|named| named.kind == Kind::Service);
        let of_http: HashSet<_> = of_services.map(|named| (&named.namespace, &named.name)).collect();
        let of_service = |(namespace, name): &(&Arc<str>, &Arc<str>)| {
            let (service, _) = store.service(namespace, name)?;
            secret(service.backend.as_ref()?)
        };
        self.others.extend(of_http.iter().filter_map(of_service));
        let mut services = of_http;
        services.extend(below_http.iter().map(|named| (&named.namespace, &named.name)));
        for (object, policy, _) in store.all::<BackendTlsPolicy>() {
            let is_named = |target: &Target| services.contains(&(&object.namespace, &target.service));
            if policy.targets.iter().any(is_named) {
                self.add_authorities(policy.references());
            }
        }
    }

    fn add_authorities<'o>(&mut self, objects: impl Iterator<Item = &'o ObjectRef>) {
        for object in objects.cloned() {
            match object.kind {
                Kind::ClusterTrustBundle => self.trust_bundles.insert(object),
                _ => self.others.insert(object),
            };
        }
    }

    /// The Secrets of policies, and the Secrets of Consumers if a policy asks for API keys.
    fn add_policies(&mut self, store: &Store) {
        let mut asks_for_keys = false;
        for (_, policy, _) in store.all::<SecurityPolicy>() {
            self.others.extend(policy.needs.iter().map(|need| need.value.secret.clone()));
            asks_for_keys |= policy.security.authentication.iter().any(|known| known.api_key.is_some());
        }
        for (_, policy, _) in store.all::<RateLimitPolicy>() {
            let needs = policy.sharing.iter().flat_map(|sharing| &sharing.needs);
            self.others.extend(needs.map(|need| need.value.secret.clone()));
        }
        for (_, plan, _) in store.all::<Plan>() {
            let needs = plan.sharing.iter().flat_map(|sharing| &sharing.needs);
            self.others.extend(needs.map(|need| need.value.secret.clone()));
        }
        let keys =
            store.all::<Consumer>().filter(|_| asks_for_keys).flat_map(|(_, consumer, _)| &consumer.keys);
        self.others.extend(keys.filter_map(|(_, key)| Some(key.secret()?.secret.clone())));
    }

    fn add(&mut self, store: &Store, object: &ObjectRef, ingress: &Ingress) {
        self.ingresses.insert(object.clone());
        self.certificates.extend(ingress.tls.iter().filter_map(|tls| tls.secret_of(&object.namespace)));
        self.others.extend(ingress.client_auth.iter().filter_map(|auth| auth.authorities.clone()));
        self.others.extend(ingress.backend.as_ref().and_then(secret));
        let paths = ingress.rules.iter().flat_map(|rule| &rule.paths).map(|path| &path.upstream);
        let of_service = |upstream: &UpstreamKey| {
            let (service, _) = store.service(&upstream.namespace, &upstream.service)?;
            secret(service.backend.as_ref()?)
        };
        self.others.extend(paths.chain(&ingress.default_backend).filter_map(of_service));
    }

    /// Whether problems of this object concern the gateway: a cluster is full of objects of other controllers.
    pub(crate) fn concerns(&self, object: &ObjectRef) -> bool {
        match object.kind {
            Kind::Ingress => self.ingresses.contains(object),
            Kind::Secret | Kind::ConfigMap => {
                self.certificates.contains(object) || self.others.contains(object)
            }
            Kind::ClusterTrustBundle => self.trust_bundles.contains(object),
            _ => true,
        }
    }
}

fn secret(backend: &Backend) -> Option<ObjectRef> {
    backend.tls.as_ref()?.secret.clone()
}
