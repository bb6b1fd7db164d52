//! External HTTP services that authorize requests.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::policy::security::Credential;
use sluicegate_model::policy::{External, ExternalCache, KeyPart, SignIn};
use sluicegate_model::value::syntax;

use super::secret::{self, SecretValue};
use super::written::external::{self as written, ExternalKey, ExternalKeyType, ExternalMethod};
use super::{duration, list, url};
use crate::problem::Findings;

const FIELD: &str = "spec.authentication.extAuth";

const TIMEOUT: Duration = Duration::from_secs(5);

/// The default time that a response of the service is cached.
const ADMITTED: Duration = Duration::from_mins(1);
const REFUSED: Duration = Duration::from_secs(10);
const GOOD_MAX: Duration = Duration::from_hours(24);

/// The service, and the field and the Secret of its CA certificates.
pub(super) fn check(
    written: written::External,
    namespace: &Arc<str>,
    findings: &mut Findings,
) -> (External, Option<(String, SecretValue)>) {
    url::check(&written.url, &format!("{FIELD}.url"), "http://authz.default.svc:8080/check", findings);
    let timeouts = Duration::from_millis(100)..=Duration::from_secs(60);
    let timeout = written.timeout.and_then(|text| {
        duration::check(&text, timeouts, "100ms and 60s", &format!("{FIELD}.timeout"), findings)
    });
    if written.cache.is_some() && written.request_headers.is_some() {
        let fault =
            "has no effect with cache, because the service receives only the parts of cache.key: remove it";
        findings.error(format!("{FIELD}.requestHeaders"), fault);
    }
    let request_headers = written
        .request_headers
        .map(|names| check_names(names, 64, "requestHeaders", request_fault, findings));
    let response_headers = written
        .response_headers
        .map(|names| check_names(names, 32, "responseHeaders", response_fault, findings));
    let external = External {
        url: written.url.into(),
        authorities: Vec::new(),
        method: written.method.unwrap_or(ExternalMethod::Get).as_str().into(),
        timeout: timeout.unwrap_or(TIMEOUT),
        request_headers,
        response_headers: response_headers.unwrap_or_default(),
        sign_in: written.sign_in.map(|sign_in| check_sign_in(sign_in, findings)),
        cache: written.cache.map(|cache| check_cache(cache, findings)),
    };
    let field = format!("{FIELD}.caCertificateRef");
    let authorities = written.ca_certificate_ref.and_then(|named| {
        let value = secret::check(named, "ca.crt", namespace, &field, findings)?;
        Some((field, value))
    });
    (external, authorities)
}

impl ExternalMethod {
    fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
        }
    }
}

/// Names of headers, in lower case.
fn check_names(
    written: Vec<String>,
    most: usize,
    name: &str,
    fault: impl Fn(&str) -> Option<&'static str>,
    findings: &mut Findings,
) -> Vec<Box<str>> {
    let field = format!("{FIELD}.{name}");
    let mut names: Vec<Box<str>> = Vec::with_capacity(written.len());
    for (index, written) in list::filled(Some(written), most, &field, findings).into_iter().enumerate() {
        let field = format!("{field}[{index}]");
        match syntax::header_name(&written) {
            Err(fault) => findings.error(field, fault),
            Ok(name) if names.contains(&name) => {
                findings.warning(field, format!("{written:?} is written twice"));
            }
            Ok(name) => match fault(&name) {
                Some(fault) => findings.error(field, format!("{written:?} {fault}: remove it")),
                None => names.push(name),
            },
        }
    }
    names
}

/// The reason why the gateway cannot send a header of the client to a service.
fn request_fault(lower_case: &str) -> Option<&'static str> {
    match lower_case {
        "authorization" | "cookie" => None,
        "content-type" | "content-encoding" => Some("is about the body, which the service does not receive"),
        name if name.starts_with("x-original-") || name == "x-auth-request-redirect" => {
            Some("is set by the gateway itself")
        }
        name => syntax::reserved_fault(name),
    }
}

