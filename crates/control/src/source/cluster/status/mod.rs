//! The status in the cluster: addresses and problems of Ingresses, the conditions of policies and of objects of Gateway
//! API, and Events.
//!
//! A board holds the current and the intended status of each object. Objects whose two states differ wait in a [`Queue`].
//! The holder of the Lease takes them one by one. It does not write a status that is already as intended, whichever process
//! wrote that status.
//!
//! Conditions say what is in service: the board holds them back until the data planes serve the configuration that they
//! are about.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch as state};
use tokio::time::sleep;

use super::conditions::{CurrentStatus, DesiredStatus};
use super::policy_status::DesiredPolicyStatus;
use super::standing::{CurrentIngressStatus, Standing};
use super::until;
use super::watch::in_words;
use crate::merge::policy::standing::Standing as Verdict;
use crate::object::{Kind, ObjectRef, annotation};
use crate::problem::{Problem, Severity};
use crate::status::ObjectStatus;

mod queue;

use queue::Queue;

/// The time between two writes, so that the status of a thousand routes is no burden on the API server.
const PACE: Duration = Duration::from_millis(10);

/// The first pause after a failed write.
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// The longest pause after failed writes.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// The maximum number of Events in the queue; beyond that, the oldest are dropped.
const EVENTS_MAX: usize = 1000;

/// The longest value of the annotation, in bytes.
const PROBLEMS_MAX: usize = 4096;

/// The time before an Event repeats the same message.
const EVENT_AGAIN: Duration = Duration::from_secs(600);

/// The longest name of the reporter of an Event, in bytes.
const INSTANCE_MAX: usize = 128;

/// The longest note of an Event (`events.k8s.io/v1`), in bytes.
const NOTE_MAX: usize = 1024;

/// The status to write, shared by the source, which computes the status, and the writer.
#[derive(Debug, Default)]
pub(super) struct StatusBoard {
    status_entries: Mutex<StatusEntries>,
    changed: Notify,
    /// The number of written statuses and annotations.
    writes: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct StatusEntries {
    ingresses: HashMap<ObjectRef, IngressStatusEntry>,
    conditions: HashMap<ObjectRef, ConditionsEntry>,
    /// The newest configuration that the data planes serve.
    served: u64,
    /// The addresses of the gateway, once they are known.
    addresses: Option<Vec<Box<str>>>,
    /// The objects whose status may differ from the intended status.
    queue: Queue,
    events: VecDeque<(ObjectRef, String)>,
    /// The problems of other objects that Events have reported, or that existed before.
    told: HashSet<(ObjectRef, String)>,
}

/// An object whose status consists of conditions.
#[derive(Debug, Default)]
struct ConditionsEntry {
    standing: CurrentStatus,
    /// The intended status, once it is known.
    wish: Option<DesiredStatus>,
    /// The intended status once the data planes serve this configuration.
    pending: Option<(u64, DesiredStatus)>,
    /// The last written status, if the API server stored another one: an older CustomResourceDefinition lacks some
    /// fields.
    stored_otherwise: Option<Value>,
}

/// An Ingress.
#[derive(Debug, Default)]
struct IngressStatusEntry {
    standing: CurrentIngressStatus,
    is_ours: bool,
    /// Whether to remove the annotation, since it was ours.
    was_ours: bool,
    problems: Option<Box<str>>,
}

/// A write that gives an object its intended status.
#[derive(Debug, PartialEq)]
enum Task {
    Ingress(IngressTask),
    /// The status of an object with conditions, based on this version of the object.
    Conditions {
        status: Value,
        version: Option<Box<str>>,
        api_version: &'static str,
    },
}

/// The write for an Ingress.
#[derive(Debug, Default, PartialEq, Eq)]
struct IngressTask {
    addresses: Option<Vec<Box<str>>>,
    problems: Option<Option<Box<str>>>,
}

impl StatusBoard {
    /// A board that counts its writes.
    pub(super) fn new(writes: Arc<AtomicU64>) -> Self {
        Self { writes, ..Self::default() }
    }

    /// Takes the current status of an object.
    pub(super) fn observe(&self, object: &ObjectRef, standing: Standing) {
        let mut status_entries = self.status_entries();
        status_entries.stands(object, standing);
        self.queue_up(&mut status_entries, object);
    }

