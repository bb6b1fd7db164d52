//! The cache in the life of a request: responses without an endpoint, and responses of endpoints that are cached.
//!
//! | module | purpose |
//! |---|---|
//! | this module | decides whether the cache serves a request |
//! | `key` | keys of requests, requests that bypass the cache, targets that are invalidated |
//! | `answer` | responses from the cache |
//! | `settle` | effects of endpoints' responses on the cache |
//! | `refresh` | revalidation in the background |

mod answer;
mod key;
mod refresh;
mod settle;

use std::rc::Rc;
use std::sync::Arc;

use sluicegate_http1::{HeadLimits, Method};
use sluicegate_model::UpstreamKey;
use tokio::time::Instant;

use super::exchange::{Exchange, Persist};
use super::refuse::Refusal;
use super::steer::rewritten_host;
use crate::failure::{Failure, Fault};
use crate::feature::Guard;
use crate::feature::cache::{
    Asked, Cache, CacheLookup, Collector, Entry, Flight, InFlight, Outcome, Part, WAIT, asks_for_part,
};
use crate::upstream::LocalUpstream;
use crate::worker::Scratch;

use key::{Forwarded, asked, bypasses_cache};
use refresh::Place;
pub(super) use settle::ResponseAction;

/// A request to an endpoint whose response may be cached.
pub(super) struct Cached {
    cache: Arc<Cache>,
    asked: Asked,
    /// The flight for which requests with the same key may wait.
    flight: Option<Flight>,
    /// A cached response that must be revalidated before use.
    stale: Option<Arc<Entry>>,
    /// Whether the request asks the endpoint if the stale response is still valid.
    revalidates: bool,
    collector: Option<Box<Collector>>,
}

/// The way in which a cached response serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HitKind {
    Hit,
    /// Another request fetched the response.
    Collapsed,
    /// The endpoint confirmed that the response is still valid.
    Revalidated,
    /// The endpoint has failed, and the stale response serves.
    StaleIfError,
}

