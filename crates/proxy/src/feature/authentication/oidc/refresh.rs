//! Refreshes of sessions: one at a time for each session in a process. Browsers send several requests at once with the same
//! cookie, and a provider may accept each refresh token only once. So later requests receive the same new session.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use foldhash::HashMap;
use tokio::sync::watch;

use super::{Login, Session};
use crate::openid::NoGrant;

/// The most sessions that are being refreshed, or were refreshed a short time ago.
const MOST: usize = 10_000;

/// The time for which the result of a refresh serves other requests with the old session.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The time between two refreshes of a session while the provider is unavailable.
const BETWEEN_FAILURES: Duration = Duration::from_secs(5);

/// The refreshes of the sessions of a policy, by the hash of the refresh token.
#[derive(Default)]
pub(super) struct Refreshes(Mutex<HashMap<[u8; 32], Refresh>>);

/// A refresh in flight, or its result.
struct Refresh {
    begun: Instant,
    result: watch::Receiver<Option<Refreshed>>,
}

/// The result of a refresh.
#[derive(Clone, Debug)]
pub(super) enum Refreshed {
    Renewed(Arc<Session>),
    Rejected,
    Unavailable,
}

impl Refresh {
    /// Whether the result serves further requests.
    fn is_current(&self, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.begun);
        match &*self.result.borrow() {
            // The task ends within the timeouts of its exchanges.
            None => self.result.has_changed().is_ok(),
            Some(Refreshed::Unavailable) => age < BETWEEN_FAILURES,
            Some(Refreshed::Renewed(_) | Refreshed::Rejected) => age < REMEMBERED,
        }
    }
}

impl Refreshes {
    /// The result of the refresh of a session.
    pub(super) async fn of(&self, login: &Arc<Login>, session: &Arc<Session>) -> Refreshed {
        let Some(mut result) = self.join(login, session) else { return Refreshed::Unavailable };
        let result = result.wait_for(Option::is_some).await;
        // The task was aborted with its worker.
        result.ok().and_then(|result| result.clone()).unwrap_or(Refreshed::Unavailable)
    }

    /// Joins the refresh of a session, or begins it. `None` if too many sessions are being refreshed.
    fn join(&self, login: &Arc<Login>, session: &Arc<Session>) -> Option<watch::Receiver<Option<Refreshed>>> {
        let token = session.refresh_token.as_ref()?;
        let hash: [u8; 32] = digest::digest(&digest::SHA256, token.as_bytes()).as_ref().try_into().ok()?;
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(refresh) = all.get(&hash).filter(|refresh| refresh.is_current(now)) {
            return Some(refresh.result.clone());
        }
        if all.len() >= MOST {
            all.retain(|_, refresh| refresh.is_current(now));
            if all.len() >= MOST {
                return None;
            }
        }
        let (tell, result) = watch::channel(None);
        all.insert(hash, Refresh { begun: now, result: result.clone() });
        let (login, session) = (login.clone(), session.clone());
        // A task of its own: the provider may have used the refresh token when the first client leaves.
        tokio::spawn(async move {
            let refreshed = match login.renew(&session).await {
                Ok(renewed) => Refreshed::Renewed(Arc::new(renewed)),
                Err(NoGrant::Rejected | NoGrant::Invalid) => Refreshed::Rejected,
                Err(NoGrant::Unavailable) => Refreshed::Unavailable,
            };
            tell.send_replace(Some(refreshed));
        });
        Some(result)
    }
}
