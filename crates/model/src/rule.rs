//! Rules: the requests of a host that a rule matches, the backends, and the policies.
//!
//! A rule has one or more [`RuleMatch`]es. A request meets a match if the request meets every condition of the match. The
//! matches of a host have an order of their own, the [`precedence`](RuleMatch::precedence). Dialects order matches
//! differently (an Ingress by the length of the path, an HTTPRoute by path, method, headers and parameters), so the frontend
//! of the rule computes the order.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use regex::bytes::{Regex, RegexBuilder};
use serde::{Serialize, Serializer};

use crate::encoding::{Adapt as _, Context, Fault, List, Maybe, Same, Shared, Text};
use crate::feature::{BackendFeatures, Validation};
use crate::policy::{RateLimits, Security, Subscriptions, Traffic};
use crate::value::{Number, Weight};
use crate::{
    ApiContract, ClientAuth, Codings, EntryPoint, HostPattern, ObjectId, PathPattern, PathTemplate,
    UpstreamKey,
};

/// A host and its rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map, context_bound = "Context")]
pub struct VirtualHost {
    /// The pattern of the host's names.
    #[n(0)]
    pub host: HostPattern,
    /// The rules. The order matters only where two matches have the same [`precedence`](RuleMatch::precedence).
    #[n(1)]
    pub rules: Vec<Rule>,
    /// The rule for requests that meet no match (`spec.defaultBackend` of the Ingress that owns the host). Without this rule,
    /// [`Config::default_rule`](crate::Config::default_rule) applies.
    #[n(2)]
    pub fallback: Option<Rule>,
    /// The listeners that serve the host.
    #[serde(skip_serializing_if = "EntryPoint::is_flags")]
    #[cbor(n(3), default, skip_if = "EntryPoint::is_flags")]
    pub entry_point: EntryPoint,
    /// The filters of the listener, which decide about every request for the host before the gateway selects a rule (Gateway
    /// API, `Listener.filters`). Only [`refuses`](Security::refuses) and [`filters`](Security::filters) apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cbor(n(4), with = "Maybe::<Shared>")]
    pub filters: Option<Arc<Security>>,
    /// Whether a request that meets no match of this host goes to the next less specific host of the entry point, as for an
    /// HTTPRoute (Gateway API, `HTTPRouteSpec.hostnames`). An Ingress decides alone about its host.
    #[serde(skip_serializing_if = "crate::encoding::is_false")]
    #[cbor(n(64), default, skip_if = "crate::encoding::is_false")]
    pub continues: bool,
    /// Whether `%2F` in a path is a slash for the matches, as in nginx.
    #[serde(skip_serializing_if = "crate::encoding::is_false")]
    #[cbor(n(65), default, skip_if = "crate::encoding::is_false")]
    pub decodes_slashes: bool,
}

impl VirtualHost {
    /// A host with these rules, at all listeners that flags set.
    #[must_use]
    pub fn new(host: HostPattern, rules: Vec<Rule>) -> Self {
        Self {
            host,
            rules,
            fallback: None,
            entry_point: EntryPoint::Flags,
            filters: None,
            continues: false,
            decodes_slashes: false,
        }
    }

    /// The key of the host, by which a configuration orders its hosts.
    #[must_use]
    pub fn key(&self) -> (&EntryPoint, &HostPattern) {
        (&self.entry_point, &self.host)
    }

    /// The upstreams of the rules and of the policies, some of them several times.
    pub fn upstreams(&self) -> impl Iterator<Item = &UpstreamKey> {
        let of_rules = self.rules.iter().chain(&self.fallback).flat_map(Rule::all_upstreams);
        of_rules.chain(self.filters.iter().flat_map(|filters| filters.upstreams()))
    }
}

