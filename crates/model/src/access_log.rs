//! The requests in the access log, and the format of their lines.

use std::fmt;

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use serde::{Serialize, Serializer};

use crate::encoding::{Adapt as _, Fault, List, Same};
use crate::rule::Pattern;
use crate::value::template::{TemplateError, Variable, name};

/// The requests in the access log, and the format of their lines. The log itself is an option of the data plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct AccessLogSettings {
    /// The format of lines about requests. Default: the format of `--access-log-format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub format: Option<LogFormat>,
    /// Whether the log leaves out all requests. Default: no.
    #[n(1)]
    pub omits_requests: bool,
    /// Whether the log leaves out all connections below HTTP. Default: no.
    #[n(2)]
    pub omits_connections: bool,
    /// Whether the log leaves out requests without a route. Default: no.
    #[n(3)]
    pub omits_unrouted: bool,
    /// The log leaves out requests whose target, with its query, matches one of these expressions. Default: none.
    #[cbor(n(4), with = "List::<Same>")]
    pub omitted_targets: Vec<Pattern>,
}

impl AccessLogSettings {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the log has a request. `target` is as the client sent it.
    #[must_use]
    pub fn has_request(&self, target: &[u8], is_routed: bool) -> bool {
        let is_omitted = self.omits_requests || self.omits_unrouted && !is_routed;
        !is_omitted && !self.omitted_targets.iter().any(|omitted| omitted.is_match(target))
    }
}

/// A format of log lines with the variables of nginx (`log_format`).
///
/// The syntax is that of [`Template`](crate::value::Template), with the further variables of [`LogVariable`].
#[derive(Clone, PartialEq, Eq)]
pub struct LogFormat {
    text: Box<str>,
    escape: LogEscape,
    parts: Box<[LogPart]>,
}

/// The escapes of values in a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEscape {
    /// `\xHH` for quotes, backslashes, controls and bytes above 0x7E; `-` for a value that does not exist (nginx
    /// `escape=default`).
    Default,
    /// The escapes of JSON strings; an empty text for a value that does not exist (nginx `escape=json`).
    Json,
}

/// A part of a log format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPart {
    /// A text without variables.
    Text(Box<str>),
    /// A variable.
    Variable(LogVariable),
}

