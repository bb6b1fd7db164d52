//! `Api`.
//!
//! | module | content |
//! |---|---|
//! | [`written`] | the kind as users write it |
//! | [`contract`] | the OpenAPI document |
//! | [`requirement`] | what operations require of their callers |
//! | [`lifecycle`] | the lifecycle, and the choice of a version |

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;

use sluicegate_model::feature::Validation;
use sluicegate_model::value::Url;
use sluicegate_model::value::syntax::{self, normal_path};
use sluicegate_model::{HostPattern, UpstreamKey, Visibility};
use sluicegate_openapi::{Method, Operation};

use super::gateway_api::Written;
use super::kind::Raw;
use super::{Kind, Object, ObjectRef, annotation, host, visibility};
use crate::documents::{DocumentState, Documents};
use crate::problem::Findings;
use crate::store::Store;
use contract::Contract;
use lifecycle::{Lifecycle, Versioning};
use written::{ApiSpec, DocumentRef, DocumentSecurity, EnvironmentSpec, OperationSetSpec, SubscriptionNeed};

pub(crate) mod contract;
pub(crate) mod lifecycle;
pub(crate) mod requirement;
pub(crate) mod written;

/// A checked `Api`.
#[derive(Debug, PartialEq)]
pub(crate) struct Api {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    /// The title, in place of the title of the document.
    pub(crate) title: Option<Box<str>>,
    /// The team or the person who is responsible.
    pub(crate) owner: Option<Box<str>>,
    /// The version, in place of the version of the document.
    pub(crate) version: Option<Box<str>>,
    /// The document; `None` if the reference is invalid.
    pub(crate) document: Option<DocumentSource>,
    /// The valid environments.
    pub(crate) environments: Vec<Environment>,
    pub(crate) sets: Vec<OperationSet>,
    pub(crate) versioning: Option<Versioning>,
    pub(crate) subscriptions: SubscriptionNeed,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) validation: Validation,
    /// Whether operations require what the document says of their callers.
    pub(crate) enforces_security: bool,
    /// The visitors of the developer portal that see the API.
    pub(crate) visibility: Visibility,
}

/// The place of a document.
#[derive(Debug, PartialEq)]
pub(crate) enum DocumentSource {
    Inline(Arc<Contract>),
    ConfigMap { object: ObjectRef, key: Box<str> },
    Url(Url),
}

/// The result of a search for a document.
pub(crate) enum Found {
    /// The document, and its name in messages.
    Contract(Arc<Contract>, String),
    /// An older version of the document, and why there is no newer version.
    Old(Arc<Contract>, String),
    /// There is no document, for this reason.
    Missing(String),
    /// This process does not fetch the document.
    NotFetched,
}

impl Found {
    pub(crate) fn contract(self) -> Option<Arc<Contract>> {
        match self {
            Self::Contract(contract, _) | Self::Old(contract, _) => Some(contract),
            Self::Missing(_) | Self::NotFetched => None,
        }
    }
}

impl DocumentSource {
    pub(crate) fn find(&self, store: &Store, documents: &Documents) -> Found {
        match self {
            Self::Inline(contract) => Found::Contract(contract.clone(), String::new()),
            Self::ConfigMap { object, key } => {
                let Some((configmap, _)) = store.configmap(object) else {
                    return Found::Missing(format!("{object} does not exist"));
                };
                match configmap.data.get(key).and_then(|text| std::str::from_utf8(text).ok()) {
                    Some(text) => {
                        Found::Contract(configmap.documents.get(key, text), format!("data[{key}]: "))
                    }
                    None => Found::Missing(format!("{object} has no text in data[{key}]")),
                }
            }
            Self::Url(url) => match documents.get(url) {
                DocumentState::Known(contract, None) => Found::Contract(contract, String::new()),
                DocumentState::Known(contract, Some(fault)) => Found::Old(contract, fault),
                DocumentState::Unknown(fault) => Found::Missing(fault),
                DocumentState::NotFetched => Found::NotFetched,
            },
        }
    }

    /// The name of its field.
    pub(crate) fn field(&self) -> &'static str {
        match self {
            Self::Inline(_) => "inline",
            Self::ConfigMap { .. } => "configMap",
            Self::Url(_) => "url",
        }
    }
}

/// A valid environment.
#[derive(Debug, PartialEq)]
pub(crate) struct Environment {
    /// Its place in `spec.environments`.
    pub(crate) index: usize,
    pub(crate) name: Arc<str>,
    /// Its own document; `None` inside if the reference is invalid.
    pub(crate) document: Option<Option<DocumentSource>>,
    pub(crate) hosts: Vec<HostPattern>,
    /// In normal form, without a final slash; `None` for the path of the document.
    pub(crate) base_path: Option<Box<str>>,
    /// Without an upstream, the gateway responds itself.
    pub(crate) upstream: Option<UpstreamKey>,
    /// The path in place of the base path for endpoints, in normal form, without a final slash.
    pub(crate) endpoint_path: Option<Box<str>>,
    pub(crate) certificate: Option<ObjectRef>,
}

