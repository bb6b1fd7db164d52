//! One watch of one kind: from the API server's events to checked objects, until the watch is stopped.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use k8s_openapi::api::{core::v1 as core, discovery::v1 as discovery, networking::v1 as networking};
use kube::api::{DynamicObject, ObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::Serialize;
use tokio::sync::{mpsc, watch as state};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::conditions::CurrentStatus;
use super::standing::{CurrentIngressStatus, Standing};
use crate::audit::content;
use crate::manifest::ParsedObject;
use crate::object::kind::{Raw, Status};
use crate::object::{Kind, Object, ObjectRef};
use crate::problem::Findings;

/// The first pause before a failed watch is retried. The pause doubles. Each pause is shortened by up to a half at
/// random, so that not all gateways retry at the same time.
const RETRY_FIRST: Duration = Duration::from_millis(100);

/// The longest pause, so that a watch is in sync soon after the API server is back.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// The longest pause for a kind that the API server does not know, or does not let us read.
const RETRY_REFUSED: Duration = Duration::from_secs(10);

/// [`RETRY_REFUSED`] applies only after this many refusals in a row. An API server that starts on a busy machine may
/// need half a minute until it knows permissions, and a watch should be in sync soon after that too.
const REFUSALS_OF_A_START: u32 = 60;

/// This many refusals in a row are not reported: an API server that has just started does not know permissions yet, and
/// responds 429 for a moment while it follows a new CustomResourceDefinition.
const REFUSALS_BORNE: u32 = 4;

/// A watch without a failure for this long has recovered: there may be no news.
const RECOVERED_AFTER: Duration = Duration::from_secs(4);

/// The timeout of the next part of a list.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// After this many refusals in a row, the watch lists all objects anew.
const REFUSALS_MAX: u32 = 3;

/// The watched objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Selection {
    pub(super) kind: Kind,
    /// The namespace; `None` for all namespaces.
    pub(super) namespace: Option<Arc<str>>,
    pub(super) fields: Fields,
}

/// A selection of objects of a kind, by their fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fields {
    All,
    /// The objects of this `type`.
    Type(&'static str),
    /// The object of this name.
    Name(Arc<str>),
}

/// `objects of kind Secret and type kubernetes.io/tls in the namespace default`
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        match &self.fields {
            Fields::Name(name) => return write!(f, "{} {namespace}/{name}", self.kind),
            Fields::All => write!(f, "objects of kind {}", self.kind)?,
            Fields::Type(kind) => write!(f, "objects of kind {} and type {kind}", self.kind)?,
        }
        if namespace.is_empty() { Ok(()) } else { write!(f, " in the namespace {namespace}") }
    }
}

/// News of a watch.
pub(super) struct Heard {
    /// The watch.
    pub(super) watch: usize,
    pub(super) at: Instant,
    pub(super) news: News,
}

/// The news.
pub(super) enum News {
    /// A list of all objects follows: objects that are absent until [`Listed`](Self::Listed) are gone.
    Listing,
    /// The newest version of an object, and its current status if the gateway writes it.
    Object(Box<ParsedObject>, Option<Standing>),
    Gone(ObjectRef),
    Listed,
    /// The API server responds again.
    Recovered,
    /// The API server is unreachable, or rejects the request.
    Fault(Fault),
}

/// The reason for the failure of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// The API server knows no version of the kind (404).
    Unknown,
    /// We have no permission (401, 403).
    Forbidden,
    /// Any other error, which is temporary.
    Temporary,
}

/// A watch that failed.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) reason: Reason,
    pub(super) message: String,
}

