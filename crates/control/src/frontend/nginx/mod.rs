//! The dialect of ingress-nginx: Ingresses whose class has its controller, with its annotations, its order of locations and its
//! defaults.
//!
//! ingress-nginx gathers the rules of all Ingresses for a host in one nginx server, and each path becomes a location. A file for
//! each group of annotations has the same name as in [`object::nginx`](crate::object::nginx), and changes the [`Parts`] of an
//! Ingress.
//!
//! | module | content |
//! |---|---|
//! | [`access`] | client IPs |
//! | [`auth`] | passwords, external authorization services |
//! | [`client_certificate`] | client certificates |
//! | [`global`] | blocked clients and headers of all Ingresses |
//! | [`limits`] | limits of requests, connections and bandwidth |
//! | [`location`] | the matches of paths, in the order of nginx |
//! | [`https`] | redirects to HTTPS |
//! | [`proxy`] | timeouts and sizes |
//! | [`upstream`] | load balancing, retries, the form of requests |
//! | [`errors`] | error pages, the default backend |
//! | [`response`] | rewrites of responses |
//! | [`session`] | session affinity |
//! | [`canary`] | canaries |
//! | [`cors`] | cross-origin requests |
//! | [`mirror`] | mirrored requests |
//! | [`rewrite`] | rewrites of the path and the host |
//! | [`redirect`] | redirects to other URLs |
//! | [`hash`] | consistent hashing |
//! | [`snippet`] | directives of snippets |
//! | [`services`] | ports for TCP and UDP that lead to Services |

use std::borrow::Cow;
use std::sync::Arc;

use sluicegate_model::feature::{DirectResponse, Features};
use sluicegate_model::policy::{RateLimits, Security};
use sluicegate_model::rule::{HttpsRedirect, RuleMatch};
use sluicegate_model::value::{CipherSuites, Entries, Number};
use sluicegate_model::{HostPattern, ObjectId, UpstreamKey};

use super::ingress::{passthrough, tls};
use crate::intent::{Alias, At, Host, Https, Intent, Own, Passthrough, Place, Reference, Rule};
use crate::object::ObjectRef;
use crate::object::annotation::field;
use crate::object::backend::Backend;
use crate::object::ingress::{self, Ingress};
use crate::object::nginx::Settings;
use crate::problem::{Problem, Severity};
use crate::store::Store;
use crate::translate::{IngressNginx, ObjectName};
use canary::Canaries;
use location::{Locations, Path};
pub(crate) use redirect::other_www;

mod access;
mod auth;
mod canary;
mod client_certificate;
mod cors;
mod errors;
mod global;
mod hash;
mod https;
mod limits;
mod location;
mod mirror;
mod observability;
mod proxy;
mod redirect;
mod response;
mod rewrite;
pub(super) mod services;
mod session;
mod snippet;
mod upstream;

/// The Ingresses of the dialect, before their translation.
pub(super) struct Dialect<'a> {
    store: &'a Store,
    options: &'a IngressNginx,
    locations: Locations<'a>,
    canaries: Canaries<'a>,
    /// The id of the class, for the traffic policies that its Ingresses share.
    class: ObjectId,
    headers: global::Headers,
    /// The upstream of requests that no rule matches (`--default-backend-service`).
    default_backend: Option<UpstreamKey>,
}

/// The paths of the Ingresses of the dialect.
pub(crate) struct Paths<'a>(Locations<'a>);

impl<'a> Paths<'a> {
    pub(crate) fn new(
        options: &IngressNginx,
        ingresses: impl Iterator<Item = (At<'a>, &'a Ingress)>,
    ) -> Self {
        let settings = |(at, ingress): (At<'a>, &'a Ingress)| (ingress, options.settings(at, ingress));
        let mains = ingresses.map(settings).filter(|(_, settings)| !settings.canary.is_canary);
        Self(Locations::new(mains))
    }

