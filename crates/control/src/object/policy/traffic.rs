//! `TrafficPolicy`.
//!
//! A part with an error has no effect; the other parts apply.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use sluicegate_model::policy::Traffic;
use sluicegate_model::policy::traffic::{
    Abort, AffinityCookie, Answer, Branch, Cache, Choice, Delay, Faults, Fixed, HashPart, HeaderRules,
    MatchPlace, Mirror, PathRewrite, Redirect, RequestMatch, Retries, RetryBudget, Rewrite, RouteTimeouts,
    Split,
};
use sluicegate_model::{
    Balance, Ejection, Health, HealthCheck, HealthCheckKind, Upstream, UpstreamKey, UpstreamLimits,
};

use super::target::{self, Target};
use super::written::target::TargetKind;
use super::written::traffic::{
    self as written, BalancingAlgorithm, HashPartType, PathRewriteType, TrafficPolicySpec,
};
use super::{created, duration, header, list};
use crate::object::gateway_api::Written;
use crate::object::{ObjectRef, annotation, host, path};
use crate::problem::Findings;

const TIME: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(24);
const TIME_IN_WORDS: &str = "1ms and 24h";
const DELAY: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(1);
const AGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(8760);

const CACHE_SIZE: u64 = 64 << 20;
const CACHE_RESPONSE_SIZE: u64 = 1 << 20;

const ATTEMPTS: RangeInclusive<i64> = 1..=10;
const ATTEMPTS_DEFAULT: i64 = 3;
const PERCENT: RangeInclusive<i64> = 1..=100;
const WEIGHTS: RangeInclusive<i64> = 0..=1_000_000;
const HEADERS_MAX: usize = 32;
const MATCHES_MAX: usize = 16;
const BACKENDS_MAX: usize = 8;

/// A checked `TrafficPolicy`. Its upstreams are as written: the namespace, the Service and the number of the port.
#[derive(Debug, PartialEq)]
pub(crate) struct TrafficPolicy {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    pub(crate) targets: Vec<Target>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) service: ServiceTrafficSettings,
}

/// The settings of a policy for the Services that it applies to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServiceTrafficSettings {
    pub(crate) limits: UpstreamLimits,
    pub(crate) health: Option<Arc<Health>>,
}

impl ServiceTrafficSettings {
    /// Overrides the annotations of the Service.
    pub(crate) fn apply(&self, upstream: &mut Upstream) {
        let UpstreamLimits { max_requests, max_requests_per_endpoint } = &mut upstream.limits;
        *max_requests = self.limits.max_requests.or(*max_requests);
        *max_requests_per_endpoint = self.limits.max_requests_per_endpoint.or(*max_requests_per_endpoint);
        upstream.health.clone_from(&self.health);
    }
}

impl TrafficPolicy {
    pub(crate) fn check(
        raw: Written<TrafficPolicySpec>,
        object: &ObjectRef,
        findings: &mut Findings,
    ) -> Self {
        annotation::check_names(object.kind, raw.metadata.annotations.as_ref(), findings);
        let created = raw.metadata.creation_timestamp.map(|time| time.0.as_second());
        let Some(mut spec) = raw.spec else {
            findings.error("spec", "is missing: write targetRefs and at least one other part");
            let (traffic, service) = (Arc::new(Traffic::new(object.id())), ServiceTrafficSettings::default());
            return Self { created, targets: Vec::new(), traffic, service };
        };
        let targets = std::mem::take(&mut spec.target_refs).into_iter().enumerate().collect();
        Self::of(spec, target::check(targets, findings), created, object, findings)
    }

