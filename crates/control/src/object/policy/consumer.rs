//! `Consumer`.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use sluicegate_model::policy::KeyHash;
use sluicegate_model::policy::consumer::{SubjectClaim, TokenSubject};
use sluicegate_model::value::syntax;

use super::secret::SecretValue;
use super::written::consumer::{ApiKeyRef, ConsumerSpec, Token};
use super::{created, list};
use crate::object::gateway_api::Written;
use crate::object::{ObjectRef, annotation};
use crate::problem::{Findings, Severity};

/// The fields that identify a Consumer: API keys, tokens, names.
const CREDENTIALS: [&str; 3] = ["apiKeys", "tokens", "basicUsers"];

/// A checked `Consumer`: the parts that can identify it.
#[derive(Debug, PartialEq)]
pub(crate) struct Consumer {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    pub(crate) username: Box<str>,
    pub(crate) groups: Vec<Box<str>>,
    /// Its API keys, each with its place in `spec.apiKeys`.
    pub(crate) keys: Vec<(usize, ApiKey)>,
    /// Its tokens, each with its place in `spec.tokens`.
    pub(crate) tokens: Vec<(usize, TokenSubject)>,
    /// Its user names, each with its place in `spec.basicUsers`.
    pub(crate) users: Vec<(usize, Box<str>)>,
    /// Whether this Consumer is denied, since its error may be in a restriction.
    pub(crate) is_refused: bool,
}

/// An API key of a Consumer.
#[derive(Debug, PartialEq)]
pub(crate) struct ApiKey {
    /// Its name, for people.
    pub(crate) name: Option<Box<str>>,
    pub(crate) source: KeySource,
    /// The end of its validity, in seconds since 1970.
    pub(crate) expires: Option<u64>,
    pub(crate) is_revoked: bool,
}

/// The place of an API key.
#[derive(Debug, PartialEq)]
pub(crate) enum KeySource {
    Secret(SecretValue),
    Hash(KeyHash),
}

impl ApiKey {
    /// The Secret with the key.
    pub(crate) fn secret(&self) -> Option<&SecretValue> {
        match &self.source {
            KeySource::Secret(value) => Some(value),
            KeySource::Hash(_) => None,
        }
    }
}

impl Consumer {
    pub(crate) fn check(raw: Written<ConsumerSpec>, object: &ObjectRef, findings: &mut Findings) -> Self {
        annotation::check_names(object.kind, raw.metadata.annotations.as_ref(), findings);
        let spec = raw.spec.unwrap_or_default();
        let written_username = spec.username.filter(|name| match syntax::value_fault(name) {
            None => true,
            Some(fault) => {
                findings.error("spec.username", format!("{name:?} {fault}"));
                false
            }
        });
        let groups = list::bounded(spec.groups, 64, "spec.groups", findings);
        let groups = check_groups(groups, "spec.groups", findings);
        let keys = list::bounded(spec.api_keys, 16, "spec.apiKeys", findings);
        let keys = check_keys(keys.into_iter().enumerate(), object, findings);
        let tokens = list::bounded(spec.tokens, 16, "spec.tokens", findings);
        let tokens = check_tokens(tokens.into_iter().enumerate(), findings);
        let users = list::bounded(spec.basic_users, 16, "spec.basicUsers", findings);
        let users = check_users(users, findings);
        // A faulty credential does not identify the Consumer; the others do.
        let is_credential = |field: &str| {
            let (name, rest) = field.split_once('[').unwrap_or((field, ""));
            !rest.is_empty() && name.strip_prefix("spec.").is_some_and(|name| CREDENTIALS.contains(&name))
        };
        let mut errors = findings.0.iter().filter(|finding| finding.severity == Severity::Error);
        let is_refused = errors.any(|finding| !is_credential(&finding.field));
        if keys.is_empty() && tokens.is_empty() && users.is_empty() {
            let fault = "has none of apiKeys, tokens and basicUsers: no caller can be this Consumer";
            findings.warning("spec", fault);
        }
        Self {
            created: raw.metadata.creation_timestamp.map(|time| time.0.as_second()),
            username: written_username.as_deref().unwrap_or(&object.name).into(),
            groups,
            keys,
            tokens,
            users,
            is_refused,
        }
    }

    /// The credentials of a Consumer that cannot be read: no other caller may pass for it. Its error has been reported.
    pub(crate) fn unreadable(raw: &Value, object: &ObjectRef) -> Self {
        let findings = &mut Findings::default();
        let keys = check_keys(list::readable(raw, "apiKeys"), object, findings);
        let tokens = check_tokens(list::readable(raw, "tokens"), findings);
        let users = list::readable::<String>(raw, "basicUsers").into_iter();
        let users = users.map(|(index, user)| (index, user.into())).collect();
        let (created, username) = (created(raw), (&*object.name).into());
        Self { created, username, groups: Vec::new(), keys, tokens, users, is_refused: true }
    }
}

/// Names of groups, which endpoints receive in one header.
pub(crate) fn check_groups(written: Vec<String>, field: &str, findings: &mut Findings) -> Vec<Box<str>> {
    let mut groups: Vec<Box<str>> = Vec::with_capacity(written.len());
    for (index, group) in written.into_iter().enumerate() {
        match syntax::value_fault(&group) {
            Some(fault) => findings.error(format!("{field}[{index}]"), format!("{group:?} {fault}")),
            None if groups.iter().any(|other| **other == *group) => {
                findings.warning(format!("{field}[{index}]"), format!("{group:?} is written twice"));
            }
            None => groups.push(group.into()),
        }
    }
    groups
}

