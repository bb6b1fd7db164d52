//! The annotations of ingress-nginx on an Ingress, checked by themselves.
//!
//! A file for each group of annotations has a table of [`Row`]s, and the settings that the rows change. The file of the same name
//! in [`frontend::nginx`](crate::frontend::nginx) applies the settings to the rules of the Ingress.
//!
//! | module | annotations |
//! |---|---|
//! | [`value`] | the types of values, as ingress-nginx reads them |
//! | [`access`] | client IPs |
//! | [`alias`] | further names of hosts |
//! | [`auth`] | passwords, external authorization services |
//! | [`client_certificate`] | client certificates |
//! | [`configmap`] | keys of the ConfigMap |
//! | [`global`] | keys of the ConfigMap for all Ingresses |
//! | [`https`] | redirects to HTTPS, TLS passthrough |
//! | [`backend`] | the protocol and TLS to endpoints |
//! | [`pattern`] | the regular expressions of a path |
//! | [`rewrite`] | regular expressions of paths, rewrites |
//! | [`limits`] | limits of requests, connections and bandwidth |
//! | [`redirect`] | redirects to other URLs |
//! | [`hash`] | consistent hashing |
//! | [`snippet`] | directives of snippets |
//! | [`proxy`] | timeouts and sizes |
//! | [`upstream`] | load balancing, retries, the form of requests, buffers |
//! | [`errors`] | error pages, the default backend |
//! | [`response`] | rewrites of responses |
//! | [`risk`] | the risks of annotations |
//! | [`services`] | ports for TCP and UDP that lead to Services |
//! | [`session`] | session affinity |
//! | [`canary`] | canaries |
//! | [`cors`] | cross-origin requests |
//! | [`mirror`] | mirrored requests |
//! | `page` | the reference page |
//! | [`observability`] | the access log, traces |
//! | [`unsupported`] | annotations without an effect, and refused annotations |

use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::ObjectRef;
use super::annotation::{closest, field};
use risk::Risk;
use value::Value;

pub(crate) mod access;
pub(crate) mod alias;
pub(crate) mod auth;
pub(crate) mod backend;
pub(crate) mod canary;
pub(crate) mod client_certificate;
pub(crate) mod configmap;
pub(crate) mod cors;
pub(crate) mod errors;
pub(crate) mod global;
pub(crate) mod hash;
pub(crate) mod https;
pub(crate) mod limits;
pub(crate) mod mirror;
pub(crate) mod observability;
#[cfg(test)]
mod page;
pub(crate) mod pattern;
pub(crate) mod proxy;
pub(crate) mod redirect;
pub(crate) mod response;
pub(crate) mod rewrite;
pub(crate) mod risk;
pub(crate) mod services;
pub(crate) mod session;
pub(crate) mod snippet;
mod unsupported;
pub(crate) mod upstream;
pub(crate) mod value;

/// The prefix of annotations without `--annotations-prefix`.
pub(crate) const PREFIX: &str = "nginx.ingress.kubernetes.io";

/// The tables of all groups, in the order of the reference page.
const GROUPS: &[&[Row]] = &[
    alias::ROWS,
    https::ROWS,
    rewrite::ROWS,
    redirect::ROWS,
    hash::ROWS,
    snippet::ROWS,
    backend::ROWS,
    proxy::ROWS,
    access::ROWS,
    limits::ROWS,
    auth::ROWS,
    client_certificate::ROWS,
    upstream::ROWS,
    errors::ROWS,
    response::ROWS,
    session::ROWS,
    canary::ROWS,
    cors::ROWS,
    mirror::ROWS,
    observability::ROWS,
    unsupported::ROWS,
];