    fn of(
        spec: TrafficPolicySpec,
        targets: Vec<Target>,
        created: Option<i64>,
        object: &ObjectRef,
        findings: &mut Findings,
    ) -> Self {
        let answer = match (spec.redirect, spec.respond) {
            (Some(_), Some(_)) => {
                findings.error("spec.redirect", "cannot be combined with respond: remove one of them");
                None
            }
            (redirect, respond) => part(redirect, findings, redirect_to)
                .map(Answer::Redirect)
                .or_else(|| part(respond, findings, fixed).map(Answer::Fixed)),
        };
        let is_of_services = targets.iter().all(|target| target.kind == TargetKind::Service);
        let service = of_service((spec.circuit_breaker, spec.health_check), is_of_services, findings);
        let (fault, limits) = (spec.fault.unwrap_or_default(), spec.limits.unwrap_or_default());
        let traffic = Traffic {
            id: object.id(),
            timeouts: spec.timeouts.map(|written| timeouts(written, findings)).unwrap_or_default(),
            retries: part(spec.retries, findings, retries),
            request_body: limit(limits.request_body, "spec.limits.requestBody", findings),
            response_body: limit(limits.response_body, "spec.limits.responseBody", findings)
                .filter(|most| *most > 0),
            request_headers: rules(spec.request_headers, "spec.requestHeaders", findings),
            response_headers: rules(spec.response_headers, "spec.responseHeaders", findings),
            rewrite: part(spec.rewrite, findings, rewrite).unwrap_or_default(),
            answer,
            faults: Faults {
                delay: part(fault.delay, findings, delay),
                abort: part(fault.abort, findings, abort),
            },
            split: part(spec.split, findings, |written, findings| split(written, object, findings)),
            choice: part(spec.load_balancing, findings, choice).unwrap_or_default(),
            mirror: part(spec.mirror, findings, |written, findings| mirror(&written, object, findings)),
            cache: part(spec.cache, findings, cache),
        };
        Self { created, targets, traffic: Arc::new(traffic), service }
    }

    /// A policy that cannot be read as a whole: its readable targets and parts. The findings name the unreadable ones.
    pub(crate) fn unreadable(raw: &Value, object: &ObjectRef, findings: &mut Findings) -> Self {
        let targets = target::check(list::readable(raw, "targetRefs"), &mut Findings::default());
        let targeted = |parts: Map<String, Value>| {
            let mut spec = parts;
            spec.insert("targetRefs".to_owned(), Value::Array(Vec::new()));
            serde_json::from_value::<TrafficPolicySpec>(Value::Object(spec))
        };
        let mut parts = raw.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
        parts.remove("targetRefs");
        parts.retain(|name, part| {
            let is_readable = targeted(Map::from_iter([(name.clone(), part.clone())])).is_ok();
            let field = format!("spec.{name}");
            // The first of them has a more detailed problem.
            if !is_readable && !findings.0.iter().any(|finding| finding.field.starts_with(&field)) {
                findings.error(field, "cannot be read");
            }
            is_readable
        });
        match targeted(parts) {
            Ok(spec) => Self::of(spec, targets, created(raw), object, findings),
            Err(_) => Self {
                created: created(raw),
                targets,
                traffic: Arc::new(Traffic::new(object.id())),
                service: ServiceTrafficSettings::default(),
            },
        }
    }
}

/// A part of the policy; `None` if it has an error.
fn part<W, T>(
    written: Option<W>,
    findings: &mut Findings,
    check: impl FnOnce(W, &mut Findings) -> Option<T>,
) -> Option<T> {
    let mut of_part = Findings::default();
    let checked = check(written?, &mut of_part);
    let is_valid = !of_part.has_errors();
    findings.0.append(&mut of_part.0);
    checked.filter(|_| is_valid)
}

fn time(written: Option<String>, field: &str, findings: &mut Findings) -> Option<Duration> {
    duration::check(&written?, TIME, TIME_IN_WORDS, field, findings)
}

fn timeouts(written: written::Timeouts, findings: &mut Findings) -> RouteTimeouts {
    RouteTimeouts {
        request: time(written.request, "spec.timeouts.request", findings),
        connect: time(written.connect, "spec.timeouts.connect", findings),
        response_head: time(written.response, "spec.timeouts.response", findings),
        upstream_idle: time(written.idle, "spec.timeouts.idle", findings),
        request_body: time(written.request_body, "spec.timeouts.requestBody", findings),
        tunnel_idle: time(written.tunnel, "spec.timeouts.tunnel", findings),
    }
}

/// A number within its range, or an error.
fn number<T: TryFrom<i64>>(
    written: i64,
    range: RangeInclusive<i64>,
    field: &str,
    findings: &mut Findings,
) -> Option<T> {
    let number =
        Some(written).filter(|written| range.contains(written)).and_then(|written| written.try_into().ok());
    if number.is_none() {
        findings.error(field, format!("{written} is not between {} and {}", range.start(), range.end()));
    }
    number
}

