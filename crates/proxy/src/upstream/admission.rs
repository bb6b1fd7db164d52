//! Concurrency limits of an upstream.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::local::LocalUpstream;
use super::shared::SharedUpstream;
use crate::failure::Failure;

/// A request's place at an upstream, counted until the value is dropped.
pub(crate) struct Admission {
    upstream: Rc<LocalUpstream>,
    /// For a limit: the upstream whose count over all workers includes the request.
    limited: Option<Arc<SharedUpstream>>,
}

impl Admission {
    pub(crate) fn new(upstream: &Rc<LocalUpstream>) -> Result<Self, Failure> {
        let limited = match upstream.max_requests() {
            None => None,
            Some(most) => {
                let shared = &upstream.shared;
                if shared.in_flight.fetch_add(1, Ordering::Relaxed) >= u64::from(most) {
                    shared.in_flight.fetch_sub(1, Ordering::Relaxed);
                    upstream.stats().failures[Failure::Overloaded.index()].add(1);
                    return Err(Failure::Overloaded);
                }
                Some(shared.clone())
            }
        };
        upstream.stats().in_flight.add(1);
        Ok(Self { upstream: upstream.clone(), limited })
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.upstream.stats().in_flight.sub(1);
        if let Some(shared) = &self.limited {
            shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