/// An annotation.
pub(crate) struct Row {
    /// The name without the prefix.
    pub(crate) name: &'static str,
    /// Whether the annotation restricts access. The routes of an Ingress with a fault in such an annotation respond with 503.
    pub(crate) restricts: bool,
    pub(crate) meaning: Meaning,
    /// The effect, as a sentence of the reference page.
    pub(crate) sets: &'static str,
    /// The value without the annotation; empty if there is none.
    pub(crate) default: &'static str,
}

/// The meaning of an annotation.
pub(crate) enum Meaning {
    /// The annotation changes settings. The error is the rest of a sentence about the annotation.
    Sets(fn(&mut Settings, &Value<'_>) -> Result<(), String>),
    /// The gateway needs no such setting: [`Row::sets`] says why.
    Harmless,
    /// The gateway does not support the annotation. The text says what to write instead.
    Refused(&'static str),
}

/// The settings of an Ingress. Thousands of Ingresses share the groups that their annotations do not change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) alias: Shared<alias::Settings>,
    pub(crate) https: Shared<https::Settings>,
    pub(crate) backend: Shared<backend::Settings>,
    pub(crate) proxy: Shared<proxy::Settings>,
    pub(crate) rewrite: Shared<rewrite::Settings>,
    pub(crate) access: Shared<access::Settings>,
    pub(crate) limits: Shared<limits::Settings>,
    pub(crate) auth: Shared<auth::Settings>,
    pub(crate) client_certificate: Shared<client_certificate::Settings>,
    pub(crate) upstream: Shared<upstream::Settings>,
    pub(crate) errors: Shared<errors::Settings>,
    pub(crate) response: Shared<response::Settings>,
    pub(crate) session: Shared<session::Settings>,
    pub(crate) canary: Shared<canary::Settings>,
    pub(crate) cors: Shared<cors::Settings>,
    pub(crate) mirror: Shared<mirror::Settings>,
    pub(crate) redirect: Shared<redirect::Settings>,
    pub(crate) hash: Shared<hash::Settings>,
    pub(crate) snippet: Shared<snippet::Settings>,
    pub(crate) observability: Shared<observability::Settings>,
    pub(crate) global: Shared<global::Settings>,
    /// The Secrets and ConfigMaps that annotations name.
    pub(crate) references: Vec<ObjectRef>,
    pub(crate) faults: Vec<Fault>,
}

/// A group of settings, which is copied by its first change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared<T>(Arc<T>);

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

/// A fault in an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The annotation, or the key of the ConfigMap, as a field.
    pub(crate) field: Box<str>,
    /// The rest of a sentence about the field.
    pub(crate) message: String,
    /// Whether the routes of the Ingress respond with 503.
    pub(crate) closes: bool,
}

/// The names of the annotations with the default prefix, which all Ingresses share.
static NAMES: LazyLock<HashMap<&str, Arc<str>>> =
    LazyLock::new(|| rows().map(|row| (row.name, format!("{PREFIX}/{}", row.name).into())).collect());

/// The annotations of an Ingress that ingress-nginx may read, as written.
#[derive(Debug, Default)]
pub(crate) struct Annotations {
    /// Names with a prefix, and values.
    entries: Box<[(Arc<str>, Box<str>)]>,
    /// The settings, once they were asked for.
    settings: Mutex<Option<Known>>,
}

/// The settings of annotations, and the global settings below them.
#[derive(Debug)]
struct Known {
    globals: Arc<Settings>,
    settings: Arc<Settings>,
}

/// The settings follow from the entries.
impl PartialEq for Annotations {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Annotations {
    /// Takes the annotations with the prefix of ingress-nginx, and annotations with any other prefix and a name of ingress-nginx,
    /// because the prefix is an option.
    pub(crate) fn new(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let entries = annotations.into_iter().flatten().filter_map(|(name, value)| {
            let (prefix, short) = name.split_once('/')?;
            let known = NAMES.get(short).filter(|_| prefix == PREFIX).cloned();
            let may_be_read = known.is_some() || prefix == PREFIX || row(short).is_some();
            may_be_read.then(|| (known.unwrap_or_else(|| name.as_str().into()), value.as_str().into()))
        });
        Self { entries: entries.collect(), settings: Mutex::default() }
    }

