//! The parts of SecurityPolicies that are in Secrets.

use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use rustls_pki_types::CertificateDer;
use sluicegate_jwt::{Algorithm, KeySet};
use sluicegate_model::feature::authentication::jwt as feature;
use sluicegate_model::feature::authentication::jwt::ProviderKeys;
use sluicegate_model::feature::{Authentication, AuthorizationRule, ConsumerScope};
use sluicegate_model::policy::Security;
use sluicegate_model::value::secret::{CaCertificates, CookieKeys, FromSecret, KeyBytes};
use sluicegate_model::value::{Entries, NamespaceScope};
use sluicegate_model::{Config, ObjectId, UpstreamKey};

use super::attach::{Attached, Parts, Policy};
use crate::intent::{At, Place, Reference};
use crate::manifest::Guarded;
use crate::object::certificate;
use crate::object::policy::authentication::{self, IntrospectionPart, Need, Needed, OidcPart};
use crate::object::policy::consumer::Consumer;
use crate::object::policy::htpasswd::{self, Passwords};
use crate::object::policy::secret::{SecretValue, without_line_end};
use crate::object::policy::security::SecurityPolicy;
use crate::object::service::IpProtocol;
use crate::object::{Kind, ObjectRef};
use crate::problem::{Problem, Severity};
use crate::store::Store;

/// Stands for any namespace.
const ANY: &str = "";

/// The Secrets of a store, as policies need them.
pub(super) struct Secrets<'a> {
    store: &'a Store,
    /// The groups of Consumers, each with the namespace of a Consumer and with [`ANY`], after the first use.
    groups: Option<HashSet<(&'a str, &'a str)>>,
    /// Checked keys: many policies may name the same keys.
    keys: HashMap<NamedKeys<'a>, Result<KeyBytes, String>>,
}

/// The keys that a policy names.
#[derive(PartialEq, Eq, Hash)]
struct NamedKeys<'a> {
    value: &'a SecretValue,
    /// Whether the key is a secret that both sides know.
    is_shared: bool,
    algorithms: Vec<Algorithm>,
}

/// The parts are `ipAccess`, `cors`, `authentication` and `authorization`. A policy that refuses all requests also refuses the
/// requests of more specific policies, because nothing is known of its parts.
impl Parts for Security {
    fn over(&self, base: &Self) -> Option<Self> {
        if self.refuses.is_some() {
            return None;
        }
        if base.refuses.is_some() {
            return Some(base.clone());
        }
        let mut combined = self.clone();
        if combined.ip_access.is_open() {
            combined.ip_access = base.ip_access.clone();
        }
        combined.cors = combined.cors.or_else(|| base.cors.clone());
        if combined.authentication.is_none() {
            combined.authentication = base.authentication.clone().map(|of| scoped(of, base, &self.id));
        }
        combined.authorization = combined.authorization.or_else(|| base.authorization.clone());
        if combined == *self {
            return None;
        }
        // An endpoint may read another path than the path that a rule of either policy has checked.
        let decides = |policy: &Self| policy.authentication.is_some() || policy.authorization.is_some();
        combined.forward_overrides =
            [self, base].iter().all(|policy| policy.forward_overrides || !decides(policy));
        // A client IP replaces only the authentication of its own policy.
        combined.satisfies_any = [self, base].iter().any(|policy| {
            let Self { ip_access, authentication, satisfies_any, .. } = policy;
            *satisfies_any && *ip_access == combined.ip_access && *authentication == combined.authentication
        });
        combined.inherits.extend(base.ids().cloned());
        Some(combined)
    }

    fn replaces(&self, base: &Self) -> bool {
        if self.refuses.is_some() || base.refuses.is_some() {
            return base.refuses.is_none();
        }
        (!self.ip_access.is_open() && !base.ip_access.is_open())
            || (self.cors.is_some() && base.cors.is_some())
            || (self.authentication.is_some() && base.authentication.is_some())
            || (self.authorization.is_some() && base.authorization.is_some())
    }
}

