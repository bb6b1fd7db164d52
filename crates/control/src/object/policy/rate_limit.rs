//! `RateLimitPolicy`.

use std::sync::Arc;
use std::time::Duration;

use foldhash::HashSet;
use serde_json::Value;
use sluicegate_model::policy::{Concurrency, Limit, LimitKey, RateLimits, Shared, Window};
use sluicegate_model::value::syntax;

use super::shared::{self, Sharing};
use super::target::{self, Target};
use super::written::rate_limit::{self as written, LimitAlgorithm, LimitKeyType, RateLimitPolicySpec};
use super::{consumer, created, duration, jwt, list};
use crate::object::gateway_api::Written;
use crate::object::{ObjectRef, annotation};
use crate::problem::Findings;

/// The maximum number of limits of a policy.
const LIMITS_MAX: usize = 16;

/// The maximum number of requests of a limit.
const REQUESTS_MAX: i64 = 1_000_000;

const PER_MIN: Duration = Duration::from_millis(1);
const PER_MAX: Duration = Duration::from_hours(30 * 24);

/// A checked `RateLimitPolicy`: its valid limits.
#[derive(Debug, PartialEq)]
pub(crate) struct RateLimitPolicy {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    pub(crate) targets: Vec<Target>,
    pub(crate) limits: Arc<RateLimits>,
    /// The server that shares them, if a part of it is in Secrets.
    pub(crate) sharing: Option<Sharing>,
}

impl RateLimitPolicy {
    pub(crate) fn check(
        raw: Written<RateLimitPolicySpec>,
        object: &ObjectRef,
        findings: &mut Findings,
    ) -> Self {
        annotation::check_names(object.kind, raw.metadata.annotations.as_ref(), findings);
        let created = raw.metadata.creation_timestamp.map(|time| time.0.as_second());
        let Some(spec) = raw.spec else {
            findings.error("spec", "is missing: write targetRefs and limits or concurrency");
            return Self {
                created,
                targets: Vec::new(),
                limits: limits(object, Default::default(), true, None),
                sharing: None,
            };
        };
        let targets = target::check(spec.target_refs.into_iter().enumerate().collect(), findings);
        if spec.limits.is_none() && spec.concurrency.is_none() {
            findings.error("spec", "limits nothing: write limits, concurrency or both");
        }
        if spec.shared.is_some() && spec.limits.is_none() {
            let fault = "has no effect without limits: each data plane counts concurrency by itself";
            findings.error("spec.shared", fault);
        }
        let rates = list::filled(spec.limits, LIMITS_MAX, "spec.limits", findings);
        let concurrency = list::filled(spec.concurrency, LIMITS_MAX, "spec.concurrency", findings);
        let rates = rates.into_iter().enumerate().collect();
        let valid = check_limits(rates, concurrency.into_iter().enumerate().collect(), findings);
        let (shared, sharing) = check_shared(spec.shared.map(Ok), object, findings);
        let limits = limits(object, valid, spec.headers.unwrap_or(true), shared);
        Self { created, targets, limits, sharing }
    }

    /// A policy that cannot be read as a whole: its readable targets and limits. The findings name the unreadable ones.
    pub(crate) fn unreadable(raw: &Value, object: &ObjectRef, findings: &mut Findings) -> Self {
        let targets = target::check(list::readable(raw, "targetRefs"), &mut Findings::default());
        let (rates, concurrency) = (list::readable(raw, "limits"), list::readable(raw, "concurrency"));
        let valid = check_limits(rates, concurrency, findings);
        let written = raw.get("spec").and_then(|spec| spec.get("shared")).cloned();
        let (shared, sharing) = check_shared(written.map(serde_json::from_value), object, findings);
        let limits = limits(object, valid, true, shared);
        Self { created: created(raw), targets, limits, sharing }
    }
}

fn limits(
    object: &ObjectRef,
    (limits, concurrency): (Vec<Limit>, Vec<Concurrency>),
    headers: bool,
    shared: Option<Shared>,
) -> Arc<RateLimits> {
    Arc::new(RateLimits { id: object.id(), limits, concurrency, headers, shared })
}

/// The server that shares limits, if the policy has one. `findings` are the findings of reading the object.
fn check_shared(
    written: Option<Result<written::Shared, serde_json::Error>>,
    object: &ObjectRef,
    findings: &mut Findings,
) -> (Option<Shared>, Option<Sharing>) {
    let Some(written) = written else { return (None, None) };
    // A misspelt field may be a field that protects the password.
    let (shared, sharing) = match (shared::fault(findings), written) {
        (None, Ok(written)) => shared::check(written, &object.namespace, findings),
        (Some(fault), _) => (fault, None),
        (None, Err(_)) => (Shared::Unusable("spec.shared cannot be read".into()), None),
    };
    (Some(shared), sharing)
}

/// The valid limits. An invalid limit limits nothing.
fn check_limits(
    rates: Vec<(usize, written::Limit)>,
    concurrency: Vec<(usize, written::Concurrency)>,
    findings: &mut Findings,
) -> (Vec<Limit>, Vec<Concurrency>) {
    let mut names = HashSet::default();
    let mut valid = (Vec::with_capacity(rates.len()), Vec::with_capacity(concurrency.len()));
    for (index, limit) in rates {
        let field = format!("spec.limits[{index}]");
        if is_another(&mut names, &limit.name, &field, findings) {
            valid.0.extend(checked(findings, |findings| check_limit(limit, &field, findings)));
        }
    }
    for (index, limit) in concurrency {
        let field = format!("spec.concurrency[{index}]");
        if is_another(&mut names, &limit.name, &field, findings) {
            valid.1.extend(checked(findings, |findings| check_concurrency(limit, &field, findings)));
        }
    }
    valid
}

