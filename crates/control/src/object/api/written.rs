//! `Api` as users write it.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use sluicegate_model::feature::Validation;
use sluicegate_model::value::Url;

use super::lifecycle::{LifecycleSpec, VersioningSpec};
use crate::object::visibility::CatalogueSpec;

/// An API that an OpenAPI document describes. The gateway forwards requests for the operations of the document, and responds to
/// other requests below the base path itself.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiSpec {
    /// The title of the API, as text. Default: info.title of the document.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) title: Option<String>,
    /// The version of the API, as text such as "2". Default: info.version of the document.
    #[schemars(length(min = 1, max = 64))]
    pub(crate) version: Option<String>,
    /// The team or the person who is responsible for the API. Default: none.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) owner: Option<String>,
    /// The OpenAPI document, version 3.0 or 3.1, with the operations of the API.
    pub(crate) document: DocumentRef,
    /// The environments of the API, such as staging and production. An environment has hosts, a base path, a Service and
    /// optionally its own document. 1 to 16 entries.
    #[schemars(length(min = 1, max = 16))]
    pub(crate) environments: Vec<EnvironmentSpec>,
    /// How clients choose this version of the API. Default: by the hosts and the base path alone.
    pub(crate) versioning: Option<VersioningSpec>,
    /// The state of the API, and the dates of its end. Default: Published.
    pub(crate) lifecycle: Option<LifecycleSpec>,
    /// Whether callers need an active Subscription to the operation (Required). With Optional, a Subscription only limits its Consumer.
    /// Default: Optional.
    pub(crate) subscriptions: Option<SubscriptionNeed>,
    /// Sets of operations. A policy can name a set in sectionName of its target. At most 64 entries. Default: none.
    #[schemars(length(max = 64))]
    pub(crate) operation_sets: Option<Vec<OperationSetSpec>>,
    /// Validation of requests and responses by the document. operationSets[].validation has precedence, field by field.
    /// Default: no validation.
    pub(crate) validation: Option<Validation>,
    /// Enforce: each operation requires the credentials that its field security in the document names. Add a
    /// SecurityPolicy for the Api that configures how the gateway checks these credentials. An operation whose
    /// credentials the gateway cannot check responds with 503. Ignore: the gateway does not read the field security, and
    /// only SecurityPolicies protect the operations. Default: Ignore.
    pub(crate) document_security: Option<DocumentSecurity>,
    /// The entry of the API in the catalogue of the developer portal. Default: no visitor of the portal sees the API.
    pub(crate) catalogue: Option<CatalogueSpec>,
}

/// Whether callers need a Subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum SubscriptionNeed {
    #[default]
    Optional,
    Required,
}

/// Whether security of the document applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum DocumentSecurity {
    #[default]
    Ignore,
    Enforce,
}

/// A document: exactly one of inline, configMap and url.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.inline), has(self.configMap), has(self.url)].filter(is, is).size() == 1",
    "message": "write exactly one of inline, configMap and url"
}]))]
pub(crate) struct DocumentRef {
    /// The text of the document, in YAML or JSON. At most 16777216 bytes in a directory of manifests. A cluster stores at most
    /// about 1 MiB.
    #[schemars(length(min = 1, max = 16_777_216))]
    pub(crate) inline: Option<String>,
    /// The ConfigMap with the document, in the namespace of the Api.
    pub(crate) config_map: Option<ConfigMapKey>,
    /// The URL of the document, https:// or http://. The control plane fetches the document every minute
    /// (--api-document-interval), and keeps the last valid version. --api-document-host must allow the host. The control plane
    /// does not follow redirects. A document has at most 16777216 bytes.
    pub(crate) url: Option<Url>,
}

/// A key of a ConfigMap.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConfigMapKey {
    /// The name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// The key with the document. Default: openapi.yaml.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) key: Option<String>,
}

/// An environment: where clients reach the API, and the Service.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EnvironmentSpec {
    /// The name of the environment, such as production.
    #[schemars(length(min = 1, max = 63))]
    pub(crate) name: String,
    /// The hosts of the environment, such as api.example.com. 1 to 16 entries.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253)))]
    pub(crate) hosts: Vec<String>,
    /// The document of the environment, in place of spec.document. Default: spec.document.
    pub(crate) document: Option<DocumentRef>,
    /// The path before the paths of the document. Default: the path of the first server of the document, or / without a server.
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) base_path: Option<String>,
    /// The Service that serves the operations. Default: the gateway responds itself, with the examples of the document.
    pub(crate) backend: Option<ApiBackend>,
    /// The certificate for the hosts. Default: the certificate that another object has for the host, or else the default certificate.
    pub(crate) tls: Option<ApiTls>,
}

/// A Service.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiBackend {
    /// The name of the Service, in the namespace of the Api.
    #[schemars(length(min = 1, max = 63))]
    pub(crate) service: String,
    /// The name or the number of a port of the Service, such as http or 8080. A name has 1 to 63 characters.
    #[schemars(schema_with = "int_or_string")]
    pub(crate) port: IntOrString,
    /// The gateway replaces basePath with this path before it forwards a request. Default: no change.
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) base_path: Option<String>,
}

/// A certificate.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiTls {
    /// The Secret of type kubernetes.io/tls with the certificate, in the namespace of the Api.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) secret_name: String,
}

/// A set of operations: those that meet all conditions.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OperationSetSpec {
    /// The name of the set.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// The ids of the operations: operationId, or method and path such as "GET /pets". At most 2000 entries. Default: any id.
    #[schemars(length(max = 2000), inner(length(min = 1, max = 1024)))]
    pub(crate) operations: Option<Vec<String>>,
    /// The operations have one of these tags. At most 64 entries. Default: any tags.
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub(crate) tags: Option<Vec<String>>,
    /// The operations have one of these methods, in upper case. At most 8 entries. Default: any method.
    #[schemars(length(max = 8), inner(length(min = 1, max = 16)))]
    pub(crate) methods: Option<Vec<String>>,
    /// The paths of the operations begin with this text, such as /admin/. Default: any path.
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) path_prefix: Option<String>,
    /// Validation of requests and responses, in place of the fields of spec.validation. If several sets have an operation, the
    /// first set with a field has precedence. Default: as spec.validation.
    pub(crate) validation: Option<Validation>,
    /// Whether the gateway responds to requests itself, with the examples of the document. Default: false.
    pub(crate) mock: Option<bool>,
}

/// A number or text, as Kubernetes defines it for ports.
fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true})
}
