//! `Api`: a rule for each operation of its document, and the responses to all other requests below its base path.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use sluicegate_model::feature::returns::{Body, Condition, Content, Test};
use sluicegate_model::feature::{
    DirectResponse, Features, Header, HeaderEdits, ResponseHeader, ResponseHeaderMode, Return,
    TemplateHeader, TemplateHeaders,
};
use sluicegate_model::rule::{
    ApiOperation, HeaderMatch, HttpsRedirect, PathMatch, QueryMatch, RuleMatch, ValueMatch,
};
use sluicegate_model::value::{
    AnnotatedHeader, CipherSuites, EditedHeader, Entries, HeaderValue, MediaType, Number, Template,
};
use sluicegate_model::{HostPattern, PathPattern, PathTemplate, UpstreamKey};
use sluicegate_openapi::{Method, Need, Operation};

use crate::documents::Documents;
use crate::frontend::certificate;
use crate::intent::{At, Host, Https, Intent, Intents, OfApi, Own, Passthrough, Place, Rule, Tls};
use crate::merge::policy::standing::{Reason, Standing};
use crate::object::api::contract::Contract;
use crate::object::api::lifecycle::{LifecycleState, VersionPlace, Versioning};
use crate::object::api::requirement::Requirement;
use crate::object::api::{Api, DocumentSource, Environment, Found};
use crate::problem::{Problem, Severity};
use crate::store::Store;
use crate::upstream;
use subscriptions::{AllSubscriptions, ApiSubscriptions};

mod checks;
mod rewrite;
mod subscriptions;

/// Adds the intents of Apis, the oldest first.
pub(super) fn ask<'a>(store: &'a Store, documents: &Documents, intents: &mut Intents<'a>) {
    let apis = store.all::<Api>().map(|(object, api, origin)| {
        let at = At { object, origin };
        ApiDocuments { store, documents, at, api, known: BTreeMap::new(), problems: Vec::new() }
    });
    let mut apis: Vec<_> = apis.collect();
    let subscriptions = AllSubscriptions::new(store, intents);
    apis.sort_by_cached_key(|of| of.at.age(of.api.created));
    let defaults = defaults(&mut apis);
    for documents in apis {
        let (at, api) = (documents.at, documents.api);
        let before = intents.problems.len();
        let of = subscriptions.of(at.object, api);
        let (intent, partial) = intent(store, at, api, (documents, &defaults), of, &mut intents.problems);
        intents.http.push(intent);
        intents.partial_apis.extend(partial.map(|reason| (at.object, reason)));
        let mut faults =
            intents.problems[before..].iter().filter(|problem| problem.severity == Severity::Error);
        let fault = store.error_of(at.object).or_else(|| faults.next().map(Problem::within));
        let reason = if fault.is_some() { Reason::Invalid } else { Reason::Accepted };
        let (object, message) = (at.object.clone(), fault.unwrap_or_default());
        intents.standings.push(Standing { object, target: None, ancestors: Vec::new(), reason, message });
    }
}

/// An environment of an Api that serves requests without a version.
struct DefaultVersion<'a> {
    place: VersionPlace,
    name: &'a str,
    base: Box<str>,
    hosts: &'a [HostPattern],
    contract: Arc<Contract>,
}

/// The environments of Apis that serve requests without a version.
fn defaults<'a>(apis: &mut [ApiDocuments<'_, 'a>]) -> Vec<DefaultVersion<'a>> {
    let mut defaults = Vec::new();
    for documents in apis {
        let api = documents.api;
        let Some(Versioning { place, name, is_default: true }) = &api.versioning else { continue };
        for environment in &api.environments {
            let Some(contract) = documents.of(environment) else { continue };
            let base = base_of(environment, Some(&contract)).into();
            defaults.push(DefaultVersion { place: *place, name, base, hosts: &environment.hosts, contract });
        }
    }
    defaults
}

