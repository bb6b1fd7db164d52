//! Introspection of tokens (RFC 7662): an authorization server says whether a token is active, and states its claims.
//!
//! A worker remembers the answers by the hash of the token. While a question is in flight, requests with the same token wait
//! for its answer. Without a valid answer, the request is denied.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use aws_lc_rs::digest;
use bytes::Bytes;
use foldhash::HashMap;
use serde_json::Value;
use sluicegate_jwt::{Claims, Fault, Rules, token};
use sluicegate_model::feature::Introspection;
use sluicegate_model::value::secret;
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::credential::Place;
use super::jwt::{Verified, claim_headers, claim_lines, wanted};
use crate::counters::{Check, PolicyStats};
use crate::failure::Denial;
use crate::feature::memory::Memory;
use crate::http_client::{HttpClient, HttpError, Server};
use crate::openid::{Form, OAuthClient, OAuthError, now};

/// The limit of questions in flight on a worker.
const IN_FLIGHT_MAX: usize = 1024;

/// The most idle connections of a worker to one server.
const IDLE_MAX: usize = 8;

/// The time between two log lines of a worker about the same server.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(10);

/// The outcome for a token.
pub(crate) type Outcome = Result<Rc<Verified>, Denial>;

/// The introspection of a policy, compiled.
#[derive(Debug)]
pub(crate) struct Introspector {
    /// Unique in this process.
    number: u64,
    source: Arc<Introspection>,
    client: OAuthClient,
    server: Server,
    pub(super) places: Vec<Place>,
    rules: Rules,
    /// Claims that become headers, with the names of these headers.
    headers: Vec<(Box<str>, Box<str>)>,
}

/// A token, and the hash by which its answer is remembered.
pub(crate) struct Question {
    pub(super) text: Box<[u8]>,
    mark: [u8; 32],
}

/// The servers that a worker asks about tokens.
#[derive(Default)]
pub(crate) struct Introspections {
    all: RefCell<HashMap<u64, Asked>>,
    memory: RefCell<Memory<Outcome>>,
    /// The questions in flight.
    flights: RefCell<HashMap<[u8; 32], watch::Receiver<Option<Outcome>>>>,
    in_flight: Cell<usize>,
}

/// A worker's side of a server.
struct Asked {
    /// Dangling once no policy uses the server.
    introspector: Weak<Introspector>,
    idle: Vec<HttpClient>,
    warned: Option<Instant>,
}

impl Introspector {
    /// # Errors
    /// A value of a Secret or the URL cannot be used, as a sentence.
    pub(super) fn new(source: &Arc<Introspection>, number: u64) -> Result<Self, String> {
        let authorities = secret::authorities(&source.ca_certificate_ref)?;
        let server = Server::new(&source.url, authorities).map_err(|error| error.to_string())?;
        let secret = source.client_secret_ref.value()?.clone();
        let (how, timeout) = (source.client_authentication, source.timeout.get());
        Ok(Self {
            number,
            client: OAuthClient::new(&source.client_id, Some(secret), how, timeout),
            server,
            places: source.places().map(|place| Place::new(&place)).collect(),
            rules: Rules {
                issuer: source.issuer.as_ref().map(|issuer| issuer.as_str().into()),
                audiences: source.audiences.iter().map(|audience| audience.as_str().into()).collect(),
                clock_skew: Duration::ZERO,
                allows_eternal: true,
                required: source.required_claims.iter().map(wanted).collect(),
            },
            headers: claim_headers(&source.claim_to_headers),
            source: source.clone(),
        })
    }

    pub(super) fn forwards(&self) -> bool {
        self.source.forward
    }

    /// The names of the headers that claims become.
    pub(super) fn own_headers(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().map(|(_, header)| &**header)
    }

    /// The question about a token.
    pub(super) fn question(&self, text: &[u8]) -> Result<Question, Denial> {
        if text.len() > token::MAX {
            return Err(Denial::Token(Fault::TooLong));
        }
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&self.number.to_be_bytes());
        context.update(text);
        let mut mark = [0; 32];
        // A SHA-256 has 32 bytes.
        mark.copy_from_slice(context.finish().as_ref());
        Ok(Question { text: text.into(), mark })
    }

    /// The meaning of the server's response (RFC 7662, 2.2), and for how long it may be remembered. `None`: the response
    /// is invalid.
    fn read(&self, body: &[u8], now: i64) -> Option<(Outcome, Duration)> {
        let cache = &self.source.cache;
        let claims = Claims::parse(body).ok()?;
        if !claims.get("active").and_then(Value::as_bool)? {
            return Some((Err(Denial::TokenInactive), cache.inactive.get()));
        }
        if let Err(fault) = claims.check(&self.rules, now) {
            return Some((Err(Denial::Token(fault)), cache.inactive.get()));
        }
        let end = claims.expiry().unwrap_or(i64::MAX);
        let left = Duration::from_secs(u64::try_from(end.saturating_sub(now)).unwrap_or(0));
        let lines = claim_lines(&claims, &self.headers);
        Some((Ok(Rc::new(Verified::new(claims, lines, end, None))), cache.active.get().min(left)))
    }
}