/// A rule: its matches, the backends that serve matching requests, and the policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map, context_bound = "Context")]
pub struct Rule {
    /// The object with the rule.
    #[n(0)]
    pub id: ObjectId,
    /// The matches, at least one. A request that meets one of the matches belongs to the rule. Of a
    /// [`fallback`](VirtualHost::fallback) only the path of the first match applies, for logs and metrics.
    #[n(1)]
    pub matches: Vec<RuleMatch>,
    /// The backends that serve the requests. The gateway chooses one for each request, at random by weight. Without a backend,
    /// or if all weights are 0, the gateway responds with 503.
    #[n(2)]
    pub backends: Vec<Backend>,
    /// Whether requests over plain HTTP are redirected to HTTPS with 308 (ingress-nginx `ssl-redirect`).
    #[n(3)]
    pub https_only: bool,
    /// The policy for client certificates under which a connection must have been opened.
    #[cbor(n(4), with = "Maybe::<Shared>")]
    pub client_auth: Option<Arc<ClientAuth>>,
    /// The codings for responses, in place of [`Compression::codings`](crate::Compression::codings).
    #[n(5)]
    pub compression: Option<Codings>,
    /// Authentication, authorization and the like. Without a policy every client may call.
    #[cbor(n(6), with = "Maybe::<Shared>")]
    pub security: Option<Arc<Security>>,
    /// Rate limits and concurrency limits.
    #[cbor(n(7), with = "Maybe::<Shared>")]
    pub rate_limits: Option<Arc<RateLimits>>,
    /// Timeouts, retries, header edits and the like, in place of the settings.
    #[cbor(n(8), with = "Maybe::<Shared>")]
    pub traffic: Option<Arc<Traffic>>,
    /// The subscriptions to the API of the rule, if the API has any or needs them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cbor(n(9), with = "Maybe::<Shared>")]
    pub subscriptions: Option<Arc<Subscriptions>>,
    /// The form of the redirect of [`https_only`](Self::https_only).
    #[serde(skip_serializing_if = "HttpsRedirect::is_default")]
    #[cbor(n(64), default, skip_if = "HttpsRedirect::is_default")]
    pub https_redirect: HttpsRedirect,
    /// The API of the rule, if the rule is of an API.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(65)]
    pub api: Option<Box<ApiOperation>>,
}

/// An operation of an API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map, context_bound = "Context")]
pub struct ApiOperation {
    /// The version of the API.
    #[cbor(n(0), with = "Text")]
    pub version: Arc<str>,
    /// The name of the environment.
    #[cbor(n(1), with = "Text")]
    pub environment: Arc<str>,
    /// The id of the operation; `None` for requests that are for no operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cbor(n(2), with = "Maybe::<Text>")]
    pub operation: Option<Arc<str>>,
    /// The media types of request bodies, such as `application/json` or `image/*`; empty for any.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[cbor(n(3), with = "List::<Text>", default, skip_if = "Vec::is_empty")]
    pub media_types: Vec<Arc<str>>,
    /// Validation and mocks by the contract of the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(4)]
    pub checks: Option<Box<ApiChecks>>,
}

/// How the contract of its API applies to an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map, context_bound = "Context")]
pub struct ApiChecks {
    /// The contract.
    #[serde(skip)]
    #[cbor(n(0), with = "Shared")]
    pub contract: Arc<ApiContract>,
    /// What is validated.
    #[n(1)]
    pub validation: Validation,
    /// Whether the gateway responds itself, as the document says.
    #[n(2)]
    pub is_mocked: bool,
    /// Whether requests receive 503, because a schema of the operation cannot be compiled.
    #[n(3)]
    pub is_closed: bool,
}

/// The redirect of plain HTTP to HTTPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct HttpsRedirect {
    /// The status (ingress-nginx `http-redirect-code`). Default 308.
    #[n(0)]
    pub status: Number<u16, 301, 308>,
    /// Whether the redirect leaves out the final slash of the request (ingress-nginx without `preserve-trailing-slash`). Default
    /// no.
    #[n(1)]
    pub strips_slash: bool,
}

impl Default for HttpsRedirect {
    fn default() -> Self {
        Self { status: Number::of(308), strips_slash: false }
    }
}

impl HttpsRedirect {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Rule {
    /// The first path, by which logs and messages name the rule.
    #[must_use]
    pub fn path(&self) -> &str {
        self.matches.first().map_or("", |of| of.path.as_str())
    }

    /// The upstreams of the backends and of the policies, some of them several times.
    pub fn all_upstreams(&self) -> impl Iterator<Item = &UpstreamKey> {
        let of_traffic = self.traffic.iter().flat_map(|traffic| traffic.features.upstreams());
        let of_security = self.security.iter().flat_map(|security| security.upstreams());
        self.upstreams().chain(of_traffic).chain(of_security)
    }

    /// The upstreams of the backends.
    pub fn upstreams(&self) -> impl Iterator<Item = &UpstreamKey> {
        self.backends.iter().filter(|backend| !backend.is_invalid).map(|backend| &backend.upstream)
    }

