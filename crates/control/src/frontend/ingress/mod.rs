//! Ingresses.
//!
//! | module | content |
//! |---|---|
//! | [`class`] | the choice of the Ingresses that the gateway serves |
//! | [`tls`] | `spec.tls` and client certificates |
//! | [`passthrough`] | TLS passthrough |
//! | [`restriction`] | annotations of ingress-nginx that restrict access and are not read |

use std::borrow::Cow;

use sluicegate_model::rule::{HttpsRedirect, RuleMatch};
use sluicegate_model::value::CipherSuites;

use crate::frontend::nginx;
use crate::intent::{At, Host, Https, Intent, Intents, Place, Rule};
use crate::object::ingress::{self, Ingress, RulePath};
use crate::problem::Problem;
use crate::store::Store;
use crate::translate::TranslateOptions;
use crate::upstream;
use class::Classes;

pub(crate) mod class;
pub(super) mod passthrough;
pub(crate) mod restriction;
pub(crate) mod tls;

/// Adds the intents of the served Ingresses, the oldest first, and notes of the other Ingresses, by name.
pub(super) fn ask<'a>(store: &'a Store, options: &'a TranslateOptions, intents: &mut Intents<'a>) {
    let classes = Classes::new(store, options);
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for (object, ingress, origin) in store.all::<Ingress>() {
        let at = At { object, origin };
        match classes.dialect(ingress) {
            Some(dialect) => ours.push((at, ingress, dialect)),
            None => others.push((at, ingress)),
        }
    }
    ours.sort_by_cached_key(|(at, ingress, _)| at.age(ingress.created));
    others.sort_unstable_by_key(|(at, _)| at.object);
    let is_of_nginx = |dialect| dialect == class::Dialect::IngressNginx;
    let nginx = options.ingress_nginx.as_ref().map(|nginx| {
        let of_nginx = ours.iter().filter(|(.., dialect)| is_of_nginx(*dialect));
        nginx::Dialect::new(store, nginx, of_nginx.map(|(at, ingress, _)| (*at, *ingress)))
    });
    for (at, ingress, dialect) in ours {
        let intent = match nginx.as_ref().filter(|_| is_of_nginx(dialect)) {
            Some(nginx) => {
                intents.aliases.extend(nginx.aliases(at, ingress));
                nginx.intent(at, ingress, &mut intents.problems)
            }
            None => intent(store, options, at, ingress, &mut intents.problems),
        };
        intents.http.push(intent);
    }
    if let Some(nginx) = &nginx {
        let is_for_all = |intent: &Intent<'_>| intent.is_for_all_hosts && intent.default.is_some();
        // An Ingress with a default backend for all hosts has precedence.
        let catch_all = nginx.catch_all().filter(|_| !intents.http.iter().any(is_for_all));
        intents.http.extend(catch_all);
        nginx.finish(&mut intents.problems);
    }
    intents.foreign.extend(others.into_iter().map(|(at, ingress)| {
        let (field, message) = classes.refusal(ingress);
        at.note(&field, message)
    }));
}

fn intent<'a>(
    store: &Store,
    options: &TranslateOptions,
    at: At<'a>,
    ingress: &'a Ingress,
    problems: &mut Vec<Problem>,
) -> Intent<'a> {
    let backend = ingress.backend.as_ref();
    Intent {
        at,
        created: ingress.created,
        hosts: ingress.rules.iter().map(|rule| host(store, at, ingress, rule, problems)).collect(),
        default: ingress.default_backend.as_ref().map(|named| upstream::key(store, named, backend, None)),
        is_for_all_hosts: !ingress.has_rules,
        tls: tls::certificates(store, at.object, ingress),
        client_auth: ingress.client_auth.as_ref().map(|auth| tls::client_auth(store, ingress, auth)),
        ciphers: CipherSuites::default(),
        https: Https {
            is_forced: ingress.force_ssl_redirect || ingress.client_auth.is_some(),
            if_tls: ingress.ssl_redirect,
            redirect: HttpsRedirect::default(),
        },
        compression: ingress.compression.as_ref(),
        own: None,
        unmatched: None,
        named: Vec::new(),
        refuses: restriction::check(at, ingress, options, problems),
    }
}

fn host<'a>(
    store: &Store,
    at: At<'a>,
    ingress: &'a Ingress,
    rule: &'a ingress::Rule,
    problems: &mut Vec<Problem>,
) -> Host<'a> {
    let of_path = |path: &RulePath| {
        let place = Place::Path(rule.index, path.index);
        if path.looks_like_a_regex() {
            let message =
                format!("{:?} is matched as plain text: regular expressions are not supported", path.written);
            problems.push(at.warning(&format!("{}.path", place.field()), message));
        }
        Rule {
            place,
            of: RuleMatch::path(path.pattern.clone()),
            literal: path.literal.clone().map(RuleMatch::path),
            upstream: Some(upstream::key(store, &path.upstream, ingress.backend.as_ref(), None)),
            own: None,
            api: None,
        }
    };
    Host {
        host: Cow::Borrowed(&rule.host),
        rules: rule.paths.iter().map(of_path).collect(),
        passthrough: passthrough::of(store, ingress, &rule.host),
    }
}
