//! The common part of all sources: from the objects of a store to published changes and reported problems.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate_model::{Change, Config, Upstream, UpstreamKey};
use tokio::sync::watch as state;
use tokio::time::timeout;

use super::foreign_in_words;
use super::publish::Publisher;
use super::resolve::{Answer, Reach, Resolver, Target};
use crate::acme::{Acme, AcmeNews};
use crate::catalogue::{self, Published};
use crate::frontend::gateway::service;
use crate::merge::policy::standing::Standing;
use crate::object::ObjectRef;
use crate::object::api::{Api, DocumentSource};
use crate::problem::{Problem, Severity};
use crate::status::ObjectStatus;
use crate::store::{ServiceRef, Store, Touched};
use crate::translate::scope::{Scopes, assert_same};
use crate::translate::{TranslateOptions, Translation, translate};
use crate::upstream;

/// The longest wait of the first configuration for the addresses of external names.
const FIRST_ANSWERS_MAX: Duration = Duration::from_secs(2);

/// The longest wait of the first configuration for the documents of Apis at URLs.
const FIRST_DOCUMENTS_MAX: Duration = Duration::from_secs(10);

/// The maximum number of Ingresses and Gateways of other classes that one line of the log names.
const FOREIGN_NAMED_MAX: usize = 3;

/// Ready when the data planes serve a change. Dropping it loses nothing.
pub type Served = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes changes, each with the time at which a source received its cause.
pub trait Publish: FnMut(Change, Instant) -> Served + Send {}

impl<P: FnMut(Change, Instant) -> Served + Send> Publish for P {}

/// The problems and the catalogue that a source reports.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) problems: state::Sender<Arc<[Problem]>>,
    pub(super) catalogue: state::Sender<Arc<Published>>,
}

/// News from outside of a source.
#[derive(Debug)]
pub(super) enum News {
    /// Addresses of an external name.
    Addresses(Answer),
    /// A document of an Api at a URL has changed, or could not be fetched.
    Document,
    /// A certificate of an ACME server was stored, or could not be ordered.
    Acme,
}

/// Translates a store whenever the store changes, and publishes the result.
pub(super) struct Output<P> {
    options: TranslateOptions,
    problems: state::Sender<Arc<[Problem]>>,
    catalogue: state::Sender<Arc<Published>>,
    /// The last translation, without its configuration.
    translation: Option<Translation>,
    scopes: Scopes,
    /// The upstreams with an external name.
    external: BTreeMap<UpstreamKey, Target>,
    resolver: Resolver,
    acme: AcmeNews,
    publisher: Publisher,
    publish: P,
    /// The number of published configurations.
    configurations: u64,
    /// Ready when the data planes serve the newest configuration, until it is taken.
    served: Option<Served>,
}

impl<P: Publish> Output<P> {
    pub(super) fn new(options: TranslateOptions, reports: Reports, publish: P, reach: Reach) -> Self {
        Self {
            acme: AcmeNews::of(&options.acme),
            options,
            problems: reports.problems,
            catalogue: reports.catalogue,
            translation: None,
            scopes: Scopes::default(),
            external: BTreeMap::new(),
            resolver: Resolver::new(reach),
            publisher: Publisher::default(),
            publish,
            configurations: 0,
            served: None,
        }
    }

    /// Whether the source has published a configuration.
    pub(super) fn is_serving(&self) -> bool {
        self.translation.is_some()
    }

    /// The problems of the last report.
    pub(super) fn problems(&self) -> Arc<[Problem]> {
        self.problems.borrow().clone()
    }

    /// The status of objects of Gateway API.
    pub(super) fn statuses(&self) -> &[ObjectStatus] {
        self.translation.as_ref().map_or(&[], |translation| &translation.statuses)
    }

    /// The number of the newest published configuration.
    pub(super) fn configuration(&self) -> u64 {
        self.configurations
    }

    /// A future that is ready when the data planes serve the newest configuration; `None` if it is taken already.
    pub(super) fn take_served(&mut self) -> Option<Served> {
        self.served.take()
    }

    /// The state of policies and Consumers.
    pub(super) fn policy_statuses(&self) -> &[Standing] {
        self.translation.as_ref().map_or(&[], |translation| &translation.policy_statuses)
    }

