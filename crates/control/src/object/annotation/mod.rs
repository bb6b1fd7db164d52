//! Our annotations (`sluicegate.dev/*`).
//!
//! | module | content |
//! |---|---|
//! | [`table`] | a row for each of our annotations |
//! | [`page`] | the reference page, `docs/reference/annotations.md` |

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use sluicegate_model::Codings;
use sluicegate_model::feature::compression::CodingsError;
use sluicegate_model::value::syntax;
/// The Levenshtein distance: the number of characters to insert, remove or change.
pub(crate) use strsim::levenshtein as edit_distance;

use super::{Kind, ObjectRef};
use crate::problem::Findings;
pub(crate) use table::{
    ACME, AUTH_TLS_CONFIGMAP, AUTH_TLS_PASS_CERTIFICATE, AUTH_TLS_SECRET, AUTH_TLS_VERIFY_CLIENT,
    BACKEND_PROTOCOL, GATEWAY, PRIORITY, PROBLEMS, PROXY_PROTOCOL, PROXY_SSL_NAME, PROXY_SSL_SECRET,
    PROXY_SSL_SERVER_NAME, PROXY_SSL_VERIFY, SSL_PASSTHROUGH, Settings, Verify,
};
use table::{Row, TABLE, Value, Word};

pub(crate) mod page;
mod table;

/// The prefix of our annotations.
const PREFIX: &str = "sluicegate.dev/";

/// The settings of the annotations of an object, and the findings of [`check_names`].
pub(crate) fn read(
    kind: Kind,
    annotations: Option<&BTreeMap<String, String>>,
    namespace: &Arc<str>,
    findings: &mut Findings,
) -> Settings {
    check_names(kind, annotations, findings);
    let mut settings = Settings::default();
    for (name, value) in annotations.into_iter().flatten() {
        if let Some(row) = row(name).filter(|row| row.kinds.contains(&kind)) {
            row.read(value, namespace, &mut settings, findings);
        }
    }
    settings
}

/// Our annotation of this name.
fn row(name: &str) -> Option<&'static Row> {
    if !name.starts_with(PREFIX) {
        return None;
    }
    TABLE.iter().find(|row| row.name == name)
}

impl Row {
    fn read(&self, value: &str, namespace: &Arc<str>, settings: &mut Settings, findings: &mut Findings) {
        if let Err(Fault { message, otherwise }) = self.value.read(value, namespace, settings) {
            findings.error_or(field(self.name), message, otherwise);
        }
    }
}

/// The fault of a value.
struct Fault {
    message: String,
    /// How the gateway treats the object without the value. Empty: the message does not say it.
    otherwise: Cow<'static, str>,
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Self { message, otherwise: "".into() }
    }
}

impl Value {
    /// Changes the settings. An invalid value is an error, and may change them too.
    fn read(&self, value: &str, namespace: &Arc<str>, settings: &mut Settings) -> Result<(), Fault> {
        match self {
            Self::Switch(set) => set(settings, switch(value)?),
            Self::Words { words, otherwise } => match words.iter().find(|word| word.word == value) {
                Some(word) => (word.set)(settings),
                None => {
                    let otherwise = words.iter().find(|word| Some(word.word) == *otherwise);
                    if let Some(word) = otherwise {
                        (word.set)(settings);
                    }
                    let otherwise = otherwise.map(|word| format!("{} is used", word.word));
                    let otherwise = otherwise.unwrap_or_default().into();
                    return Err(Fault { message: unknown_word(value, words), otherwise });
                }
            },
            Self::Object { kind, set, consequence } => match object(*kind, namespace, value) {
                Ok(object) => set(settings, Some(object)),
                Err(message) => {
                    set(settings, None);
                    return Err(Fault { message, otherwise: (*consequence).into() });
                }
            },
            Self::Limit(set) => match value.parse::<u32>() {
                Ok(limit @ 1..) => set(settings, limit),
                _ => {
                    let fault = format!(
                        "{value:?} is not a number from 1 to {}: fix the number, or remove the annotation for no limit",
                        u32::MAX
                    );
                    return Err(fault.into());
                }
            },
            Self::Number(set) => match value.parse::<u32>() {
                Ok(number) => set(settings, number),
                Err(_) => {
                    let fault = format!(
                        "{value:?} is not a number from 0 to {}: fix the number, or remove the annotation",
                        u32::MAX
                    );
                    return Err(fault.into());
                }
            },
            Self::Name(set) => match syntax::dns_name_fault(value) {
                Some(fault) if value.parse::<IpAddr>().is_err() => {
                    return Err(format!("{value:?} {fault}").into());
                }
                _ => set(settings, value.into()),
            },
            Self::Codings(set) => {
                let codings: Result<Codings, CodingsError> = value.parse();
                let fault = codings.as_ref().err().map(ToString::to_string);
                set(settings, codings.unwrap_or(Codings::OFF));
                return fault.map_or(Ok(()), |fault| Err(fault.into()));
            }
            Self::Report => {}
        }
        Ok(())
    }
}