impl Introspections {
    /// The remembered outcome for a token.
    pub(super) fn find(&self, question: &Question) -> Option<Outcome> {
        let outcome = self.memory.borrow_mut().find(&question.mark, Instant::now())?;
        // The memory counts from the answer, which may have come within the last second of the token.
        Some(outcome.and_then(|verified| match verified.is_over(now()) {
            true => Err(Denial::Token(Fault::Expired)),
            false => Ok(verified),
        }))
    }

    /// The outcome for a token, which the server states.
    pub(crate) async fn ask(
        self: Rc<Self>,
        introspector: Arc<Introspector>,
        question: Question,
        stats: Arc<PolicyStats>,
        worker: usize,
    ) -> Outcome {
        let flight = self.flights.borrow().get(&question.mark).cloned();
        let mut flight = match flight {
            Some(flight) => {
                stats.of(worker).checks[Check::Shared as usize].add(1);
                flight
            }
            None if self.in_flight.get() >= IN_FLIGHT_MAX => return Err(Denial::TooManyExternalChecks),
            None => self.start_flight(introspector, question, stats, worker),
        };
        match flight.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(outcome)) => outcome.clone(),
            // The task was aborted: the request is denied.
            Ok(None) | Err(_) => Err(Denial::IntrospectionUnavailable),
        }
    }

    /// Asks in a separate task: if the first request ends, the others still receive the answer.
    fn start_flight(
        self: Rc<Self>,
        introspector: Arc<Introspector>,
        question: Question,
        stats: Arc<PolicyStats>,
        worker: usize,
    ) -> watch::Receiver<Option<Outcome>> {
        let (tell, flight) = watch::channel(None);
        self.flights.borrow_mut().insert(question.mark, flight.clone());
        self.in_flight.set(self.in_flight.get() + 1);
        spawn_local(async move {
            let landing = FlightGuard { all: &self, mark: question.mark };
            let answered = self.ask_server(&introspector, &question.text).await;
            let read = answered.and_then(|body| introspector.read(&body, now()).ok_or(OAuthError::Json));
            let (outcome, result) = match read {
                Ok((outcome, time_to_live)) => {
                    let size = outcome.as_ref().map_or(0, |verified| 4 * verified.lines.len() + 2048);
                    let until = Instant::now() + time_to_live;
                    let number = introspector.number;
                    let result = if outcome.is_ok() { Check::Admitted } else { Check::Refused };
                    self.memory.borrow_mut().remember(question.mark, number, until, outcome.clone(), size);
                    (outcome, result)
                }
                Err(error) => {
                    self.warn(&introspector, &error);
                    (Err(Denial::IntrospectionUnavailable), Check::Failed)
                }
            };
            stats.of(worker).checks[result as usize].add(1);
            drop(landing);
            tell.send_replace(Some(outcome));
        });
        flight
    }

    /// The response of the server. A question is repeated once if the connection was closed while it was idle.
    async fn ask_server(&self, introspector: &Arc<Introspector>, text: &[u8]) -> Result<Bytes, OAuthError> {
        let form = || {
            let mut form = Form::default();
            form.add("token", text);
            form.add("token_type_hint", b"access_token");
            form
        };
        let idle = self.idle_of(introspector);
        let is_new = idle.is_none();
        let mut client = idle.unwrap_or_else(|| introspector.client.connect(&introspector.server));
        let answered = match introspector.client.post(&mut client, form()).await {
            Err(OAuthError::Exchange(HttpError::Http(_))) if !is_new => {
                client = introspector.client.connect(&introspector.server);
                introspector.client.post(&mut client, form()).await
            }
            answered => answered,
        };
        if answered.is_ok()
            && let Some(asked) = self.all.borrow_mut().get_mut(&introspector.number)
            && asked.idle.len() < IDLE_MAX
        {
            asked.idle.push(client);
        }
        answered
    }

    fn idle_of(&self, introspector: &Arc<Introspector>) -> Option<HttpClient> {
        let mut all = self.all.borrow_mut();
        let asked = all.entry(introspector.number).or_insert_with(|| Asked {
            introspector: Arc::downgrade(introspector),
            idle: Vec::new(),
            warned: None,
        });
        asked.idle.pop()
    }

    fn warn(&self, introspector: &Introspector, error: &OAuthError) {
        let mut all = self.all.borrow_mut();
        let Some(asked) = all.get_mut(&introspector.number) else { return };
        let now = Instant::now();
        if asked.warned.is_none_or(|before| now - before >= BETWEEN_WARNINGS) {
            asked.warned = Some(now);
            let url = &*introspector.source.url;
            tracing::warn!(url, %error, "an introspection endpoint failed; the gateway denies requests with its tokens");
        }
    }

    /// Closes connections to the servers that no policy uses any more, and forgets their answers.
    pub(crate) fn run_housekeeping(&self) {
        self.all.borrow_mut().retain(|number, asked| {
            let stays = asked.introspector.strong_count() > 0;
            if !stays {
                self.memory.borrow_mut().forget(*number);
            }
            stays
        });
    }
}

/// Removes a question from the questions in flight, however the question ends.
struct FlightGuard<'a> {
    all: &'a Introspections,
    mark: [u8; 32],
}

impl Drop for FlightGuard<'_> {
    fn drop(&mut self) {
        self.all.flights.borrow_mut().remove(&self.mark);
        self.all.in_flight.set(self.all.in_flight.get() - 1);
    }
}