fn retries(written: written::Retries, findings: &mut Findings) -> Option<Retries> {
    let statuses = list::filled(written.statuses, 16, "spec.retries.statuses", findings);
    let statuses = statuses.into_iter().enumerate().map(|(index, status)| {
        number(status, 500..=599, &format!("spec.retries.statuses[{index}]"), findings)
    });
    let statuses: Vec<u16> = statuses.collect::<Vec<_>>().into_iter().flatten().collect();
    let attempts = written.attempts.unwrap_or(ATTEMPTS_DEFAULT);
    let budget = written.budget.map(|budget| {
        Some(RetryBudget {
            percent: number(budget.percent.unwrap_or(20), 0..=100, "spec.retries.budget.percent", findings)?,
            min_per_second: number(
                budget.min_per_second.unwrap_or(10),
                0..=1000,
                "spec.retries.budget.minPerSecond",
                findings,
            )?,
        })
    });
    Some(Retries {
        attempts: number(attempts, ATTEMPTS, "spec.retries.attempts", findings)?,
        per_attempt: time(written.per_attempt, "spec.retries.perAttempt", findings),
        statuses,
        budget: budget.flatten(),
    })
}

fn limit(written: Option<String>, field: &str, findings: &mut Findings) -> Option<u64> {
    size(&written?, field, findings)
}

/// A size in the notation of Kubernetes quantities: whole numbers with k, M, G, Ki, Mi or Gi.
fn size(written: &str, field: &str, findings: &mut Findings) -> Option<u64> {
    let digits = written.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = written.split_at(digits);
    let factor: Option<u64> = match unit {
        "" => Some(1),
        "k" => Some(1000),
        "M" => Some(1_000_000),
        "G" => Some(1_000_000_000),
        "Ki" => Some(1 << 10),
        "Mi" => Some(1 << 20),
        "Gi" => Some(1 << 30),
        _ => None,
    };
    let size = factor.and_then(|factor| number.parse::<u64>().ok()?.checked_mul(factor));
    if size.is_none() {
        findings.error(
            field,
            format!("{written:?} is not a size: write a whole number of bytes, or with k, M, G, Ki, Mi or Gi, such as 10Mi"),
        );
    }
    size
}

fn rules(written: Option<written::HeaderRules>, field: &str, findings: &mut Findings) -> HeaderRules {
    let Some(written) = written else { return HeaderRules::default() };
    let headers = |written, within: &str, findings: &mut Findings| {
        let field = format!("{field}.{within}");
        let list = list::filled(written, HEADERS_MAX, &field, findings);
        let pairs = list
            .into_iter()
            .enumerate()
            .map(|(index, header)| pair(header, &format!("{field}[{index}]"), findings));
        pairs.collect::<Vec<_>>().into_iter().flatten().collect()
    };
    let set = headers(written.set, "set", findings);
    let add = headers(written.add, "add", findings);
    let remove = list::filled(written.remove, HEADERS_MAX, &format!("{field}.remove"), findings);
    let names = remove.into_iter().enumerate().filter_map(|(index, name)| {
        checked_name(&name).map_err(|fault| findings.error(format!("{field}.remove[{index}]"), fault)).ok()
    });
    HeaderRules { remove: names.collect(), set, add }
}

fn pair(written: written::Header, field: &str, findings: &mut Findings) -> Option<(Box<str>, Box<str>)> {
    let name =
        checked_name(&written.name).map_err(|fault| findings.error(format!("{field}.name"), fault)).ok();
    if let Some(fault) = header::line_fault(&written.value) {
        findings.error(format!("{field}.value"), fault);
        return None;
    }
    Some((name?, written.value.into()))
}

/// The name of a header that a policy may add or remove, as written.
fn checked_name(name: &str) -> Result<Box<str>, String> {
    let lower_case = header::name(name)?;
    match header::framing_fault(&lower_case) {
        Some(fault) => Err(format!("{name:?} {fault}")),
        None => Ok(name.into()),
    }
}

fn rewrite(written: written::Rewrite, findings: &mut Findings) -> Option<Rewrite> {
    Some(Rewrite {
        path: written.path.and_then(|path| rewritten(&path, "spec.rewrite.path", findings)),
        host: written.hostname.and_then(|name| hostname(name, "spec.rewrite.hostname", findings)),
    })
}