fn switch(value: &str) -> Result<bool, String> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        "on" => Err(format!("{value:?} is neither \"true\" nor \"false\": write \"true\"")),
        "off" => Err(format!("{value:?} is neither \"true\" nor \"false\": write \"false\"")),
        _ => Err(format!("{value:?} is neither \"true\" nor \"false\"")),
    }
}

/// The fault of a value that is none of the words.
fn unknown_word(value: &str, words: &[Word]) -> String {
    if let Some(word) = words.iter().find(|word| word.elsewhere.contains(&value)) {
        return format!("{value:?} is called {0}: write {0}", word.word);
    }
    let names: Vec<&str> = words.iter().map(|word| word.word).collect();
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    let names = format!("{} or {last}", others.join(", "));
    format!("{value:?} is unknown: write {names}")
}

/// The object of the same namespace that an annotation names, as `name` or `namespace/name`.
fn object(kind: Kind, namespace: &Arc<str>, value: &str) -> Result<ObjectRef, String> {
    let (within, name) = value.split_once('/').unwrap_or((namespace, value));
    if *within != **namespace {
        return Err(format!("{value:?} is of another namespace: name an object of the same namespace"));
    }
    match syntax::dns_name_fault(name) {
        Some(fault) => Err(format!("{name:?} {fault}")),
        None => Ok(ObjectRef { kind, namespace: namespace.clone(), name: name.into() }),
    }
}

/// The field of an annotation, as problems name it.
pub(crate) fn field(annotation: &str) -> String {
    format!("metadata.annotations[{annotation}]")
}

/// The annotation by which Kong's controller attaches plugins, which may restrict access.
pub(crate) const KONG_PLUGINS: &str = "konghq.com/plugins";

/// Whether plugins of Kong are attached to the object.
pub(crate) fn has_kong_plugins(annotations: Option<&BTreeMap<String, String>>) -> bool {
    let value = annotations.and_then(|annotations| annotations.get(KONG_PLUGINS));
    value.is_some_and(|value| !value.trim().is_empty())
}

/// The message about attached plugins of Kong. `consequence` says what happens to the requests.
pub(crate) fn kong_plugins_fault(consequence: &str) -> String {
    format!(
        "attaches plugins of Kong, which may restrict access, but is not supported; {consequence}. Replace the plugins by a \
         SecurityPolicy, a RateLimitPolicy or a TrafficPolicy, and remove the annotation"
    )
}

/// Our annotation that replaces an annotation of ingress-nginx of an Ingress, and the object that needs it. `name` has no
/// prefix.
pub(crate) fn replacement(name: &str) -> Option<String> {
    let row = TABLE.iter().find(|row| row.ingress_nginx == Some(name))?;
    Some(match row.kinds {
        kinds if kinds.contains(&Kind::Ingress) => row.name.to_owned(),
        [kind, ..] => format!("{} on the {kind}", row.name),
        [] => row.name.to_owned(),
    })
}

