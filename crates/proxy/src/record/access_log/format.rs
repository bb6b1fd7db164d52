//! Lines in a format with the variables of nginx.

use std::io::Write as _;
use std::time::Duration;

use sluicegate_model::access_log::{LogEscape, LogFormat, LogPart, LogVariable};
use sluicegate_model::value::Variable;

use super::super::{CLOSED, RejectedHead, RequestRecord, request_line};
use super::escape;
use crate::query::mask;
use crate::template::TemplateView;

/// Writes the line of a request. `value` is a buffer for the value of one variable.
pub(super) fn write_request(
    out: &mut Vec<u8>,
    value: &mut Vec<u8>,
    (format, view): (&LogFormat, &TemplateView<'_>),
    record: &RequestRecord<'_>,
) {
    write(out, value, format, |variable, out| match variable {
        LogVariable::Request(variable) => put_of_request(variable, view, record, out),
        variable => put_of_record(variable, record, out),
    });
}

/// Writes the line of a rejected head, whose parts are unknown except for the first line.
pub(super) fn write_rejected(
    out: &mut Vec<u8>,
    value: &mut Vec<u8>,
    format: &LogFormat,
    record: &RejectedHead<'_>,
) {
    let [method, target, version] = request_line(record.buf);
    let masked = mask(target, record.all_secrets);
    let target = masked.as_deref().unwrap_or(target);
    write(out, value, format, |variable, out| {
        match variable {
            LogVariable::Request(Variable::RemoteAddr | Variable::PeerAddress) => {
                put(out, format_args!("{}", record.client));
            }
            LogVariable::Request(Variable::Request) => out.extend([method, target, version].join(&b' ')),
            LogVariable::Request(Variable::RequestMethod) => out.extend(method),
            LogVariable::Request(Variable::RequestUri) => out.extend(target),
            LogVariable::Request(Variable::ServerProtocol) => out.extend(version),
            LogVariable::Request(variable) => return TemplateView::put_time(variable, out),
            LogVariable::Status => put(out, format_args!("{}", record.status)),
            LogVariable::BytesSent => put(out, format_args!("{}", record.bytes)),
            LogVariable::RequestLength => put(out, format_args!("{}", record.buf.len())),
            LogVariable::RequestTime => put(out, format_args!("{:.3}", record.duration.as_secs_f64())),
            _ => return false,
        }
        true
    });
}

/// Writes a line. `put` appends the value of a variable, and returns whether the value exists.
fn write(
    out: &mut Vec<u8>,
    value: &mut Vec<u8>,
    format: &LogFormat,
    put: impl Fn(&LogVariable, &mut Vec<u8>) -> bool,
) {
    for part in format.parts() {
        match part {
            LogPart::Text(text) => out.extend(text.as_bytes()),
            LogPart::Variable(variable) => {
                value.clear();
                let exists = put(variable, value);
                // Writing to a Vec does not fail.
                let _ = match format.escape() {
                    LogEscape::Default if !exists => out.write_all(b"-"),
                    LogEscape::Default => escape::nginx(out, value),
                    LogEscape::Json => escape::json(out, value),
                };
            }
        }
    }
    out.push(b'\n');
}

fn put_of_request(
    variable: &Variable,
    view: &TemplateView<'_>,
    record: &RequestRecord<'_>,
    out: &mut Vec<u8>,
) -> bool {
    if !record.all_secrets.is_empty() && put_masked(variable, view, record, out) {
        return !out.is_empty();
    }
    view.put_value(variable, out);
    // ingress-nginx or nginx sets these variables for every request, also to an empty text.
    let always_exists = matches!(
        variable,
        Variable::Https
            | Variable::IngressName
            | Variable::IsArgs
            | Variable::LocationPath
            | Variable::Namespace
            | Variable::ProxyUpstreamName
            | Variable::ServiceName
            | Variable::ServicePort
    );
    always_exists || !out.is_empty()
}

/// Writes the value of a variable that may have a credential in a parameter of a query. Returns whether the variable is of this
/// kind.
fn put_masked(
    variable: &Variable,
    view: &TemplateView<'_>,
    record: &RequestRecord<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let is_secret = |name: &str| record.secrets.iter().any(|secret| secret.eq_ignore_ascii_case(name));
    let secrets = match variable {
        Variable::Args | Variable::Request | Variable::RequestUri => record.secrets,
        Variable::Header(name) if &**name == "referer" => record.all_secrets,
        Variable::EscapedRequestUri if !record.secrets.is_empty() => &[],
        Variable::Argument(name) if is_secret(name) => &[],
        _ => return false,
    };
    view.put_value(variable, out);
    if matches!(variable, Variable::EscapedRequestUri | Variable::Argument(_)) {
        if !out.is_empty() {
            *out = b"***".to_vec();
        }
        return true;
    }
    // `mask` finds the query behind a question mark.
    let start: &[u8] = if *variable == Variable::Args { b"?" } else { b"" };
    // The version of HTTP is not a part of the query.
    let end = match variable {
        Variable::Request => out.iter().rposition(|byte| *byte == b' ').unwrap_or(out.len()),
        _ => out.len(),
    };
    if let Some(masked) = mask(&[start, &out[..end]].concat(), secrets) {
        out.splice(..end, masked.into_iter().skip(start.len()));
    }
    true
}

fn put_of_record(variable: &LogVariable, record: &RequestRecord<'_>, out: &mut Vec<u8>) -> bool {
    let times = record.endpoint_times;
    let seconds = |out: &mut Vec<u8>, time: Option<Duration>| match time {
        Some(time) => {
            put(out, format_args!("{:.3}", time.as_secs_f64()));
            true
        }
        None => false,
    };
    let status = if record.status == 0 { CLOSED } else { record.status };
    match variable {
        LogVariable::Request(_) => return false,
        LogVariable::BodyBytesSent => {
            put(out, format_args!("{}", record.bytes.saturating_sub(record.head_bytes)));
        }
        LogVariable::BytesSent => put(out, format_args!("{}", record.bytes)),
        LogVariable::CacheStatus => match record.cache {
            Some(cache) => out.extend(cache.bytes().map(|byte| byte.to_ascii_uppercase())),
            None => return false,
        },
        LogVariable::Completion => out.extend(if record.is_complete { b"OK".as_slice() } else { b"" }),
        LogVariable::ProxyAlternativeUpstreamName => {
            if let Some(canary) = record.canary {
                put(out, format_args!("{}-{}-{}", canary.namespace, canary.service, canary.port));
            }
        }
        LogVariable::RequestLength => put(out, format_args!("{}", record.request_bytes)),
        LogVariable::RequestTime => return seconds(out, Some(record.duration)),
        LogVariable::SpanId => match record.trace {
            Some(trace) => put(out, format_args!("{:016x}", trace.span)),
            None => return false,
        },
        LogVariable::SslCipher => return put_name(out, record.tls.map(|tls| tls.cipher())),
        LogVariable::SslProtocol => return put_name(out, record.tls.map(|tls| tls.protocol())),
        LogVariable::SslServerName => return put_name(out, record.tls.and_then(|tls| tls.name.as_deref())),
        LogVariable::Status => put(out, format_args!("{status}")),
        LogVariable::TraceId => match record.trace {
            Some(trace) => put(out, format_args!("{:032x}", trace.trace)),
            None => return false,
        },
        LogVariable::UpstreamAddr => match record.endpoint {
            Some(endpoint) => put(out, format_args!("{endpoint}")),
            None => return false,
        },
        LogVariable::UpstreamConnectTime => return seconds(out, times.map(|times| times.connect)),
        LogVariable::UpstreamHeaderTime => return seconds(out, times.map(|times| times.head)),
        LogVariable::UpstreamResponseLength => match times {
            Some(_) => put(out, format_args!("{}", record.endpoint_bytes)),
            None => return false,
        },
        LogVariable::UpstreamResponseTime => return seconds(out, times.map(|times| times.response)),
        LogVariable::UpstreamStatus => match (record.endpoint_status, record.endpoint) {
            (Some(of_endpoint), _) => put(out, format_args!("{of_endpoint}")),
            // nginx gives the status of its own response to an endpoint without a response.
            (None, Some(_)) => put(out, format_args!("{status}")),
            (None, None) => return false,
        },
    }
    true
}

fn put_name(out: &mut Vec<u8>, name: Option<&str>) -> bool {
    out.extend(name.unwrap_or_default().as_bytes());
    !out.is_empty()
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec does not fail.
    let _ = out.write_fmt(text);
}