    /// The faults in the regular expressions of an Ingress: the field, the fault and its consequence.
    pub(crate) fn faults(&self, ingress: &Ingress, settings: &Settings) -> Vec<String> {
        let paths = ingress.rules.iter().flat_map(|rule| rule.paths.iter().map(move |path| (rule, path)));
        let fault = |(rule, path): (&ingress::Rule, &ingress::RulePath)| {
            let fault = self.0.matches(&rule.host, path, settings).err()?;
            Some(format!("{}.path: {fault}; {CLOSED_PATH}", Place::Path(rule.index, path.index).field()))
        };
        paths.filter_map(fault).collect()
    }
}

/// The consequence of a fault in a regular expression.
const CLOSED_PATH: &str = "requests that the path may match receive 503";

/// The parts that annotations of an Ingress set, for all its rules.
pub(super) struct Parts {
    pub(super) features: Features,
    pub(super) security: Security,
    pub(super) limits: RateLimits,
}

/// The Ingress whose annotations are applied.
pub(super) struct Context<'c, 'a> {
    pub(super) store: &'a Store,
    pub(super) options: &'a IngressNginx,
    pub(super) at: At<'a>,
    pub(super) ingress: &'a Ingress,
    pub(super) settings: Arc<Settings>,
    pub(super) problems: &'c mut Vec<Problem>,
    /// The upstreams that features of the rules name.
    pub(super) references: Vec<Reference<'a>>,
}

impl Context<'_, '_> {
    /// Adds an upstream that an annotation names, with its prefix.
    pub(super) fn name(&mut self, annotation: &'static str, upstream: &UpstreamKey) {
        let (at, place) = (self.at, Place::Annotation(annotation));
        self.references.push(Reference { at, place, upstream: upstream.clone() });
    }

    /// Reports a fault in an annotation, whose name has no prefix.
    pub(super) fn fault(&mut self, short: &str, message: String) {
        let name = format!("{}/{short}", self.options.prefix);
        self.problems.push(self.at.problem(Severity::Error, &field(&name), message));
    }

    /// Reports a fault of the object that an annotation names.
    pub(super) fn fault_of(&mut self, object: &ObjectRef, short: &str, message: String) {
        let name = format!("{}/{short}", self.options.prefix);
        let problem = self.at.problem(Severity::Error, &field(&name), message);
        self.problems.push(problem.caused_by(object));
    }

    /// Warns of a fault in an annotation, whose name has no prefix.
    pub(super) fn warn(&mut self, short: &str, message: String) {
        let name = format!("{}/{short}", self.options.prefix);
        self.problems.push(self.at.problem(Severity::Warning, &field(&name), message));
    }

    /// Reports a fault in an annotation that restricts access, and closes the routes of the Ingress. `cause` is the named
    /// object, if the fault is there.
    pub(super) fn close(&mut self, parts: &mut Parts, short: &str, fault: &str, cause: Option<&ObjectRef>) {
        let message = format!("{fault}; all routes of this Ingress respond with 503");
        match cause {
            Some(object) => self.fault_of(object, short, message),
            None => self.fault(short, message),
        }
        parts
            .security
            .refuses
            .get_or_insert_with(|| format!("{}/{short}: {fault}", self.options.prefix).into());
    }
}

impl IngressNginx {
    /// The settings of an Ingress.
    pub(crate) fn settings(&self, at: At<'_>, ingress: &Ingress) -> Arc<Settings> {
        ingress.nginx.settings(&self.prefix, &self.globals, &at.object.namespace)
    }
}

