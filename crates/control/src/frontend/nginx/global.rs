//! Keys of the ConfigMap for all Ingresses: blocked clients, headers.

use std::sync::Arc;

use sluicegate_model::feature::headers::TemplateHeader;
use sluicegate_model::feature::returns::{Condition, Return, Test};
use sluicegate_model::feature::{ResponseHeader, ResponseHeaderMode, TemplateHeaders};
use sluicegate_model::policy::Security;
use sluicegate_model::rule::Pattern;
use sluicegate_model::value::{AnnotatedHeader, Entries, Number, Template};
use sluicegate_model::{ObjectId, PathPattern};

use super::{Context, Parts};
use crate::intent::{At, Own};
use crate::object::ObjectRef;
use crate::object::ingress::RulePath;
use crate::object::nginx::Settings;
use crate::object::nginx::global::Blocked;
use crate::problem::{Problem, Severity};
use crate::store::Store;

/// The maximum number of headers of a ConfigMap.
const HEADERS_MAX: usize = 32;

/// The headers of all Ingresses.
#[derive(Default)]
pub(super) struct Headers {
    request: Vec<TemplateHeader>,
    response: Vec<ResponseHeader>,
    /// The faults in the ConfigMaps.
    problems: Vec<Problem>,
}

impl Headers {
    pub(super) fn new(store: &Store, settings: &Settings) -> Self {
        let mut headers = Self::default();
        let named = [
            ("proxy-set-headers", &settings.global.request_headers),
            ("add-headers", &settings.global.response_headers),
        ];
        for (key, object) in named.iter().filter_map(|(key, object)| Some((*key, object.as_ref()?))) {
            for header in headers.read(store, key, object) {
                match key {
                    "add-headers" => {
                        headers.response.push(ResponseHeader { header, mode: ResponseHeaderMode::Set });
                    }
                    _ => headers.request.push(header),
                }
            }
        }
        headers
    }

    /// The valid headers of a ConfigMap.
    fn read(&mut self, store: &Store, key: &str, object: &ObjectRef) -> Vec<TemplateHeader> {
        let Some((configmap, origin)) = store.configmap(object) else {
            let message =
                format!("data[{key}]: {object} does not exist; the headers are not sent. Create it");
            self.problems.push(Problem::of_option("--configmap", message));
            return Vec::new();
        };
        let at = At { object, origin };
        let mut found = Vec::new();
        for (name, value) in configmap.data.values() {
            match header(name, value) {
                Ok(header) if found.len() < HEADERS_MAX => found.push(header),
                header => {
                    let fault =
                        header.err().unwrap_or_else(|| format!("is one of more than {HEADERS_MAX} headers"));
                    let message = format!("{fault}; this header is not sent");
                    self.problems.push(at.problem(Severity::Error, &format!("data[{name}]"), message));
                }
            }
        }
        found
    }

    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        self.problems.iter().cloned()
    }

    /// Adds the headers below the headers of an Ingress, which replace headers of the same name.
    pub(super) fn apply(&self, context: &mut Context<'_, '_>, parts: &mut Parts) {
        if self.request.is_empty() && self.response.is_empty() {
            return;
        }
        let own = parts.features.template_headers.clone().unwrap_or_default();
        let is_own = |name: &AnnotatedHeader, others: &[&AnnotatedHeader]| {
            others.iter().any(|other| other.eq_ignore_ascii_case(name))
        };
        let of_request: Vec<_> = own.request.iter().map(|header| &header.name).collect();
        let request = self.request.iter().filter(|header| !is_own(&header.name, &of_request));
        let sets = |header: &&ResponseHeader| header.mode == ResponseHeaderMode::Set;
        let of_response: Vec<_> = own.response.iter().filter(sets).map(|of| &of.header.name).collect();
        let response = self.response.iter().filter(|of| !is_own(&of.header.name, &of_response));
        let request = Entries::new(request.chain(&own.request).cloned().collect());
        let response = Entries::new(response.chain(&own.response).cloned().collect());
        match request.zip(response) {
            Some((request, response)) => {
                parts.features.template_headers = Some(TemplateHeaders { request, response });
            }
            None => {
                let message =
                    "has too many headers; proxy-set-headers and add-headers have no effect. Remove headers";
                context.fault("configuration-snippet", message.to_owned());
            }
        }
    }
}

fn header(name: &str, value: &[u8]) -> Result<TemplateHeader, String> {
    let value = std::str::from_utf8(value).map_err(|_| "is not UTF-8".to_owned())?;
    let value = Template::new(value.trim_end_matches(['\r', '\n'])).map_err(|fault| fault.to_string())?;
    Ok(TemplateHeader { name: AnnotatedHeader::new(name)?, value })
}

/// The parts with a refusal of the clients that no Ingress serves.
pub(super) fn block(blocked: &Blocked, own: &Arc<Own>, id: &ObjectId) -> Arc<Own> {
    if blocked.is_empty() {
        return own.clone();
    }
    let security = || own.security.as_deref().cloned().unwrap_or_else(|| Security::open(id.clone()));
    let agents = blocked.agents.iter().map(|pattern| refusal("$http_user_agent", pattern));
    let referers = blocked.referers.iter().map(|pattern| refusal("$http_referer", pattern));
    let returns: Option<Vec<Return>> = agents.chain(referers).collect();
    let returns = returns.map(|returns| returns.into_iter().chain(own.features.returns.iter().cloned()));
    let returns = returns.and_then(|returns| Entries::new(returns.collect()));
    let deny = || {
        let deny = own.security.iter().flat_map(|security| &security.ip_access.deny);
        Entries::new(deny.chain(&blocked.networks).copied().collect())
    };
    let mut new = Own::clone(own);
    match returns.zip(deny()) {
        Some((returns, deny)) => {
            Arc::make_mut(&mut new.features).returns = returns;
            if !blocked.networks.is_empty() {
                let mut security = security();
                security.ip_access.deny = deny;
                new.security = Some(Arc::new(security));
            }
        }
        None => {
            let reason =
                "the Ingress and block-cidrs, block-user-agents and block-referers have too many entries";
            new.security = Some(Arc::new(Security { refuses: Some(reason.into()), ..security() }));
        }
    }
    Arc::new(new)
}

/// The response to requests with a text that the expression matches.
fn refusal(subject: &str, pattern: &Pattern) -> Option<Return> {
    let condition = Condition {
        subject: Template::new(subject).ok()?,
        test: Test::Matches(pattern.clone()),
        is_negated: false,
    };
    Some(Return { conditions: Entries::new(vec![condition])?, status_code: Number::of(403), content: None })
}

/// Reports a path that `strict-validate-path-type` does not allow.
pub(super) fn check_path(context: &mut Context<'_, '_>, field: &str, path: &RulePath) {
    let is_strict =
        context.settings.global.checks_path_types && !matches!(path.pattern, PathPattern::Starts(_));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/');
    if is_strict && !path.written.bytes().all(is_plain) {
        let message = format!(
            "{:?} has characters that strict-validate-path-type allows only with pathType ImplementationSpecific; the path \
             is served. Change pathType",
            path.written
        );
        context.problems.push(context.at.problem(Severity::Error, &format!("{field}.path"), message));
    }
}
