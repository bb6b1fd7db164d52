//! Mirrored requests.

use sluicegate_model::feature::Mirror;
use sluicegate_model::feature::mirror::MirrorForm;
use sluicegate_model::value::{Entries, Number};

use super::{Context, Parts};
use crate::external;
use crate::object::nginx::mirror::TARGET;

pub(super) fn apply(context: &mut Context<'_, '_>, parts: &mut Parts) {
    let settings = context.settings.clone();
    let settings = &settings.mirror;
    let Some(target) = &settings.target else { return };
    let upstream = external::key(&context.at.object.namespace, &target.host, target.port, target.has_tls);
    context.name(TARGET, &upstream);
    let form = MirrorForm {
        target: target.path.clone(),
        host: settings.host.clone().unwrap_or_else(|| target.authority.clone()),
        drops_body: settings.drops_body,
    };
    let mirror = Mirror { upstream, percent: Number::of(100), form: Some(Box::new(form)) };
    parts.features.mirrors = Entries::new(vec![mirror]).unwrap_or_default();
}