    /// Publishes the changes of the store: only the endpoints of single upstreams, if nothing else changed. Returns
    /// whether problems may have changed, so that the caller should [report](Self::report) them.
    pub(super) async fn apply(&mut self, store: &Store, touched: &Touched, heard: Instant) -> bool {
        if self.translation.is_none() || self.is_routing(touched) {
            if let Some(config) = self.translate_scope(store, touched, heard) {
                self.publish_config(config, heard);
                return true;
            }
            let mut config = self.translate(store);
            if self.publisher.config().is_none() && self.wait_for_first_news().await {
                config = self.translate(store);
            }
            self.publish_config(config, heard);
            return true;
        }
        self.publish_endpoints(store, &touched.services, heard) || touched.problems
    }

    /// Whether the changes require a translation.
    pub(super) fn is_routing(&self, touched: &Touched) -> bool {
        touched.has_routing() || self.needs_more_than_scopes(touched)
    }

    /// Whether changes of other objects than Ingresses and Secrets require a translation.
    pub(super) fn needs_more_than_scopes(&self, touched: &Touched) -> bool {
        let is_relevant = |service| self.is_named(service) || self.may_be_of_gateway(service);
        // The readiness of own data planes decides about the addresses of a Gateway.
        let is_of_planes =
            |(_, name): &ServiceRef| self.options.own_data_planes.is_some() && service::may_be_own(name);
        touched.routing
            || touched.changed_services.iter().any(is_relevant)
            || touched.services.iter().any(is_of_planes)
    }

    /// Whether this Service, or its absence, may decide about the listeners of a Gateway.
    fn may_be_of_gateway(&self, (namespace, name): &ServiceRef) -> bool {
        let of = self.options.gateway_services.as_ref();
        let is_own = self.options.own_data_planes.is_some() && service::may_be_own(name);
        is_own || of.is_some_and(|services| services.namespace == *namespace)
    }

    /// Whether a route names this Service, even if the Service does not exist.
    fn is_named(&self, (namespace, service): &ServiceRef) -> bool {
        let (Some(config), Some(translation)) = (self.publisher.config(), &self.translation) else {
            return true;
        };
        if translation.missing.contains(&(namespace.clone(), service.clone())) {
            return true;
        }
        let first = UpstreamKey::new(namespace.clone(), service.clone(), "");
        let next = config.upstreams.range(first..).next();
        next.is_some_and(|(key, _)| key.namespace == *namespace && key.service == *service)
    }

    /// Waits for news from outside of the source. A dropped future loses nothing.
    pub(super) async fn news(&mut self) -> News {
        let Self { options, resolver, acme, .. } = self;
        tokio::select! {
            answer = resolver.answer() => News::Addresses(answer),
            () = options.documents.changed() => News::Document,
            () = acme.changed() => News::Acme,
        }
    }

    /// The manifests that the gateway itself has written since the last call.
    pub(super) fn take_manifests(&self) -> Vec<(PathBuf, String)> {
        match &self.options.acme {
            Acme::On(acme) => acme.manifests.take(),
            Acme::Off | Acme::Unknown => Vec::new(),
        }
    }

    /// Publishes news.
    pub(super) fn take(&mut self, news: News, store: &Store) {
        let heard = Instant::now();
        let answer = match news {
            News::Addresses(answer) => answer,
            // The caller reports problems, and reads the manifests.
            News::Acme => return,
            News::Document => {
                // The first configuration follows with the objects.
                if self.is_serving() {
                    let config = self.translate(store);
                    self.publish_config(config, heard);
                }
                return;
            }
        };
        self.resolver.take(answer);
        for (key, target) in &self.external {
            if let Some(endpoints) = self.resolver.endpoints(target)
                && let Some(change) = self.publisher.set_endpoints(key, endpoints)
            {
                drop((self.publish)(change, heard));
            }
        }
    }

