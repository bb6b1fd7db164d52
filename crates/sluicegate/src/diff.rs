//! `sluicegate diff`: the routes, upstreams and other parts that the objects of a directory or of a cluster would change on a running gateway.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;

use crate::check;
use crate::cli::ObjectsArgs;
use crate::gateways::{Gateways, PodArgs};

#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 without a difference, 1 with differences, 2 after an error. The command does not compare the \
settings of the gateway.\n\nExample: sluicegate diff manifests"
)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    objects: ObjectsArgs,
    #[command(flatten)]
    pods: PodArgs,
}

/// The exit status after an error, as of diff(1).
const TROUBLE: u8 = 2;

pub(crate) fn run(args: &DiffArgs) -> ExitCode {
    match differences(args) {
        Ok(none) if none.is_empty() => ExitCode::SUCCESS,
        Ok(lines) => {
            crate::say(&lines.join("\n"));
            ExitCode::FAILURE
        }
        Err(error) => {
            crate::complain(&format!("{error:#}"));
            ExitCode::from(TROUBLE)
        }
    }
}

fn differences(args: &DiffArgs) -> anyhow::Result<Vec<String>> {
    let loaded = check::load(&args.objects)?;
    let gateways = Gateways::open(args.objects.admin, &args.pods, &args.objects.cluster)?;
    let running: Value = gateways.ask("/config")?;
    let running = running.get("config").filter(|config| !config.is_null());
    let running = running.context("the gateway has no configuration yet; try again when it is ready")?;
    let new = serde_json::to_value(&loaded.config)?;
    Ok(changes(&parts(running), &parts(&new)))
}

/// The parts of a configuration, by name.
type Parts = BTreeMap<String, Value>;

/// A line for each part that is new, gone or different.
fn changes(old: &Parts, new: &Parts) -> Vec<String> {
    let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
        .into_iter()
        .filter_map(|name| {
            Some(match (old.get(name), new.get(name)) {
                (Some(old), Some(new)) if old == new => return None,
                (Some(old), Some(new)) => format!("~ {name}: {}", fields(old, new)),
                (Some(_), None) => format!("- {name}"),
                (None, _) => format!("+ {name}"),
            })
        })
        .collect()
}

/// The names of the fields that differ. Lists have their lengths.
fn fields(old: &Value, new: &Value) -> String {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return "changes".to_owned() };
    let different = new.iter().filter(|(name, value)| old.get(*name) != Some(*value));
    let word = |(name, value): (&String, &Value)| {
        let length = |value: Option<&Value>| value.and_then(Value::as_array).map(Vec::len);
        match (length(old.get(name)), length(Some(value))) {
            (Some(before), Some(after)) if before != after => format!("{name} ({before} -> {after})"),
            _ => name.clone(),
        }
    };
    different.map(word).collect::<Vec<_>>().join(", ")
}

fn parts(config: &Value) -> Parts {
    let mut parts = Parts::new();
    for host in list(config, "hosts") {
        let place = format!("{}{}", entry_point(host), text(&host["host"]));
        for rule in list(host, "rules") {
            add_rule(&mut parts, &place, rule);
        }
        if host["fallback"].is_object() {
            add(&mut parts, format!("default backend of {place}"), &host["fallback"]);
        }
    }
    if config["default_rule"].is_object() {
        add(&mut parts, "default backend".to_owned(), &config["default_rule"]);
    }
    for listener in list(config, "listeners") {
        add(
            &mut parts,
            format!("listener {} of {}", text(&listener["id"]["name"]), object(&listener["id"]["object"])),
            listener,
        );
    }
    for host in list(&config["tls"], "hosts") {
        add(&mut parts, format!("TLS of {}{}", entry_point(host), text(&host["host"])), host);
    }
    for consumer in list(config, "consumers") {
        add(&mut parts, object(&consumer["id"]), consumer);
    }
    for (key, upstream) in config["upstreams"].as_object().into_iter().flatten() {
        add(&mut parts, format!("upstream {key}"), upstream);
    }
    parts
}