    /// Removes an object that is gone.
    pub(super) fn forget(&self, object: &ObjectRef) {
        let mut status_entries = self.status_entries();
        status_entries.ingresses.remove(object);
        status_entries.conditions.remove(object);
        status_entries.queue.remove(object);
    }

    /// Takes the addresses of the gateway.
    pub(super) fn set_addresses(&self, mut addresses: Vec<Box<str>>) {
        addresses.sort();
        addresses.dedup();
        let mut status_entries = self.status_entries();
        if status_entries.addresses.as_ref() != Some(&addresses) {
            tracing::info!(
                addresses = addresses.join(", "),
                "the status of Ingresses and Gateways gets these addresses"
            );
            status_entries.addresses = Some(addresses);
            let is_addressed = |object: &&ObjectRef| matches!(object.kind, Kind::Gateway | Kind::ListenerSet);
            let gateways = status_entries.conditions.keys().filter(is_addressed);
            let all: Vec<ObjectRef> = status_entries.ingresses.keys().chain(gateways).cloned().collect();
            for object in all {
                self.queue_up(&mut status_entries, &object);
            }
        }
    }

    /// Takes our Ingresses, the problems, and the intended conditions.
    pub(super) fn want(
        &self,
        ours: &foldhash::HashSet<ObjectRef>,
        problems: &[Problem],
        conditions: DesiredConditions<'_>,
    ) {
        let mut of_ingresses: BTreeMap<&ObjectRef, Vec<String>> = BTreeMap::new();
        let mut of_others = HashSet::new();
        for problem in problems.iter().filter(|problem| problem.severity != Severity::Note) {
            let Some(object) = &problem.object else { continue };
            match object.kind {
                Kind::Ingress => of_ingresses.entry(object).or_default().push(problem.within()),
                _ => {
                    of_others.insert((object.clone(), problem.within()));
                }
            }
        }
        let mut status_entries = self.status_entries();
        let all: Vec<ObjectRef> = status_entries.ingresses.keys().cloned().collect();
        for object in all {
            let text =
                of_ingresses.get(&object).map(|problems| shortened(&problems.join("\n"), PROBLEMS_MAX));
            let Some(card) = status_entries.ingresses.get_mut(&object) else { continue };
            card.is_ours = ours.contains(&object);
            card.was_ours |= card.is_ours;
            card.problems = text.filter(|_| card.is_ours).map(Into::into);
            self.queue_up(&mut status_entries, &object);
        }
        self.set_desired_conditions(&mut status_entries, conditions);
        let new: Vec<_> = of_others.difference(&status_entries.told).cloned().collect();
        status_entries.told = of_others;
        for (object, message) in new {
            status_entries.tell(object, message);
        }
        self.changed.notify_one();
    }

    fn set_desired_conditions(&self, status_entries: &mut StatusEntries, wanted: DesiredConditions<'_>) {
        let mut of_policies: HashMap<&ObjectRef, Vec<Verdict>> = HashMap::new();
        for verdict in wanted.policies {
            of_policies.entry(&verdict.object).or_default().push(verdict.clone());
        }
        let of_objects: HashMap<&ObjectRef, &ObjectStatus> =
            wanted.objects.iter().map(|status| (&status.object, status)).collect();
        let served = status_entries.served;
        let mut changed = Vec::new();
        for (object, entry) in &mut status_entries.conditions {
            let new = match of_objects.get(object) {
                // Most statuses are as they were.
                Some(status) if entry.has_wish(status) => {
                    entry.pending = None;
                    continue;
                }
                Some(status) => DesiredStatus::Object(Box::new((*status).clone())),
                // Of its Gateway API objects, the gateway only knows the status of those that it serves.
                None if object.kind.is_of_gateway_api() => continue,
                None => {
                    let verdicts = of_policies.remove(object).unwrap_or_default();
                    DesiredStatus::Policy(DesiredPolicyStatus::new(verdicts, &entry.standing))
                }
            };
            if entry.want(new, wanted.configuration, served) {
                changed.push(object.clone());
            }
        }
        for object in changed {
            self.queue_up(status_entries, &object);
        }
    }

