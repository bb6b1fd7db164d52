//! Access by client IP.

use sluicegate_model::feature::IpAccess;
use sluicegate_model::value::{Entries, Network};

use super::{Context, Parts};
use crate::object::nginx::access::Networks;

pub(super) fn apply(context: &Context<'_, '_>, parts: &mut Parts) {
    let settings = &context.settings.access;
    let names = ("allowlist-source-range", "whitelist-source-range");
    let allow = chosen(context, names, (&settings.allow, &settings.former_allow));
    let allow: Vec<Network> = allow.map(|networks| networks.to_vec()).unwrap_or_default();
    // The settings have no longer lists.
    let allow = Entries::new(allow).unwrap_or_default();
    parts.security.ip_access = IpAccess { allow, deny: settings.deny.clone() };
    parts.security.satisfies_any = settings.satisfies_any;
}

/// The networks of an annotation with a former name: those of the Ingress have precedence over those of the ConfigMap, and then
/// those of the new name.
pub(super) fn chosen<'s>(
    context: &Context<'_, '_>,
    (name, former): (&str, &str),
    (of_name, of_former): (&'s Option<Networks>, &'s Option<Networks>),
) -> Option<&'s Networks> {
    let is_written = |short| {
        context.ingress.nginx.with_prefix(&context.options.prefix).any(|annotation| annotation.short == short)
    };
    if !is_written(name) && is_written(former) {
        return of_former.as_ref();
    }
    of_name.as_ref().or(of_former.as_ref())
}