impl Selection {
    /// Watches until the handle aborts the task, or the receiver is gone. `revived` tells all watches that one works again.
    /// `is_recorded` tells whether the objects have versions for the audit trail.
    pub(super) fn start(
        &self,
        client: &Client,
        watch: usize,
        sender: mpsc::Sender<Heard>,
        revived: state::Sender<()>,
        is_recorded: bool,
    ) -> AbortHandle {
        let config = match &self.fields {
            Fields::All => watcher::Config::default(),
            Fields::Type(kind) => watcher::Config::default().fields(&format!("type={kind}")),
            Fields::Name(name) => watcher::Config::default().fields(&format!("metadata.name={name}")),
        };
        let telling = WatchTask {
            kind: self.kind,
            version: self.kind.api_versions()[0],
            watch,
            sender,
            revived,
            is_away: false,
            delay: RETRY_FIRST,
            failed: Reason::Temporary,
            refusals: 0,
            place: 0,
            unknown: 0,
            is_recorded,
        };
        let task = match self.kind {
            Kind::Ingress => tokio::spawn(telling.run(self.api::<networking::Ingress>(client), config)),
            Kind::IngressClass => {
                tokio::spawn(telling.run(Api::<networking::IngressClass>::all(client.clone()), config))
            }
            Kind::Namespace => tokio::spawn(telling.run(Api::<core::Namespace>::all(client.clone()), config)),
            Kind::Service => tokio::spawn(telling.run(self.api::<core::Service>(client), config)),
            Kind::EndpointSlice => {
                tokio::spawn(telling.run(self.api::<discovery::EndpointSlice>(client), config))
            }
            Kind::Secret => tokio::spawn(telling.run(self.api::<core::Secret>(client), config)),
            Kind::ConfigMap => tokio::spawn(telling.run(self.api::<core::ConfigMap>(client), config)),
            // The kinds of CustomResourceDefinitions.
            _ => {
                let namespace = self.namespace.clone();
                tokio::spawn(telling.run_versions(client.clone(), namespace, config))
            }
        };
        task.abort_handle()
    }

    fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        }
    }
}

/// A watch that sends its news.
struct WatchTask {
    kind: Kind,
    /// The API group and version that is watched.
    version: &'static str,
    watch: usize,
    sender: mpsc::Sender<Heard>,
    /// Tells failed watches that another watch works again: then the API server is back.
    revived: state::Sender<()>,
    /// Whether the API server was unreachable at the last attempt.
    is_away: bool,
    delay: Duration,
    /// The reason for the last failure.
    failed: Reason,
    /// The number of refusals in a row by the API server.
    refusals: u32,
    /// The place of the version among the versions of the kind, which are tried in turn.
    place: usize,
    /// The number of versions in a row that the API server did not know. The kind is absent if the API server knows no
    /// version.
    unknown: usize,
    /// Whether the objects have versions for the audit trail.
    is_recorded: bool,
}

/// The step after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Resume from the last version.
    Resume,
    /// List all objects anew.
    Restart,
}

impl WatchTask {
    /// Watches for ever; ends when the receiver is gone.
    async fn run<K: Watched>(mut self, api: Api<K>, config: watcher::Config) {
        while self.follow(&api, &config).await.is_some() {}
    }

    /// Watches a kind of which the API server may know only an older version, or none.
    async fn run_versions(mut self, client: Client, namespace: Option<Arc<str>>, config: watcher::Config) {
        let versions = self.kind.api_versions();
        loop {
            // The version that the API server knew stays until the API server does not know it any more.
            self.version = versions[self.place % versions.len()];
            let resource = self.kind.resource(self.version);
            let api: Api<DynamicObject> = match &namespace {
                Some(namespace) if !self.kind.is_cluster_scoped() => {
                    Api::namespaced_with(client.clone(), namespace, &resource)
                }
                _ => Api::all_with(client.clone(), &resource),
            };
            if self.follow(&api, &config).await.is_none() {
                return;
            }
        }
    }

    /// Watches until all objects must be listed anew; `None` when the receiver is gone.
    async fn follow<K: Watched>(&mut self, api: &Api<K>, config: &watcher::Config) -> Option<()> {
        let mut events = std::pin::pin!(watcher::watcher(api.clone(), config.clone()));
        let (mut is_listing, mut has_failed) = (true, false);
        loop {
            let next = events.next();
            let event = match (is_listing, has_failed) {
                (true, _) => timeout(LIST_TIMEOUT, next).await.ok(),
                (false, true) => timeout(RECOVERED_AFTER, next).await.ok(),
                (false, false) => Some(next.await),
            };
            let at = Instant::now();
            let Some(event) = event else {
                if is_listing {
                    let message = format!("a list took longer than {} s", LIST_TIMEOUT.as_secs());
                    self.failed(Fault { reason: Reason::Temporary, message }, false).await?;
                    return Some(());
                }
                has_failed = false;
                self.sender.send(Heard { watch: self.watch, at, news: News::Recovered }).await.ok()?;
                continue;
            };
            let news = match event? {
                Ok(Event::Init) => {
                    is_listing = true;
                    News::Listing
                }
                Ok(Event::InitApply(object) | Event::Apply(object)) => match self.checked(object) {
                    Some((parsed, standing)) => News::Object(Box::new(parsed), standing),
                    None => continue,
                },
                Ok(Event::Delete(object)) => match self.name(object.meta()) {
                    Some(object) => News::Gone(object),
                    None => continue,
                },
                Ok(Event::InitDone) => {
                    is_listing = false;
                    News::Listed
                }
                Err(error) => match self.refused(&error).await? {
                    Next::Resume => {
                        has_failed = true;
                        continue;
                    }
                    Next::Restart => return Some(()),
                },
            };
            if !matches!(news, News::Listing) {
                has_failed = false;
                if std::mem::take(&mut self.is_away) {
                    self.revived.send_replace(());
                }
                self.delay = RETRY_FIRST;
                self.refusals = 0;
                self.unknown = 0;
            }
            self.sender.send(Heard { watch: self.watch, at, news }).await.ok()?;
        }
    }

