//! Further names of hosts, which have the rules and the certificates of their host.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluicegate_model::{HostPattern, TlsHost, VirtualHost};

use crate::intent::Alias;
use crate::problem::Problem;

/// Adds the names to the hosts of Ingresses and to their TLS hosts. An object with the name as its host has precedence, then the
/// first alias.
pub(super) fn add(
    aliases: &[Alias<'_>],
    hosts: &mut Vec<Arc<VirtualHost>>,
    tls_hosts: &mut Vec<Arc<TlsHost>>,
    problems: &mut Vec<Problem>,
) {
    if aliases.is_empty() {
        return;
    }
    let mut known: BTreeSet<HostPattern> = hosts.iter().map(|host| host.host.clone()).collect();
    for Alias { at, place, name, of } in aliases {
        let Some(original) = hosts.iter().find(|host| host.host == **of).cloned() else { continue };
        if !known.insert(name.clone()) {
            let message = format!("has no effect for host {name}: another rule or alias has the host");
            problems.push(at.warning(&place.field(), message));
            continue;
        }
        hosts.push(Arc::new(VirtualHost { host: name.clone(), ..VirtualHost::clone(&original) }));
        let has_tls = tls_hosts.iter().any(|host| host.host == *name);
        if let Some(tls) = tls_hosts.iter().find(|host| host.host == **of).filter(|_| !has_tls).cloned() {
            tls_hosts.push(Arc::new(TlsHost { host: name.clone(), ..TlsHost::clone(&tls) }));
        }
    }
    hosts.sort_unstable_by(|one, other| one.host.cmp(&other.host));
}
