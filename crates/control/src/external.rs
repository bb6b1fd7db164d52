//! Upstreams outside the cluster, which annotations name by a URL.
//!
//! In the model, such an upstream has the Service `External/HOST`. No Service can have this name.

use std::sync::Arc;

use sluicegate_model::value::CipherSuites;
use sluicegate_model::{Protocol, Transport, TransportTls, UpstreamKey};

/// The beginning of the names of Services of external hosts.
const PREFIX: &str = "External/";

/// The upstream of a host and port, for objects of a namespace. With TLS, certificates are not verified, as in nginx without
/// `proxy_ssl_verify`.
pub(crate) fn key(namespace: &Arc<str>, host: &str, port: u16, has_tls: bool) -> UpstreamKey {
    let tls = has_tls.then(|| {
        Arc::new(TransportTls {
            server_name: host.into(),
            sends_name: true,
            verifies: false,
            secret: None,
            policy: None,
            ciphers: CipherSuites::default(),
            depth: None,
        })
    });
    let transport = Transport { protocol: Protocol::Http, tls, is_cluster_ip: false, sends_proxy: false };
    let service = format!("{PREFIX}{host}").into();
    UpstreamKey { namespace: namespace.clone(), service, port: port.to_string().into(), transport }
}

/// The host of an upstream, if the upstream is outside the cluster.
pub(crate) fn host_of(key: &UpstreamKey) -> Option<&str> {
    key.service.strip_prefix(PREFIX)
}

/// Whether a name is that of an external host, which no object may name as a Service.
pub(crate) fn is_name(service: &str) -> bool {
    service.starts_with(PREFIX)
}