    /// A rule for one path and one upstream, without a policy.
    #[must_use]
    pub fn new(id: ObjectId, path: PathPattern, upstream: UpstreamKey) -> Self {
        Self {
            id,
            matches: vec![RuleMatch::path(path)],
            backends: vec![Backend::new(upstream)],
            https_only: false,
            client_auth: None,
            compression: None,
            security: None,
            rate_limits: None,
            traffic: None,
            subscriptions: None,
            https_redirect: HttpsRedirect::default(),
            api: None,
        }
    }
}

/// A backend of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Backend {
    /// The upstream.
    #[n(0)]
    pub upstream: UpstreamKey,
    /// The part of the sum of all weights.
    #[n(1)]
    pub weight: Weight,
    /// The features that apply only to requests for this backend, after the features of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub features: Option<Box<BackendFeatures>>,
    /// Whether the object names no valid backend: the gateway responds with 500 (Gateway API, `HTTPRouteRule.backendRefs`).
    #[serde(skip_serializing_if = "crate::encoding::is_false")]
    #[cbor(n(3), default, skip_if = "crate::encoding::is_false")]
    pub is_invalid: bool,
}

impl Backend {
    /// A backend with weight 1 and without features.
    #[must_use]
    pub fn new(upstream: UpstreamKey) -> Self {
        Self { upstream, weight: Weight::of(1), features: None, is_invalid: false }
    }
}

/// The conditions of a rule on a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct RuleMatch {
    /// The precedence: of the matches that a request meets, the match with the lowest number decides. Of equal numbers the
    /// longest literal path decides, then an exact path, then a prefix by element, then the earlier rule.
    #[n(0)]
    pub precedence: u32,
    /// The path in normal form, without the query.
    #[n(1)]
    pub path: PathMatch,
    /// The method, compared with regard to case (RFC 9110, 9.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cbor(n(2), with = "Maybe::<Text>")]
    pub method: Option<Box<str>>,
    /// Headers, each of which must have its value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cbor(n(3), with = "List::<Same>")]
    pub headers: Vec<HeaderMatch>,
    /// Parameters of the query, each of which must have its value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cbor(n(4), with = "List::<Same>")]
    pub query: Vec<QueryMatch>,
}

impl RuleMatch {
    /// A match on a path alone, with the precedence of Ingresses and nginx: the longest path first. Of the same length an
    /// exact path is first, then a prefix by element, then a prefix by character. The number does not depend on other
    /// matches.
    #[must_use]
    pub fn path(path: PathPattern) -> Self {
        Self::new(PathMatch::Literal(path), None, Vec::new(), Vec::new())
    }

    /// A match with the precedence of Gateway API (`HTTPRouteRule.matches`): an exact path, then the longest prefix, then a
    /// method, then the number of headers, then the number of query parameters. Regular expressions and templates are between exact
    /// paths and prefixes. For paths alone, the order is that of [`path`](Self::path): no prefix of a path is longer than the path.
    #[must_use]
    pub fn new(
        path: PathMatch,
        method: Option<Box<str>>,
        headers: Vec<HeaderMatch>,
        query: Vec<QueryMatch>,
    ) -> Self {
        let (class, rank) = match &path {
            PathMatch::Literal(PathPattern::Exact(_)) => (0, 0),
            PathMatch::Regex(_) | PathMatch::Template(_) => (1, 0),
            PathMatch::Literal(pattern) => (2, u32::from(pattern.rank())),
        };
        let length = match &path {
            // The rank decides among templates: the lowest comes first.
            PathMatch::Template(template) => u16::MAX - template.rank(),
            _ => u16::try_from(path.as_str().len()).unwrap_or(u16::MAX),
        };
        // 5 bits each: Gateway API allows 16 conditions.
        let fewer = |conditions: usize| 31 - u32::try_from(conditions).unwrap_or(31).min(31);
        let precedence = class << 29
            | u32::from(u16::MAX - length) << 13
            | rank << 11
            | u32::from(method.is_none()) << 10
            | fewer(headers.len()) << 5
            | fewer(query.len());
        Self { precedence, path, method, headers, query }
    }

    /// Whether the path is the only condition.
    #[must_use]
    pub fn is_path_alone(&self) -> bool {
        self.method.is_none() && self.headers.is_empty() && self.query.is_empty()
    }
}

/// The path, and how many other conditions there are.
impl fmt::Display for RuleMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { precedence: _, path, method, headers, query } = self;
        if let Some(method) = method {
            write!(f, "{method} ")?;
        }
        write!(f, "{path}")?;
        match headers.len() + query.len() {
            0 => Ok(()),
            1 => f.write_str(" with 1 condition"),
            conditions => write!(f, " with {conditions} conditions"),
        }
    }
}