/// The base path of an environment: its own, or else the path of the first server of the document.
fn base_of<'e>(environment: &'e Environment, contract: Option<&'e Contract>) -> &'e str {
    let server = contract.and_then(|contract| contract.document.servers.first());
    environment.base_path.as_deref().unwrap_or(server.map_or("", |server| &server.path))
}

/// The documents of an Api, each read once.
struct ApiDocuments<'d, 'a> {
    store: &'d Store,
    documents: &'d Documents,
    at: At<'a>,
    api: &'a Api,
    known: BTreeMap<String, Option<Arc<Contract>>>,
    /// The problems of the documents that were read, until the intent of the Api reports them.
    problems: Vec<Problem>,
}

impl ApiDocuments<'_, '_> {
    /// The document of an environment. Without a document, all requests receive 503.
    fn of(&mut self, environment: &Environment) -> Option<Arc<Contract>> {
        let (field, source) = self.api.document_of(environment);
        if let Some(known) = self.known.get(&field) {
            return known.clone();
        }
        let contract = source.and_then(|source| self.read(source, &field));
        self.known.insert(field, contract.clone());
        contract
    }

    fn read(&mut self, source: &DocumentSource, field: &str) -> Option<Arc<Contract>> {
        let field = format!("{field}.{}", source.field());
        let (at, problems) = (self.at, &mut self.problems);
        let mut tell = |severity, message: String| problems.push(at.problem(severity, &field, message));
        let (contract, name) = match source.find(self.store, self.documents) {
            Found::Contract(contract, name) => (contract, name),
            Found::Old(contract, fault) => {
                tell(Severity::Error, format!("{fault}; the last valid version stays in service"));
                (contract, String::new())
            }
            Found::Missing(fault) => {
                tell(Severity::Error, format!("{fault}; requests for the API receive 503"));
                return None;
            }
            Found::NotFetched => {
                tell(Severity::Note, "this command does not fetch the document".to_owned());
                return None;
            }
        };
        // The faults of an inline document are faults of the object.
        if !matches!(source, DocumentSource::Inline(_)) {
            for found in &contract.faults {
                let severity = if found.is_error { Severity::Error } else { Severity::Warning };
                tell(severity, format!("{name}{}", found.message));
            }
        }
        Some(contract)
    }
}

/// The intent of an Api, and the reason why it serves only a part of its operations.
fn intent<'a>(
    store: &Store,
    at: At<'a>,
    api: &'a Api,
    (mut documents, defaults): (ApiDocuments<'_, 'a>, &[DefaultVersion<'_>]),
    mut subscriptions: ApiSubscriptions<'_>,
    problems: &mut Vec<Problem>,
) -> (Intent<'a>, Option<&'static str>) {
    let returns =
        Entries::new(api.lifecycle.sunset.and_then(after).into_iter().collect()).unwrap_or_default();
    let template_headers = headers(&api.lifecycle.headers());
    let lifecycle = Features { template_headers, returns, ..Features::default() };
    let mut hosts = Vec::new();
    let mut partial = match api.lifecycle.state {
        LifecycleState::Created | LifecycleState::Blocked | LifecycleState::Retired => {
            Some("its lifecycle state lets it serve no operation")
        }
        LifecycleState::PreReleased | LifecycleState::Published | LifecycleState::Deprecated => None,
    };
    for environment in &api.environments {
        let contract = documents.of(environment);
        if contract.is_none() {
            partial.get_or_insert("one of its documents is not known here");
        }
        problems.append(&mut documents.problems);
        let contract = contract.as_deref();
        let (lifecycle, problems, subscriptions) = (&lifecycle, &mut *problems, &mut subscriptions);
        let rules =
            Rules { store, at, api, environment, contract, defaults, lifecycle, subscriptions, problems };
        let rules = rules.build();
        hosts.extend(environment.hosts.iter().map(|host| Host {
            host: Cow::Borrowed(host),
            rules: rules.clone(),
            passthrough: Passthrough::Off,
        }));
    }
    let with_tls = api
        .environments
        .iter()
        .filter_map(|environment| Some((environment, environment.certificate.as_ref()?)));
    let tls = with_tls.map(|(environment, secret)| Tls {
        acme: None,
        place: Place::EnvironmentSecret(environment.index),
        named: &environment.hosts,
        is_for_all_hosts: false,
        hosts: Cow::Borrowed(&environment.hosts[..]),
        certificate: Some(certificate::of_secret(store, secret)),
    });
    let intent = Intent {
        at,
        created: api.created,
        hosts,
        default: None,
        is_for_all_hosts: false,
        tls: tls.collect(),
        client_auth: None,
        ciphers: CipherSuites::default(),
        https: https(),
        compression: None,
        own: None,
        unmatched: None,
        refuses: None,
        named: Vec::new(),
    };
    (intent, partial)
}

fn https() -> Https {
    Https { is_forced: false, if_tls: None, redirect: HttpsRedirect::default() }
}

/// The rules of an environment.
struct Rules<'r, 's, 'a> {
    store: &'r Store,
    at: At<'a>,
    api: &'a Api,
    environment: &'a Environment,
    contract: Option<&'r Contract>,
    defaults: &'r [DefaultVersion<'r>],
    /// The features of the lifecycle.
    lifecycle: &'r Features,
    subscriptions: &'r mut ApiSubscriptions<'s>,
    problems: &'r mut Vec<Problem>,
}

