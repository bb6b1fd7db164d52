//! The Kubernetes API as the source of all objects.
//!
//! A task of its own watches each kind ([`watch`]) and checks the objects. The task in this module puts the objects
//! into the store and publishes changes, in the order of their arrival. It publishes nothing before all kinds have been
//! listed once. While the API server is unreachable, known objects stay in service. When the API server is back, each
//! watch resumes or lists all objects anew; objects that are missing from the list are removed. Changes of routes wait until
//! all watches work ([`resumption`]); changes of endpoints do not.
//!
//! One watch covers all Secrets of types `kubernetes.io/tls` and `sluicegate.dev/credentials`. Named Secrets of other
//! types, and named ConfigMaps, have a watch each. An object that newly names them is served once they are known.
//!
//! | module | content |
//! |---|---|
//! | [`client`] | the client of the Kubernetes API |
//! | [`watch`] | one watch of one kind |
//! | [`resumption`] | the wait for the last watch after an outage |
//! | [`lease`] | the election of the process that writes into the cluster |
//! | [`status`], [`standing`] | the status of objects: intended and current |
//! | [`conditions`], [`policy_status`], [`gateway_status`] | conditions of policies, Consumers and objects of Gateway API |
//! | [`acme`] | the store of the certificates of an ACME server |
//! | [`acknowledged`] | the configuration that the data planes serve |
//! | [`gateway_services`] | the Services of Gateways |
//! | [`gateway_planes`] | the data planes of single Gateways |
//! | [`token`] | the review of the tokens of these data planes |
//! | [`addresses`] | the addresses at which clients reach the gateway |
//! | [`pods`] | the admin interfaces of pods through the API server |
//! | [`planes`] | the certificates by which the two planes authenticate each other |

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime};

use foldhash::{HashMap, HashSet};
use kube::Client;
use tokio::sync::{mpsc, watch as state};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep_until, timeout};

use super::output::{Output, Publish, Reports};
use super::resolve::Reach;
use crate::audit::{Recorder, Trail};
use crate::catalogue::Published;
use crate::frontend::gateway::service;
use crate::object::kind::{Absence, Status, Watch as Watched};
use crate::object::secret::CREDENTIALS_TYPE;
use crate::object::{Kind, ObjectRef};
use crate::problem::{Problem, Severity};
use crate::review::{Question, Reviews};
use crate::status::{Content, Fault, ObjectStatus, PENDING};
use crate::store::{Store, Touched};
use crate::translate::named::Named;
use crate::translate::{DataPlanes, ObjectName, TranslateOptions};

mod acknowledged;
pub mod acme;
pub mod addresses;
pub mod client;
mod conditions;
mod contact;
pub mod gateway_planes;
mod gateway_services;
mod gateway_status;
mod lease;
pub mod once;
pub mod planes;
pub mod pods;
mod policy_status;
mod resumption;
mod standing;
mod status;
#[cfg(test)]
mod tests;
pub mod token;
mod watch;

use acknowledged::Acknowledged;
use addresses::Addresses;
pub use contact::Contact;
use gateway_planes::Authorities;
use gateway_services::{ServiceFault, Wanted};
use lease::Elector;
use resumption::Resumption;
use status::{DesiredConditions, StatusBoard};
use watch::{Fault as WatchFault, Fields, Heard, News, Reason, Selection};

/// The maximum number of pieces of news in the queue; further pieces wait at the API server.
const QUEUE: usize = 1024;

/// After this many pieces of news, the changes are published.
const BATCH: usize = 4096;

/// Without news in this many rounds of the runtime, no more news is on its way. A piece of news passes a few tasks from the
/// socket to the follower, each in a round of its own.
const QUIET_ROUNDS: usize = 8;

/// The maximum number of Secrets and ConfigMaps with a watch each.
const SINGLE_WATCHES_MAX: usize = 500;

/// The longest time for the release of the Lease.
const RESIGNATION_MAX: Duration = Duration::from_secs(2);

/// The time after which all data planes are connected to the process that has received the Lease.
const GATHERING_MAX: Duration = Duration::from_secs(60);

/// The time after which a change of routes finds all named objects again. Until then, objects that are not named any more stay.
const NAMED_AGE_MAX: Duration = Duration::from_secs(60);

/// The longest wait of a change of routes for objects that it newly names.
const NAMED_WAIT_MAX: Duration = Duration::from_secs(2);

/// The status that the gateway writes into the cluster, and the writer.
#[derive(Clone, Debug)]
pub struct StatusOptions {
    /// The Lease whose holder writes.
    pub lease: ObjectName,
    /// The name of this process in the Lease: each process needs a different name.
    pub identity: String,
    /// The addresses that the gateway writes into Ingresses; `None` leaves their addresses alone.
    pub addresses: Option<Addresses>,
}