fn rewritten(written: &written::PathRewrite, field: &str, findings: &mut Findings) -> Option<PathRewrite> {
    if let Some(mark) = written.value.chars().find(|mark| matches!(mark, '?' | '#')) {
        let fault = format!("has a {mark:?}, which ends a path: remove it, because the query always stays");
        findings.error(format!("{field}.value"), fault);
        return None;
    }
    let value = match path::normalise(&written.value) {
        Ok(value) => value,
        Err(fault) => {
            findings.error(format!("{field}.value"), fault);
            return None;
        }
    };
    Some(match written.kind {
        PathRewriteType::ReplaceFullPath => PathRewrite::Full(value),
        PathRewriteType::ReplacePrefixMatch => PathRewrite::Prefix(value),
    })
}

fn hostname(name: String, field: &str, findings: &mut Findings) -> Option<Box<str>> {
    match host::dns_name_fault(&name) {
        None => Some(name.into()),
        Some(fault) => {
            findings.error(field, format!("{name:?} {fault}"));
            None
        }
    }
}

fn redirect_to(written: written::Redirect, findings: &mut Findings) -> Option<Redirect> {
    let written::Redirect { scheme, hostname: name, port, path, status_code } = written;
    if scheme.is_none() && name.is_none() && port.is_none() && path.is_none() {
        findings.error("spec.redirect", "leads back to itself: write scheme, hostname, port or path");
    }
    let status = status_code.unwrap_or(302);
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        findings
            .error("spec.redirect.statusCode", format!("{status} is not one of 301, 302, 303, 307 and 308"));
    }
    Some(Redirect {
        https: scheme.map(|scheme| scheme == written::Scheme::Https),
        host: name.and_then(|name| hostname(name, "spec.redirect.hostname", findings)),
        port: port.and_then(|port| number(port, 1..=65535, "spec.redirect.port", findings)),
        path: path.and_then(|path| rewritten(&path, "spec.redirect.path", findings)),
        status: status.try_into().ok()?,
    })
}

fn fixed(written: written::Respond, findings: &mut Findings) -> Option<Fixed> {
    let body = written.body.unwrap_or_default();
    if body.len() > Fixed::BODY_MAX {
        let length = body.len();
        findings.error(
            "spec.respond.body",
            format!("has {length} bytes, but may have at most {}", Fixed::BODY_MAX),
        );
    }
    if matches!(written.status_code, 204 | 205 | 304) && !body.is_empty() {
        let fault = format!("{} allows no body: remove body", written.status_code);
        findings.error("spec.respond.statusCode", fault);
    }
    if let Some(fault) = written.content_type.as_deref().and_then(header::line_fault) {
        findings.error("spec.respond.contentType", fault);
    }
    Some(Fixed {
        status: number(written.status_code, 200..=599, "spec.respond.statusCode", findings)?,
        content_type: written.content_type.map(Into::into),
        body: body.into(),
    })
}

fn delay(written: written::Delay, findings: &mut Findings) -> Option<Delay> {
    let time = duration::check(&written.time, DELAY, "1ms and 1h", "spec.fault.delay.time", findings);
    let percent = number(written.percent.unwrap_or(100), PERCENT, "spec.fault.delay.percent", findings);
    Some(Delay { percent: percent?, time: time? })
}

fn abort(written: written::Abort, findings: &mut Findings) -> Option<Abort> {
    let status = number(written.status_code, 400..=599, "spec.fault.abort.statusCode", findings);
    let percent = number(written.percent.unwrap_or(100), PERCENT, "spec.fault.abort.percent", findings);
    Some(Abort { percent: percent?, status: status? })
}

/// The field of a backend of a split.
pub(crate) fn branch_field(index: usize) -> String {
    format!("spec.split.backends[{index}].serviceRef")
}

/// The field of the mirror's Service.
pub(crate) const MIRROR_FIELD: &str = "spec.mirror.serviceRef";