/// Whether no earlier limit has this name.
fn is_another(names: &mut HashSet<String>, name: &str, field: &str, findings: &mut Findings) -> bool {
    let is_another = names.insert(name.to_owned());
    if !is_another {
        findings.error(format!("{field}.name"), format!("{name:?} is the name of two limits: rename one"));
    }
    is_another
}

/// The result of `check`; `None` if there is an error.
fn checked<T>(findings: &mut Findings, check: impl FnOnce(&mut Findings) -> Option<T>) -> Option<T> {
    let mut of_part = Findings::default();
    let part = check(&mut of_part);
    let is_valid = !of_part.has_errors();
    findings.0.append(&mut of_part.0);
    part.filter(|_| is_valid)
}

fn check_concurrency(
    written: written::Concurrency,
    field: &str,
    findings: &mut Findings,
) -> Option<Concurrency> {
    check_name(&written.name, field, findings);
    let requests = count(written.requests, &format!("{field}.requests"), findings);
    let (key, groups) = check_whom(written.key, written.groups, field, findings);
    let dry_run = written.dry_run.unwrap_or_default();
    Some(Concurrency { name: written.name.into(), requests: requests?, key, groups, dry_run })
}

fn check_name(name: &str, field: &str, findings: &mut Findings) {
    if let Some(fault) = syntax::dns_name_fault(name).or(name.contains('.').then_some("has a dot")) {
        findings.error(format!("{field}.name"), format!("{name:?} {fault}"));
    }
}

/// The key that groups requests for counting, and the groups of callers whose requests count.
fn check_whom(
    key: Option<Vec<written::LimitKey>>,
    groups: Option<Vec<String>>,
    field: &str,
    findings: &mut Findings,
) -> (Vec<LimitKey>, Vec<Box<str>>) {
    let (of_key, of_groups) = (format!("{field}.key"), format!("{field}.groups"));
    let key = list::filled(key, 8, &of_key, findings);
    let groups = list::filled(groups, 64, &of_groups, findings);
    (check_key(key, &of_key, findings), consumer::check_groups(groups, &of_groups, findings))
}

fn check_limit(written: written::Limit, field: &str, findings: &mut Findings) -> Option<Limit> {
    check_name(&written.name, field, findings);
    let requests = count(written.requests, &format!("{field}.requests"), findings);
    let burst = written.burst.map(|burst| count(burst, &format!("{field}.burst"), findings));
    let per = duration::check(
        &written.per,
        PER_MIN..=PER_MAX,
        "1ms and 720h (30 days)",
        &format!("{field}.per"),
        findings,
    );
    let window = match written.algorithm.unwrap_or(LimitAlgorithm::TokenBucket) {
        LimitAlgorithm::TokenBucket => Window::TokenBucket { burst: burst.unwrap_or(requests)? },
        LimitAlgorithm::SlidingWindow => {
            if burst.is_some() {
                let fault = "is only for algorithm TokenBucket: remove it";
                findings.error(format!("{field}.burst"), fault);
            }
            Window::Sliding
        }
    };
    let (key, groups) = check_whom(written.key, written.groups, field, findings);
    Some(Limit {
        name: written.name.into(),
        requests: requests?,
        per: per?,
        window,
        key,
        groups,
        dry_run: written.dry_run.unwrap_or_default(),
    })
}

fn count(written: i64, field: &str, findings: &mut Findings) -> Option<u32> {
    let count = u32::try_from(written).ok().filter(|_| (1..=REQUESTS_MAX).contains(&written));
    if count.is_none() {
        findings.error(field, format!("{written} is not between 1 and {REQUESTS_MAX}"));
    }
    count
}

fn check_key(written: Vec<written::LimitKey>, field: &str, findings: &mut Findings) -> Vec<LimitKey> {
    let mut key = Vec::with_capacity(written.len());
    for (index, part) in written.into_iter().enumerate() {
        let field = format!("{field}[{index}]");
        match check_part(part, &field, findings) {
            Ok(part) if key.contains(&part) => findings.warning(field, "is written twice"),
            Ok(part) => key.push(part),
            Err((within, fault)) => findings.error(format!("{field}.{within}"), fault),
        }
    }
    key
}

fn check_part(
    written: written::LimitKey,
    field: &str,
    findings: &mut Findings,
) -> Result<LimitKey, (&'static str, String)> {
    let is_named = matches!(written.kind, LimitKeyType::Header | LimitKeyType::Claim);
    if written.name.is_some() && !is_named {
        return Err(("name", "is only for type Header and Claim: remove it".to_owned()));
    }
    if written.ipv6_prefix_length.is_some() && written.kind != LimitKeyType::Address {
        return Err(("ipv6PrefixLength", "is only for type Address: remove it".to_owned()));
    }
    let name = match written.name {
        Some(name) => name,
        None if is_named => return Err(("name", "is missing: name the header or the claim".to_owned())),
        None => String::new(),
    };
    Ok(match written.kind {
        LimitKeyType::Address => {
            let length = written.ipv6_prefix_length.unwrap_or(64);
            let ipv6_prefix = u8::try_from(length).ok().filter(|length| (1..=128).contains(length));
            let ipv6_prefix = ipv6_prefix
                .ok_or_else(|| ("ipv6PrefixLength", format!("{length} is not between 1 and 128")))?;
            LimitKey::Address { ipv6_prefix }
        }
        LimitKeyType::Header => {
            LimitKey::Header(syntax::header_name(&name).map_err(|fault| ("name", fault))?)
        }
        LimitKeyType::Claim => {
            jwt::check_claim_name(&name, &format!("{field}.name"), findings);
            LimitKey::Claim(name.into())
        }
        LimitKeyType::Consumer => LimitKey::Consumer,
        LimitKeyType::Route => LimitKey::Route,
    })
}