/// The link between a control plane and the data planes of single Gateways.
#[derive(Clone)]
pub struct OwnPlanesLink {
    /// The CA certificates by which the data planes verify the control plane.
    pub authorities: Authorities,
    /// The connected data planes by their scopes, and whether they serve their Gateway.
    pub serving: state::Receiver<BTreeMap<Arc<str>, bool>>,
}

/// Follows the Kubernetes API.
pub struct ClusterSource {
    client: Client,
    /// The namespaces; all, if it is empty.
    namespaces: Vec<Arc<str>>,
    options: TranslateOptions,
    status: Option<StatusOptions>,
    reports: Reports,
    leads: state::Sender<bool>,
    other_leads: state::Sender<bool>,
    /// The number of written statuses and annotations.
    status_writes: Arc<AtomicU64>,
    contact: state::Sender<Contact>,
    resigned: state::Sender<bool>,
    own_planes: Option<OwnPlanesLink>,
    questions: Option<mpsc::Receiver<Question>>,
    recorder: Option<Recorder>,
}

impl ClusterSource {
    /// A source that follows these namespaces, or all if the list is empty. It writes the status that `status` sets;
    /// with `None` it writes nothing.
    #[must_use]
    pub fn new(
        client: Client,
        namespaces: Vec<Arc<str>>,
        options: TranslateOptions,
        status: Option<StatusOptions>,
    ) -> Self {
        let (leads, resigned) = (state::Sender::new(false), state::Sender::new(false));
        Self {
            client,
            namespaces,
            options,
            status,
            reports: Reports::default(),
            leads,
            other_leads: state::Sender::new(false),
            status_writes: Arc::default(),
            contact: state::Sender::default(),
            resigned,
            own_planes: None,
            questions: None,
            recorder: None,
        }
    }

    /// Reviews of objects with the objects of the cluster, as long as the source [runs](Self::run).
    pub fn reviews(&mut self) -> Reviews {
        let (reviews, questions) = Reviews::new();
        self.questions = Some(questions);
        reviews
    }

    /// Hands over the versions of objects that the source applies.
    pub fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// Makes data planes for single Gateways, which use this link. Without the link, none are made.
    pub fn make_own_planes(&mut self, link: OwnPlanesLink) {
        self.own_planes = Some(link);
    }

    /// The client for requests to the API server.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whether this process holds the Lease, and therefore writes into the cluster.
    #[must_use]
    pub fn leads(&self) -> state::Receiver<bool> {
        self.leads.subscribe()
    }

    /// Whether another process holds the Lease.
    #[must_use]
    pub fn other_leads(&self) -> state::Receiver<bool> {
        self.other_leads.subscribe()
    }

    /// The number of statuses and annotations that this process has written, which grows.
    #[must_use]
    pub fn status_writes(&self) -> Arc<AtomicU64> {
        self.status_writes.clone()
    }

    /// The contact with the API server, and every change of it.
    #[must_use]
    pub fn contact(&self) -> state::Receiver<Contact> {
        self.contact.subscribe()
    }

    /// A future that ends all writing by this process and releases the Lease, so that the next holder need not wait for
    /// its expiry. The source still follows the objects.
    pub fn resignation(&self) -> impl Future<Output = ()> + Send + use<> {
        let (client, status, resigned) = (self.client.clone(), self.status.clone(), self.resigned.clone());
        async move {
            // A process without the Lease must not take it any more either.
            resigned.send_replace(true);
            let Some(status) = status else { return };
            let released = Elector::release(client, &status.lease, &status.identity);
            if let Ok(Err(error)) = timeout(RESIGNATION_MAX, released).await {
                tracing::debug!(%error, "cannot release the Lease; it expires by itself");
            }
        }
    }

    /// The current problems, and every change of them. The log names each problem once when it appears, and once when
    /// it is gone.
    #[must_use]
    pub fn problems(&self) -> state::Receiver<Arc<[Problem]>> {
        self.reports.problems.subscribe()
    }

    /// The objects that the source serves, and each later change of them. Call this before the source runs.
    #[must_use]
    pub fn catalogue(&self) -> state::Receiver<Arc<Published>> {
        self.reports.catalogue.subscribe()
    }

