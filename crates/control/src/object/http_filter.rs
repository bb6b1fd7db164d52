//! The filters, timeouts and retries of a rule of an `HTTPRoute` or `GRPCRoute`, as features.

use std::fmt::Display;
use std::time::Duration;

use sluicegate_model::feature::{
    BackendFeatures, Check as _, Cors, Fault, Faults, Features, Header, HeaderEdits, MIRRORS_MAX,
    PathRewrite, PathRewriteType, Redirect, Retries, Scheme, UrlRewrite,
};
use sluicegate_model::value::{
    EditedHeader, EndpointName, Entries, HeaderName, HeaderValue, Hostname, MethodName, Number,
    OriginPattern, Percent, Port, RewritePath, Span, Timeout, span,
};

use super::external_auth::{ExternalAuth, OF_RULE};
use super::gateway_api::{
    CorsFilter, HeaderLine, HeaderModifier, HttpFilter, HttpRetry, HttpTimeouts, PathModifier, RequestMirror,
    RequestRedirect, UrlRewriteFilter,
};
use super::route::BackendRef;
use super::{Kind, ObjectRef};
use crate::problem::Findings;

/// The filters of a rule.
#[derive(Default)]
pub(super) struct RuleFilters {
    pub(super) features: Features,
    pub(super) cors: Option<Cors>,
    /// The backends of mirrors, each with the place of the filter.
    pub(super) mirrors: Vec<(usize, BackendRef)>,
    /// The filters `ExternalAuth`, each with its place.
    pub(super) auth: Vec<(usize, ExternalAuth)>,
    /// Whether a filter is invalid, or not supported.
    pub(super) is_invalid: bool,
    /// Whether a filter `ExternalAuth` is invalid, or names nothing usable.
    pub(super) closes: bool,
}

/// A faulty field inside a filter or a match, and the reason.
pub(super) type Invalid = (String, String);

/// The filters of a rule. `rule` is the field of the rule.
pub(super) fn of_rule(
    written: Vec<HttpFilter>,
    rule: &str,
    object: &ObjectRef,
    findings: &mut Findings,
) -> RuleFilters {
    let mut filters = RuleFilters::default();
    for (index, filter) in written.into_iter().enumerate() {
        let field = format!("{rule}.filters[{index}]");
        let is_auth = filter.kind.as_deref() == Some("ExternalAuth");
        if let Err((within, fault)) = filters.add(filter, index, &field, object, findings) {
            filters.is_invalid = true;
            filters.closes |= is_auth;
            findings.error(format!("{field}.{within}"), format!("{fault}; {OF_RULE}"));
        }
    }
    filters
}

/// The filters of a backend; an error if one is invalid, which has been reported.
pub(super) fn of_backend(
    written: Vec<HttpFilter>,
    backend: &str,
    kind: Kind,
    findings: &mut Findings,
) -> Result<Option<Box<BackendFeatures>>, ()> {
    let mut features = BackendFeatures::default();
    let mut result = Ok(());
    for (index, filter) in written.into_iter().enumerate() {
        let added = match filter.kind.as_deref().unwrap_or_default() {
            "RequestHeaderModifier" => edits(filter.request_header_modifier, "requestHeaderModifier")
                .map(|edits| features.request_headers = edits),
            "ResponseHeaderModifier" => edits(filter.response_header_modifier, "responseHeaderModifier")
                .map(|edits| features.response_headers = edits),
            "URLRewrite" if kind != Kind::GrpcRoute => {
                url_rewrite(filter.url_rewrite).map(|rewrite| features.url_rewrite = rewrite)
            }
            other => Err(("type".to_owned(), format!("{other:?} is not supported at a backend"))),
        };
        if let Err((within, fault)) = added {
            findings.error(format!("{backend}.filters[{index}].{within}"), format!("{fault}; {OF_RULE}"));
            result = Err(());
        }
    }
    result.map(|()| (features != BackendFeatures::default()).then(|| Box::new(features)))
}