/// Variables that only a log line has, with their names in nginx.
macro_rules! variables {
    ($($(#[$doc:meta])* $variable:ident = $name:literal $(| $alias:literal)*;)*) => {
        /// A variable of a log line.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum LogVariable {
            /// A variable of the request.
            Request(Variable),
            $($(#[$doc])* $variable,)*
        }

        impl LogVariable {
            const PLAIN: &[(&str, Self)] = &[$(($name, Self::$variable), $(($alias, Self::$variable),)*)*];
        }
    };
}

variables! {
    /// Bytes of the response without its head.
    BodyBytesSent = "body_bytes_sent";
    /// Bytes of the response, head included.
    BytesSent = "bytes_sent";
    /// `hit`, `miss` and the like, if the rule has a cache.
    CacheStatus = "upstream_cache_status";
    /// `OK` if the response is complete.
    Completion = "request_completion";
    /// The upstream of the canary that received the request.
    ProxyAlternativeUpstreamName = "proxy_alternative_upstream_name";
    /// Bytes of the request, head included.
    RequestLength = "request_length";
    /// The time from the end of the request's head to the end of the response, in seconds.
    RequestTime = "request_time";
    /// The ID of the gateway's span.
    SpanId = "opentelemetry_span_id";
    /// The name of the cipher in OpenSSL, for a client with TLS.
    SslCipher = "ssl_cipher";
    /// The version of TLS, as in `TLSv1.3`.
    SslProtocol = "ssl_protocol";
    /// The name that the client requested by TLS.
    SslServerName = "ssl_server_name";
    /// The status that the client received.
    Status = "status";
    /// The ID of the trace.
    TraceId = "opentelemetry_trace_id";
    /// The address of the last endpoint.
    UpstreamAddr = "upstream_addr";
    /// The time to connect to the endpoint, in seconds.
    UpstreamConnectTime = "upstream_connect_time";
    /// The time from the start of the connect to the head of the endpoint's response, in seconds.
    UpstreamHeaderTime = "upstream_header_time";
    /// Bytes of the body that the endpoint sent.
    UpstreamResponseLength = "upstream_response_length";
    /// The time from the start of the connect to the end of the response, in seconds.
    UpstreamResponseTime = "upstream_response_time";
    /// The status that the endpoint sent.
    UpstreamStatus = "upstream_status";
}

impl LogVariable {
    /// The variable with this name, in lower case.
    fn named(name: &str) -> Option<Self> {
        // An expression does not match in a log line.
        let of_request =
            || Variable::named(name).filter(|variable| !matches!(variable, Variable::Capture(_)));
        let plain = Self::PLAIN.iter().find(|(plain, _)| *plain == name);
        plain.map(|(_, variable)| variable.clone()).or_else(|| of_request().map(Self::Request))
    }
}

impl LogFormat {
    /// The longest text, in bytes.
    pub const LENGTH_MAX: usize = 16 * 1024;
    /// The maximum number of variables. The number bounds the length of a line.
    pub const VARIABLES_MAX: usize = 128;

    /// Parses a format.
    ///
    /// # Errors
    ///
    /// The text is too long, has a syntax error, or has a variable that a log line cannot have. The message is the rest of a
    /// sentence about the field.
    pub fn new(text: &str, escape: LogEscape) -> Result<Self, String> {
        if text.len() > Self::LENGTH_MAX {
            return Err(format!("has {} bytes, but may have at most {}", text.len(), Self::LENGTH_MAX));
        }
        let (mut parts, mut rest, mut variables) = (Vec::new(), text, 0);
        let push_text = |parts: &mut Vec<LogPart>, text: &str| {
            if !text.is_empty() {
                parts.push(LogPart::Text(text.into()));
            }
        };
        while let Some((before, behind)) = rest.split_once('$') {
            push_text(&mut parts, before);
            let (name, tail) = name(behind).map_err(|fault| fault.to_string())?;
            let variable = LogVariable::named(&name.to_ascii_lowercase());
            let variable = variable.ok_or_else(|| TemplateError::Unknown(name.into()).to_string())?;
            parts.push(LogPart::Variable(variable));
            variables += 1;
            rest = tail;
        }
        push_text(&mut parts, rest);
        if variables > Self::VARIABLES_MAX {
            return Err(format!("has {variables} variables, but may have at most {}", Self::VARIABLES_MAX));
        }
        Ok(Self { text: text.into(), escape, parts: parts.into() })
    }

    /// The escapes of values.
    #[must_use]
    pub fn escape(&self) -> LogEscape {
        self.escape
    }

    /// The parts, in the order of the text.
    #[must_use]
    pub fn parts(&self) -> &[LogPart] {
        &self.parts
    }
}

impl fmt::Debug for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogFormat").field(&self.text).field(&self.escape).finish()
    }
}

impl Serialize for LogFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<C> Encode<C> for LogFormat {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        encoder.array(2)?.str(&self.text)?.bool(self.escape == LogEscape::Json)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for LogFormat {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        if decoder.array()? != Some(2) {
            return Err(Fault::Invalid("a format of the access log").into());
        }
        let text = decoder.str()?;
        let escape = if decoder.bool()? { LogEscape::Json } else { LogEscape::Default };
        Self::new(text, escape).map_err(|_| Fault::Invalid("a format of the access log").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_format_has_variables_of_requests_and_of_log_lines() {
        let format = LogFormat::new("$remote_addr \"${Status}\" $http_x", LogEscape::Default).unwrap();
        let text = |text: &str| LogPart::Text(text.into());
        let of_request = |variable| LogPart::Variable(LogVariable::Request(variable));
        let expected = [
            of_request(Variable::RemoteAddr),
            text(" \""),
            LogPart::Variable(LogVariable::Status),
            text("\" "),
            of_request(Variable::Header("x".into())),
        ];
        assert_eq!(format.parts(), expected);
    }

    #[test]
    fn log_format_with_an_unknown_variable_or_beyond_a_limit_is_rejected() {
        let fault = |text: &str| LogFormat::new(text, LogEscape::Json).unwrap_err();
        assert!(fault("$remote_addr $geoip_city").contains("$geoip_city"));
        assert!(fault("a $").contains("without the name"));
        assert!(fault("$1").contains("$1"));
        assert!(fault(&"$status".repeat(129)).contains("129 variables"));
        assert!(fault(&"x".repeat(LogFormat::LENGTH_MAX + 1)).contains("bytes"));
    }

    #[test]
    fn log_omits_requests_by_target_in_any_case_and_requests_without_a_route() {
        let (exact, regex) = (Pattern::exact("/healthz").unwrap(), Pattern::new("^/static/", false).unwrap());
        let settings = AccessLogSettings {
            omitted_targets: vec![exact, regex],
            omits_unrouted: true,
            ..Default::default()
        };
        for (target, is_routed, expected) in [
            ("/", true, true),
            ("/", false, false),
            ("/HealthZ", true, false),
            ("/healthz?x", true, true),
            ("/static/a.js", true, false),
        ] {
            assert_eq!(settings.has_request(target.as_bytes(), is_routed), expected, "{target}");
        }
        let none = AccessLogSettings { omits_requests: true, ..Default::default() };
        assert!(!none.has_request(b"/", true));
    }
}