    /// The names and values of the annotations with a prefix.
    pub(crate) fn with_prefix<'s>(&'s self, prefix: &'s str) -> impl Iterator<Item = Annotation<'s>> {
        self.entries.iter().filter_map(move |(name, value)| {
            let short = name.strip_prefix(prefix)?.strip_prefix('/')?;
            Some(Annotation { name, short, value })
        })
    }

    /// The settings of the annotations with a prefix, over the global settings. The annotations are read again only if the global
    /// settings have changed. The prefix must be the same for each call.
    pub(crate) fn settings(
        &self,
        prefix: &str,
        globals: &Arc<Settings>,
        namespace: &Arc<str>,
    ) -> Arc<Settings> {
        if self.with_prefix(prefix).next().is_none() {
            return globals.clone();
        }
        let mut known = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Known { settings, .. }) =
            known.as_ref().filter(|known| Arc::ptr_eq(&known.globals, globals))
        {
            return settings.clone();
        }
        let mut settings = Settings::clone(globals);
        for annotation in self.with_prefix(prefix) {
            annotation.read(namespace, &mut settings);
        }
        let settings = Arc::new(settings);
        *known = Some(Known { globals: globals.clone(), settings: settings.clone() });
        settings
    }
}

/// An annotation of an Ingress.
pub(crate) struct Annotation<'a> {
    /// The name with its prefix.
    pub(crate) name: &'a str,
    /// The name without the prefix.
    pub(crate) short: &'a str,
    pub(crate) value: &'a str,
}

impl Annotation<'_> {
    fn read(&self, namespace: &Arc<str>, settings: &mut Settings) {
        let Self { name, short, value } = *self;
        if let Some(fault) = self.refusal(&settings.global) {
            let message = format!("{fault}; {CLOSED}");
            return settings.faults.push(Fault { field: field(name).into(), message, closes: true });
        }
        let (message, closes) = match row(short) {
            None => {
                let restricts = restricts(short, value);
                (unknown(short, restricts), restricts)
            }
            Some(Row { meaning: Meaning::Harmless, .. }) => return,
            Some(Row { meaning: Meaning::Refused(instead), restricts, .. }) => {
                if matches!(value.trim(), "" | "false" | "off" | "0") {
                    return;
                }
                let consequence = if *restricts { CLOSED } else { "the annotation has no effect" };
                (format!("is not supported; {consequence}. {instead}"), *restricts)
            }
            // ingress-nginx ignores annotations without a value, except lists of client IPs.
            Some(Row { meaning: Meaning::Sets(_), .. })
                if value.trim().is_empty() && !lists_addresses(short) =>
            {
                return;
            }
            Some(Row { meaning: Meaning::Sets(set), restricts, .. }) => {
                let crosses_namespaces = settings.global.crosses_namespaces;
                let Err(fault) = set(settings, &Value { text: value.trim(), namespace, crosses_namespaces })
                else {
                    return;
                };
                let consequence = if *restricts { CLOSED } else { "the default applies" };
                (format!("{fault}; {consequence}"), *restricts)
            }
        };
        settings.faults.push(Fault { field: field(name).into(), message, closes });
    }

    /// The reason why the owner of the gateway allows no such annotation. ingress-nginx does not serve its Ingress.
    fn refusal(&self, global: &global::Settings) -> Option<String> {
        let Self { short, value, .. } = *self;
        if let Some(word) = global.words.iter().find(|word| value.contains(&***word)) {
            return Some(format!("contains {word:?}, which annotation-value-word-blocklist forbids"));
        }
        if global.refuses_snippets && short.ends_with("-snippet") {
            return Some("is forbidden: allow-snippet-annotations is false".to_owned());
        }
        let risk = Risk::of(short);
        (risk > global.risk).then(|| {
            let (risk, accepted) = (risk.in_words(), global.risk.in_words());
            format!("has the risk {risk}, and annotations-risk-level is {accepted}")
        })
    }
}