impl RuleFilters {
    fn add(
        &mut self,
        filter: HttpFilter,
        index: usize,
        field: &str,
        object: &ObjectRef,
        findings: &mut Findings,
    ) -> Result<(), Invalid> {
        match filter.kind.as_deref().unwrap_or_default() {
            "RequestHeaderModifier" => {
                self.features.request_headers =
                    edits(filter.request_header_modifier, "requestHeaderModifier")?;
            }
            "ResponseHeaderModifier" => {
                self.features.response_headers =
                    edits(filter.response_header_modifier, "responseHeaderModifier")?;
            }
            other @ ("RequestRedirect" | "URLRewrite" | "CORS") if object.kind == Kind::GrpcRoute => {
                return Err(("type".to_owned(), format!("{other:?} is not supported in a GRPCRoute")));
            }
            "RequestRedirect" => self.features.redirect = Some(redirect(filter.request_redirect)?),
            "URLRewrite" => self.features.url_rewrite = url_rewrite(filter.url_rewrite)?,
            "RequestMirror" => {
                let written = filter.request_mirror.ok_or_else(|| missing("requestMirror"))?;
                if self.mirrors.len() == MIRRORS_MAX {
                    let fault = format!("is one of more than {MIRRORS_MAX} mirrors");
                    return Err(("requestMirror".to_owned(), fault));
                }
                if let Some(percent) = percent(&written)? {
                    let field = format!("{field}.requestMirror.backendRef");
                    let backend = written.backend_ref.ok_or_else(|| missing("requestMirror.backendRef"))?;
                    let backend = BackendRef::check(backend, &field, &object.namespace, findings);
                    // The percentage stands in place of the weight.
                    let weight = u32::from(percent.get());
                    self.mirrors.push((index, BackendRef { weight, ..backend }));
                }
            }
            "CORS" => {
                let written = filter.cors.ok_or_else(|| missing("cors"))?;
                self.cors = Some(cors(written, &format!("{field}.cors"), findings)?);
            }
            "ExternalAuth" if object.kind != Kind::GrpcRoute => {
                let written = filter.external_auth.ok_or_else(|| missing("externalAuth"))?;
                let checked = ExternalAuth::check(written, field, &object.namespace, OF_RULE, findings);
                let checked = checked.map_err(|invalid| (invalid.within, invalid.fault))?;
                self.closes |= checked.backend.service.is_none();
                self.auth.push((index, checked));
            }
            "" => return Err(("type".to_owned(), "is missing".to_owned())),
            other => return Err(("type".to_owned(), format!("{other:?} is not supported"))),
        }
        Ok(())
    }
}

fn url_rewrite(written: Option<UrlRewriteFilter>) -> Result<UrlRewrite, Invalid> {
    let written = written.ok_or_else(|| missing("urlRewrite"))?;
    Ok(UrlRewrite {
        path: path(written.path, "urlRewrite.path")?,
        hostname: optional(written.hostname.as_deref(), EndpointName::new, "urlRewrite.hostname")?,
        ..UrlRewrite::default()
    })
}

fn missing(field: &str) -> Invalid {
    (field.to_owned(), "is missing".to_owned())
}

/// Parses a value at a field.
fn parsed<T, F: Display>(
    value: &str,
    parse: impl Fn(&str) -> Result<T, F>,
    field: &str,
) -> Result<T, Invalid> {
    parse(value).map_err(|fault| (field.to_owned(), fault.to_string()))
}

fn optional<T, F: Display>(
    value: Option<&str>,
    parse: impl Fn(&str) -> Result<T, F>,
    field: &str,
) -> Result<Option<T>, Invalid> {
    value.map(|value| parsed(value, parse, field)).transpose()
}

/// Parses each entry of a list.
fn list<T, F: Display, const MAX: usize, const MIN: usize>(
    written: Option<Vec<String>>,
    parse: impl Fn(&str) -> Result<T, F>,
    field: &str,
) -> Result<Entries<T, MAX, MIN>, Invalid>
where
    Entries<T, MAX, MIN>: Default,
{
    let written = written.unwrap_or_default();
    if written.is_empty() {
        return Ok(Entries::default());
    }
    let entries = written.iter().enumerate();
    let entries = entries.map(|(index, entry)| parsed(entry, &parse, &format!("{field}[{index}]")));
    let entries = entries.collect::<Result<Vec<T>, _>>()?;
    let length = entries.len();
    Entries::new(entries)
        .ok_or_else(|| (field.to_owned(), format!("has {length} entries, but may have at most {MAX}")))
}