impl Rules<'_, '_, '_> {
    fn build(mut self) -> Vec<Rule> {
        let document = self.contract.map(|contract| &contract.document);
        let version: &str = match &self.api.version {
            Some(version) => version,
            None => document.map_or("", |document| &document.version),
        };
        let base = base_of(self.environment, self.contract);
        let (base, choice) = self.choice(base, version);
        let other = self.other(version);
        let refused = match (self.api.lifecycle.state, document) {
            (LifecycleState::Created, _) => return Vec::new(),
            (LifecycleState::Retired, _) => Some(gone()),
            (LifecycleState::Blocked, _) => {
                Some(response(503, "Service Unavailable", "The API is blocked.", None))
            }
            (_, None) => {
                Some(response(503, "Service Unavailable", "The document of the API cannot be read.", None))
            }
            (_, Some(_)) => None,
        };
        let mut rules = Vec::new();
        // The lifecycle of the default version says nothing about unknown versions.
        let unknown = self.owned(response(404, "Not Found", "The API has no such version.", None));
        self.add(&mut rules, choice.unknown(&below(&base)), None, &unknown, &other);
        let (Some(document), None) = (document, &refused) else {
            let own = self.own(refused.unwrap_or_default());
            self.add(&mut rules, choice.of(&below(&base)), None, &own, &other);
            self.add_paths_of_defaults(&mut rules, &base, &choice, &own, &other, &HashSet::default());
            return rules;
        };
        let upstream = self
            .environment
            .upstream
            .as_ref()
            .map(|upstream| upstream::key(self.store, upstream, None, None));
        let checks = checks::of(self.contract, self.api, self.environment, &mut |fault| {
            self.problems.push(self.at.problem(Severity::Error, "spec.validation", fault));
        });
        let rewritten = self.environment.endpoint_path.as_deref().filter(|path| **path != *base);
        let rewritten = rewritten.and_then(|path| rewrite::base_path(&base, path));
        let own = self.own(rewritten.unwrap_or_default());
        let mut requirements: HashMap<&[Box<[Need]>], Arc<Requirement>> = HashMap::default();
        let mut paths: BTreeMap<String, Vec<&Operation>> = BTreeMap::new();
        for operation in &document.operations {
            paths.entry(operation.shape()).or_default().push(operation);
        }
        let shapes: HashSet<String> = paths.keys().cloned().collect();
        for operations in paths.into_values() {
            let Some(path) = operations.first().and_then(|first| self.path(&base, &first.path)) else {
                continue;
            };
            let has = |method| operations.iter().any(|operation| operation.method == method);
            for operation in &operations {
                let sections = self.sections(operation);
                let checks = checks.get(&*operation.id).cloned();
                let upstream = upstream.as_ref().filter(|_| !checks.as_ref().is_some_and(|of| of.is_mocked));
                let label = ApiOperation {
                    media_types: checks::media_types(operation),
                    checks: checks.map(Box::new),
                    ..self.label(version, Some(&operation.id))
                };
                let requirement = self.api.enforces_security.then(|| {
                    let security = &*operation.security;
                    let make = || Arc::new(Requirement::new(document, security));
                    requirements.entry(security).or_insert_with(make).clone()
                });
                // The gateway's own responses need no subscription.
                let of_sets = &sections[..sections.len().saturating_sub(1)];
                let subscriptions = upstream.and_then(|_| self.subscriptions.of(of_sets));
                let of_api =
                    OfApi { sections: sections.into(), operation: label, subscriptions, requirement };
                // RFC 9110, 9.3.2: HEAD is GET without the content of the response.
                let head = (operation.method == Method::Get && !has(Method::Head)).then_some(Method::Head);
                for method in [Some(operation.method), head].into_iter().flatten() {
                    let of = choice.of(&matching(path.clone(), Some(method)));
                    self.add(&mut rules, of, upstream, &own, &of_api);
                }
            }
            let allow = allowed(&operations);
            if !has(Method::Options) {
                let options = Features { response_headers: allow_header(&allow), ..empty(204) };
                let of = choice.of(&matching(path.clone(), Some(Method::Options)));
                self.add(&mut rules, of, None, &self.own(options), &other);
            }
            let detail = format!("The path allows {allow}.");
            let refused = self.own(response(405, "Method Not Allowed", &detail, Some(&allow)));
            let of = matching(path, None);
            self.add(&mut rules, choice.of(&of), None, &refused, &other);
            self.add(&mut rules, choice.unknown(&of), None, &unknown, &other);
        }
        let missing = self.own(response(404, "Not Found", "The API has no such path.", None));
        self.add(&mut rules, choice.of(&below(&base)), None, &missing, &other);
        self.add_paths_of_defaults(&mut rules, &base, &choice, &missing, &other, &shapes);
        rules
    }

    /// Lets this version respond at paths that only the default version describes. Otherwise the default version would respond there
    /// that the version is unknown.
    fn add_paths_of_defaults(
        &mut self,
        rules: &mut Vec<Rule>,
        base: &str,
        choice: &Choice,
        own: &Arc<Own>,
        other: &OfApi,
        known: &HashSet<String>,
    ) {
        let Choice::By { is_header, name, is_default: false, .. } = choice else { return };
        let place = if *is_header { VersionPlace::Header } else { VersionPlace::Query };
        let hosts = &self.environment.hosts;
        let (defaults, mut shapes) = (self.defaults, known.clone());
        let of_hosts = defaults.iter().filter(|default| {
            (default.place, default.name, &*default.base) == (place, name, base)
                && default.hosts.iter().any(|host| hosts.contains(host))
        });
        for operation in of_hosts.flat_map(|default| &default.contract.document.operations) {
            if shapes.insert(operation.shape())
                && let Some(path) = self.path(base, &operation.path)
            {
                self.add(rules, choice.of(&matching(path, None)), None, own, other);
            }
        }
    }

    /// The base path, and the conditions on the version.
    fn choice(&self, base: &str, version: &str) -> (String, Choice) {
        match &self.api.versioning {
            Some(Versioning { place: VersionPlace::Path, .. }) => {
                (format!("{base}/{version}"), Choice::Always)
            }
            Some(Versioning { place, name, is_default }) => {
                let (name, version) = (name.clone(), version.into());
                let is_header = *place == VersionPlace::Header;
                (base.to_owned(), Choice::By { is_header, name, version, is_default: *is_default })
            }
            None => (base.to_owned(), Choice::Always),
        }
    }

    fn add(
        &self,
        rules: &mut Vec<Rule>,
        of: Vec<RuleMatch>,
        upstream: Option<&UpstreamKey>,
        own: &Arc<Own>,
        of_api: &OfApi,
    ) {
        rules.extend(of.into_iter().map(|of| Rule {
            place: Place::Environment(self.environment.index),
            of,
            literal: None,
            upstream: upstream.cloned(),
            own: Some(own.clone()).filter(|own| *own.features != Features::default()),
            api: Some(Box::new(of_api.clone())),
        }));
    }

    /// The parts of rules for requests that are for no operation.
    fn other(&self, version: &str) -> OfApi {
        let (sections, operation) = ([self.environment.name.clone()].into(), self.label(version, None));
        OfApi { sections, operation, subscriptions: None, requirement: None }
    }

    /// The parts of rules with these features, and the features of the lifecycle.
    fn own(&self, features: Features) -> Arc<Own> {
        let Features { template_headers, returns, .. } = self.lifecycle.clone();
        self.owned(Features { template_headers, returns, ..features })
    }

    /// The parts of rules with these features.
    fn owned(&self, features: Features) -> Arc<Own> {
        let features = Arc::new(features);
        Arc::new(Own { class: self.at.id(), features, security: None, rate_limits: None, https: https() })
    }

    /// The path of an operation below the base path.
    fn path(&mut self, base: &str, path: &str) -> Option<PathMatch> {
        let whole = format!("{base}{path}");
        let template = PathTemplate::new(&whole);
        match template {
            Ok(template) if template.names().next().is_none() => {
                Some(PathMatch::Literal(PathPattern::Exact(template.as_str().into())))
            }
            Ok(template) => Some(PathMatch::Template(template)),
            Err(fault) => {
                let field = format!("spec.environments[{}].basePath", self.environment.index);
                let problem = self.at.problem(Severity::Error, &field, format!("{whole:?} {fault}"));
                self.problems.push(problem);
                None
            }
        }
    }

    /// The names by which policies select an operation, the most specific first: its id, its sets, its environment.
    fn sections(&self, operation: &Operation) -> Vec<Arc<str>> {
        let sets = self.api.sets.iter().filter(|set| set.has(operation)).map(|set| set.name.clone());
        let id = std::iter::once(Arc::from(&*operation.id));
        id.chain(sets).chain([self.environment.name.clone()]).collect()
    }

    /// The names of an operation in the records of requests.
    fn label(&self, version: &str, operation: Option<&str>) -> ApiOperation {
        let (environment, operation) = (self.environment.name.clone(), operation.map(Into::into));
        ApiOperation { version: version.into(), environment, operation, ..ApiOperation::default() }
    }
}