/// The parts that an object itself sets, with the parts of the policy that the object does not set.
pub(super) fn combined(own: Option<&Arc<Security>>, policy: Option<Arc<Security>>) -> Option<Arc<Security>> {
    let Some(own) = own else { return policy };
    let combined = policy.and_then(|policy| own.over(&policy));
    Some(combined.map_or_else(|| own.clone(), Arc::new))
}

/// The authentication of a policy, as a part of another policy. It still knows the Consumers of its own namespace.
fn scoped(authentication: Authentication, from: &Security, to: &ObjectId) -> Authentication {
    if authentication.consumers.is_some() || from.id.namespace == to.namespace {
        return authentication;
    }
    let own = NamespaceScope::new(&from.id.namespace).into_iter().collect();
    let consumers = Entries::new(own).map(|namespaces| ConsumerScope { namespaces });
    Authentication { consumers, ..authentication }
}

/// Policies for the routes that unreadable policies may guard. Each has the name of its file, since nothing else is
/// known of it.
pub(super) fn closed(store: &Store) -> Vec<(Guarded, Arc<Security>)> {
    let of_file = |(file, guarded): (&Arc<Path>, &[Guarded])| {
        // The characters of names in logs and metrics.
        let is_plain = |char: &char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let name: String = name.chars().map(|char| if is_plain(&char) { char } else { '-' }).collect();
        let closed = guarded.iter().map(|guarded| {
            let namespace = match guarded {
                Guarded::Namespace(namespace) => namespace.clone(),
                Guarded::Everything => "".into(),
            };
            let object = ObjectRef { kind: Kind::SecurityPolicy, namespace, name: (*name).into() };
            let security = Security::closed(object.id(), format!("{name} cannot be read").into());
            (guarded.clone(), Arc::new(security))
        });
        closed.collect::<Vec<_>>()
    };
    store.closed().flat_map(of_file).collect()
}

impl<'a> Secrets<'a> {
    pub(super) fn new(store: &'a Store) -> Self {
        Self { store, groups: None, keys: HashMap::default() }
    }

    /// The effective policy, and the parts of it that cannot be honoured.
    pub(super) fn complete(
        &mut self,
        at: At<'a>,
        policy: &'a SecurityPolicy,
        problems: &mut Vec<Problem>,
    ) -> (Arc<Security>, Option<String>) {
        let security = &policy.security;
        if security.refuses.is_some() {
            // The field has a problem of its own.
            let message = match policy.targets.is_empty() {
                false => {
                    "cannot be used; all routes that it applies to respond with 503. Fix the errors of its fields"
                }
                true if self.store.closes(&at.object.namespace) => {
                    "has no valid target; all routes that it may apply to respond with 503. Fix spec.targetRefs"
                }
                true => {
                    "has no valid target; it applies to no route, and routes are served without it. Fix spec.targetRefs"
                }
            };
            problems.push(at.problem(Severity::Error, "", message.to_owned()));
            return (security.clone(), None);
        }
        self.warn_of_unknown_consumers(at, security, problems);
        let upstream = upstream_of_service(self.store, security);
        if policy.needs.is_empty() && upstream.is_none() {
            return (security.clone(), None);
        }
        let mut security = Security::clone(security);
        let service =
            security.authentication.as_mut().and_then(|authentication| authentication.ext_auth.as_mut());
        if let Some(service) = service {
            Arc::make_mut(service).upstream = upstream;
        }
        let mut first = None;
        for need in &policy.needs {
            let Some(authentication) = &mut security.authentication else { continue };
            if let Err(fault) = self.fill(at, need, authentication, problems) {
                problems.push(at.problem(Severity::Error, &need.field, fault.clone()));
                first.get_or_insert_with(|| format!("{}: {fault}", need.field));
            }
        }
        (Arc::new(security), first)
    }

