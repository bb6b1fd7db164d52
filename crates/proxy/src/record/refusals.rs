//! The last requests that the gateway refused, for people who ask about one of them by its ID.
//!
//! Each worker has a ring of its own. A worker never waits for a reader: while a reader copies the ring, the worker forgets the
//! request. The records have no header but `Host`, and no credential of the query.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::request::RequestRecord;
use crate::date::iso8601;
use crate::query::mask;

/// The longest stored target, ID and host, in bytes.
const TEXT_MAX: usize = 2048;

/// A request that the gateway refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRequest {
    /// The time of the request (ISO 8601).
    pub at: String,
    /// The ID, as in the access log.
    pub request_id: String,
    /// The method.
    pub method: String,
    /// Whether the client used HTTPS.
    pub is_https: bool,
    /// The host.
    pub host: String,
    /// The path with its query, without the values of credentials.
    pub target: String,
    /// The client IP.
    pub client_ip: IpAddr,
    /// The status.
    pub status: u16,
    /// The reason in the access log.
    pub reason: Option<String>,
    /// The object with the policy that refused the request.
    pub policy: Option<String>,
    /// The object with the route.
    pub route: Option<String>,
}

/// The last refused requests of all workers.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// The most requests of one worker.
    most: usize,
    rings: Box<[Mutex<VecDeque<RefusedRequest>>]>,
}

/// The last refused requests of one worker.
#[derive(Debug)]
pub(crate) struct RefusalRing {
    all: Arc<Refusals>,
    worker: usize,
}

impl Refusals {
    /// Room for `most` requests, which the workers share.
    pub(crate) fn new(most: usize, workers: usize) -> Self {
        Self { most: most.div_ceil(workers.max(1)), rings: (0..workers).map(|_| Mutex::default()).collect() }
    }

    /// The ring of a worker.
    pub(crate) fn ring(self: &Arc<Self>, worker: usize) -> RefusalRing {
        RefusalRing { all: self.clone(), worker }
    }

    /// The last refused request with this ID.
    pub(crate) fn find(&self, id: &str) -> Option<RefusedRequest> {
        let last_of = |ring: &Mutex<VecDeque<RefusedRequest>>| {
            let ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
            ring.iter().rev().find(|refused| refused.request_id == id).cloned()
        };
        self.rings.iter().filter_map(last_of).max_by(|one, other| one.at.cmp(&other.at))
    }
}

impl RefusalRing {
    /// Remembers a finished request, if the gateway refused it.
    pub(super) fn request(&self, record: &RequestRecord<'_>) {
        let is_own = record.reason.is_some() || record.endpoint_status.is_none();
        if record.status >= 400 && is_own && self.all.most > 0 {
            self.remember(record);
        }
    }

    #[cold]
    fn remember(&self, record: &RequestRecord<'_>) {
        let Some(ring) = self.all.rings.get(self.worker) else { return };
        let Ok(mut ring) = ring.try_lock() else { return };
        while ring.len() >= self.all.most {
            ring.pop_front();
        }
        let target = record.head.target();
        let secrets = if record.secrets.is_empty() { None } else { mask(target, record.secrets) };
        let at = record.started().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        ring.push_back(RefusedRequest {
            at: text(&iso8601(at.as_secs())),
            request_id: text(&record.id()),
            method: text(record.head.method_name()),
            is_https: record.client.is_tls,
            host: text(record.head.authority()),
            target: text(secrets.as_deref().unwrap_or(target)),
            client_ip: record.client.ip(),
            status: record.status,
            reason: record.reason.map(str::to_owned),
            policy: record.policy.map(ToString::to_string),
            route: record.route.as_ref().map(|route| route.id.to_string()),
        });
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_MAX)]).into_owned()
}
