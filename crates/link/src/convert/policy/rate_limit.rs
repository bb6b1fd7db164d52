//! How often a route may be called.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls_pki_types::CertificateDer;
use sluicegate_model::policy::{Concurrency, Limit, LimitKey, RateLimits, Redis, RedisTls, Shared, Window};

use super::header;
use crate::convert::tls::{ders, of_ders};
use crate::convert::{Refusal, all, duration, known, nanos, of_texts, required, texts};
use crate::proto;

const REQUESTS: RangeInclusive<u32> = 1..=1_000_000;
const PER: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(30 * 24 * 3600);
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(1);
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(5);

impl From<&RateLimits> for proto::RateLimits {
    fn from(policy: &RateLimits) -> Self {
        let RateLimits { id, limits, concurrency, headers, shared } = policy;
        Self {
            id: Some(id.into()),
            limits: limits.iter().map(Into::into).collect(),
            concurrency: concurrency.iter().map(Into::into).collect(),
            headers: *headers,
            shared: shared.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<proto::RateLimits> for RateLimits {
    type Error = Refusal;

    fn try_from(policy: proto::RateLimits) -> Result<Self, Refusal> {
        let limits: Vec<Limit> = all(policy.limits)?;
        let concurrency: Vec<Concurrency> = all(policy.concurrency)?;
        let mut names = HashSet::new();
        let of_rates = limits.iter().map(|limit| &limit.name);
        let mut named = of_rates.chain(concurrency.iter().map(|limit| &limit.name));
        if !named.all(|name| names.insert(name)) {
            return Err(Refusal::Invalid("the name of a limit"));
        }
        let id = required(policy.id, "the object of a policy")?.into();
        let shared = policy.shared.map(TryInto::try_into).transpose()?;
        Ok(Self { id, limits, concurrency, headers: policy.headers, shared })
    }
}

impl From<&Shared> for proto::SharedLimits {
    fn from(shared: &Shared) -> Self {
        let (kind, reason, redis) = match shared {
            Shared::Redis(redis) => (proto::SharedLimitsKind::Redis, "", Some((&**redis).into())),
            Shared::Unusable(reason) => (proto::SharedLimitsKind::Unusable, &**reason, None),
        };
        Self { kind: kind.into(), reason: reason.to_owned(), redis }
    }
}

impl TryFrom<proto::SharedLimits> for Shared {
    type Error = Refusal;

    fn try_from(shared: proto::SharedLimits) -> Result<Self, Refusal> {
        let field = "how limits are shared";
        match known(shared.kind, field)? {
            proto::SharedLimitsKind::None => Err(Refusal::Missing(field)),
            proto::SharedLimitsKind::Redis => {
                Ok(Self::Redis(Arc::new(required(shared.redis, "the server of limits")?.try_into()?)))
            }
            proto::SharedLimitsKind::Unusable => Ok(Self::Unusable(shared.reason.into())),
        }
    }
}

impl From<&Redis> for proto::Redis {
    fn from(redis: &Redis) -> Self {
        let Redis { address, username, password, tls, database, prefix, interval, timeout } = redis;
        let of_tls = |RedisTls { server_name, authorities }: &RedisTls| proto::RedisTls {
            server_name: server_name.to_string(),
            authorities: of_ders(authorities),
        };
        Self {
            address: address.to_string(),
            username: username.as_ref().map(ToString::to_string),
            password: password.as_deref().map(Bytes::copy_from_slice),
            tls: tls.as_ref().map(of_tls),
            database: *database,
            prefix: prefix.to_string(),
            interval: nanos(*interval),
            timeout: nanos(*timeout),
        }
    }
}

impl TryFrom<proto::Redis> for Redis {
    type Error = Refusal;

    fn try_from(redis: proto::Redis) -> Result<Self, Refusal> {
        let within = |time, range: RangeInclusive<Duration>, field| match duration(time, field)? {
            time if range.contains(&time) => Ok(time),
            _ => Err(Refusal::Invalid(field)),
        };
        if redis.address.is_empty() {
            return Err(Refusal::Missing("the address of the server of limits"));
        }
        Ok(Self {
            address: redis.address.into(),
            username: redis.username.map(Into::into),
            password: redis.password.map(|password| (&*password).into()),
            tls: redis.tls.map(|tls| RedisTls {
                server_name: tls.server_name.into(),
                authorities: ders(tls.authorities, CertificateDer::from),
            }),
            database: redis.database,
            prefix: redis.prefix.into(),
            interval: within(redis.interval, INTERVAL, "how long counts are gathered")?,
            timeout: within(redis.timeout, TIMEOUT, "how long the server of limits may take")?,
        })
    }
}

impl From<&Limit> for proto::Limit {
    fn from(limit: &Limit) -> Self {
        let Limit { name, requests, per, window, key, groups, dry_run } = limit;
        let (window, burst) = match window {
            Window::TokenBucket { burst } => (proto::LimitWindow::TokenBucket, *burst),
            Window::Sliding => (proto::LimitWindow::Sliding, 0),
        };
        Self {
            name: name.to_string(),
            requests: *requests,
            per: nanos(*per),
            window: window.into(),
            burst,
            key: key.iter().map(Into::into).collect(),
            groups: texts(groups),
            dry_run: *dry_run,
        }
    }
}

impl TryFrom<proto::Limit> for Limit {
    type Error = Refusal;

    fn try_from(limit: proto::Limit) -> Result<Self, Refusal> {
        let per = duration(limit.per, "the time of a limit")?;
        if !PER.contains(&per) {
            return Err(Refusal::Invalid("the time of a limit"));
        }
        Ok(Self {
            name: limit.name.into(),
            requests: requests(limit.requests, "the requests of a limit")?,
            per,
            window: match known(limit.window, "the window of a limit")? {
                proto::LimitWindow::None => return Err(Refusal::Missing("the window of a limit")),
                proto::LimitWindow::TokenBucket => {
                    Window::TokenBucket { burst: requests(limit.burst, "the burst of a limit")? }
                }
                proto::LimitWindow::Sliding => Window::Sliding,
            },
            key: all(limit.key)?,
            groups: of_texts(limit.groups),
            dry_run: limit.dry_run,
        })
    }
}

impl From<&Concurrency> for proto::Concurrency {
    fn from(limit: &Concurrency) -> Self {
        let Concurrency { name, requests, key, groups, dry_run } = limit;
        Self {
            name: name.to_string(),
            requests: *requests,
            key: key.iter().map(Into::into).collect(),
            groups: texts(groups),
            dry_run: *dry_run,
        }
    }
}

impl TryFrom<proto::Concurrency> for Concurrency {
    type Error = Refusal;

    fn try_from(limit: proto::Concurrency) -> Result<Self, Refusal> {
        Ok(Self {
            name: limit.name.into(),
            requests: requests(limit.requests, "the requests of a limit of concurrency")?,
            key: all(limit.key)?,
            groups: of_texts(limit.groups),
            dry_run: limit.dry_run,
        })
    }
}

fn requests(number: u32, field: &'static str) -> Result<u32, Refusal> {
    if REQUESTS.contains(&number) { Ok(number) } else { Err(Refusal::Invalid(field)) }
}

impl From<&LimitKey> for proto::LimitKey {
    fn from(key: &LimitKey) -> Self {
        let (kind, ipv6_prefix, name) = match key {
            LimitKey::Address { ipv6_prefix } => (proto::LimitKeyKind::Address, *ipv6_prefix, ""),
            LimitKey::Header(name) => (proto::LimitKeyKind::Header, 0, &**name),
            LimitKey::Claim(name) => (proto::LimitKeyKind::Claim, 0, &**name),
            LimitKey::Consumer => (proto::LimitKeyKind::Consumer, 0, ""),
            LimitKey::Route => (proto::LimitKeyKind::Route, 0, ""),
        };
        Self { kind: kind.into(), ipv6_prefix: ipv6_prefix.into(), name: name.to_owned() }
    }
}

impl TryFrom<proto::LimitKey> for LimitKey {
    type Error = Refusal;

    fn try_from(key: proto::LimitKey) -> Result<Self, Refusal> {
        match known(key.kind, "what requests of a limit have in common")? {
            proto::LimitKeyKind::None => Err(Refusal::Missing("what requests of a limit have in common")),
            proto::LimitKeyKind::Address => match u8::try_from(key.ipv6_prefix) {
                Ok(ipv6_prefix @ 1..=128) => Ok(Self::Address { ipv6_prefix }),
                _ => Err(Refusal::Invalid("the bits of an IPv6 address")),
            },
            proto::LimitKeyKind::Header => Ok(Self::Header(header(key.name)?)),
            proto::LimitKeyKind::Claim if key.name.is_empty() => Err(Refusal::Missing("the name of a claim")),
            proto::LimitKeyKind::Claim => Ok(Self::Claim(key.name.into())),
            proto::LimitKeyKind::Consumer => Ok(Self::Consumer),
            proto::LimitKeyKind::Route => Ok(Self::Route),
        }
    }
}
