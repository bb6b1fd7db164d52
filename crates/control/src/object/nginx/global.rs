//! Keys of the ConfigMap for all Ingresses: clients that are blocked, limits on annotations, headers.

use std::sync::Arc;

use sluicegate_model::rule::Pattern;
use sluicegate_model::value::{EditedHeader, syntax};

use super::Meaning::{Refused, Sets};
use super::Row;
use super::access::{Networks, networks};
use super::risk::Risk;
use super::value::Value;
use crate::object::path::literal;
use crate::object::{Kind, ObjectRef};

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) blocked: Arc<Blocked>,
    /// `allow-snippet-annotations: false`.
    pub(crate) refuses_snippets: bool,
    /// `annotations-risk-level`: the highest accepted risk.
    pub(crate) risk: Risk,
    /// `annotation-value-word-blocklist`.
    pub(crate) words: Arc<[Box<str>]>,
    /// `allow-cross-namespace-resources`.
    pub(crate) crosses_namespaces: bool,
    /// `strict-validate-path-type: true`.
    pub(crate) checks_path_types: bool,
    /// `proxy-set-headers`: the ConfigMap with headers for endpoints.
    pub(crate) request_headers: Option<ObjectRef>,
    /// `add-headers`: the ConfigMap with headers for clients.
    pub(crate) response_headers: Option<ObjectRef>,
    /// `hide-headers`.
    pub(crate) hidden: Arc<[EditedHeader]>,
    /// `server-tokens`.
    pub(crate) has_server_tokens: bool,
    /// `allow-backend-server-header`.
    pub(crate) passes_server: bool,
}

/// The clients that no Ingress serves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocked {
    /// `block-cidrs`.
    pub(crate) networks: Networks,
    /// `block-user-agents`.
    pub(crate) agents: Vec<Pattern>,
    /// `block-referers`.
    pub(crate) referers: Vec<Pattern>,
}

impl Blocked {
    pub(crate) fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.agents.is_empty() && self.referers.is_empty()
    }
}

/// The maximum number of headers of `hide-headers`: seven more are always hidden.
const HIDDEN_MAX: usize = 25;

/// The longest expression of several entries, in bytes.
const EXPRESSION_MAX: usize = 2048;

/// The maximum number of expressions of a list.
const EXPRESSIONS_MAX: usize = 8;

/// A list of texts as in the directive `map` of nginx: `~regex`, `~*regex` without regard to case, or the whole text without
/// regard to case.
fn blocklist(value: &Value<'_>) -> Result<Vec<Pattern>, String> {
    let mut expressions: Vec<String> = Vec::new();
    for entry in value.list() {
        let entry = unquoted(entry);
        let expression = match (entry.strip_prefix("~*"), entry.strip_prefix('~')) {
            (Some(regex), _) => format!("(?i:{regex})"),
            (None, Some(regex)) => format!("(?:{regex})"),
            (None, None) => {
                let text = entry.strip_prefix('\\').unwrap_or(&entry);
                format!("(?i:^{}$)", literal(text))
            }
        };
        Pattern::new(&*expression, false)
            .map_err(|fault| format!("{entry:?} is not supported as a regular expression: {fault}"))?;
        match expressions.last_mut() {
            Some(last) if last.len() + expression.len() < EXPRESSION_MAX => {
                last.push('|');
                last.push_str(&expression);
            }
            _ => expressions.push(expression),
        }
    }
    if expressions.len() > EXPRESSIONS_MAX {
        return Err("is too long: block fewer texts, or join them in regular expressions".to_owned());
    }
    let pattern = |text: String| Pattern::new(text, false).map_err(|fault| fault.to_string());
    expressions.into_iter().map(pattern).collect()
}

