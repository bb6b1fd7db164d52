//! The Services of a file, their endpoints and health checks.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};
use sluicegate_kong::file::{Hash, HashSource, Protocol, Service, Target, Upstream};

use super::{Conversion, POLICY_VERSION, duration};

/// The longest timeout, in milliseconds.
const TIMEOUT_MAX: u32 = 24 * 60 * 60 * 1000;

/// The destination of a service: the host, the port of a host, and the place of the service whose TLS settings apply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Destination {
    host: String,
    port: u16,
    protocol: String,
    tls: Option<usize>,
}

/// A backend of a route.
#[derive(Clone, Debug)]
pub(super) struct Backend {
    /// The name of the Service.
    pub(super) service: String,
    pub(super) port: u16,
    pub(super) weight: u32,
    /// The host that endpoints receive; `None` for addresses.
    pub(super) host: Option<String>,
}

impl<'f> Conversion<'f> {
    /// The backends of a service.
    pub(super) fn backends(&mut self, place: usize) -> Vec<Backend> {
        let service = &self.file.services[place];
        let tls = service.protocol.is_tls().then_some(place);
        let (host, protocol) = (service.host.clone(), service.protocol_name.clone());
        let key = Destination { host, port: service.port, protocol, tls };
        if let Some(known) = self.backends.get(&key) {
            return known.clone();
        }
        let backends = match self.upstream(service) {
            Some(upstream) => self.of_upstream(service, upstream),
            None => {
                let target =
                    Target { line: service.line, host: service.host.clone(), port: service.port, weight: 1 };
                let label = service.name.as_deref().unwrap_or(&service.host);
                vec![self.of_targets(service, label, &[&target], None)]
            }
        };
        self.backends.insert(key, backends.clone());
        backends
    }