    /// Warns of Consumers and groups in rules that do not exist.
    fn warn_of_unknown_consumers(&mut self, at: At<'_>, security: &Security, problems: &mut Vec<Problem>) {
        let Some(authorization) = &security.authorization else { return };
        let known = security.authentication.as_ref();
        let known = known.and_then(|authentication| authentication.namespaces(&at.object.namespace));
        for (rule, AuthorizationRule { consumers, groups, .. }) in authorization.rules.iter().enumerate() {
            let field =
                |name: &str, index: usize| format!("spec.authorization.rules[{rule}].{name}[{index}]");
            for (index, group) in groups.iter().enumerate() {
                let of_consumers = self.groups.get_or_insert_with(|| groups_of(self.store));
                let is_known = match &known {
                    Some(known) => {
                        known.iter().any(|namespace| of_consumers.contains(&(&**namespace, &**group)))
                    }
                    None => of_consumers.contains(&(ANY, &**group)),
                };
                if !is_known {
                    let message = format!("no Consumer that is known here has the group {group:?}");
                    problems.push(at.warning(&field("groups", index), message));
                }
            }
            for (index, consumer) in consumers.iter().enumerate() {
                let (namespace, name) = consumer.parts();
                let object =
                    ObjectRef { kind: Kind::Consumer, namespace: namespace.into(), name: name.into() };
                if !self.store.knows(&object) {
                    let message = format!("{object} does not exist; no caller matches it");
                    problems.push(at.warning(&field("consumers", index), message));
                }
            }
        }
    }

    /// Inserts the value of a Secret, or the reason why there is none. The error says what that means for requests.
    fn fill(
        &mut self,
        at: At<'_>,
        need: &'a Need,
        authentication: &mut Authentication,
        problems: &mut Vec<Problem>,
    ) -> Result<(), String> {
        match need.what {
            Needed::Keys(index) | Needed::Shared(index) | Needed::Authorities(index) => {
                let providers = authentication.jwt.as_mut().map(|jwt| jwt.providers.iter_mut());
                let Some(provider) = providers.and_then(|mut providers| providers.nth(index)) else {
                    return Ok(());
                };
                let filled = match &mut provider.keys {
                    ProviderKeys::Secret(of) => set(of, self.keys(&need.value, false, &provider.algorithms)),
                    ProviderKeys::Shared(of) => set(of, self.keys(&need.value, true, &provider.algorithms)),
                    ProviderKeys::Remote(of) => match &mut Arc::make_mut(of).ca_certificate_ref {
                        Some(of) => set(of, certificates(self.store, &need.value)),
                        None => Ok(()),
                    },
                    ProviderKeys::Inline(_) => Ok(()),
                };
                let name = &provider.name;
                filled.map_err(|fault| format!("{fault}; all tokens of provider {name:?} are rejected"))
            }
            Needed::Users => {
                let users = self.users(at, need, problems).map(|passwords| passwords.users);
                let Some(basic) = &mut authentication.basic else { return Ok(()) };
                set(&mut basic.secret_ref, users)
                    .map_err(|fault| format!("{fault}; all passwords are rejected"))
            }
            Needed::CaCertificates => {
                let Some(service) = authentication.ext_auth.as_mut().map(Arc::make_mut) else {
                    return Ok(());
                };
                let Some(of) = &mut service.ca_certificate_ref else { return Ok(()) };
                set(of, certificates(self.store, &need.value))
                    .map_err(|fault| format!("{fault}; no request is allowed by {}", service.url))
            }
            Needed::Oidc(part) => {
                let Some(oidc) = authentication.oidc.as_mut().map(Arc::make_mut) else { return Ok(()) };
                let filled = match part {
                    OidcPart::ClientSecret => {
                        set_optional(&mut oidc.client_secret_ref, client_secret(self.store, &need.value))
                    }
                    OidcPart::CookieKeys => {
                        set(&mut oidc.cookie_secret_ref, cookie_keys(self.store, &need.value))
                    }
                    OidcPart::CaCertificates => {
                        set_optional(&mut oidc.ca_certificate_ref, certificates(self.store, &need.value))
                    }
                };
                filled.map_err(|fault| format!("{fault}; no browser can log in, and no session is valid"))
            }
            Needed::Introspection(part) => {
                let Some(of) = authentication.introspection.as_mut().map(Arc::make_mut) else {
                    return Ok(());
                };
                let filled = match part {
                    IntrospectionPart::ClientSecret => {
                        set(&mut of.client_secret_ref, client_secret(self.store, &need.value))
                    }
                    IntrospectionPart::CaCertificates => {
                        set_optional(&mut of.ca_certificate_ref, certificates(self.store, &need.value))
                    }
                };
                filled.map_err(|fault| format!("{fault}; no token is checked by {}", of.url))
            }
        }
    }