/// A word of a configuration of nginx, without its quotes and escapes.
fn unquoted(word: &str) -> String {
    let quoted = ['"', '\''].into_iter().find_map(|quote| word.strip_prefix(quote)?.strip_suffix(quote));
    let mut text = String::with_capacity(word.len());
    let mut rest = quoted.unwrap_or(word).chars().peekable();
    while let Some(next) = rest.next() {
        match rest.peek() {
            Some(escaped @ ('"' | '\'' | '\\')) if next == '\\' => {
                text.push(*escaped);
                rest.next();
            }
            _ => text.push(next),
        }
    }
    text
}

/// A ConfigMap of any namespace, as the owner of the gateway names it: `namespace/name`.
fn configmap(value: &Value<'_>) -> Result<ObjectRef, String> {
    let (namespace, name) = value.text.split_once('/').unwrap_or((value.namespace, value.text));
    match syntax::dns_name_fault(namespace).or_else(|| syntax::dns_name_fault(name)) {
        Some(fault) => Err(format!("{:?} {fault}: write namespace/name", value.text)),
        None => Ok(ObjectRef { kind: Kind::ConfigMap, namespace: namespace.into(), name: name.into() }),
    }
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "block-cidrs",
        restricts: true,
        meaning: Sets(|settings, value| {
            Arc::make_mut(&mut settings.global.blocked).networks = networks(value)?;
            Ok(())
        }),
        sets: "The client IPs that no Ingress serves, with commas. These clients receive 403.",
        default: "",
    },
    Row {
        name: "block-user-agents",
        restricts: true,
        meaning: Sets(|settings, value| {
            Arc::make_mut(&mut settings.global.blocked).agents = blocklist(value)?;
            Ok(())
        }),
        sets: "Requests with one of these `User-Agent` headers receive 403: a text, `~regex` or `~*regex`, with commas.",
        default: "",
    },
    Row {
        name: "block-referers",
        restricts: true,
        meaning: Sets(|settings, value| {
            Arc::make_mut(&mut settings.global.blocked).referers = blocklist(value)?;
            Ok(())
        }),
        sets: "As `block-user-agents`, for the header `Referer`.",
        default: "",
    },
    Row {
        name: "allow-snippet-annotations",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.global.refuses_snippets = !value.switch()?;
            Ok(())
        }),
        sets: "`false`: an Ingress with a snippet responds with 503. The gateway executes no snippet, so snippets are allowed by default.",
        default: "`true`",
    },
    Row {
        name: "annotations-risk-level",
        restricts: true,
        meaning: Sets(|settings, value| {
            let levels = [Risk::Low, Risk::Medium, Risk::High, Risk::Critical];
            settings.global.risk = value.word(&levels.map(|level| (level.in_words(), level)))?;
            Ok(())
        }),
        sets: "An Ingress with an annotation of a higher risk responds with 503: `Low`, `Medium`, `High` or `Critical`.",
        default: "`Critical`",
    },
    Row {
        name: "annotation-value-word-blocklist",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.global.words = value.list().map(Into::into).collect();
            Ok(())
        }),
        sets: "An Ingress with one of these words in an annotation responds with 503. The words have commas between them.",
        default: "",
    },
    Row {
        name: "allow-cross-namespace-resources",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.global.crosses_namespaces = value.switch()?;
            Ok(())
        }),
        sets: "Annotations may name Secrets and ConfigMaps of other namespaces, as `namespace/name`.",
        default: "`false`",
    },
    Row {
        name: "strict-validate-path-type",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.global.checks_path_types = value.switch()?;
            Ok(())
        }),
        sets: "`true`: a path of type `Exact` or `Prefix` with characters beyond letters, digits, `-`, `_` and `/` is an error, and is served.",
        default: "`false`",
    },
    Row {
        name: "proxy-set-headers",
        restricts: false,
        meaning: Sets(|settings, value| {
            let headers = configmap(value)?;
            settings.references.push(headers.clone());
            settings.global.request_headers = Some(headers);
            Ok(())
        }),
        sets: "The ConfigMap with headers for endpoints, as `namespace/name`. Values may have variables.",
        default: "",
    },
    Row {
        name: "add-headers",
        restricts: false,
        meaning: Sets(|settings, value| {
            let headers = configmap(value)?;
            settings.references.push(headers.clone());
            settings.global.response_headers = Some(headers);
            Ok(())
        }),
        sets: "The ConfigMap with headers for clients, as `namespace/name`. Values may have variables.",
        default: "",
    },
    Row {
        name: "hide-headers",
        restricts: false,
        meaning: Sets(|settings, value| {
            let hidden: Vec<_> = value.list().map(EditedHeader::new).collect::<Result<_, _>>()?;
            if hidden.len() > HIDDEN_MAX {
                return Err(format!("has {} names, but may have at most {HIDDEN_MAX}", hidden.len()));
            }
            settings.global.hidden = hidden.into();
            Ok(())
        }),
        sets: "The headers of endpoints that clients do not receive, with commas. At most 25 names.",
        default: "",
    },
    Row {
        name: "server-tokens",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.global.has_server_tokens = value.switch()?;
            Ok(())
        }),
        sets: "With `allow-backend-server-header`, clients receive the header `Server` of endpoints. The gateway itself sends none.",
        default: "`false`",
    },
    Row {
        name: "allow-backend-server-header",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.global.passes_server = value.switch()?;
            Ok(())
        }),
        sets: "With `server-tokens`, clients receive the header `Server` of endpoints.",
        default: "`false`",
    },
    Row {
        name: "limit-conn-zone-variable",
        restricts: true,
        meaning: Sets(|_, value| match value.text {
            "$binary_remote_addr" | "$remote_addr" => Ok(()),
            other => Err(format!("{other:?} is not supported: limits count by client IP")),
        }),
        sets: "The key of `limit-rps`, `limit-rpm` and `limit-connections`. Only the client IP is supported.",
        default: "`$binary_remote_addr`",
    },
    Row {
        name: "global-auth-snippet",
        restricts: true,
        meaning: Refused(
            "Write headers for the authorization service as `auth-proxy-set-headers` of Ingresses.",
        ),
        sets: "The gateway runs no configuration of nginx.",
        default: "",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(list: &str, text: &str) -> Result<bool, String> {
        let patterns = blocklist(&Value::within(list, &"shop".into()))?;
        Ok(patterns.iter().any(|pattern| pattern.is_match(text.as_bytes())))
    }

    #[test]
    fn blocked_texts_have_the_syntax_of_map() {
        let list = r#"~*chrome\/68\.0\ safari\/537\.36, AlphaBot,~Beta[0-9],"a+b c", \~tilde"#;
        for (text, expected) in [
            ("Mozilla/5.0 Chrome/68.0 Safari/537.36", true),
            ("Chrome/68x0 Safari/537.36", false),
            ("ALPHABOT", true),
            ("AlphaBot/2", false),
            ("x Beta7", true),
            ("x beta7", false),
            ("a+b c", true),
            ("~tilde", true),
            ("", false),
        ] {
            assert_eq!(is_blocked(list, text), Ok(expected), "{text}");
        }
        assert!(is_blocked("~(", "x").is_err() && is_blocked("~a(?=b)", "x").is_err());
        let long: String = (0..3000).map(|number| format!("bot-{number},")).collect();
        assert!(is_blocked(&long, "x").is_err());
        let many: String = (0..300).map(|number| format!("bot-{number},")).collect();
        assert_eq!(is_blocked(&many, "Bot-299"), Ok(true));
    }

    #[test]
    fn configmap_of_the_owner_may_be_of_any_namespace() {
        let named = |text| configmap(&Value::within(text, &"shop".into())).map(|object| object.to_string());
        assert_eq!(named("other/headers").as_deref(), Ok("ConfigMap other/headers"));
        assert_eq!(named("headers").as_deref(), Ok("ConfigMap shop/headers"));
        assert!(named("../headers").is_err() && named("").is_err());
    }
}