/// API keys, each with its place.
fn check_keys(
    written: impl IntoIterator<Item = (usize, ApiKeyRef)>,
    object: &ObjectRef,
    findings: &mut Findings,
) -> Vec<(usize, ApiKey)> {
    let mut keys: Vec<(usize, ApiKey)> = Vec::new();
    for (index, written) in written {
        let Some(key) = check_key(written, index, object, findings) else { continue };
        let is_same = |(_, known): &&(usize, ApiKey)| key.name.is_some() && known.name == key.name;
        if let Some((other, _)) = keys.iter().find(is_same) {
            let fault =
                format!("is the name of spec.apiKeys[{other}] too: sluicegate key changes both, rename one");
            findings.warning(format!("spec.apiKeys[{index}].name"), fault);
        }
        if let Some((other, _)) = keys.iter().find(|(_, known)| known.source == key.source) {
            let fault = format!("is the same key as spec.apiKeys[{other}]: remove one");
            findings.warning(format!("spec.apiKeys[{index}]"), fault);
        }
        keys.push((index, key));
    }
    keys
}

/// A key with an invalid field is left out: it might have expired.
fn check_key(
    written: ApiKeyRef,
    index: usize,
    object: &ObjectRef,
    findings: &mut Findings,
) -> Option<ApiKey> {
    let field = |name: &str| format!("spec.apiKeys[{index}].{name}");
    if let Some(fault) = written.name.as_deref().and_then(syntax::value_fault) {
        findings.error(field("name"), format!("{:?} {fault}", written.name));
        return None;
    }
    let source = match (written.secret_ref, written.sha256) {
        (Some(secret), None) => KeySource::Secret(SecretValue::new(&secret, "key", &object.namespace)),
        (None, Some(text)) => match hash(&text) {
            Some(hash) => KeySource::Hash(hash),
            None => {
                let fault = "has not 64 hexadecimal digits: write the SHA-256 of the key";
                findings.error(field("sha256"), fault);
                return None;
            }
        },
        _ => {
            let fault = "must have exactly one of secretRef and sha256";
            findings.error(format!("spec.apiKeys[{index}]"), fault);
            return None;
        }
    };
    let expires = match written.expires.map(|text| (text.parse::<Timestamp>(), text)) {
        None => None,
        Some((Ok(time), _)) => Some(u64::try_from(time.as_second()).unwrap_or(0)),
        Some((Err(_), text)) => {
            findings.error(field("expires"), format!("{text:?} is no time: write 2027-01-01T00:00:00Z"));
            return None;
        }
    };
    let name = written.name.map(Into::into);
    Some(ApiKey { name, source, expires, is_revoked: written.revoked.unwrap_or(false) })
}

/// The hash in hexadecimal digits.
fn hash(text: &str) -> Option<KeyHash> {
    let mut hash = [0; 32];
    let digits = text.as_bytes();
    if digits.len() != 2 * hash.len() {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
        let digit = |place: usize| char::from(pair[place]).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(KeyHash(hash))
}

/// Tokens, each with its place.
fn check_tokens(
    written: impl IntoIterator<Item = (usize, Token)>,
    findings: &mut Findings,
) -> Vec<(usize, TokenSubject)> {
    let tokens = written.into_iter();
    tokens.filter_map(|(index, token)| Some((index, check_token(token, index, findings)?))).collect()
}

fn check_token(written: Token, index: usize, findings: &mut Findings) -> Option<TokenSubject> {
    let (claim, value) = match (written.subject, written.client_id) {
        (Some(value), None) => (SubjectClaim::Subject, value),
        (None, Some(value)) => (SubjectClaim::ClientId, value),
        _ => {
            let fault = "must have exactly one of subject and clientId";
            findings.error(format!("spec.tokens[{index}]"), fault);
            return None;
        }
    };
    for (name, is_empty) in
        [("issuer", written.issuer.as_deref() == Some("")), ("subject or clientId", value.is_empty())]
    {
        if is_empty {
            findings.error(format!("spec.tokens[{index}]"), format!("has an empty {name}"));
            return None;
        }
    }
    Some(TokenSubject { issuer: written.issuer.map(Into::into), claim, value: value.into() })
}

fn check_users(written: Vec<String>, findings: &mut Findings) -> Vec<(usize, Box<str>)> {
    let mut users: Vec<(usize, Box<str>)> = Vec::with_capacity(written.len());
    for (index, user) in written.into_iter().enumerate() {
        // RFC 7617, 2: the first colon ends the name.
        let fault = match &*user {
            "" => Some("is empty"),
            user if user.contains(':') || user.contains(char::is_control) => {
                Some("has a colon or a control character, which a user name cannot have")
            }
            user if users.iter().any(|(_, other)| **other == *user) => Some("is written twice"),
            _ => None,
        };
        match fault {
            Some(fault) => findings.error(format!("spec.basicUsers[{index}]"), format!("{user:?} {fault}")),
            None => users.push((index, user.into())),
        }
    }
    users
}
