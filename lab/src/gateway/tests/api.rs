//! Tests of the functions of API gateways, with the real programs.

use std::thread;

use anyhow::{Context as _, bail, ensure};

use super::super::api::{Api, CONSUMER_HEADER, Header, Limit};
use super::super::refusals::check;
use super::super::{ALL, Kind, catalogue};
use super::rig::{Running, keep_with};
use crate::experiment::Functions;

/// The number of callers: enough that each worker serves more than one call.
const CALLERS: usize = 20;

/// Tests a promise of each kind of gateway with these functions, all at the same time.
fn each(functions: Functions, promise: fn(&mut Running) -> anyhow::Result<()>) {
    let kinds = ALL.into_iter().filter(|kind| kind.has(functions));
    let broken: Vec<String> = thread::scope(|scope| {
        let keep = |kind: &'static Kind| -> anyhow::Result<()> {
            keep_with(kind, 1, &Api::new(functions, CALLERS, Limit::LOW)?, promise)
        };
        let threads: Vec<_> = kinds.map(|kind| (kind.name, scope.spawn(move || keep(kind)))).collect();
        let results = threads.into_iter().map(|(name, thread)| (name, thread.join().expect("no panic")));
        results.filter_map(|(name, result)| Some(format!("{name}: {:#}", result.err()?))).collect()
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Checks that the gateway allows the valid call, and denies all other calls.
fn refuses(gateway: &mut Running) -> anyhow::Result<()> {
    let checked = check(&gateway.config.api, |call| Some(gateway.make(call).ok()?.status));
    ensure!(checked.len() > 2, "{checked:?}");
    let broken: Vec<String> = checked
        .iter()
        .filter(|each| !each.is_kept())
        .map(|each| format!("{}: {:?} instead of {}", each.call, each.status, each.expected))
        .collect();
    ensure!(broken.is_empty(), "{}", broken.join("; "));
    Ok(())
}

#[test]
fn gateway_allows_only_tokens_signed_with_the_shared_secret() {
    each(Functions::JwtHs256, refuses);
}

#[test]
fn gateway_allows_only_tokens_that_the_public_key_verifies() {
    each(Functions::JwtRs256, refuses);
}

#[test]
fn gateway_allows_only_known_api_keys() {
    each(Functions::ApiKey, refuses);
}

#[test]
fn rate_limit_denies_only_the_caller_over_the_limit() {
    each(Functions::ApiKeyAndLimit, refuses);
}

#[test]
fn api_management_denies_unknown_callers_and_limits_each_subscription() {
    each(Functions::ManagedApiKey, refuses);
    each(Functions::ManagedJwt, refuses);
}

#[test]
fn validation_denies_bodies_that_do_not_match_their_schema() {
    each(Functions::Validation, refuses);
}

#[test]
fn api_management_knows_operations_and_subscriptions() {
    let promise = |gateway: &mut Running| {
        let good = gateway.config.api.good();
        let status =
            |caller: usize, path: &str| anyhow::Ok(gateway.call_path(path, good.get(caller))?.status);
        // The third caller of 20 is subscribed to the first API and to each API whose number modulo 20 is 2.
        ensure!(status(2, &catalogue::path(22, 1, None))? == 200);
        let unknown = catalogue::base(22) + "/other/12345";
        ensure!(status(2, &unknown)? == 404, "{unknown}");
        // Envoy cannot check subscriptions, which docs/project/lab.md states.
        let other = status(2, &catalogue::path(23, 1, None))?;
        ensure!(other == 403 || gateway.kind.name == "envoy", "not subscribed: {other}");
        Ok(())
    };
    each(Functions::ManagedApiKey, promise);
}

#[test]
fn endpoints_receive_the_consumer_name_and_the_credential() {
    each(Functions::ApiKey, |gateway| {
        let Api::Keys(keys) = gateway.config.api.clone() else { bail!("it has no keys") };
        for (consumer, header) in keys.consumers.iter().zip(gateway.config.api.good()) {
            let answer = gateway.call(Some(&header))?;
            ensure!(answer.seen(CONSUMER_HEADER) == Some(&*consumer.name), "{answer:?}");
            // The gateway forwards the credential, as the other gateways do.
            ensure!(answer.seen(header.name) == Some(&*header.value), "{answer:?}");
        }
        // A client cannot forge its identity by sending the consumer header itself.
        let known = gateway.config.api.good().pop().context("nobody may call")?;
        let value = format!("{}\r\n{CONSUMER_HEADER}: admin", known.value);
        let forged = Header { name: known.name, value };
        let answer = gateway.call(Some(&forged))?;
        ensure!(answer.seen(CONSUMER_HEADER).is_some_and(|name| name != "admin"), "{answer:?}");
        Ok(())
    });
}
