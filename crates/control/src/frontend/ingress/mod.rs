//! Ingresses.
//!
//! | module | content |
//! |---|---|
//! | [`class`] | the choice of the Ingresses that the gateway serves |
//! | [`tls`] | `spec.tls` and client certificates |
//! | [`passthrough`] | TLS passthrough |
//! | [`restriction`] | annotations of ingress-nginx that restrict access and are not read |

use sluicegate_model::rule::RuleMatch;

use crate::intent::{At, Host, Https, Intent, Intents, Place, Rule};
use crate::object::ingress::{self, Ingress, RulePath};
use crate::problem::Problem;
use crate::store::Store;
use crate::translate::TranslateOptions;
use crate::upstream;
use class::Classes;

pub(crate) mod class;
mod passthrough;
mod restriction;
mod tls;

/// Adds the intents of the served Ingresses, the oldest first, and notes of the other Ingresses, by name.
pub(super) fn ask<'a>(store: &'a Store, options: &TranslateOptions, intents: &mut Intents<'a>) {
    let classes = Classes::new(store, options);
    let (mut ours, mut others): (Vec<_>, Vec<_>) = store
        .all::<Ingress>()
        .map(|(object, ingress, origin)| (At { object, origin }, ingress))
        .partition(|(_, ingress)| classes.serves(ingress));
    ours.sort_by_cached_key(|(at, ingress)| at.age(ingress.created));
    others.sort_unstable_by_key(|(at, _)| at.object);
    for (at, ingress) in ours {
        let intent = intent(store, options, at, ingress, &mut intents.problems);
        intents.http.push(intent);
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
        hosts: ingress.rules.iter().map(|rule| host(store, ingress, rule)).collect(),
        default: ingress.default_backend.as_ref().map(|named| upstream::key(store, named, backend, None)),
        is_for_all_hosts: !ingress.has_rules,
        tls: tls::certificates(store, at, ingress),
        client_auth: ingress.client_auth.as_ref().map(|auth| tls::client_auth(store, ingress, auth)),
        https: Https {
            is_forced: ingress.force_ssl_redirect || ingress.client_auth.is_some(),
            if_tls: ingress.ssl_redirect,
        },
        compression: ingress.compression.as_ref(),
        refuses: restriction::check(at, ingress, options, problems),
    }
}

fn host<'a>(store: &Store, ingress: &'a Ingress, rule: &'a ingress::Rule) -> Host<'a> {
    let of_path = |path: &RulePath| Rule {
        place: Place::Path(rule.index, path.index),
        of: RuleMatch::path(path.pattern.clone()),
        literal: path.literal.clone().map(RuleMatch::path),
        upstream: upstream::key(store, &path.upstream, ingress.backend.as_ref(), None),
    };
    Host {
        host: &rule.host,
        rules: rule.paths.iter().map(of_path).collect(),
        passthrough: passthrough::of(store, ingress, &rule.host),
    }
}