/// Whether the annotation is a list of client IPs that may or may not call.
fn lists_addresses(short: &str) -> bool {
    matches!(short, "allowlist-source-range" | "whitelist-source-range" | "denylist-source-range")
}

/// The consequence of a fault in an annotation that restricts access.
const CLOSED: &str = "all routes of this Ingress respond with 503";

fn unknown(short: &str, restricts: bool) -> String {
    if restricts {
        return format!(
            "is unknown, and may restrict access; {CLOSED}. Fix the name, or remove the annotation"
        );
    }
    let known: Vec<&str> = rows().map(|row| row.name).collect();
    match closest(short, &known) {
        Some(meant) => format!("is unknown and ignored: did you mean {meant}?"),
        None => "is unknown and ignored".to_owned(),
    }
}

/// All annotations.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    GROUPS.iter().copied().flatten()
}

/// The annotation of this name, without a prefix.
pub(crate) fn row(short: &str) -> Option<&'static Row> {
    rows().find(|row| row.name == short)
}

/// Whether an annotation with this value restricts access. In doubt the function returns true.
pub(crate) fn restricts(short: &str, value: &str) -> bool {
    let is_limit = short.starts_with("limit-");
    let is_known = ["whitelist-source-range", "allowlist-source-range", "denylist-source-range", "satisfy"];
    let is_off = match value.trim() {
        "" => true,
        "off" => short == "auth-tls-verify-client",
        number => is_limit && number.parse() == Ok(0_u32),
    };
    (is_limit || short.starts_with("auth-") || is_known.contains(&short))
        && !is_off
        && !allows_all(short, value)
}

/// Whether an allowlist has all addresses, such as the allowlist in the Ingresses of cert-manager for ACME challenges.
pub(crate) fn allows_all(short: &str, value: &str) -> bool {
    matches!(short, "allowlist-source-range" | "whitelist-source-range")
        && ["0.0.0.0/0", "::/0"].iter().all(|all| value.split(',').any(|network| network.trim() == *all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ingress_nginx_access_control_annotations_are_recognized_by_name_and_value() {
        for (name, value, expected) in [
            ("auth-url", "http://auth.example", true),
            ("auth-type", "basic", true),
            ("auth-secret", "users", true),
            ("auth-signin", "https://login.example", true),
            ("auth-tls-secret", "default/ca", true),
            ("auth-tls-verify-client", "on", true),
            ("auth-tls-verify-client", "Off", true),
            ("auth-tls-verify-client", " off ", false),
            ("auth-realm", "Shop", true),
            ("auth-of-a-later-version", "x", true),
            ("whitelist-source-range", "10.0.0.0/8", true),
            ("allowlist-source-range", "10.0.0.0/8", true),
            ("whitelist-source-range", "0.0.0.0/0,::/0", false),
            ("allowlist-source-range", "::/0, 0.0.0.0/0, 10.0.0.0/8", false),
            ("whitelist-source-range", "0.0.0.0/0", true),
            ("denylist-source-range", "0.0.0.0/0,::/0", true),
            ("denylist-source-range", "10.0.0.0/8", true),
            ("denylist-source-range", "", false),
            ("limit-rps", "10", true),
            ("limit-rps", "0", false),
            ("limit-rps", "0.5", true),
            ("limit-rpm", "60", true),
            ("limit-connections", "20", true),
            ("limit-whitelist", "10.0.0.0/8", true),
            ("limit-rate", "100k", true),
            ("satisfy", "any", true),
            ("rewrite-target", "/", false),
            ("proxy-body-size", "8m", false),
            ("authority", "x", false),
        ] {
            assert_eq!(restricts(name, value), expected, "{name}: {value:?}");
        }
    }
}
