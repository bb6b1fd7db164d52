//! The addresses of external names (Services of type `ExternalName`), asked for again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::{Conditions, Endpoint};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// The time between two look-ups of one name.
const INTERVAL: Duration = Duration::from_secs(30);

/// The same, after one that failed.
const INTERVAL_AFTER_FAULT: Duration = Duration::from_secs(5);

/// A name and the port to connect to.
pub(super) type Target = (Box<str>, u16);

/// What a name server said.
#[derive(Debug)]
pub(super) struct Answer {
    target: Target,
    result: Result<Arc<[Endpoint]>, String>,
}

/// Looks up names as long as they are wanted.
#[derive(Debug)]
pub(super) struct Resolver {
    wanted: BTreeMap<Target, AbortHandle>,
    /// The last good answers.
    known: BTreeMap<Target, Arc<[Endpoint]>>,
    /// Why the last look-up failed, where it did.
    faults: BTreeMap<Target, String>,
    answers: mpsc::UnboundedReceiver<Answer>,
    sender: mpsc::UnboundedSender<Answer>,
}

impl Resolver {
    pub(super) fn new() -> Self {
        let (sender, answers) = mpsc::unbounded_channel();
        Self { wanted: BTreeMap::new(), known: BTreeMap::new(), faults: BTreeMap::new(), answers, sender }
    }

    /// Looks up these names from now on, and no others.
    pub(super) fn want(&mut self, targets: &BTreeSet<Target>) {
        self.wanted.retain(|target, task| {
            let is_wanted = targets.contains(target);
            if !is_wanted {
                task.abort();
            }
            is_wanted
        });
        self.known.retain(|target, _| targets.contains(target));
        self.faults.retain(|target, _| targets.contains(target));
        for target in targets {
            if !self.wanted.contains_key(target) {
                let task = tokio::spawn(look_up_repeatedly(target.clone(), self.sender.clone()));
                self.wanted.insert(target.clone(), task.abort_handle());
            }
        }
    }

    /// Waits for something new. Does not lose anything when it is dropped.
    pub(super) async fn answer(&mut self) -> Answer {
        match self.answers.recv().await {
            Some(answer) => answer,
            // Never, since there is a sender in `self`.
            None => std::future::pending().await,
        }
    }

    /// Takes an answer in.
    pub(super) fn take(&mut self, answer: Answer) {
        let Answer { target, result } = answer;
        if !self.wanted.contains_key(&target) {
            return;
        }
        match result {
            Ok(endpoints) => {
                self.faults.remove(&target);
                self.known.insert(target, endpoints);
            }
            Err(fault) => {
                self.faults.insert(target, fault);
            }
        }
    }

    /// The last good answer.
    pub(super) fn endpoints(&self, target: &Target) -> Option<&Arc<[Endpoint]>> {
        self.known.get(target)
    }

    /// Why the last look-up failed, if it did.
    pub(super) fn fault(&self, target: &Target) -> Option<&str> {
        self.faults.get(target).map(String::as_str)
    }

    /// Whether each wanted name has been looked up at least once.
    pub(super) fn is_settled(&self) -> bool {
        self.wanted.keys().all(|target| self.known.contains_key(target) || self.faults.contains_key(target))
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        for task in self.wanted.values() {
            task.abort();
        }
    }
}

async fn look_up_repeatedly(target: Target, sender: mpsc::UnboundedSender<Answer>) {
    loop {
        let result = look_up(&target).await;
        let interval = if result.is_ok() { INTERVAL } else { INTERVAL_AFTER_FAULT };
        if sender.send(Answer { target: target.clone(), result }).is_err() {
            return;
        }
        tokio::time::sleep(interval).await;
    }
}

async fn look_up((name, port): &Target) -> Result<Arc<[Endpoint]>, String> {
    let addresses = tokio::net::lookup_host((&**name, *port)).await.map_err(|error| error.to_string())?;
    let addresses: BTreeSet<_> = addresses.collect();
    if addresses.is_empty() {
        return Err("it has no addresses".to_owned());
    }
    Ok(addresses.into_iter().map(|address| Endpoint { address, conditions: Conditions::READY }).collect())
}