/// The conditions on the version of a request.
enum Choice {
    Always,
    /// By a header or a parameter.
    By {
        is_header: bool,
        name: Box<str>,
        version: Box<str>,
        is_default: bool,
    },
}

impl Choice {
    /// The bits of a precedence for the method and the other conditions.
    const CONDITIONS: u32 = (1 << 11) - 1;

    /// The matches of requests for the version.
    fn of(&self, of: &RuleMatch) -> Vec<RuleMatch> {
        match self {
            Self::Always => vec![of.clone()],
            Self::By { version, is_default, .. } => {
                // A method that the version does not allow is no reason for another version to decide.
                let rank = u32::from(of.method.is_none());
                let by_version = self.with(of, ValueMatch::Exact(version.clone()), rank);
                let without = is_default.then(|| of.clone());
                std::iter::once(by_version).chain(without).collect()
            }
        }
    }

    /// The match of requests for a version that no other match accepts. Only the default version has one.
    fn unknown(&self, of: &RuleMatch) -> Vec<RuleMatch> {
        match self {
            Self::By { is_default: true, .. } => vec![self.with(of, ValueMatch::Present, 2)],
            _ => Vec::new(),
        }
    }

    /// The match with a condition on the version. Of the matches of a path, the match with the lowest rank decides, before matches
    /// without a version.
    fn with(&self, of: &RuleMatch, value: ValueMatch, rank: u32) -> RuleMatch {
        let mut of = RuleMatch { precedence: of.precedence & !Self::CONDITIONS | rank, ..of.clone() };
        if let Self::By { is_header, name, .. } = self {
            let name = name.clone();
            match is_header {
                true => of.headers.push(HeaderMatch { name, value }),
                false => of.query.push(QueryMatch { name, value }),
            }
        }
        of
    }
}