/// A set of operations.
#[derive(Debug, PartialEq)]
pub(crate) struct OperationSet {
    pub(crate) name: Arc<str>,
    operations: Option<Vec<String>>,
    tags: Option<Vec<String>>,
    methods: Option<Vec<Method>>,
    path_prefix: Option<String>,
    pub(crate) validation: Validation,
    pub(crate) is_mocked: bool,
}

impl OperationSet {
    pub(crate) fn has(&self, operation: &Operation) -> bool {
        let is_in = |list: &Option<Vec<String>>, text: &str| {
            list.as_ref().is_none_or(|list| list.iter().any(|known| *known == *text))
        };
        let has_tag = self
            .tags
            .as_ref()
            .is_none_or(|tags| operation.tags.iter().any(|tag| tags.iter().any(|known| **known == **tag)));
        is_in(&self.operations, &operation.id)
            && has_tag
            && self.methods.as_ref().is_none_or(|methods| methods.contains(&operation.method))
            && self.path_prefix.as_ref().is_none_or(|prefix| operation.path.starts_with(&**prefix))
    }
}

impl Api {
    /// The document of an environment, and the field that names it. `None` if the reference is invalid.
    pub(crate) fn document_of<'s>(
        &'s self,
        environment: &'s Environment,
    ) -> (String, Option<&'s DocumentSource>) {
        match &environment.document {
            Some(own) => (format!("spec.environments[{}].document", environment.index), own.as_ref()),
            None => ("spec.document".to_owned(), self.document.as_ref()),
        }
    }

    /// All documents.
    pub(crate) fn documents(&self) -> impl Iterator<Item = &DocumentSource> {
        let own = self.environments.iter().filter_map(|environment| environment.document.as_ref()?.as_ref());
        self.document.iter().chain(own)
    }

    fn check(raw: Written<ApiSpec>, object: &ObjectRef, findings: &mut Findings) -> Self {
        annotation::check_names(object.kind, raw.metadata.annotations.as_ref(), findings);
        let spec = raw.spec.unwrap_or_default();
        let document = document(spec.document, "spec.document", object, findings);
        if spec.environments.is_empty() {
            findings.error("spec.environments", "is empty: write at least one environment");
        }
        let mut environments: Vec<Environment> = Vec::with_capacity(spec.environments.len());
        for (index, written) in spec.environments.into_iter().enumerate() {
            let Some(environment) = environment(index, written, object, findings) else { continue };
            if environments.iter().any(|known| known.name == environment.name) {
                let fault = format!("{:?} is the name of two environments: rename one", environment.name);
                findings.error(format!("spec.environments[{index}].name"), fault);
                continue;
            }
            environments.push(environment);
        }
        let sets = spec.operation_sets.unwrap_or_default().into_iter().enumerate();
        let sets = sets.filter_map(|(index, set)| operation_set(index, set, findings)).collect();
        Self {
            created: raw.metadata.creation_timestamp.map(|time| time.0.as_second()),
            title: text("title", spec.title, findings),
            owner: text("owner", spec.owner, findings),
            version: text("version", spec.version, findings),
            document,
            environments,
            sets,
            versioning: spec.versioning.and_then(|written| Versioning::check(written, findings)),
            subscriptions: spec.subscriptions.unwrap_or_default(),
            lifecycle: Lifecycle::check(spec.lifecycle.unwrap_or_default(), findings),
            validation: spec.validation.unwrap_or_default(),
            enforces_security: spec.document_security == Some(DocumentSecurity::Enforce),
            visibility: visibility::check(spec.catalogue, findings),
        }
    }
}

/// A text of one line.
fn text(name: &str, written: Option<String>, findings: &mut Findings) -> Option<Box<str>> {
    let written = written?;
    if let Some(fault) = syntax::value_fault(&written) {
        findings.error(format!("spec.{name}"), format!("{written:?} {fault}"));
        return None;
    }
    Some(written.into())
}