    fn keys(
        &mut self,
        value: &'a SecretValue,
        is_shared: bool,
        algorithms: &[feature::Algorithm],
    ) -> Result<KeyBytes, String> {
        let named = NamedKeys { value, is_shared, algorithms: authentication::known(algorithms) };
        match self.keys.entry(named) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => {
                let checked = place.key().check(self.store);
                place.insert(checked).clone()
            }
        }
    }

    fn users(&self, at: At<'_>, need: &Need, problems: &mut Vec<Problem>) -> Result<Passwords, String> {
        let SecretValue { secret, key } = &need.value;
        let passwords = htpasswd::parse(value_of(self.store, &need.value)?);
        for (line, fault) in &passwords.faults {
            problems.push(at.warning(&need.field, format!("{secret}: line {line} of data[{key}] {fault}")));
        }
        if passwords.users.is_empty() {
            return Err(format!("{secret} has no valid line name:hash in data[{key}]"));
        }
        Ok(passwords)
    }
}

impl NamedKeys<'_> {
    /// The value of a Secret, if it is usable.
    fn check(&self, store: &Store) -> Result<KeyBytes, String> {
        let SecretValue { secret, key } = self.value;
        let value = value_of(store, self.value)?;
        let (value, checked) = match self.is_shared {
            true => {
                let value = without_line_end(value);
                let checked = KeySet::shared(value, &self.algorithms);
                (value, checked.map_err(|fault| format!("{secret}: data[{key}] {fault}")))
            }
            false => {
                let checked = KeySet::given(value, &self.algorithms);
                (value, checked.map_err(|fault| format!("{secret}: the keys in data[{key}] {fault}")))
            }
        };
        checked?;
        KeyBytes::new(value).ok_or_else(|| format!("{secret} has an empty data[{key}]"))
    }
}

/// The upstream of the authorization service, if its URL names a port of a Service by the DNS name of the Service, with
/// http. Data planes then choose an endpoint of the Service themselves.
fn upstream_of_service(store: &Store, security: &Security) -> Option<UpstreamKey> {
    service_upstream(store, &security.authentication.as_ref()?.ext_auth.as_ref()?.url)
}

/// The upstream of the port of a Service that a URL names.
pub(crate) fn service_upstream(store: &Store, url: &str) -> Option<UpstreamKey> {
    let ServiceUrl { namespace, name, port } = ServiceUrl::parse(url)?;
    let (namespace, name) = (namespace.into(), name.into());
    let (service, _) = store.service(&namespace, &name)?;
    let service = Some(service).filter(|service| service.external_name.is_none())?;
    let port = service.port(port, IpProtocol::Tcp)?;
    Some(UpstreamKey::new(namespace, name, &*port.key))
}

/// A port of a Service, in the form `http://NAME.NAMESPACE.svc:PORT` or `http://NAME.NAMESPACE.svc.cluster.local:PORT`.
struct ServiceUrl<'u> {
    namespace: &'u str,
    name: &'u str,
    port: &'u str,
}

