//! The owner of each host, and of each match of a host.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

use foldhash::HashMap;
use sluicegate_model::HostPattern;
use sluicegate_model::rule::RuleMatch;

use crate::intent::{self, Intent, Place, Reference};
use crate::problem::Problem;

/// The hosts with their rules.
#[derive(Default)]
pub(crate) struct Merged<'i, 'a> {
    pub(crate) hosts: BTreeMap<&'i HostPattern, Host<'i, 'a>>,
    /// The object with the default backend of all hosts.
    pub(crate) default: Option<&'i Intent<'a>>,
    /// The upstreams of the rules, in the order of the objects.
    pub(crate) references: Vec<Reference<'a>>,
    pub(crate) problems: Vec<Problem>,
}

/// A host.
pub(crate) struct Host<'i, 'a> {
    /// The oldest object with the host: its default backend is the host's fallback, as in ingress-nginx.
    pub(crate) owner: &'i Intent<'a>,
    pub(crate) rules: Vec<Rule<'i, 'a>>,
}

/// A rule that has precedence over all others with its match.
#[derive(Clone, Copy)]
pub(crate) struct Rule<'i, 'a> {
    pub(crate) intent: &'i Intent<'a>,
    pub(crate) rule: &'i intent::Rule,
    pub(crate) of: &'i RuleMatch,
}

/// Merges the rules of all objects; the oldest object comes first.
pub(super) fn merge<'i, 'a>(intents: &'i [Intent<'a>]) -> Merged<'i, 'a> {
    let mut merged = Merged::default();
    let mut owners: HashMap<(&'i HostPattern, &'i RuleMatch), &'i Intent<'a>> = HashMap::default();
    for intent in intents {
        merged.claim_default(intent);
        merged.references.extend(intent.named.iter().cloned());
        for host in &intent.hosts {
            let known =
                merged.hosts.entry(&*host.host).or_insert_with(|| Host { owner: intent, rules: Vec::new() });
            if intent.default.is_some() && known.owner.at.object != intent.at.object {
                let message = format!(
                    "is ignored for host {}, which belongs to {} (older, or first by name)",
                    host.host, known.owner.at.object
                );
                merged.problems.push(intent.problem(Place::DefaultBackend, message));
            }
            for rule in &host.rules {
                match owners.entry((&*host.host, &rule.of)) {
                    Entry::Vacant(place) => {
                        place.insert(intent);
                        known.rules.push(Rule { intent, rule, of: &rule.of });
                        let references = rule.upstream.iter().cloned();
                        merged.references.extend(references.map(|upstream| Reference {
                            at: intent.at,
                            place: rule.place,
                            upstream,
                        }));
                    }
                    Entry::Occupied(owner) => {
                        let path = &rule.of.path;
                        let message = format!(
                            "{} {path} of host {} is ignored: {} has it already",
                            path.path_type(),
                            host.host,
                            in_words(owner.get(), intent),
                        );
                        let field = rule.place.path_field();
                        merged.problems.push(intent.at.warning(&field, message));
                    }
                }
            }
        }
    }
    for intent in intents.iter().filter(|intent| intent.refuses.is_some()) {
        merged.close_literals(intent, &owners);
    }
    merged
}

impl<'i, 'a> Merged<'i, 'a> {
    /// Takes the default backend of all hosts.
    fn claim_default(&mut self, intent: &'i Intent<'a>) {
        if intent.default.is_none() || !intent.is_for_all_hosts {
            return;
        }
        match self.default {
            None => self.default = Some(intent),
            Some(winner) => {
                let message =
                    format!("is ignored: {} is older and sets the default backend", winner.at.object);
                self.problems.push(intent.problem(Place::DefaultBackend, message));
            }
        }
    }

    /// Closes all paths that the paths of a closed object would match as regular expressions, which no rule can
    /// match. Otherwise a less specific rule of another object would serve them.
    fn close_literals(
        &mut self,
        intent: &'i Intent<'a>,
        owners: &HashMap<(&HostPattern, &RuleMatch), &Intent<'a>>,
    ) {
        for host in &intent.hosts {
            let Some(known) = self.hosts.get_mut(&*host.host) else { continue };
            for rule in &host.rules {
                let Some(literal) = &rule.literal else { continue };
                let is_new = known.rules.iter().all(|rule| rule.of != literal);
                if is_new && !owners.contains_key(&(&*host.host, literal)) {
                    known.rules.push(Rule { intent, rule, of: literal });
                }
            }
        }
    }
}

/// The owner of a match, as another object names it.
fn in_words(owner: &Intent<'_>, intent: &Intent<'_>) -> String {
    if owner.at.object == intent.at.object {
        "the same Ingress".to_owned()
    } else {
        format!("{} (older, or first by name)", owner.at.object)
    }
}
