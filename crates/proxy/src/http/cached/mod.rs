//! Where the cache meets the life of a request: answers without an endpoint, and what is kept of those that endpoints give.
//!
//! | module | what |
//! |---|---|
//! | this one | whether a request is answered out of the cache |
//! | `key` | keys of requests, requests that bypass the cache, targets that are invalidated |
//! | `answer` | answers out of the cache |
//! | `settle` | effects of endpoints' responses on the cache |
//! | `refresh` | revalidation in the background |

mod answer;
mod key;
mod refresh;
mod settle;

use std::rc::Rc;
use std::sync::Arc;

use sluicegate_http1::{HeadLimits, Method};
use tokio::time::Instant;

use super::exchange::{Exchange, Persist};
use super::refuse::Refusal;
use crate::cache::{
    Asked, Cache, Collector, Entered, Entry, Flight, Outcome, Part, UnderWay, WAIT, asks_for_part,
};
use crate::failure::{Failure, Fault};
use crate::upstream::LocalUpstream;

use refresh::Place;
pub(super) use settle::Settled;

/// A request on its way to an endpoint, whose response may be kept.
pub(super) struct Cached {
    cache: Arc<Cache>,
    asked: Asked,
    /// Others may wait for what it asks for.
    flight: Option<Flight>,
    /// What was kept, and cannot be used without asking.
    stale: Option<Arc<Entry>>,
    /// Whether the endpoint is asked if that still holds.
    revalidates: bool,
    collector: Option<Box<Collector>>,
}

/// How a response that was kept came to answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Hit,
    /// Another request has brought it.
    Collapsed,
    /// The endpoint says that it still holds.
    Revalidated,
    /// The endpoint has failed.
    StandsIn,
}

impl Exchange<'_> {
    /// Whether the policy of the route keeps responses.
    pub(super) fn keeps_responses(&self) -> bool {
        self.steered.as_ref().is_some_and(|steered| steered.policy.compiled.cache.is_some())
    }

    /// Looks for a response that was kept. Gives what became of the client's connection if one has answered.
    pub(super) async fn consult(&mut self, upstream: &Rc<LocalUpstream>) -> Result<Option<Persist>, Refusal> {
        let Some(policy) = self.steered.as_ref().map(|steered| steered.policy.clone()) else {
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
        if asked.directives.no_store || self.passes_by() {
            self.tally_of(&policy, |shard| &shard.cache_bypassed);
            self.tell(&policy, "fwd=bypass", "bypass");
            return Ok(None);
        }
        if asks_for_part(&self.scratch.head, self.scratch.input.filled()) {
            return self.consult_for_part(&cache, &asked).await;
        }
        let until = self.record.started + WAIT;
        let is_get = method == Method::Get;
        // What others asked for before does not serve who wants it newer than that.
        let wants_newest =
            asked.directives.no_cache || asked.directives.max_age.is_some_and(|age| age.is_zero());
        let (mut waits, mut way) = (is_get && !wants_newest, Way::Hit);
        let mut cached = Cached::new(cache, asked);
        loop {
            let now = Instant::now();
            match cached.cache.enter(&cached.asked, &self.scratch.request, (waits, is_get), now) {
                Entered::Kept(entry) => return self.answer_from(&entry, way, &[]).await.map(Some),
                Entered::Refreshes(flight, entry) => {
                    let Some(place) = Place::take() else {
                        // Endpoints of others that hang must not keep this response stale.
                        (cached.flight, cached.stale) = (Some(flight), Some(entry));
                        break;
                    };
                    self.refresh((flight, place), &entry, cached.asked, upstream);
                    return self.answer_from(&entry, way, &[]).await.map(Some);
                }
                Entered::Leads(flight, stale) => {
                    (cached.flight, cached.stale) = (Some(flight), stale);
                    break;
                }
                Entered::Alone(stale) => {
                    cached.stale = stale;
                    break;
                }
                Entered::Waits(under_way, stale) => {
                    let outcome = self.wait_for(&under_way, until).await?;
                    let now = Instant::now();
                    let is_late = self.wanted_by.is_some_and(|due| now >= due);
                    if (is_late || outcome == Some(Outcome::Failed))
                        && let Some(entry) = stale.filter(|entry| entry.may_stand_in(&cached.asked, now))
                    {
                        return self.answer_from(&entry, Way::StandsIn, &[]).await.map(Some);
                    }
                    if is_late {
                        return Err(Failure::ResponseTimeout.into());
                    }
                    way = Way::Collapsed;
                    // Who went away, or takes too long, is followed by one of those that wait.
                    waits = matches!(outcome, None | Some(Outcome::Lost)) && now < until;
                }
            }
        }
        if cached.asked.directives.only_if_cached {
            return Err(Refusal::NotKept);
        }
        if let (Some(_), Some(stale)) = (&cached.flight, &cached.stale) {
            cached.revalidates = stale.ask_whether_it_holds(&mut self.scratch.request);
        }
        self.tally_of(&policy, |shard| &shard.cache_misses);
        self.record.cache = Some(cached.why(Instant::now()));
        self.cached = Some(Box::new(cached));
        Ok(None)
    }

    /// Answers a range from a fresh, whole response. The endpoint answers all other ranges.
    async fn consult_for_part(
        &mut self,
        cache: &Arc<Cache>,
        asked: &Asked,
    ) -> Result<Option<Persist>, Refusal> {
        let Some(policy) = self.steered.as_ref().map(|steered| steered.policy.clone()) else {
            return Ok(None);
        };
        if Part::of(&self.scratch.head, self.scratch.input.filled()).is_some()
            && let Entered::Kept(entry) =
                cache.enter(asked, &self.scratch.request, (false, false), Instant::now())
            && entry.has_parts()
        {
            return self.answer_from(&entry, Way::Hit, &[]).await.map(Some);
        }
        if asked.directives.only_if_cached {
            return Err(Refusal::NotKept);
        }
        self.tally_of(&policy, |shard| &shard.cache_bypassed);
        self.tell(&policy, "fwd=bypass", "bypass");
        Ok(None)
    }

    /// Waits until another request has brought what is wanted, or time is over.
    async fn wait_for(&mut self, under_way: &UnderWay, until: Instant) -> Result<Option<Outcome>, Refusal> {
        let until = until.min(under_way.until());
        let until = self.wanted_by.map_or(until, |due| due.min(until));
        Ok(self.awaited(under_way.end(), Some(until)).await?)
    }

    /// No endpoint has answered: others need not wait for this one. Gives what was kept for such a time.
    pub(super) fn stand_in(&mut self, fault: Fault) -> Option<Arc<Entry>> {
        let cached = self.cached.take()?;
        if !matches!(fault, Fault::Upstream(_)) {
            return None;
        }
        if let Some(flight) = &cached.flight {
            flight.ends(Outcome::Failed);
        }
        cached.stale.filter(|entry| entry.may_stand_in(&cached.asked, Instant::now()))
    }

    /// Answers by what was kept, since no endpoint does.
    pub(super) async fn answer_in_need(&mut self, entry: &Arc<Entry>) -> Result<Persist, Refusal> {
        self.answer_from(entry, Way::StandsIn, &[]).await
    }
}

impl Cached {
    /// Why an endpoint is asked (RFC 9211, 2.2): there is nothing, or what is kept does not hold, or the request alone wants it
    /// newer.
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

/// Limits that a head which was accepted before keeps.
fn limits(head: &[u8]) -> HeadLimits {
    HeadLimits { bytes: head.len() + 1, headers: usize::MAX }
}
