//! `GRPCRoute`: an [`HttpRoute`] whose matches name gRPC services and methods. The path of a gRPC request is
//! `/SERVICE/METHOD` ("gRPC over HTTP/2", Requests).

use sluicegate_model::PathPattern;
use sluicegate_model::rule::{HeaderMatch, PathMatch, Pattern, RuleMatch};

use super::gateway_api::{GrpcMatch, GrpcMethodMatch, GrpcRouteSpec, Written};
use super::http_filter::Invalid;
use super::http_route::{HttpRoute, Match, header_matches};
use super::kind::Raw;
use super::{Object, ObjectRef};
use crate::problem::Findings;

/// The regular expression of every service, and of every method.
const EVERY: &str = "[^/]+";

impl Match for GrpcMatch {
    fn check(self) -> Result<RuleMatch, Invalid> {
        let headers = header_matches(self.headers)?;
        match self.method {
            Some(method) => method.check(headers),
            None => Ok(literal(PathPattern::Prefix("/".into()), headers)),
        }
    }
}

impl GrpcMethodMatch {
    fn check(self, headers: Vec<HeaderMatch>) -> Result<RuleMatch, Invalid> {
        let named = |name: Option<String>| name.filter(|name| !name.is_empty());
        let (service, method) = (named(self.service), named(self.method));
        if service.is_none() && method.is_none() {
            return Err(("method".to_owned(), "names neither a service nor a method".to_owned()));
        }
        let check = match self.kind.as_deref().unwrap_or("Exact") {
            "Exact" => check_name,
            "RegularExpression" => check_expression,
            other => {
                let fault = format!("{other:?} is unknown: write Exact or RegularExpression");
                return Err(("method.type".to_owned(), fault));
            }
        };
        for (within, name) in [("service", &service), ("method", &method)] {
            if let Some(name) = name {
                check(name, within).map_err(|fault| (format!("method.{within}"), fault))?;
            }
        }
        match (self.kind.as_deref(), service, method) {
            (Some("RegularExpression"), service, method) | (_, service @ None, method) => {
                expression(service, method, headers)
            }
            (_, Some(service), Some(method)) => {
                Ok(literal(PathPattern::Exact(format!("/{service}/{method}").into()), headers))
            }
            (_, Some(service), None) => {
                Ok(literal(PathPattern::Starts(format!("/{service}/").into()), headers))
            }
        }
    }
}

/// Rejects a name that is not an identifier, or for a service several identifiers with dots between them.
fn check_name(name: &str, within: &str) -> Result<(), String> {
    let is_word = |word: &str| {
        word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let is_valid = match within {
        "service" => name.strip_prefix('.').unwrap_or(name).split('.').all(is_word),
        _ => is_word(name),
    };
    if is_valid { Ok(()) } else { Err(format!("{name:?} is not the name of a gRPC {within}")) }
}

/// Rejects an invalid regular expression. Each expression alone must be valid: `a)(b` is not.
fn check_expression(text: &str, _: &str) -> Result<(), String> {
    Pattern::new(text, false).map(drop).map_err(|fault| fault.to_string())
}

/// A match of names, whose precedence follows from the path: first more characters of the service, then more characters
/// of the method, then more headers (Gateway API, `GRPCRouteRule.matches`).
fn literal(path: PathPattern, headers: Vec<HeaderMatch>) -> RuleMatch {
    RuleMatch::new(PathMatch::Literal(path), None, headers, Vec::new())
}

/// A match by regular expressions, or of a method of every service.
///
/// An expression matches names of as many characters as a literal name does. The literal name has precedence, so the
/// expression has the precedence of a path that is shorter than the path of any service.
fn expression(
    service: Option<String>,
    method: Option<String>,
    headers: Vec<HeaderMatch>,
) -> Result<RuleMatch, Invalid> {
    let short = if service.is_some() { "//" } else { "/" };
    let short = PathMatch::Literal(PathPattern::Prefix(short.into()));
    let text = |name: &Option<String>| name.clone().unwrap_or_else(|| EVERY.to_owned());
    let path = Pattern::new(format!("^/(?:{})/(?:{})$", text(&service), text(&method)), false)
        .map_err(|fault| ("method".to_owned(), fault.to_string()))?;
    let standing = RuleMatch::new(short, method.map(Into::into), headers, Vec::new());
    Ok(RuleMatch { path: PathMatch::Regex(path), method: None, ..standing })
}

impl Raw for Written<GrpcRouteSpec> {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(HttpRoute::check::<GrpcMatch, _>(self, object, findings).into())
    }
}
