//! From an untyped object to its Kubernetes type.

use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;
use serde_path_to_error::Segment;

use crate::object::annotation::closest;
use crate::problem::Findings;

/// Fields that are often misspelt.
const FIELDS: [&str; 52] = [
    "addresses",
    "addressType",
    "allowedRoutes",
    "annotations",
    "backend",
    "backendRefs",
    "conditions",
    "controller",
    "controllerName",
    "data",
    "defaultBackend",
    "endpoints",
    "externalName",
    "gatewayClassName",
    "group",
    "host",
    "hostname",
    "hostnames",
    "hosts",
    "http",
    "ingressClassName",
    "kind",
    "kinds",
    "labels",
    "listeners",
    "matchLabels",
    "metadata",
    "mode",
    "name",
    "namespace",
    "namespaces",
    "number",
    "parentRefs",
    "path",
    "paths",
    "pathType",
    "port",
    "ports",
    "protocol",
    "ready",
    "resource",
    "rules",
    "secretName",
    "sectionName",
    "selector",
    "service",
    "spec",
    "targetPort",
    "tls",
    "type",
    "value",
    "weight",
];

/// The fields of our own kinds that are often misspelt.
const POLICY_FIELDS: [&str; 148] = [
    "abort",
    "access",
    "action",
    "add",
    "address",
    "addresses",
    "admitted",
    "affinity",
    "algorithm",
    "algorithms",
    "allow",
    "allowCredentials",
    "allowHeaders",
    "allowMethods",
    "allowMissingExpiry",
    "allowOrigins",
    "annotations",
    "apiKey",
    "apiKeys",
    "attempts",
    "audiences",
    "authentication",
    "authorization",
    "backends",
    "basic",
    "basicUsers",
    "body",
    "budget",
    "burst",
    "caCertificateRef",
    "cache",
    "circuitBreaker",
    "claim",
    "claims",
    "claimToHeaders",
    "clientId",
    "clockSkew",
    "concurrency",
    "connect",
    "consecutiveErrors",
    "consumers",
    "contentType",
    "cookie",
    "cors",
    "database",
    "default",
    "delay",
    "deny",
    "dryRun",
    "ejection",
    "exclude",
    "exposeHeaders",
    "external",
    "fault",
    "forward",
    "from",
    "group",
    "groups",
    "hash",
    "header",
    "headers",
    "healthCheck",
    "healthyThreshold",
    "hostname",
    "idle",
    "inline",
    "interval",
    "ipv6PrefixLength",
    "issuer",
    "jwt",
    "key",
    "keys",
    "kind",
    "labels",
    "limits",
    "loadBalancing",
    "match",
    "maxAge",
    "maxPercent",
    "maxRequests",
    "maxRequestsPerEndpoint",
    "metadata",
    "methods",
    "minPerSecond",
    "mirror",
    "name",
    "namespace",
    "namespaces",
    "passwordSecretRef",
    "path",
    "paths",
    "per",
    "perAttempt",
    "percent",
    "port",
    "prefix",
    "providers",
    "query",
    "realm",
    "redirect",
    "redirectParameter",
    "redis",
    "refreshInterval",
    "refused",
    "remote",
    "remove",
    "request",
    "requestBody",
    "requestHeaders",
    "requests",
    "require",
    "requiredClaims",
    "respond",
    "response",
    "responseBody",
    "responseHeaders",
    "retries",
    "rewrite",
    "rules",
    "scheme",
    "secretRef",
    "sectionName",
    "serverName",
    "service",
    "serviceRef",
    "set",
    "shared",
    "sharedSecretRef",
    "signIn",
    "spec",
    "split",
    "statusCode",
    "statuses",
    "subject",
    "targetRefs",
    "time",
    "timeout",
    "timeouts",
    "tls",
    "tokens",
    "tunnel",
    "type",
    "unhealthyThreshold",
    "url",
    "username",
    "value",
    "values",
    "weight",
];

/// The durations among [`POLICY_FIELDS`].
const DURATIONS: [&str; 10] = [
    "clockSkew",
    "defaultTime",
    "interval",
    "maxAge",
    "per",
    "perAttempt",
    "refreshInterval",
    "staleIfError",
    "time",
    "timeout",
];

/// The strictness of reading an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Unknown fields cause warnings.
    Lenient,
    /// Unknown fields cause warnings, and no message repeats a value.
    Confidential,
    /// Unknown or empty fields of the specification are errors: a misspelt field may be a restriction of access.
    Strict,
}