    /// Reports an error, waits, and returns the next step.
    async fn refused(&mut self, error: &watcher::Error) -> Option<Next> {
        let status = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status))
            | watcher::Error::WatchFailed(kube::Error::Api(status))
            | watcher::Error::WatchError(status) => Some(status),
            _ => None,
        };
        let code = status.map(|status| status.code);
        // An old version of a known object has expired.
        if matches!(code, Some(410)) {
            return Some(Next::Restart);
        }
        if code == Some(404) {
            self.place += 1;
            self.unknown += 1;
            // The API server may know another version.
            if !self.unknown.is_multiple_of(self.kind.api_versions().len()) {
                return Some(Next::Restart);
            }
        }
        self.refusals = if status.is_some() { self.refusals + 1 } else { 0 };
        let next = next(code, self.refusals);
        let reason = match code {
            Some(404) => Reason::Unknown,
            Some(401 | 403) => Reason::Forbidden,
            _ => Reason::Temporary,
        };
        let message = status.map_or_else(|| root_cause(error), |status| status.message.clone());
        let is_borne = is_borne(code, self.refusals);
        self.failed(Fault { reason, message }, is_borne).await.map(|()| next)
    }

    /// Reports a failure, unless it `is_borne`, and waits.
    async fn failed(&mut self, fault: Fault, is_borne: bool) -> Option<()> {
        if std::mem::replace(&mut self.failed, fault.reason) != fault.reason {
            self.delay = RETRY_FIRST;
        }
        let delay = self.delay;
        self.delay = (delay * 2).min(longest_pause(fault.reason, self.refusals));
        self.is_away = fault.reason == Reason::Temporary;
        let mut revived = self.revived.subscribe();
        if !is_borne {
            let news = News::Fault(fault);
            self.sender.send(Heard { watch: self.watch, at: Instant::now(), news }).await.ok()?;
        }
        let pause = sleep(delay.mul_f64(1.0 - fastrand::f64() / 2.0));
        tokio::select! {
            () = pause => {}
            Ok(()) = revived.changed(), if self.is_away => {}
        }
        Some(())
    }

    fn name(&self, meta: &ObjectMeta) -> Option<ObjectRef> {
        let namespace = meta.namespace.as_deref().unwrap_or_default().into();
        Some(ObjectRef { kind: self.kind, namespace, name: meta.name.as_deref()?.into() })
    }

    /// Checks an object. Every object that the API server accepted has a name.
    fn checked<K: Watched>(&self, raw: K) -> Option<(ParsedObject, Option<Standing>)> {
        let object = self.name(raw.meta())?;
        let standing = raw.standing(self.kind, self.version);
        let is_recorded = self.is_recorded && self.kind.is_recorded();
        let written = is_recorded.then(|| serde_json::to_value(&raw).ok()).flatten();
        let version = written.map(|written| content::version(&object, &written).into());
        let mut findings = Findings::default();
        let form = raw.check(&object, &mut findings);
        Some((ParsedObject { object, part: "".into(), line: None, form, findings, version }, standing))
    }
}

/// The step after a response with this code, if there was one, and this many refusals in a row.
fn next(code: Option<u16>, refusals: u32) -> Next {
    match code {
        // After a silence, the API server may have another state: a restored backup, with lower versions than the last
        // known version. A watch from the known version would receive nothing until the versions have grown past it,
        // without an error.
        None => Next::Restart,
        Some(404 | 504) => Next::Restart,
        _ if refusals >= REFUSALS_MAX => Next::Restart,
        _ => Next::Resume,
    }
}