/// A condition on the path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum PathMatch {
    /// The whole path, a prefix by element, or a prefix by character.
    #[n(0)]
    Literal(#[n(0)] PathPattern),
    /// A regular expression.
    #[n(1)]
    Regex(#[n(0)] Pattern),
    /// A path with variables.
    #[n(2)]
    Template(#[n(0)] PathTemplate),
}

impl PathMatch {
    /// The text of the pattern.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Literal(path) => path.as_str(),
            Self::Regex(pattern) => pattern.as_str(),
            Self::Template(template) => template.as_str(),
        }
    }

    /// The name of its type, as Kubernetes writes it.
    #[must_use]
    pub fn path_type(&self) -> &'static str {
        match self {
            Self::Literal(path) => path.path_type(),
            Self::Regex(_) => "RegularExpression",
            Self::Template(_) => "Template",
        }
    }
}

impl fmt::Display for PathMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A condition on a header. Several lines of one name count as one value, joined by commas (RFC 9110, 5.3).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct HeaderMatch {
    /// The name, in lower case.
    #[cbor(n(0), with = "Text")]
    pub name: Box<str>,
    /// The value.
    #[n(1)]
    pub value: ValueMatch,
}

/// A condition on a parameter of the query. Of several parameters with one name the first applies. Names and values are
/// decoded before the comparison (`%20` and `+`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct QueryMatch {
    /// The name.
    #[cbor(n(0), with = "Text")]
    pub name: Box<str>,
    /// The value.
    #[n(1)]
    pub value: ValueMatch,
}

/// A condition on a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum ValueMatch {
    /// The value is this text, with regard to case.
    #[n(0)]
    Exact(#[cbor(n(0), with = "Text")] Box<str>),
    /// The value matches this regular expression.
    #[n(1)]
    Regex(#[n(0)] Pattern),
    /// There is a value, which may be empty.
    #[n(2)]
    Present,
}

/// A regular expression in the syntax of the `regex` crate, without Unicode classes. The expression matches anywhere in the
/// text unless it has anchors (`^`, `$`). The time of a search is linear in the length of the text.
///
/// A program takes 10 KiB and more, so an expression keeps no program before its first search: of many thousand expressions, only
/// those that requests use take memory. All clones share one program.
#[derive(Clone)]
pub struct Pattern {
    text: Box<str>,
    ignores_case: bool,
    compiled: Arc<OnceLock<Option<Regex>>>,
}

/// The text is not a usable regular expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text is longer than [`Pattern::LENGTH_MAX`].
    #[error("the regular expression has {0} bytes; at most {max} are allowed", max = Pattern::LENGTH_MAX)]
    TooLong(usize),
    /// The program of the expression is larger than [`Pattern::PROGRAM_MAX`].
    #[error("the regular expression needs more than {} KiB of memory; use fewer or smaller repetitions", Pattern::PROGRAM_MAX / 1024)]
    TooLarge,
    /// The text has a syntax error, or a construct that has no linear-time search.
    #[error("{0}")]
    Syntax(Box<str>),
}

impl Pattern {
    /// The longest text, in bytes: the limit of Gateway API for a path or a value.
    pub const LENGTH_MAX: usize = 4096;
    /// The maximum memory of the program of one expression, in bytes.
    pub const PROGRAM_MAX: usize = 256 * 1024;

    /// The number of captures that [`captures`](Self::captures) returns: the whole match, and groups 1 to 9.
    pub const CAPTURES: usize = 10;

    /// Checks a regular expression.
    ///
    /// # Errors
    ///
    /// The text is too long, too large, has an error of syntax, or has backreferences or look-around.
    pub fn new(text: impl Into<Box<str>>, ignores_case: bool) -> Result<Self, PatternError> {
        let text = text.into();
        if text.len() > Self::LENGTH_MAX {
            return Err(PatternError::TooLong(text.len()));
        }
        program(&text, ignores_case)?;
        Ok(Self { text, ignores_case, compiled: Arc::default() })
    }

    /// An expression that matches exactly this text, in any case.
    ///
    /// # Errors
    ///
    /// The text is too long.
    pub fn exact(text: &str) -> Result<Self, PatternError> {
        Self::new(format!("^{}$", regex::escape(text)), true)
    }

    /// The program. A text with an error has no [`Pattern`].
    fn compiled(&self) -> Option<&Regex> {
        self.compiled.get_or_init(|| program(&self.text, self.ignores_case).ok()).as_ref()
    }

    /// The text of the expression.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the case of ASCII letters is ignored.
    #[must_use]
    pub fn ignores_case(&self) -> bool {
        self.ignores_case
    }