fn split(written: written::Split, object: &ObjectRef, findings: &mut Findings) -> Option<Split> {
    let backends = list::filled(Some(written.backends), BACKENDS_MAX, "spec.split.backends", findings);
    let branches = backends.into_iter().enumerate().map(|(index, backend)| {
        let field = format!("spec.split.backends[{index}]");
        let weight = backend.weight.unwrap_or(0);
        if weight == 0 && backend.matches.is_none() {
            findings.warning(&field, "receives no requests: write weight or match");
        }
        let matches = matches(backend.matches, &format!("{field}.match"), findings);
        let excludes = self::matches(backend.exclude, &format!("{field}.exclude"), findings);
        Some(Branch {
            upstream: service(&backend.service_ref, object, &branch_field(index), findings)?,
            weight: number(weight, WEIGHTS, &format!("{field}.weight"), findings)?,
            matches,
            excludes,
        })
    });
    let branches: Vec<_> = branches.collect::<Vec<_>>().into_iter().flatten().collect();
    let weight: u32 = number(written.weight.unwrap_or(100), WEIGHTS, "spec.split.weight", findings)?;
    if weight == 0 && branches.iter().all(|branch| branch.weight == 0) {
        findings.error(
            "spec.split.weight",
            "leaves requests without a match without a Service: write a weight above 0 for one Service",
        );
    }
    Some(Split { weight, branches })
}

fn matches(
    written: Option<Vec<written::RequestMatch>>,
    field: &str,
    findings: &mut Findings,
) -> Vec<RequestMatch> {
    let list = list::filled(written, MATCHES_MAX, field, findings);
    let checked = list.into_iter().enumerate().filter_map(|(index, written)| {
        let field = format!("{field}[{index}]");
        let place = match (written.header, written.cookie) {
            (Some(name), None) => {
                header::name(&name).map(MatchPlace::Header).map_err(|fault| ("header", fault))
            }
            (None, Some(name)) => cookie(name).map(MatchPlace::Cookie).map_err(|fault| ("cookie", fault)),
            _ => Err(("header", "must be exactly one of header and cookie".to_owned())),
        };
        let place =
            place.map_err(|(within, fault)| findings.error(format!("{field}.{within}"), fault)).ok()?;
        Some(RequestMatch { place, value: written.value.map(Into::into) })
    });
    checked.collect()
}

/// The name of a cookie (RFC 6265, 4.1.1).
fn cookie(name: String) -> Result<Box<str>, String> {
    match header::token_fault(&name) {
        None => Ok(name.into()),
        Some(fault) => Err(format!("{name:?} {fault}")),
    }
}

fn service(
    written: &written::ServiceRef,
    object: &ObjectRef,
    field: &str,
    findings: &mut Findings,
) -> Option<UpstreamKey> {
    let port: Option<u16> = number(written.port, 1..=65535, &format!("{field}.port"), findings);
    if let Some(fault) = host::dns_name_fault(&written.name) {
        findings.error(format!("{field}.name"), format!("{:?} {fault}", written.name));
        return None;
    }
    Some(UpstreamKey::new(object.namespace.clone(), &*written.name, port?.to_string()))
}

fn choice(written: written::LoadBalancing, findings: &mut Findings) -> Option<Choice> {
    let is_hash = written.algorithm == Some(BalancingAlgorithm::ConsistentHash);
    if is_hash != written.hash.is_some() {
        let fault = match is_hash {
            true => "is missing: write the parts of a request that make its hash",
            false => "is only for algorithm ConsistentHash: remove it",
        };
        findings.error("spec.loadBalancing.hash", fault);
    }
    let hash = list::filled(written.hash, 4, "spec.loadBalancing.hash", findings);
    let hash = hash.into_iter().enumerate().map(|(index, part)| {
        let field = format!("spec.loadBalancing.hash[{index}]");
        hash_part(part).map_err(|fault| findings.error(format!("{field}.name"), fault)).ok()
    });
    let hash = hash.collect::<Vec<_>>().into_iter().flatten().collect();
    let cookie = written.affinity.and_then(|affinity| {
        let field = "spec.loadBalancing.affinity";
        let max_age = affinity
            .max_age
            .map(|age| duration::check(&age, AGE, "1s and 8760h", &format!("{field}.maxAge"), findings));
        let name = cookie(affinity.cookie).map_err(|fault| findings.error(format!("{field}.cookie"), fault));
        Some(AffinityCookie { name: name.ok()?, max_age: max_age.flatten() })
    });
    let balance = written.algorithm.and_then(|algorithm| match algorithm {
        BalancingAlgorithm::ResponseTime => Some(Balance::Ewma),
        BalancingAlgorithm::RoundRobin => Some(Balance::RoundRobin),
        BalancingAlgorithm::LeastRequest => Some(Balance::LeastRequest),
        BalancingAlgorithm::ConsistentHash => None,
    });
    Some(Choice { balance, hash, cookie })
}