/// The object as a `T`. Fields that `T` does not have are warnings or errors. A value of the wrong type is an error
/// with its field, and the result is `None`.
pub(super) fn parse<T: DeserializeOwned>(
    value: &Value,
    manner: Manner,
    findings: &mut Findings,
) -> Option<T> {
    if manner == Manner::Strict
        && let Some(spec) = value.get("spec")
    {
        refuse_nulls(spec, "spec", findings);
    }
    let mut unknown = Vec::new();
    let object = serde_ignored::deserialize(value, |path| unknown.push(render(&path))).ok();
    // The unknown fields before the unreadable field, if there is an unreadable field.
    for field in unknown {
        report_unknown_field(field, manner, findings);
    }
    if object.is_some() {
        return object;
    }
    let confidential = manner == Manner::Confidential;
    let error = serde_path_to_error::deserialize::<_, T>(value).err()?;
    let mut field = String::new();
    let mut found = value;
    for segment in error.path() {
        match segment {
            Segment::Seq { index } => {
                push_index(&mut field, *index);
                found = found.get(index).unwrap_or(&Value::Null);
            }
            Segment::Map { key } => {
                push_key(&mut field, key);
                found = found.get(key).unwrap_or(&Value::Null);
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    let message = error.inner().to_string();
    // Serde's own message for absent fields (`serde::de::Error::missing_field`, `unknown_variant`).
    let quoted =
        |text: &str| -> Vec<String> { text.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    if message.starts_with("missing field ") {
        if let Some(name) = quoted(&message).first() {
            push_key(&mut field, name);
        }
        findings.error(field, "is missing");
        return None;
    }
    if let (Some((_, known)), Value::String(text)) =
        (message.strip_prefix("unknown variant ").and_then(|rest| rest.split_once(", expected ")), found)
    {
        findings.error(field, format!("{text:?} is unknown: write {}", in_words(&quoted(known))));
        return None;
    }
    // Serde's own message for unsuitable values (`serde::de::Error::invalid_type`, `invalid_value`).
    let is_serdes = message.starts_with("invalid type: ") || message.starts_with("invalid value: ");
    let expected = message.rsplit_once(", expected ").filter(|_| is_serdes).map(|(_, expected)| expected);
    if expected.is_none()
        && found.is_string()
        && (field.starts_with("data") || field.starts_with("binaryData"))
    {
        // The field of a Secret or a ConfigMap; no other object has these fields.
        findings.error(field, "is not valid base64");
        return None;
    }
    let is_text = matches!(expected, Some("a string"));
    let message = match found {
        Value::Number(number) if is_text && manner == Manner::Strict && is_duration(&field) => {
            let seconds = number
                .as_u64()
                .map_or("a unit, such as 10s".to_owned(), |number| format!("{number}s for seconds"));
            format!("is a number without a unit: write {seconds}")
        }
        _ => mismatch(found, expected, confidential),
    };
    findings.error(field, message);
    None
}

/// Whether a field of ours is a duration, for which users of other gateways write numbers.
fn is_duration(field: &str) -> bool {
    let name = field.rsplit('.').next().unwrap_or_default();
    DURATIONS.contains(&name) || field.starts_with("spec.timeouts.")
}

/// The problem of a value where `expected` should be, in words of serde or of the Kubernetes types.
fn mismatch(found: &Value, expected: Option<&str>, confidential: bool) -> String {
    let is = match found {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    };
    let must_be = match (expected, found) {
        (None, _) => return "has an invalid value".to_owned(),
        // Such as the host `no`, or the annotation 1.10.
        (Some("a string" | "a base64-encoded string"), Value::Bool(_) | Value::Number(_)) => {
            return "must be text: write it in quotes".to_owned();
        }
        (Some("i32" | "i64"), Value::String(text)) => match text.parse::<i64>() {
            Ok(number) if !confidential => return format!("must be a number: write {number}"),
            _ => "a number",
        },
        (Some("i32"), Value::Number(_)) => "a whole number of at most 32 bits",
        (Some("i64"), Value::Number(_)) => "a whole number of at most 64 bits",
        (Some("a boolean"), Value::String(text)) if text == "true" || text == "false" => {
            return "must be true or false: write it without quotes".to_owned();
        }
        (Some("a string" | "a base64-encoded string"), _) => "text",
        (Some("i32" | "i64"), _) => "a number",
        (Some("a boolean"), _) => "true or false",
        (Some("a sequence"), _) => "a list",
        (Some("IntOrString"), _) => "a number or text",
        (Some("a timestamp string"), _) => "a time such as \"2024-01-31T12:00:00Z\"",
        // The name of a Kubernetes type.
        (Some(_), Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            "a mapping"
        }
        (Some(_), Value::Object(_)) => return "has an invalid value".to_owned(),
    };
    match found {
        Value::String(text) if !confidential => format!("must be {must_be}, but is {text:?}"),
        _ => format!("must be {must_be}, but is {is}"),
    }
}

fn report_unknown_field(field: String, manner: Manner, findings: &mut Findings) {
    let name = field.rsplit(['.', ']']).next().unwrap_or_default();
    let known = if manner == Manner::Strict { &POLICY_FIELDS[..] } else { &FIELDS };
    let hint = match closest(name, known) {
        Some(meant) if meant != name => format!("did you mean {meant}?"),
        _ => "check its spelling and its place".to_owned(),
    };
    // Outside the specification, in the API server's part, there are newer versions of objects than ours.
    let is_around = ["metadata", "status"].iter().any(|part| field.starts_with(part));
    if manner == Manner::Strict && !is_around {
        findings.error(field, format!("is unknown: {hint}"));
    } else {
        findings.warning(field, format!("is unknown and ignored: {hint}"));
    }
}

/// Reports fields without a value.
fn refuse_nulls(value: &Value, field: &str, findings: &mut Findings) {
    match value {
        Value::Null => findings.error(field, "is empty: write a value, or remove the field"),
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                refuse_nulls(entry, &format!("{field}[{index}]"), findings);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let mut field = field.to_owned();
                push_key(&mut field, key);
                refuse_nulls(value, &field, findings);
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `A, B or C`
fn in_words(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}

fn render(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => {
            let mut field = render(parent);
            push_index(&mut field, *index);
            field
        }
        Path::Map { parent, key } => {
            let mut field = render(parent);
            push_key(&mut field, key);
            field
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            render(parent)
        }
    }
}

fn push_index(field: &mut String, index: usize) {
    field.push_str(&format!("[{index}]"));
}

fn push_key(field: &mut String, key: &str) {
    if key.contains(['.', '/', '[', ']']) {
        field.push_str(&format!("[{key}]"));
        return;
    }
    if !field.is_empty() {
        field.push('.');
    }
    field.push_str(key);
}
