//! `sluicegate migrate values`: the values of the chart of ingress-nginx as values of the chart of Sluicegate.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use serde_json::{Map, Value, json};
use sluicegate_control::{IngressNginx, ObjectName, Severity, Store, TranslateOptions, translate};

use crate::{configmap, flags};

#[derive(Debug, Args)]
pub(crate) struct ValuesArgs {
    /// The file with values of the chart of ingress-nginx, or - for standard input.
    path: PathBuf,
}

/// A value without a place in the other chart.
#[derive(Debug, PartialEq)]
struct Note {
    /// The path of the value.
    path: String,
    /// The consequence and the remedy, as a sentence.
    message: String,
    /// Whether the value restricts access.
    restricts: bool,
}

/// Prints the values, and names each value without a place. Exits with 1 if one of these values restricts access.
pub(crate) fn run(args: &ValuesArgs) -> anyhow::Result<ExitCode> {
    let text = if args.path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        text
    } else {
        std::fs::read_to_string(&args.path).with_context(|| format!("cannot read {}", args.path.display()))?
    };
    let old =
        sluicegate_control::read_yaml(&text).map_err(anyhow::Error::msg).context("cannot read the values")?;
    anyhow::ensure!(
        old.is_object() || old.is_null(),
        "the values are not a mapping; name a values file of the chart of ingress-nginx"
    );
    let (new, notes) = translated(old);
    for Note { path, message, restricts } in &notes {
        let severity = if *restricts { "error" } else { "warning" };
        crate::complain(&format!("{severity}: {path}: {message}"));
    }
    crate::say(sluicegate_control::write_yaml(&new).trim_end());
    let is_open = notes.iter().any(|note| note.restricts);
    Ok(if is_open { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Values with the same meaning, by their paths in both charts.
const SAME: &[(&str, &str)] = &[
    ("commonLabels", "labels"),
    ("controller.affinity", "affinity"),
    ("controller.admissionWebhooks.annotations", "admissionWebhook.annotations"),
    ("controller.admissionWebhooks.enabled", "admissionWebhook.enabled"),
    ("controller.admissionWebhooks.failurePolicy", "admissionWebhook.failurePolicy"),
    ("controller.admissionWebhooks.namespaceSelector", "admissionWebhook.namespaceSelector"),
    ("controller.admissionWebhooks.objectSelector", "admissionWebhook.objectSelector"),
    ("controller.admissionWebhooks.timeoutSeconds", "admissionWebhook.timeoutSeconds"),
    ("controller.autoscaling.behavior", "autoscaling.behavior"),
    ("controller.autoscaling.enabled", "autoscaling.enabled"),
    ("controller.autoscaling.maxReplicas", "autoscaling.maxReplicas"),
    ("controller.autoscaling.minReplicas", "autoscaling.minReplicas"),
    ("controller.autoscaling.targetCPUUtilizationPercentage", "autoscaling.targetCPUUtilizationPercentage"),
    (
        "controller.autoscaling.targetMemoryUtilizationPercentage",
        "autoscaling.targetMemoryUtilizationPercentage",
    ),
    ("controller.dnsConfig", "dnsConfig"),
    ("controller.ingressClassResource.name", "ingressNginx.ingressClass.name"),
    ("controller.maxUnavailable", "podDisruptionBudget.maxUnavailable"),
    ("controller.metrics.serviceMonitor.additionalLabels", "serviceMonitor.labels"),
    ("controller.metrics.serviceMonitor.scrapeInterval", "serviceMonitor.interval"),
    ("controller.minAvailable", "podDisruptionBudget.minAvailable"),
    ("controller.nodeSelector", "nodeSelector"),
    ("controller.podAnnotations", "podAnnotations"),
    ("controller.podLabels", "podLabels"),
    ("controller.priorityClassName", "priorityClassName"),
    ("controller.replicaCount", "replicas"),
    ("controller.resources", "resources"),
    ("controller.service.annotations", "service.annotations"),
    ("controller.service.clusterIP", "service.clusterIP"),
    ("controller.service.enabled", "service.enabled"),
    ("controller.service.externalIPs", "service.externalIPs"),
    ("controller.service.externalTrafficPolicy", "service.externalTrafficPolicy"),
    ("controller.service.ipFamilies", "service.ipFamilies"),
    ("controller.service.ipFamilyPolicy", "service.ipFamilyPolicy"),
    ("controller.service.labels", "service.labels"),
    ("controller.service.loadBalancerClass", "service.loadBalancerClass"),
    ("controller.service.loadBalancerSourceRanges", "service.loadBalancerSourceRanges"),
    ("controller.service.nodePorts.http", "service.nodePorts.http"),
    ("controller.service.nodePorts.https", "service.nodePorts.https"),
    ("controller.service.ports.http", "service.ports.http"),
    ("controller.service.ports.https", "service.ports.https"),
    ("controller.service.type", "service.type"),
    ("controller.tolerations", "tolerations"),
    ("controller.topologySpreadConstraints", "topologySpreadConstraints"),
    ("controller.updateStrategy", "updateStrategy"),
    ("controller.watchIngressWithoutClass", "ingressClass.watchWithoutClass"),
    ("imagePullSecrets", "imagePullSecrets"),
    ("rbac.create", "rbac.create"),
    ("serviceAccount.annotations", "serviceAccount.annotations"),
    ("serviceAccount.create", "serviceAccount.create"),
    ("serviceAccount.name", "serviceAccount.name"),
    ("tcp", "ingressNginx.tcp"),
    ("udp", "ingressNginx.udp"),
];

/// Values that need no place.
const UNNEEDED: &[&str] = &[
    "controller.admissionWebhooks.certManager",
    "controller.admissionWebhooks.certificate",
    "controller.admissionWebhooks.createSecretJob",
    "controller.admissionWebhooks.existingPsp",
    "controller.admissionWebhooks.extraEnvs",
    "controller.admissionWebhooks.key",
    "controller.admissionWebhooks.labels",
    "controller.admissionWebhooks.name",
    "controller.admissionWebhooks.networkPolicy",
    "controller.admissionWebhooks.networkPolicyEnabled",
    "controller.admissionWebhooks.patch",
    "controller.admissionWebhooks.patchWebhookJob",
    "controller.admissionWebhooks.port",
    "controller.admissionWebhooks.service",
    "controller.allowPrivilegeEscalation",
    "controller.containerName",
    "controller.containerSecurityContext",
    "controller.dnsPolicy",
    "controller.electionID",
    "controller.electionTTL",
    "controller.enableAnnotationValidations",
    "controller.enableMimalloc",
    "controller.existingPsp",
    "controller.healthCheckHost",
    "controller.healthCheckPath",
    "controller.image",
    "controller.lifecycle",
    "controller.livenessProbe",
    "controller.metrics.enabled",
    "controller.metrics.port",
    "controller.metrics.portName",
    "controller.metrics.service",
    "controller.name",
    "controller.networkPolicy",
    "controller.podSecurityContext",
    "controller.progressDeadlineSeconds",
    "controller.readinessProbe",
    "controller.service.appProtocol",
    "controller.service.external",
    "controller.startupProbe",
    "controller.terminationGracePeriodSeconds",
    "namespaceOverride",
    "podSecurityPolicy",
    "portNamePrefix",
    "revisionHistoryLimit",
];

/// Values without a place that restrict access.
const RESTRICTING: &[(&str, &str)] = &[
    (
        "controller.customTemplate",
        "Sluicegate has no template of nginx. Write its directives as annotations, keys of config, or policies",
    ),
    (
        "controller.scope.namespaceSelector",
        "Sluicegate selects no namespaces by labels. Write them as watchNamespaces",
    ),
];

/// Values without a place, and what to do.
const OTHERWISE: &[(&str, &str)] = &[
    ("controller.addHeaders", "Create a ConfigMap with these headers, and name it in config as add-headers"),
    ("controller.autoscalingTemplate", "Create a HorizontalPodAutoscaler of your own"),
    ("controller.configMapNamespace", "The ConfigMap is in the namespace of the release"),
    (
        "controller.extraContainers",
        "Sluicegate has no such value. Run the container as a workload of its own",
    ),
    ("controller.extraEnvs", "Sluicegate reads no such variables. Write options as extraArgs"),
    ("controller.extraInitContainers", "Sluicegate needs no such container"),
    ("controller.extraModules", "Sluicegate loads no modules"),
    ("controller.extraVolumeMounts", "Sluicegate reads no such files. Write Secrets and ConfigMaps"),
    ("controller.extraVolumes", "Sluicegate reads no such files. Write Secrets and ConfigMaps"),
    (
        "controller.hostPort",
        "Write hostNetwork: true with kind: DaemonSet, for ports 80 and 443 of each node",
    ),
    (
        "controller.ingressClassByName",
        "Write the controller of the IngressClass as ingressNginx.controllerClass",
    ),
    (
        "controller.ingressClassResource.default",
        "Annotate the IngressClass with ingressclass.kubernetes.io/is-default-class",
    ),
    ("controller.keda", "Create a ScaledObject of your own for the Deployment of Sluicegate"),
    ("controller.maxmindLicenseKey", "Sluicegate has no database of places"),
    ("controller.metrics.prometheusRule", "Create a PrometheusRule of your own"),
    ("controller.opentelemetry", "Write otlp-endpoint in config"),
    (
        "controller.proxySetHeaders",
        "Create a ConfigMap with these headers, and name it in config as proxy-set-headers",
    ),
    (
        "controller.service.enableHttps",
        "The Service always has both ports. Write the firewall of the load balancer accordingly",
    ),
    ("controller.service.internal", "Create a second Service of your own with the labels of the pods"),
    (
        "controller.service.loadBalancerIP",
        "Write the address as an annotation of the Service, as your cloud documents it",
    ),
    ("controller.service.sessionAffinity", "Create a Service of your own"),
    (
        "controller.service.targetPorts",
        "The ports lead to the listeners of the same protocol. For TLS at a load balancer, send plain HTTP to the port for HTTP",
    ),
    (
        "defaultBackend",
        "Run the default backend as a Deployment of your own, and name its Service in extraArgs as --default-backend-service=NAMESPACE/NAME",
    ),
    ("fullnameOverride", "Write fullnameOverride for Sluicegate, if you need a fixed name"),
];

/// The values of the other chart while they are read.
struct Values {
    /// The values that have not been read.
    rest: Value,
    new: Map<String, Value>,
    notes: Vec<Note>,
}

/// The values for the chart of Sluicegate, and the values without a place.
fn translated(old: Value) -> (Value, Vec<Note>) {
    let mut values = Values { rest: old, new: Map::new(), notes: Vec::new() };
    values.set("ingressNginx.compatibility", json!(true));
    values.class();
    values.pods();
    values.config();
    values.arguments();
    for (old, new) in SAME {
        // The chart of ingress-nginx writes empty texts for defaults.
        if let Some(value) = values.take(old).filter(|value| is_set(value) || value.is_boolean()) {
            values.set(new, value);
        }
    }
    values.ports();
    values.fit();
    for path in UNNEEDED {
        values.take(path);
    }
    for (entries, restricts) in [(RESTRICTING, true), (OTHERWISE, false)] {
        for (path, message) in entries {
            if values.take(path).as_ref().is_some_and(is_set) {
                values.note(path, message, restricts);
            }
        }
    }
    let rest = std::mem::take(&mut values.rest);
    values.report("", &rest);
    (Value::Object(values.new), values.notes)
}

/// Whether a value differs from nothing: mappings whose `enabled` is false have no effect.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) | Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Array(entries) => !entries.is_empty(),
        Value::Object(fields) => {
            fields.get("enabled") != Some(&Value::Bool(false)) && fields.values().any(is_set)
        }
    }
}

