//! Any policy for traffic.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sluicegate_model::Balance;
use sluicegate_model::policy::Traffic;
use sluicegate_model::policy::traffic::*;

use super::model::{id, key, time};
use super::policy::boxed;

fn timeouts() -> impl Strategy<Value = RouteTimeouts> {
    vec(option::of(time()), 6).prop_map(|times| RouteTimeouts {
        request: times[0],
        connect: times[1],
        response_head: times[2],
        upstream_idle: times[3],
        request_body: times[4],
        tunnel_idle: times[5],
    })
}

fn retries() -> impl Strategy<Value = Retries> {
    let budget = (0..=100_u8, 0..=1000_u32)
        .prop_map(|(percent, min_per_second)| RetryBudget { percent, min_per_second });
    (1..=10_u32, option::of(time()), vec(500..=599_u16, 0..3), option::of(budget)).prop_map(
        |(attempts, per_attempt, statuses, budget)| Retries { attempts, per_attempt, statuses, budget },
    )
}

fn rules() -> impl Strategy<Value = HeaderRules> {
    let lines = || vec((boxed(), boxed()), 0..3);
    (lines(), lines(), vec(boxed(), 0..3)).prop_map(|(set, add, remove)| HeaderRules { set, add, remove })
}

fn path() -> impl Strategy<Value = PathRewrite> {
    ("/[a-z/]{0,8}", any::<bool>()).prop_map(|(path, is_full)| match is_full {
        true => PathRewrite::Full(path.into()),
        false => PathRewrite::Prefix(path.into()),
    })
}

fn answer() -> impl Strategy<Value = Answer> {
    let status = prop::sample::select(vec![301, 302, 303, 307, 308]);
    let redirect = (
        option::of(any::<bool>()),
        option::of(boxed()),
        option::of(1..=65535_u16),
        option::of(path()),
        status,
    )
        .prop_map(|(https, host, port, path, status)| {
            Answer::Redirect(Redirect { https, host, port, path, status })
        });
    let fixed = (400..=599_u16, option::of(boxed()), boxed())
        .prop_map(|(status, content_type, body)| Answer::Fixed(Fixed { status, content_type, body }));
    prop_oneof![redirect, fixed]
}

fn percent() -> impl Strategy<Value = u8> {
    1..=100_u8
}

fn faults() -> impl Strategy<Value = Faults> {
    let delay = (percent(), time()).prop_map(|(percent, time)| Delay { percent, time });
    let abort = (percent(), 400..=599_u16).prop_map(|(percent, status)| Abort { percent, status });
    (option::of(delay), option::of(abort)).prop_map(|(delay, abort)| Faults { delay, abort })
}

fn matches() -> impl Strategy<Value = Vec<RequestMatch>> {
    let place = prop_oneof![boxed().prop_map(MatchPlace::Header), boxed().prop_map(MatchPlace::Cookie)];
    vec((place, option::of(boxed())).prop_map(|(place, value)| RequestMatch { place, value }), 0..3)
}

fn split() -> impl Strategy<Value = Split> {
    let branch = (key(), 0..=1_000_000_u32, matches(), matches())
        .prop_map(|(upstream, weight, matches, excludes)| Branch { upstream, weight, matches, excludes });
    (0..=1_000_000_u32, vec(branch, 0..3)).prop_map(|(weight, branches)| Split { weight, branches })
}

fn choice() -> impl Strategy<Value = Choice> {
    let balance = prop::sample::select(vec![Balance::Ewma, Balance::RoundRobin, Balance::LeastRequest]);
    let part = prop_oneof![
        Just(HashPart::Address),
        Just(HashPart::Path),
        boxed().prop_map(HashPart::Header),
        boxed().prop_map(HashPart::Cookie),
        boxed().prop_map(HashPart::Query),
    ];
    let cookie = (boxed(), option::of(time())).prop_map(|(name, max_age)| AffinityCookie { name, max_age });
    (option::of(balance), vec(part, 0..3), option::of(cookie)).prop_map(|(balance, hash, cookie)| Choice {
        balance,
        hash,
        cookie,
    })
}

fn cache() -> impl Strategy<Value = Cache> {
    let sizes = (Cache::SIZE_MIN..=Cache::SIZE_MAX).prop_flat_map(|most| (Just(most), 1..=most / 4));
    (sizes, option::of(time()), time(), vec(boxed(), 0..3)).prop_map(
        |((max_size, max_response_size), default_time, stale_if_error, key_headers)| Cache {
            max_size,
            max_response_size,
            default_time,
            stale_if_error,
            key_headers,
        },
    )
}

pub(super) fn traffic() -> BoxedStrategy<Arc<Traffic>> {
    let rewrite = (option::of(path()), option::of(boxed())).prop_map(|(path, host)| Rewrite { path, host });
    let mirror = (key(), percent()).prop_map(|(upstream, percent)| Mirror { upstream, percent });
    // Boxed: as values they would not fit on the stack of a test.
    let ways =
        (rules().boxed(), rules().boxed(), rewrite.boxed(), option::of(answer()).boxed(), faults().boxed());
    let places = (
        option::of(split()).boxed(),
        choice().boxed(),
        option::of(mirror).boxed(),
        option::of(cache()).boxed(),
    );
    (
        id(),
        timeouts(),
        option::of(retries()),
        (option::of(any::<u64>()), option::of(any::<u64>())),
        ways,
        places,
    )
        .prop_map(
            |(id, timeouts, retries, (request_body, response_body), ways, (split, choice, mirror, cache))| {
                let (request_headers, response_headers, rewrite, answer, faults) = ways;
                Arc::new(Traffic {
                    id,
                    timeouts,
                    retries,
                    request_body,
                    response_body,
                    request_headers,
                    response_headers,
                    rewrite,
                    answer,
                    faults,
                    split,
                    choice,
                    mirror,
                    cache,
                })
            },
        )
        .boxed()
}
