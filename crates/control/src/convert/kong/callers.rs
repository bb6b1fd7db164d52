//! The plugin rate-limiting of single consumers and of consumer groups, as limits of the groups of Consumers.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluicegate_kong::file::{Consumer, CredentialKind, Plugin};
use sluicegate_model::value::GroupName;

use super::Conversion;
use super::plugins::Effects;

/// The most limits of single consumers and groups. A policy has at most 16 limits, of which six may be of a route.
const LIMITS_MAX: usize = 10;

/// The plugin with limits.
const NAME: &str = "rate-limiting";

/// The plugins for consumers and groups, in the order of the file, each with its group of Consumers.
fn plugins<'f>(conversion: &Conversion<'f>) -> impl Iterator<Item = (&'f Plugin, String)> + use<'f> {
    let file = conversion.file;
    file.plugins.iter().filter(|plugin| plugin.enabled && plugin.name == NAME).filter_map(|plugin| {
        let group = match (plugin.scope.consumer, plugin.scope.consumer_group) {
            (Some(consumer), _) => own_group(&file.consumers[consumer]),
            (None, Some(group)) => file.consumer_groups[group].name.clone(),
            (None, None) => return None,
        };
        Some((plugin, group))
    })
}

/// The group of a consumer that has limits of its own.
fn own_group(consumer: &Consumer) -> String {
    format!("rate-limiting.{}", consumer.name())
}

impl Conversion<'_> {
    /// Whether the limits of this plugin can apply to a consumer. Tokens name no consumer here.
    pub(super) fn limits_apply(&mut self, plugin: &Plugin, consumer: &Consumer) -> bool {
        let all: Vec<_> = plugins(self).collect();
        let found = all.iter().enumerate().find(|(_, (known, _))| std::ptr::eq(*known, plugin));
        let Some((number, (_, group))) = found else { return false };
        let limits: Vec<_> =
            all.iter().enumerate().map(|(number, (plugin, _))| self.limits_once(number, plugin)).collect();
        let count: usize = limits.iter().flatten().map(Vec::len).sum();
        let has_tokens = consumer.credentials.iter().any(|of| of.kind == CredentialKind::Jwt);
        !has_tokens && count <= LIMITS_MAX && GroupName::new(group).is_ok() && limits[number].is_some()
    }

    /// The limits of the plugin with this number; `None` if the plugin is not converted. Each plugin is converted once.
    fn limits_once(&mut self, number: usize, plugin: &Plugin) -> Option<Vec<Value>> {
        if let Some(known) = self.limits_of_callers.get(&number) {
            return known.clone();
        }
        let limits = self.limits(plugin).ok();
        self.limits_of_callers.insert(number, limits.clone());
        limits
    }

    /// The group of a consumer that has limits of its own.
    pub(super) fn group_with_limits(&self, place: usize) -> Option<String> {
        let has_own = |(plugin, _): &(&Plugin, String)| plugin.scope.consumer == Some(place);
        plugins(self).find(has_own).map(|(_, group)| group)
    }

    /// Adds the limits of consumers and groups to the limits of a route of a service. Of several plugins for a consumer or a group,
    /// the plugin with the most specific scope applies.
    pub(super) fn add_limits_of_callers(
        &mut self,
        (route, service): (usize, Option<usize>),
        effects: &mut Effects,
    ) {
        if !effects.security.1.contains_key("authentication") {
            return;
        }
        let mut chosen: BTreeMap<String, (u8, usize, &Plugin)> = BTreeMap::new();
        for (number, (plugin, group)) in plugins(self).enumerate() {
            let scope = plugin.scope;
            if scope.route.is_some_and(|of| of != route)
                || scope.service.is_some_and(|of| Some(of) != service)
            {
                continue;
            }
            let rank = 2 * u8::from(scope.route.is_some()) + u8::from(scope.service.is_some());
            let known = chosen.entry(group).or_insert((rank, number, plugin));
            if rank > known.0 {
                *known = (rank, number, plugin);
            }
        }
        let has_base = effects.limits.1.contains_key("limits");
        for (group, (_, number, plugin)) in chosen {
            // The consumers of a plugin that is not converted are closed.
            let limits = self.limits_once(number, plugin).filter(|_| GroupName::new(&group).is_ok());
            let Some(limits) = limits else { continue };
            if effects.limits.0 == 0 {
                effects.limits.0 = plugin.line;
            }
            if has_base {
                let message = "the limits of the route apply to its callers too: Kong applies only the limits of the plugin";
                self.note(plugin, message);
            } else if !effects.limits.1.contains_key("shared") {
                self.share(plugin, effects);
            }
            let all = effects.limits.1.entry("limits").or_insert_with(|| json!([]));
            let Value::Array(all) = all else { continue };
            all.extend(limits.into_iter().map(|mut limit| {
                let period = limit["name"].as_str().unwrap_or_default().to_owned();
                limit["name"] = format!("{period}-{number}").into();
                limit["groups"] = json!([group]);
                limit
            }));
        }
    }
}