    /// Follows the cluster until the future is dropped. The first change is a complete configuration, as soon as all
    /// objects are known; until then `run` does not call `publish`, which must not block.
    pub async fn run(self, publish: impl Publish) -> Infallible {
        let mut resigned = self.resigned.subscribe();
        let board = self.status.as_ref().map(|_| Arc::new(StatusBoard::new(self.status_writes.clone())));
        let (lack, lacking) = state::channel(None);
        let (services, wanted) = state::channel(Arc::default());
        let (faults, service_faults) = state::channel(Vec::new());
        let (of_planes, plane_faults) = state::channel(Vec::new());
        let link = self.own_planes;
        let authorities = link.as_ref().map(|link| link.authorities.clone());
        let namespaces = self.namespaces.clone();
        let holds = self.leads.subscribe();
        let leads = holds.clone();
        let writing = self.status.zip(board.clone()).map(|(status, board)| {
            let (client, options) = (self.client.clone(), self.options.clone());
            let services = async move {
                let of_services =
                    gateway_services::write(client.clone(), &options, wanted.clone(), faults, holds.clone());
                let of_planes = gateway_planes::write(
                    client,
                    &options,
                    &namespaces,
                    authorities,
                    wanted,
                    of_planes,
                    holds,
                );
                tokio::select! {
                    never = of_services => never,
                    never = of_planes => never,
                }
            };
            let writing = write(self.client.clone(), status, board, (self.leads, self.other_leads), lack);
            async move {
                tokio::select! {
                    never = writing => never,
                    never = services => never,
                    () = until(&mut resigned, true) => pending().await,
                }
            }
        });
        let (sender, heard) = mpsc::channel(QUEUE);
        let mut follower = Follower {
            output: Output::new(self.options.clone(), self.reports, publish, Reach::BeyondTheNode),
            client: self.client,
            options: self.options,
            namespaces: self.namespaces,
            sender,
            heard,
            store: if self.recorder.is_some() { Store::recording() } else { Store::default() },
            trail: self.recorder.map(Trail::new),
            watches: BTreeMap::new(),
            next_watch: 0,
            named: Named::default(),
            named_at: None,
            unwatched: Vec::new(),
            touched: Touched::default(),
            held: Touched::default(),
            since: Instant::now(),
            waits_until: None,
            resumption: Resumption::default(),
            revived: state::Sender::default(),
            away: None,
            contact: self.contact,
            lacking,
            services,
            service_faults,
            plane_faults,
            leads,
            is_gathering: true,
            gathers_until: None,
            serving: link.map(|link| link.serving),
            board,
            acknowledged: Acknowledged::default(),
            questions: self.questions,
        };
        follower.watch_kinds();
        match writing {
            Some(writing) => tokio::select! {
                never = follower.run() => never,
                never = writing => never,
            },
            None => follower.run().await,
        }
    }
}

/// Takes part in the election, and writes while this process is elected.
async fn write(
    client: Client,
    status: StatusOptions,
    board: Arc<StatusBoard>,
    (leads, other_leads): (state::Sender<bool>, state::Sender<bool>),
    lack: state::Sender<Option<Problem>>,
) -> Infallible {
    let elector = Elector::new(client.clone(), &status.lease, status.identity.clone());
    let mut elected = leads.subscribe();
    let writing = status::write(board.clone(), client.clone(), status.identity, leads.subscribe());
    let addresses = async {
        let Some(from) = &status.addresses else { return pending().await };
        loop {
            until(&mut elected, true).await;
            let following = async {
                addresses::follow(client.clone(), from, &board, &lack).await;
                pending::<()>().await;
            };
            tokio::select! {
                () = following => {}
                () = until(&mut elected, false) => {}
            }
            // The next elected process finds the problem for itself.
            lack.send_replace(None);
        }
    };
    tokio::join!(elector.run(&leads, &other_leads), writing, addresses).0
}

/// Waits until the state is `wanted`; for ever, if the sender is gone.
async fn until(state: &mut state::Receiver<bool>, wanted: bool) {
    if state.wait_for(|state| *state == wanted).await.is_err() {
        pending::<()>().await;
    }
}