impl Values {
    /// Takes a value by its path.
    fn take(&mut self, path: &str) -> Option<Value> {
        let (parent, name) =
            path.rsplit_once('.').map_or((None, path), |(parent, name)| (Some(parent), name));
        let mut fields = parent.into_iter().flat_map(|parent| parent.split('.'));
        let parent = fields.try_fold(&mut self.rest, |value, name| value.get_mut(name))?;
        parent.as_object_mut()?.remove(name).filter(|value| !value.is_null())
    }

    fn take_text(&mut self, path: &str) -> Option<String> {
        self.take(path).map(|value| text(&value)).filter(|text| !text.is_empty())
    }

    /// Sets a value by its path.
    fn set(&mut self, path: &str, value: Value) {
        let mut fields = &mut self.new;
        let mut names = path.split('.').peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                fields.insert(name.to_owned(), value);
                return;
            }
            let inner = fields.entry(name).or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(inner) = inner else { return };
            fields = inner;
        }
    }

    fn note(&mut self, path: &str, message: &str, restricts: bool) {
        let (path, message) = (path.to_owned(), message.to_owned());
        self.notes.push(Note { path, message, restricts });
    }

    fn class(&mut self) {
        let controller = self.take_text("controller.ingressClassResource.controllerValue");
        if let Some(controller) = controller.filter(|controller| controller != "k8s.io/ingress-nginx") {
            self.set("ingressNginx.controllerClass", json!(controller));
            self.set("ingressNginx.ingressClass.controller", json!(controller));
        }
        if self.take("controller.ingressClassResource.enabled") != Some(json!(false)) {
            let message = "The chart of ingress-nginx owns its IngressClass. Set ingressNginx.ingressClass.create after you have \
                           removed ingress-nginx";
            self.note("controller.ingressClassResource.enabled", message, false);
        }
        if let Some(class) = self.take_text("controller.ingressClass").filter(|class| class != "nginx") {
            self.set("ingressClass.create", json!(false));
            self.set("ingressClass.name", json!(class));
        }
        let namespace = self.take_text("controller.scope.namespace");
        if self.take("controller.scope.enabled") == Some(json!(true)) {
            match namespace {
                Some(namespace) => self.set("watchNamespaces", json!([namespace])),
                None => {
                    let message = "Without a namespace, ingress-nginx serves its own namespace. Write it as watchNamespaces";
                    self.note("controller.scope.namespace", message, true);
                }
            }
        }
    }

    fn pods(&mut self) {
        let is_on_node = self.take("controller.hostNetwork") == Some(json!(true));
        let kind = self.take_text("controller.kind");
        if is_on_node {
            self.set("hostNetwork", json!(true));
        }
        match kind.as_deref() {
            _ if is_on_node => {
                self.set("kind", json!("DaemonSet"));
                if kind.as_deref() != Some("DaemonSet") {
                    self.note(
                        "controller.kind",
                        "On the network of the node, Sluicegate is a DaemonSet",
                        false,
                    );
                }
            }
            Some("Deployment" | "DaemonSet") => self.set("kind", json!(kind)),
            Some(_) => {
                self.note("controller.kind", "Sluicegate is a Deployment or a DaemonSet. Write kind", false);
            }
            None => {}
        }
        for path in ["controller.affinity", "controller.topologySpreadConstraints"] {
            let pointer = format!("/{}", path.replace('.', "/"));
            let names_labels = |value: &Value| value.to_string().contains("ingress-nginx");
            if self.rest.pointer(&pointer).is_some_and(names_labels) {
                let message =
                    "The labels are of ingress-nginx. Write the label app.kubernetes.io/name: sluicegate";
                self.note(path, message, false);
            }
        }
        if self.take("controller.reportNodeInternalIp") == Some(json!(true))
            || self.take("controller.publishService.enabled") == Some(json!(false))
        {
            self.set("status.source", json!("Nodes"));
        }
        if self.take("controller.service.enableHttp") == Some(json!(false)) {
            let message = "The Service always has the port for HTTP. Deny the port in the firewall of the load balancer";
            self.note("controller.service.enableHttp", message, true);
        }
        for path in ["controller.annotations", "controller.labels"] {
            if let Some(Value::Object(fields)) = self.take(path).filter(is_set) {
                self.set(path.trim_start_matches("controller."), Value::Object(fields));
            }
        }
    }

    /// The ConfigMap, whose keys Sluicegate reads itself.
    fn config(&mut self) {
        let mut config = match self.take("controller.config") {
            Some(Value::Object(config)) => config,
            _ => Map::new(),
        };
        if let Some(allows) = self.take("controller.allowSnippetAnnotations") {
            config.entry("allow-snippet-annotations").or_insert(allows);
        }
        let timeout = config.remove("worker-shutdown-timeout").map(|value| text(&value));
        if let Some(timeout) = timeout {
            let time = timeout
                .parse()
                .map(std::time::Duration::from_secs)
                .or_else(|_| humantime::parse_duration(&timeout));
            match time {
                Ok(time) => self.set("shutdown.timeoutSeconds", json!(time.as_secs())),
                Err(_) => self.note(
                    "controller.config.worker-shutdown-timeout",
                    "is not a time such as 240s",
                    false,
                ),
            }
        }
        for (key, message, restricts) in faults(&config) {
            self.note(&format!("controller.config.{key}"), &message, restricts);
        }
        if !config.is_empty() {
            let config = config.into_iter().map(|(key, value)| (key, Value::String(text(&value))));
            self.set("config", Value::Object(config.collect()));
        }
    }

    /// `extraArgs`: flags of ingress-nginx without their dashes.
    fn arguments(&mut self) {
        let Some(Value::Object(arguments)) = self.take("controller.extraArgs") else { return };
        let mut further = Vec::new();
        for (name, value) in arguments {
            let value = text(&value);
            let number = || value.parse::<u64>().map_or_else(|_| json!(value), |number| json!(number));
            match &*name {
                "annotations-prefix" => self.set("ingressNginx.annotationsPrefix", json!(value)),
                "controller-class" => self.set("ingressNginx.controllerClass", json!(value)),
                "default-ssl-certificate" => self.set("tls.defaultCertificate", json!(value)),
                "http-port" => self.set("listen.http", number()),
                "https-port" => self.set("listen.https", number()),
                "ingress-class" => {
                    self.set("ingressClass.create", json!(false));
                    self.set("ingressClass.name", json!(value));
                }
                "publish-status-address" => {
                    let addresses: Vec<&str> = value.split(',').map(str::trim).collect();
                    self.set("status.source", json!("Addresses"));
                    self.set("status.addresses", json!(addresses));
                }
                "shutdown-grace-period" => self.set("shutdown.graceSeconds", number()),
                "update-status" => self.set("status.enabled", json!(value != "false")),
                "watch-ingress-without-class" => {
                    self.set("ingressClass.watchWithoutClass", json!(value != "false"));
                }
                "watch-namespace" => self.set("watchNamespaces", json!([value])),
                "default-backend-service" | "tcp-services-configmap" | "udp-services-configmap" => {
                    further.push(format!("--{name}={value}"));
                }
                "election-id" | "enable-ssl-passthrough" | "enable-annotation-validation" => {}
                _ => {
                    let restricts =
                        matches!(&*name, "disable-svc-external-name" | "watch-namespace-selector");
                    let message = flags::instead(&name)
                        .unwrap_or("Sluicegate has no such option. See sluicegate serve --help");
                    self.note(&format!("controller.extraArgs.{name}"), message, restricts);
                }
            }
        }
        if !further.is_empty() {
            self.set("extraArgs", json!(further));
        }
    }

    /// The ports of pods, which must differ from the ports for TCP.
    fn ports(&mut self) {
        let (http, https) =
            (self.take("controller.containerPort.http"), self.take("controller.containerPort.https"));
        let listen = |value: Option<Value>, default: u64| value.filter(|port| port.as_u64() != Some(default));
        for (path, port) in [("listen.http", listen(http, 80)), ("listen.https", listen(https, 443))] {
            if let Some(port) = port {
                self.set(path, port);
            }
        }
        let is_taken = |new: &Map<String, Value>, port: &str| {
            new["ingressNginx"].get("tcp").is_some_and(|tcp| tcp.get(port).is_some())
        };
        for (path, port, other) in [
            ("listen.http", "8080", 10_080),
            ("listen.https", "8443", 10_443),
            ("admin.port", "9901", 10_901),
        ] {
            if is_taken(&self.new, port) {
                self.set(path, json!(other));
            }
        }
    }

    /// Meets the conditions of the chart between values.
    fn fit(&mut self) {
        if self.take("controller.metrics.serviceMonitor.enabled") == Some(json!(true)) {
            let message = "Write serviceMonitor.enabled together with networkPolicy.metricsFrom, which names the pods of Prometheus";
            self.note("controller.metrics.serviceMonitor.enabled", message, false);
        }
        let is_daemon_set = self.new.get("kind") == Some(&json!("DaemonSet"));
        if let Some(Value::Object(autoscaling)) = self.new.get_mut("autoscaling").filter(|_| is_daemon_set) {
            autoscaling.remove("enabled");
        }
        let has_no_service =
            self.new.get("service").is_some_and(|of| of.get("enabled") == Some(&json!(false)));
        if has_no_service && self.new.get("status").is_none_or(|status| status.get("source").is_none()) {
            self.set("status.source", json!("Nodes"));
        }
    }

    /// Reports all values that are left.
    fn report(&mut self, path: &str, rest: &Value) {
        match rest {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    self.report(&path, value);
                }
            }
            value if is_set(value) => {
                self.note(path, "Sluicegate has no such value. See the values of its chart", false);
            }
            _ => {}
        }
    }
}

