//! The options for data planes of single Gateways.

use std::time::Duration;

use serde_json::Value;

/// The data planes that serve a Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPlanes {
    /// The shared data planes, which serve all Gateways without data planes of their own.
    Shared,
    /// Data planes of the Gateway alone, in its namespace.
    Own,
}

/// Data planes of single Gateways.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnDataPlanes {
    /// The data planes of Gateways whose parameters name none.
    pub default: DataPlanes,
    /// The time for which a Gateway that moves between shared and own data planes keeps its former Service after the new Service
    /// serves.
    pub overlap: Duration,
    /// The template of their workloads.
    pub template: WorkloadTemplate,
}

/// The Deployment or DaemonSet of the data planes of any Gateway, without its name and labels.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadTemplate {
    /// The kind of the workload: `Deployment` or `DaemonSet`.
    pub(crate) kind: &'static str,
    /// The number of pods of a new Deployment; `None` for one.
    pub(crate) replicas: Option<u32>,
    /// `spec`, without `replicas` and `selector`.
    pub(crate) spec: Value,
}

/// The reason why a template is invalid.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The text is not YAML.
    #[error("is not YAML: {0}")]
    Yaml(#[from] serde_saphyr::Error),
    /// A field is missing or has an invalid value.
    #[error("{0}")]
    Field(&'static str),
}

impl WorkloadTemplate {
    /// The template in this YAML.
    /// # Errors
    /// If the text is not a Deployment or DaemonSet of `apps/v1` with a container.
    pub fn read(yaml: &str) -> Result<Self, TemplateError> {
        let mut object: Value = serde_saphyr::from_str(yaml)?;
        if object["apiVersion"] != "apps/v1" {
            return Err(TemplateError::Field("apiVersion: write apps/v1"));
        }
        let kind = match object["kind"].as_str() {
            Some("Deployment") => "Deployment",
            Some("DaemonSet") => "DaemonSet",
            _ => return Err(TemplateError::Field("kind: write Deployment or DaemonSet")),
        };
        let mut spec = object["spec"].take();
        let Some(fields) = spec.as_object_mut() else {
            return Err(TemplateError::Field("spec: is missing"));
        };
        fields.remove("selector");
        let replicas = match fields.remove("replicas") {
            None | Some(Value::Null) => None,
            Some(number) => match number.as_u64().and_then(|number| u32::try_from(number).ok()) {
                Some(number) => Some(number),
                None => return Err(TemplateError::Field("spec.replicas: write a number")),
            },
        };
        let containers = spec["template"]["spec"]["containers"].as_array();
        if containers.is_none_or(Vec::is_empty) {
            return Err(TemplateError::Field("spec.template.spec.containers: is missing"));
        }
        Ok(Self { kind, replicas, spec })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_is_a_workload_with_a_container() {
        let written = "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 3, selector: {}, \
                       template: {spec: {containers: [{name: a}]}}}}";
        let template = WorkloadTemplate::read(written).expect("a template");
        assert_eq!((template.kind, template.replicas), ("Deployment", Some(3)));
        assert!(template.spec["replicas"].is_null() && template.spec["selector"].is_null());
        for (from, to, field) in [
            ("apps/v1", "v1", "apiVersion"),
            ("Deployment", "Pod", "kind"),
            ("3", "many", "spec.replicas"),
            ("[{name: a}]", "[]", "containers"),
            ("spec", "status", "spec: is missing"),
            ("{", "}", "YAML"),
        ] {
            let error = WorkloadTemplate::read(&written.replacen(from, to, 1)).expect_err(to);
            assert!(error.to_string().contains(field), "{to}: {error}");
        }
    }
}
