//! The parameters of Gateways (`parametersRef`): a ConfigMap with settings for the Service and the data planes of a Gateway.

use std::sync::Arc;

use super::gateway_api::ObjectReference;
use super::secret::Data;
use super::{Kind, ObjectRef};
use crate::problem::Findings;
use crate::translate::{DataPlanes, ServiceType};

/// The keys of the ConfigMap.
const SERVICE_TYPE: &str = "serviceType";
const LOAD_BALANCER_CLASS: &str = "loadBalancerClass";
const EXTERNAL_TRAFFIC_POLICY: &str = "externalTrafficPolicy";
const DATA_PLANES: &str = "dataPlanes";

/// The parameters of a Gateway or a class. A parameter that is absent has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// The type of the Service.
    pub(crate) service_type: Option<ServiceType>,
    /// `spec.loadBalancerClass` of the Service.
    pub(crate) load_balancer_class: Option<String>,
    /// `spec.externalTrafficPolicy` of the Service.
    pub(crate) external_traffic_policy: Option<String>,
    /// The data planes that serve the Gateway.
    pub(crate) data_planes: Option<DataPlanes>,
}

impl Parameters {
    /// The parameters of a ConfigMap, or the first faulty key with its fault.
    pub(crate) fn read(data: &Data) -> Result<Self, String> {
        let mut parameters = Self::default();
        for (key, value) in data.values() {
            let invalid = |fault: String| format!("data[{key}]: {fault}");
            let value = std::str::from_utf8(value).map_err(|_| invalid("is not UTF-8".to_owned()))?;
            let written = || format!("{:?} is not supported", value.escape_debug().to_string());
            match key {
                SERVICE_TYPE => {
                    let types = [ServiceType::ClusterIp, ServiceType::NodePort, ServiceType::LoadBalancer];
                    let known = types.into_iter().find(|known| known.as_str() == value);
                    let fault =
                        || invalid(format!("{}: write ClusterIP, NodePort or LoadBalancer", written()));
                    parameters.service_type = Some(known.ok_or_else(fault)?);
                }
                LOAD_BALANCER_CLASS if value.is_empty() => {
                    return Err(invalid("is empty: write a class, or remove the key".to_owned()));
                }
                LOAD_BALANCER_CLASS => parameters.load_balancer_class = Some(value.to_owned()),
                EXTERNAL_TRAFFIC_POLICY if matches!(value, "Cluster" | "Local") => {
                    parameters.external_traffic_policy = Some(value.to_owned());
                }
                EXTERNAL_TRAFFIC_POLICY => {
                    return Err(invalid(format!("{}: write Cluster or Local", written())));
                }
                DATA_PLANES => {
                    parameters.data_planes = Some(match value {
                        "Shared" => DataPlanes::Shared,
                        "Own" => DataPlanes::Own,
                        _ => return Err(invalid(format!("{}: write Shared or Own", written()))),
                    });
                }
                _ => {
                    return Err(invalid(format!(
                        "is unknown; the keys are {SERVICE_TYPE}, {LOAD_BALANCER_CLASS}, {EXTERNAL_TRAFFIC_POLICY} and {DATA_PLANES}"
                    )));
                }
            }
        }
        Ok(parameters)
    }

    /// These parameters, and those of `others` that are absent here.
    pub(crate) fn or(self, others: Self) -> Self {
        Self {
            service_type: self.service_type.or(others.service_type),
            load_balancer_class: self.load_balancer_class.or(others.load_balancer_class),
            external_traffic_policy: self.external_traffic_policy.or(others.external_traffic_policy),
            data_planes: self.data_planes.or(others.data_planes),
        }
    }
}

/// The ConfigMap of a `parametersRef` in this field; or the reason why the reference is invalid. `own` is the namespace of
/// the Gateway; the reference of a class names a namespace.
pub(crate) fn check_reference(
    written: ObjectReference,
    own: Option<&Arc<str>>,
    field: &str,
    findings: &mut Findings,
) -> Result<ObjectRef, String> {
    let ObjectReference { group, kind, namespace, name } = written;
    let mut invalid = |within: &str, fault: String| {
        findings.warning(format!("{field}.{within}"), &*fault);
        Err(format!("{field}.{within}: {fault}"))
    };
    let group = group.unwrap_or_default();
    if !group.is_empty() {
        return invalid("group", format!("{group:?} is not supported: write \"\" and name a ConfigMap"));
    }
    let kind = kind.unwrap_or_default();
    if kind != Kind::ConfigMap.as_str() {
        return invalid("kind", format!("{kind:?} is not supported: name a ConfigMap"));
    }
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return invalid("name", "is missing: name a ConfigMap".to_owned());
    };
    let Some(namespace) = own.cloned().or(namespace.map(Into::into)) else {
        return invalid("namespace", "is missing: write the namespace of the ConfigMap".to_owned());
    };
    Ok(ObjectRef { kind: Kind::ConfigMap, namespace, name: name.into() })
}