impl<'a> Dialect<'a> {
    /// `ingresses` are the Ingresses of the dialect, the oldest first.
    pub(super) fn new(
        store: &'a Store,
        options: &'a IngressNginx,
        ingresses: impl Iterator<Item = (At<'a>, &'a Ingress)>,
    ) -> Self {
        let ingresses: Vec<_> = ingresses.collect();
        let Paths(locations) = Paths::new(options, ingresses.iter().copied());
        let with_settings =
            ingresses.into_iter().map(|(at, ingress)| (at, ingress, options.settings(at, ingress)));
        let canaries = Canaries::new(with_settings.filter(|(_, _, settings)| settings.canary.is_canary));
        let name = options.ingress_class.as_str().into();
        let class = ObjectId { kind: "IngressClass", namespace: "".into(), name };
        let headers = global::Headers::new(store, &options.globals);
        let default = options.default_backend.as_ref();
        let default_backend = default.and_then(|of| errors::of_service(store, &of.namespace, &of.name));
        Self { store, options, locations, canaries, class, headers, default_backend }
    }

    /// Reports faults that concern several Ingresses, after the intents of all of them.
    pub(super) fn finish(&self, problems: &mut Vec<Problem>) {
        self.canaries.report_unused(problems);
        problems.extend(self.headers.problems());
        if let (Some(ObjectName { namespace, name }), None) =
            (&self.options.default_backend, &self.default_backend)
        {
            let message = format!(
                "Service {namespace}/{name} does not exist, or has no port for TCP; requests without a rule receive 404. Create \
                 the Service"
            );
            problems.push(Problem::of_option("--default-backend-service", message));
        }
    }