fn add_rule(parts: &mut Parts, place: &str, rule: &Value) {
    let of = object(&rule["id"]);
    let mut rule = rule.clone();
    let matches = rule.as_object_mut().and_then(|rule| rule.remove("matches"));
    for each in matches.as_ref().and_then(Value::as_array).into_iter().flatten() {
        let mut conditions = each.clone();
        if let Some(conditions) = conditions.as_object_mut() {
            conditions.remove("precedence");
            conditions.remove("path");
        }
        let mut part = rule.clone();
        part["conditions"] = conditions;
        add(parts, format!("route {place} {} of {of}", path(&each["path"])), &part);
    }
}

/// Adds a part. Routes with the same host, path and object differ by their conditions, and receive numbers.
fn add(parts: &mut Parts, name: String, value: &Value) {
    let mut unique = name.clone();
    for number in 2.. {
        if !parts.contains_key(&unique) {
            break;
        }
        unique = format!("{name} ({number})");
    }
    parts.insert(unique, value.clone());
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn entry_point(value: &Value) -> String {
    match &value["entry_point"] {
        Value::Object(of) => of.values().next().map(|name| format!("{} ", text(name))).unwrap_or_default(),
        _ => String::new(),
    }
}

fn object(id: &Value) -> String {
    format!("{} {}/{}", text(&id["kind"]), text(&id["namespace"]), text(&id["name"]))
}

/// A path pattern with its type: `/cart (Prefix)`.
fn path(value: &Value) -> String {
    match value {
        Value::Object(of) => match of.iter().next() {
            Some((kind, Value::String(path))) => format!("{path} ({kind})"),
            Some((_, inner)) => path(inner),
            None => String::new(),
        },
        other => text(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(backends: &Value, path: &str, endpoints: usize) -> Value {
        json!({
            "hosts": [{"host": "shop.test", "fallback": null, "rules": [{
                "id": {"kind": "Ingress", "namespace": "shop", "name": "web"},
                "matches": [{"precedence": endpoints, "path": {"Literal": {"Prefix": path}}}],
                "backends": backends,
            }]}],
            "default_rule": null, "listeners": [], "tls": {"hosts": []}, "consumers": [],
            "upstreams": {"shop/web:80": {"endpoints": vec![1; endpoints]}},
        })
    }

    #[test]
    fn difference_names_new_gone_and_changed_parts() {
        let old = config(&json!([{"upstream": "a"}]), "/", 2);
        let changed = |new: &Value| changes(&parts(&old), &parts(new));
        assert_eq!(changed(&config(&json!([{"upstream": "a"}]), "/", 2)), Vec::<String>::new());
        assert_eq!(
            changed(&config(&json!([{"upstream": "a"}]), "/", 3)),
            ["~ upstream shop/web:80: endpoints (2 -> 3)"]
        );
        assert_eq!(
            changed(&config(&json!([{"upstream": "b"}]), "/", 2)),
            ["~ route shop.test / (Prefix) of Ingress shop/web: backends"]
        );
        assert_eq!(
            changed(&config(&json!([{"upstream": "a"}]), "/cart", 2)),
            [
                "- route shop.test / (Prefix) of Ingress shop/web",
                "+ route shop.test /cart (Prefix) of Ingress shop/web"
            ]
        );
    }

    #[test]
    fn routes_that_differ_only_in_conditions_are_parts_of_their_own() {
        let mut twice = config(&json!([]), "/", 1);
        let rule = twice["hosts"][0]["rules"][0].clone();
        twice["hosts"][0]["rules"] = json!([rule, rule]);
        assert_eq!(
            changes(&parts(&config(&json!([]), "/", 1)), &parts(&twice)),
            ["+ route shop.test / (Prefix) of Ingress shop/web (2)"]
        );
    }
}