/// The edits of a filter in this field.
fn edits(written: Option<HeaderModifier>, field: &str) -> Result<HeaderEdits, Invalid> {
    let HeaderModifier { set, add, remove } = written.ok_or_else(|| missing(field))?;
    let lines = |written: Option<Vec<HeaderLine>>, list: &str| -> Result<Entries<Header, 32>, Invalid> {
        let mut lines: Vec<Header> = Vec::new();
        for (index, line) in written.unwrap_or_default().into_iter().enumerate() {
            let at = |within: &str| format!("{field}.{list}[{index}].{within}");
            let name = parsed(line.name.as_deref().unwrap_or_default(), EditedHeader::new, &at("name"))?;
            // Of several entries for one name, the first applies (Gateway API, `HTTPHeaderFilter`).
            if lines.iter().any(|other| other.name.eq_ignore_ascii_case(&name)) {
                continue;
            }
            let value = parsed(line.value.as_deref().unwrap_or_default(), HeaderValue::new, &at("value"))?;
            lines.push(Header { name, value });
        }
        if lines.is_empty() {
            return Ok(Entries::default());
        }
        let length = lines.len();
        let fault = || (format!("{field}.{list}"), format!("has {length} entries, but may have at most 32"));
        Entries::new(lines).ok_or_else(fault)
    };
    Ok(HeaderEdits {
        set: lines(set, "set")?,
        add: lines(add, "add")?,
        remove: list(remove, EditedHeader::new, &format!("{field}.remove"))?,
    })
}

fn redirect(written: Option<RequestRedirect>) -> Result<Redirect, Invalid> {
    let written = written.ok_or_else(|| missing("requestRedirect"))?;
    let at = |within: &str| format!("requestRedirect.{within}");
    let scheme = match written.scheme.as_deref() {
        None => None,
        Some("http") => Some(Scheme::Http),
        Some("https") => Some(Scheme::Https),
        Some(other) => return Err((at("scheme"), format!("{other:?} is unknown: write http or https"))),
    };
    let port = written.port.map(|port| Port::new(port.into()));
    let port = port.transpose().map_err(|fault| (at("port"), fault.to_string()))?;
    let code = written.status_code.unwrap_or(302);
    if !matches!(code, 301..=303 | 307 | 308) {
        return Err((at("statusCode"), format!("{code} is not one of 301, 302, 303, 307 and 308")));
    }
    Ok(Redirect {
        scheme,
        hostname: optional(written.hostname.as_deref(), Hostname::new, &at("hostname"))?,
        port,
        path: path(written.path, &at("path"))?,
        status_code: Number::of(code.into()),
    })
}

fn path(written: Option<PathModifier>, field: &str) -> Result<Option<PathRewrite>, Invalid> {
    let Some(PathModifier { kind, replace_full_path, replace_prefix_match }) = written else {
        return Ok(None);
    };
    let (kind, value, within) = match kind.as_deref().unwrap_or_default() {
        "ReplaceFullPath" => (PathRewriteType::ReplaceFullPath, replace_full_path, "replaceFullPath"),
        "ReplacePrefixMatch" => {
            (PathRewriteType::ReplacePrefixMatch, replace_prefix_match, "replacePrefixMatch")
        }
        other => {
            let fault = format!("{other:?} is unknown: write ReplaceFullPath or ReplacePrefixMatch");
            return Err((format!("{field}.type"), fault));
        }
    };
    let field = format!("{field}.{within}");
    let value = value.ok_or_else(|| missing(&field))?;
    let value = if value.is_empty() { "/" } else { &*value };
    Ok(Some(PathRewrite { kind, value: parsed(value, RewritePath::new, &field)? }))
}

/// The percentage of requests that a mirror receives; `None` for no request.
fn percent(written: &RequestMirror) -> Result<Option<Percent>, Invalid> {
    let (field, share) = match (&written.fraction, written.percent) {
        (Some(fraction), _) => {
            let field = "requestMirror.fraction";
            let (numerator, denominator) =
                (fraction.numerator.unwrap_or(0), fraction.denominator.unwrap_or(100));
            if numerator < 0 || denominator < 1 || numerator > denominator {
                let fault = format!("{numerator}/{denominator} is not between 0 and 1");
                return Err((field.to_owned(), fault));
            }
            // Rounded up, so that a small fraction is not none.
            (field, (i64::from(numerator) * 100 + i64::from(denominator) - 1) / i64::from(denominator))
        }
        (None, percent) => ("requestMirror.percent", i64::from(percent.unwrap_or(100))),
    };
    match share {
        0 => Ok(None),
        share => Percent::new(share).map(Some).map_err(|fault| (field.to_owned(), fault.to_string())),
    }
}