    /// Translates only the hosts that a change of Ingresses and Secrets affects; `None` if everything must be translated.
    fn translate_scope(&mut self, store: &Store, touched: &Touched, heard: Instant) -> Option<Config> {
        // The lines of other objects may have changed, too.
        if self.needs_more_than_scopes(touched) || touched.moved {
            return None;
        }
        self.publish_endpoints(store, &touched.services, heard);
        let (before, translation) = (self.publisher.config()?, self.translation.as_mut()?);
        let known = foreign(translation).filter(|object| touched.ingresses.contains_key(*object));
        let known: HashSet<ObjectRef> = known.cloned().collect();
        let changed = (&touched.ingresses, &touched.secrets);
        let change = self.scopes.translate(store, &self.options, before, translation, changed)?;
        let mut config = self.publisher.config_with_endpoints()?;
        change.apply(&mut config);
        if cfg!(debug_assertions) {
            assert_same(&config, translation, &translate(store, &self.options));
        }
        self.look_up(&config);
        self.log_foreign_objects(|object| !touched.ingresses.contains_key(object) || known.contains(object));
        Some(config)
    }

    /// Translates, and starts the look-ups of external names.
    fn translate(&mut self, store: &Store) -> Config {
        self.scopes.clear();
        let mut translation = translate(store, &self.options);
        let config = std::mem::take(&mut translation.config);
        // Without a dashboard and without a portal, there is no receiver.
        if self.catalogue.receiver_count() > 0 {
            let documents = &self.options.documents;
            let published = catalogue::published(store, documents, &translation.policy_statuses);
            self.catalogue.send_replace(published.into());
        }
        let apis = store.all::<Api>().flat_map(|(_, api, _)| api.documents());
        let urls = apis.filter_map(|document| match document {
            DocumentSource::Url(url) => Some(url.clone()),
            DocumentSource::Inline(_) | DocumentSource::ConfigMap { .. } => None,
        });
        self.options.documents.want(&urls.collect());
        if let Acme::On(acme) = &self.options.acme {
            acme.link.set_wanted(translation.acme.state.clone());
        }
        let before = self.translation.replace(translation);
        self.look_up(&config);
        let known: HashSet<&ObjectRef> = before.iter().flat_map(foreign).collect();
        self.log_foreign_objects(|object| known.contains(object));
        config
    }

    /// Looks up the external names of the translation.
    fn look_up(&mut self, config: &Config) {
        let target = |(key, port): (&UpstreamKey, &u16)| {
            let name = config.upstreams.get(key)?.external_name.clone()?;
            Some((key.clone(), (name, *port)))
        };
        let ports = self.translation.iter().flat_map(|translation| &translation.external_ports);
        self.external = ports.filter_map(target).collect();
        self.resolver.want(&self.external.values().cloned().collect());
    }

    /// Logs the Ingresses and Gateways of other classes, without the objects that the log already names.
    fn log_foreign_objects(&self, is_known: impl Fn(&ObjectRef) -> bool) {
        let now = self.translation.iter().flat_map(|now| &now.foreign);
        let is_known = |note: &&Problem| note.object.as_ref().is_some_and(&is_known);
        let new: Vec<&Problem> = now.filter(|note| !is_known(note)).collect();
        match &*new {
            [] => {}
            [note] => tracing::info!("{note}"),
            notes => {
                let mut names: Vec<String> = notes
                    .iter()
                    .take(FOREIGN_NAMED_MAX)
                    .filter_map(|note| Some(note.object.as_ref()?.to_string()))
                    .collect();
                if notes.len() > names.len() {
                    names.push(format!("and {} more", notes.len() - names.len()));
                }
                tracing::info!(
                    "{}: {}; run sluicegate check to see how to serve them",
                    foreign_in_words(notes.iter().copied()).unwrap_or_default(),
                    names.join(", ")
                );
            }
        }
    }

    /// Waits for the addresses of external names, and for documents. Returns whether there is news of a document.
    async fn wait_for_first_news(&mut self) -> bool {
        let mut has_document = false;
        let resolver = &mut self.resolver;
        let answers = async {
            while !resolver.is_settled() {
                let answer = resolver.answer().await;
                resolver.take(answer);
            }
        };
        let documents = async {
            while !self.options.documents.is_settled() {
                self.options.documents.changed().await;
                has_document = true;
            }
        };
        let (answered, fetched) =
            tokio::join!(timeout(FIRST_ANSWERS_MAX, answers), timeout(FIRST_DOCUMENTS_MAX, documents));
        if answered.is_err() {
            tracing::warn!(
                "some external names are not resolved yet; their Services are served once the names are resolved"
            );
        }
        if fetched.is_err() {
            tracing::warn!(
                "some documents of Apis are not fetched yet; their Apis are served once they are fetched"
            );
        }
        has_document
    }

