//! The Kubernetes API as the source of all objects.
//!
//! Each kind is watched by a task of its own ([`watch`]), which checks what comes; this one puts it into the store and
//! publishes what changes, in the order in which it came. Nothing is published before all kinds have been listed once.
//! While the API server is away, what is known stays in service; when it is back, each watch goes on where it was or lists
//! all objects anew, and those that are missing then are gone.
//!
//! Of Secrets, those of types `kubernetes.io/tls` and `sluicegate.dev/credentials` are watched together, and those of other
//! types that something names, as ConfigMaps, one by one. What newly names them is served once they are known.
//!
//! | module | what |
//! |---|---|
//! | [`client`] | how the Kubernetes API is spoken with |
//! | [`watch`] | one watch of one kind |
//! | [`lease`] | which of several processes writes into the cluster |
//! | [`status`], [`standing`], [`policy_status`] | what is written back to Ingresses, policies and Consumers, and what is there |
//! | [`addresses`] | where clients reach the gateway |
//! | [`planes`] | the certificates by which two planes know each other |

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashSet};
use kube::Client;
use tokio::sync::{mpsc, watch as state};
use tokio::task::AbortHandle;
use tokio::time::{sleep_until, timeout};

use super::output::{Output, Publish};
use super::resolve::Reach;
use crate::object::secret::{CREDENTIALS_TYPE, TLS_TYPE};
use crate::object::{Kind, ObjectRef};
use crate::problem::{Origin, Problem, Severity};
use crate::store::{Store, Touched};
use crate::translate::named::Named;
use crate::translate::{ObjectName, TranslateOptions};

pub mod addresses;
pub mod client;
mod lease;
pub mod planes;
mod policy_status;
mod standing;
mod status;
mod watch;

use addresses::Addresses;
use lease::Elector;
use status::Board;
use watch::{Fault, Fields, Heard, News, Reason, Selection};

/// How many pieces of news wait to be taken in; further ones wait at the API server.
const QUEUE: usize = 1024;

/// After this many pieces of news, what has changed is published.
const BATCH: usize = 4096;

/// How many Secrets and ConfigMaps are watched one by one.
const SINGLE_WATCHES_MAX: usize = 500;

/// How long giving the Lease up may take.
const RESIGNATION_MAX: Duration = Duration::from_secs(2);

/// How long a change of routes waits for objects that it newly names.
const NAMED_WAIT_MAX: Duration = Duration::from_secs(2);

/// What is written into the cluster, and by whom.
#[derive(Clone, Debug)]
pub struct StatusOptions {
    /// The Lease whose holder writes.
    pub lease: ObjectName,
    /// How this process is named there: each must be named differently.
    pub identity: String,
    /// The addresses that Ingresses are given; none leaves theirs alone.
    pub addresses: Option<Addresses>,
}

/// Follows the Kubernetes API.
pub struct ClusterSource {
    client: Client,
    /// Which namespaces; all, if it is empty.
    namespaces: Vec<Arc<str>>,
    options: TranslateOptions,
    status: Option<StatusOptions>,
    problems: state::Sender<Arc<[Problem]>>,
    leads: state::Sender<bool>,
    resigned: state::Sender<bool>,
}