    /// The intent of the default backend, for hosts without an Ingress.
    pub(super) fn catch_all(&self) -> Option<Intent<'a>> {
        let ObjectName { namespace, name } = self.options.default_backend.as_ref()?;
        let (object, origin) = self.store.service_entry(namespace, name)?;
        Some(Intent {
            at: At { object, origin },
            created: None,
            hosts: Vec::new(),
            default: Some(self.default_backend.clone()?),
            is_for_all_hosts: true,
            tls: Vec::new(),
            client_auth: None,
            ciphers: CipherSuites::default(),
            https: Https { is_forced: false, if_tls: None, redirect: HttpsRedirect::default() },
            compression: None,
            own: None,
            unmatched: None,
            refuses: None,
            named: Vec::new(),
        })
    }

    /// The intent of an Ingress.
    pub(super) fn intent(&self, at: At<'a>, ingress: &'a Ingress, problems: &mut Vec<Problem>) -> Intent<'a> {
        let settings = self.options.settings(at, ingress);
        let mut context = Context {
            store: self.store,
            options: self.options,
            at,
            ingress,
            settings,
            problems,
            references: Vec::new(),
        };
        let own = self.own(&mut context);
        let settings = context.settings.clone();
        // Blocked clients come after the snippet of the host, whose addresses the Ingress would otherwise replace.
        let guarded = self.block(&own, at);
        let backend = settings.backend.backend();
        let is_main = !settings.canary.is_canary;
        let rules = || ingress.rules.iter().filter(|_| is_main);
        let mut hosts: Vec<_> = rules().map(|rule| self.host(&mut context, rule, &own, &backend)).collect();
        if settings.redirect.www {
            let of_hosts = rules().filter(|rule| is_first_of_host(ingress, rule));
            hosts.extend(
                of_hosts
                    .filter_map(|rule| redirect::www(&guarded, &rule.host, |host| self.locations.has(host))),
            );
        }
        let default = ingress.default_backend.as_ref().filter(|_| is_main);
        Intent {
            at,
            created: ingress.created,
            hosts,
            default: (default.map(|named| self.key(named, &backend, &settings)))
                .or_else(|| self.default_backend.clone().filter(|_| is_main)),
            is_for_all_hosts: default.is_some() && !ingress.has_rules,
            unmatched: Some(unmatched(&guarded)),
            own: Some(match default {
                Some(_) => auth::of_host(&mut context, &guarded, &HostPattern::Any),
                None => guarded,
            }),
            tls: if is_main { tls::certificates(self.store, at.object, ingress) } else { Vec::new() },
            client_auth: client_certificate::of(&context).filter(|_| is_main),
            ciphers: if is_main { settings.https.ciphers } else { CipherSuites::default() },
            https: own.https,
            compression: None,
            refuses: own.security.clone().filter(|security| security.refuses.is_some()),
            named: context.references,
        }
    }

    /// The further names of the hosts of an Ingress.
    pub(super) fn aliases(&self, at: At<'a>, ingress: &'a Ingress) -> impl Iterator<Item = Alias<'a>> {
        let settings = self.options.settings(at, ingress);
        let place = Place::Annotation("nginx.ingress.kubernetes.io/server-alias");
        let hosts = ingress.rules.iter().map(|rule| &rule.host);
        hosts.flat_map(move |of| {
            let names = settings.alias.hosts.clone();
            names.into_iter().map(move |name| Alias { at, place, name, of })
        })
    }

    /// The parts with a refusal of the clients that no Ingress serves.
    fn block(&self, own: &Arc<Own>, at: At<'_>) -> Arc<Own> {
        global::block(&self.options.globals.global.blocked, own, &at.id())
    }

    /// The parts of all rules of an Ingress.
    fn own(&self, context: &mut Context<'_, 'a>) -> Arc<Own> {
        let id = context.at.id();
        let mut parts = Parts {
            features: Features::default(),
            security: Security::open(id.clone()),
            limits: RateLimits {
                id,
                limits: Vec::new(),
                concurrency: Vec::new(),
                headers: false,
                shared: None,
                exempt: Entries::default(),
            },
        };
        for fault in &context.settings.faults {
            context.problems.push(context.at.problem(Severity::Error, &fault.field, fault.message.clone()));
            if fault.closes {
                let reason = format!("{}: {}", fault.field, fault.message);
                parts.security.refuses.get_or_insert_with(|| reason.into());
            }
        }
        proxy::apply(context, &mut parts);
        observability::apply(context, &mut parts);
        https::apply(context, &mut parts);
        access::apply(context, &mut parts);
        limits::apply(context, &mut parts);
        auth::apply(context, &mut parts);
        client_certificate::apply(context, &mut parts);
        upstream::apply(context, &mut parts);
        errors::apply(context, &mut parts);
        response::apply(context, &mut parts);
        session::apply(context, &mut parts);
        cors::apply(context, &mut parts);
        mirror::apply(context, &mut parts);
        rewrite::apply(context, &mut parts);
        snippet::apply(context, &mut parts);
        redirect::apply(context, &mut parts);
        hash::apply(context, &mut parts);
        self.headers.apply(context, &mut parts);
        let Parts { features, security, limits } = parts;
        let is_open = security == Security::open(security.id.clone());
        let has_limits = !limits.limits.is_empty() || !limits.concurrency.is_empty();
        Arc::new(Own {
            class: self.class.clone(),
            features: Arc::new(features),
            security: (!is_open).then(|| Arc::new(security)),
            rate_limits: has_limits.then(|| Arc::new(limits)),
            https: https::of(context),
        })
    }

    fn host(
        &self,
        context: &mut Context<'_, 'a>,
        rule: &'a ingress::Rule,
        own: &Arc<Own>,
        backend: &Backend,
    ) -> Host<'a> {
        let snippet = self.locations.snippet(&rule.host);
        let own = &snippet.map_or_else(|| own.clone(), |snippet| snippet.over(own, &context.at.id()));
        let own = &self.block(own, context.at);
        let mut rules = Vec::with_capacity(rule.paths.len());
        let own = &auth::of_host(context, own, &rule.host);
        if let Some(path) = &context.settings.redirect.app_root
            && is_first_of_host(context.ingress, rule)
        {
            rules.extend(redirect::app_root(path, &context.settings.redirect, own));
        }
        for path in &rule.paths {
            let place = Place::Path(rule.index, path.index);
            let settings = context.settings.clone();
            let key = |named: &UpstreamKey| self.key(named, backend, &settings);
            let upstream = key(&path.upstream);
            let own = rewrite::of_path(https::of_path(context, own, path), path, &settings);
            let own = auth::of_path(context, &own, path);
            let own = errors::of_path(own, path);
            let own = session::of_path(own, path);
            let own = self.canaries.of_path(own, context, (&rule.host, path), key);
            let own = self.secured(own, context, place, &path.upstream);
            global::check_path(context, &place.field(), path);
            match self.locations.matches(&rule.host, path, &settings) {
                Ok(matches) => {
                    rules.extend(matches.into_iter().map(|Path { of, redirect }| match redirect {
                        None => Rule {
                            place,
                            of,
                            literal: None,
                            upstream: Some(upstream.clone()),
                            own: Some(own.clone()),
                            api: None,
                        },
                        Some(redirect) => Rule {
                            place,
                            of,
                            literal: None,
                            upstream: None,
                            own: Some(location::redirecting(&own, redirect)),
                            api: None,
                        },
                    }));
                }
                Err(fault) => {
                    let field = format!("{}.path", place.field());
                    let message = format!("{fault}; {CLOSED_PATH}");
                    context.problems.push(context.at.problem(Severity::Error, &field, message));
                    let of = path.literal.clone().unwrap_or_else(|| path.pattern.clone());
                    let reason = format!("{field}: {fault}");
                    let own = Own {
                        security: Some(Arc::new(Security::closed(context.at.id(), reason.into()))),
                        ..Own::clone(&own)
                    };
                    rules.push(Rule {
                        place,
                        of: RuleMatch::path(of),
                        literal: None,
                        upstream: Some(upstream),
                        own: Some(Arc::new(own)),
                        api: None,
                    });
                }
            }
        }
        let passthrough = match context.settings.https.ssl_passthrough {
            true => passthrough::of_paths(self.store, context.ingress, &rule.host, self.passthrough_field()),
            false => Passthrough::Off,
        };
        Host { host: Cow::Borrowed(&rule.host), rules, passthrough }
    }

    /// The parts of a path, with the upstream for requests over TLS if it differs.
    fn secured(
        &self,
        own: Arc<Own>,
        context: &mut Context<'_, 'a>,
        place: Place,
        named: &UpstreamKey,
    ) -> Arc<Own> {
        let Some(backend) = context.settings.backend.secure_backend() else { return own };
        let upstream = self.key(named, &backend, &context.settings);
        context.references.push(Reference { at: context.at, place, upstream: upstream.clone() });
        let mut own = Own::clone(&own);
        Arc::make_mut(&mut own.features).secure_upstream = Some(upstream);
        Arc::new(own)
    }

    fn passthrough_field(&self) -> Place {
        Place::Annotation("nginx.ingress.kubernetes.io/ssl-passthrough")
    }

    fn key(&self, named: &UpstreamKey, backend: &Backend, settings: &Settings) -> UpstreamKey {
        let mut key = crate::upstream::key(self.store, named, Some(backend), None);
        key.transport.is_cluster_ip = settings.upstream.is_cluster_ip;
        key
    }
}

/// Whether no earlier rule of an Ingress has the same host.
fn is_first_of_host(ingress: &Ingress, rule: &ingress::Rule) -> bool {
    let first = ingress.rules.iter().find(|other| other.host == rule.host);
    first.is_some_and(|first| first.index == rule.index)
}

/// The parts of requests that match no rule of a host, if the Ingress has no default backend. The default server of ingress-nginx
/// responds with 404, after the access rules of the oldest Ingress of the host.
fn unmatched(own: &Own) -> Arc<Own> {
    let not_found = DirectResponse { status_code: Number::of(404), content_type: None, body: "".into() };
    let mut own = own.clone();
    Arc::make_mut(&mut own.features).direct_response = Some(not_found);
    Arc::new(own)
}