fn hash_part(written: written::HashPart) -> Result<HashPart, String> {
    let named = || match &written.name {
        Some(name) => Ok(name.clone()),
        None => Err("is missing: name the header, the cookie or the parameter".to_owned()),
    };
    let nameless = |part| match written.name {
        None => Ok(part),
        Some(_) => Err("is only for type Header, Cookie and Query: remove it".to_owned()),
    };
    match written.kind {
        HashPartType::Address => nameless(HashPart::Address),
        HashPartType::Path => nameless(HashPart::Path),
        HashPartType::Header => header::name(&named()?).map(HashPart::Header),
        HashPartType::Cookie => cookie(named()?).map(HashPart::Cookie),
        HashPartType::Query => named().map(|name| HashPart::Query(name.into())),
    }
}

fn mirror(written: &written::Mirror, object: &ObjectRef, findings: &mut Findings) -> Option<Mirror> {
    let percent = number(written.percent.unwrap_or(100), PERCENT, "spec.mirror.percent", findings);
    let upstream = service(&written.service_ref, object, MIRROR_FIELD, findings);
    Some(Mirror { upstream: upstream?, percent: percent? })
}

/// Settings for Services: on an Ingress, they would also change Services that other routes lead to.
fn of_service(
    (breaker, check): (Option<written::CircuitBreaker>, Option<written::HealthCheck>),
    is_of_services: bool,
    findings: &mut Findings,
) -> ServiceTrafficSettings {
    let written = [("spec.circuitBreaker", breaker.is_some()), ("spec.healthCheck", check.is_some())];
    if !is_of_services {
        for (field, _) in written.into_iter().filter(|(_, is_written)| *is_written) {
            findings.error(field, "is only for Services: name only Services in targetRefs");
        }
        return ServiceTrafficSettings::default();
    }
    let breaker = part(breaker, findings, circuit_breaker);
    let (limits, ejection) = breaker.unwrap_or_default();
    let check = part(check, findings, health_check);
    let has_health = ejection.is_some() || check.is_some();
    ServiceTrafficSettings { limits, health: has_health.then(|| Arc::new(Health { ejection, check })) }
}

fn circuit_breaker(
    written: written::CircuitBreaker,
    findings: &mut Findings,
) -> Option<(UpstreamLimits, Option<Ejection>)> {
    let mut most = |written: Option<i64>, name: &str| {
        let field = format!("spec.circuitBreaker.{name}");
        written.and_then(|written| number(written, 1..=1_000_000, &field, findings))
    };
    let limits = UpstreamLimits {
        max_requests: most(written.max_requests, "maxRequests"),
        max_requests_per_endpoint: most(written.max_requests_per_endpoint, "maxRequestsPerEndpoint"),
    };
    let ejection = written.ejection.map(|written| {
        let field = "spec.circuitBreaker.ejection";
        let errors = written.consecutive_errors.unwrap_or(5);
        let errors = number(errors, 1..=1000, &format!("{field}.consecutiveErrors"), findings);
        let percent =
            number(written.max_percent.unwrap_or(50), PERCENT, &format!("{field}.maxPercent"), findings);
        let time = match written.time {
            Some(written) => time(Some(written), &format!("{field}.time"), findings),
            None => Some(Duration::from_secs(30)),
        };
        Some(Ejection { consecutive_errors: errors?, time: time?, max_percent: percent? })
    });
    Some((limits, ejection.flatten()))
}

