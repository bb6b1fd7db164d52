//! `Api`: a rule for each operation of its document, and the responses to all other requests below its base path.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate_model::feature::{DirectResponse, Features, Header, HeaderEdits};
use sluicegate_model::rule::{ApiOperation, HttpsRedirect, PathMatch, RuleMatch};
use sluicegate_model::value::{CipherSuites, EditedHeader, Entries, HeaderValue, MediaType, Number};
use sluicegate_model::{PathPattern, PathTemplate};
use sluicegate_openapi::{Method, Operation};

use crate::frontend::certificate;
use crate::intent::{At, Host, Https, Intent, Intents, Own, Passthrough, Place, Rule, Tls};
use crate::merge::policy::standing::{Reason, Standing};
use crate::object::api::contract::Contract;
use crate::object::api::{Api, DocumentSource, Environment};
use crate::problem::{Problem, Severity};
use crate::store::Store;
use crate::upstream;

mod rewrite;

/// Adds the intents of Apis, the oldest first.
pub(super) fn ask<'a>(store: &'a Store, intents: &mut Intents<'a>) {
    let mut apis: Vec<_> =
        store.all::<Api>().map(|(object, api, origin)| (At { object, origin }, api)).collect();
    apis.sort_by_cached_key(|(at, api)| at.age(api.created));
    for (at, api) in apis {
        let before = intents.problems.len();
        let contract = contract(store, at, api, &mut intents.problems);
        let intent = intent(store, at, api, contract.as_deref(), &mut intents.problems);
        intents.http.push(intent);
        let mut faults =
            intents.problems[before..].iter().filter(|problem| problem.severity == Severity::Error);
        let fault = store.error_of(at.object).or_else(|| faults.next().map(Problem::within));
        let reason = if fault.is_some() { Reason::Invalid } else { Reason::Accepted };
        let (object, message) = (at.object.clone(), fault.unwrap_or_default());
        intents.standings.push(Standing { object, target: None, ancestors: Vec::new(), reason, message });
    }
}

/// The document of an Api. Without a document, all requests receive 503.
fn contract(store: &Store, at: At<'_>, api: &Api, problems: &mut Vec<Problem>) -> Option<Arc<Contract>> {
    let (object, key) = match api.document.as_ref()? {
        DocumentSource::Inline(contract) => return Some(contract.clone()),
        DocumentSource::ConfigMap { object, key } => (object, key),
    };
    let field = "spec.document.configMap";
    let mut fault = |message: String| {
        let message = format!("{message}; requests for the API receive 503");
        problems.push(at.problem(Severity::Error, field, message));
    };
    let Some((configmap, _)) = store.configmap(object) else {
        fault(format!("{object} does not exist"));
        return None;
    };
    let Some(text) = configmap.data.get(key).and_then(|text| std::str::from_utf8(text).ok()) else {
        fault(format!("{object} has no text in data[{key}]"));
        return None;
    };
    let contract = configmap.documents.get(key, text);
    for found in &contract.faults {
        let severity = if found.is_error { Severity::Error } else { Severity::Warning };
        problems.push(at.problem(severity, field, format!("data[{key}]: {}", found.message)));
    }
    Some(contract)
}

fn intent<'a>(
    store: &Store,
    at: At<'a>,
    api: &'a Api,
    contract: Option<&Contract>,
    problems: &mut Vec<Problem>,
) -> Intent<'a> {
    let mut hosts = Vec::new();
    for environment in &api.environments {
        let rules = Rules { store, at, api, environment, contract, problems: &mut *problems };
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
        place: Place::EnvironmentSecret(environment.index),
        named: &environment.hosts,
        is_for_all_hosts: false,
        hosts: Cow::Borrowed(&environment.hosts[..]),
        certificate: Some(certificate::of_secret(store, secret)),
    });
    Intent {
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
    }
}

fn https() -> Https {
    Https { is_forced: false, if_tls: None, redirect: HttpsRedirect::default() }
}