/// Warns of annotations without an effect on an object of this kind.
pub(crate) fn check_names(
    kind: Kind,
    annotations: Option<&BTreeMap<String, String>>,
    findings: &mut Findings,
) {
    for name in annotations.into_iter().flatten().map(|(name, _)| name) {
        if !name.starts_with(PREFIX) {
            continue;
        }
        let message = match row(name) {
            Some(row) if row.kinds.contains(&kind) => continue,
            Some(row) => {
                let right = row.kinds.last().unwrap_or(&kind);
                format!("has no effect on an object of kind {kind}: write it on the {right}")
            }
            None => {
                let known: Vec<&str> =
                    TABLE.iter().filter(|row| row.kinds.contains(&kind)).map(|row| row.name).collect();
                match closest(name, &known) {
                    Some(meant) => format!("is unknown and ignored: did you mean {meant}?"),
                    None => "is unknown and ignored".to_owned(),
                }
            }
        };
        findings.warning(field(name), message);
    }
}

/// The candidate that `name` is most likely a misspelling of.
pub(crate) fn closest<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let (distance, best) = candidates
        .iter()
        .map(|candidate| (edit_distance(&name.to_lowercase(), &candidate.to_lowercase()), *candidate))
        .min()?;
    (distance <= 3).then_some(best)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Kind, Settings, check_names, closest, read};
    use crate::problem::Findings;

    #[test]
    fn misspelled_annotation_name_has_a_suggestion_but_an_unrelated_name_has_none() {
        let known = ["sluicegate.dev/load-balance", "sluicegate.dev/max-requests"];
        assert_eq!(closest("sluicegate.dev/loadbalance", &known), Some(known[0]));
        assert_eq!(closest("sluicegate.dev/Max-Request", &known), Some(known[1]));
        assert_eq!(closest("sluicegate.dev/rewrite-target", &known), None);
    }

    fn findings_of(kind: Kind, name: &str, value: &str) -> (Settings, Vec<String>) {
        let annotations = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let mut findings = Findings::default();
        let settings = read(kind, Some(&annotations), &"default".into(), &mut findings);
        (settings, findings.0.iter().map(|finding| finding.in_words(false)).collect())
    }

    #[test]
    fn error_for_an_annotation_value_of_another_gateway_names_the_valid_values() {
        for (kind, name, value, message) in [
            (Kind::Service, "load-balance", "ewma", "\"ewma\" is called ResponseTime: write ResponseTime"),
            (
                Kind::Service,
                "load-balance",
                "round_robin",
                "\"round_robin\" is called RoundRobin: write RoundRobin",
            ),
            (
                Kind::Service,
                "load-balance",
                "least_request",
                "\"least_request\" is called LeastRequest: write LeastRequest",
            ),
            (
                Kind::Ingress,
                "auth-tls-verify-client",
                "optional_no_ca",
                "\"optional_no_ca\" is called AllowInsecureFallback: write AllowInsecureFallback; AllowValidOnly is used",
            ),
            (
                Kind::Service,
                "proxy-ssl-verify",
                "on",
                "\"on\" is neither \"true\" nor \"false\": write \"true\"",
            ),
            (
                Kind::Ingress,
                "ssl-redirect",
                "off",
                "\"off\" is neither \"true\" nor \"false\": write \"false\"",
            ),
        ] {
            let (_, messages) = findings_of(kind, &format!("sluicegate.dev/{name}"), value);
            assert_eq!(messages, [message], "{name}: {value}");
        }
    }

    #[test]
    fn warning_for_an_annotation_on_the_wrong_kind_names_the_right_kind() {
        let annotations = BTreeMap::from([("sluicegate.dev/ssl-redirect".to_owned(), "true".to_owned())]);
        let mut findings = Findings::default();
        check_names(Kind::Service, Some(&annotations), &mut findings);
        let expected = "has no effect on an object of kind Service: write it on the Ingress";
        assert_eq!(findings.0[0].message, expected);
    }
}