    /// Takes the newest configuration that the data planes serve.
    pub(super) fn set_served(&self, configuration: u64) {
        let mut status_entries = self.status_entries();
        status_entries.served = configuration;
        let entries = status_entries.conditions.iter_mut();
        let changed =
            entries.filter_map(|(object, entry)| entry.serve(configuration).then(|| object.clone()));
        for object in changed.collect::<Vec<_>>() {
            self.queue_up(&mut status_entries, &object);
        }
    }

    fn queue_up(&self, status_entries: &mut StatusEntries, object: &ObjectRef) {
        if status_entries.task(object).is_some() && status_entries.queue.insert(object) {
            self.changed.notify_one();
        }
    }

    fn status_entries(&self) -> MutexGuard<'_, StatusEntries> {
        self.status_entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The intended conditions.
#[derive(Clone, Copy, Debug)]
pub(super) struct DesiredConditions<'a> {
    /// Of policies and Consumers.
    pub(super) policies: &'a [Verdict],
    /// Of objects of Gateway API.
    pub(super) objects: &'a [ObjectStatus],
    /// The configuration that the conditions are about.
    pub(super) configuration: u64,
}

impl ConditionsEntry {
    /// Whether this is the intended status already.
    fn has_wish(&self, status: &ObjectStatus) -> bool {
        matches!(&self.wish, Some(DesiredStatus::Object(wish)) if **wish == *status)
    }

    /// Takes the intended status for a configuration. A status that already waits for an older configuration does not
    /// wait any longer. Returns whether the status to write may have changed.
    fn want(&mut self, new: DesiredStatus, configuration: u64, served: u64) -> bool {
        if self.wish.as_ref() == Some(&new) {
            self.pending = None;
        } else if self.pending.as_ref().is_none_or(|(_, pending)| *pending != new) {
            self.pending = Some((configuration, new));
        }
        self.serve(served)
    }

    /// Takes the newest configuration that the data planes serve. Returns whether the status to write may have changed.
    fn serve(&mut self, configuration: u64) -> bool {
        let served = self.pending.take_if(|(pending, _)| *pending <= configuration);
        let has_changed = served.is_some();
        if let Some((_, wish)) = served {
            self.wish = Some(wish);
        }
        has_changed
    }

    /// The status to write.
    fn task(&self, object: &ObjectRef, addresses: Option<&[Box<str>]>) -> Option<Value> {
        let status = self.standing.task(object, self.wish.as_ref()?, addresses)?;
        (self.stored_otherwise.as_ref() != Some(&status)).then_some(status)
    }
}

impl StatusEntries {
    /// Takes the current status of an object.
    fn stands(&mut self, object: &ObjectRef, standing: Standing) {
        match standing {
            Standing::Ingress(standing) => {
                self.ingresses.entry(object.clone()).or_default().standing = standing;
            }
            Standing::Conditions(standing) => {
                self.conditions.entry(object.clone()).or_default().standing = standing;
            }
        }
    }

    /// Takes the stored status after `sent` was written for a version, before the watch reports it; unless the watch has reported a newer version
    /// in the meantime.
    fn wrote(&mut self, object: &ObjectRef, upon: Option<&str>, sent: Option<&Value>, written: Standing) {
        match written {
            Standing::Ingress(written) => {
                if let Some(card) = self.ingresses.get_mut(object) {
                    card.standing = written;
                }
            }
            Standing::Conditions(written) => {
                if let Some(entry) = self.conditions.get_mut(object)
                    && entry.standing.version.as_deref() == upon
                {
                    entry.standing = written;
                    entry.stored_otherwise = None;
                    let again = entry.task(object, self.addresses.as_deref());
                    entry.stored_otherwise = again.filter(|again| Some(again) == sent);
                }
            }
        }
    }

    /// The write for an object.
    fn task(&self, object: &ObjectRef) -> Option<Task> {
        if let Some(entry) = self.conditions.get(object) {
            let status = entry.task(object, self.addresses.as_deref())?;
            let CurrentStatus { version, api_version, .. } = &entry.standing;
            return Some(Task::Conditions { status, version: version.clone(), api_version });
        }
        let card = self.ingresses.get(object)?;
        let mut task = IngressTask::default();
        if let Some(addresses) = self.addresses.as_ref().filter(|_| card.is_ours) {
            let mut standing = card.standing.addresses.clone();
            standing.sort();
            task.addresses = (standing != *addresses).then(|| addresses.clone());
        }
        if card.was_ours && card.standing.problems != card.problems {
            task.problems = Some(card.problems.clone());
        }
        (task != IngressTask::default()).then_some(Task::Ingress(task))
    }

