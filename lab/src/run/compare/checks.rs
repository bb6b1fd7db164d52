//! Checks the functions of gateways before any measurement. The speed of a gateway that accepts forged tokens is
//! irrelevant.

use super::super::probe;
use super::super::running::Place;
use super::super::{Entrant, say};
use super::bench::{Backends, Bench};
use super::task::Task;
use crate::experiment::{Compare, Functions, Work};
use crate::gateway::api::{Call, Limit};
use crate::gateway::{HOST, Kind, refusals};
use crate::results::{Checked, Checks};

/// The number of consumers: enough that others can still call when one consumer is over its limit.
const CALLERS: usize = 3;

/// The number of attempts of a call without a response, so that a busy machine does not fail the check.
const TRIES: usize = 5;

/// Checks each gateway with all functions of its comparisons; returns the results of each gateway.
pub(super) async fn check(
    compares: &[Compare],
    bench: &Bench<'_>,
    kinds: &[Entrant],
) -> anyhow::Result<Vec<Vec<Checks>>> {
    let mut wanted: Vec<Functions> = Vec::new();
    for functions in compares.iter().flat_map(|compare| &compare.functions) {
        if *functions != Functions::None && !wanted.contains(functions) {
            wanted.push(*functions);
        }
    }
    let mut all = Vec::new();
    for Entrant { kind, .. } in kinds {
        let mut checks = Vec::new();
        for functions in wanted.iter().filter(|functions| kind.has(**functions)) {
            let one = check_one(bench, kind, *functions).await?;
            say(&line(kind.name, &one));
            checks.push(one);
        }
        all.push(checks);
    }
    Ok(all)
}

async fn check_one(bench: &Bench<'_>, kind: &'static Kind, functions: Functions) -> anyhow::Result<Checks> {
    bench.divide(1)?;
    let backends = Backends::start().await?;
    let task = Task { functions, callers: CALLERS, ..Task::plain(Work::Http) };
    let functions = functions.name().to_owned();
    let standing = match bench.start(kind, task, 1, Limit::LOW, &backends).await {
        Ok(standing) => standing,
        // The check continues with the other gateways.
        Err(error) => {
            return Ok(Checks { functions, calls: Vec::new(), failure: Some(format!("{error:#}")) });
        }
    };
    let (address, api) = (standing.gateway.site.http, &standing.gateway.config.api);
    let path = api.path(None);
    let once = |call: &Call| Some(probe::call(address, HOST, &path, call).ok()?.status);
    let ask = |call: &Call| (0..TRIES).find_map(|_| once(call));
    let calls = Place::Loopback.enter(|| refusals::check(api, ask))?;
    Ok(Checks { functions, calls, failure: None })
}

/// The results in one line.
fn line(name: &str, checks: &Checks) -> String {
    let Checks { functions, failure, .. } = checks;
    match (failure, &*broken(checks)) {
        (Some(failure), _) => format!("{name:<14} {functions}: does not come to serve: {failure}"),
        (None, "") => {
            format!("{name:<14} {functions}: allows every valid call, and denies every invalid call")
        }
        (None, broken) => format!("{name:<14} {functions}: {broken}"),
    }
}

/// The calls whose responses differ from the required responses.
fn broken(checks: &Checks) -> String {
    let broken = checks.calls.iter().filter(|each| !each.is_kept());
    let each = broken.map(|Checked { call, expected, status }| {
        let status = status.map_or("no response".to_owned(), |status| status.to_string());
        format!("{call}: {status} instead of {expected}")
    });
    each.collect::<Vec<_>>().join(", ")
}