fn document(
    written: DocumentRef,
    place: &str,
    object: &ObjectRef,
    findings: &mut Findings,
) -> Option<DocumentSource> {
    match (written.inline, written.config_map, written.url) {
        (Some(text), None, None) => {
            let contract = Contract::read(&text);
            for fault in &contract.faults {
                let field = format!("{place}.inline");
                match fault.is_error {
                    true => findings.error(field, fault.message.clone()),
                    false => findings.warning(field, fault.message.clone()),
                }
            }
            Some(DocumentSource::Inline(Arc::new(contract)))
        }
        (None, Some(reference), None) => {
            if let Some(fault) = syntax::dns_name_fault(&reference.name) {
                findings.error(format!("{place}.configMap.name"), format!("{:?} {fault}", reference.name));
                return None;
            }
            let configmap = ObjectRef {
                kind: Kind::ConfigMap,
                namespace: object.namespace.clone(),
                name: reference.name.into(),
            };
            let key = reference.key.as_deref().unwrap_or("openapi.yaml").into();
            Some(DocumentSource::ConfigMap { object: configmap, key })
        }
        (None, None, Some(url)) => Some(DocumentSource::Url(url)),
        _ => {
            findings.error(place, "must have exactly one of inline, configMap and url");
            None
        }
    }
}

fn environment(
    index: usize,
    written: EnvironmentSpec,
    object: &ObjectRef,
    findings: &mut Findings,
) -> Option<Environment> {
    let field = |name: &str| format!("spec.environments[{index}].{name}");
    if let Some(fault) = syntax::dns_name_fault(&written.name) {
        findings.error(field("name"), format!("{:?} {fault}", written.name));
        return None;
    }
    let mut hosts: Vec<HostPattern> = Vec::with_capacity(written.hosts.len());
    for (nth, text) in written.hosts.iter().enumerate() {
        match host::parse(text) {
            Ok(host) if hosts.contains(&host) => {
                findings.warning(field(&format!("hosts[{nth}]")), format!("{text:?} is written twice"));
            }
            Ok(host) => hosts.push(host),
            Err(fault) => findings.error(field(&format!("hosts[{nth}]")), fault),
        }
    }
    if hosts.is_empty() {
        findings.error(field("hosts"), "has no valid host: clients cannot reach the environment");
        return None;
    }
    let mut path = |name: &str, written: Option<String>| -> Result<Option<Box<str>>, ()> {
        let Some(written) = written else { return Ok(None) };
        match normal_path(&written) {
            Ok(normal) => Ok(Some(normal.trim_end_matches('/').into())),
            Err(fault) => {
                findings.error(field(name), fault);
                Err(())
            }
        }
    };
    let base_path = path("basePath", written.base_path).ok()?;
    let backend = written.backend;
    let endpoint_path = backend.as_ref().and_then(|backend| backend.base_path.clone());
    let endpoint_path = path("backend.basePath", endpoint_path).ok()?;
    if endpoint_path.as_ref().is_some_and(|path| path.contains('$')) {
        findings.error(field("backend.basePath"), "has a '$', which is not supported: write %24");
        return None;
    }
    let backend = backend.map(|backend| match backend.port {
        IntOrString::Int(port) => (backend.service, port.to_string()),
        IntOrString::String(port) => (backend.service, port),
    });
    let of_backend =
        backend.iter().flat_map(|(service, port)| [("backend.service", service), ("backend.port", port)]);
    for (name, value) in of_backend {
        if value.is_empty() {
            findings.error(field(name), "is empty: name a Service and one of its ports");
            return None;
        }
    }
    let document = written.document.map(|of| document(of, &field("document"), object, findings));
    let secret = |name: String| ObjectRef {
        kind: Kind::Secret,
        namespace: object.namespace.clone(),
        name: name.into(),
    };
    Some(Environment {
        index,
        name: written.name.into(),
        document,
        hosts,
        base_path,
        upstream: backend.map(|(service, port)| UpstreamKey {
            namespace: object.namespace.clone(),
            service: service.into(),
            port: port.into(),
            transport: sluicegate_model::Transport::default(),
        }),
        endpoint_path,
        certificate: written.tls.map(|tls| secret(tls.secret_name)),
    })
}

fn operation_set(index: usize, written: OperationSetSpec, findings: &mut Findings) -> Option<OperationSet> {
    let field = |name: &str| format!("spec.operationSets[{index}].{name}");
    if written.name.is_empty() {
        findings.error(field("name"), "is empty: name the set");
        return None;
    }
    let mut methods = None;
    for (nth, text) in written.methods.iter().flatten().enumerate() {
        match Method::ALL.into_iter().find(|method| method.as_str() == text) {
            Some(method) => methods.get_or_insert_with(Vec::new).push(method),
            None => {
                findings.error(
                    field(&format!("methods[{nth}]")),
                    format!("{text:?} is no method: write GET, POST, ..."),
                );
                return None;
            }
        }
    }
    Some(OperationSet {
        name: written.name.into(),
        operations: written.operations,
        tags: written.tags,
        methods,
        path_prefix: written.path_prefix,
        validation: written.validation.unwrap_or_default(),
        is_mocked: written.mock.unwrap_or_default(),
    })
}

impl Raw for Written<ApiSpec> {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(Api::check(self, object, findings).into())
    }
}
