//! The authentication of callers.

use std::sync::Arc;

use sluicegate_model::policy::security::{Authentication, Credential, Method};
use sluicegate_model::policy::{External, RemoteKeys};
use sluicegate_model::value::syntax;

use super::secret::SecretValue;
use super::written::authentication as written;
use super::written::credential::CredentialSource;
use super::{external, jwt, list, secret};
use crate::problem::Findings;

/// The maximum number of places of a credential.
const PLACES_MAX: usize = 8;

/// A part of a policy that is in a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The field that names it.
    pub(crate) field: String,
    pub(crate) value: SecretValue,
    /// The place of its method.
    pub(crate) method: usize,
    pub(crate) what: Needed,
}

/// The kind of the part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    /// The keys of the provider at that place.
    Keys(usize),
    /// The secret that the provider at that place shares.
    Shared(usize),
    /// The CA certificates for the server that publishes the keys of the provider at that place.
    Authorities(usize, Arc<RemoteKeys>),
    /// Names and passwords.
    Users { realm: Box<str>, forward: bool },
    /// The CA certificates for the server of the external service.
    CaCertificates(Arc<External>),
}

/// The methods, without the values of Secrets: methods are unusable without them.
pub(crate) fn check(
    written: written::Authentication,
    namespace: &Arc<str>,
    findings: &mut Findings,
) -> (Authentication, Vec<Need>) {
    let (mut methods, mut needs) = (Vec::new(), Vec::new());
    if let Some(jwt) = written.jwt {
        let method = jwt::check(jwt, methods.len(), namespace, &mut needs, findings);
        methods.push(Method::Jwt(method));
    }
    if let Some(api_key) = written.api_key {
        let field = "spec.authentication.apiKey.from";
        let default = Credential::Header { name: "x-api-key".into(), prefix: "".into() };
        methods.push(Method::ApiKey {
            from: check_places(api_key.from, default, field, findings),
            forward: api_key.forward.unwrap_or_default(),
        });
    }
    if let Some(basic) = written.basic {
        let field = "spec.authentication.basic.secretRef";
        let value = secret::check(basic.secret_ref, "auth", namespace, field, findings);
        let realm = check_realm(basic.realm, findings);
        needs.extend(value.map(|value| Need {
            field: field.to_owned(),
            value,
            method: methods.len(),
            what: Needed::Users { realm, forward: basic.forward.unwrap_or_default() },
        }));
        let reason = "its Secret has not been read".into();
        methods.push(Method::Unusable { method: "basic".into(), reason });
    }
    if let Some(written) = written.ext_auth {
        let (external, authorities) = external::check(written, namespace, findings);
        let external = Arc::new(external);
        match authorities {
            None => methods.push(Method::External(external)),
            Some((field, value)) => {
                // Without its CA certificate, the server cannot be verified.
                let what = Needed::CaCertificates(external);
                needs.push(Need { field, value, method: methods.len(), what });
                let reason = "its Secret has not been read".into();
                methods.push(Method::Unusable { method: "extAuth".into(), reason });
            }
        }
    }
    if methods.is_empty() {
        let fault = "has no method: write at least one of jwt, apiKey, basic and extAuth";
        findings.error("spec.authentication", fault);
    }
    let requires_all = written.require == Some(written::Require::All);
    let consumers = match written.consumers {
        None => Some(vec![namespace.clone()]),
        Some(scope) => check_scope(scope, findings),
    };
    (Authentication { requires_all, methods, consumers }, needs)
}

/// The namespaces of known Consumers; `None` for all.
fn check_scope(written: written::ConsumerScope, findings: &mut Findings) -> Option<Vec<Arc<str>>> {
    let field = "spec.authentication.consumers.namespaces";
    let names = list::filled(Some(written.namespaces), 64, field, findings);
    if names.iter().any(|name| name == "*") {
        return None;
    }
    let mut namespaces: Vec<Arc<str>> = Vec::with_capacity(names.len());
    for (index, name) in names.into_iter().enumerate() {
        match syntax::dns_name_fault(&name) {
            None => namespaces.push(name.into()),
            Some(fault) => findings.error(format!("{field}[{index}]"), format!("{name:?} {fault}")),
        }
    }
    namespaces.sort();
    namespaces.dedup();
    Some(namespaces)
}

fn check_realm(written: Option<String>, findings: &mut Findings) -> Box<str> {
    let realm = written.unwrap_or_else(|| "restricted".to_owned());
    let field = "spec.authentication.basic.realm";
    if realm.is_empty() || realm.len() > 128 {
        findings.error(field, "must have 1 to 128 characters");
    }
    // The realm is sent as a quoted string (RFC 9110, 5.6.4).
    if !realm.bytes().all(|byte| matches!(byte, b' '..=b'~')) || realm.contains(['"', '\\']) {
        findings.error(field, format!("{realm:?} has invalid characters: write ASCII without \" and \\"));
    }
    realm.into()
}

/// The places of a credential in a request.
pub(super) fn check_places(
    written: Option<Vec<CredentialSource>>,
    default: Credential,
    field: &str,
    findings: &mut Findings,
) -> Vec<Credential> {
    if written.is_none() {
        return vec![default];
    }
    let mut places = Vec::new();
    for (index, source) in list::filled(written, PLACES_MAX, field, findings).into_iter().enumerate() {
        match check_place(source) {
            Ok(place) => places.push(place),
            Err((within, fault)) => findings.error(format!("{field}[{index}]{within}"), fault),
        }
    }
    places
}

fn check_place(written: CredentialSource) -> Result<Credential, (&'static str, String)> {
    match written {
        CredentialSource { header: Some(source), query: None, cookie: None } => {
            let name = syntax::header_name(&source.name).map_err(|fault| (".header.name", fault))?;
            let prefix = source.prefix.unwrap_or_default();
            let is_value = prefix.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            if !is_value || !(prefix.is_empty() || prefix.ends_with(' ')) || prefix.starts_with(' ') {
                let fault = format!("{prefix:?} must be a word with a space at its end, such as \"Bearer \"");
                return Err((".header.prefix", fault));
            }
            Ok(Credential::Header { name, prefix: prefix.into() })
        }
        CredentialSource { header: None, query: Some(name), cookie: None } if name.is_empty() => {
            Err((".query", "is empty: name a parameter".to_owned()))
        }
        CredentialSource { header: None, query: Some(name), cookie: None } => {
            Ok(Credential::Query(name.into()))
        }
        CredentialSource { header: None, query: None, cookie: Some(name) } => {
            match syntax::token_fault(&name) {
                // RFC 6265, 4.1.1.
                Some(fault) => Err((".cookie", format!("{name:?} {fault}"))),
                None => Ok(Credential::Cookie(name.into())),
            }
        }
        _ => Err(("", "must have exactly one of header, query and cookie".to_owned())),
    }
}