/// A cluster that the gateway follows.
struct Follower<P> {
    client: Client,
    options: TranslateOptions,
    namespaces: Vec<Arc<str>>,
    sender: mpsc::Sender<Heard>,
    heard: mpsc::Receiver<Heard>,
    store: Store,
    watches: BTreeMap<usize, Watch>,
    next_watch: usize,
    named: Named,
    /// The time at which all named objects were found.
    named_at: Option<Instant>,
    /// Named objects without a watch, since there are too many of their kind.
    unwatched: Vec<ObjectRef>,
    /// The changes that are not published yet.
    touched: Touched,
    /// The changes that wait for named objects.
    held: Touched,
    /// The time of the first unpublished change.
    since: Instant,
    /// The end of the wait of a change of routes, for named objects or for the last watch after an outage.
    waits_until: Option<Instant>,
    resumption: Resumption,
    /// Tells failed watches that another watch works again.
    revived: state::Sender<()>,
    /// The first error of the unreachable API server, until every watch works again.
    away: Option<String>,
    contact: state::Sender<Contact>,
    /// The reason why there are no addresses to write.
    lacking: state::Receiver<Option<Problem>>,
    /// The intended Services of Gateways.
    services: state::Sender<Arc<Wanted>>,
    /// The problems with the Services of Gateways.
    service_faults: state::Receiver<Vec<ServiceFault>>,
    /// The problems with the data planes of single Gateways.
    plane_faults: state::Receiver<Vec<ServiceFault>>,
    /// Whether this process holds the Lease.
    leads: state::Receiver<bool>,
    /// Whether data planes count that are not connected to this process, if their pods are ready.
    is_gathering: bool,
    /// The end of this, after this process has received the Lease.
    gathers_until: Option<Instant>,
    /// The data planes of single Gateways that are connected.
    serving: Option<state::Receiver<BTreeMap<Arc<str>, bool>>>,
    /// The status to write, if the gateway writes status.
    board: Option<Arc<StatusBoard>>,
    acknowledged: Acknowledged,
    /// The objects to review, if the gateway reviews objects.
    questions: Option<mpsc::Receiver<Question>>,
    /// The audit trail, if there is one.
    trail: Option<Trail>,
    output: Output<P>,
}

/// A watch in progress.
struct Watch {
    selection: Selection,
    task: AbortHandle,
    /// Whether all its objects are known, or cannot be known.
    is_settled: bool,
    /// Whether a list is in progress.
    is_listing: bool,
    /// The objects that the watch has reported.
    objects: HashSet<ObjectRef>,
    /// The objects that a list in progress has not named yet.
    unlisted: HashSet<ObjectRef>,
    fault: Option<WatchFault>,
}

