//! JSON Web Tokens.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_jwt::KeySet;
use sluicegate_model::policy::security::Credential;
use sluicegate_model::policy::{Jwt, JwtKeys, JwtProvider, RemoteKeys};
use sluicegate_model::value::syntax;

use super::authentication::{Need, Needed, check_places};
use super::written::jwt::{self as written, Algorithm, ClaimToHeader, ProviderKeys};
use super::{duration, list, secret, url};
use crate::problem::Findings;

const FIELD: &str = "spec.authentication.jwt";

/// The maximum number of providers of a policy.
const PROVIDERS_MAX: usize = 8;

const CLOCK_SKEW: Duration = Duration::from_secs(60);
const CLOCK_SKEW_MAX: Duration = Duration::from_mins(10);

/// The JWT method at that place. Values of Secrets are added to `needs`.
pub(super) fn check(
    written: written::Jwt,
    method: usize,
    namespace: &Arc<str>,
    needs: &mut Vec<Need>,
    findings: &mut Findings,
) -> Jwt {
    let bearer = Credential::Header { name: "authorization".into(), prefix: "Bearer ".into() };
    let from = check_places(written.from, bearer, &format!("{FIELD}.from"), findings);
    let field = format!("{FIELD}.providers");
    let mut providers: Vec<Arc<JwtProvider>> = Vec::new();
    for (index, provider) in
        list::filled(Some(written.providers), PROVIDERS_MAX, &field, findings).into_iter().enumerate()
    {
        let field = format!("{field}[{index}]");
        if providers.iter().any(|other| *other.name == *provider.name) {
            findings.error(
                format!("{field}.name"),
                format!("{:?} is the name of two providers: rename one", provider.name),
            );
        }
        let of_same_issuer = |other: &&Arc<JwtProvider>| {
            provider.issuer.is_some() && other.issuer.as_deref() == provider.issuer.as_deref()
        };
        // The issuer of a token alone selects the provider: the second provider would never be used.
        if let Some(other) = providers.iter().find(of_same_issuer) {
            let fault =
                format!("is also the issuer of the provider {:?}: merge the two providers", other.name);
            findings.error(format!("{field}.issuer"), fault);
        }
        let (provider, need) = check_provider(provider, &field, namespace, findings);
        needs.extend(need.map(|NamedKeys { field, value, of }| {
            let what = match of {
                Of::Keys => Needed::Keys(index),
                Of::Shared => Needed::Shared(index),
                Of::Authorities(keys) => Needed::Authorities(index, keys),
            };
            Need { field, value, method, what }
        }));
        providers.push(Arc::new(provider));
    }
    Jwt { providers, from, forward: written.forward.unwrap_or(true) }
}

/// A value of a Secret, the field that names it, and its purpose.
struct NamedKeys {
    field: String,
    value: secret::SecretValue,
    of: Of,
}

enum Of {
    Keys,
    Shared,
    Authorities(Arc<RemoteKeys>),
}

fn check_provider(
    written: written::Provider,
    field: &str,
    namespace: &Arc<str>,
    findings: &mut Findings,
) -> (JwtProvider, Option<NamedKeys>) {
    if let Some(fault) = syntax::value_fault(&written.name) {
        findings.error(format!("{field}.name"), format!("{:?} {fault}", written.name));
    }
    if written.issuer.as_deref() == Some("") {
        findings.error(
            format!("{field}.issuer"),
            "is empty: write an issuer, or remove the field to accept every issuer",
        );
    }
    let audiences = list::filled(written.audiences, 16, &format!("{field}.audiences"), findings);
    let algorithms =
        list::filled(written.algorithms, Algorithm::COUNT, &format!("{field}.algorithms"), findings);
    let (keys, need) = check_keys(written.keys, &algorithms, field, namespace, findings);
    let clock_skew = written.clock_skew.and_then(|text| {
        let range = Duration::ZERO..=CLOCK_SKEW_MAX;
        duration::check(&text, range, "0s and 10m", &format!("{field}.clockSkew"), findings)
    });
    let headers = list::filled(written.claim_to_headers, 16, &format!("{field}.claimToHeaders"), findings);
    let provider = JwtProvider {
        name: written.name.into(),
        issuer: written.issuer.map(Into::into),
        audiences: audiences.into_iter().map(Into::into).collect(),
        algorithms: algorithms.iter().map(|algorithm| algorithm.as_str().into()).collect(),
        keys,
        clock_skew: clock_skew.unwrap_or(CLOCK_SKEW),
        allows_eternal: written.allow_missing_expiry.unwrap_or_default(),
        required: written.required_claims,
        headers: check_headers(headers, &format!("{field}.claimToHeaders"), findings),
    };
    (provider, need)
}

/// The algorithms with these names.
pub(crate) fn algorithms(names: &[Box<str>]) -> Vec<sluicegate_jwt::Algorithm> {
    names.iter().filter_map(|name| sluicegate_jwt::Algorithm::parse(name)).collect()
}

fn known(algorithms: &[Algorithm]) -> Vec<sluicegate_jwt::Algorithm> {
    algorithms.iter().filter_map(|algorithm| sluicegate_jwt::Algorithm::parse(algorithm.as_str())).collect()
}