impl Exchange<'_> {
    /// Whether the policy of the route caches responses.
    pub(super) fn keeps_responses(&self) -> bool {
        self.traffic().is_some_and(|policy| policy.compiled.cache.is_some())
    }

    /// Looks for a cached response. If one serves the request, returns the state of the client's connection.
    pub(super) async fn consult(&mut self, upstream: &Rc<LocalUpstream>) -> Result<Option<Persist>, Refusal> {
        let Some(policy) = self.traffic().cloned() else {
            return Ok(None);
        };
        let Some(cache) = policy.compiled.cache.clone() else { return Ok(None) };
        let asked = self.asked(&cache, upstream.shared.key());
        let method = self.scratch.head.method;
        if !matches!(method, Method::Get | Method::Head) {
            self.tell(&policy, "fwd=method", "bypass");
            if !matches!(method, Method::Options) {
                self.cached = Some(Box::new(Cached::new(cache, asked)));
            }
            return Ok(None);
        }
        if asked.directives.no_store || self.is_identified() || bypasses_cache(self.head()) {
            self.tally_of(&policy, |shard| &shard.cache_bypassed);
            self.tell(&policy, "fwd=bypass", "bypass");
            return Ok(None);
        }
        if asks_for_part(&self.scratch.head, self.scratch.input.filled()) {
            return self.consult_for_part(&cache, &asked).await;
        }
        let until = self.record.started + WAIT;
        let is_get = method == Method::Get;
        // A response to an earlier request does not serve a client that wants a newer response.
        let wants_newest =
            asked.directives.no_cache || asked.directives.max_age.is_some_and(|age| age.is_zero());
        let (mut waits, mut way) = (is_get && !wants_newest, HitKind::Hit);
        let mut cached = Cached::new(cache, asked);
        loop {
            let now = Instant::now();
            match cached.cache.enter(&cached.asked, &self.scratch.request, (waits, is_get), now) {
                CacheLookup::Hit(entry) => return self.answer_from(&entry, way, &[]).await.map(Some),
                CacheLookup::Refreshes(flight, entry) => {
                    let Some(place) = Place::take() else {
                        // Hanging endpoints of other responses must not leave this response stale.
                        (cached.flight, cached.stale) = (Some(flight), Some(entry));
                        break;
                    };
                    self.refresh((flight, place), &entry, cached.asked, upstream);
                    return self.answer_from(&entry, way, &[]).await.map(Some);
                }
                CacheLookup::Leads(flight, stale) => {
                    (cached.flight, cached.stale) = (Some(flight), stale);
                    break;
                }
                CacheLookup::Alone(stale) => {
                    cached.stale = stale;
                    break;
                }
                CacheLookup::Waits(in_flight, stale) => {
                    let outcome = self.wait_for(&in_flight, until).await?;
                    let now = Instant::now();
                    let is_late = self.head_deadline.is_some_and(|due| now >= due);
                    if (is_late || outcome == Some(Outcome::Failed))
                        && let Some(entry) =
                            stale.filter(|entry| entry.may_serve_if_error(&cached.asked, now))
                    {
                        return self.answer_from(&entry, HitKind::StaleIfError, &[]).await.map(Some);
                    }
                    if is_late {
                        return Err(Failure::ResponseTimeout.into());
                    }
                    way = HitKind::Collapsed;
                    // If the first request ended without a response or is too slow, a waiting request takes its place.
                    waits = matches!(outcome, None | Some(Outcome::Lost)) && now < until;
                }
            }
        }
        if cached.asked.directives.only_if_cached {
            return Err(Refusal::NotCached);
        }
        if let (Some(_), Some(stale)) = (&cached.flight, &cached.stale) {
            cached.revalidates = stale.ask_whether_it_holds(&mut self.scratch.request);
        }
        self.tally_of(&policy, |shard| &shard.cache_misses);
        self.record.cache = Some(cached.why(Instant::now()));
        self.cached = Some(Box::new(cached));
        Ok(None)
    }

    /// The cache's view of the request.
    fn asked(&self, cache: &Cache, upstream: &UpstreamKey) -> Asked {
        let Scratch { request, request_lines, query, .. } = &*self.scratch;
        let forwarded = Forwarded {
            bytes: request,
            lines: &request_lines[self.trace_lines..],
            query: match query {
                Some(query) => Some(&**query).filter(|query| !query.is_empty()),
                None => self.head().query(),
            },
            host: rewritten_host(self.backend_edits.as_deref(), self.steered.as_ref(), &self.snapshot),
            upstream,
        };
        asked(cache.rules(), &self.view(), self.client.origin.listener.port(), &forwarded)
    }

    /// Whether the request has an identity. The request may receive a personal response, and caches may not know the header
    /// with the identity.
    fn is_identified(&self) -> bool {
        let target = self.record.route.map(|route| self.snapshot.table.target(route));
        self.is_filtered
            || !self.client.origin.identity.is_empty()
            || target.is_some_and(|target| {
                target.client_auth.is_some() || target.guard.as_deref().is_some_and(Guard::identifies)
            })
    }

    /// Serves a range from a fresh, complete response. The endpoint serves all other ranges.
    async fn consult_for_part(
        &mut self,
        cache: &Arc<Cache>,
        asked: &Asked,
    ) -> Result<Option<Persist>, Refusal> {
        let Some(policy) = self.traffic().cloned() else {
            return Ok(None);
        };
        if Part::of(&self.scratch.head, self.scratch.input.filled()).is_some()
            && let CacheLookup::Hit(entry) =
                cache.enter(asked, &self.scratch.request, (false, false), Instant::now())
            && entry.has_parts()
        {
            return self.answer_from(&entry, HitKind::Hit, &[]).await.map(Some);
        }
        if asked.directives.only_if_cached {
            return Err(Refusal::NotCached);
        }
        self.tally_of(&policy, |shard| &shard.cache_bypassed);
        self.tell(&policy, "fwd=bypass", "bypass");
        Ok(None)
    }

    /// Waits until another request has fetched the response, or until the deadline.
    async fn wait_for(&mut self, in_flight: &InFlight, until: Instant) -> Result<Option<Outcome>, Refusal> {
        let until = until.min(in_flight.until());
        let until = self.head_deadline.map_or(until, |due| due.min(until));
        Ok(self.awaited(in_flight.end(), Some(until)).await?)
    }

    /// No endpoint has responded: releases the requests that wait. Returns a stale response that may serve on errors.
    pub(super) fn stale_for_failure(&mut self, fault: Fault) -> Option<Arc<Entry>> {
        let cached = self.cached.take()?;
        if !matches!(fault, Fault::Upstream(_)) {
            return None;
        }
        if let Some(flight) = &cached.flight {
            flight.ends(Outcome::Failed);
        }
        cached.stale.filter(|entry| entry.may_serve_if_error(&cached.asked, Instant::now()))
    }

    /// Serves a stale response, because no endpoint responds.
    pub(super) async fn serve_stale(&mut self, entry: &Arc<Entry>) -> Result<Persist, Refusal> {
        self.answer_from(entry, HitKind::StaleIfError, &[]).await
    }
}

impl Cached {
    /// Why the request goes to an endpoint (RFC 9211, 2.2): no response is cached, the cached response is stale, or the
    /// request itself wants a newer response.
    fn why(&self, now: Instant) -> &'static str {
        match &self.stale {
            None => "miss",
            Some(entry) if entry.holds(now) => "request",
            Some(_) => "stale",
        }
    }

    fn new(cache: Arc<Cache>, asked: Asked) -> Self {
        Self { cache, asked, flight: None, stale: None, revalidates: false, collector: None }
    }
}

/// Limits that a head which was accepted before satisfies.
fn limits(head: &[u8]) -> HeadLimits {
    HeadLimits { bytes: head.len() + 1, headers: usize::MAX }
}