impl Watch {
    /// Whether the watch may not know the present objects.
    fn is_behind(&self) -> bool {
        self.is_listing || self.fault.as_ref().is_some_and(|fault| fault.reason == Reason::Temporary)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<P: Publish> Follower<P> {
    async fn run(mut self) -> Infallible {
        loop {
            tokio::select! {
                biased;
                Some(heard) = self.heard.recv() => {
                    self.since = heard.at;
                    for heard in with_backlog(heard, &mut self.heard).await {
                        self.take(heard);
                    }
                }
                news = self.output.news() => {
                    self.output.take(news, &self.store);
                    self.report();
                }
                Some(question) = next(&mut self.questions) => self.answer(question),
                Ok(()) = self.lacking.changed() => self.touched.problems = true,
                configuration = self.acknowledged.next() => {
                    if let Some(board) = &self.board {
                        board.set_served(configuration);
                    }
                }
                Ok(()) = self.service_faults.changed() => self.touched.problems = true,
                Ok(()) = self.plane_faults.changed() => self.touched.problems = true,
                Some(Ok(())) = changed(&mut self.serving) => self.touched.problems = true,
                Ok(()) = self.leads.changed() => {
                    let leads = *self.leads.borrow_and_update();
                    self.gathers_until = leads.then(|| Instant::now() + GATHERING_MAX);
                    self.is_gathering = true;
                    self.touched.problems = true;
                }
                () = sleep_until(self.gathers_until.unwrap_or_else(Instant::now).into()), if self.gathers_until.is_some() => {
                    self.gathers_until = None;
                    self.is_gathering = false;
                    self.touched.problems = true;
                }
                () = sleep_until(self.waits_until.unwrap_or_else(Instant::now).into()), if self.waits_until.is_some() => {}
            }
            self.settle().await;
            // Endless news must not delay a review.
            if let Some(question) = self.questions.as_mut().and_then(|questions| questions.try_recv().ok()) {
                self.answer(question);
            }
        }
    }

    /// Reviews an object.
    fn answer(&self, question: Question) {
        question.answer(&self.store, &self.options, self.output.is_serving());
    }

    /// Watches all kinds of objects.
    fn watch_kinds(&mut self) {
        let every = match &*self.namespaces {
            [] => vec![None],
            namespaces => namespaces.iter().cloned().map(Some).collect(),
        };
        let (of_cluster, of_namespaces): (Vec<Kind>, Vec<Kind>) =
            Kind::all().partition(|kind| kind.is_cluster_scoped());
        for kind in of_cluster {
            self.watch_kind(kind, None);
        }
        let services = self.options.gateway_services.as_ref().map(|services| services.namespace.clone());
        // The Services of Gateways are in the namespace of the gateway, which may not be among these namespaces.
        if let Some(services) = services.filter(|_| !every.contains(&None))
            && !every.contains(&Some(services.clone()))
        {
            self.watch_kind(Kind::Service, Some(&services));
        }
        for namespace in every {
            for &kind in &of_namespaces {
                self.watch_kind(kind, namespace.as_ref());
            }
        }
    }

    fn watch_kind(&mut self, kind: Kind, namespace: Option<&Arc<str>>) {
        let selections = match kind.row().watch {
            Watched::All => vec![Fields::All],
            Watched::Types(types) => types.iter().copied().map(Fields::Type).collect(),
        };
        for fields in selections {
            self.watch(Selection { kind, namespace: namespace.cloned(), fields });
        }
    }

    fn watch(&mut self, selection: Selection) {
        let number = self.next_watch;
        self.next_watch += 1;
        let task = selection.start(
            &self.client,
            number,
            self.sender.clone(),
            self.revived.clone(),
            self.store.is_recording(),
        );
        let watch = Watch {
            selection,
            task,
            is_settled: false,
            is_listing: true,
            objects: HashSet::default(),
            unlisted: HashSet::default(),
            fault: None,
        };
        self.watches.insert(number, watch);
    }

    /// Takes the news of a watch.
    fn take(&mut self, Heard { watch: number, news, .. }: Heard) {
        // An ended watch may have left news in the queue.
        let Some(watch) = self.watches.get_mut(&number) else { return };
        if let News::Fault(fault) = news {
            watch.is_settled |= watch.selection.can_do_without(fault.reason);
            if fault.reason == Reason::Unknown {
                self.touched.merge(self.store.set_lacks(watch.selection.kind, true));
            }
            watch.is_listing = false;
            if watch.fault.is_none() {
                self.resumption.failed(Instant::now());
            }
            // The first error for a reason shows how the failure began.
            if watch.fault.as_ref().is_none_or(|before| before.reason != fault.reason) {
                self.touched.problems = true;
                watch.fault = Some(fault);
            }
            return;
        }
        if !matches!(news, News::Listing)
            && let Some(fault) = watch.fault.take()
        {
            self.touched.problems = true;
            if fault.reason == Reason::Temporary {
                self.resumption.resumed(Instant::now());
            }
        }
        match news {
            News::Listing => {
                watch.is_listing = true;
                watch.unlisted.clone_from(&watch.objects);
            }
            News::Object(parsed, standing) => {
                if let (Some(board), Some(standing)) = (&self.board, standing) {
                    board.observe(&parsed.object, standing);
                }
                watch.unlisted.remove(&parsed.object);
                watch.objects.insert(parsed.object.clone());
                self.touched.merge(self.store.set_object(&parsed));
            }
            News::Gone(object) => self.remove(number, &object),
            News::Listed => {
                (watch.is_settled, watch.is_listing) = (true, false);
                self.touched.merge(self.store.set_lacks(watch.selection.kind, false));
                for object in std::mem::take(&mut watch.unlisted) {
                    self.remove(number, &object);
                }
            }
            News::Fault(_) | News::Recovered => {}
        }
    }

    /// Removes an object that a watch reports as gone.
    fn remove(&mut self, number: usize, object: &ObjectRef) {
        let Some(watch) = self.watches.get_mut(&number) else { return };
        watch.objects.remove(object);
        watch.unlisted.remove(object);
        self.forget(object, true);
    }

    /// Removes an object that a watch no longer reports, unless another watch does. `is_gone` tells whether the object does not exist
    /// any more.
    fn forget(&mut self, object: &ObjectRef, is_gone: bool) {
        if !self.watches.values().any(|watch| watch.objects.contains(object)) {
            self.touched.merge(match is_gone {
                true => self.store.remove_object(object),
                false => self.store.forget_object(object),
            });
            if let Some(board) = &self.board {
                board.forget(object);
            }
        }
    }

    /// Publishes the changes.
    async fn settle(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        if touched == Touched::default() && self.output.is_serving() && self.waits_until.is_none() {
            // Such as a change of a label.
            self.record(false);
            return;
        }
        touched.merge(std::mem::take(&mut self.held));
        let is_routing = self.output.is_routing(&touched) || self.waits_until.is_some();
        // The last of the first lists may be empty, or may have failed; both touch nothing.
        if is_routing || !self.output.is_serving() {
            self.find_named(&touched);
        }
        let now = Instant::now();
        let is_complete = !self.watches.values().any(Watch::is_behind);
        let resumed = self.resumption.waits(is_complete, now);
        let is_settled = self.is_settled();
        if !self.output.is_serving() && !is_settled {
            // Not before everything has been listed once. Endpoints are in the store already.
            self.report();
            return;
        }
        let mut applies = is_routing;
        if is_routing {
            // The first configuration does not wait.
            let resumed = resumed.filter(|_| self.output.is_serving());
            let wait = resumed.or_else(|| (!is_settled).then(|| now + NAMED_WAIT_MAX));
            self.waits_until = wait.map(|end| self.waits_until.map_or(end, |until| until.min(end)));
            self.waits_until.take_if(|until| *until <= now);
            applies = self.waits_until.is_none();
            if !applies {
                self.held = touched.take_routing();
                // Services of own data planes.
                self.held.routing |= !self.held.has_routing();
            }
        }
        if self.output.apply(&self.store, &touched, self.since).await {
            self.report();
        }
        self.record(applies);
        if let Some(served) = self.output.take_served() {
            self.acknowledged.follow(self.output.configuration(), served);
        }
    }

    /// Hands the applied changes over to the audit trail. `may_differ` tells whether the gateway may use other objects now.
    fn record(&mut self, may_differ: bool) {
        let Some(trail) = &mut self.trail else { return };
        // Objects of other implementations of Gateway API have no status of ours.
        let ours: HashSet<&ObjectRef> = match may_differ || self.store.has_changed() {
            true => self.output.statuses().iter().filter(|of| of.is_ours()).map(|of| &of.object).collect(),
            false => HashSet::default(),
        };
        let has_status = |kind: Kind| kind.is_of_gateway_api() && kind.row().status == Status::Conditions;
        let is_used = |object: &ObjectRef| match has_status(object.kind) {
            true => ours.contains(object),
            false => self.named.concerns(object),
        };
        trail.follow(&mut self.store, is_used, may_differ);
    }

    /// Whether all available objects are known.
    fn is_settled(&self) -> bool {
        self.watches.values().all(|watch| watch.is_settled)
    }

    /// Finds the named objects, and watches named objects that no other watch covers.
    fn find_named(&mut self, touched: &Touched) {
        let is_recent = self.named_at.is_some_and(|at| at.elapsed() < NAMED_AGE_MAX);
        match self.output.needs_more_than_scopes(touched) || !is_recent {
            true => {
                self.named = Named::find(&self.store, &self.options);
                self.named_at = Some(Instant::now());
            }
            false => self.named.follow(&self.store, &self.options, touched.ingresses.keys()),
        }
        let named = &self.named;
        let singly: BTreeSet<ObjectRef> =
            self.watches.values().filter_map(|watch| watch.selection.object()).collect();
        // Before the end of all lists, their missing objects are unknown.
        let is_listed =
            self.watches.values().all(|watch| watch.is_settled || watch.selection.object().is_some());
        let (held, mut wanted): (Vec<_>, Vec<_>) =
            named.others.iter().cloned().partition(|object| singly.contains(object));
        wanted.retain(|object| is_listed && !self.store.knows(object));
        let followed: BTreeSet<ObjectRef>;
        (followed, self.unwatched) = share(held.into_iter().chain(wanted), SINGLE_WATCHES_MAX);
        let is_over =
            |watch: &mut Watch| watch.selection.object().is_some_and(|object| !followed.contains(&object));
        let ended: Vec<Watch> =
            self.watches.extract_if(.., |_, watch| is_over(watch)).map(|(_, watch)| watch).collect();
        // An object without a watch is unknown: a new reference to it starts a new watch.
        for object in ended.iter().flat_map(|watch| &watch.objects) {
            self.forget(object, false);
        }
        for ObjectRef { kind, namespace, name } in
            followed.into_iter().filter(|object| !singly.contains(object))
        {
            self.watch(Selection { kind, namespace: Some(namespace), fields: Fields::Name(name) });
        }
    }

    /// Reports problems of the objects that concern us, and of the watches.
    fn report(&mut self) {
        // All watches fail one after another, each in its own way, which is one problem.
        let away = |watch: &Watch| {
            let fault = watch.fault.as_ref().filter(|fault| fault.reason == Reason::Temporary)?;
            Some(format!("{}: {}", watch.selection, fault.message))
        };
        let mut away = self.watches.values().filter_map(away);
        self.away = away.next().map(|first| self.away.take().unwrap_or(first));
        self.note_contact();
        let of_objects = self.store.problems().filter(|problem| match &problem.object {
            Some(object) => self.named.concerns(object),
            None => true,
        });
        let mut faults: BTreeMap<(&str, Reason), Vec<&Selection>> = BTreeMap::new();
        for watch in self.watches.values() {
            match &watch.fault {
                // The CRDs of Gateway API need not be installed, and our own CRDs neither.
                Some(fault) if fault.reason == Reason::Unknown && watch.is_settled => {}
                Some(fault) if fault.reason == Reason::Temporary => {}
                // The right to Secrets of one type includes Secrets of other types, and its lack has been reported.
                Some(fault) if fault.reason == Reason::Forbidden && watch.selection.is_of_credentials() => {}
                Some(fault) => {
                    faults.entry((&fault.message, fault.reason)).or_default().push(&watch.selection);
                }
                None => {}
            }
        }
        let of_watches = faults.into_iter().map(|((message, reason), of)| {
            let of: Vec<String> = of.iter().map(ToString::to_string).collect();
            problem(&format!("{}: {message}", of.join(", ")), reason)
        });
        let of_watches = of_watches.chain(self.away.iter().map(|first| problem(first, Reason::Temporary)));
        let of_watches = of_watches.chain(too_many(&self.unwatched));
        let of_addresses = self.lacking.borrow().clone();
        let mut service_faults = self.service_faults.borrow().clone();
        service_faults.extend(self.plane_faults.borrow().iter().cloned());
        let of_services = service_faults.iter().map(|fault| fault.problem.clone());
        let of_cluster = of_addresses.into_iter().chain(of_services);
        self.output.report(&self.store, of_objects.chain(of_watches).chain(of_cluster));
        self.want_services();
        service_faults.extend(self.unserved(&service_faults));
        if let Some(board) = self.board.as_ref().filter(|_| self.output.is_serving()) {
            let conditions = DesiredConditions {
                policies: self.output.policy_statuses(),
                objects: &with_service_faults(self.output.statuses(), &service_faults),
                configuration: self.output.configuration(),
            };
            board.want(&self.named.ingresses, &self.output.problems(), conditions);
        }
    }

    fn note_contact(&self) {
        let is_connected = self.away.is_none() && self.is_settled();
        let mut of_endpoints =
            self.watches.values().filter(|watch| watch.selection.kind == Kind::EndpointSlice);
        let has_endpoints = of_endpoints.all(|watch| watch.is_settled && watch.fault.is_none());
        self.contact
            .send_modify(|contact| *contact = contact.next(is_connected, has_endpoints, SystemTime::now()));
    }

    /// The Gateways that wait for their own data planes, without those for which there are other reasons (`known`).
    fn unserved(&self, known: &[ServiceFault]) -> Vec<ServiceFault> {
        let served = self.serving.as_ref().map(|served| served.borrow().clone()).unwrap_or_default();
        let wanted = self.services.borrow();
        // After a change of the Lease, the data planes gather here within some time. Their pods are ready once they serve.
        let serves = |gateway: &ObjectRef| match served.get(&service::scope(gateway)) {
            Some(serves) => *serves,
            None => {
                self.is_gathering && service::has_ready_endpoint(&self.store, &service::own_service(gateway))
            }
        };
        let own = wanted.wishes.iter().filter(|wish| wish.placement.planes == DataPlanes::Own);
        let unserved = own.map(|wish| &wish.gateway).filter(|gateway| {
            let has_reason = known
                .iter()
                .any(|fault| fault.unprogrammed.is_some() && fault.problem.object.as_ref() == Some(*gateway));
            !has_reason && !serves(gateway)
        });
        let fault = |gateway: &ObjectRef| {
            let message = "no data plane of the Gateway is connected and up to date".to_owned();
            ServiceFault {
                problem: Problem::of_cluster(Severity::Note, Some(gateway), message.clone()),
                unprogrammed: Some(Fault::new(PENDING, message)),
            }
        };
        unserved.map(fault).collect()
    }

    /// Passes on the intended Services of Gateways.
    fn want_services(&self) {
        let Some(services) = self.options.gateway_services.as_ref().filter(|_| self.output.is_serving())
        else {
            return;
        };
        // An API server that starts may not know the kinds yet, or may reject requests: then all Gateways seem to be gone.
        let is_known = |watch: &Watch| watch.is_settled && watch.fault.is_none();
        let is_complete = self.watches.values().all(|watch| match watch.selection.kind {
            Kind::Gateway | Kind::GatewayClass => is_known(watch),
            // A cluster may lack the kind for good, or the gateway may lack the right. Gateways may select namespaces of sets by
            // labels.
            Kind::ListenerSet | Kind::Namespace => match &watch.fault {
                Some(fault) => watch.selection.can_do_without(fault.reason),
                None => watch.is_settled,
            },
            _ => true,
        });
        let wanted = Wanted::new(&self.store, &self.options, services, is_complete);
        self.services.send_if_modified(|known| {
            let is_new = **known != wanted;
            *known = Arc::new(wanted);
            is_new
        });
    }
}

impl Selection {
    /// The object, if the watch covers a single object.
    fn object(&self) -> Option<ObjectRef> {
        let Fields::Name(name) = &self.fields else { return None };
        let namespace = self.namespace.clone().unwrap_or_default();
        Some(ObjectRef { kind: self.kind, namespace, name: name.clone() })
    }

    fn is_of_credentials(&self) -> bool {
        matches!(self.fields, Fields::Type(CREDENTIALS_TYPE))
    }

    /// Whether the gateway can serve without these objects, if they are unavailable for this reason.
    fn can_do_without(&self, reason: Reason) -> bool {
        let is_needed = match self.kind.row().absence {
            Absence::Waits => true,
            Absence::WaitsIfForbidden => reason == Reason::Forbidden,
            Absence::Serves => false,
        };
        reason != Reason::Temporary && !is_needed
    }
}

/// `first`, with all news that has reached this process. During a translation, news waits in sockets, and arrives in the queue
/// piece by piece. Without these rounds, each piece would cause a translation of all routes.
async fn with_backlog<T>(first: T, queue: &mut mpsc::Receiver<T>) -> Vec<T> {
    let (mut news, mut quiet) = (vec![first], 0);
    while news.len() < BATCH && quiet < QUIET_ROUNDS {
        if let Ok(next) = queue.try_recv() {
            news.push(next);
            quiet = 0;
        } else {
            yield_now().await;
            quiet += 1;
        }
    }
    news
}

/// The objects within `room`, and the objects beyond it. A namespace may use the room that other namespaces leave free,
/// but no namespace takes room that others need. Earlier objects have precedence over later objects of their namespace.
fn share(objects: impl Iterator<Item = ObjectRef>, room: usize) -> (BTreeSet<ObjectRef>, Vec<ObjectRef>) {
    let mut counts: HashMap<Arc<str>, usize> = HashMap::default();
    let mut ranked: Vec<(usize, ObjectRef)> = objects
        .map(|object| {
            let count = counts.entry(object.namespace.clone()).or_default();
            *count += 1;
            (*count, object)
        })
        .collect();
    ranked.sort();
    let others = ranked.split_off(room.min(ranked.len()));
    let objects = |ranked: Vec<(usize, ObjectRef)>| ranked.into_iter().map(|(_, object)| object);
    (objects(ranked).collect(), objects(others).collect())
}

/// The statuses, with the reasons of Gateways whose Services cannot be as intended.
fn with_service_faults<'s>(statuses: &'s [ObjectStatus], faults: &[ServiceFault]) -> Cow<'s, [ObjectStatus]> {
    let mut statuses = Cow::Borrowed(statuses);
    for ServiceFault { problem, unprogrammed } in faults {
        let (Some(fault), Some(gateway)) = (unprogrammed, &problem.object) else { continue };
        if !statuses.iter().any(|status| status.object == *gateway) {
            continue;
        }
        for status in statuses.to_mut() {
            match &status.content {
                Content::Gateway(_) if status.object == *gateway => status.set_unprogrammed(fault),
                Content::ListenerSet(set) if set.gateway == *gateway => status.set_parent_unprogrammed(fault),
                _ => {}
            }
        }
    }
    statuses
}