/// A value as text.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The keys of a ConfigMap with a fault: the key, the fault, and whether the key restricts access.
fn faults(config: &Map<String, Value>) -> Vec<(String, String, bool)> {
    let data: Map<String, Value> =
        config.iter().map(|(key, value)| (key.clone(), Value::String(text(value)))).collect();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config", "namespace": "edge"}, "data": data});
    let mut store = Store::default();
    store.set_file(Path::new("values.json"), &object.to_string());
    let options = TranslateOptions {
        configmap: Some(ObjectName { namespace: "edge".into(), name: "config".into() }),
        read_globals: configmap::reader_of_defaults(),
        ingress_nginx: Some(IngressNginx::default()),
        ..TranslateOptions::default()
    };
    let problems = translate(&store, &options).problems.into_iter();
    let faults = problems.filter_map(|problem| {
        let key = problem.field.strip_prefix("data[")?.strip_suffix(']')?.to_owned();
        Some((key, problem.message, problem.severity == Severity::Error))
    });
    faults.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = r#"
controller:
  kind: DaemonSet
  replicaCount: 3
  allowSnippetAnnotations: true
  config:
    use-forwarded-headers: true
    proxy-body-size: 8m
    worker-shutdown-timeout: 120s
    http-snippet: map a b {}
    keep-alive-requests: 10000
  extraArgs:
    default-ssl-certificate: edge/tls
    publish-status-address: 192.0.2.1,lb.example
    sync-rate-limit: 1
    default-backend-service: edge/errors
  ingressClassResource: {name: internal, controllerValue: k8s.io/internal}
  scope: {enabled: true, namespace: shop}
  autoscaling: {enabled: true, maxReplicas: 5}
  service:
    annotations: {a: b}
    loadBalancerClass: ""
    externalTrafficPolicy: Local
    loadBalancerSourceRanges: [10.0.0.0/8]
    nodePorts: {http: 32080, tcp: {8080: 32808}}
    loadBalancerIP: 192.0.2.9
  metrics: {enabled: true, serviceMonitor: {enabled: true, scrapeInterval: 30s}}
  image: {tag: v1.15.1}
  admissionWebhooks: {enabled: true, failurePolicy: Fail, patch: {enabled: true}, service: {type: ClusterIP}}
  resources: {requests: {cpu: 1}}
  extraVolumes: []
  novelty: 7
tcp: {"8080": "shop/db:5432"}
"#;

    #[test]
    fn values_with_the_same_meaning_have_their_place_and_others_are_named() {
        let (new, notes) = translated(sluicegate_control::read_yaml(OLD).unwrap());
        let expected = json!({
            "kind": "DaemonSet",
            "replicas": 3,
            "config": {
                "use-forwarded-headers": "true", "proxy-body-size": "8m", "http-snippet": "map a b {}",
                "keep-alive-requests": "10000", "allow-snippet-annotations": "true",
            },
            "shutdown": {"timeoutSeconds": 120},
            "tls": {"defaultCertificate": "edge/tls"},
            "status": {"source": "Addresses", "addresses": ["192.0.2.1", "lb.example"]},
            "extraArgs": ["--default-backend-service=edge/errors"],
            "ingressNginx": {
                "compatibility": true, "controllerClass": "k8s.io/internal",
                "ingressClass": {"name": "internal", "controller": "k8s.io/internal"}, "tcp": {"8080": "shop/db:5432"},
            },
            "watchNamespaces": ["shop"],
            "autoscaling": {"maxReplicas": 5},
            "service": {
                "annotations": {"a": "b"}, "externalTrafficPolicy": "Local", "loadBalancerSourceRanges": ["10.0.0.0/8"],
                "nodePorts": {"http": 32080},
            },
            "serviceMonitor": {"interval": "30s"},
            "resources": {"requests": {"cpu": 1}},
            "listen": {"http": 10080},
            "admissionWebhook": {"enabled": true, "failurePolicy": "Fail"},
        });
        assert_eq!(new, expected);
        // The tests of the chart render this file.
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/sluicegate/ci/migrated-values.yaml");
        let text = format!(
            "# The output of `sluicegate migrate values` in crates/sluicegate/src/values.rs.\n{}",
            sluicegate_control::write_yaml(&new)
        );
        if std::env::var_os("SLUICEGATE_UPDATE_PAGES").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        assert!(
            std::fs::read_to_string(&file).unwrap_or_default() == text,
            "run `SLUICEGATE_UPDATE_PAGES=1 cargo test --workspace --bins values`"
        );
        let named: Vec<&str> = notes.iter().map(|note| &*note.path).collect();
        let expected = [
            "controller.ingressClassResource.enabled",
            "controller.config.http-snippet",
            "controller.extraArgs.sync-rate-limit",
            "controller.metrics.serviceMonitor.enabled",
            "controller.service.loadBalancerIP",
            "controller.novelty",
            "controller.service.nodePorts.tcp.8080",
        ];
        assert_eq!(named, expected, "{notes:#?}");
        assert!(notes.iter().all(|note| !note.restricts));
    }

    #[test]
    fn value_about_access_without_a_place_is_an_error() {
        for old in [
            "controller: {config: {server-snippet: access_by_lua_file x;}}",
            "controller: {config: {block-cidrs: nowhere}}",
            "controller: {extraArgs: {disable-svc-external-name: true}}",
            "controller: {scope: {namespaceSelector: a=b}}",
            "controller: {scope: {enabled: true}}",
            "controller: {customTemplate: {configMapName: x, configMapKey: y}}",
            "controller: {service: {enableHttp: false}}",
        ] {
            let (_, notes) = translated(sluicegate_control::read_yaml(old).unwrap());
            assert!(notes.iter().any(|note| note.restricts), "{old}: {notes:?}");
        }
        let (new, notes) = translated(Value::Null);
        assert_eq!(new, json!({"ingressNginx": {"compatibility": true}}));
        assert!(notes.iter().all(|note| !note.restricts));
    }

    #[test]
    fn every_place_is_a_value_of_the_chart() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/sluicegate");
        let chart = std::fs::read_to_string(root.join("values.yaml")).unwrap();
        let chart = sluicegate_control::read_yaml(&chart).unwrap();
        let (new, _) = translated(sluicegate_control::read_yaml(OLD).unwrap());
        let mut paths: Vec<String> = SAME.iter().map(|(_, new)| (*new).to_owned()).collect();
        for (name, value) in new.as_object().unwrap() {
            let inner = value.as_object().filter(|_| name != "config");
            paths.extend(inner.into_iter().flatten().map(|(inner, _)| format!("{name}.{inner}")));
        }
        for path in paths {
            let pointer = format!("/{}", path.replace('.', "/"));
            assert!(chart.pointer(&pointer).is_some() || path.starts_with("resources."), "{path}");
        }
    }
}
