//! The CustomResourceDefinitions of our kinds, generated from the types in [`written`](super::written).

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, transform};
use serde_json::{Value, json};

use super::written::consumer::ConsumerSpec;
use super::written::rate_limit::RateLimitPolicySpec;
use super::written::security::SecurityPolicySpec;
use super::written::status::{ApiStatus, ConsumerStatus, PlanStatus, PolicyStatus, SubscriptionStatus};
use super::written::traffic::TrafficPolicySpec;
use super::{GROUP, VERSION};
use crate::object::Kind;
use crate::object::api::written::ApiSpec;
use crate::object::plan::written::{PlanSpec, SubscriptionSpec};

/// A CustomResourceDefinition.
#[derive(Clone, Debug)]
pub struct Definition {
    /// Its name, such as `consumers.sluicegate.dev`.
    pub name: String,
    /// The definition as YAML, without a `---`.
    pub yaml: String,
}

/// The CustomResourceDefinitions of `SecurityPolicy`, `Consumer`, `RateLimitPolicy`, `TrafficPolicy`, `Api`, `Plan` and
/// `Subscription`.
#[must_use]
pub fn definitions() -> Vec<Definition> {
    let of_policy = [
        column("Target", ".spec.targetRefs[*].name"),
        column("Accepted", r#".status.ancestors[*].conditions[?(@.type=="Accepted")].status"#),
    ];
    let of_consumer = [
        column("Username", ".spec.username"),
        column("Accepted", r#".status.conditions[?(@.type=="Accepted")].status"#),
    ];
    let of_api = [
        column("Version", ".spec.version"),
        column("Owner", ".spec.owner"),
        column("Hosts", ".spec.environments[*].hosts"),
        column("Accepted", r#".status.conditions[?(@.type=="Accepted")].status"#),
    ];
    let of_plan = [
        column("Title", ".spec.title"),
        column("Accepted", r#".status.conditions[?(@.type=="Accepted")].status"#),
    ];
    let of_subscription = [
        column("Consumer", ".spec.consumerRef.name"),
        column("Plan", ".spec.planRef.name"),
        column("APIs", ".spec.apis[*].name"),
        column("Accepted", r#".status.conditions[?(@.type=="Accepted")].status"#),
        column("Reason", r#".status.conditions[?(@.type=="Accepted")].reason"#),
    ];
    vec![
        definition::<SecurityPolicySpec, PolicyStatus>(Kind::SecurityPolicy, "sp", &of_policy),
        definition::<ConsumerSpec, ConsumerStatus>(Kind::Consumer, "", &of_consumer),
        definition::<RateLimitPolicySpec, PolicyStatus>(Kind::RateLimitPolicy, "rlp", &of_policy),
        definition::<TrafficPolicySpec, PolicyStatus>(Kind::TrafficPolicy, "tp", &of_policy),
        definition::<ApiSpec, ApiStatus>(Kind::Api, "", &of_api),
        definition::<PlanSpec, PlanStatus>(Kind::Plan, "", &of_plan),
        definition::<SubscriptionSpec, SubscriptionStatus>(Kind::Subscription, "", &of_subscription),
    ]
}

/// The schema of the specification of each of our kinds.
static SCHEMAS: LazyLock<[(Kind, Value); 7]> = LazyLock::new(|| {
    [
        (Kind::SecurityPolicy, schema::<SecurityPolicySpec>()),
        (Kind::Consumer, schema::<ConsumerSpec>()),
        (Kind::RateLimitPolicy, schema::<RateLimitPolicySpec>()),
        (Kind::TrafficPolicy, schema::<TrafficPolicySpec>()),
        (Kind::Api, schema::<ApiSpec>()),
        (Kind::Plan, schema::<PlanSpec>()),
        (Kind::Subscription, schema::<SubscriptionSpec>()),
    ]
});

/// The schema of a field such as `spec.timeouts.request` or `spec.rules[0]`.
pub(crate) fn schema_at(kind: Kind, field: &str) -> Option<&'static Value> {
    let (_, spec) = SCHEMAS.iter().find(|(of, _)| *of == kind)?;
    let mut steps = field.split(['.', '[']);
    if steps.next() != Some("spec") {
        return None;
    }
    steps.filter(|step| !step.is_empty()).try_fold(spec, |schema, step| match step.ends_with(']') {
        true => schema.get("items"),
        false => schema.get("properties")?.get(step).or_else(|| schema.get("additionalProperties")),
    })
}

/// The names of the fields of a mapping.
pub(crate) fn names_at(kind: Kind, field: &str) -> Vec<&'static str> {
    let fields =
        schema_at(kind, field).and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    fields.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

/// The names of the fields of a type.
pub(crate) fn fields<T: JsonSchema + 'static>() -> Arc<BTreeSet<String>> {
    // A schema takes longer to make than an object to read.
    static KNOWN: Mutex<BTreeMap<TypeId, Arc<BTreeSet<String>>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let names = known.entry(TypeId::of::<T>()).or_insert_with(|| {
        let schema = schema::<T>();
        let fields = schema.get("properties").and_then(Value::as_object);
        Arc::new(fields.into_iter().flatten().map(|(name, _)| name.clone()).collect())
    });
    names.clone()
}

/// A column of `kubectl get`.
fn column(name: &str, path: &str) -> Value {
    json!({ "name": name, "type": "string", "jsonPath": path })
}

fn definition<Spec: JsonSchema, Status: JsonSchema>(
    kind: Kind,
    short_name: &str,
    columns: &[Value],
) -> Definition {
    let singular = kind.as_str().to_lowercase();
    let plural = match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{singular}s"),
    };
    let name = format!("{plural}.{GROUP}");
    let spec = schema::<Spec>();
    let description = spec.get("description").cloned();
    let age = json!({ "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" });
    let columns: Vec<&Value> = columns.iter().chain([&age]).collect();
    let mut names = json!({
        "kind": kind.as_str(), "listKind": format!("{kind}List"), "plural": plural, "singular": singular,
        "categories": ["sluicegate"],
    });
    if !short_name.is_empty() {
        names["shortNames"] = json!([short_name]);
    }
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": name },
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": "Namespaced",
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": columns,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "description": description,
                    "type": "object",
                    "required": ["spec"],
                    "properties": {
                        // `kubectl explain` shows these fields as it shows them for any kind.
                        "apiVersion": { "type": "string" },
                        "kind": { "type": "string" },
                        "metadata": { "type": "object" },
                        "spec": spec,
                        "status": schema::<Status>(),
                    },
                } },
            }],
        },
    });
    // Strings, numbers, lists and mappings always serialize.
    let yaml = serde_saphyr::to_string(&definition).unwrap_or_default();
    Definition { name, yaml }
}