fn cors(written: CorsFilter, field: &str, findings: &mut Findings) -> Result<Cors, Invalid> {
    let at = |within: &str| format!("cors.{within}");
    let max_age = Duration::from_secs(written.max_age.unwrap_or(5).try_into().unwrap_or(0));
    let allow_methods = written.allow_methods.filter(|methods| !methods.is_empty());
    let cors = Cors {
        allow_origins: list(written.allow_origins, str::parse::<OriginPattern>, &at("allowOrigins"))?,
        // Without methods, pages may use the methods that need no preflight request (Gateway API, `HTTPCORSFilter`).
        allow_methods: list(
            allow_methods.or_else(|| Some(["GET", "HEAD", "POST"].map(str::to_owned).into())),
            MethodName::new,
            &at("allowMethods"),
        )?,
        allow_headers: list(written.allow_headers, HeaderName::new, &at("allowHeaders"))?,
        expose_headers: list(written.expose_headers, HeaderName::new, &at("exposeHeaders"))?,
        allow_credentials: written.allow_credentials.unwrap_or(false),
        max_age: Span::new(max_age).ok_or_else(|| (at("maxAge"), "is more than 86400".to_owned()))?,
        nginx: None,
    };
    // Gateway API allows every origin with credentials: the response names the origin of the request.
    cors.check(&mut Faults::new(field, &mut |field, found| match found {
        Fault::Error(message) | Fault::Warning(message) => findings.warning(field, message),
    }));
    Ok(cors)
}

/// Sets the timeouts. A timeout of 0 is none (Gateway API, `HTTPRouteTimeouts`).
pub(super) fn timeouts(written: &HttpTimeouts, rule: &str, features: &mut Features, findings: &mut Findings) {
    let mut timeout = |written: &Option<String>, within: &str| -> Option<Timeout> {
        let text = written.as_deref()?;
        match span::parse(text) {
            Some(Duration::ZERO) => None,
            Some(time) if Timeout::new(time).is_some() => Timeout::new(time),
            _ => {
                let fault = format!("{text:?} is not a duration from 1ms to 24h, such as 10s");
                findings.error_or(format!("{rule}.timeouts.{within}"), fault, "no timeout applies");
                None
            }
        }
    };
    features.timeouts.request = timeout(&written.request, "request");
    features.timeouts.backend_request = timeout(&written.backend_request, "backendRequest");
}

/// Sets the retries.
pub(super) fn retry(written: &HttpRetry, rule: &str, features: &mut Features, findings: &mut Findings) {
    let mut fault = |within: &str, fault: String| {
        findings.error_or(format!("{rule}.retry.{within}"), fault, "the field is ignored");
    };
    let mut retries = Retries { attempts: Number::of(1), ..Retries::default() };
    if let Some(attempts) = written.attempts {
        match Number::new(attempts.into()) {
            Ok(attempts) => retries.attempts = attempts,
            Err(out) => fault("attempts", out.to_string()),
        }
    }
    let mut codes = Vec::new();
    for (index, code) in written.codes.iter().flatten().enumerate() {
        match Number::new((*code).into()) {
            Ok(code) => codes.push(code),
            Err(out) => fault(&format!("codes[{index}]"), out.to_string()),
        }
    }
    if !codes.is_empty() {
        match Entries::new(codes) {
            Some(codes) => retries.codes = codes,
            None => fault("codes", "has more than 16 entries".to_owned()),
        }
    }
    if let Some(text) = written.backoff.as_deref() {
        match span::parse(text) {
            Some(Duration::ZERO) => {}
            Some(time) if Span::<1, 60_000>::new(time).is_some() => retries.backoff = Span::new(time),
            _ => fault("backoff", format!("{text:?} is not a duration from 1ms to 1m")),
        }
    }
    features.retries = Some(retries);
}