    fn publish_config(&mut self, mut config: Config, heard: Instant) {
        for (key, target) in &self.external {
            // Until the first look-up of a name, the previous endpoints of its upstream are better than none.
            let known = self.resolver.endpoints(target).or_else(|| self.publisher.endpoints(key));
            if let (Some(endpoints), Some(upstream)) = (known, config.upstreams.get_mut(key)) {
                *upstream = Arc::new(Upstream { endpoints: endpoints.clone(), ..Upstream::clone(upstream) });
            }
        }
        for change in self.publisher.set_config(config) {
            let is_config = matches!(change, Change::Config(_));
            let served = (self.publish)(change, heard);
            // No status depends on endpoints.
            if is_config {
                self.configurations += 1;
                self.served = Some(served);
            }
        }
        if let (Acme::On(acme), Some(translation)) = (&self.options.acme, &self.translation) {
            self.served = acme.follow(self.served.take(), translation.acme.state.clone());
        }
    }

    /// Publishes the endpoints of these Services, if they changed. Returns whether the Services' problems changed.
    fn publish_endpoints(&mut self, store: &Store, services: &BTreeSet<ServiceRef>, heard: Instant) -> bool {
        let (Some(config), Some(translation)) = (self.publisher.config().cloned(), &mut self.translation)
        else {
            return false;
        };
        let mut has_problems = false;
        for (namespace, service) in services {
            let first = UpstreamKey::new(namespace.clone(), service.clone(), "");
            let of_service = |key: &UpstreamKey| key.namespace == *namespace && key.service == *service;
            for (key, _) in config.upstreams.range(first..).take_while(|(key, _)| of_service(key)) {
                if self.external.contains_key(key) {
                    continue;
                }
                let resolved = upstream::resolve(store, key);
                if let Some(change) = self.publisher.set_endpoints(key, &resolved.upstream.endpoints) {
                    drop((self.publish)(change, heard));
                }
                let before = match &resolved.problem {
                    Some(problem) => translation.upstream_problems.insert(key.clone(), problem.clone()),
                    None => translation.upstream_problems.remove(key),
                };
                has_problems |= before != resolved.problem;
            }
        }
        has_problems
    }

    /// Reports changed problems: of the source and of its single objects (`of_source`), and between objects.
    pub(super) fn report(&self, store: &Store, of_source: impl Iterator<Item = Problem>) {
        let mut problems: Vec<Problem> = of_source.collect();
        if let Some(translation) = &self.translation {
            problems.extend(translation.problems.iter().cloned());
            problems.extend(translation.upstream_problems.values().cloned());
        }
        problems
            .extend(self.translation.iter().flat_map(|translation| self.acme.problems(&translation.acme)));
        problems.extend(self.external.iter().filter_map(|(key, target)| {
            let fault = self.resolver.fault(target)?;
            let has_endpoints = self.publisher.endpoints(key).is_some_and(|endpoints| !endpoints.is_empty());
            upstream::unresolvable(store, key, &target.0, fault, has_endpoints)
        }));
        let problems = without_repeats(problems);
        let before = self.problems.borrow().clone();
        if *before == *problems {
            return;
        }
        let is_there: HashSet<&Problem> = problems.iter().collect();
        let was_there: HashSet<&Problem> = before.iter().collect();
        for problem in problems.iter().filter(|problem| !was_there.contains(problem)) {
            match problem.severity {
                Severity::Error => tracing::error!("{problem}"),
                Severity::Warning => tracing::warn!("{problem}"),
                Severity::Note => tracing::info!("{problem}"),
            }
        }
        for problem in before.iter().filter(|problem| !is_there.contains(problem)) {
            tracing::info!("solved: {problem}");
        }
        self.problems.send_replace(problems.into());
    }
}

/// The objects of other classes.
fn foreign(translation: &Translation) -> impl Iterator<Item = &ObjectRef> {
    translation.foreign.iter().filter_map(|note| note.object.as_ref())
}

/// Several ports may name one Service, each with the same problem.
pub(super) fn without_repeats(mut problems: Vec<Problem>) -> Vec<Problem> {
    let mut seen = HashSet::new();
    problems.retain(|problem| seen.insert(problem.clone()));
    problems
}