fn health_check(written: written::HealthCheck, findings: &mut Findings) -> Option<HealthCheck> {
    const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_hours(1);
    let mut of_others = |field: &str, is_written: bool, of: &str| {
        if is_written {
            findings.error(format!("spec.healthCheck.{field}"), format!("is only for type {of}: remove it"));
        }
    };
    let is_http = written.kind == written::HealthCheckType::Http;
    of_others("path", !is_http && written.path.is_some(), "HTTP");
    of_others("hostname", !is_http && written.hostname.is_some(), "HTTP");
    of_others("statuses", !is_http && written.statuses.is_some(), "HTTP");
    let is_grpc = written.kind == written::HealthCheckType::Grpc;
    of_others("service", !is_grpc && written.service.is_some(), "GRPC");
    let kind = match written.kind {
        written::HealthCheckType::Tcp => Some(HealthCheckKind::Tcp),
        written::HealthCheckType::Grpc => {
            Some(HealthCheckKind::Grpc { service: written.service.unwrap_or_default().into() })
        }
        written::HealthCheckType::Http => {
            http_check(written.path, written.hostname, written.statuses, findings)
        }
    };
    let (interval, timeout) = (written.interval.as_deref(), written.timeout.as_deref());
    let interval = duration::check(
        interval.unwrap_or("10s"),
        INTERVAL,
        "100ms and 1h",
        "spec.healthCheck.interval",
        findings,
    );
    let timeout =
        duration::check(timeout.unwrap_or("1s"), DELAY, "1ms and 1h", "spec.healthCheck.timeout", findings);
    let healthy = written.healthy_threshold.unwrap_or(2);
    let healthy = number(healthy, 1..=100, "spec.healthCheck.healthyThreshold", findings);
    let unhealthy = written.unhealthy_threshold.unwrap_or(3);
    let unhealthy = number(unhealthy, 1..=100, "spec.healthCheck.unhealthyThreshold", findings);
    Some(HealthCheck {
        kind: kind?,
        interval: interval?,
        timeout: timeout?,
        healthy: healthy?,
        unhealthy: unhealthy?,
    })
}

fn http_check(
    path: Option<String>,
    host: Option<String>,
    statuses: Option<String>,
    findings: &mut Findings,
) -> Option<HealthCheckKind> {
    let path = path.unwrap_or_else(|| "/".to_owned());
    // The path goes into the first line of a request unchanged.
    if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        findings.error(
            "spec.healthCheck.path",
            format!("{path:?} is not a path: begin with '/', and escape it as in a URL"),
        );
    }
    let statuses = statuses.unwrap_or_else(|| "200-399".to_owned());
    let (from, to) = statuses.split_once('-').unwrap_or((&statuses, &statuses));
    let parsed = from.parse().ok().zip(to.parse().ok());
    let range = parsed.filter(|(from, to)| (100..=599).contains(from) && (*from..=599).contains(to));
    if range.is_none() {
        let fault = format!(
            "{statuses:?} is not a range of statuses: write a range such as 200-399, or a status such as 200"
        );
        findings.error("spec.healthCheck.statuses", fault);
    }
    let host = host.and_then(|name| hostname(name, "spec.healthCheck.hostname", findings));
    let (from, to) = range?;
    Some(HealthCheckKind::Http { path: path.into(), host, from, to })
}

fn cache(written: written::Cache, findings: &mut Findings) -> Option<Cache> {
    let mut sized =
        |written: Option<String>, default, (least, most, range): (u64, u64, &str), field: &str| {
            let Some(text) = written else { return Some(default) };
            let size = size(&text, field, findings)?;
            if !(least..=most).contains(&size) {
                findings.error(field, format!("{text:?} is not between {range}"));
            }
            Some(size)
        };
    let range = (Cache::SIZE_MIN, Cache::SIZE_MAX, "64Ki and 64Gi");
    let max_size = sized(written.max_size, CACHE_SIZE, range, "spec.cache.maxSize")?;
    let (default, range) =
        (CACHE_RESPONSE_SIZE.min(max_size / 4), (1, max_size / 4, "1 and a quarter of maxSize"));
    let max_response_size = sized(written.max_response_size, default, range, "spec.cache.maxResponseSize")?;
    let age = |written: Option<String>, field: &str, findings: &mut Findings| {
        duration::check(&written?, AGE, "1s and 8760h", field, findings)
    };
    let headers = written.key.and_then(|key| key.headers);
    let headers = list::filled(headers, Cache::KEY_HEADERS_MAX, "spec.cache.key.headers", findings);
    let key_headers = headers.into_iter().enumerate().filter_map(|(index, name)| {
        let field = format!("spec.cache.key.headers[{index}]");
        header::name(&name).map_err(|fault| findings.error(field, fault)).ok()
    });
    Some(Cache {
        max_size,
        max_response_size,
        key_headers: key_headers.collect(),
        default_time: age(written.default_time, "spec.cache.defaultTime", findings),
        stale_if_error: age(written.stale_if_error, "spec.cache.staleIfError", findings).unwrap_or_default(),
    })
}
