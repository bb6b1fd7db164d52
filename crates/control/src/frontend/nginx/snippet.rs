//! Snippets.

use std::sync::Arc;

use sluicegate_model::ObjectId;
use sluicegate_model::feature::returns::Return;
use sluicegate_model::feature::{IpAccess, TemplateHeaders};
use sluicegate_model::policy::Security;
use sluicegate_model::value::Entries;

use super::redirect::returned;
use super::{Context, Parts};
use crate::intent::Own;
use crate::object::nginx::snippet::{Response, Snippet};
use crate::object::nginx::{Settings, redirect};

/// Applies `configuration-snippet`, for all paths of an Ingress, and reports faults.
pub(super) fn apply(context: &mut Context<'_, '_>, parts: &mut Parts) {
    let settings = context.settings.clone();
    for (name, snippet) in [
        ("configuration-snippet", &settings.snippet.configuration),
        ("server-snippet", &settings.snippet.server),
    ] {
        for fault in &snippet.faults {
            context.fault(name, fault.clone());
        }
    }
    let snippet = &settings.snippet.configuration;
    if let Err(fault) = apply_to(parts, snippet, &settings.redirect) {
        context.close(parts, "configuration-snippet", fault, None);
    }
}

fn apply_to(
    parts: &mut Parts,
    snippet: &Snippet,
    redirects: &redirect::Settings,
) -> Result<(), &'static str> {
    let features = &mut parts.features;
    for response in &snippet.responses {
        if !features.returns.push(response_of(redirects, response)) {
            return Err("has too many responses");
        }
    }
    for rewrite in &snippet.rewrites {
        if !features.url_rewrite.targets.push(rewrite.clone()) {
            return Err("has too many rewrites");
        }
    }
    if snippet.headers != TemplateHeaders::default() {
        let headers = features.template_headers.get_or_insert_default();
        let added = snippet.headers.request.iter().all(|header| headers.request.push(header.clone()))
            && snippet.headers.response.iter().all(|header| headers.response.push(header.clone()));
        if !added {
            return Err("has too many headers");
        }
    }
    if snippet.host.is_some() {
        features.url_rewrite.host.clone_from(&snippet.host);
    }
    features.limits.request_body = snippet.body_size.or(features.limits.request_body);
    let timeouts = &mut features.timeouts;
    timeouts.connect = snippet.connect_timeout.or(timeouts.connect);
    timeouts.response = snippet.read_timeout.or(timeouts.response);
    let idle = snippet.read_timeout.max(snippet.send_timeout);
    (timeouts.idle, timeouts.tunnel) = (idle.or(timeouts.idle), idle.or(timeouts.tunnel));
    restrict(&mut parts.security, snippet)
}

/// Applies `allow` and `deny`.
fn restrict(security: &mut Security, snippet: &Snippet) -> Result<(), &'static str> {
    if snippet.allow.is_empty() && snippet.deny.is_empty() {
        return Ok(());
    }
    if !security.ip_access.is_open() {
        return Err(
            "has allow or deny beside other annotations about addresses: write all addresses in one place",
        );
    }
    let (allow, deny) = (Entries::new(snippet.allow.clone()), Entries::new(snippet.deny.clone()));
    let (allow, deny) = allow.zip(deny).ok_or("has more than 256 networks")?;
    security.ip_access = IpAccess { allow, deny };
    Ok(())
}

/// The snippet for a host. ingress-nginx takes the first snippet of the Ingresses of a host.
#[derive(Default)]
pub(super) struct ServerSnippet {
    settings: Option<Arc<Settings>>,
    /// Whether an Ingress has the snippet, and not only the ConfigMap.
    is_own: bool,
    /// The fault that closes the host: the snippet may guard the paths of all Ingresses.
    fault: Option<String>,
}

impl ServerSnippet {
    pub(super) fn add(&mut self, settings: &Arc<Settings>) {
        if self.is_own || self.fault.is_some() {
            return;
        }
        let is_of_snippet = |field: &str| field.ends_with("/server-snippet]");
        let fault = settings.faults.iter().find(|fault| fault.closes && is_of_snippet(&fault.field));
        self.fault = fault.map(|fault| fault.message.clone());
        self.is_own = settings.snippet.has_own_server;
        if self.is_own || self.settings.is_none() {
            self.settings = (settings.snippet.server != Snippet::default()).then(|| settings.clone());
        }
    }

    /// The parts of the rules of an Ingress for the host: the responses of the host come first.
    pub(super) fn over(&self, own: &Arc<Own>, id: &ObjectId) -> Arc<Own> {
        let security = || own.security.as_deref().cloned().unwrap_or_else(|| Security::open(id.clone()));
        if let Some(fault) = &self.fault {
            let reason = format!("server-snippet of the host {fault}");
            let security = Some(Arc::new(Security { refuses: Some(reason.into()), ..security() }));
            return Arc::new(Own { security, ..Own::clone(own) });
        }
        let Some(settings) = &self.settings else { return own.clone() };
        let snippet = &settings.snippet.server;
        let mut restricted = security();
        let mut own = Own::clone(own);
        let features = Arc::make_mut(&mut own.features);
        let responses = snippet.responses.iter().map(|response| response_of(&settings.redirect, response));
        let returns: Vec<Return> = responses.chain(features.returns.iter().cloned()).collect();
        let headers = features.template_headers.get_or_insert_default();
        let response = snippet.headers.response.iter().chain(&headers.response).cloned().collect();
        let lists = Entries::new(returns).zip(Entries::new(response));
        // An Ingress with addresses of its own replaces those of the host, as in nginx.
        let access = match restricted.ip_access.is_open() {
            true => restrict(&mut restricted, snippet),
            false => Ok(()),
        };
        match lists {
            Some((returns, response)) if access.is_ok() => {
                (features.returns, headers.response) = (returns, response);
                if *headers == TemplateHeaders::default() {
                    features.template_headers = None;
                }
            }
            _ => restricted.refuses = Some("server-snippet of the host has too many directives".into()),
        }
        if restricted != Security::open(id.clone()) {
            own.security = Some(Arc::new(restricted));
        }
        Arc::new(own)
    }
}

fn response_of(settings: &redirect::Settings, Response { conditions, status, text }: &Response) -> Return {
    let mut response = returned(settings, *status, text.clone());
    // A snippet has at most three conditions for a response.
    response.conditions = Entries::new(conditions.clone()).unwrap_or_default();
    response
}