    /// The upstream that a service names.
    pub(super) fn upstream(&self, service: &Service) -> Option<&'f Upstream> {
        self.file.upstreams.iter().find(|upstream| upstream.name == service.host)
    }

    /// The backends of an upstream: addresses with one weight share a Service, and a name has a Service of its own.
    fn of_upstream(&mut self, service: &Service, upstream: &'f Upstream) -> Vec<Backend> {
        let mut groups: BTreeMap<(u16, Option<&str>), Vec<&Target>> = BTreeMap::new();
        for target in upstream.targets.iter().filter(|target| target.weight > 0) {
            let name = target.host.parse::<IpAddr>().is_err().then_some(&*target.host);
            groups.entry((target.weight, name)).or_default().push(target);
        }
        if groups.len() > 1 && (upstream.hash.on.is_some() || upstream.algorithm == "least-connections") {
            let message = format!(
                "algorithm {} is converted for targets with one weight that are addresses: the other targets receive a share \
                 by weight",
                upstream.algorithm
            );
            self.notes.unconverted(upstream.line, &upstream.label(), message);
        }
        if groups.is_empty() {
            let backend = self.of_targets(service, &upstream.name, &[], Some(upstream));
            return vec![backend];
        }
        let groups: Vec<(u16, Vec<&Target>)> =
            groups.into_iter().map(|((weight, _), targets)| (weight, targets)).collect();
        let mut backends = Vec::with_capacity(groups.len());
        for (weight, targets) in groups {
            let mut backend = self.of_targets(service, &upstream.name, &targets, Some(upstream));
            backend.weight = u32::from(weight) * u32::try_from(targets.len()).unwrap_or(1);
            backends.push(backend);
        }
        backends
    }

    /// A Service with these targets: one name, or any number of addresses.
    fn of_targets(
        &mut self,
        service: &Service,
        label: &str,
        targets: &[&Target],
        upstream: Option<&Upstream>,
    ) -> Backend {
        let name = self.names.unique("Service", label);
        let mut metadata = self.metadata(&name);
        let host = match targets {
            [target] if target.host.parse::<IpAddr>().is_err() => {
                Some(target.host.trim_end_matches('.').to_owned())
            }
            _ => None,
        };
        if let Some(name) = host.as_ref().filter(|name| self.options.for_cluster && name.contains('_')) {
            let message = format!(
                "{name:?} has a \"_\", which Kubernetes accepts in no Service: give the host a name without \"_\""
            );
            self.notes.unconverted(service.line, &service.label(), message);
        }
        let host_header = upstream.and_then(|upstream| upstream.host_header.clone());
        let annotations = self.annotations(service, host_header.as_ref().or(host.as_ref()));
        if !annotations.is_empty() {
            metadata["annotations"] = annotations.into();
        }
        let port = targets.first().map_or(service.port, |target| target.port).max(1);
        let mut spec = json!({"ports": [{"port": port}]});
        if let Some(host) = &host {
            spec["type"] = "ExternalName".into();
            spec["externalName"] = host.to_ascii_lowercase().into();
        }
        let line = targets.first().map_or(service.line, |target| target.line);
        self.objects
            .push((line, json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})));
        if host.is_none() {
            self.slices(&name, targets);
        }
        if let Some(upstream) = upstream {
            self.health(&name, upstream);
        }
        Backend { service: name, port, weight: 1, host }
    }

    /// The EndpointSlices of a Service: one for each port and family of addresses.
    fn slices(&mut self, service: &str, targets: &[&Target]) {
        let mut slices: BTreeMap<(u16, bool), Vec<&Target>> = BTreeMap::new();
        for target in targets {
            let is_v4 = target.host.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4());
            slices.entry((target.port, is_v4)).or_default().push(target);
        }
        for ((port, is_v4), targets) in slices {
            let name = self.names.unique("EndpointSlice", service);
            let mut metadata = self.metadata(&name);
            metadata["labels"] = json!({"kubernetes.io/service-name": service});
            let endpoints: Vec<Value> =
                targets.iter().map(|target| json!({"addresses": [target.host]})).collect();
            self.objects.push((
                targets[0].line,
                json!({
                    "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
                    "addressType": if is_v4 { "IPv4" } else { "IPv6" },
                    "ports": [{"name": "", "port": port}], "endpoints": endpoints,
                }),
            ));
        }
    }

    /// The annotations of a Service: the protocol and TLS.
    fn annotations(&mut self, service: &Service, host: Option<&String>) -> Map<String, Value> {
        let mut annotations = Map::new();
        let mut set = |name: &str, value: &str| {
            annotations.insert(format!("sluicegate.dev/{name}"), value.into());
        };
        match service.protocol {
            Protocol::Http => {}
            Protocol::Https => set("backend-protocol", "HTTPS"),
            Protocol::Grpc => set("backend-protocol", "GRPC"),
            Protocol::Grpcs => set("backend-protocol", "GRPCS"),
            Protocol::Other => {}
        }
        if !service.protocol.is_tls() {
            return annotations;
        }
        let verifies = service.tls_verify == Some(true);
        set("proxy-ssl-verify", if verifies { "true" } else { "false" });
        if let Some(host) = host {
            set("proxy-ssl-name", host);
        }
        let authorities: Vec<&str> = self
            .file
            .ca_certificates
            .iter()
            .filter(|(id, _)| id.as_ref().is_some_and(|id| service.ca_certificates.contains(id)))
            .map(|(_, cert)| &**cert)
            .collect();
        let authorities = authorities.join("\n");
        let named = service.client_certificate.as_ref();
        let client = named.and_then(|id| self.file.certificates.iter().find(|of| of.id.as_ref() == Some(id)));
        let mut data: Vec<(&str, &str)> = Vec::new();
        if !authorities.is_empty() {
            data.push(("ca.crt", &authorities));
        }
        if let Some(client) = client {
            data.extend([("tls.crt", &*client.cert), ("tls.key", &*client.key)]);
        } else if named.is_some() {
            let message = "client_certificate does not exist: correct the id";
            self.notes.unconverted(service.line, &service.label(), message);
        }
        if !data.is_empty() {
            let label = format!("{}-tls", service.name.as_deref().unwrap_or("service"));
            let secret = self.secret(service.line, &label, None, &data);
            annotations.insert("sluicegate.dev/proxy-ssl-secret".to_owned(), secret.into());
        }
        annotations
    }

    /// The health checks of a Service.
    fn health(&mut self, service: &str, upstream: &Upstream) {
        if upstream.client_certificate.is_some() {
            let message = "client_certificate is not converted: write it into the service";
            self.notes.unconverted(upstream.line, &upstream.label(), message);
        }
        let mut spec = Map::new();
        let mut line = upstream.line;
        if let Some(active) = &upstream.active {
            line = active.line;
            let kind = match &*active.kind {
                "tcp" => "TCP",
                "grpc" | "grpcs" => "GRPC",
                _ => "HTTP",
            };
            let intervals = [active.healthy_interval, active.unhealthy_interval];
            let interval = intervals.into_iter().filter(|seconds| *seconds > 0.0).fold(f64::MAX, f64::min);
            let mut check = json!({
                "type": kind,
                "interval": milliseconds(interval, 100),
                "timeout": milliseconds(active.timeout, 1),
                "healthyThreshold": active.successes.clamp(1, 100),
                "unhealthyThreshold": active.failures.clamp(1, 100),
            });
            if kind == "HTTP" {
                check["path"] = active.path.clone().into();
                if let (Some(first), Some(last)) =
                    (active.statuses.iter().min(), active.statuses.iter().max())
                {
                    check["codes"] = format!("{first}-{last}").into();
                }
                if let Some(host) = active.sni.as_ref().or(upstream.host_header.as_ref()) {
                    check["hostname"] = host.clone().into();
                }
            }
            spec.insert("healthCheck".to_owned(), check);
        }
        if let Some(passive) = &upstream.passive {
            let counts = [passive.http_failures, passive.tcp_failures, passive.timeouts];
            let errors = counts.into_iter().filter(|count| *count > 0).min().unwrap_or(1);
            spec.insert(
                "circuitBreaker".to_owned(),
                json!({"ejection": {"consecutiveErrors": errors, "maxPercent": 100}}),
            );
        }
        if spec.is_empty() {
            return;
        }
        spec.insert("targetRefs".to_owned(), json!([{"group": "", "kind": "Service", "name": service}]));
        let name = self.names.unique("TrafficPolicy", service);
        let metadata = self.metadata(&name);
        let object = json!({"apiVersion": POLICY_VERSION, "kind": "TrafficPolicy", "metadata": metadata, "spec": spec});
        self.objects.push((line, object));
    }

    /// The timeouts, retries and load balancing of a service.
    pub(super) fn traffic(&mut self, service: &Service) -> Map<String, Value> {
        let time = |milliseconds: u32| duration(milliseconds.clamp(1, TIMEOUT_MAX).into());
        let mut content = Map::new();
        content.insert(
            "timeouts".to_owned(),
            json!({
                "connect": time(service.connect_timeout),
                "response": time(service.read_timeout),
                "idle": time(service.read_timeout.max(service.write_timeout)),
                "tunnel": time(service.read_timeout.max(service.write_timeout)),
            }),
        );
        content.insert("retries".to_owned(), json!({"attempts": service.retries.min(100)}));
        if let Some(upstream) = self.upstream(service) {
            content.insert("loadBalancing".to_owned(), self.load_balancing(upstream));
        }
        content
    }

    fn load_balancing(&mut self, upstream: &Upstream) -> Value {
        match &*upstream.algorithm {
            "least-connections" => json!({"algorithm": "LeastRequest"}),
            "latency" => json!({"algorithm": "ResponseTime"}),
            "consistent-hashing" | "sticky-sessions" => self.hash(upstream),
            _ => json!({"algorithm": "RoundRobin"}),
        }
    }

    fn hash(&mut self, upstream: &Upstream) -> Value {
        let Hash { on, fallback, cookie_path } = &upstream.hash;
        if let Some(fallback) = fallback {
            let message = format!(
                "hash_fallback {fallback:?} is not converted: write a hash_on that all requests have"
            );
            self.notes.unconverted(upstream.line, &upstream.label(), message);
        }
        let part = match on {
            None => return json!({"algorithm": "RoundRobin"}),
            Some(HashSource::Ip) => json!({"type": "Address"}),
            Some(HashSource::Path) => json!({"type": "Path"}),
            Some(HashSource::Header(name)) => json!({"type": "Header", "name": name}),
            Some(HashSource::Query(name)) => json!({"type": "Query", "name": name}),
            // Kong gives a cookie to clients without one.
            Some(HashSource::Cookie(name)) => {
                let path = cookie_path.as_deref().unwrap_or("/");
                return json!({"algorithm": "RoundRobin", "affinity": {"cookie": name, "path": path}});
            }
            Some(other @ (HashSource::Consumer | HashSource::Other(_))) => {
                let message = format!(
                    "hash_on {other:?} is not converted, the client IP is hashed: write ip, path, header, cookie or query_arg"
                );
                self.notes.unconverted(upstream.line, &upstream.label(), message);
                json!({"type": "Address"})
            }
        };
        json!({"algorithm": "ConsistentHash", "hash": [part]})
    }
}

/// A time in seconds, of at least this number of milliseconds and at most an hour.
fn milliseconds(seconds: f64, least: u32) -> String {
    duration(((seconds * 1000.0).min(3_600_000.0) as u32).max(least).into())
}