/// The reason why the gateway cannot send a header of a response to endpoints.
fn response_fault(lower_case: &str) -> Option<&'static str> {
    match lower_case {
        "authorization" => None,
        "set-cookie" => Some("always goes to the client"),
        name => syntax::reserved_fault(name),
    }
}

fn check_sign_in(written: written::SignIn, findings: &mut Findings) -> SignIn {
    let field = format!("{FIELD}.signIn.url");
    if written.url.contains('#') {
        findings.error(&field, "has a fragment, so that no parameter can be added: remove it");
    }
    let is_path = written.url.starts_with('/') && !written.url.starts_with("//");
    let is_graphic = written.url.bytes().all(|byte| byte.is_ascii_graphic());
    if is_path && (!is_graphic || written.url.parse::<http::Uri>().is_err()) {
        findings.error(&field, format!("{:?} is not a path: write it as /oauth2/start", written.url));
    }
    if !is_path {
        url::check(&written.url, &field, "https://login.example.com/start or /oauth2/start", findings);
    }
    let parameter = written.redirect_parameter.unwrap_or_else(|| "rd".to_owned());
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if parameter.is_empty() || parameter.len() > 64 || !parameter.bytes().all(is_unreserved) {
        let fault = format!("{parameter:?} is invalid: write 1 to 64 letters, digits and any of -._~");
        findings.error(format!("{FIELD}.signIn.redirectParameter"), fault);
    }
    SignIn { url: written.url.into(), parameter: parameter.into() }
}

fn check_cache(written: written::ExternalCache, findings: &mut Findings) -> ExternalCache {
    let field = format!("{FIELD}.cache");
    let mut key = Vec::new();
    let parts = list::filled(Some(written.key), 8, &format!("{field}.key"), findings);
    for (index, part) in parts.into_iter().enumerate() {
        match check_part(part) {
            Ok(part) if key.contains(&part) => {
                findings.warning(format!("{field}.key[{index}]"), "is written twice");
            }
            Ok(part) => key.push(part),
            Err(fault) => findings.error(format!("{field}.key[{index}].name"), fault),
        }
    }
    let mut time = |text: Option<String>, name: &str, default| {
        let checked = text.map(|text| {
            duration::check(
                &text,
                Duration::ZERO..=GOOD_MAX,
                "0s and 24h",
                &format!("{field}.{name}"),
                findings,
            )
        });
        checked.flatten().unwrap_or(default)
    };
    let admitted = time(written.admitted, "admitted", ADMITTED);
    let refused = time(written.refused, "refused", REFUSED);
    ExternalCache { key, admitted, refused }
}

fn check_part(written: ExternalKey) -> Result<KeyPart, String> {
    let part = match written.kind {
        ExternalKeyType::Method => KeyPart::Method,
        ExternalKeyType::Host => KeyPart::Host,
        ExternalKeyType::Path => KeyPart::Path,
        ExternalKeyType::Address => KeyPart::Address,
        ExternalKeyType::Header | ExternalKeyType::Cookie | ExternalKeyType::Query => {
            let name = written.name.filter(|name| !name.is_empty());
            let name = name.ok_or("is missing: name the header, the cookie or the parameter")?;
            return Ok(KeyPart::Value(match written.kind {
                ExternalKeyType::Query => Credential::Query(name.into()),
                ExternalKeyType::Cookie => match syntax::token_fault(&name) {
                    Some(fault) => return Err(format!("{name:?} {fault}")),
                    None => Credential::Cookie(name.into()),
                },
                _ => match (syntax::header_name(&name)?, &*name.to_ascii_lowercase()) {
                    (_, "cookie") => {
                        return Err(
                            "\"Cookie\" has all cookies: write type: Cookie with the name of one".to_owned()
                        );
                    }
                    (name, lower_case) => match request_fault(lower_case) {
                        Some(fault) => return Err(format!("{name:?} {fault}")),
                        None => Credential::Header { name, prefix: "".into() },
                    },
                },
            }));
        }
    };
    match written.name {
        Some(_) => Err("is only for type Header, Cookie and Query: remove it".to_owned()),
        None => Ok(part),
    }
}