    /// The uid by which Events name an object.
    fn uid(&self, object: &ObjectRef) -> Option<Box<str>> {
        let of_conditions = || self.conditions.get(object).map(|entry| &entry.standing.uid);
        self.ingresses.get(object).map(|card| &card.standing.uid).or_else(of_conditions)?.clone()
    }

    fn tell(&mut self, object: ObjectRef, message: String) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back((object, message));
    }
}

/// Writes the intended status of the board, while this process holds the Lease.
pub(super) async fn write(
    board: Arc<StatusBoard>,
    client: Client,
    identity: String,
    mut holds: state::Receiver<bool>,
) -> Infallible {
    let writer = Writer { board, client, identity, told: Mutex::default() };
    loop {
        until(&mut holds, true).await;
        tokio::select! {
            () = writer.run() => {}
            () = until(&mut holds, false) => {}
        }
    }
}

struct Writer {
    board: Arc<StatusBoard>,
    client: Client,
    identity: String,
    /// The messages of Events, each with its time. The recorder of kube would treat each further problem of an object
    /// as a repeat of the first.
    told: Mutex<HashMap<(ObjectRef, String), Instant>>,
}

impl Writer {
    async fn run(&self) {
        let (mut delay, mut has_told) = (RETRY_FIRST, None);
        loop {
            let changed = self.board.changed.notified();
            match self.next().await {
                Ok(true) => {
                    delay = RETRY_FIRST;
                    sleep(PACE).await;
                }
                Ok(false) => changed.await,
                Err(error) => {
                    let error = in_words(&error);
                    if has_told.as_ref() != Some(&error) {
                        tracing::warn!(error, "cannot write a status; trying again");
                        has_told = Some(error);
                    }
                    sleep(delay).await;
                    delay = (delay * 2).min(RETRY_MAX);
                }
            }
        }
    }

    /// Writes the next status; returns whether there was a write.
    async fn next(&self) -> kube::Result<bool> {
        let told = {
            let mut status_entries = self.board.status_entries();
            status_entries
                .events
                .pop_front()
                .map(|(object, message)| (status_entries.uid(&object), object, message))
        };
        if let Some((uid, object, message)) = told {
            self.event(&object, uid.as_deref(), &message).await;
            return Ok(true);
        }
        let next = {
            let mut status_entries = self.board.status_entries();
            let Some(object) = status_entries.queue.next() else { return Ok(false) };
            let uid = status_entries.uid(&object);
            status_entries.task(&object).map(|task| (object, uid, task))
        };
        let Some((object, uid, task)) = next else { return Ok(true) };
        let unwritten = Unwritten { board: &self.board, object: &object };
        let done = match &task {
            Task::Ingress(task) => self.write_ingress(&object, uid.as_deref(), task).await,
            Task::Conditions { status, version, api_version } => {
                self.write_conditions(&object, status, version.as_deref(), api_version).await
            }
        };
        match done {
            Ok(()) => {}
            // The object is gone or has changed in the meantime, which the watch reports too.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error),
        }
        std::mem::forget(unwritten);
        Ok(true)
    }