/// The rules of an environment.
struct Rules<'r, 'a> {
    store: &'r Store,
    at: At<'a>,
    api: &'a Api,
    environment: &'a Environment,
    contract: Option<&'r Contract>,
    problems: &'r mut Vec<Problem>,
}

impl Rules<'_, '_> {
    fn build(mut self) -> Vec<Rule> {
        let Some(contract) = self.contract else {
            let base = self.environment.base_path.as_deref().unwrap_or_default();
            let closed =
                response(503, "Service Unavailable", "The document of the API cannot be read.", None);
            let label = self.label("", None);
            return vec![self.rule(below(base), None, Some(self.own(closed)), &[], &label)];
        };
        let of_document = contract.document.servers.first().map_or("", |server| &server.path);
        let base = self.environment.base_path.as_deref().unwrap_or(of_document).to_owned();
        let upstream = upstream::key(self.store, &self.environment.upstream, None, None);
        let rewritten = self.environment.endpoint_path.as_deref().filter(|path| **path != *base);
        let own =
            rewritten.and_then(|path| rewrite::base_path(&base, path)).map(|features| self.own(features));
        let mut paths: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
        for operation in &contract.document.operations {
            paths.entry(&operation.path).or_default().push(operation);
        }
        let mut rules = Vec::new();
        let version: &str = self.api.version.as_deref().unwrap_or(&contract.document.version);
        let other = self.label(version, None);
        for (path, operations) in paths {
            let Some(path) = self.path(&base, path) else { continue };
            let has = |method| operations.iter().any(|operation| operation.method == method);
            for operation in &operations {
                let sections = self.sections(operation);
                let label = self.label(version, Some(&operation.id));
                // RFC 9110, 9.3.2: HEAD is GET without the content of the response.
                let head = (operation.method == Method::Get && !has(Method::Head)).then_some(Method::Head);
                for method in [Some(operation.method), head].into_iter().flatten() {
                    let of = matching(path.clone(), Some(method));
                    rules.push(self.rule(of, Some(upstream.clone()), own.clone(), &sections, &label));
                }
            }
            let allow = allowed(&operations);
            if !has(Method::Options) {
                let options = Features { response_headers: allow_header(&allow), ..empty(204) };
                let of = matching(path.clone(), Some(Method::Options));
                rules.push(self.rule(of, None, Some(self.own(options)), &[], &other));
            }
            let refused =
                response(405, "Method Not Allowed", &format!("The path allows {allow}."), Some(&allow));
            rules.push(self.rule(matching(path, None), None, Some(self.own(refused)), &[], &other));
        }
        let missing = response(404, "Not Found", "The API has no such path.", None);
        rules.push(self.rule(below(&base), None, Some(self.own(missing)), &[], &other));
        rules
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

    /// The names by which policies select an operation, the most specific first: its id, then its sets.
    fn sections(&self, operation: &Operation) -> Vec<Arc<str>> {
        let sets = self.api.sets.iter().filter(|set| set.has(operation)).map(|set| set.name.clone());
        std::iter::once(Arc::from(&*operation.id)).chain(sets).collect()
    }

    /// The names of an operation in the records of requests.
    fn label(&self, version: &str, operation: Option<&str>) -> ApiOperation {
        let (environment, operation) = (self.environment.name.clone(), operation.map(Into::into));
        ApiOperation { version: version.into(), environment, operation }
    }

    fn own(&self, features: Features) -> Arc<Own> {
        let (class, features) = (self.at.id(), Arc::new(features));
        Arc::new(Own { class, features, security: None, rate_limits: None, https: https() })
    }

    fn rule(
        &self,
        of: RuleMatch,
        upstream: Option<sluicegate_model::UpstreamKey>,
        own: Option<Arc<Own>>,
        sections: &[Arc<str>],
        label: &ApiOperation,
    ) -> Rule {
        let place = Place::Environment(self.environment.index);
        Rule {
            place,
            of,
            literal: None,
            upstream,
            own,
            sections: sections.into(),
            api: Some(Box::new(label.clone())),
        }
    }
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
