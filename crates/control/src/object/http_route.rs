//! `HTTPRoute`. A `GRPCRoute` differs only in its matches: see [`grpc_route`](super::grpc_route).

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use sluicegate_model::PathPattern;
use sluicegate_model::feature::{BackendFeatures, Cors, DirectResponse, Features};
use sluicegate_model::rule::{HeaderMatch, PathMatch, Pattern, QueryMatch, RuleMatch, ValueMatch};
use sluicegate_model::value::{Number, syntax};

use super::external_auth::ExternalAuth;
use super::gateway_api::{self, HttpMatch, HttpRouteSpec, NamedMatch, Written};
use super::http_filter::Invalid;
use super::kind::Raw;
use super::route::{BackendRef, Hostname, ParentRef, check_hostnames, check_parents};
use super::{Object, ObjectRef, annotation, http_filter, path, session_persistence};
use crate::problem::{Findings, Severity};
use crate::status::Fault;

/// The longest list of header conditions, and of query conditions (Gateway API).
const CONDITIONS_MAX: usize = 16;

/// A checked `HTTPRoute` or `GRPCRoute`: the parts of it that can be served.
#[derive(Debug, PartialEq)]
pub(crate) struct HttpRoute {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    /// The priority among the routes of a listener, by its annotation.
    pub(crate) priority: u32,
    /// The valid entries of `spec.parentRefs`.
    pub(crate) parents: Vec<ParentRef>,
    /// The valid entries of `spec.hostnames`, if there are any entries; possibly empty, if none is valid.
    pub(crate) hostnames: Option<Vec<Hostname>>,
    /// The rules with a valid match.
    pub(crate) rules: Vec<HttpRule>,
    /// The names of all rules that have a name, with a valid match or not.
    pub(crate) rule_names: Vec<Arc<str>>,
    /// The first error in a rule, beside its backends.
    pub(crate) fault: Option<Fault>,
    /// Whether a rule is without an error.
    pub(crate) is_usable: bool,
    /// Whether a rule has an invalid filter `ExternalAuth`, or plugins of Kong are attached.
    pub(crate) closes: bool,
}

/// A rule with a valid match.
#[derive(Debug, PartialEq)]
pub(crate) struct HttpRule {
    /// Its place in `spec.rules`.
    pub(crate) index: usize,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) matches: Vec<RuleMatch>,
    /// The features of filters, timeouts and retries. A rule with an invalid filter responds with 500: no filter may be
    /// skipped (Gateway API, `HTTPRouteFilter`).
    pub(crate) features: Arc<Features>,
    /// Whether the session persistence of the rule is invalid. Then no session persistence applies, not even that of a policy.
    pub(crate) is_sessionless: bool,
    /// Cross-origin requests, which a filter sets.
    pub(crate) cors: Option<Cors>,
    /// The backends that mirrors name, each with the place of the filter.
    pub(crate) mirrors: Vec<(usize, BackendRef)>,
    /// The filters `ExternalAuth`, each with its place.
    pub(crate) auth: Vec<(usize, ExternalAuth)>,
    /// Whether a filter `ExternalAuth` is invalid, or plugins of Kong are attached.
    pub(crate) closes: bool,
    pub(crate) backends: Vec<HttpBackend>,
}

/// A backend of a rule.
#[derive(Debug, PartialEq)]
pub(crate) struct HttpBackend {
    pub(crate) reference: BackendRef,
    /// The features of the backend's filters.
    pub(crate) features: Option<Box<BackendFeatures>>,
}

/// The features of a rule. Rules without features share one value, because most rules have none.
fn shared(features: Features) -> Arc<Features> {
    static NONE: LazyLock<Arc<Features>> = LazyLock::new(Arc::default);
    if features == **NONE { NONE.clone() } else { Arc::new(features) }
}

/// The field of a backend, as problems name it.
pub(crate) fn backend_field(rule: usize, backend: usize) -> String {
    format!("spec.rules[{rule}].backendRefs[{backend}]")
}

/// The field of a filter, as problems name it.
pub(crate) fn filter_field(rule: usize, filter: usize) -> String {
    format!("spec.rules[{rule}].filters[{filter}]")
}

/// A match as written.
pub(super) trait Match: Default {
    /// A valid match, or the faulty field and the reason.
    fn check(self) -> Result<RuleMatch, Invalid>;
}

