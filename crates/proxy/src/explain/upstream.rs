//! The endpoints of an upstream, and the reasons why some of them receive no request.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluicegate_model::{Balance, Conditions, UpstreamKey};

use super::data::{Destination, Member, Refused};
use super::trial::{Served, sentence};
use super::words::{span, things};
use crate::failure::Failure;
use crate::upstream::{EndpointSet, SharedEndpoint, SharedUpstream};

/// The most endpoints of an upstream to list.
const ENDPOINTS_MAX: usize = 100;

/// The state of an upstream.
pub(super) struct State {
    /// Whether an endpoint is eligible, or the endpoints are not known.
    pub(super) has_endpoint: bool,
    /// Whether the endpoints are known.
    is_known: bool,
    balancing: String,
    is_health_known: bool,
    members: Vec<Member>,
    more: usize,
}

impl State {
    /// The state of an upstream. `mark` is the mark of the endpoint of the client's session.
    pub(super) fn of(served: Served<'_>, key: &UpstreamKey, mark: Option<u64>) -> Self {
        let live = served.upstreams.iter().find(|upstream| upstream.key() == key);
        live.map_or_else(|| Self::of_config(served, key), |upstream| Self::of_live(upstream, mark))
    }

    fn of_live(upstream: &SharedUpstream, mark: Option<u64>) -> Self {
        let set = upstream.endpoints();
        let eligible: Vec<u64> = set.eligible().map(|endpoint| endpoint.id).collect();
        let is_eligible = |endpoint: &SharedEndpoint| eligible.contains(&endpoint.id);
        let is_healthy = |(endpoint, _): &&(Arc<SharedEndpoint>, Conditions)| {
            is_eligible(endpoint) && !endpoint.is_unhealthy()
        };
        let healthy = set.endpoints.iter().filter(is_healthy).count();
        let marked = mark.filter(|mark| {
            set.endpoints.iter().filter(is_healthy).any(|(endpoint, _)| endpoint.mark() == *mark)
        });
        let mut members: Vec<Member> = Vec::new();
        for (endpoint, conditions) in set.endpoints.iter().take(ENDPOINTS_MAX) {
            let because = match is_eligible(endpoint) {
                false => Some(unready(*conditions)),
                true => withheld(&set, endpoint, healthy).or_else(|| {
                    let is_other = marked.is_some_and(|mark| endpoint.mark() != mark);
                    is_other.then(|| "not the endpoint of the client's session".to_owned())
                }),
            };
            let address = endpoint.address().to_string();
            members.push(Member { address, is_eligible: because.is_none(), because });
        }
        let mut balancing = words(set.balance).to_owned();
        if let Some(most) = set.limits.max_requests {
            let now = upstream.in_flight.load(Ordering::Relaxed);
            balancing.push_str(&format!("; {now} of at most {} in flight", things(most as usize, "request")));
        }
        Self {
            has_endpoint: !eligible.is_empty(),
            is_known: true,
            balancing,
            is_health_known: true,
            more: set.endpoints.len().saturating_sub(ENDPOINTS_MAX),
            members,
        }
    }

    /// The state of an upstream in a process without a data plane.
    fn of_config(served: Served<'_>, key: &UpstreamKey) -> Self {
        let upstream = served.config.upstreams.get(key);
        let endpoints = upstream.map_or(&[][..], |upstream| &upstream.endpoints);
        let any =
            |wanted: fn(&Conditions) -> bool| endpoints.iter().any(|endpoint| wanted(&endpoint.conditions));
        // The tiers of `EndpointSet::eligible`.
        let tiers: [fn(&Conditions) -> bool; 3] =
            [|has| has.ready && !has.terminating, |has| has.serving && has.terminating, |has| has.serving];
        let tier = tiers.into_iter().find(|tier| any(*tier));
        let member = |endpoint: &sluicegate_model::Endpoint| {
            let because = match tier {
                Some(tier) if tier(&endpoint.conditions) => None,
                _ => Some(unready(endpoint.conditions)),
            };
            Member { address: endpoint.address.to_string(), is_eligible: because.is_none(), because }
        };
        let named = upstream.is_some_and(|upstream| upstream.external_name.is_some());
        let is_known = !named && (served.knows_endpoints || !endpoints.is_empty());
        Self {
            has_endpoint: tier.is_some() || !is_known,
            is_known,
            balancing: words(upstream.map(|upstream| upstream.balance).unwrap_or_default()).to_owned(),
            is_health_known: false,
            members: endpoints.iter().take(ENDPOINTS_MAX).map(member).collect(),
            more: endpoints.len().saturating_sub(ENDPOINTS_MAX),
        }
    }

    /// Describes the upstream as a destination.
    pub(super) fn describe(self, destination: &mut Destination) {
        if !self.has_endpoint {
            destination.refusal = Some(refused(Failure::NoEndpoint));
        }
        destination.balancing = match self.is_known {
            true => self.balancing,
            false => format!("{}; the endpoints are not known here", self.balancing),
        };
        destination.is_health_known = self.is_health_known;
        destination.endpoints = self.members;
        destination.more_endpoints = self.more;
    }
}

/// The refusal of a request because of a failure.
pub(super) fn refused(failure: Failure) -> Refused {
    Refused {
        status: failure.status(),
        reason: failure.reason().to_owned(),
        because: format!("{}.", sentence(&failure.to_string())),
    }
}

/// The reason why an endpoint is not eligible.
fn unready(conditions: Conditions) -> String {
    match conditions {
        Conditions { terminating: true, .. } => "terminating",
        Conditions { ready: false, serving: true, .. } => "not ready, and other endpoints are",
        Conditions { ready: false, .. } => "not ready",
        _ => "other endpoints are ready",
    }
    .to_owned()
}

/// The reason why an eligible endpoint receives no request while others can.
fn withheld(set: &EndpointSet, endpoint: &SharedEndpoint, healthy: usize) -> Option<String> {
    let limit = set.limits.max_requests_per_endpoint.map(u64::from);
    if limit.is_some_and(|limit| endpoint.in_flight.load(Ordering::Relaxed) >= limit) {
        return Some("at its limit of requests in flight".to_owned());
    }
    if !endpoint.is_unhealthy() {
        return None;
    }
    let why = match endpoint.ejected_for() {
        _ if endpoint.is_failing() => "fails its health checks".to_owned(),
        Some(rest) => format!("ejected for another {}", span(rest)),
        None => "unhealthy: connections or responses fail".to_owned(),
    };
    // Without a healthy endpoint, health does not matter.
    (healthy > 0).then_some(why)
}

fn words(balance: Balance) -> &'static str {
    match balance {
        Balance::Ewma => "the better of two random endpoints, by response time and requests in flight",
        Balance::RoundRobin => "round robin",
        Balance::LeastRequest => "the better of two random endpoints, by requests in flight",
    }
}