/// Waits for a change of a state; for ever without a state.
async fn changed<T>(state: &mut Option<state::Receiver<T>>) -> Option<Result<(), state::error::RecvError>> {
    match state {
        Some(state) => Some(state.changed().await),
        None => pending().await,
    }
}

/// Waits for an object to review; for ever without reviews.
async fn next(questions: &mut Option<mpsc::Receiver<Question>>) -> Option<Question> {
    match questions {
        Some(questions) => questions.recv().await,
        None => pending().await,
    }
}

/// The problem with objects that are not watched.
fn too_many(unwatched: &[ObjectRef]) -> Option<Problem> {
    let first = unwatched.first()?;
    let message = format!(
        "{} Secrets and ConfigMaps are not read, such as {first}: the gateway watches at most {SINGLE_WATCHES_MAX} of them one by \
             one. Give Secrets of Consumers the type {CREDENTIALS_TYPE}, which has no limit",
        unwatched.len()
    );
    Some(Problem::of_cluster(Severity::Error, None, message))
}

/// The problem with some watches (`what`), and its reason.
fn problem(what: &str, reason: Reason) -> Problem {
    let consequence = match reason {
        Reason::Temporary => "the last known objects stay in service",
        Reason::Forbidden => "grant the service account get, list and watch for them",
        Reason::Unknown => "they are not served",
    };
    let severity = if reason == Reason::Forbidden { Severity::Error } else { Severity::Warning };
    Problem::of_cluster(severity, None, format!("the Kubernetes API does not return {what}; {consequence}"))
}