    async fn write_conditions(
        &self,
        object: &ObjectRef,
        status: &Value,
        version: Option<&str>,
        api_version: &'static str,
    ) -> kube::Result<()> {
        let (client, resource) = (self.client.clone(), object.kind.resource(api_version));
        let api: Api<DynamicObject> = match object.kind.is_cluster_scoped() {
            true => Api::all_with(client, &resource),
            false => Api::namespaced_with(client, &object.namespace, &resource),
        };
        let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
        let written = api.patch_status(&object.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        self.board.writes.fetch_add(1, Ordering::Relaxed);
        self.board.status_entries().wrote(
            object,
            version,
            Some(status),
            Standing::Conditions(CurrentStatus::of(&written, api_version)),
        );
        Ok(())
    }

    async fn write_ingress(
        &self,
        object: &ObjectRef,
        uid: Option<&str>,
        task: &IngressTask,
    ) -> kube::Result<()> {
        let ingresses: Api<Ingress> = Api::namespaced(self.client.clone(), &object.namespace);
        let params = PatchParams::default();
        if let Some(problems) = &task.problems {
            let patch = json!({"metadata": {"annotations": {annotation::PROBLEMS: problems}}});
            let written = ingresses.patch(&object.name, &params, &Patch::Merge(patch)).await?;
            self.written(object, &written);
            if let Some(problems) = problems {
                self.event(object, uid, problems).await;
            }
        }
        if let Some(addresses) = &task.addresses {
            let ingress: Vec<_> = addresses
                .iter()
                .map(|address| match address.parse::<std::net::IpAddr>() {
                    Ok(_) => json!({"ip": address}),
                    Err(_) => json!({"hostname": address}),
                })
                .collect();
            let patch = json!({"status": {"loadBalancer": {"ingress": ingress}}});
            let written = ingresses.patch_status(&object.name, &params, &Patch::Merge(patch)).await?;
            self.written(object, &written);
        }
        Ok(())
    }

    fn written(&self, object: &ObjectRef, ingress: &Ingress) {
        self.board.writes.fetch_add(1, Ordering::Relaxed);
        self.board.status_entries().wrote(
            object,
            None,
            None,
            Standing::Ingress(CurrentIngressStatus::of(ingress)),
        );
    }

    /// Reports a problem by an Event. Nothing depends on Events: an Event that cannot be written is dropped.
    async fn event(&self, object: &ObjectRef, uid: Option<&str>, message: &str) {
        if !self.is_new(object, message) {
            return;
        }
        let about = ObjectReference {
            api_version: Some(object.kind.api_versions()[0].to_owned()),
            kind: Some(object.kind.as_str().to_owned()),
            namespace: (!object.namespace.is_empty()).then(|| object.namespace.to_string()),
            name: Some(object.name.to_string()),
            uid: uid.map(ToOwned::to_owned),
            ..ObjectReference::default()
        };
        // Events about objects without a namespace belong to this namespace.
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let event = Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}-", object.name)),
                ..ObjectMeta::default()
            },
            type_: Some("Warning".to_owned()),
            reason: Some("NotAsWritten".to_owned()),
            action: Some("Translate".to_owned()),
            note: Some(shortened(message, NOTE_MAX)),
            regarding: Some(about),
            event_time: Some(MicroTime(Timestamp::now())),
            reporting_controller: Some("sluicegate.dev/ingress-controller".to_owned()),
            reporting_instance: Some(shortened(&self.identity, INSTANCE_MAX)),
            ..Event::default()
        };
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        if let Err(error) = events.create(&PostParams::default(), &event).await {
            tracing::debug!(%object, %error, "cannot write an Event");
        }
    }

    /// Whether no recent Event had this message. Records the message.
    fn is_new(&self, object: &ObjectRef, message: &str) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, since| since.elapsed() < EVENT_AGAIN);
        if told.len() >= EVENTS_MAX {
            return false;
        }
        told.insert((object.clone(), message.to_owned()), Instant::now()).is_none()
    }
}

/// An Ingress that returns to the queue when it is dropped: after an error, and when the Lease is lost in the meantime.
struct Unwritten<'a> {
    board: &'a StatusBoard,
    object: &'a ObjectRef,
}

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        let mut status_entries = self.board.status_entries();
        self.board.queue_up(&mut status_entries, self.object);
    }
}