/// The keys, and the value of a Secret with the keys.
fn check_keys(
    written: ProviderKeys,
    algorithms: &[Algorithm],
    field: &str,
    namespace: &Arc<str>,
    findings: &mut Findings,
) -> (JwtKeys, Option<NamedKeys>) {
    let keys = format!("{field}.keys");
    let unread = unread_keys;
    let is_shared = written.shared_secret_ref.is_some();
    // Inline and remote keys are public. JWKs in a Secret say for themselves whether they are public or shared.
    let may_be_shared = is_shared || written.secret_ref.is_some();
    let checked = match written {
        ProviderKeys { inline: Some(text), secret_ref: None, shared_secret_ref: None, remote: None } => {
            if let Err(fault) = KeySet::given(text.as_bytes(), &known(algorithms)) {
                findings.error(format!("{keys}.inline"), fault.to_string());
            }
            (JwtKeys::Given(text.into_bytes().into()), None)
        }
        ProviderKeys { inline: None, secret_ref: Some(named), shared_secret_ref: None, remote: None } => {
            let field = format!("{keys}.secretRef");
            let value = secret::check(named, "jwks.json", namespace, &field, findings);
            (unread(), value.map(|value| NamedKeys { field, value, of: Of::Keys }))
        }
        ProviderKeys { inline: None, secret_ref: None, shared_secret_ref: None, remote: Some(remote) } => {
            check_remote(remote, &format!("{keys}.remote"), namespace, findings)
        }
        ProviderKeys { inline: None, secret_ref: None, shared_secret_ref: Some(named), remote: None } => {
            let field = format!("{keys}.sharedSecretRef");
            let value = secret::check(named, "secret", namespace, &field, findings);
            (unread(), value.map(|value| NamedKeys { field, value, of: Of::Shared }))
        }
        _ => {
            let fault =
                "must have exactly one source: write one of inline, secretRef, sharedSecretRef and remote";
            findings.error(keys, fault);
            return (unread(), None);
        }
    };
    // A public key must never be used as a shared secret.
    for (index, algorithm) in algorithms.iter().enumerate() {
        let needed = match algorithm.is_shared() {
            true if !may_be_shared => "keys.sharedSecretRef, or JWKs of kty oct in keys.secretRef",
            false if is_shared => "keys.inline, keys.secretRef or keys.remote",
            _ => continue,
        };
        let fault = format!("{} needs {needed}", algorithm.as_str());
        findings.error(format!("{field}.algorithms[{index}]"), fault);
    }
    checked
}

fn unread_keys() -> JwtKeys {
    JwtKeys::Unusable("its Secret has not been read".into())
}

/// The keys that the issuer publishes.
fn check_remote(
    written: written::RemoteKeys,
    field: &str,
    namespace: &Arc<str>,
    findings: &mut Findings,
) -> (JwtKeys, Option<NamedKeys>) {
    let url = format!("{field}.url");
    if url::check(&written.url, &url, "https://issuer.example.com/keys", findings) {
        findings
            .warning(url, "uses http, so that an attacker in the network can replace the keys: write https");
    }
    let mut time = |text: Option<String>, name: &str, range, named, default| {
        let checked =
            text.map(|text| duration::check(&text, range, named, &format!("{field}.{name}"), findings));
        checked.flatten().unwrap_or(default)
    };
    let refreshes = Duration::from_secs(10)..=Duration::from_hours(24);
    let refresh =
        time(written.refresh_interval, "refreshInterval", refreshes, "10s and 24h", Duration::from_mins(5));
    let timeouts = Duration::from_millis(100)..=Duration::from_secs(60);
    let timeout = time(written.timeout, "timeout", timeouts, "100ms and 60s", Duration::from_secs(5));
    let keys = RemoteKeys { url: written.url.into(), authorities: Vec::new(), refresh, timeout };
    let keys = Arc::new(keys);
    let Some(named) = written.ca_certificate_ref else { return (JwtKeys::Remote(keys), None) };
    let field = format!("{field}.caCertificateRef");
    let value = secret::check(named, "ca.crt", namespace, &field, findings);
    // Without its CA certificate, the server cannot be verified.
    (unread_keys(), value.map(|value| NamedKeys { field, value, of: Of::Authorities(keys) }))
}

pub(super) fn check_claim_name(name: &str, field: &str, findings: &mut Findings) {
    if name.split('.').any(str::is_empty) {
        findings.error(
            field,
            format!("{name:?} is not the name of a claim: write it as sub or realm_access.roles"),
        );
    }
}

fn check_headers(
    written: Vec<ClaimToHeader>,
    field: &str,
    findings: &mut Findings,
) -> Vec<(Box<str>, Box<str>)> {
    let mut headers: Vec<(Box<str>, Box<str>)> = Vec::with_capacity(written.len());
    for (index, ClaimToHeader { claim, header: written }) in written.into_iter().enumerate() {
        check_claim_name(&claim, &format!("{field}[{index}].claim"), findings);
        let field = format!("{field}[{index}].header");
        match syntax::header_name(&written) {
            Err(fault) => findings.error(field, fault),
            Ok(name) => match syntax::reserved_fault(&name) {
                Some(fault) => findings.error(field, format!("{written:?} {fault}: choose another header")),
                None if headers.iter().any(|(_, other)| *other == name) => {
                    findings.error(field, format!("{written:?} is written twice"));
                }
                None => headers.push((claim.into(), name)),
            },
        }
    }
    headers
}