impl<'u> ServiceUrl<'u> {
    fn parse(url: &'u str) -> Option<Self> {
        let rest = url.strip_prefix("http://")?;
        let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
        let host = host.trim_end_matches('.');
        let service = host.strip_suffix(".cluster.local").unwrap_or(host).strip_suffix(".svc")?;
        let (name, namespace) = service.split_once('.').filter(|(_, namespace)| !namespace.contains('.'))?;
        Some(Self { namespace, name, port })
    }
}

/// The Services of the authorization services of the policies that apply to a route.
pub(super) fn references<'a>(attached: &Attached<'a, Security>, config: &Config) -> Vec<Reference<'a>> {
    let governing: HashSet<_> = config
        .rules()
        .filter_map(|rule| rule.security.as_ref())
        .flat_map(|security| security.ids())
        .collect();
    let references = attached.policies().iter().filter_map(|Policy { at, value, .. }| {
        let security = value.as_ref().filter(|security| governing.contains(&security.id))?;
        let upstream = security.ext_auth_upstream()?.clone();
        Some(Reference { at: *at, place: Place::ExtAuth, upstream })
    });
    references.collect()
}

/// The named value, or the reason why there is none.
pub(super) fn value_of<'a>(store: &'a Store, named: &SecretValue) -> Result<&'a [u8], String> {
    let SecretValue { secret, key } = named;
    let data = store.data(secret).ok_or_else(|| match store.knows(secret) {
        true => format!("{secret} cannot be read"),
        false => format!("{secret} does not exist"),
    })?;
    data.get(key).ok_or_else(|| format!("{secret} has no data[{key}]"))
}

/// CA certificates; at least one, since an empty list would mean the CA certificates that browsers trust.
pub(super) fn authorities(
    store: &Store,
    named: &SecretValue,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let SecretValue { secret, key } = named;
    let found = certificate::certificates(value_of(store, named)?);
    found.map_err(|fault| format!("{secret}: data[{key}] {fault}")).and_then(|found| match found.len() {
        0 => Err(format!("{secret} has no certificate in data[{key}]")),
        _ => Ok(found),
    })
}

/// CA certificates for a server.
fn certificates(store: &Store, named: &SecretValue) -> Result<CaCertificates, String> {
    let found = authorities(store, named)?;
    CaCertificates::new(found).ok_or_else(|| format!("{} has no certificate", named.secret))
}

/// The secret of a client of an authorization server.
fn client_secret(store: &Store, named: &SecretValue) -> Result<KeyBytes, String> {
    let SecretValue { secret, key } = named;
    KeyBytes::new(without_line_end(value_of(store, named)?))
        .ok_or_else(|| format!("{secret} has an empty data[{key}]"))
}

/// The keys of encrypted cookies.
fn cookie_keys(store: &Store, named: &SecretValue) -> Result<CookieKeys, String> {
    let SecretValue { secret, key } = named;
    CookieKeys::parse(value_of(store, named)?).map_err(|fault| format!("{secret}: data[{key}] {fault}"))
}

/// Sets a value of a Secret that a policy may lack.
fn set_optional<T>(place: &mut Option<FromSecret<T>>, value: Result<T, String>) -> Result<(), String> {
    place.as_mut().map_or(Ok(()), |place| set(place, value))
}

/// Sets a value of a Secret, or the reason why there is none.
fn set<T>(place: &mut FromSecret<T>, value: Result<T, String>) -> Result<(), String> {
    match value {
        Ok(value) => {
            *place = FromSecret::Value(value);
            Ok(())
        }
        Err(fault) => {
            *place = FromSecret::Unusable(fault.as_str().into());
            Err(fault)
        }
    }
}

/// The groups of all Consumers, each with the namespace of a Consumer and with [`ANY`].
fn groups_of(store: &Store) -> HashSet<(&str, &str)> {
    store
        .all::<Consumer>()
        .flat_map(|(object, consumer, _)| {
            consumer.groups.iter().flat_map(|group| [(&*object.namespace, &**group), (ANY, &**group)])
        })
        .collect()
}