/// At most this many bytes of a text.
pub(super) fn shortened(text: &str, most: usize) -> String {
    const MORE: &str = " ...";
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most - MORE.len()).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{MORE}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Origin;
    use crate::status::{Condition, Content};

    const NOTHING: DesiredConditions<'_> =
        DesiredConditions { policies: &[], objects: &[], configuration: 0 };

    fn ingress(name: &str) -> ObjectRef {
        ObjectRef { kind: Kind::Ingress, namespace: "default".into(), name: name.into() }
    }

    fn problem(object: &ObjectRef, message: &str) -> Problem {
        Problem {
            severity: Severity::Error,
            origin: Origin::CLUSTER,
            object: Some(object.clone()),
            field: "spec".into(),
            message: message.into(),
            cause: None,
        }
    }

    fn task(board: &StatusBoard, object: &ObjectRef) -> Option<IngressTask> {
        match board.status_entries().task(object)? {
            Task::Ingress(task) => Some(task),
            Task::Conditions { .. } => None,
        }
    }

    fn of_ingress(standing: CurrentIngressStatus) -> Standing {
        Standing::Ingress(standing)
    }

    #[test]
    fn status_is_written_only_if_it_differs_from_the_current_status() {
        let (board, a) = (StatusBoard::default(), ingress("a"));
        board.observe(&a, of_ingress(CurrentIngressStatus::default()));
        assert_eq!(task(&board, &a), None, "nobody knows yet whose it is");
        board.want(&[a.clone()].into_iter().collect(), &[problem(&a, "is odd")], NOTHING);
        board.set_addresses(vec!["192.0.2.2".into(), "192.0.2.1".into()]);
        let wanted = task(&board, &a).expect("it differs");
        assert_eq!(wanted.addresses, Some(vec!["192.0.2.1".into(), "192.0.2.2".into()]));
        assert_eq!(wanted.problems, Some(Some("spec: is odd".into())));
        let addresses = vec!["192.0.2.2".into(), "192.0.2.1".into()];
        let problems = Some("spec: is odd".into());
        board.observe(&a, of_ingress(CurrentIngressStatus { uid: None, addresses, problems }));
        assert_eq!(task(&board, &a), None, "the order does not matter");
        board.want(&[a.clone()].into_iter().collect(), &[], NOTHING);
        assert_eq!(task(&board, &a), Some(IngressTask { addresses: None, problems: Some(None) }));
    }

    #[test]
    fn gateway_does_not_change_the_status_of_ingresses_of_other_gateways() {
        let (board, theirs) = (StatusBoard::default(), ingress("theirs"));
        let problems = Some("of another gateway".into());
        board.observe(
            &theirs,
            of_ingress(CurrentIngressStatus { problems, ..CurrentIngressStatus::default() }),
        );
        board.set_addresses(vec!["192.0.2.1".into()]);
        board.want(&foldhash::HashSet::default(), &[problem(&theirs, "is odd")], NOTHING);
        assert_eq!(task(&board, &theirs), None);
    }

    #[test]
    fn gateway_removes_its_annotation_from_an_ingress_that_it_no_longer_serves() {
        let (board, a) = (StatusBoard::default(), ingress("a"));
        let problems = Some("spec: is odd".into());
        board.observe(&a, of_ingress(CurrentIngressStatus { problems, ..CurrentIngressStatus::default() }));
        board.want(&[a.clone()].into_iter().collect(), &[problem(&a, "is odd")], NOTHING);
        assert_eq!(task(&board, &a), None);
        board.want(&foldhash::HashSet::default(), &[], NOTHING);
        assert_eq!(task(&board, &a), Some(IngressTask { addresses: None, problems: Some(None) }));
    }

    #[test]
    fn failed_status_write_is_retried_after_other_queued_writes() {
        let board = StatusBoard::default();
        let all = ["a", "b", "c"].map(ingress);
        for object in &all {
            board.observe(object, of_ingress(CurrentIngressStatus::default()));
        }
        board.set_addresses(vec!["192.0.2.1".into()]);
        board.want(&all.iter().cloned().collect(), &[], NOTHING);
        let next = || board.status_entries().queue.next().expect("one waits");
        assert_eq!(next(), all[0]);
        drop(Unwritten { board: &board, object: &all[0] });
        assert_eq!([next(), next(), next()], [all[1].clone(), all[2].clone(), all[0].clone()]);
        assert_eq!(board.status_entries().queue.next(), None);
    }

    #[test]
    fn response_to_a_status_write_does_not_replace_a_newer_watch_event() {
        let board = StatusBoard::default();
        let a = ObjectRef { kind: Kind::SecurityPolicy, ..ingress("a") };
        let of = |version: &str| CurrentStatus { version: Some(version.into()), ..CurrentStatus::default() };
        let known =
            || board.status_entries().conditions.get(&a).and_then(|entry| entry.standing.version.clone());
        board.observe(&a, Standing::Conditions(of("1")));
        board.status_entries().wrote(&a, Some("1"), None, Standing::Conditions(of("2")));
        assert_eq!(known().as_deref(), Some("2"));
        // The owner of the object wrote between our write and the response.
        board.observe(&a, Standing::Conditions(of("4")));
        board.status_entries().wrote(&a, Some("2"), None, Standing::Conditions(of("3")));
        assert_eq!(known().as_deref(), Some("4"));
        board.forget(&a);
        board.status_entries().wrote(&a, Some("4"), None, Standing::Conditions(of("5")));
        assert_eq!(known(), None, "it is gone");
    }

    /// A GatewayClass of ours, with this reason of its condition.
    fn class(reason: &'static str) -> ObjectStatus {
        let object = ObjectRef { kind: Kind::GatewayClass, ..ingress("a") };
        let content = Content::GatewayClass {
            conditions: vec![Condition::met("Accepted", reason)],
            lacking: Vec::new(),
        };
        ObjectStatus { object, generation: Some(1), content }
    }

    fn want_class(board: &StatusBoard, reason: &'static str, configuration: u64) {
        let objects = [class(reason)];
        let conditions = DesiredConditions { policies: &[], objects: &objects, configuration };
        board.want(&foldhash::HashSet::default(), &[], conditions);
    }

    fn sent(board: &StatusBoard) -> Option<Value> {
        match board.status_entries().task(&class("").object)? {
            Task::Conditions { status, .. } => Some(status),
            Task::Ingress(_) => None,
        }
    }

    /// Stores a written status as the API server does, without the fields that the server does not know.
    fn store(board: &StatusBoard, sent: &Value, known: &[&str]) {
        let fields = sent.as_object().expect("an object").clone().into_iter();
        let status = Value::Object(fields.filter(|(field, _)| known.contains(&&**field)).collect());
        let stored = CurrentStatus { status: (&status).into(), ..CurrentStatus::default() };
        board.status_entries().wrote(&class("").object, None, Some(sent), Standing::Conditions(stored));
    }

    #[test]
    fn condition_is_written_once_the_data_planes_serve_its_configuration() {
        let board = StatusBoard::default();
        board.observe(&class("").object, Standing::Conditions(CurrentStatus::default()));
        want_class(&board, "One", 1);
        assert_eq!(sent(&board), None, "no data plane serves the configuration yet");
        board.set_served(1);
        assert_eq!(sent(&board).expect("it is served")["conditions"][0]["reason"], "One");
        // A status that waits does not wait longer, because further configurations do not change it.
        want_class(&board, "Two", 2);
        want_class(&board, "Two", 3);
        board.set_served(2);
        assert_eq!(sent(&board).expect("it is served")["conditions"][0]["reason"], "Two");
    }

    #[test]
    fn status_that_the_api_server_stores_otherwise_is_not_written_again() {
        let board = StatusBoard::default();
        board.observe(&class("").object, Standing::Conditions(CurrentStatus::default()));
        want_class(&board, "One", 0);
        let one = sent(&board).expect("nothing stands there");
        store(&board, &one, &["conditions"]);
        assert_eq!(sent(&board), None, "an older definition has no supportedFeatures");
        // The intended status may change between the write and its response.
        want_class(&board, "Two", 0);
        store(&board, &one, &["conditions"]);
        assert_eq!(sent(&board).expect("it differs")["conditions"][0]["reason"], "Two");
    }

    #[test]
    fn status_queue_contains_each_ingress_once_and_a_limited_number_of_events() {
        let board = StatusBoard::default();
        let a = ingress("a");
        board.observe(&a, of_ingress(CurrentIngressStatus::default()));
        board.set_addresses(vec!["192.0.2.1".into()]);
        for _ in 0..3 {
            board.want(&[a.clone()].into_iter().collect(), &[], NOTHING);
        }
        assert_eq!(board.status_entries().queue.len(), 1);
        let service = |n: usize| ObjectRef { kind: Kind::Service, ..ingress(&n.to_string()) };
        let problems: Vec<Problem> = (0..EVENTS_MAX + 5).map(|n| problem(&service(n), "is odd")).collect();
        board.want(&foldhash::HashSet::default(), &problems, NOTHING);
        assert_eq!(board.status_entries().events.len(), EVENTS_MAX);
        board.status_entries().events.clear();
        board.want(&foldhash::HashSet::default(), &problems, NOTHING);
        assert!(board.status_entries().events.is_empty(), "each problem has one Event");
    }

    #[test]
    fn long_status_text_is_truncated_at_a_character_boundary() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("aéééééé", 8), "aé ...");
    }
}