/// The headers of all responses.
fn headers(headers: &[(&'static str, String)]) -> Option<TemplateHeaders> {
    let header = |(name, value): &(&'static str, String)| {
        let header =
            TemplateHeader { name: AnnotatedHeader::of(name), value: Template::literal(value).ok()? };
        // Endpoints may have links of their own.
        let mode = if *name == "link" { ResponseHeaderMode::AddAlways } else { ResponseHeaderMode::Set };
        Some(ResponseHeader { header, mode })
    };
    let response = Entries::new(headers.iter().filter_map(header).collect()).unwrap_or_default();
    (!headers.is_empty()).then(|| TemplateHeaders { response, ..TemplateHeaders::default() })
}

/// The response from this time on, in seconds since 1970.
fn after(sunset: i64) -> Option<Return> {
    let test = Test::Since(u64::try_from(sunset).ok()?);
    let condition = Condition { subject: Template::literal("").ok()?, test, is_negated: false };
    let body = gone().direct_response?;
    let content = Body { text: Template::literal(&body.body).ok()?, media_type: body.content_type? };
    Some(Return {
        conditions: Entries::new(vec![condition])?,
        status_code: body.status_code,
        content: Some(Content::Body(content)),
    })
}

fn gone() -> Features {
    response(410, "Gone", "The API has ended.", None)
}

fn matching(path: PathMatch, method: Option<Method>) -> RuleMatch {
    RuleMatch::new(path, method.map(|method| method.as_str().into()), Vec::new(), Vec::new())
}

/// All paths below a base path.
fn below(base: &str) -> RuleMatch {
    let base = if base.is_empty() { "/" } else { base };
    matching(PathMatch::Literal(PathPattern::Prefix(base.into())), None)
}

/// The methods of a path, in the form of `Allow`.
fn allowed(operations: &[&Operation]) -> String {
    let has = |method: Method| operations.iter().any(|operation| operation.method == method);
    let is_allowed = |method: &Method| match method {
        Method::Head => has(Method::Get) || has(Method::Head),
        Method::Options => true,
        method => has(*method),
    };
    let names: Vec<&str> =
        Method::ALL.iter().filter(|method| is_allowed(method)).map(|method| method.as_str()).collect();
    names.join(", ")
}

fn allow_header(allow: &str) -> HeaderEdits {
    let header = Header { name: EditedHeader::of("allow"), value: HeaderValue::of(allow) };
    let set = Entries::new(vec![header]).unwrap_or_default();
    HeaderEdits { set, ..HeaderEdits::default() }
}

/// A response without content.
fn empty(status: i64) -> Features {
    let response = DirectResponse { status_code: Number::of(status), content_type: None, body: "".into() };
    Features { direct_response: Some(response), ..Features::default() }
}

/// A problem document (RFC 9457).
fn response(status: i64, title: &str, detail: &str, allow: Option<&str>) -> Features {
    let body = serde_json::json!({"type": "about:blank", "title": title, "status": status, "detail": detail});
    let response = DirectResponse {
        status_code: Number::of(status),
        content_type: Some(MediaType::of("application/problem+json")),
        body: body.to_string().into(),
    };
    Features {
        direct_response: Some(response),
        response_headers: allow.map(allow_header).unwrap_or_default(),
        ..Features::default()
    }
}