impl ClusterSource {
    /// A source that follows these namespaces, or all if none is named, and writes back as `status` says, if it says
    /// anything.
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
            problems: state::Sender::new(Arc::default()),
            leads,
            resigned,
        }
    }

    /// The client that it asks with.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whether this process holds the Lease, and so writes into the cluster.
    #[must_use]
    pub fn leads(&self) -> state::Receiver<bool> {
        self.leads.subscribe()
    }

    /// What makes this process write nothing any more, and gives the Lease up, so that the next holder need not wait for
    /// its end. The objects are followed all the same.
    pub fn resignation(&self) -> impl Future<Output = ()> + Send + use<> {
        let (client, status, resigned) = (self.client.clone(), self.status.clone(), self.resigned.clone());
        async move {
            // Also who does not hold it must not take it any more.
            resigned.send_replace(true);
            let Some(status) = status else { return };
            let released = Elector::release(client, &status.lease, &status.identity);
            if let Ok(Err(error)) = timeout(RESIGNATION_MAX, released).await {
                tracing::debug!(%error, "cannot release the Lease; it expires by itself");
            }
        }
    }

    /// What is wrong at present, and every change of it. Each problem is also logged once when it comes, and
    /// once when it is gone.
    #[must_use]
    pub fn problems(&self) -> state::Receiver<Arc<[Problem]>> {
        self.problems.subscribe()
    }

    /// Follows the cluster until the future is dropped. The first change is a complete configuration, as soon as all
    /// objects are known; until then `publish` is not called. It must not block.
    pub async fn run(self, publish: impl Publish) -> Infallible {
        let mut resigned = self.resigned.subscribe();
        let board = self.status.as_ref().map(|_| Arc::new(Board::default()));
        let (lack, lacking) = state::channel(None);
        let writing = self.status.zip(board.clone()).map(|(status, board)| {
            let writing = write(self.client.clone(), status, board, self.leads, lack);
            async move {
                tokio::select! {
                    never = writing => never,
                    () = until(&mut resigned, true) => pending().await,
                }
            }
        });
        let (sender, heard) = mpsc::channel(QUEUE);
        let mut follower = Follower {
            output: Output::new(self.options.clone(), self.problems, publish, Reach::BeyondTheNode),
            client: self.client,
            options: self.options,
            namespaces: self.namespaces,
            sender,
            heard,
            store: Store::default(),
            watches: BTreeMap::new(),
            next_watch: 0,
            named: Named::default(),
            unwatched: Vec::new(),
            touched: Touched::default(),
            since: Instant::now(),
            waits_until: None,
            away: None,
            lacking,
            board,
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
    board: Arc<Board>,
    leads: state::Sender<bool>,
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
            // Whoever is elected next finds out for itself.
            lack.send_replace(None);
        }
    };
    tokio::join!(elector.run(&leads), writing, addresses).0
}

/// Waits until it is so; for ever, if nobody can say so any more.
async fn until(state: &mut state::Receiver<bool>, wanted: bool) {
    if state.wait_for(|state| *state == wanted).await.is_err() {
        pending::<()>().await;
    }
}

/// A cluster that is being followed.
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
    /// What is named, and not watched since there are too many of its kind.
    unwatched: Vec<ObjectRef>,
    /// What has changed and is not published yet.
    touched: Touched,
    /// When the first of it was heard of.
    since: Instant,
    /// Until when a change of routes waits for objects that it names.
    waits_until: Option<Instant>,
    /// How the API server began to be away, until no watch misses it any more.
    away: Option<String>,
    /// Why there are no addresses to write back.
    lacking: state::Receiver<Option<Problem>>,
    /// What is written back, if anything is.
    board: Option<Arc<Board>>,
    output: Output<P>,
}