/// Whether a response with this code is not reported, after this many refusals in a row.
fn is_borne(code: Option<u16>, refusals: u32) -> bool {
    matches!(code, Some(401 | 403 | 429)) && refusals <= REFUSALS_BORNE
}

/// The longest pause before the next attempt, after this many refusals in a row.
fn longest_pause(reason: Reason, refusals: u32) -> Duration {
    match reason {
        Reason::Unknown | Reason::Forbidden if refusals > REFUSALS_OF_A_START => RETRY_REFUSED,
        Reason::Unknown | Reason::Forbidden | Reason::Temporary => RETRY_MAX,
    }
}

/// A failed request in words.
pub(super) fn in_words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => root_cause(other),
    }
}

/// The innermost cause of an error; the outer errors only say that a request failed.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// A kind as the API server sends it.
trait Watched:
    Raw + Serialize + Resource<DynamicType: Clone + Send> + Clone + fmt::Debug + Send + 'static
{
    /// The part of the object that the gateway writes.
    fn standing(&self, _: Kind, _: &'static str) -> Option<Standing> {
        None
    }
}

impl Watched for networking::Ingress {
    fn standing(&self, _: Kind, _: &'static str) -> Option<Standing> {
        Some(Standing::Ingress(CurrentIngressStatus::of(self)))
    }
}

impl Watched for networking::IngressClass {}
impl Watched for core::Namespace {}
impl Watched for core::Service {}
impl Watched for discovery::EndpointSlice {}
impl Watched for core::Secret {}
impl Watched for core::ConfigMap {}

/// The kinds of CustomResourceDefinitions: Gateway API's kinds, and our own.
impl Raw for DynamicObject {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        let value = serde_json::to_value(self).ok()?;
        (object.kind.row().read)(&value, object, findings)
    }
}

impl Watched for DynamicObject {
    fn standing(&self, kind: Kind, version: &'static str) -> Option<Standing> {
        let has_conditions = kind.row().status == Status::Conditions;
        has_conditions.then(|| Standing::Conditions(CurrentStatus::of(self, version)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_backs_off_after_repeated_refusals() {
        for reason in [Reason::Unknown, Reason::Forbidden] {
            assert_eq!(longest_pause(reason, 1), RETRY_MAX);
            assert_eq!(longest_pause(reason, REFUSALS_OF_A_START), RETRY_MAX);
            assert_eq!(longest_pause(reason, REFUSALS_OF_A_START + 1), RETRY_REFUSED);
        }
        assert_eq!(longest_pause(Reason::Temporary, 1000), RETRY_MAX);
    }

    #[tokio::test]
    async fn failed_watch_retries_at_once_when_another_watch_works_again() {
        let (sender, mut heard) = mpsc::channel(2);
        let revived = state::Sender::default();
        let mut watch = WatchTask {
            kind: Kind::Service,
            version: "v1",
            watch: 0,
            sender,
            revived: revived.clone(),
            is_away: false,
            delay: Duration::from_secs(3600),
            failed: Reason::Temporary,
            refusals: 0,
            place: 0,
            unknown: 0,
            is_recorded: false,
        };
        let fault = Fault { reason: Reason::Temporary, message: "connection refused".into() };
        let revive = async {
            assert!(heard.recv().await.is_some(), "the fault");
            revived.send_replace(());
        };
        tokio::join!(watch.failed(fault, false), revive);
    }

    #[test]
    fn refusals_that_pass_soon_are_not_reported() {
        for code in [401, 403, 429] {
            assert!(is_borne(Some(code), 1) && is_borne(Some(code), REFUSALS_BORNE), "{code}");
            assert!(!is_borne(Some(code), REFUSALS_BORNE + 1), "{code}");
        }
        assert!(!is_borne(Some(404), 1) && !is_borne(Some(500), 1) && !is_borne(None, 0));
    }

    #[test]
    fn watch_lists_all_objects_again_after_no_response_or_many_refusals() {
        assert_eq!(next(None, 0), Next::Restart);
        assert_eq!(next(Some(504), 1), Next::Restart);
        assert_eq!(next(Some(500), 1), Next::Resume);
        assert_eq!(next(Some(500), REFUSALS_MAX), Next::Restart);
    }
}
