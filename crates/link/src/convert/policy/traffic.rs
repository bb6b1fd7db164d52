//! How requests go on.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::HeaderValue;
use sluicegate_model::policy::Traffic;
use sluicegate_model::policy::traffic::{
    Abort, AffinityCookie, Answer, Branch, Cache, Choice, Delay, Faults, Fixed, HashPart, HeaderRules,
    MatchPlace, Mirror, PathRewrite, Redirect, RequestMatch, Retries, RetryBudget, Rewrite, RouteTimeouts,
    Split,
};

use super::{header, headers};
use crate::convert::upstream::{balance, of_balance};
use crate::convert::{Refusal, all, duration, known, nanos, required, texts};
use crate::proto;

const WEIGHT_MAX: u32 = 1_000_000;
const BRANCHES_MAX: usize = 8;

impl From<&Traffic> for proto::Traffic {
    fn from(traffic: &Traffic) -> Self {
        // Named one by one, so that a new field is not forgotten here.
        let Traffic {
            id,
            timeouts,
            retries,
            request_body,
            response_body,
            request_headers,
            response_headers,
            rewrite: Rewrite { path, host },
            answer,
            faults: Faults { delay, abort },
            split,
            choice,
            mirror,
            cache,
        } = traffic;
        let (redirect, fixed) = match answer {
            Some(Answer::Redirect(redirect)) => (Some(redirect.into()), None),
            Some(Answer::Fixed(fixed)) => (None, Some(fixed.into())),
            None => (None, None),
        };
        Self {
            id: Some(id.into()),
            timeouts: Some(timeouts.into()),
            retries: retries.as_ref().map(Into::into),
            request_body: *request_body,
            response_body: *response_body,
            request_headers: Some(request_headers.into()),
            response_headers: Some(response_headers.into()),
            rewrite_path: path.as_ref().map(Into::into),
            rewrite_host: host.as_ref().map(ToString::to_string),
            redirect,
            fixed,
            delay: delay
                .map(|Delay { percent, time }| proto::Delay { percent: percent.into(), time: nanos(time) }),
            abort: abort.map(|Abort { percent, status }| proto::Abort {
                percent: percent.into(),
                status: status.into(),
            }),
            split: split.as_ref().map(Into::into),
            choice: Some(choice.into()),
            mirror: mirror.as_ref().map(|Mirror { upstream, percent }| proto::Mirror {
                upstream: Some(upstream.into()),
                percent: (*percent).into(),
            }),
            cache: cache.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<proto::Traffic> for Traffic {
    type Error = Refusal;

    fn try_from(traffic: proto::Traffic) -> Result<Self, Refusal> {
        let answer = match (traffic.redirect, traffic.fixed) {
            (None, None) => None,
            (Some(redirect), None) => Some(Answer::Redirect(redirect.try_into()?)),
            (None, Some(fixed)) => Some(Answer::Fixed(fixed.try_into()?)),
            (Some(_), Some(_)) => return Err(Refusal::Invalid("the answer of a policy")),
        };
        let delay = traffic.delay.map(|delay| {
            Ok::<_, Refusal>(Delay {
                percent: percent(delay.percent)?,
                time: duration(delay.time, "the time of a delay")?,
            })
        });
        let abort = traffic.abort.map(|abort| {
            Ok::<_, Refusal>(Abort {
                percent: percent(abort.percent)?,
                status: status(abort.status, 400..=599)?,
            })
        });
        let mirror = traffic.mirror.map(|mirror| {
            let upstream = required(mirror.upstream, "the upstream of copies")?.try_into()?;
            Ok::<_, Refusal>(Mirror { upstream, percent: percent(mirror.percent)? })
        });
        Ok(Self {
            id: required(traffic.id, "the object of a policy")?.into(),
            timeouts: required(traffic.timeouts, "the time limits of a policy")?.try_into()?,
            retries: traffic.retries.map(TryInto::try_into).transpose()?,
            request_body: traffic.request_body,
            response_body: traffic.response_body,
            request_headers: required(traffic.request_headers, "the headers of a policy")?.try_into()?,
            response_headers: required(traffic.response_headers, "the headers of a policy")?.try_into()?,
            rewrite: Rewrite {
                path: traffic.rewrite_path.map(TryInto::try_into).transpose()?,
                host: traffic.rewrite_host.map(host).transpose()?,
            },
            answer,
            faults: Faults { delay: delay.transpose()?, abort: abort.transpose()? },
            split: traffic.split.map(TryInto::try_into).transpose()?,
            choice: required(traffic.choice, "the choice of an endpoint")?.try_into()?,
            mirror: mirror.transpose()?,
            cache: traffic.cache.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&Cache> for proto::Cache {
    fn from(cache: &Cache) -> Self {
        let Cache { max_size, max_response_size, default_time, stale_if_error, key_headers } = cache;
        Self {
            max_size: *max_size,
            max_response_size: *max_response_size,
            default_time: default_time.map(nanos),
            stale_if_error: nanos(*stale_if_error),
            key_headers: texts(key_headers),
        }
    }
}

impl TryFrom<proto::Cache> for Cache {
    type Error = Refusal;

    fn try_from(cache: proto::Cache) -> Result<Self, Refusal> {
        let is_size = (Self::SIZE_MIN..=Self::SIZE_MAX).contains(&cache.max_size);
        if !is_size || !(1..=cache.max_size / 4).contains(&cache.max_response_size) {
            return Err(Refusal::Invalid("the size of a cache"));
        }
        if cache.key_headers.len() > Self::KEY_HEADERS_MAX {
            return Err(Refusal::Invalid("the number of headers of a cache"));
        }
        Ok(Self {
            max_size: cache.max_size,
            max_response_size: cache.max_response_size,
            default_time: some_time(cache.default_time)?,
            stale_if_error: duration(cache.stale_if_error, "a time of a policy")?,
            key_headers: headers(cache.key_headers)?,
        })
    }
}

fn some_time(nanos: Option<u64>) -> Result<Option<Duration>, Refusal> {
    nanos.map(|nanos| duration(nanos, "a time of a policy")).transpose()
}

fn percent(number: u32) -> Result<u8, Refusal> {
    match u8::try_from(number) {
        Ok(percent @ 1..=100) => Ok(percent),
        _ => Err(Refusal::Invalid("a share of requests")),
    }
}

fn status(number: u32, range: RangeInclusive<u16>) -> Result<u16, Refusal> {
    let status = u16::try_from(number).ok().filter(|status| range.contains(status));
    status.ok_or(Refusal::Invalid("a status"))
}

fn weight(number: u32) -> Result<u32, Refusal> {
    if number <= WEIGHT_MAX { Ok(number) } else { Err(Refusal::Invalid("the weight of an upstream")) }
}

/// What can be the whole value of a header.
fn value(text: String) -> Result<Box<str>, Refusal> {
    match HeaderValue::from_str(&text) {
        Ok(_) => Ok(text.into()),
        Err(_) => Err(Refusal::Invalid("the value of a header")),
    }
}

/// The name of a host, which goes into heads as it is.
fn host(name: String) -> Result<Box<str>, Refusal> {
    let is_harmless = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:[]_".contains(&byte));
    if is_harmless && !name.is_empty() {
        Ok(name.into())
    } else {
        Err(Refusal::Invalid("the name of a host"))
    }
}

/// The name of a cookie, which is of the characters of a header's.
fn cookie(name: String) -> Result<Box<str>, Refusal> {
    header(name).map_err(|_| Refusal::Invalid("the name of a cookie"))
}

impl From<&RouteTimeouts> for proto::RouteTimeouts {
    fn from(timeouts: &RouteTimeouts) -> Self {
        let RouteTimeouts { request, connect, response_head, upstream_idle, request_body, tunnel_idle } =
            timeouts;
        Self {
            request: request.map(nanos),
            connect: connect.map(nanos),
            response_head: response_head.map(nanos),
            upstream_idle: upstream_idle.map(nanos),
            request_body: request_body.map(nanos),
            tunnel_idle: tunnel_idle.map(nanos),
        }
    }
}

impl TryFrom<proto::RouteTimeouts> for RouteTimeouts {
    type Error = Refusal;

    fn try_from(timeouts: proto::RouteTimeouts) -> Result<Self, Refusal> {
        Ok(Self {
            request: some_time(timeouts.request)?,
            connect: some_time(timeouts.connect)?,
            response_head: some_time(timeouts.response_head)?,
            upstream_idle: some_time(timeouts.upstream_idle)?,
            request_body: some_time(timeouts.request_body)?,
            tunnel_idle: some_time(timeouts.tunnel_idle)?,
        })
    }
}

impl From<&Retries> for proto::Retries {
    fn from(retries: &Retries) -> Self {
        let Retries { attempts, per_attempt, statuses, budget } = retries;
        Self {
            attempts: *attempts,
            per_attempt: per_attempt.map(nanos),
            statuses: statuses.iter().map(|status| (*status).into()).collect(),
            budget: budget.map(|RetryBudget { percent, min_per_second }| proto::RetryBudget {
                percent: percent.into(),
                min_per_second,
            }),
        }
    }
}

impl TryFrom<proto::Retries> for Retries {
    type Error = Refusal;

    fn try_from(retries: proto::Retries) -> Result<Self, Refusal> {
        if !(1..=10).contains(&retries.attempts) {
            return Err(Refusal::Invalid("the attempts of a policy"));
        }
        let budget = retries.budget.map(|budget| match u8::try_from(budget.percent) {
            Ok(percent @ 0..=100) if budget.min_per_second <= 1000 => {
                Ok(RetryBudget { percent, min_per_second: budget.min_per_second })
            }
            _ => Err(Refusal::Invalid("the budget of a policy")),
        });
        Ok(Self {
            attempts: retries.attempts,
            per_attempt: some_time(retries.per_attempt)?,
            statuses: retries
                .statuses
                .into_iter()
                .map(|number| status(number, 500..=599))
                .collect::<Result<_, _>>()?,
            budget: budget.transpose()?,
        })
    }
}

impl From<&HeaderRules> for proto::HeaderRules {
    fn from(rules: &HeaderRules) -> Self {
        let HeaderRules { set, add, remove } = rules;
        let lines = |lines: &[(Box<str>, Box<str>)]| {
            let line = |(name, value): &(Box<str>, Box<str>)| proto::HeaderLine {
                name: name.to_string(),
                value: value.to_string(),
            };
            lines.iter().map(line).collect()
        };
        Self { set: lines(set), add: lines(add), remove: texts(remove) }
    }
}

impl TryFrom<proto::HeaderRules> for HeaderRules {
    type Error = Refusal;

    fn try_from(rules: proto::HeaderRules) -> Result<Self, Refusal> {
        let lines = |lines: Vec<proto::HeaderLine>| {
            lines
                .into_iter()
                .map(|line| Ok((header(line.name)?, value(line.value)?)))
                .collect::<Result<_, Refusal>>()
        };
        Ok(Self { set: lines(rules.set)?, add: lines(rules.add)?, remove: headers(rules.remove)? })
    }
}

impl From<&PathRewrite> for proto::PathRewrite {
    fn from(rewrite: &PathRewrite) -> Self {
        let (kind, value) = match rewrite {
            PathRewrite::Full(value) => (proto::PathRewriteKind::Full, value),
            PathRewrite::Prefix(value) => (proto::PathRewriteKind::Prefix, value),
        };
        Self { kind: kind.into(), value: value.to_string() }
    }
}

impl TryFrom<proto::PathRewrite> for PathRewrite {
    type Error = Refusal;

    fn try_from(rewrite: proto::PathRewrite) -> Result<Self, Refusal> {
        // It goes into request lines as it is.
        let is_path =
            rewrite.value.starts_with('/') && rewrite.value.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_path || rewrite.value.contains(['?', '#']) {
            return Err(Refusal::Invalid("the path of a rewrite"));
        }
        let value = rewrite.value.into();
        match known(rewrite.kind, "the kind of a rewrite")? {
            proto::PathRewriteKind::None => Err(Refusal::Missing("the kind of a rewrite")),
            proto::PathRewriteKind::Full => Ok(Self::Full(value)),
            proto::PathRewriteKind::Prefix => Ok(Self::Prefix(value)),
        }
    }
}

impl From<&Redirect> for proto::Redirect {
    fn from(redirect: &Redirect) -> Self {
        let Redirect { https, host, port, path, status } = redirect;
        Self {
            https: *https,
            host: host.as_ref().map(ToString::to_string),
            port: port.map(Into::into),
            path: path.as_ref().map(Into::into),
            status: (*status).into(),
        }
    }
}

impl TryFrom<proto::Redirect> for Redirect {
    type Error = Refusal;

    fn try_from(redirect: proto::Redirect) -> Result<Self, Refusal> {
        let port = redirect.port.map(|port| match u16::try_from(port) {
            Ok(port @ 1..) => Ok(port),
            _ => Err(Refusal::Invalid("the port of a redirect")),
        });
        Ok(Self {
            https: redirect.https,
            host: redirect.host.map(host).transpose()?,
            port: port.transpose()?,
            path: redirect.path.map(TryInto::try_into).transpose()?,
            status: match status(redirect.status, 301..=308)? {
                304..=306 => return Err(Refusal::Invalid("a status")),
                status => status,
            },
        })
    }
}

impl From<&Fixed> for proto::Fixed {
    fn from(fixed: &Fixed) -> Self {
        let Fixed { status, content_type, body } = fixed;
        Self {
            status: (*status).into(),
            content_type: content_type.as_ref().map(ToString::to_string),
            body: body.to_string(),
        }
    }
}

impl TryFrom<proto::Fixed> for Fixed {
    type Error = Refusal;

    fn try_from(fixed: proto::Fixed) -> Result<Self, Refusal> {
        let is_bodiless = matches!(fixed.status, 204 | 205 | 304);
        if fixed.body.len() > Self::BODY_MAX || is_bodiless && !fixed.body.is_empty() {
            return Err(Refusal::Invalid("the body of an answer"));
        }
        Ok(Self {
            status: status(fixed.status, 200..=599)?,
            content_type: fixed.content_type.map(value).transpose()?,
            body: fixed.body.into(),
        })
    }
}

impl From<&Split> for proto::Split {
    fn from(Split { weight, branches }: &Split) -> Self {
        Self { weight: *weight, branches: branches.iter().map(Into::into).collect() }
    }
}

impl TryFrom<proto::Split> for Split {
    type Error = Refusal;

    fn try_from(split: proto::Split) -> Result<Self, Refusal> {
        if split.branches.len() > BRANCHES_MAX {
            return Err(Refusal::Invalid("the number of upstreams of a route"));
        }
        Ok(Self { weight: weight(split.weight)?, branches: all(split.branches)? })
    }
}

impl From<&Branch> for proto::Branch {
    fn from(Branch { upstream, weight, matches, excludes }: &Branch) -> Self {
        Self {
            upstream: Some(upstream.into()),
            weight: *weight,
            matches: matches.iter().map(Into::into).collect(),
            excludes: excludes.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<proto::Branch> for Branch {
    type Error = Refusal;

    fn try_from(branch: proto::Branch) -> Result<Self, Refusal> {
        Ok(Self {
            upstream: required(branch.upstream, "the upstream of a share")?.try_into()?,
            weight: weight(branch.weight)?,
            matches: all(branch.matches)?,
            excludes: all(branch.excludes)?,
        })
    }
}

impl From<&RequestMatch> for proto::RequestMatch {
    fn from(RequestMatch { place, value }: &RequestMatch) -> Self {
        let (place, name) = match place {
            MatchPlace::Header(name) => (proto::RequestMatchPlace::Header, name),
            MatchPlace::Cookie(name) => (proto::RequestMatchPlace::Cookie, name),
        };
        Self { place: place.into(), name: name.to_string(), value: value.as_ref().map(ToString::to_string) }
    }
}

impl TryFrom<proto::RequestMatch> for RequestMatch {
    type Error = Refusal;

    fn try_from(of: proto::RequestMatch) -> Result<Self, Refusal> {
        let place = match known(of.place, "where a request has something")? {
            proto::RequestMatchPlace::None => return Err(Refusal::Missing("where a request has something")),
            proto::RequestMatchPlace::Header => MatchPlace::Header(header(of.name)?),
            proto::RequestMatchPlace::Cookie => MatchPlace::Cookie(cookie(of.name)?),
        };
        Ok(Self { place, value: of.value.map(Into::into) })
    }
}

impl From<&Choice> for proto::Choice {
    fn from(choice: &Choice) -> Self {
        let Choice { balance: by, hash, cookie } = choice;
        Self {
            balance: by.map_or(proto::UpstreamBalance::None, balance).into(),
            hash: hash.iter().map(Into::into).collect(),
            cookie: cookie.as_ref().map(|AffinityCookie { name, max_age }| proto::AffinityCookie {
                name: name.to_string(),
                max_age: max_age.map(nanos),
            }),
        }
    }
}

impl TryFrom<proto::Choice> for Choice {
    type Error = Refusal;

    fn try_from(choice: proto::Choice) -> Result<Self, Refusal> {
        let affinity = choice.cookie.map(|of| {
            Ok::<_, Refusal>(AffinityCookie { name: cookie(of.name)?, max_age: some_time(of.max_age)? })
        });
        Ok(Self {
            balance: of_balance(known(choice.balance, "the balance of a route")?),
            hash: all(choice.hash)?,
            cookie: affinity.transpose()?,
        })
    }
}

impl From<&HashPart> for proto::HashPart {
    fn from(part: &HashPart) -> Self {
        let (kind, name) = match part {
            HashPart::Address => (proto::HashPartKind::Address, ""),
            HashPart::Header(name) => (proto::HashPartKind::Header, &**name),
            HashPart::Cookie(name) => (proto::HashPartKind::Cookie, &**name),
            HashPart::Query(name) => (proto::HashPartKind::Query, &**name),
            HashPart::Path => (proto::HashPartKind::Path, ""),
        };
        Self { kind: kind.into(), name: name.to_owned() }
    }
}

impl TryFrom<proto::HashPart> for HashPart {
    type Error = Refusal;

    fn try_from(part: proto::HashPart) -> Result<Self, Refusal> {
        match known(part.kind, "what requests have in common")? {
            proto::HashPartKind::None => Err(Refusal::Missing("what requests have in common")),
            proto::HashPartKind::Address => Ok(Self::Address),
            proto::HashPartKind::Header => Ok(Self::Header(header(part.name)?)),
            proto::HashPartKind::Cookie => Ok(Self::Cookie(cookie(part.name)?)),
            proto::HashPartKind::Query => Ok(Self::Query(part.name.into())),
            proto::HashPartKind::Path => Ok(Self::Path),
        }
    }
}