    /// The places of the first match and of its first nine groups; `None` if the expression does not match. The place of a
    /// group that took no part in the match is empty.
    #[must_use]
    pub fn captures(&self, text: &[u8]) -> Option<[Range<usize>; Self::CAPTURES]> {
        let compiled = self.compiled()?;
        let mut found = compiled.capture_locations();
        compiled.captures_read(&mut found, text)?;
        Some(std::array::from_fn(|group| found.get(group).map_or(0..0, |(start, end)| start..end)))
    }

    /// Whether the expression matches a text.
    #[must_use]
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.compiled().is_some_and(|compiled| compiled.is_match(text))
    }

    /// `to` with the captures of the first match in place of `$1` to `$9`; `None` without a match. A capture that does not
    /// exist is empty.
    #[must_use]
    pub fn replacement(&self, text: &[u8], to: &str) -> Option<Vec<u8>> {
        let captures = self.compiled()?.captures(text)?;
        let mut parts = to.split('$');
        let mut replacement = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            let number =
                part.chars().next().and_then(|digit| digit.to_digit(10)).filter(|number| *number > 0);
            match number {
                Some(number) => {
                    let capture =
                        captures.get(number as usize).map_or(&b""[..], |capture| capture.as_bytes());
                    replacement.extend_from_slice(capture);
                    replacement.extend_from_slice(&part.as_bytes()[1..]);
                }
                None => {
                    replacement.push(b'$');
                    replacement.extend_from_slice(part.as_bytes());
                }
            }
        }
        Some(replacement)
    }
}

/// Compiles an expression.
fn program(text: &str, ignores_case: bool) -> Result<Regex, PatternError> {
    let compiled = RegexBuilder::new(text)
        .unicode(false)
        .case_insensitive(ignores_case)
        .size_limit(Pattern::PROGRAM_MAX)
        .dfa_size_limit(Pattern::PROGRAM_MAX)
        .build();
    compiled.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => PatternError::TooLarge,
        // The message repeats the expression over several lines; its last line says what is wrong.
        other => {
            let message = other.to_string();
            let last = message.lines().last().unwrap_or_default().trim();
            PatternError::Syntax(last.strip_prefix("error: ").unwrap_or(last).into())
        }
    })
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, self.ignores_case) == (&other.text, other.ignores_case)
    }
}

impl Eq for Pattern {}

impl std::hash::Hash for Pattern {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.text, self.ignores_case).hash(state);
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pattern").field("text", &self.text).field("ignores_case", &self.ignores_case).finish()
    }
}

/// The form of nginx: `~ TEXT`, and `~* TEXT` without regard to case.
impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sign = if self.ignores_case { "~*" } else { "~" };
        serializer.collect_str(&format_args!("{sign} {}", self.text))
    }
}

/// The text, and whether case is ignored.
impl<C> Encode<C> for Pattern {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        encoder.array(2)?.str(&self.text)?.bool(self.ignores_case)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Pattern {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        if decoder.array()? != Some(2) {
            return Err(decode::Error::message("a regular expression has two parts"));
        }
        let (text, ignores_case) = (decoder.str()?, decoder.bool()?);
        Self::new(text, ignores_case).map_err(|_| Fault::Invalid("a regular expression").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_expression_without_anchors_matches_anywhere_in_the_path() {
        let found = |text: &str, ignores_case, path: &str| {
            Pattern::new(text, ignores_case).unwrap().is_match(path.as_bytes())
        };
        assert!(found("b", false, "/abc"));
        assert!(!found("^/b", false, "/a/b"));
        assert!(!found("^/API", false, "/api"));
        assert!(found("^/API", true, "/api"));
        assert!(
            Pattern::new("^/.$", false).unwrap().is_match(b"/\xff"),
            "a dot matches a byte that is not UTF-8"
        );
    }

    #[test]
    fn regular_expression_with_backreferences_or_of_excessive_size_is_rejected() {
        let error = |text: &str| Pattern::new(text, false).unwrap_err();
        assert_eq!(error(&"a".repeat(4097)), PatternError::TooLong(4097));
        assert_eq!(error("(a{1000}){1000}"), PatternError::TooLarge);
        for (text, message) in [
            (r"(a)\1", "backreferences are not supported"),
            ("(?=a)", "look-around, including look-ahead and look-behind, is not supported"),
            ("(", "unclosed group"),
        ] {
            assert_eq!(error(text), PatternError::Syntax(message.into()), "{text}");
        }
    }
}