/// The schema of a type, in the structural form of Kubernetes: without references, without alternatives.
fn schema<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    settings.transforms = vec![Box::new(structural)];
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Removes keywords without a meaning to Kubernetes, or with another meaning than here.
fn structural(schema: &mut Schema) {
    transform::transform_subschemas(&mut structural, schema);
    schema.remove("title");
    schema.remove("default");
    // An optional value is absent, never null.
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [name] = &types[..] {
            let name = name.clone();
            schema.insert("type".to_owned(), name);
        }
    }
    // Variants with a description each are alternatives; their descriptions are for readers of the code.
    let names = |of: &Value| -> Option<Vec<Value>> {
        let names = of.get("enum").and_then(Value::as_array).cloned();
        names.or_else(|| of.get("const").map(|name| vec![name.clone()]))
    };
    if let Some(Value::Array(variants)) = schema.get("oneOf")
        && let Some(values) = variants.iter().map(names).collect::<Option<Vec<_>>>()
    {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), json!("string"));
        schema.insert("enum".to_owned(), values.concat().into());
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    // Of two alternatives with null, only the other alternative remains.
    if let Some(Value::Array(alternatives)) = schema.get_mut("anyOf") {
        alternatives.retain(|alternative| alternative.get("type") != Some(&json!("null")));
        if let [Value::Object(only)] = &mut alternatives[..] {
            let only = std::mem::take(only);
            schema.remove("anyOf");
            for (key, value) in only {
                // The description of the field has precedence over the description of its type.
                schema.ensure_object().entry(key).or_insert(value);
            }
        }
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        // Line breaks in the comments are for readers of the code.
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::definitions;

    #[test]
    fn crds_of_the_chart_match_the_generated_crds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/sluicegate/crds");
        for definition in definitions() {
            let path = folder.join(format!("{}.yaml", definition.name));
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(text == definition.yaml, "{} is not what is made: run `make manifests`", path.display());
        }
    }

    #[test]
    fn crd_schemas_are_structural_and_every_field_has_a_description() {
        for definition in definitions() {
            let schema: serde_json::Value = serde_saphyr::from_str(&definition.yaml).unwrap();
            let versions = &schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
            check(&versions["spec"], "spec");
            check(&versions["status"], "status");
        }
    }

    fn check(schema: &serde_json::Value, path: &str) {
        let is_int_or_string = schema["x-kubernetes-int-or-string"] == true;
        assert!(schema["type"].is_string() != is_int_or_string, "{path} has no type");
        for unknown in ["anyOf", "oneOf", "$ref", "nullable", "default", "title"] {
            assert!(schema.get(unknown).is_none(), "{path} has {unknown}");
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            assert!(field["description"].is_string(), "{path}.{name} is not explained");
            check(field, &format!("{path}.{name}"));
        }
        if let Some(items) = schema.get("items") {
            check(items, &format!("{path}[]"));
        }
    }
}