impl HttpRoute {
    pub(super) fn check<M: Match, S: Into<HttpRouteSpec<M>>>(
        raw: Written<S>,
        object: &ObjectRef,
        findings: &mut Findings,
    ) -> Self {
        let annotations = raw.metadata.annotations.as_ref();
        let priority = annotation::read(object.kind, annotations, &object.namespace, findings).priority;
        let spec = raw.spec.map(Into::into).unwrap_or_default();
        let parents = check_parents(spec.parent_refs, &object.namespace, findings);
        let hostnames = spec.hostnames.filter(|hostnames| !hostnames.is_empty());
        let hostnames = hostnames.map(|hostnames| check_hostnames(hostnames, findings));
        // Without rules the API server writes one rule for all requests.
        let rules = spec.rules.unwrap_or_else(|| vec![gateway_api::HttpRule::default()]);
        let rule_names = rules.iter().filter_map(|rule| rule.name.as_deref().map(Into::into)).collect();
        let (mut checked, mut fault, mut is_usable) = (Vec::with_capacity(rules.len()), None, false);
        let has_kong_plugins = annotation::has_kong_plugins(annotations);
        if has_kong_plugins {
            let message = annotation::kong_plugins_fault("all rules of the route respond with 500");
            findings.error(annotation::field(annotation::KONG_PLUGINS), message.clone());
            fault = Some(Fault::new("UnsupportedValue", format!("{}: {message}", annotation::KONG_PLUGINS)));
        }
        for (index, rule) in rules.into_iter().enumerate() {
            let first = findings.0.len();
            checked.extend(HttpRule::check(rule, index, object, findings));
            let of_rule = findings.0[first..].iter().find(|finding| {
                finding.severity == Severity::Error
                    && !finding.field.contains(".backendRefs[")
                    && !finding.field.contains(".externalAuth.backendRef.")
            });
            is_usable |= of_rule.is_none() && !has_kong_plugins;
            let of_rule = of_rule.map(|finding| format!("{}: {}", finding.field, finding.in_words(false)));
            fault = fault.or(of_rule.map(|message| Fault::new("UnsupportedValue", message)));
        }
        if has_kong_plugins {
            checked.iter_mut().for_each(HttpRule::close);
        }
        Self {
            created: raw.metadata.creation_timestamp.map(|time| time.0.as_second()),
            generation: raw.metadata.generation,
            priority,
            parents,
            hostnames,
            closes: checked.iter().any(|rule: &HttpRule| rule.closes),
            rules: checked,
            rule_names,
            fault,
            is_usable,
        }
    }
}

impl HttpRule {
    /// Responds to all requests with 500.
    fn close(&mut self) {
        self.features = shared(internal_error());
        self.mirrors = Vec::new();
        self.auth = Vec::new();
        self.closes = true;
    }

    fn check<M: Match>(
        raw: gateway_api::HttpRule<M>,
        index: usize,
        object: &ObjectRef,
        findings: &mut Findings,
    ) -> Option<Self> {
        let field = format!("spec.rules[{index}]");
        // Without matches the API server writes a match for all paths.
        let written = raw.matches.filter(|matches| !matches.is_empty());
        let written = written.unwrap_or_else(|| vec![M::default()]);
        let mut matches = Vec::with_capacity(written.len());
        for (nth, of) in written.into_iter().enumerate() {
            let field = format!("{field}.matches[{nth}]");
            match of.check() {
                Ok(of) => matches.push(of),
                Err((within, fault)) => {
                    findings.error_or(format!("{field}.{within}"), fault, "the match is ignored");
                }
            }
        }
        if matches.is_empty() {
            return None;
        }
        let mut filters = http_filter::of_rule(raw.filters.unwrap_or_default(), &field, object, findings);
        let mut features = &mut filters.features;
        if let Some(timeouts) = raw.timeouts {
            http_filter::timeouts(&timeouts, &field, features, findings);
        }
        if let Some(retry) = raw.retry {
            http_filter::retry(&retry, &field, features, findings);
        }
        let mut is_sessionless = false;
        if let Some(written) = raw.session_persistence {
            let section = raw.name.clone().unwrap_or_else(|| index.to_string());
            let default = session_persistence::default_name(object, &section);
            features.load_balancing.affinity = session_persistence::check(
                written,
                &format!("{field}.sessionPersistence"),
                &default,
                findings,
            );
            is_sessionless = features.load_balancing.affinity.is_none();
        }
        let written = raw.backend_refs.unwrap_or_default();
        let mut backends = Vec::with_capacity(written.len());
        for (nth, backend) in written.into_iter().enumerate() {
            let field = backend_field(index, nth);
            let reference = BackendRef::check(backend.backend, &field, &object.namespace, findings);
            let own =
                http_filter::of_backend(backend.filters.unwrap_or_default(), &field, object.kind, findings);
            let (is_valid, own) = own.map_or((false, None), |own| (true, own));
            let service = reference.service.filter(|_| is_valid);
            backends.push(HttpBackend { reference: BackendRef { service, ..reference }, features: own });
        }
        if filters.is_invalid {
            // The other features of the rule must not have an effect either.
            *features = internal_error();
            filters.mirrors = Vec::new();
            filters.auth = Vec::new();
            features = &mut filters.features;
        }
        if backends.is_empty() && features.redirect.is_none() && features.direct_response.is_none() {
            findings.warning(
                format!("{field}.backendRefs"),
                "is missing: requests receive 500. Name a Service and its port",
            );
        }
        Some(Self {
            index,
            name: raw.name.map(Into::into),
            matches,
            features: shared(filters.features),
            is_sessionless,
            cors: filters.cors,
            mirrors: filters.mirrors,
            auth: filters.auth,
            closes: filters.closes,
            backends,
        })
    }
}