/// A watch that is under way.
struct Watch {
    selection: Selection,
    task: AbortHandle,
    /// Whether all its objects are known, or cannot be.
    is_settled: bool,
    /// The objects that it has told of.
    objects: HashSet<ObjectRef>,
    /// Those of them that a list which is under way has not named yet.
    unlisted: HashSet<ObjectRef>,
    fault: Option<Fault>,
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
                    self.take(heard);
                    for _ in 1..BATCH {
                        let Ok(heard) = self.heard.try_recv() else { break };
                        self.take(heard);
                    }
                }
                answer = self.output.answer() => {
                    self.output.take(answer);
                    self.report();
                }
                Ok(()) = self.lacking.changed() => self.touched.problems = true,
                () = sleep_until(self.waits_until.unwrap_or_else(Instant::now).into()), if self.waits_until.is_some() => {}
            }
            self.settle().await;
        }
    }

    /// Watches all kinds of objects.
    fn watch_kinds(&mut self) {
        let every = match &*self.namespaces {
            [] => vec![None],
            namespaces => namespaces.iter().cloned().map(Some).collect(),
        };
        for kind in [Kind::IngressClass, Kind::GatewayClass] {
            self.watch(Selection { kind, namespace: None, fields: Fields::All });
        }
        for namespace in every {
            let mut watch = |kind, fields| {
                self.watch(Selection { kind, namespace: namespace.clone(), fields });
            };
            for kind in [TLS_TYPE, CREDENTIALS_TYPE] {
                watch(Kind::Secret, Fields::Type(kind));
            }
            for kind in [
                Kind::EndpointSlice,
                Kind::Service,
                Kind::Ingress,
                Kind::Gateway,
                Kind::TlsRoute,
                Kind::TcpRoute,
                Kind::UdpRoute,
                Kind::ReferenceGrant,
                Kind::SecurityPolicy,
                Kind::Consumer,
                Kind::RateLimitPolicy,
                Kind::TrafficPolicy,
            ] {
                watch(kind, Fields::All);
            }
        }
    }

    fn watch(&mut self, selection: Selection) {
        let number = self.next_watch;
        self.next_watch += 1;
        let task = selection.start(&self.client, number, self.sender.clone());
        let watch = Watch {
            selection,
            task,
            is_settled: false,
            objects: HashSet::default(),
            unlisted: HashSet::default(),
            fault: None,
        };
        self.watches.insert(number, watch);
    }

    /// Takes in what a watch heard.
    fn take(&mut self, Heard { watch: number, news, .. }: Heard) {
        // One that was ended may have left something in the queue.
        let Some(watch) = self.watches.get_mut(&number) else { return };
        if let News::Fault(fault) = news {
            watch.is_settled |= watch.selection.can_do_without(fault.reason);
            // The first for a reason says how it began.
            if watch.fault.as_ref().is_none_or(|before| before.reason != fault.reason) {
                self.touched.problems = true;
                watch.fault = Some(fault);
            }
            return;
        }
        if !matches!(news, News::Listing) {
            self.touched.problems |= watch.fault.take().is_some();
        }
        match news {
            News::Listing => watch.unlisted.clone_from(&watch.objects),
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
                watch.is_settled = true;
                for object in std::mem::take(&mut watch.unlisted) {
                    self.remove(number, &object);
                }
            }
            News::Fault(_) | News::Recovered => {}
        }
    }

    /// Takes an object away of which a watch has said that it is gone.
    fn remove(&mut self, number: usize, object: &ObjectRef) {
        let Some(watch) = self.watches.get_mut(&number) else { return };
        watch.objects.remove(object);
        watch.unlisted.remove(object);
        self.forget(object);
    }

    /// Takes away an object that a watch does not tell of any more, unless another one does.
    fn forget(&mut self, object: &ObjectRef) {
        if !self.watches.values().any(|watch| watch.objects.contains(object)) {
            self.touched.merge(self.store.remove_object(object));
            if let Some(board) = &self.board {
                board.forget(object);
            }
        }
    }

    /// Publishes what has changed.
    async fn settle(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        if touched == Touched::default() && self.output.is_serving() && self.waits_until.is_none() {
            return;
        }
        touched.routing = self.output.is_routing(&touched) || self.waits_until.is_some();
        touched.changed_services.clear();
        // The last of the first lists may be an empty one, or one that cannot be had, which touches nothing.
        if touched.routing || !self.output.is_serving() {
            self.find_named();
        }
        let is_due = self.waits_until.is_some_and(|until| until <= Instant::now());
        let is_known = self.is_settled();
        if !self.output.is_serving() && !is_known {
            // Not before everything has been listed once; endpoints are in the store already.
            self.report();
            return;
        }
        if touched.routing && !is_known && !is_due {
            self.waits_until.get_or_insert_with(|| Instant::now() + NAMED_WAIT_MAX);
            touched.routing = false;
        } else if touched.routing {
            self.waits_until = None;
        }
        if self.output.apply(&self.store, &touched, self.since).await {
            self.report();
        }
    }

    /// Whether all objects are known that can be.
    fn is_settled(&self) -> bool {
        self.watches.values().all(|watch| watch.is_settled)
    }

    /// Finds out which objects are named, and watches those that no other watch tells of.
    fn find_named(&mut self) {
        self.named = Named::find(&self.store, &self.options);
        let named = &self.named;
        let singly: BTreeSet<ObjectRef> =
            self.watches.values().filter_map(|watch| watch.selection.object()).collect();
        // Before all have been listed, nobody knows what they lack.
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
        // What is not watched is not known: it is asked for anew if it is named again.
        for object in ended.iter().flat_map(|watch| &watch.objects) {
            self.forget(object);
        }
        for ObjectRef { kind, namespace, name } in
            followed.into_iter().filter(|object| !singly.contains(object))
        {
            self.watch(Selection { kind, namespace: Some(namespace), fields: Fields::Name(name) });
        }
    }

    /// Tells what is wrong with what concerns us, and with the watches.
    fn report(&mut self) {
        // All watches fail one after another and each in its own way, which is one problem.
        let away = |watch: &Watch| {
            let fault = watch.fault.as_ref().filter(|fault| fault.reason == Reason::Away)?;
            Some(format!("{}: {}", watch.selection, fault.message))
        };
        let mut away = self.watches.values().filter_map(away);
        self.away = away.next().map(|first| self.away.take().unwrap_or(first));
        let of_objects = self.store.problems().filter(|problem| match &problem.object {
            Some(object) => self.named.concerns(object),
            None => true,
        });
        let mut faults: BTreeMap<(&str, Reason), Vec<&Selection>> = BTreeMap::new();
        for watch in self.watches.values() {
            match &watch.fault {
                // Gateway API need not be installed, nor our own definitions.
                Some(fault) if fault.reason == Reason::Unknown && watch.is_settled => {}
                Some(fault) if fault.reason == Reason::Away => {}
                // The right to Secrets of one type is the right to those of another, and has been asked for.
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
        let of_watches = of_watches.chain(self.away.iter().map(|first| problem(first, Reason::Away)));
        let of_watches = of_watches.chain(too_many(&self.unwatched));
        let of_addresses = self.lacking.borrow().clone();
        self.output.report(&self.store, of_objects.chain(of_watches).chain(of_addresses));
        if let Some(board) = self.board.as_ref().filter(|_| self.output.is_serving()) {
            board.want(&self.named.ingresses, &self.output.problems(), self.output.standings());
        }
    }
}

impl Selection {
    /// The object, if it is a single one.
    fn object(&self) -> Option<ObjectRef> {
        let Fields::Name(name) = &self.fields else { return None };
        let namespace = self.namespace.clone().unwrap_or_default();
        Some(ObjectRef { kind: self.kind, namespace, name: name.clone() })
    }

    fn is_of_credentials(&self) -> bool {
        matches!(self.fields, Fields::Type(CREDENTIALS_TYPE))
    }

    /// Whether there is something to serve without these objects, if they cannot be had for this reason.
    fn can_do_without(&self, reason: Reason) -> bool {
        let is_needed = match self.kind {
            Kind::Ingress | Kind::Service | Kind::EndpointSlice => true,
            // Without them nobody would be kept out. Where there are no such kinds, there is no policy either.
            Kind::SecurityPolicy | Kind::Consumer => reason == Reason::Forbidden,
            _ => false,
        };
        reason != Reason::Away && !is_needed
    }
}

/// Which objects have the room, and which do not: each namespace has as much of it as it wants and the others leave, so that none
/// takes what others need. Those that come first go before others of their namespace.
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

/// What is wrong if these are not followed.
fn too_many(unwatched: &[ObjectRef]) -> Option<Problem> {
    let first = unwatched.first()?;
    Some(Problem {
        severity: Severity::Error,
        origin: Origin::CLUSTER,
        object: None,
        field: String::new(),
        message: format!(
            "{} Secrets and ConfigMaps are not read, such as {first}: the gateway watches at most {SINGLE_WATCHES_MAX} of them one by \
             one. Give Secrets of Consumers the type {CREDENTIALS_TYPE}, which has no limit",
            unwatched.len()
        ),
    })
}

/// What is wrong with some watches: which, and why.
fn problem(what: &str, reason: Reason) -> Problem {
    let consequence = match reason {
        Reason::Away => "the last known objects stay in service",
        Reason::Forbidden => "grant the service account get, list and watch for them",
        Reason::Unknown => "they are not served",
    };
    Problem {
        severity: if reason == Reason::Forbidden { Severity::Error } else { Severity::Warning },
        origin: Origin::CLUSTER,
        object: None,
        field: String::new(),
        message: format!("the Kubernetes API does not return {what}; {consequence}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_watched_objects_is_shared_between_namespaces() {
        let object = |namespace: &str, name: String| ObjectRef {
            kind: Kind::Secret,
            namespace: namespace.into(),
            name: name.into(),
        };
        let greedy: Vec<_> = (0..500).map(|n| object("a", n.to_string())).collect();
        let one = object("b", "users".into());
        let (followed, others) = share(greedy.iter().cloned().chain([one.clone()]), 500);
        assert!(followed.len() == 500 && followed.contains(&one), "{others:?}");
        assert_eq!(others, [greedy[499].clone()], "the last of those that have most");
        let (followed, others) = share(greedy.into_iter().take(499).chain([one]), 500);
        assert_eq!((followed.len(), others.len()), (500, 0));
    }
}
