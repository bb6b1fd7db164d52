//! Concurrency limits of an upstream.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use super::local::LocalUpstream;
use crate::failure::Failure;

/// A request's place at an upstream, counted until the value is dropped.
pub(crate) struct Admission {
    upstream: Rc<LocalUpstream>,
    /// Whether the count of the upstream over all workers includes the request, for a limit.
    is_counted: bool,
}

impl Admission {
    pub(crate) fn new(upstream: &Rc<LocalUpstream>) -> Result<Self, Failure> {
        let limit = upstream.max_requests();
        if let Some(most) = limit {
            let shared = &upstream.shared;
            if shared.in_flight.fetch_add(1, Ordering::Relaxed) >= u64::from(most) {
                shared.in_flight.fetch_sub(1, Ordering::Relaxed);
                upstream.stats().failures[Failure::Overloaded.index()].add(1);
                return Err(Failure::Overloaded);
            }
        }
        upstream.stats().in_flight.add(1);
        Ok(Self { upstream: upstream.clone(), is_counted: limit.is_some() })
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.upstream.stats().in_flight.sub(1);
        if self.is_counted {
            self.upstream.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