/// The features of a rule that cannot be served as written: all requests receive 500.
pub(crate) fn internal_error() -> Features {
    let response = DirectResponse { status_code: Number::of(500), content_type: None, body: "".into() };
    Features { direct_response: Some(response), ..Features::default() }
}

impl Match for HttpMatch {
    fn check(self) -> Result<RuleMatch, Invalid> {
        let written = self.path.unwrap_or_default();
        let value = written.value.as_deref().unwrap_or("/");
        let path = match written.kind.as_deref().unwrap_or("PathPrefix") {
            "Exact" => literal(value, "Exact")?,
            "PathPrefix" => literal(value, "Prefix")?,
            "RegularExpression" => {
                PathMatch::Regex(whole(value).map_err(|fault| ("path.value".to_owned(), fault))?)
            }
            other => {
                let fault = format!("{other:?} is unknown: write Exact, PathPrefix or RegularExpression");
                return Err(("path.type".to_owned(), fault));
            }
        };
        if let Some(method) = &self.method
            && let Some(fault) = syntax::token_fault(method)
        {
            return Err(("method".to_owned(), format!("{method:?} {fault}")));
        }
        let headers = header_matches(self.headers)?;
        let query = conditions(self.query_params.unwrap_or_default(), "queryParams", |name| match name {
            "" => Err("is missing".to_owned()),
            name => Ok(name.into()),
        })?;
        let query = query.into_iter().map(|(name, value)| QueryMatch { name, value }).collect();
        let prefix = match &path {
            PathMatch::Regex(_) => prefix_of(value),
            PathMatch::Literal(_) | PathMatch::Template(_) => None,
        };
        let of = RuleMatch::new(path, self.method.map(Into::into), headers, query);
        // The match keeps the precedence of its expression.
        Ok(match prefix {
            Some(prefix) => RuleMatch { path: PathMatch::Literal(PathPattern::Starts(prefix)), ..of },
            None => of,
        })
    }
}

/// The prefix by character that an expression stands for: plain text before a final `.*`. The data plane finds prefixes faster
/// than expressions.
fn prefix_of(expression: &str) -> Option<Box<str>> {
    let mut prefix = String::with_capacity(expression.len());
    let mut characters = expression.strip_suffix(".*")?.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => prefix.push(characters.next().filter(char::is_ascii_punctuation)?),
            '.' | '^' | '$' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' => return None,
            plain => prefix.push(plain),
        }
    }
    // Only a prefix in normal form is equal to the beginning of a path in normal form.
    syntax::normal_path(&prefix).ok().filter(|normal| **normal == *prefix)
}

/// The header conditions of a match.
pub(super) fn header_matches(written: Option<Vec<NamedMatch>>) -> Result<Vec<HeaderMatch>, Invalid> {
    let headers = conditions(written.unwrap_or_default(), "headers", syntax::header_name)?;
    Ok(headers.into_iter().map(|(name, value)| HeaderMatch { name, value }).collect())
}

fn literal(value: &str, path_type: &str) -> Result<PathMatch, Invalid> {
    let pattern: PathPattern =
        path::parse(value, path_type).map_err(|(_, fault)| ("path.value".to_owned(), fault))?;
    Ok(PathMatch::Literal(pattern))
}

/// A regular expression for a whole text, as in Envoy's gateways: Gateway API leaves the dialect to the implementation.
fn whole(text: &str) -> Result<Pattern, String> {
    // The expression alone must be valid: `a)(b` is not.
    Pattern::new(text, false).map_err(|error| error.to_string())?;
    Pattern::new(format!("^(?:{text})$"), false).map_err(|error| error.to_string())
}

/// Conditions with their names. Of several conditions for one name, the first applies (Gateway API, `HTTPRouteMatch`).
fn conditions(
    written: Vec<NamedMatch>,
    list: &str,
    check_name: impl Fn(&str) -> Result<Box<str>, String>,
) -> Result<Vec<(Box<str>, ValueMatch)>, Invalid> {
    if written.len() > CONDITIONS_MAX {
        let fault = format!("has {} entries, but may have at most {CONDITIONS_MAX}", written.len());
        return Err((list.to_owned(), fault));
    }
    let mut names = HashSet::new();
    let mut all = Vec::with_capacity(written.len());
    for (index, entry) in written.into_iter().enumerate() {
        let at = |within: &str| format!("{list}[{index}].{within}");
        let name =
            check_name(entry.name.as_deref().unwrap_or_default()).map_err(|fault| (at("name"), fault))?;
        let value = entry.value.unwrap_or_default();
        let value = match entry.kind.as_deref().unwrap_or("Exact") {
            "Exact" => ValueMatch::Exact(value.into()),
            "RegularExpression" => ValueMatch::Regex(whole(&value).map_err(|fault| (at("value"), fault))?),
            other => {
                return Err((at("type"), format!("{other:?} is unknown: write Exact or RegularExpression")));
            }
        };
        if names.insert(name.clone()) {
            all.push((name, value));
        }
    }
    Ok(all)
}

impl Raw for Written<HttpRouteSpec<HttpMatch>> {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(HttpRoute::check::<HttpMatch, _>(self, object, findings).into())
    }
}
