//! The access log, and the spans of requests.

use sluicegate_model::access_log::{AccessLogSettings, LogEscape, LogFormat};
use sluicegate_model::feature::observability::{Spans, Unrecorded};
use sluicegate_model::rule::Pattern;
use sluicegate_model::value::{Template, Variable};

use super::Meaning::Sets;
use super::Row;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `enable-access-log` and `enable-opentelemetry`.
    pub(crate) unrecorded: Unrecorded,
    /// `opentelemetry-trust-incoming-span` and `opentelemetry-operation-name`.
    pub(crate) spans: Spans,
    /// `log-format-upstream`, without the escapes of nginx' configuration.
    log_format: Option<Box<str>>,
    /// `log-format-escape-json`.
    escapes_json: bool,
    /// The other keys of the ConfigMap about the access log.
    log: AccessLogSettings,
}

impl Settings {
    /// The access log that the ConfigMap sets.
    pub(crate) fn access_log(&self) -> AccessLogSettings {
        let escape = if self.escapes_json { LogEscape::Json } else { LogEscape::Default };
        let format = self.log_format.as_deref().and_then(|text| LogFormat::new(text, escape).ok());
        AccessLogSettings { format, ..self.log.clone() }
    }
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "enable-access-log",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.observability.unrecorded.access_log = !value.switch()?;
            Ok(())
        }),
        sets: "Whether the access log has the requests.",
        default: "`true`",
    },
    Row {
        name: "enable-opentelemetry",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.observability.unrecorded.traces = !value.switch()?;
            Ok(())
        }),
        sets: "Whether the requests have spans. `true` needs `--otlp-endpoint`.",
        default: "`true` with `--otlp-endpoint`",
    },
    Row {
        name: "opentelemetry-trust-incoming-span",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.observability.spans.ignores_callers = !value.switch()?;
            Ok(())
        }),
        sets: "Whether the gateway continues the trace of the caller.",
        default: "`true`",
    },
    Row {
        name: "opentelemetry-operation-name",
        restricts: false,
        meaning: Sets(|settings, value| {
            let name = Template::new(value.text).map_err(|fault| fault.to_string())?;
            // A span never contains the query, because a query may contain secrets.
            if let Some(variable) = name.variables().find(|variable| has_query(variable)) {
                return Err(format!("has the variable ${variable}, which contains the query: write $uri"));
            }
            settings.observability.spans.name = Some(name);
            Ok(())
        }),
        sets: "The name of the spans, with variables of nginx.",
        default: "the method and the path of the rule",
    },
];

/// The keys of the ConfigMap that no annotation has.
pub(super) const KEYS: &[Row] = &[
    Row {
        name: "log-format-upstream",
        restricts: false,
        meaning: Sets(|settings, value| {
            let text = unescaped(value.text);
            LogFormat::new(&text, LogEscape::Default)?;
            settings.observability.log_format = Some(text.into());
            Ok(())
        }),
        sets: "The format of lines of the access log, with variables of nginx.",
        default: "the format of `--access-log-format`",
    },
    Row {
        name: "log-format-escape-json",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.observability.escapes_json = value.switch()?;
            Ok(())
        }),
        sets: "Whether values in `log-format-upstream` have the escapes of JSON.",
        default: "`false`",
    },
    Row {
        name: "disable-access-log",
        restricts: false,
        meaning: Sets(|settings, value| {
            let is_off = value.switch()?;
            settings.observability.log.omits_requests |= is_off;
            settings.observability.log.omits_connections |= is_off;
            Ok(())
        }),
        sets: "Turns the access log off.",
        default: "`false`",
    },
    Row {
        name: "disable-http-access-log",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.observability.log.omits_requests |= value.switch()?;
            Ok(())
        }),
        sets: "Turns the access log of requests off.",
        default: "`false`",
    },
    Row {
        name: "disable-stream-access-log",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.observability.log.omits_connections |= value.switch()?;
            Ok(())
        }),
        sets: "Turns the access log of TCP and UDP off.",
        default: "`false`",
    },
    Row {
        name: "skip-access-log-urls",
        restricts: false,
        meaning: Sets(|settings, value| {
            let target = |text: &str| {
                let pattern = match (text.strip_prefix("~*"), text.strip_prefix('~')) {
                    (Some(expression), _) => Pattern::new(expression, true),
                    (None, Some(expression)) => Pattern::new(expression, false),
                    (None, None) => Pattern::exact(text),
                };
                pattern.map_err(|fault| format!("has the expression {text:?}: {fault}"))
            };
            settings.observability.log.omitted_targets =
                value.list().map(target).collect::<Result<_, _>>()?;
            Ok(())
        }),
        sets: "Request targets, with commas, that the access log leaves out.",
        default: "",
    },
    Row {
        name: "enable-access-log-for-default-backend",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.observability.log.omits_unrouted = !value.switch()?;
            Ok(())
        }),
        sets: "Whether the access log has requests without a rule.",
        default: "`true`",
    },
];

/// Whether the value of a variable contains the query of the request, or a part of the query.
fn has_query(variable: &Variable) -> bool {
    let is_url = matches!(variable, Variable::Request | Variable::RequestUri | Variable::EscapedRequestUri);
    is_url || matches!(variable, Variable::Args | Variable::Argument(_))
}

/// The text of a quoted word in a configuration of nginx, into which ingress-nginx puts the value.
fn unescaped(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, behind)) = rest.split_once('\\') {
        out.push_str(before);
        let mut chars = behind.chars();
        match chars.next() {
            Some(quoted @ ('"' | '\'' | '\\')) => out.push(quoted),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('n') => out.push('\n'),
            _ => {
                out.push('\\');
                chars = behind.chars();
            }
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out
}
