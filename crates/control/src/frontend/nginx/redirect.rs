//! Redirects to other URLs.

use std::borrow::Cow;
use std::sync::Arc;

use sluicegate_model::feature::returns::{Body, Condition, Content, Location, Return, Test};
use sluicegate_model::rule::{Pattern, RuleMatch};
use sluicegate_model::value::{Entries, MediaType, Number, Template};
use sluicegate_model::{HostPattern, PathPattern};

use super::{Context, Parts};
use crate::intent::{Host, Https, Own, Passthrough, Place, Rule};
use crate::object::nginx::redirect::Settings;

pub(super) fn apply(context: &Context<'_, '_>, parts: &mut Parts) {
    let settings = &context.settings.redirect;
    let temporal = settings.temporal.as_ref().map(|url| (url, settings.temporal_code.unwrap_or(302)));
    let permanent = settings.permanent.as_ref().map(|url| (url, settings.permanent_code.unwrap_or(301)));
    if let Some((url, status)) = temporal.or(permanent) {
        parts.features.returns.push(returned(settings, status, Some(url.clone())));
    }
}

/// A response, as `return` of nginx makes it. The text is the URL of a redirect or, with another status, the body.
pub(super) fn returned(settings: &Settings, status: u16, text: Option<Template>) -> Return {
    let Settings { is_relative, has_port, .. } = *settings;
    let content = text.map(|text| match status {
        301..=303 | 307 | 308 => Content::Location(Location { url: text, is_relative, has_port }),
        // The media type of ingress-nginx for responses without one.
        _ => Content::Body(Body { text, media_type: MediaType::of("text/html") }),
    });
    Return {
        conditions: Entries::default(),
        status_code: Number::new(status.into()).unwrap_or(Number::of(500)),
        content,
    }
}

/// The redirect of `/` to the root of the application. nginx redirects before it selects a location.
pub(super) fn app_root(path: &Template, settings: &Settings, own: &Own) -> Option<Rule> {
    let url = Template::new(&format!("$scheme://$http_host{path}")).ok()?;
    let of = RuleMatch { precedence: 0, ..RuleMatch::path(PathPattern::Exact("/".into())) };
    let place = Place::Annotation("nginx.ingress.kubernetes.io/app-root");
    Some(responding(place, of, own, returned(settings, 302, Some(url))))
}

/// The redirect of the host with `www.` to a host without it, or the other way round. `is_served`: whether an Ingress has a
/// host, which then stays as it is.
pub(super) fn www<'a>(
    own: &Own,
    host: &HostPattern,
    is_served: impl Fn(&HostPattern) -> bool,
) -> Option<Host<'a>> {
    let HostPattern::Exact(to) = host else { return None };
    let from = other_www(host)?;
    if is_served(&from) {
        return None;
    }
    // A final slash of the URI is not part of the new URL.
    let without_slash = Condition {
        subject: Template::new("$request_uri").ok()?,
        test: Test::Matches(Pattern::new("^(.*?)/?$", false).ok()?),
        is_negated: false,
    };
    let url = Template::new(&format!("$pass_access_scheme://{to}$1")).ok()?;
    let redirect = Return {
        conditions: Entries::new(vec![without_slash])?,
        ..returned(&Settings::default(), 308, Some(url))
    };
    let of = RuleMatch::path(PathPattern::Prefix("/".into()));
    let place = Place::Annotation("nginx.ingress.kubernetes.io/from-to-www-redirect");
    let rules = vec![responding(place, of, own, redirect)];
    Some(Host { host: Cow::Owned(from), rules, passthrough: Passthrough::Off })
}

/// The host with `www.` added, or removed if it is there.
pub(crate) fn other_www(host: &HostPattern) -> Option<HostPattern> {
    let HostPattern::Exact(name) = host else { return None };
    let other = name.strip_prefix("www.").map_or_else(|| format!("www.{name}"), str::to_owned);
    Some(HostPattern::Exact(other.into()))
}

/// A rule whose requests receive a response of the gateway, also over plain HTTP.
fn responding(place: Place, of: RuleMatch, own: &Own, response: Return) -> Rule {
    let mut own = own.clone();
    let features = Arc::make_mut(&mut own.features);
    features.returns = Entries::new(vec![response]).unwrap_or_default();
    // ingress-nginx adds the header in locations, and these redirects precede them.
    features.hsts = None;
    own.https = Https { is_forced: false, if_tls: Some(false), ..own.https };
    Rule { place, of, literal: None, upstream: None, own: Some(Arc::new(own)), api: None }
}
