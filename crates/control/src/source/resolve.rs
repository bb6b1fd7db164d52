//! The addresses of external names (Services of type `ExternalName`), with repeated look-ups.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::{Conditions, Endpoint};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// The time between two look-ups of one name.
const INTERVAL: Duration = Duration::from_secs(30);

/// The time before another look-up after a failure.
const INTERVAL_AFTER_FAULT: Duration = Duration::from_secs(5);

/// The addresses that external names may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// All: the author of the manifests runs the gateway.
    Anywhere,
    /// No addresses of loopback and link-local networks. Otherwise the author of a Service in a cluster could reach the
    /// gateway's own admin interface and its node. Kubernetes also rejects these addresses in EndpointSlices
    /// (`ValidateNonSpecialIP`).
    BeyondTheNode,
}

/// A name and the port to connect to.
pub(super) type Target = (Box<str>, u16);

/// The answer of a name server.
#[derive(Debug)]
pub(super) struct Answer {
    target: Target,
    result: Result<Arc<[Endpoint]>, String>,
}

/// Looks up names as long as routes need them.
#[derive(Debug)]
pub(super) struct Resolver {
    reach: Reach,
    wanted: BTreeMap<Target, AbortHandle>,
    /// The last valid answers.
    known: BTreeMap<Target, Arc<[Endpoint]>>,
    /// The reason for each failure of a last look-up.
    faults: BTreeMap<Target, String>,
    answers: mpsc::UnboundedReceiver<Answer>,
    sender: mpsc::UnboundedSender<Answer>,
}

impl Resolver {
    pub(super) fn new(reach: Reach) -> Self {
        let (sender, answers) = mpsc::unbounded_channel();
        Self {
            reach,
            wanted: BTreeMap::new(),
            known: BTreeMap::new(),
            faults: BTreeMap::new(),
            answers,
            sender,
        }
    }

    /// Looks up exactly these names from now on.
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
                let task = tokio::spawn(look_up_repeatedly(target.clone(), self.reach, self.sender.clone()));
                self.wanted.insert(target.clone(), task.abort_handle());
            }
        }
    }

    /// Waits for a new answer. A dropped future loses nothing.
    pub(super) async fn answer(&mut self) -> Answer {
        match self.answers.recv().await {
            Some(answer) => answer,
            // Never happens, since `self` holds a sender.
            None => std::future::pending().await,
        }
    }

    /// Takes an answer.
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

    /// The last valid answer.
    pub(super) fn endpoints(&self, target: &Target) -> Option<&Arc<[Endpoint]>> {
        self.known.get(target)
    }

    /// The reason for the failure of the last look-up, if it failed.
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

async fn look_up_repeatedly(target: Target, reach: Reach, sender: mpsc::UnboundedSender<Answer>) {
    loop {
        let result = look_up(&target, reach).await;
        let interval = if result.is_ok() { INTERVAL } else { INTERVAL_AFTER_FAULT };
        if sender.send(Answer { target: target.clone(), result }).is_err() {
            return;
        }
        tokio::time::sleep(interval).await;
    }
}

async fn look_up((name, port): &Target, reach: Reach) -> Result<Arc<[Endpoint]>, String> {
    let mut found = tokio::net::lookup_host((&**name, *port)).await;
    if let (Err(_), Some(relative)) = (&found, relative(name, reach)) {
        found = tokio::net::lookup_host((relative, *port)).await;
    }
    let mut addresses: BTreeSet<_> = found.map_err(|error| error.to_string())?.collect();
    let Some(first) = addresses.first().copied() else { return Err("the name has no addresses".to_owned()) };
    if reach == Reach::BeyondTheNode {
        addresses.retain(|address| !is_special(address.ip()));
    }
    if addresses.is_empty() {
        let ip = first.ip();
        return Err(format!(
            "the name resolves to {ip}, but loopback and link-local addresses of the gateway are not allowed"
        ));
    }
    Ok(addresses.into_iter().map(|address| Endpoint { address, conditions: Conditions::READY }).collect())
}

/// The name under which the hosts file of the machine may have an absolute name, such as `localhost`. The look-up of a relative
/// name also tries search domains. So no other name is relative: an error of a name server must not lead to another host.
fn relative(name: &str, reach: Reach) -> Option<&str> {
    let relative = name.strip_suffix('.').filter(|relative| !relative.contains('.'));
    relative.filter(|_| reach == Reach::Anywhere)
}

/// Whether an address has a meaning on one machine or link alone, or belongs to many machines.
fn is_special(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_link_local()
                || ip.is_multicast()
                || ip.is_broadcast()
        }
        IpAddr::V6(ip) => {
            ip.is_loopback() || ip.is_unspecified() || ip.is_unicast_link_local() || ip.is_multicast()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn external_names_that_resolve_to_local_addresses_are_rejected_in_a_cluster() {
        for name in [
            "localhost",
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "169.254.169.254",
            "fe80::1",
        ] {
            let target = (name.into(), 9902);
            let refused = look_up(&target, Reach::BeyondTheNode).await;
            assert!(refused.is_err_and(|fault| fault.contains("are not allowed")), "{name}");
            assert!(look_up(&target, Reach::Anywhere).await.is_ok(), "{name}");
        }
        // The name without the dot is in the hosts file of the machine.
        let absolute = ("localhost.".into(), 9902);
        assert!(look_up(&absolute, Reach::Anywhere).await.is_ok());
        assert!(look_up(&absolute, Reach::BeyondTheNode).await.is_err());
        let target = ("192.0.2.1".into(), 80);
        assert_eq!(look_up(&target, Reach::BeyondTheNode).await.map(|found| found.len()), Ok(1));
    }

    #[test]
    fn only_names_without_a_dot_are_looked_up_with_search_domains() {
        for (name, expected) in
            [("localhost.", Some("localhost")), ("api.example.", None), ("localhost", None)]
        {
            assert_eq!(relative(name, Reach::Anywhere), expected, "{name}");
            assert_eq!(relative(name, Reach::BeyondTheNode), None, "{name}");
        }
    }
}
